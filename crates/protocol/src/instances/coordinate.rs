//! Instances on their usual way: pre-accept, accept if needed, commit (EPaxos §4.3, Gryff Alg. 3).

use super::instance::{Attributes as _, Ballot, Command as _, Phase, Proposal};
use super::message::Step;
use super::replica::{Alarm, Out, Replica};
use super::{Id as _, Log, ProposalOf, Protocol, StepOf};
use crate::clock::{Micros, Now};
use crate::planted::Planted;
use crate::topology::{Region, RegionSet};
use bytes::Bytes;

/// An instance that this replica coordinates.
#[derive(Clone, Debug)]
pub struct Coordination<P: Protocol> {
    pub(crate) command: P::Command,
    /// Who waits for it.
    pub(crate) waiting: P::Waiting,
    pub(crate) stage: Stage,
    /// What this replica proposed. Its own vote counts as this, whatever it learns later.
    initial: P::Attributes,
    /// `initial` with all that replies have added; once it is decided, what is.
    pub(crate) merged: P::Attributes,
    /// With three replicas: whose merged attributes may be committed at once.
    partner: Option<Region>,
    /// How many replicas the first phase was sent to.
    asked: usize,
    /// The nearest have not answered in time, and all others were asked.
    widened: bool,
    /// Who has pre-accepted, this replica included, and who of them had nothing to add.
    replied: RegionSet,
    unchanged: RegionSet,
    accepted: RegionSet,
    /// Wide-area round trips so far.
    pub(crate) rounds: u32,
    pub(crate) give_up: Micros,
}

/// How far the coordinator has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Asking what the instance must come after.
    PreAccepting,
    /// Having that accepted.
    Accepting,
    /// Its outcome is final.
    Committed,
}

impl<P: Protocol> Coordination<P> {
    /// The command with all that is known of what it must come after.
    fn proposal(&self) -> ProposalOf<P> {
        Proposal { command: self.command.clone(), attributes: self.merged.clone() }
    }

    /// The first phase, as it was sent at first.
    fn pre_accept(&self) -> StepOf<P> {
        let proposal = Proposal { command: self.command.clone(), attributes: self.initial.clone() };
        Step::PreAccept { proposal: Box::new(proposal), partner: self.partner }
    }
}

impl<P: Protocol> Replica<P> {
    /// How many replicas, the coordinator included, must pre-accept unchanged for a commit in one round.
    fn fast_quorum(&self) -> usize {
        (usize::from(self.regions()) - P::fast_failures(self)).max(self.quorum())
    }

    /// Handles a step of an instance that can exist.
    pub(crate) fn on_step(
        &mut self,
        now: Now,
        from: Region,
        (key, id): (&Bytes, P::Id),
        step: StepOf<P>,
        out: &mut Out<P>,
    ) {
        match step {
            Step::PreAccept { proposal, partner } => {
                self.on_pre_accept(now, from, (key, id), (*proposal, partner), out);
            }
            Step::PreAcceptReply { attributes } => {
                self.on_pre_accept_reply(now, from, (key, id), &attributes, out);
            }
            Step::Accept { ballot, proposal } => {
                self.on_accept(now, from, (key, id), (ballot, *proposal), out);
            }
            Step::AcceptReply { ballot } => self.on_accept_reply(now, from, (key, id), ballot, out),
            Step::Commit { proposal } => self.on_commit(now, key, id, Some(*proposal), out),
            Step::Final => self.on_commit(now, key, id, None, out),
            Step::Refused { promised } => self.on_refused(key, id, promised, out),
            Step::Recover { ballot } => self.on_recover(now, from, (key, id), ballot, out),
            Step::RecoverReply { ballot, report } => {
                self.on_recover_reply(now, from, (key, id), (ballot, *report), out);
            }
        }
    }

