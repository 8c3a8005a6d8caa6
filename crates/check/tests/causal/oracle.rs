//! The definitions of the causal family by the letter: every order of the updates, every source of each read and
//! every view is tried. For histories of a few operations.

use meridian_check::Model;
use meridian_protocol::history::{Ended, Event, Mode};

type Value = Option<String>;

/// An event, or one read of a read-only one.
struct Node {
    id: u64,
    session: String,
    invoke: i64,
    returned: Option<i64>,
    unknown: bool,
    reads: Vec<(String, Value)>,
    writes: Vec<(String, Value)>,
    level: String,
    after: Vec<u64>,
}

impl Node {
    fn before(&self, other: &Self) -> bool {
        self.session == other.session && self.returned.is_some_and(|returned| returned < other.invoke)
    }

    fn leaves(&self, key: &str) -> Option<&Value> {
        self.writes.iter().find(|(written, _)| written == key).map(|(_, value)| value)
    }

    fn asks(&self, model: Model, guarantee: &str) -> bool {
        let asked = match model {
            Model::Ryw => "ryw",
            Model::Mr => "mr",
            Model::Mw => "mr+mw",
            Model::Wfr => "mr+wfr",
            _ => &self.level,
        };
        asked == "cc" || asked.split('+').any(|part| part == guarantee)
    }
}

/// Whether the history obeys the model.
pub(crate) fn holds(model: Model, events: &[Event]) -> bool {
    let apart = !matches!(model, Model::CausalRot | Model::RealTimeCausal);
    let unknown: Vec<u64> =
        events.iter().filter(|event| event.outcome == Ended::Unknown).map(|event| event.id).collect();
    (0..1 << unknown.len()).any(|happened: u32| {
        let gone = |event: &&Event| {
            let index = unknown.iter().position(|id| *id == event.id);
            event.outcome != Ended::Failed && index.is_none_or(|index| happened >> index & 1 == 1)
        };
        let nodes: Vec<Node> =
            events.iter().filter(gone).flat_map(|event| nodes(events, event, apart)).collect();
        let mut sources = Vec::new();
        each_source(&nodes, &mut sources, &mut |sources| explained(model, &nodes, sources))
    })
}

/// Of which operations a message had told the session when it invoked `event`: whatever became of the operation that
/// the message is noted at, and what had returned to the sender's session by then.
fn told(events: &[Event], event: &Event) -> Vec<u64> {
    let mut told: Vec<u64> = Vec::new();
    let mut waiting = vec![event];
    while let Some(at) = waiting.pop() {
        let here =
            |other: &&Event| other.id == at.id || other.session == at.session && other.invoke < at.invoke;
        for receiver in events.iter().filter(here) {
            for sender in events.iter().filter(|sender| receiver.after.contains(&sender.id)) {
                let latest = sender.returned.unwrap_or(sender.invoke - 1).min(receiver.invoke - 1);
                let returned = |other: &&Event| {
                    let returned = other.returned.filter(|_| other.outcome == Ended::Ok);
                    other.session == sender.session && returned.is_some_and(|returned| returned <= latest)
                };
                let known = events.iter().filter(returned).map(|other| other.id);
                told.extend(known.filter(|id| *id != event.id));
                if !told.contains(&sender.id) {
                    told.push(sender.id);
                    waiting.extend(Some(sender).filter(|sender| sender.outcome != Ended::Ok));
                }
            }
        }
    }
    told
}

fn nodes(events: &[Event], event: &Event, apart: bool) -> Vec<Node> {
    let of = |mode| {
        let accesses = event.ops.iter().filter(move |access| access.mode == mode);
        accesses.map(|access| (access.key.clone(), access.value.clone())).collect::<Vec<_>>()
    };
    let (reads, writes) = (of(Mode::Read), of(Mode::Write));
    let node = |reads: Vec<(String, Value)>, writes: &[(String, Value)]| Node {
        id: event.id,
        session: event.session.clone(),
        invoke: event.invoke,
        returned: event.returned,
        unknown: event.outcome == Ended::Unknown,
        reads,
        writes: writes.to_vec(),
        level: event.level.clone().unwrap_or("cc".to_string()),
        after: told(events, event),
    };
    if event.outcome == Ended::Unknown {
        return vec![node(Vec::new(), &writes)];
    }
    if apart && writes.is_empty() && reads.len() > 1 {
        return reads.into_iter().map(|read| node(vec![read], &[])).collect();
    }
    vec![node(reads, &writes)]
}

