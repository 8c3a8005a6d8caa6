//! What Gryff's rmws agree on: their places in their key's order, and their bases (Gryff §4.2, Appendix B).

pub use crate::instances::instance::{Ballot, Operation, Phase};
use crate::instances::{self, Indexes};
use crate::object::State;
use crate::record_key::take;
use crate::registers::carstamp::{Carstamp, Held};
use crate::topology::Region;
use minicbor::{Decode, Encode};
use std::fmt;

/// What an instance does: one rmw, or nothing.
pub type Command = Option<Box<Operation>>;

/// What an instance does and where it stands.
pub type Proposal = instances::instance::Proposal<Command, Attributes>;

/// One instance as one replica knows it.
pub type Instance = instances::instance::Instance<Command, Attributes>;

/// What is said of one instance.
pub type Step = instances::message::Step<Command, Attributes>;

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

impl instances::Id for InstanceId {
    fn row(self) -> Region {
        self.row
    }

    fn index(self) -> u64 {
        self.index
    }

    fn encode_key(self, buffer: &mut Vec<u8>) {
        buffer.extend_from_slice(&self.index.to_be_bytes());
        buffer.push(self.row.0);
    }

    fn decode_key(rest: &mut &[u8]) -> Result<Self, String> {
        let index = u64::from_be_bytes(take(rest)?);
        let [row] = take(rest)?;
        Ok(Self { index, row: Region(row) })
    }
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
    #[cbor(with = "crate::wire::numbers")]
    pub dependencies: Indexes,
    /// The base.
    #[n(1)]
    pub base: Base,
}

impl Attributes {
    /// Whether the instance comes before or together with one that has these attributes.
    pub fn includes(&self, id: InstanceId) -> bool {
        self.dependencies.get(id.row.index()).is_some_and(|last| *last >= id.index)
    }
}

impl instances::instance::Attributes for Attributes {
    /// The later dependency of each row, and the newer base.
    fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.dependencies.iter_mut().zip(&other.dependencies) {
            *mine = (*mine).max(*theirs);
        }
        if other.base.carstamp > self.base.carstamp {
            self.base = other.base.clone();
        }
    }

    /// Bases are compared by carstamp alone: equal carstamps mean equal values.
    fn same(&self, other: &Self) -> bool {
        self.dependencies == other.dependencies && self.base.carstamp == other.base.carstamp
    }

    fn dependencies(&self) -> usize {
        self.dependencies.len()
    }
}
