//! The server side: what messages lead to, and what all parts of the protocol share.

use super::instance::{Instance, InstanceId, Kind, Operation};
use super::log::Log;
use super::message::{Message, Report};
use super::propose::Coordination;
use super::record::Record;
use super::recovery::Recovery;
use crate::Map;
use crate::alarms::Alarms;
use crate::clock::Now;
use crate::gryff::carstamp::Held;
use crate::gryff::comparison::Comparison;
use crate::gryff::instance::{Ballot, Phase};
use crate::gryff::message::OpId;
use crate::gryff::registers::Registers;
use crate::machine::{self, Effects, Place, Status};
use crate::registry::Settings;
use crate::topology::{Address, Region, ReplicaId, key_hash};
use crate::wire;
use bytes::Bytes;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

pub(super) type Out = Effects<Message, Record>;

/// One region's copy of one partition.
#[derive(Clone, Debug)]
pub struct Replica {
    pub(super) id: ReplicaId,
    pub(super) place: Place,
    pub(super) settings: Settings,
    /// The key's values as executing has left them.
    pub(super) registers: Registers,
    /// The log of each key that has ever been used.
    pub(super) logs: Map<Bytes, Log>,
    /// How many instances all of them have open.
    pub(super) open_instances: u64,
    /// Instances that this replica coordinates.
    pub(super) coordinations: BTreeMap<(Bytes, InstanceId), Coordination>,
    /// Their operations, and those that wait for a batch, so that a retry is known.
    pub(super) coordinated: Map<OpId, ()>,
    /// Operations that wait for others to share an instance with.
    pub(super) batches: BTreeMap<(Bytes, Kind), Vec<(Address, Operation)>>,
    /// Other replicas' instances (or its own from an earlier life) that this replica is finishing.
    pub(super) recoveries: BTreeMap<(Bytes, InstanceId), Recovery>,
    /// Instances whose recoverer waits for others, and how many had pre-accepted them unchanged.
    pub(super) waiting: BTreeMap<(Bytes, InstanceId), u32>,
    /// Listings that wait for updates to be executed.
    listings: Vec<Listing>,
    pub(super) alarms: Alarms<Alarm>,
    rng: Pcg64Mcg,
    pub(super) comparison: Comparison,
    pub(super) counters: Counters,
}

/// What an alarm is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Alarm {
    /// A batch has waited long enough.
    Batch(Bytes, Kind),
    /// An instance that this replica coordinates may lack answers.
    Coordinate(Bytes, InstanceId),
    /// An instance may have been left open by whoever had it in hand when the alarm was set.
    Watch(Bytes, InstanceId, Ballot),
    /// Time to compare with a peer.
    Compare,
}

/// How often things happened; "sometimes" claims of the tests stand on them.
#[derive(Clone, Copy, Default)]
pub(super) struct Counters {
    pub(super) fast_path: u64,
    pub(super) slow_path: u64,
    pub(super) widened: u64,
    pub(super) recovery: u64,
    pub(super) validate: u64,
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

/// A client's question for keys, and the updates that must be executed before it is answered: one that has ended may
/// be among them.
#[derive(Clone, Debug)]
struct Listing {
    client: Address,
    op: OpId,
    from: u64,
    count: u32,
    at_ms: u64,
    open: BTreeSet<(Bytes, InstanceId)>,
}

impl Replica {
    pub(super) fn new(settings: Settings, id: ReplicaId, place: Place, records: Vec<Record>) -> Self {
        let mut replica = Self {
            id,
            settings,
            registers: Registers::new(),
            logs: Map::default(),
            open_instances: 0,
            coordinations: BTreeMap::new(),
            coordinated: Map::default(),
            batches: BTreeMap::new(),
            recoveries: BTreeMap::new(),
            waiting: BTreeMap::new(),
            listings: Vec::new(),
            alarms: Alarms::new(),
            rng: Pcg64Mcg::seed_from_u64(place.seed ^ key_hash(format!("{id:?}").as_bytes())),
            comparison: Comparison::default(),
            counters: Counters::default(),
            place,
        };
        for record in records {
            replica.restore(record);
        }
        for log in replica.logs.values_mut() {
            log.drop_executed();
            let open: Vec<_> = log.instances.iter().map(|(id, i)| (*id, i.proposal.clone())).collect();
            replica.open_instances += open.len() as u64;
            for (id, proposal) in open {
                log.note(id, &proposal);
            }
        }
        for (key, log) in &replica.logs.iter().collect::<BTreeMap<_, _>>() {
            replica.registers.set_executed(key, log.progress());
        }
        replica
    }

