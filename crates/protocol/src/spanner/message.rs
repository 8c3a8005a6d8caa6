//! What clients and shards say to each other.

use super::shard::{Command, Fact};
use super::versions::Version;
use crate::clock::Micros;
use crate::machine;
use crate::multipaxos::log::{self, Ballot};
pub use crate::multipaxos::message::Listed;
use crate::object::State;
use crate::topology::{ClientId, Region};
use bytes::Bytes;
use minicbor::{Decode, Encode};
use std::cmp::Reverse;

/// A point in time as `TrueTime` tells it, in microseconds since the Unix epoch. The one type and the one order of all
/// timestamps here.
pub type Timestamp = Micros;

/// A partition: each is a shard.
pub type Partition = u16;

/// Names one attempt at a transaction, or one read-only transaction: a retry has a new name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct TxnId {
    /// Whose it is; 0 is nobody, who wrote what was never written.
    #[n(0)]
    client: u64,
    /// Counts the attempts of the client.
    #[n(1)]
    pub number: u64,
}

impl TxnId {
    /// A client's next.
    pub fn new(client: ClientId, number: u64) -> Self {
        Self { client: client.0, number }
    }

    /// Whose it is.
    pub fn client(self) -> ClientId {
        ClientId(self.client)
    }
}

/// Who goes first when two transactions want one lock: the lower, which is the older. All attempts at a transaction
/// have the priority of the first, so that it grows the oldest in time and is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct Priority {
    /// When the first attempt began, by its client's clock.
    #[n(0)]
    pub start: Timestamp,
    /// The first attempt: no two are equal.
    #[n(1)]
    pub first: TxnId,
}

/// A transaction as every message about it names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Txn {
    /// This attempt.
    #[n(0)]
    pub id: TxnId,
    /// Its place among those that want the same locks.
    #[n(1)]
    pub priority: Priority,
    /// It is prepared and committed at timestamps below this one or not at all. So what is known of it may be forgotten
    /// once no lower timestamp can be given.
    #[n(2)]
    pub until: Timestamp,
}

impl Txn {
    /// Its age, the oldest least. Of two attempts at one transaction the later one counts as older: the other is over.
    pub fn age(&self) -> Age {
        (self.priority, Reverse(self.id.number))
    }
}

/// How old a transaction is, the oldest least.
pub type Age = (Priority, Reverse<u64>);

/// A transaction's part at one shard.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct Part {
    /// The transaction.
    #[n(0)]
    pub txn: Txn,
    /// Keys that it has read here.
    #[n(1)]
    #[cbor(with = "crate::wire::blobs")]
    pub reads: Vec<Bytes>,
    /// Keys with the states that it leaves.
    #[n(2)]
    pub writes: Vec<Write>,
    /// The term of the leader that answered its reads, whose locks are not in the log; `None` if it has read nothing.
    #[n(3)]
    pub term: Option<Ballot>,
    /// No client will have been answered before this time (RSS/RSC §5, `t_ee`); 0 promises nothing.
    #[n(4)]
    pub earliest_end: Timestamp,
}

/// A key and its new state.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct Write {
    /// The key.
    #[n(0)]
    #[cbor(with = "crate::wire::blob")]
    pub key: Bytes,
    /// What it holds from then on.
    #[n(1)]
    pub value: State,
}

/// Why a transaction was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Reason {
    /// An older transaction wanted its locks.
    #[n(0)]
    Wounded,
    /// Its client was not heard for too long.
    #[n(1)]
    Silent,
    /// The leader that held its locks is gone.
    #[n(2)]
    Moved,
    /// It has taken too long.
    #[n(3)]
    Late,
    /// The leader's node has no trusted bound on its clock.
    #[n(4)]
    NoClock,
    /// The time asked for is older than what is kept.
    #[n(5)]
    TooOld,
}

