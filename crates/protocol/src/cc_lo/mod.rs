//! CC-LO: read-only transactions (ROTs) of one round and one version, the design of COPS-SNOW as the Contrarian paper
//! evaluates it (Didona, Guerraoui, Wang, Zwaenepoel: *Causal Consistency and Latency Optimality: Friend or Foe?*, VLDB 2018,
//! §3; Lu, Hodsdon, Ngo, Mu, Lloyd: *The SNOW Theorem and Latency-Optimal Read-Only Transactions*, OSDI 2016).
//!
//! # Guarantee
//! Causally consistent and convergent; a ROT reads one causal snapshot in one round. The price is paid by writes: before one
//! is visible, the partitions of all that it depends on are asked which ROTs have read older versions there (the
//! *readers check*), and it stays hidden from those.
//!
//! # Assumptions
//! As for [`crate::causal`]; and that clocks run equally fast: what is kept about ROTs is forgotten
//! [`CcLoSettings::readers_kept`] after it came, and a client does not believe a ROT that took as long.
//!
//! # From the papers to the code
//! | Source | here | departs |
//! |---|---|---|
//! | readers, old readers | [`readers`] | old readers are found when they are asked for, from what each ROT has read |
//! | the cut that an old reader gets | `readers::Readers::bind` | the number of the dangerous install, and not the logical time of the ROT's earlier read, which misses versions that others of its values depend on |
//! | PUT, readers check | `checks` | a check also names ROTs from which the dependency itself is hidden |
//! | remote writes, dependency check | `checks` `is_installed` | satisfied by the dependency itself only, and not by a newer version, which says nothing of what the dependency depends on |
//! | forgetting after 500 ms | `replica`, `client` | a restarted partition is silent about ROTs for as long, because what it knew of them is lost |

mod checks;
mod client;
pub mod message;
pub mod readers;
mod replica;
#[cfg(test)]
mod tests;

pub use client::Client;
pub use message::Message;
pub use replica::Replica;

use crate::causal::{record, update};
use crate::clock::Micros;
use crate::machine::{self, Place};
use crate::registry::Settings;
use crate::topology::{ClientId, ReplicaId};
use message::Dependency;

/// A write, with all that it depends on directly.
pub type Update = update::Update<Vec<Dependency>>;

/// A durable fact. What was known of transactions is not kept: they are over before a replica is back.
pub type Record = record::Record<Vec<Dependency>>;

/// What CC-LO goes by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CcLoSettings {
    /// How long a partition remembers what a ROT has read. 5 s in COPS-SNOW.
    pub readers_kept: Micros,
    /// Whether of each session only the last ROT is remembered, as the one before it must have ended. Not in COPS-SNOW.
    pub one_rot_a_session: bool,
}

impl Default for CcLoSettings {
    /// As the Contrarian paper improves on COPS-SNOW (§5.1).
    fn default() -> Self {
        Self { readers_kept: 500_000, one_rot_a_session: true }
    }
}

/// The engine: makes CC-LO's machines.
#[derive(Clone, Debug)]
pub struct CcLo {
    settings: Settings,
}

impl CcLo {
    /// CC-LO with these settings.
    pub fn new(settings: Settings) -> Self {
        Self { settings }
    }
}

impl machine::Engine for CcLo {
    type Message = Message;
    type Record = Record;
    type Replica = Replica;
    type Client = Client;

    fn replica(&self, id: ReplicaId, place: Place, records: Vec<Record>) -> Replica {
        Replica::new(self.settings.clone(), id, place, records)
    }

    fn client(&self, id: ClientId, place: Place) -> Client {
        Client::new(self.settings.clone(), id, place)
    }
}
