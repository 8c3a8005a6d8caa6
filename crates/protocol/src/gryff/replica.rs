//! The server side of reads and writes: registers, and reads as a proxy.

use super::message::Message;
use super::read::Read;
use super::{Consistency, Gryff};
use crate::Map;
use crate::clock::{Micros, Now};
use crate::instances::record::Record;
use crate::instances::{self, Alarm};
use crate::machine::OpId;
use crate::planted::Planted;
use crate::registers::carstamp::{Carstamp, Held, Keyed};
use crate::registry::Writes;
use crate::topology::{Address, Region};
use bytes::Bytes;

/// One region's copy of one partition.
pub type Replica = instances::Replica<Gryff>;

pub(super) type Out = instances::Out<Gryff>;

/// Reads that a replica coordinates.
#[derive(Clone, Debug, Default)]
pub struct ProxiedReads {
    pub(super) reads: Map<OpId, ProxyRead>,
}

#[derive(Clone, Debug)]
pub(super) struct ProxyRead {
    client: Address,
    key: Bytes,
    read: Read,
    /// What the proxy held at the start.
    lent: Held,
    dependency: Option<Box<Keyed>>,
    /// The client has its answer and only waits to hear that it is settled.
    answered: bool,
    give_up: Micros,
}

impl Replica {
    /// Adopts a version if it is newer than the one held (Gryff Alg. 2, `Apply`).
    pub(super) fn apply(&mut self, key: &Bytes, held: &Held, out: &mut Out) {
        if self.newer(held.carstamp, self.registers.carstamp(key)) {
            out.store(|| Record::Register(key.clone(), held.clone()));
            self.registers.set(key, held.clone());
        }
    }

    /// Whether a timestamp lies so far ahead of this replica's clock that whoever chose it by a clock has a wrong one:
    /// accepted, it would keep all readers of its key waiting.
    pub(super) fn is_far_ahead(&self, now: Now, ts: u64) -> bool {
        let settings = self.settings();
        settings.writes != Writes::TwoRounds
            && now.truetime().is_some_and(|time| ts > time.latest + settings.clock_ahead)
    }

    fn newer(&self, one: Carstamp, other: Carstamp) -> bool {
        if self.settings().plant.has(Planted::CompareCarstampsWrongly) {
            return (one.ts, one.rmw_count, one.id) > (other.ts, other.rmw_count, other.id);
        }
        one > other
    }

    pub(super) fn apply_dependency(&mut self, dependency: Option<&Keyed>, out: &mut Out) {
        if let Some(Keyed { key, held }) = dependency {
            self.apply(key, held, out);
        }
    }

    // Reads.

    pub(super) fn on_read(
        &mut self,
        now: Now,
        client: Address,
        (op, key, dependency): (OpId, Bytes, Option<Box<Keyed>>),
        out: &mut Out,
    ) {
        if let Some(state) = self.own.reads.get(&op) {
            // A retry. What is not answered yet is under way, and the alarm resends what may be lost.
            if state.answered {
                let held = state.read.newest.clone();
                out.send(client, Message::ReadReply { op, held, rounds: 1, settled: false });
            }
            return;
        }
        self.apply_dependency(dependency.as_deref(), out);
        let lent = self.registers.get(&key);
        let read = Read::proxied(self.region(), lent.clone());
        for region in self.targets(self.quorum() - 1) {
            let read1 = Message::Read1 {
                op,
                key: key.clone(),
                lent: Some(lent.clone()),
                dependency: dependency.clone(),
            };
            out.send(self.peer(region), read1);
        }
        let give_up = self.give_up(now);
        self.own
            .reads
            .insert(op, ProxyRead { client, key, read, lent, dependency, answered: false, give_up });
        self.alarms.set(now.monotonic + self.settings().retry, Alarm::Own(op), out);
        self.advance_read(op, out);
    }

