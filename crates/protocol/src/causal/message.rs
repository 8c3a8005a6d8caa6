//! What the causal machines say to each other.

use super::Update;
use super::replication::Replicate;
use super::stabilization::Report;
use super::vector::{Vector, VersionId};
use crate::clock::Micros;
use crate::machine::{self, Level, OpId};
use crate::object::{Command, Reply, TypeName};
use bytes::Bytes;
use minicbor::{Decode, Encode};

/// A command on one key.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct Step {
    /// The key.
    #[n(0)]
    #[cbor(with = "crate::wire::blob")]
    pub key: Bytes,
    /// What to do with it.
    #[n(1)]
    pub command: Command,
}

/// Steps of a read that belong to one partition.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct Leg {
    /// The partition.
    #[n(0)]
    pub partition: u16,
    /// The steps.
    #[n(1)]
    pub steps: Vec<Step>,
}

/// What one step of a read saw.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct Seen {
    /// The answer.
    #[n(0)]
    pub reply: Reply,
    /// The version; `None` if there never was one.
    #[n(1)]
    pub id: Option<VersionId>,
    /// The version's vector, for sessions that tell apart what they saw from what they could have seen (tcc).
    #[n(2)]
    pub vector: Option<Vector>,
}

/// Names one attempt of a client at a request: of one attempt all belongs to one snapshot, or is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct Attempt {
    /// The request.
    #[n(0)]
    pub op: OpId,
    /// Counts from 0.
    #[n(1)]
    pub number: u32,
}

/// What a read must see at least, and whether it may have to wait for it.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct Demand {
    /// The snapshot must cover this.
    #[n(0)]
    pub seen: Vector,
    /// For which guarantee, to be counted.
    #[n(1)]
    pub level: Level,
    /// The time against which expiry is judged, ms.
    #[n(2)]
    pub at_ms: u64,
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
        /// Which of the client's concurrent writes.
        #[n(1)]
        lane: u32,
        /// What to do: a blind set or a deletion.
        #[n(2)]
        step: Step,
        /// What the version depends on: nobody sees it who may not see that.
        #[n(3)]
        dependencies: Vector,
        /// The version comes after this time too, in the order of writes (tcc).
        #[n(4)]
        floor: u64,
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
        /// The version's timestamp.
        #[n(2)]
        ts: u64,
    },
    /// Client to the only partition that it reads from: read in one round.
    #[n(2)]
    Read {
        /// The attempt.
        #[n(0)]
        attempt: Attempt,
        /// What it must see.
        #[n(1)]
        demand: Demand,
        /// What to read.
        #[n(2)]
        steps: Vec<Step>,
    },
    /// Client to coordinator, first round of two: which snapshot? (Contrarian `Snap-Req`)
    #[n(3)]
    Snapshot {
        /// The attempt.
        #[n(0)]
        attempt: Attempt,
        /// What it must hold.
        #[n(1)]
        demand: Demand,
    },
    /// Coordinator to client: this one.
    #[n(4)]
    SnapshotReply {
        /// The attempt.
        #[n(0)]
        attempt: Attempt,
        /// The snapshot.
        #[n(1)]
        snapshot: Vector,
        /// How long it waited until it could be had (tcc).
        #[n(2)]
        waited: Micros,
    },
    /// Client to partition, second round of two: read this from the snapshot. (`ROT-Req`)
    #[n(5)]
    ReadAt {
        /// The attempt.
        #[n(0)]
        attempt: Attempt,
        /// The snapshot.
        #[n(1)]
        snapshot: Vector,
        /// What to read.
        #[n(2)]
        steps: Vec<Step>,
        /// The time against which expiry is judged, ms.
        #[n(3)]
        at_ms: u64,
        /// How long the coordinator had waited, when it asks for the client (tcc).
        #[n(4)]
        waited: Micros,
        /// The client to answer, when the coordinator asks for it (1½ rounds).
        #[n(5)]
        client: Option<crate::topology::ClientId>,
    },
    /// Client to coordinator: read all this in 1½ rounds.
    #[n(6)]
    Rot {
        /// The attempt.
        #[n(0)]
        attempt: Attempt,
        /// What it must see.
        #[n(1)]
        demand: Demand,
        /// What to read where.
        #[n(2)]
        legs: Vec<Leg>,
    },
    /// Partition to client: what it read.
    #[n(7)]
    Values {
        /// The attempt.
        #[n(0)]
        attempt: Attempt,
        /// From which snapshot.
        #[n(1)]
        snapshot: Vector,
        /// What each step saw.
        #[n(2)]
        seen: Vec<Seen>,
        /// How long it waited until that could be seen (tcc).
        #[n(3)]
        waited: Micros,
    },
    /// Partition to client: the snapshot is so old that some of it is forgotten.
    #[n(8)]
    TooOld {
        /// The attempt.
        #[n(0)]
        attempt: Attempt,
        /// A snapshot must cover this.
        #[n(1)]
        horizon: Vector,
    },
    /// Partition to client: the request waits until what the session has seen can be seen here (tcc).
    #[n(9)]
    Waiting {
        /// The attempt.
        #[n(0)]
        attempt: Attempt,
    },
    /// Client to partition: list keys.
    #[n(10)]
    List {
        /// The attempt.
        #[n(0)]
        attempt: Attempt,
        /// What it must see.
        #[n(1)]
        demand: Demand,
        /// From this hash on.
        #[n(2)]
        from: u64,
        /// About so many.
        #[n(3)]
        count: u32,
    },
    /// Partition to client: these.
    #[n(11)]
    ListReply {
        /// The attempt.
        #[n(0)]
        attempt: Attempt,
        /// The keys.
        #[n(1)]
        keys: Vec<Listed>,
        /// From which hash to go on; `None`: that was all.
        #[n(2)]
        next: Option<u64>,
    },
    /// Client to every partition of every region: tell me when whoever reads here sees this.
    #[n(12)]
    Fence {
        /// The attempt.
        #[n(0)]
        attempt: Attempt,
        /// What is to be seen.
        #[n(1)]
        vector: Vector,
    },
    /// Partition to client: so it is.
    #[n(13)]
    Fenced {
        /// The attempt.
        #[n(0)]
        attempt: Attempt,
    },
    /// Between the copies of a partition.
    #[n(14)]
    Replicate(#[n(0)] Replicate<Update>),
    /// Between the partitions of a region: what is there.
    #[n(15)]
    Report(#[n(0)] Report),
    /// From the root of a region's tree down: what is stable.
    #[n(16)]
    Stable(#[n(0)] Report),
}

/// A key in a listing.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct Listed {
    /// The key.
    #[n(0)]
    #[cbor(with = "crate::wire::blob")]
    pub key: Bytes,
    /// The type of its value.
    #[n(1)]
    pub kind: TypeName,
}

impl machine::Message for Message {
    fn items(&self) -> usize {
        match self {
            Self::Read { steps, .. } | Self::ReadAt { steps, .. } => steps.len(),
            Self::Rot { legs, .. } => legs.len(),
            Self::Values { seen, .. } => seen.len(),
            Self::ListReply { keys, .. } => keys.len(),
            Self::Replicate(replicate) => replicate.writes.len(),
            _ => 0,
        }
    }
}
