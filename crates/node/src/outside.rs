//! What machines have around them on a node: clocks, links to other nodes, the store, alarms.
//!
//! Nothing leaves from here. Messages, records and completions are gathered; the worker's flush commits the
//! records and only then lets the bytes go, which keeps the durability rule in one place.

use crate::clock::Clock;
use crate::frame::{self, Kind};
use crate::link::Link;
use crate::placement::{NodeIndex, Placement};
use meridian_protocol::clock::{Interval, Micros, Now};
use meridian_protocol::machine::{Completion, Message, Record};
use meridian_protocol::notices::Notice;
use meridian_protocol::topology::{Address, ClientId};
use meridian_protocol::wire;
use meridian_store::Batch;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::rc::Rc;
use tokio::sync::Notify;

/// A machine of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum MachineId {
    /// The replica of a partition.
    Replica(u16),
    /// The client machine in a slot.
    Client(u32),
    /// The lines of those who wait, and the moves that may stand still.
    Queue,
}

/// Messages to and from other nodes, counted: what a node's work depends on (docs/benchmarks.md).
#[derive(Debug, Default)]
pub(crate) struct Mail {
    /// How many.
    pub(crate) messages: u64,
    /// Their encodings' bytes.
    pub(crate) bytes: u64,
    /// What they carry one by one ([`Message::items`]).
    pub(crate) items: u64,
}

impl Mail {
    /// Counts a message whose encoding has so many bytes.
    pub(crate) fn count(&mut self, message: &impl Message, bytes: usize) {
        self.messages += 1;
        self.bytes += bytes as u64;
        self.items += message.items() as u64;
    }
}

/// What a node's machines reach the world through.
#[derive(Debug)]
pub(crate) struct Outside {
    pub(crate) clock: Clock,
    pub(crate) me: NodeIndex,
    /// How often this node has started.
    pub(crate) incarnation: u32,
    pub(crate) placement: Placement,
    /// By node; the one of this node is never up.
    pub(crate) links: Vec<Link>,
    /// Links with bytes to write.
    pub(crate) dirty_links: Vec<NodeIndex>,
    /// Records to commit before anything leaves; `None` if records are not kept.
    pub(crate) batch: Option<Batch>,
    /// Requests that ended, for their sessions.
    pub(crate) completions: VecDeque<Completion>,
    /// What the keyspaces' replicas tell of lists that somebody waits for, with the keyspaces' places.
    pub(crate) notices: Vec<(usize, Notice)>,
    /// Messages that came from and went to other nodes.
    pub(crate) mail: Mail,
    alarms: BinaryHeap<Reverse<(Micros, usize, MachineId)>>,
    /// Wakes the flusher.
    pub(crate) flush: Rc<Notify>,
    /// Wakes who waits for the first alarm, as an earlier one was set.
    pub(crate) earlier_alarm: Rc<Notify>,
}

impl Outside {
    pub(crate) fn new(
        clock: Clock,
        me: NodeIndex,
        incarnation: u32,
        placement: Placement,
        links: Vec<Link>,
        batch: Option<Batch>,
    ) -> Self {
        Self {
            clock,
            me,
            incarnation,
            placement,
            links,
            dirty_links: Vec::new(),
            batch,
            completions: VecDeque::new(),
            notices: Vec::new(),
            mail: Mail::default(),
            alarms: BinaryHeap::new(),
            flush: Rc::new(Notify::new()),
            earlier_alarm: Rc::new(Notify::new()),
        }
    }

    pub(crate) fn now(&self) -> Now {
        self.clock.now()
    }

    /// The name of the client machine in a slot of this node.
    pub(crate) fn client_id(&self, slot: u32) -> ClientId {
        ClientId::new(self.me as u16 + 1, self.incarnation, slot)
    }

    /// Whether a machine lives here.
    pub(crate) fn is_here(&self, address: Address) -> bool {
        self.placement.node_of(address) == Some(self.me)
    }

    /// Appends a message to the link of the node on which its addressee lives. It is dropped if that node is not
    /// connected or too much waits for it already: machines send again.
    pub(crate) fn send(&mut self, from: Address, to: Address, message: &impl Message) {
        let Some(node) = self.placement.node_of(to) else { return };
        let mut bytes = 0;
        self.frame(node, Kind::Message, |buffer| {
            frame::write_addresses(buffer, from, to);
            let before = buffer.len();
            wire::encode(message, buffer);
            bytes = buffer.len() - before;
        });
        if bytes > 0 {
            self.mail.count(message, bytes);
        }
    }

    /// Appends a frame to a link; first, if it begins a batch, what this node's clock says.
    pub(crate) fn frame(&mut self, node: NodeIndex, kind: Kind, content: impl FnOnce(&mut Vec<u8>)) {
        let mut dirty = false;
        if self.links[node].is_clean()
            && let Some(Interval { earliest, .. }) = self.now().truetime()
        {
            let time = |buffer: &mut Vec<u8>| buffer.extend_from_slice(&earliest.to_le_bytes());
            dirty = self.links[node].append(Kind::Time, time);
        }
        dirty |= self.links[node].append(kind, content);
        if dirty {
            self.dirty_links.push(node);
            self.flush.notify_one();
        }
    }

    /// Adds a record to what is committed before anything leaves.
    pub(crate) fn store(&mut self, prefix: &[u8], record: &impl Record) {
        if let Some(batch) = &mut self.batch {
            if batch.is_empty() {
                self.flush.notify_one();
            }
            batch.write(
                |key| {
                    key.extend_from_slice(prefix);
                    record.encode_key(key);
                },
                |value| record.encode_value(value),
            );
        }
    }

    /// Remembers that a machine wants to be woken. Whether it still does when the time comes, its owner knows.
    pub(crate) fn set_alarm(&mut self, at: Micros, keyspace: usize, machine: MachineId) {
        let first = self.alarms.peek().is_none_or(|Reverse((first, ..))| at < *first);
        self.alarms.push(Reverse((at, keyspace, machine)));
        if first {
            self.earlier_alarm.notify_one();
        }
    }

    /// When the first alarm is due.
    pub(crate) fn next_alarm(&self) -> Option<Micros> {
        self.alarms.peek().map(|Reverse((at, ..))| *at)
    }

    /// Takes an alarm whose time has come: the keyspace's place, the machine, and the time it was set for.
    pub(crate) fn take_due(&mut self, now: Micros) -> Option<(usize, MachineId, Micros)> {
        let Reverse((at, keyspace, machine)) = *self.alarms.peek()?;
        (at <= now).then(|| {
            self.alarms.pop();
            (keyspace, machine, at)
        })
    }
}
