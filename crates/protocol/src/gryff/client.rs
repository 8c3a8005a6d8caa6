//! The session side: coordinates writes (and reads, if no proxy does), hands rmws to a replica, and keeps what
//! RSC needs.
//!
//! Writes are coordinated here and not at a replica, so that a replica's death never leaves a write in doubt that
//! another could have finished: only this machine knows whether its second phase has begun.

use super::Gryff;
use super::carstamp::{Carstamp, Held};
use super::instance::Operation;
use super::message::{Keyed, Listed, Message, OpId};
use super::read::Read;
use super::{Consistency, answer_read};
use crate::alarms::Alarms;
use crate::clock::{Micros, Now};
use crate::machine::{self, Completion, Cost, Effects, NO_TRANSACTIONS, Outcome, Place, Request, RequestId};
use crate::object::{Action, Answer, Class, Command, State, TypeName, Version, apply};
use crate::planted::Planted;
use crate::results::Lanes;
use crate::topology::{Address, ClientId, Region, RegionSet, ReplicaId, key_hash};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

type Out = Effects<Message, Completion>;

/// A session's machine, or one that the sessions of a node share.
#[derive(Clone, Debug)]
pub struct Client {
    id: ClientId,
    engine: Gryff,
    place: Place,
    /// For each partition of which the host said so, the regions in order of preference.
    nearest_first: BTreeMap<u16, Vec<Region>>,
    open: BTreeMap<RequestId, Op>,
    /// The highest timestamp that this machine has given a write. Never goes back, whatever became of the
    /// write and whoever uses the machine: two writes with one carstamp would leave replicas apart for ever.
    last_ts: u64,
    /// Of rmws in flight.
    lanes: Lanes,
    /// What this session has read and is not known to be on a quorum (RSC). No operation begins while there is any.
    unsettled: BTreeMap<Bytes, Unsettled>,
    /// Requests that wait for that.
    waiting: BTreeSet<RequestId>,
    alarms: Alarms<Alarm>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Alarm {
    /// A request may lack answers, or be out of time.
    Request(RequestId),
    /// What was read of this key may have lost the proxy that was to settle it.
    Settle(Bytes),
}

#[derive(Clone, Debug)]
struct Op {
    /// The key; empty for fences and listings.
    key: Bytes,
    partition: u16,
    work: Work,
    phase: Phase,
    began: Micros,
    /// When it left the queue of those that wait for a settled session.
    started: Micros,
    give_up: Micros,
    /// How often the alarm has found it unfinished.
    attempt: u32,
    /// Sent along with the first phase, in the published rule only.
    dependency: Option<Box<Keyed>>,
}

#[derive(Clone, Debug)]
enum Work {
    Act { action: Action, at_ms: u64 },
    Fence,
    List { from: u64, count: u32, at_ms: u64 },
}

#[derive(Clone, Debug)]
enum Phase {
    /// Not begun: the session is not settled.
    Waiting,
    /// A replica reads for it.
    Proxied,
    /// It reads itself.
    Reading(Read),
    /// Asks for carstamps.
    Write1 { replied: RegionSet, newest: u64 },
    /// Has chosen one; from here on only this version may be sent.
    Write2 { held: Held, answer: Answer, acked: RegionSet },
    /// A replica coordinates it.
    Rmw { lane: u32 },
    /// Lists keys.
    Listing { replies: BTreeMap<Region, (Vec<Listed>, Option<u64>)> },
}

#[derive(Clone, Debug)]
struct Unsettled {
    op: OpId,
    held: Held,
    holders: RegionSet,
}

impl Client {
    pub(super) fn new(engine: Gryff, id: ClientId, place: Place) -> Self {
        Self {
            id,
            engine,
            place,
            nearest_first: BTreeMap::new(),
            open: BTreeMap::new(),
            last_ts: 0,
            lanes: Lanes::default(),
            unsettled: BTreeMap::new(),
            waiting: BTreeSet::new(),
            alarms: Alarms::new(),
        }
    }

    fn quorum(&self) -> usize {
        self.place.group.majority()
    }

    fn regions(&self, partition: u16) -> &[Region] {
        self.nearest_first.get(&partition).unwrap_or(&self.place.nearest_first)
    }

    fn replica(&self, partition: u16, region: Region) -> Address {
        Address::Replica(self.place.group.replica(partition, region))
    }

    fn op_id(&self, request: RequestId) -> OpId {
        OpId { client: self.id, request }
    }

