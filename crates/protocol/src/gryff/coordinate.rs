//! Read-modify-writes on their usual way: pre-accept, accept if needed, commit, execute (Gryff Alg. 3 and 4).
//!
//! The attributes of an instance are its dependencies and its base. EPaxos's sequence numbers are left out: every
//! rmw answers after execution, so any order that all replicas share will do inside a cycle.

use super::carstamp::Carstamp;
use super::chain::Execution;
use super::instance::{Attributes, Ballot, Base, InstanceId, Phase, Proposal, Rmw};
use super::message::{Keyed, Message};
use super::record::Record;
use super::replica::{Alarm, Out, Replica};
use crate::clock::{Micros, Now};
use crate::planted::Planted;
use crate::topology::{Address, Region, RegionSet};
use bytes::Bytes;

/// An rmw that this replica coordinates.
#[derive(Clone, Debug)]
pub(super) struct Coordination {
    client: Address,
    rmw: Box<Rmw>,
    dependency: Option<Box<Keyed>>,
    stage: Stage,
    /// What this replica proposed. Its own vote counts as this, whatever it learns later.
    initial: Attributes,
    /// `initial` with all that replies have added.
    merged: Attributes,
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
    executed: RegionSet,
    /// What executing it came to here.
    result: Option<Execution>,
    rounds: u32,
    give_up: Micros,
}

