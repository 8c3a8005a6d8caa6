//! Judges histories: did what the sessions saw obey the consistency model that they were promised?
//!
//! Each model has a file. It says which operations must come before which (`linearizable.rs`, `rsc.rs`), and a
//! history is judged in one of two ways:
//!
//! - by *witness*: the engine attached to each operation a proof of its place in the order (a carstamp), and
//!   the model's file verifies that this very order is legal. Fast, for histories of any length. An order that
//!   is refused convicts the engine even where another order would have explained the values.
//! - by *search* (`search.rs`): any legal order will do. Exact, needs nothing but the values, exponential; for
//!   short histories.

mod carstamp;
mod graph;
pub mod history;
mod linearizable;
mod operations;
mod rsc;
mod search;

use meridian_protocol::history::Event;
use operations::Operations;
use std::fmt;

/// A consistency model that can be judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Model {
    /// One order of all operations that respects real time. For transactions this is strict serializability.
    Linearizable,
    /// Regular sequential consistency (RSS/RSC, §3.3). For transactions this is RSS.
    Rsc,
}

impl Model {
    /// Every model with its name.
    pub const ALL: [(&'static str, Self); 2] = [("linearizable", Self::Linearizable), ("rsc", Self::Rsc)];

    /// The model of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, model)| *model)
    }
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.iter().find(|(_, model)| model == self).map_or("", |(name, _)| name);
        f.write_str(name)
    }
}

/// Whether a history obeys a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It does.
    Holds,
    /// It does not.
    Violated,
    /// It could not be told: no witness, and too long to search.
    Undecided,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Holds => "holds",
            Self::Violated => "violated",
            Self::Undecided => "undecided",
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
}

impl Judgement {
    fn holds(reason: impl Into<String>) -> Self {
        Self { verdict: Verdict::Holds, reason: reason.into() }
    }

    fn violated(reason: impl Into<String>) -> Self {
        Self { verdict: Verdict::Violated, reason: reason.into() }
    }

    fn undecided(reason: impl Into<String>) -> Self {
        Self { verdict: Verdict::Undecided, reason: reason.into() }
    }
}

/// Judges a history by its witnesses if every operation that ended well carries one, and by search otherwise.
pub fn check(model: Model, events: &[Event]) -> Judgement {
    judge(events, |operations| match operations.first_without_witness() {
        None => witnessed(model, operations),
        Some(_) => searched(model, operations),
    })
}

/// Judges a history by its witnesses alone.
pub fn by_witness(model: Model, events: &[Event]) -> Judgement {
    judge(events, |operations| match operations.first_without_witness() {
        None => witnessed(model, operations),
        Some(op) => Judgement::undecided(format!("{} carries no witness", operations.name(op))),
    })
}

/// Judges a history by its values alone, whatever the witnesses say.
pub fn by_search(model: Model, events: &[Event]) -> Judgement {
    judge(events, |operations| searched(model, operations))
}

fn judge(events: &[Event], method: impl FnOnce(&Operations<'_>) -> Judgement) -> Judgement {
    match Operations::new(events) {
        Ok(operations) => method(&operations),
        Err(contradiction) => Judgement::violated(contradiction),
    }
}

fn witnessed(model: Model, operations: &Operations<'_>) -> Judgement {
    let versions = match carstamp::versions(operations) {
        Ok(versions) => versions,
        Err(contradiction) => return Judgement::violated(contradiction),
    };
    match model {
        Model::Linearizable => linearizable::verify(operations, &versions),
        Model::Rsc => rsc::verify(operations, &versions),
    }
}

fn searched(model: Model, operations: &Operations<'_>) -> Judgement {
    match model {
        Model::Linearizable => linearizable::search(operations),
        Model::Rsc => rsc::search(operations),
    }
}
