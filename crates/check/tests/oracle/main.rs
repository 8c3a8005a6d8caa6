//! An oracle: verdicts of all models straight from their definitions, by trying everything there is to try. It shares
//! nothing with the checkers but the history format, knows no shortcut, and is good for a handful of operations.
//!
//! | file | what it tests |
//! |---|---|
//! | `corpus` | oracle and checkers give the verdicts of the table in `corpus/README.md` |
//! | `random` | oracle and checkers agree on random histories, and stronger models imply weaker ones |
//! | `elsewhere` | the checkers agree with somebody else's |

#[path = "../common/mod.rs"]
mod common;

mod causal;
mod corpus;
mod elsewhere;
mod eventual;
mod levels;
mod neighbours;
mod ops;
mod order;
mod random;

use meridian_check::{Model, Verdict};
use meridian_protocol::history::Event;
use ops::History;
use std::collections::BTreeMap;

/// Every model's verdict.
fn judge(events: &[Event]) -> BTreeMap<Model, Verdict> {
    let history = History::new(events);
    let in_order = order::judge(&history);
    Model::ALL.iter().map(|(_, model)| (*model, verdict(&history, &in_order, *model))).collect()
}

fn verdict(history: &History, in_order: &BTreeMap<Model, bool>, model: Model) -> Verdict {
    let several_keys = history.ops.iter().any(|op| op.keys().len() > 1);
    let rmw = history.ops.iter().any(|op| op.updates() && !op.reads.is_empty());
    let registers = !several_keys && !rmw;
    let holds = match model {
        _ if model.for_transactions().is_some() && several_keys => return Verdict::NotApplicable,
        Model::MwrWeak | Model::MwrWo | Model::MwrRf | Model::MwrNi if !registers => {
            return Verdict::NotApplicable;
        }
        Model::MwrWeak | Model::MwrWo | Model::MwrRf | Model::MwrNi => neighbours::mwr(history, model),
        Model::StrongSi => neighbours::strong_si(history),
        Model::Causal | Model::CausalRot | Model::RealTimeCausal => causal::holds(history, model),
        Model::Ryw | Model::Mr | Model::Mw | Model::Wfr | Model::TccSpec | Model::TccClosed => {
            levels::holds(history, model)
        }
        Model::Eventual => return eventual::verdict(history),
        _ => in_order[&model],
    };
    if holds { Verdict::Holds } else { Verdict::Violated }
}
