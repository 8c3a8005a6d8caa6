//! Judges histories: did what the sessions saw obey the consistency model that they were promised?
//!
//! [`Model`] names the models and says which implies which. They come in three families, one room each:
//!
//! - `order/`: models that want *one legal order of all operations* which keeps more or less of real time, of
//!   sessions' own order and of messages: from linearizability down to serializability.
//! - `causal/`: models in which each read has its own view: causal consistency, session guarantees, convergence.
//! - `neighbours/`: the remaining models of the RSS paper's appendix A, by exhaustive search of short histories.
//!
//! A history is judged in one of two ways:
//!
//! - by *witness*: the engine attached to each operation a proof of its place (a carstamp, a commit timestamp,
//!   a version), and this very order is verified. Near-linear time, any length. An order that is refused
//!   convicts the engine even where another order would have explained the values.
//! - by *search*: any legal order will do; nothing is needed but the values. What the values force is derived
//!   first, in polynomial time; then an order is looked for, within a budget. The answer may be "undecided".

mod causal;
mod explain;
mod graph;
pub mod history;
mod model;
mod neighbours;
mod operations;
mod order;
mod sources;
mod timeline;
mod transform;

pub use explain::{Explanation, explain};
pub use graph::Why;
pub use model::Model;
pub use timeline::page;
pub use transform::{Transformed, transform};

use meridian_protocol::history::Event;
use operations::{Op, Operations};
use std::fmt;

/// Whether a history obeys a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It does.
    Holds,
    /// It does not.
    Violated,
    /// It could not be told: no witness, and too long to search.
    Undecided,
    /// The model says nothing about operations of this kind.
    NotApplicable,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Holds => "holds",
            Self::Violated => "violated",
            Self::Undecided => "undecided",
            Self::NotApplicable => "n/a",
        })
    }
}

/// A verdict and its reason, in words that name the operations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// The verdict.
    pub verdict: Verdict,
    /// Why, in one line.
    pub reason: String,
    /// Operations that cannot be ordered, each with the reason why it must come before the next (the last before
    /// the first). Empty unless the reason of a violation is such a cycle.
    pub cycle: Vec<Step>,
}

/// One step of a cycle of reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The operation's id.
    pub id: u64,
    /// Why it must come before the next.
    pub why: Why,
}

impl Judgement {
    fn new(verdict: Verdict, reason: impl Into<String>) -> Self {
        Self { verdict, reason: reason.into(), cycle: Vec::new() }
    }

    fn holds(reason: impl Into<String>) -> Self {
        Self::new(Verdict::Holds, reason)
    }

    fn violated(reason: impl Into<String>) -> Self {
        Self::new(Verdict::Violated, reason)
    }

    fn undecided(reason: impl Into<String>) -> Self {
        Self::new(Verdict::Undecided, reason)
    }

    fn not_applicable(reason: impl Into<String>) -> Self {
        Self::new(Verdict::NotApplicable, reason)
    }

    /// Violated, as each operation of `cycle` must come before the next.
    fn cyclic(operations: &Operations<'_>, cycle: &[(Op, Why)]) -> Self {
        let first = cycle.first().map_or(String::new(), |(op, _)| operations.name(*op));
        let nexts = cycle.iter().skip(1).map(|(op, _)| operations.name(*op)).chain([first.clone()]);
        let links: Vec<String> =
            cycle.iter().zip(nexts).map(|((_, why), next)| format!("{} {next}", why.words())).collect();
        let text = format!("no order can keep all of this: {first} {}", links.join(", which "));
        let steps = cycle.iter().map(|(op, why)| Step { id: operations.events[*op].id, why: *why });
        Self { cycle: steps.collect(), ..Self::violated(text) }
    }
}

/// What a judgement goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Evidence {
    /// Witnesses if all operations have one, and values otherwise.
    Best,
    /// Witnesses only.
    Witness,
    /// Values only, with so much work at most where one order is searched for.
    Values(u64),
}

/// Judges a history by its witnesses if every operation that ended well carries one, and by search otherwise.
pub fn check(model: Model, events: &[Event]) -> Judgement {
    judge(model, events, Evidence::Best)
}

/// Judges a history by its witnesses alone.
pub fn by_witness(model: Model, events: &[Event]) -> Judgement {
    judge(model, events, Evidence::Witness)
}

/// Judges a history by its values alone, whatever the witnesses say.
pub fn by_search(model: Model, events: &[Event]) -> Judgement {
    judge(model, events, Evidence::Values(order::BUDGET))
}

/// The same with a share of the work that [`by_search`] would put into the search for one order before it gives up,
/// 1 for as much. A violation that follows without a search is found with 0.
pub fn by_short_search(model: Model, events: &[Event], share: f64) -> Judgement {
    judge(model, events, Evidence::Values((order::BUDGET as f64 * share) as u64))
}

/// An order of the operations, as indices into `events`, that shows that the history obeys `model`. Operations
/// that failed, or of unknown outcome and never seen, are not in it.
///
/// # Errors
/// The judgement if the history does not obey the model, if that could not be told, or if the model wants no one
/// order of all operations.
pub fn order(model: Model, events: &[Event]) -> Result<Vec<usize>, Judgement> {
    order::find(model, &applicable(model, events)?, Evidence::Best)
}

/// The history in the form in which `model` judges it.
///
/// # Errors
/// That it contradicts itself, or that the model does not speak of such operations.
fn applicable(model: Model, events: &[Event]) -> Result<Operations<'_>, Judgement> {
    let operations = Operations::new(events).map_err(Judgement::violated)?;
    let transaction = (0..operations.all.len()).find(|op| operations.all[*op].touches.len() > 1);
    if let (Some(other), Some(op)) = (model.for_transactions(), transaction) {
        let name = operations.name(op);
        return Err(Judgement::not_applicable(format!("{name} is a transaction: {other} judges those")));
    }
    Ok(operations)
}

/// Judges by the room that the model belongs to.
fn judge(model: Model, events: &[Event], evidence: Evidence) -> Judgement {
    let operations = match applicable(model, events) {
        Ok(operations) => operations,
        Err(judgement) => return judgement,
    };
    match model {
        Model::Causal
        | Model::CausalRot
        | Model::RealTimeCausal
        | Model::Ryw
        | Model::Mr
        | Model::Mw
        | Model::Wfr
        | Model::TccSpec
        | Model::TccClosed
        | Model::Eventual => causal::judge(model, &operations, evidence),
        Model::StrongSi | Model::MwrWeak | Model::MwrWo | Model::MwrRf | Model::MwrNi => {
            neighbours::judge(model, &operations)
        }
        _ => match order::find(model, &operations, evidence) {
            Ok(order) => Judgement::holds(in_words(&operations, &order)),
            Err(judgement) => judgement,
        },
    }
}

/// The beginning of an order, for a person to follow.
fn in_words(operations: &Operations<'_>, order: &[Op]) -> String {
    let names: Vec<String> = order.iter().take(6).map(|op| operations.name(*op)).collect();
    let more = if order.len() > names.len() { " …" } else { "" };
    let noun = if order.len() == 1 { "operation" } else { "operations" };
    format!("{} {noun} in one order: {}{more}", order.len(), names.join(" < "))
}
