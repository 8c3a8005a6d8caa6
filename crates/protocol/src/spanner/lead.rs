//! What only the leader of a shard knows: locks, transactions under way, reads that wait; and the timestamps that it
//! gives.
//!
//! None of this is on disk or in the log. It is lost with the leader, and a new one begins with what the log says:
//! prepared parts hold their locks again, read locks as well as write locks; transactions that had only read are gone,
//! and their clients find out because parts name the term in which they read.

use super::locks::{LockTable, Mode};
use super::message::{Part, Partition, Reason, Reply, Request, Timestamp, Txn, TxnId, Vote};
use super::replica::{Due, Replica, Step};
use super::shard::{Action, Command, Shard};
use super::snapshot::Reader;
use crate::Map;
use crate::clock::{Interval, Micros};
use crate::multipaxos::log::Ballot;
use crate::planted::Planted;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// For how long after the last read the lease is renewed: a read that finds none waits for the log.
const RENEWED_FOR: Micros = 10_000_000;

/// The volatile state of a leader. Empty in replicas that follow.
#[derive(Clone, Debug, Default)]
pub(super) struct Leader {
    /// The term, once all that earlier terms have left is applied.
    pub(super) term: Option<Ballot>,
    /// Whether requests are taken: the commit waits that earlier leaders owed are over.
    pub(super) open: bool,
    /// The highest timestamp given or promised.
    pub(super) max: Timestamp,
    pub(super) locks: LockTable,
    pub(super) active: BTreeMap<TxnId, Active>,
    /// Transactions with a timestamp whose writes are not to be seen yet.
    pub(super) pending: BTreeMap<TxnId, Pending>,
    /// Which of them writes a key: write locks allow for one.
    pub(super) writers: Map<Bytes, TxnId>,
    /// Votes for transactions that this shard coordinates, also before their commit is asked for.
    pub(super) votes: BTreeMap<TxnId, Votes>,
    /// Transactions that ended in this term without a word in the log, until they are refused for being late.
    pub(super) ended: BTreeMap<TxnId, (Timestamp, Reason)>,
    /// Commits of which not all participants have said that they know.
    pub(super) telling: BTreeMap<TxnId, Telling>,
    /// Commits of which all have, to be put into the log.
    pub(super) known: Vec<TxnId>,
    /// Commits that wait until their timestamp has passed.
    pub(super) commit_waits: BTreeSet<(Timestamp, TxnId)>,
    pub(super) readers: BTreeMap<TxnId, Reader>,
    /// When the last one came.
    pub(super) read_at: Option<Micros>,
    /// The lease and the safe time that are under way in the log.
    pub(super) asked: (Timestamp, Timestamp),
}

/// A transaction under way at this shard.
#[derive(Clone, Debug)]
pub(super) struct Active {
    pub(super) txn: Txn,
    /// When its client was last heard; of a prepared part, when it was prepared.
    pub(super) heard: Micros,
    /// Since when it waits for locks.
    pub(super) waiting: Option<Micros>,
    /// How long it has waited for locks since its client began to commit it: what it waited before, the client's estimate of
    /// its end has in it.
    pub(super) waited: Micros,
    pub(super) stage: Stage,
}

/// How far a transaction is.
#[derive(Clone, Debug)]
pub(super) enum Stage {
    /// It reads; these keys wait for their locks.
    Open(Vec<Bytes>),
    /// Participant: waits for write locks.
    Preparing(Part, Partition),
    /// Participant: waits for the decision of the coordinator.
    Prepared(Partition),
    /// Participant: the decision is on its way into the log.
    Finishing(Partition, Option<Timestamp>),
    /// Coordinator: waits for votes.
    Gathering(Commit),
    /// Coordinator: waits for write locks.
    Locking(Commit),
    /// Coordinator: the commit is on its way into the log, or waits for its timestamp to pass.
    Committing { at: Timestamp, earliest_end: Timestamp, participants: Vec<Partition> },
    /// Coordinator: the abort is on its way into the log; who is to be told.
    Aborting(Reason, BTreeSet<Partition>),
}

/// What the coordinator was asked to commit.
#[derive(Clone, Debug)]
pub(super) struct Commit {
    pub(super) part: Part,
    pub(super) participants: Vec<Partition>,
    /// `TrueTime`'s latest when it was asked: the commit timestamp is not below.
    pub(super) asked: Timestamp,
}