    fn restore(&mut self, record: Record) {
        match record {
            Record::Value(key, held) => self.registers.set(&key, held),
            Record::Head(key, head) => self.log(&key).restore(head),
            Record::Result(key, _, _, Some(result)) => self.log(&key).restore_result(result),
            Record::Instance(key, id, Some(instance)) => {
                self.log(&key).instances.insert(id, *instance);
            }
            Record::Result(.., None) | Record::Instance(.., None) => {}
        }
    }

    pub(super) fn region(&self) -> Region {
        self.id.region
    }

    pub(super) fn regions(&self) -> u8 {
        self.place.group.regions
    }

    pub(super) fn quorum(&self) -> usize {
        self.place.group.majority()
    }

    pub(super) fn log(&mut self, key: &Bytes) -> &mut Log {
        let (regions, plant) = (self.place.group.regions, self.settings.plant);
        self.logs.entry_ref(key).or_insert_with(|| Log::new(regions, plant))
    }

    pub(super) fn peer(&self, region: Region) -> Address {
        Address::Replica(ReplicaId { region, ..self.id })
    }

    /// The other regions, the nearest first.
    pub(super) fn others(&self) -> impl Iterator<Item = Region> + '_ {
        let own = self.region();
        self.place.nearest_first.iter().copied().filter(move |region| *region != own)
    }

    /// The instance, made if it is not known, and watched from then on. `None` if it is executed here.
    pub(super) fn instance(
        &mut self,
        now: Now,
        key: &Bytes,
        id: InstanceId,
        out: &mut Out,
    ) -> Option<&mut Instance> {
        if self.log(key).is_executed(id) {
            return None;
        }
        if !self.log(key).instances.contains_key(&id) {
            self.open_instances += 1;
            self.watch(now, key, id, out);
        }
        Some(self.log(key).instances.entry(id).or_insert_with(Instance::unknown))
    }

    /// Sets the alarm after which an open instance is taken up. The delay is random and doubles with every
    /// recovery that was tried, so that replicas do not duel over one however far they are from each other.
    pub(super) fn watch(&mut self, now: Now, key: &Bytes, id: InstanceId, out: &mut Out) {
        let instance = self.logs.get(key).and_then(|log| log.instances.get(&id));
        let promised = instance.map(|instance| instance.promised).unwrap_or_default();
        let recovery = self.settings.recovery.max(2) << promised.counter.min(3).div_ceil(2);
        let delay = recovery + self.rng.random_range(0..recovery / 2);
        self.alarms.set(now.monotonic + delay, Alarm::Watch(key.clone(), id, promised), out);
    }

    /// Stores an instance as it stands, and counts what it says.
    pub(super) fn store_instance(&mut self, key: &Bytes, id: InstanceId, out: &mut Out) {
        let log = self.log(key);
        let instance = log.instances.get(&id).cloned();
        if let Some(instance) = &instance {
            log.note(id, &instance.proposal);
        }
        out.output(Record::Instance(key.clone(), id, instance.map(Box::new)));
    }

    /// What this replica knows of an instance.
    pub(super) fn report(instance: &Instance) -> Report {
        let Instance { accepted, phase, proposal, initial, partner, .. } = instance;
        let unchanged = initial.as_ref().is_some_and(|initial| proposal.attributes.same(initial));
        Report {
            phase: *phase,
            accepted: *accepted,
            proposal: (*phase >= Phase::PreAccepted).then(|| proposal.clone()),
            unchanged: *phase == Phase::PreAccepted && unchanged,
            partner: *partner,
        }
    }

    /// Whether an instance is open and not yet final here.
    pub(super) fn is_undecided(&self, key: &Bytes, id: InstanceId) -> bool {
        let log = self.logs.get(key);
        log.is_some_and(|log| {
            !log.is_executed(id) && log.instances.get(&id).is_none_or(|i| i.phase < Phase::Committed)
        })
    }

    /// Whether a message speaks of an instance that can exist.
    fn knows(&self, id: InstanceId) -> bool {
        id.row.0 < self.regions() && id.index > 0
    }

    // Listings.

    fn on_list(
        &mut self,
        client: Address,
        (op, from): (OpId, u64),
        (count, at_ms): (u32, u64),
        out: &mut Out,
    ) {
        let mut open = BTreeSet::new();
        for (key, log) in &self.logs.iter().collect::<BTreeMap<_, _>>() {
            let updates = log.instances.iter().filter(|(id, i)| id.kind == Kind::Update && i.is_known());
            open.extend(updates.map(|(id, _)| ((*key).clone(), *id)));
        }
        self.listings.retain(|listing| listing.client != client || listing.op != op);
        self.listings.push(Listing { client, op, from, count, at_ms, open });
        self.answer_listings(out);
    }

