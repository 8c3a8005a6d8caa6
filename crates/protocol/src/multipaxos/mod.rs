//! Multi-Paxos: every operation, reads included, goes through one replicated log a partition, at a leader.
//!
//! # Guarantee
//! Linearizable. Operations end while a majority of replicas answers each other and has a leader; when the leader
//! dies they wait until another one is elected.
//!
//! # Assumptions
//! Those of the [`log`]: 2f+1 replicas, f of which may stop or be away; what was stored is there after a restart;
//! messages may be lost, doubled, delayed and reordered. No clock is trusted, unless leases are switched on.
//!
//! # From the sources to the code
//! | Source | here | departs |
//! |---|---|---|
//! | Lamport, *Paxos Made Simple* §2-3 | [`log`] | promises cover all slots and return all that is accepted; holes are filled with Nops; a barrier begins a term |
//! | Gryff §6: reads through the log, leader fixed in one region | `replica` `on_request`; [`log::LogSettings::leader`] | a setting; entries go to all replicas and not to a quorum only, because all need them |
//! | Gryff §6: clients ask the leader | `client` `send`, `replica` `forward` | they ask the replica of their region, which hears who leads and forwards; the leader answers directly |
//! | not in the sources | `store` | a retried update takes effect once: results are remembered a lane, in the state itself |
//! | Gray, Cheriton, *Leases*; Spanner §4 | [`log::Log::may_read_alone`] | off by default |

mod client;
pub mod log;
pub mod message;
mod replica;
pub mod store;
#[cfg(test)]
mod tests;

pub use client::Client;
pub use message::Message;
pub use replica::Replica;

use crate::machine::{self, Place};
use crate::registry::Settings;
use crate::topology::{ClientId, ReplicaId};

/// What a replica stores.
pub type Record = log::RecordOf<store::Store>;

/// The engine: makes Multi-Paxos' machines.
#[derive(Clone, Debug)]
pub struct MultiPaxos {
    settings: Settings,
}

impl MultiPaxos {
    /// Multi-Paxos with these settings.
    pub fn new(settings: Settings) -> Self {
        Self { settings }
    }

    /// What it goes by.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }
}

impl machine::Engine for MultiPaxos {
    type Message = Message;
    type Record = Record;
    type Replica = Replica;
    type Client = Client;

    fn replica(&self, id: ReplicaId, place: Place, records: Vec<Record>) -> Replica {
        Replica::new(self.settings.clone(), id, &place, records)
    }

    fn client(&self, id: ClientId, place: Place) -> Client {
        Client::new(self.settings.clone(), id, place)
    }
}
