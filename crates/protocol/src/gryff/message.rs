//! What Gryff's machines say to each other, in the order in which an operation travels.

use super::chain::Head;
use super::instance::{InstanceId, Operation, Step};
use crate::instances::LogState;
use crate::machine::{self, OpId};
use crate::object::{Answer, State};
use crate::registers::carstamp::{Carstamp, Held, Keyed};
use crate::registers::comparison::Comparing;
use crate::registers::listing::Listed;
use bytes::Bytes;
use minicbor::{Decode, Encode};

/// Every message of the protocol. "Coordinator" is whoever runs an operation's phases: the client machine
/// for writes and for reads without proxy, the replica for proxied reads and for rmws. What only consensus needs is
/// boxed, so that reads and writes do not move room for it about.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub enum Message {
    /// Client to the replica of its region: read for me (Gryff §5).
    #[n(0)]
    Read {
        /// The operation.
        #[n(0)]
        op: OpId,
        /// The key.
        #[n(1)]
        #[cbor(with = "crate::wire::blob")]
        key: Bytes,
        /// Only with the published RSC rule: what the session has read and a quorum may lack.
        #[n(2)]
        dependency: Option<Box<Keyed>>,
    },
    /// Proxy to client: the newest version that a quorum has shown.
    #[n(1)]
    ReadReply {
        /// The operation.
        #[n(0)]
        op: OpId,
        /// The version.
        #[n(1)]
        held: Held,
        /// Wide-area round trips it took.
        #[n(2)]
        rounds: u32,
        /// Whether a quorum is known to hold the version. If not (only RSC), `Settled` follows.
        #[n(3)]
        settled: bool,
    },
    /// Proxy to client: a quorum now holds what the read returned (RSC).
    #[n(2)]
    Settled {
        /// The read.
        #[n(0)]
        op: OpId,
        /// The version that is on a quorum. A read tried at two proxies may have seen two versions, and one
        /// being settled says nothing of the other.
        #[n(1)]
        carstamp: Carstamp,
    },
    /// Coordinator to replicas: what do you hold? (Gryff Alg. 1)
    #[n(3)]
    Read1 {
        /// The operation.
        #[n(0)]
        op: OpId,
        /// The key.
        #[n(1)]
        #[cbor(with = "crate::wire::blob")]
        key: Bytes,
        /// The proxy's own version, which the receiver adopts if it is newer (Gryff §5, Alg. 7).
        #[n(2)]
        lent: Option<Held>,
        /// As in `Read`.
        #[n(3)]
        dependency: Option<Box<Keyed>>,
    },
    /// Replica to coordinator: what it holds, after adopting what was lent.
    #[n(4)]
    Read1Reply {
        /// The operation.
        #[n(0)]
        op: OpId,
        /// Its version.
        #[n(1)]
        carstamp: Carstamp,
        /// The value, left out if the carstamp is that of the version lent.
        #[n(2)]
        value: State,
    },
    /// Coordinator to the replicas not known to hold the version: the write-back. Also how a client settles
    /// what it has read.
    #[n(5)]
    Read2 {
        /// The operation.
        #[n(0)]
        op: OpId,
        /// The version that the read returns.
        #[n(1)]
        keyed: Keyed,
    },
    /// Replica to coordinator: it holds this version, which is the one asked for or a newer one.
    #[n(6)]
    Read2Reply {
        /// The operation.
        #[n(0)]
        op: OpId,
        /// The version held: a reply that belongs to an earlier try of the read counts for what it says.
        #[n(1)]
        carstamp: Carstamp,
    },
    /// Client to replicas: which carstamp do you hold? (Gryff Alg. 1)
    #[n(7)]
    Write1 {
        /// The operation.
        #[n(0)]
        op: OpId,
        /// The key.
        #[n(1)]
        #[cbor(with = "crate::wire::blob")]
        key: Bytes,
        /// As in `Read`.
        #[n(2)]
        dependency: Option<Box<Keyed>>,
    },
    /// Replica to client: this one.
    #[n(8)]
    Write1Reply {
        /// The operation.
        #[n(0)]
        op: OpId,
        /// Its carstamp.
        #[n(1)]
        carstamp: Carstamp,
    },
    /// Client to replicas: hold this version.
    #[n(9)]
    Write2 {
        /// The operation.
        #[n(0)]
        op: OpId,
        /// The version written.
        #[n(1)]
        keyed: Keyed,
    },
    /// Replica to client: it holds that version or a newer one.
    #[n(10)]
    Write2Reply {
        /// The operation.
        #[n(0)]
        op: OpId,
    },
    /// Client to a replica: coordinate this rmw. Sent again, to this replica or another, under the same id.
    #[n(11)]
    Rmw {
        /// The key.
        #[n(0)]
        #[cbor(with = "crate::wire::blob")]
        key: Bytes,
        /// The command.
        #[n(1)]
        rmw: Box<Operation>,
        /// As in `Read`.
        #[n(2)]
        dependency: Option<Box<Keyed>>,
    },
    /// Coordinator to client: executed at a quorum.
    #[n(12)]
    RmwReply {
        /// The operation.
        #[n(0)]
        op: OpId,
        /// The answer; `None` if the operation came too late to tell whether it had been executed before.
        #[n(1)]
        answer: Option<Answer>,
        /// The carstamp that the rmw created.
        #[n(2)]
        carstamp: Carstamp,
        /// Wide-area round trips it took.
        #[n(3)]
        rounds: u32,
    },
    /// Coordinator to client: not proposed, because its time is too far ahead of this replica's. Were it
    /// executed, results of others would be forgotten too soon.
    #[n(13)]
    RmwRefused {
        /// The operation.
        #[n(0)]
        op: OpId,
    },
    /// Replica to replica: a step of an rmw's instance (Gryff Alg. 3).
    #[n(14)]
    Instance {
        /// The key.
        #[n(0)]
        #[cbor(with = "crate::wire::blob")]
        key: Bytes,
        /// The instance.
        #[n(1)]
        id: InstanceId,
        /// The step.
        #[n(2)]
        step: Step,
        /// As in `Read`; with pre-accepts.
        #[n(3)]
        dependency: Option<Box<Keyed>>,
    },
    /// Replica to the instance's coordinator: executed here, and durably so.
    #[n(15)]
    Executed {
        /// The key.
        #[n(0)]
        #[cbor(with = "crate::wire::blob")]
        key: Bytes,
        /// The instance.
        #[n(1)]
        id: InstanceId,
    },
    /// To whoever lacks it: all that this replica holds of a key.
    #[n(16)]
    KeyState {
        /// The key and its register.
        #[n(0)]
        keyed: Keyed,
        /// Its rmws, if there were any.
        #[n(1)]
        state: Option<Box<LogState<Head>>>,
    },
    /// Client to replicas: list keys.
    #[n(17)]
    List {
        /// The operation.
        #[n(0)]
        op: OpId,
        /// Keys whose hash is at least this.
        #[n(1)]
        from: u64,
        /// About how many.
        #[n(2)]
        count: u32,
        /// Time for judging expiry, ms.
        #[n(3)]
        at_ms: u64,
    },
    /// Replica to client: the keys, in the order of their hashes.
    #[n(18)]
    ListReply {
        /// The operation.
        #[n(0)]
        op: OpId,
        /// The hash asked from, so that a late reply to an earlier page is known as such.
        #[n(1)]
        from: u64,
        /// The keys.
        #[n(2)]
        keys: Vec<Listed>,
        /// The hash from which to go on.
        #[n(3)]
        next: Option<u64>,
    },
    /// Replica to client, instead of `Write2Reply`: the version's timestamp lies so far ahead of this replica's clock that
    /// the writer's clock must be wrong.
    #[n(20)]
    Ahead {
        /// The operation.
        #[n(0)]
        op: OpId,
    },
    /// Client without a bound on its clock to replicas: what has passed? The answer is what `Time` travels with.
    #[n(21)]
    AskTime {
        /// The operation that waits.
        #[n(0)]
        op: OpId,
    },
    /// Replica to client: the answer.
    #[n(22)]
    Time {
        /// The operation.
        #[n(0)]
        op: OpId,
    },
    /// Replica to a peer: do we hold the same?
    #[n(19)]
    Comparison(#[n(0)] Comparing),
}

impl machine::Message for Message {
    fn items(&self) -> usize {
        match self {
            Self::Instance { step, .. } => step.items(),
            Self::Executed { .. } => 1,
            Self::ListReply { keys, .. } => keys.len(),
            Self::Comparison(comparing) => comparing.items(),
            _ => 0,
        }
    }
}
