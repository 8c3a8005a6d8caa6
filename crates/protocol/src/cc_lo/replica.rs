//! The server side: one region's copy of one partition.

use super::checks::{Asker, Blocker, Pending, Waiting, What};
use super::message::{Message, RotId, Ticket};
use super::readers::{Installed, Read, Readers};
use super::{Record, Update};
use crate::alarms::Alarms;
use crate::causal::ClockKind;
use crate::causal::clock::Clock;
use crate::causal::lanes::LastWrites;
use crate::causal::message::{Seen, Step};
use crate::causal::replication::{Replicate, Streams};
use crate::causal::versions::{Chains, Version};
use crate::clock::Now;
use crate::machine::{self, Effects, OpId, Place, Status};
use crate::object::execute;
use crate::planted::Planted;
use crate::registry::Settings;
use crate::topology::{Address, ClientId, Region, ReplicaId};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

pub(super) type Out = Effects<Message, Record>;

/// One region's copy of one partition.
#[derive(Clone, Debug)]
pub struct Replica {
    pub(super) id: ReplicaId,
    pub(super) place: Place,
    pub(super) settings: Settings,
    /// A Lamport clock: it never looks at the time.
    pub(super) clock: Clock,
    pub(super) versions: Chains<Installed>,
    /// How many installs there were.
    pub(super) installs: u64,
    pub(super) readers: Readers,
    pub(super) streams: Streams<Update>,
    /// Writes that are not visible yet.
    pub(super) pending: BTreeMap<Ticket, Pending>,
    /// Other regions' writes that had come before the last restart and were not visible.
    restored: Vec<Update>,
    /// By lane, the client's write among them.
    pub(super) putting: BTreeMap<(ClientId, u32), OpId>,
    /// Who waits for what to be installed here,
    pub(super) waiting: BTreeMap<(Address, Asker), Waiting>,
    /// and by the one thing that each of them waits for now.
    pub(super) blocked: BTreeMap<Blocker, BTreeSet<(Address, Asker)>>,
    pub(super) lanes: LastWrites,
    /// What was known of transactions is lost; until they are all over this replica neither serves one nor tells of one.
    silent: bool,
    alarms: Alarms<Alarm>,
    pub(super) counters: Counters,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Alarm {
    /// Tell the other regions what has come here.
    Heartbeat,
    /// Look for what was not answered.
    Retry,
    /// Forget transactions that are over and versions that nobody reads.
    Forget,
    /// The transactions of before the restart are over.
    Speak,
}

/// How often things happened.
#[derive(Clone, Copy, Default)]
pub(super) struct Counters {
    pub(super) puts: u64,
    reads: u64,
    rots: u64,
    hidden: u64,
    /// Checks made, the partitions and keys that they went to, and the transactions that they brought: as told, and
    /// each once.
    pub(super) checks: u64,
    pub(super) check_partitions: u64,
    pub(super) check_keys: u64,
    pub(super) check_ids: u64,
    pub(super) check_ids_distinct: u64,
    pub(super) bounds: u64,
    pub(super) duplicate: u64,
    applied: u64,
    forgotten: u64,
    refused: u64,
    drift: u64,
}

/// Counts say nothing of where a machine stands.
impl fmt::Debug for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Counters")
    }
}

impl Replica {
    pub(super) fn new(settings: Settings, id: ReplicaId, place: Place, records: Vec<Record>) -> Self {
        let silence = 4 * settings.retry;
        let streams = Streams::new(id.region, place.group.regions, silence, settings.plant);
        let mut replica = Self {
            clock: Clock::new(ClockKind::Logical, 0),
            versions: Chains::new(),
            installs: 0,
            readers: Readers::new(settings.cc_lo.one_rot_a_session),
            streams,
            pending: BTreeMap::new(),
            restored: Vec::new(),
            putting: BTreeMap::new(),
            waiting: BTreeMap::new(),
            blocked: BTreeMap::new(),
            lanes: LastWrites::default(),
            silent: !records.is_empty() && !settings.plant.has(Planted::SpeaksAfterRestart),
            alarms: Alarms::new(),
            counters: Counters::default(),
            id,
            place,
            settings,
        };
        replica.restore(records);
        replica
    }

