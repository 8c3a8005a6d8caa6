//! The coordinator: gathers votes, decides, waits until the commit timestamp has passed, and tells everybody.

use super::lead::{Active, Commit, Stage, Telling, Votes};
use super::locks::Mode;
use super::message::{Ending, Part, Partition, Reason, Reply, Request, Timestamp, Txn, TxnId, Vote};
use super::replica::{Due, Replica, Step};
use super::shard::Action;
use crate::planted::Planted;
use std::collections::{BTreeMap, BTreeSet};

impl Replica {
    /// A client wants a transaction committed.
    pub(super) fn on_commit(&mut self, cx: &mut Step<'_>, part: Part, participants: Vec<Partition>) {
        let txn = part.txn;
        if self.lead.pending.contains_key(&txn.id) {
            return; // On its way; the answer comes after the commit wait.
        }
        if let Some(ending) = self.decision(txn.id) {
            return self.tell_outcome(cx, txn.id, ending);
        }
        let heard = cx.now.monotonic;
        match self.lead.active.get_mut(&txn.id).map(|active| (&active.stage, &mut active.heard)) {
            Some((Stage::Open(_), last)) => *last = heard,
            Some((_, last)) => return *last = heard,
            None => {}
        }
        if self.log.state().safe() >= txn.until {
            // What had become of it may be forgotten.
            return self.tell_outcome(cx, txn.id, Ending::Forgotten);
        }
        let refused = self.why_not(&part);
        let time = cx.now.truetime();
        let asked = time.map_or(0, |time| time.latest);
        let commit = Commit { part, participants, asked };
        let new = || Active::new(txn, heard, Stage::Open(Vec::new()));
        let active = self.lead.active.entry(txn.id).or_insert_with(new);
        active.stage = Stage::Gathering(commit);
        match refused.or(time.is_none().then_some(Reason::NoClock)) {
            Some(reason) => self.abort_everywhere(cx, txn.id, reason),
            None => self.advance_votes(cx, txn.id),
        }
    }

    /// What the log says about a transaction.
    fn decision(&self, id: TxnId) -> Option<Ending> {
        let decision = self.log.state().decisions().get(&id)?;
        Some(decision.committed.map_or(Ending::Aborted(Reason::Wounded), |(at, earliest_end)| {
            Ending::Committed { at, earliest_end }
        }))
    }

    fn tell_outcome(&self, cx: &mut Step<'_>, txn: TxnId, ending: Ending) {
        self.reply(cx, txn, Reply::Ended { txn, ending, decided: true });
    }

    pub(super) fn on_vote(&mut self, cx: &mut Step<'_>, txn: Txn, from: Partition, vote: Vote) {
        if self.tell_decision(cx, &txn, from) {
            return;
        }
        match vote {
            Vote::Yes { at, earliest_end } => {
                let new = || Votes { until: txn.until, yes: BTreeMap::new() };
                let votes = self.lead.votes.entry(txn.id).or_insert_with(new);
                votes.yes.insert(from, (at, earliest_end));
                self.advance_votes(cx, txn.id);
            }
            Vote::No(reason) => self.give_up(cx, txn, from, reason),
        }
    }

    /// Tells a participant what was decided, if it was and the commit wait is over. True if there is nothing more to do.
    fn tell_decision(&mut self, cx: &mut Step<'_>, txn: &Txn, to: Partition) -> bool {
        if self.lead.pending.contains_key(&txn.id) {
            return true;
        }
        let at = match self.decision(txn.id) {
            Some(Ending::Committed { at, .. }) => Some(at),
            Some(_) => None,
            // Nobody forgets a commit that a participant does not know of.
            None if self.log.state().safe() >= txn.until => None,
            None => return false,
        };
        self.decide(cx, *txn, at, to);
        true
    }

    fn decide(&mut self, cx: &mut Step<'_>, txn: Txn, at: Option<Timestamp>, to: Partition) {
        let coordinator = self.id.partition;
        self.ask_leader(cx, to, Request::Decide { txn, at, coordinator });
    }

    /// A participant does not know what has become of a transaction, or wants it aborted.
    pub(super) fn on_ask(&mut self, cx: &mut Step<'_>, txn: Txn, from: Partition, wound: bool) {
        if self.tell_decision(cx, &txn, from) {
            return;
        }
        let at_work = self.lead.active.get(&txn.id).is_some_and(|active| {
            matches!(active.stage, Stage::Gathering(_) | Stage::Locking(_) | Stage::Aborting(..))
        });
        // Whoever has not asked to commit by now finds the transaction aborted.
        if wound || !at_work {
            self.give_up(cx, txn, from, Reason::Wounded);
        }
    }

    /// Aborts a transaction that this shard coordinates, whether its client has asked to commit it or not.
    fn give_up(&mut self, cx: &mut Step<'_>, txn: Txn, from: Partition, reason: Reason) {
        let heard = cx.now.monotonic;
        let new = || Active::new(txn, heard, Stage::Open(Vec::new()));
        let active = self.lead.active.entry(txn.id).or_insert_with(new);
        match &mut active.stage {
            Stage::Aborting(_, tell) => {
                tell.insert(from);
            }
            Stage::Open(_) | Stage::Gathering(_) | Stage::Locking(_) => {
                self.abort_everywhere(cx, txn.id, reason);
                let active = self.lead.active.get_mut(&txn.id);
                if let Some(Stage::Aborting(_, tell)) = active.map(|active| &mut active.stage) {
                    tell.insert(from);
                }
            }
            _ => {}
        }
    }

