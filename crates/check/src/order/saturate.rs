//! What the values force: an operation that read what `w` wrote cannot have another update of that key between
//! `w` and itself. So what comes before the reader comes before `w`, and what comes after `w` comes after the
//! reader. Repeated until nothing more follows; a cycle refuses the history without any search.
//!
//! What reaches what is kept as clocks: operations are cut into chains along which they are ordered, and each
//! operation knows, chain by chain, the last one before it and the first one after it.

use super::problem::Problem;
use crate::graph::{Adjacency, Graph, Why};
use crate::operations::{NEVER, Op};
use std::collections::{BTreeMap, HashMap, HashSet};

/// A read whose source is known. `None` is the key as it began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Read {
    /// Who read.
    pub(crate) reader: Op,
    /// The key.
    pub(crate) key: usize,
    /// Who wrote what was read.
    pub(crate) writer: Option<Op>,
}

/// A read of a value that several may have written, and who they are.
#[derive(Clone, Debug)]
pub(crate) struct Open {
    /// Who read.
    pub(crate) reader: Op,
    /// The key.
    pub(crate) key: usize,
    /// Who may have written what was read; `None` is the key as it began.
    pub(crate) candidates: Vec<Option<Op>>,
}

/// Operations cut into chains along which the graph orders them. What never returned is in no chain: it comes
/// before nothing but those that saw it.
pub(crate) struct Chains {
    /// Each operation's chain and place; of those that take part and returned.
    place: Vec<Option<(u32, u32)>>,
    count: usize,
    /// For each key and each chain that updates it, the places of these updates in ascending order.
    updates: Vec<Vec<ChainUpdates>>,
    /// Updates that never returned, with their keys.
    pending: Vec<(usize, Op)>,
}

/// A chain and the updates of a key in it: their places and who they are.
type ChainUpdates = (u32, Vec<(u32, Op)>);

/// The most entries of clocks that are kept at once.
const ROOM: usize = 1 << 27;

impl Chains {
    /// Chains of the operations that take part: lanes of sessions if the model keeps their order, and otherwise
    /// each operation by itself.
    pub(crate) fn new(problem: &Problem<'_>, by_session: bool) -> Self {
        let operations = problem.operations;
        let mut chains = Self {
            place: vec![None; operations.all.len()],
            count: 0,
            updates: vec![Vec::new(); operations.keys.len()],
            pending: Vec::new(),
        };
        for lane in &operations.lanes {
            let mut length = 0;
            for &op in lane.iter().filter(|op| problem.takes_part[**op]) {
                if operations.all[op].returned == NEVER {
                    let touches = operations.all[op].touches.iter();
                    let writes = touches.filter(|touch| problem.change(touch).is_some());
                    chains.pending.extend(writes.map(|touch| (touch.key, op)));
                    continue;
                }
                if !by_session && length > 0 {
                    chains.count += 1;
                    length = 0;
                }
                chains.push(problem, op, (chains.count as u32, length));
                length += 1;
            }
            chains.count += usize::from(length > 0);
        }
        chains
    }

    fn push(&mut self, problem: &Problem<'_>, op: Op, (chain, index): (u32, u32)) {
        self.place[op] = Some((chain, index));
        let touches = problem.operations.all[op].touches.iter();
        for touch in touches.filter(|touch| problem.change(touch).is_some()) {
            let of_key = &mut self.updates[touch.key];
            if of_key.last().is_none_or(|(last, _)| *last != chain) {
                of_key.push((chain, Vec::new()));
            }
            if let Some((_, list)) = of_key.last_mut() {
                list.push((index, op));
            }
        }
    }
}

/// How saturation ended.
pub(crate) enum Saturated {
    /// Nothing more follows, and there is no cycle.
    Fixed,
    /// There is a cycle.
    Cyclic,
    /// A read that none of those who wrote its value can have been the source of.
    Unexplained(Read),
    /// The history is too long to derive all.
    TooLong,
}

