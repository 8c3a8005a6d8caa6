//! Looks for a legal order by repair. It starts from an order that keeps the edges and would be good if nobody
//! overlapped; asks of each read whether it sees there what it saw; and where one does not, says what must change:
//! the update in between comes before the one that was seen, or after the reader. [`Clauses`] finds an order that
//! obeys all that was said so far, and so on until every read is right. What nobody stumbles over is never said.
//!
//! Each thing said holds in every legal order. So if they contradict each other there is none.

use super::clauses::{Clauses, Literal, Solved};
use super::places::Places;
use super::problem::Problem;
use super::saturate::Open;
use crate::graph::Graph;
use crate::operations::{ABSENT, NEVER, Op, Value};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// How the search ended.
pub(crate) enum Found {
    /// A legal order.
    Order(Vec<Op>),
    /// There is none.
    None,
    /// The budget was spent.
    GaveUp,
}

/// The most work before a search is given up, if nobody wants less: half a minute or so.
pub(crate) const BUDGET: u64 = 100_000_000;

/// How many of the updates that stand between a read and its source are talked about at once, from either end.
const NEAREST: usize = 8;

/// Searches for a legal order of `problem`'s operations that follows the edges of `graph`, which has no cycle.
/// Of the reads whose source is not known, `open` says what the sources may be.
pub(crate) fn schedule(problem: &Problem<'_>, graph: &Graph, open: &[Open], budget: u64) -> Found {
    let (forwards, backwards) = (graph.adjacency(), graph.backwards());
    let Some(start) = start(problem, &forwards, &backwards) else { return Found::None };
    let mut search = Search {
        problem,
        clauses: Clauses::new(Places::new((&forwards, &backwards), &start)),
        open: open.iter().map(|open| ((open.reader, open.key), &open.candidates[..])).collect(),
        sources: BTreeMap::new(),
        optional: BTreeMap::new(),
    };
    loop {
        let wrong = search.wrong();
        if wrong.is_empty() {
            let order = search.clauses.places.order();
            return Found::Order(order.filter(|node| search.takes_part(*node)).collect());
        }
        let said = search.clauses.given;
        for wrong in wrong {
            search.object(&wrong);
        }
        search.clauses.places.work += start.len() as u64;
        assert!(search.clauses.given > said, "of a read that is wrong something can be said");
        match search.clauses.solve(budget) {
            Solved::Yes => {}
            Solved::Never => return Found::None,
            Solved::GaveUp => return Found::GaveUp,
        }
    }
}

/// An order to start from: of what may come next, what must be over first.
fn start(
    problem: &Problem<'_>,
    forwards: &crate::graph::Adjacency,
    backwards: &crate::graph::Adjacency,
) -> Option<Vec<usize>> {
    let all = &problem.operations.all;
    let mut due: Vec<i64> = (0..backwards.incoming().len())
        .map(|node| all.get(node).map_or(NEVER, |operation| operation.returned))
        .collect();
    for node in backwards.topological()? {
        for before in backwards.after(node) {
            due[before] = due[before].min(due[node]);
        }
    }
    let mut incoming = forwards.incoming();
    let urgency = |node: usize| {
        let invoke = all.get(node).map_or(0, |operation| operation.invoke);
        Reverse((due[node], invoke, node))
    };
    let mut ready: BinaryHeap<_> =
        (0..incoming.len()).filter(|node| incoming[*node] == 0).map(urgency).collect();
    let mut order = Vec::with_capacity(incoming.len());
    while let Some(Reverse((.., node))) = ready.pop() {
        order.push(node);
        for next in forwards.after(node) {
            incoming[next] -= 1;
            if incoming[next] == 0 {
                ready.push(urgency(next));
            }
        }
    }
    Some(order)
}

/// A read: who, of which key, and what was seen.
type Read = (Op, usize, Value);

/// The sources that are considered for a read: who, and that it is that one. `None` is the key as it began.
type Considered = Vec<(Option<Op>, Literal)>;

/// The source that a read has as things stand, and the supposition that it is so, if it is one.
type Supposed = (Option<Op>, Option<Literal>);

/// A read that does not see what it saw.
struct Wrong {
    read: Read,
    /// `None` until sources have been considered.
    source: Option<Supposed>,
    /// Updates that stand between the source and the reader and leave something else.
    between: Vec<Op>,
}

struct Search<'a> {
    problem: &'a Problem<'a>,
    clauses: Clauses<'a>,
    open: BTreeMap<(Op, usize), &'a [Option<Op>]>,
    /// Reads that turned out wrong and have several sources, or may not have happened.
    sources: BTreeMap<(Op, usize), Considered>,
    /// Operations that may have happened and that somebody may have seen, each with that it did.
    optional: BTreeMap<Op, Literal>,
}

