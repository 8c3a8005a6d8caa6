//! Meridian's server: the host that runs the protocols' machines over sockets, disks and clocks.
//!
//! One thread owns all of a node. Start reading at [`config`] for what a node is told, then `worker` for the
//! loop, `node` for what its tasks share and in which order things leave, `keyspace` for how machines are
//! driven, and [`session`] for what a client's commands become.

pub mod acl;
mod admin;
mod clients;
mod clock;
pub mod config;
mod controls;
mod core;
pub mod frame;
mod handshake;
mod keyspace;
mod link;
mod metrics;
mod node;
mod outside;
mod placement;
mod queues;
pub mod resp;
mod serve;
pub mod session;
mod strangers;
mod tally;
#[cfg(test)]
mod tests;
mod tls;
pub mod token;
mod transport;
mod wire;
mod worker;

pub use serve::{DevOptions, Embedded, check, dev, serve};
pub use tls::Dialer;
pub use wire::{Reader, Stream, Writer};
pub use worker::NodeError;
