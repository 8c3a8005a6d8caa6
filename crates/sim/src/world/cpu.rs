//! What work costs: each node has one core, which does one thing after the other.
//!
//! A message between nodes costs its sender and its receiver a constant, a share for its bytes and a share for what it
//! carries one by one; a request costs the node that its client is attached to a constant, which covers the client's
//! connection and all that happens inside the node. The figures are fitted to real nodes under load
//! (docs/benchmarks.md): system calls and wakes are in them as they are when a node is busy. Alarms and the disk cost
//! nothing. A node can be slower than others ([`World::set_slowness`]).

use super::World;
use super::node::Node;
use meridian_protocol::clock::Micros;
use meridian_protocol::machine::{Engine, Message};
use meridian_protocol::wire;

/// A point of virtual time, in ns: single messages cost few microseconds.
pub(crate) type Nanos = u64;

/// What work costs on a node, in ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CpuCost {
    /// A client's request with its answer, apart from messages to other nodes.
    pub request: f64,
    /// A message between nodes, at each end.
    pub message: f64,
    /// Each byte of its encoding.
    pub byte: f64,
    /// Each of [`Message::items`].
    pub item: f64,
}

impl CpuCost {
    pub(crate) fn of_message(&self, message: &impl Message) -> f64 {
        self.message + self.byte * wire::length(message) as f64 + self.item * message.items() as f64
    }
}

impl<E: Engine> World<E> {
    /// The node takes on work of so many ns: when it is done with it, behind all that it has taken on before.
    pub(super) fn work(&mut self, node: usize, work: f64) -> Micros {
        if work == 0.0 {
            return self.time;
        }
        let Node { slowness, busy_until, .. } = &mut self.nodes[node];
        *busy_until = (*busy_until).max(self.time * 1_000) + (work * *slowness) as Nanos;
        busy_until.div_ceil(1_000)
    }

    /// From now on work takes this node so many times as long as [`CpuCost`] says; 1 until told.
    pub fn set_slowness(&mut self, node: usize, times: f64) {
        self.nodes[node].slowness = times;
    }
}
