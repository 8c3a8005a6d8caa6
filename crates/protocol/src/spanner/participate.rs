//! Reads under locks, and a participant's part in two-phase commit (Spanner §4.2.1; RSS/RSC §5).

use super::lead::{Active, Stage};
use super::locks::Mode;
use super::message::{Held, Part, Partition, Reason, Reply, Request, Timestamp, Txn, TxnId, Vote};
use super::replica::{Replica, Step};
use super::shard::{Action, Prepared};
use crate::planted::Planted;
use bytes::Bytes;

impl Replica {
    /// A transaction reads.
    pub(super) fn on_read(&mut self, cx: &mut Step<'_>, txn: Txn, keys: &[Bytes]) {
        if let Some(reason) = self.why_over(&txn) {
            return self.tell_ended(cx, txn.id, reason);
        }
        let heard = cx.now.monotonic;
        let new = || Active::new(txn, heard, Stage::Open(Vec::new()));
        let active = self.lead.active.entry(txn.id).or_insert_with(new);
        active.heard = heard;
        let Stage::Open(reading) = &mut active.stage else { return };
        if active.waiting.is_some() {
            return; // Asked again while it waits.
        }
        *reading = keys.to_vec();
        if self.acquire(cx, txn.id, keys, Mode::Shared) {
            self.answer_read(cx, txn.id);
        }
    }

    /// Why a transaction cannot go on here: it has ended, or takes too long.
    fn why_over(&self, txn: &Txn) -> Option<Reason> {
        if let Some((_, reason)) = self.lead.ended.get(&txn.id) {
            return Some(*reason);
        }
        let decided = self.state().decisions().contains_key(&txn.id);
        (decided || txn.until <= self.lead.max).then_some(Reason::Late)
    }

    /// The locks are held: tells the newest versions. Those are of transactions that are over, as no other has locks.
    pub(super) fn answer_read(&mut self, cx: &mut Step<'_>, txn: TxnId) {
        let (Some(active), Some(term)) = (self.lead.active.get_mut(&txn), self.lead.term) else { return };
        let Stage::Open(reading) = &mut active.stage else { return };
        let keys = std::mem::take(reading);
        let versions = self.log.state().versions();
        let held = keys.into_iter().map(|key| Held { version: versions.read(&key, Timestamp::MAX), key });
        let reply = Reply::Read { txn, term, held: held.collect() };
        self.reply(cx, txn, reply);
    }

    /// A client gives its transaction up before it has asked anybody to commit it.
    pub(super) fn on_release(&mut self, cx: &mut Step<'_>, txn: Txn) {
        let open = self.lead.active.get(&txn.id).map(|active| matches!(active.stage, Stage::Open(_)));
        if open == Some(false) {
            return;
        }
        self.lead.active.remove(&txn.id);
        self.lead.ended.insert(txn.id, (txn.until, Reason::Silent));
        self.release_locks(cx, txn.id);
    }

    /// Whether the part's read locks are held, unbroken since it has read.
    pub(super) fn has_read_locks(&self, part: &Part) -> bool {
        let id = part.txn.id;
        match part.term {
            None => part.reads.is_empty(),
            Some(term) => {
                self.lead.term == Some(term)
                    && part.reads.iter().all(|key| self.lead.locks.holds(id, key, Mode::Shared))
            }
        }
    }

    /// Why a part cannot be prepared or committed; `None` if it may.
    pub(super) fn why_not(&self, part: &Part) -> Option<Reason> {
        if let Some((_, reason)) = self.lead.ended.get(&part.txn.id) {
            Some(*reason)
        } else if part.txn.until <= self.lead.max {
            Some(Reason::Late)
        } else if !self.has_read_locks(part) {
            Some(if self.lead.term == part.term { Reason::Silent } else { Reason::Moved })
        } else {
            None
        }
    }

    pub(super) fn on_prepare(&mut self, cx: &mut Step<'_>, part: Part, coordinator: Partition) {
        let txn = part.txn;
        if let Some(decision) = self.state().decisions().get(&txn.id) {
            if decision.committed.is_none() {
                self.vote(cx, txn, coordinator, Vote::No(Reason::Late));
            }
            return;
        }
        let heard = cx.now.monotonic;
        match self.lead.active.get_mut(&txn.id).map(|active| (&active.stage, &mut active.heard)) {
            Some((Stage::Open(_), last)) => *last = heard,
            Some((Stage::Preparing(..), last)) => return *last = heard,
            // Its vote is sent again in time.
            Some(_) => return,
            None => {}
        }
        if let Some(reason) = self.why_not(&part) {
            return self.vote(cx, txn, coordinator, Vote::No(reason));
        }
        let keys: Vec<_> = part.writes.iter().map(|write| write.key.clone()).collect();
        let new = || Active::new(txn, heard, Stage::Open(Vec::new()));
        self.lead.active.entry(txn.id).or_insert_with(new).stage = Stage::Preparing(part, coordinator);
        if self.acquire(cx, txn.id, &keys, Mode::Exclusive) {
            self.prepare(cx, txn.id);
        }
    }

