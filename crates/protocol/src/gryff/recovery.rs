//! Finishing instances that their coordinators have left open: EPaxos* (Ryabinin, Gotsman, Sutra 2025), with one
//! tolerated failure on the fast path (e = 1), and the pair rule for three replicas.
//!
//! Differences to the recovery that EPaxos and Gryff print: two ballots an instance; no pre-accept by
//! recoverers, and no `TryPreAccept`. Whether the coordinator may have committed its initial proposal in one
//! round is found by asking a quorum for instances that speak against it (`Validate`).

use super::instance::{Ballot, InstanceId, Phase, Proposal};
use super::message::{Conflict, Message, Report};
use super::replica::{Out, Replica};
use crate::clock::Now;
use crate::planted::Planted;
use crate::topology::{Address, Region, RegionSet};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// How many failures a commit in one round tolerates: the fast quorum is n - 1.
const FAST_FAILURES: usize = 1;

/// A recovery that this replica leads.
#[derive(Debug)]
pub(super) struct Recovery {
    ballot: Ballot,
    reports: BTreeMap<Region, Report>,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// Waiting for promises.
    Collecting,
    /// Asking whether the initial proposal may have been committed in one round.
    Validating { question: Question, replied: RegionSet, conflicts: BTreeSet<Conflict> },
    /// It may, unless one of these instances turns out to be committed without it.
    Waiting { question: Question, conflicts: Vec<InstanceId> },
    /// An outcome is chosen.
    Accepting { proposal: Proposal, accepted: RegionSet },
}

/// What a recovery wants to know of its quorum.
#[derive(Clone, Debug)]
struct Question {
    quorum: RegionSet,
    /// How many of the quorum had pre-accepted the initial proposal unchanged.
    unchanged: usize,
    initial: Proposal,
}

impl Replica {
    pub(super) fn on_watch_alarm(&mut self, now: Now, key: &Bytes, id: InstanceId, out: &mut Out) {
        let chain = self.chain(key);
        if chain.is_executed(id) {
            return;
        }
        self.watch(now, key, id, out);
        if self.is_undecided(key, id) && !self.is_coordinating(key, id) {
            self.recover(now, key, id, out);
        }
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
        let recovery =
            Recovery { ballot, reports: BTreeMap::from([(own, report)]), stage: Stage::Collecting };
        self.recoveries.insert((key.clone(), id), recovery);
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
        out.send(from, Message::RecoverReply { key, id, ballot, report });
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
        let three = self.place.group.regions == 3;
        let Some(recovery) = self.recoveries.get_mut(&(key.clone(), id)) else { return };
        if recovery.ballot != ballot || matches!(recovery.stage, Stage::Accepting { .. }) {
            return;
        }
        recovery.reports.insert(from, report.clone());
        if let Stage::Collecting = recovery.stage {
            return self.decide(now, key, id, out);
        }
        // Late, while the fast path is in question: what it says may decide.
        match (report.phase, report.proposal) {
            (Phase::Committed, Some(proposal)) => self.commit(now, key, id, proposal, out),
            (Phase::Accepted, Some(proposal)) => self.accept(now, key, id, &proposal, out),
            _ if from == id.row && !three => self.accept(now, key, id, &Proposal::default(), out),
            _ => {}
        }
    }

    /// Chooses an outcome once a quorum has promised.
    fn decide(&mut self, now: Now, key: &Bytes, id: InstanceId, out: &mut Out) {
        let quorum = self.quorum();
        let Some(recovery) = self.recoveries.get(&(key.clone(), id)) else { return };
        let reports = &recovery.reports;
        if reports.len() < quorum {
            return;
        }
        if let Some(proposal) = best(reports, Phase::Committed) {
            return self.commit(now, key, id, proposal, out);
        }
        if let Some(proposal) = best(reports, Phase::Accepted) {
            return self.accept(now, key, id, &proposal, out);
        }
        if self.place.group.regions == 3 {
            let proposal = decide_pair(reports, id.row);
            return self.accept(now, key, id, &proposal, out);
        }
        let pre_accepted = || reports.values().filter(|report| report.phase == Phase::PreAccepted);
        let unchanged = pre_accepted().filter(|report| match (&report.proposal, &report.initial) {
            (Some(merged), Some(initial)) => merged.attributes.same(&initial.attributes),
            _ => false,
        });
        let unchanged = unchanged.count();
        let initial = pre_accepted().find_map(|report| report.initial.clone());
        // The coordinator promised without having committed, or too few had nothing to add: no fast commit.
        let fast_possible =
            !reports.contains_key(&id.row) && unchanged + self.fast_failures() >= reports.len();
        let (Some(initial), true) = (initial, fast_possible) else {
            return self.accept(now, key, id, &Proposal::default(), out);
        };
        let members: RegionSet = reports.keys().copied().fold(RegionSet::default(), |mut set, region| {
            set.insert(region);
            set
        });
        let question = Question { quorum: members, unchanged, initial };
        self.validate(now, key, id, question, out);
    }

