//! The server side: registers, reads as a proxy, and the door to the rmws of `coordinate` and `recovery`.

use super::carstamp::{Carstamp, Held};
use super::chain::Chain;
use super::comparison::Comparison;
use super::coordinate::Coordination;
use super::instance::{Ballot, Instance, InstanceId, Phase};
use super::message::{Keyed, Message, OpId};
use super::read::Read;
use super::record::Record;
use super::recovery::Recovery;
use super::registers::Registers;
use super::{Consistency, Gryff};
use crate::Map;
use crate::alarms::Alarms;
use crate::clock::{Micros, Now};
use crate::machine::{self, Effects, Place, Status};
use crate::planted::Planted;
use crate::topology::{Address, Region, ReplicaId, key_hash};
use crate::wire;
use bytes::Bytes;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeMap;
use std::fmt;

pub(super) type Out = Effects<Message, Record>;

/// One region's copy of one partition.
#[derive(Clone, Debug)]
pub struct Replica {
    pub(super) id: ReplicaId,
    pub(super) place: Place,
    pub(super) engine: Gryff,
    pub(super) registers: Registers,
    /// The rmws of each key that has had any.
    pub(super) chains: Map<Bytes, Chain>,
    /// How many instances all of them have open.
    pub(super) open_instances: u64,
    /// Reads that this replica coordinates.
    reads: Map<OpId, ProxyRead>,
    /// Rmws that this replica coordinates, by key and index in its own row.
    pub(super) coordinations: BTreeMap<(Bytes, u64), Coordination>,
    /// Their operations, so that a retry is known.
    pub(super) coordinated: Map<OpId, ()>,
    /// Other replicas' instances (or its own from an earlier life) that this replica is finishing.
    pub(super) recoveries: BTreeMap<(Bytes, InstanceId), Recovery>,
    pub(super) alarms: Alarms<Alarm>,
    pub(super) rng: Pcg64Mcg,
    pub(super) comparison: Comparison,
    pub(super) counters: Counters,
}

/// What an alarm is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Alarm {
    /// A read that this replica coordinates may lack answers.
    Read(OpId),
    /// An rmw that this replica coordinates may lack answers.
    Coordinate(Bytes, u64),
    /// An instance may have been left open by whoever had it in hand when the alarm was set.
    Watch(Bytes, InstanceId, Ballot),
    /// Time to compare with a peer.
    Compare,
}

/// How often things happened; "sometimes" claims of the tests stand on them.
#[derive(Clone, Copy, Default)]
pub(super) struct Counters {
    pub(super) write_back: u64,
    pub(super) fast_path: u64,
    pub(super) slow_path: u64,
    pub(super) widened: u64,
    pub(super) recovery: u64,
    pub(super) nop: u64,
    pub(super) retry: u64,
    pub(super) duplicate: u64,
    pub(super) truncation: u64,
    pub(super) catch_up: u64,
}

/// Counts say nothing of where a machine stands.
impl fmt::Debug for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Counters")
    }
}

#[derive(Clone, Debug)]
struct ProxyRead {
    client: Address,
    key: Bytes,
    read: Read,
    /// What the proxy held at the start.
    lent: Held,
    dependency: Option<Box<Keyed>>,
    /// The client has its answer and only waits to hear that it is settled.
    answered: bool,
    give_up: Micros,
}

impl Replica {
    pub(super) fn new(engine: Gryff, id: ReplicaId, place: Place, records: Vec<Record>) -> Self {
        let mut replica = Self {
            id,
            engine,
            registers: Registers::new(),
            chains: Map::default(),
            open_instances: 0,
            reads: Map::default(),
            coordinations: BTreeMap::new(),
            coordinated: Map::default(),
            recoveries: BTreeMap::new(),
            alarms: Alarms::new(),
            rng: Pcg64Mcg::seed_from_u64(place.seed ^ key_hash(format!("{id:?}").as_bytes())),
            comparison: Comparison::default(),
            counters: Counters::default(),
            place,
        };
        for record in records {
            replica.restore(record);
        }
        for chain in replica.chains.values_mut() {
            chain.drop_executed();
            replica.open_instances += chain.instances.len() as u64;
        }
        for (key, chain) in &replica.chains.iter().collect::<BTreeMap<_, _>>() {
            replica.registers.set_executed(key, chain.progress());
        }
        replica
    }

