//! Linearizability: one order of all operations, legal for the object, that extends real time: an operation
//! that returned before another was invoked comes before it.
//!
//! It is local: a history is linearizable if and only if it is so key by key, as long as every operation touches
//! one key. For transactions over several keys the same definition is strict serializability.

use crate::Judgement;
use crate::carstamp::Versions;
use crate::graph::Why;
use crate::operations::{Carstamp, Op, Operations};
use crate::search::{self, Problem};

/// Verifies the order that the witnesses state: along real time carstamps never fall, and an update's rises.
///
/// For each key one sweep over time keeps the highest carstamp among operations that have returned; all that is
/// invoked later must reach it, updates must exceed it. Operations of unknown outcome never return.
pub(crate) fn verify(operations: &Operations<'_>, versions: &Versions) -> Judgement {
    let mut of_key: Vec<Vec<Op>> = vec![Vec::new(); operations.keys.len()];
    for (op, operation) in operations.all.iter().enumerate() {
        if versions.of[op].is_some() {
            of_key[operation.touches[0].key].push(op);
        }
    }
    for (key, ops) in of_key.iter().enumerate() {
        if let Some((earlier, later)) = inversion(operations, versions, ops) {
            return Judgement::violated(format!(
                "on {}, {} returned before {} was invoked, but carstamps put {:?} of the former {} {:?} of the latter",
                operations.key(key),
                operations.name(earlier),
                operations.name(later),
                versions.of[earlier].expect("it was compared"),
                if versions.of[earlier] == versions.of[later] { "level with" } else { "after" },
                versions.of[later].expect("it was compared"),
            ));
        }
    }
    Judgement::holds(format!("carstamps rise with real time on {} keys", operations.keys.len()))
}

/// Two operations on one key whose carstamps contradict real time.
fn inversion(operations: &Operations<'_>, versions: &Versions, ops: &[Op]) -> Option<(Op, Op)> {
    let cs = |op: Op| versions.of[op].expect("only operations with a carstamp are compared");
    let mut invocations: Vec<Op> = ops.to_vec();
    invocations.sort_unstable_by_key(|&op| operations.all[op].invoke);
    let mut returns = invocations.clone();
    returns.sort_unstable_by_key(|&op| operations.all[op].returned);
    let mut returns = returns.into_iter().peekable();
    let mut highest: Option<(Carstamp, Op)> = None;
    for later in invocations {
        while let Some(op) = returns.next_if(|&op| operations.all[op].returned_before(&operations.all[later]))
        {
            highest = highest.max(Some((cs(op), op)));
        }
        if let Some((high, earlier)) = highest {
            let fine = if operations.all[later].updates() { cs(later) > high } else { cs(later) >= high };
            if !fine {
                return Some((earlier, later));
            }
        }
    }
    None
}

/// Looks for any legal order.
pub(crate) fn search(operations: &Operations<'_>) -> Judgement {
    let ordered =
        |a: Op, b: Op| operations.all[a].returned_before(&operations.all[b]).then_some(Why::RealTime);
    let takes_part = |op: &Op| !operations.all[*op].touches.is_empty();
    if operations.all.iter().any(|operation| operation.touches.len() > 1) {
        let all = (0..operations.all.len()).filter(takes_part).collect();
        return search::solve(&Problem { operations, members: all, ordered: &ordered });
    }
    let mut undecided = None;
    for key in 0..operations.keys.len() {
        let members: Vec<Op> = (0..operations.all.len())
            .filter(|&op| operations.all[op].touches.first().is_some_and(|touch| touch.key == key))
            .collect();
        let judgement = search::solve(&Problem { operations, members, ordered: &ordered });
        match judgement.verdict {
            crate::Verdict::Holds => {}
            crate::Verdict::Violated => return judgement,
            crate::Verdict::Undecided => undecided = Some(judgement),
        }
    }
    undecided.unwrap_or_else(|| Judgement::holds("every key has a legal order in real time"))
}
