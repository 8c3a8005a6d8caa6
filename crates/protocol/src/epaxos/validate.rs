//! What a recovery does when a majority's reports do not tell whether the coordinator has committed in one round: from
//! five regions on, when the replicas that had pre-accepted unchanged are less than a majority with it (EPaxos*).
//! Those that have promised are asked what speaks against it (`Validate`): an interfering instance that is final and
//! of which neither depends on the other refutes it; one that is open must be finished first.
//!
//! Departure from EPaxos*: who must wait for another instance tells all (`Waiting`), sees to it that the other one is
//! recovered, and tries anew when that is final or its own alarm goes off, instead of listening for each case.

use super::Epaxos;
use super::instance::{InstanceId, Phase, Proposal};
use super::message::Message;
use super::replica::{Out, Replica};
use crate::clock::Now;
use crate::instances::Protocol as _;
use crate::instances::instance::Ballot;
use crate::instances::recovery::{Doubt, Recovery, Stage};
use crate::topology::{Region, RegionSet};
use bytes::Bytes;
use std::collections::BTreeSet;

/// A recovery that must find out first.
#[derive(Clone, Debug)]
pub enum Doubting {
    /// Asking what speaks against a commit in one round.
    Validating(Box<Validation>),
    /// These other instances must be finished first.
    Waiting(BTreeSet<InstanceId>),
}

/// The question and what was answered.
#[derive(Clone, Debug)]
pub struct Validation {
    doubt: Doubt<Epaxos>,
    replied: RegionSet,
    refuted: bool,
    open: BTreeSet<InstanceId>,
}

impl Replica {
    /// Asks all that have promised what speaks against a commit in one round.
    pub(super) fn validate(
        &mut self,
        now: Now,
        key: &Bytes,
        id: InstanceId,
        doubt: Doubt<Epaxos>,
        out: &mut Out,
    ) {
        self.counters.own += 1;
        let own = self.region();
        let (initial, members) = (doubt.initial.clone(), doubt.members);
        let Some(recovery) = self.logs.get_mut(key).and_then(|log| log.recoveries.get_mut(&id)) else {
            return;
        };
        let ballot = recovery.ballot;
        let validation =
            Validation { doubt, replied: RegionSet::default(), refuted: false, open: BTreeSet::new() };
        recovery.stage = Stage::Doubting(Doubting::Validating(Box::new(validation)));
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
        from: Region,
        (key, id, ballot): (&Bytes, InstanceId, Ballot),
        initial: Proposal,
        out: &mut Out,
    ) {
        let Some(instance) = self.instance(now, key, id, out) else {
            return self.send_key_state(from, key, out);
        };
        if let Some(objection) = instance.objection(ballot) {
            return self.tell(from, key, id, objection, out);
        }
        if let Some((refuted, open)) = self.note_initial(key, id, ballot, initial, out) {
            let key = key.clone();
            out.send(self.peer(from), Message::ValidateReply { key, id, ballot, refuted, open });
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
        let failures = Epaxos::fast_failures(self);
        let Some(recovery) = self.logs.get_mut(key).and_then(|log| log.recoveries.get_mut(&id)) else {
            return;
        };
        let Stage::Doubting(Doubting::Validating(validation)) = &mut recovery.stage else { return };
        if recovery.ballot != ballot || !validation.doubt.members.contains(from) {
            return;
        }
        validation.replied.insert(from);
        validation.refuted |= refuted;
        validation.open.extend(open);
        if validation.replied != validation.doubt.members {
            return;
        }
        let Validation { doubt: Doubt { initial, otherwise, members, unchanged }, refuted, open, .. } =
            &**validation;
        // If not one more may have had it changed, all that are not heard were needed; but the coordinator of an
        // instance that does not know this one cannot have pre-accepted it unchanged.
        let exactly = unchanged + failures == members.len();
        let needed = |other: &InstanceId| exactly && !members.contains(other.row);
        // So many pre-accepted the other one without knowing this one that too few are left.
        let outnumbered = |other: &InstanceId| {
            let told = self.own.waiting.get(&(key.clone(), *other));
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
        recovery.stage = Stage::Doubting(Doubting::Waiting(open.clone()));
        for region in self.others() {
            out.send(self.peer(region), Message::Waiting { key: key.clone(), id, unchanged });
        }
        self.own.waiting.insert((key.clone(), id), unchanged);
        for other in open {
            // Known here and so watched, which brings it to an end.
            self.instance(now, key, other, out);
        }
    }

    pub(super) fn on_waiting(&mut self, (key, id): (Bytes, InstanceId), unchanged: u32) {
        if self.logs.get(&key).is_some_and(|log| log.is_undecided(id)) {
            self.own.waiting.insert((key, id), unchanged);
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
        let waits = |recovery: &Recovery<Epaxos>| match &recovery.stage {
            Stage::Doubting(Doubting::Waiting(open)) => open.contains(&final_one),
            _ => false,
        };
        let recoveries = self.log(key).recoveries.iter();
        let waiting: Vec<_> = recoveries.filter(|(_, recovery)| waits(recovery)).map(|(id, _)| *id).collect();
        for id in waiting {
            self.recover(now, key, id, out);
        }
    }
}
