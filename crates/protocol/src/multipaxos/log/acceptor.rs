//! Promising, accepting, learning what is chosen, applying it, and forgetting what is durable in the state.

use super::message::{Progress, Told};
use super::{
    Accepted, Ballot, Entry, Log, MESSAGE_BYTES, Message, MessageOf, Out, Record, RecordOf, Role, Slot,
    StateMachine, size,
};
use crate::clock::{Micros, Now};
use crate::planted::Planted;
use crate::topology::Region;

/// Up to so many chosen entries that a candidate lacks are told along with a promise; if it lacks more it asks.
const TOLD_ALONG: Slot = 1_000;

impl<S: StateMachine> Log<S> {
    pub(super) fn restore(&mut self, records: Vec<RecordOf<S>>) {
        for record in records {
            match record {
                Record::Promise(ballot) if !self.plant.has(Planted::ForgetPromise) => {
                    self.promised = self.promised.max(ballot);
                }
                Record::Promise(_) | Record::Accepted(_, None) => {}
                Record::Accepted(slot, Some(accepted)) => {
                    self.promised = self.promised.max(accepted.ballot);
                    self.bytes += size(&accepted.entry) as u64;
                    self.entries.insert(slot, accepted);
                }
                Record::Applied(slot) => (self.commit, self.checkpoint) = (slot, slot),
                Record::Fact(fact) => self.state.restore(fact),
            }
        }
        let first = self.entries.keys().next().copied().unwrap_or(Slot::MAX);
        self.floor = self.commit.min(first - 1);
        self.seen = self.promised;
    }

    /// Promises to accept nothing of lower ballots.
    pub(super) fn promise(&mut self, ballot: Ballot, out: &mut Out<S>) {
        if ballot > self.promised {
            self.promised = ballot;
            self.see(ballot);
            out.records.push(Record::Promise(ballot));
        }
    }

    pub(super) fn on_prepare(
        &mut self,
        now: Now,
        from: Region,
        (ballot, first, consent): (Ballot, Slot, Option<Ballot>),
        out: &mut Out<S>,
    ) {
        self.see(ballot);
        if ballot < self.promised || ballot.region != from {
            return self.refuse(from, out);
        }
        if self.is_lent_to_another(now, ballot, consent) {
            return; // The candidate asks again; by then the lease may be over.
        }
        if ballot > self.promised {
            self.step_down(now, None);
        }
        self.promise(ballot, out);
        self.send_promise(from, first, out);
    }

    /// Whether another leader may be answering reads alone because of what this replica has told it.
    pub(super) fn is_lent_to_another(&self, now: Now, ballot: Ballot, consent: Option<Ballot>) -> bool {
        self.lent.is_some_and(|(holder, until)| {
            // A holder that has restarted does not use what it was lent before.
            let same = holder != Ballot::default() && holder.region == ballot.region;
            now.monotonic < until && !same && consent != Some(holder)
        })
    }

    /// Tells all that is accepted from `first` on, in parts of bounded size. What is known to be chosen may be left
    /// out, because the candidate hears how far that goes.
    fn send_promise(&self, to: Region, first: Slot, out: &mut Out<S>) {
        let (ballot, commit) = (self.promised, self.commit);
        let omit = first <= self.floor || commit.saturating_sub(first) > TOLD_ALONG;
        let mut told = Told { from: first, until: Slot::MAX, commit, accepted: Vec::new() };
        let mut bytes = 0;
        let start = if omit { first.max(commit + 1) } else { first };
        for (slot, accepted) in self.entries.range(start..) {
            if bytes >= MESSAGE_BYTES {
                let next = Told { from: *slot, until: Slot::MAX, commit, accepted: Vec::new() };
                let part = Told { until: slot - 1, ..std::mem::replace(&mut told, next) };
                out.sends.push((to, Message::Promise { ballot, told: part }));
                bytes = 0;
            }
            bytes += size(&accepted.entry);
            told.accepted.push((*slot, accepted.clone()));
        }
        out.sends.push((to, Message::Promise { ballot, told }));
    }

    pub(super) fn refuse(&mut self, to: Region, out: &mut Out<S>) {
        self.counters.refused += 1;
        out.sends.push((to, Message::Refused { promised: self.promised }));
    }

    pub(super) fn on_accept(
        &mut self,
        now: Now,
        from: Region,
        (ballot, first, entries, commit): (Ballot, Slot, Vec<Entry<S::Command>>, Slot),
        out: &mut Out<S>,
    ) {
        if ballot.region != from || entries.is_empty() {
            return;
        }
        let last = first.saturating_add(entries.len() as Slot - 1);
        if ballot < self.promised && !self.ignores_promise(ballot, first) {
            return self.refuse(from, out);
        }
        if ballot >= self.promised {
            self.follow(now, ballot, out);
        }
        for (slot, entry) in (first..).zip(entries) {
            // What is known to be chosen is this very entry.
            if slot > self.commit {
                self.accept(slot, Accepted { ballot, entry }, out);
            }
        }
        let progress = self.progress();
        out.sends.push((from, Message::Accepted { ballot, first, last, progress }));
        self.learn_commit(ballot, commit, out);
    }

