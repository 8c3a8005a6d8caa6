//! Writes on their way to being visible: the readers check, and in other regions the dependency check that goes with it.

use super::message::{Dependency, Message, RotId, Ticket};
use super::readers::Installed;
use super::replica::{Out, Replica};
use super::{Record, Update};
use crate::causal::message::{Attempt, Step};
use crate::causal::record::Done;
use crate::causal::vector::VersionId;
use crate::causal::versions::Version;
use crate::clock::{Micros, Now};
use crate::machine::OpId;
use crate::object::{Command, Reply, State, execute};
use crate::planted::Planted;
use crate::topology::{Address, Region, ReplicaId};
use std::collections::BTreeMap;

/// A write that waits until its checks are answered.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) what: What,
    pub(super) dependencies: Vec<Dependency>,
    /// What has not been answered, by partition.
    pub(super) missing: BTreeMap<u16, Vec<Dependency>>,
    /// The transactions that must not see it, with the clocks of their reads.
    pub(super) old_readers: BTreeMap<RotId, u64>,
    /// When to ask again, and how long to wait after that: longer each time, as it is load that makes answers late more
    /// often than loss.
    pub(super) again: (Micros, Micros),
}

/// Whose write it is.
#[derive(Clone, Debug)]
pub(super) enum What {
    /// A client's.
    Put { client: Address, op: OpId, lane: u32, step: Step, at_ms: u64, give_up: Micros },
    /// Another region's.
    Write(Update),
}

/// Who waits for dependencies to be installed here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Asker {
    /// A partition with a check.
    Check(Ticket),
    /// A client with a fence.
    Fence(Attempt),
}

/// An asker's dependencies, and one of them that it waits for: it is looked at again when that is over.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    dependencies: Vec<Dependency>,
    blocker: Blocker,
    /// When it asked last.
    since: Micros,
}

/// What an asker waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Blocker {
    /// Right after a restart it is not known who has read what.
    Silence,
    /// A write of another region has not come.
    Arrival(Region, u64),
    /// It has come, and is not visible.
    Install(VersionId),
}

/// The longest time between two questions, as so many times the first.
const LONGEST_WAIT: Micros = 32;

impl Replica {
    // At the partition of the write.

    pub(super) fn on_put(&mut self, now: Now, client: Address, message: Message, out: &mut Out) {
        let Message::Put { op, lane, step, dependencies, at_ms, .. } = message else { return };
        if let Some(done) = self.lanes.covers(op, lane) {
            self.counters.duplicate += 1;
            if done.request == op.request {
                out.send(client, Message::PutReply { op, reply: done.reply.clone(), ts: done.ts });
            }
            return;
        }
        let blind = matches!(step.command, Command::Set(_) | Command::Delete);
        if !blind || self.pending.contains_key(&Ticket::Put(op)) {
            return;
        }
        // Whatever the lane asked before is over.
        if let Some(before) = self.putting.insert((op.client, lane), op) {
            self.pending.remove(&Ticket::Put(before));
        }
        let give_up = now.monotonic + self.settings.operation_timeout;
        let what = What::Put { client, op, lane, step, at_ms, give_up };
        self.note_pending(now, Ticket::Put(op), (what, dependencies));
        self.send_checks(Ticket::Put(op), out);
        self.finish_checked(now, Ticket::Put(op), out);
    }

    /// Writes of other regions have come. None of them counts as installed before its own checks are answered.
    pub(super) fn begin_installs(&mut self, now: Now, updates: Vec<Update>, out: &mut Out) {
        let tickets: Vec<Ticket> = updates.iter().map(|update| Ticket::Write(update.id)).collect();
        for update in updates {
            let dependencies = update.dependencies.clone();
            self.note_pending(now, Ticket::Write(update.id), (What::Write(update), dependencies));
        }
        for ticket in tickets {
            self.send_checks(ticket, out);
            self.finish_checked(now, ticket, out);
        }
    }

    fn note_pending(&mut self, now: Now, ticket: Ticket, (what, dependencies): (What, Vec<Dependency>)) {
        let mut missing: BTreeMap<u16, Vec<Dependency>> = BTreeMap::new();
        for dependency in &dependencies {
            let partition = self.place.group.partition_of(&dependency.key);
            missing.entry(partition).or_default().push(dependency.clone());
        }
        self.counters.checks += 1;
        self.counters.check_partitions += missing.len() as u64;
        self.counters.check_keys += dependencies.len() as u64;
        if self.settings.plant.has(Planted::SkipReadersCheck) && matches!(ticket, Ticket::Put(_)) {
            missing.clear();
        }
        let old_readers = BTreeMap::new();
        let again = (now.monotonic + self.settings.retry, self.settings.retry);
        self.pending.insert(ticket, Pending { what, dependencies, missing, old_readers, again });
    }