    /// Proposes a command in an instance of this replica's row that was never used.
    pub(crate) fn propose(
        &mut self,
        now: Now,
        (key, id): (&Bytes, P::Id),
        command: P::Command,
        (waiting, give_up): (P::Waiting, Micros),
        out: &mut Out<P>,
    ) {
        let own = RegionSet::of(self.region());
        let initial = P::attributes(self, key, id);
        let partner = (self.regions() == 3).then(|| self.others().next()).flatten();
        let answers = if partner.is_some() { 1 } else { self.fast_quorum() - 1 };
        let targets: Vec<_> = self.targets(answers).collect();
        let Some(instance) = self.instance(now, key, id, out) else { return };
        let proposal = Proposal { command: command.clone(), attributes: initial.clone() };
        instance.pre_accept(initial.clone(), proposal, partner);
        // Stored before it is sent, so that a restart never uses the index again.
        self.store_instance(key, id, out);
        let coordination = Coordination {
            command,
            waiting,
            stage: Stage::PreAccepting,
            merged: initial.clone(),
            initial,
            partner,
            asked: targets.len(),
            widened: false,
            replied: own,
            unchanged: own,
            accepted: RegionSet::default(),
            rounds: 1,
            give_up,
        };
        let pre_accept = coordination.pre_accept();
        self.log(key).coordinations.insert(id, Box::new(coordination));
        for region in targets {
            self.tell(region, key, id, pre_accept.clone(), out);
        }
        self.await_answers(now, key, id, out);
        self.advance_pre_accept(now, key, id, out);
    }

    fn on_pre_accept(
        &mut self,
        now: Now,
        from: Region,
        (key, id): (&Bytes, P::Id),
        (proposal, partner): (ProposalOf<P>, Option<Region>),
        out: &mut Out<P>,
    ) {
        let Proposal { command, attributes: initial } = proposal;
        let Some(attributes) = P::merged(self, key, id, &initial) else {
            return; // Of a keyspace with other regions; the handshake keeps such peers away.
        };
        let Some(instance) = self.instance(now, key, id, out) else {
            return self.send_key_state(from, key, out);
        };
        if instance.phase == Phase::PreAccepted && instance.promised == Ballot::default() {
            // Sent again: the same answer again.
            let attributes = Box::new(instance.proposal.attributes.clone());
            return self.tell(from, key, id, Step::PreAcceptReply { attributes }, out);
        }
        if let Some(objection) = instance.objection(Ballot::default()) {
            // If a recovery has begun, a late pre-accept must change nothing that was reported to it.
            return self.tell(from, key, id, objection, out);
        }
        if instance.phase != Phase::Unknown {
            let promised = instance.promised;
            return self.tell(from, key, id, Step::Refused { promised }, out);
        }
        instance.pre_accept(initial, Proposal { command, attributes: attributes.clone() }, partner);
        self.store_instance(key, id, out);
        self.tell(from, key, id, Step::PreAcceptReply { attributes: Box::new(attributes) }, out);
    }

    fn on_pre_accept_reply(
        &mut self,
        now: Now,
        from: Region,
        (key, id): (&Bytes, P::Id),
        attributes: &P::Attributes,
        out: &mut Out<P>,
    ) {
        if !self.at_initial_ballot(key, id) {
            return; // A recovery has begun, and what this replica promised it forbids to go on.
        }
        let Some(coordination) = self.logs.get_mut(key).and_then(|log| log.coordinations.get_mut(&id)) else {
            return;
        };
        if coordination.stage != Stage::PreAccepting || !coordination.replied.insert(from) {
            return;
        }
        if attributes.same(&coordination.initial) {
            coordination.unchanged.insert(from);
        }
        coordination.merged.merge(attributes);
        self.advance_pre_accept(now, key, id, out);
    }

    fn at_initial_ballot(&self, key: &Bytes, id: P::Id) -> bool {
        let instance = self.logs.get(key).and_then(|log| log.instances.get(&id));
        instance.is_some_and(|instance| {
            instance.promised == Ballot::default() && instance.phase < Phase::Committed
        })
    }

