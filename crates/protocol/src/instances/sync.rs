//! Keeping replicas alike without being asked: what one missed (a lost message, a time away) reaches it from a peer.
//! Operations are right without it; it makes copies whole again, and lets replicas agree at rest.

use super::record::Record;
use super::replica::{Alarm, Out, Replica};
use super::{Adopted, Head as _, LogState, Protocol};
use crate::clock::Now;
use crate::registers::carstamp::Keyed;
use crate::registers::comparison::{self, Comparing};
use crate::topology::Region;
use bytes::Bytes;

impl<P: Protocol> Replica<P> {
    pub(super) fn schedule_compare(&mut self, now: Now, out: &mut Out<P>) {
        let at = now.monotonic + self.settings().sync;
        self.alarms.set(at, Alarm::Compare, out);
    }

    pub(super) fn on_compare_alarm(&mut self, now: Now, out: &mut Out<P>) {
        self.schedule_compare(now, out);
        let peers = usize::from(self.regions()) - 1;
        let (peer, digests, turn) = self.comparison.show(&self.registers, peers);
        if let Some(peer) = self.others().nth(peer) {
            out.send(self.peer(peer), P::comparison(Comparing::Compare { digests, turn }));
        }
    }

    pub(crate) fn on_comparing(&mut self, from: Region, message: Comparing, out: &mut Out<P>) {
        let to = self.peer(from);
        let differ = |bucket: u32, keys, ask| P::comparison(Comparing::Differ { bucket, keys, ask });
        match message {
            Comparing::Compare { digests, turn } => {
                for bucket in self.comparison.differing(&self.registers, &digests, turn) {
                    out.send(to, differ(bucket as u32, self.registers.bucket(bucket), true));
                }
            }
            Comparing::Differ { bucket, .. } if bucket as usize >= self.registers.digests().len() => {}
            Comparing::Differ { bucket, keys, ask } => {
                for key in comparison::newer(&self.registers, bucket as usize, &keys) {
                    self.send_key_state(from, &key, out);
                }
                if ask {
                    out.send(to, differ(bucket, self.registers.bucket(bucket as usize), false));
                }
            }
        }
    }

    /// Sends all that is held of a key: what led to it is no longer kept.
    pub(crate) fn send_key_state(&self, to: Region, key: &Bytes, out: &mut Out<P>) {
        let keyed = Keyed { key: key.clone(), held: self.registers.get(key) };
        let state = self.logs.get(key).map(|log| Box::new(log.state()));
        out.send(self.peer(to), P::key_state(keyed, state));
    }

    /// Takes over what a peer holds of a key, as far as it is later.
    pub(crate) fn on_key_state(
        &mut self,
        now: Now,
        keyed: Keyed,
        state: Option<LogState<P::Head>>,
        out: &mut Out<P>,
    ) {
        let Keyed { key, held } = keyed;
        let Some(Adopted { covered, later }) = P::adopt(self, &key, held, state, out) else { return };
        let log = self.log(&key);
        let LogState { head, results } = log.state();
        let (forgotten, progress) = (log.take_forgotten(), log.head.progress());
        self.counters.catch_up += 1;
        self.open_instances -= covered.len() as u64;
        out.store(|| Record::Head(key.clone(), head));
        if later {
            for (client, lane) in forgotten {
                out.store(|| Record::Result(key.clone(), client, lane, None));
            }
            for result in results {
                out.store(|| Record::Result(key.clone(), result.client, result.lane, Some(result)));
            }
        }
        self.registers.set_executed(&key, progress);
        for id in &covered {
            out.store(|| Record::Instance(key.clone(), *id, None));
            self.log(&key).recoveries.remove(id);
        }
        for id in covered {
            // What took effect is remembered with its lane; a second instance finds that out.
            P::propose_again(self, now, &key, id, out);
        }
        P::execute(self, now, &key, out);
    }
}
