//! Many deadlines on the one alarm that a machine has.

use crate::clock::Micros;
use crate::machine::Effects;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fmt;

/// Deadlines with what they are for. Nothing is cancelled, which would cost more than most operations' deadlines
/// are worth: what is over is dropped when it comes to the front.
///
/// Most waits of one kind are equally long, so that their deadlines rise as they are set: a few queues take them all, and
/// what a deadline costs does not grow with how many are over and not dropped yet.
#[derive(Clone)]
pub(crate) struct Alarms<T> {
    /// Each in rising order.
    queues: [VecDeque<(Micros, T)>; QUEUES],
    /// What fits into none of them.
    heap: BinaryHeap<Reverse<(Micros, T)>>,
    asked: Option<Micros>,
}

/// How many kinds of waits are told apart.
const QUEUES: usize = 4;

/// Deadlines say nothing of where a machine stands, only when it goes on.
impl<T> fmt::Debug for Alarms<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Alarms")
    }
}

impl<T: Ord> Alarms<T> {
    pub(crate) fn new() -> Self {
        Self { queues: std::array::from_fn(|_| VecDeque::new()), heap: BinaryHeap::new(), asked: None }
    }

    /// Remembers `what` for the time `at`, and asks the host to wake the machine if that comes first.
    pub(crate) fn set<M, O>(&mut self, at: Micros, what: T, effects: &mut Effects<M, O>) {
        // The queue that ends last before it, so that each kind of wait keeps to its own.
        let end = |queue: &VecDeque<(Micros, T)>| queue.back().map(|(at, _)| *at);
        let fitting = self.queues.iter_mut().filter(|queue| end(queue).is_none_or(|end| end <= at));
        match fitting.max_by_key(|queue| end(queue)) {
            Some(queue) => queue.push_back((at, what)),
            None => self.heap.push(Reverse((at, what))),
        }
        self.ask(at, effects);
    }

    /// Takes the next thing whose time has come.
    pub(crate) fn take_due(&mut self, now: Micros) -> Option<T> {
        let (at, place) = self.first()?;
        (at <= now).then(|| self.take(place)).flatten()
    }

    /// Ends the handling of a wake: asks for the next one that is still `open`.
    pub(crate) fn rearm<M, O>(&mut self, open: impl Fn(&T) -> bool, effects: &mut Effects<M, O>) {
        self.asked = None;
        while let Some((at, place)) = self.first() {
            if self.peek(place).is_some_and(|(_, what)| open(what)) {
                return self.ask(at, effects);
            }
            self.take(place);
        }
    }

    /// The first deadline, and in which queue it is; in the heap if that is `QUEUES`.
    fn first(&self) -> Option<(Micros, usize)> {
        let places = (0..=QUEUES).filter_map(|place| Some((self.peek(place)?, place)));
        places.min().map(|((at, _), place)| (*at, place))
    }

    fn peek(&self, place: usize) -> Option<(&Micros, &T)> {
        match self.queues.get(place) {
            Some(queue) => queue.front().map(|(at, what)| (at, what)),
            None => self.heap.peek().map(|Reverse((at, what))| (at, what)),
        }
    }

    fn take(&mut self, place: usize) -> Option<T> {
        match self.queues.get_mut(place) {
            Some(queue) => queue.pop_front().map(|(_, what)| what),
            None => self.heap.pop().map(|Reverse((_, what))| what),
        }
    }

    fn ask<M, O>(&mut self, at: Micros, effects: &mut Effects<M, O>) {
        if self.asked.is_none_or(|asked| at < asked) {
            self.asked = Some(at);
            effects.wake_at(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever the order in which they are set, deadlines come in the order of their times and none too early, and the
        /// host is always asked for the first of them.
        #[test]
        fn deadlines_come_in_order(waits in prop::collection::vec((0..3_u64, 1..50_u64), 1..60)) {
            let (mut alarms, mut effects) = (Alarms::new(), Effects::<(), ()>::default());
            let (mut now, mut times) = (0, Vec::new());
            for (number, (passed, wait)) in waits.into_iter().enumerate() {
                now += passed;
                alarms.set(now + wait, number, &mut effects);
                times.push(now + wait);
                prop_assert_eq!(effects.wake, times.iter().min().copied());
            }
            let mut rising = times.clone();
            rising.sort_unstable();
            for at in rising {
                prop_assert_eq!(alarms.take_due(at - 1), None);
                let number = alarms.take_due(at);
                prop_assert_eq!(number.map(|number| times[number]), Some(at));
                alarms.rearm(|_| true, &mut effects);
            }
            prop_assert_eq!(alarms.take_due(Micros::MAX), None);
        }
    }
}
