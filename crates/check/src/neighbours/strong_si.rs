//! Strong snapshot isolation (Daudjee and Salem; RSS paper, appendix A.1).
//!
//! Every transaction starts at a point of one line of time, and an update commits at a later one. A transaction
//! sees what had been committed when it started, and of two updates of one key the one commits before the other
//! starts. Strong: what is invoked after an update has returned starts after its commit. A transaction that only
//! reads leaves no trace: nothing has to come after it.
//!
//! The line is searched from its beginning, with memory of every (started, committed, state of the keys) from
//! which no way led on. Nothing is lost by starting what only reads as soon as it fits, nor by committing an
//! update at the point of its start if it reads no key but those that it writes: nobody else may commit to them
//! in between.

use crate::Judgement;
use crate::operations::{ABSENT, Op, Operation, Operations, Value};
use meridian_protocol::history::Ended;
use std::collections::HashSet;

/// A set of members, one bit each.
type Set = u128;

/// The most operations that are searched.
const LONGEST: usize = Set::BITS as usize;

/// The most points of the search before it is given up.
const BUDGET: usize = 300_000;

pub(crate) fn judge(operations: &Operations<'_>) -> Judgement {
    let members = relevant(operations);
    if members.len() > LONGEST {
        return Judgement::undecided(format!(
            "{} operations are too many to search: at most {LONGEST}",
            members.len()
        ));
    }
    match attempt(operations, &members) {
        Some(true) => Judgement::holds(format!("{} operations have snapshots", members.len())),
        Some(false) => {
            let core: Vec<String> =
                core(operations, members).into_iter().map(|op| operations.name(op)).collect();
            Judgement::violated(format!("no snapshots explain these together: {}", core.join(", ")))
        }
        None => Judgement::undecided(format!("not all has been tried after {BUDGET} steps of search")),
    }
}

/// What ended ok, and of what may have happened that of which something was seen. Unseen updates can be left out.
fn relevant(operations: &Operations<'_>) -> Vec<Op> {
    let happened = |operation: &&Operation| operation.outcome != Ended::Failed;
    let touches = operations.all.iter().filter(happened).flat_map(|operation| &operation.touches);
    let seen: HashSet<(usize, Value)> = touches.filter_map(|touch| Some((touch.key, touch.read?))).collect();
    let counts = |op: &Op| {
        let operation = &operations.all[*op];
        let was_seen = || {
            operation
                .touches
                .iter()
                .any(|touch| touch.write.is_some_and(|value| seen.contains(&(touch.key, value))))
        };
        !operation.touches.is_empty()
            && match operation.outcome {
                Ended::Ok => true,
                Ended::Failed => false,
                Ended::Unknown => was_seen(),
            }
    };
    (0..operations.all.len()).filter(counts).collect()
}

/// A smallest set that still has no snapshots: with any one less, and what only that one explains, it has.
fn core(operations: &Operations<'_>, mut members: Vec<Op>) -> Vec<Op> {
    let mut index = members.len();
    while index > 0 {
        index -= 1;
        let Some(&gone) = members.get(index) else { continue };
        let fewer = without(operations, &members, gone);
        if attempt(operations, &fewer) == Some(false) {
            members = fewer;
        }
    }
    members
}

/// All but `gone` and those whose reads nobody explains then.
fn without(operations: &Operations<'_>, members: &[Op], gone: Op) -> Vec<Op> {
    let mut left: Vec<Op> = members.iter().copied().filter(|op| *op != gone).collect();
    let touches = |op: &Op| &operations.all[*op].touches;
    let writes = |ops: &[Op]| -> HashSet<(usize, Value)> {
        ops.iter().flat_map(touches).filter_map(|touch| Some((touch.key, touch.write?))).collect()
    };
    let before = writes(members);
    loop {
        let (length, now) = (left.len(), writes(&left));
        // A value that nobody ever wrote is no reason to leave its reader out: it is the violation.
        left.retain(|op| {
            touches(op).iter().all(|touch| {
                touch.read.is_none_or(|value| {
                    value == ABSENT
                        || now.contains(&(touch.key, value))
                        || !before.contains(&(touch.key, value))
                })
            })
        });
        if left.len() == length {
            return left;
        }
    }
}

