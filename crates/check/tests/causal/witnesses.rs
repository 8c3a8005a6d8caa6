//! The two ways of judging agree: the values can be explained if and only if some order of versions is a witness
//! that verifies. And what a witness must not do is refused.

use crate::definitions::random_history;
use crate::{FAMILY, levelled};
use meridian_check::{Model, Verdict, by_search, by_witness};
use meridian_protocol::history::{Ended, Event, Mode, Version, Witness};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

#[test]
fn values_hold_if_and_only_if_some_order_of_versions_does() {
    let mut counts = [[0_u32; 2]; FAMILY.len()];
    for seed in 0..12_000 {
        let events = random_history(&mut Pcg64Mcg::seed_from_u64(500_000 + seed));
        if !is_plain(&events) {
            continue;
        }
        let updates: Vec<usize> = (0..events.len()).filter(|event| writes(&events[*event])).collect();
        let witnessed: Vec<Option<Vec<Event>>> =
            permutations(&updates).iter().map(|order| witnessed(&events, order)).collect();
        for (index, model) in FAMILY.into_iter().enumerate() {
            let by_values = by_search(model, &events);
            let some =
                witnessed.iter().flatten().any(|events| by_witness(model, events).verdict == Verdict::Holds);
            assert_eq!(
                by_values.verdict == Verdict::Holds,
                some,
                "seed {seed}, {model}: {}",
                by_values.reason
            );
            counts[index][usize::from(some)] += 1;
        }
    }
    println!("[violated, holds] of {FAMILY:?}: {counts:?}");
    assert!(counts.iter().flatten().all(|count| *count > 200), "{counts:?}");
}

/// Whether every operation can carry a witness, and every value says who wrote it.
fn is_plain(events: &[Event]) -> bool {
    let mixed = |event: &Event| writes(event) && event.ops.iter().any(|access| access.mode == Mode::Read);
    let mut written: Vec<_> =
        events.iter().flat_map(|event| &event.ops).filter(|access| access.mode == Mode::Write).collect();
    written.sort_by_key(|access| (&access.key, &access.value));
    let unique = written.windows(2).all(|pair| pair[0] != pair[1]);
    unique && written.iter().all(|access| access.value.is_some()) && !events.iter().any(mixed)
}

fn writes(event: &Event) -> bool {
    event.ops.iter().any(|access| access.mode == Mode::Write)
}

/// The history with versions in this order of updates.
fn witnessed(events: &[Event], order: &[usize]) -> Option<Vec<Event>> {
    let version = |update: usize| -> Option<Version> {
        let place = order.iter().position(|other| *other == update)?;
        Some((place as u64 / 2 + 1, place as u32 % 2, 0))
    };
    let mut with = events.to_vec();
    for (index, event) in with.iter_mut().enumerate().filter(|(_, event)| event.outcome == Ended::Ok) {
        if writes(event) {
            event.witness = Some(Witness::Put { at: version(index)?, vc: Vec::new() });
            continue;
        }
        let mut at = Vec::new();
        for access in &event.ops {
            let update = events.iter().position(|other| {
                other
                    .ops
                    .iter()
                    .any(|a| a.mode == Mode::Write && a.key == access.key && a.value == access.value)
            });
            at.push(update.and_then(version));
        }
        event.witness = Some(Witness::Got { at, sv: Vec::new() });
    }
    Some(with)
}