    fn restore(&mut self, records: Vec<Record>) {
        let pending: BTreeSet<_> = records
            .iter()
            .filter_map(|record| if let Record::Pending(id, true) = record { Some(*id) } else { None })
            .collect();
        let mut updates = Vec::new();
        for record in records {
            match record {
                Record::Version(key, id, Some(content)) => {
                    let (dependencies, value) = *content;
                    updates.push(Update { key, id, dependencies, value });
                }
                Record::Lane(client, lane, Some(done)) => {
                    self.lanes.insert(0, (client, lane), done);
                }
                Record::Applied(region, at) => self.streams.restore_applied(region, at),
                Record::Clock(at) => self.clock = Clock::new(ClockKind::Logical, at),
                Record::Version(.., None)
                | Record::Lane(.., None)
                | Record::Pending(..)
                | Record::Horizon(_) => {}
            }
        }
        updates.sort_by(|a, b| (a.id, &a.key).cmp(&(b.id, &b.key)));
        for update in updates {
            self.streams.restore_write(update.id.region, update.clone());
            if pending.contains(&update.id) {
                self.restored.push(update);
            } else {
                // No transaction that is under way has a bound here, so that any numbers will do.
                self.installs += 1;
                let meta = Installed { number: self.installs, at: 0 };
                self.versions.insert(&update.key, Version { id: update.id, value: update.value, meta });
            }
        }
    }

    pub(super) fn is_silent(&self) -> bool {
        self.silent
    }

    pub(super) fn replicate(&self, messages: Vec<(Region, Replicate<Update>)>, out: &mut Out) {
        for (region, message) in messages {
            let to = ReplicaId { region, ..self.id };
            out.send(Address::Replica(to), Message::Replicate(message));
        }
    }

    fn on_replicate(&mut self, now: Now, from: Region, replicate: Replicate<Update>, out: &mut Out) {
        let origin = replicate.origin;
        let fresh = self.streams.receive(now.monotonic, from, replicate);
        if fresh.is_empty() {
            return;
        }
        self.counters.applied += fresh.len() as u64;
        out.output(Record::Applied(origin, self.streams.applied_of(origin)));
        for update in &fresh {
            out.output(Record::of(update));
            out.output(Record::Pending(update.id, true));
        }
        self.begin_installs(now, fresh, out);
        self.take_up_arrivals(origin, out);
    }

    // Reads.

    fn on_read(&mut self, now: Now, client: Address, message: Message, out: &mut Out) {
        let Message::Read { rot, steps, spread, at_ms, .. } = message else { return };
        if spread && self.silent {
            self.counters.refused += 1;
            return;
        }
        self.counters.rots += 1;
        let seen: Option<Vec<Seen>> =
            steps.iter().map(|step| self.read(now, (rot, spread), step, at_ms)).collect();
        // What it had read is forgotten: the client has long given it up.
        let Some(seen) = seen else { return };
        out.send(client, Message::Values { rot, seen, clock: self.clock.value() });
    }

    /// One key as a transaction sees it: what it has seen before, or the newest that is not hidden from it.
    fn read(&mut self, now: Now, (rot, spread): (RotId, bool), step: &Step, at_ms: u64) -> Option<Seen> {
        self.counters.reads += 1;
        let version = match self.readers.has_read(&step.key, rot) {
            Some(Read { id: Some(id), .. }) => Some(self.versions.get(&step.key, id)?),
            Some(Read { id: None, .. }) => None,
            None => self.readers.candidate(&self.versions, &step.key, rot),
        };
        let id = version.map(|version| version.id);
        let newest = self.versions.newest(&step.key, |_| true).map(|version| version.id);
        self.counters.hidden += u64::from(id != newest);
        let value = version.map_or(&None, |version| &version.value);
        let (_, reply) = execute(value, &step.command, at_ms);
        if spread {
            let clock = self.clock.value();
            self.readers.note(now.monotonic, &step.key, rot, Read { id, clock });
        }
        Some(Seen { reply, id, vector: None })
    }