    fn fast_failures(&self) -> usize {
        if self.engine.settings.plant.has(Planted::SmallFastQuorum) {
            return usize::from(self.place.group.regions) - self.quorum();
        }
        FAST_FAILURES
    }

    fn validate(&mut self, now: Now, key: &Bytes, id: InstanceId, question: Question, out: &mut Out) {
        self.counters.validation += 1;
        let own = self.region();
        let initial = question.initial.clone();
        let Some(instance) = self.chain(key).instances.get_mut(&id) else { return };
        instance.initial = Some(initial.clone());
        self.store_instance(key, id, out);
        let conflicts = self.chain(key).conflicts(id, &initial).into_iter().collect();
        let Some(recovery) = self.recoveries.get_mut(&(key.clone(), id)) else { return };
        let ballot = recovery.ballot;
        let members = question.quorum;
        recovery.stage = Stage::Validating { question, replied: RegionSet::of(own), conflicts };
        for region in self.others().filter(|region| members.contains(*region)) {
            let (key, initial) = (key.clone(), initial.clone());
            out.send(self.peer(region), Message::Validate { key, id, ballot, initial });
        }
        self.judge(now, key, id, out);
    }

    pub(super) fn on_validate(
        &mut self,
        now: Now,
        from: Address,
        (key, id, ballot, initial): (Bytes, InstanceId, Ballot, Proposal),
        out: &mut Out,
    ) {
        let rows = usize::from(self.place.group.regions);
        if initial.attributes.dependencies.len() != rows {
            return;
        }
        let Some(instance) = self.instance(now, &key, id, out) else {
            return self.send_key_state(from, &key, out);
        };
        if instance.phase == Phase::Committed {
            let proposal = instance.proposal.clone();
            return out.send(from, Message::Commit { key, id, proposal });
        }
        if instance.promised != ballot {
            let promised = instance.promised;
            return out.send(from, Message::Refused { key, id, promised });
        }
        instance.initial = Some(initial.clone());
        self.store_instance(&key, id, out);
        let conflicts = self.chain(&key).conflicts(id, &initial);
        out.send(from, Message::ValidateReply { key, id, ballot, conflicts });
    }

    pub(super) fn on_validate_reply(
        &mut self,
        now: Now,
        from: Region,
        (key, id, ballot, found): (&Bytes, InstanceId, Ballot, Vec<Conflict>),
        out: &mut Out,
    ) {
        let Some(recovery) = self.recoveries.get_mut(&(key.clone(), id)) else { return };
        if recovery.ballot != ballot {
            return;
        }
        if let Stage::Validating { replied, conflicts, .. } = &mut recovery.stage {
            replied.insert(from);
            conflicts.extend(found);
            self.judge(now, key, id, out);
        }
    }

    /// Draws the conclusion once all of the quorum have said what speaks against a fast commit.
    fn judge(&mut self, now: Now, key: &Bytes, id: InstanceId, out: &mut Out) {
        let fast_failures = self.fast_failures();
        let Some(recovery) = self.recoveries.get_mut(&(key.clone(), id)) else { return };
        let Stage::Validating { question, replied, conflicts } = &recovery.stage else { return };
        if *replied != question.quorum {
            return;
        }
        let Question { quorum, unchanged, initial } = question.clone();
        if conflicts.is_empty() {
            return self.accept(now, key, id, &initial, out);
        }
        let committed = conflicts.iter().any(|conflict| conflict.committed);
        // All of a smallest possible fast quorum would be in this quorum and the conflict's coordinator among
        // them; it would have reported the dependency.
        let smallest = unchanged + fast_failures == quorum.len();
        let absent = conflicts.iter().any(|conflict| !quorum.contains(conflict.id.row));
        if committed || (smallest && absent) {
            return self.accept(now, key, id, &Proposal::default(), out);
        }
        let conflicts: Vec<_> = conflicts.iter().map(|conflict| conflict.id).collect();
        recovery.stage = Stage::Waiting { question: question.clone(), conflicts: conflicts.clone() };
        for region in self.others() {
            let waiting = Message::Waiting { key: key.clone(), id, unchanged: unchanged as u32 };
            out.send(self.peer(region), waiting);
        }
        for conflict in conflicts {
            let idle = !self.recoveries.contains_key(&(key.clone(), conflict));
            if idle && self.is_undecided(key, conflict) && !self.is_coordinating(key, conflict) {
                self.recover(now, key, conflict, out);
            }
        }
        self.reconsider(now, key, out);
    }

