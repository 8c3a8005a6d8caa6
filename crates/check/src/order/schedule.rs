//! Looks for a legal order: a depth-first search that builds it from its beginning.
//!
//! Three things keep it short. Reads go first wherever they fit, as nothing is lost by it. An update does not
//! overwrite a version that someone must still read. And points of the search (operations done, values of the keys)
//! from which no way led on are remembered, by hashes of 128 bits.

use super::problem::Problem;
use crate::graph::Adjacency;
use crate::operations::{ABSENT, NEVER, Op, Value};
use crate::sources::Source;
use std::collections::{BTreeSet, HashMap, HashSet};

/// How the search ended.
pub(crate) enum Found {
    /// A legal order.
    Order(Vec<Op>),
    /// All orders have been tried.
    None,
    /// The budget was spent.
    GaveUp,
}

/// The most choices of an update before the search is given up, for each operation and in all.
const BUDGET: (usize, usize) = (100, 1_000_000);

/// Searches for a legal order of `problem`'s operations that follows the edges of `adjacency`.
pub(crate) fn schedule(problem: &Problem<'_>, adjacency: &Adjacency) -> Found {
    let mut search = Search::new(problem, adjacency);
    let budget = BUDGET.1.max(BUDGET.0 * problem.members.len());
    let mut choices: Vec<Choice> = Vec::new();
    for _ in 0..budget {
        search.take_reads();
        if search.left == 0 {
            return Found::Order(search.done.into_iter().map(|step| step.op).collect());
        }
        let point = search.hash;
        if !search.dead_ends.contains(&point) {
            choices.push(Choice { point, length: search.done.len(), untried: search.candidates() });
        }
        // Back to the last choice that has something left to try.
        loop {
            let Some(choice) = choices.last_mut() else { return Found::None };
            search.undo_to(choice.length);
            if let Some(update) = choice.untried.pop() {
                search.execute(update);
                break;
            }
            search.dead_ends.insert(choice.point);
            choices.pop();
        }
    }
    Found::GaveUp
}

struct Choice {
    /// Where the search stood.
    point: u128,
    /// How many operations had been done.
    length: usize,
    /// Updates to go on with, the best last.
    untried: Vec<Op>,
}

/// An operation that has been done, and the versions that it replaced.
struct Step {
    op: Op,
    replaced: Vec<(usize, Version)>,
}

/// What stands at a key.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Version {
    value: Value,
    writer: Option<Op>,
}

struct Search<'a> {
    problem: &'a Problem<'a>,
    adjacency: &'a Adjacency,
    /// For each node how many of those before it are not done.
    incoming: Vec<u32>,
    ready_reads: BTreeSet<Op>,
    /// Updates in the order of their returns, then of their invocations.
    ready_updates: BTreeSet<(i64, i64, Op)>,
    state: Vec<Version>,
    /// How many must still read a version: of a key, by its writer.
    readers: HashMap<(usize, Option<Op>), u32>,
    /// How many operations must still be done.
    left: usize,
    done: Vec<Step>,
    hash: u128,
    dead_ends: HashSet<u128>,
}

impl<'a> Search<'a> {
    fn new(problem: &'a Problem<'a>, adjacency: &'a Adjacency) -> Self {
        let keys = problem.operations.keys.len();
        let mut search = Self {
            problem,
            adjacency,
            incoming: adjacency.incoming(),
            ready_reads: BTreeSet::new(),
            ready_updates: BTreeSet::new(),
            state: vec![Version { value: ABSENT, writer: None }; keys],
            readers: HashMap::new(),
            left: problem.members.iter().filter(|op| problem.operations.all[**op].is_ok()).count(),
            done: Vec::new(),
            hash: 0,
            dead_ends: HashSet::new(),
        };
        for read in problem.reads() {
            *search.readers.entry((read.key, read.writer)).or_default() += 1;
        }
        let free: Vec<usize> =
            (0..search.incoming.len()).filter(|node| search.incoming[*node] == 0).collect();
        for node in free {
            search.freed(node);
        }
        search
    }

    /// Nothing is left that must come before `node`.
    fn freed(&mut self, node: usize) {
        let mut waiting = vec![node];
        while let Some(node) = waiting.pop() {
            if let Some(operation) = self.problem.operations.all.get(node) {
                if !self.problem.takes_part[node] {
                    continue;
                }
                if operation.updates() {
                    self.ready_updates.insert((operation.returned, operation.invoke, node));
                } else {
                    self.ready_reads.insert(node);
                }
            } else {
                for to in self.adjacency.after(node) {
                    self.incoming[to] -= 1;
                    if self.incoming[to] == 0 {
                        waiting.push(to);
                    }
                }
            }
        }
    }

    /// Takes back what [`Self::freed`] did for all that comes after `node`.
    fn bind_after(&mut self, node: usize) {
        let mut waiting = vec![node];
        while let Some(node) = waiting.pop() {
            for to in self.adjacency.after(node) {
                if self.incoming[to] == 0 {
                    match self.problem.operations.all.get(to) {
                        Some(operation) => {
                            self.ready_reads.remove(&to);
                            self.ready_updates.remove(&(operation.returned, operation.invoke, to));
                        }
                        None => waiting.push(to),
                    }
                }
                self.incoming[to] += 1;
            }
        }
    }

