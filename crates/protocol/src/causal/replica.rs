//! The server side: one region's copy of one partition.

use super::clock::Clock;
use super::lanes::LastWrites;
use super::message::Message;
use super::replication::{Replicate, Streams};
use super::stabilization::{Report, Stabilization};
use super::vector::Vector;
use super::versions::{Chains, Version};
use super::visibility::Visibility;
use super::{Causal, Record, Update};
use crate::alarms::Alarms;
use crate::clock::{Micros, Now};
use crate::machine::{self, Effects, Place, Status};
use crate::planted::Planted;
use crate::topology::{Address, ClientId, Region, ReplicaId};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;

pub(super) type Out = Effects<Message, Record>;

/// One region's copy of one partition.
#[derive(Clone, Debug)]
pub struct Replica {
    pub(super) id: ReplicaId,
    pub(super) place: Place,
    pub(super) engine: Causal,
    pub(super) clock: Clock,
    pub(super) versions: Chains<Vector>,
    pub(super) streams: Streams<Update>,
    pub(super) stabilization: Stabilization,
    /// No snapshot is below this: what only such a one would show may be forgotten. Never above what was stable here
    /// [`super::CausalSettings::keep`] ago.
    pub(super) horizon: Vector,
    /// What was stable at some times since then, the oldest first.
    pub(super) marks: VecDeque<(Micros, Vector)>,
    pub(super) lanes: LastWrites,
    /// Requests that wait until what they must see can be seen here (tcc; contrarian has none).
    pub(super) waiting: BTreeMap<(ClientId, u64), Waiting>,
    /// What waits for a physical clock, by when that is due.
    pub(super) late: BTreeMap<Micros, Vec<(Address, Message)>>,
    /// Fences that wait, with what for and until when.
    pub(super) fences: BTreeMap<(ClientId, u64), (Message, Micros)>,
    pub(super) alarms: Alarms<Alarm>,
    pub(super) visibility: Visibility,
    pub(super) counters: Counters,
}

/// A request that waits.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub(super) client: Address,
    pub(super) message: Message,
    pub(super) since: Micros,
    pub(super) give_up: Micros,
}

/// What an alarm is for. All but the last come again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Alarm {
    /// Tell the other regions how late it is.
    Heartbeat,
    /// Tell the other partitions what is here.
    Stabilize,
    /// Look for what was not acknowledged.
    Retry,
    /// Forget what nobody reads any more.
    Forget,
    /// What waits for a physical clock need not any more.
    Late,
}

/// How often things happened; "sometimes" claims of the tests stand on them.
#[derive(Clone, Copy, Default)]
pub(super) struct Counters {
    pub(super) puts: u64,
    pub(super) reads: u64,
    pub(super) snapshots: u64,
    pub(super) too_old: u64,
    pub(super) wait_read_your_writes: u64,
    pub(super) wait_monotonic_reads: u64,
    pub(super) wait_eventual: u64,
    pub(super) wait_causal: u64,
    pub(super) duplicate: u64,
    pub(super) applied: u64,
    pub(super) forgotten: u64,
    pub(super) stabilizations: u64,
    /// By how much in all the stable snapshot was behind the clock when that was looked at, µs.
    pub(super) staleness_us: u64,
    pub(super) drift: u64,
    /// Requests that had to wait for a physical clock, and for how long, µs.
    pub(super) late_puts: u64,
    pub(super) late_reads: u64,
    pub(super) late_us: u64,
}

/// Counts say nothing of where a machine stands.
impl fmt::Debug for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Counters")
    }
}

/// What the records say, gathered before the machine is made of it.
struct Restored {
    versions: Vec<Update>,
    applied: Vec<(Region, u64)>,
    lanes: LastWrites,
    clock: u64,
    horizon: Vector,
}

