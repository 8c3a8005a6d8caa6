//! Finishing instances that their coordinators have left open (in place of Gryff Alg. 5 and 6).
//!
//! An instance has two ballots, as in EPaxos* (Ryabinin, Gotsman, Sutra 2025). What EPaxos* needs besides, asking a
//! quorum what speaks against a fast commit (`Validate`), is not needed with a fast quorum of n-1: whatever is
//! chosen here covers the views of a majority, as the coordinator's own choice in the slow path does. So of any two
//! committed instances some replica has seen both before they were chosen, and the one that it saw second
//! depends on the other.
//!
//! Differences to the recovery that EPaxos and Gryff print: two ballots; no pre-accept by recoverers; no
//! `TryPreAccept`.

use super::instance::{Ballot, InstanceId, Phase, Proposal};
use super::message::{Message, Report};
use super::replica::{Out, Replica};
use crate::clock::Now;
use crate::planted::Planted;
use crate::topology::{Address, Region, RegionSet};
use bytes::Bytes;
use std::collections::BTreeMap;

/// How many replicas may be missing from, or have changed, a commit in one round: the fast quorum is n - 1.
const FAST_FAILURES: usize = 1;

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
    /// An outcome is chosen.
    Accepting { proposal: Box<Proposal>, accepted: RegionSet },
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
        if self.chain(key).is_executed(id) {
            return;
        }
        let promised = self.chain(key).instances.get(&id).map(|instance| instance.promised);
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
        let single_ballot = self.engine.settings.plant.has(Planted::SingleBallot);
        let Some(instance) = self.instance(now, key, id, out) else { return };
        let ballot = Ballot { counter: instance.promised.counter.saturating_add(1), leader: own.0 };
        instance.promised = ballot;
        if single_ballot {
            instance.accepted = ballot;
        }
        let report = instance.report();
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
        let single_ballot = self.engine.settings.plant.has(Planted::SingleBallot);
        let Some(instance) = self.instance(now, &key, id, out) else {
            return self.send_key_state(from, &key, out);
        };
        if ballot < instance.promised {
            let promised = instance.promised;
            return out.send(from, Message::Refused { key, id, promised });
        }
        let raised = ballot > instance.promised;
        instance.promised = ballot;
        if single_ballot {
            instance.accepted = ballot;
        }
        let report = instance.report();
        if raised {
            self.store_instance(&key, id, out);
            self.drop_recovery_below(&key, id, ballot);
        }
        out.send(from, Message::RecoverReply { key, id, ballot, report: Box::new(report) });
    }

    pub(super) fn on_refused(&mut self, key: &Bytes, id: InstanceId, promised: Ballot, out: &mut Out) {
        let chain = self.chain(key);
        if let Some(instance) = chain.instances.get_mut(&id)
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
        if let Stage::Collecting(reports) = &mut recovery.stage {
            reports.insert(from, report);
            self.decide(now, key, id, out);
        }
    }

    /// Chooses an outcome: one already final at once, any other when a majority has promised.
    fn decide(&mut self, now: Now, key: &Bytes, id: InstanceId, out: &mut Out) {
        let Some(Recovery { stage: Stage::Collecting(reports), .. }) =
            self.recoveries.get(&(key.clone(), id))
        else {
            return;
        };
        if let Some(proposal) = best(reports, Phase::Committed) {
            return self.commit(now, key, id, proposal, out);
        }
        if reports.len() < self.quorum() {
            return;
        }
        let proposal = best(reports, Phase::Accepted).unwrap_or_else(|| self.choose(reports, id.row));
        self.accept(now, key, id, &proposal, out);
    }

    /// The outcome of an instance that nobody of a majority has accepted.
    fn choose(&self, reports: &BTreeMap<Region, Report>, coordinator: Region) -> Proposal {
        let pre_accepted = || reports.iter().filter(|(_, report)| report.phase == Phase::PreAccepted);
        if !reports.contains_key(&coordinator) {
            // It may have committed in one round, and is not here to tell.
            if let Some(proposal) = self.maybe_fast(reports) {
                return proposal;
            }
        }
        // It has not. What a majority of pre-acceptors know together is what the coordinator itself would have
        // had accepted. It is one of them, and what it knew is in each of the others' records.
        let mut members: RegionSet = RegionSet::default();
        let mut union: Option<Proposal> = None;
        for (region, report) in pre_accepted() {
            members.insert(*region);
            match (&mut union, &report.proposal) {
                (Some(union), Some(proposal)) => union.attributes.merge(&proposal.attributes),
                (union, proposal) => union.clone_from(proposal),
            }
        }
        members.insert(coordinator);
        union.filter(|_| members.len() >= self.quorum()).unwrap_or_default()
    }

    /// The one proposal that an absent coordinator may have committed in one round, if it may.
    fn maybe_fast(&self, reports: &BTreeMap<Region, Report>) -> Option<Proposal> {
        let pre_accepted = || reports.iter().filter(|(_, report)| report.phase == Phase::PreAccepted);
        if self.place.group.regions == 3 {
            // The pair rule: what its partner has on record. If that has nothing on record it has promised,
            // and never will.
            let partner = pre_accepted().find_map(|(_, report)| report.partner)?;
            return reports.get(&partner).and_then(|report| report.proposal.clone());
        }
        let unchanged = pre_accepted().filter(|(_, report)| match (&report.proposal, &report.initial) {
            (Some(merged), Some(initial)) => merged.attributes.same(initial),
            _ => false,
        });
        let small = self.engine.settings.plant.has(Planted::SmallFastQuorum);
        let failures = if small { self.quorum() - 1 } else { FAST_FAILURES };
        let unchanged: Vec<_> = unchanged.map(|(_, report)| report).collect();
        // All but one of those asked had nothing to add. They and the coordinator are a majority.
        let enough = unchanged.len() + failures >= reports.len();
        unchanged.first().filter(|_| enough).and_then(|report| report.proposal.clone())
    }

    /// Proposes an outcome at the recovery's ballot.
    fn accept(&mut self, now: Now, key: &Bytes, id: InstanceId, proposal: &Proposal, out: &mut Out) {
        let own = self.region();
        let Some(recovery) = self.recoveries.get_mut(&(key.clone(), id)) else { return };
        let ballot = recovery.ballot;
        recovery.stage =
            Stage::Accepting { proposal: Box::new(proposal.clone()), accepted: RegionSet::default() };
        let Some(instance) = self.chain(key).instances.get_mut(&id) else { return };
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

/// The outcome known at a phase, of the highest ballot at which one was accepted.
fn best(reports: &BTreeMap<Region, Report>, phase: Phase) -> Option<Proposal> {
    let known = reports.values().filter(|report| report.phase == phase);
    known.max_by_key(|report| report.accepted).and_then(|report| report.proposal.clone())
}