    /// Another recovery waits: if it waits for mine with so many unchanged votes, mine cannot have been fast.
    pub(super) fn on_waiting(
        &mut self,
        now: Now,
        key: &Bytes,
        other: InstanceId,
        unchanged: u32,
        out: &mut Out,
    ) {
        let limit = self.quorum() - self.fast_failures().min(self.quorum());
        if (unchanged as usize) <= limit {
            return;
        }
        for id in self.recoveries_of(key) {
            let waiting = self.recoveries.get(&(key.clone(), id)).map(|recovery| &recovery.stage);
            if let Some(Stage::Waiting { conflicts, .. }) = waiting
                && conflicts.contains(&other)
            {
                self.accept(now, key, id, &Proposal::default(), out);
            }
        }
    }

    /// Looks again at recoveries of a key that wait for other instances.
    pub(super) fn reconsider(&mut self, now: Now, key: &Bytes, out: &mut Out) {
        for id in self.recoveries_of(key) {
            let Some(recovery) = self.recoveries.get(&(key.clone(), id)) else { continue };
            let Stage::Waiting { question, conflicts } = &recovery.stage else { continue };
            let Some(chain) = self.chains.get(key) else { continue };
            let verdicts: Vec<_> = conflicts.iter().map(|conflict| chain.verdict(*conflict, id)).collect();
            if verdicts.contains(&Some(true)) {
                self.accept(now, key, id, &Proposal::default(), out);
            } else if verdicts.iter().all(|verdict| *verdict == Some(false)) {
                let initial = question.initial.clone();
                self.accept(now, key, id, &initial, out);
            }
        }
    }

    fn recoveries_of(&self, key: &Bytes) -> Vec<InstanceId> {
        let from = (key.clone(), InstanceId { index: 0, row: Region(0) });
        self.recoveries.range(from..).take_while(|((k, _), _)| k == key).map(|((_, id), _)| *id).collect()
    }

    /// Proposes an outcome at the recovery's ballot.
    fn accept(&mut self, now: Now, key: &Bytes, id: InstanceId, proposal: &Proposal, out: &mut Out) {
        let own = self.region();
        let Some(recovery) = self.recoveries.get_mut(&(key.clone(), id)) else { return };
        let ballot = recovery.ballot;
        recovery.stage = Stage::Accepting { proposal: proposal.clone(), accepted: RegionSet::default() };
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
            let (key, proposal) = (key.clone(), proposal.clone());
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
            let proposal = proposal.clone();
            self.commit(now, key, id, proposal, out);
        }
    }
}

/// The outcome known at a phase, of the highest ballot at which one was accepted.
fn best(reports: &BTreeMap<Region, Report>, phase: Phase) -> Option<Proposal> {
    let known = reports.values().filter(|report| report.phase == phase);
    known.max_by_key(|report| report.accepted).and_then(|report| report.proposal.clone())
}

/// The outcome with three replicas, where the coordinator commits in one round with its partner's attributes.
fn decide_pair(reports: &BTreeMap<Region, Report>, coordinator: Region) -> Proposal {
    let pre_accepted = || reports.iter().filter(|(_, report)| report.phase == Phase::PreAccepted);
    let merged = |region: Region| reports.get(&region).and_then(|report| report.proposal.clone());
    if reports.contains_key(&coordinator) {
        // It promised without having committed. If a majority has pre-accepted, what they know together is what
        // the coordinator itself would have had accepted.
        let mut known = pre_accepted().filter_map(|(region, _)| merged(*region));
        let (Some(mut union), Some(other)) = (known.next(), known.next()) else { return Proposal::default() };
        union.attributes.merge(&other.attributes);
        for another in known {
            union.attributes.merge(&another.attributes);
        }
        return union;
    }
    let partner = pre_accepted().find_map(|(_, report)| report.partner);
    let by_partner = partner.filter(|partner| pre_accepted().any(|(region, _)| region == partner));
    // The partner's record is the only one that may have been committed. If it has none it never will, and
    // the other's record covers a majority together with the coordinator's.
    let other = pre_accepted().map(|(region, _)| *region).next();
    by_partner.or(other).and_then(merged).unwrap_or_default()
}
