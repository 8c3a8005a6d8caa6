//! What clients ask for: writes, reads, snapshots, listings, fences.

use super::Flavour;
use super::message::{Attempt, Demand, Listed, Message, Seen, Step, Update};
use super::record::{Done, Record};
use super::replica::{Out, Replica, Waiting};
use super::vector::{Vector, VersionId};
use super::versions::Version;
use crate::clock::{Micros, Now};
use crate::machine::Level;
use crate::object::{self, Action, Answer, Command, Reply, State, apply};
use crate::planted::Planted;
use crate::topology::{Address, ClientId, ReplicaId};

/// The most keys in one page of a listing, unless more have the same hash.
const LIST_LIMIT: usize = 10_000;

impl Replica {
    // Writes (Contrarian Algorithm 2, lines 1 to 11; TCC Algorithm 2, corrected).

    pub(super) fn on_put(&mut self, now: Now, from: Address, message: Message, out: &mut Out) {
        let Message::Put { op, lane, step, dependencies, floor, at_ms } = message else { return };
        if let Some((_, done)) = self.lanes.get(&(op.client, lane))
            && done.request >= op.request
        {
            self.counters.duplicate += 1;
            // A lower number is over: its client has gone on without an answer.
            if done.request == op.request {
                out.send(from, Message::PutReply { op, reply: done.reply.clone(), ts: done.ts });
            }
            return;
        }
        let Some((value, reply)) = self.written(&step, at_ms) else { return };
        if self.engine.flavour == Flavour::Contrarian {
            self.stabilization.raise(&dependencies.clone().with(self.region(), 0));
        }
        let as_printed = self.engine.settings.plant.has(Planted::TimestampAboveOwnEntry);
        let above =
            if as_printed { dependencies.get(self.region()) } else { dependencies.highest().max(floor) };
        let ts = self.clock.tick(now, above);
        let done = Done { request: op.request, reply: reply.clone(), ts };
        out.output(Record::Lane(op.client, lane, Some(done.clone())));
        self.lanes.insert((op.client, lane), (now.monotonic, done));
        let id = VersionId { ts, region: self.region() };
        let vector = dependencies.with(self.region(), ts);
        let update = Update { key: step.key, id, vector, value };
        self.install(&update, out);
        self.counters.puts += 1;
        out.send(from, Message::PutReply { op, reply, ts });
        let messages = self.streams.append(now.monotonic, self.as_sent(update), ts);
        self.replicate(messages, out);
    }

    /// What a write leaves and answers; `None` if it is no blind one, which clients do not send. A deletion answers what
    /// can be seen here now: it is a write like others, and does not depend on that.
    fn written(&self, step: &Step, at_ms: u64) -> Option<(State, Reply)> {
        let action = Action::Command(step.command.clone());
        let (before, version) = match step.command {
            Command::Delete => self.look(&step.key, |version| self.is_stable(version)),
            Command::Set(_) => (None, object::Version::default()),
            _ => return None,
        };
        let (after, answer) = apply(&before, version, &action, at_ms);
        let Answer::One(reply) = answer else { return None };
        let after = if step.command == Command::Delete { None } else { after };
        Some((after, reply))
    }

    fn look(&self, key: &[u8], visible: impl Fn(&Version<Vector>) -> bool) -> (State, object::Version) {
        match self.versions.newest(key, visible) {
            Some(version) => (version.value.clone(), self.object_version(version.id)),
            None => (None, object::Version::default()),
        }
    }

    fn object_version(&self, id: VersionId) -> object::Version {
        object::Version(id.ts, u64::from(id.region.0), u32::from(self.id.partition))
    }

    /// Whether all that a version depends on elsewhere is here: then it may be seen.
    fn is_stable(&self, version: &Version<Vector>) -> bool {
        self.stabilization.stable().covers_but(&version.meta, self.region())
    }

    /// Adds a version, durably.
    pub(super) fn install(&mut self, update: &Update, out: &mut Out) {
        out.output(Record::of(update));
        let Update { key, id, vector, value } = update.clone();
        self.versions.insert(&key, Version { id, value, meta: vector });
    }

    /// A write as the other regions get it.
    fn as_sent(&self, mut update: Update) -> Update {
        if self.engine.settings.plant.has(Planted::VectorNotSent) {
            let regions = self.place.group.regions;
            update.vector = Vector::zero(regions).with(update.id.region, update.id.ts);
        }
        update
    }

    // Reads.

