//! The session side: asks the replicas of one region, and remembers what the session's guarantees need.

use super::asked::{Asked, Reads, asked, told};
use super::message::{Attempt, Demand, Message, Seen, Step};
use super::reading::Reading;
use super::session::Session;
use super::vector::{Vector, VersionId};
use super::{Causal, Flavour, Rounds};
use crate::alarms::Alarms;
use crate::clock::{Micros, Now};
use crate::history::Witness;
use crate::machine::{
    self, Completion, Context, Cost, Effects, FOREIGN_CONTEXT, Level, OpId, Outcome, Place, Request,
    RequestId,
};
use crate::object::{Answer, Command, Reply};
use crate::results::Lanes;
use crate::topology::{Address, ClientId, Region, ReplicaId};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

type Out = Effects<Message, Completion>;

/// A session's machine, or one that the sessions of a node share.
#[derive(Clone, Debug)]
pub struct Client {
    id: ClientId,
    engine: Causal,
    place: Place,
    session: Session,
    /// For each partition the region to ask, where that is another than the own one (tcc).
    moved: BTreeMap<u16, Region>,
    open: BTreeMap<RequestId, Op>,
    /// Of writes in flight.
    lanes: Lanes,
    alarms: Alarms<RequestId>,
}

#[derive(Clone, Debug)]
struct Op {
    work: Work,
    /// The region that it goes to, all of it.
    region: Region,
    give_up: Micros,
    /// Which snapshot this is: another one is taken when the last turns out to be too old.
    attempt: u32,
    /// A replica has said that the request waits there.
    waits: bool,
}

#[derive(Clone, Debug)]
enum Work {
    Write {
        partition: u16,
        lane: u32,
        put: Message,
        dependencies: Vector,
    },
    Read {
        reading: Reading,
        what: Reads,
        demand: Demand,
    },
    List {
        partition: u16,
        from: u64,
        count: u32,
        demand: Demand,
    },
    /// Until these replicas show all of it.
    Fence {
        vector: Vector,
        missing: BTreeSet<(Region, u16)>,
        then: Then,
    },
}

/// What happens once replicas show all of a vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    /// The fence has ended.
    Fenced,
    /// The session goes on after another one, of which the vector is.
    Import,
}

impl Client {
    pub(super) fn new(engine: Causal, id: ClientId, place: Place) -> Self {
        Self {
            id,
            session: Session::new(engine.flavour, place.group.regions),
            engine,
            place,
            moved: BTreeMap::new(),
            open: BTreeMap::new(),
            lanes: Lanes::default(),
            alarms: Alarms::new(),
        }
    }

    fn region(&self, partition: u16) -> Region {
        self.moved.get(&partition).copied().unwrap_or_else(|| self.place.region())
    }

    fn op_id(&self, request: RequestId) -> OpId {
        OpId { client: self.id, request }
    }

    // Beginning.

    fn write(&mut self, request: RequestId, step: Step, (at_ms, level): (u64, Level)) -> Op {
        let partition = self.place.group.partition_of(&step.key);
        let (dependencies, floor) = self.session.dependencies(level);
        let lane = self.lanes.take();
        let op = self.op_id(request);
        let put = Message::Put { op, lane, step, dependencies: dependencies.clone(), floor, at_ms };
        Op::new(self.region(partition), Work::Write { partition, lane, put, dependencies })
    }

    fn read(&self, request: RequestId, steps: Vec<(Bytes, Command)>, what: Reads) -> Op {
        let reading = Reading::new(&self.place.group, steps);
        let region = self.region(reading.coordinator(request));
        let demand = self.demand(what.level, what.at_ms);
        Op::new(region, Work::Read { reading, what, demand })
    }

    fn demand(&self, level: Level, at_ms: u64) -> Demand {
        Demand { seen: self.session.demand(level), level, at_ms }
    }

