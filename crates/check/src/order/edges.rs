//! A model's demands as edges between operations.

use super::demands::{Demands, RealTime};
use crate::graph::{Graph, Why};
use crate::operations::{NEVER, Op, Operations, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Operations that take part in an order, and where they stand.
pub(crate) struct Cast<'a> {
    /// The history.
    pub(crate) operations: &'a Operations<'a>,
    /// Whether each of its operations takes part.
    pub(crate) takes_part: &'a [bool],
    /// Operations of unknown outcome that could have been swapped for another: their place in their session's
    /// order proves nothing.
    pub(crate) interchangeable: &'a BTreeSet<Op>,
}

impl Cast<'_> {
    fn members(&self) -> impl Iterator<Item = Op> + '_ {
        (0..self.takes_part.len()).filter(|op| self.takes_part[*op])
    }

    fn ends(&self, ops: impl IntoIterator<Item = Op>) -> Vec<(i64, usize)> {
        let ends = ops.into_iter().map(|op| (self.operations.all[op].returned, op));
        ends.filter(|(returned, _)| *returned != NEVER).collect()
    }

    fn starts(&self, ops: impl IntoIterator<Item = Op>) -> Vec<(i64, usize)> {
        ops.into_iter().map(|op| (self.operations.all[op].invoke, op)).collect()
    }

    fn updates(&self, op: Op) -> bool {
        self.operations.all[op].updates()
    }
}

/// Adds an edge wherever `demands` put one operation before another, whatever they saw.
pub(crate) fn add(graph: &mut Graph, demands: Demands, cast: &Cast<'_>) {
    if demands.process {
        process_order(graph, cast);
    }
    if demands.messages {
        messages(graph, cast);
    }
    match demands.real_time {
        RealTime::Free => {}
        RealTime::All => {
            graph.timeline(cast.ends(cast.members()), cast.starts(cast.members()), Why::RealTime);
        }
        RealTime::FromUpdates => {
            let updates = cast.members().filter(|op| cast.updates(*op));
            graph.timeline(cast.ends(updates), cast.starts(cast.members()), Why::RealTime);
        }
        RealTime::ToUpdates => {
            let updates = cast.members().filter(|op| cast.updates(*op));
            graph.timeline(cast.ends(cast.members()), cast.starts(updates), Why::RealTime);
        }
        RealTime::CommonKey => {
            for ops in by_key(cast, |_| true) {
                graph.timeline(cast.ends(ops.iter().copied()), cast.starts(ops), Why::RealTime);
            }
        }
        RealTime::Regular => {
            let updates: Vec<Op> = cast.members().filter(|op| cast.updates(*op)).collect();
            graph.timeline(cast.ends(updates.iter().copied()), cast.starts(updates), Why::RealTime);
            from_updates_to_their_readers(graph, cast);
        }
        RealTime::RegularPerService => {
            let mut updates: Vec<Vec<Op>> = vec![Vec::new(); cast.operations.services];
            for op in cast.members().filter(|op| cast.updates(*op)) {
                updates[cast.operations.all[op].service].push(op);
            }
            for updates in updates {
                graph.timeline(cast.ends(updates.iter().copied()), cast.starts(updates), Why::RealTime);
            }
            from_updates_to_their_readers(graph, cast);
        }
    }
}

fn process_order(graph: &mut Graph, cast: &Cast<'_>) {
    let mut sessions: Vec<Vec<Op>> = vec![Vec::new(); cast.operations.sessions];
    for op in cast.members() {
        sessions[cast.operations.all[op].session].push(op);
    }
    for ops in sessions {
        let ends = cast.ends(ops.iter().copied());
        let starts = cast.starts(ops.into_iter().filter(|op| !cast.interchangeable.contains(op)));
        graph.timeline(ends, starts, Why::Session);
    }
}

fn messages(graph: &mut Graph, cast: &Cast<'_>) {
    for op in cast.members() {
        for sender in cast.operations.told(op).iter().filter(|sender| cast.takes_part[**sender]) {
            graph.edge(*sender, op, Why::Message);
        }
    }
}

/// Real time from an update to all that reads what it writes. A key belongs to one service.
fn from_updates_to_their_readers(graph: &mut Graph, cast: &Cast<'_>) {
    let writers = by_key(cast, |touch| touch.write.is_some());
    let readers = by_key(cast, |touch| touch.read.is_some());
    for (writers, readers) in writers.into_iter().zip(readers) {
        let readers = readers.into_iter().filter(|op| !cast.updates(*op));
        graph.timeline(cast.ends(writers), cast.starts(readers), Why::RealTime);
    }
}

