//! Finishing instances that their coordinators have left open: the recovery of EPaxos* (Ryabinin, Gotsman, Sutra
//! 2025), which has two ballots an instance and no `TryPreAccept`.
//!
//! What may be chosen when nobody of a majority has accepted anything:
//! - if the coordinator is among those that have promised, or too few have pre-accepted unchanged, it has not
//!   committed in one round and never will. Then what a majority of pre-acceptors, the coordinator among them, know
//!   together is what the coordinator itself would have had accepted; without a majority, a Nop.
//! - otherwise it may have, and only what it proposed can be chosen, or a Nop once that is refuted. If the unchanged
//!   ones and the coordinator are a majority, what it proposed covers a majority's view, and is right anyway. If
//!   they are not (from five regions on), those that have promised are asked what speaks against it (`Validate`):
//!   an interfering instance that is final and of which neither depends on the other refutes it; one that is open
//!   must be finished first.
//!
//! Departure from EPaxos*: who must wait for another instance tells all (`Waiting`), sees to it that the other one is
//! recovered, and tries anew when that is final or its own alarm goes off, instead of listening for each case.

use super::instance::{InstanceId, Proposal};
use super::message::{Message, Report};
use super::replica::{Out, Replica};
use crate::clock::Now;
use crate::gryff::instance::{Ballot, Phase};
use crate::planted::Planted;
use crate::topology::{Address, Region, RegionSet};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// A recovery that this replica leads.
#[derive(Clone, Debug)]
pub(super) struct Recovery {
    ballot: Ballot,
    stage: Stage,
}

#[derive(Clone, Debug)]
enum Stage {
    /// Gathering promises and what is known.
    Collecting(BTreeMap<Region, Report>),
    /// Asking what speaks against a commit in one round.
    Validating(Box<Validation>),
    /// These other instances must be finished first.
    Waiting(BTreeSet<InstanceId>),
    /// An outcome is chosen.
    Accepting { proposal: Box<Proposal>, accepted: RegionSet },
}

#[derive(Clone, Debug)]
struct Validation {
    /// What may have been committed.
    initial: Proposal,
    /// What to choose if that is refuted.
    otherwise: Proposal,
    /// Who has promised, how many of them had pre-accepted unchanged, and who has answered.
    members: RegionSet,
    unchanged: usize,
    replied: RegionSet,
    refuted: bool,
    open: BTreeSet<InstanceId>,
}

/// What a majority's reports allow.
enum Choice {
    /// To choose this.
    Accept(Proposal),
    /// To choose this unless something speaks against it, as so many had it unchanged.
    Validate { initial: Proposal, unchanged: usize, otherwise: Proposal },
}

impl Replica {
    pub(super) fn on_watch_alarm(
        &mut self,
        now: Now,
        key: &Bytes,
        id: InstanceId,
        since: Ballot,
        out: &mut Out,
    ) {
        if self.log(key).is_executed(id) {
            return;
        }
        let promised = self.log(key).instances.get(&id).map(|instance| instance.promised);
        // If somebody has taken it up since the alarm was set, that one gets its time.
        let in_hand = promised.is_some_and(|promised| promised > since) || self.is_coordinating(key, id);
        if self.is_undecided(key, id) && !in_hand {
            self.recover(now, key, id, out);
        }
        self.watch(now, key, id, out);
    }

    /// Takes up an instance at a ballot above all seen.
    fn recover(&mut self, now: Now, key: &Bytes, id: InstanceId, out: &mut Out) {
        let own = self.region();
        let single_ballot = self.settings.plant.has(Planted::SingleBallot);
        let Some(instance) = self.instance(now, key, id, out) else { return };
        let ballot = Ballot { counter: instance.promised.counter.saturating_add(1), leader: own.0 };
        instance.promised = ballot;
        let report = Self::report(instance);
        if single_ballot {
            instance.accepted = ballot;
        }
        self.counters.recovery += 1;
        self.store_instance(key, id, out);
        for region in self.others() {
            out.send(self.peer(region), Message::Recover { key: key.clone(), id, ballot });
        }
        let stage = Stage::Collecting(BTreeMap::from([(own, report)]));
        self.recoveries.insert((key.clone(), id), Recovery { ballot, stage });
        self.decide(now, key, id, out);
    }

