//! What a node does for those who wait for items of lists, beside handing replicas' notices to the lines
//! ([`meridian_protocol::waiting`]): it has keys watched where their replicas are, and finishes moves that stand still.
//!
//! A key's partition lies on one node of each region. If that is another node it is asked to watch, on a lease, and told
//! of that again and again; while it cannot be reached the first in line tries from time to time, as then nobody calls.

use crate::core::Core;
use crate::outside::MachineId;
use crate::placement::NodeIndex;
use crate::session::SessionId;
use bytes::Bytes;
use meridian_protocol::Map;
use meridian_protocol::clock::Micros;
use meridian_protocol::machine::{Completion, Level, Outcome, Request, RequestId};
use meridian_protocol::object::{Action, Answer, Command};
use meridian_protocol::topology::{Region, key_hash, partition_of_hash};
use meridian_protocol::transfer::{Mender, Next, Transfer};
use meridian_protocol::waiting::{WaitId, Waits};
use std::collections::{BTreeMap, BTreeSet};

/// How often another node is asked to go on watching, and how often those try who cannot be called.
const RENEW: Micros = 5_000_000;
/// How long another node watches without being asked again.
const LEASE: Micros = 3 * RENEW;
/// How long a move may stand still before a node of the first region finishes it; those of the next regions wait for
/// longer, so that as a rule one does.
const PATIENCE: Micros = 3_000_000;
const PATIENCE_A_REGION: Micros = 2_000_000;

/// The queues of all keyspaces of a node.
#[derive(Debug)]
pub(crate) struct Queues {
    keyspaces: Vec<Queue>,
    /// What the node has asked of keys for itself: in which keyspace, and for which move.
    asked: Map<RequestId, (usize, Option<Transfer>)>,
}

/// Those of one keyspace.
#[derive(Debug)]
struct Queue {
    waits: Waits<SessionId>,
    mender: Mender,
    /// Other nodes that want to hear of a key, and until when.
    watchers: BTreeMap<Bytes, BTreeMap<NodeIndex, Micros>>,
    /// Keys of which their node could not be reached when it was last asked.
    missed: BTreeSet<Bytes>,
    /// The client machine of what the node asks for itself.
    helper: Option<u32>,
    /// When watching is renewed next.
    renew: Option<Micros>,
    alarm: Option<Micros>,
}

impl Queues {
    pub(crate) fn new(keyspaces: usize, region: Region) -> Self {
        let patience = PATIENCE + PATIENCE_A_REGION * u64::from(region.0);
        let queue = || Queue {
            waits: Waits::default(),
            mender: Mender::new(patience),
            watchers: BTreeMap::new(),
            missed: BTreeSet::new(),
            helper: None,
            renew: None,
            alarm: None,
        };
        Self { keyspaces: (0..keyspaces).map(|_| queue()).collect(), asked: Map::default() }
    }

    pub(crate) fn waits(&mut self, keyspace: usize) -> &mut Waits<SessionId> {
        &mut self.keyspaces[keyspace].waits
    }
}

impl Queue {
    fn next_alarm(&self) -> Option<Micros> {
        [self.waits.next_end(), self.mender.next_due(), self.renew].into_iter().flatten().min()
    }
}

impl Core {
    /// Puts a session into the lines of its keys; these are watched from now on.
    pub(crate) fn join_lines(
        &mut self,
        session: SessionId,
        keyspace: usize,
        keys: Vec<Bytes>,
        until: Option<Micros>,
    ) -> WaitId {
        let id = self.queues.waits(keyspace).join(session, keys, until);
        self.follow_watches(keyspace);
        self.set_queue_alarm(keyspace);
        id
    }

    /// Asks a step of a key for the node itself, as a part of a move that it finishes if one is given.
    pub(crate) fn ask_aside(
        &mut self,
        keyspace: usize,
        key: Bytes,
        command: Command,
        transfer: Option<Transfer>,
    ) {
        self.last_request += 1;
        let id = self.last_request;
        let helper = &mut self.queues.keyspaces[keyspace].helper;
        let slot = *helper.get_or_insert_with(|| self.keyspaces[keyspace].open_client(&mut self.outside));
        self.queues.asked.insert(id, (keyspace, transfer));
        let (at_ms, level) = (self.outside.now().wall_ms(), Level::default());
        let request = Request::Act { key, action: Action::Command(command), at_ms, level };
        self.keyspaces[keyspace].begin(&mut self.outside, slot, id, request);
    }

