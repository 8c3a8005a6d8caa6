//! Search for a legal order of a short history, exact and without a witness.
//!
//! The models differ only in which operations must come before which. First the constraints are *saturated*
//! with what the values force: an operation that read `w` on a key cannot have another update of that key
//! between it and `w`. A cycle refuses the history at once. Then a depth-first search builds the order from its
//! beginning; it remembers every (set of operations done, state of the keys) from which no way led on.

use crate::Judgement;
use crate::graph::{Graph, Why};
use crate::operations::{ABSENT, Op, Operations, Value};
use crate::rsc::told;
use meridian_protocol::history::Ended;
use std::collections::{HashMap, HashSet};

/// Operations to order, and what they must keep.
pub(crate) struct Problem<'a> {
    /// The history.
    pub(crate) operations: &'a Operations<'a>,
    /// Which of its operations to order.
    pub(crate) members: Vec<Op>,
    /// Whether, and why, the first must come before the second.
    pub(crate) ordered: &'a dyn Fn(Op, Op) -> Option<Why>,
}

/// A set of members, one bit each.
type Set = u128;

/// The most operations that are searched.
const LONGEST: usize = Set::BITS as usize;

/// The most points of the search before it is given up.
const BUDGET: usize = 1_000_000;

/// Judges a problem: holds with an order, violated with a reason, or undecided when it is too big.
pub(crate) fn solve(problem: &Problem<'_>) -> Judgement {
    let members = relevant(problem.operations, &problem.members);
    if members.len() > LONGEST {
        return Judgement::undecided(format!(
            "{} operations without a full witness are too many to search: at most {LONGEST}",
            members.len()
        ));
    }
    match attempt(problem, &members) {
        Attempt::Ordered(order) => {
            let names: Vec<String> = order.iter().take(6).map(|op| problem.operations.name(*op)).collect();
            let more = if order.len() > names.len() { " …" } else { "" };
            Judgement::holds(format!("{} operations in order: {}{more}", order.len(), names.join(" < ")))
        }
        Attempt::Refused(reason) => Judgement::violated(reason),
        Attempt::Exhausted => {
            let core = core(problem, members);
            let names: Vec<String> = core.iter().map(|op| problem.operations.name(*op)).collect();
            Judgement::violated(format!("no order explains these together: {}", names.join(", ")))
        }
        Attempt::GaveUp => Judgement::undecided(format!(
            "no order found, and not all refused, after {BUDGET} steps of search"
        )),
    }
}

enum Attempt {
    /// A legal order, operations without effect included.
    Ordered(Vec<Op>),
    /// No order can exist, for the reason told.
    Refused(String),
    /// All orders have been tried.
    Exhausted,
    /// The budget was spent.
    GaveUp,
}

/// Leaves out what cannot matter: operations that failed, and those of unknown outcome that nobody has seen.
/// To drop an unseen update from a legal order leaves it legal.
fn relevant(operations: &Operations<'_>, members: &[Op]) -> Vec<Op> {
    let mut seen: HashSet<(usize, Value)> = HashSet::new();
    for &op in members.iter().filter(|&&op| operations.all[op].outcome != Ended::Failed) {
        for touch in &operations.all[op].touches {
            seen.extend(touch.read.map(|value| (touch.key, value)));
        }
    }
    let counts = |op: &Op| match operations.all[*op].outcome {
        Ended::Ok => true,
        Ended::Failed => false,
        Ended::Unknown => operations.all[*op]
            .touches
            .iter()
            .any(|touch| touch.write.is_some_and(|value| seen.contains(&(touch.key, value)))),
    };
    members.iter().copied().filter(counts).collect()
}

/// The smallest set found, by leaving out one operation after another, that still has no order.
fn core(problem: &Problem<'_>, mut members: Vec<Op>) -> Vec<Op> {
    let mut index = members.len();
    while index > 0 {
        index -= 1;
        let Some(&op) = members.get(index) else { continue };
        let fewer = without(problem.operations, &members, op);
        if matches!(attempt(problem, &fewer), Attempt::Exhausted | Attempt::Refused(_)) {
            members = fewer;
        }
    }
    members
}

/// All but `gone` and those that read what it alone wrote.
fn without(operations: &Operations<'_>, members: &[Op], gone: Op) -> Vec<Op> {
    let mut left: Vec<Op> = members.iter().copied().filter(|op| *op != gone).collect();
    loop {
        let written: HashSet<(usize, Value)> = left
            .iter()
            .flat_map(|op| &operations.all[*op].touches)
            .filter_map(|touch| Some((touch.key, touch.write?)))
            .collect();
        let explained = |op: &Op| {
            operations.all[*op].touches.iter().all(|touch| {
                touch.read.is_none_or(|value| value == ABSENT || written.contains(&(touch.key, value)))
            })
        };
        let before = left.len();
        left.retain(explained);
        if left.len() == before {
            return left;
        }
    }
}

