//! What Gryff's machines say to each other, in the order in which an operation travels.

use super::carstamp::{Carstamp, Held};
use super::chain::ChainState;
use super::instance::{Attributes, Ballot, InstanceId, Phase, Proposal, Rmw};
use crate::machine;
use crate::object::{Answer, State, TypeName};
use crate::topology::{ClientId, Region};
use bytes::Bytes;
use minicbor::{Decode, Encode};

/// An operation: unique over all clients and their lives, and the same in every retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct OpId {
    /// The client that asks.
    #[n(0)]
    pub client: ClientId,
    /// The client's number for the request; grows.
    #[n(1)]
    pub request: u64,
}

/// A version of a named key.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct Keyed {
    /// The key.
    #[n(0)]
    #[cbor(with = "crate::wire::blob")]
    pub key: Bytes,
    /// The version.
    #[n(1)]
    pub held: Held,
}

/// A key in a listing.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct Listed {
    /// The key.
    #[n(0)]
    #[cbor(with = "crate::wire::blob")]
    pub key: Bytes,
    /// The version that the lister holds.
    #[n(1)]
    pub carstamp: Carstamp,
    /// The type of its value, `TypeName::None` for a tombstone.
    #[n(2)]
    pub kind: TypeName,
}

/// A key as replicas compare it.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct Compared {
    /// The key.
    #[n(0)]
    #[cbor(with = "crate::wire::blob")]
    pub key: Bytes,
    /// The register's version.
    #[n(1)]
    pub carstamp: Carstamp,
    /// Digest of which of its instances are executed; 0 if none.
    #[n(2)]
    pub executed: u64,
}

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
        rmw: Box<Rmw>,
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
    #[n(27)]
    RmwRefused {
        /// The operation.
        #[n(0)]
        op: OpId,
    },
    /// Coordinator to a fast quorum: the rmw with what I know (Gryff Alg. 3).
    #[n(13)]
    PreAccept {
        /// The key.
        #[n(0)]
        #[cbor(with = "crate::wire::blob")]
        key: Bytes,
        /// The instance.
        #[n(1)]
        id: InstanceId,
        /// The command.
        #[n(2)]
        rmw: Box<Rmw>,
        /// Dependencies and base as the coordinator knows them.
        #[n(3)]
        initial: Box<Attributes>,
        /// With three replicas: the one whose merged attributes the coordinator may commit in one round.
        #[n(4)]
        partner: Option<Region>,
        /// As in `Read`.
        #[n(5)]
        dependency: Option<Box<Keyed>>,
    },
    /// Replica to coordinator: pre-accepted, with what I know added.
    #[n(14)]
    PreAcceptReply {
        /// The key.
        #[n(0)]
        #[cbor(with = "crate::wire::blob")]
        key: Bytes,
        /// The instance.
        #[n(1)]
        id: InstanceId,
        /// The merged attributes.
        #[n(2)]
        attributes: Box<Attributes>,
    },
    /// Coordinator or recoverer to replicas: accept this outcome at this ballot.
    #[n(15)]
    Accept {
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
        /// The outcome.
        #[n(3)]
        proposal: Box<Proposal>,
    },
    /// Replica to coordinator or recoverer: accepted at that ballot.
    #[n(16)]
    AcceptReply {
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
    },
    /// To all: the outcome is final.
    #[n(17)]
    Commit {
        /// The key.
        #[n(0)]
        #[cbor(with = "crate::wire::blob")]
        key: Bytes,
        /// The instance.
        #[n(1)]
        id: InstanceId,
        /// The outcome.
        #[n(2)]
        proposal: Box<Proposal>,
    },
    /// Replica to the instance's coordinator: executed here, and durably so.
    #[n(18)]
    Executed {
        /// The key.
        #[n(0)]
        #[cbor(with = "crate::wire::blob")]
        key: Bytes,
        /// The instance.
        #[n(1)]
        id: InstanceId,
    },
    /// Replica to whoever asked with a ballot below the one promised.
    #[n(19)]
    Refused {
        /// The key.
        #[n(0)]
        #[cbor(with = "crate::wire::blob")]
        key: Bytes,
        /// The instance.
        #[n(1)]
        id: InstanceId,
        /// The ballot promised.
        #[n(2)]
        promised: Ballot,
    },
    /// Recoverer to all: promise this ballot and tell what you know.
    #[n(20)]
    Recover {
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
    },
    /// Replica to recoverer: promised; this is what I know.
    #[n(21)]
    RecoverReply {
        /// The key.
        #[n(0)]
        #[cbor(with = "crate::wire::blob")]
        key: Bytes,
        /// The instance.
        #[n(1)]
        id: InstanceId,
        /// The ballot promised.
        #[n(2)]
        ballot: Ballot,
        /// What it knows.
        #[n(3)]
        report: Box<Report>,
    },
    /// To whoever lacks it: all that this replica holds of a key.
    #[n(22)]
    KeyState {
        /// The key and its register.
        #[n(0)]
        keyed: Keyed,
        /// Its rmws, if there were any.
        #[n(1)]
        chain: Option<Box<ChainState>>,
    },
    /// Client to replicas: list keys.
    #[n(23)]
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
    #[n(24)]
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
    /// Replica to a peer, from time to time: do we hold the same?
    #[n(25)]
    Compare {
        /// Digest of each bucket of keys, or `None` for one that is changing just now.
        #[n(0)]
        digests: Vec<Option<u64>>,
        /// The bucket whose turn it is to be compared even so.
        #[n(1)]
        turn: u32,
    },
    /// Peer to replica: not in this bucket; this is what I hold there.
    #[n(26)]
    Differ {
        /// The bucket.
        #[n(0)]
        bucket: u32,
        /// Its keys.
        #[n(1)]
        keys: Vec<Compared>,
        /// Whether the receiver should tell its own keys of the bucket in return.
        #[n(2)]
        ask: bool,
    },
}

/// What a replica knows of an instance, told to a recoverer.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct Report {
    /// How far the instance has come here.
    #[n(0)]
    pub phase: Phase,
    /// The ballot at which `proposal` was accepted.
    #[n(1)]
    pub accepted: Ballot,
    /// The outcome as known here, from `Phase::PreAccepted` on.
    #[n(2)]
    pub proposal: Option<Proposal>,
    /// The attributes that the coordinator proposed, if known.
    #[n(3)]
    pub initial: Option<Attributes>,
    /// The partner that the coordinator named.
    #[n(4)]
    pub partner: Option<Region>,
}

impl machine::Message for Message {
    fn items(&self) -> usize {
        let instance = |attributes: &Attributes| 1 + attributes.dependencies.len();
        match self {
            Self::PreAccept { initial: attributes, .. } | Self::PreAcceptReply { attributes, .. } => {
                instance(attributes)
            }
            Self::Accept { proposal, .. } | Self::Commit { proposal, .. } => instance(&proposal.attributes),
            Self::RecoverReply { report, .. } => report.initial.as_ref().map_or(1, instance),
            Self::AcceptReply { .. }
            | Self::Executed { .. }
            | Self::Refused { .. }
            | Self::Recover { .. } => 1,
            Self::ListReply { keys, .. } => keys.len(),
            Self::Compare { digests, .. } => digests.len(),
            Self::Differ { keys, .. } => keys.len(),
            _ => 0,
        }
    }
}