/// Each read's source, in order of nodes and reads: an update or the beginning.
type Sources = Vec<Option<usize>>;

fn each_source(nodes: &[Node], chosen: &mut Sources, explained: &mut impl FnMut(&Sources) -> bool) -> bool {
    let reads: Vec<(usize, &(String, Value))> =
        nodes.iter().enumerate().flat_map(|(node, n)| n.reads.iter().map(move |read| (node, read))).collect();
    let Some((reader, (key, value))) = reads.get(chosen.len()) else { return explained(chosen) };
    let updates =
        (0..nodes.len()).filter(|update| update != reader && nodes[*update].leaves(key) == Some(value));
    let initial = value.is_none().then_some(None);
    for source in updates.map(Some).chain(initial) {
        chosen.push(source);
        if each_source(nodes, chosen, explained) {
            return true;
        }
        chosen.pop();
    }
    false
}

fn explained(model: Model, nodes: &[Node], sources: &Sources) -> bool {
    // An update of unknown outcome that nobody saw may as well not have happened: that is tried elsewhere.
    let unseen = |node: &usize| nodes[*node].unknown && !sources.contains(&Some(*node));
    if (0..nodes.len()).any(|node| unseen(&node)) {
        return false;
    }
    let updates: Vec<usize> = (0..nodes.len()).filter(|node| !nodes[*node].writes.is_empty()).collect();
    match model {
        Model::Causal | Model::CausalRot | Model::RealTimeCausal => {
            let Some(past) = past(nodes, sources) else { return false };
            permutations(&updates, &mut Vec::new(), &mut |order| {
                converges(nodes, sources, &past, order)
                    && (model != Model::RealTimeCausal || keeps_real_time(nodes, order))
            })
        }
        _ => permutations(&updates, &mut Vec::new(), &mut |order| {
            let tunable = Tunable { model, nodes, sources, order };
            tunable.writes_in_order() && tunable.views(&mut Vec::new())
        }),
    }
}

/// For each node all that it causally follows, or `None` if a node follows itself.
fn past(nodes: &[Node], sources: &Sources) -> Option<Vec<Vec<bool>>> {
    let count = nodes.len();
    let mut past = vec![vec![false; count]; count];
    let mut read = 0;
    for (node, past) in past.iter_mut().enumerate() {
        for (other, before) in past.iter_mut().enumerate() {
            *before |= nodes[other].before(&nodes[node]) || nodes[node].after.contains(&nodes[other].id);
        }
        for _ in &nodes[node].reads {
            if let Some(source) = sources[read] {
                past[source] = true;
            }
            read += 1;
        }
    }
    for middle in 0..count {
        for node in 0..count {
            for other in 0..count {
                past[node][other] |= past[node][middle] && past[middle][other];
            }
        }
    }
    (0..count).all(|node| !past[node][node]).then_some(past)
}

fn converges(nodes: &[Node], sources: &Sources, past: &[Vec<bool>], order: &[usize]) -> bool {
    let inverted =
        |(index, later): (usize, &usize)| order[..index].iter().any(|earlier| past[*earlier][*later]);
    if order.iter().enumerate().any(inverted) {
        return false;
    }
    let mut read = 0;
    for (node, n) in nodes.iter().enumerate() {
        for (key, _) in &n.reads {
            let last = order
                .iter()
                .rev()
                .find(|update| past[node][**update] && nodes[**update].leaves(key).is_some());
            if last.copied() != sources[read] {
                return false;
            }
            read += 1;
        }
    }
    true
}

fn keeps_real_time(nodes: &[Node], order: &[usize]) -> bool {
    let before =
        |a: &usize, b: &usize| nodes[*a].returned.is_some_and(|returned| returned < nodes[*b].invoke);
    order
        .iter()
        .enumerate()
        .all(|(index, later)| order[..index].iter().all(|earlier| !before(later, earlier)))
}

struct Tunable<'a> {
    model: Model,
    nodes: &'a [Node],
    sources: &'a Sources,
    order: &'a [usize],
}

