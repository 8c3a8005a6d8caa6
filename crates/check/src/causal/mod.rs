//! Models in which each read has its own view.
//!
//! What each read returned is known first (`readings`): by the versions that the engine named, or by the values.
//! Where values leave several possibilities, all are tried as long as they are few. Then the models of causal
//! consistency follow causality by clocks (`past`, `convergence`), and those of session guarantees follow each
//! session's view (`view`, `tunable`); both end in the question whether one order of all updates keeps what they
//! found (`arbitration`). Engines with vectors claim more, which is verified too (`claims`).

mod arbitration;
mod claims;
mod convergence;
mod eventual;
mod levels;
mod past;
mod readings;
mod tunable;
mod view;

use crate::operations::{Op, Operations};
use crate::sources::Source;
use crate::{Evidence, Judgement, Model, Verdict};
use convergence::Demands;
use levels::Level;
use readings::{Choice, Readings};
use std::collections::BTreeSet;

/// Judges by `model`, one of the causal family.
pub(crate) fn judge(model: Model, operations: &Operations<'_>, evidence: Evidence) -> Judgement {
    if model == Model::Eventual {
        return eventual::judge(operations);
    }
    let rules = match Rules::new(model, operations) {
        Ok(rules) => rules,
        Err(fault) => return Judgement::not_applicable(fault),
    };
    let lacks = readings::lacks_witness(operations);
    let readings = match (evidence, lacks) {
        (Evidence::Witness, Some(op)) => {
            return Judgement::undecided(format!(
                "{} carries no witness that names versions",
                operations.name(op)
            ));
        }
        (Evidence::Values(_), _) | (_, Some(_)) => Readings::by_values(operations),
        (_, None) => claims::verify(operations).and_then(|()| Readings::by_versions(operations)),
    };
    match readings {
        Ok(readings) => rules.judge(operations, &readings),
        Err(contradiction) => Judgement::violated(contradiction),
    }
}

/// How to judge once it is known what each read returned.
enum Rules {
    Convergence(Demands),
    Tunable { levels: Vec<Level>, closed: bool },
}

/// The most ways in which unclear readings are tried out, and the most operations that are judged in doing so.
const WAYS: usize = 1_000;
const WORK: usize = 2_000_000;

impl Rules {
    /// # Errors
    /// A level that does not exist, in words.
    fn new(model: Model, operations: &Operations<'_>) -> Result<Self, String> {
        let (reads_apart, real_time) = (model == Model::Causal, model == Model::RealTimeCausal);
        if matches!(model, Model::Causal | Model::CausalRot | Model::RealTimeCausal) {
            return Ok(Self::Convergence(Demands { reads_apart, real_time }));
        }
        let level = |op: Op| {
            match Level::asked_by(model) {
            Some(level) => Ok(level),
            None => Level::of(operations, op).map_err(|name| {
                let op = operations.name(op);
                format!("{op} asks for level {name:?}, which is none of ec, ryw, mr, mw, wfr, cc or several with +")
            }),
        }
        };
        let levels = (0..operations.all.len()).map(level).collect::<Result<_, _>>()?;
        Ok(Self::Tunable { levels, closed: model == Model::TccClosed })
    }

    fn judge(&self, operations: &Operations<'_>, readings: &Readings) -> Judgement {
        if readings.choices.is_empty() {
            return self.known(operations, readings);
        }
        // What is violated without the unclear readings is violated with them, whatever their sources are.
        let without = self.known(operations, readings);
        if without.verdict != Verdict::Holds {
            return without;
        }
        let ways = readings.choices.iter().try_fold(1_usize, |ways, c| ways.checked_mul(c.candidates.len()));
        let few = ways.filter(|ways| *ways <= WAYS && ways.saturating_mul(operations.all.len()) <= WORK);
        match few {
            Some(ways) => self.every_way(operations, readings, ways),
            None => self.likely_way(operations, readings),
        }
    }

    fn known(&self, operations: &Operations<'_>, readings: &Readings) -> Judgement {
        match self {
            Self::Convergence(demands) => convergence::judge(operations, readings, *demands),
            Self::Tunable { levels, closed } => tunable::judge(operations, readings, levels, *closed),
        }
    }

    /// Judges with sources for all unclear readings.
    fn chosen(&self, operations: &Operations<'_>, readings: &Readings, sources: &[Source]) -> Judgement {
        let mut readings = readings.clone();
        let choices: Vec<Choice> = std::mem::take(&mut readings.choices);
        for (choice, source) in choices.iter().zip(sources) {
            if let Err(contradiction) = readings.choose(operations, choice, *source) {
                return Judgement::violated(contradiction);
            }
        }
        self.known(operations, &readings)
    }

    fn every_way(&self, operations: &Operations<'_>, readings: &Readings, ways: usize) -> Judgement {
        let mut refused = None;
        for way in 0..ways {
            let mut rest = way;
            let mut source = |choice: &Choice| {
                let source = choice.candidates[rest % choice.candidates.len()];
                rest /= choice.candidates.len();
                source
            };
            let sources: Vec<Source> = readings.choices.iter().map(&mut source).collect();
            let judgement = self.chosen(operations, readings, &sources);
            match judgement.verdict {
                Verdict::Violated => refused = refused.or(Some(judgement)),
                _ => return judgement,
            }
        }
        let refused = refused.expect("there is at least one way");
        let reason = format!("whichever update each read saw, of {ways} ways; for one: {}", refused.reason);
        Judgement { reason, ..refused }
    }

    /// Tries the sources that time suggests: for a value the last that was invoked before the read returned,
    /// for a version the next in the order of invocations.
    fn likely_way(&self, operations: &Operations<'_>, readings: &Readings) -> Judgement {
        let invoked = |source: &Source| match source {
            Source::Update(op) => operations.all[*op].invoke,
            _ => i64::MIN,
        };
        let mut used: BTreeSet<Op> = BTreeSet::new();
        let mut sources = Vec::with_capacity(readings.choices.len());
        for choice in &readings.choices {
            let mut candidates = choice.candidates.clone();
            candidates.sort_by_key(invoked);
            let free = |source: &Source| !matches!(source, Source::Update(op) if used.contains(op));
            let returned = operations.all[readings.all[choice.readings[0]].op].returned;
            let likely = match choice.version {
                Some(_) => candidates.iter().copied().find(free),
                None => candidates.iter().rev().copied().find(|source| invoked(source) < returned),
            };
            let source = likely.unwrap_or(candidates[0]);
            if let (Source::Update(op), Some(_)) = (source, choice.version) {
                used.insert(op);
            }
            sources.push(source);
        }
        let judgement = self.chosen(operations, readings, &sources);
        match judgement.verdict {
            Verdict::Holds => judgement,
            _ => Judgement::undecided(format!(
                "{} reads may each have seen one of several updates, and too many ways are to be tried",
                readings.choices.len()
            )),
        }
    }
}