    fn restore(&mut self, record: Record) {
        match record {
            Record::Register(key, held) => self.registers.set(&key, held),
            Record::Head(key, head) => self.chain(&key).restore(head),
            Record::Result(key, _, _, Some(result)) => self.chain(&key).restore_result(result),
            Record::Instance(key, id, Some(instance)) => {
                self.chain(&key).instances.insert(id, *instance);
            }
            Record::Result(.., None) | Record::Instance(.., None) => {}
        }
    }

    pub(super) fn region(&self) -> Region {
        self.id.region
    }

    pub(super) fn quorum(&self) -> usize {
        self.place.group.majority()
    }

    pub(super) fn chain(&mut self, key: &Bytes) -> &mut Chain {
        let regions = self.place.group.regions;
        self.chains.entry_ref(key).or_insert_with(|| Chain::new(regions))
    }

    pub(super) fn peer(&self, region: Region) -> Address {
        Address::Replica(ReplicaId { region, ..self.id })
    }

    /// The other regions, the nearest first.
    pub(super) fn others(&self) -> impl Iterator<Item = Region> + '_ {
        let own = self.region();
        self.place.nearest_first.iter().copied().filter(move |region| *region != own)
    }

    /// The other regions to send a first phase to, when `answers` of them are needed.
    pub(super) fn targets(&self, answers: usize) -> impl Iterator<Item = Region> + '_ {
        let count = if self.engine.settings.thrifty { answers } else { usize::MAX };
        self.others().take(count)
    }

    /// Adopts a version if it is newer than the one held (Gryff Alg. 2, `Apply`).
    pub(super) fn apply(&mut self, key: &Bytes, held: &Held, out: &mut Out) {
        if self.newer(held.carstamp, self.registers.carstamp(key)) {
            out.output(Record::Register(key.clone(), held.clone()));
            self.registers.set(key, held.clone());
        }
    }

    fn newer(&self, one: Carstamp, other: Carstamp) -> bool {
        if self.engine.settings.plant.has(Planted::CompareCarstampsWrongly) {
            return (one.ts, one.rmw_count, one.id) > (other.ts, other.rmw_count, other.id);
        }
        one > other
    }

    fn apply_dependency(&mut self, dependency: Option<&Keyed>, out: &mut Out) {
        if let Some(Keyed { key, held }) = dependency {
            self.apply(key, held, out);
        }
    }

    // Reads.

    fn on_read(
        &mut self,
        now: Now,
        client: Address,
        (op, key, dependency): (OpId, Bytes, Option<Box<Keyed>>),
        out: &mut Out,
    ) {
        if let Some(state) = self.reads.get(&op) {
            // A retry. What is not answered yet is under way, and the alarm resends what may be lost.
            if state.answered {
                let held = state.read.newest.clone();
                out.send(client, Message::ReadReply { op, held, rounds: 1, settled: false });
            }
            return;
        }
        self.apply_dependency(dependency.as_deref(), out);
        let lent = self.registers.get(&key);
        let read = Read::proxied(self.region(), lent.clone());
        for region in self.targets(self.quorum() - 1) {
            let read1 = Message::Read1 {
                op,
                key: key.clone(),
                lent: Some(lent.clone()),
                dependency: dependency.clone(),
            };
            out.send(self.peer(region), read1);
        }
        let give_up = now.monotonic + 2 * self.engine.settings.operation_timeout;
        self.reads.insert(op, ProxyRead { client, key, read, lent, dependency, answered: false, give_up });
        self.alarms.set(now.monotonic + self.engine.settings.retry, Alarm::Read(op), out);
        self.advance_read(op, out);
    }

    fn on_read1(
        &mut self,
        from: Address,
        (op, key, lent, dependency): (OpId, Bytes, Option<Held>, Option<Box<Keyed>>),
        out: &mut Out,
    ) {
        self.apply_dependency(dependency.as_deref(), out);
        if let Some(lent) = &lent {
            self.apply(&key, lent, out);
        }
        let held = self.registers.get(&key);
        let known = lent.is_some_and(|lent| lent.carstamp == held.carstamp);
        let value = if known { None } else { held.value };
        out.send(from, Message::Read1Reply { op, carstamp: held.carstamp, value });
    }

    fn on_read1_reply(&mut self, from: Region, op: OpId, shown: &Held, out: &mut Out) {
        let Some(state) = self.reads.get_mut(&op) else { return };
        // A reply with the carstamp lent carries no value, and is never newer.
        let newer = (shown.carstamp > state.lent.carstamp).then(|| state.key.clone());
        state.read.on_reply(from, shown);
        if let Some(key) = newer {
            self.apply(&key, shown, out);
        }
        self.advance_read(op, out);
    }

    fn on_read2(&mut self, from: Address, op: OpId, keyed: &Keyed, out: &mut Out) {
        self.apply(&keyed.key, &keyed.held, out);
        out.send(from, Message::Read2Reply { op, carstamp: self.registers.carstamp(&keyed.key) });
    }

    fn on_read2_reply(&mut self, from: Region, op: OpId, carstamp: Carstamp, out: &mut Out) {
        if let Some(state) = self.reads.get_mut(&op) {
            state.read.on_written_back(from, carstamp);
            self.advance_read(op, out);
        }
    }

    /// Takes a read as far as the answers allow: to its answer, its write-back, its end.
    fn advance_read(&mut self, op: OpId, out: &mut Out) {
        let quorum = self.quorum();
        let rsc = self.engine.consistency != Consistency::Linearizable;
        let skip_write_back = !rsc && self.engine.settings.plant.has(Planted::SkipWriteBack);
        let Some(state) = self.reads.get_mut(&op) else { return };
        let just_decided = state.read.decide(quorum);
        if !state.read.decided {
            return;
        }
        let settled = state.read.settled(quorum) || skip_write_back;
        let client = state.client;
        if !state.answered && (settled || rsc) {
            state.answered = true;
            let rounds = if just_decided { 1 } else { 2 };
            let held = state.read.newest.clone();
            out.send(client, Message::ReadReply { op, held, rounds, settled });
        } else if settled {
            out.send(client, Message::Settled { op, carstamp: state.read.newest.carstamp });
        }
        if settled {
            self.reads.remove(&op);
        } else if just_decided {
            self.counters.write_back += 1;
            self.send_read2(op, out);
        }
    }

    fn send_read2(&self, op: OpId, out: &mut Out) {
        let state = &self.reads[&op];
        for region in self.others().filter(|region| !state.read.holders.contains(*region)) {
            let keyed = Keyed { key: state.key.clone(), held: state.read.newest.clone() };
            out.send(self.peer(region), Message::Read2 { op, keyed });
        }
    }

    fn on_read_alarm(&mut self, now: Now, op: OpId, out: &mut Out) {
        let Some(state) = self.reads.get(&op) else { return };
        if now.monotonic >= state.give_up {
            self.reads.remove(&op);
            return;
        }
        self.counters.widened += 1;
        if state.read.decided {
            self.send_read2(op, out);
        } else {
            for region in self.others().filter(|region| !state.read.replied.contains(*region)) {
                let (lent, dependency) = (Some(state.lent.clone()), state.dependency.clone());
                out.send(self.peer(region), Message::Read1 { op, key: state.key.clone(), lent, dependency });
            }
        }
        self.alarms.set(now.monotonic + self.engine.settings.retry, Alarm::Read(op), out);
    }

    // What both sides of consensus share.

    /// The instance, made if it is not known, and watched from then on. `None` if it is executed here.
    pub(super) fn instance(
        &mut self,
        now: Now,
        key: &Bytes,
        id: InstanceId,
        out: &mut Out,
    ) -> Option<&mut Instance> {
        if self.chain(key).is_executed(id) {
            return None;
        }
        if !self.chain(key).instances.contains_key(&id) {
            self.open_instances += 1;
            self.watch(now, key, id, out);
        }
        Some(self.chain(key).instances.entry(id).or_insert_with(Instance::unknown))
    }

    /// Sets the alarm after which an open instance is taken up. The delay is random and doubles with every
    /// recovery that was tried, so that replicas do not duel over one however far they are from each other.
    pub(super) fn watch(&mut self, now: Now, key: &Bytes, id: InstanceId, out: &mut Out) {
        let instance = self.chains.get(key).and_then(|chain| chain.instances.get(&id));
        let promised = instance.map(|instance| instance.promised).unwrap_or_default();
        let recovery = self.engine.settings.recovery.max(2) << promised.counter.min(2);
        let delay = recovery + self.rng.random_range(0..recovery / 2);
        self.alarms.set(now.monotonic + delay, Alarm::Watch(key.clone(), id, promised), out);
    }

    /// Stores an instance as it stands.
    pub(super) fn store_instance(&self, key: &Bytes, id: InstanceId, out: &mut Out) {
        let instance = self.chains.get(key).and_then(|chain| chain.instances.get(&id)).cloned();
        out.output(Record::Instance(key.clone(), id, instance.map(Box::new)));
    }

    /// Whether a message speaks of an instance that can exist.
    fn knows(&self, id: InstanceId) -> bool {
        id.row.0 < self.place.group.regions && id.index > 0
    }
}

