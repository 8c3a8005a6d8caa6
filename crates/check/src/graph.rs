//! Graphs of operations: what must come before what, and the shortest proof that it cannot.

use std::collections::VecDeque;

/// A node of the graph: operations first, then the nodes of timelines.
type Node = u32;

/// Why one operation must come before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
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
    /// A fence stands between.
    Fence,
}

impl Why {
    /// Words to put between two operations.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Session => "came, in its session, before",
            Self::RealTime => "returned before the invocation of",
            Self::Message => "was told by a message to",
            Self::Saw => "was seen by",
            Self::Replaced => "was overwritten by",
            Self::Fence => "stands, by a fence, before",
        }
    }
}

/// Every cycle passes through an operation, so that shortest cycles are looked for from operations. Where many
/// lie in cycles, those through so many of them hold one that is short enough to read.
const SAMPLE: usize = 400;

/// A directed graph, built edge by edge and then asked once for a cycle.
#[derive(Debug)]
pub(crate) struct Graph {
    operations: usize,
    nodes: usize,
    edges: Vec<(Node, Node, Why)>,
}

impl Graph {
    /// A graph of so many operations, without edges.
    pub(crate) fn new(operations: usize) -> Self {
        Self { operations, nodes: operations, edges: Vec::with_capacity(operations * 6) }
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
    /// first), or `None` if all can be put into one order.
    pub(crate) fn cycle(&self) -> Option<Vec<(usize, Why)>> {
        let adjacency = Adjacency::new(self.nodes, &self.edges);
        let stuck = adjacency.in_cycles();
        (0..self.operations)
            .filter(|&op| stuck[op])
            .take(SAMPLE)
            .filter_map(|op| adjacency.shortest_cycle(op as Node, &stuck))
            .map(|cycle| self.without_timelines(&cycle))
            .min_by_key(Vec::len)
    }

    fn without_timelines(&self, cycle: &[(Node, Why)]) -> Vec<(usize, Why)> {
        cycle
            .iter()
            .filter(|(node, _)| (*node as usize) < self.operations)
            .map(|(node, why)| (*node as usize, *why))
            .collect()
    }
}

/// Edges ordered by where they start.
struct Adjacency {
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

    fn of(&self, node: Node) -> &[(Node, Why)] {
        let node = node as usize;
        &self.targets[self.starts[node] as usize..self.starts[node + 1] as usize]
    }

    /// Which nodes are left when all that is before everything else has been taken away, again and again, and
    /// then all that is after everything else: those between or in cycles.
    fn in_cycles(&self) -> Vec<bool> {
        let mut incoming = vec![0_u32; self.nodes()];
        for (to, _) in &self.targets {
            incoming[*to as usize] += 1;
        }
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

    fn shortest_cycle(&self, start: Node, within: &[bool]) -> Option<Vec<(Node, Why)>> {
        let mut from: Vec<Option<(Node, Why)>> = vec![None; self.nodes()];
        let mut queue = VecDeque::from([start]);
        while let Some(node) = queue.pop_front() {
            for &(to, why) in self.of(node).iter().filter(|(to, _)| within[*to as usize]) {
                if from[to as usize].is_none() {
                    from[to as usize] = Some((node, why));
                    queue.push_back(to);
                }
            }
            if let Some((node, why)) = from[start as usize] {
                let mut cycle = vec![(node, why)];
                while cycle[cycle.len() - 1].0 != start {
                    let (node, _) = cycle[cycle.len() - 1];
                    cycle.push(from[node as usize].expect("the search came to this node from another"));
                }
                cycle.reverse();
                return Some(cycle);
            }
        }
        None
    }
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
        assert_eq!(graph.cycle(), None);
        graph.edge(3, 1, Why::Saw);
        assert_eq!(graph.cycle().unwrap(), [(1, Why::Session), (2, Why::Session), (3, Why::Saw)]);
    }

    #[test]
    fn the_shortest_of_several_cycles_is_told() {
        let mut graph = Graph::new(6);
        for op in 0..6 {
            graph.edge(op, (op + 1) % 6, Why::Session);
        }
        graph.edge(4, 3, Why::Saw);
        assert_eq!(graph.cycle().unwrap().len(), 2);
    }

    #[test]
    fn timelines_order_what_ended_before_what_began() {
        let mut graph = Graph::new(3);
        // 0 ends at 5; 1 begins at 5 (no order), 2 begins at 6.
        graph.timeline(vec![(5, 0)], vec![(5, 1), (6, 2)], Why::RealTime);
        graph.edge(1, 0, Why::Saw);
        assert_eq!(graph.cycle(), None);
        graph.edge(2, 1, Why::Saw);
        assert_eq!(graph.cycle().unwrap(), [(0, Why::RealTime), (2, Why::Saw), (1, Why::Saw)]);
    }
}
