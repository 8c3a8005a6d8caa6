//! The session side: coordinates writes (and reads, if no proxy does), hands rmws to a replica, and keeps what
//! RSC needs.
//!
//! Writes are coordinated here and not at a replica, so that a replica's death never leaves a write in doubt that
//! another could have finished: only this machine knows whether its second phase has begun.

mod passing;
mod reads;
mod settle;
mod writes;

use super::instance::Operation;
use super::message::Message;
use super::read::Read;
use super::{Consistency, Gryff};
use crate::alarms::Alarms;
use crate::clock::{Micros, Now};
use crate::machine::{
    self, Completion, Context, Cost, Effects, NO_TRANSACTIONS, OpId, Outcome, Place, Request, RequestId,
};
use crate::object::{Action, Answer, Class, Command};
use crate::registers::carstamp::{Held, Keyed};
use crate::registers::listing::{Listed, merge_pages};
use crate::results::Lanes;
use crate::topology::{Address, ClientId, Region, RegionSet, ReplicaId};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// Why an operation was given up for want of a clock.
const UNPASSED: &str =
    "no node whose clock has a trusted bound could be asked whether its timestamp has passed";

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
    /// The largest timestamp that this session has read, where timestamps are of clocks (RSC). What is not a write
    /// begins when it has passed.
    seen: u64,
    /// Requests that wait for a timestamp to pass.
    passing: BTreeSet<(u64, RequestId)>,
    /// When to look again whether one has.
    watch: Option<Micros>,
    /// Whether other nodes' word that a timestamp has passed comes sooner than the own clock's.
    others_know_sooner: bool,
    /// By partition, how long a quorum takes to answer; kept where timestamps are of clocks.
    round_trips: BTreeMap<u16, Micros>,
    alarms: Alarms<Alarm>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Alarm {
    /// A request may lack answers, or be out of time.
    Request(RequestId),
    /// What was read of this key may have lost the proxy that was to settle it.
    Settle(Bytes),
    /// A timestamp may have passed.
    Passing,
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
    /// When its present phase was first sent.
    sent: Micros,
    give_up: Micros,
    /// How often the alarm has found it unfinished.
    attempt: u32,
    /// Sent along with the first phase, in the published rule only.
    dependency: Option<Box<Keyed>>,
}

#[derive(Clone, Debug)]
enum Work {
    Act {
        action: Action,
        at_ms: u64,
    },
    /// Nothing, once the session is settled; then it has ended so.
    Fence(Outcome),
    List {
        from: u64,
        count: u32,
        at_ms: u64,
    },
}

impl Work {
    fn is_read(&self) -> bool {
        matches!(self, Self::Act { action, .. } if action.class() == Class::Read)
    }

    fn is_write(&self) -> bool {
        matches!(self, Self::Act { action, .. } if action.class() == Class::Write)
    }
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
    /// Has chosen one, in so many rounds in all; from here on only this version may be sent.
    Write2 { held: Held, answer: Answer, rounds: u32, acked: RegionSet, refused: RegionSet },
    /// Is over, but its timestamp has not passed.
    Passing { outcome: Outcome, cost: Cost, since: Micros },
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
            seen: 0,
            passing: BTreeSet::new(),
            watch: None,
            round_trips: BTreeMap::new(),
            others_know_sooner: false,
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
        let partition = self.open.get(&request).map_or(0, |op| op.partition);
        let by_clock = self.writes_in_one_round(now, partition);
        let Some(op) = self.open.get_mut(&request) else { return };
        (op.started, op.sent) = (now.monotonic, now.monotonic);
        op.attempt = 0;
        op.dependency = dependency;
        op.phase = match &op.work {
            Work::Fence(outcome) => {
                let outcome = outcome.clone();
                return self.complete(now, request, outcome, Cost::default(), out);
            }
            Work::List { .. } => Phase::Listing { replies: BTreeMap::new() },
            Work::Act { action, .. } => match action.class() {
                Class::Read if proxied => Phase::Proxied,
                Class::Read => Phase::Reading(Read::direct()),
                Class::Write if by_clock => {
                    self.write_by_clock(now, request, out);
                    return self.set_alarm(now, request, out);
                }
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
            Phase::Waiting | Phase::Passing { .. } => {}
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
            Phase::Waiting if self.unsettled.is_empty() => Outcome::Aborted(UNPASSED),
            Phase::Waiting => Outcome::Aborted("what this session has read is not on a majority yet"),
            Phase::Passing { .. } if op.work.is_read() => Outcome::Aborted(UNPASSED),
            Phase::Proxied | Phase::Reading(_) | Phase::Write1 { .. } | Phase::Listing { .. } => {
                Outcome::NoQuorum
            }
            // What was sent may take effect yet, and must not be sent again in another form.
            Phase::Write2 { .. } | Phase::Rmw { .. } => Outcome::LATE,
            Phase::Passing { .. } => Outcome::UNPASSED,
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
        if waited > cost.waited {
            cost.reason = "settling what was read before";
        }
        cost.waited += waited;
        out.output(Completion { request, outcome, cost });
    }

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

impl machine::Client for Client {
    type Message = Message;

    fn begin(&mut self, now: Now, id: RequestId, request: Request, out: &mut Out) {
        let group = &self.place.group;
        let (key, partition, work) = match request {
            Request::Act { key, action, at_ms, level: _ } => {
                let partition = group.partition_of(&key);
                (key, partition, Work::Act { action, at_ms })
            }
            Request::Fence => (Bytes::new(), 0, Work::Fence(Outcome::Fenced)),
            // What is settled is seen by whoever comes: there is nothing to tell.
            Request::Export => (Bytes::new(), 0, Work::Fence(Outcome::Exported(Context::default()))),
            Request::Enter | Request::Import(_) => {
                let (outcome, cost) = (Outcome::Done, Cost::default());
                return out.output(Completion { request: id, outcome, cost });
            }
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
            sent: 0,
            give_up: now.monotonic + self.engine.settings.operation_timeout,
            attempt: 0,
            dependency: None,
        };
        let may_begin = self.may_begin(now, &op);
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
            self.go_on(now, out);
        }
    }

    fn on_message(&mut self, now: Now, from: Address, message: Message, out: &mut Out) {
        let Address::Replica(ReplicaId { region: from, .. }) = from else { return };
        if from.0 >= self.place.group.regions {
            return;
        }
        self.let_pass(now, out);
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
                let outcome = answer.map_or(Outcome::FORGOTTEN, Outcome::Answer);
                let witness = matches!(outcome, Outcome::Answer(_)).then(|| carstamp.witness());
                let cost = Cost { rounds, witness, ..Cost::default() };
                self.tell(now, request, (Class::ReadModifyWrite, carstamp.ts), (outcome, cost), out);
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
            Message::Ahead { op } => {
                let Some(request) = own(op) else { return };
                self.on_refused(now, (request, from), out);
            }
            Message::Time { .. } => self.on_time(now, out),
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
                Alarm::Passing => self.on_passing_alarm(now, out),
            }
        }
        let open = |alarm: &Alarm| match alarm {
            Alarm::Request(request) => self.open.contains_key(request),
            Alarm::Settle(key) => self.unsettled.contains_key(key),
            Alarm::Passing => !self.passing.is_empty(),
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
        self.passing.clear();
        self.watch = None;
        self.seen = 0;
    }
}
