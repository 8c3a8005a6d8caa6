//! What CC-LO's machines say to each other. Every message carries its sender's Lamport clock.

use super::Update;
use crate::causal::message::{Attempt, Listed, Seen, Step};
use crate::causal::replication::Replicate;
use crate::causal::update::Dependencies;
use crate::causal::vector::VersionId;
use crate::machine::{self, OpId};
use crate::object::Reply;
use crate::topology::ClientId;
use bytes::Bytes;
use minicbor::{Decode, Encode};

/// A version that another depends on. A session keeps all that it has read since its last write, and of one key
/// perhaps several: of two concurrent versions neither stands for the other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct Dependency {
    /// The key.
    #[n(0)]
    #[cbor(with = "crate::wire::blob")]
    pub key: Bytes,
    /// The version.
    #[n(1)]
    pub id: VersionId,
}

/// Of a write all that it depends on directly.
impl Dependencies for Vec<Dependency> {
    fn bytes(&self) -> usize {
        self.iter().map(|dependency| dependency.key.len() + 16).sum::<usize>() + 32
    }
}

/// A read-only transaction. In each lane of a client one comes after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct RotId {
    /// The client.
    #[n(0)]
    pub client: ClientId,
    /// Which of its concurrent transactions.
    #[n(1)]
    pub lane: u32,
    /// Grows; another try has another number.
    #[n(2)]
    pub number: u64,
}

/// A write for which a check is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub enum Ticket {
    /// A client's, which has no version yet.
    #[n(0)]
    Put(#[n(0)] OpId),
    /// Another region's.
    #[n(1)]
    Write(#[n(0)] VersionId),
}

/// Every message of the protocol.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub enum Message {
    /// Client to partition: write this.
    #[n(0)]
    Put {
        /// The request.
        #[n(0)]
        op: OpId,
        /// Which of the client's concurrent operations.
        #[n(1)]
        lane: u32,
        /// What to do: a blind set or a deletion.
        #[n(2)]
        step: Step,
        /// What it depends on.
        #[n(3)]
        dependencies: Vec<Dependency>,
        /// The sender's clock.
        #[n(4)]
        clock: u64,
        /// The client's time, ms.
        #[n(5)]
        at_ms: u64,
    },
    /// Partition to client: written.
    #[n(1)]
    PutReply {
        /// The request.
        #[n(0)]
        op: OpId,
        /// The answer.
        #[n(1)]
        reply: Reply,
        /// The version's timestamp, which was the sender's clock.
        #[n(2)]
        ts: u64,
    },
    /// Client to each partition that it reads from.
    #[n(2)]
    Read {
        /// The transaction.
        #[n(0)]
        rot: RotId,
        /// What to read.
        #[n(1)]
        steps: Vec<Step>,
        /// The transaction reads from other partitions too, and must be remembered.
        #[n(2)]
        spread: bool,
        /// The sender's clock.
        #[n(3)]
        clock: u64,
        /// The time against which expiry is judged, ms.
        #[n(4)]
        at_ms: u64,
    },
    /// Partition to client: what it read.
    #[n(3)]
    Values {
        /// The transaction.
        #[n(0)]
        rot: RotId,
        /// What each step saw.
        #[n(1)]
        seen: Vec<Seen>,
        /// The sender's clock.
        #[n(2)]
        clock: u64,
    },
    /// A partition that is to install a write, to one that holds some of what it depends on: which transactions must not
    /// see it? Answered when all of that is installed.
    #[n(4)]
    Check {
        /// For which write.
        #[n(0)]
        ticket: Ticket,
        /// What is of this partition.
        #[n(1)]
        dependencies: Vec<Dependency>,
        /// The sender's clock.
        #[n(2)]
        clock: u64,
    },
    /// The answer: these.
    #[n(5)]
    CheckReply {
        /// For which write.
        #[n(0)]
        ticket: Ticket,
        /// Those that do not see some of the dependencies.
        #[n(1)]
        old_readers: Vec<RotId>,
        /// The sender's clock.
        #[n(2)]
        clock: u64,
        /// Only with the rule as printed: the clock when each had read.
        #[n(3)]
        read_at: Vec<u64>,
    },
    /// Client to partition: list keys.
    #[n(6)]
    List {
        /// The request.
        #[n(0)]
        attempt: Attempt,
        /// From this hash on.
        #[n(1)]
        from: u64,
        /// About so many.
        #[n(2)]
        count: u32,
        /// The time against which expiry is judged, ms.
        #[n(3)]
        at_ms: u64,
    },
    /// Partition to client: these.
    #[n(7)]
    ListReply {
        /// The request.
        #[n(0)]
        attempt: Attempt,
        /// The keys.
        #[n(1)]
        keys: Vec<Listed>,
        /// From which hash to go on; `None`: that was all.
        #[n(2)]
        next: Option<u64>,
    },
    /// Client to the partitions of what it has seen, in every region: tell me when that is installed.
    #[n(8)]
    Fence {
        /// The request.
        #[n(0)]
        attempt: Attempt,
        /// What is of this partition.
        #[n(1)]
        dependencies: Vec<Dependency>,
    },
    /// Partition to client: it is.
    #[n(9)]
    Fenced {
        /// The request.
        #[n(0)]
        attempt: Attempt,
    },
    /// Between the copies of a partition.
    #[n(10)]
    Replicate(#[n(0)] Replicate<Update>),
}

impl machine::Message for Message {
    fn items(&self) -> usize {
        match self {
            Self::Put { dependencies, .. }
            | Self::Check { dependencies, .. }
            | Self::Fence { dependencies, .. } => dependencies.len(),
            Self::Read { steps, .. } => steps.len(),
            Self::Values { seen, .. } => seen.len(),
            Self::CheckReply { old_readers, read_at, .. } => old_readers.len() + read_at.len(),
            Self::ListReply { keys, .. } => keys.len(),
            Self::Replicate(replicate) => replicate.writes.len(),
            Self::PutReply { .. } | Self::List { .. } | Self::Fenced { .. } => 0,
        }
    }
}