impl machine::Replica for Replica {
    type Message = Message;
    type Record = Record;

    fn start(&mut self, now: Now, out: &mut Out) {
        let open: Vec<_> = self
            .chains
            .iter()
            .flat_map(|(key, chain)| chain.instances.keys().map(move |id| (key.clone(), *id)))
            .collect::<std::collections::BTreeSet<_>>()
            .into_iter()
            .collect();
        for (key, id) in open {
            self.watch(now, &key, id, out);
            self.execute(now, &key, out);
        }
        self.schedule_compare(now, out);
    }

    fn on_message(&mut self, now: Now, from: Address, message: Message, out: &mut Out) {
        if let Address::Client(..) = from {
            return self.on_client_message(now, from, message, out);
        }
        let Address::Replica(ReplicaId { region, .. }) = from else { return };
        if region.0 >= self.place.group.regions {
            return;
        }
        match message {
            Message::Read1 { op, key, lent, dependency } => {
                self.on_read1(from, (op, key, lent, dependency), out);
            }
            Message::Read1Reply { op, carstamp, value } => {
                self.on_read1_reply(region, op, &Held { value, carstamp }, out);
            }
            Message::Read2 { op, keyed } => self.on_read2(from, op, &keyed, out),
            Message::Read2Reply { op, carstamp } => self.on_read2_reply(region, op, carstamp, out),
            Message::PreAccept { key, id, rmw, initial, partner, dependency } if self.knows(id) => {
                self.apply_dependency(dependency.as_deref(), out);
                self.on_pre_accept(now, from, (key, id, rmw, initial, partner), out);
            }
            Message::PreAcceptReply { key, id, attributes } if self.knows(id) => {
                self.on_pre_accept_reply(now, region, (&key, id, &attributes), out);
            }
            Message::Accept { key, id, ballot, proposal } if self.knows(id) => {
                self.on_accept(now, from, (key, id, ballot, *proposal), out);
            }
            Message::AcceptReply { key, id, ballot } if self.knows(id) => {
                self.on_accept_reply(now, region, (&key, id, ballot), out);
            }
            Message::Commit { key, id, proposal } if self.knows(id) => {
                self.on_commit(now, &key, id, *proposal, out);
            }
            Message::Executed { key, id } if self.knows(id) => self.on_executed(region, &key, id, out),
            Message::Refused { key, id, promised } if self.knows(id) => {
                self.on_refused(&key, id, promised, out);
            }
            Message::Recover { key, id, ballot } if self.knows(id) => {
                self.on_recover(now, from, (key, id, ballot), out);
            }
            Message::RecoverReply { key, id, ballot, report } if self.knows(id) => {
                self.on_recover_reply(now, region, (&key, id, ballot, *report), out);
            }
            Message::KeyState { keyed, chain } => {
                self.on_key_state(now, keyed, chain.map(|chain| *chain), out);
            }
            Message::Compare { digests, turn } => self.on_compare(from, &digests, turn, out),
            Message::Differ { bucket, keys, ask } => self.on_differ(from, bucket, &keys, ask, out),
            // Not for a replica from a replica, or about a region that does not exist.
            _ => {}
        }
    }

