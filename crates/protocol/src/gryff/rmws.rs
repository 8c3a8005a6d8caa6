//! Rmws: proposed, executed, and answered when a quorum has executed them (Gryff Alg. 3 and 4).

use super::Gryff;
use super::chain::Execution;
use super::instance::{InstanceId, Operation, Proposal};
use super::message::Message;
use super::replica::{Out, Replica};
use crate::clock::{Micros, Now};
use crate::instances::record::Record;
use crate::instances::{Coordination, Head as _, Protocol as _};
use crate::machine::OpId;
use crate::planted::Planted;
use crate::registers::carstamp::{Carstamp, Keyed};
use crate::topology::{Address, Region, RegionSet};
use bytes::Bytes;

/// The client that waits for an rmw, and what it waits for.
#[derive(Clone, Debug)]
pub struct Waiting {
    pub(super) client: Address,
    pub(super) op: OpId,
    pub(super) dependency: Option<Box<Keyed>>,
    /// What has become final.
    pub(super) outcome: Option<Box<Proposal>>,
    pub(super) executed: RegionSet,
    /// What executing it came to here.
    pub(super) result: Option<Execution>,
}

impl Replica {
    pub(super) fn on_rmw(
        &mut self,
        now: Now,
        client: Address,
        (key, rmw, dependency): (Bytes, Box<Operation>, Option<Box<Keyed>>),
        out: &mut Out,
    ) {
        if self.coordinated.contains_key(&rmw.op) {
            self.counters.retry += 1;
            return; // Under way; what may be lost is resent by its own alarm.
        }
        if self.is_too_far_ahead(now, rmw.at_ms) {
            return out.send(client, Message::RmwRefused { op: rmw.op });
        }
        if self.log(&key).result_of(rmw.op, rmw.lane).is_some() {
            // Executed here, but perhaps not at a quorum. Another instance finds that out, and takes no effect.
            self.counters.retry += 1;
        }
        let give_up = self.give_up(now);
        self.propose_rmw(now, &key, (client, rmw, dependency, give_up), out);
    }

    pub(super) fn propose_rmw(
        &mut self,
        now: Now,
        key: &Bytes,
        (client, rmw, dependency, give_up): (Address, Box<Operation>, Option<Box<Keyed>>, Micros),
        out: &mut Out,
    ) {
        let row = self.region();
        let id = InstanceId { index: self.log(key).next_index(row), row };
        let executed = RegionSet::default();
        let waiting = Waiting { client, op: rmw.op, dependency, outcome: None, executed, result: None };
        self.coordinated.insert(rmw.op, ());
        self.propose(now, (key, id), Some(rmw), (waiting, give_up), out);
    }

    pub(super) fn execute_one(&mut self, now: Now, key: &Bytes, id: InstanceId, out: &mut Out) {
        let horizon_ms = self.horizon_ms();
        let chain = self.log(key);
        let before = chain.head.previous.carstamp;
        let execution = chain.execute(id, horizon_ms);
        let (previous, progress) = (chain.head.previous.clone(), chain.head.progress());
        let forgotten = chain.take_forgotten();
        let took_effect = previous.carstamp != before;
        out.store(|| Record::Head(key.clone(), chain.head.clone()));
        out.store(|| Record::Instance(key.clone(), id, None));
        for (client, lane) in forgotten {
            out.store(|| Record::Result(key.clone(), client, lane, None));
        }
        self.counters.truncation += 1;
        self.open_instances -= 1;
        match &execution {
            Execution::Nop => {
                self.counters.nop += 1;
                self.registers.set_executed(key, progress);
                return Gryff::propose_again(self, now, key, id, out);
            }
            Execution::Done(result) => {
                if took_effect {
                    out.store(|| {
                        Record::Result(key.clone(), result.client, result.lane, Some((**result).clone()))
                    });
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
            if let Some(coordination) = self.logs.get_mut(key).and_then(|log| log.coordinations.get_mut(&id))
            {
                coordination.waiting.result = Some(execution);
                coordination.waiting.executed.insert(self.id.region);
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
        if let Some(coordination) = self.logs.get_mut(key).and_then(|log| log.coordinations.get_mut(&id)) {
            coordination.waiting.executed.insert(from);
            self.finish(key, id, out);
        }
    }

    /// Answers the client once a quorum has executed. One execution would not do: reads bypass consensus, and
    /// one that begins after the answer must find it.
    fn finish(&mut self, key: &Bytes, id: InstanceId, out: &mut Out) {
        let one = self.engine.settings.plant.has(Planted::CompleteAfterOneExecution);
        let enough = if one { 1 } else { self.quorum() };
        let log = self.logs.get(key);
        let Some(coordination) = log.and_then(|log| log.coordinations.get(&id)) else { return };
        let Coordination { waiting, rounds, .. } = &**coordination;
        let (Some(result), true) = (&waiting.result, waiting.executed.len() >= enough) else { return };
        let (answer, carstamp) = match result {
            Execution::Done(result) => (Some(result.answer.clone()), result.carstamp),
            Execution::Nop | Execution::Forgotten => (None, Carstamp::default()),
        };
        let (op, rounds) = (waiting.op, *rounds);
        out.send(waiting.client, Message::RmwReply { op, answer, carstamp, rounds });
        self.log(key).coordinations.remove(&id);
        self.coordinated.remove(&op);
    }
}