    /// Answers the listings that need wait no longer.
    pub(super) fn answer_listings(&mut self, out: &mut Out) {
        let (logs, registers) = (&self.logs, &self.registers);
        self.listings.retain_mut(|listing| {
            listing.open.retain(|(key, id)| logs.get(key).is_some_and(|log| !log.is_executed(*id)));
            if listing.open.is_empty() {
                let count = (listing.count as usize).min(LIST_LIMIT);
                let (keys, next) = registers.list(listing.from, count, listing.at_ms);
                out.send(
                    listing.client,
                    Message::ListReply { op: listing.op, from: listing.from, keys, next },
                );
            }
            !listing.open.is_empty()
        });
        // Those whose clients have long given up.
        let excess = self.listings.len().saturating_sub(LISTINGS);
        self.listings.drain(..excess);
    }

    fn on_replica_message(
        &mut self,
        now: Now,
        (from, region): (Address, Region),
        message: Message,
        out: &mut Out,
    ) {
        match message {
            Message::PreAccept { key, id, proposal, partner } if self.knows(id) => {
                self.on_pre_accept(now, from, (key, id, *proposal, partner), out);
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
            Message::Refused { key, id, promised } if self.knows(id) => {
                self.on_refused(&key, id, promised, out);
            }
            Message::Recover { key, id, ballot } if self.knows(id) => {
                self.on_recover(now, from, (key, id, ballot), out);
            }
            Message::RecoverReply { key, id, ballot, report } if self.knows(id) => {
                self.on_recover_reply(now, region, (&key, id, ballot, *report), out);
            }
            Message::Validate { key, id, ballot, initial } if self.knows(id) => {
                self.on_validate(now, from, (key, id, ballot, *initial), out);
            }
            Message::ValidateReply { key, id, ballot, refuted, open } if self.knows(id) => {
                self.on_validate_reply(now, region, (&key, id, ballot), (refuted, open), out);
            }
            Message::Waiting { key, id, unchanged } if self.knows(id) && self.is_undecided(&key, id) => {
                self.waiting.insert((key, id), unchanged);
            }
            Message::KeyState { keyed, log } => self.on_key_state(now, keyed, *log, out),
            Message::Compare { digests, turn } => self.on_compare(from, &digests, turn, out),
            Message::Differ { bucket, keys, ask } => self.on_differ(from, bucket, &keys, ask, out),
            // Not for a replica from a replica, or about a region that does not exist.
            _ => {}
        }
    }
}

impl machine::Replica for Replica {
    type Message = Message;
    type Record = Record;

    fn start(&mut self, now: Now, out: &mut Out) {
        let open: BTreeSet<_> = self
            .logs
            .iter()
            .flat_map(|(key, log)| log.instances.keys().map(move |id| (key.clone(), *id)))
            .collect();
        for (key, id) in open {
            self.watch(now, &key, id, out);
            self.execute(now, &key, out);
        }
        self.schedule_compare(now, out);
    }

    fn on_message(&mut self, now: Now, from: Address, message: Message, out: &mut Out) {
        match (from, message) {
            (Address::Client(..), Message::Submit { key, operation }) => {
                self.on_submit(now, from, &key, *operation, out);
            }
            (Address::Client(..), Message::List { op, from: hash, count, at_ms }) => {
                self.on_list(from, (op, hash), (count, at_ms), out);
            }
            (Address::Replica(ReplicaId { region, .. }), message) if region.0 < self.regions() => {
                self.on_replica_message(now, (from, region), message, out);
            }
            _ => {}
        }
    }

    fn on_wake(&mut self, now: Now, out: &mut Out) {
        while let Some(alarm) = self.alarms.take_due(now.monotonic) {
            match alarm {
                Alarm::Batch(key, kind) => self.on_batch_alarm(now, &key, kind, out),
                Alarm::Coordinate(key, id) => self.on_coordinate_alarm(now, &key, id, out),
                Alarm::Watch(key, id, since) => self.on_watch_alarm(now, &key, id, since, out),
                Alarm::Compare => self.on_compare_alarm(now, out),
            }
        }
        let (logs, coordinations) = (&self.logs, &self.coordinations);
        let open = |alarm: &Alarm| match alarm {
            Alarm::Coordinate(key, id) => coordinations.contains_key(&(key.clone(), *id)),
            Alarm::Watch(key, id, _) => logs.get(key).is_some_and(|log| !log.is_executed(*id)),
            Alarm::Batch(..) | Alarm::Compare => true,
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
                ("fast_path", c.fast_path),
                ("slow_path", c.slow_path),
                ("widened", c.widened),
                ("recovery", c.recovery),
                ("validate", c.validate),
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
            if let Some(log) = self.logs.get(key) {
                let (progress, latest, results, open) = log.fingerprint();
                wire::encode(&(progress, latest, results, open), &mut buffer);
            }
            sum.wrapping_add(key_hash(&buffer))
        })
    }
}

/// The most keys in one page of a listing, unless more have the same hash.
const LIST_LIMIT: usize = 10_000;

/// The most listings that wait at a time.
const LISTINGS: usize = 1_000;
