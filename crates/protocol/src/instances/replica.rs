//! One region's copy of one partition: what it holds, and what its parts share.

use super::instance::{Ballot, Instance};
use super::record::Record;
use super::{Head as _, Id as _, Log, Protocol, StepOf};
use crate::Map;
use crate::alarms::Alarms;
use crate::clock::{Micros, Now};
use crate::machine::{self, Effects, OpId, Place, Status};
use crate::notices::Notices;
use crate::registers::Registers;
use crate::registers::carstamp::Held;
use crate::registers::comparison::Comparison;
use crate::registry::Settings;
use crate::topology::{Address, Region, ReplicaId, key_hash};
use crate::wire;
use bytes::Bytes;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// What a step of a replica wants done.
pub(crate) type Out<P> = Effects<<P as Protocol>::Message, Record<P>>;

/// One region's copy of one partition.
#[derive(Clone, Debug)]
pub struct Replica<P: Protocol> {
    pub(crate) id: ReplicaId,
    pub(crate) place: Place,
    pub(crate) engine: P,
    /// Each key's version.
    pub(crate) registers: Registers,
    /// The instances of each key that has had any.
    pub(crate) logs: Map<Bytes, Log<P>>,
    /// How many instances all of them have open.
    pub(crate) open_instances: u64,
    /// The operations of instances that this replica coordinates, so that a retry is known.
    pub(crate) coordinated: Map<OpId, ()>,
    pub(crate) alarms: Alarms<Alarm<P::Alarm, P::Id>>,
    rng: Pcg64Mcg,
    pub(crate) comparison: Comparison,
    pub(crate) counters: Counters,
    pub(crate) own: P::Own,
}

/// What an alarm is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Alarm<Own, Id> {
    /// For what the protocol does besides.
    Own(Own),
    /// An instance that this replica coordinates may lack answers.
    Coordinate(Bytes, Id),
    /// An instance has been known since then, long enough for almost all of them to be executed.
    Known(Bytes, Id, Micros),
    /// An instance may have been left open by whoever had it in hand when the alarm was set.
    Watch(Bytes, Id, Ballot),
    /// Time to compare with a peer.
    Compare,
}

/// How often things happened; "sometimes" claims of the tests stand on them.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counters {
    pub(crate) fast_path: u64,
    pub(crate) slow_path: u64,
    pub(crate) widened: u64,
    pub(crate) recovery: u64,
    pub(crate) nop: u64,
    pub(crate) retry: u64,
    pub(crate) duplicate: u64,
    pub(crate) truncation: u64,
    pub(crate) catch_up: u64,
    /// Versions refused because their timestamps lie too far ahead.
    pub(crate) ahead: u64,
    /// What only this protocol does.
    pub(crate) own: u64,
}

/// Counts say nothing of where a machine stands.
impl fmt::Debug for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Counters")
    }
}

impl<P: Protocol> Replica<P> {
    pub(crate) fn new(engine: P, id: ReplicaId, place: Place, records: Vec<Record<P>>) -> Self {
        let mut replica = Self {
            id,
            engine,
            registers: Registers::new(),
            logs: Map::default(),
            open_instances: 0,
            coordinated: Map::default(),
            alarms: Alarms::new(),
            rng: Pcg64Mcg::seed_from_u64(place.seed ^ key_hash(format!("{id:?}").as_bytes())),
            comparison: Comparison::default(),
            counters: Counters::default(),
            own: P::Own::default(),
            place,
        };
        for record in records {
            replica.restore(record);
        }
        for log in replica.logs.values_mut() {
            log.drop_executed();
            replica.open_instances += log.instances.len() as u64;
            let open: Vec<_> = log.instances.keys().copied().collect();
            for id in open {
                log.note(id);
            }
        }
        for (key, log) in &replica.logs.iter().collect::<BTreeMap<_, _>>() {
            replica.registers.set_executed(key, log.head.progress());
        }
        replica
    }

    fn restore(&mut self, record: Record<P>) {
        match record {
            Record::Register(key, held) => self.registers.set(&key, held),
            Record::Head(key, head) => self.log(&key).restore(head),
            Record::Result(key, _, _, Some(result)) => self.log(&key).results.insert(result.into()),
            Record::Instance(key, id, Some(instance)) => {
                self.log(&key).instances.insert(id, instance);
            }
            Record::Result(.., None) | Record::Instance(.., None) => {}
        }
    }