/// Whether the members have snapshots; `None` when the budget is spent.
fn attempt(operations: &Operations<'_>, members: &[Op]) -> Option<bool> {
    let get = |member: usize| &operations.all[members[member]];
    let matching = |wanted: &dyn Fn(&Operation) -> bool| {
        (0..members.len()).filter(|m| wanted(get(*m))).fold(0, |set: Set, member| set | 1 << member)
    };
    let mut search = Search {
        members: members.iter().map(|op| &operations.all[*op]).collect(),
        required: matching(&Operation::is_ok),
        after: Vec::new(),
        dead_ends: HashSet::new(),
        steps: 0,
    };
    for member in 0..members.len() {
        search.after.push(matching(&|earlier| earlier.updates() && earlier.returned_before(get(member))));
    }
    search.extend(0, 0, vec![ABSENT; operations.keys.len()])
}

struct Search<'a> {
    members: Vec<&'a Operation>,
    /// Members that every line of time must hold.
    required: Set,
    /// For each member the updates that must have been committed before it starts.
    after: Vec<Set>,
    dead_ends: HashSet<(Set, Set, Vec<Value>)>,
    steps: usize,
}

impl Search<'_> {
    /// Extends the line on which `started` have started and `committed` have committed.
    fn extend(&mut self, started: Set, committed: Set, state: Vec<Value>) -> Option<bool> {
        let (started, committed) = self.take_reads(started, committed, &state);
        if committed & self.required == self.required {
            return Some(true);
        }
        let point = (started, committed, state);
        if self.dead_ends.contains(&point) {
            return Some(false);
        }
        self.steps += 1;
        if self.steps > BUDGET {
            return None;
        }
        for member in (0..self.members.len()).filter(|member| committed >> member & 1 == 0) {
            let running = started >> member & 1 == 1;
            if !running && !self.may_start(member, started, committed, &point.2) {
                continue;
            }
            let commits = running || self.is_one_point(member);
            let mut state = point.2.clone();
            for touch in self.members[member].touches.iter().filter(|_| commits) {
                state[touch.key] = touch.write.unwrap_or(state[touch.key]);
            }
            let bit = 1 << member;
            if self.extend(started | bit, if commits { committed | bit } else { committed }, state)? {
                return Some(true);
            }
        }
        self.dead_ends.insert(point);
        Some(false)
    }

    fn take_reads(&self, mut started: Set, mut committed: Set, state: &[Value]) -> (Set, Set) {
        for member in (0..self.members.len()).filter(|member| !self.members[*member].updates()) {
            if started >> member & 1 == 0 && self.may_start(member, started, committed, state) {
                started |= 1 << member;
                committed |= 1 << member;
            }
        }
        (started, committed)
    }

    fn may_start(&self, member: usize, started: Set, committed: Set, state: &[Value]) -> bool {
        let writes = |member: usize, key: usize| {
            self.members[member].touches.iter().any(|touch| touch.key == key && touch.write.is_some())
        };
        let running = started & !committed;
        let held = |key: usize| (0..self.members.len()).any(|m| running >> m & 1 == 1 && writes(m, key));
        self.after[member] & !committed == 0
            && self.members[member].touches.iter().all(|touch| {
                touch.read.is_none_or(|value| state[touch.key] == value)
                    && (touch.write.is_none() || !held(touch.key))
            })
    }

    /// Whether start and commit can be one point.
    fn is_one_point(&self, member: usize) -> bool {
        self.members[member].touches.iter().all(|touch| touch.write.is_some())
    }
}
