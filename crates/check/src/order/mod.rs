//! Models that want one legal order of all operations: an order in which every read sees what the last update of
//! its key before it left, and which keeps what the model demands.
//!
//! | file | what it says |
//! |---|---|
//! | `demands` | what each model's order must keep |
//! | `edges` | the same, as edges between the operations of a history |
//! | `carstamp`, `timestamp` | the order of versions that an engine's witnesses claim |
//! | `problem`, `saturate` | the question that a search answers; what the values force |
//! | `schedule`, `clauses`, `places` | the search: repair of an order, by a solver that learns, over an order that bends to edges |

mod carstamp;
mod clauses;
mod demands;
mod edges;
mod places;
mod problem;
mod saturate;
mod schedule;
mod sightings;
mod timestamp;
mod versions;

use crate::graph::{Graph, Why};
use crate::operations::{ABSENT, Op, Operations};
use crate::sources::{Source, Sources};
use crate::{Evidence, Judgement, Model};
use demands::Demands;
use edges::Cast;
use problem::Problem;
use saturate::{Chains, Read, Saturated};
pub(crate) use schedule::BUDGET;
use schedule::Found;
use std::collections::{BTreeMap, BTreeSet};
use versions::Versions;

/// An order of the operations that `model` allows.
///
/// # Errors
/// Why there is none, or that it could not be told by this evidence.
pub(crate) fn find(
    model: Model,
    operations: &Operations<'_>,
    evidence: Evidence,
) -> Result<Vec<Op>, Judgement> {
    let unwitnessed = || versions::first_without_witness(operations);
    match evidence {
        Evidence::Values(budget) => by_search(model, operations, budget),
        Evidence::Best if unwitnessed().is_some() => by_search(model, operations, BUDGET),
        Evidence::Best => by_witness(model, operations),
        Evidence::Witness => match unwitnessed() {
            None => by_witness(model, operations),
            Some(op) => Err(Judgement::undecided(format!("{} carries no witness", operations.name(op)))),
        },
    }
}

/// Verifies the order of versions that the witnesses claim: some order of all operations must extend it.
///
/// # Errors
/// Why there is none.
fn by_witness(model: Model, operations: &Operations<'_>) -> Result<Vec<Op>, Judgement> {
    let Some(demands) = Demands::of(model) else {
        return Err(Judgement::not_applicable("it wants no one order"));
    };
    // Where a commit stands that was seen and never answered is read off what was seen. It may have been another's that left
    // the same value: what contradicts is judged without.
    match extend(demands, operations, true) {
        Err(judgement) if judgement.verdict == crate::Verdict::Violated => extend(demands, operations, false),
        judged => judged,
    }
}

/// Extends the order of versions that the witnesses claim; `supposed` with commits whose place only those tell who saw them.
///
/// # Errors
/// Why it cannot be.
fn extend(demands: Demands, operations: &Operations<'_>, supposed: bool) -> Result<Vec<Op>, Judgement> {
    let sources = Sources::new(operations);
    let versions = versions::claimed(operations, &sources, supposed).map_err(Judgement::violated)?;
    if versions.unplaced {
        let all: Vec<Op> = (0..operations.all.len()).collect();
        let sources = sources_to_search(demands, operations);
        return search(demands, operations, (&sources, &all), Some(&versions), BUDGET);
    }
    let mut graph = Graph::new(operations.all.len());
    versions_in_order(&mut graph, &versions, &versions.takes_part);
    let cast =
        Cast { operations, takes_part: &versions.takes_part, interchangeable: &versions.interchangeable };
    edges::add(&mut graph, demands, &cast);
    if demands.fences && operations.all.iter().any(|operation| operation.fence) {
        let writers = versions.writers();
        edges::add_fences(&mut graph, &cast, &|reader, key, _| writers.get(&(reader, key)).copied());
    }
    match graph.adjacency().topological() {
        Some(order) => Ok(order.into_iter().filter(|op| cast.takes_part.get(*op) == Some(&true)).collect()),
        None => Err(cyclic(operations, &graph)),
    }
}

/// Each update comes before its readers, and all of them before the next update; of those that take part.
fn versions_in_order(graph: &mut Graph, versions: &Versions, takes_part: &[bool]) {
    for chain in &versions.chains {
        let mut previous: Option<&versions::Version> = None;
        for version in chain.values().filter(|version| version.update.is_none_or(|update| takes_part[update]))
        {
            if let (Some(previous), Some(next)) = (previous, version.update) {
                for earlier in previous.update.iter().chain(&previous.readers) {
                    if *earlier != next {
                        graph.edge(*earlier, next, Why::Replaced);
                    }
                }
            }
            if let Some(update) = version.update {
                for &reader in version.readers.iter().filter(|reader| **reader != update) {
                    graph.edge(update, reader, Why::Saw);
                }
            }
            previous = Some(version);
        }
    }
}

