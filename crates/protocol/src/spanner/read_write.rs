//! Transactions that change something, at the client: reads under locks, writes kept back until the commit, two-phase
//! commit with one of the shards as coordinator (RSS/RSC §5).
//!
//! A request outside of a transaction is a transaction of its own. It is *static*: if it loses its locks it is run again
//! with the priority that it had, until it succeeds or its time is over. An *interactive* one cannot be, as the
//! application has seen what it read: whatever request finds that it has lost its locks is aborted, and ends it.

use super::client::{Client, Due, Open, Out, complete, refuse};
use super::message::{Ending, Held, Part, Partition, Reason, Request as Asked, Timestamp, Txn, Write};
use super::versions::{Version, saw};
use super::work::{Done, Work, by_partition};
use super::{Kind, TRANSACTION_LIMIT};
use crate::clock::{Micros, Now};
use crate::history::{Stamped, Witness};
use crate::machine::{Cost, Outcome, RequestId};
use crate::multipaxos::log::Ballot;
use crate::object::State;
use crate::planted::Planted;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// A transaction under way.
#[derive(Clone, Debug)]
pub(super) struct ReadWrite {
    txn: Txn,
    interactive: bool,
    /// The request that waits for an answer.
    request: Option<RequestId>,
    /// What it asks.
    work: Option<Work>,
    /// When the request that waits is given up.
    give_up: Micros,
    /// How often the same was asked.
    attempt: usize,
    /// Shards with the keys that were read there, and in which term.
    shards: BTreeMap<Partition, Touched>,
    seen: BTreeMap<Bytes, Version>,
    written: BTreeMap<Bytes, State>,
    /// Whether anything but reads was asked.
    changes: bool,
    rounds: u32,
    stage: Stage,
}

/// A shard at which something was read.
#[derive(Clone, Debug, Default)]
struct Touched {
    term: Option<Ballot>,
    reads: BTreeSet<Bytes>,
    /// Keys whose locks are asked for.
    waiting: Vec<Bytes>,
}

/// How far it is.
#[derive(Clone, Debug)]
enum Stage {
    /// Reads, or waits for the application.
    Open,
    /// It has lost its locks, and the application has yet to give it up.
    Lost(Reason),
    /// The coordinator was asked to commit, and the others to prepare.
    Committing { requests: Vec<(Partition, Asked)>, outcome: Outcome },
    /// Committed; the answer is held back until its earliest end.
    Ending { at: Timestamp, earliest_end: Timestamp, since: Micros, outcome: Outcome },
}

impl ReadWrite {
    fn new(txn: Txn, interactive: bool) -> Self {
        Self {
            txn,
            interactive,
            request: None,
            work: None,
            give_up: Micros::MAX,
            attempt: 0,
            shards: BTreeMap::new(),
            seen: BTreeMap::new(),
            written: BTreeMap::new(),
            changes: false,
            rounds: 0,
            stage: Stage::Open,
        }
    }

    fn is_reading(&self) -> bool {
        self.shards.values().any(|touched| !touched.waiting.is_empty())
    }

    /// Bytes that it writes.
    fn size(&self) -> usize {
        let value = |state: &State| state.as_ref().map_or(0, |object| object.data.bytes());
        self.written.iter().map(|(key, state)| key.len() + value(state)).sum()
    }
}

impl Client {
    /// Begins a transaction that the application goes on with.
    pub(super) fn open_read_write(&mut self, now: Now, out: &mut Out) -> u64 {
        let txn = self.next_txn(now, None, self.settings.spanner.lifetime);
        self.insert(now, ReadWrite::new(txn, true), out)
    }

    /// Begins a transaction that is one request.
    pub(super) fn begin_read_write(&mut self, now: Now, request: RequestId, work: Work, out: &mut Out) {
        let txn = self.next_txn(now, None, 2 * self.settings.operation_timeout);
        let mut new = ReadWrite::new(txn, false);
        new.request = Some(request);
        new.work = Some(work);
        new.give_up = now.monotonic + self.settings.operation_timeout;
        self.start(now, new, out);
    }

    fn start(&mut self, now: Now, new: ReadWrite, out: &mut Out) {
        let number = self.insert(now, new, out);
        self.read(now, number, out);
    }

    fn insert(&mut self, now: Now, new: ReadWrite, out: &mut Out) -> u64 {
        let number = new.txn.id.number;
        self.writers.insert(number, new);
        self.alarms.set(now.monotonic + self.settings.retry, Due::Writer(number), out);
        number
    }

