//! Many deadlines on the one alarm that a machine has.

use crate::clock::Micros;
use crate::machine::Effects;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;

/// Deadlines with what they are for. Nothing is cancelled, which would cost more than most operations' deadlines
/// are worth: what is over is dropped when it comes to the front.
#[derive(Clone)]
pub(crate) struct Alarms<T> {
    heap: BinaryHeap<Reverse<(Micros, T)>>,
    asked: Option<Micros>,
}

/// Deadlines say nothing of where a machine stands, only when it goes on.
impl<T> fmt::Debug for Alarms<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Alarms")
    }
}

impl<T: Ord> Alarms<T> {
    pub(crate) fn new() -> Self {
        Self { heap: BinaryHeap::new(), asked: None }
    }

    /// Remembers `what` for the time `at`, and asks the host to wake the machine if that comes first.
    pub(crate) fn set<M, O>(&mut self, at: Micros, what: T, effects: &mut Effects<M, O>) {
        self.heap.push(Reverse((at, what)));
        self.ask(effects);
    }

    /// Takes the next thing whose time has come.
    pub(crate) fn take_due(&mut self, now: Micros) -> Option<T> {
        let due = self.heap.peek().is_some_and(|Reverse((at, _))| *at <= now);
        due.then(|| self.heap.pop()).flatten().map(|Reverse((_, what))| what)
    }

    /// Ends the handling of a wake: asks for the next one that is still `open`.
    pub(crate) fn rearm<M, O>(&mut self, open: impl Fn(&T) -> bool, effects: &mut Effects<M, O>) {
        while self.heap.peek().is_some_and(|Reverse((_, what))| !open(what)) {
            self.heap.pop();
        }
        self.asked = None;
        self.ask(effects);
    }

    fn ask<M, O>(&mut self, effects: &mut Effects<M, O>) {
        if let Some(Reverse((at, _))) = self.heap.peek()
            && self.asked.is_none_or(|asked| *at < asked)
        {
            self.asked = Some(*at);
            effects.wake_at(*at);
        }
    }
}