/// A transaction with a timestamp.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    /// Its part; the earliest end is the clamped one.
    pub(super) part: Part,
    /// The prepare timestamp; at the coordinator the commit timestamp.
    pub(super) at: Timestamp,
    /// Reads that wait for its end.
    pub(super) blocks: BTreeSet<TxnId>,
    /// Reads that skipped it and are told its end.
    pub(super) skipped_by: BTreeSet<TxnId>,
}

/// Votes for a transaction.
#[derive(Clone, Debug)]
pub(super) struct Votes {
    pub(super) until: Timestamp,
    pub(super) yes: BTreeMap<Partition, (Timestamp, Timestamp)>,
}

/// A commit that participants are being told.
#[derive(Clone, Debug)]
pub(super) struct Telling {
    pub(super) txn: Txn,
    pub(super) at: Timestamp,
    pub(super) participants: BTreeSet<Partition>,
}

impl Active {
    pub(super) fn new(txn: Txn, heard: Micros, stage: Stage) -> Self {
        Self { txn, heard, waiting: None, waited: 0, stage }
    }
}

impl Replica {
    /// Takes note of terms that begin and end.
    pub(super) fn follow_term(&mut self, cx: &mut Step<'_>) {
        self.announce_term(cx);
        let term = self.log.term();
        if self.lead.term != term {
            self.lead = Leader { term, ..Leader::default() };
            if term.is_some() {
                self.begin_term(cx);
            }
        }
        if self.lead.term.is_some() && !self.lead.open {
            self.open_term(cx);
        }
    }

    /// Before anything is promised the log must have a word of this term: then nothing of earlier ones counts. It is said
    /// at once, to travel with the term's barrier.
    fn announce_term(&mut self, cx: &mut Step<'_>) {
        let Some(term) = self.log.leader().filter(|_| self.log.leads()) else { return };
        if self.announced != Some(term) {
            self.announced = Some(term);
            let action = Action::Lease { lease: 0, safe: 0, horizon: 0, known: Vec::new() };
            // A leader that is deposed in this very step loses it with its term.
            let _ = self.log.propose(cx.now, Command { term, action }, &mut cx.log);
        }
    }

    /// Takes up what earlier leaders have left in the log.
    fn begin_term(&mut self, cx: &mut Step<'_>) {
        self.counters.term += 1;
        let state = self.log.state();
        let lead = &mut self.lead;
        lead.max = state.safe().max(state.lease());
        for (id, prepared) in state.prepared() {
            let part = &prepared.part;
            if !self.settings.plant.has(Planted::LoseLocks) {
                lead.lock(part);
            }
            let active = Active::new(part.txn, cx.now.monotonic, Stage::Prepared(prepared.coordinator));
            lead.active.insert(*id, active);
            lead.add_pending(part.clone(), prepared.at);
        }
        for (id, decision) in state.decisions().iter().filter(|(_, d)| !d.participants.is_empty()) {
            if let Some((at, _)) = decision.committed {
                let participants = decision.participants.iter().copied().collect();
                lead.telling.insert(*id, Telling { txn: decision.txn, at, participants });
            }
        }
    }

    /// Takes requests once the log has a word of this term, and the commit waits of earlier leaders are over: what they
    /// have committed may be seen then.
    fn open_term(&mut self, cx: &mut Step<'_>) {
        if Some(self.log.state().term()) != self.lead.term {
            return;
        }
        let newest = self.log.state().newest();
        let Some(time) = cx.now.truetime() else { return };
        if time.earliest <= newest && !self.settings.plant.has(Planted::NoCommitWait) {
            return self.at_time(cx, time, newest, Due::CommitWait);
        }
        self.lead.open = true;
        // Earlier leaders' votes may not have arrived, or what they were answered.
        for id in self.lead.active.keys().copied().collect::<Vec<_>>() {
            self.vote_yes(cx, id);
        }
        self.tick(cx);
    }

    /// Wakes when `TrueTime` is sure to have passed a timestamp, if its bound stays as it is.
    pub(super) fn at_time(&mut self, cx: &Step<'_>, time: Interval, passed: Timestamp, due: Due) {
        let wait = (passed + 1).saturating_sub(time.earliest).max(1);
        self.timers.insert((cx.now.monotonic + wait, due));
    }

    /// Makes the lease long enough for a promise of `at`, and renews it in good time.
    pub(super) fn extend_lease(&mut self, cx: &mut Step<'_>, at: Timestamp) {
        let Some(time) = cx.now.truetime() else { return };
        let length = self.settings.spanner.lease;
        let have = self.log.state().lease().max(self.lead.asked.0);
        if have >= at.saturating_add(length / 2) {
            return;
        }
        let lease = time.latest + length;
        if lease > have.saturating_add(length / 8) {
            self.propose_lease(cx, lease);
        }
    }