    fn as_published(&self) -> bool {
        self.engine.consistency == Consistency::RscAsPublished
    }

    /// Sends to a quorum's worth of the nearest regions if `first` and thrifty, otherwise to all; not to those
    /// that are `done`.
    fn send_phase(&self, partition: u16, first: bool, done: RegionSet, message: &Message, out: &mut Out) {
        let count = if first && self.engine.settings.thrifty { self.quorum() } else { usize::MAX };
        for region in self.regions(partition).iter().take(count).filter(|region| !done.contains(**region)) {
            out.send(self.replica(partition, *region), message.clone());
        }
    }

    // Beginning.

    fn start(&mut self, now: Now, request: RequestId, out: &mut Out) {
        let dependency = if self.as_published() { self.piggyback() } else { None };
        let id = self.op_id(request);
        let proxied = self.engine.settings.read_proxy;
        let registers_only = self.engine.registers_only;
        let Some(op) = self.open.get_mut(&request) else { return };
        op.started = now.monotonic;
        op.attempt = 0;
        op.dependency = dependency;
        op.phase = match &op.work {
            Work::Fence => return self.complete(now, request, Outcome::Fenced, Cost::default(), out),
            Work::List { .. } => Phase::Listing { replies: BTreeMap::new() },
            Work::Act { action, .. } => match action.class() {
                Class::Read if proxied => Phase::Proxied,
                Class::Read => Phase::Reading(Read::direct()),
                Class::Write => Phase::Write1 { replied: RegionSet::default(), newest: 0 },
                // A tombstone, whose answer is what was there just before.
                Class::ReadModifyWrite if registers_only && is_delete(action) => {
                    Phase::Reading(Read::direct())
                }
                Class::ReadModifyWrite if registers_only => {
                    let outcome = Outcome::Aborted("a register does not depend on its old value");
                    return self.complete(now, request, outcome, Cost::default(), out);
                }
                Class::ReadModifyWrite => Phase::Rmw { lane: self.lanes.take() },
            },
        };
        self.send(request, id, true, out);
        self.set_alarm(now, request, out);
    }

    /// Sends what the current phase of a request needs: at first, or again to all that have not answered.
    fn send(&self, request: RequestId, id: OpId, first: bool, out: &mut Out) {
        let Some(op) = self.open.get(&request) else { return };
        let (key, partition, dependency) = (op.key.clone(), op.partition, op.dependency.clone());
        let regions = self.regions(partition);
        match &op.phase {
            Phase::Waiting => {}
            Phase::Proxied => {
                let region = regions[op.attempt as usize % regions.len()];
                out.send(self.replica(partition, region), Message::Read { op: id, key, dependency });
            }
            Phase::Reading(read) if read.decided => {
                let keyed = Keyed { key, held: read.newest.clone() };
                self.send_phase(partition, false, read.holders, &Message::Read2 { op: id, keyed }, out);
            }
            Phase::Reading(read) => {
                let read1 = Message::Read1 { op: id, key, lent: None, dependency };
                self.send_phase(partition, first, read.replied, &read1, out);
            }
            Phase::Write1 { replied, .. } => {
                self.send_phase(
                    partition,
                    first,
                    *replied,
                    &Message::Write1 { op: id, key, dependency },
                    out,
                );
            }
            Phase::Write2 { held, acked, .. } => {
                let keyed = Keyed { key, held: held.clone() };
                // To all, not to a quorum only: every region is to have the value.
                self.send_phase(partition, false, *acked, &Message::Write2 { op: id, keyed }, out);
            }
            Phase::Rmw { lane } => {
                let Work::Act { action, at_ms } = &op.work else { return };
                let rmw = Box::new(Operation { op: id, lane: *lane, action: action.clone(), at_ms: *at_ms });
                // Once more to the same coordinator, which may only have been slow, then to the next.
                let region = regions[op.attempt as usize / 2 % regions.len()];
                out.send(self.replica(partition, region), Message::Rmw { key, rmw, dependency });
            }
            Phase::Listing { replies } => {
                let Work::List { from, count, at_ms } = op.work else { return };
                let done = replies.keys().fold(RegionSet::default(), |mut set, region| {
                    set.insert(*region);
                    set
                });
                self.send_phase(partition, first, done, &Message::List { op: id, from, count, at_ms }, out);
            }
        }
    }

    fn set_alarm(&mut self, now: Now, request: RequestId, out: &mut Out) {
        if let Some(op) = self.open.get(&request) {
            let at = (now.monotonic + self.engine.settings.retry).min(op.give_up.max(now.monotonic + 1));
            self.alarms.set(at, Alarm::Request(request), out);
        }
    }