    /// Takes up the end of what the node has asked for itself. What did not succeed is seen again by who mends.
    pub(crate) fn on_aside(&mut self, completion: Completion) {
        let Some((keyspace, transfer)) = self.queues.asked.remove(&completion.request) else { return };
        let (Some(mut transfer), Outcome::Answer(Answer::One(reply))) = (transfer, completion.outcome) else {
            return;
        };
        if let Next::Ask(key, command) = transfer.on_reply(reply) {
            self.ask_aside(keyspace, key, command, Some(transfer));
        }
    }

    /// Hands on what replicas have told, and gives a session that waits and has something to do.
    pub(crate) fn next_called(&mut self) -> Option<SessionId> {
        let now = self.outside.now().monotonic;
        for (keyspace, notice) in std::mem::take(&mut self.outside.notices) {
            let queue = &mut self.queues.keyspaces[keyspace];
            queue.mender.on_notice(now, &notice);
            queue.waits.on_items(&notice.key, notice.items);
            self.tell_watchers(keyspace, &notice.key, notice.items, now);
            self.set_queue_alarm(keyspace);
        }
        (0..self.queues.keyspaces.len()).find_map(|keyspace| {
            self.follow_watches(keyspace);
            self.queues.waits(keyspace).take_called()
        })
    }

    /// When a wait ends, a move has stood still for long, or watching is to be renewed.
    pub(crate) fn on_queue_alarm(&mut self, keyspace: usize, at: Micros) {
        let now = self.outside.now().monotonic;
        let queue = &mut self.queues.keyspaces[keyspace];
        if queue.alarm == Some(at) {
            queue.alarm = None;
        }
        queue.waits.on_time(now);
        let due = queue.mender.take_due(now);
        if queue.renew.is_some_and(|renew| renew <= now) {
            queue.renew = None;
            self.renew_watches(keyspace, now);
        }
        for (source, leaving) in due {
            let (transfer, command) = Transfer::resume(source, leaving);
            self.ask_aside(keyspace, transfer.destination().clone(), command, Some(transfer));
        }
        self.set_queue_alarm(keyspace);
    }

    fn set_queue_alarm(&mut self, keyspace: usize) {
        let queue = &mut self.queues.keyspaces[keyspace];
        if let Some(at) = queue.next_alarm()
            && queue.alarm.is_none_or(|alarm| at < alarm)
        {
            queue.alarm = Some(at);
            self.outside.set_alarm(at, keyspace, MachineId::Queue);
        }
    }

    // Watching.

    /// The partition of a key, and the node of this region that holds it.
    fn holder_of(&self, keyspace: usize, key: &Bytes) -> (u16, NodeIndex) {
        let partition = partition_of_hash(key_hash(key), self.infos[keyspace].partitions);
        let placement = &self.outside.placement;
        (partition, placement.holder(partition, placement.region_of(self.outside.me)))
    }

    /// Has keys watched, or no more, as the lines want it.
    fn follow_watches(&mut self, keyspace: usize) {
        let now = self.outside.now().monotonic;
        for (key, watched) in self.queues.waits(keyspace).take_watches() {
            let (partition, holder) = self.holder_of(keyspace, &key);
            if holder != self.outside.me {
                self.ask_to_watch(keyspace, holder, &key, watched);
                self.queues.keyspaces[keyspace].renew.get_or_insert(now + RENEW);
            } else if watched || !self.queues.keyspaces[keyspace].watchers.contains_key(&key) {
                self.keyspaces[keyspace].watch(partition, &key, watched);
            }
        }
    }

    fn ask_to_watch(&mut self, keyspace: usize, holder: NodeIndex, key: &Bytes, watched: bool) {
        let number = self.infos[keyspace].number;
        self.outside.frame(holder, crate::frame::Kind::Watch, |buffer| {
            buffer.extend_from_slice(&number.to_le_bytes());
            buffer.push(u8::from(watched));
            buffer.extend_from_slice(key);
        });
    }