    pub(super) fn on_recover(
        &mut self,
        now: Now,
        from: Address,
        (key, id, ballot): (Bytes, InstanceId, Ballot),
        out: &mut Out,
    ) {
        let single_ballot = self.settings.plant.has(Planted::SingleBallot);
        let Some(instance) = self.instance(now, &key, id, out) else {
            return self.send_key_state(from, &key, out);
        };
        if ballot < instance.promised {
            let promised = instance.promised;
            return out.send(from, Message::Refused { key, id, promised });
        }
        let raised = ballot > instance.promised;
        instance.promised = ballot;
        let report = Box::new(Self::report(instance));
        if single_ballot {
            instance.accepted = ballot;
        }
        if raised {
            self.store_instance(&key, id, out);
            self.drop_recovery_below(&key, id, ballot);
        }
        out.send(from, Message::RecoverReply { key, id, ballot, report });
    }

    pub(super) fn on_refused(&mut self, key: &Bytes, id: InstanceId, promised: Ballot, out: &mut Out) {
        let log = self.log(key);
        if let Some(instance) = log.instances.get_mut(&id)
            && instance.promised < promised
        {
            // Promising what another has promised is always safe, and makes the next attempt high enough.
            instance.promised = promised;
            self.store_instance(key, id, out);
        }
        self.drop_recovery_below(key, id, promised);
    }

    /// A recovery with a lower ballot than one promised here can't succeed; its alarm starts another.
    fn drop_recovery_below(&mut self, key: &Bytes, id: InstanceId, ballot: Ballot) {
        let at = (key.clone(), id);
        if self.recoveries.get(&at).is_some_and(|recovery| recovery.ballot < ballot) {
            self.recoveries.remove(&at);
        }
    }

    pub(super) fn on_recover_reply(
        &mut self,
        now: Now,
        from: Region,
        (key, id, ballot, report): (&Bytes, InstanceId, Ballot, Report),
        out: &mut Out,
    ) {
        let Some(recovery) = self.recoveries.get_mut(&(key.clone(), id)) else { return };
        if recovery.ballot != ballot {
            return;
        }
        if let (Phase::Committed, Some(proposal)) = (report.phase, &report.proposal) {
            return self.commit(now, key, id, proposal.clone(), out);
        }
        if let Stage::Collecting(reports) = &mut recovery.stage {
            reports.insert(from, report);
            self.decide(now, key, id, out);
        }
    }

    /// Chooses an outcome once a majority has promised.
    fn decide(&mut self, now: Now, key: &Bytes, id: InstanceId, out: &mut Out) {
        let Some(Recovery { stage: Stage::Collecting(reports), .. }) =
            self.recoveries.get(&(key.clone(), id))
        else {
            return;
        };
        if reports.len() < self.quorum() {
            return;
        }
        let accepted = reports.values().filter(|report| report.phase == Phase::Accepted);
        let best = accepted.max_by_key(|report| report.accepted).and_then(|report| report.proposal.clone());
        match best.map_or_else(|| self.choose(reports, id.row), Choice::Accept) {
            Choice::Accept(proposal) => self.accept(now, key, id, &proposal, out),
            Choice::Validate { initial, unchanged, otherwise } => {
                let mut members = RegionSet::default();
                for region in reports.keys() {
                    members.insert(*region);
                }
                let (replied, open) = (RegionSet::default(), BTreeSet::new());
                let validation =
                    Validation { initial, otherwise, members, unchanged, replied, refuted: false, open };
                self.validate(now, key, id, validation, out);
            }
        }
    }