    /// Asks again for what has been missing for long; and forgets askers that have not come back.
    pub(super) fn retry_checks(&mut self, now: Now, out: &mut Out) {
        let longest = LONGEST_WAIT * self.settings.retry;
        let mut due = Vec::new();
        for (ticket, Pending { again: (at, wait), .. }) in &mut self.pending {
            if *at <= now.monotonic {
                *wait = (*wait * 2).min(longest);
                *at = now.monotonic + *wait;
                due.push(*ticket);
            }
        }
        for ticket in due {
            self.send_checks(ticket, out);
            self.finish_checked(now, ticket, out);
        }
        let kept = now.monotonic.saturating_sub(2 * longest);
        let gone: Vec<_> =
            self.waiting.iter().filter(|(_, waiting)| waiting.since < kept).map(|(key, _)| *key).collect();
        for key in gone {
            self.leave(key);
        }
    }

    /// Asks for what is missing, here at once if it can be answered.
    pub(super) fn send_checks(&mut self, ticket: Ticket, out: &mut Out) {
        let Some(pending) = self.pending.get(&ticket) else { return };
        let own = self.id.partition;
        let clock = self.clock.value();
        let missing = pending.missing.clone();
        for (partition, dependencies) in missing {
            let to = ReplicaId { partition, ..self.id };
            if partition == own && self.all_installed(&dependencies) && !self.is_silent() {
                let found = self.old_readers(&dependencies);
                self.note_old_readers(ticket, own, found);
            } else {
                out.send(Address::Replica(to), Message::Check { ticket, dependencies, clock });
            }
        }
    }

    pub(super) fn on_check_reply(
        &mut self,
        now: Now,
        from: u16,
        (ticket, old_readers, read_at): (Ticket, Vec<RotId>, Vec<u64>),
        out: &mut Out,
    ) {
        let clocks = read_at.into_iter().chain(std::iter::repeat(u64::MAX));
        self.note_old_readers(ticket, from, old_readers.into_iter().zip(clocks).collect());
        self.finish_checked(now, ticket, out);
    }

    fn note_old_readers(&mut self, ticket: Ticket, from: u16, found: BTreeMap<RotId, u64>) {
        let Some(pending) = self.pending.get_mut(&ticket) else { return };
        if pending.missing.remove(&from).is_some() {
            self.counters.check_ids += found.len() as u64;
            pending.old_readers.extend(found);
            self.readers.prune(&mut pending.old_readers);
        }
    }

    /// Installs a write if all checks are answered.
    pub(super) fn finish_checked(&mut self, now: Now, ticket: Ticket, out: &mut Out) {
        if self.pending.get(&ticket).is_none_or(|pending| !pending.missing.is_empty()) {
            return;
        }
        let Some(Pending { what, dependencies, old_readers, .. }) = self.pending.remove(&ticket) else {
            return;
        };
        self.counters.check_ids_distinct += old_readers.len() as u64;
        match what {
            What::Write(update) => {
                self.install(now, &update, &old_readers);
                out.output(Record::Pending(update.id, false));
                self.take_up(Blocker::Install(update.id), out);
            }
            What::Put { client, op, lane, step, at_ms, .. } => {
                self.putting.remove(&(op.client, lane));
                let (value, reply) = self.written(&step, at_ms);
                // Above all that it depends on: the client's clock, which came with the request, is.
                let above = dependencies.iter().map(|dependency| dependency.id.ts).max().unwrap_or(0);
                let ts = self.clock.tick(now, above);
                let id = VersionId { ts, region: self.id.region };
                let update = Update { key: step.key, id, value, dependencies };
                let done = Done { request: op.request, reply: reply.clone(), ts };
                out.output(Record::of(&update));
                out.output(Record::Lane(op.client, lane, Some(done.clone())));
                self.lanes.insert(now.monotonic, (op.client, lane), done);
                self.install(now, &update, &old_readers);
                self.counters.puts += 1;
                out.send(client, Message::PutReply { op, reply, ts });
                let messages = self.streams.append(now.monotonic, ts, || update);
                self.replicate(messages, out);
            }
        }
        if self.settings.plant.has(Planted::NewerVersionSatisfies) {
            let all: Vec<Blocker> = self.blocked.keys().copied().collect();
            for blocker in all {
                self.take_up(blocker, out);
            }
        }
    }

    /// What a blind write leaves and answers; a deletion answers what was there.
    fn written(&self, step: &Step, at_ms: u64) -> (State, Reply) {
        let delete = step.command == Command::Delete;
        let before = self.versions.newest(&step.key, |_| delete).map_or(&None, |version| &version.value);
        let (after, reply) = execute(before, &step.command, at_ms);
        (after.flatten(), reply)
    }

    /// Makes a version visible to all but those that must not see it.
    fn install(&mut self, now: Now, update: &Update, old_readers: &BTreeMap<RotId, u64>) {
        self.installs += 1;
        let number = self.installs;
        let cut = |(rot, clock): (&RotId, &u64)| (*rot, self.cut(&update.key, number, *clock));
        let cuts: Vec<(RotId, u64)> = old_readers.iter().map(cut).collect();
        self.counters.bounds += cuts.len() as u64;
        self.readers.bind(now.monotonic, &update.key, cuts.into_iter());
        let meta = Installed { number, at: now.monotonic };
        self.versions.insert(&update.key, Version { id: update.id, value: update.value.clone(), meta });
    }