    pub(super) fn on_read1(
        &mut self,
        from: Address,
        (op, key, lent, dependency): (OpId, Bytes, Option<Held>, Option<Box<Keyed>>),
        out: &mut Out,
    ) {
        self.apply_dependency(dependency.as_deref(), out);
        if let Some(lent) = &lent {
            self.apply(&key, lent, out);
        }
        let held = self.registers.get(&key);
        let known = lent.is_some_and(|lent| lent.carstamp == held.carstamp);
        let value = if known { None } else { held.value };
        out.send(from, Message::Read1Reply { op, carstamp: held.carstamp, value });
    }

    pub(super) fn on_read1_reply(&mut self, from: Region, op: OpId, shown: &Held, out: &mut Out) {
        let Some(state) = self.own.reads.get_mut(&op) else { return };
        // A reply with the carstamp lent carries no value, and is never newer.
        let newer = (shown.carstamp > state.lent.carstamp).then(|| state.key.clone());
        state.read.on_reply(from, shown);
        if let Some(key) = newer {
            self.apply(&key, shown, out);
        }
        self.advance_read(op, out);
    }

    pub(super) fn on_read2(&mut self, from: Address, op: OpId, keyed: &Keyed, out: &mut Out) {
        self.apply(&keyed.key, &keyed.held, out);
        out.send(from, Message::Read2Reply { op, carstamp: self.registers.carstamp(&keyed.key) });
    }

    pub(super) fn on_read2_reply(&mut self, from: Region, op: OpId, carstamp: Carstamp, out: &mut Out) {
        if let Some(state) = self.own.reads.get_mut(&op) {
            state.read.on_written_back(from, carstamp);
            self.advance_read(op, out);
        }
    }

    /// Takes a read as far as the answers allow: to its answer, its write-back, its end.
    fn advance_read(&mut self, op: OpId, out: &mut Out) {
        let quorum = self.quorum();
        let rsc = self.engine.consistency != Consistency::Linearizable;
        let skip_write_back = !rsc && self.settings().plant.has(Planted::SkipWriteBack);
        let Some(state) = self.own.reads.get_mut(&op) else { return };
        let just_decided = state.read.decide(quorum);
        if !state.read.decided {
            return;
        }
        let settled = state.read.settled(quorum) || skip_write_back;
        let client = state.client;
        if !state.answered && (settled || rsc) {
            state.answered = true;
            let rounds = if just_decided { 1 } else { 2 };
            let held = state.read.newest.clone();
            out.send(client, Message::ReadReply { op, held, rounds, settled });
        } else if settled {
            out.send(client, Message::Settled { op, carstamp: state.read.newest.carstamp });
        }
        if settled {
            self.own.reads.remove(&op);
        } else if just_decided {
            self.counters.own += 1;
            self.send_read2(op, out);
        }
    }

    fn send_read2(&self, op: OpId, out: &mut Out) {
        let state = &self.own.reads[&op];
        for region in self.others().filter(|region| !state.read.holders.contains(*region)) {
            let keyed = Keyed { key: state.key.clone(), held: state.read.newest.clone() };
            out.send(self.peer(region), Message::Read2 { op, keyed });
        }
    }

    pub(super) fn on_read_alarm(&mut self, now: Now, op: OpId, out: &mut Out) {
        let Some(state) = self.own.reads.get(&op) else { return };
        if now.monotonic >= state.give_up {
            self.own.reads.remove(&op);
            return;
        }
        self.counters.widened += 1;
        if state.read.decided {
            self.send_read2(op, out);
        } else {
            for region in self.others().filter(|region| !state.read.replied.contains(*region)) {
                let (lent, dependency) = (Some(state.lent.clone()), state.dependency.clone());
                out.send(self.peer(region), Message::Read1 { op, key: state.key.clone(), lent, dependency });
            }
        }
        self.alarms.set(now.monotonic + self.settings().retry, Alarm::Own(op), out);
    }
}
