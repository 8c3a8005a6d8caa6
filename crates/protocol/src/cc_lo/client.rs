//! The session side: reads in one round, and remembers what its next write depends on.

use super::message::{Dependency, Message, RotId};
use crate::alarms::Alarms;
use crate::causal::asked::{Asked, Reads, asked, told};
use crate::causal::message::{Attempt, Seen, Step};
use crate::causal::reading::Reading;
use crate::causal::vector::{Vector, VersionId};
use crate::clock::{Micros, Now};
use crate::history::Witness;
use crate::machine::{self, Completion, Context, Cost, Effects, OpId, Outcome, Place, Request, RequestId};
use crate::object::{Answer, Command, Reply};
use crate::planted::Planted;
use crate::registry::Settings;
use crate::results::Lanes;
use crate::topology::{Address, ClientId, Region, ReplicaId};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

type Out = Effects<Message, Completion>;

/// A session's machine, or one that the sessions of a node share.
#[derive(Clone, Debug)]
pub struct Client {
    id: ClientId,
    settings: Settings,
    place: Place,
    /// The highest clock that it has seen.
    clock: u64,
    /// Its last write and what it has read since: whatever else it has seen these depend on.
    dependencies: BTreeSet<Dependency>,
    open: BTreeMap<RequestId, Op>,
    /// Transactions under way, by their numbers.
    rots: BTreeMap<u64, RequestId>,
    next_rot: u64,
    lanes: Lanes,
    alarms: Alarms<RequestId>,
}

#[derive(Clone, Debug)]
struct Op {
    work: Work,
    /// A lane that it has taken.
    lane: Option<u32>,
    give_up: Micros,
}

#[derive(Clone, Debug)]
enum Work {
    Write {
        key: Bytes,
        partition: u16,
        put: Message,
    },
    Read {
        reading: Reading,
        what: Reads,
        rot: RotId,
        deadline: Micros,
    },
    List {
        partition: u16,
        from: u64,
        count: u32,
        at_ms: u64,
    },
    /// Until these replicas have installed all that the session depends on; then it has ended so.
    Fence {
        missing: BTreeMap<(Region, u16), Vec<Dependency>>,
        outcome: Outcome,
    },
    /// All regions have it. What is told to another session waits until every transaction is over that may have read
    /// anything older: nobody will ask whether the other's writes are hidden from those.
    Outlast {
        until: Micros,
    },
}

impl Client {
    pub(super) fn new(settings: Settings, id: ClientId, place: Place) -> Self {
        Self {
            id,
            settings,
            place,
            clock: 0,
            dependencies: BTreeSet::new(),
            open: BTreeMap::new(),
            rots: BTreeMap::new(),
            next_rot: 1,
            lanes: Lanes::default(),
            alarms: Alarms::new(),
        }
    }

    fn replica(&self, partition: u16) -> Address {
        Address::Replica(self.place.group.replica(partition, self.place.region()))
    }

    fn write(&mut self, request: RequestId, step: Step, at_ms: u64) -> (Work, Option<u32>) {
        let lane = self.lanes.take();
        let (key, partition) = (step.key.clone(), self.place.group.partition_of(&step.key));
        let op = OpId { client: self.id, request };
        let dependencies = self.dependencies.iter().cloned().collect();
        let put = Message::Put { op, lane, step, dependencies, clock: self.clock, at_ms };
        (Work::Write { key, partition, put }, Some(lane))
    }

    fn read(&mut self, steps: Vec<(Bytes, Command)>, what: Reads) -> (Work, Option<u32>) {
        let reading = Reading::new(&self.place.group, steps);
        let lane = self.lanes.take();
        // It is given a number when it is sent.
        let rot = RotId { client: self.id, lane, number: 0 };
        (Work::Read { reading, what, rot, deadline: 0 }, Some(lane))
    }

    /// What a request needs done, or how it ends at once.
    fn work(&mut self, id: RequestId, asked: Asked) -> Result<(Work, Option<u32>), Outcome> {
        match asked {
            Asked::Write { step, at_ms, .. } => Ok(self.write(id, step, at_ms)),
            Asked::Read { steps, what } => Ok(self.read(steps, what)),
            Asked::Fence => self.fence(Outcome::Fenced),
            // Nothing is told of what sessions have seen, so that there is nothing to wait for.
            Asked::Await(_) => Err(Outcome::Done),
            Asked::List { partition, from, count, at_ms } => {
                Ok((Work::List { partition, from, count, at_ms }, None))
            }
        }
    }

