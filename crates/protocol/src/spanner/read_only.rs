//! Read-only transactions, at the client (RSS/RSC, Algorithm 1).
//!
//! | lines | here |
//! |---|---|
//! | 4, 5 | [`Client::begin_read`], `send_read` |
//! | 6-8, 14-20 | `advance_read`: the snapshot's time, from `t_min` up, as soon as all shards have answered |
//! | 9-11, 21-24 | `on_slow`, `resolve` |
//! | 12, 13 | `finish_read` |
//!
//! A read that is sent again keeps its times. A later answer of a shard replaces the list of what was skipped there, and
//! adds to the versions: with those of the first answers alone the snapshot's time was found, so none may be dropped.

use super::Kind;
use super::client::{CLOCK_BEHIND, Client, Due, NO_CLOCK, Open, Out, complete, refuse};
use super::message::{Held, Local, Message, Partition, Reason, Request as Asked, Skipped, Snapshot};
use super::message::{Timestamp, TxnId};
use super::versions::{Version, saw};
use super::work::{Work, by_partition};
use crate::clock::{Interval, Micros, Now};
use crate::history::{Stamped, Witness};
use crate::machine::{Cost, Outcome, RequestId};
use crate::planted::Planted;
use crate::topology::{Address, Region};
use bytes::Bytes;
use std::collections::BTreeMap;

/// A read-only transaction under way.
#[derive(Clone, Debug)]
pub(super) struct ReadOnly {
    id: TxnId,
    request: RequestId,
    work: Work,
    from: From,
    /// The time to read at is ours to choose, and nothing was told of another.
    may_choose_again: bool,
    /// What the session had seen when it began (`t_min`).
    min: Timestamp,
    /// What shards must wait for: `t_min`, or more if nothing may be skipped.
    wait_for: Timestamp,
    shards: BTreeMap<Partition, Asking>,
    /// Versions told, by key and time.
    held: BTreeMap<Bytes, BTreeMap<Timestamp, Version>>,
    /// What skipped transactions write, as far as it was told.
    writes: BTreeMap<TxnId, Vec<Held>>,
    /// What became of skipped transactions.
    ended: BTreeMap<TxnId, Option<Timestamp>>,
    /// The snapshot's time (`t_snap`), once all shards have answered.
    snap: Option<Timestamp>,
    give_up: Micros,
    /// The longest that a shard has waited before it answered.
    waited: Micros,
    /// Since when all have answered, and a skipped transaction must be waited for.
    skipping: Option<Micros>,
    /// The session has come from another service: it is told once the snapshot's time has passed (`enter`).
    enters: bool,
    /// Since when that is waited for.
    passing: Option<Micros>,
}

/// Who is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    /// Leaders, as of this time (`t_read`).
    Leaders(Timestamp),
    /// The nearest replicas, as of this time; `None` while they are asked up to which time they can be read.
    Nearest(Option<Timestamp>),
}

/// What is asked of one shard.
#[derive(Clone, Debug, Default)]
struct Asking {
    keys: Vec<Bytes>,
    /// How often it was asked.
    attempt: u32,
    /// How often it was asked in vain: then somebody else is.
    vain: usize,
    /// The last message of ours that it has answered.
    answered: Option<u32>,
    /// In answer to the question up to which time it can be read, and from which time on.
    safe: Option<(Timestamp, Timestamp)>,
    /// Prepared transactions that it did not wait for.
    skipped: BTreeMap<TxnId, Timestamp>,
}

