//! Graphs of operations: what must come before what, and the shortest proof that it cannot.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

/// A node of the graph: operations first, then the nodes of timelines.
type Node = u32;

/// Why one operation must come before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The same session did one after the other had returned.
    Session,
    /// One had returned before the other was invoked, and the model keeps real time between such two.
    RealTime,
    /// A message carried the result of one to the session of the other.
    Message,
    /// One saw what the other wrote.
    Saw,
    /// The other replaced what one wrote or saw.
    Replaced,
    /// Someone after the one saw what the other wrote, so that the other must have overwritten it.
    Hidden,
    /// A fence stands between.
    Fence,
    /// One was in the view of the other, a read.
    Known,
    /// One, a read, had the other in its view and returned it over all else there.
    Preferred,
    /// One was in the view of a read that returned the other.
    Passed,
    /// The engine gave one a version below the other's.
    Version,
}

impl Why {
    /// Words to put between two operations.
    pub fn words(self) -> &'static str {
        match self {
            Self::Session => "came, in its session, before",
            Self::RealTime => "returned before the invocation of",
            Self::Message => "was told by a message to",
            Self::Saw => "was seen by",
            Self::Replaced => "was overwritten by",
            Self::Hidden => "was hidden, from one that came after it, by",
            Self::Fence => "stands, by a fence, before",
            Self::Known => "was known to",
            Self::Preferred => "returned, of all that it knew, what was left by",
            Self::Passed => "was known to a read that returned what was left by",
            Self::Version => "has a lower version than",
        }
    }
}

/// Every cycle passes through an operation, so that shortest cycles are looked for from operations. Where many
/// lie in cycles, those through so many of them hold one that is short enough to read.
const SAMPLE: usize = 400;

/// A directed graph, built edge by edge. Its first nodes are operations.
#[derive(Clone, Debug)]
pub(crate) struct Graph {
    operations: usize,
    nodes: usize,
    edges: Vec<(Node, Node, Why)>,
    /// Nodes that stand for an operation in one of its roles.
    roles: BTreeMap<Node, usize>,
}

impl Graph {
    /// A graph of so many operations, without edges.
    pub(crate) fn new(operations: usize) -> Self {
        Self { operations, nodes: operations, edges: Vec::new(), roles: BTreeMap::new() }
    }

    /// How many nodes there are, operations included.
    pub(crate) fn nodes(&self) -> usize {
        self.nodes
    }

    /// A new node that stands for `operation` in one of its roles.
    pub(crate) fn role_of(&mut self, operation: usize) -> usize {
        let node = self.nodes;
        self.nodes += 1;
        self.roles.insert(node as Node, operation);
        node
    }

    /// A new node that stands for no operation: a place for many edges to meet.
    pub(crate) fn joint(&mut self) -> usize {
        self.nodes += 1;
        self.nodes - 1
    }

    /// `before` must come before `after`.
    pub(crate) fn edge(&mut self, before: usize, after: usize, why: Why) {
        self.edges.push((before as Node, after as Node, why));
    }

    /// Every one of `ends` that returned before the invocation of one of `starts` must come before it. Both are
    /// (time, operation). Instead of an edge for each pair there is a chain of nodes in time: an operation's
    /// return leads into it and leads on to all that is invoked later.
    pub(crate) fn timeline(&mut self, mut ends: Vec<(i64, usize)>, mut starts: Vec<(i64, usize)>, why: Why) {
        ends.sort_unstable();
        starts.sort_unstable();
        let mut ends = ends.into_iter().peekable();
        let mut last: Option<usize> = None;
        for (invoke, start) in starts {
            while let Some((_, end)) = ends.next_if(|(returned, _)| *returned < invoke) {
                let node = self.nodes;
                self.nodes += 1;
                if let Some(last) = last {
                    self.edge(last, node, why);
                }
                self.edge(end, node, why);
                last = Some(node);
            }
            if let Some(last) = last {
                self.edge(last, start, why);
            }
        }
    }

