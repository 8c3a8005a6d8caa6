//! Finding a leader: asking for support, asking for promises, and taking up what an earlier leader left open.

use super::message::Told;
use super::{Accepted, Ballot, Log, Message, Out, Role, Slot, StateMachine};
use crate::clock::Now;
use crate::topology::{Region, RegionSet};
use std::collections::BTreeMap;

/// A replica that asks whether it would be supported.
#[derive(Clone, Debug)]
pub(super) struct Canvassing {
    ballot: Ballot,
    /// The leader that wants to be followed by this replica.
    consent: Option<Ballot>,
    supporters: RegionSet,
}

/// A candidate.
#[derive(Clone, Debug)]
pub(super) struct Preparing<C> {
    ballot: Ballot,
    consent: Option<Ballot>,
    /// Asked for what is accepted from here on.
    from: Slot,
    /// Of each replica, up to where it has told what it has accepted.
    told: BTreeMap<Region, Slot>,
    /// Who has told all.
    promised: RegionSet,
    /// For each slot what was accepted at the highest ballot.
    highest: BTreeMap<Slot, Accepted<C>>,
    /// Up to where all is known to be chosen, and who knows it.
    chosen: (Slot, Region),
}

impl<S: StateMachine> Log<S> {
    /// Asks whether a majority would have this replica as its leader.
    pub(super) fn canvass(&mut self, now: Now, consent: Option<Ballot>, out: &mut Out<S>) {
        let round = self.seen.max(self.promised).round + 1;
        let ballot = Ballot { round, region: self.own };
        let supporters = RegionSet::of(self.own);
        self.role = Role::Canvassing(Canvassing { ballot, consent, supporters });
        self.leader = None;
        self.set_election_alarm(now);
        self.resend_at = now.monotonic + self.retry;
        self.send_all(&Message::Canvass { ballot, commit: self.commit, consent }, out);
        self.advance_canvass(now, out);
    }

    /// Supports a candidate unless there is a leader, or what it lacks is already forgotten here.
    pub(super) fn on_canvass(
        &mut self,
        now: Now,
        from: Region,
        (ballot, commit, consent): (Ballot, Slot, Option<Ballot>),
        out: &mut Out<S>,
    ) {
        self.see(ballot);
        let leader = self.leader().filter(|leader| {
            let lately = self.leads() || now.monotonic < self.heard + self.settings.election;
            lately && leader.region != from && consent != Some(*leader)
        });
        if leader.is_some() || self.floor > commit {
            return;
        }
        if ballot <= self.promised {
            return self.refuse(from, out);
        }
        out.sends.push((from, Message::Support { ballot }));
    }

    pub(super) fn on_support(&mut self, now: Now, from: Region, ballot: Ballot, out: &mut Out<S>) {
        if let Role::Canvassing(canvassing) = &mut self.role
            && canvassing.ballot == ballot
        {
            canvassing.supporters.insert(from);
            self.advance_canvass(now, out);
        }
    }

    fn advance_canvass(&mut self, now: Now, out: &mut Out<S>) {
        let Role::Canvassing(Canvassing { ballot, consent, supporters }) = self.role else { return };
        // Its own promise counts like any other: not while it has lent itself to a leader.
        if supporters.len() < self.majority() || self.is_lent_to_another(now, ballot, consent) {
            return;
        }
        self.promise(ballot, out);
        let from = self.commit + 1;
        let highest = self.entries.range(from..).map(|(slot, accepted)| (*slot, accepted.clone())).collect();
        self.role = Role::Preparing(Preparing {
            ballot,
            consent,
            from,
            told: BTreeMap::new(),
            promised: RegionSet::of(self.own),
            highest,
            chosen: (self.commit, self.own),
        });
        self.send_all(&Message::Prepare { ballot, from, consent }, out);
        self.advance_election(now, out);
    }

    /// Sends again to those that have not answered.
    pub(super) fn ask_again(&mut self, now: Now, out: &mut Out<S>) {
        if now.monotonic < self.resend_at {
            return;
        }
        self.resend_at = now.monotonic + self.retry;
        let (answered, message) = match &self.role {
            Role::Canvassing(Canvassing { ballot, consent, supporters }) => {
                let (ballot, consent) = (*ballot, *consent);
                (*supporters, Message::Canvass { ballot, commit: self.commit, consent })
            }
            Role::Preparing(Preparing { ballot, consent, from, promised, .. }) => {
                (*promised, Message::Prepare { ballot: *ballot, from: *from, consent: *consent })
            }
            Role::Following | Role::Leading(_) => return,
        };
        for region in self.others().filter(|region| !answered.contains(*region)) {
            out.sends.push((region, message.clone()));
        }
        self.advance_canvass(now, out);
    }

    pub(super) fn on_promise(
        &mut self,
        now: Now,
        from: Region,
        (ballot, told): (Ballot, Told<S::Command>),
        out: &mut Out<S>,
    ) {
        let Role::Preparing(preparing) = &mut self.role else { return };
        if preparing.ballot != ballot {
            return;
        }
        // Parts count in their order; one that is missing is told again when the candidate asks again.
        let before = preparing.told.entry(from).or_insert(preparing.from - 1);
        if told.from > before.saturating_add(1) {
            return;
        }
        *before = told.until.max(*before);
        if *before == Slot::MAX {
            preparing.promised.insert(from);
        }
        preparing.chosen = preparing.chosen.max((told.commit, from));
        for (slot, accepted) in &told.accepted {
            if preparing.highest.get(slot).is_none_or(|highest| highest.ballot < accepted.ballot) {
                preparing.highest.insert(*slot, accepted.clone());
            }
        }
        for (slot, accepted) in told.accepted {
            if slot <= told.commit {
                self.learn(slot, accepted, out);
            }
        }
        self.advance_election(now, out);
    }

    /// Leads, if a majority has promised and all that it knows to be chosen is applied here.
    pub(super) fn advance_election(&mut self, now: Now, out: &mut Out<S>) {
        let majority = self.majority();
        let Role::Preparing(preparing) = &mut self.role else { return };
        if preparing.promised.len() < majority {
            return;
        }
        let (chosen, source) = preparing.chosen;
        if self.commit < chosen {
            return self.ask_for_more(now, source, out);
        }
        let (ballot, highest) = (preparing.ballot, std::mem::take(&mut preparing.highest));
        self.lead(now, ballot, highest, out);
    }

    /// Somebody has promised a higher ballot.
    pub(super) fn on_refused(&mut self, now: Now, promised: Ballot, out: &mut Out<S>) {
        self.see(promised);
        match &self.role {
            Role::Canvassing(Canvassing { ballot, consent, .. }) if promised >= *ballot => {
                let consent = *consent;
                self.canvass(now, consent, out);
            }
            // Another candidate is further: it gets the time to finish.
            Role::Preparing(preparing) if promised > preparing.ballot => self.step_down(now, None),
            // A candidate has failed and left a promise behind, or there is a new leader. Those who follow this one
            // support it at a higher ballot; those who have another one do not.
            Role::Leading(leading) if promised > leading.ballot => self.canvass(now, None, out),
            _ => {}
        }
    }

    /// The leader wants this replica to lead in its place.
    pub(super) fn on_take_over(&mut self, now: Now, ballot: Ballot, out: &mut Out<S>) {
        if matches!(self.role, Role::Following) && self.leader == Some(ballot) {
            self.counters.handover += 1;
            self.canvass(now, Some(ballot), out);
        }
    }
}