    /// The outcome of an instance that nobody of a majority has accepted.
    fn choose(&self, reports: &BTreeMap<Region, Report>, coordinator: Region) -> Choice {
        let pre_accepted = || reports.iter().filter(|(_, report)| report.phase == Phase::PreAccepted);
        // What a majority knows together. The coordinator counts: what it knew is in each record.
        let mut knowing = RegionSet::of(coordinator);
        let mut union: Option<Proposal> = None;
        for (region, report) in pre_accepted() {
            knowing.insert(*region);
            match (&mut union, &report.proposal) {
                (Some(union), Some(proposal)) => union.attributes.merge(&proposal.attributes),
                (union, proposal) => union.clone_from(proposal),
            }
        }
        let otherwise = union.filter(|_| knowing.len() >= self.quorum()).unwrap_or_default();
        if reports.contains_key(&coordinator) {
            return Choice::Accept(otherwise);
        }
        // It may have committed in one round, and is not here to tell.
        if self.regions() == 3 {
            // The pair rule: what its partner has on record. If that has nothing on record it has promised, and
            // never will.
            let partner = pre_accepted().find_map(|(_, report)| report.partner);
            let record = partner.and_then(|partner| reports.get(&partner)?.proposal.clone());
            return Choice::Accept(record.unwrap_or(otherwise));
        }
        let unchanged: Vec<_> = pre_accepted().filter(|(_, report)| report.unchanged).collect();
        let count = unchanged.len();
        let initial = unchanged.first().and_then(|(_, report)| report.proposal.clone());
        match initial {
            Some(initial) if count + self.fast_failures() >= reports.len() => {
                if count + 1 >= self.quorum() {
                    Choice::Accept(initial)
                } else {
                    Choice::Validate { initial, unchanged: count, otherwise }
                }
            }
            _ => Choice::Accept(otherwise),
        }
    }

    /// Asks all that have promised what speaks against a commit in one round.
    fn validate(&mut self, now: Now, key: &Bytes, id: InstanceId, validation: Validation, out: &mut Out) {
        self.counters.validate += 1;
        let own = self.region();
        let (initial, members) = (validation.initial.clone(), validation.members);
        let Some(recovery) = self.recoveries.get_mut(&(key.clone(), id)) else { return };
        let ballot = recovery.ballot;
        recovery.stage = Stage::Validating(Box::new(validation));
        for region in self.others().filter(|region| members.contains(*region)) {
            let (key, initial) = (key.clone(), Box::new(initial.clone()));
            out.send(self.peer(region), Message::Validate { key, id, ballot, initial });
        }
        if let Some(found) = self.note_initial(key, id, ballot, initial, out) {
            self.on_validate_reply(now, own, (key, id, ballot), found, out);
        }
    }

    /// Learns what a coordinator proposed, so that what is proposed later comes after it, and says what speaks
    /// against its commit in one round. `None` if another ballot is promised.
    fn note_initial(
        &mut self,
        key: &Bytes,
        id: InstanceId,
        ballot: Ballot,
        initial: Proposal,
        out: &mut Out,
    ) -> Option<(bool, Vec<InstanceId>)> {
        let instance = self.log(key).instances.get_mut(&id)?;
        if instance.promised != ballot {
            return None;
        }
        let attributes = initial.attributes.clone();
        if instance.initial.is_none() {
            instance.initial = Some(attributes.clone());
            if instance.phase == Phase::Unknown {
                instance.proposal = initial;
            }
            self.store_instance(key, id, out);
        }
        let (refuted, open) = self.log(key).conflicts(id, &attributes);
        Some((refuted, open))
    }

    pub(super) fn on_validate(
        &mut self,
        now: Now,
        from: Address,
        (key, id, ballot, initial): (Bytes, InstanceId, Ballot, Proposal),
        out: &mut Out,
    ) {
        let Some(instance) = self.instance(now, &key, id, out) else {
            return self.send_key_state(from, &key, out);
        };
        if instance.phase == Phase::Committed {
            let proposal = Box::new(instance.proposal.clone());
            return out.send(from, Message::Commit { key, id, proposal });
        }
        if ballot < instance.promised {
            let promised = instance.promised;
            return out.send(from, Message::Refused { key, id, promised });
        }
        if let Some((refuted, open)) = self.note_initial(&key, id, ballot, initial, out) {
            out.send(from, Message::ValidateReply { key, id, ballot, refuted, open });
        }
    }