    fn on_request_alarm(&mut self, now: Now, request: RequestId, out: &mut Out) {
        let Some(op) = self.open.get_mut(&request) else { return };
        if now.monotonic < op.give_up {
            op.attempt += 1;
            self.send(request, self.op_id(request), false, out);
            return self.set_alarm(now, request, out);
        }
        let outcome = match op.phase {
            Phase::Waiting => Outcome::Aborted("what this session has read is not on a majority yet"),
            Phase::Proxied | Phase::Reading(_) | Phase::Write1 { .. } | Phase::Listing { .. } => {
                Outcome::NoQuorum
            }
            // What was sent may take effect yet, and must not be sent again in another form.
            Phase::Write2 { .. } | Phase::Rmw { .. } => Outcome::Unknown,
        };
        self.complete(now, request, outcome, Cost::default(), out);
    }

    fn complete(&mut self, now: Now, request: RequestId, outcome: Outcome, mut cost: Cost, out: &mut Out) {
        let Some(op) = self.open.remove(&request) else { return };
        self.waiting.remove(&request);
        if let Phase::Rmw { lane } = op.phase {
            self.lanes.release(lane);
        }
        let began = if op.started == 0 { now.monotonic } else { op.started };
        let waited = began.saturating_sub(op.began);
        if waited > 0 {
            cost.waited = waited;
            cost.reason = "settling what was read before";
        }
        out.output(Completion { request, outcome, cost });
    }

    // Reads.

    fn on_read_reply(
        &mut self,
        now: Now,
        (request, from): (RequestId, Region),
        (held, rounds, settled): (Held, u32, bool),
        out: &mut Out,
    ) {
        let Some(op) = self.open.get(&request) else { return };
        if !matches!(op.phase, Phase::Proxied) {
            return;
        }
        let key = op.key.clone();
        self.drop_piggyback(request);
        if !settled {
            self.note_unsettled(now, request, key, (held.clone(), RegionSet::of(from)), out);
        }
        self.answer_read(now, request, &held, rounds, out);
    }

    fn answer_read(&mut self, now: Now, request: RequestId, held: &Held, rounds: u32, out: &mut Out) {
        let Some(Op { work: Work::Act { action, at_ms }, .. }) = self.open.get(&request) else { return };
        let answer = answer_read(held, action, *at_ms);
        let cost = Cost { rounds, witness: Some(held.carstamp.witness()), ..Cost::default() };
        self.complete(now, request, Outcome::Answer(answer), cost, out);
    }

    fn on_read1_reply(
        &mut self,
        now: Now,
        (request, from): (RequestId, Region),
        shown: &Held,
        out: &mut Out,
    ) {
        let quorum = self.quorum();
        let linearizable = self.engine.consistency == Consistency::Linearizable;
        let skip_write_back = linearizable && self.engine.settings.plant.has(Planted::SkipWriteBack);
        let Some(op) = self.open.get_mut(&request) else {
            return self.note_holder(request, from, shown.carstamp);
        };
        let Phase::Reading(read) = &mut op.phase else { return };
        read.on_reply(from, shown);
        let just_decided = read.decide(quorum);
        if !read.decided {
            return;
        }
        if let Work::Act { action, at_ms } = &op.work
            && is_delete(action)
        {
            let seen = read.newest.clone();
            let (value, answer) = apply(&seen.value, seen.carstamp.version(), action, *at_ms);
            return self.write(now, request, (seen.carstamp.ts, value, answer), out);
        }
        let rounds = if just_decided { 1 } else { 2 };
        let (held, holders, settled) =
            (read.newest.clone(), read.holders, read.settled(quorum) || skip_write_back);
        let key = op.key.clone();
        if just_decided {
            self.drop_piggyback(request);
        }
        if settled {
            self.answer_read(now, request, &held, rounds, out);
        } else if just_decided {
            if linearizable {
                return self.send(request, self.op_id(request), false, out);
            }
            self.note_unsettled(now, request, key.clone(), (held.clone(), holders), out);
            self.answer_read(now, request, &held, rounds, out);
            if !self.as_published() {
                self.send_settle(&key, out);
            }
        }
    }