    fn take_reads(&mut self) {
        loop {
            let fitting: Vec<Op> = self.ready_reads.iter().copied().filter(|op| self.fits(*op)).collect();
            if fitting.is_empty() {
                return;
            }
            for op in fitting {
                self.execute(op);
            }
        }
    }

    /// Updates that may come next, the best last: those that someone waits for, then those that returned first.
    fn candidates(&self) -> Vec<Op> {
        let mut wanted: HashSet<(usize, Value)> = HashSet::new();
        let updates = self.ready_updates.iter().map(|(.., op)| *op);
        for op in self.ready_reads.iter().copied().chain(updates.clone()) {
            for touch in &self.problem.operations.all[op].touches {
                let missing = touch.read.filter(|value| *value != self.state[touch.key].value);
                wanted.extend(missing.map(|value| (touch.key, value)));
            }
        }
        let is_wanted = |op: Op| {
            let touches = &self.problem.operations.all[op].touches;
            touches.iter().any(|t| t.write.is_some_and(|value| wanted.contains(&(t.key, value))))
        };
        let mut candidates: Vec<(bool, Op)> =
            updates.filter(|op| self.fits(*op)).map(|op| (!is_wanted(op), op)).collect();
        // Operations of unknown outcome that nobody waits for, and failing that the latest, come last.
        candidates.sort_by_key(|(unwanted, op)| {
            let operation = &self.problem.operations.all[*op];
            (*unwanted, operation.returned == NEVER, operation.returned, operation.invoke)
        });
        candidates.into_iter().rev().map(|(_, op)| op).collect()
    }

    /// Whether `op` sees what it saw, and overwrites nothing that another must still read.
    fn fits(&self, op: Op) -> bool {
        self.problem.operations.all[op].touches.iter().all(|touch| {
            let version = self.state[touch.key];
            if touch.read.is_some_and(|value| value != version.value) {
                return false;
            }
            if touch.write.is_none() {
                return true;
            }
            let readers = self.readers.get(&(touch.key, version.writer)).copied().unwrap_or(0);
            readers <= u32::from(self.reads_version(op, touch.key, version.writer))
        })
    }

    /// Whether `op` is one of those counted as readers of a version.
    fn reads_version(&self, op: Op, key: usize, writer: Option<Op>) -> bool {
        self.problem.certain[op]
            && self.problem.operations.all[op].touches.iter().any(|touch| {
                touch.key == key
                    && match touch.read.map(|value| self.problem.source(op, key, value)) {
                        Some(Source::Initial) => writer.is_none(),
                        Some(Source::Update(update)) => writer == Some(update),
                        _ => false,
                    }
            })
    }

    fn execute(&mut self, op: Op) {
        let operation = &self.problem.operations.all[op];
        self.ready_reads.remove(&op);
        self.ready_updates.remove(&(operation.returned, operation.invoke, op));
        self.left -= usize::from(operation.is_ok());
        self.hash ^= mixed(op as u64, 0);
        let mut replaced = Vec::new();
        for touch in &operation.touches {
            self.count_reader(op, touch.key, touch.read, u32::wrapping_sub);
            if let Some(value) = touch.write {
                replaced.push((touch.key, self.state[touch.key]));
                self.put(touch.key, Version { value, writer: Some(op) });
            }
        }
        self.done.push(Step { op, replaced });
        for to in self.adjacency.after(op) {
            self.incoming[to] -= 1;
            if self.incoming[to] == 0 {
                self.freed(to);
            }
        }
    }

    fn undo_to(&mut self, length: usize) {
        while self.done.len() > length {
            let Some(step) = self.done.pop() else { return };
            self.bind_after(step.op);
            for (key, version) in step.replaced.into_iter().rev() {
                self.put(key, version);
            }
            let operation = &self.problem.operations.all[step.op];
            for touch in &operation.touches {
                self.count_reader(step.op, touch.key, touch.read, u32::wrapping_add);
            }
            self.hash ^= mixed(step.op as u64, 0);
            self.left += usize::from(operation.is_ok());
            self.freed(step.op);
        }
    }

    fn count_reader(&mut self, op: Op, key: usize, read: Option<Value>, count: impl Fn(u32, u32) -> u32) {
        if !self.problem.certain[op] {
            return;
        }
        let writer = match read.map(|value| self.problem.source(op, key, value)) {
            Some(Source::Initial) => None,
            Some(Source::Update(update)) => Some(update),
            _ => return,
        };
        if let Some(readers) = self.readers.get_mut(&(key, writer)) {
            *readers = count(*readers, 1);
        }
    }

    fn put(&mut self, key: usize, version: Version) {
        self.hash ^= mixed(key as u64, 1 + u64::from(self.state[key].value));
        self.state[key] = version;
        self.hash ^= mixed(key as u64, 1 + u64::from(version.value));
    }
}

/// 128 bits in which every bit of both numbers counts (the finalizer of `SplitMix64`, twice).
fn mixed(a: u64, b: u64) -> u128 {
    let scramble = |mut x: u64| {
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    };
    let high = scramble(scramble(a.wrapping_add(0x9e37_79b9_7f4a_7c15)).wrapping_add(b));
    let low =
        scramble(scramble(b.wrapping_add(0x3c6e_f372_fe94_f82a)) ^ a.wrapping_mul(0xd6e8_feb8_6659_fd93));
    u128::from(high) << 64 | u128::from(low)
}
