//! What EPaxos's instances agree on: their operations' places in their key's order (EPaxos §4.3).

use crate::instances::instance::Operations;
pub use crate::instances::instance::{Operation, Phase};
use crate::instances::{self, Indexes};
use crate::record_key::take;
use crate::topology::Region;
use minicbor::{Decode, Encode};
use std::fmt;

/// What an instance does: one or more operations in order, or nothing.
pub type Command = Operations;

/// What an instance does and where it stands.
pub type Proposal = instances::instance::Proposal<Command, Attributes>;

/// One instance as one replica knows it.
pub type Instance = instances::instance::Instance<Command, Attributes>;

/// What is said of one instance.
pub type Step = instances::message::Step<Command, Attributes>;

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

impl instances::Id for InstanceId {
    fn row(self) -> Region {
        self.row
    }

    fn index(self) -> u64 {
        self.index
    }

    fn encode_key(self, buffer: &mut Vec<u8>) {
        buffer.push(if self.kind == Kind::Update { b'u' } else { b'r' });
        buffer.push(self.row.0);
        buffer.extend_from_slice(&self.index.to_be_bytes());
    }

    fn decode_key(rest: &mut &[u8]) -> Result<Self, String> {
        let [kind, row] = take(rest)?;
        let kind = match kind {
            b'u' => Kind::Update,
            b'r' => Kind::Read,
            other => return Err(format!("no instance is of kind {other}")),
        };
        Ok(Self { kind, row: Region(row), index: u64::from_be_bytes(take(rest)?) })
    }
}

/// What consensus agrees on besides the operations.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct Attributes {
    /// For each line, up to which index its instances come before or together with this one. Empty in a Nop.
    #[n(0)]
    #[cbor(with = "crate::wire::numbers")]
    pub dependencies: Indexes,
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
    /// Whether the instance comes before or together with one that has these attributes.
    pub fn includes(&self, id: InstanceId, regions: u8) -> bool {
        self.dependencies.get(id.line(regions)).is_some_and(|last| *last >= id.index)
    }
}

impl instances::instance::Attributes for Attributes {
    fn merge(&mut self, other: &Self) {
        if self.dependencies.len() < other.dependencies.len() {
            self.dependencies.resize(other.dependencies.len(), 0);
        }
        for (mine, theirs) in self.dependencies.iter_mut().zip(&other.dependencies) {
            *mine = (*mine).max(*theirs);
        }
        self.seq = self.seq.max(other.seq);
        self.newest_ms = self.newest_ms.max(other.newest_ms);
    }

    fn same(&self, other: &Self) -> bool {
        self == other
    }

    fn dependencies(&self) -> usize {
        self.dependencies.len()
    }
}
