//! What EPaxos's machines say to each other, in the order in which an operation travels.

use super::instance::{Attributes, InstanceId, Operation, Proposal};
use super::log::LogState;
use crate::gryff::carstamp::Carstamp;
use crate::gryff::instance::{Ballot, Phase};
use crate::gryff::message::{Compared, Keyed, Listed, OpId};
use crate::machine;
use crate::object::Answer;
use crate::topology::Region;
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
    /// Coordinator to a fast quorum: these operations with what I know.
    #[n(3)]
    PreAccept {
        /// The key.
        #[n(0)]
        #[cbor(with = "crate::wire::blob")]
        key: Bytes,
        /// The instance.
        #[n(1)]
        id: InstanceId,
        /// The operations with the attributes that the coordinator knows.
        #[n(2)]
        proposal: Box<Proposal>,
        /// With three replicas: the one whose merged attributes the coordinator may commit in one round.
        #[n(3)]
        partner: Option<Region>,
    },
    /// Replica to coordinator: pre-accepted, with what I know added.
    #[n(4)]
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
    #[n(5)]
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
    #[n(6)]
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
    #[n(7)]
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
    /// Replica to whoever asked with a ballot below the one promised.
    #[n(8)]
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
    #[n(9)]
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
    #[n(10)]
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
    /// Recoverer to those that have promised: what speaks against a commit of this in one round?
    #[n(11)]
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
    #[n(12)]
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
    #[n(13)]
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
    #[n(14)]
    KeyState {
        /// The key and its value.
        #[n(0)]
        keyed: Keyed,
        /// Its log.
        #[n(1)]
        log: Box<LogState>,
    },
    /// Client to replicas: list keys.
    #[n(15)]
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
    #[n(16)]
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
    #[n(17)]
    Compare {
        /// Digest of each bucket of keys, or `None` for one that is changing just now.
        #[n(0)]
        digests: Vec<Option<u64>>,
        /// The bucket whose turn it is to be compared even so.
        #[n(1)]
        turn: u32,
    },
    /// Peer to replica: not in this bucket; this is what I hold there.
    #[n(18)]
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
    /// Whether it is pre-accepted just as the coordinator proposed it.
    #[n(3)]
    pub unchanged: bool,
    /// The partner that the coordinator named.
    #[n(4)]
    pub partner: Option<Region>,
}

impl machine::Message for Message {
    fn items(&self) -> usize {
        let instance =
            |proposal: &Proposal| proposal.operations.len() + proposal.attributes.dependencies.len();
        match self {
            Self::PreAccept { proposal, .. }
            | Self::Accept { proposal, .. }
            | Self::Commit { proposal, .. }
            | Self::Validate { initial: proposal, .. } => instance(proposal),
            Self::PreAcceptReply { attributes, .. } => 1 + attributes.dependencies.len(),
            Self::RecoverReply { report, .. } => report.proposal.as_ref().map_or(1, instance),
            Self::ValidateReply { open, .. } => 1 + open.len(),
            Self::AcceptReply { .. } | Self::Refused { .. } | Self::Recover { .. } | Self::Waiting { .. } => {
                1
            }
            Self::ListReply { keys, .. } => keys.len(),
            Self::Compare { digests, .. } => digests.len(),
            Self::Differ { keys, .. } => keys.len(),
            Self::Submit { .. }
            | Self::Done { .. }
            | Self::TooFarAhead { .. }
            | Self::KeyState { .. }
            | Self::List { .. } => 0,
        }
    }
}