    /// What a request needs done.
    fn op(&mut self, id: RequestId, asked: Asked) -> Op {
        match asked {
            Asked::Write { step, at_ms, level } => self.write(id, step, (at_ms, level)),
            Asked::Read { steps, what } => self.read(id, steps, what),
            Asked::Fence => {
                let group = &self.place.group;
                let regions = (0..group.regions).map(Region);
                let all = regions.flat_map(|region| (0..group.partitions).map(move |p| (region, p)));
                let missing = all.collect();
                let (vector, then) = (self.session.past(), Then::Fenced);
                Op::new(self.place.region(), Work::Fence { vector, missing, then })
            }
            Asked::Await(vector) => {
                // What one partition of the region shows has reached all of them.
                let missing = BTreeSet::from([(self.place.region(), 0)]);
                Op::new(self.place.region(), Work::Fence { vector, missing, then: Then::Import })
            }
            Asked::List { partition, from, count, at_ms } => {
                let demand = self.demand(Level::Causal, at_ms);
                Op::new(self.region(partition), Work::List { partition, from, count, demand })
            }
        }
    }

    /// Sends what the request still needs.
    fn send(&self, request: RequestId, out: &mut Out) {
        let Some(op) = self.open.get(&request) else { return };
        let attempt = Attempt { op: self.op_id(request), number: op.attempt };
        let to = |region, partition| Address::Replica(self.place.group.replica(partition, region));
        match &op.work {
            Work::Write { partition, put, .. } => out.send(to(op.region, *partition), put.clone()),
            Work::Read { reading, demand, .. } => self.send_read(request, op, (reading, demand), out),
            Work::List { partition, from, count, demand } => {
                let (from, count, demand) = (*from, *count, demand.clone());
                out.send(to(op.region, *partition), Message::List { attempt, demand, from, count });
            }
            Work::Fence { vector, missing, .. } => {
                for (region, partition) in missing {
                    out.send(to(*region, *partition), Message::Fence { attempt, vector: vector.clone() });
                }
            }
        }
    }

    fn send_read(&self, request: RequestId, op: &Op, (reading, demand): (&Reading, &Demand), out: &mut Out) {
        let attempt = Attempt { op: self.op_id(request), number: op.attempt };
        let to = |partition| Address::Replica(self.place.group.replica(partition, op.region));
        let demand = demand.clone();
        if let Some((partition, steps)) = reading.only_leg() {
            let steps = steps.to_vec();
            return out.send(to(partition), Message::Read { attempt, demand, steps });
        }
        let Some(snapshot) = &reading.snapshot else {
            let question = match self.rounds_of(reading) {
                Rounds::OneAndAHalf => Message::Rot { attempt, demand, legs: reading.all_legs() },
                Rounds::Two => Message::Snapshot { attempt, demand },
            };
            return out.send(to(reading.coordinator(request)), question);
        };
        for (partition, steps) in reading.open_legs() {
            let (snapshot, steps) = (snapshot.clone(), steps.to_vec());
            let (at_ms, waited, client) = (demand.at_ms, 0, None);
            let read_at = Message::ReadAt { attempt, snapshot, steps, at_ms, waited, client };
            out.send(to(partition), read_at);
        }
    }

    fn rounds_of(&self, reading: &Reading) -> Rounds {
        if reading.late { Rounds::OneAndAHalf } else { self.engine.settings.causal.rounds }
    }

    fn set_alarm(&mut self, now: Now, request: RequestId, out: &mut Out) {
        if let Some(op) = self.open.get(&request) {
            let at = (now.monotonic + self.engine.settings.retry).min(op.give_up.max(now.monotonic + 1));
            self.alarms.set(at, request, out);
        }
    }

    /// Asks again for what was not answered. The question stays the same, and the snapshot that is known is kept: who is
    /// further away than `retry` hears no answer before it has asked once more.
    fn on_alarm(&mut self, now: Now, request: RequestId, out: &mut Out) {
        let Some(op) = self.open.get(&request) else { return };
        if now.monotonic >= op.give_up {
            let outcome = op.timed_out();
            return self.complete(request, outcome, Cost::default(), out);
        }
        self.send(request, out);
        self.set_alarm(now, request, out);
    }

    fn complete(&mut self, request: RequestId, outcome: Outcome, cost: Cost, out: &mut Out) {
        let Some(op) = self.open.remove(&request) else { return };
        if let Work::Write { lane, .. } = op.work {
            self.lanes.release(lane);
        }
        out.output(Completion { request, outcome, cost });
    }

    // Answers.