    /// The application goes on with its transaction.
    pub(super) fn continue_read_write(
        &mut self,
        now: Now,
        number: u64,
        (request, work): (RequestId, Work),
        out: &mut Out,
    ) {
        let give_up = now.monotonic + self.settings.operation_timeout;
        let Some(open) = self.writers.get_mut(&number) else {
            return refuse(request, Reason::Silent.text(), out);
        };
        if let Stage::Lost(reason) = open.stage {
            open.request = Some(request);
            return self.drop_writer(number, Outcome::Aborted(reason.text()), out);
        }
        if open.request.is_some() {
            return refuse(request, "the transaction's last request has not ended", out);
        }
        (open.request, open.work, open.give_up) = (Some(request), Some(work), give_up);
        self.read(now, number, out);
    }

    /// Asks for what the work needs and is not known, or goes on.
    fn read(&mut self, now: Now, number: u64, out: &mut Out) {
        let Some(open) = self.writers.get_mut(&number) else { return };
        let Some(work) = &open.work else { return };
        let missing: Vec<_> = work
            .needs()
            .into_iter()
            .filter(|key| !open.seen.contains_key(key) && !open.written.contains_key(key))
            .collect();
        if missing.is_empty() {
            return self.execute(now, number, out);
        }
        open.attempt = 0;
        open.rounds += 1;
        let txn = open.txn;
        let parts = by_partition(&self.place.group, missing);
        for (partition, keys) in &parts {
            open.shards.entry(*partition).or_default().waiting.clone_from(keys);
        }
        for (partition, keys) in parts {
            self.ask(partition, 0, Asked::Read { txn, keys }, out);
        }
    }

    pub(super) fn on_read(
        &mut self,
        now: Now,
        (number, partition): (u64, Partition),
        term: Ballot,
        held: Vec<Held>,
        out: &mut Out,
    ) {
        let Some(open) = self.writers.get_mut(&number) else { return };
        let Some(touched) = open.shards.get_mut(&partition) else { return };
        if touched.waiting.is_empty() {
            return; // Told twice.
        }
        if touched.term.is_some_and(|known| known != term) {
            return self.lose(now, number, Reason::Moved, out);
        }
        if !touched.waiting.iter().all(|key| held.iter().any(|held| held.key == *key)) {
            return; // An answer to an earlier question.
        }
        touched.term = Some(term);
        for key in std::mem::take(&mut touched.waiting) {
            touched.reads.insert(key);
        }
        open.seen.extend(held.into_iter().map(|held| (held.key, held.version)));
        if !open.is_reading() {
            self.execute(now, number, out);
        }
    }

    /// All that is needed is known: carries the work out.
    fn execute(&mut self, now: Now, number: u64, out: &mut Out) {
        let Some(open) = self.writers.get_mut(&number) else { return };
        let Some(work) = open.work.clone() else { return };
        let Done { outcome, writes } = work.run(&open.seen, &open.written);
        open.changes |= !work.is_read();
        let interactive = open.interactive;
        let nothing_done = writes.is_none();
        open.written.extend(writes.unwrap_or_default());
        if open.size() > TRANSACTION_LIMIT {
            return self.give_up(
                now,
                number,
                Outcome::Aborted("the transaction writes more than 32 MiB"),
                out,
            );
        }
        if interactive {
            open.work = None;
            let request = open.request.take();
            let newest = open.seen.values().map(|version| version.at).max().unwrap_or(0);
            let rounds = open.rounds;
            // The application has seen it, whatever becomes of the transaction.
            self.raise_minimum(newest);
            if let Some(request) = request {
                complete(request, outcome, Cost { rounds, ..Cost::default() }, out);
            }
        } else if nothing_done {
            self.give_up(now, number, outcome, out);
        } else {
            self.commit(now, number, outcome, out);
        }
    }

    /// The application ends its transaction.
    pub(super) fn end_read_write(
        &mut self,
        now: Now,
        number: u64,
        (request, commit): (RequestId, bool),
        out: &mut Out,
    ) {
        let give_up = now.monotonic + self.settings.operation_timeout;
        let Some(open) = self.writers.get_mut(&number) else {
            return refuse(request, Reason::Silent.text(), out);
        };
        let before = open.request.replace(request);
        open.give_up = give_up;
        let lost = if let Stage::Lost(reason) = open.stage { Some(reason) } else { None };
        if let Some(before) = before {
            refuse(before, "the transaction was ended", out);
            return self.give_up(now, number, Outcome::Aborted("a request had not ended"), out);
        }
        match lost {
            _ if !commit => self.give_up(now, number, Outcome::Done, out),
            Some(reason) => self.give_up(now, number, Outcome::Aborted(reason.text()), out),
            None => self.commit(now, number, Outcome::Done, out),
        }
    }

