//! Messages that wait until a physical clock shows what they need. With other clocks there are none, and that is why
//! contrarian does not use physical ones (Contrarian §4.2).

use super::message::Message;
use super::replica::{Alarm, Out, Replica};
use crate::clock::Now;
use crate::topology::Address;

impl Replica {
    /// What the clock must show before a message can be taken.
    fn needs(&self, message: &Message) -> u64 {
        let own = self.region();
        match message {
            Message::Put { dependencies, floor, .. } => dependencies.highest().max(*floor).saturating_add(1),
            Message::Read { demand, .. }
            | Message::Snapshot { demand, .. }
            | Message::Rot { demand, .. }
            | Message::List { demand, .. } => demand.seen.get(own),
            Message::ReadAt { snapshot, .. } => snapshot.get(own),
            Message::Fence { vector, .. } => vector.get(own),
            _ => 0,
        }
    }

    /// Answers the message if it can be taken now; otherwise it waits for the clock.
    pub(super) fn in_time(
        &mut self,
        now: Now,
        from: Address,
        message: Message,
        out: &mut Out,
    ) -> Option<Message> {
        let wait = self.clock.wait(now, self.needs(&message));
        if wait == 0 {
            return Some(message);
        }
        let put = matches!(message, Message::Put { .. });
        self.counters.late_puts += u64::from(put);
        self.counters.late_reads += u64::from(!put);
        self.counters.late_us += wait;
        // Its client does not wait for longer.
        if wait <= self.engine.settings.operation_timeout {
            let due = now.monotonic + wait;
            self.late.entry(due).or_default().push((from, message));
            self.alarms.set(due, Alarm::Late, out);
        }
        None
    }

    /// The time has come for some of what waits; but the clock may have been set back meanwhile.
    pub(super) fn on_late_alarm(&mut self, now: Now, out: &mut Out) {
        while let Some(entry) = self.late.first_entry().filter(|entry| *entry.key() <= now.monotonic) {
            for (from, message) in entry.remove() {
                self.take(now, from, message, out);
            }
        }
    }
}
