//! Gryff: shared registers for reads and writes, consensus only for read-modify-writes, unified by carstamps
//! (Burke, Cheng, Lloyd: *Gryff: Unifying Consensus and Shared Registers*, NSDI 2020), and Gryff-RSC, whose reads
//! answer after one round (Helt, Burke, Levy, Lloyd: *Regular Sequential Serializability and Regular Sequential
//! Consistency*, SOSP 2021, with its technical report).
//!
//! # Guarantee
//! `gryff` is linearizable, and so is `abd`, its registers without consensus. `gryff-rsc` is regular sequentially consistent (RSC). Reads and writes end whenever a
//! majority of replicas answers; rmws need that and, after a coordinator's death, a recovery.
//!
//! # Assumptions
//! 2f+1 replicas, f of which may stop or be away. A replica that comes back has all it had stored. Messages may be
//! lost, doubled, delayed and reordered. No clock is trusted, unless writes take their timestamps from clocks
//! ([`crate::registry::Writes`], `docs/engines/one-round.md`): times only judge expiry and how long results are remembered.
//!
//! # From the papers to the code
//! | Gryff | here | departs |
//! |---|---|---|
//! | §3.2 carstamps | [`crate::registers::carstamp`] | plain lexicographic order; the printed comparison is wrong |
//! | Alg. 1 read, §5 and Alg. 7 read proxy | `replica` `on_read`, `advance_read`; `client` without proxy | the proxy's vote is what it held at the start; holders are counted by carstamp |
//! | Alg. 1 write | `client::writes` `on_write1_reply` | a coordinator never uses a timestamp twice |
//! | Alg. 2 `Apply` | `replica` `apply` | no |
//! | Alg. 3 rmw coordinator | [`crate::instances`]; `protocol` `attributes`, `fast_failures`; `rmws` `finish` | fast quorum n-1 (a smaller one can't recover the base); with three replicas the pair rule; carstamps are compared, not structs |
//! | Alg. 4 execution, `prev` | `chain` `order`, `execute` | `prev` per key; results remembered per lane, so that a retry takes effect once |
//! | Alg. 5, 6 recovery | [`crate::instances`] | two ballots an instance, as in EPaxos*; no second pre-accept, no `TryPreAccept`, no `Validate` |
//! | RSS/RSC Alg. 3-5, §7.1 Gryff-RSC | `client::settle` `note_unsettled`, `go_on` | **corrected**: what was read is settled before the next operation begins; the published piggyback does not give RSC (see `docs/engines/gryff.md`) |
//! | not in the papers | `client::writes` `write_by_clock`, `client::passing` | writes in one round, by the clock |
//! | not in the papers | [`crate::registers::comparison`], [`crate::instances`] | replicas compare what they hold, so that copies become whole again |
//!
//! # A departure in the shape of things
//! Each key has its own instance space ([`instance::InstanceId`]), and an executed instance is forgotten at once:
//! whoever asks for it is sent the key's state instead. So the log needs no truncation
//! protocol, and a replica that is away for long does not make the others keep anything for it.

mod chain;
mod client;
pub mod instance;
pub mod message;
mod protocol;
mod read;
#[cfg(test)]
mod regressions;
mod replica;
mod rmws;
#[cfg(test)]
mod tests;

pub use chain::{Head, Remembered};
pub use client::Client;
pub use message::Message;
pub use replica::Replica;

/// A durable fact about one key. Its version is stored before any message shows its carstamp, because a quorum that
/// shows one carstamp is the only evidence a one-round read has; what executed rmws have left before `Executed` is sent.
pub type Record = crate::instances::record::Record<Gryff>;

use crate::machine::{self, Place};
use crate::object::{Action, Answer, apply};
use crate::planted::Planted;
use crate::registers::carstamp::Held;
use crate::registry::Settings;
use crate::topology::{ClientId, ReplicaId};

/// Which of the two protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consistency {
    /// Gryff: a read whose value is not known on a quorum writes it back before it answers.
    Linearizable,
    /// Gryff-RSC, corrected: it answers first, and the session's next operation waits for the write-back.
    Rsc,
    /// Gryff-RSC as published: what was read is sent along with the next operation's first phase. **Not RSC**; it
    /// exists to reproduce the published figures.
    RscAsPublished,
}

/// The engine: makes Gryff's machines.
#[derive(Clone, Debug, PartialEq)]
pub struct Gryff {
    pub(crate) consistency: Consistency,
    pub(crate) settings: Settings,
    /// There is no consensus: rmws are refused, and a deletion answers what was there just before it.
    pub(crate) registers_only: bool,
}

impl Gryff {
    /// Gryff, which is linearizable.
    pub fn linearizable(settings: Settings) -> Self {
        Self { consistency: Consistency::Linearizable, settings, registers_only: false }
    }

    /// Gryff-RSC: corrected, unless the settings ask for the rule as published.
    pub fn rsc(settings: Settings) -> Self {
        let as_published = settings.rsc_as_published || settings.plant.has(Planted::PiggybackDependency);
        let consistency = if as_published { Consistency::RscAsPublished } else { Consistency::Rsc };
        Self { consistency, settings, registers_only: false }
    }

    /// Multi-writer ABD, the baseline of Gryff's evaluation (Gryff §4.1): Gryff's registers alone. Clients coordinate
    /// their reads, as there.
    pub fn abd(mut settings: Settings) -> Self {
        settings.read_proxy = false;
        Self { consistency: Consistency::Linearizable, settings, registers_only: true }
    }
}

impl machine::Engine for Gryff {
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

/// What a read answers of the version it has found.
fn answer_read(held: &Held, action: &Action, at_ms: u64) -> Answer {
    apply(&held.value, held.carstamp.version(), action, at_ms).1
}
