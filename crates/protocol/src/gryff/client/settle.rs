//! What RSC keeps: which versions a session has read that may not be on a quorum yet, and the largest timestamp among
//! them that may not have passed.

use super::{Alarm, Client, Op, Out, Unsettled, Work};
use crate::clock::Now;
use crate::gryff::Consistency;
use crate::gryff::message::Message;
use crate::machine::RequestId;
use crate::planted::Planted;
use crate::registers::carstamp::{Carstamp, Held, Keyed};
use crate::topology::{Region, RegionSet};
use bytes::Bytes;

impl Client {
    /// Remembers that a read has returned what a quorum may lack.
    pub(super) fn note_unsettled(
        &mut self,
        now: Now,
        request: RequestId,
        key: Bytes,
        (held, holders): (Held, RegionSet),
        out: &mut Out,
    ) {
        if self.engine.settings.plant.has(Planted::DropDependency) {
            return;
        }
        // Of two reads of a key the newer version counts: a quorum that holds it holds no less.
        if self.unsettled.get(&key).is_some_and(|other| other.held.carstamp >= held.carstamp) {
            return;
        }
        let op = self.op_id(request);
        if self.unsettled.insert(key.clone(), Unsettled { op, held, holders }).is_none() {
            self.alarms.set(now.monotonic + self.engine.settings.retry, Alarm::Settle(key), out);
        }
    }

    /// Writes back what was read to the replicas not known to hold it.
    pub(super) fn send_settle(&self, key: &Bytes, out: &mut Out) {
        if let Some(Unsettled { op, held, holders }) = self.unsettled.get(key) {
            let keyed = Keyed { key: key.clone(), held: held.clone() };
            let partition = self.place.group.partition_of(key);
            self.send_phase(partition, false, *holders, &Message::Read2 { op: *op, keyed }, out);
        }
    }

    pub(super) fn on_settle_alarm(&mut self, now: Now, key: Bytes, out: &mut Out) {
        if self.unsettled.contains_key(&key) {
            self.send_settle(&key, out);
            self.alarms.set(now.monotonic + self.engine.settings.retry, Alarm::Settle(key), out);
        }
    }

    pub(super) fn unsettled_key(&self, request: RequestId) -> Option<Bytes> {
        let entry = self.unsettled.iter().find(|(_, unsettled)| unsettled.op.request == request);
        entry.map(|(key, _)| key.clone())
    }

    /// Counts a replica that shows what was read, or a newer version.
    pub(super) fn note_holder(&mut self, request: RequestId, from: Region, carstamp: Carstamp) {
        if let Some(key) = self.unsettled_key(request)
            && let Some(unsettled) = self.unsettled.get_mut(&key)
            && carstamp >= unsettled.held.carstamp
        {
            unsettled.holders.insert(from);
        }
    }

    pub(super) fn on_settled(&mut self, now: Now, request: RequestId, carstamp: Carstamp, out: &mut Out) {
        if let Some(key) = self.unsettled_key(request)
            && self.unsettled[&key].held.carstamp <= carstamp
        {
            self.unsettled.remove(&key);
        }
        self.go_on(now, out);
    }

    /// Remembers the timestamp of what a session reads, if it may lie in the future (one-round RSC).
    pub(super) fn note_seen(&mut self, now: Now, request: RequestId, ts: u64, out: &mut Out) {
        if self.is_clocked() && self.engine.consistency != Consistency::Linearizable && ts > self.seen {
            self.seen = ts;
            if now.passed <= ts && now.uncertainty.is_none() {
                self.ask_time(request, out);
            }
        }
    }

    /// Forgets what is settled, and begins what has waited for that.
    pub(super) fn go_on(&mut self, now: Now, out: &mut Out) {
        let quorum = self.quorum();
        self.unsettled.retain(|_, unsettled| unsettled.holders.len() < quorum);
        if self.waiting.is_empty() || !self.unsettled.is_empty() {
            return;
        }
        for request in std::mem::take(&mut self.waiting) {
            if self.open.get(&request).is_some_and(|op| self.may_begin(now, op)) {
                self.start(now, request, out);
            } else {
                self.waiting.insert(request);
                self.await_passing(now, self.seen, request, out);
            }
        }
    }

    /// Whether a request may begin: what the session has read is on a quorum, and has passed unless it is a write that
    /// begins, whose timestamp is above it; with the published rule also if what is unsettled can be sent along.
    pub(super) fn may_begin(&self, now: Now, op: &Op) -> bool {
        let plant = &self.engine.settings.plant;
        if !self.unsettled.is_empty() {
            let along =
                || self.unsettled.keys().all(|key| self.place.group.partition_of(key) == op.partition);
            return self.as_published()
                && self.unsettled.len() == 1
                && matches!(op.work, Work::Act { .. })
                && along()
                || plant.has(Planted::SendDependencyAlong) && op.work.is_write();
        }
        let skipped = plant.has(Planted::BeginUnsettled) && matches!(op.work, Work::Act { .. })
            || plant.has(Planted::NoFenceWait) && matches!(op.work, Work::Fence(_))
            || self.needs_no_voucher(now);
        op.work.is_write() || skipped || self.seen == 0 || now.passed > self.seen
    }

    pub(super) fn piggyback(&self) -> Option<Box<Keyed>> {
        let (key, unsettled) = self.unsettled.first_key_value()?;
        Some(Box::new(Keyed { key: key.clone(), held: unsettled.held.clone() }))
    }

    /// The published rule: what was sent along counts as settled once the first phase has its quorum.
    pub(super) fn drop_piggyback(&mut self, request: RequestId) {
        let Some(sent) = self.open.get_mut(&request).and_then(|op| op.dependency.take()) else {
            return;
        };
        let Keyed { key, held } = &*sent;
        if self.unsettled.get(key).is_some_and(|unsettled| unsettled.held.carstamp <= held.carstamp) {
            self.unsettled.remove(key);
        }
    }
}