    // Upkeep.

    fn set_alarm(&mut self, now: Now, alarm: Alarm, out: &mut Out) {
        let after = match alarm {
            Alarm::Heartbeat => self.settings.causal.heartbeat,
            Alarm::Retry => self.settings.retry,
            Alarm::Forget => self.settings.cc_lo.readers_kept / 4,
            Alarm::Speak => self.settings.cc_lo.readers_kept,
        };
        self.alarms.set(now.monotonic + after.max(1), alarm, out);
    }

    fn on_heartbeat_alarm(&mut self, now: Now, out: &mut Out) {
        let clock = self.clock.value();
        let messages = self.streams.heartbeat(now.monotonic, clock);
        self.replicate(messages, out);
        for (_, update) in self.streams.trim() {
            let id = update.id;
            let pending = self.pending.contains_key(&Ticket::Write(id));
            if !pending && self.versions.get(&update.key, id).is_none() {
                out.output(Record::Version(update.key, id, None));
            }
        }
    }

    fn on_retry_alarm(&mut self, now: Now, out: &mut Out) {
        let messages = self.streams.retry(now.monotonic);
        self.replicate(messages, out);
        self.pending.retain(
            |_, pending| !matches!(pending.what, What::Put { give_up, .. } if give_up <= now.monotonic),
        );
        let pending = &self.pending;
        self.putting.retain(|_, op| pending.contains_key(&Ticket::Put(*op)));
        self.retry_checks(now, out);
    }

    fn on_forget_alarm(&mut self, now: Now, out: &mut Out) {
        for (client, lane) in self.lanes.forget(now.monotonic, self.settings.remember) {
            out.output(Record::Lane(client, lane, None));
        }
        let kept = self.settings.cc_lo.readers_kept;
        self.readers.forget_before(now.monotonic.saturating_sub(kept));
        // Transactions that are under way have begun after this, and so have their bounds.
        let settled = now.monotonic.saturating_sub(2 * kept);
        let old = now.monotonic.saturating_sub(self.settings.causal.tombstones.max(2 * kept));
        let first_pending = self.pending.keys().find_map(|ticket| match ticket {
            Ticket::Write(id) => Some(id.ts - 1),
            Ticket::Put(_) => None,
        });
        let arrived = self.streams.clocks().with(self.id.region, self.clock.value()).lowest();
        let arrived = arrived.min(first_pending.unwrap_or(u64::MAX));
        let forgotten = self.versions.prune(
            |version| version.meta.at < settled,
            |version| version.meta.at < old && version.id.ts <= arrived,
        );
        self.counters.forgotten += forgotten.len() as u64;
        for (key, id) in forgotten {
            if !self.streams.keeps(id.region, id.ts) {
                out.output(Record::Version(key, id, None));
            }
        }
    }

    fn on_client_message(&mut self, now: Now, from: Address, message: Message, out: &mut Out) {
        match message {
            Message::Put { .. } => self.on_put(now, from, message, out),
            Message::Read { .. } => self.on_read(now, from, message, out),
            Message::List { attempt, from: hash, count, at_ms } => {
                let (keys, next) = self.versions.list((hash, count, at_ms), |_| true);
                out.send(from, Message::ListReply { attempt, keys, next });
            }
            Message::Fence { .. } => self.on_fence(now, from, message, out),
            // Not for a replica from a client.
            _ => {}
        }
    }

    fn on_peer_message(&mut self, now: Now, from: ReplicaId, message: Message, out: &mut Out) {
        let sibling = from.partition == self.id.partition && from.region != self.id.region;
        let neighbour = from.region == self.id.region && from.partition < self.place.group.partitions;
        match message {
            Message::Replicate(replicate) if sibling => self.on_replicate(now, from.region, replicate, out),
            Message::Check { .. } if neighbour => self.on_check(now, Address::Replica(from), message, out),
            Message::CheckReply { ticket, old_readers, read_at, .. } if neighbour => {
                self.on_check_reply(now, from.partition, (ticket, old_readers, read_at), out);
            }
            // Not for a replica from such a replica.
            _ => {}
        }
    }