    fn on_read2_reply(
        &mut self,
        now: Now,
        (request, from): (RequestId, Region),
        carstamp: Carstamp,
        out: &mut Out,
    ) {
        let quorum = self.quorum();
        let Some(Op { phase: Phase::Reading(read), .. }) = self.open.get_mut(&request) else {
            self.note_holder(request, from, carstamp);
            return self.go_on(now, out);
        };
        read.on_written_back(from, carstamp);
        if read.decided && read.settled(quorum) {
            let held = read.newest.clone();
            self.answer_read(now, request, &held, 2, out);
        }
    }

    // What RSC keeps.

    /// Remembers that a read has returned what a quorum may lack.
    fn note_unsettled(
        &mut self,
        now: Now,
        request: RequestId,
        key: Bytes,
        (held, holders): (Held, RegionSet),
        out: &mut Out,
    ) {
        if self.engine.settings.plant.has(Planted::DropDependency) {
            return;
        }
        // Of two reads of a key the newer version counts: a quorum that holds it holds no less.
        if self.unsettled.get(&key).is_some_and(|other| other.held.carstamp >= held.carstamp) {
            return;
        }
        let op = self.op_id(request);
        if self.unsettled.insert(key.clone(), Unsettled { op, held, holders }).is_none() {
            self.alarms.set(now.monotonic + self.engine.settings.retry, Alarm::Settle(key), out);
        }
    }

    /// Writes back what was read to the replicas not known to hold it.
    fn send_settle(&self, key: &Bytes, out: &mut Out) {
        if let Some(Unsettled { op, held, holders }) = self.unsettled.get(key) {
            let keyed = Keyed { key: key.clone(), held: held.clone() };
            let partition = self.place.group.partition_of(key);
            self.send_phase(partition, false, *holders, &Message::Read2 { op: *op, keyed }, out);
        }
    }

    fn on_settle_alarm(&mut self, now: Now, key: Bytes, out: &mut Out) {
        if self.unsettled.contains_key(&key) {
            self.send_settle(&key, out);
            self.alarms.set(now.monotonic + self.engine.settings.retry, Alarm::Settle(key), out);
        }
    }

    fn unsettled_key(&self, request: RequestId) -> Option<Bytes> {
        let entry = self.unsettled.iter().find(|(_, unsettled)| unsettled.op.request == request);
        entry.map(|(key, _)| key.clone())
    }

    /// Counts a replica that shows what was read, or a newer version.
    fn note_holder(&mut self, request: RequestId, from: Region, carstamp: Carstamp) {
        if let Some(key) = self.unsettled_key(request)
            && let Some(unsettled) = self.unsettled.get_mut(&key)
            && carstamp >= unsettled.held.carstamp
        {
            unsettled.holders.insert(from);
        }
    }

    fn on_settled(&mut self, now: Now, request: RequestId, carstamp: Carstamp, out: &mut Out) {
        if let Some(key) = self.unsettled_key(request)
            && self.unsettled[&key].held.carstamp <= carstamp
        {
            self.unsettled.remove(&key);
        }
        self.go_on(now, out);
    }

    /// Forgets what is settled, and begins what has waited for that.
    fn go_on(&mut self, now: Now, out: &mut Out) {
        let quorum = self.quorum();
        self.unsettled.retain(|_, unsettled| unsettled.holders.len() < quorum);
        if self.unsettled.is_empty() {
            for request in std::mem::take(&mut self.waiting) {
                self.start(now, request, out);
            }
        }
    }

    /// Whether a request may begin: with the published rule also if what is unsettled can be sent along.
    fn may_begin(&self, op: &Op) -> bool {
        if self.unsettled.is_empty() {
            return true;
        }
        let along = || self.unsettled.keys().all(|key| self.place.group.partition_of(key) == op.partition);
        self.as_published() && self.unsettled.len() == 1 && matches!(op.work, Work::Act { .. }) && along()
    }

    fn piggyback(&self) -> Option<Box<Keyed>> {
        let (key, unsettled) = self.unsettled.first_key_value()?;
        Some(Box::new(Keyed { key: key.clone(), held: unsettled.held.clone() }))
    }

    /// The published rule: what was sent along counts as settled once the first phase has its quorum.
    fn drop_piggyback(&mut self, request: RequestId) {
        let Some(sent) = self.open.get_mut(&request).and_then(|op| op.dependency.take()) else {
            return;
        };
        let Keyed { key, held } = &*sent;
        if self.unsettled.get(key).is_some_and(|unsettled| unsettled.held.carstamp <= held.carstamp) {
            self.unsettled.remove(key);
        }
    }

    // Writes.