    /// Asks the shards to prepare, and one of them to commit.
    fn commit(&mut self, now: Now, number: u64, outcome: Outcome, out: &mut Out) {
        let group = self.place.group.clone();
        let Some(open) = self.writers.get(&number) else { return };
        let mut writes = by_partition(&group, open.written.keys().cloned());
        let mut shards: BTreeSet<Partition> = writes.keys().copied().collect();
        shards.extend(open.shards.iter().filter(|(_, touched)| touched.term.is_some()).map(|(p, _)| *p));
        let leaders: Vec<_> = shards.iter().map(|shard| (*shard, self.leader(*shard))).collect();
        let Some((coordinator, least)) = self.distances.choose(&leaders, group.regions) else {
            // It has touched nothing.
            return self.give_up(now, number, outcome, out);
        };
        let estimate = least.filter(|_| self.kind == Kind::Rss);
        let earliest_end = estimate.zip(now.truetime()).map_or(0, |(least, time)| time.earliest + least);
        let Some(open) = self.writers.get_mut(&number) else { return };
        let mut parts: BTreeMap<Partition, Part> = BTreeMap::new();
        for shard in &shards {
            let touched = open.shards.get(shard);
            let keys = writes.remove(shard).unwrap_or_default().into_iter();
            let value = |key: &Bytes| open.written.get(key).cloned().flatten();
            parts.insert(
                *shard,
                Part {
                    txn: open.txn,
                    reads: touched.map(|touched| touched.reads.iter().cloned().collect()).unwrap_or_default(),
                    writes: keys.map(|key| Write { value: value(&key), key }).collect(),
                    term: touched.and_then(|touched| touched.term),
                    earliest_end,
                },
            );
        }
        let own = parts.remove(&coordinator);
        let participants: Vec<_> = parts.keys().copied().collect();
        open.rounds += 2 + u32::from(!participants.is_empty());
        open.attempt = 0;
        let prepares = parts.into_iter().map(|(shard, part)| (shard, Asked::Prepare { part, coordinator }));
        let commit = own.map(|part| (coordinator, Asked::Commit { part, participants }));
        let requests: Vec<_> = prepares.chain(commit).collect();
        open.stage = Stage::Committing { requests: requests.clone(), outcome };
        for (shard, request) in requests {
            self.ask(shard, 0, request, out);
            self.measure(now, shard, out);
        }
    }

    pub(super) fn on_ended(
        &mut self,
        now: Now,
        number: u64,
        (ending, decided): (Ending, bool),
        out: &mut Out,
    ) {
        let Some(open) = self.writers.get_mut(&number) else { return };
        match (&mut open.stage, ending) {
            (Stage::Open, Ending::Aborted(reason)) if !decided => self.lose(now, number, reason, out),
            (Stage::Committing { outcome, .. }, Ending::Committed { at, earliest_end }) if decided => {
                let outcome = outcome.clone();
                open.stage = Stage::Ending { at, earliest_end, since: now.monotonic, outcome };
                self.end(now, number, out);
            }
            (Stage::Committing { .. }, Ending::Aborted(reason)) if decided => {
                self.lose(now, number, reason, out);
            }
            (Stage::Committing { .. }, Ending::Forgotten) => {
                self.drop_writer(number, Outcome::FORGOTTEN, out);
            }
            _ => {}
        }
    }

    /// Answers, once no read that skipped the transaction can have begun after its end (RSS/RSC §5, `t_ee`).
    fn end(&mut self, now: Now, number: u64, out: &mut Out) {
        let Some(open) = self.writers.get(&number) else { return };
        let Stage::Ending { at, earliest_end, since, outcome } = &open.stage else { return };
        let (at, earliest_end) = (*at, *earliest_end);
        if earliest_end > 0 {
            // Without a bound on the clock it is never sure to be over: the time of the request ends before.
            let wait = now
                .truetime()
                .map_or(self.settings.retry, |time| (earliest_end + 1).saturating_sub(time.earliest));
            if now.truetime().is_none() && now.monotonic >= open.give_up {
                return self.drop_writer(number, Outcome::UNPASSED, out);
            }
            if wait > 0 {
                return self.alarms.set(now.monotonic + wait, Due::Writer(number), out);
            }
        }
        let waited = now.monotonic - since;
        let reason = if waited > 0 { "earliest end" } else { "" };
        let stamped = Stamped { at, saw: saw(&open.seen) };
        let witness = Some(if open.changes { Witness::Tc(stamped) } else { Witness::Snap(stamped) });
        let cost = Cost { rounds: open.rounds, waited, reason, witness };
        let (request, outcome) = (open.request, outcome.clone());
        if !self.settings.plant.has(Planted::ForgetMinimum) {
            self.raise_minimum(at);
        }
        self.writers.remove(&number);
        if let Some(request) = request {
            complete(request, outcome, cost, out);
        }
    }