    /// All locks are held: prepares. Reads respect it from now on, not only once the log has it.
    pub(super) fn prepare(&mut self, cx: &mut Step<'_>, id: TxnId) {
        let Some(active) = self.lead.active.get_mut(&id) else { return };
        let Stage::Preparing(part, coordinator) = &active.stage else { return };
        let (mut part, coordinator, waited) = (part.clone(), *coordinator, active.waited);
        let Some(time) = cx.now.truetime() else { return self.abort_here(cx, id, Reason::NoClock) };
        let at = self.give_timestamp(time.earliest);
        if at >= part.txn.until {
            return self.abort_here(cx, id, Reason::Late);
        }
        part.earliest_end = self.clamp(part.earliest_end, waited, at);
        if let Some(active) = self.lead.active.get_mut(&id) {
            active.stage = Stage::Prepared(coordinator);
            active.heard = cx.now.monotonic;
        }
        self.lead.add_pending(part.clone(), at);
        self.propose(cx, Action::Prepare(Prepared { part, at, coordinator }));
    }

    /// The earliest end that reads here go by: later by what the transaction has waited for locks (RSS/RSC §6, second
    /// optimization), and never later than L after a timestamp that the commit timestamp is not below. So the fence
    /// may rely on L.
    pub(super) fn clamp(&self, earliest_end: Timestamp, waited: u64, at: Timestamp) -> Timestamp {
        if earliest_end == 0 || self.settings.plant.has(Planted::UnclampedEnd) {
            return earliest_end;
        }
        (earliest_end + waited).min(at + self.settings.spanner.fence)
    }

    /// The log has the prepared part.
    pub(super) fn on_prepared(&mut self, cx: &mut Step<'_>, id: TxnId) {
        if self.settings.plant.has(Planted::ReleaseReadersAtPrepare)
            && self.lead.pending.get(&id).is_some_and(|pending| pending.part.writes.is_empty())
        {
            self.release_locks(cx, id);
        }
        self.vote_yes(cx, id);
    }

    pub(super) fn vote_yes(&mut self, cx: &mut Step<'_>, id: TxnId) {
        let (Some(active), Some(pending)) = (self.lead.active.get(&id), self.lead.pending.get(&id)) else {
            return;
        };
        let Stage::Prepared(coordinator) = active.stage else { return };
        let vote = Vote::Yes { at: pending.at, earliest_end: pending.part.earliest_end };
        self.vote(cx, active.txn, coordinator, vote);
    }

    pub(super) fn vote(&mut self, cx: &mut Step<'_>, txn: Txn, coordinator: Partition, vote: Vote) {
        let from = self.id.partition;
        self.ask_leader(cx, coordinator, Request::Vote { txn, from, vote });
    }

    /// Votes again for what is not decided, and asks what has become of it if that takes long.
    pub(super) fn resend_votes(&mut self, cx: &mut Step<'_>) {
        let prepared = self.lead.active.values().filter_map(|active| match active.stage {
            Stage::Prepared(coordinator) if self.state().prepared().contains_key(&active.txn.id) => {
                Some((active.txn, coordinator, cx.now.monotonic.saturating_sub(active.heard)))
            }
            _ => None,
        });
        for (txn, coordinator, since) in prepared.collect::<Vec<_>>() {
            if since < self.settings.retry {
                continue;
            }
            self.vote_yes(cx, txn.id);
            if since >= self.settings.recovery {
                self.counters.in_doubt += 1;
                let from = self.id.partition;
                self.ask_leader(cx, coordinator, Request::Ask { txn, from, wound: false });
            }
        }
    }

    /// The coordinator has decided.
    pub(super) fn on_decide(
        &mut self,
        cx: &mut Step<'_>,
        (txn, at, coordinator): (Txn, Option<Timestamp>, Partition),
    ) {
        let stage = self.lead.active.get(&txn.id).map(|active| &active.stage);
        match stage {
            Some(Stage::Prepared(_)) => {
                if let Some(active) = self.lead.active.get_mut(&txn.id) {
                    active.stage = Stage::Finishing(coordinator, at);
                }
                if let Some(at) = at {
                    self.promise(at);
                }
                self.propose(cx, Action::Decide { txn, at });
            }
            Some(Stage::Open(_) | Stage::Preparing(..)) if at.is_none() => {
                self.lead.active.remove(&txn.id);
                self.lead.ended.insert(txn.id, (txn.until, Reason::Late));
                self.release_locks(cx, txn.id);
            }
            Some(_) => {}
            // A commit is decided after this shard has prepared: it is done.
            None if at.is_some() => self.tell_decided(cx, txn.id, coordinator),
            None => {
                self.lead.ended.insert(txn.id, (txn.until, Reason::Late));
            }
        }
    }

    fn tell_decided(&mut self, cx: &mut Step<'_>, txn: TxnId, coordinator: Partition) {
        let from = self.id.partition;
        self.ask_leader(cx, coordinator, Request::Decided { txn, from });
    }

    /// The log has the decision.
    pub(super) fn on_finished(
        &mut self,
        cx: &mut Step<'_>,
        id: TxnId,
        (coordinator, at): (Partition, Option<Timestamp>),
    ) {
        self.lead.active.remove(&id);
        self.end_pending(cx, id, at);
        self.release_locks(cx, id);
        if at.is_some() {
            self.tell_decided(cx, id, coordinator);
        }
    }

    /// The client is still there.
    pub(super) fn on_renew(&mut self, cx: &Step<'_>, id: TxnId) {
        if let Some(active) = self.lead.active.get_mut(&id)
            && !matches!(active.stage, Stage::Prepared(_))
        {
            active.heard = cx.now.monotonic;
        }
    }
}