    /// The clock that a message shows.
    fn shown(message: &Message) -> u64 {
        match message {
            Message::Put { clock, .. }
            | Message::Read { clock, .. }
            | Message::Check { clock, .. }
            | Message::CheckReply { clock, .. } => *clock,
            Message::Replicate(replicate) => {
                replicate.writes.last().map_or(0, |write| write.id.ts).max(replicate.clock)
            }
            _ => 0,
        }
    }

    fn end_step(&mut self, out: &mut Out) {
        if let Some(bound) = self.clock.reserve() {
            out.output(Record::Clock(bound));
        }
    }
}

impl machine::Replica for Replica {
    type Message = Message;
    type Record = Record;

    fn start(&mut self, now: Now, out: &mut Out) {
        self.lanes.begin(now.monotonic);
        for alarm in [Alarm::Heartbeat, Alarm::Retry, Alarm::Forget, Alarm::Speak] {
            self.set_alarm(now, alarm, out);
        }
        let restored = std::mem::take(&mut self.restored);
        self.begin_installs(now, restored, out);
        // Its next life must know that there was one, even if nothing is written in this one.
        self.clock.tick(now, 0);
        self.end_step(out);
    }

    fn on_message(&mut self, now: Now, from: Address, message: Message, out: &mut Out) {
        let shown = Self::shown(&message);
        if self.clock.refuses(now, shown) {
            self.counters.drift += 1;
            return;
        }
        self.clock.advance(shown);
        match from {
            Address::Client(..) => self.on_client_message(now, from, message, out),
            Address::Replica(from) if from.region.0 < self.place.group.regions => {
                self.on_peer_message(now, from, message, out);
            }
            Address::Replica(_) => {}
        }
        self.end_step(out);
    }

    fn on_wake(&mut self, now: Now, out: &mut Out) {
        while let Some(alarm) = self.alarms.take_due(now.monotonic) {
            if alarm != Alarm::Speak {
                self.set_alarm(now, alarm, out);
            }
            match alarm {
                Alarm::Heartbeat => self.on_heartbeat_alarm(now, out),
                Alarm::Retry => self.on_retry_alarm(now, out),
                Alarm::Forget => self.on_forget_alarm(now, out),
                Alarm::Speak => {
                    self.silent = false;
                    self.take_up(Blocker::Silence, out);
                }
            }
        }
        self.alarms.rearm(|_| true, out);
        self.end_step(out);
    }

    fn on_regions(&mut self, nearest_first: &[Region]) {
        self.place.nearest_first = nearest_first.to_vec();
    }

    fn status(&self) -> Status {
        let c = self.counters;
        Status {
            keys: self.versions.keys() as u64,
            bytes: self.versions.bytes,
            open_instances: self.pending.len() as u64,
            leader: None,
            lag: None,
            counters: vec![
                ("put", c.puts),
                ("read", c.reads),
                ("rot", c.rots),
                ("hidden", c.hidden),
                ("check", c.checks),
                ("check_partitions", c.check_partitions),
                ("check_keys", c.check_keys),
                ("check_ids", c.check_ids),
                ("check_ids_distinct", c.check_ids_distinct),
                ("bound", c.bounds),
                ("remembered", self.readers.len()),
                ("duplicate", c.duplicate),
                ("applied", c.applied),
                ("resend", self.streams.resent),
                ("gap", self.streams.gaps),
                ("relay", self.streams.relayed),
                ("forgotten", c.forgotten),
                ("refused", c.refused),
                ("drift", c.drift),
                ("versions", self.versions.count),
                ("backlog", self.streams.backlog()),
            ],
        }
    }

    /// What is installed; a replica that still waits for a dependency does not agree yet.
    fn fingerprint(&self) -> u64 {
        self.versions.fingerprint().wrapping_add(self.pending.len() as u64)
    }
}
