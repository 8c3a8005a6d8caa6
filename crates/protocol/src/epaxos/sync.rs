//! Keeping replicas alike without being asked. Operations are right without it; it makes copies whole again, brings
//! a replica back that was away, and lets replicas agree at rest.

use super::log::LogState;
use super::message::Message;
use super::record::Record;
use super::replica::{Alarm, Out, Replica};
use crate::clock::Now;
use crate::gryff::comparison;
use crate::gryff::message::{Compared, Keyed};
use crate::topology::Address;
use bytes::Bytes;

impl Replica {
    pub(super) fn schedule_compare(&mut self, now: Now, out: &mut Out) {
        self.alarms.set(now.monotonic + self.settings.sync, Alarm::Compare, out);
    }

    pub(super) fn on_compare_alarm(&mut self, now: Now, out: &mut Out) {
        self.schedule_compare(now, out);
        let peers = usize::from(self.regions()) - 1;
        let (peer, digests, turn) = self.comparison.show(&self.registers, peers);
        if let Some(peer) = self.others().nth(peer) {
            out.send(self.peer(peer), Message::Compare { digests, turn });
        }
    }

    pub(super) fn on_compare(&mut self, from: Address, digests: &[Option<u64>], turn: u32, out: &mut Out) {
        for bucket in self.comparison.differing(&self.registers, digests, turn) {
            let keys = self.registers.bucket(bucket);
            out.send(from, Message::Differ { bucket: bucket as u32, keys, ask: true });
        }
    }

    pub(super) fn on_differ(
        &mut self,
        from: Address,
        bucket: u32,
        keys: &[Compared],
        ask: bool,
        out: &mut Out,
    ) {
        if bucket as usize >= self.registers.digests().len() {
            return;
        }
        for key in comparison::newer(&self.registers, bucket as usize, keys) {
            self.send_key_state(from, &key, out);
        }
        if ask {
            let keys = self.registers.bucket(bucket as usize);
            out.send(from, Message::Differ { bucket, keys, ask: false });
        }
    }

    /// Sends all that executing has left of a key: what led to it is no longer kept.
    pub(super) fn send_key_state(&mut self, to: Address, key: &Bytes, out: &mut Out) {
        let keyed = Keyed { key: key.clone(), held: self.registers.get(key) };
        let log = Box::new(self.log(key).state());
        out.send(to, Message::KeyState { keyed, log });
    }

    /// Takes over what a peer's log of a key has left, as far as it is later.
    pub(super) fn on_key_state(&mut self, now: Now, keyed: Keyed, state: LogState, out: &mut Out) {
        let Keyed { key, held } = keyed;
        let log = self.log(&key);
        let Some((covered, later)) = log.adopt(state) else { return };
        let LogState { head, results } = log.state();
        let (forgotten, progress) = (log.take_forgotten(), log.progress());
        self.counters.catch_up += 1;
        self.open_instances -= covered.len() as u64;
        out.output(Record::Head(key.clone(), head));
        if later {
            out.output(Record::Value(key.clone(), held.clone()));
            self.registers.set(&key, held);
            for (client, lane) in forgotten {
                out.output(Record::Result(key.clone(), client, lane, None));
            }
            for result in results {
                out.output(Record::Result(key.clone(), result.client, result.lane, Some(result)));
            }
        }
        self.registers.set_executed(&key, progress);
        for id in &covered {
            out.output(Record::Instance(key.clone(), *id, None));
            self.recoveries.remove(&(key.clone(), *id));
            self.waiting.remove(&(key.clone(), *id));
        }
        for id in covered {
            // What took effect is remembered with its lane; a read is made again.
            self.propose_again(now, &key, id, out);
        }
        self.execute(now, &key, out);
    }
}