fn permutations(items: &[usize]) -> Vec<Vec<usize>> {
    if items.is_empty() {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for (index, first) in items.iter().enumerate() {
        let mut rest = items.to_vec();
        rest.remove(index);
        all.extend(permutations(&rest).into_iter().map(|mut tail| {
            tail.insert(0, *first);
            tail
        }));
    }
    all
}

/// Judges a history with these witnesses; `None` leaves an operation without.
fn verdict(model: Model, text: &str, witnesses: &[Option<Witness>]) -> (Verdict, String) {
    let mut events = levelled(text);
    assert_eq!(events.len(), witnesses.len());
    for (event, witness) in events.iter_mut().zip(witnesses) {
        event.witness.clone_from(witness);
    }
    let judgement = by_witness(model, &events);
    (judgement.verdict, judgement.reason)
}

#[expect(clippy::unnecessary_wraps, reason = "some operations of a list have no witness")]
fn put(ts: u64, region: u32, vc: &[u64]) -> Option<Witness> {
    Some(Witness::Put { at: (ts, region, 0), vc: vc.to_vec() })
}

#[expect(clippy::unnecessary_wraps, reason = "some operations of a list have no witness")]
fn got(ts: u64, region: u32, sv: &[u64]) -> Option<Witness> {
    Some(Witness::Got { at: vec![(ts > 0).then_some((ts, region, 0))], sv: sv.to_vec() })
}

#[test]
fn the_engines_own_order_must_keep_causality() {
    let text = "p1 [0,1] w x 1; p1 [2,3] w y 1; p2 [4,5] r x 1";
    let (right, _) = verdict(Model::Causal, text, &[put(1, 0, &[]), put(2, 0, &[]), got(1, 0, &[])]);
    assert_eq!(right, Verdict::Holds);
    let (wrong, reason) = verdict(Model::Causal, text, &[put(2, 0, &[]), put(1, 0, &[]), got(2, 0, &[])]);
    assert_eq!(wrong, Verdict::Violated);
    assert_eq!(
        reason,
        "no order can keep all of this: op 1 (p1: w x=1) came, in its session, before op 2 (p1: w y=1), which has a \
         lower version than op 1 (p1: w x=1)"
    );
    // By the values alone nothing is wrong, and monotonic reads do not ask for an order of writes.
    assert_eq!(by_search(Model::Causal, &levelled(text)).verdict, Verdict::Holds);
    assert_eq!(verdict(Model::Mr, text, &[put(2, 0, &[]), put(1, 0, &[]), got(2, 0, &[])]).0, Verdict::Holds);
}

#[test]
fn versions_tell_deletions_apart() {
    let text = "p1 [0,1] w x 0; p2 [2,3] w x 1; p3 [4,5] w x 0; p4 [6,7] r x 0; p4 [8,9] r x 1";
    let puts = || vec![put(1, 0, &[]), put(2, 0, &[]), put(3, 0, &[])];
    let with = |first: Option<Witness>| [puts(), vec![first, got(2, 0, &[])]].concat();
    assert_eq!(verdict(Model::Causal, text, &with(got(1, 0, &[]))).0, Verdict::Holds);
    assert_eq!(verdict(Model::Causal, text, &with(got(0, 0, &[]))).0, Verdict::Holds);
    assert_eq!(verdict(Model::Causal, text, &with(got(3, 0, &[]))).0, Verdict::Violated);
    let (verdict, reason) = verdict(Model::Causal, text, &with(got(9, 0, &[])));
    assert_eq!(verdict, Verdict::Violated);
    assert!(reason.contains("which no update created"), "{reason}");
}

#[test]
fn an_update_of_unknown_outcome_takes_effect_as_one_version() {
    let text = "p1 [0,] w x 1; p2 [1,2] r x 1; p2 [3,4] r x 1";
    assert_eq!(verdict(Model::Causal, text, &[None, got(5, 0, &[]), got(5, 0, &[])]).0, Verdict::Holds);
    let (twice, reason) = verdict(Model::Causal, text, &[None, got(5, 0, &[]), got(6, 0, &[])]);
    assert_eq!(twice, Verdict::Violated);
    assert!(reason.contains("more than once"), "{reason}");
    // Two deletions, two versions: one each, and either way will do.
    let deletions = "p1 [0,] w x 0; p2 [0,] w x 0; p3 [1,2] r x 0; p3 [3,4] r x 0";
    assert_eq!(
        verdict(Model::Causal, deletions, &[None, None, got(5, 0, &[]), got(6, 0, &[])]).0,
        Verdict::Holds
    );
    let (back, _) = verdict(Model::Causal, deletions, &[None, None, got(6, 0, &[]), got(5, 0, &[])]);
    assert_eq!(back, Verdict::Violated);
    let (three, _) = verdict(
        Model::Causal,
        &format!("{deletions}; p3 [5,6] r x 0"),
        &[None, None, got(5, 0, &[]), got(6, 0, &[]), got(7, 0, &[])],
    );
    assert_eq!(three, Verdict::Violated);
}

#[test]
fn versions_of_two_services_are_two_orders() {
    // Either order alone can be kept, both together with the sessions cannot.
    let text = "p1@a [0,1] w x 1; p1@b [2,3] w x 1; p2@b [0,1] w x 2; p2@a [2,3] w x 2";
    let same = [put(1, 0, &[]), put(1, 0, &[]), put(2, 0, &[]), put(2, 0, &[])];
    assert_eq!(
        verdict(Model::Causal, text, &same).0,
        Verdict::Holds,
        "versions are unique in their service only"
    );
    let crossed = [put(2, 0, &[]), put(1, 0, &[]), put(2, 0, &[]), put(1, 0, &[])];
    assert_eq!(verdict(Model::Causal, text, &crossed).0, Verdict::Violated);
    assert_eq!(verdict(Model::Mr, text, &crossed).0, Verdict::Holds);
}

#[test]
fn without_a_witness_for_all_there_is_no_verdict_by_witness() {
    let (verdict, reason) = verdict(Model::Mw, "p1 [0,1] w x 1; p1 [2,3] r x 1", &[put(1, 0, &[]), None]);
    assert_eq!(verdict, Verdict::Undecided);
    assert!(reason.contains("op 2"), "{reason}");
}

#[test]
fn vectors_promise_what_the_level_asks_for() {
    let text =
        |level: &str| format!("p1 [0,1] w x 1 (cc); p1 [2,3] r y 0 ({level}); p1 [4,5] r y 0 ({level})");
    let with = |first: &[u64], second: &[u64]| [put(3, 0, &[3, 0]), got(0, 0, first), got(0, 0, second)];
    let holds = |level, first: &[u64], second: &[u64]| {
        verdict(Model::Mr, &text(level), &with(first, second)).0 == Verdict::Holds
    };
    assert!(holds("cc", &[3, 5], &[4, 5]));
    assert!(!holds("cc", &[3, 5], &[4, 4]), "a snapshot goes back");
    assert!(!holds("cc", &[2, 5], &[4, 5]), "a snapshot misses an own write");
    assert!(holds("mr", &[2, 5], &[4, 5]));
    assert!(holds("ryw", &[3, 5], &[4, 4]));
    assert!(holds("ec", &[2, 5], &[1, 4]));
}

#[test]
fn a_timestamp_is_above_those_of_all_dependencies() {
    let text = |level: &str| format!("p1 [0,1] w x 1 (cc); p2 [2,3] r x 1 (cc); p2 [4,5] w y 1 ({level})");
    let with = |ts| [put(5, 1, &[0, 5]), got(5, 1, &[0, 5]), put(ts, 0, &[ts, 5])];
    assert_eq!(verdict(Model::Mr, &text("cc"), &with(6)).0, Verdict::Holds);
    assert_eq!(verdict(Model::Mr, &text("cc"), &with(5)).0, Verdict::Violated);
    assert_eq!(verdict(Model::Mr, &text("mw"), &with(5)).0, Verdict::Holds);
}
