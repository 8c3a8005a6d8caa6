//! Spanner and Spanner-RSS: transactions over shards, each of them a replicated log.
//!
//! # Guarantee
//! `spanner` is strictly serializable, `spanner-rss` gives regular sequential serializability, `spanner-po` process-ordered
//! serializability. Transactions end while a majority of each of their shards' replicas answers each other and has a
//! leader; none waits for ever for another, and no lock outlives a dead client by more than
//! [`SpannerSettings::locks`], or if it was prepared the time in which its shards agree that it is aborted.
//!
//! # Assumptions
//! Those of the [`log`], and that true time lies in the interval that each node's clock states. A node that states none
//! serves no reads and leads no transactions. If a clock is outside of its interval the order of transactions is still
//! one order, but need not be that of real time.
//!
//! # From the sources to the code
//! | source | here | departs |
//! |---|---|---|
//! | RSS/RSC, Algorithm 1 | `read_only` | `t_snap` begins at `t_min`; ends of skipped transactions count for all shards |
//! | RSS/RSC, Algorithm 2 | `snapshot` | values and skipped transactions are taken in one step |
//! | RSS/RSC §5, `t_ee` | `distances`, `participate` `clamp`, `read_write` `end` | never later than L after the prepare timestamp |
//! | RSS/RSC §5.1, fence | `client` `advance_fence` | |
//! | RSS/RSC §5, Spanner §4.2.1: two-phase commit | `participate`, `coordinate`, `read_write` | what happens when somebody dies is not in the papers |
//! | Spanner §4.1.1, leader leases | `lead` `propose_lease`, [`shard::Shard::lease`] | a lease is a timestamp in the log |
//! | Spanner §4.1.3, reads at replicas | `local` | |
//! | Rosenkrantz, Stearns, Lewis: wound-wait | [`locks`], `lead` `wound_younger` | |

mod client;
mod coordinate;
mod distances;
mod lead;
mod local;
pub mod locks;
pub mod message;
mod participate;
mod read_only;
mod read_write;
mod replica;
pub mod shard;
mod snapshot;
#[cfg(test)]
mod tests;
pub mod versions;
mod work;

pub use client::Client;
pub use message::Message;
pub use replica::Replica;

use crate::clock::Micros;
use crate::machine::{self, Place};
use crate::multipaxos::log;
use crate::registry::Settings;
use crate::topology::{ClientId, ReplicaId};

/// What a replica stores.
pub type Record = log::RecordOf<shard::Shard>;

/// Which reads a keyspace serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Strictly serializable: read-only transactions wait for what is prepared.
    Strict,
    /// Regular sequential serializability: they skip what cannot have ended before they began.
    Rss,
    /// Process-ordered serializability: they read what the nearest replica knows to be over.
    Po,
}

/// What an operator can set about the engines with transactions, with defaults for a wide area.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpannerSettings {
    /// For how long ahead a leader may promise timestamps. After it dies the next one waits as long before it commits.
    pub lease: Micros,
    /// After how long without a word from its client a transaction loses its locks. Clients give one every
    /// [`Settings::retry`].
    pub locks: Micros,
    /// How long versions are kept that have been replaced.
    pub retention: Micros,
    /// L: a client's answer is held back, and relied on to be, until so much after the commit timestamp at most; a fence
    /// waits for as long.
    pub fence: Micros,
    /// A replica whose log is safe up to a time that is older than this asks for a newer one when it is read.
    pub staleness: Micros,
    /// How long an interactive transaction may take.
    pub lifetime: Micros,
}

impl Default for SpannerSettings {
    fn default() -> Self {
        Self {
            lease: 1_000_000,
            locks: 1_500_000,
            retention: 60_000_000,
            fence: 300_000,
            staleness: 500_000,
            lifetime: 60_000_000,
        }
    }
}

impl Settings {
    /// After how long without a word from its client a transaction loses its locks: not before three words were missed.
    fn lock_lease(&self) -> Micros {
        self.spanner.locks.max(3 * self.retry)
    }
}

/// The most bytes of keys and values that one transaction may write.
pub const TRANSACTION_LIMIT: usize = crate::object::OBJECT_LIMIT;

/// The engine: makes Spanner's machines.
#[derive(Clone, Debug)]
pub struct Spanner {
    kind: Kind,
    settings: Settings,
}

impl Spanner {
    /// Spanner of a kind, with these settings.
    pub fn new(kind: Kind, settings: Settings) -> Self {
        Self { kind, settings }
    }
}

impl machine::Engine for Spanner {
    type Message = Message;
    type Record = Record;
    type Replica = Replica;
    type Client = Client;

    fn replica(&self, id: ReplicaId, place: Place, records: Vec<Record>) -> Replica {
        Replica::new(self.settings.clone(), id, place, records)
    }

    fn client(&self, id: ClientId, place: Place) -> Client {
        Client::new((self.kind, self.settings.clone()), id, place)
    }
}