    pub(crate) fn settings(&self) -> &Settings {
        self.engine.settings()
    }

    /// How long results are remembered, ms.
    pub(crate) fn horizon_ms(&self) -> u64 {
        self.settings().remember / 1_000
    }

    /// Until when somebody may wait for an operation that begins now.
    pub(crate) fn give_up(&self, now: Now) -> Micros {
        now.monotonic + 2 * self.settings().operation_timeout
    }

    /// Whether a client's time, ms, is too far ahead of this replica's: were its operation executed, results of others
    /// would be forgotten too soon.
    pub(crate) fn is_too_far_ahead(&self, now: Now, at_ms: u64) -> bool {
        at_ms > now.wall_ms().saturating_add(self.settings().remember / 2_000)
    }

    pub(crate) fn region(&self) -> Region {
        self.id.region
    }

    pub(crate) fn regions(&self) -> u8 {
        self.place.group.regions
    }

    pub(crate) fn quorum(&self) -> usize {
        self.place.group.majority()
    }

    pub(crate) fn log(&mut self, key: &Bytes) -> &mut Log<P> {
        let (regions, plant) = (self.regions(), self.settings().plant);
        self.logs.entry_ref(key).or_insert_with(|| Log::new(regions, plant))
    }

    pub(crate) fn peer(&self, region: Region) -> Address {
        Address::Replica(ReplicaId { region, ..self.id })
    }

    /// The other regions, the nearest first.
    pub(crate) fn others(&self) -> impl Iterator<Item = Region> + '_ {
        let own = self.region();
        self.place.nearest_first.iter().copied().filter(move |region| *region != own)
    }

    /// The other regions to send a first phase to, when `answers` of them are needed.
    pub(crate) fn targets(&self, answers: usize) -> impl Iterator<Item = Region> + '_ {
        let count = if self.settings().thrifty { answers } else { usize::MAX };
        self.others().take(count)
    }

    /// Tells another replica a step of an instance.
    pub(crate) fn tell(&self, to: Region, key: &Bytes, id: P::Id, step: StepOf<P>, out: &mut Out<P>) {
        out.send(self.peer(to), P::step(self, key.clone(), id, step));
    }

    /// The instance, made if it is not known, and watched from then on. `None` if it is executed here.
    pub(crate) fn instance(
        &mut self,
        now: Now,
        key: &Bytes,
        id: P::Id,
        out: &mut Out<P>,
    ) -> Option<&mut super::log::InstanceOf<P>> {
        if self.log(key).is_executed(id) {
            return None;
        }
        if !self.log(key).instances.contains_key(&id) {
            self.open_instances += 1;
            let at = now.monotonic + self.patience();
            self.alarms.set(at, Alarm::Known(key.clone(), id, now.monotonic), out);
        }
        Some(self.log(key).instances.entry(id).or_insert_with(|| Box::new(Instance::unknown())))
    }

    /// Sets the alarm after which an open instance is taken up. The delay is random and grows with every recovery that
    /// was tried, so that replicas do not duel over one however far they are from each other.
    pub(super) fn watch(&mut self, now: Now, key: &Bytes, id: P::Id, out: &mut Out<P>) {
        let instance = self.logs.get(key).and_then(|log| log.instances.get(&id));
        let promised = instance.map(|instance| instance.promised).unwrap_or_default();
        let patience = self.patience() << P::doublings(promised.counter);
        let delay = patience + self.rng.random_range(0..patience / 2);
        self.alarms.set(now.monotonic + delay, Alarm::Watch(key.clone(), id, promised), out);
    }

    /// The same for an instance that has been known for [`Self::patience`]. That part of the delay is the same for all.
    fn on_known_alarm(&mut self, key: Bytes, id: P::Id, since: Micros, out: &mut Out<P>) {
        if !self.log(&key).is_executed(id) {
            let patience = self.patience();
            let delay = patience + self.rng.random_range(0..patience / 2);
            self.alarms.set(since + delay, Alarm::Watch(key, id, Ballot::default()), out);
        }
    }

    fn patience(&self) -> Micros {
        self.settings().recovery.max(2)
    }

    /// Stores an instance as it stands, and counts what it says.
    pub(crate) fn store_instance(&mut self, key: &Bytes, id: P::Id, out: &mut Out<P>) {
        let log = self.log(key);
        log.note(id);
        out.store(|| Record::Instance(key.clone(), id, log.instances.get(&id).cloned()));
    }

    /// Whether a message speaks of an instance that can exist.
    pub(crate) fn knows(&self, id: P::Id) -> bool {
        id.row().0 < self.regions() && id.index() > 0
    }
}