fn attempt(problem: &Problem<'_>, members: &[Op]) -> Attempt {
    let mut constraints = match Constraints::new(problem, members) {
        Ok(constraints) => constraints,
        Err(reason) => return Attempt::Refused(reason),
    };
    if let Err(reason) = constraints.saturate() {
        return Attempt::Refused(reason);
    }
    let mut search = Search::new(&constraints);
    let state = vec![ABSENT; problem.operations.keys.len()];
    match search.extend(0, state) {
        Some(true) => {
            let order = search.order.iter().map(|member| members[*member]).collect();
            Attempt::Ordered(order)
        }
        Some(false) => Attempt::Exhausted,
        None => Attempt::GaveUp,
    }
}

/// What must come before what, among members.
struct Constraints<'a> {
    operations: &'a Operations<'a>,
    members: &'a [Op],
    edges: Vec<(usize, usize, Why)>,
    /// Direct predecessors of each member.
    before: Vec<Set>,
    /// Members that are certain to have happened.
    certain: Set,
    /// For each key and value who writes it.
    writers: HashMap<(usize, Value), Vec<usize>>,
}

impl<'a> Constraints<'a> {
    fn new(problem: &Problem<'a>, members: &'a [Op]) -> Result<Self, String> {
        let operations = problem.operations;
        let mut constraints = Self {
            operations,
            members,
            edges: Vec::new(),
            before: vec![0; members.len()],
            certain: 0,
            writers: HashMap::new(),
        };
        for (a, &first) in members.iter().enumerate() {
            for touch in &operations.all[first].touches {
                if let Some(value) = touch.write {
                    constraints.writers.entry((touch.key, value)).or_default().push(a);
                }
            }
            for (b, &second) in members.iter().enumerate() {
                if let Some(why) = (problem.ordered)(first, second).filter(|_| a != b) {
                    constraints.edge(a, b, why);
                }
            }
        }
        constraints.find_certain()?;
        Ok(constraints)
    }

    fn edge(&mut self, a: usize, b: usize, why: Why) {
        if self.before[b] >> a & 1 == 0 {
            self.before[b] |= 1 << a;
            self.edges.push((a, b, why));
        }
    }

