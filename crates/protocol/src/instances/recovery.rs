//! Finishing instances that their coordinators have left open: the recovery of EPaxos* (Ryabinin, Gotsman, Sutra
//! 2025), which has two ballots an instance and no `TryPreAccept`; recoverers pre-accept nothing.
//!
//! What may be chosen when nobody of a majority has accepted anything:
//! - if the coordinator is among those that have promised, or too few have pre-accepted unchanged, it has not
//!   committed in one round and never will. Then what a majority of pre-acceptors, the coordinator among them, know
//!   together is what the coordinator itself would have had accepted; without a majority, a Nop.
//! - otherwise it may have, and only what it proposed can be chosen, or a Nop once that is refuted. With three replicas
//!   the partner's record decides. If the unchanged ones and the coordinator are a majority, what it proposed covers a
//!   majority's view, and is right anyway. If they are not, the protocol must find out ([`Protocol::on_doubt`]).

use super::instance::{Attributes as _, Ballot, Phase, Report};
use super::message::Step;
use super::replica::{Out, Replica};
use super::{Id as _, ProposalOf, Protocol};
use crate::clock::Now;
use crate::planted::Planted;
use crate::topology::{Region, RegionSet};
use bytes::Bytes;
use std::collections::BTreeMap;

/// A recovery that this replica leads.
#[derive(Clone, Debug)]
pub(crate) struct Recovery<P: Protocol> {
    pub(crate) ballot: Ballot,
    pub(crate) stage: Stage<P>,
}

type Reports<P> = BTreeMap<Region, Report<<P as Protocol>::Command, <P as Protocol>::Attributes>>;

/// How far a recovery has come.
#[derive(Clone, Debug)]
pub(crate) enum Stage<P: Protocol> {
    /// Gathering promises and what is known.
    Collecting(Reports<P>),
    /// Finding out what speaks against a commit in one round.
    Doubting(P::Doubting),
    /// An outcome is chosen.
    Accepting { proposal: Box<ProposalOf<P>>, accepted: RegionSet },
}

/// What a coordinator that is not here may have committed in one round.
#[derive(Clone, Debug)]
pub struct Doubt<P: Protocol> {
    /// It as it was proposed.
    pub(crate) initial: ProposalOf<P>,
    /// What to choose if it was not committed.
    pub(crate) otherwise: ProposalOf<P>,
    /// Who has promised.
    pub(crate) members: RegionSet,
    /// How many of them had pre-accepted it unchanged: with the coordinator less than a majority.
    pub(crate) unchanged: usize,
}

/// What a majority's reports allow.
enum Choice<P: Protocol> {
    /// To choose this.
    Accept(ProposalOf<P>),
    /// To choose only once it is found out.
    Doubt(Box<Doubt<P>>),
}

impl<P: Protocol> Replica<P> {
    pub(super) fn on_watch_alarm(
        &mut self,
        now: Now,
        key: &Bytes,
        id: P::Id,
        since: Ballot,
        out: &mut Out<P>,
    ) {
        if self.log(key).is_executed(id) {
            return;
        }
        let promised = self.log(key).instances.get(&id).map(|instance| instance.promised);
        // If somebody has taken it up since the alarm was set, that one gets its time.
        let in_hand = promised.is_some_and(|promised| promised > since) || self.is_coordinating(key, id);
        if self.log(key).is_undecided(id) && !in_hand {
            self.recover(now, key, id, out);
        }
        self.watch(now, key, id, out);
    }