    fn on_write1_reply(
        &mut self,
        now: Now,
        (request, from): (RequestId, Region),
        carstamp: Carstamp,
        out: &mut Out,
    ) {
        let quorum = self.quorum();
        let Some(op) = self.open.get_mut(&request) else { return };
        let (Phase::Write1 { replied, newest }, Work::Act { action, at_ms }) = (&mut op.phase, &op.work)
        else {
            return;
        };
        replied.insert(from);
        *newest = carstamp.ts.max(*newest);
        if replied.len() < quorum {
            return;
        }
        let (value, answer) = apply(&None, Version::default(), action, *at_ms);
        let newest = *newest;
        self.write(now, request, (newest, value, answer), out);
    }

    /// Chooses the carstamp of a write above all that a quorum has shown, and begins its second phase.
    fn write(
        &mut self,
        now: Now,
        request: RequestId,
        (newest, value, answer): (u64, State, Answer),
        out: &mut Out,
    ) {
        let forget = self.engine.settings.plant.has(Planted::ReuseCarstamp);
        let last = if forget { 0 } else { self.last_ts };
        let ts = newest.max(last) + 1;
        self.last_ts = ts;
        let held = Held { value, carstamp: Carstamp::of_write(ts, self.id) };
        let Some(op) = self.open.get_mut(&request) else { return };
        op.phase = Phase::Write2 { held, answer, acked: RegionSet::default() };
        self.drop_piggyback(request);
        self.send(request, self.op_id(request), false, out);
        self.go_on(now, out);
    }

    fn on_write2_reply(&mut self, now: Now, (request, from): (RequestId, Region), out: &mut Out) {
        let quorum = self.quorum();
        let Some(Op { phase: Phase::Write2 { held, answer, acked }, .. }) = self.open.get_mut(&request)
        else {
            return;
        };
        acked.insert(from);
        if acked.len() < quorum {
            return;
        }
        let answer = answer.clone();
        let cost = Cost { rounds: 2, witness: Some(held.carstamp.witness()), ..Cost::default() };
        self.complete(now, request, Outcome::Answer(answer), cost, out);
    }

    // Listings.