    /// Everything it depends on is to be installed in every region, and so is then all that this depends on. Ends so at once
    /// if there is nothing.
    fn fence(&self, outcome: Outcome) -> Result<(Work, Option<u32>), Outcome> {
        let mut missing: BTreeMap<(Region, u16), Vec<Dependency>> = BTreeMap::new();
        for dependency in &self.dependencies {
            let partition = self.place.group.partition_of(&dependency.key);
            for region in (0..self.place.group.regions).map(Region) {
                missing.entry((region, partition)).or_default().push(dependency.clone());
            }
        }
        if missing.is_empty() { Err(outcome) } else { Ok((Work::Fence { missing, outcome }, None)) }
    }

    /// Gives a transaction a new number and all its time.
    fn restart(&mut self, now: Now, request: RequestId) {
        let number = self.next_rot;
        let kept = self.settings.cc_lo.readers_kept;
        let Some(Op { work: Work::Read { reading, rot, deadline, .. }, .. }) = self.open.get_mut(&request)
        else {
            return;
        };
        self.next_rot += 1;
        self.rots.remove(&rot.number);
        self.rots.insert(number, request);
        rot.number = number;
        // What partitions know of it they forget `readers_kept` after it came there, which was later than now; a tenth
        // is for clocks that do not run equally fast.
        *deadline = now.monotonic + kept - kept / 10;
        reading.restart();
    }

    /// Sends what the request still needs.
    fn send(&self, request: RequestId, out: &mut Out) {
        let Some(op) = self.open.get(&request) else { return };
        let attempt = Attempt { op: OpId { client: self.id, request }, number: 0 };
        match &op.work {
            Work::Write { partition, put, .. } => out.send(self.replica(*partition), put.clone()),
            Work::Read { reading, what, rot, .. } => {
                let spread = reading.only_leg().is_none();
                for (partition, steps) in reading.open_legs() {
                    let (rot, steps, clock, at_ms) = (*rot, steps.to_vec(), self.clock, what.at_ms);
                    let read = Message::Read { rot, steps, spread, clock, at_ms };
                    out.send(self.replica(partition), read);
                }
            }
            Work::List { partition, from, count, at_ms } => {
                let (from, count, at_ms) = (*from, *count, *at_ms);
                out.send(self.replica(*partition), Message::List { attempt, from, count, at_ms });
            }
            Work::Fence { missing, .. } => {
                for ((region, partition), dependencies) in missing {
                    let to = Address::Replica(self.place.group.replica(*partition, *region));
                    out.send(to, Message::Fence { attempt, dependencies: dependencies.clone() });
                }
            }
            Work::Outlast { .. } => {}
        }
    }

    fn set_alarm(&mut self, now: Now, request: RequestId, out: &mut Out) {
        let Some(op) = self.open.get(&request) else { return };
        let after = match op.work {
            // Its time is short: what is lost must be sent again within it.
            Work::Read { .. } => self.settings.retry.min(self.settings.cc_lo.readers_kept / 4),
            _ => self.settings.retry,
        };
        let end = if let Work::Outlast { until } = op.work { until } else { op.give_up };
        let at = (now.monotonic + after).min(end.max(now.monotonic + 1));
        self.alarms.set(at, request, out);
    }

    fn on_alarm(&mut self, now: Now, request: RequestId, out: &mut Out) {
        let Some(op) = self.open.get(&request) else { return };
        if let Work::Outlast { until } = op.work {
            if now.monotonic >= until {
                let outcome = Outcome::Exported(Context::default());
                return self.complete(request, outcome, Cost { rounds: 1, ..Cost::default() }, out);
            }
        } else if now.monotonic >= op.give_up {
            let outcome = match op.work {
                Work::Write { .. } => Outcome::LATE,
                Work::Fence { .. } => {
                    Outcome::Aborted("what this session has seen is not visible in every region yet")
                }
                Work::Read { .. } | Work::List { .. } | Work::Outlast { .. } => Outcome::NoQuorum,
            };
            return self.complete(request, outcome, Cost::default(), out);
        }
        if matches!(op.work, Work::Read { deadline, .. } if now.monotonic >= deadline) {
            self.restart(now, request);
        }
        self.send(request, out);
        self.set_alarm(now, request, out);
    }

    fn complete(&mut self, request: RequestId, outcome: Outcome, cost: Cost, out: &mut Out) {
        let Some(op) = self.open.remove(&request) else { return };
        if let Some(lane) = op.lane {
            self.lanes.release(lane);
        }
        if let Work::Read { rot, .. } = op.work {
            self.rots.remove(&rot.number);
        }
        out.output(Completion { request, outcome, cost });
    }

