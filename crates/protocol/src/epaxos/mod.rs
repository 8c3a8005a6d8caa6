//! EPaxos: every operation, reads included, goes through consensus, and any replica may lead one (Moraru, Andersen,
//! Kaminsky: *There Is More Consensus in Egalitarian Parliaments*, SOSP 2013), with the recovery of EPaxos*
//! (Ryabinin, Gotsman, Sutra 2025). The baseline of Gryff's evaluation (Gryff §4.1, §6).
//!
//! # Guarantee
//! Linearizable. Operations end whenever a majority of replicas answers and, after a coordinator's death, what
//! interferes with its unfinished instances has waited for their recovery.
//!
//! # Assumptions
//! As Gryff's ([`crate::gryff`]): 2f+1 replicas of which f may stop or be away; what is stored comes back; messages
//! may be lost, doubled, delayed and reordered; no clock is trusted.
//!
//! # From the papers to the code
//! | source | here | departs |
//! |---|---|---|
//! | EPaxos §4.3 commit | [`crate::instances`]; `protocol` `attributes` | an instance space per key and kind ([`instance::InstanceId`]); the answers must equal what was proposed; with three replicas the pair rule |
//! | EPaxos §4.4 fast quorum f + ⌊(f+1)/2⌋ | `protocol` `fast_failures` | no |
//! | EPaxos* recovery: `Recover` | [`crate::instances`] | a majority of pre-acceptors need not be validated |
//! | EPaxos* recovery: `Validate`, `Waiting` | `validate` | who waits tries again instead of listening |
//! | EPaxos §4.3.2 execution | `log` `order`, `execute` | iterative; inside a component by sequence number, then row |
//! | EPaxos §4.3.3 answers | `operations` `answer_early` | a write that took the slow path with more than three regions is answered after execution (see `docs/engines/epaxos.md`) |
//! | not in the papers | `log` `adopt` | executed instances are forgotten; a replica that lacks one takes over a peer's state |

mod client;
pub mod instance;
mod log;
pub mod message;
mod operations;
mod protocol;
mod replica;
#[cfg(test)]
mod tests;
mod validate;

pub use client::Client;
pub use log::Head;
pub use message::Message;
pub use replica::Replica;

/// A durable fact about one key.
pub type Record = crate::instances::record::Record<Epaxos>;

use crate::machine::{self, Place};
use crate::registry::Settings;
use crate::topology::{ClientId, ReplicaId};

/// The engine: makes EPaxos's machines.
#[derive(Clone, Debug, PartialEq)]
pub struct Epaxos {
    settings: Settings,
}

impl Epaxos {
    /// EPaxos with these settings.
    pub fn new(settings: Settings) -> Self {
        Self { settings }
    }
}

impl machine::Engine for Epaxos {
    type Message = Message;
    type Record = Record;
    type Replica = Replica;
    type Client = Client;

    fn replica(&self, id: ReplicaId, place: Place, records: Vec<Record>) -> Replica {
        Replica::new(self.clone(), id, place, records)
    }

    fn client(&self, id: ClientId, place: Place) -> Client {
        Client::new(self.settings.clone(), id, place)
    }
}
