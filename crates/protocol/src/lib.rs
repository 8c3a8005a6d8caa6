//! Meridian's protocols as pure machines.
//!
//! A protocol is a pair of plain values, a [`machine::Replica`] and a [`machine::Client`], stepped with one
//! input at a time and answering with effects as data. Nothing in this crate reads a clock, a socket, a file
//! or a random source; the two hosts (the simulator and the node) give time and carry out effects. Read
//! [`machine`] first, then [`object`] (what commands mean), then an engine's folder.

mod alarms;
pub mod causal;
pub mod cc_lo;
pub mod clock;
#[cfg(test)]
mod cluster;
mod components;
pub mod compose;
pub mod epaxos;
#[cfg(test)]
mod grid;
pub mod gryff;
pub mod history;
pub mod instances;
pub mod latency;
pub mod machine;
pub mod multipaxos;
pub mod notices;
pub mod object;
pub mod planted;
mod record_key;
pub mod registers;
pub mod registry;
mod results;
pub mod spanner;
pub mod topology;
pub mod transfer;
pub mod waiting;
pub mod wire;

/// A hash map whose behaviour is the same in every process. Where its order could reach an output, iterate
/// over a `BTreeMap` instead (the lint `iter_over_hash_type` watches).
pub type Map<K, V> = hashbrown::HashMap<K, V, foldhash::fast::FixedState>;