impl Client {
    /// Begins to read.
    pub(super) fn begin_read(&mut self, now: Now, request: RequestId, work: Work, out: &mut Out) {
        let Some(time) = now.truetime() else {
            // A clock that is being set has a bound again soon.
            let give_up = now.monotonic + self.settings.operation_timeout;
            self.clockless.insert(request, (work, give_up));
            return self.read_with_clock(now, request, out);
        };
        if self.minimum > time.latest {
            return self.refuse_read(request, CLOCK_BEHIND, out);
        }
        self.enter(time);
        let asked = if let Work::Together(together) = &work { together.snapshot } else { None };
        let bug = self.settings.plant.has(Planted::ForgetMinimum);
        let min = if bug { 0 } else { self.minimum };
        let mut wait_for = min;
        let from = match (asked, self.open) {
            (Some(at), _) if at > time.earliest => {
                return self.refuse_read(request, "the time asked for has not come yet", out);
            }
            (Some(at), _) => From::Nearest(Some(at)),
            (None, Some(Open::ReadOnly(at, _))) if self.kind == Kind::Po => From::Nearest(at),
            (None, Some(Open::ReadOnly(at, newest))) => {
                // Whatever is read later must be of the same time: nothing is skipped.
                wait_for = at.unwrap_or(time.latest);
                self.open = Some(Open::ReadOnly(Some(wait_for), newest));
                From::Leaders(wait_for)
            }
            (None, _) if self.kind == Kind::Po => From::Nearest(None),
            (None, _) => From::Leaders(time.latest),
        };
        let asking = |keys| Asking { keys, ..Asking::default() };
        let parts = by_partition(&self.place.group, work.keys());
        let read = ReadOnly {
            id: self.next_id(),
            request,
            work,
            may_choose_again: from == From::Nearest(None) && self.open.is_none(),
            from,
            min,
            wait_for,
            shards: parts.into_iter().map(|(partition, keys)| (partition, asking(keys))).collect(),
            held: BTreeMap::new(),
            writes: BTreeMap::new(),
            ended: BTreeMap::new(),
            snap: None,
            give_up: now.monotonic + self.settings.operation_timeout,
            waited: 0,
            skipping: None,
            enters: time.earliest <= self.entered,
            passing: None,
        };
        let number = read.id.number;
        self.readers.insert(number, read);
        self.send_read(now, number, out);
        self.advance_read(now, number, out);
    }

    /// A session that comes from another service follows all that has ended there, which need not have been in touch with
    /// this one: it sees what is not younger than now, and is told so once that has passed for everybody. Fences alone give
    /// no real time between updates at different services (departs from RSS/RSC, Theorem C.14).
    fn enter(&mut self, time: Interval) {
        if std::mem::take(&mut self.entering) {
            self.raise_minimum(time.latest);
            self.entered = self.entered.max(time.latest);
        }
    }

    /// Reads if this node has a bound on its clock again; otherwise waits on, and not for long.
    pub(super) fn read_with_clock(&mut self, now: Now, request: RequestId, out: &mut Out) {
        let Some((work, give_up)) = self.clockless.remove(&request) else { return };
        if now.truetime().is_some() {
            self.begin_read(now, request, work, out);
        } else if !self.is_patient(now, give_up) {
            self.refuse_read(request, NO_CLOCK, out);
        } else {
            self.clockless.insert(request, (work, give_up));
            self.alarms.set(now.monotonic + self.settings.retry / 4, Due::Clock(request), out);
        }
    }

    /// Asks the shards that have not told all.
    fn send_read(&mut self, now: Now, number: u64, out: &mut Out) {
        let Some(read) = self.readers.get_mut(&number) else { return };
        for partition in read.open().map(|(partition, _)| partition).collect::<Vec<_>>() {
            self.send_read_to(number, partition, out);
        }
        self.alarms.set(now.monotonic + self.settings.retry, Due::Reader(number), out);
    }

    fn send_read_to(&mut self, number: u64, partition: Partition, out: &mut Out) {
        let Some(read) = self.readers.get_mut(&number) else { return };
        let Some(asking) = read.shards.get_mut(&partition) else { return };
        asking.attempt += 1;
        let (id, attempt, keys, min) = (read.id, asking.attempt, asking.keys.clone(), read.wait_for);
        let turn = asking.vain;
        match read.from {
            From::Leaders(at) => {
                let snapshot = Snapshot { id, attempt, keys, at, min };
                self.ask(partition, turn, Asked::Snapshot(snapshot), out);
            }
            From::Nearest(at) => {
                let replica = self.place.group.replica(partition, self.region(partition, turn));
                let message = Message::Local(Local { id, attempt, keys, at });
                out.send(Address::Replica(replica), message);
            }
        }
    }

