//! Strong snapshot isolation and the MWR regularities: every line of start and commit points, and every family of
//! serializations, is tried.

use super::ops::{History, Read, close, orders};
use meridian_check::Model;

/// Points of a transaction: it starts, and if it updates it commits later.
fn points(history: &History, world: &[usize]) -> Vec<usize> {
    world
        .iter()
        .flat_map(|&op| [2 * op, 2 * op + 1])
        .filter(|p| p % 2 == 0 || history.ops[p / 2].updates())
        .collect()
}

pub(crate) fn strong_si(history: &History) -> bool {
    history.worlds().iter().any(|world| {
        let points = points(history, world);
        orders(&points, &mut |prefix, next| may_follow(history, prefix, next), &mut |_| true)
    })
}

fn may_follow(history: &History, line: &[usize], point: usize) -> bool {
    let (op, commits) = (point / 2, point % 2 == 1);
    let started = |op: usize| line.contains(&(2 * op));
    let committed = |op: usize| line.contains(&(2 * op + 1));
    if commits {
        // Of two updates of one key the one commits before the other starts.
        let clash =
            |other: usize| history.ops[op].writes.iter().any(|(key, _)| history.ops[other].writes_to(key));
        let concurrent = |other: usize| started(other) && !committed(other);
        let since = line.iter().skip_while(|p| **p != 2 * op).filter(|p| *p % 2 == 1).map(|p| p / 2);
        return started(op)
            && !since.chain((0..history.ops.len()).filter(|o| *o != op && concurrent(*o))).any(clash);
    }
    let late = |earlier: usize| history.real_time[earlier][op] && history.ops[earlier].updates();
    let happened = |earlier: usize| history.ops[earlier].returned.is_some();
    let commits: Vec<usize> = line.iter().filter(|p| *p % 2 == 1).map(|p| p / 2).collect();
    (0..history.ops.len()).all(|earlier| !(happened(earlier) && late(earlier)) || committed(earlier))
        && history.ops[op].reads.iter().all(|(key, value)| {
            let writer = commits.iter().rev().find(|w| history.ops[**w].writes_to(key));
            let written = writer.and_then(|w| history.ops[*w].writes.iter().find(|(k, _)| k == key));
            written.and_then(|(_, written)| written.as_ref()) == value.as_ref()
        })
}

pub(crate) fn mwr(history: &History, model: Model) -> bool {
    history.worlds().iter().any(|world| {
        let explanations = history.explanations(world);
        explanations.iter().any(|reads| family(history, model, world, reads))
    })
}

/// Whether all reads have serializations that agree where the model wants it.
fn family(history: &History, model: Model, world: &[usize], reads: &[Read]) -> bool {
    let mut order = history.real_time.clone();
    if model == Model::MwrRf {
        for read in reads {
            if let Some(source) = read.source {
                order[source][read.op] = true;
            }
        }
        close(&mut order);
    }
    let updates: Vec<usize> = world.iter().copied().filter(|op| history.ops[*op].updates()).collect();
    let choices: Vec<Vec<Vec<usize>>> =
        reads.iter().map(|read| serializations(history, &order, &updates, read)).collect();
    let agree = |a: usize, b: usize| match model {
        Model::MwrWo => true,
        Model::MwrNi => history.ops[reads[a].op].session == history.ops[reads[b].op].session,
        _ => false,
    };
    pick(&choices, &agree, &mut Vec::new())
}

/// The distinct orders of the updates relevant to a read in its serializations: orders of all updates and the read,
/// which keep `order` and explain what it saw.
fn serializations(history: &History, order: &[Vec<bool>], updates: &[usize], read: &Read) -> Vec<Vec<usize>> {
    let members = [updates, &[read.op]].concat();
    let mut found = Vec::new();
    let mut may_follow = |prefix: &[usize], next: usize| {
        !members.iter().any(|other| !prefix.contains(other) && order[*other][next])
            && (next != read.op
                || prefix.iter().rev().find(|w| history.ops[**w].writes_to(&read.key)).copied()
                    == read.source)
    };
    orders(&members, &mut may_follow, &mut |serialization| {
        let relevant = |op: &&usize| **op != read.op && !history.real_time[read.op][**op];
        let relevant: Vec<usize> = serialization.iter().filter(relevant).copied().collect();
        if !found.contains(&relevant) {
            found.push(relevant);
        }
        false
    });
    found
}

/// Picks an order for each read, so that those which have to agree do.
fn pick(choices: &[Vec<Vec<usize>>], agree: &dyn Fn(usize, usize) -> bool, picked: &mut Vec<usize>) -> bool {
    let next = picked.len();
    if next == choices.len() {
        return true;
    }
    (0..choices[next].len()).any(|choice| {
        let fits = picked.iter().enumerate().all(|(other, of_other)| {
            let (a, b) = (&choices[other][*of_other], &choices[next][choice]);
            let common = |of: &[usize], with: &[usize]| -> Vec<usize> {
                of.iter().copied().filter(|op| with.contains(op)).collect()
            };
            !agree(other, next) || common(a, b) == common(b, a)
        });
        if !fits {
            return false;
        }
        picked.push(choice);
        let fine = pick(choices, agree, picked);
        picked.pop();
        fine
    })
}