    /// Commits in one round if that is safe, otherwise goes on to the accept phase once a majority has replied
    /// and the fast quorum is out of reach or late.
    fn advance_pre_accept(&mut self, now: Now, key: &Bytes, id: P::Id, out: &mut Out<P>) {
        let (quorum, fast_quorum) = (self.quorum(), self.fast_quorum());
        let lost_dependency = self.settings().plant.has(Planted::LostDependency);
        let commit_union = self.settings().plant.has(Planted::CommitUnion);
        let Some(coordination) = self.logs.get_mut(key).and_then(|log| log.coordinations.get_mut(&id)) else {
            return;
        };
        let replied = coordination.replied;
        let fast = match coordination.partner {
            // The pair rule: with three replicas the coordinator and its partner are a majority, so what the
            // partner adds can be taken over at once. A recovery asks the partner, whose record decides.
            Some(partner) => replied.len() == 2 && replied.contains(partner),
            None => coordination.unchanged.len() >= fast_quorum,
        };
        if fast {
            self.counters.fast_path += 1;
            let holders = if let Some(partner) = coordination.partner {
                RegionSet::of(partner)
            } else {
                // Just what the fast quorum has on record: a recovery knows nothing of what one reply more has added.
                if !commit_union {
                    coordination.merged = coordination.initial.clone();
                }
                coordination.unchanged
            };
            let outcome = (coordination.proposal(), holders);
            P::on_decided(self, key, id, true, out);
            return self.commit(now, key, id, outcome, out);
        }
        let changed = replied.len() - coordination.unchanged.len();
        let out_of_reach = coordination.partner.is_none() && changed + fast_quorum > coordination.asked + 1;
        if replied.len() < quorum || !(coordination.widened || out_of_reach) {
            return;
        }
        self.counters.slow_path += 1;
        if lost_dependency {
            coordination.merged = coordination.initial.clone();
        }
        coordination.stage = Stage::Accepting;
        coordination.rounds += 1;
        coordination.accepted = RegionSet::of(self.id.region);
        let (ballot, proposal) = (Ballot::default(), coordination.proposal());
        let instance = self.log(key).instances.get_mut(&id);
        let instance = instance.expect("a coordinated instance stays until it is executed");
        instance.accept(ballot, proposal.clone());
        self.store_instance(key, id, out);
        // To those that have replied: they are alive.
        for region in self.others().filter(|region| replied.contains(*region)) {
            let proposal = Box::new(proposal.clone());
            self.tell(region, key, id, Step::Accept { ballot, proposal }, out);
        }
    }

    fn on_accept(
        &mut self,
        now: Now,
        from: Region,
        (key, id): (&Bytes, P::Id),
        (ballot, proposal): (Ballot, ProposalOf<P>),
        out: &mut Out<P>,
    ) {
        let Some(instance) = self.instance(now, key, id, out) else {
            return self.send_key_state(from, key, out);
        };
        if let Some(objection) = instance.objection(ballot) {
            return self.tell(from, key, id, objection, out);
        }
        instance.accept(ballot, proposal);
        self.store_instance(key, id, out);
        self.tell(from, key, id, Step::AcceptReply { ballot }, out);
    }

    fn on_accept_reply(
        &mut self,
        now: Now,
        from: Region,
        (key, id): (&Bytes, P::Id),
        ballot: Ballot,
        out: &mut Out<P>,
    ) {
        if ballot > Ballot::default() {
            return self.on_recovery_accepted(now, from, (key, id), ballot, out);
        }
        let quorum = self.quorum();
        if !self.at_initial_ballot(key, id) {
            return;
        }
        let Some(coordination) = self.logs.get_mut(key).and_then(|log| log.coordinations.get_mut(&id)) else {
            return;
        };
        if coordination.stage != Stage::Accepting {
            return;
        }
        coordination.accepted.insert(from);
        if coordination.accepted.len() >= quorum {
            let outcome = (coordination.proposal(), coordination.accepted);
            P::on_decided(self, key, id, false, out);
            self.commit(now, key, id, outcome, out);
        }
    }

