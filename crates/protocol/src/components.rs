//! Strongly connected components of a dependency graph, in the order in which they may be executed: Tarjan's search
//! without recursion, as a component can be as long as the number of clients, and the stack of a thread is bounded.

use std::collections::BTreeMap;

/// Instances and what each of them waits for.
pub(crate) trait Dependencies {
    /// Names an instance.
    type Id: Copy + Ord;

    /// Whether the instance is final here, so that what it waits for is known.
    fn is_final(&self, id: Self::Id) -> bool;

    /// Instances not executed here that this one must come after or together with.
    fn waits_for(&self, id: Self::Id) -> Vec<Self::Id>;
}

/// What can be executed now, and what stands in the way of the rest.
#[derive(Debug, PartialEq)]
pub(crate) struct Plan<Id> {
    /// Components, each after those that it waits for. Their members are in no order of meaning.
    pub(crate) components: Vec<Vec<Id>>,
    /// Instances that final ones wait for and that are not final here, ascending.
    pub(crate) missing: Vec<Id>,
}

/// Finds what the final instances among `roots` allow.
pub(crate) fn plan<D: Dependencies>(graph: &D, roots: impl Iterator<Item = D::Id>) -> Plan<D::Id> {
    let plan = Plan { components: Vec::new(), missing: Vec::new() };
    let mut search = Tarjan { graph, nodes: BTreeMap::new(), stack: Vec::new(), plan };
    for root in roots {
        if graph.is_final(root) && !search.nodes.contains_key(&root) {
            search.run(root);
        }
    }
    search.plan.missing.sort_unstable();
    search.plan.missing.dedup();
    search.plan
}

struct Tarjan<'a, D: Dependencies> {
    graph: &'a D,
    nodes: BTreeMap<D::Id, Node>,
    stack: Vec<D::Id>,
    plan: Plan<D::Id>,
}

struct Node {
    order: usize,
    low: usize,
    on_stack: bool,
    /// It, or something that it waits for, is not final.
    blocked: bool,
}

impl<D: Dependencies> Tarjan<'_, D> {
    fn run(&mut self, root: D::Id) {
        let mut path: Vec<(D::Id, Vec<D::Id>)> = Vec::new();
        self.enter(root, &mut path);
        while let Some((id, edges)) = path.last_mut() {
            let id = *id;
            if let Some(next) = edges.pop() {
                if let Some(node) = self.nodes.get(&next) {
                    let (order, on_stack, blocked) = (node.order, node.on_stack, node.blocked);
                    self.lower(id, on_stack.then_some(order), blocked);
                } else if self.graph.is_final(next) {
                    self.enter(next, &mut path);
                } else {
                    self.plan.missing.push(next);
                    self.lower(id, None, true);
                }
            } else {
                path.pop();
                let (low, blocked) = self.leave(id);
                if let Some((parent, _)) = path.last() {
                    self.lower(*parent, Some(low), blocked);
                }
            }
        }
    }

    fn enter(&mut self, id: D::Id, path: &mut Vec<(D::Id, Vec<D::Id>)>) {
        let order = self.nodes.len();
        self.nodes.insert(id, Node { order, low: order, on_stack: true, blocked: false });
        self.stack.push(id);
        path.push((id, self.graph.waits_for(id)));
    }

    fn lower(&mut self, id: D::Id, low: Option<usize>, blocked: bool) {
        let node = self.nodes.get_mut(&id).expect("on the path, so entered");
        node.low = low.map_or(node.low, |low| node.low.min(low));
        node.blocked |= blocked;
    }

    /// Ends a node; if it is the first of its component, the component is complete.
    fn leave(&mut self, id: D::Id) -> (usize, bool) {
        let Node { order, low, blocked, .. } = self.nodes[&id];
        if low == order {
            let start = self.stack.iter().rposition(|other| *other == id).expect("entered and not yet left");
            let component = self.stack.split_off(start);
            let blocked = component.iter().any(|member| self.nodes[member].blocked);
            for member in &component {
                let node = self.nodes.get_mut(member).expect("on the stack, so entered");
                node.on_stack = false;
                node.blocked = blocked;
            }
            if !blocked {
                self.plan.components.push(component);
            }
            return (low, blocked);
        }
        (low, blocked)
    }
}