impl Search<'_> {
    fn takes_part(&self, node: usize) -> bool {
        let happened = |literal: &Literal| self.clauses.value(*literal) == Some(true);
        self.problem.certain.get(node) == Some(&true) || self.optional.get(&node).is_some_and(happened)
    }

    /// Reads that do not see in the present order what they saw.
    fn wrong(&self) -> Vec<Wrong> {
        let operations = self.problem.operations;
        let mut updates: Vec<Vec<(Op, Value)>> = vec![Vec::new(); operations.keys.len()];
        let mut wrong = Vec::new();
        for op in self.clauses.places.order().filter(|node| self.takes_part(*node)) {
            for touch in &operations.all[op].touches {
                let before = &updates[touch.key];
                let stands = before.last().map_or(ABSENT, |(_, value)| *value);
                if let Some(value) = touch.read.filter(|value| *value != stands) {
                    wrong.push(self.why_wrong((op, touch.key, value), before));
                }
            }
            for touch in &operations.all[op].touches {
                updates[touch.key].extend(self.problem.change(touch).map(|value| (op, value)));
            }
        }
        wrong
    }

    /// What stands between a read and its source, of the `updates` that stand before it.
    fn why_wrong(&self, read: Read, updates: &[(Op, Value)]) -> Wrong {
        let (reader, key, value) = read;
        let Some((source, it_is)) = self.supposed(reader, key, value) else {
            return Wrong { read, source: None, between: Vec::new() };
        };
        let places = &self.clauses.places;
        let after = source.map_or(0, |source| {
            updates.partition_point(|(update, _)| places.of(*update) <= places.of(source))
        });
        let others = updates[after..].iter().filter(|(_, left)| *left != value);
        let mut between: Vec<Op> = others.map(|(update, _)| *update).collect();
        // The nearest to either end say enough for now.
        if let Some(middle) = between.len().checked_sub(2 * NEAREST) {
            between.drain(NEAREST..NEAREST + middle);
        }
        Wrong { read, source: Some((source, it_is)), between }
    }

    /// The source that a read has as things stand, and the supposition that it is so, if it is one. `None` until
    /// sources have been considered.
    fn supposed(&self, reader: Op, key: usize, value: Value) -> Option<Supposed> {
        if let Some(considered) = self.sources.get(&(reader, key)) {
            let supposed = |(_, it_is): &&(Option<Op>, Literal)| self.clauses.value(*it_is) == Some(true);
            return considered.iter().find(supposed).map(|(source, it_is)| (*source, Some(*it_is)));
        }
        match self.candidates(reader, key, value)[..] {
            [only] if self.problem.certain[reader] => Some((only, None)),
            _ => None,
        }
    }

    fn candidates(&self, reader: Op, key: usize, value: Value) -> Vec<Option<Op>> {
        match self.open.get(&(reader, key)) {
            Some(candidates) => candidates.to_vec(),
            None => self.problem.candidates(reader, key, value),
        }
    }

    /// Says what must change for a read to be right.
    fn object(&mut self, wrong: &Wrong) {
        let Some((source, it_is)) = wrong.source else { return self.consider(wrong.read) };
        for update in &wrong.between {
            self.keep_out(wrong.read.0, source, *update, it_is);
        }
    }

    /// The read had one of its sources, if it happened.
    fn consider(&mut self, (reader, key, value): Read) {
        let mut considered = Considered::new();
        let mut candidates = self.candidates(reader, key, value);
        // First those nearest before the reader, and then nearest after it; rather one that is sure to have
        // happened. What is made last is decided first, to be false.
        let places = &self.clauses.places;
        candidates.sort_by_key(|source| {
            let Some(source) = *source else { return (false, false, u32::MAX) };
            let distance = places.of(source).abs_diff(places.of(reader));
            (places.before(reader, source), !self.problem.certain[source], distance)
        });
        for (rank, source) in candidates.into_iter().enumerate() {
            let it_is = self.clauses.fact(rank == 0);
            if let Some(source) = source {
                let before = self.clauses.before(source, reader);
                self.clauses.add(vec![!it_is, before]);
                if let Some(happened) = self.happened(source) {
                    self.clauses.add(vec![!it_is, happened]);
                }
            }
            considered.push((source, it_is));
        }
        let mut one_of_them: Vec<Literal> = considered.iter().map(|(_, it_is)| *it_is).collect();
        one_of_them.extend(self.happened(reader).map(|happened| !happened));
        self.clauses.add(one_of_them);
        self.sources.insert((reader, key), considered);
    }

    /// That an operation happened; `None` if that is certain.
    fn happened(&mut self, op: Op) -> Option<Literal> {
        if self.problem.certain[op] {
            return None;
        }
        Some(*self.optional.entry(op).or_insert_with(|| self.clauses.fact(false)))
    }

    /// If `reader` saw what `source` left, `update` does not stand between them.
    fn keep_out(&mut self, reader: Op, source: Option<Op>, update: Op, if_so: Option<Literal>) {
        let mut alternatives = Vec::with_capacity(4);
        alternatives.extend(if_so.map(|it_is| !it_is));
        alternatives.extend(self.happened(update).map(|happened| !happened));
        alternatives.extend(source.map(|source| self.clauses.before(update, source)));
        alternatives.push(self.clauses.before(reader, update));
        self.clauses.add(alternatives);
    }
}