    pub(super) fn on_validate_reply(
        &mut self,
        now: Now,
        from: Region,
        (key, id, ballot): (&Bytes, InstanceId, Ballot),
        (refuted, open): (bool, Vec<InstanceId>),
        out: &mut Out,
    ) {
        let failures = self.fast_failures();
        let Some(recovery) = self.recoveries.get_mut(&(key.clone(), id)) else { return };
        let Stage::Validating(validation) = &mut recovery.stage else { return };
        if recovery.ballot != ballot || !validation.members.contains(from) {
            return;
        }
        validation.replied.insert(from);
        validation.refuted |= refuted;
        validation.open.extend(open);
        if validation.replied != validation.members {
            return;
        }
        let Validation { initial, otherwise, members, unchanged, refuted, open, .. } = &**validation;
        // If not one more may have had it changed, all that are not heard were needed; but the coordinator of an
        // instance that does not know this one cannot have pre-accepted it unchanged.
        let exactly = unchanged + failures == members.len();
        let needed = |other: &InstanceId| exactly && !members.contains(other.row);
        // So many pre-accepted the other one without knowing this one that too few are left.
        let outnumbered = |other: &InstanceId| {
            let told = self.waiting.get(&(key.clone(), *other));
            told.is_some_and(|count| *count as usize >= failures)
        };
        if *refuted || open.iter().any(|other| needed(other) || outnumbered(other)) {
            let proposal = otherwise.clone();
            return self.accept(now, key, id, &proposal, out);
        }
        if open.is_empty() {
            let proposal = initial.clone();
            return self.accept(now, key, id, &proposal, out);
        }
        let (unchanged, open) = (*unchanged as u32, open.clone());
        recovery.stage = Stage::Waiting(open.clone());
        for region in self.others() {
            out.send(self.peer(region), Message::Waiting { key: key.clone(), id, unchanged });
        }
        self.waiting.insert((key.clone(), id), unchanged);
        for other in open {
            // Known here and so watched, which brings it to an end.
            self.instance(now, key, other, out);
        }
    }

    /// An instance is final: recoveries that have waited for it are tried anew.
    pub(super) fn recover_those_that_wait_for(
        &mut self,
        now: Now,
        key: &Bytes,
        final_one: InstanceId,
        out: &mut Out,
    ) {
        let waits = |recovery: &Recovery| matches!(&recovery.stage, Stage::Waiting(open) if open.contains(&final_one));
        let waiting = self.recoveries.iter().filter(|((of, _), recovery)| of == key && waits(recovery));
        let waiting: Vec<_> = waiting.map(|((_, id), _)| *id).collect();
        for id in waiting {
            self.recover(now, key, id, out);
        }
    }

    /// Proposes an outcome at the recovery's ballot.
    fn accept(&mut self, now: Now, key: &Bytes, id: InstanceId, proposal: &Proposal, out: &mut Out) {
        let own = self.region();
        let Some(recovery) = self.recoveries.get_mut(&(key.clone(), id)) else { return };
        let ballot = recovery.ballot;
        recovery.stage =
            Stage::Accepting { proposal: Box::new(proposal.clone()), accepted: RegionSet::default() };
        let Some(instance) = self.log(key).instances.get_mut(&id) else { return };
        if instance.promised != ballot || instance.phase == Phase::Committed {
            self.recoveries.remove(&(key.clone(), id));
            return;
        }
        instance.accepted = ballot;
        instance.phase = Phase::Accepted;
        instance.proposal = proposal.clone();
        self.store_instance(key, id, out);
        for region in self.others() {
            let (key, proposal) = (key.clone(), Box::new(proposal.clone()));
            out.send(self.peer(region), Message::Accept { key, id, ballot, proposal });
        }
        self.on_recovery_accepted(now, own, (key, id, ballot), out);
    }

    pub(super) fn on_recovery_accepted(
        &mut self,
        now: Now,
        from: Region,
        (key, id, ballot): (&Bytes, InstanceId, Ballot),
        out: &mut Out,
    ) {
        let quorum = self.quorum();
        let Some(recovery) = self.recoveries.get_mut(&(key.clone(), id)) else { return };
        if recovery.ballot != ballot {
            return;
        }
        let Stage::Accepting { proposal, accepted } = &mut recovery.stage else { return };
        accepted.insert(from);
        if accepted.len() >= quorum {
            let proposal = Proposal::clone(proposal);
            self.commit(now, key, id, proposal, out);
        }
    }
}
