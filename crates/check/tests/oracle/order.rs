//! Models that want one legal order of all operations: every order is tried.

use super::ops::{History, Key, close, orders};
use meridian_check::Model;
use std::collections::BTreeMap;

pub(crate) const MODELS: [Model; 12] = [
    Model::Linearizable,
    Model::StrictSerializable,
    Model::Rsc,
    Model::Rss,
    Model::RscPerService,
    Model::RssPerService,
    Model::Sequential,
    Model::PoSerializable,
    Model::Serializable,
    Model::OscU,
    Model::Crdb,
    Model::VvRegularity,
];

/// Which of the models have an order.
pub(crate) fn judge(history: &History) -> BTreeMap<Model, bool> {
    let mut found: BTreeMap<Model, bool> = MODELS.iter().map(|model| (*model, false)).collect();
    let asked: Vec<(Model, Vec<Vec<bool>>)> =
        MODELS.iter().map(|model| (*model, asked(history, *model))).collect();
    for world in history.worlds() {
        let mut legal = |prefix: &[usize], next: usize| {
            history.ops[next].reads.iter().all(|(key, value)| {
                let writer = last_writer(history, prefix, key);
                let current = writer.and_then(|w| history.ops[w].writes.iter().find(|(k, _)| k == key));
                current.and_then(|(_, written)| written.as_ref()) == value.as_ref()
            })
        };
        orders(&world, &mut legal, &mut |order| {
            for (model, asked) in &asked {
                if !found[model] && keeps(order, asked) && keeps_fences(history, *model, order) {
                    found.insert(*model, true);
                }
            }
            found.values().all(|found| *found)
        });
    }
    found
}

fn last_writer(history: &History, prefix: &[usize], key: &Key) -> Option<usize> {
    prefix.iter().rev().copied().find(|op| history.ops[*op].writes_to(key))
}

fn keeps(order: &[usize], asked: &[Vec<bool>]) -> bool {
    order
        .iter()
        .enumerate()
        .all(|(place, later)| !order[..place].iter().any(|earlier| asked[*later][*earlier]))
}

/// What the model wants any order to keep: `[a][b]` if `a` must come before `b`.
fn asked(history: &History, model: Model) -> Vec<Vec<bool>> {
    let all = 0..history.ops.len();
    all.clone().map(|a| all.clone().map(|b| must_precede(history, model, a, b)).collect()).collect()
}

/// Fences know what their session has seen, which depends on the order.
fn keeps_fences(history: &History, model: Model, order: &[usize]) -> bool {
    let knows = matches!(model, Model::Rsc | Model::Rss | Model::RscPerService | Model::RssPerService);
    if !knows || !history.ops.iter().any(|op| op.fence) {
        return true;
    }
    let causal = causality(history, order);
    let all = 0..history.ops.len();
    let fences: Vec<Vec<bool>> =
        all.clone().map(|a| all.clone().map(|b| fenced(history, &causal, a, b)).collect()).collect();
    keeps(order, &fences)
}

fn must_precede(history: &History, model: Model, a: usize, b: usize) -> bool {
    let (first, second) = (&history.ops[a], &history.ops[b]);
    let real_time = history.real_time[a][b];
    let reads_its_write = || second.reads.iter().any(|(key, _)| first.writes_to(key));
    let regular = || real_time && first.updates() && (second.updates() || reads_its_write());
    match model {
        Model::Linearizable | Model::StrictSerializable => real_time,
        Model::Rsc | Model::Rss => history.told[a][b] || regular(),
        Model::RscPerService | Model::RssPerService => {
            history.told[a][b] || first.service == second.service && regular()
        }
        Model::Sequential | Model::PoSerializable => history.session[a][b],
        Model::Serializable => false,
        Model::OscU => history.session[a][b] || real_time && second.updates(),
        Model::Crdb => {
            history.session[a][b] || real_time && first.keys().iter().any(|key| second.keys().contains(key))
        }
        Model::VvRegularity => real_time && first.updates(),
        _ => unreachable!("no model of one order"),
    }
}

/// What each operation has seen, in this order.
fn causality(history: &History, order: &[usize]) -> Vec<Vec<bool>> {
    let mut causal = history.told.clone();
    for (place, &reader) in order.iter().enumerate() {
        for (key, _) in &history.ops[reader].reads {
            if let Some(writer) = last_writer(history, &order[..place], key) {
                causal[writer][reader] = true;
            }
        }
    }
    close(&mut causal);
    causal
}

/// Whether a fence stands between: it has seen `a`, which is of its service, as is `b`, which was invoked after it.
fn fenced(history: &History, causal: &[Vec<bool>], a: usize, b: usize) -> bool {
    (0..history.ops.len()).filter(|fence| history.ops[*fence].fence).any(|fence| {
        let service = &history.ops[fence].service;
        let here = history.ops[a].service == *service && history.ops[b].service == *service;
        here && causal[a][fence] && history.real_time[fence][b]
    })
}
