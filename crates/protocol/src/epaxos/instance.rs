//! One consensus instance: one or more operations' way to an agreed place in their key's order (protocol notes of
//! EPaxos §4.3; two ballots as in EPaxos*).

use crate::gryff::instance::{Ballot, Phase};
use crate::gryff::message::OpId;
use crate::object::Action;
use crate::topology::Region;
use minicbor::{Decode, Encode};
use std::fmt;

/// What an instance's operations do to their key; which instances interfere follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(index_only)]
pub enum Kind {
    /// They change it, or may. Interferes with all instances of the key.
    #[n(0)]
    Update,
    /// They only look. Interferes with updates.
    #[n(1)]
    Read,
}

impl Kind {
    /// Both kinds.
    pub const ALL: [Self; 2] = [Self::Update, Self::Read];

    /// Whether instances of these kinds must be ordered.
    pub fn interferes(self, other: Self) -> bool {
        self == Self::Update || other == Self::Update
    }
}

/// An instance's place in the instance space of *its key*: a line for each coordinator and kind, counted from 1.
///
/// EPaxos has one row a coordinator for all keys. A dependency array's entry then says "all instances of that row up
/// to here *that interfere*", and a replica that lacks one of them cannot tell whether it interferes. Here a
/// line holds instances of one key and one kind only, so an entry means exactly a prefix: nothing is filtered,
/// no unrelated instance is ever waited for, and reads of one row are told apart from its updates.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct InstanceId {
    /// What its operations do.
    #[n(0)]
    pub kind: Kind,
    /// The row: the region of the replica that proposed it.
    #[n(1)]
    pub row: Region,
    /// Position in the line, from 1.
    #[n(2)]
    pub index: u64,
}

impl InstanceId {
    /// The line's place in arrays that have an entry for each, in a keyspace of so many regions.
    pub fn line(self, regions: u8) -> usize {
        line_of(self.kind, self.row, regions)
    }
}

impl fmt::Debug for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.kind == Kind::Update { 'u' } else { 'r' };
        write!(f, "{}{kind}{}", self.row.0, self.index)
    }
}

/// A line's place in arrays that have an entry for each: updates first, then reads.
pub(super) fn line_of(kind: Kind, row: Region, regions: u8) -> usize {
    let offset = if kind == Kind::Update { 0 } else { usize::from(regions) };
    offset + row.index()
}

/// An operation on its way through consensus.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct Operation {
    /// Its name; the same in every retry, so that it takes effect once.
    #[n(0)]
    pub op: OpId,
    /// Which of the client's concurrent operations it is.
    #[n(1)]
    pub lane: u32,
    /// What to do.
    #[n(2)]
    pub action: Action,
    /// The client's time, ms since the Unix epoch: judges expiry, and how long the result is remembered.
    #[n(3)]
    pub at_ms: u64,
}

/// What consensus agrees on besides the operations.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct Attributes {
    /// For each line, up to which index its instances come before or together with this one. Empty in a Nop.
    #[n(0)]
    pub dependencies: Vec<u64>,
    /// Above those of all interfering instances that were known: orders a component of the dependency graph.
    #[n(1)]
    pub seq: u64,
    /// The newest client time among them, ms: what is far behind it may be a retry whose result is forgotten, and
    /// takes no effect. Agreed on here and not read from the state that executing has left, so that a coordinator
    /// knows at commit whether an update will take effect.
    #[n(2)]
    pub newest_ms: u64,
}

impl Attributes {
    /// Adds what another replica knows.
    pub fn merge(&mut self, other: &Self) {
        if self.dependencies.len() < other.dependencies.len() {
            self.dependencies.resize(other.dependencies.len(), 0);
        }
        for (mine, theirs) in self.dependencies.iter_mut().zip(&other.dependencies) {
            *mine = (*mine).max(*theirs);
        }
        self.seq = self.seq.max(other.seq);
        self.newest_ms = self.newest_ms.max(other.newest_ms);
    }

    /// Whether both say the same. The newest time does not count: it follows from the dependencies, as whoever knows
    /// an instance knows its operations' times, and whoever knows a later one of the line has counted them.
    pub fn same(&self, other: &Self) -> bool {
        self.dependencies == other.dependencies && self.seq == other.seq
    }

    /// Whether the instance comes before or together with one that has these attributes.
    pub fn includes(&self, id: InstanceId, regions: u8) -> bool {
        self.dependencies.get(id.line(regions)).is_some_and(|last| *last >= id.index)
    }
}

/// What an instance does and where it stands.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct Proposal {
    /// The operations, in order; none is a Nop, the outcome of an instance whose operations a recovery could not
    /// find or had to give up.
    #[n(0)]
    pub operations: Vec<Operation>,
    /// Its place.
    #[n(1)]
    pub attributes: Attributes,
}

/// One instance as one replica knows it. Two ballots, not one: see [`crate::gryff::instance::Instance`].
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
    /// The outcome as known here; meaningful from [`Phase::PreAccepted`] on.
    #[n(3)]
    pub proposal: Proposal,
    /// The attributes that the coordinator proposed at first, from its own pre-accept or from a recovery that
    /// validates. Apart from `proposal`, because a record may learn more and must not count as unchanged then.
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

    /// Whether new instances must be ordered with it.
    pub fn is_known(&self) -> bool {
        self.phase >= Phase::PreAccepted || self.initial.is_some()
    }
}