impl Restored {
    fn new(regions: u8, records: Vec<Record>) -> Self {
        let mut all = Self {
            versions: Vec::new(),
            applied: Vec::new(),
            lanes: LastWrites::default(),
            clock: 0,
            horizon: Vector::zero(regions),
        };
        for record in records {
            match record {
                Record::Version(key, id, Some(content)) => {
                    let (dependencies, value) = *content;
                    all.versions.push(Update { key, id, dependencies, value });
                }
                Record::Lane(client, lane, Some(done)) => {
                    all.lanes.insert(0, (client, lane), done);
                }
                Record::Applied(region, at) => all.applied.push((region, at)),
                Record::Clock(at) => all.clock = at,
                Record::Horizon(vector) => all.horizon.join(&vector),
                Record::Version(.., None) | Record::Lane(.., None) | Record::Pending(..) => {}
            }
        }
        all
    }
}

impl Replica {
    pub(super) fn new(engine: Causal, id: ReplicaId, place: Place, records: Vec<Record>) -> Self {
        let regions = place.group.regions;
        let settings = &engine.settings;
        let restored = Restored::new(regions, records);
        let plant = settings.plant;
        let stable = restored.horizon.clone();
        let partitions = place.group.partitions;
        let mut replica = Self {
            clock: Clock::new(settings.causal.clock, restored.clock),
            versions: Chains::new(),
            streams: Streams::new(id.region, regions, 4 * settings.retry, plant),
            stabilization: Stabilization::new(id.partition, partitions, stable, plant),
            horizon: restored.horizon,
            marks: VecDeque::new(),
            lanes: restored.lanes,
            waiting: BTreeMap::new(),
            late: BTreeMap::new(),
            fences: BTreeMap::new(),
            alarms: Alarms::new(),
            visibility: Visibility::default(),
            counters: Counters::default(),
            id,
            place,
            engine,
        };
        for update in restored.versions {
            replica.streams.restore_write(update.id.region, update.clone());
            let Update { key, id, dependencies, value } = update;
            replica.versions.insert(&key, Version { id, value, meta: dependencies });
        }
        for (region, at) in restored.applied {
            replica.streams.restore_applied(region, at);
        }
        replica
    }

    pub(super) fn region(&self) -> Region {
        self.id.region
    }

    /// What all partitions of this region have, and this one's own time beside it.
    pub(super) fn snapshot(&self) -> Vector {
        let snapshot = self.stabilization.stable().clone().with(self.region(), self.clock.value());
        assert!(
            snapshot.covers(&self.horizon),
            "the stable snapshot {snapshot:?} went back below the horizon {:?}",
            self.horizon
        );
        snapshot
    }

    /// Whether all that a vector covers may be seen here: what is of this region is here, and the rest must be stable.
    pub(super) fn shows(&self, vector: &Vector) -> bool {
        let stable = self.stabilization.stable();
        let as_printed = self.engine.settings.plant.has(Planted::OwnEntryStaysZero);
        if as_printed { stable.covers(vector) } else { stable.covers_but(vector, self.region()) }
    }

    /// What this partition has.
    pub(super) fn report(&mut self, now: Now) -> Report {
        let clock = self.clock.read(now);
        let as_printed = self.engine.settings.plant.has(Planted::OwnEntryStaysZero);
        let own = if as_printed { 0 } else { clock };
        Report { least: self.streams.clocks().with(self.region(), own), clock }
    }

    pub(super) fn replicate(&self, messages: Vec<(Region, Replicate<Update>)>, out: &mut Out) {
        for (region, message) in messages {
            let to = ReplicaId { region, ..self.id };
            out.send(Address::Replica(to), Message::Replicate(message));
        }
    }

    /// The highest time that a message shows.
    fn shown(message: &Message) -> u64 {
        match message {
            Message::Put { dependencies, floor, .. } => dependencies.highest().max(*floor),
            Message::Read { demand, .. }
            | Message::Snapshot { demand, .. }
            | Message::Rot { demand, .. }
            | Message::List { demand, .. } => demand.seen.highest(),
            Message::ReadAt { snapshot, .. } => snapshot.highest(),
            Message::Fence { vector, .. } => vector.highest(),
            Message::Replicate(replicate) => {
                replicate.writes.last().map_or(0, |write| write.id.ts).max(replicate.clock)
            }
            Message::Report(report) | Message::Stable(report) => report.least.highest().max(report.clock),
            _ => 0,
        }
    }