    /// Takes up an instance at a ballot above all seen.
    pub(crate) fn recover(&mut self, now: Now, key: &Bytes, id: P::Id, out: &mut Out<P>) {
        let own = self.region();
        let single_ballot = self.settings().plant.has(Planted::SingleBallot);
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
            self.tell(region, key, id, Step::Recover { ballot }, out);
        }
        let stage = Stage::Collecting(BTreeMap::from([(own, report)]));
        self.log(key).recoveries.insert(id, Recovery { ballot, stage });
        self.decide(now, key, id, out);
    }

    pub(super) fn on_recover(
        &mut self,
        now: Now,
        from: Region,
        (key, id): (&Bytes, P::Id),
        ballot: Ballot,
        out: &mut Out<P>,
    ) {
        let single_ballot = self.settings().plant.has(Planted::SingleBallot);
        let Some(instance) = self.instance(now, key, id, out) else {
            return self.send_key_state(from, key, out);
        };
        let promised = instance.promised;
        if ballot < promised {
            return self.tell(from, key, id, Step::Refused { promised }, out);
        }
        instance.promised = ballot;
        if single_ballot {
            instance.accepted = ballot;
        }
        let report = Box::new(instance.report());
        if ballot > promised {
            self.store_instance(key, id, out);
            self.drop_recovery_below(key, id, ballot);
        }
        self.tell(from, key, id, Step::RecoverReply { ballot, report }, out);
    }

    pub(super) fn on_refused(&mut self, key: &Bytes, id: P::Id, promised: Ballot, out: &mut Out<P>) {
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
    fn drop_recovery_below(&mut self, key: &Bytes, id: P::Id, ballot: Ballot) {
        if self
            .logs
            .get_mut(key)
            .and_then(|log| log.recoveries.get_mut(&id))
            .is_some_and(|recovery| recovery.ballot < ballot)
        {
            self.log(key).recoveries.remove(&id);
        }
    }

    pub(super) fn on_recover_reply(
        &mut self,
        now: Now,
        from: Region,
        (key, id): (&Bytes, P::Id),
        (ballot, report): (Ballot, Report<P::Command, P::Attributes>),
        out: &mut Out<P>,
    ) {
        let Some(recovery) = self.logs.get_mut(key).and_then(|log| log.recoveries.get_mut(&id)) else {
            return;
        };
        if recovery.ballot != ballot {
            return;
        }
        if let (Phase::Committed, Some(proposal)) = (report.phase, &report.proposal) {
            return self.commit(now, key, id, (proposal.clone(), RegionSet::default()), out);
        }
        if let Stage::Collecting(reports) = &mut recovery.stage {
            reports.insert(from, report);
            self.decide(now, key, id, out);
        }
    }

    /// Chooses an outcome once a majority has promised.
    fn decide(&mut self, now: Now, key: &Bytes, id: P::Id, out: &mut Out<P>) {
        let Some(Recovery { stage: Stage::Collecting(reports), .. }) =
            self.logs.get(key).and_then(|log| log.recoveries.get(&id))
        else {
            return;
        };
        if reports.len() < self.quorum() {
            return;
        }
        let accepted = reports.values().filter(|report| report.phase == Phase::Accepted);
        let best = accepted.max_by_key(|report| report.accepted).and_then(|report| report.proposal.clone());
        match best.map_or_else(|| self.choose(reports, id.row()), Choice::Accept) {
            Choice::Accept(proposal) => self.accept(now, key, id, &proposal, out),
            Choice::Doubt(doubt) => P::on_doubt(self, now, (key, id), *doubt, out),
        }
    }

    /// The outcome of an instance that nobody of a majority has accepted.
    fn choose(&self, reports: &Reports<P>, coordinator: Region) -> Choice<P> {
        let pre_accepted = || reports.iter().filter(|(_, report)| report.phase == Phase::PreAccepted);
        // What a majority knows together. The coordinator counts: what it knew is in each record.
        let mut knowing = RegionSet::of(coordinator);
        let mut union: Option<ProposalOf<P>> = None;
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
        let mut unchanged = pre_accepted().filter(|(_, report)| report.unchanged);
        let initial = unchanged.next().and_then(|(_, report)| report.proposal.clone());
        let Some(initial) = initial else { return Choice::Accept(otherwise) };
        let unchanged = 1 + unchanged.count();
        if unchanged + P::fast_failures(self) < reports.len() {
            return Choice::Accept(otherwise);
        }
        if unchanged + 1 >= self.quorum() {
            return Choice::Accept(initial);
        }
        let mut members = RegionSet::default();
        for region in reports.keys() {
            members.insert(*region);
        }
        Choice::Doubt(Box::new(Doubt { initial, otherwise, members, unchanged }))
    }

    /// Proposes an outcome at the recovery's ballot.
    pub(crate) fn accept(
        &mut self,
        now: Now,
        key: &Bytes,
        id: P::Id,
        proposal: &ProposalOf<P>,
        out: &mut Out<P>,
    ) {
        let own = self.region();
        let Some(recovery) = self.logs.get_mut(key).and_then(|log| log.recoveries.get_mut(&id)) else {
            return;
        };
        let ballot = recovery.ballot;
        recovery.stage =
            Stage::Accepting { proposal: Box::new(proposal.clone()), accepted: RegionSet::default() };
        let Some(instance) = self.log(key).instances.get_mut(&id) else { return };
        if instance.promised != ballot || instance.phase == Phase::Committed {
            self.log(key).recoveries.remove(&id);
            return;
        }
        instance.accept(ballot, proposal.clone());
        self.store_instance(key, id, out);
        for region in self.others() {
            let proposal = Box::new(proposal.clone());
            self.tell(region, key, id, Step::Accept { ballot, proposal }, out);
        }
        self.on_recovery_accepted(now, own, (key, id), ballot, out);
    }

    pub(super) fn on_recovery_accepted(
        &mut self,
        now: Now,
        from: Region,
        (key, id): (&Bytes, P::Id),
        ballot: Ballot,
        out: &mut Out<P>,
    ) {
        let quorum = self.quorum();
        let Some(recovery) = self.logs.get_mut(key).and_then(|log| log.recoveries.get_mut(&id)) else {
            return;
        };
        if recovery.ballot != ballot {
            return;
        }
        let Stage::Accepting { proposal, accepted } = &mut recovery.stage else { return };
        accepted.insert(from);
        if accepted.len() >= quorum {
            let outcome = (ProposalOf::<P>::clone(proposal), RegionSet::default());
            self.commit(now, key, id, outcome, out);
        }
    }
}