    /// Puts the timestamps into the log, and what can be forgotten.
    pub(super) fn propose_lease(&mut self, cx: &mut Step<'_>, lease: Timestamp) {
        let lead = &mut self.lead;
        self.counters.lease += 1;
        lead.asked = (lead.asked.0.max(lease), lead.max);
        let reading = lead.readers.values().map(|reader| reader.snapshot.at).min().unwrap_or(Timestamp::MAX);
        let old = cx.now.wall.saturating_sub(self.settings.spanner.retention);
        let known = std::mem::take(&mut lead.known);
        let (safe, horizon) = (lead.max, old.min(reading).min(lead.max));
        self.propose(cx, Action::Lease { lease, safe, horizon, known });
    }

    /// Gives a timestamp above all that were given or promised, and not below `floor`.
    pub(super) fn give_timestamp(&mut self, floor: Timestamp) -> Timestamp {
        self.lead.max = floor.max(self.lead.max + 1);
        self.lead.max
    }

    /// Promises to give no timestamp up to this one.
    pub(super) fn promise(&mut self, at: Timestamp) {
        self.lead.max = self.lead.max.max(at);
    }

    /// A replica wants to read at a time that the log does not vouch for yet.
    pub(super) fn on_advance(&mut self, cx: &mut Step<'_>, to: Timestamp) {
        let Some(time) = cx.now.truetime() else { return };
        let to = to.min(time.latest);
        if self.log.state().safe().max(self.lead.asked.1) >= to {
            return;
        }
        self.promise(to);
        self.propose_lease(cx, self.log.state().lease());
    }

    /// What a leader does from time to time.
    pub(super) fn tick(&mut self, cx: &mut Step<'_>) {
        if !self.lead.open {
            return;
        }
        self.expire(cx);
        // A clock that had no bound when a commit wait was to end may have one again.
        self.end_commit_waits(cx);
        self.resend_votes(cx);
        self.resend_decisions(cx);
        let waiting = self.lead.active.values().filter(|active| active.waiting.is_some());
        for id in waiting.map(|active| active.txn.id).collect::<Vec<_>>() {
            self.wound_younger(cx, id);
        }
        self.advance_readers(cx);
        let read_lately = self.lead.read_at.is_some_and(|at| cx.now.monotonic < at + RENEWED_FOR);
        if let Some(time) = cx.now.truetime().filter(|_| read_lately) {
            self.extend_lease(cx, time.latest);
        }
        if !self.lead.known.is_empty() && self.lead.asked.0 <= self.log.state().lease() {
            self.propose_lease(cx, self.log.state().lease());
        }
    }

    /// Ends what nobody waits for: transactions whose clients are silent, reads that are given up.
    fn expire(&mut self, cx: &mut Step<'_>) {
        let now = cx.now.monotonic;
        let silent = |active: &&Active| {
            let held = matches!(
                active.stage,
                Stage::Open(_) | Stage::Preparing(..) | Stage::Gathering(_) | Stage::Locking(_)
            );
            held && active.heard + self.settings.lock_lease() <= now
        };
        let silent: Vec<_> = self.lead.active.values().filter(silent).map(|active| active.txn.id).collect();
        for id in silent {
            self.counters.silent += 1;
            self.abort(cx, id, Reason::Silent);
        }
        let patience = self.settings.operation_timeout;
        let lead = &mut self.lead;
        lead.readers.retain(|_, reader| now < reader.since + patience);
        lead.ended.retain(|_, (until, _)| *until > lead.max);
        lead.votes.retain(|_, votes| votes.until > lead.max);
    }

    /// Aborts a transaction that is not decided and not prepared.
    pub(super) fn abort(&mut self, cx: &mut Step<'_>, id: TxnId, reason: Reason) {
        let Some(active) = self.lead.active.get(&id) else { return };
        match &active.stage {
            Stage::Open(_) | Stage::Preparing(..) => self.abort_here(cx, id, reason),
            Stage::Gathering(_) | Stage::Locking(_) => self.abort_everywhere(cx, id, reason),
            // Decided, or for the coordinator to decide.
            _ => {}
        }
    }

    /// Aborts a transaction that has no word in the log.
    pub(super) fn abort_here(&mut self, cx: &mut Step<'_>, id: TxnId, reason: Reason) {
        let Some(active) = self.lead.active.remove(&id) else { return };
        self.lead.ended.insert(id, (active.txn.until, reason));
        match active.stage {
            Stage::Preparing(_, coordinator) => {
                self.vote(cx, active.txn, coordinator, Vote::No(reason));
            }
            _ => self.tell_ended(cx, id, reason),
        }
        self.release_locks(cx, id);
    }

