//! A total order that bends to edges: each added edge moves as few nodes as it needs to, and one that would close
//! a cycle is refused with the way that stands against it.
//!
//! The order is kept as Pearce and Kelly keep theirs ("A dynamic topological sort algorithm for directed acyclic
//! graphs", 2007): only nodes between the two ends of an edge that points backwards can be out of place. Edges
//! are taken back in the reverse of the order in which they came; the places stay, as they are good for fewer
//! edges too.

use super::clauses::Literal;
use crate::graph::Adjacency;
use std::collections::VecDeque;

/// A node of the graph that is ordered.
type Node = u32;

/// Nodes in an order that follows every edge.
pub(crate) struct Places<'a> {
    /// Each node's place in the order.
    place: Vec<u32>,
    /// The node at each place.
    node: Vec<Node>,
    /// Edges that are there for good, and the same backwards.
    fixed: (&'a Adjacency, &'a Adjacency),
    /// Edges that were supposed, from each node, with the supposition.
    onward: Vec<Vec<(Node, Literal)>>,
    /// The same to each node.
    backward: Vec<Vec<Node>>,
    /// Nodes met by the search that is under way.
    met: Vec<bool>,
    /// How many nodes were looked at.
    pub(crate) work: u64,
}

impl<'a> Places<'a> {
    /// Nodes in `order`, which follows the `fixed` edges (forwards and backwards).
    pub(crate) fn new(fixed: (&'a Adjacency, &'a Adjacency), order: &[usize]) -> Self {
        let mut place = vec![0; order.len()];
        for (at, node) in order.iter().enumerate() {
            place[*node] = at as u32;
        }
        Self {
            place,
            node: order.iter().map(|node| *node as Node).collect(),
            fixed,
            onward: vec![Vec::new(); order.len()],
            backward: vec![Vec::new(); order.len()],
            met: vec![false; order.len()],
            work: 0,
        }
    }

    /// Whether `a` stands before `b`.
    pub(crate) fn before(&self, a: usize, b: usize) -> bool {
        self.place[a] < self.place[b]
    }

    /// Where a node stands.
    pub(crate) fn of(&self, node: usize) -> u32 {
        self.place[node]
    }

    /// All nodes in order.
    pub(crate) fn order(&self) -> impl Iterator<Item = usize> + '_ {
        self.node.iter().map(|node| *node as usize)
    }

    /// Puts `from` before `to`, as `supposed`.
    ///
    /// # Errors
    /// The suppositions by which `to` comes before `from`.
    pub(crate) fn add(&mut self, from: usize, to: usize, supposed: Literal) -> Result<(), Vec<Literal>> {
        if self.place[to] <= self.place[from] {
            self.make_way(from as Node, to as Node)?;
        }
        self.onward[from].push((to as Node, supposed));
        self.backward[to].push(from as Node);
        Ok(())
    }

    /// Takes back the edge added last, which was this one.
    pub(crate) fn remove(&mut self, from: usize, to: usize) {
        self.onward[from].pop();
        self.backward[to].pop();
    }

    /// Moves what comes after `to` behind what comes before `from`.
    fn make_way(&mut self, from: Node, to: Node) -> Result<(), Vec<Literal>> {
        let Some(mut after) = self.after(to, from) else { return Err(self.way(to, from)) };
        let mut before = self.before_within(from, self.place[to as usize]);
        self.work += (after.len() + before.len()) as u64;
        let place = &self.place;
        after.sort_unstable_by_key(|node| place[*node as usize]);
        before.sort_unstable_by_key(|node| place[*node as usize]);
        let moved: Vec<Node> = before.into_iter().chain(after).collect();
        let mut free: Vec<u32> = moved.iter().map(|node| place[*node as usize]).collect();
        free.sort_unstable();
        for (node, at) in moved.into_iter().zip(free) {
            self.place[node as usize] = at;
            self.node[at as usize] = node;
        }
        Ok(())
    }

    /// What comes after `start`, itself included, and stands before `end`; `None` if `end` comes after it.
    fn after(&mut self, start: Node, end: Node) -> Option<Vec<Node>> {
        let limit = self.place[end as usize];
        let mut found = vec![start];
        self.met[start as usize] = true;
        let mut next = 0;
        let mut cycle = start == end;
        while next < found.len() && !cycle {
            let node = found[next] as usize;
            next += 1;
            let supposed = self.onward[node].iter().map(|(to, _)| *to as usize);
            for to in self.fixed.0.after(node).chain(supposed) {
                cycle |= to == end as usize;
                if self.place[to] < limit && !std::mem::replace(&mut self.met[to], true) {
                    found.push(to as Node);
                }
            }
        }
        for node in &found {
            self.met[*node as usize] = false;
        }
        (!cycle).then_some(found)
    }

    /// What comes before `end`, itself included, and stands at `limit` or later.
    fn before_within(&mut self, end: Node, limit: u32) -> Vec<Node> {
        let mut found = vec![end];
        self.met[end as usize] = true;
        let mut next = 0;
        while next < found.len() {
            let node = found[next] as usize;
            next += 1;
            let supposed = self.backward[node].iter().map(|from| *from as usize);
            for from in self.fixed.1.after(node).chain(supposed) {
                if self.place[from] >= limit && !std::mem::replace(&mut self.met[from], true) {
                    found.push(from as Node);
                }
            }
        }
        for node in &found {
            self.met[*node as usize] = false;
        }
        found
    }

    /// The suppositions of a way from `start` to `end` that has the fewest. There is one.
    fn way(&mut self, start: Node, end: Node) -> Vec<Literal> {
        let limit = self.place[end as usize];
        let mut came: Vec<(Node, Option<Literal>)> = Vec::new();
        let mut found: Vec<Node> = Vec::new();
        let mut from: std::collections::HashMap<Node, (Node, Option<Literal>)> =
            std::collections::HashMap::new();
        let mut near = VecDeque::from([(start, start, None)]);
        while let Some((node, previous, by)) = near.pop_front() {
            if from.contains_key(&node) {
                continue;
            }
            from.insert(node, (previous, by));
            found.push(node);
            if node == end {
                break;
            }
            for to in self.fixed.0.after(node as usize) {
                if self.place[to] <= limit && !from.contains_key(&(to as Node)) {
                    near.push_front((to as Node, node, None));
                }
            }
            for (to, by) in &self.onward[node as usize] {
                if self.place[*to as usize] <= limit && !from.contains_key(to) {
                    near.push_back((*to, node, Some(*by)));
                }
            }
        }
        self.work += found.len() as u64;
        let mut at = end;
        while at != start {
            let Some((previous, by)) = from.get(&at).copied() else { break };
            came.push((previous, by));
            at = previous;
        }
        came.into_iter().filter_map(|(_, by)| by).collect()
    }
}
