//! Operations on their way: submitted, given an instance, executed and answered (EPaxos §4.3).

use super::Epaxos;
use super::instance::{InstanceId, Kind, Operation};
use super::log::{Execution, will_count};
use super::message::Message;
use super::replica::{Batch, Out, Replica};
use crate::clock::{Micros, Now};
use crate::instances::record::Record;
use crate::instances::{Alarm, Coordination, Head as _, Protocol as _};
use crate::object::{Answer, Class, Version, apply};
use crate::registers::carstamp::Carstamp;
use crate::topology::Address;
use bytes::Bytes;

/// Who waits for an instance.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// For each operation its client; none once it is answered.
    pub(super) clients: Vec<Option<Address>>,
    /// Since when the instance is final.
    pub(super) committed: Option<Micros>,
}

impl Replica {
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
        if self.is_too_far_ahead(now, at_ms) {
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
        let gather = self.settings().batch;
        if gather == 0 {
            return self.propose_all(now, key, kind, vec![(client, operation)], out);
        }
        let batch = self.own.batches.entry((key.clone(), kind)).or_default();
        batch.push((client, operation));
        if batch.len() == 1 {
            self.alarms.set(now.monotonic + gather, Alarm::Own(Batch(key.clone(), kind)), out);
        }
    }

    pub(super) fn propose_all(
        &mut self,
        now: Now,
        key: &Bytes,
        kind: Kind,
        batch: Vec<(Address, Operation)>,
        out: &mut Out,
    ) {
        let row = self.region();
        let id = InstanceId { kind, row, index: self.log(key).next_index(kind, row) };
        let (clients, operations): (Vec<_>, Vec<_>) =
            batch.into_iter().map(|(client, operation)| (Some(client), operation)).unzip();
        let waiting = Waiting { clients, committed: None };
        let give_up = self.give_up(now);
        self.propose(now, (key, id), operations.into(), (waiting, give_up), out);
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
    pub(super) fn answer_early(&mut self, key: &Bytes, id: InstanceId, out: &mut Out) {
        let horizon_ms = self.horizon_ms();
        let open = self.log(key).instances.len();
        let Some(coordination) = self.logs.get_mut(key).and_then(|log| log.coordinations.get_mut(&id)) else {
            return;
        };
        if open > OPEN_LIMIT {
            return;
        }
        let Coordination { waiting, command, merged, rounds, .. } = &mut **coordination;
        for (client, operation) in waiting.clients.iter_mut().zip(command.iter()) {
            let Operation { op, action, at_ms, .. } = operation;
            if action.class() != Class::Write || !will_count(operation, merged, horizon_ms) {
                continue;
            }
            if let Some(client) = client.take() {
                let (_, answer) = apply(&None, Version::default(), action, *at_ms);
                let (answer, rounds) = (Some(answer), *rounds);
                out.send(client, Message::Done { op: *op, answer, carstamp: None, rounds, waited: 0 });
                self.coordinated.remove(op);
            }
        }
    }

    /// Executes what can be executed of a key.
    pub(super) fn execute_key(&mut self, now: Now, key: &Bytes, out: &mut Out) {
        let plan = self.log(key).order();
        if !plan.components.is_empty() {
            self.execute_all(now, key, &plan.components, out);
        }
        for id in plan.missing {
            // Makes it known here, and so watched: it may have been lost with its coordinator.
            self.instance(now, key, id, out);
        }
        self.answer_listings(out);
    }

    /// The same as the program of EPaxos's authors does it, which Gryff's evaluation ran (`epaxos-exec.go`): one thread
    /// executes for all keys, in about the order of commits, and where it meets a dependency that is not committed it
    /// sleeps until that is. Then nothing else is executed, and no read answered, of whatever key. Nothing in the
    /// papers asks for it.
    pub(super) fn execute_in_line(&mut self, now: Now, key: &Bytes, out: &mut Out) {
        self.own.line.push_back(key.clone());
        while let Some(first) = self.own.line.pop_front() {
            self.execute_key(now, &first, out);
            if self.log(&first).is_held_up() {
                return self.own.line.push_front(first);
            }
        }
    }

    /// Executes components in order.
    fn execute_all(&mut self, now: Now, key: &Bytes, components: &[Vec<InstanceId>], out: &mut Out) {
        let horizon_ms = self.horizon_ms();
        let mut held = self.registers.get(key);
        let before = held.carstamp;
        let log = self.log(key);
        let mut executed = Vec::new();
        for component in components {
            let done = log.execute(component, &mut held, horizon_ms);
            for result in done.iter().flat_map(|(_, executions)| executions) {
                if let Execution::Done(result) = result {
                    let (client, lane) = (result.client, result.lane);
                    out.store(|| Record::Result(key.clone(), client, lane, Some((**result).clone())));
                }
            }
            for (client, lane) in log.take_forgotten() {
                out.store(|| Record::Result(key.clone(), client, lane, None));
            }
            executed.extend(done);
        }
        out.store(|| Record::Head(key.clone(), log.head.clone()));
        let progress = log.head.progress();
        if held.carstamp != before {
            out.store(|| Record::Register(key.clone(), held.clone()));
            self.registers.set(key, held);
        }
        self.registers.set_executed(key, progress);
        for (id, _) in &executed {
            out.store(|| Record::Instance(key.clone(), *id, None));
        }
        self.open_instances -= executed.len() as u64;
        self.counters.truncation += executed.len() as u64;
        for (id, executions) in executed {
            self.after_execution(now, key, id, executions, out);
        }
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
        self.own.waiting.remove(&(key.clone(), id));
        if executions.is_empty() {
            self.counters.nop += 1;
            return Epaxos::propose_again(self, now, key, id, out);
        }
        let again = executions.iter().filter(|execution| matches!(execution, Execution::Again(_)));
        self.counters.duplicate += again.count() as u64;
        let Some(coordination) = self.log(key).coordinations.remove(&id) else { return };
        let Coordination { command, waiting: Waiting { clients, committed }, rounds, .. } = *coordination;
        let waited = committed.map_or(0, |since| now.monotonic - since);
        for ((client, operation), execution) in clients.into_iter().zip(command.iter()).zip(executions) {
            let Some(client) = client else { continue };
            let (answer, carstamp): (Option<Answer>, Option<Carstamp>) = match execution {
                Execution::Done(result) | Execution::Again(result) => {
                    (Some(result.answer.clone()), Some(result.carstamp))
                }
                Execution::Seen(answer, carstamp) => (Some(answer), Some(carstamp)),
                Execution::Forgotten => (None, None),
            };
            self.coordinated.remove(&operation.op);
            out.send(client, Message::Done { op: operation.op, answer, carstamp, rounds, waited });
        }
    }
}

/// How many open instances a key may have for writes to be answered before they are executed.
const OPEN_LIMIT: usize = 64;