    /// Tells a client that its transaction has lost its locks. If it has asked a coordinator, that one's word counts.
    pub(super) fn tell_ended(&self, cx: &mut Step<'_>, txn: TxnId, reason: Reason) {
        let ending = super::message::Ending::Aborted(reason);
        self.reply(cx, txn, Reply::Ended { txn, ending, decided: false });
    }

    /// Gives a transaction's locks to those who wait for them.
    pub(super) fn release_locks(&mut self, cx: &mut Step<'_>, id: TxnId) {
        for freed in self.lead.locks.release(id) {
            self.resume(cx, freed);
        }
    }

    /// A transaction has all the locks that it waited for.
    fn resume(&mut self, cx: &mut Step<'_>, id: TxnId) {
        let Some(active) = self.lead.active.get_mut(&id) else { return };
        let Some(since) = active.waiting.take() else { return };
        if !matches!(active.stage, Stage::Open(_)) {
            active.waited += cx.now.monotonic - since;
        }
        match &active.stage {
            Stage::Open(_) => self.answer_read(cx, id),
            Stage::Preparing(..) => self.prepare(cx, id),
            Stage::Locking(_) => self.commit(cx, id),
            _ => {}
        }
    }

    /// Asks for locks. True if all of them are held; otherwise the transaction waits, and goes on by itself.
    pub(super) fn acquire(&mut self, cx: &mut Step<'_>, id: TxnId, keys: &[Bytes], mode: Mode) -> bool {
        let Some(active) = self.lead.active.get(&id) else { return false };
        for key in keys {
            self.lead.locks.acquire(&active.txn, key, mode);
        }
        if !self.lead.locks.waits(id) {
            return true;
        }
        if let Some(active) = self.lead.active.get_mut(&id) {
            active.waiting = Some(cx.now.monotonic);
        }
        self.counters.lock_wait += 1;
        self.wound_younger(cx, id);
        false
    }

    /// Wounds the younger transactions that hold what this one waits for. A prepared one is its coordinator's to abort.
    pub(super) fn wound_younger(&mut self, cx: &mut Step<'_>, id: TxnId) {
        for victim in self.lead.locks.younger_in_the_way(id) {
            let Some(active) = self.lead.active.get(&victim) else { continue };
            self.counters.wound += 1;
            if let Stage::Prepared(coordinator) = active.stage {
                let request = Request::Ask { txn: active.txn, from: self.id.partition, wound: true };
                self.ask_leader(cx, coordinator, request);
            } else {
                self.abort(cx, victim, Reason::Wounded);
            }
        }
    }

    /// A transaction with a timestamp has ended: reads that waited for it go on, those that skipped it are told.
    pub(super) fn end_pending(&mut self, cx: &mut Step<'_>, id: TxnId, at: Option<Timestamp>) {
        let Some(pending) = self.lead.remove_pending(id) else { return };
        for reader in pending.skipped_by {
            self.counters.slow_reply += 1;
            self.reply(cx, reader, Reply::Slow { id: reader, txn: id, at });
        }
        for reader in pending.blocks {
            self.advance_reader(cx, reader);
        }
    }

    /// The state behind the log.
    pub(super) fn state(&self) -> &Shard {
        self.log.state()
    }
}

impl Leader {
    /// Locks what a prepared part has read and writes.
    fn lock(&mut self, part: &Part) {
        for key in &part.reads {
            self.locks.acquire(&part.txn, key, Mode::Shared);
        }
        for write in &part.writes {
            self.locks.acquire(&part.txn, &write.key, Mode::Exclusive);
        }
        assert!(!self.locks.waits(part.txn.id), "prepared transactions do not want each other's locks");
    }

    pub(super) fn add_pending(&mut self, part: Part, at: Timestamp) {
        let id = part.txn.id;
        self.writers.extend(part.writes.iter().map(|write| (write.key.clone(), id)));
        let pending = Pending { part, at, blocks: BTreeSet::new(), skipped_by: BTreeSet::new() };
        self.pending.insert(id, pending);
    }

    fn remove_pending(&mut self, id: TxnId) -> Option<Pending> {
        let pending = self.pending.remove(&id)?;
        for write in &pending.part.writes {
            if self.writers.get(&write.key) == Some(&id) {
                self.writers.remove(&write.key);
            }
        }
        Some(pending)
    }
}