    /// From which install on a transaction is to see nothing of a key.
    fn cut(&self, key: &[u8], number: u64, read_at: u64) -> u64 {
        if !self.settings.plant.has(Planted::CutAtEarlierRead) {
            return number;
        }
        let later = self.versions.of(key).iter().filter(|version| version.id.ts > read_at);
        later.map(|version| version.meta.number).min().unwrap_or(number)
    }

    // At the partition of a dependency.

    pub(super) fn on_check(&mut self, now: Now, from: Address, message: Message, out: &mut Out) {
        let Message::Check { ticket, dependencies, .. } = message else { return };
        self.ask(now, (from, Asker::Check(ticket)), dependencies, out);
    }

    pub(super) fn on_fence(&mut self, now: Now, from: Address, message: Message, out: &mut Out) {
        let Message::Fence { attempt, dependencies } = message else { return };
        self.ask(now, (from, Asker::Fence(attempt)), dependencies, out);
    }

    /// Somebody asks, for the first time or again.
    fn ask(&mut self, now: Now, key: (Address, Asker), dependencies: Vec<Dependency>, out: &mut Out) {
        self.leave(key);
        self.answer_or_wait(now.monotonic, key, dependencies, out);
    }

    /// Answers an asker whose dependencies are all installed; another one waits for one that is not.
    fn answer_or_wait(
        &mut self,
        since: Micros,
        key: (Address, Asker),
        dependencies: Vec<Dependency>,
        out: &mut Out,
    ) {
        let must_tell = matches!(key.1, Asker::Check(_));
        let silence = (must_tell && self.is_silent()).then_some(Blocker::Silence);
        let blocker = silence.or_else(|| dependencies.iter().find_map(|dependency| self.lacks(dependency)));
        if let Some(blocker) = blocker {
            self.blocked.entry(blocker).or_default().insert(key);
            self.waiting.insert(key, Waiting { dependencies, blocker, since });
            return;
        }
        match key.1 {
            Asker::Fence(attempt) => out.send(key.0, Message::Fenced { attempt }),
            Asker::Check(ticket) => {
                let found = self.old_readers(&dependencies);
                let printed = self.settings.plant.has(Planted::CutAtEarlierRead);
                let read_at = if printed { found.values().copied().collect() } else { Vec::new() };
                let old_readers = found.into_keys().collect();
                let clock = self.clock.value();
                out.send(key.0, Message::CheckReply { ticket, old_readers, clock, read_at });
            }
        }
    }

    /// An asker waits no more.
    fn leave(&mut self, key: (Address, Asker)) -> Option<Waiting> {
        let waiting = self.waiting.remove(&key)?;
        if let Some(askers) = self.blocked.get_mut(&waiting.blocker) {
            askers.remove(&key);
            if askers.is_empty() {
                self.blocked.remove(&waiting.blocker);
            }
        }
        Some(waiting)
    }

    /// What some have waited for is over: they go on, or wait for something else.
    pub(super) fn take_up(&mut self, blocker: Blocker, out: &mut Out) {
        for key in self.blocked.remove(&blocker).unwrap_or_default() {
            let Some(Waiting { dependencies, since, .. }) = self.waiting.remove(&key) else { continue };
            self.answer_or_wait(since, key, dependencies, out);
        }
    }

    /// More of another region's writes have come.
    pub(super) fn take_up_arrivals(&mut self, origin: Region, out: &mut Out) {
        let come = Blocker::Arrival(origin, 0)..=Blocker::Arrival(origin, self.streams.applied_of(origin));
        let over: Vec<Blocker> = self.blocked.range(come).map(|(blocker, _)| *blocker).collect();
        for blocker in over {
            self.take_up(blocker, out);
        }
    }

    fn old_readers(&self, dependencies: &[Dependency]) -> BTreeMap<RotId, u64> {
        let mut found = BTreeMap::new();
        let also_hidden = !self.settings.plant.has(Planted::HiddenDependencyNotTold);
        for dependency in dependencies {
            let version = (&dependency.key[..], dependency.id);
            self.readers.old_readers(&self.versions, version, also_hidden, &mut found);
        }
        self.readers.prune(&mut found);
        found
    }

    fn all_installed(&self, dependencies: &[Dependency]) -> bool {
        dependencies.iter().all(|dependency| self.lacks(dependency).is_none())
    }

    /// What a dependency lacks to be installed here: it itself, and not a newer version of its key, which would say
    /// nothing of what the dependency depends on.
    fn lacks(&self, dependency: &Dependency) -> Option<Blocker> {
        let id = dependency.id;
        if self.settings.plant.has(Planted::NewerVersionSatisfies)
            && self.versions.newest(&dependency.key, |_| true).is_some_and(|v| v.id >= id)
        {
            return None;
        }
        // A write of this region was installed before anyone could know it.
        if id.region == self.id.region {
            return None;
        }
        if id.ts > self.streams.applied_of(id.region) {
            return Some(Blocker::Arrival(id.region, id.ts));
        }
        self.pending.contains_key(&Ticket::Write(id)).then_some(Blocker::Install(id))
    }
}