    /// A request that must see something: it is served now, or waits for that.
    pub(super) fn on_demand(&mut self, now: Now, from: Address, message: Message, out: &mut Out) {
        let (Some(attempt), Some(demand)) = (attempt_of(&message), demand_of(&message)) else { return };
        let alone = matches!(message, Message::Read { .. });
        if self.admits(demand, alone) {
            return self.serve(now, from, message, 0, out);
        }
        let key = (attempt.op.client, attempt.op.request);
        out.send(from, Message::Waiting { attempt });
        if let Some(waiting) = self.waiting.get_mut(&key) {
            // A retry waits since the first try.
            waiting.message = message;
            return;
        }
        self.count_wait(demand.level);
        let give_up = now.monotonic + self.engine.settings.operation_timeout;
        self.waiting.insert(key, Waiting { client: from, message, since: now.monotonic, give_up });
    }

    fn count_wait(&mut self, level: Level) {
        match level {
            Level::ReadYourWrites => self.counters.wait_read_your_writes += 1,
            Level::MonotonicReads => self.counters.wait_monotonic_reads += 1,
            Level::Eventual => self.counters.wait_eventual += 1,
            _ => self.counters.wait_causal += 1,
        }
    }

    /// Whether what must be seen can be seen here.
    ///
    /// In contrarian always: clients stay in their region, so that all they have seen of other regions has been stable
    /// in this one, and what is stable is here, although this replica may not have heard of it yet. Elsewhere a
    /// session may come from another region, and its word is no proof.
    fn admits(&mut self, demand: &Demand, alone: bool) -> bool {
        let region = self.id.region;
        self.clock.advance(demand.seen.get(region));
        match self.engine.flavour {
            Flavour::Contrarian => {
                self.stabilization.raise(&demand.seen.clone().with(region, 0));
                true
            }
            Flavour::Tcc if alone && self.engine.settings.plant.has(Planted::LevelsNotAwaited) => true,
            Flavour::Tcc => self.stabilization.stable().covers_but(&demand.seen, region),
        }
    }

    /// What is stable has moved on: serves what waited for it.
    pub(super) fn serve_waiting(&mut self, now: Now, out: &mut Out) {
        let ready: Vec<(ClientId, u64)> = self
            .waiting
            .iter()
            .filter(|(_, waiting)| {
                let demand = demand_of(&waiting.message);
                let seen = demand.map(|demand| &demand.seen);
                seen.is_some_and(|seen| self.stabilization.stable().covers_but(seen, self.region()))
            })
            .map(|(key, _)| *key)
            .collect();
        for key in ready {
            let Some(waiting) = self.waiting.remove(&key) else { continue };
            let waited = (now.monotonic - waiting.since).max(1);
            self.serve(now, waiting.client, waiting.message, waited, out);
        }
        self.answer_fences(out);
    }

    fn serve(&mut self, now: Now, client: Address, message: Message, waited: Micros, out: &mut Out) {
        self.clock.read(now);
        match message {
            Message::Read { attempt, demand, steps } => {
                let snapshot = self.snapshot_for(&demand, &steps);
                let seen = self.read(&snapshot, &steps, demand.at_ms);
                out.send(client, Message::Values { attempt, snapshot, seen, waited });
            }
            Message::Snapshot { attempt, .. } => {
                self.counters.snapshots += 1;
                let snapshot = self.snapshot();
                out.send(client, Message::SnapshotReply { attempt, snapshot, waited });
            }
            Message::Rot { attempt, demand, legs } => {
                let Address::Client(_, id) = client else { return };
                self.counters.snapshots += 1;
                let snapshot = self.snapshot();
                for leg in legs {
                    let to = ReplicaId { partition: leg.partition, ..self.id };
                    let read_at = Message::ReadAt {
                        attempt,
                        snapshot: snapshot.clone(),
                        steps: leg.steps,
                        at_ms: demand.at_ms,
                        waited,
                        client: Some(id),
                    };
                    if to == self.id {
                        self.on_read_at(client, read_at, out);
                    } else {
                        out.send(Address::Replica(to), read_at);
                    }
                }
            }
            Message::List { attempt, from, count, demand } => {
                let snapshot = self.snapshot();
                let page = (from, (count as usize).min(LIST_LIMIT), demand.at_ms);
                let (keys, next) = self.versions.list(page, |version| snapshot.covers(&version.meta));
                let keys = keys.into_iter().map(|(key, kind)| Listed { key, kind }).collect();
                out.send(client, Message::ListReply { attempt, keys, next });
            }
            // Nothing else makes a demand.
            _ => {}
        }
    }