    fn on_wake(&mut self, now: Now, out: &mut Out) {
        while let Some(alarm) = self.alarms.take_due(now.monotonic) {
            match alarm {
                Alarm::Read(op) => self.on_read_alarm(now, op, out),
                Alarm::Coordinate(key, index) => self.on_coordinate_alarm(now, &key, index, out),
                Alarm::Watch(key, id, since) => self.on_watch_alarm(now, &key, id, since, out),
                Alarm::Compare => self.on_compare_alarm(now, out),
            }
        }
        let (reads, chains, coordinations) = (&self.reads, &self.chains, &self.coordinations);
        let open = |alarm: &Alarm| match alarm {
            Alarm::Read(op) => reads.contains_key(op),
            Alarm::Coordinate(key, index) => coordinations.contains_key(&(key.clone(), *index)),
            Alarm::Watch(key, id, _) => chains.get(key).is_some_and(|chain| !chain.is_executed(*id)),
            Alarm::Compare => true,
        };
        self.alarms.rearm(open, out);
    }

    fn on_regions(&mut self, nearest_first: &[Region]) {
        self.place.nearest_first = nearest_first.to_vec();
    }

    fn status(&self) -> Status {
        let c = self.counters;
        Status {
            keys: self.registers.len() as u64,
            bytes: self.registers.bytes,
            open_instances: self.open_instances,
            counters: vec![
                ("write_back", c.write_back),
                ("fast_path", c.fast_path),
                ("slow_path", c.slow_path),
                ("widened", c.widened),
                ("recovery", c.recovery),
                ("nop", c.nop),
                ("retry", c.retry),
                ("duplicate", c.duplicate),
                ("truncation", c.truncation),
                ("catch_up", c.catch_up),
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
            if let Some(chain) = self.chains.get(key) {
                wire::encode(&chain.state(), &mut buffer);
                wire::encode(&(chain.instances.len() as u64), &mut buffer);
            }
            sum.wrapping_add(key_hash(&buffer))
        })
    }
}

