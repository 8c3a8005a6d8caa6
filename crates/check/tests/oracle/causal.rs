//! Causal consistency with convergence: every way to say who wrote what was read, and every arbitration, is tried.

use super::ops::{History, Read, close, orders};
use meridian_check::Model;

pub(crate) fn holds(history: &History, model: Model) -> bool {
    history
        .worlds()
        .iter()
        .any(|world| history.explanations(world).iter().any(|reads| explained(history, model, world, reads)))
}

fn explained(history: &History, model: Model, world: &[usize], reads: &[Read]) -> bool {
    let before = past(history, model, reads);
    if (0..before.len()).any(|node| before[node][node]) {
        return false;
    }
    let updates: Vec<usize> = world.iter().copied().filter(|op| history.ops[*op].updates()).collect();
    let in_time = |a: usize, b: usize| model == Model::RealTimeCausal && history.real_time[a][b];
    let mut may_follow = |prefix: &[usize], next: usize| {
        !updates.iter().any(|other| {
            !prefix.contains(other) && *other != next && (before[*other][next] || in_time(*other, next))
        })
    };
    orders(&updates, &mut may_follow, &mut |arbitration| {
        reads.iter().enumerate().all(|(index, read)| {
            let node = node_of(history, model, reads, index);
            let sees = |update: &&usize| before[**update][node] && history.ops[**update].writes_to(&read.key);
            arbitration.iter().rev().find(sees).copied() == read.source
        })
    })
}

/// The node that stands for a read: its operation, or, where reads are judged one by one, one of its own.
fn node_of(history: &History, model: Model, reads: &[Read], index: usize) -> usize {
    let apart = model == Model::Causal && !history.ops[reads[index].op].updates();
    if apart { history.ops.len() + index } else { reads[index].op }
}

/// What comes causally before what. Nodes are operations, and for [`Model::Causal`] then the reads of those that only
/// read, each of which comes before what follows its operation, but not before its other reads.
fn past(history: &History, model: Model, reads: &[Read]) -> Vec<Vec<bool>> {
    let nodes = history.ops.len() + reads.len();
    let wide = |row: &Vec<bool>| [row.as_slice(), &vec![false; reads.len()]].concat();
    // An operation that did nothing has no place among those that did, but sessions go on past it.
    let mut before: Vec<Vec<bool>> = history.told.iter().map(wide).collect();
    before.resize(nodes, vec![false; nodes]);
    for (index, read) in reads.iter().enumerate() {
        let node = node_of(history, model, reads, index);
        if node != read.op {
            before[node][read.op] = true;
            for (row, told) in before.iter_mut().zip(&history.told) {
                row[node] = told[read.op];
            }
        }
        if let Some(source) = read.source {
            before[source][node] = true;
        }
    }
    close(&mut before);
    before
}
