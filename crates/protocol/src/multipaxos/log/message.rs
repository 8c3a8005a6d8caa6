//! What the replicas of a log say to each other.

use super::{Accepted, Ballot, Entry, Slot};
use crate::clock::Micros;
use bytes::Bytes;
use minicbor::{Decode, Encode};

/// How far a replica has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Progress {
    /// All slots up to here are applied.
    #[n(0)]
    pub commit: Slot,
    /// All slots up to here are in its durable state.
    #[n(1)]
    pub checkpoint: Slot,
}

/// What a replica has accepted in some slots.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct Told<C> {
    /// From this slot.
    #[n(0)]
    pub from: Slot,
    /// Up to this one, which is the highest that there can be in the last part.
    #[n(1)]
    pub until: Slot,
    /// All slots up to here are chosen. Of these the replica may leave some out.
    #[n(2)]
    pub commit: Slot,
    /// All that is accepted there.
    #[n(3)]
    pub accepted: Vec<(Slot, Accepted<C>)>,
}

/// Every message of the log.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub enum Message<C, F> {
    /// Candidate to all: would you support me? Promises nothing, and nobody is deposed by it.
    #[n(0)]
    Canvass {
        /// The ballot at which it would ask for promises.
        #[n(0)]
        ballot: Ballot,
        /// How far it has come.
        #[n(1)]
        commit: Slot,
        /// The ballot of the leader that has asked it to take over.
        #[n(2)]
        consent: Option<Ballot>,
    },
    /// Replica to candidate: I would.
    #[n(1)]
    Support {
        /// The ballot.
        #[n(0)]
        ballot: Ballot,
    },
    /// Candidate to all: promise to accept nothing of lower ballots, and tell what you have accepted.
    #[n(2)]
    Prepare {
        /// The ballot.
        #[n(0)]
        ballot: Ballot,
        /// The first slot of which the candidate does not know what is chosen.
        #[n(1)]
        from: Slot,
        /// As in `Canvass`; that leader no longer uses its lease.
        #[n(2)]
        consent: Option<Ballot>,
    },
    /// Replica to candidate: promised. In parts, if there is much to tell.
    #[n(3)]
    Promise {
        /// The ballot promised.
        #[n(0)]
        ballot: Ballot,
        /// What is accepted.
        #[n(1)]
        told: Told<C>,
    },
    /// Leader to all: accept these in consecutive slots.
    #[n(4)]
    Accept {
        /// The leader's ballot.
        #[n(0)]
        ballot: Ballot,
        /// The first entry's slot.
        #[n(1)]
        first: Slot,
        /// The entries.
        #[n(2)]
        entries: Vec<Entry<C>>,
        /// All slots up to here are chosen.
        #[n(3)]
        commit: Slot,
    },
    /// Replica to leader: accepted, and durably so.
    #[n(5)]
    Accepted {
        /// The ballot.
        #[n(0)]
        ballot: Ballot,
        /// The first slot.
        #[n(1)]
        first: Slot,
        /// The last slot.
        #[n(2)]
        last: Slot,
        /// How far the replica has come.
        #[n(3)]
        progress: Progress,
    },
    /// Leader to all, from time to time: I lead.
    #[n(6)]
    Heartbeat {
        /// The leader's ballot.
        #[n(0)]
        ballot: Ballot,
        /// All slots up to here are chosen.
        #[n(1)]
        commit: Slot,
        /// All slots up to here are in every replica's durable state.
        #[n(2)]
        everywhere: Slot,
        /// The leader's own time, for the reply.
        #[n(3)]
        sent: Micros,
    },
    /// Replica to leader: I follow.
    #[n(7)]
    HeartbeatReply {
        /// The leader's ballot.
        #[n(0)]
        ballot: Ballot,
        /// How far the replica has come.
        #[n(1)]
        progress: Progress,
        /// The time in the heartbeat. If leases are on, the replica promises nobody else for that long after it got it.
        #[n(2)]
        sent: Micros,
    },
    /// To whoever asked at a ballot that is too low.
    #[n(8)]
    Refused {
        /// The ballot promised.
        #[n(0)]
        promised: Ballot,
    },
    /// Leader to the replica in the preferred region: take over.
    #[n(9)]
    TakeOver {
        /// The leader's ballot.
        #[n(0)]
        ballot: Ballot,
    },
    /// To a replica that knows more: what is chosen from here on?
    #[n(10)]
    CatchUp {
        /// The first slot that is not known.
        #[n(0)]
        from: Slot,
    },
    /// In reply: these are chosen, in consecutive slots.
    #[n(11)]
    Chosen {
        /// The first entry's slot.
        #[n(0)]
        first: Slot,
        /// The entries, with the ballots at which the sender accepted them.
        #[n(1)]
        entries: Vec<Accepted<C>>,
        /// All slots up to here are chosen.
        #[n(2)]
        commit: Slot,
    },
    /// In reply, if the sender has forgotten those slots: a page of its state.
    #[n(12)]
    Page {
        /// The state has all slots up to here applied.
        #[n(0)]
        at: Slot,
        /// Where the page before has ended.
        #[n(1)]
        #[cbor(with = "crate::wire::blob")]
        after: Bytes,
        /// The facts.
        #[n(2)]
        facts: Vec<F>,
        /// Where this page ends; empty if it is the last one.
        #[n(3)]
        #[cbor(with = "crate::wire::blob")]
        next: Bytes,
    },
    /// The next page, please.
    #[n(13)]
    NextPage {
        /// Of which state.
        #[n(0)]
        at: Slot,
        /// Where the page before has ended.
        #[n(1)]
        #[cbor(with = "crate::wire::blob")]
        after: Bytes,
    },
}

impl<C, F> Message<C, F> {
    /// How many entries of the log, or facts of a snapshot, it carries.
    pub fn items(&self) -> usize {
        match self {
            Self::Accept { entries, .. } => entries.len(),
            Self::Chosen { entries, .. } => entries.len(),
            Self::Promise { told, .. } => told.accepted.len(),
            Self::Page { facts, .. } => facts.len(),
            _ => 0,
        }
    }
}