    /// Makes an outcome final: tells all, and executes what it can. `holders` are replicas that have it on record at the
    /// ballot at which it was chosen. What they may accept at a higher one is the same: they need not be told what it is.
    pub(super) fn commit(
        &mut self,
        now: Now,
        key: &Bytes,
        id: P::Id,
        (outcome, holders): (ProposalOf<P>, RegionSet),
        out: &mut Out<P>,
    ) {
        let final_to_all = self.settings().plant.has(Planted::FinalToAll);
        for region in self.others() {
            let commit = || Step::Commit { proposal: Box::new(outcome.clone()) };
            let step = if final_to_all || holders.contains(region) { Step::Final } else { commit() };
            self.tell(region, key, id, step, out);
        }
        self.on_commit(now, key, id, Some(outcome), out);
    }

    /// Takes up that an instance is final, with this outcome or the one that is on record here.
    fn on_commit(
        &mut self,
        now: Now,
        key: &Bytes,
        id: P::Id,
        outcome: Option<ProposalOf<P>>,
        out: &mut Out<P>,
    ) {
        let Some(instance) = self.instance(now, key, id, out) else {
            return P::on_executed_before(self, key, id, out);
        };
        if instance.phase == Phase::Committed {
            return; // Final: a second word of it can only say the same.
        }
        if outcome.is_none() && instance.phase == Phase::Unknown {
            return; // Told what only a holder is told: it is watched now, and so found out.
        }
        let log = self.log(key);
        log.finish(id, outcome);
        if let Some(coordination) = log.coordinations.get_mut(&id) {
            coordination.stage = Stage::Committed;
            P::on_committed(now, coordination, &log.instances[&id].proposal);
        }
        log.recoveries.remove(&id);
        P::execute(self, now, key, out);
        if id.row() == self.region() && !self.log(key).is_executed(id) {
            // A recovery takes the coordinator's promise as proof that it has not committed in one round, so
            // the coordinator must remember that it has. The others' evidence is what they pre-accepted.
            self.store_instance(key, id, out);
        }
        P::after_commit(self, now, key, id, out);
    }

    pub(super) fn on_coordinate_alarm(&mut self, now: Now, key: &Bytes, id: P::Id, out: &mut Out<P>) {
        let log = self.logs.get_mut(key);
        let Some(coordination) = log.and_then(|log| log.coordinations.get_mut(&id)) else { return };
        if now.monotonic >= coordination.give_up {
            // Nobody waits any more. The instance itself is finished by whoever watches it.
            for operation in coordination.command.operations() {
                self.coordinated.remove(&operation.op);
            }
            self.log(key).coordinations.remove(&id);
            return;
        }
        let (step, done) = match coordination.stage {
            Stage::PreAccepting => {
                coordination.widened = true;
                (coordination.pre_accept(), coordination.replied)
            }
            Stage::Accepting => {
                let (ballot, proposal) = (Ballot::default(), Box::new(coordination.proposal()));
                (Step::Accept { ballot, proposal }, coordination.accepted)
            }
            Stage::Committed => {
                self.await_answers(now, key, id, out);
                return P::on_late(self, key, id, out);
            }
        };
        let pre_accepting = coordination.stage == Stage::PreAccepting;
        self.counters.widened += 1;
        self.await_answers(now, key, id, out);
        for region in self.others().filter(|region| !done.contains(*region)) {
            self.tell(region, key, id, step.clone(), out);
        }
        if pre_accepting && self.at_initial_ballot(key, id) {
            self.advance_pre_accept(now, key, id, out);
        }
    }

    /// Sets the alarm after which what was not answered is sent again.
    fn await_answers(&mut self, now: Now, key: &Bytes, id: P::Id, out: &mut Out<P>) {
        let at = now.monotonic + self.settings().retry;
        self.alarms.set(at, Alarm::Coordinate(key.clone(), id), out);
    }

    /// Whether this replica is still at an instance itself, so that it need not be recovered here.
    pub(super) fn is_coordinating(&self, key: &Bytes, id: P::Id) -> bool {
        let coordinates = |log: &Log<P>| log.coordinations.contains_key(&id);
        self.logs.get(key).is_some_and(coordinates) && self.at_initial_ballot(key, id)
    }
}