    /// The transaction will not commit.
    fn lose(&mut self, now: Now, number: u64, reason: Reason, out: &mut Out) {
        self.release(number, out);
        let Some(open) = self.writers.get_mut(&number) else { return };
        if open.interactive {
            if open.request.is_some() {
                return self.drop_writer(number, Outcome::Aborted(reason.text()), out);
            }
            // The application hears of it when it goes on.
            open.stage = Stage::Lost(reason);
            return;
        }
        let give_up = open.give_up;
        let clockless = reason == Reason::NoClock && self.is_patient(now, give_up);
        if !(reason.is_passing() || clockless) || now.monotonic >= give_up {
            return self.drop_writer(number, Outcome::Aborted(reason.text()), out);
        }
        let Some(old) = self.writers.remove(&number) else { return };
        let lifetime = 2 * self.settings.operation_timeout;
        let txn = self.next_txn(now, Some(old.txn.priority), lifetime);
        let mut new = ReadWrite::new(txn, false);
        (new.request, new.work, new.give_up) = (old.request, old.work, old.give_up);
        new.rounds = old.rounds;
        if clockless {
            // The leader hands its office over: begins when the alarm comes.
            self.insert(now, new, out);
        } else {
            self.start(now, new, out);
        }
    }

    /// Tells the shards that have locks of a transaction that it is given up, if nobody was asked to commit it.
    fn release(&self, number: u64, out: &mut Out) {
        let Some(open) = self.writers.get(&number) else { return };
        if matches!(open.stage, Stage::Open) {
            for shard in open.shards.keys() {
                self.ask(*shard, 0, Asked::Release(open.txn), out);
            }
        }
    }

    fn give_up(&mut self, _: Now, number: u64, outcome: Outcome, out: &mut Out) {
        self.release(number, out);
        self.drop_writer(number, outcome, out);
    }

    fn drop_writer(&mut self, number: u64, outcome: Outcome, out: &mut Out) {
        let Some(open) = self.writers.remove(&number) else { return };
        if matches!(self.open, Some(Open::ReadWrite(own)) if own == number) {
            self.open = None;
        }
        if let Some(request) = open.request {
            complete(request, outcome, Cost { rounds: open.rounds, ..Cost::default() }, out);
        }
    }

    pub(super) fn on_writer_alarm(&mut self, now: Now, number: u64, out: &mut Out) {
        let Some(open) = self.writers.get_mut(&number) else { return };
        let late = open.request.is_some() && now.monotonic >= open.give_up;
        match &open.stage {
            Stage::Ending { .. } => return self.end(now, number, out),
            Stage::Committing { .. } if late => return self.drop_writer(number, Outcome::LATE, out),
            Stage::Open if late && !open.interactive => {
                return self.give_up(now, number, Outcome::NoQuorum, out);
            }
            Stage::Open if late || now.wall >= open.txn.until => self.lose(now, number, Reason::Late, out),
            Stage::Lost(_) => {}
            Stage::Open if !open.interactive && !open.is_reading() => self.read(now, number, out),
            Stage::Open | Stage::Committing { .. } => {
                open.attempt += 1;
                self.ask_again(number, out);
            }
        }
        self.alarms.set(now.monotonic + self.settings.retry, Due::Writer(number), out);
    }

    /// Asks again for what was not answered, and keeps the locks.
    fn ask_again(&self, number: u64, out: &mut Out) {
        let Some(open) = self.writers.get(&number) else { return };
        if let Stage::Committing { requests, .. } = &open.stage {
            for (shard, request) in requests {
                self.ask(*shard, open.attempt, request.clone(), out);
            }
            return;
        }
        for (shard, touched) in &open.shards {
            let request = if touched.waiting.is_empty() {
                Asked::Renew(open.txn.id)
            } else {
                Asked::Read { txn: open.txn, keys: touched.waiting.clone() }
            };
            self.ask(*shard, open.attempt, request, out);
        }
    }
}
