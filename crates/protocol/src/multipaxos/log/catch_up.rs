//! Bringing a replica back that was away: with the log as far as it is kept, otherwise with a snapshot in pages.

use super::{Accepted, Log, MESSAGE_BYTES, Message, Out, Record, Role, Slot, StateMachine, size};
use crate::clock::{Micros, Now};
use crate::topology::Region;
use bytes::Bytes;
use std::fmt::{self, Debug};

/// What a replica that is behind has asked for.
#[derive(Clone)]
pub(super) struct CatchingUp<F> {
    source: Region,
    /// When the answer counts as lost.
    pub(super) deadline: Micros,
    /// How often the same page was asked for.
    tries: u64,
    incoming: Option<Incoming<F>>,
}

/// The pages of a snapshot that have come.
#[derive(Clone, Debug)]
struct Incoming<F> {
    at: Slot,
    facts: Vec<F>,
    after: Bytes,
}

/// A snapshot on its way to a replica: a state that stays as it is while the log goes on.
#[derive(Clone)]
pub(super) struct Outgoing<S> {
    pub(super) at: Slot,
    state: S,
    /// When the receiver counts as gone.
    pub(super) deadline: Micros,
}

/// Without the deadline.
impl<F: Debug> Debug for CatchingUp<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CatchingUp({:?}, {}, {:?})", self.source, self.tries, self.incoming)
    }
}

/// Without the deadline.
impl<S: Debug> Debug for Outgoing<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Outgoing({}, {:?})", self.at, self.state)
    }
}

/// A receiver that asks for nothing for so many times the time after which it asks again is gone.
const PATIENCE: u64 = 20;

impl<S: StateMachine> Log<S> {
    /// Asks for what is chosen, unless an answer is under way.
    pub(super) fn ask_for_more(&mut self, now: Now, source: Region, out: &mut Out<S>) {
        if self.catching_up.is_some() || source == self.own {
            return;
        }
        let deadline = now.monotonic + self.retry;
        self.catching_up = Some(CatchingUp { source, deadline, tries: 0, incoming: None });
        out.sends.push((source, Message::CatchUp { from: self.commit + 1 }));
    }

    /// Gives up waiting for an answer that is late. Pages that have come are kept while there is hope for more.
    pub(super) fn end_catch_up(&mut self, now: Now, out: &mut Out<S>) {
        let retry = self.retry;
        let Some(catching_up) = &mut self.catching_up else { return };
        if now.monotonic < catching_up.deadline {
            return;
        }
        if let Some(Incoming { at, after, .. }) = &catching_up.incoming
            && catching_up.tries < PATIENCE / 2
        {
            catching_up.tries += 1;
            catching_up.deadline = now.monotonic + retry;
            out.sends.push((catching_up.source, Message::NextPage { at: *at, after: after.clone() }));
            return;
        }
        self.catching_up = None;
        self.advance_election(now, out);
    }

    /// Tells what is chosen from `first` on, as far as one message goes.
    pub(super) fn on_catch_up(&mut self, now: Now, from: Region, first: Slot, out: &mut Out<S>) {
        if first <= self.floor {
            let at = self.commit;
            self.outgoing.entry(from).or_insert_with(|| Outgoing {
                at,
                state: self.state.clone(),
                deadline: 0,
            });
            return self.send_page(now, from, &Bytes::new(), out);
        }
        // It has all that the snapshot would have told.
        self.outgoing.remove(&from);
        let mut bytes = 0;
        let entries = self.entries.range(first..=self.commit.max(first)).take_while(|(slot, accepted)| {
            let before = bytes;
            bytes += size(&accepted.entry);
            **slot <= self.commit && (before == 0 || bytes <= MESSAGE_BYTES)
        });
        let entries: Vec<_> = entries.map(|(_, accepted)| accepted.clone()).collect();
        out.sends.push((from, Message::Chosen { first, entries, commit: self.commit }));
    }

    pub(super) fn on_chosen(
        &mut self,
        now: Now,
        from: Region,
        (first, entries, commit): (Slot, Vec<Accepted<S::Command>>, Slot),
        out: &mut Out<S>,
    ) {
        if self.leads() {
            return;
        }
        let before = self.commit;
        for (slot, accepted) in (first..).zip(entries) {
            self.learn(slot, accepted, out);
        }
        if self.commit > before {
            self.counters.catch_up += 1;
            self.caught_up(now, from, commit, out);
        }
    }