    /// A shortest cycle, as operations each with the reason why it comes before the next (the last before the
    /// first), or `None` if all can be put into one order. `invoked` is when an operation began: a cycle goes back
    /// in time somewhere, and it is from there that it is looked for. It is told from its earliest operation on.
    pub(crate) fn cycle(&self, invoked: impl Fn(usize) -> i64) -> Option<Vec<(usize, Why)>> {
        let adjacency = self.adjacency();
        let stuck = adjacency.in_cycles();
        let mut starts: Vec<(i64, usize)> = Vec::new();
        for op in (0..self.operations).filter(|op| stuck[*op]) {
            let nexts = adjacency.after(op).filter(|next| *next < self.operations && stuck[*next]);
            let back = nexts.map(|next| invoked(op).saturating_sub(invoked(next))).max();
            starts.push((back.unwrap_or(i64::MIN), op));
        }
        starts.sort_by_key(|(back, op)| (Reverse(*back), *op));
        let mut shortest: Option<Vec<(usize, Why)>> = None;
        for (tried, (_, op)) in starts.into_iter().enumerate() {
            if tried >= SAMPLE && shortest.is_some() {
                break;
            }
            // An operation between two cycles is in none itself.
            let Some(cycle) = adjacency.shortest_cycle(op as Node, &stuck, self.operations) else { continue };
            let cycle = self.without_timelines(&cycle);
            if shortest.as_ref().is_none_or(|shortest| cycle.len() < shortest.len()) {
                shortest = Some(cycle);
            }
        }
        let mut cycle = shortest?;
        let first = (0..cycle.len()).min_by_key(|at| (invoked(cycle[*at].0), cycle[*at].0));
        cycle.rotate_left(first.unwrap_or(0));
        Some(cycle)
    }

    /// Edges ordered by where they start, to walk along.
    pub(crate) fn adjacency(&self) -> Adjacency {
        Adjacency::new(self.nodes, &self.edges)
    }

    /// The same edges, to walk against their direction.
    pub(crate) fn backwards(&self) -> Adjacency {
        let edges: Vec<(Node, Node, Why)> =
            self.edges.iter().map(|(from, to, why)| (*to, *from, *why)).collect();
        Adjacency::new(self.nodes, &edges)
    }

    fn without_timelines(&self, cycle: &[(Node, Why)]) -> Vec<(usize, Why)> {
        let operation = |node: Node| match self.roles.get(&node) {
            Some(operation) => Some(*operation),
            None => Some(node as usize).filter(|node| *node < self.operations),
        };
        cycle.iter().filter_map(|(node, why)| Some((operation(*node)?, *why))).collect()
    }
}

/// Edges ordered by where they start.
#[derive(Debug)]
pub(crate) struct Adjacency {
    starts: Vec<u32>,
    targets: Vec<(Node, Why)>,
}

impl Adjacency {
    fn new(nodes: usize, edges: &[(Node, Node, Why)]) -> Self {
        let mut starts = vec![0_u32; nodes + 1];
        for (from, ..) in edges {
            starts[*from as usize + 1] += 1;
        }
        for node in 0..nodes {
            starts[node + 1] += starts[node];
        }
        let mut next = starts.clone();
        let mut targets = vec![(0, Why::Session); edges.len()];
        for (from, to, why) in edges {
            let slot = &mut next[*from as usize];
            targets[*slot as usize] = (*to, *why);
            *slot += 1;
        }
        Self { starts, targets }
    }

    fn nodes(&self) -> usize {
        self.starts.len() - 1
    }

