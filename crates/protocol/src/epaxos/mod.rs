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
//! | EPaxos §4.3 commit | `propose` | an instance space per key and kind ([`instance::InstanceId`]); the answers must equal what was proposed; with three replicas the pair rule |
//! | EPaxos §4.4 fast quorum f + ⌊(f+1)/2⌋ | `propose` `fast_quorum` | no |
//! | EPaxos* recovery: `Recover`, `Validate`, `Waiting` | `recovery` | a majority of pre-acceptors need not be validated; who waits tries again instead of listening |
//! | EPaxos §4.3.2 execution | `log` `plan`, `execute` | iterative; inside a component by sequence number, then row |
//! | EPaxos §4.3.3 answers | `propose` `answer_early` | a write that took the slow path with more than three regions is answered after execution (see `docs/engines/epaxos.md`) |
//! | not in the papers | `log`, `sync` | executed instances are forgotten; a replica that lacks one takes over a peer's state |

mod client;
pub mod instance;
mod log;
pub mod message;
mod propose;
pub mod record;
mod recovery;
mod replica;
mod sync;
#[cfg(test)]
mod tests;

pub use client::Client;
pub use log::{Head, LogState};
pub use message::Message;
pub use record::Record;
pub use replica::Replica;

use crate::machine::{self, Place};
use crate::registry::Settings;
use crate::topology::{ClientId, ReplicaId};

/// The engine: makes EPaxos's machines.
#[derive(Clone, Debug)]
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
        Replica::new(self.settings.clone(), id, place, records)
    }

    fn client(&self, id: ClientId, place: Place) -> Client {
        Client::new(self.settings.clone(), id, place)
    }
}
