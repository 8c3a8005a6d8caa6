//! What clients ask for: writes, reads, snapshots, listings, fences.

use super::message::{Attempt, Demand, Message, Seen, Step};
use super::record::Done;
use super::replica::{Out, Replica, Waiting};
use super::vector::{Vector, VersionId};
use super::versions::Version;
use super::{Flavour, Record, Update};
use crate::clock::{Micros, Now};
use crate::machine::Level;
use crate::object::{Command, Reply, State, execute};
use crate::planted::{Plant, Planted};
use crate::topology::{Address, ClientId, ReplicaId};

impl Replica {
    // Writes (Contrarian Algorithm 2, lines 1 to 11; TCC Algorithm 2, corrected).

    pub(super) fn on_put(&mut self, now: Now, from: Address, message: Message, out: &mut Out) {
        let Message::Put { op, lane, step, dependencies, floor, at_ms } = message else { return };
        if let Some(done) = self.lanes.covers(op, lane) {
            self.counters.duplicate += 1;
            if done.request == op.request {
                out.send(from, Message::PutReply { op, reply: done.reply.clone(), ts: done.ts });
            }
            return;
        }
        let Some((value, reply)) = self.written(&step, at_ms) else { return };
        if self.engine.flavour == Flavour::Contrarian {
            self.stabilization.raise(&dependencies, self.region());
        }
        let as_printed = self.engine.settings.plant.has(Planted::TimestampAboveOwnEntry);
        let above =
            if as_printed { dependencies.get(self.region()) } else { dependencies.highest().max(floor) };
        let ts = self.clock.tick(now, above);
        let done = Done { request: op.request, reply: reply.clone(), ts };
        out.output(Record::Lane(op.client, lane, Some(done.clone())));
        self.lanes.insert(now.monotonic, (op.client, lane), done);
        let id = VersionId { ts, region: self.region() };
        let dependencies = dependencies.with(self.region(), ts);
        let update = Update { key: step.key, id, dependencies, value };
        self.counters.puts += 1;
        out.send(from, Message::PutReply { op, reply, ts });
        let plant = self.engine.settings.plant;
        let messages = self.streams.append(now.monotonic, ts, || as_sent(&update, plant));
        self.replicate(messages, out);
        self.install(update, out);
    }

    /// What a write leaves and answers; `None` if it is no blind one, which clients do not send. A deletion answers what
    /// can be seen here now: it is a write like others, and does not depend on that.
    fn written(&self, step: &Step, at_ms: u64) -> Option<(State, Reply)> {
        match step.command {
            Command::Delete => {
                let before = self.versions.newest(&step.key, |version| self.is_stable(version));
                let before = before.map_or(&None, |version| &version.value);
                Some((None, execute(before, &step.command, at_ms).1))
            }
            Command::Set(_) => {
                let (after, reply) = execute(&None, &step.command, at_ms);
                Some((after.flatten(), reply))
            }
            _ => None,
        }
    }

    /// Whether all that a version depends on elsewhere is here: then it may be seen.
    fn is_stable(&self, version: &Version<Vector>) -> bool {
        self.shows(&version.meta)
    }

    /// Adds a version, durably.
    pub(super) fn install(&mut self, update: Update, out: &mut Out) {
        out.output(Record::of(&update));
        let Update { key, id, dependencies, value } = update;
        self.versions.insert(&key, Version { id, value, meta: dependencies });
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
                self.stabilization.raise(&demand.seen, region);
                true
            }
            Flavour::Tcc if alone && self.engine.settings.plant.has(Planted::LevelsNotAwaited) => true,
            Flavour::Tcc => self.shows(&demand.seen),
        }
    }

    /// What is stable has moved on: serves what waited for it.
    pub(super) fn serve_waiting(&mut self, now: Now, out: &mut Out) {
        let ready: Vec<(ClientId, u64)> = self
            .waiting
            .iter()
            .filter(|(_, waiting)| demand_of(&waiting.message).is_some_and(|demand| self.shows(&demand.seen)))
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
                let page = (from, count, demand.at_ms);
                let (keys, next) = self.versions.list(page, |version| snapshot.covers(&version.meta));
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
            let value = version.map_or(&None, |version| &version.value);
            let (_, reply) = execute(value, &step.command, at_ms);
            let vector = version.filter(|_| told).map(|version| version.meta.clone());
            Seen { reply, id: version.map(|version| version.id), vector }
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
        self.stabilization.raise(&snapshot, self.id.region);
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

/// A write as the other regions get it.
fn as_sent(update: &Update, plant: Plant) -> Update {
    let mut update = update.clone();
    if plant.has(Planted::VectorNotSent) {
        update.dependencies = update.dependencies.all(0).with(update.id.region, update.id.ts);
    }
    update
}
