//! The queue of what is to happen, in the order of time; what is due at one time happens in the order in which
//! it was put in.

use meridian_protocol::clock::Micros;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A queue of events. The heap holds small entries only; events stay where they are until taken.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    heap: BinaryHeap<Reverse<(Micros, u64, u32)>>,
    events: Vec<Option<T>>,
    free: Vec<u32>,
    sequence: u64,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), events: Vec::new(), free: Vec::new(), sequence: 0 }
    }
}

impl<T> Queue<T> {
    /// Puts in an event that is due at `at`.
    pub(crate) fn push(&mut self, at: Micros, event: T) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.events.push(None);
            (self.events.len() - 1) as u32
        });
        self.events[slot as usize] = Some(event);
        self.heap.push(Reverse((at, self.sequence, slot)));
        self.sequence += 1;
    }

    /// Takes the first event if it is due at `until` or before.
    pub(crate) fn pop(&mut self, until: Micros) -> Option<(Micros, T)> {
        let Reverse((at, ..)) = *self.heap.peek()?;
        if at > until {
            return None;
        }
        let Reverse((at, _, slot)) = self.heap.pop()?;
        self.free.push(slot);
        let event = self.events[slot as usize].take().expect("every entry of the heap has its event");
        Some((at, event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_in_the_order_of_time_and_then_of_arrival() {
        let mut queue = Queue::default();
        for (at, name) in [(5, "c"), (1, "a"), (5, "d"), (3, "b")] {
            queue.push(at, name);
        }
        let first: Vec<_> = std::iter::from_fn(|| queue.pop(4)).collect();
        assert_eq!(first, [(1, "a"), (3, "b")]);
        queue.push(5, "e");
        let rest: Vec<_> = std::iter::from_fn(|| queue.pop(Micros::MAX)).map(|(_, name)| name).collect();
        assert_eq!(rest, ["c", "d", "e"]);
    }
}
