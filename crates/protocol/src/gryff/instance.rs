//! One consensus instance: one rmw's way to an agreed place in its key's order (Gryff §4.2, Appendix B).

use super::carstamp::{Carstamp, Held};
use super::message::{OpId, Report};
use crate::object::{Action, State};
use crate::topology::Region;
use minicbor::{Decode, Encode};
use std::fmt;

/// An instance's place in the instance space of *its key*: the row of its coordinator, counted from 1.
///
/// Gryff takes EPaxos's one instance space for all keys. Here each key has its own, because rmws of different
/// keys never interfere: a prefix of a row is then exactly a set of interfering instances, no unrelated
/// instance is ever waited for, and what is executed can be forgotten key by key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct InstanceId {
    /// Position in the row, from 1.
    #[n(0)]
    pub index: u64,
    /// The row: the region of the replica that proposed it.
    #[n(1)]
    pub row: Region,
}

impl fmt::Debug for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.row.0, self.index)
    }
}

/// A ballot of one instance. Counter 0 is the coordinator's own, which it needs not ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct Ballot {
    /// 0 for the coordinator's initial ballot, then rising.
    #[n(0)]
    pub counter: u32,
    /// Who leads it; tells ballots of equal counter apart. 0 in the initial ballot.
    #[n(1)]
    pub leader: u8,
}

/// A read-modify-write on its way through consensus.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct Rmw {
    /// The operation; the same in every retry, so that it takes effect once.
    #[n(0)]
    pub op: OpId,
    /// Which of the client's concurrent rmws it is. A lane has one at a time, so that its last result is
    /// all that must be remembered.
    #[n(1)]
    pub lane: u32,
    /// What to do.
    #[n(2)]
    pub action: Action,
    /// The client's time, ms since the Unix epoch: judges expiry, and how long the result is remembered.
    #[n(3)]
    pub at_ms: u64,
}

/// What an rmw is based on: a version that is not older than any update completed before the rmw began.
///
/// The value travels only if a write made the version. If an rmw made it, that rmw is among the dependencies,
/// so whoever executes this one has executed that one before and has its result as `previous`: it had executed
/// somewhere, hence was committed, before a replica could report its result here, and of two committed
/// interfering instances at least one depends on the other.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct Base {
    /// The version's carstamp.
    #[n(0)]
    pub carstamp: Carstamp,
    /// Its value, if a write made it.
    #[n(1)]
    pub value: State,
}

impl Base {
    /// The base that a replica which holds `held` reports.
    pub fn of(held: &Held) -> Self {
        let value = if held.carstamp.is_write() { held.value.clone() } else { None };
        Self { carstamp: held.carstamp, value }
    }
}

/// What consensus agrees on besides the command.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct Attributes {
    /// For each row, up to which index its instances come before or together with this one.
    #[n(0)]
    pub dependencies: Vec<u64>,
    /// The base.
    #[n(1)]
    pub base: Base,
}

impl Attributes {
    /// Adds what another replica knows: the later dependency of each row, and the newer base.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.dependencies.iter_mut().zip(&other.dependencies) {
            *mine = (*mine).max(*theirs);
        }
        if other.base.carstamp > self.base.carstamp {
            self.base = other.base.clone();
        }
    }

    /// Whether both say the same. Bases are compared by carstamp alone: equal carstamps mean equal values.
    pub fn same(&self, other: &Self) -> bool {
        self.dependencies == other.dependencies && self.base.carstamp == other.base.carstamp
    }

    /// Whether the instance comes before or together with one that has these attributes.
    pub fn includes(&self, id: InstanceId) -> bool {
        self.dependencies.get(id.row.index()).is_some_and(|last| *last >= id.index)
    }
}

/// What an instance does and where it stands.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct Proposal {
    /// The command; `None` does nothing (a Nop), the outcome of an instance whose command a recovery could
    /// not find or had to give up.
    #[n(0)]
    pub rmw: Option<Box<Rmw>>,
    /// Dependencies and base.
    #[n(1)]
    pub attributes: Attributes,
}

/// How far an instance has come at a replica. Executed instances are not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub enum Phase {
    /// Nothing is known of it but its id (another instance depends on it, or a recovery asked).
    #[n(0)]
    Unknown,
    /// Pre-accepted at the initial ballot.
    #[n(1)]
    PreAccepted,
    /// Accepted at the ballot `accepted`.
    #[n(2)]
    Accepted,
    /// Final.
    #[n(3)]
    Committed,
}

/// One instance as one replica knows it.
///
/// Two ballots, not one: `promised` refuses what is older, `accepted` says at which ballot the outcome was
/// accepted. With a single ballot, as EPaxos is published, answering a recovery makes a stale outcome look
/// fresh, and two outcomes can be committed (Sutra 2019).
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct Instance {
    /// The highest ballot promised. Never goes back.
    #[n(0)]
    pub promised: Ballot,
    /// The ballot at which `proposal` was accepted.
    #[n(1)]
    pub accepted: Ballot,
    /// How far it has come. Never goes back.
    #[n(2)]
    pub phase: Phase,
    /// The outcome as known here; meaningful from `Phase::PreAccepted` on.
    #[n(3)]
    pub proposal: Proposal,
    /// The attributes that the coordinator proposed at first, kept apart because a record may learn more and
    /// must not count as unchanged then.
    #[n(4)]
    pub initial: Option<Attributes>,
    /// The partner that the coordinator named (three replicas only).
    #[n(5)]
    pub partner: Option<Region>,
}

impl Instance {
    /// An instance of which nothing is known.
    pub fn unknown() -> Self {
        Self {
            promised: Ballot::default(),
            accepted: Ballot::default(),
            phase: Phase::Unknown,
            proposal: Proposal::default(),
            initial: None,
            partner: None,
        }
    }

    /// What to tell a recoverer.
    pub fn report(&self) -> Report {
        Report {
            phase: self.phase,
            accepted: self.accepted,
            proposal: (self.phase >= Phase::PreAccepted).then(|| self.proposal.clone()),
            initial: self.initial.clone(),
            partner: self.partner,
        }
    }
}