impl Tunable<'_> {
    fn place(&self, update: usize) -> usize {
        self.order.iter().position(|other| *other == update).expect("every update has a place")
    }

    fn asks(&self, node: usize, guarantee: &str) -> bool {
        self.nodes[node].asks(self.model, guarantee)
    }

    fn writes_in_order(&self) -> bool {
        self.order.iter().all(|update| {
            !self.asks(*update, "mw")
                || self.order.iter().all(|other| {
                    !self.nodes[*other].before(&self.nodes[*update])
                        || self.place(*other) < self.place(*update)
                })
        })
    }

    /// Views for the nodes from the first without one on, as sets of places in the order.
    fn views(&self, views: &mut Vec<u32>) -> bool {
        let node = views.len();
        if node == self.nodes.len() {
            return self.monotonic(views);
        }
        let choices = if self.nodes[node].reads.is_empty() { 1 } else { 1 << self.order.len() };
        for view in 0..choices {
            if !self.nodes[node].reads.is_empty() && !self.fits(node, view) {
                continue;
            }
            views.push(view);
            if self.views(views) {
                return true;
            }
            views.pop();
        }
        false
    }

    fn updates(&self, view: u32) -> impl Iterator<Item = usize> + '_ {
        self.order
            .iter()
            .copied()
            .enumerate()
            .filter(move |(place, _)| view >> place & 1 == 1)
            .map(|(_, node)| node)
    }

    /// All that concerns one view alone.
    fn fits(&self, node: usize, view: u32) -> bool {
        let n = &self.nodes[node];
        // Visibility is part of arbitration.
        if !n.writes.is_empty() && self.updates(view).any(|update| self.place(update) >= self.place(node)) {
            return false;
        }
        let first: usize = self.nodes[..node].iter().map(|node| node.reads.len()).sum();
        for (read, (key, _)) in n.reads.iter().enumerate() {
            let last = self.updates(view).filter(|update| self.nodes[*update].leaves(key).is_some()).last();
            if last != self.sources[first + read] {
                return false;
            }
        }
        let own = self.order.iter().filter(|update| self.nodes[**update].before(n));
        if self.asks(node, "ryw") && own.clone().any(|update| view >> self.place(*update) & 1 == 0) {
            return false;
        }
        if self.model == Model::TccClosed && !self.closed(view) {
            return false;
        }
        self.order.iter().all(|update| {
            let follows = n.before(&self.nodes[*update]) && self.asks(*update, "wfr");
            !follows || self.updates(view).all(|seen| self.place(seen) < self.place(*update))
        })
    }

    fn closed(&self, view: u32) -> bool {
        self.updates(view).all(|update| {
            let u = &self.nodes[update];
            let visible = |other: usize| view >> self.place(other) & 1 == 1;
            let mut own = self.order.iter().filter(|other| self.nodes[**other].before(u));
            if self.asks(update, "mw") && own.any(|other| !visible(*other)) {
                return false;
            }
            let mut read = 0;
            for n in self.nodes {
                for _ in &n.reads {
                    if self.asks(update, "wfr")
                        && n.before(u)
                        && self.sources[read].is_some_and(|seen| !visible(seen))
                    {
                        return false;
                    }
                    read += 1;
                }
            }
            true
        })
    }

    /// Monotonic reads, over all views.
    fn monotonic(&self, views: &[u32]) -> bool {
        let reads = |node: usize| !self.nodes[node].reads.is_empty();
        (0..views.len()).filter(|node| reads(*node) && self.asks(*node, "mr")).all(|node| {
            (0..views.len())
                .filter(|other| reads(*other) && self.nodes[*other].before(&self.nodes[node]))
                .all(|other| views[other] & !views[node] == 0)
        })
    }
}

fn permutations(items: &[usize], chosen: &mut Vec<usize>, accept: &mut impl FnMut(&[usize]) -> bool) -> bool {
    if chosen.len() == items.len() {
        return accept(chosen);
    }
    for item in items {
        if chosen.contains(item) {
            continue;
        }
        chosen.push(*item);
        if permutations(items, chosen, accept) {
            return true;
        }
        chosen.pop();
    }
    false
}
