//! Convergence once all is quiet.

use crate::Judgement;
use crate::operations::{NEVER, Op, Operations, Value};
use crate::sources::{Source, Sources};
use meridian_protocol::history::Ended;
use std::collections::BTreeMap;

/// Judges whether sessions agree once all is quiet.
///
/// A read of a key counts if it was invoked after every update of that key had returned, and is the last (by
/// invocation) of its session that reads the key. All that count must have read the same. Where the outcome of
/// an update of the key is unknown it may take effect at any time, so that a difference proves nothing. A value
/// that nobody wrote is a violation wherever it was read. If no read counts, the model has nothing to say.
///
/// Whether replicas had the time to exchange what they had is for who made the history to see to.
pub(crate) fn judge(operations: &Operations<'_>) -> Judgement {
    if let Some(reason) = thin_air(operations) {
        return Judgement::violated(reason);
    }
    if operations.all.iter().all(|operation| operation.touches.is_empty()) {
        return Judgement::holds("nothing was read or written");
    }
    let quiet = quiet_since(operations);
    let mut last: BTreeMap<(usize, usize), (Op, Value)> = BTreeMap::new();
    for (op, operation) in operations.all.iter().enumerate().filter(|(_, operation)| operation.is_ok()) {
        for touch in &operation.touches {
            let Some(value) = touch.read else { continue };
            let place = last.entry((touch.key, operation.session)).or_insert((op, value));
            if operations.all[place.0].invoke <= operation.invoke {
                *place = (op, value);
            }
        }
    }
    let mut counted = 0;
    let mut first_of_key: BTreeMap<usize, (Op, Value)> = BTreeMap::new();
    for ((key, _), (op, value)) in last {
        let (returned, unknown) = quiet[key];
        if operations.all[op].invoke <= returned {
            continue;
        }
        let (other, expected) = *first_of_key.entry(key).or_insert((op, value));
        if expected == value {
            counted += 1;
        } else if !unknown {
            let (other, op) = (operations.name(other), operations.name(op));
            let key = operations.key(key);
            return Judgement::violated(format!(
                "all updates of {key} had returned, and {other} and {op} differ"
            ));
        }
    }
    if counted == 0 {
        return Judgement::not_applicable("no key was read after its last update had returned");
    }
    Judgement::holds(format!("{counted} last reads of {} keys agree", first_of_key.len()))
}

/// For each key when its last update returned, and whether the outcome of one is unknown.
fn quiet_since(operations: &Operations<'_>) -> Vec<(i64, bool)> {
    let mut quiet = vec![(i64::MIN, false); operations.keys.len()];
    for operation in operations.all.iter().filter(|operation| operation.outcome != Ended::Failed) {
        for touch in operation.touches.iter().filter(|touch| touch.write.is_some()) {
            let (returned, unknown) = &mut quiet[touch.key];
            match operation.returned {
                NEVER => *unknown = true,
                time => *returned = (*returned).max(time),
            }
        }
    }
    quiet
}

fn thin_air(operations: &Operations<'_>) -> Option<String> {
    let sources = Sources::new(operations);
    for (op, operation) in operations.all.iter().enumerate().filter(|(_, operation)| operation.is_ok()) {
        for touch in &operation.touches {
            let Some(value) = touch.read else { continue };
            if sources.of(op, touch.key, value) == Source::Nobody {
                let (op, value, key) =
                    (operations.name(op), operations.value(value), operations.key(touch.key));
                return Some(format!(
                    "{op} read {value} from {key}, which no operation that may have happened wrote"
                ));
            }
        }
    }
    None
}