    fn ignores_promise(&self, ballot: Ballot, slot: Slot) -> bool {
        self.plant.has(Planted::PromiseSkipsFilledSlots)
            && self.entries.get(&slot).is_some_and(|accepted| accepted.ballot <= ballot)
    }

    /// Puts an entry into a slot, durably.
    pub(super) fn accept(&mut self, slot: Slot, accepted: Accepted<S::Command>, out: &mut Out<S>) {
        let old = self.entries.get(&slot);
        if old.is_some_and(|old| old.ballot == accepted.ballot) {
            return; // Sent twice: a leader has one entry for a slot.
        }
        let old = old.map_or(0, |old| size(&old.entry) as u64);
        self.bytes = self.bytes + size(&accepted.entry) as u64 - old;
        out.store(|| Record::Accepted(slot, Some(accepted.clone())));
        self.entries.insert(slot, accepted);
    }

    pub(super) fn on_heartbeat(
        &mut self,
        now: Now,
        from: Region,
        (ballot, commit, everywhere, sent): (Ballot, Slot, Slot, Micros),
        out: &mut Out<S>,
    ) {
        if ballot < self.promised || ballot.region != from {
            return self.refuse(from, out);
        }
        self.follow(now, ballot, out);
        if self.settings.lease > 0 {
            self.lent = Some((ballot, now.monotonic + self.settings.lease));
        }
        // A replica that trusts no bound on its clock lends nothing: 0 is long over.
        let sent = if now.uncertainty.is_some() { sent } else { 0 };
        self.learn_commit(ballot, commit, out);
        if self.commit < commit {
            self.ask_for_more(now, from, out);
        }
        let progress = self.progress();
        out.sends.push((from, Message::HeartbeatReply { ballot, progress, sent }));
        self.everywhere = everywhere;
        self.truncate(out);
    }

    pub(super) fn progress(&self) -> Progress {
        Progress { commit: self.commit, checkpoint: self.checkpoint }
    }

    /// Takes the sender of this ballot for the leader.
    fn follow(&mut self, now: Now, ballot: Ballot, out: &mut Out<S>) {
        self.promise(ballot, out);
        self.step_down(now, Some(ballot));
    }

    /// Leads no more, nor tries to.
    pub(super) fn step_down(&mut self, now: Now, leader: Option<Ballot>) {
        self.role = Role::Following;
        self.leader = leader;
        self.heard = now.monotonic;
        self.set_election_alarm(now);
    }

    /// Applies what is chosen up to `upto` as far as it is here: the leader of `ballot` has said so, and all that is
    /// accepted at its ballot, or later, is what it knows to be chosen.
    fn learn_commit(&mut self, ballot: Ballot, upto: Slot, out: &mut Out<S>) {
        while self.commit < upto
            && self.entries.get(&(self.commit + 1)).is_some_and(|accepted| accepted.ballot >= ballot)
        {
            self.apply_next(false, out);
        }
    }

    /// Applies the next slot, whose entry is chosen.
    pub(super) fn apply_next(&mut self, leading: bool, out: &mut Out<S>) {
        self.commit += 1;
        if let Some(Accepted { entry: Entry::Command(command), .. }) = self.entries.get(&self.commit) {
            out.answers.extend(self.state.apply(self.commit, command, leading));
        }
        if self.commit - self.checkpoint >= self.settings.checkpoint.max(1) {
            self.store_state(out);
            self.truncate(out);
        }
    }

    /// Makes the state durable as it is now. All in one step, so that it is as of one slot.
    pub(super) fn store_state(&mut self, out: &mut Out<S>) {
        self.counters.checkpoint += 1;
        out.records.extend(self.state.checkpoint().into_iter().map(Record::Fact));
        out.records.push(Record::Applied(self.commit));
        self.checkpoint = self.commit;
    }

    /// Forgets entries that are in the durable state, here and everywhere; or here only, if there are too many bytes
    /// of them. Not those that whoever is being sent a snapshot will ask for next.
    pub(super) fn truncate(&mut self, out: &mut Out<S>) {
        let sending = self.outgoing.values().map(|outgoing| outgoing.at).min().unwrap_or(Slot::MAX);
        let limit = self.checkpoint.min(sending);
        while let Some(first) = self.entries.first_entry()
            && *first.key() <= limit
            && (*first.key() <= self.everywhere || self.bytes > self.settings.keep_bytes)
        {
            let (slot, accepted) = first.remove_entry();
            self.forget(slot, &accepted, out);
        }
    }

    pub(super) fn forget(&mut self, slot: Slot, accepted: &Accepted<S::Command>, out: &mut Out<S>) {
        self.counters.truncation += 1;
        self.floor = self.floor.max(slot);
        self.bytes -= size(&accepted.entry) as u64;
        out.store(|| Record::Accepted(slot, None));
    }

    /// Sends to all others.
    pub(super) fn send_all(&self, message: &MessageOf<S>, out: &mut Out<S>) {
        out.sends.extend(self.others().map(|region| (region, message.clone())));
    }
}