    fn on_list_reply(
        &mut self,
        now: Now,
        (request, from): (RequestId, Region),
        (asked_from, keys, next): (u64, Vec<Listed>, Option<u64>),
        out: &mut Out,
    ) {
        let quorum = self.quorum();
        let Some(op) = self.open.get_mut(&request) else { return };
        let (Phase::Listing { replies }, Work::List { from: wanted, .. }) = (&mut op.phase, &op.work) else {
            return;
        };
        if asked_from != *wanted {
            return;
        }
        replies.insert(from, (keys, next));
        if replies.len() < quorum {
            return;
        }
        let (keys, next) = merge_pages(replies);
        self.complete(now, request, Outcome::Page(keys, next), Cost { rounds: 1, ..Cost::default() }, out);
    }
}

fn is_delete(action: &Action) -> bool {
    matches!(action, Action::Command(Command::Delete))
}

/// Puts the pages of a quorum together: of each key the newest version says whether it is there. The page ends
/// where the shortest reply ends, as beyond it not all of the quorum have spoken.
pub(crate) fn merge_pages(
    replies: &BTreeMap<Region, (Vec<Listed>, Option<u64>)>,
) -> (Vec<(Bytes, &'static str)>, Option<u64>) {
    let next = replies.values().filter_map(|(_, next)| *next).min();
    let mut newest: BTreeMap<(u64, &Bytes), &Listed> = BTreeMap::new();
    for listed in replies.values().flat_map(|(keys, _)| keys) {
        let hash = key_hash(&listed.key);
        if next.is_some_and(|next| hash >= next) {
            continue;
        }
        let entry = newest.entry((hash, &listed.key)).or_insert(listed);
        if listed.carstamp > entry.carstamp {
            *entry = listed;
        }
    }
    let present = newest.into_values().filter(|listed| listed.kind != TypeName::None);
    (present.map(|listed| (listed.key.clone(), listed.kind.as_str())).collect(), next)
}

impl machine::Client for Client {
    type Message = Message;

    fn begin(&mut self, now: Now, id: RequestId, request: Request, out: &mut Out) {
        let group = &self.place.group;
        let (key, partition, work) = match request {
            Request::Act { key, action, at_ms, level: _ } => {
                let partition = group.partition_of(&key);
                (key, partition, Work::Act { action, at_ms })
            }
            Request::Fence => (Bytes::new(), 0, Work::Fence),
            Request::Scan { partition, from, count, at_ms } => {
                (Bytes::new(), partition, Work::List { from, count, at_ms })
            }
            Request::Together(_) | Request::Begin { .. } | Request::Commit | Request::Abort => {
                let (outcome, cost) = (Outcome::Aborted(NO_TRANSACTIONS), Cost::default());
                return out.output(Completion { request: id, outcome, cost });
            }
        };
        let op = Op {
            key,
            partition,
            work,
            phase: Phase::Waiting,
            began: now.monotonic,
            started: 0,
            give_up: now.monotonic + self.engine.settings.operation_timeout,
            attempt: 0,
            dependency: None,
        };
        let may_begin = self.may_begin(&op);
        self.open.insert(id, op);
        if may_begin {
            self.start(now, id, out);
        } else {
            self.waiting.insert(id);
            if self.as_published() {
                let keys: Vec<_> = self.unsettled.keys().cloned().collect();
                for key in keys {
                    self.send_settle(&key, out);
                }
            }
            self.set_alarm(now, id, out);
        }
    }

    fn on_message(&mut self, now: Now, from: Address, message: Message, out: &mut Out) {
        let Address::Replica(ReplicaId { region: from, .. }) = from else { return };
        if from.0 >= self.place.group.regions {
            return;
        }
        let own = |op: OpId| (op.client == self.id).then_some(op.request);
        match message {
            Message::ReadReply { op, held, rounds, settled } => {
                let Some(request) = own(op) else { return };
                self.on_read_reply(now, (request, from), (held, rounds, settled), out);
                self.go_on(now, out);
            }
            Message::Settled { op, carstamp } => {
                let Some(request) = own(op) else { return };
                self.on_settled(now, request, carstamp, out);
            }
            Message::Read1Reply { op, carstamp, value } => {
                let Some(request) = own(op) else { return };
                self.on_read1_reply(now, (request, from), &Held { value, carstamp }, out);
                self.go_on(now, out);
            }
            Message::Read2Reply { op, carstamp } => {
                let Some(request) = own(op) else { return };
                self.on_read2_reply(now, (request, from), carstamp, out);
            }
            Message::Write1Reply { op, carstamp } => {
                let Some(request) = own(op) else { return };
                self.on_write1_reply(now, (request, from), carstamp, out);
            }
            Message::Write2Reply { op } => {
                let Some(request) = own(op) else { return };
                self.on_write2_reply(now, (request, from), out);
            }
            Message::RmwReply { op, answer, carstamp, rounds } => {
                let Some(request) = own(op) else { return };
                if !matches!(self.open.get(&request), Some(Op { phase: Phase::Rmw { .. }, .. })) {
                    return;
                }
                self.drop_piggyback(request);
                let outcome = answer.map_or(Outcome::Unknown, Outcome::Answer);
                let witness = matches!(outcome, Outcome::Answer(_)).then(|| carstamp.witness());
                self.complete(now, request, outcome, Cost { rounds, witness, ..Cost::default() }, out);
                self.go_on(now, out);
            }
            Message::RmwRefused { op } => {
                let Some(request) = own(op) else { return };
                // If another coordinator was asked too, its word counts.
                if matches!(self.open.get(&request), Some(Op { phase: Phase::Rmw { .. }, attempt: 0, .. })) {
                    let outcome = Outcome::Aborted("this node's clock is far ahead of its neighbour's");
                    self.complete(now, request, outcome, Cost::default(), out);
                }
            }
            Message::ListReply { op, from: asked_from, keys, next } => {
                let Some(request) = own(op) else { return };
                self.on_list_reply(now, (request, from), (asked_from, keys, next), out);
            }
            // Not for a client.
            _ => {}
        }
    }

    fn on_wake(&mut self, now: Now, out: &mut Out) {
        while let Some(alarm) = self.alarms.take_due(now.monotonic) {
            match alarm {
                Alarm::Request(request) => self.on_request_alarm(now, request, out),
                Alarm::Settle(key) => self.on_settle_alarm(now, key, out),
            }
        }
        let open = |alarm: &Alarm| match alarm {
            Alarm::Request(request) => self.open.contains_key(request),
            Alarm::Settle(key) => self.unsettled.contains_key(key),
        };
        self.alarms.rearm(open, out);
    }

    fn on_regions(&mut self, partition: u16, nearest_first: &[Region]) {
        self.nearest_first.insert(partition, nearest_first.to_vec());
    }

    fn end_session(&mut self) {
        self.open.clear();
        self.waiting.clear();
        self.lanes.clear();
        self.unsettled.clear();
    }
}
