//! Keeping replicas alike without being asked: what one missed (a lost message, a time away) reaches it from a
//! peer. Reads and rmws are right without it; it makes copies whole again and lets replicas agree at rest.

use super::chain::ChainState;
use super::comparison;
use super::message::{Compared, Keyed, Message};
use super::record::Record;
use super::replica::{Alarm, Out, Replica};
use crate::clock::Now;
use crate::topology::Address;
use bytes::Bytes;

impl Replica {
    pub(super) fn schedule_compare(&mut self, now: Now, out: &mut Out) {
        self.alarms.set(now.monotonic + self.engine.settings.sync, Alarm::Compare, out);
    }

    pub(super) fn on_compare_alarm(&mut self, now: Now, out: &mut Out) {
        self.schedule_compare(now, out);
        let peers = usize::from(self.place.group.regions) - 1;
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

    /// Sends all that is held of a key: what led to it is no longer kept.
    pub(super) fn send_key_state(&self, to: Address, key: &Bytes, out: &mut Out) {
        let keyed = Keyed { key: key.clone(), held: self.registers.get(key) };
        let chain = self.chains.get(key).map(|chain| Box::new(chain.state()));
        out.send(to, Message::KeyState { keyed, chain });
    }

    /// Takes over what a peer holds of a key, as far as it is newer.
    pub(super) fn on_key_state(&mut self, now: Now, keyed: Keyed, state: Option<ChainState>, out: &mut Out) {
        let Keyed { key, held } = keyed;
        self.apply(&key, &held, out);
        let Some(state) = state else { return };
        let chain = self.chain(&key);
        let Some(covered) = chain.adopt(state) else { return };
        let results = chain.state().results;
        let (head, forgotten, progress) = (chain.head(), chain.take_forgotten(), chain.progress());
        // The register is at least at the result of the last rmw executed.
        let previous = head.previous.clone();
        self.apply(&key, &previous, out);
        self.counters.catch_up += 1;
        self.open_instances -= covered.len() as u64;
        out.output(Record::Head(key.clone(), head));
        for (client, lane) in forgotten {
            out.output(Record::Result(key.clone(), client, lane, None));
        }
        for result in results {
            out.output(Record::Result(key.clone(), result.client, result.lane, Some(result)));
        }
        self.registers.set_executed(&key, progress);
        for id in covered {
            out.output(Record::Instance(key.clone(), id, None));
            self.recoveries.remove(&(key.clone(), id));
            // Whether it took effect is remembered with its lane; a second instance finds out, and answers
            // only when a quorum has executed it.
            self.propose_again(now, &key, id, out);
        }
        self.execute(now, &key, out);
    }
}