    fn on_put_reply(&mut self, request: RequestId, reply: Reply, ts: u64, out: &mut Out) {
        let Some(Op { work: Work::Write { partition, dependencies, .. }, region, .. }) =
            self.open.get(&request)
        else {
            return;
        };
        let vector = dependencies.clone().with(*region, ts);
        let at = VersionId { ts, region: *region }.of_partition(*partition);
        let rounds = self.rounds(*region);
        self.session.wrote(&vector);
        let witness = Some(Witness::Put { at, vc: vector.to_vec() });
        let cost = Cost { rounds, witness, ..Cost::default() };
        self.complete(request, Outcome::Answer(Answer::One(reply)), cost, out);
    }

    /// Wide-area round trips of an operation.
    fn rounds(&self, region: Region) -> u32 {
        u32::from(region != self.place.region())
    }

    /// The reading that an answer belongs to, if it is of the current attempt.
    fn reading(&mut self, attempt: Attempt) -> Option<(&mut Reading, &mut Demand)> {
        let op = self.open.get_mut(&attempt.op.request).filter(|op| op.attempt == attempt.number)?;
        match &mut op.work {
            Work::Read { reading, demand, .. } => Some((reading, demand)),
            _ => None,
        }
    }

    fn on_snapshot_reply(&mut self, attempt: Attempt, snapshot: Vector, waited: Micros, out: &mut Out) {
        let Some((reading, _)) = self.reading(attempt) else { return };
        if reading.snapshot.is_none() {
            reading.snapshot = Some(snapshot);
            reading.waited = waited;
            self.send(attempt.op.request, out);
        }
    }

    fn on_values(
        &mut self,
        attempt: Attempt,
        partition: u16,
        (snapshot, seen, waited): (Vector, Vec<Seen>, Micros),
        out: &mut Out,
    ) {
        let Some((reading, _)) = self.reading(attempt) else { return };
        reading.answer(partition, snapshot, seen, waited);
        let waited = reading.waited;
        let Some((snapshot, seen)) = reading.complete() else { return };
        let request = attempt.op.request;
        let Some(Op { work: Work::Read { reading, what, .. }, region, .. }) = self.open.get(&request) else {
            return;
        };
        let (what, rounds) = (*what, self.rounds(*region));
        let at = reading.versions(&seen);
        self.session.saw(&snapshot, seen.iter().filter_map(|seen| seen.vector.as_ref()));
        let reason = if waited > 0 { "what this session has seen was not here yet" } else { "" };
        let witness = Some(Witness::Got { at, sv: snapshot.to_vec() });
        self.complete(request, told(what, seen), Cost { rounds, waited, reason, witness }, out);
    }

    /// The snapshot was too old: takes another one, which is not below what was said.
    fn on_too_old(&mut self, attempt: Attempt, horizon: &Vector, out: &mut Out) {
        let Some((reading, demand)) = self.reading(attempt) else { return };
        demand.seen.join(horizon);
        reading.late = true;
        reading.restart();
        if let Some(op) = self.open.get_mut(&attempt.op.request) {
            op.attempt += 1;
        }
        self.send(attempt.op.request, out);
    }

    fn on_fenced(&mut self, attempt: Attempt, from: ReplicaId, out: &mut Out) {
        let request = attempt.op.request;
        let Some(Op { work: Work::Fence { missing, vector, then }, .. }) = self.open.get_mut(&request) else {
            return;
        };
        missing.remove(&(from.region, from.partition));
        if !missing.is_empty() {
            return;
        }
        let (outcome, rounds) = match then {
            Then::Fenced => (Outcome::Fenced, 1),
            Then::Import => {
                self.session.follow(vector);
                (Outcome::Done, 0)
            }
        };
        self.complete(request, outcome, Cost { rounds, ..Cost::default() }, out);
    }

    /// Goes on after another session. One of tcc waits, where it must, when it reads. One of contrarian never waits then,
    /// so what the other has seen must have reached this region first.
    fn import(&mut self, now: Now, id: RequestId, context: &Context, out: &mut Out) {
        let done = |outcome| Completion { request: id, outcome, cost: Cost::default() };
        let regions = usize::from(self.place.group.regions);
        match (self.engine.flavour, context.0.len()) {
            (_, 0) => out.output(done(Outcome::Done)),
            (Flavour::Tcc, entries) if entries == 3 * regions => {
                self.session.join(context);
                out.output(done(Outcome::Done));
            }
            (Flavour::Contrarian, entries) if entries == regions => {
                self.start(now, id, Asked::Await(Vector::of(context.0.clone())), out);
            }
            _ => out.output(done(Outcome::Aborted(FOREIGN_CONTEXT))),
        }
    }

