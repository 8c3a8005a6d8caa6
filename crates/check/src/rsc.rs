//! Regular sequential consistency (RSS/RSC, §3.3): one order of all operations, legal for the object, that
//! extends each session's order and messages between sessions, and real time from an update to later updates
//! and to later reads of what it wrote. For transactions the same definition is RSS.
//!
//! It is not local: the order spans all keys, and all services where a history has several.

use crate::Judgement;
use crate::carstamp::Versions;
use crate::graph::{Graph, Why};
use crate::operations::{NEVER, Op, Operations};
use crate::search::{self, Problem};

/// Verifies that the order of versions that the witnesses state fits into one order with all the model demands.
pub(crate) fn verify(operations: &Operations<'_>, versions: &Versions) -> Judgement {
    let mut graph = Graph::new(operations.all.len());
    versions_in_order(&mut graph, versions);
    sessions_and_messages(&mut graph, operations, versions);
    real_time(&mut graph, operations, versions);
    fences(&mut graph, operations, versions);
    match graph.cycle() {
        None => Judgement::holds(format!("one order explains all {} operations", operations.all.len())),
        Some(cycle) => Judgement::violated(told(operations, &cycle)),
    }
}

/// Words for a cycle.
pub(crate) fn told(operations: &Operations<'_>, cycle: &[(Op, Why)]) -> String {
    let mut text = "no order can keep all of this: ".to_string();
    for (op, why) in cycle {
        text.extend([&operations.name(*op), " ", why.words(), " "]);
    }
    text.push_str(&cycle.first().map_or(String::new(), |(op, _)| operations.name(*op)));
    text
}

/// Each update comes before its readers, and all of them before the next update.
fn versions_in_order(graph: &mut Graph, versions: &Versions) {
    for chain in &versions.chains {
        let mut previous: Option<(Option<Op>, &[Op])> = None;
        for version in chain.values() {
            if let (Some((update, readers)), Some(next)) = (previous, version.update) {
                if let Some(update) = update {
                    graph.edge(update, next, Why::Replaced);
                }
                for &reader in readers {
                    graph.edge(reader, next, Why::Replaced);
                }
            }
            if let Some(update) = version.update {
                for &reader in &version.readers {
                    graph.edge(update, reader, Why::Saw);
                }
            }
            previous = Some((version.update, &version.readers));
        }
    }
}

fn sessions_and_messages(graph: &mut Graph, operations: &Operations<'_>, versions: &Versions) {
    let mut sessions: Vec<Vec<Op>> = vec![Vec::new(); operations.sessions];
    for op in (0..operations.all.len()).filter(|op| takes_part(operations, versions, *op)) {
        sessions[operations.all[op].session].push(op);
    }
    for ops in sessions {
        let ends = ended(operations, ops.iter().copied());
        let starts = invoked(operations, ops.into_iter().filter(|op| !versions.interchangeable.contains(op)));
        graph.timeline(ends, starts, Why::Session);
    }
    for (op, event) in operations.events.iter().enumerate() {
        for sender in event.after.iter().filter_map(|id| operations.by_id.get(id)) {
            graph.edge(*sender, op, Why::Message);
        }
    }
}

/// From updates to later updates anywhere, and to later reads of the same key.
fn real_time(graph: &mut Graph, operations: &Operations<'_>, versions: &Versions) {
    let mut updates = Vec::new();
    let mut of_key: Vec<(Vec<Op>, Vec<Op>)> = vec![Default::default(); operations.keys.len()];
    for op in (0..operations.all.len()).filter(|op| versions.of[*op].is_some()) {
        let (writers, readers) = &mut of_key[operations.all[op].touches[0].key];
        if operations.all[op].updates() {
            updates.push(op);
            writers.push(op);
        } else {
            readers.push(op);
        }
    }
    let starts = invoked(operations, updates.iter().copied());
    graph.timeline(ended(operations, updates), starts, Why::RealTime);
    for (writers, readers) in of_key {
        graph.timeline(ended(operations, writers), invoked(operations, readers), Why::RealTime);
    }
}

/// What a fence has seen comes before all that is invoked at its service after it.
fn fences(graph: &mut Graph, operations: &Operations<'_>, versions: &Versions) {
    for service in 0..operations.services {
        let of_service = |op: &Op| operations.all[*op].service == service;
        let fences: Vec<Op> =
            (0..operations.all.len()).filter(|&op| operations.all[op].fence).filter(of_service).collect();
        if fences.is_empty() {
            continue;
        }
        let later = (0..operations.all.len())
            .filter(of_service)
            .filter(|op| takes_part(operations, versions, *op) && !versions.interchangeable.contains(op));
        graph.timeline(ended(operations, fences), invoked(operations, later), Why::Fence);
    }
}

/// Operations that happened, as far as anyone can tell.
fn takes_part(operations: &Operations<'_>, versions: &Versions, op: Op) -> bool {
    versions.of[op].is_some() || operations.all[op].is_ok()
}

fn ended(operations: &Operations<'_>, ops: impl IntoIterator<Item = Op>) -> Vec<(i64, usize)> {
    let ends = ops.into_iter().map(|op| (operations.all[op].returned, op));
    ends.filter(|(returned, _)| *returned != NEVER).collect()
}

fn invoked(operations: &Operations<'_>, ops: impl IntoIterator<Item = Op>) -> Vec<(i64, usize)> {
    ops.into_iter().map(|op| (operations.all[op].invoke, op)).collect()
}

/// Looks for any legal order.
pub(crate) fn search(operations: &Operations<'_>) -> Judgement {
    let ordered = |a: Op, b: Op| {
        let (first, second) = (&operations.all[a], &operations.all[b]);
        if operations.events[b].after.contains(&operations.events[a].id) {
            return Some(Why::Message);
        }
        if !first.returned_before(second) {
            None
        } else if first.session == second.session {
            Some(Why::Session)
        } else if first.updates() && (second.updates() || reads_what(operations, b, a)) {
            Some(Why::RealTime)
        } else if first.fence && first.service == second.service {
            Some(Why::Fence)
        } else {
            None
        }
    };
    let members = (0..operations.all.len()).collect();
    search::solve(&Problem { operations, members, ordered: &ordered })
}

/// Whether `read` reads a key that `update` writes.
fn reads_what(operations: &Operations<'_>, read: Op, update: Op) -> bool {
    let written = |key: usize| {
        operations.all[update].touches.iter().any(|touch| touch.key == key && touch.write.is_some())
    };
    operations.all[read].touches.iter().any(|touch| touch.read.is_some() && written(touch.key))
}
