//! What is in a read's view: updates that only ever become more, and which of them still have to be compared
//! with what is read next.

use super::levels::Level;
use super::readings::Readings;
use crate::operations::{Op, Operations};
use crate::sources::Source;

/// What each update brings into a view with it, if views are closed: for monotonic writes all that its session
/// had written before, for writes that follow reads all that its session had been returned before. Both are
/// prefixes of what the session did, in the order of returns.
#[derive(Debug, Default)]
pub(crate) struct Predecessors {
    /// For each session its updates.
    writes: Vec<Vec<Op>>,
    /// For each session what it was returned.
    returned: Vec<Vec<Op>>,
    /// For each update how long the two prefixes are. Empty if views are not closed.
    lengths: Vec<(u32, u32)>,
}

impl Predecessors {
    /// Views that are not closed.
    pub(crate) fn none() -> Self {
        Self::default()
    }

    /// Views that are closed, updates being at the given levels.
    pub(crate) fn new(
        operations: &Operations<'_>,
        readings: &Readings,
        schedules: &[Vec<(i64, Moment)>],
        levels: &[Level],
    ) -> Self {
        let mut all = Self { lengths: vec![(0, 0); operations.all.len()], ..Self::default() };
        for schedule in schedules {
            let (mut writes, mut returned) = (Vec::new(), Vec::new());
            for (_, moment) in schedule {
                match *moment {
                    Moment::Start(op) => {
                        let level = levels[op];
                        let of = |asked: bool, prefix: &Vec<Op>| if asked { prefix.len() as u32 } else { 0 };
                        all.lengths[op] = (of(level.mw, &writes), of(level.wfr, &returned));
                    }
                    Moment::End(op) => {
                        returned.extend(sources(readings, op));
                        writes.extend(Some(op).filter(|op| operations.all[*op].updates()));
                    }
                }
            }
            all.writes.push(writes);
            all.returned.push(returned);
        }
        all
    }
}

/// The updates that `op` was returned.
pub(crate) fn sources(readings: &Readings, op: Op) -> impl Iterator<Item = Op> + '_ {
    readings.of(op).iter().filter_map(|reading| match reading.source {
        Source::Update(update) => Some(update),
        _ => None,
    })
}

/// An invocation or a return, in a session's schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Moment {
    /// Before a return at the same time: only what returned *before* an invocation comes before it.
    Start(Op),
    /// Only operations that ended ok have one.
    End(Op),
}

/// A growing set of updates, with all that they bring.
#[derive(Debug)]
pub(crate) struct Closure {
    /// In which round each update was last added.
    round_of: Vec<u32>,
    round: u32,
    /// For each session how much of the two prefixes is in the set.
    done: Vec<(u32, u32)>,
    pending: Vec<Op>,
}

impl Closure {
    pub(crate) fn new(operations: &Operations<'_>) -> Self {
        let (round_of, done) = (vec![0; operations.all.len()], vec![(0, 0); operations.sessions]);
        Self { round_of, round: 0, done, pending: Vec::new() }
    }

    /// Begins again with the empty set.
    pub(crate) fn clear(&mut self) {
        self.round += 1;
        self.done.fill((0, 0));
    }

    pub(crate) fn contains(&self, update: Op) -> bool {
        self.round_of[update] == self.round
    }

    /// Adds an update and all that it brings; `added` hears of each that is new.
    pub(crate) fn insert(
        &mut self,
        operations: &Operations<'_>,
        predecessors: &Predecessors,
        update: Op,
        mut added: impl FnMut(Op),
    ) {
        self.pending.push(update);
        while let Some(update) = self.pending.pop() {
            if self.contains(update) {
                continue;
            }
            self.round_of[update] = self.round;
            added(update);
            let Some((writes, returned)) = predecessors.lengths.get(update).copied() else { continue };
            let session = operations.all[update].session;
            let done = &mut self.done[session];
            if done.0 < writes {
                self.pending
                    .extend_from_slice(&predecessors.writes[session][done.0 as usize..writes as usize]);
                done.0 = writes;
            }
            if done.1 < returned {
                self.pending
                    .extend_from_slice(&predecessors.returned[session][done.1 as usize..returned as usize]);
                done.1 = returned;
            }
        }
    }
}

/// What of a session's view still has to be compared with what is read next: for each key the updates that are
/// not known to come before another of them.
#[derive(Debug)]
pub(crate) struct Frontiers {
    /// For each key its updates, each with the number under which it came.
    of_key: Vec<Vec<(u32, Op)>>,
    /// Keys with updates.
    used: Vec<usize>,
    next: u32,
}

impl Frontiers {
    pub(crate) fn new(keys: usize) -> Self {
        Self { of_key: vec![Vec::new(); keys], used: Vec::new(), next: 0 }
    }

    /// Begins again with nothing.
    pub(crate) fn clear(&mut self) {
        for key in self.used.drain(..) {
            self.of_key[key].clear();
        }
        self.next = 0;
    }

    /// The number that the next update will come under.
    pub(crate) fn now(&self) -> u32 {
        self.next
    }

    /// Adds an update, under all keys that it writes.
    pub(crate) fn add(&mut self, operations: &Operations<'_>, update: Op) {
        for touch in operations.all[update].touches.iter().filter(|touch| touch.write.is_some()) {
            self.push(touch.key, update);
        }
        self.next += 1;
    }

    /// What stands there for `key`.
    pub(crate) fn of(&self, key: usize) -> impl Iterator<Item = Op> + '_ {
        self.of_key[key].iter().map(|(_, update)| *update)
    }

    /// All that came to `key` before `then` is now known to come before `update`.
    pub(crate) fn replace(&mut self, key: usize, then: u32, update: Op) {
        if self.of_key[key].is_empty() {
            self.used.push(key);
        }
        self.of_key[key].retain(|(number, other)| *number >= then && *other != update);
        self.of_key[key].push((self.next, update));
        self.next += 1;
    }

    fn push(&mut self, key: usize, update: Op) {
        if self.of_key[key].is_empty() {
            self.used.push(key);
        }
        self.of_key[key].push((self.next, update));
    }
}