    /// Where the edges from `node` lead.
    pub(crate) fn after(&self, node: usize) -> impl Iterator<Item = usize> + '_ {
        self.of(node as Node).iter().map(|(to, _)| *to as usize)
    }

    /// The same with reasons.
    pub(crate) fn reasons(&self, node: usize) -> impl Iterator<Item = (usize, Why)> + '_ {
        self.of(node as Node).iter().map(|(to, why)| (*to as usize, *why))
    }

    /// For each node how many edges lead to it.
    pub(crate) fn incoming(&self) -> Vec<u32> {
        let mut incoming = vec![0_u32; self.nodes()];
        for (to, _) in &self.targets {
            incoming[*to as usize] += 1;
        }
        incoming
    }

    /// All nodes in an order that follows every edge, or `None` if there is a cycle.
    pub(crate) fn topological(&self) -> Option<Vec<usize>> {
        let mut incoming = self.incoming();
        let mut order: Vec<usize> = (0..self.nodes()).filter(|node| incoming[*node] == 0).collect();
        let mut next = 0;
        while next < order.len() {
            let node = order[next];
            next += 1;
            for to in self.after(node) {
                incoming[to] -= 1;
                if incoming[to] == 0 {
                    order.push(to);
                }
            }
        }
        (order.len() == self.nodes()).then_some(order)
    }

    fn of(&self, node: Node) -> &[(Node, Why)] {
        let node = node as usize;
        &self.targets[self.starts[node] as usize..self.starts[node + 1] as usize]
    }

    /// Which nodes are left when all that is before everything else has been taken away, again and again, and
    /// then all that is after everything else: those between or in cycles.
    fn in_cycles(&self) -> Vec<bool> {
        let mut incoming = self.incoming();
        let mut ready: Vec<Node> = (0..self.nodes() as Node).filter(|&n| incoming[n as usize] == 0).collect();
        let mut order = 0;
        let mut stuck = vec![true; self.nodes()];
        while let Some(node) = ready.pop() {
            stuck[node as usize] = false;
            order += 1;
            for (to, _) in self.of(node) {
                incoming[*to as usize] -= 1;
                if incoming[*to as usize] == 0 {
                    ready.push(*to);
                }
            }
        }
        if order == self.nodes() {
            return stuck;
        }
        self.drop_dead_ends(&mut stuck);
        stuck
    }

    fn drop_dead_ends(&self, stuck: &mut [bool]) {
        let mut back: Vec<Vec<Node>> = vec![Vec::new(); self.nodes()];
        let mut outgoing = vec![0_u32; self.nodes()];
        for node in (0..self.nodes() as Node).filter(|&n| stuck[n as usize]) {
            for (to, _) in self.of(node).iter().filter(|(to, _)| stuck[*to as usize]) {
                back[*to as usize].push(node);
                outgoing[node as usize] += 1;
            }
        }
        let mut ready: Vec<Node> =
            (0..self.nodes() as Node).filter(|&n| stuck[n as usize] && outgoing[n as usize] == 0).collect();
        while let Some(node) = ready.pop() {
            stuck[node as usize] = false;
            for &from in &back[node as usize] {
                outgoing[from as usize] -= 1;
                if outgoing[from as usize] == 0 {
                    ready.push(from);
                }
            }
        }
    }

    /// A cycle through `start` with the fewest operations: steps to nodes that are none cost nothing.
    fn shortest_cycle(&self, start: Node, within: &[bool], operations: usize) -> Option<Vec<(Node, Why)>> {
        let mut from: Vec<Option<(Node, Why)>> = vec![None; self.nodes()];
        let mut near = VecDeque::from([start]);
        let mut done = vec![false; self.nodes()];
        while let Some(node) = near.pop_front() {
            if std::mem::replace(&mut done[node as usize], node != start) {
                continue;
            }
            for &(to, why) in self.of(node).iter().filter(|(to, _)| within[*to as usize]) {
                let costs = (to as usize) < operations;
                if done[to as usize] || (costs && from[to as usize].is_some()) {
                    continue;
                }
                from[to as usize] = Some((node, why));
                if to == start {
                    return Some(path_back(start, &from));
                }
                if costs {
                    near.push_back(to);
                } else {
                    near.push_front(to);
                }
            }
        }
        None
    }
}

/// The way that a search took from `start` back to it.
fn path_back(start: Node, from: &[Option<(Node, Why)>]) -> Vec<(Node, Why)> {
    let mut cycle = Vec::new();
    let mut at = start;
    while let Some((node, why)) = from[at as usize] {
        cycle.push((node, why));
        if node == start {
            break;
        }
        at = node;
    }
    cycle.reverse();
    cycle
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_no_cycle_and_a_ring_has() {
        let mut graph = Graph::new(4);
        for op in 0..3 {
            graph.edge(op, op + 1, Why::Session);
        }
        assert_eq!(graph.cycle(|op| op as i64), None);
        graph.edge(3, 1, Why::Saw);
        assert_eq!(
            graph.cycle(|op| op as i64).unwrap(),
            [(1, Why::Session), (2, Why::Session), (3, Why::Saw)]
        );
    }

    #[test]
    fn the_shortest_of_several_cycles_is_told() {
        let mut graph = Graph::new(6);
        for op in 0..6 {
            graph.edge(op, (op + 1) % 6, Why::Session);
        }
        graph.edge(4, 3, Why::Saw);
        assert_eq!(graph.cycle(|op| op as i64).unwrap().len(), 2);
    }

    #[test]
    fn timelines_order_what_ended_before_what_began() {
        let mut graph = Graph::new(3);
        // 0 ends at 5; 1 begins at 5 (no order), 2 begins at 6.
        graph.timeline(vec![(5, 0)], vec![(5, 1), (6, 2)], Why::RealTime);
        graph.edge(1, 0, Why::Saw);
        assert_eq!(graph.cycle(|op| op as i64), None);
        graph.edge(2, 1, Why::Saw);
        assert_eq!(graph.cycle(|op| op as i64).unwrap(), [(0, Why::RealTime), (2, Why::Saw), (1, Why::Saw)]);
    }
}