fn by_key(cast: &Cast<'_>, wanted: impl Fn(&crate::operations::Touch) -> bool) -> Vec<Vec<Op>> {
    let mut of_key: Vec<Vec<Op>> = vec![Vec::new(); cast.operations.keys.len()];
    for op in cast.members() {
        for touch in cast.operations.all[op].touches.iter().filter(|touch| wanted(touch)) {
            of_key[touch.key].push(op);
        }
    }
    of_key
}

/// Who wrote the value that an operation read from a key, as far as that is known.
pub(crate) type Writer<'a> = dyn Fn(Op, usize, Value) -> Option<Op> + 'a;

/// What causally precedes a fence, at its service, comes before all that is invoked there after it.
///
/// The causal past is followed backwards from each fence
/// until it meets the service: what lies behind such an operation is behind it in the order as well.
pub(crate) fn add_fences(graph: &mut Graph, cast: &Cast<'_>, writer: &Writer<'_>) {
    let operations = cast.operations;
    let fences: Vec<Op> = (0..operations.all.len()).filter(|op| operations.all[*op].fence).collect();
    for service in 0..operations.services {
        let here: Vec<Op> =
            fences.iter().copied().filter(|f| operations.all[*f].service == service).collect();
        if here.is_empty() {
            continue;
        }
        let mut nodes = Vec::with_capacity(here.len());
        for fence in here {
            let node = graph.role_of(fence);
            for op in nearest_past(cast, writer, fence) {
                graph.edge(op, node, Why::Fence);
            }
            nodes.push((operations.all[fence].returned, node));
        }
        nodes.retain(|(returned, _)| *returned != NEVER);
        let later = cast.members().filter(|op| operations.all[*op].service == service);
        let starts = cast.starts(later.filter(|op| !cast.interchangeable.contains(op)));
        graph.timeline(nodes, starts, Why::Fence);
    }
}

/// The operations at a fence's service through which all paths of causality to it lead.
fn nearest_past(cast: &Cast<'_>, writer: &Writer<'_>, fence: Op) -> Vec<Op> {
    let operations = cast.operations;
    let service = operations.all[fence].service;
    let mut found = Vec::new();
    let mut visited = BTreeSet::from([fence]);
    let mut waiting = vec![fence];
    while let Some(op) = waiting.pop() {
        for earlier in causes(cast, writer, op) {
            if !visited.insert(earlier) {
                continue;
            }
            if cast.takes_part[earlier]
                && operations.all[earlier].service == service
                && !operations.all[earlier].fence
            {
                found.push(earlier);
            } else {
                waiting.push(earlier);
            }
        }
    }
    found
}

/// What directly precedes an operation in causal order: the last operations of its session before it, senders
/// of messages, and who wrote what it read.
fn causes(cast: &Cast<'_>, writer: &Writer<'_>, op: Op) -> Vec<Op> {
    let operations = cast.operations;
    let operation = &operations.all[op];
    let mut causes: Vec<Op> = operations.told(op).to_vec();
    causes.extend(operations.previous_in_session(op));
    for touch in &operation.touches {
        causes.extend(touch.read.and_then(|value| writer(op, touch.key, value)));
    }
    causes
}

/// Whether an order keeps what fences ask for, where `writer` is who wrote, by that order, what was read.
pub(crate) fn keeps_fences(cast: &Cast<'_>, writer: &Writer<'_>, order: &[Op]) -> bool {
    let operations = cast.operations;
    let place: BTreeMap<Op, usize> = order.iter().enumerate().map(|(place, op)| (*op, place)).collect();
    (0..operations.all.len()).filter(|op| operations.all[*op].fence).all(|fence| {
        let past = nearest_past(cast, writer, fence);
        let last = past.iter().filter_map(|op| place.get(op)).max();
        let begun_later = |op: &&Op| {
            let (fence, operation) = (&operations.all[fence], &operations.all[**op]);
            operation.service == fence.service && fence.returned < operation.invoke
        };
        let first = order.iter().filter(begun_later).filter_map(|op| place.get(op)).min();
        last.zip(first).is_none_or(|(last, first)| last < first)
    })
}