/// Adds to `graph` what `reads` force. Of `open` reads those that turn out to have one possible source move to
/// `reads`.
pub(crate) fn saturate(
    graph: &mut Graph,
    chains: &Chains,
    reads: &mut Vec<Read>,
    open: &mut Vec<Open>,
) -> Saturated {
    for read in reads.iter() {
        if let Some(writer) = read.writer {
            graph.edge(writer, read.reader, Why::Saw);
        }
    }
    let mut pending = Pending::new(chains, reads);
    loop {
        let adjacency = graph.adjacency();
        let Some(order) = adjacency.topological() else { return Saturated::Cyclic };
        if graph.nodes().saturating_mul(chains.count) > ROOM {
            return Saturated::TooLong;
        }
        // What comes after a writer comes after its readers: the plain reason. Only when that says nothing more is
        // it asked what a reader's past hides, so that a cycle is told by plain reasons where it can be.
        let mut forced = Vec::new();
        let mut why = Why::Replaced;
        let past = past(chains, &adjacency, &order);
        let future = future(chains, &adjacency, &order);
        for read in reads.iter() {
            push_after_reader(chains, &future, read, &mut forced);
        }
        pending.push_after_readers(chains, &past, &mut forced);
        if forced.is_empty() {
            why = Why::Hidden;
            for read in reads.iter() {
                push_before_writer(chains, &past, read, &mut forced);
            }
            pending.push_before_writers(chains, &future, &mut forced);
        }
        if forced.is_empty() {
            match close(chains, &past, &future, open) {
                Ok(closed) if closed.is_empty() => return Saturated::Fixed,
                Ok(closed) => {
                    for read in closed {
                        if let Some(writer) = read.writer {
                            graph.edge(writer, read.reader, Why::Saw);
                        }
                        reads.push(read);
                    }
                    pending = Pending::new(chains, reads);
                }
                Err(read) => return Saturated::Unexplained(read),
            }
        }
        for (before, after) in forced {
            graph.edge(before, after, why);
        }
    }
}

/// Takes the reads out of `open` that have one source left.
///
/// # Errors
/// A read that has none.
fn close(chains: &Chains, past: &Clocks, future: &Clocks, open: &mut Vec<Open>) -> Result<Vec<Read>, Read> {
    let mut closed = Vec::new();
    let mut still_open = Vec::new();
    for mut read in std::mem::take(open) {
        let Open { reader, key, .. } = read;
        read.candidates.retain(|writer| may_be_source(chains, past, future, reader, key, *writer));
        match read.candidates[..] {
            [] => return Err(Read { reader, key, writer: None }),
            [writer] => closed.push(Read { reader, key, writer }),
            _ => still_open.push(read),
        }
    }
    *open = still_open;
    Ok(closed)
}

/// Whether `reader` can have read what `writer` wrote: it does not come before it, and nothing must stand between.
fn may_be_source(
    chains: &Chains,
    past: &Clocks,
    future: &Clocks,
    reader: Op,
    key: usize,
    writer: Option<Op>,
) -> bool {
    let place = writer.and_then(|writer| chains.place[writer]);
    let reader_first = match (writer, place, chains.place[reader]) {
        (Some(_), Some((chain, index)), _) => future.row(reader)[chain as usize] <= index,
        (Some(writer), None, Some((chain, index))) => past.row(writer)[chain as usize] > index,
        _ => false,
    };
    let hidden = chains.updates[key].iter().any(|(chain, updates)| {
        let before = updates.partition_point(|(index, _)| *index < past.row(reader)[*chain as usize]);
        let mut between = updates[..before].iter().rev().map(|(_, op)| *op);
        let last = between.find(|op| *op != reader && Some(*op) != writer);
        last.is_some_and(|update| match (writer, place) {
            (None, _) => true,
            (Some(_), Some((chain, index))) => past.row(update)[chain as usize] > index,
            (Some(_), None) => false,
        })
    });
    !reader_first && !hidden
}

/// A row of clock entries for each node.
struct Clocks {
    width: usize,
    entries: Vec<u32>,
}

impl Clocks {
    fn row(&self, node: usize) -> &[u32] {
        &self.entries[node * self.width..(node + 1) * self.width]
    }

    /// Merges `from`'s row into `to`'s.
    fn merge(&mut self, from: usize, to: usize, join: impl Fn(u32, u32) -> u32) {
        for chain in 0..self.width {
            let merged = join(self.entries[from * self.width + chain], self.entries[to * self.width + chain]);
            self.entries[to * self.width + chain] = merged;
        }
    }
}

/// For each node and chain, how many of the chain's operations come before it or are it.
fn past(chains: &Chains, adjacency: &Adjacency, order: &[usize]) -> Clocks {
    let mut clocks = Clocks { width: chains.count, entries: vec![0; order.len() * chains.count] };
    for &node in order {
        if let Some((chain, index)) = chains.place.get(node).copied().flatten() {
            let own = &mut clocks.entries[node * clocks.width + chain as usize];
            *own = (*own).max(index + 1);
        }
        for to in adjacency.after(node) {
            clocks.merge(node, to, u32::max);
        }
    }
    clocks
}

/// For each node and chain, the place of the first of the chain's operations that comes after it or is it.
fn future(chains: &Chains, adjacency: &Adjacency, order: &[usize]) -> Clocks {
    let mut clocks = Clocks { width: chains.count, entries: vec![u32::MAX; order.len() * chains.count] };
    for &node in order.iter().rev() {
        for to in adjacency.after(node) {
            clocks.merge(to, node, u32::min);
        }
        if let Some((chain, index)) = chains.place.get(node).copied().flatten() {
            let own = &mut clocks.entries[node * clocks.width + chain as usize];
            *own = (*own).min(index);
        }
    }
    clocks
}

