//! Strongly connected components of a dependency graph, in the order in which they may be executed: Tarjan's search
//! without recursion, as a component can be as long as the number of clients, and the stack of a thread is bounded.
//!
//! A search begins at what has just become final and at what has waited for that, and ends at what is known to be held
//! up. So an instance is looked at when something that it waits for changes, not whenever anything does.

use std::collections::BTreeMap;
use std::fmt;

/// Instances and what each of them waits for.
pub(crate) trait Dependencies {
    /// Names an instance.
    type Id: Copy + Ord;

    /// Whether the instance is final here, so that what it waits for is known.
    fn is_final(&self, id: Self::Id) -> bool;

    /// Instances not executed here that this one must come after or together with.
    fn waits_for(&self, id: Self::Id) -> Vec<Self::Id>;
}

/// Final instances that cannot be executed yet, each beside one that is not final here and that it waits for, be it by
/// way of others.
#[derive(Clone)]
pub(crate) struct HeldUp<Id> {
    by: BTreeMap<Id, Id>,
    holds_up: BTreeMap<Id, Vec<Id>>,
}

impl<Id> Default for HeldUp<Id> {
    fn default() -> Self {
        Self { by: BTreeMap::new(), holds_up: BTreeMap::new() }
    }
}

/// It follows from the instances, but for the choice of one obstacle of several, which changes nothing.
impl<Id> fmt::Debug for HeldUp<Id> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HeldUp")
    }
}

impl<Id: Copy + Ord> HeldUp<Id> {
    fn insert(&mut self, id: Id, by: Id) {
        self.by.insert(id, by);
        self.holds_up.entry(by).or_default().push(id);
    }

    /// Takes out what was held up by one that is final now.
    pub(crate) fn take(&mut self, by: Id) -> Vec<Id> {
        let freed = self.holds_up.remove(&by).unwrap_or_default();
        for id in &freed {
            self.by.remove(id);
        }
        freed
    }
}

/// What can be executed now, and what stands in the way of the rest.
#[derive(Debug, PartialEq)]
pub(crate) struct Plan<Id> {
    /// Components, each after those that it waits for. Their members are in no order of meaning.
    pub(crate) components: Vec<Vec<Id>>,
    /// Instances that were found to hold others up, ascending.
    pub(crate) missing: Vec<Id>,
}

/// Finds what the final instances among `roots` allow. None of them may be held up as far as is known; what then is, is
/// noted.
pub(crate) fn plan<D: Dependencies>(graph: &D, held_up: &mut HeldUp<D::Id>, roots: &[D::Id]) -> Plan<D::Id> {
    let mut plan = Plan { components: Vec::new(), missing: Vec::new() };
    if let [alone] = roots
        && graph.is_final(*alone)
        && graph.waits_for(*alone).is_empty()
    {
        // As almost all are: nothing to search for.
        plan.components.push(vec![*alone]);
        return plan;
    }
    let mut search = Tarjan { graph, held_up, nodes: BTreeMap::new(), stack: Vec::new(), plan };
    for root in roots {
        if graph.is_final(*root) && !search.nodes.contains_key(root) {
            search.run(*root);
        }
    }
    search.plan.missing.sort_unstable();
    search.plan.missing.dedup();
    search.plan
}

struct Tarjan<'a, D: Dependencies> {
    graph: &'a D,
    held_up: &'a mut HeldUp<D::Id>,
    nodes: BTreeMap<D::Id, Node<D::Id>>,
    stack: Vec<D::Id>,
    plan: Plan<D::Id>,
}

#[derive(Clone, Copy)]
struct Node<Id> {
    order: usize,
    low: usize,
    on_stack: bool,
    /// What is not final and holds it up, if anything does.
    held_up_by: Option<Id>,
}

impl<D: Dependencies> Tarjan<'_, D> {
    fn run(&mut self, root: D::Id) {
        let mut path: Vec<(D::Id, Vec<D::Id>)> = Vec::new();
        self.enter(root, &mut path);
        while let Some((id, edges)) = path.last_mut() {
            let id = *id;
            if let Some(next) = edges.pop() {
                if let Some(node) = self.nodes.get(&next) {
                    let (order, on_stack, by) = (node.order, node.on_stack, node.held_up_by);
                    self.lower(id, on_stack.then_some(order), by);
                } else if let Some(by) = self.held_up.by.get(&next) {
                    self.lower(id, None, Some(*by));
                } else if self.graph.is_final(next) {
                    self.enter(next, &mut path);
                } else {
                    self.plan.missing.push(next);
                    self.lower(id, None, Some(next));
                }
            } else {
                path.pop();
                let Node { low, held_up_by, .. } = self.leave(id);
                if let Some((parent, _)) = path.last() {
                    self.lower(*parent, Some(low), held_up_by);
                }
            }
        }
    }

    fn enter(&mut self, id: D::Id, path: &mut Vec<(D::Id, Vec<D::Id>)>) {
        let order = self.nodes.len();
        self.nodes.insert(id, Node { order, low: order, on_stack: true, held_up_by: None });
        self.stack.push(id);
        path.push((id, self.graph.waits_for(id)));
    }

    fn lower(&mut self, id: D::Id, low: Option<usize>, held_up_by: Option<D::Id>) {
        let node = self.nodes.get_mut(&id).expect("on the path, so entered");
        node.low = low.map_or(node.low, |low| node.low.min(low));
        node.held_up_by = node.held_up_by.or(held_up_by);
    }

    /// Ends a node; if it is the first of its component, the component is complete.
    fn leave(&mut self, id: D::Id) -> Node<D::Id> {
        let node = self.nodes[&id];
        if node.low < node.order {
            return node;
        }
        let start = self.stack.iter().rposition(|other| *other == id).expect("entered and not yet left");
        let component = self.stack.split_off(start);
        let held_up_by = component.iter().find_map(|member| self.nodes[member].held_up_by);
        for member in &component {
            let node = self.nodes.get_mut(member).expect("on the stack, so entered");
            node.on_stack = false;
            node.held_up_by = held_up_by;
            if let Some(by) = held_up_by {
                self.held_up.insert(*member, by);
            }
        }
        if held_up_by.is_none() {
            self.plan.components.push(component);
        }
        Node { held_up_by, ..node }
    }
}
