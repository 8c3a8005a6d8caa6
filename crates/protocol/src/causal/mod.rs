//! The causal engines with vectors: contrarian (Didona, Guerraoui, Wang, Zwaenepoel: *Causal Consistency and Latency
//! Optimality: Friend or Foe?*, VLDB 2018, extended version) and tcc, session guarantees chosen by the operation (*Tunable
//! Causal Consistency: Specification and Implementation*).
//!
//! # Guarantee
//! Both are convergent: copies that have the same writes hold the same. `contrarian` is causally consistent, and a
//! read-only transaction (ROT) reads one causal snapshot, without waiting for anything. `tcc` gives each operation what
//! it asks for: read your writes, monotonic reads, monotonic writes, writes follow reads, all of them (causal), or none;
//! and a session may go on in another region. Operations never leave the region, and need no other one.
//!
//! # Assumptions
//! Every region has all partitions, one copy each; a copy that comes back has all it had stored. Messages may be lost,
//! doubled, delayed and reordered, but none comes more than [`crate::registry::Settings::remember`] after it was sent. No clock is
//! trusted: a wrong one delays when writes are seen elsewhere, and decides which of two concurrent writes wins.
//!
//! # From the papers to the code
//! | Source | here | departs |
//! |---|---|---|
//! | Contrarian Alg. 1, client | `client` | vectors of what was seen and written are kept apart, for tcc |
//! | Contrarian Alg. 2, PUT; TCC Alg. 2 | `operations` `on_put` | TCC: the timestamp is above *every* entry of the dependencies, and above all that was visible (`floor`) |
//! | Contrarian Alg. 2, ROT | `operations` `on_demand`, `on_read_at` | the coordinator reads its wall clock too; answers carry no clock, as steps are atomic; also in 1½ rounds |
//! | TCC Alg. 1, GET | `operations` `admits`, `snapshot_for` | own writes are visible at once; of a session from another region its word is awaited, not believed |
//! | Contrarian Alg. 2, replication and heartbeats | [`replication`] | timestamps are the sequence numbers; acknowledged, sent again, passed on |
//! | Contrarian Alg. 2, stabilization; TCC Alg. 3 | [`stabilization`] | the least is taken entry by entry, includes the own row, and never goes back |
//! | Contrarian §4.2, hybrid clocks | `clock` | durable; bounded drift; a physical clock is waited for before a message is taken (`late`) |
//! | not in the papers | `upkeep` | forgetting of versions and tombstones, and ROTs that come too late for their snapshot |

pub(crate) mod asked;
mod client;
pub(crate) mod clock;
pub(crate) mod lanes;
mod late;
pub mod message;
mod operations;
pub(crate) mod reading;
pub mod record;
mod replica;
pub mod replication;
mod session;
pub mod stabilization;
#[cfg(test)]
mod tests;
pub mod update;
mod upkeep;
pub mod vector;
pub(crate) mod versions;
mod visibility;

pub use client::Client;
pub use message::Message;
pub use replica::Replica;

use crate::clock::Micros;
use crate::machine::{self, Place};
use crate::registry::Settings;
use crate::topology::{ClientId, ReplicaId};

/// A write: its vector covers what it depends on, and in its own region's entry is its timestamp.
pub type Update = update::Update<vector::Vector>;

/// A durable fact.
pub type Record = record::Record<vector::Vector>;

/// What the causal engines go by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CausalSettings {
    /// How often replicas tell the other regions how late it is, when they have nothing else to tell.
    pub heartbeat: Micros,
    /// How often the partitions of a region tell each other what they have.
    pub stabilization: Micros,
    /// How long a version is kept after a newer one is stable, for transactions that read from an older snapshot.
    pub keep: Micros,
    /// How long a deleted key is remembered at least.
    pub tombstones: Micros,
    /// What timestamps are made of.
    pub clock: ClockKind,
    /// How many rounds a transaction over several partitions takes.
    pub rounds: Rounds,
}

impl Default for CausalSettings {
    /// The paper's prototype tells partitions every 5 ms, and regions after 1 ms without a write. An idle cluster would do
    /// little else; between regions 5 ms are hardly noticed.
    fn default() -> Self {
        Self {
            heartbeat: 5_000,
            stabilization: 5_000,
            keep: 1_000_000,
            tombstones: 3_600_000_000,
            clock: ClockKind::Hybrid,
            rounds: Rounds::OneAndAHalf,
        }
    }
}

/// What timestamps are made of (Contrarian §4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockKind {
    /// Wall clock and counter: fresh where nothing is written, and never waited for.
    Hybrid,
    /// A counter alone: what is seen grows stale where little is written.
    Logical,
    /// The wall clock alone: as fresh, and waited for wherever it is behind another one.
    Physical,
}

impl ClockKind {
    /// Every kind, with its name.
    pub const NAMES: [(Self, &'static str); 3] =
        [(Self::Hybrid, "hybrid"), (Self::Logical, "logical"), (Self::Physical, "physical")];

    /// The kind of that name.
    ///
    /// # Errors
    /// Which names there are.
    pub fn named(name: &str) -> Result<Self, String> {
        let found = Self::NAMES.iter().find(|(_, known)| *known == name);
        let known = || Self::NAMES.map(|(_, known)| known).join(", ");
        found.map(|(kind, _)| *kind).ok_or_else(|| format!("choose one of {}", known()))
    }
}

/// How many rounds inside the region a transaction over several partitions takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounds {
    /// The client asks a coordinator for a snapshot, then every partition for its values: 2p+2 messages for p partitions,
    /// none of them between partitions.
    Two,
    /// The coordinator hands the request on to the other partitions, which answer the client: 2p messages.
    OneAndAHalf,
}

/// Which of the two protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flavour {
    /// Every operation is causal; clients stay in their region.
    Contrarian,
    /// Each operation has its level; clients may move.
    Tcc,
}

/// The engine: makes the machines of both.
#[derive(Clone, Debug)]
pub struct Causal {
    pub(crate) flavour: Flavour,
    pub(crate) settings: Settings,
}

impl Causal {
    /// Contrarian.
    pub fn contrarian(settings: Settings) -> Self {
        Self { flavour: Flavour::Contrarian, settings }
    }

    /// Tunable causal consistency, corrected.
    pub fn tcc(settings: Settings) -> Self {
        Self { flavour: Flavour::Tcc, settings }
    }
}

impl machine::Engine for Causal {
    type Message = Message;
    type Record = Record;
    type Replica = Replica;
    type Client = Client;

    fn replica(&self, id: ReplicaId, place: Place, records: Vec<Record>) -> Replica {
        Replica::new(self.clone(), id, place, records)
    }

    fn client(&self, id: ClientId, place: Place) -> Client {
        Client::new(self.clone(), id, place)
    }
}