impl<P: Protocol> machine::Replica for Replica<P> {
    type Message = P::Message;
    type Record = Record<P>;

    fn start(&mut self, now: Now, out: &mut Out<P>) {
        let open: BTreeSet<_> = self
            .logs
            .iter()
            .flat_map(|(key, log)| log.instances.keys().map(move |id| (key.clone(), *id)))
            .collect();
        for (key, id) in open {
            self.watch(now, &key, id, out);
            P::execute(self, now, &key, out);
        }
        self.schedule_compare(now, out);
    }

    fn on_message(&mut self, now: Now, from: Address, message: P::Message, out: &mut Out<P>) {
        match from {
            Address::Client(..) => P::on_client_message(self, now, from, message, out),
            Address::Replica(ReplicaId { region, .. }) if region.0 < self.regions() => {
                P::on_replica_message(self, now, region, message, out);
            }
            Address::Replica(_) => {}
        }
    }

    fn on_wake(&mut self, now: Now, out: &mut Out<P>) {
        while let Some(alarm) = self.alarms.take_due(now.monotonic) {
            match alarm {
                Alarm::Own(alarm) => P::on_alarm(self, now, alarm, out),
                Alarm::Coordinate(key, id) => self.on_coordinate_alarm(now, &key, id, out),
                Alarm::Known(key, id, since) => self.on_known_alarm(key, id, since, out),
                Alarm::Watch(key, id, since) => self.on_watch_alarm(now, &key, id, since, out),
                Alarm::Compare => self.on_compare_alarm(now, out),
            }
        }
        let (own, logs) = (&self.own, &self.logs);
        let open = |alarm: &Alarm<P::Alarm, P::Id>| match alarm {
            Alarm::Own(alarm) => P::is_open(own, alarm),
            Alarm::Coordinate(key, id) => logs.get(key).is_some_and(|log| log.coordinations.contains_key(id)),
            Alarm::Known(key, id, _) | Alarm::Watch(key, id, _) => {
                logs.get(key).is_some_and(|log| !log.is_executed(*id))
            }
            Alarm::Compare => true,
        };
        self.alarms.rearm(open, out);
    }

    fn on_regions(&mut self, nearest_first: &[Region]) {
        self.place.nearest_first = nearest_first.to_vec();
    }

    fn notices(&mut self) -> Option<&mut Notices> {
        Some(&mut self.registers.notices)
    }

    fn status(&self) -> Status {
        let c = self.counters;
        Status {
            keys: self.registers.len() as u64,
            bytes: self.registers.bytes,
            open_instances: self.open_instances,
            leader: None,
            lag: None,
            counters: vec![
                (P::OWN_COUNTER, c.own),
                ("fast_path", c.fast_path),
                ("slow_path", c.slow_path),
                ("widened", c.widened),
                ("recovery", c.recovery),
                ("nop", c.nop),
                ("retry", c.retry),
                ("duplicate", c.duplicate),
                ("truncation", c.truncation),
                ("catch_up", c.catch_up),
                ("ahead", c.ahead),
            ],
        }
    }

    fn fingerprint(&self) -> u64 {
        let mut buffer = Vec::new();
        self.registers.iter().fold(0, |sum: u64, (key, held, executed)| {
            if *held == Held::default() && executed == 0 {
                return sum;
            }
            buffer.clear();
            buffer.extend_from_slice(key);
            wire::encode(held, &mut buffer);
            if let Some(log) = self.logs.get(key) {
                log.head.agreed(&mut buffer);
                wire::encode(&(log.results.all(), log.instances.len() as u64), &mut buffer);
            }
            sum.wrapping_add(key_hash(&buffer))
        })
    }
}