    /// Puts the abort into the log, so that nobody can commit it any more, whoever leads.
    pub(super) fn abort_everywhere(&mut self, cx: &mut Step<'_>, id: TxnId, reason: Reason) {
        let Some(active) = self.lead.active.get_mut(&id) else { return };
        let tell = match &active.stage {
            Stage::Gathering(commit) | Stage::Locking(commit) => commit.participants.clone(),
            _ => Vec::new(),
        };
        active.stage = Stage::Aborting(reason, tell.into_iter().collect());
        active.waiting = None;
        let txn = active.txn;
        self.lead.votes.remove(&id);
        self.release_locks(cx, id);
        self.propose(cx, Action::Decide { txn, at: None });
    }

    /// The log has the abort.
    pub(super) fn on_aborted(
        &mut self,
        cx: &mut Step<'_>,
        id: TxnId,
        reason: Reason,
        tell: BTreeSet<Partition>,
    ) {
        let Some(active) = self.lead.active.remove(&id) else { return };
        self.counters.abort += 1;
        self.tell_outcome(cx, id, Ending::Aborted(reason));
        for participant in tell {
            self.decide(cx, active.txn, None, participant);
        }
    }

    /// Goes on if all participants are prepared.
    fn advance_votes(&mut self, cx: &mut Step<'_>, id: TxnId) {
        let Some(active) = self.lead.active.get_mut(&id) else { return };
        let Stage::Gathering(commit) = &active.stage else { return };
        let votes = self.lead.votes.get(&id);
        let is_prepared = |from: &Partition| votes.is_some_and(|votes| votes.yes.contains_key(from));
        if !commit.participants.iter().all(is_prepared) {
            return;
        }
        let commit = commit.clone();
        let keys: Vec<_> = commit.part.writes.iter().map(|write| write.key.clone()).collect();
        active.stage = Stage::Locking(commit);
        if self.acquire(cx, id, &keys, Mode::Exclusive) {
            self.commit(cx, id);
        }
    }

    /// All locks are held: gives the commit timestamp and decides.
    pub(super) fn commit(&mut self, cx: &mut Step<'_>, id: TxnId) {
        let Some(active) = self.lead.active.get(&id) else { return };
        let Stage::Locking(commit) = &active.stage else { return };
        let Commit { mut part, participants, asked } = commit.clone();
        let waited = active.waited;
        let votes = self.lead.votes.remove(&id).map(|votes| votes.yes).unwrap_or_default();
        let prepared = votes.values().map(|(at, _)| *at).max().unwrap_or(0);
        let at = self.give_timestamp(asked.max(prepared));
        if at >= part.txn.until {
            return self.abort_everywhere(cx, id, Reason::Late);
        }
        part.earliest_end = self.clamp(part.earliest_end, waited, at);
        let ends = votes.values().map(|(_, end)| *end);
        let earliest_end = ends.fold(part.earliest_end, Timestamp::max);
        if let Some(active) = self.lead.active.get_mut(&id) {
            active.stage = Stage::Committing { at, earliest_end, participants: participants.clone() };
        }
        self.lead.add_pending(part.clone(), at);
        if self.settings.plant.has(Planted::UnreplicatedDecision) {
            self.settle_commit(cx, id);
        }
        self.propose(cx, Action::Commit { part, at, earliest_end, participants });
    }

    /// The log has the commit: it is told when its timestamp has passed.
    pub(super) fn on_committed(&mut self, cx: &mut Step<'_>, id: TxnId) {
        let Some(Stage::Committing { at, .. }) = self.lead.active.get(&id).map(|active| &active.stage) else {
            return;
        };
        self.lead.commit_waits.insert((*at, id));
        self.end_commit_waits(cx);
    }

    /// Ends the commit waits that are over.
    pub(super) fn end_commit_waits(&mut self, cx: &mut Step<'_>) {
        let Some(time) = cx.now.truetime() else { return };
        let no_wait = self.settings.plant.has(Planted::NoCommitWait);
        while let Some((at, id)) = self.lead.commit_waits.first().copied() {
            if time.earliest <= at && !no_wait {
                return self.at_time(cx, time, at, Due::CommitWait);
            }
            self.lead.commit_waits.remove(&(at, id));
            self.settle_commit(cx, id);
        }
    }

    /// The commit may be seen: tells the client and the participants, and gives up the locks.
    fn settle_commit(&mut self, cx: &mut Step<'_>, id: TxnId) {
        let Some(active) = self.lead.active.remove(&id) else { return };
        let Stage::Committing { at, earliest_end, participants } = active.stage else { return };
        self.counters.commit += 1;
        self.tell_outcome(cx, id, Ending::Committed { at, earliest_end });
        for participant in &participants {
            self.decide(cx, active.txn, Some(at), *participant);
        }
        if !participants.is_empty() {
            let participants = participants.into_iter().collect();
            self.lead.telling.insert(id, Telling { txn: active.txn, at, participants });
        }
        self.end_pending(cx, id, Some(at));
        self.release_locks(cx, id);
    }

    /// A participant knows that a transaction has committed.
    pub(super) fn on_decided(&mut self, id: TxnId, from: Partition) {
        let Some(telling) = self.lead.telling.get_mut(&id) else { return };
        telling.participants.remove(&from);
        if telling.participants.is_empty() {
            self.lead.telling.remove(&id);
            self.lead.known.push(id);
        }
    }

    /// Tells the participants again that do not know yet.
    pub(super) fn resend_decisions(&mut self, cx: &mut Step<'_>) {
        let telling = self.lead.telling.values();
        let all = telling.flat_map(|t| t.participants.iter().map(|to| (t.txn, t.at, *to)));
        for (txn, at, to) in all.collect::<Vec<_>>() {
            self.decide(cx, txn, Some(at), to);
        }
    }
}
