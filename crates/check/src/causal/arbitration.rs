//! The last step of both families: is there one order of all updates that keeps what was found?
//!
//! A read that returned one update of a key and knew of another puts the other before the one. If the engine
//! stated its order, by versions, then it is this very order that must keep all.

use crate::Judgement;
use crate::graph::{Adjacency, Graph, Why};
use crate::operations::{Op, Operations};
use meridian_protocol::history::Version;

/// A read returned the update `after` although it knew of `before`, or of all that leads to that node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Conflict {
    pub(crate) after: u32,
    pub(crate) before: u32,
    pub(crate) reader: u32,
}

/// Looks for the order. `graph` holds what it must keep apart from the conflicts.
pub(crate) fn judge(
    operations: &Operations<'_>,
    mut graph: Graph,
    conflicts: &[Conflict],
    versions: Option<&[Option<Version>]>,
) -> Judgement {
    for conflict in conflicts {
        graph.edge(conflict.before as usize, conflict.after as usize, Why::Passed);
    }
    let orders = versions.map_or(Vec::new(), |versions| in_order(operations, versions));
    let adjacency = graph.adjacency();
    let Some(nodes) = adjacency.topological() else { return refused(operations, &graph, conflicts) };
    let inverted = orders.iter().find_map(|order| inversion(&adjacency, &nodes, order));
    if let Some((lower, higher)) = inverted {
        graph.edge(lower, higher, Why::Version);
        return refused(operations, &graph, conflicts);
    }
    if orders.len() > 1 {
        // Each order alone can be kept; whether all can is another question.
        for (before, after) in orders.iter().flat_map(|order| order.iter().zip(order.iter().skip(1))) {
            graph.edge(*before, *after, Why::Version);
        }
        if graph.adjacency().topological().is_none() {
            return refused(operations, &graph, conflicts);
        }
    }
    Judgement::holds(format!("one order of all updates explains {} operations", operations.all.len()))
}

fn refused(operations: &Operations<'_>, graph: &Graph, conflicts: &[Conflict]) -> Judgement {
    let cycle = graph.cycle(|op| operations.all[op].invoke).expect("what has no order has a cycle");
    Judgement::cyclic(operations, &in_full(operations, &cycle, conflicts))
}

/// The updates of each service in the order of their versions.
fn in_order(operations: &Operations<'_>, versions: &[Option<Version>]) -> Vec<Vec<Op>> {
    let mut orders: Vec<Vec<(Version, Op)>> = vec![Vec::new(); operations.services];
    for (op, version) in versions.iter().enumerate() {
        orders[operations.all[op].service].extend(version.map(|version| (version, op)));
    }
    let sorted = |mut order: Vec<(Version, Op)>| {
        order.sort_unstable();
        order.into_iter().map(|(_, op)| op).collect()
    };
    orders.into_iter().map(sorted).collect()
}

/// A pair of updates of which the former stands before the latter in `order`, and after it in the graph.
fn inversion(adjacency: &Adjacency, nodes: &[usize], order: &[Op]) -> Option<(Op, Op)> {
    let mut ranks = vec![0_u32; nodes.len()];
    for (index, op) in order.iter().enumerate() {
        ranks[*op] = index as u32 + 1;
    }
    let mut highest_before = vec![0_u32; nodes.len()];
    for node in nodes.iter().copied() {
        let (rank, highest) = (ranks[node], highest_before[node]);
        if rank > 0 && rank < highest {
            return Some((node, order[highest as usize - 1]));
        }
        for next in adjacency.after(node) {
            highest_before[next] = rank.max(highest).max(highest_before[next]);
        }
    }
    None
}

/// The cycle with the reads that made updates come one after the other, without steps from an operation to
/// itself, and with one step where versions follow each other.
fn in_full(operations: &Operations<'_>, cycle: &[(Op, Why)], conflicts: &[Conflict]) -> Vec<(Op, Why)> {
    let mut full: Vec<(Op, Why)> = Vec::new();
    for (index, (op, why)) in cycle.iter().copied().enumerate() {
        let next = cycle[(index + 1) % cycle.len()].0;
        let same_order = full.last().is_some_and(|(_, last)| *last == Why::Version) && why == Why::Version;
        if (op == next && cycle.len() > 1) || same_order {
            continue;
        }
        let reader =
            Some(why).filter(|why| *why == Why::Passed).and_then(|_| reader(operations, conflicts, op, next));
        match reader {
            Some(reader) => full.extend([(op, Why::Known), (reader, Why::Preferred)]),
            None => full.push((op, why)),
        }
    }
    full
}

/// A read that returned `after` although it knew of `before`.
fn reader(operations: &Operations<'_>, conflicts: &[Conflict], before: Op, after: Op) -> Option<Op> {
    let of_after = || conflicts.iter().filter(|conflict| conflict.after as usize == after);
    let direct = of_after().find(|conflict| conflict.before as usize == before);
    // Where many updates meet in a node, they are those of the reader's own session.
    let met = || {
        of_after().filter(|conflict| conflict.before as usize >= operations.all.len()).find(|conflict| {
            let (reader, before) = (&operations.all[conflict.reader as usize], &operations.all[before]);
            reader.session == before.session && before.returned_before(reader)
        })
    };
    direct.or_else(met).map(|conflict| conflict.reader as usize)
}