    /// From which snapshot to read what one partition has alone.
    ///
    /// Of a single key tcc shows the newest version that is stable, and takes as the snapshot the least vector of which
    /// that is true: a session that moves on to another region waits there for what is in it.
    fn snapshot_for(&self, demand: &Demand, steps: &[Step]) -> Vector {
        let ([step], Flavour::Tcc) = (steps, self.engine.flavour) else { return self.snapshot() };
        let own = self.region();
        let stable = self.stabilization.stable();
        let version = self.versions.newest(&step.key, |version| self.is_stable(version));
        let seen = version.map_or(0, |version| version.meta.get(own));
        stable.clone().with(own, stable.get(own).max(seen).max(demand.seen.get(own)))
    }

    /// Reads from a snapshot: of each key the newest version that it covers (Algorithm 2, lines 20 to 28).
    fn read(&mut self, snapshot: &Vector, steps: &[Step], at_ms: u64) -> Vec<Seen> {
        self.counters.reads += steps.len() as u64;
        let told = self.engine.flavour == Flavour::Tcc;
        let one = |step: &Step| {
            let version = self.versions.newest(&step.key, |version| snapshot.covers(&version.meta));
            let nothing = None;
            let (value, id) = version.map_or((&nothing, None), |version| (&version.value, Some(version.id)));
            let named = id.map_or_else(object::Version::default, |id| self.object_version(id));
            let action = Action::Command(step.command.clone());
            let reply = match apply(value, named, &action, at_ms).1 {
                Answer::One(reply) => reply,
                Answer::Exec(_) | Answer::Version(_) => Reply::Nil,
            };
            let vector = version.filter(|_| told).map(|version| version.meta.clone());
            Seen { reply, id, vector }
        };
        steps.iter().map(one).collect()
    }

    /// A partition's part of a transaction. Nothing is waited for: the snapshot's remote entries were stable in this
    /// region, and a clock that is behind is moved on.
    pub(super) fn on_read_at(&mut self, client: Address, message: Message, out: &mut Out) {
        let Message::ReadAt { attempt, snapshot, steps, at_ms, waited, .. } = message else { return };
        if !snapshot.covers(&self.horizon) {
            self.counters.too_old += 1;
            let horizon = self.horizon.clone();
            return out.send(client, Message::TooOld { attempt, horizon });
        }
        if !self.engine.settings.plant.has(Planted::ClockNotMoved) {
            self.clock.advance(snapshot.get(self.id.region));
        }
        self.stabilization.raise(&snapshot.clone().with(self.id.region, 0));
        let seen = self.read(&snapshot, &steps, at_ms);
        out.send(client, Message::Values { attempt, snapshot, seen, waited });
    }

    // Fences.

    pub(super) fn on_fence(&mut self, now: Now, from: Address, message: Message, out: &mut Out) {
        let Message::Fence { attempt, vector } = &message else { return };
        let Address::Client(_, client) = from else { return };
        // Snapshots that are taken here from now on hold this region's part.
        self.clock.advance(vector.get(self.id.region));
        let give_up = now.monotonic + self.engine.settings.operation_timeout;
        self.fences.insert((client, attempt.op.request), (message, give_up));
        self.answer_fences(out);
    }

    fn answer_fences(&mut self, out: &mut Out) {
        let (stable, own, keyspace) = (self.stabilization.stable(), self.id.region, self.id.keyspace);
        self.fences.retain(|(client, _), (message, _)| {
            let Message::Fence { attempt, vector } = message else { return false };
            let visible = stable.covers_but(vector, own);
            if visible {
                out.send(Address::Client(keyspace, *client), Message::Fenced { attempt: *attempt });
            }
            !visible
        });
    }
}

fn demand_of(message: &Message) -> Option<&Demand> {
    match message {
        Message::Read { demand, .. }
        | Message::Snapshot { demand, .. }
        | Message::Rot { demand, .. }
        | Message::List { demand, .. } => Some(demand),
        _ => None,
    }
}

fn attempt_of(message: &Message) -> Option<Attempt> {
    match message {
        Message::Read { attempt, .. }
        | Message::Snapshot { attempt, .. }
        | Message::Rot { attempt, .. }
        | Message::List { attempt, .. } => Some(*attempt),
        _ => None,
    }
}