    pub(super) fn take(&mut self, now: Now, from: Address, message: Message, out: &mut Out) {
        let Some(message) = self.in_time(now, from, message, out) else { return };
        match from {
            Address::Client(..) => self.on_client_message(now, from, message, out),
            Address::Replica(from) if from.region.0 < self.place.group.regions => {
                self.on_peer_message(now, from, message, out);
            }
            Address::Replica(_) => {}
        }
    }

    fn on_peer_message(&mut self, now: Now, from: ReplicaId, message: Message, out: &mut Out) {
        let sibling = from.partition == self.id.partition && from.region != self.id.region;
        let neighbour = from.region == self.id.region && from.partition < self.place.group.partitions;
        match message {
            Message::Replicate(replicate) if sibling => self.on_replicate(now, from.region, replicate, out),
            Message::Report(report) if neighbour => self.on_report(now, from.partition, report, out),
            Message::Stable(report) if neighbour => self.on_stable(now, &report, out),
            // A coordinator asks for its client.
            Message::ReadAt { client: Some(client), .. } if neighbour => {
                self.on_read_at(Address::Client(self.id.keyspace, client), message, out);
            }
            // Not for a replica from such a replica.
            _ => {}
        }
    }

    fn on_client_message(&mut self, now: Now, from: Address, message: Message, out: &mut Out) {
        match message {
            Message::Put { .. } => self.on_put(now, from, message, out),
            Message::Read { .. } | Message::Snapshot { .. } | Message::Rot { .. } | Message::List { .. } => {
                self.on_demand(now, from, message, out);
            }
            Message::ReadAt { client: None, .. } => self.on_read_at(from, message, out),
            Message::Fence { .. } => self.on_fence(now, from, message, out),
            // Not for a replica from a client.
            _ => {}
        }
    }

    /// Ends a step: what the clock has shown is stored before it leaves.
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
        for alarm in [Alarm::Heartbeat, Alarm::Stabilize, Alarm::Retry, Alarm::Forget] {
            self.set_alarm(now, alarm, out);
        }
    }

    fn on_message(&mut self, now: Now, from: Address, message: Message, out: &mut Out) {
        if self.clock.refuses(now, Self::shown(&message)) {
            self.counters.drift += 1;
            return;
        }
        self.take(now, from, message, out);
        self.end_step(out);
    }

    fn on_wake(&mut self, now: Now, out: &mut Out) {
        while let Some(alarm) = self.alarms.take_due(now.monotonic) {
            if alarm != Alarm::Late {
                self.set_alarm(now, alarm, out);
            }
            match alarm {
                Alarm::Late => self.on_late_alarm(now, out),
                Alarm::Heartbeat => self.on_heartbeat_alarm(now, out),
                Alarm::Stabilize => self.on_stabilize_alarm(now, out),
                Alarm::Retry => self.on_retry_alarm(now, out),
                Alarm::Forget => self.on_forget_alarm(now, out),
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
            open_instances: 0,
            leader: None,
            lag: self.visibility.lag,
            counters: vec![
                ("put", c.puts),
                ("read", c.reads),
                ("snapshot", c.snapshots),
                ("too_old", c.too_old),
                ("wait_ec", c.wait_eventual),
                ("wait_ryw", c.wait_read_your_writes),
                ("wait_mr", c.wait_monotonic_reads),
                ("wait_cc", c.wait_causal),
                ("duplicate", c.duplicate),
                ("applied", c.applied),
                ("resend", self.streams.resent),
                ("gap", self.streams.gaps),
                ("relay", self.streams.relayed),
                ("forgotten", c.forgotten),
                ("stabilization", c.stabilizations),
                ("staleness_us", c.staleness_us),
                ("visible", self.visibility.seen),
                ("visible_us", self.visibility.us),
                ("drift", c.drift),
                ("late_put", c.late_puts),
                ("late_read", c.late_reads),
                ("late_us", c.late_us),
                ("versions", self.versions.count),
                ("backlog", self.streams.backlog()),
            ],
        }
    }

    fn fingerprint(&self) -> u64 {
        self.versions.fingerprint()
    }
}