    /// A replica says up to which time it can be read.
    pub(super) fn on_safe(
        &mut self,
        now: Now,
        (number, partition): (u64, Partition),
        (attempt, safe, horizon): (u32, Timestamp, Timestamp),
        out: &mut Out,
    ) {
        let Some(read) = self.readers.get_mut(&number) else { return };
        let Some(asking) = read.shards.get_mut(&partition) else { return };
        if read.from != From::Nearest(None) || attempt > asking.attempt {
            return;
        }
        asking.safe = Some((safe, horizon));
        let told: Option<Vec<_>> = read.shards.values().map(|asking| asking.safe).collect();
        let Some(told) = told else { return };
        // One time for all keys: one for each would tear the snapshot.
        let safe = told.iter().map(|(safe, _)| *safe).min().unwrap_or(0);
        let horizon = told.iter().map(|(_, horizon)| *horizon).max().unwrap_or(0);
        let at = read.min.max(safe).max(horizon);
        read.from = From::Nearest(Some(at));
        if let Some(Open::ReadOnly(time, _)) = &mut self.open {
            time.get_or_insert(at);
        }
        self.send_read(now, number, out);
    }

    /// A shard has answered.
    pub(super) fn on_fast(
        &mut self,
        now: Now,
        (number, partition, region): (u64, Partition, Region),
        (attempt, held, skipped, waited): (u32, Vec<Held>, Vec<Skipped>, Micros),
        out: &mut Out,
    ) {
        let Some(read) = self.readers.get_mut(&number) else { return };
        let leader = matches!(read.from, From::Leaders(_));
        let Some(asking) = read.shards.get_mut(&partition) else { return };
        if asking.answered.is_some_and(|answered| answered >= attempt) || attempt > asking.attempt {
            return;
        }
        asking.answered = Some(attempt);
        asking.skipped = skipped.iter().map(|skipped| (skipped.txn, skipped.prepared)).collect();
        read.waited = read.waited.max(waited);
        for Held { key, version } in held {
            read.held.entry(key).or_default().insert(version.at, version);
        }
        for Skipped { txn, writes, .. } in skipped {
            let known = read.writes.entry(txn).or_default();
            for write in writes {
                let version = Version { at: 0, writer: txn, value: write.value };
                if known.iter().all(|held| held.key != write.key) {
                    known.push(Held { key: write.key, version });
                }
            }
        }
        if leader {
            self.note_leader(partition, region);
        }
        self.advance_read(now, number, out);
    }

    /// A skipped transaction has ended.
    pub(super) fn on_slow(
        &mut self,
        now: Now,
        (number, _): (u64, Partition),
        (txn, at): (TxnId, Option<Timestamp>),
        out: &mut Out,
    ) {
        let Some(read) = self.readers.get_mut(&number) else { return };
        // It may come before the answer that says that the transaction was skipped.
        read.ended.insert(txn, at);
        self.advance_read(now, number, out);
    }

    /// Ends the read if what is known is one snapshot.
    pub(super) fn advance_read(&mut self, now: Now, number: u64, out: &mut Out) {
        let Some(read) = self.readers.get_mut(&number) else { return };
        if read.shards.values().any(|asking| asking.answered.is_none()) {
            return;
        }
        let snap = match (read.snap, read.from) {
            (Some(snap), _) => snap,
            (None, From::Nearest(at)) => at.unwrap_or(0),
            (None, From::Leaders(_)) => read.earliest_snapshot(),
        };
        read.snap = Some(snap);
        if !read.resolve(snap) {
            read.skipping.get_or_insert(now.monotonic);
        } else if read.enters && now.truetime().is_none_or(|time| time.earliest <= snap) {
            read.passing.get_or_insert(now.monotonic);
            let left = now.truetime().map_or(self.settings.retry / 4, |time| snap + 1 - time.earliest);
            self.alarms.set(now.monotonic + left, Due::Passing(number), out);
        } else {
            self.finish_read(now, number, snap, out);
        }
    }

    fn finish_read(&mut self, now: Now, number: u64, mut snap: Timestamp, out: &mut Out) {
        let Some(read) = self.readers.remove(&number) else { return };
        let seen = read.held.iter().filter_map(|(key, versions)| {
            let (_, version) = versions.range(..=snap).next_back()?;
            Some((key.clone(), version.clone()))
        });
        let seen = seen.collect();
        let done = read.work.run(&seen, &BTreeMap::new());
        if !self.settings.plant.has(Planted::ForgetMinimum) {
            self.raise_minimum(snap);
        }
        if let Some(Open::ReadOnly(_, newest)) = &mut self.open {
            *newest = snap.max(*newest);
            snap = *newest;
        }
        let passing = read.passing.map_or(0, |since| now.monotonic - since);
        // What was skipped has ended when the time begins to be waited for.
        let skipping = read.skipping.map_or(0, |since| (now.monotonic - since).saturating_sub(passing));
        let reason = match (read.waited, skipping, passing) {
            (0, 0, 0) => "",
            (0, 0, _) => "entering from another service",
            (_, 0, _) => "prepared transactions",
            _ => "skipped transactions",
        };
        let waited = read.waited + skipping + passing;
        let witness = Some(Witness::Snap(Stamped { at: snap, saw: saw(&seen) }));
        let rounds = u32::from(matches!(read.from, From::Leaders(_)));
        let cost = Cost { rounds, waited, reason, witness };
        complete(read.request, done.outcome, cost, out);
    }