fn cyclic(operations: &Operations<'_>, graph: &Graph) -> Judgement {
    match graph.cycle(|op| operations.all[op].invoke) {
        Some(cycle) => Judgement::cyclic(operations, &cycle),
        None => Judgement::undecided(
            "the order of the operations was refused without a cycle: a defect of the checker",
        ),
    }
}

/// Looks for any legal order. Where the model is local, and no operation touches several keys, key by key.
///
/// # Errors
/// Why there is none, or that it could not be told.
fn by_search(model: Model, operations: &Operations<'_>, budget: u64) -> Result<Vec<Op>, Judgement> {
    let Some(demands) = Demands::of(model) else {
        return Err(Judgement::not_applicable("it wants no one order"));
    };
    let sources = sources_to_search(demands, operations);
    let all: Vec<Op> = (0..operations.all.len()).collect();
    let one_key_each = operations.all.iter().all(|operation| operation.touches.len() <= 1);
    let told = operations.events.iter().any(|event| !event.after.is_empty());
    if told || !(demands.local() && one_key_each) {
        return search(demands, operations, (&sources, &all), None, budget);
    }
    let mut of_key: Vec<Vec<Op>> = vec![Vec::new(); operations.keys.len()];
    for op in all {
        if let Some(touch) = operations.all[op].touches.first() {
            of_key[touch.key].push(op);
        }
    }
    let mut undecided = None;
    let mut orders = Vec::new();
    for ops in of_key {
        match search(demands, operations, (&sources, &ops), None, budget) {
            Ok(order) => orders.push(order),
            Err(judgement) if judgement.verdict == crate::Verdict::Violated => return Err(judgement),
            Err(judgement) => undecided = Some(judgement),
        }
    }
    match undecided {
        Some(judgement) => Err(judgement),
        None => merged(demands, operations, &orders),
    }
}

/// One order of the orders of all keys, in real time: locality says that there is one.
fn merged(demands: Demands, operations: &Operations<'_>, orders: &[Vec<Op>]) -> Result<Vec<Op>, Judgement> {
    let mut graph = Graph::new(operations.all.len());
    let mut takes_part = vec![false; operations.all.len()];
    for order in orders {
        for pair in order.windows(2) {
            graph.edge(pair[0], pair[1], Why::Replaced);
        }
        for op in order {
            takes_part[*op] = true;
        }
    }
    edges::add(
        &mut graph,
        demands,
        &Cast { operations, takes_part: &takes_part, interchangeable: &BTreeSet::new() },
    );
    match graph.adjacency().topological() {
        Some(order) => Ok(order.into_iter().filter(|op| takes_part.get(*op) == Some(&true)).collect()),
        None => Err(Judgement::undecided("the keys' orders do not fit together: a defect of the checker")),
    }
}

/// Who wrote what, for a search.
fn sources_to_search(demands: Demands, operations: &Operations<'_>) -> Sources {
    let exact = fenced(demands, operations);
    Sources::of_updates(operations, |touch| problem::changed(touch, exact))
}

/// Whether there are fences to keep: what they ask for depends on who exactly wrote what was read.
fn fenced(demands: Demands, operations: &Operations<'_>) -> bool {
    demands.fences && operations.all.iter().any(|operation| operation.fence)
}