    /// An operation is certain if it ended ok, or if it is the only one that writes what a certain one read.
    fn find_certain(&mut self) -> Result<(), String> {
        let mut waiting: Vec<usize> =
            (0..self.members.len()).filter(|m| self.operation(*m).is_ok()).collect();
        while let Some(member) = waiting.pop() {
            self.certain |= 1 << member;
            for touch in &self.operations.all[self.members[member]].touches {
                let Some(value) = touch.read.filter(|value| *value != ABSENT) else { continue };
                match self.writers.get(&(touch.key, value)).map_or(&[][..], |writers| writers) {
                    [] => {
                        return Err(format!(
                            "{} read {} from {}, which no operation that may have happened wrote",
                            self.operations.name(self.members[member]),
                            self.operations.value(value),
                            self.operations.key(touch.key)
                        ));
                    }
                    [only] if self.certain >> only & 1 == 0 => waiting.push(*only),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn operation(&self, member: usize) -> &'a crate::operations::Operation {
        &self.operations.all[self.members[member]]
    }

    /// Adds what the values force, until nothing more follows.
    fn saturate(&mut self) -> Result<(), String> {
        let reads = self.reads();
        for &(reader, _, writer) in &reads {
            if let Some(writer) = writer.filter(|writer| *writer != reader) {
                self.edge(writer, reader, Why::Saw);
            }
        }
        loop {
            let edges = self.edges.len();
            let reach = self.reach();
            if (0..self.members.len()).any(|member| reach[member] >> member & 1 == 1) {
                return Err(self.explain_cycle());
            }
            for &(reader, key, writer) in &reads {
                for other in 0..self.members.len() {
                    let replaces =
                        self.operation(other).touches.iter().any(|t| t.key == key && t.write.is_some());
                    if !replaces || other == reader || Some(other) == writer {
                        continue;
                    }
                    match writer {
                        None => self.edge(reader, other, Why::Replaced),
                        Some(writer) if reach[writer] >> other & 1 == 1 => {
                            self.edge(reader, other, Why::Replaced);
                        }
                        Some(writer) if reach[other] >> reader & 1 == 1 && self.certain >> other & 1 == 1 => {
                            self.edge(other, writer, Why::Replaced);
                        }
                        Some(_) => {}
                    }
                }
            }
            if self.edges.len() == edges {
                return Ok(());
            }
        }
    }

    /// Reads of certain operations whose writer is certain too: (reader, key, writer), where `None` is the
    /// initial state.
    fn reads(&self) -> Vec<(usize, usize, Option<usize>)> {
        let mut reads = Vec::new();
        for reader in (0..self.members.len()).filter(|m| self.certain >> m & 1 == 1) {
            for touch in &self.operation(reader).touches {
                let Some(value) = touch.read else { continue };
                match (value, self.writers.get(&(touch.key, value)).map_or(&[][..], |writers| writers)) {
                    (ABSENT, []) => reads.push((reader, touch.key, None)),
                    (ABSENT, _) => {}
                    (_, [writer]) => reads.push((reader, touch.key, Some(*writer))),
                    _ => {}
                }
            }
        }
        reads
    }

    /// For each member all that it comes before.
    fn reach(&self) -> Vec<Set> {
        let mut reach: Vec<Set> = vec![0; self.members.len()];
        for &(a, b, _) in &self.edges {
            reach[a] |= 1 << b;
        }
        for middle in 0..self.members.len() {
            let beyond = reach[middle];
            for row in &mut reach {
                if *row >> middle & 1 == 1 {
                    *row |= beyond;
                }
            }
        }
        reach
    }

    fn explain_cycle(&self) -> String {
        let mut graph = Graph::new(self.members.len());
        for &(a, b, why) in &self.edges {
            graph.edge(a, b, why);
        }
        let cycle = graph.cycle().expect("a member was found to come before itself");
        let named: Vec<(Op, Why)> =
            cycle.into_iter().map(|(member, why)| (self.members[member], why)).collect();
        told(self.operations, &named)
    }
}

/// The depth-first search.
struct Search<'a> {
    constraints: &'a Constraints<'a>,
    /// What an order must contain.
    required: Set,
    dead_ends: HashSet<(Set, Vec<Value>)>,
    steps: usize,
    order: Vec<usize>,
}

impl<'a> Search<'a> {
    fn new(constraints: &'a Constraints<'a>) -> Self {
        let ok = (0..constraints.members.len()).filter(|m| constraints.operation(*m).is_ok());
        let required = ok.fold(0, |set, member| set | 1 << member);
        Self { constraints, required, dead_ends: HashSet::new(), steps: 0, order: Vec::new() }
    }

    /// Extends the order so far to a full one; `None` when the budget is spent.
    fn extend(&mut self, done: Set, state: Vec<Value>) -> Option<bool> {
        let length = self.order.len();
        let done = self.take_reads(done, &state);
        if done & self.required == self.required {
            return Some(true);
        }
        let point = (done, state);
        if !self.dead_ends.contains(&point) {
            self.steps += 1;
            if self.steps > BUDGET {
                return None;
            }
            for member in (0..self.constraints.members.len()).filter(|m| done >> m & 1 == 0) {
                if !self.may_follow(member, done, &point.1) {
                    continue;
                }
                let mut next = point.1.clone();
                for touch in &self.constraints.operation(member).touches {
                    if let Some(value) = touch.write {
                        next[touch.key] = value;
                    }
                }
                self.order.push(member);
                if self.extend(done | 1 << member, next)? {
                    return Some(true);
                }
                self.order.pop();
            }
            self.dead_ends.insert(point);
        }
        self.order.truncate(length);
        Some(false)
    }

    /// Operations that only read can go first wherever they fit: nothing is lost by it.
    fn take_reads(&mut self, mut done: Set, state: &[Value]) -> Set {
        loop {
            let before = done;
            for member in (0..self.constraints.members.len()).filter(|m| before >> m & 1 == 0) {
                if !self.constraints.operation(member).updates() && self.may_follow(member, done, state) {
                    done |= 1 << member;
                    self.order.push(member);
                }
            }
            if done == before {
                return done;
            }
        }
    }

    fn may_follow(&self, member: usize, done: Set, state: &[Value]) -> bool {
        let fits = |key: usize, read: Option<Value>| read.is_none_or(|value| state[key] == value);
        self.constraints.before[member] & !done == 0
            && self.constraints.operation(member).touches.iter().all(|touch| fits(touch.key, touch.read))
    }
}
