//! Operations on their usual way: pre-accept, accept if needed, commit, execute (EPaxos §4.3).

use super::instance::{Attributes, InstanceId, Kind, Operation, Proposal};
use super::log::{Execution, will_count};
use super::message::Message;
use super::record::Record;
use super::replica::{Alarm, Out, Replica};
use crate::clock::{Micros, Now};
use crate::gryff::carstamp::Carstamp;
use crate::gryff::instance::{Ballot, Phase};
use crate::object::{Answer, Class, Version, apply};
use crate::planted::Planted;
use crate::topology::{Address, Region, RegionSet};
use bytes::Bytes;

/// An instance that this replica coordinates.
#[derive(Clone, Debug)]
pub(super) struct Coordination {
    /// Its operations with whoever waits for them; none once it is answered.
    clients: Vec<Option<Address>>,
    operations: Vec<Operation>,
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
    rounds: u32,
    give_up: Micros,
}

impl Coordination {
    /// The operations with all that is known of what they must come after.
    fn proposal(&self) -> Proposal {
        Proposal { operations: self.operations.clone(), attributes: self.merged.clone() }
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Stage {
    PreAccepting,
    Accepting,
    /// Final since then.
    Committed(Micros),
}

impl Replica {
    /// How many replicas, the coordinator included, must pre-accept unchanged for a commit in one round: n - e,
    /// where e = ⌈(f+1)/2⌉ (EPaxos §4.4).
    fn fast_quorum(&self) -> usize {
        (usize::from(self.regions()) - self.fast_failures()).max(self.quorum())
    }

    /// How many replicas may be missing from, or have changed, a commit in one round.
    pub(super) fn fast_failures(&self) -> usize {
        self.quorum().div_ceil(2)
    }

    pub(super) fn on_submit(
        &mut self,
        now: Now,
        client: Address,
        key: &Bytes,
        operation: Operation,
        out: &mut Out,
    ) {
        let Operation { op, lane, at_ms, .. } = operation;
        if self.coordinated.contains_key(&op) {
            self.counters.retry += 1;
            return; // Under way; what may be lost is resent by its own alarm.
        }
        let ahead_ms = self.settings.remember / 2_000;
        if at_ms > now.wall_ms().saturating_add(ahead_ms) {
            return out.send(client, Message::TooFarAhead { op });
        }
        let kind = if operation.action.class() == Class::Read { Kind::Read } else { Kind::Update };
        if let (Kind::Update, Some(last)) = (kind, self.log(key).last_result(op.client, lane))
            && last.request >= op.request
        {
            // Executed here, so final. A lower number is over, and nobody waits for it.
            if last.request == op.request {
                let (answer, carstamp) = (Some(last.answer.clone()), Some(last.carstamp));
                out.send(client, Message::Done { op, answer, carstamp, rounds: 1, waited: 0 });
            }
            self.counters.retry += 1;
            return;
        }
        self.coordinated.insert(op, ());
        if self.settings.batch == 0 {
            let give_up = now.monotonic + 2 * self.settings.operation_timeout;
            return self.propose(now, key, kind, (vec![(client, operation)], give_up), out);
        }
        let batch = self.batches.entry((key.clone(), kind)).or_default();
        batch.push((client, operation));
        if batch.len() == 1 {
            self.alarms.set(now.monotonic + self.settings.batch, Alarm::Batch(key.clone(), kind), out);
        }
    }

    pub(super) fn on_batch_alarm(&mut self, now: Now, key: &Bytes, kind: Kind, out: &mut Out) {
        if let Some(batch) = self.batches.remove(&(key.clone(), kind)) {
            let give_up = now.monotonic + 2 * self.settings.operation_timeout;
            self.propose(now, key, kind, (batch, give_up), out);
        }
    }

    fn propose(
        &mut self,
        now: Now,
        key: &Bytes,
        kind: Kind,
        (batch, give_up): (Vec<(Address, Operation)>, Micros),
        out: &mut Out,
    ) {
        let own = self.region();
        let log = self.log(key);
        let id = InstanceId { kind, row: own, index: log.next_index(kind, own) };
        let initial = log.attributes(kind);
        let partner = (self.regions() == 3).then(|| self.others().next()).flatten();
        let answers = if partner.is_some() { 1 } else { self.fast_quorum() - 1 };
        let count = if self.settings.thrifty { answers } else { usize::MAX };
        let targets: Vec<_> = self.others().take(count).collect();
        let (clients, operations): (Vec<_>, Vec<_>) =
            batch.into_iter().map(|(client, operation)| (Some(client), operation)).unzip();
        let proposal = Proposal { operations: operations.clone(), attributes: initial.clone() };
        let Some(instance) = self.instance(now, key, id, out) else { return };
        instance.phase = Phase::PreAccepted;
        instance.proposal = proposal.clone();
        instance.initial = Some(initial.clone());
        instance.partner = partner;
        // Stored before it is sent, so that a restart never uses the index again.
        self.store_instance(key, id, out);
        for region in &targets {
            let (key, proposal) = (key.clone(), Box::new(proposal.clone()));
            out.send(self.peer(*region), Message::PreAccept { key, id, proposal, partner });
        }
        let own_set = RegionSet::of(own);
        let coordination = Coordination {
            clients,
            operations,
            stage: Stage::PreAccepting,
            merged: initial.clone(),
            initial,
            partner,
            asked: targets.len(),
            widened: false,
            replied: own_set,
            unchanged: own_set,
            accepted: RegionSet::default(),
            rounds: 1,
            give_up,
        };
        self.coordinations.insert((key.clone(), id), coordination);
        self.alarms.set(now.monotonic + self.settings.retry, Alarm::Coordinate(key.clone(), id), out);
        self.advance_pre_accept(now, key, id, out);
    }

    pub(super) fn on_pre_accept(
        &mut self,
        now: Now,
        from: Address,
        (key, id, proposal, partner): (Bytes, InstanceId, Proposal, Option<Region>),
        out: &mut Out,
    ) {
        let log = self.log(&key);
        if !log.fits(&proposal.attributes) {
            return; // Of a keyspace with other regions; the handshake keeps such peers away.
        }
        let attributes = log.merged(id, &proposal.attributes);
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
        instance.initial = Some(proposal.attributes);
        instance.proposal = Proposal { operations: proposal.operations, attributes: attributes.clone() };
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
        if !self.at_initial_ballot(key, id) {
            return; // A recovery has begun, and what this replica promised it forbids to go on.
        }
        let Some(coordination) = self.coordinations.get_mut(&(key.clone(), id)) else { return };
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
        let instance = self.logs.get(key).and_then(|log| log.instances.get(&id));
        instance.is_some_and(|instance| {
            instance.promised == Ballot::default() && instance.phase < Phase::Committed
        })
    }

    /// Commits in one round if that is safe, otherwise goes on to the accept phase once a majority has replied
    /// and the fast quorum is out of reach or late.
    fn advance_pre_accept(&mut self, now: Now, key: &Bytes, id: InstanceId, out: &mut Out) {
        let (quorum, fast_quorum) = (self.quorum(), self.fast_quorum());
        let Some(coordination) = self.coordinations.get_mut(&(key.clone(), id)) else { return };
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
            self.answer_early(key, id, &proposal.attributes, out);
            return self.commit(now, key, id, proposal, out);
        }
        let changed = replied.len() - coordination.unchanged.len();
        let out_of_reach = coordination.partner.is_none() && changed + fast_quorum > coordination.asked + 1;
        if replied.len() < quorum || !(coordination.widened || out_of_reach) {
            return;
        }
        self.counters.slow_path += 1;
        if self.settings.plant.has(Planted::LostDependency) {
            coordination.merged = coordination.initial.clone();
        }
        coordination.stage = Stage::Accepting;
        coordination.rounds += 1;
        coordination.accepted = RegionSet::of(self.id.region);
        let proposal = coordination.proposal();
        let log = self.log(key);
        let instance = log.instances.get_mut(&id).expect("a coordinated instance stays until it is executed");
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
        let (quorum, three) = (self.quorum(), self.regions() == 3);
        if !self.at_initial_ballot(key, id) {
            return;
        }
        let Some(coordination) = self.coordinations.get_mut(&(key.clone(), id)) else { return };
        if coordination.stage != Stage::Accepting {
            return;
        }
        coordination.accepted.insert(from);
        if coordination.accepted.len() >= quorum {
            let proposal = coordination.proposal();
            if three {
                self.answer_early(key, id, &proposal.attributes, out);
            }
            self.commit(now, key, id, proposal, out);
        }
    }

    /// Answers blind writes at commit, before they are executed: their answer says nothing of what was there.
    ///
    /// A write answered here must come before every operation that begins later, also if both end up in one
    /// component, whose order are sequence numbers. What comes later knows this write with at least its *initial*
    /// number, and that is the final one if it was committed unchanged. In the slow path the final number may be
    /// higher. Then a recovery that finds too few pre-accepts for a majority may give a later operation a lower one; so
    /// such a write is answered when it is executed. With three replicas recoveries always hear a majority.
    ///
    /// Writers that never wait for execution could extend a component without end: behind so many open instances
    /// they do wait.
    fn answer_early(&mut self, key: &Bytes, id: InstanceId, attributes: &Attributes, out: &mut Out) {
        let horizon_ms = self.settings.remember / 1_000;
        let open = self.log(key).instances.len();
        let Some(coordination) = self.coordinations.get_mut(&(key.clone(), id)) else { return };
        if open > OPEN_LIMIT {
            return;
        }
        for (client, operation) in coordination.clients.iter_mut().zip(&coordination.operations) {
            let Operation { op, action, at_ms, .. } = operation;
            if action.class() != Class::Write || !will_count(operation, attributes, horizon_ms) {
                continue;
            }
            if let Some(client) = client.take() {
                let (_, answer) = apply(&None, Version::default(), action, *at_ms);
                let (answer, rounds) = (Some(answer), coordination.rounds);
                out.send(client, Message::Done { op: *op, answer, carstamp: None, rounds, waited: 0 });
                self.coordinated.remove(op);
            }
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
        let Some(instance) = self.instance(now, key, id, out) else { return };
        if instance.phase == Phase::Committed {
            return; // Final: a second word of it can only say the same.
        }
        instance.phase = Phase::Committed;
        self.log(key).note(id, &proposal);
        if let Some(instance) = self.log(key).instances.get_mut(&id) {
            instance.proposal = proposal;
        }
        self.recoveries.remove(&(key.clone(), id));
        if let Some(coordination) = self.coordinations.get_mut(&(key.clone(), id)) {
            coordination.stage = Stage::Committed(now.monotonic);
        }
        self.execute(now, key, out);
        if own_row && !self.log(key).is_executed(id) {
            // A recovery takes the coordinator's promise as proof that it has not committed in one round, so
            // the coordinator must remember that it has. The others' evidence is what they pre-accepted.
            self.store_instance(key, id, out);
        }
        self.recover_those_that_wait_for(now, key, id, out);
    }

    /// Executes what can be executed of a key, and looks after what stands in the way of the rest.
    pub(super) fn execute(&mut self, now: Now, key: &Bytes, out: &mut Out) {
        let horizon_ms = self.settings.remember / 1_000;
        let plan = self.log(key).plan();
        let mut held = self.registers.get(key);
        let before = held.carstamp;
        let log = self.log(key);
        let mut executed = Vec::new();
        for component in &plan.components {
            let done = log.execute(component, &mut held, horizon_ms);
            for result in done.iter().flat_map(|(_, executions)| executions) {
                if let Execution::Done(result) = result {
                    let (client, lane) = (result.client, result.lane);
                    out.output(Record::Result(key.clone(), client, lane, Some((**result).clone())));
                }
            }
            for (client, lane) in log.take_forgotten() {
                out.output(Record::Result(key.clone(), client, lane, None));
            }
            executed.extend(done);
        }
        let (left, progress) = (log.head.clone(), log.progress());
        if !executed.is_empty() {
            if held.carstamp != before {
                out.output(Record::Value(key.clone(), held.clone()));
                self.registers.set(key, held);
            }
            out.output(Record::Head(key.clone(), left));
            self.registers.set_executed(key, progress);
            for (id, _) in &executed {
                out.output(Record::Instance(key.clone(), *id, None));
            }
            self.open_instances -= executed.len() as u64;
            self.counters.truncation += executed.len() as u64;
        }
        for (id, executions) in executed {
            self.after_execution(now, key, id, executions, out);
        }
        for id in plan.missing {
            // Makes it known here, and so watched: it may have been lost with its coordinator.
            self.instance(now, key, id, out);
        }
        self.answer_listings(out);
    }

    /// Answers whoever waits for an instance that is executed, or proposes its operations again if it was a Nop.
    fn after_execution(
        &mut self,
        now: Now,
        key: &Bytes,
        id: InstanceId,
        executions: Vec<Execution>,
        out: &mut Out,
    ) {
        self.waiting.remove(&(key.clone(), id));
        if executions.is_empty() {
            self.counters.nop += 1;
            return self.propose_again(now, key, id, out);
        }
        let again = executions.iter().filter(|execution| matches!(execution, Execution::Again(_)));
        self.counters.duplicate += again.count() as u64;
        let Some(coordination) = self.coordinations.remove(&(key.clone(), id)) else { return };
        let waited = match coordination.stage {
            Stage::Committed(since) => now.monotonic - since,
            Stage::PreAccepting | Stage::Accepting => 0,
        };
        let rounds = coordination.rounds;
        let waiting = coordination.clients.into_iter().zip(coordination.operations).zip(executions);
        for ((client, operation), execution) in waiting {
            let Some(client) = client else { continue };
            let (answer, carstamp): (Option<Answer>, Option<Carstamp>) = match execution {
                Execution::Done(result) | Execution::Again(result) => {
                    (Some(result.answer), Some(result.carstamp))
                }
                Execution::Seen(answer, carstamp) => (Some(answer), Some(carstamp)),
                Execution::Forgotten => (None, None),
            };
            self.coordinated.remove(&operation.op);
            out.send(client, Message::Done { op: operation.op, answer, carstamp, rounds, waited });
        }
    }

    /// An instance of this replica came to nothing (or was overtaken by a peer's state): what is not answered of it
    /// is taken up anew, under the same name, so that it takes effect once.
    pub(super) fn propose_again(&mut self, now: Now, key: &Bytes, id: InstanceId, out: &mut Out) {
        let Some(coordination) = self.coordinations.remove(&(key.clone(), id)) else { return };
        let waiting = coordination.clients.into_iter().zip(coordination.operations);
        let waiting: Vec<_> = waiting.filter_map(|(client, operation)| Some((client?, operation))).collect();
        for (client, operation) in waiting {
            self.coordinated.remove(&operation.op);
            if now.monotonic < coordination.give_up {
                self.on_submit(now, client, key, operation, out);
            }
        }
    }

    pub(super) fn on_coordinate_alarm(&mut self, now: Now, key: &Bytes, id: InstanceId, out: &mut Out) {
        let at = (key.clone(), id);
        let Some(coordination) = self.coordinations.get(&at) else { return };
        if now.monotonic >= coordination.give_up {
            // Nobody waits any more. The instance itself is finished by whoever watches it.
            for operation in &coordination.operations {
                self.coordinated.remove(&operation.op);
            }
            self.coordinations.remove(&at);
            return;
        }
        self.alarms.set(now.monotonic + self.settings.retry, Alarm::Coordinate(key.clone(), id), out);
        self.counters.widened += u64::from(!matches!(coordination.stage, Stage::Committed(_)));
        let others = |done: RegionSet| self.others().filter(move |region| !done.contains(*region));
        match &coordination.stage {
            Stage::PreAccepting => {
                let (operations, attributes) =
                    (coordination.operations.clone(), coordination.initial.clone());
                let proposal = Box::new(Proposal { operations, attributes });
                for region in others(coordination.replied) {
                    let (key, proposal, partner) = (key.clone(), proposal.clone(), coordination.partner);
                    out.send(self.peer(region), Message::PreAccept { key, id, proposal, partner });
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
                    let ballot = Ballot::default();
                    out.send(self.peer(region), Message::Accept { key, id, ballot, proposal });
                }
            }
            // Those that stand in its way are watched.
            Stage::Committed(_) => {}
        }
    }

    /// Whether this replica is still at an instance itself, so that it need not be recovered here.
    pub(super) fn is_coordinating(&self, key: &Bytes, id: InstanceId) -> bool {
        self.coordinations.contains_key(&(key.clone(), id)) && self.at_initial_ballot(key, id)
    }
}

/// How many open instances a key may have for writes to be answered before they are executed.
const OPEN_LIMIT: usize = 64;