impl Replica {
    fn on_client_message(&mut self, now: Now, from: Address, message: Message, out: &mut Out) {
        match message {
            Message::Read { op, key, dependency } => self.on_read(now, from, (op, key, dependency), out),
            Message::Read1 { op, key, lent, dependency } => {
                self.on_read1(from, (op, key, lent, dependency), out);
            }
            Message::Read2 { op, keyed } => self.on_read2(from, op, &keyed, out),
            Message::Write1 { op, key, dependency } => {
                self.apply_dependency(dependency.as_deref(), out);
                out.send(from, Message::Write1Reply { op, carstamp: self.registers.carstamp(&key) });
            }
            Message::Write2 { op, keyed } => {
                self.apply(&keyed.key, &keyed.held, out);
                out.send(from, Message::Write2Reply { op });
            }
            Message::Rmw { key, rmw, dependency } => {
                self.apply_dependency(dependency.as_deref(), out);
                self.on_rmw(now, from, (key, rmw, dependency), out);
            }
            Message::List { op, from: hash, count, at_ms } => {
                let (keys, next) = self.registers.list(hash, (count as usize).min(LIST_LIMIT), at_ms);
                out.send(from, Message::ListReply { op, from: hash, keys, next });
            }
            // Not for a replica from a client.
            _ => {}
        }
    }

    /// Whether an instance is open and not yet final here.
    pub(super) fn is_undecided(&self, key: &Bytes, id: InstanceId) -> bool {
        let chain = self.chains.get(key);
        chain.is_some_and(|chain| {
            !chain.is_executed(id) && chain.instances.get(&id).is_none_or(|i| i.phase < Phase::Committed)
        })
    }
}

/// The most keys in one page of a listing, unless more have the same hash.
const LIST_LIMIT: usize = 10_000;
