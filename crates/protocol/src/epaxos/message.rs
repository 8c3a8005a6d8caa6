//! What EPaxos's machines say to each other, in the order in which an operation travels.

use super::instance::{InstanceId, Operation, Proposal, Step};
use super::log::Head;
use crate::instances::LogState;
use crate::instances::instance::Ballot;
use crate::machine::{self, OpId};
use crate::object::Answer;
use crate::registers::carstamp::{Carstamp, Keyed};
use crate::registers::comparison::Comparing;
use crate::registers::listing::Listed;
use bytes::Bytes;
use minicbor::{Decode, Encode};

/// Every message of the protocol. Its "coordinator" is the replica that proposes an operation.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub enum Message {
    /// Client to a replica: coordinate this operation. Sent again, to this replica or another, under the same id.
    #[n(0)]
    Submit {
        /// The key.
        #[n(0)]
        #[cbor(with = "crate::wire::blob")]
        key: Bytes,
        /// The operation.
        #[n(1)]
        operation: Box<Operation>,
    },
    /// Coordinator to client: it has its place, or is executed.
    #[n(1)]
    Done {
        /// The operation.
        #[n(0)]
        op: OpId,
        /// The answer; `None` if the operation came too late to tell whether it had been executed before.
        #[n(1)]
        answer: Option<Answer>,
        /// The version that it created or saw; `None` if it was not executed yet.
        #[n(2)]
        carstamp: Option<Carstamp>,
        /// Wide-area round trips of its instance.
        #[n(3)]
        rounds: u32,
        /// Microseconds from its commit to its execution.
        #[n(4)]
        waited: u64,
    },
    /// Coordinator to client: not proposed, because its time is too far ahead of this replica's.
    #[n(2)]
    TooFarAhead {
        /// The operation.
        #[n(0)]
        op: OpId,
    },
    /// Replica to replica: a step of an instance.
    #[n(3)]
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
    },
    /// Recoverer to those that have promised: what speaks against a commit of this in one round?
    #[n(4)]
    Validate {
        /// The key.
        #[n(0)]
        #[cbor(with = "crate::wire::blob")]
        key: Bytes,
        /// The instance.
        #[n(1)]
        id: InstanceId,
        /// The ballot.
        #[n(2)]
        ballot: Ballot,
        /// What the coordinator proposed at first.
        #[n(3)]
        initial: Box<Proposal>,
    },
    /// Replica to recoverer: this does.
    #[n(5)]
    ValidateReply {
        /// The key.
        #[n(0)]
        #[cbor(with = "crate::wire::blob")]
        key: Bytes,
        /// The instance.
        #[n(1)]
        id: InstanceId,
        /// The ballot.
        #[n(2)]
        ballot: Ballot,
        /// An interfering instance is final and neither depends on the other.
        #[n(3)]
        refuted: bool,
        /// Interfering instances that may turn out so.
        #[n(4)]
        open: Vec<InstanceId>,
    },
    /// Recoverer to all: I wait for other instances to decide this one, which so many of a majority had
    /// pre-accepted unchanged.
    #[n(6)]
    Waiting {
        /// The key.
        #[n(0)]
        #[cbor(with = "crate::wire::blob")]
        key: Bytes,
        /// The instance.
        #[n(1)]
        id: InstanceId,
        /// How many.
        #[n(2)]
        unchanged: u32,
    },
    /// To whoever lacks it: all that executing has left of a key.
    #[n(7)]
    KeyState {
        /// The key and its value.
        #[n(0)]
        keyed: Keyed,
        /// Its log.
        #[n(1)]
        state: Option<Box<LogState<Head>>>,
    },
    /// Client to replicas: list keys.
    #[n(8)]
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
    #[n(9)]
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
    /// Replica to a peer: do we hold the same?
    #[n(10)]
    Comparison(#[n(0)] Comparing),
}

impl machine::Message for Message {
    fn items(&self) -> usize {
        match self {
            Self::Instance { step, .. } => step.items(),
            Self::Validate { initial, .. } => initial.items(),
            Self::ValidateReply { open, .. } => 1 + open.len(),
            Self::Waiting { .. } => 1,
            Self::ListReply { keys, .. } => keys.len(),
            Self::Comparison(comparing) => comparing.items(),
            Self::Submit { .. }
            | Self::Done { .. }
            | Self::TooFarAhead { .. }
            | Self::KeyState { .. }
            | Self::List { .. } => 0,
        }
    }
}