/// An order of `chosen`, if there is one; within the order of versions that is `claimed`, if any is.
///
/// # Errors
/// Why there is none, or that it could not be told.
fn search(
    demands: Demands,
    operations: &Operations<'_>,
    (sources, chosen): (&Sources, &[Op]),
    claimed: Option<&Versions>,
    budget: u64,
) -> Result<Vec<Op>, Judgement> {
    let fenced = fenced(demands, operations);
    let mut problem = Problem::new(operations, sources, chosen, fenced)?;
    let mut graph = Graph::new(operations.all.len());
    if let Some(versions) = claimed {
        versions_in_order(&mut graph, versions, &problem.takes_part);
    }
    add_demands(&mut graph, demands, &problem);
    let chains = Chains::new(&problem, demands.process);
    let open = loop {
        if fenced {
            add_fences(&mut graph, &problem);
        }
        let mut reads: Vec<_> = problem.reads().collect();
        let known = reads.len();
        let mut open: Vec<_> = problem.open().collect();
        match saturate::saturate(&mut graph, &chains, &mut reads, &mut open) {
            Saturated::Fixed | Saturated::TooLong => {}
            Saturated::Cyclic => return Err(cyclic(operations, &graph)),
            Saturated::Unexplained(read) => return Err(unexplained(operations, read)),
        }
        let more = problem.close(&reads[known..])?;
        // What is sure to have happened by now has read something too; and a fence asks for more when it turns out
        // what its session had seen.
        let again = more || (fenced && reads.len() > known);
        if !again {
            break open;
        }
    };
    match schedule::schedule(&problem, &graph, &open, budget) {
        Found::Order(order) if !certified(demands, &problem, &order) => {
            Err(Judgement::undecided("the order that was found is none: a defect of the checker"))
        }
        Found::Order(order) if fenced && !keeps_fences(&problem, &order) => Err(Judgement::undecided(
            "it is open who wrote some of what was read before a fence, and the order found does not keep the fence",
        )),
        Found::Order(order) => Ok(order),
        Found::None => {
            let count = problem.members.len();
            Err(Judgement::violated(format!(
                "no order explains all of the {count} operations that took part"
            )))
        }
        Found::GaveUp => Err(Judgement::undecided(
            "no order was found within the budget of the search, and nothing that rules one out: a witness would decide it",
        )),
    }
}

fn add_demands(graph: &mut Graph, demands: Demands, problem: &Problem<'_>) {
    let cast = Cast {
        operations: problem.operations,
        takes_part: &problem.takes_part,
        interchangeable: &BTreeSet::new(),
    };
    edges::add(graph, demands, &cast);
}

/// Whether an order is one by the definition, whatever led to it: all that ended well is in it once, each read sees
/// what the last update left, and it keeps what the model demands. (Fences apart.)
fn certified(demands: Demands, problem: &Problem<'_>, order: &[Op]) -> bool {
    let operations = problem.operations;
    let mut state = vec![ABSENT; operations.keys.len()];
    let mut times = vec![0; operations.all.len()];
    for &op in order {
        times[op] += 1;
        for touch in &operations.all[op].touches {
            if touch.read.is_some_and(|value| value != state[touch.key]) {
                return false;
            }
            state[touch.key] = touch.write.unwrap_or(state[touch.key]);
        }
    }
    let in_place = |op: &Op| times[*op] == 1 || (times[*op] == 0 && !operations.all[*op].is_ok());
    let mut graph = Graph::new(operations.all.len());
    for pair in order.windows(2) {
        graph.edge(pair[0], pair[1], Why::Replaced);
    }
    add_demands(&mut graph, demands, problem);
    problem.members.iter().all(in_place) && graph.adjacency().topological().is_some()
}

fn unexplained(operations: &Operations<'_>, read: Read) -> Judgement {
    Judgement::violated(format!(
        "{} can have read {} from none of those who wrote it: each comes after it or had been overwritten",
        operations.name(read.reader),
        operations.key(read.key)
    ))
}

/// What fences ask for, as far as it is known who wrote what was read.
fn add_fences(graph: &mut Graph, problem: &Problem<'_>) {
    let cast = Cast {
        operations: problem.operations,
        takes_part: &problem.takes_part,
        interchangeable: &BTreeSet::new(),
    };
    edges::add_fences(graph, &cast, &|reader, key, value| match problem.source(reader, key, value) {
        Source::Update(update) => Some(update),
        _ => None,
    });
}

/// Whether an order keeps what fences ask for, by what it says of who wrote what was read.
fn keeps_fences(problem: &Problem<'_>, order: &[Op]) -> bool {
    let operations = problem.operations;
    let mut newest: Vec<Option<Op>> = vec![None; operations.keys.len()];
    let mut writers: BTreeMap<(Op, usize), Op> = BTreeMap::new();
    for &op in order {
        for touch in &operations.all[op].touches {
            if let (Some(_), Some(writer)) = (touch.read, newest[touch.key]) {
                writers.insert((op, touch.key), writer);
            }
            if touch.write.is_some() {
                newest[touch.key] = Some(op);
            }
        }
    }
    let cast = Cast { operations, takes_part: &problem.takes_part, interchangeable: &BTreeSet::new() };
    edges::keeps_fences(&cast, &|reader, key, _| writers.get(&(reader, key)).copied(), order)
}