    fn on_put_reply(&mut self, request: RequestId, reply: Reply, ts: u64, out: &mut Out) {
        let Some(Op { work: Work::Write { key, partition, put }, .. }) = self.open.get(&request) else {
            return;
        };
        let id = VersionId { ts, region: self.place.region() };
        self.clock = self.clock.max(ts);
        let Message::Put { dependencies, .. } = put else { return };
        // The write stands for all that it depends on; what was read meanwhile stays.
        for dependency in dependencies {
            self.dependencies.remove(dependency);
        }
        self.dependencies.insert(Dependency { key: key.clone(), id });
        let witness = Some(Witness::Put { at: id.of_partition(*partition), vc: Vec::new() });
        let outcome = Outcome::Answer(Answer::One(reply));
        self.complete(request, outcome, Cost { witness, ..Cost::default() }, out);
    }

    fn on_values(
        &mut self,
        now: Now,
        partition: u16,
        (rot, seen, clock): (RotId, Vec<Seen>, u64),
        out: &mut Out,
    ) {
        self.clock = self.clock.max(clock);
        let Some(request) = self.rots.get(&rot.number).copied() else { return };
        let Some(Op { work: Work::Read { reading, what, deadline, .. }, .. }) = self.open.get_mut(&request)
        else {
            return;
        };
        if reading.only_leg().is_none() && now.monotonic >= *deadline {
            // Some partition may have forgotten it, and shown what it should not see.
            self.restart(now, request);
            return self.send(request, out);
        }
        reading.answer(partition, Vector::default(), seen, 0);
        let Some((_, seen)) = reading.complete() else { return };
        let (at, what, keys) = (reading.versions(&seen), *what, reading.keys());
        for (key, seen) in keys.into_iter().zip(&seen) {
            if let Some(id) = seen.id {
                self.dependencies.insert(Dependency { key, id });
            }
        }
        let witness = Some(Witness::Got { at, sv: Vec::new() });
        self.complete(request, told(what, seen), Cost { witness, ..Cost::default() }, out);
    }

    fn on_fenced(&mut self, now: Now, request: RequestId, from: ReplicaId, out: &mut Out) {
        let Some(op) = self.open.get_mut(&request) else { return };
        let Work::Fence { missing, outcome } = &mut op.work else { return };
        missing.remove(&(from.region, from.partition));
        if !missing.is_empty() {
            return;
        }
        if *outcome == Outcome::Fenced {
            return self.complete(request, Outcome::Fenced, Cost { rounds: 1, ..Cost::default() }, out);
        }
        let at_once = self.settings.plant.has(Planted::ExportAtOnce);
        let until = now.monotonic + if at_once { 0 } else { self.settings.cc_lo.readers_kept };
        op.work = Work::Outlast { until };
        self.set_alarm(now, request, out);
    }
}

impl machine::Client for Client {
    type Message = Message;

    fn begin(&mut self, now: Now, id: RequestId, request: Request, out: &mut Out) {
        let complete = |outcome| Completion { request: id, outcome, cost: Cost::default() };
        let work = match request {
            Request::Export => self.fence(Outcome::Exported(Context::default())),
            Request::Import(context) if context.0.is_empty() => Err(Outcome::Done),
            request => asked(request).and_then(|asked| self.work(id, asked)),
        };
        match work {
            Ok((work, lane)) => {
                let give_up = now.monotonic + self.settings.operation_timeout;
                self.open.insert(id, Op { work, lane, give_up });
                self.restart(now, id);
                self.send(id, out);
                self.set_alarm(now, id, out);
            }
            Err(outcome) => out.output(complete(outcome)),
        }
    }

    fn on_message(&mut self, now: Now, from: Address, message: Message, out: &mut Out) {
        let Address::Replica(from) = from else { return };
        match message {
            Message::PutReply { op, reply, ts } if op.client == self.id => {
                self.on_put_reply(op.request, reply, ts, out);
            }
            Message::Values { rot, seen, clock } if rot.client == self.id => {
                self.on_values(now, from.partition, (rot, seen, clock), out);
            }
            Message::ListReply { attempt, keys, next } if attempt.op.client == self.id => {
                let page = keys.into_iter().map(|listed| (listed.key, listed.kind.as_str())).collect();
                self.complete(attempt.op.request, Outcome::Page(page, next), Cost::default(), out);
            }
            Message::Fenced { attempt } if attempt.op.client == self.id => {
                self.on_fenced(now, attempt.op.request, from, out);
            }
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

    /// Sessions stay in their region: what they have seen is installed there and perhaps nowhere else.
    fn on_regions(&mut self, _: u16, _: &[Region]) {}

    fn end_session(&mut self) {
        self.open.clear();
        self.rots.clear();
        self.lanes.clear();
        self.dependencies.clear();
    }
}