/// Updates that come before the reader come before the writer.
fn push_before_writer(chains: &Chains, past: &Clocks, read: &Read, forced: &mut Vec<(Op, Op)>) {
    let Some(writer) = read.writer else { return };
    let (reader_past, writer_past) = (past.row(read.reader), past.row(writer));
    for (chain, updates) in &chains.updates[read.key] {
        let known = writer_past[*chain as usize];
        let before = updates.partition_point(|(index, _)| *index < reader_past[*chain as usize]);
        let last = updates[..before].iter().rev().find(|(_, op)| *op != read.reader);
        if let Some((index, op)) = last.filter(|(index, op)| *op != writer && *index >= known) {
            debug_assert!(*index < reader_past[*chain as usize]);
            forced.push((*op, writer));
        }
    }
}

/// Updates that come after the writer come after the reader.
fn push_after_reader(chains: &Chains, future: &Clocks, read: &Read, forced: &mut Vec<(Op, Op)>) {
    let reader_future = future.row(read.reader);
    for (chain, updates) in &chains.updates[read.key] {
        let from = match read.writer {
            Some(writer) => {
                let first = future.row(writer)[*chain as usize];
                updates.partition_point(|(index, _)| *index < first)
            }
            None => 0,
        };
        let mut later = updates[from..].iter();
        let first = later.find(|(_, op)| *op != read.reader && Some(*op) != read.writer);
        if let Some((_, op)) = first.filter(|(index, _)| *index < reader_future[*chain as usize]) {
            forced.push((read.reader, *op));
        }
    }
}

/// For a key and a chain the reads: their places, who they are, and who wrote what they saw.
type ReadsInChains = BTreeMap<(usize, u32), Vec<(u32, Op, Option<Op>)>>;

/// The same two rules for updates that never returned, which are in no chain.
struct Pending<'a> {
    /// Reads of each key, by chain, in ascending order of their places.
    reads: ReadsInChains,
    /// Readers of each version of a key.
    readers: HashMap<(usize, Op), Vec<Op>>,
    updates: &'a [(usize, Op)],
    /// What has been told already.
    told: HashSet<(Op, Op)>,
}

impl<'a> Pending<'a> {
    fn new(chains: &'a Chains, all: &[Read]) -> Self {
        let mut reads = ReadsInChains::new();
        let mut readers: HashMap<(usize, Op), Vec<Op>> = HashMap::new();
        let keys: HashSet<usize> = chains.pending.iter().map(|(key, _)| *key).collect();
        for read in all.iter().filter(|read| keys.contains(&read.key)) {
            if let Some((chain, index)) = chains.place[read.reader] {
                reads.entry((read.key, chain)).or_default().push((index, read.reader, read.writer));
            }
            if let Some(writer) = read.writer {
                readers.entry((read.key, writer)).or_default().push(read.reader);
            }
        }
        for list in reads.values_mut() {
            list.sort_unstable();
        }
        Self { reads, readers, updates: &chains.pending, told: HashSet::new() }
    }

    /// A pending update that comes after a writer comes after its readers.
    fn push_after_readers(&mut self, chains: &Chains, past: &Clocks, forced: &mut Vec<(Op, Op)>) {
        for &(key, update) in self.updates {
            // All who saw the key as it began come before any update of it: the last of each chain does.
            for chain in 0..chains.count as u32 {
                let reads = self.reads.get(&(key, chain)).map_or(&[][..], Vec::as_slice);
                let last =
                    reads.iter().rev().find(|(_, reader, writer)| writer.is_none() && *reader != update);
                if let Some((_, reader, _)) =
                    last.filter(|(_, reader, _)| self.told.insert((*reader, update)))
                {
                    forced.push((*reader, update));
                }
            }
            let row = past.row(update);
            for (chain, versions) in &chains.updates[key] {
                let before = versions.partition_point(|(index, _)| *index < row[*chain as usize]);
                let Some((_, writer)) = before.checked_sub(1).map(|last| versions[last]) else { continue };
                for &reader in self.readers.get(&(key, writer)).map_or(&[][..], Vec::as_slice) {
                    if reader != update && self.told.insert((reader, update)) {
                        forced.push((reader, update));
                    }
                }
            }
        }
    }

    /// A pending update that comes before a reader comes before the writer.
    fn push_before_writers(&mut self, chains: &Chains, future: &Clocks, forced: &mut Vec<(Op, Op)>) {
        for &(key, update) in self.updates {
            let row = future.row(update);
            for chain in 0..chains.count as u32 {
                let Some(reads) = self.reads.get(&(key, chain)) else { continue };
                let after = reads.partition_point(|(index, ..)| *index < row[chain as usize]);
                let other = reads[after..].iter().find(|(_, _, writer)| *writer != Some(update));
                let Some((_, _, Some(writer))) = other else { continue };
                if self.told.insert((update, *writer)) {
                    forced.push((update, *writer));
                }
            }
        }
    }
}