impl Coordination {
    /// The rmw with all that is known of what it must come after.
    fn proposal(&self) -> Proposal {
        Proposal { rmw: Some(self.rmw.clone()), attributes: self.merged.clone() }
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Stage {
    PreAccepting,
    Accepting,
    Committed(Box<Proposal>),
}

impl Replica {
    /// How many replicas, the coordinator included, must pre-accept unchanged for a commit in one round: all but
    /// one. EPaxos's smaller fast quorum (3 of 5) would leave a recovery unable to tell whether the base missed
    /// an update that had completed before the rmw began (see `docs/engines/gryff.md`).
    fn fast_quorum(&self) -> usize {
        let n = usize::from(self.place.group.regions);
        if self.engine.settings.plant.has(Planted::SmallFastQuorum) {
            return self.quorum();
        }
        (n - 1).max(self.quorum())
    }

    pub(super) fn on_rmw(
        &mut self,
        now: Now,
        client: Address,
        (key, rmw, dependency): (Bytes, Box<Rmw>, Option<Box<Keyed>>),
        out: &mut Out,
    ) {
        if self.coordinated.contains_key(&rmw.op) {
            self.counters.retry += 1;
            return; // Under way; what may be lost is resent by its own alarm.
        }
        let ahead_ms = self.engine.settings.remember / 2_000;
        if rmw.at_ms > now.wall_ms().saturating_add(ahead_ms) {
            return out.send(client, Message::RmwRefused { op: rmw.op });
        }
        if self.chain(&key).result_of(rmw.op, rmw.lane).is_some() {
            // Executed here, but perhaps not at a quorum. Another instance finds that out, and takes no effect.
            self.counters.retry += 1;
        }
        let give_up = now.monotonic + 2 * self.engine.settings.operation_timeout;
        self.propose(now, &key, (client, rmw, dependency, give_up), out);
    }

    fn propose(
        &mut self,
        now: Now,
        key: &Bytes,
        (client, rmw, dependency, give_up): (Address, Box<Rmw>, Option<Box<Keyed>>, Micros),
        out: &mut Out,
    ) {
        let own = self.region();
        let base = Base::of(&self.registers.get(key));
        let chain = self.chain(key);
        let id = InstanceId { index: chain.next_index(own), row: own };
        let initial = Attributes { dependencies: chain.dependencies(), base };
        let partner = (self.place.group.regions == 3).then(|| self.others().next()).flatten();
        let answers = if partner.is_some() { 1 } else { self.fast_quorum() - 1 };
        let targets: Vec<_> = self.targets(answers).collect();
        let Some(instance) = self.instance(now, key, id, out) else { return };
        instance.phase = Phase::PreAccepted;
        instance.proposal = Proposal { rmw: Some(rmw.clone()), attributes: initial.clone() };
        instance.initial = Some(initial.clone());
        instance.partner = partner;
        // Stored before it is sent, so that a restart never uses the index again.
        self.store_instance(key, id, out);
        for region in &targets {
            let pre_accept = Message::PreAccept {
                key: key.clone(),
                id,
                rmw: rmw.clone(),
                initial: Box::new(initial.clone()),
                partner,
                dependency: dependency.clone(),
            };
            out.send(self.peer(*region), pre_accept);
        }
        let own_set = RegionSet::of(own);
        let coordination = Coordination {
            client,
            dependency,
            stage: Stage::PreAccepting,
            merged: initial.clone(),
            initial,
            partner,
            asked: targets.len(),
            widened: false,
            replied: own_set,
            unchanged: own_set,
            accepted: RegionSet::default(),
            executed: RegionSet::default(),
            result: None,
            rounds: 1,
            give_up,
            rmw,
        };
        self.coordinated.insert(coordination.rmw.op, ());
        self.coordinations.insert((key.clone(), id.index), coordination);
        self.alarms.set(
            now.monotonic + self.engine.settings.retry,
            Alarm::Coordinate(key.clone(), id.index),
            out,
        );
        self.advance_pre_accept(now, key, id, out);
    }

    pub(super) fn on_pre_accept(
        &mut self,
        now: Now,
        from: Address,
        (key, id, rmw, initial, partner): (Bytes, InstanceId, Box<Rmw>, Box<Attributes>, Option<Region>),
        out: &mut Out,
    ) {
        let mut attributes = *initial.clone();
        let chain = self.chain(&key);
        let dependencies = chain.dependencies();
        if attributes.dependencies.len() != dependencies.len() {
            return; // Of a keyspace with other regions; the handshake keeps such peers away.
        }
        let base = Base::of(&self.registers.get(&key));
        attributes.merge(&Attributes { dependencies, base });
        let Some(instance) = self.instance(now, &key, id, out) else {
            return self.send_key_state(from, &key, out);
        };
        if instance.phase == Phase::PreAccepted && instance.promised == Ballot::default() {
            // Sent again: the same answer again.
            let attributes = Box::new(instance.proposal.attributes.clone());
            return out.send(from, Message::PreAcceptReply { key, id, attributes });
        }
        if instance.phase == Phase::Committed {
            let proposal = Box::new(instance.proposal.clone());
            return out.send(from, Message::Commit { key, id, proposal });
        }
        if instance.promised > Ballot::default() || instance.phase != Phase::Unknown {
            // A recovery has begun: a late pre-accept must change nothing that was reported to it.
            let promised = instance.promised;
            return out.send(from, Message::Refused { key, id, promised });
        }
        instance.phase = Phase::PreAccepted;
        instance.initial = Some(*initial);
        instance.proposal = Proposal { rmw: Some(rmw), attributes: attributes.clone() };
        instance.partner = partner;
        self.store_instance(&key, id, out);
        out.send(from, Message::PreAcceptReply { key, id, attributes: Box::new(attributes) });
    }

    pub(super) fn on_pre_accept_reply(
        &mut self,
        now: Now,
        from: Region,
        (key, id, attributes): (&Bytes, InstanceId, &Attributes),
        out: &mut Out,
    ) {
        if id.row != self.region() || !self.at_initial_ballot(key, id) {
            return; // A recovery has begun, and what this replica promised it forbids to go on.
        }
        let Some(coordination) = self.coordinations.get_mut(&(key.clone(), id.index)) else { return };
        if coordination.stage != Stage::PreAccepting || !coordination.replied.insert(from) {
            return;
        }
        if attributes.same(&coordination.initial) {
            coordination.unchanged.insert(from);
        }
        coordination.merged.merge(attributes);
        self.advance_pre_accept(now, key, id, out);
    }

    fn at_initial_ballot(&self, key: &Bytes, id: InstanceId) -> bool {
        let instance = self.chains.get(key).and_then(|chain| chain.instances.get(&id));
        instance.is_some_and(|instance| {
            instance.promised == Ballot::default() && instance.phase < Phase::Committed
        })
    }

    /// Commits in one round if that is safe, otherwise goes on to the accept phase once a majority has replied
    /// and the fast quorum is out of reach or late.
    fn advance_pre_accept(&mut self, now: Now, key: &Bytes, id: InstanceId, out: &mut Out) {
        let (quorum, fast_quorum) = (self.quorum(), self.fast_quorum());
        let Some(coordination) = self.coordinations.get_mut(&(key.clone(), id.index)) else { return };
        let replied = coordination.replied;
        let fast = match coordination.partner {
            // The pair rule: with three replicas the coordinator and its partner are a majority, so what the
            // partner adds can be taken over at once. A recovery asks the partner, whose record decides.
            Some(partner) => replied.len() == 2 && replied.contains(partner),
            None => coordination.unchanged.len() >= fast_quorum,
        };
        if fast {
            self.counters.fast_path += 1;
            let proposal = coordination.proposal();
            return self.commit(now, key, id, proposal, out);
        }
        let changed = replied.len() - coordination.unchanged.len();
        let out_of_reach = coordination.partner.is_none() && changed + fast_quorum > coordination.asked + 1;
        if replied.len() < quorum || !(coordination.widened || out_of_reach) {
            return;
        }
        self.counters.slow_path += 1;
        coordination.stage = Stage::Accepting;
        coordination.rounds += 1;
        coordination.accepted = RegionSet::of(self.id.region);
        let proposal = coordination.proposal();
        let chain = self.chain(key);
        let instance =
            chain.instances.get_mut(&id).expect("a coordinated instance stays until it is executed");
        instance.phase = Phase::Accepted;
        instance.proposal = proposal.clone();
        self.store_instance(key, id, out);
        // To those that have replied: they are alive.
        for region in self.others().filter(|region| replied.contains(*region)) {
            let (key, proposal) = (key.clone(), Box::new(proposal.clone()));
            out.send(self.peer(region), Message::Accept { key, id, ballot: Ballot::default(), proposal });
        }
    }

    pub(super) fn on_accept(
        &mut self,
        now: Now,
        from: Address,
        (key, id, ballot, proposal): (Bytes, InstanceId, Ballot, Proposal),
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
        instance.promised = ballot;
        instance.accepted = ballot;
        instance.phase = Phase::Accepted;
        instance.proposal = proposal;
        self.store_instance(&key, id, out);
        out.send(from, Message::AcceptReply { key, id, ballot });
    }

    pub(super) fn on_accept_reply(
        &mut self,
        now: Now,
        from: Region,
        (key, id, ballot): (&Bytes, InstanceId, Ballot),
        out: &mut Out,
    ) {
        if ballot > Ballot::default() {
            return self.on_recovery_accepted(now, from, (key, id, ballot), out);
        }
        let quorum = self.quorum();
        if id.row != self.region() || !self.at_initial_ballot(key, id) {
            return;
        }
        let Some(coordination) = self.coordinations.get_mut(&(key.clone(), id.index)) else { return };
        if coordination.stage != Stage::Accepting {
            return;
        }
        coordination.accepted.insert(from);
        if coordination.accepted.len() >= quorum {
            let proposal = coordination.proposal();
            self.commit(now, key, id, proposal, out);
        }
    }

    /// Makes an outcome final: tells all, and executes what it can.
    pub(super) fn commit(
        &mut self,
        now: Now,
        key: &Bytes,
        id: InstanceId,
        proposal: Proposal,
        out: &mut Out,
    ) {
        for region in self.others() {
            let (key, proposal) = (key.clone(), Box::new(proposal.clone()));
            out.send(self.peer(region), Message::Commit { key, id, proposal });
        }
        self.on_commit(now, key, id, proposal, out);
    }

    pub(super) fn on_commit(
        &mut self,
        now: Now,
        key: &Bytes,
        id: InstanceId,
        proposal: Proposal,
        out: &mut Out,
    ) {
        let own_row = id.row == self.region();
        let Some(instance) = self.instance(now, key, id, out) else {
            // Executed already: its coordinator sends it again because it lacks the word.
            if !own_row {
                out.send(self.peer(id.row), Message::Executed { key: key.clone(), id });
            }
            return;
        };
        if instance.phase == Phase::Committed {
            return; // Final: a second word of it can only say the same.
        }
        instance.phase = Phase::Committed;
        instance.proposal = proposal;
        self.recoveries.remove(&(key.clone(), id));
        if own_row {
            self.note_commit(key, id);
        }
        self.execute(now, key, out);
        if own_row && !self.chain(key).is_executed(id) {
            // A recovery takes the coordinator's promise as proof that it has not committed in one round, so
            // the coordinator must remember that it has. The others' evidence is what they pre-accepted.
            self.store_instance(key, id, out);
        }
    }

    fn note_commit(&mut self, key: &Bytes, id: InstanceId) {
        let proposal = self.chain(key).instances.get(&id).map(|instance| instance.proposal.clone());
        if let Some(coordination) = self.coordinations.get_mut(&(key.clone(), id.index))
            && let Some(proposal) = proposal
        {
            coordination.rounds += 1;
            coordination.stage = Stage::Committed(Box::new(proposal));
        }
    }

    /// Executes what can be executed of a key, and looks after what stands in the way of the rest.
    pub(super) fn execute(&mut self, now: Now, key: &Bytes, out: &mut Out) {
        let plan = self.chain(key).plan();
        for id in &plan.order {
            self.execute_one(now, key, *id, out);
        }
        for id in plan.missing {
            // Makes it known here, and so watched: it may have been lost with its coordinator.
            self.instance(now, key, id, out);
        }
    }

    fn execute_one(&mut self, now: Now, key: &Bytes, id: InstanceId, out: &mut Out) {
        let horizon_ms = self.engine.settings.remember / 1_000;
        let chain = self.chain(key);
        let before = chain.previous.carstamp;
        let execution = chain.execute(id, horizon_ms);
        let (previous, progress) = (chain.previous.clone(), chain.progress());
        let (head, forgotten) = (chain.head(), chain.take_forgotten());
        let took_effect = previous.carstamp != before;
        out.output(Record::Head(key.clone(), head));
        out.output(Record::Instance(key.clone(), id, None));
        for (client, lane) in forgotten {
            out.output(Record::Result(key.clone(), client, lane, None));
        }
        self.counters.truncation += 1;
        self.open_instances -= 1;
        match &execution {
            Execution::Nop => {
                self.counters.nop += 1;
                self.registers.set_executed(key, progress);
                return self.propose_again(now, key, id, out);
            }
            Execution::Done(result) => {
                if took_effect {
                    let record =
                        Record::Result(key.clone(), result.client, result.lane, Some((**result).clone()));
                    out.output(record);
                    // A write with a higher carstamp may have come meanwhile; then this changes nothing.
                    self.apply(key, &previous, out);
                } else {
                    self.counters.duplicate += 1;
                }
            }
            Execution::Forgotten => {}
        }
        self.registers.set_executed(key, progress);
        if id.row == self.region() {
            if let Some(coordination) = self.coordinations.get_mut(&(key.clone(), id.index)) {
                coordination.result = Some(execution);
                coordination.executed.insert(self.id.region);
            }
            self.finish(key, id, out);
        } else {
            out.send(self.peer(id.row), Message::Executed { key: key.clone(), id });
        }
    }

    pub(super) fn on_executed(&mut self, from: Region, key: &Bytes, id: InstanceId, out: &mut Out) {
        if id.row != self.region() {
            return;
        }
        if let Some(coordination) = self.coordinations.get_mut(&(key.clone(), id.index)) {
            coordination.executed.insert(from);
            self.finish(key, id, out);
        }
    }

    /// Answers the client once a quorum has executed. One execution would not do: reads bypass consensus, and
    /// one that begins after the answer must find it.
    fn finish(&mut self, key: &Bytes, id: InstanceId, out: &mut Out) {
        let one = self.engine.settings.plant.has(Planted::CompleteAfterOneExecution);
        let enough = if one { 1 } else { self.quorum() };
        let at = (key.clone(), id.index);
        let Some(coordination) = self.coordinations.get(&at) else { return };
        let (Some(result), true) = (&coordination.result, coordination.executed.len() >= enough) else {
            return;
        };
        let (op, rounds) = (coordination.rmw.op, coordination.rounds);
        let (answer, carstamp) = match result {
            Execution::Done(result) => (Some(result.answer.clone()), result.carstamp),
            Execution::Nop | Execution::Forgotten => (None, Carstamp::default()),
        };
        let reply = Message::RmwReply { op, answer, carstamp, rounds };
        out.send(coordination.client, reply);
        self.coordinations.remove(&at);
        self.coordinated.remove(&op);
    }

    /// An instance of this replica came to nothing (or was overtaken by a peer's state): its operation gets
    /// another one, under the same id, so that it takes effect once.
    pub(super) fn propose_again(&mut self, now: Now, key: &Bytes, id: InstanceId, out: &mut Out) {
        if id.row != self.region() {
            return;
        }
        let Some(coordination) = self.coordinations.remove(&(key.clone(), id.index)) else { return };
        self.coordinated.remove(&coordination.rmw.op);
        if now.monotonic < coordination.give_up {
            let Coordination { client, rmw, dependency, give_up, .. } = coordination;
            self.propose(now, key, (client, rmw, dependency, give_up), out);
        }
    }

    pub(super) fn on_coordinate_alarm(&mut self, now: Now, key: &Bytes, index: u64, out: &mut Out) {
        let id = InstanceId { index, row: self.region() };
        let at = (key.clone(), index);
        let Some(coordination) = self.coordinations.get(&at) else { return };
        if now.monotonic >= coordination.give_up {
            // Nobody waits any more. The instance itself is finished by whoever watches it.
            self.coordinated.remove(&coordination.rmw.op);
            self.coordinations.remove(&at);
            return;
        }
        self.counters.widened += 1;
        self.alarms.set(
            now.monotonic + self.engine.settings.retry,
            Alarm::Coordinate(key.clone(), index),
            out,
        );
        let others = |done: RegionSet| self.others().filter(move |region| !done.contains(*region));
        match &coordination.stage {
            Stage::PreAccepting => {
                for region in others(coordination.replied) {
                    let pre_accept = Message::PreAccept {
                        key: key.clone(),
                        id,
                        rmw: coordination.rmw.clone(),
                        initial: Box::new(coordination.initial.clone()),
                        partner: coordination.partner,
                        dependency: coordination.dependency.clone(),
                    };
                    out.send(self.peer(region), pre_accept);
                }
                if let Some(coordination) = self.coordinations.get_mut(&at) {
                    coordination.widened = true;
                }
                if self.at_initial_ballot(key, id) {
                    self.advance_pre_accept(now, key, id, out);
                }
            }
            Stage::Accepting => {
                let proposal = coordination.proposal();
                for region in others(coordination.accepted) {
                    let (key, proposal) = (key.clone(), Box::new(proposal.clone()));
                    out.send(
                        self.peer(region),
                        Message::Accept { key, id, ballot: Ballot::default(), proposal },
                    );
                }
            }
            Stage::Committed(proposal) => {
                for region in others(coordination.executed) {
                    let (key, proposal) = (key.clone(), proposal.clone());
                    out.send(self.peer(region), Message::Commit { key, id, proposal });
                }
            }
        }
    }

    /// Whether this replica is still at an instance itself, so that it need not be recovered here.
    pub(super) fn is_coordinating(&self, key: &Bytes, id: InstanceId) -> bool {
        id.row == self.region()
            && self.coordinations.contains_key(&(key.clone(), id.index))
            && self.at_initial_ballot(key, id)
    }
}