impl Reason {
    /// The reason in words.
    pub fn text(self) -> &'static str {
        match self {
            Self::Wounded => "an older transaction wanted the same keys",
            Self::Silent => "the transaction's locks ran out",
            Self::Moved => "the leader that held the transaction's locks is gone",
            Self::Late => "the transaction took too long",
            Self::NoClock => "the leader's node has no trusted bound on its clock",
            Self::TooOld => "the versions of that time are no longer kept",
        }
    }

    /// Whether another attempt may do better, and at once.
    pub fn is_passing(self) -> bool {
        matches!(self, Self::Wounded | Self::Silent | Self::Moved)
    }
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Ending {
    /// It took effect.
    #[n(0)]
    Committed {
        /// Its commit timestamp.
        #[n(0)]
        at: Timestamp,
        /// Its client answers only after this time: what reads that skipped it went by.
        #[n(1)]
        earliest_end: Timestamp,
    },
    /// It took none and never will.
    #[n(1)]
    Aborted(#[n(0)] Reason),
    /// It came too late to tell what had become of it.
    #[n(2)]
    Forgotten,
}

/// What leaders are asked. Sent to any replica of the partition, which hands it on.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub enum Request {
    /// Client: read these under locks.
    #[n(0)]
    Read {
        /// The transaction.
        #[n(0)]
        txn: Txn,
        /// The keys.
        #[n(1)]
        #[cbor(with = "crate::wire::blobs")]
        keys: Vec<Bytes>,
    },
    /// Client to a participant: prepare.
    #[n(1)]
    Prepare {
        /// What to prepare.
        #[n(0)]
        part: Part,
        /// The shard that decides.
        #[n(1)]
        coordinator: Partition,
    },
    /// Client to the coordinator: commit when the participants are prepared.
    #[n(2)]
    Commit {
        /// The coordinator's own part.
        #[n(0)]
        part: Part,
        /// The other shards.
        #[n(1)]
        participants: Vec<Partition>,
    },
    /// Client: I am still there.
    #[n(3)]
    Renew(#[n(0)] TxnId),
    /// Client: I give it up. Only before anything was asked of the coordinator.
    #[n(4)]
    Release(#[n(0)] Txn),
    /// Participant to coordinator: prepared, or never to be.
    #[n(5)]
    Vote {
        /// The transaction.
        #[n(0)]
        txn: Txn,
        /// The participant.
        #[n(1)]
        from: Partition,
        /// Its vote.
        #[n(2)]
        vote: Vote,
    },
    /// Participant to coordinator: what became of it?
    #[n(6)]
    Ask {
        /// The transaction.
        #[n(0)]
        txn: Txn,
        /// The participant.
        #[n(1)]
        from: Partition,
        /// An older transaction waits for it: abort it unless it is decided.
        #[n(2)]
        wound: bool,
    },
    /// Coordinator to participant: this is what became of it.
    #[n(7)]
    Decide {
        /// The transaction.
        #[n(0)]
        txn: Txn,
        /// Its commit timestamp, or that it is aborted.
        #[n(1)]
        at: Option<Timestamp>,
        /// The coordinator.
        #[n(2)]
        coordinator: Partition,
    },
    /// Participant to coordinator: I have it, for good.
    #[n(8)]
    Decided {
        /// The transaction.
        #[n(0)]
        txn: TxnId,
        /// The participant.
        #[n(1)]
        from: Partition,
    },
    /// Client: read these as of a time (RSS/RSC Alg. 2, `ROCommit`).
    #[n(9)]
    Snapshot(#[n(0)] Snapshot),
    /// A replica of the shard: give no timestamp up to this one any more, and tell all replicas.
    #[n(10)]
    Advance(#[n(0)] Timestamp),
    /// Client: list keys.
    #[n(11)]
    List {
        /// The read.
        #[n(0)]
        id: TxnId,
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
    /// Client: how far are the other regions from you?
    #[n(12)]
    Measure {
        /// Whose answer it will be.
        #[n(0)]
        client: ClientId,
        /// The client's own time, for the reply.
        #[n(1)]
        sent: Micros,
    },
}

/// A participant's vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Vote {
    /// Prepared.
    #[n(0)]
    Yes {
        /// At this timestamp.
        #[n(0)]
        at: Timestamp,
        /// The earliest end by which reads here go.
        #[n(1)]
        earliest_end: Timestamp,
    },
    /// Not prepared, and never to be.
    #[n(1)]
    No(#[n(0)] Reason),
}

/// A read-only transaction's part at one shard.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct Snapshot {
    /// The read.
    #[n(0)]
    pub id: TxnId,
    /// Which of the client's messages about it this is; answers to earlier ones count no more.
    #[n(1)]
    pub attempt: u32,
    /// The keys.
    #[n(2)]
    #[cbor(with = "crate::wire::blobs")]
    pub keys: Vec<Bytes>,
    /// `t_read`.
    #[n(3)]
    pub at: Timestamp,
    /// `t_min`.
    #[n(4)]
    pub min: Timestamp,
}

/// A read of what any replica holds.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct Local {
    /// The read.
    #[n(0)]
    pub id: TxnId,
    /// As in [`Snapshot`].
    #[n(1)]
    pub attempt: u32,
    /// The keys.
    #[n(2)]
    #[cbor(with = "crate::wire::blobs")]
    pub keys: Vec<Bytes>,
    /// The time to read at; `None` asks up to which time they can be read now.
    #[n(3)]
    pub at: Option<Timestamp>,
}

/// A prepared transaction that a read-only one did not wait for.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct Skipped {
    /// The transaction.
    #[n(0)]
    pub txn: TxnId,
    /// Its prepare timestamp here.
    #[n(1)]
    pub prepared: Timestamp,
    /// What it writes to the keys that were read (RSS/RSC §6, first optimization).
    #[n(2)]
    pub writes: Vec<Write>,
}

/// A key's version.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct Held {
    /// The key.
    #[n(0)]
    #[cbor(with = "crate::wire::blob")]
    pub key: Bytes,
    /// The version.
    #[n(1)]
    pub version: Version,
}

/// What clients are told.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub enum Reply {
    /// To `Read`: the locks are held.
    #[n(0)]
    Read {
        /// The transaction.
        #[n(0)]
        txn: TxnId,
        /// The leader's term.
        #[n(1)]
        term: Ballot,
        /// The newest versions.
        #[n(2)]
        held: Vec<Held>,
    },
    /// To `Commit`, or as soon as a transaction has lost its locks.
    #[n(1)]
    Ended {
        /// The transaction.
        #[n(0)]
        txn: TxnId,
        /// How it ended.
        #[n(1)]
        ending: Ending,
        /// Whether this is the word of the coordinator.
        #[n(2)]
        decided: bool,
    },
    /// To `Snapshot` (`ROFastReply`).
    #[n(2)]
    Fast {
        /// The read.
        #[n(0)]
        id: TxnId,
        /// Which message of the client is answered.
        #[n(1)]
        attempt: u32,
        /// For each key its newest version up to the time asked for.
        #[n(2)]
        held: Vec<Held>,
        /// Transactions not waited for.
        #[n(3)]
        skipped: Vec<Skipped>,
        /// How long the read has waited here.
        #[n(4)]
        waited: Micros,
    },
    /// Later: what became of a skipped transaction (`ROSlowReply`).
    #[n(3)]
    Slow {
        /// The read.
        #[n(0)]
        id: TxnId,
        /// The transaction.
        #[n(1)]
        txn: TxnId,
        /// Its commit timestamp, or that it was aborted.
        #[n(2)]
        at: Option<Timestamp>,
    },
    /// To `Local` without a time.
    #[n(4)]
    Safe {
        /// The read.
        #[n(0)]
        id: TxnId,
        /// Which message of the client is answered.
        #[n(1)]
        attempt: u32,
        /// The keys can be read at times up to this one.
        #[n(2)]
        safe: Timestamp,
        /// The keys can be read at times from this one on.
        #[n(3)]
        horizon: Timestamp,
    },
    /// To a read that is not served.
    #[n(5)]
    Refused {
        /// The read.
        #[n(0)]
        id: TxnId,
        /// Why.
        #[n(1)]
        reason: Reason,
    },
    /// To `List`.
    #[n(6)]
    Page {
        /// The read.
        #[n(0)]
        id: TxnId,
        /// The keys.
        #[n(1)]
        keys: Vec<Listed>,
        /// From where to go on.
        #[n(2)]
        next: Option<u64>,
    },
    /// To `Measure`.
    #[n(7)]
    Distances {
        /// The time in the request.
        #[n(0)]
        sent: Micros,
        /// The shortest round trips from the leader to the other regions.
        #[n(1)]
        round_trips: Vec<(Region, Micros)>,
    },
}