    fn start(&mut self, now: Now, id: RequestId, asked: Asked, out: &mut Out) {
        let op = self.op(id, asked);
        let give_up = now.monotonic + self.engine.settings.operation_timeout;
        self.open.insert(id, Op { give_up, ..op });
        self.send(id, out);
        self.set_alarm(now, id, out);
    }
}

impl Op {
    fn new(region: Region, work: Work) -> Self {
        Self { work, region, give_up: 0, attempt: 0, waits: false }
    }

    fn timed_out(&self) -> Outcome {
        match self.work {
            Work::Write { .. } => Outcome::LATE,
            Work::Fence { then: Then::Fenced, .. } => {
                Outcome::Aborted("what this session has seen is not visible in every region yet")
            }
            Work::Fence { then: Then::Import, .. } => {
                Outcome::Aborted("what the context's session has seen has not reached this region yet")
            }
            _ if self.waits => Outcome::Aborted("what this session has seen has not reached this region yet"),
            _ => Outcome::NoQuorum,
        }
    }
}

impl machine::Client for Client {
    type Message = Message;

    fn begin(&mut self, now: Now, id: RequestId, request: Request, out: &mut Out) {
        match request {
            Request::Import(context) => return self.import(now, id, &context, out),
            Request::Export => {
                let outcome = Outcome::Exported(self.session.context());
                return out.output(Completion { request: id, outcome, cost: Cost::default() });
            }
            _ => {}
        }
        match asked(request) {
            Ok(asked) => self.start(now, id, asked, out),
            Err(outcome) => out.output(Completion { request: id, outcome, cost: Cost::default() }),
        }
    }

    fn on_message(&mut self, _: Now, from: Address, message: Message, out: &mut Out) {
        let Address::Replica(from) = from else { return };
        let own = |op: OpId| op.client == self.id;
        match message {
            Message::PutReply { op, reply, ts } if own(op) => {
                self.on_put_reply(op.request, reply, ts, out);
            }
            Message::SnapshotReply { attempt, snapshot, waited } if own(attempt.op) => {
                self.on_snapshot_reply(attempt, snapshot, waited, out);
            }
            Message::Values { attempt, snapshot, seen, waited } if own(attempt.op) => {
                self.on_values(attempt, from.partition, (snapshot, seen, waited), out);
            }
            Message::TooOld { attempt, horizon } if own(attempt.op) => {
                self.on_too_old(attempt, &horizon, out);
            }
            Message::Waiting { attempt } if own(attempt.op) => {
                if let Some(op) = self.open.get_mut(&attempt.op.request) {
                    op.waits = true;
                }
            }
            Message::ListReply { attempt, keys, next } if own(attempt.op) => {
                let page = keys.into_iter().map(|listed| (listed.key, listed.kind.as_str())).collect();
                self.complete(attempt.op.request, Outcome::Page(page, next), Cost::default(), out);
            }
            Message::Fenced { attempt } if own(attempt.op) => self.on_fenced(attempt, from, out),
            // Not for this client.
            _ => {}
        }
    }

    fn on_wake(&mut self, now: Now, out: &mut Out) {
        while let Some(request) = self.alarms.take_due(now.monotonic) {
            self.on_alarm(now, request, out);
        }
        let open = &self.open;
        self.alarms.rearm(|request| open.contains_key(request), out);
    }

    /// A session of tcc goes on in another region when its own cannot be reached. Contrarian's stays: of what it has seen
    /// another region may lack something, and only its own is sure to have it.
    fn on_regions(&mut self, partition: u16, nearest_first: &[Region]) {
        if let (Flavour::Tcc, Some(nearest)) = (self.engine.flavour, nearest_first.first()) {
            self.moved.insert(partition, *nearest);
        }
    }

    fn end_session(&mut self) {
        self.open.clear();
        self.lanes.clear();
        self.session.clear();
    }
}