    /// Goes on after some catching up.
    fn caught_up(&mut self, now: Now, from: Region, commit: Slot, out: &mut Out<S>) {
        self.catching_up = None;
        if self.commit < commit {
            self.ask_for_more(now, from, out);
        }
        if matches!(self.role, Role::Preparing(_)) {
            self.set_election_alarm(now);
            self.advance_election(now, out);
        }
    }

    /// Applies what somebody knows to be chosen, if it is what comes next.
    pub(super) fn learn(&mut self, slot: Slot, chosen: Accepted<S::Command>, out: &mut Out<S>) {
        if slot != self.commit + 1 {
            return;
        }
        let ballot = self.entries.get(&slot).map_or(chosen.ballot, |own| own.ballot.max(chosen.ballot));
        if let Some(own) = self.entries.get(&slot).filter(|own| own.entry != chosen.entry) {
            // Accepted from a leader that was not heard by a majority: another entry has been chosen since.
            let own = own.clone();
            self.entries.remove(&slot);
            self.bytes -= size(&own.entry) as u64;
        }
        self.accept(slot, Accepted { ballot, entry: chosen.entry }, out);
        self.apply_next(false, out);
    }

    fn send_page(&mut self, now: Now, to: Region, after: &Bytes, out: &mut Out<S>) {
        let deadline = now.monotonic + PATIENCE * self.retry;
        let Some(outgoing) = self.outgoing.get_mut(&to) else { return };
        outgoing.deadline = deadline;
        let (facts, next) = outgoing.state.page(after, MESSAGE_BYTES);
        let (at, after) = (outgoing.at, after.clone());
        out.sends.push((to, Message::Page { at, after, facts, next: next.unwrap_or_default() }));
    }

    pub(super) fn on_next_page(
        &mut self,
        now: Now,
        from: Region,
        (at, after): (Slot, &Bytes),
        out: &mut Out<S>,
    ) {
        match self.outgoing.get(&from) {
            Some(outgoing) if outgoing.at == at => self.send_page(now, from, after, out),
            // Restarted, or given up: from the start, with what there is now.
            _ => self.send_new_snapshot(now, from, out),
        }
    }

    fn send_new_snapshot(&mut self, now: Now, to: Region, out: &mut Out<S>) {
        self.outgoing.insert(to, Outgoing { at: self.commit, state: self.state.clone(), deadline: 0 });
        self.send_page(now, to, &Bytes::new(), out);
    }

    pub(super) fn on_page(
        &mut self,
        now: Now,
        from: Region,
        (at, after, facts, next): (Slot, Bytes, Vec<S::Fact>, Bytes),
        out: &mut Out<S>,
    ) {
        let Some(catching_up) = self.catching_up.as_mut().filter(|catching_up| catching_up.source == from)
        else {
            return;
        };
        if at <= self.commit {
            return;
        }
        if after.is_empty() && catching_up.incoming.as_ref().is_none_or(|known| known.at < at) {
            catching_up.incoming = Some(Incoming { at, facts: Vec::new(), after: Bytes::new() });
        }
        if catching_up.incoming.as_ref().is_none_or(|known| known.at != at || known.after != after) {
            return; // Of another snapshot, or told before.
        }
        catching_up.tries = 0;
        let Some(incoming) = &mut catching_up.incoming else { return };
        incoming.facts.extend(facts);
        if next.is_empty() {
            let facts = std::mem::take(&mut incoming.facts);
            self.install(at, facts, out);
            return self.caught_up(now, from, at, out);
        }
        incoming.after = next.clone();
        catching_up.deadline = now.monotonic + self.retry;
        out.sends.push((from, Message::NextPage { at, after: next }));
        if matches!(self.role, Role::Preparing(_)) {
            self.set_election_alarm(now);
        }
    }

    /// Takes over a whole state. What is accepted in later slots stays: it may be what makes it chosen.
    fn install(&mut self, at: Slot, facts: Vec<S::Fact>, out: &mut Out<S>) {
        self.counters.snapshot += 1;
        self.state.install(facts);
        self.commit = at;
        self.store_state(out);
        while let Some(first) = self.entries.first_entry()
            && *first.key() <= at
        {
            let (slot, accepted) = first.remove_entry();
            self.forget(slot, &accepted, out);
        }
        self.floor = at;
        // What others were being sent from here is older than this.
        self.outgoing.clear();
        debug_assert!(
            out.records.iter().any(|record| matches!(record, Record::Applied(slot) if *slot == at))
        );
    }
}