    /// Asks other nodes to go on watching. Where one could not be reached, calls may be missing: the first in line tries.
    fn renew_watches(&mut self, keyspace: usize, now: Micros) {
        let keys: Vec<Bytes> = self.queues.waits(keyspace).keys().cloned().collect();
        let mut missed = BTreeSet::new();
        for key in keys {
            let (_, holder) = self.holder_of(keyspace, &key);
            if holder == self.outside.me {
                continue;
            }
            self.ask_to_watch(keyspace, holder, &key, true);
            let reached = self.outside.links[holder].is_reachable();
            let queue = &mut self.queues.keyspaces[keyspace];
            if !reached || queue.missed.contains(&key) {
                queue.waits.look_again(&key);
            }
            if !reached {
                missed.insert(key);
            }
            queue.renew = Some(now + RENEW);
        }
        let queue = &mut self.queues.keyspaces[keyspace];
        queue.missed = missed;
        queue.watchers.values_mut().for_each(|nodes| nodes.retain(|_, until| *until > now));
    }

    /// A node of this region wants to hear of a key that is held here, or no more.
    pub(crate) fn on_watch(&mut self, peer: NodeIndex, content: &[u8]) {
        let Some((keyspace, [watched, key @ ..])) = self.keyspace_of(peer, content) else { return };
        let key = Bytes::copy_from_slice(key);
        let until = self.outside.now().monotonic + LEASE;
        let (partition, holder) = self.holder_of(keyspace, &key);
        if holder != self.outside.me {
            return;
        }
        let queue = &mut self.queues.keyspaces[keyspace];
        let nodes = queue.watchers.entry(key.clone()).or_default();
        let new = if *watched == 1 {
            nodes.insert(peer, until).is_none()
        } else {
            nodes.remove(&peer);
            false
        };
        if nodes.is_empty() {
            queue.watchers.remove(&key);
        }
        let wanted = queue.watchers.contains_key(&key) || queue.waits.keys().any(|own| *own == key);
        self.keyspaces[keyspace].watch(partition, &key, wanted);
        if new {
            // What came before it was watched was not told of.
            self.tell(keyspace, peer, &key, 1);
        }
    }

    /// The node that holds a key says that its list has items.
    pub(crate) fn on_changed(&mut self, peer: NodeIndex, content: &[u8]) {
        let Some((keyspace, rest)) = self.keyspace_of(peer, content) else { return };
        let Some((items, key)) = rest.split_first_chunk::<4>() else { return };
        let items = u32::from_le_bytes(*items) as usize;
        self.queues.waits(keyspace).on_items(&Bytes::copy_from_slice(key), items);
    }

    /// Reads which keyspace a frame of a node of this region is about.
    fn keyspace_of<'a>(&self, peer: NodeIndex, content: &'a [u8]) -> Option<(usize, &'a [u8])> {
        let placement = &self.outside.placement;
        if placement.region_of(peer) != placement.region_of(self.outside.me) {
            return None;
        }
        let (number, rest) = content.split_first_chunk::<2>()?;
        let number = u16::from_le_bytes(*number);
        Some((self.infos.iter().position(|info| info.number == number)?, rest))
    }

    fn tell_watchers(&mut self, keyspace: usize, key: &Bytes, items: usize, now: Micros) {
        let Some(nodes) = self.queues.keyspaces[keyspace].watchers.get_mut(key) else { return };
        nodes.retain(|_, until| *until > now);
        let nodes: Vec<NodeIndex> = nodes.keys().copied().collect();
        for node in nodes.iter().filter(|_| items > 0) {
            self.tell(keyspace, *node, key, items);
        }
        if nodes.is_empty() {
            self.queues.keyspaces[keyspace].watchers.remove(key);
        }
    }

    fn tell(&mut self, keyspace: usize, node: NodeIndex, key: &Bytes, items: usize) {
        let number = self.infos[keyspace].number;
        let items = u32::try_from(items).unwrap_or(u32::MAX);
        self.outside.frame(node, crate::frame::Kind::Changed, |buffer| {
            buffer.extend_from_slice(&number.to_le_bytes());
            buffer.extend_from_slice(&items.to_le_bytes());
            buffer.extend_from_slice(key);
        });
    }
}