    /// Does not read. A read-only transaction that is open ends with that.
    pub(super) fn refuse_read(&mut self, request: RequestId, why: &'static str, out: &mut Out) {
        self.open = self.open.filter(|open| !matches!(open, Open::ReadOnly(..)));
        refuse(request, why, out);
    }

    /// A shard does not serve the read.
    pub(super) fn on_refused(&mut self, now: Now, number: u64, reason: Reason, out: &mut Out) {
        let Some(read) = self.readers.get(&number) else { return };
        if reason == Reason::NoClock && self.is_patient(now, read.give_up) {
            return; // It is asked again in time; a leader without a bound hands its office over.
        }
        let Some(mut read) = self.readers.remove(&number) else { return };
        if reason != Reason::TooOld || !read.may_choose_again || now.monotonic >= read.give_up {
            return self.refuse_read(read.request, reason.text(), out);
        }
        // The versions of the time chosen have been forgotten meanwhile. Under a new name, as answers for that time may
        // be under way.
        read.id = self.next_id();
        read.from = From::Nearest(None);
        read.held.clear();
        for asking in read.shards.values_mut() {
            *asking = Asking { keys: std::mem::take(&mut asking.keys), ..Asking::default() };
        }
        let number = read.id.number;
        self.readers.insert(number, read);
        self.send_read(now, number, out);
    }

    pub(super) fn on_reader_alarm(&mut self, now: Now, number: u64, out: &mut Out) {
        let Some(read) = self.readers.get_mut(&number) else { return };
        if now.monotonic < read.give_up {
            read.open().for_each(|(_, asking)| asking.vain += 1);
            return self.send_read(now, number, out);
        }
        let request = read.request;
        self.readers.remove(&number);
        self.open = self.open.filter(|open| !matches!(open, Open::ReadOnly(..)));
        complete(request, Outcome::NoQuorum, Cost::default(), out);
    }
}

impl ReadOnly {
    /// The shards that have not told all.
    fn open(&mut self) -> impl Iterator<Item = (Partition, &mut Asking)> {
        let Self { shards, from, ended, .. } = self;
        let open = shards.iter_mut().filter(|(_, asking)| match from {
            From::Nearest(None) => asking.safe.is_none(),
            _ => asking.answered.is_none() || asking.skipped.keys().any(|txn| !ended.contains_key(txn)),
        });
        open.map(|(partition, asking)| (*partition, asking))
    }

    /// The first time for which there is a version of each key, and that the session's past allows.
    fn earliest_snapshot(&self) -> Timestamp {
        let earliest = self.held.values().filter_map(|versions| versions.keys().next().copied());
        earliest.fold(self.min, Timestamp::max)
    }

    /// Takes over what skipped transactions are known to have written. Whether none that is left can have committed
    /// by the snapshot's time.
    fn resolve(&mut self, snap: Timestamp) -> bool {
        let mut open: BTreeMap<TxnId, Timestamp> = BTreeMap::new();
        for asking in self.shards.values() {
            for (txn, prepared) in &asking.skipped {
                let latest = open.entry(*txn).or_insert(*prepared);
                *latest = (*prepared).max(*latest);
            }
        }
        for versions in self.held.values() {
            for version in versions.values().filter(|version| open.contains_key(&version.writer)) {
                self.ended.insert(version.writer, Some(version.at));
            }
        }
        for (txn, at) in &self.ended {
            open.remove(txn);
            let Some(at) = at else { continue };
            for Held { key, version } in self.writes.remove(txn).unwrap_or_default() {
                let version = Version { at: *at, ..version };
                self.held.entry(key).or_default().insert(*at, version);
            }
        }
        // A transaction commits at none of its prepare timestamps or earlier.
        open.values().all(|prepared| *prepared > snap)
    }
}
