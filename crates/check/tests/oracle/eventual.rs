//! Convergence once all is quiet: the last reads of each key, one a session, invoked after all updates of the key had
//! returned, saw the same. Where an update may happen yet a difference proves nothing.

use super::ops::{History, Key};
use meridian_check::Verdict;
use meridian_protocol::history::Ended;

pub(crate) fn verdict(history: &History) -> Verdict {
    let ops = || history.ops.iter().enumerate().filter(|(_, op)| op.outcome == Ended::Ok);
    if history.ops.iter().all(|op| op.keys().is_empty()) {
        return Verdict::Holds;
    }
    let mut counted = false;
    let mut violated = false;
    for (reader, op) in ops() {
        for (key, value) in &op.reads {
            let may_write = |other: usize| other != reader && history.ops[other].outcome != Ended::Failed;
            let wrote = |other: usize| {
                may_write(other) && history.ops[other].writes.contains(&(key.clone(), value.clone()))
            };
            violated |= value.is_some() && !(0..history.ops.len()).any(wrote);
            if !is_last(history, reader, key) || !is_late(history, reader, key) {
                continue;
            }
            counted = true;
            let open = history.ops.iter().any(|op| op.outcome == Ended::Unknown && op.writes_to(key));
            violated |= !open
                && ops().any(|(other, op)| {
                    let differs = op.reads.iter().any(|(k, v)| k == key && v != value);
                    differs && is_last(history, other, key) && is_late(history, other, key)
                });
        }
    }
    match (violated, counted) {
        (true, _) => Verdict::Violated,
        (false, true) => Verdict::Holds,
        (false, false) => Verdict::NotApplicable,
    }
}

fn is_last(history: &History, reader: usize, key: &Key) -> bool {
    let this = &history.ops[reader];
    !history.ops.iter().enumerate().any(|(index, op)| {
        op.outcome == Ended::Ok
            && op.session == this.session
            && op.reads.iter().any(|(k, _)| k == key)
            && (op.invoke, index) > (this.invoke, reader)
    })
}

fn is_late(history: &History, reader: usize, key: &Key) -> bool {
    let updates =
        history.ops.iter().enumerate().filter(|(_, op)| op.outcome == Ended::Ok && op.writes_to(key));
    updates.into_iter().all(|(index, _)| history.real_time[index][reader])
}