/// Every message of the protocol.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub enum Message {
    /// To whoever leads the partition.
    #[n(0)]
    ToLeader {
        /// What is asked.
        #[n(0)]
        request: Request,
        /// By which term the sender knows the leader. It is handed on only by a later one, so not for ever.
        #[n(1)]
        known: Ballot,
    },
    /// Client to a replica, whoever leads.
    #[n(1)]
    Local(#[n(0)] Local),
    /// To a client.
    #[n(2)]
    Reply(#[n(0)] Reply),
    /// Between the replicas of the log.
    #[n(3)]
    Log(#[n(0)] log::Message<Command, Fact>),
}

impl machine::Message for Message {
    fn items(&self) -> usize {
        let part = |part: &Part| part.reads.len() + part.writes.len();
        match self {
            Self::ToLeader { request, .. } => match request {
                Request::Read { keys, .. } => keys.len(),
                Request::Prepare { part: asked, .. } | Request::Commit { part: asked, .. } => part(asked),
                Request::Snapshot(snapshot) => snapshot.keys.len(),
                _ => 0,
            },
            Self::Local(local) => local.keys.len(),
            Self::Reply(Reply::Read { held, .. }) => held.len(),
            Self::Reply(Reply::Fast { held, skipped, .. }) => held.len() + skipped.len(),
            Self::Reply(Reply::Page { keys, .. }) => keys.len(),
            Self::Reply(_) => 0,
            Self::Log(message) => message.items(),
        }
    }
}
