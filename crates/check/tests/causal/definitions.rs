//! On small histories the checker agrees with its definitions, tried out by the letter, and stronger models
//! forbid all that weaker ones do.

use crate::{FAMILY, oracle};
use meridian_check::{Verdict, by_search};
use meridian_protocol::history::{Access, Ended, Event, Kind, Mode};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

#[test]
fn small_histories_are_judged_by_the_definitions() {
    let mut counts = [[0_u32; 2]; FAMILY.len()];
    let mut wrong = Vec::new();
    for seed in 0..12_000 {
        let events = random_history(&mut Pcg64Mcg::seed_from_u64(seed));
        for (index, model) in FAMILY.into_iter().enumerate() {
            let judgement = by_search(model, &events);
            assert_ne!(judgement.verdict, Verdict::Undecided, "{}", judgement.reason);
            let holds = oracle::holds(model, &events);
            if holds != (judgement.verdict == Verdict::Holds) {
                wrong.push(format!("seed {seed}, {model}: {}: {}", judgement.verdict, judgement.reason));
            }
            counts[index][usize::from(holds)] += 1;
        }
    }
    println!("[violated, holds] of {FAMILY:?}: {counts:?}");
    assert!(wrong.is_empty(), "{} of them: {:#?}", wrong.len(), &wrong[..wrong.len().min(5)]);
    assert!(counts.iter().flatten().all(|count| *count > 1_000), "{counts:?}");
}

#[test]
fn stronger_models_imply_weaker_ones() {
    let mut apart = Vec::new();
    for seed in 0..30_000 {
        let mut events = random_history(&mut Pcg64Mcg::seed_from_u64(100_000 + seed));
        // Levels are for each operation alone: models that speak of all of them imply it whatever they are.
        events.extend(random_history(&mut Pcg64Mcg::seed_from_u64(200_000 + seed)).into_iter().map(
            |mut event| {
                event.id += 100;
                event.after.iter_mut().for_each(|id| *id += 100);
                for access in &mut event.ops {
                    access.value = access.value.take().map(|value| format!("{value}'"));
                    access.key.push('\'');
                }
                event
            },
        ));
        let verdicts: Vec<Verdict> = FAMILY.iter().map(|model| by_search(*model, &events).verdict).collect();
        for (stronger, holds) in FAMILY.iter().zip(&verdicts) {
            for (weaker, follows) in
                FAMILY.iter().zip(&verdicts).filter(|(weaker, _)| stronger.at_least(**weaker))
            {
                if *holds == Verdict::Holds {
                    assert_eq!(*follows, Verdict::Holds, "seed {seed}: {stronger} and not {weaker}");
                } else if *follows == Verdict::Holds && !apart.contains(&(*stronger, *weaker)) {
                    apart.push((*stronger, *weaker));
                }
            }
        }
    }
    // Every two models that the lattice orders are told apart by some history.
    let pairs = FAMILY
        .iter()
        .flat_map(|a| FAMILY.iter().filter(move |b| *a != **b && a.at_least(**b)).map(move |b| (*a, *b)));
    let missing: Vec<_> = pairs.filter(|pair| !apart.contains(pair)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// A few operations of up to three sessions on two keys, at any levels: with transactions, messages,
/// deletions, equal values, operations that overlap in their session and such of unknown outcome.
pub(crate) fn random_history(random: &mut Pcg64Mcg) -> Vec<Event> {
    // Some on one key only, for long stories of one session.
    let narrow = random.random_bool(0.3);
    let count = random.random_range(2..=if narrow { 7 } else { 6_u64 });
    let sessions = random.random_range(1..=if narrow { 2 } else { 3 });
    let mut clocks = vec![0_i64; sessions];
    let mut events: Vec<Event> = Vec::new();
    let (deletes, pipelines) = (random.random_bool(0.2), random.random_bool(0.2));
    let levels = random.random_bool(0.7);
    for id in 1..=count {
        let session = random.random_range(0..sessions);
        let invoke = clocks[session] + random.random_range(1..4);
        let returned = invoke + random.random_range(1..8);
        clocks[session] = if pipelines { invoke } else { returned };
        let unknown = random.random_bool(0.08);
        let written = match random.random_range(0..10) {
            0 | 1 if deletes => None,
            2 if deletes => Some("again".to_string()),
            _ => Some(id.to_string()),
        };
        let read = |key: &str| Access { mode: Mode::Read, key: key.to_string(), value: None };
        let write = |key: &str| Access { mode: Mode::Write, key: key.to_string(), value: written.clone() };
        let (one, other) = if narrow || random.random_bool(0.6) { ("x", "y") } else { ("y", "x") };
        let ops = match random.random_range(0..if narrow { 15 } else { 20 }) {
            0..8 => vec![read(one)],
            8..15 => vec![write(one)],
            15..17 => vec![read(one), read(other)],
            17 => vec![read(one), write(one)],
            18 => vec![read(one), read(other), write(other)],
            _ => vec![write(one), write(other)],
        };
        let level =
            ["ec", "ryw", "mr", "mw", "wfr", "cc", "ryw+mr", "mw+wfr", "ryw+wfr"][random.random_range(0..9)];
        events.push(Event {
            id,
            session: format!("p{session}"),
            service: String::new(),
            kind: Kind::Op,
            ops,
            invoke,
            returned: (!unknown).then_some(returned),
            outcome: if unknown { Ended::Unknown } else { Ended::Ok },
            level: levels.then(|| level.to_string()),
            after: Vec::new(),
            witness: None,
        });
    }
    for index in 1..events.len() {
        let sender = random.random_range(0..index);
        if events[sender].outcome == Ended::Ok && random.random_bool(0.06) {
            let id = events[sender].id;
            events[index].after.push(id);
        }
    }
    returned_values(random, &mut events);
    events
}

/// Reads return anything that another operation writes, or nothing.
fn returned_values(random: &mut Pcg64Mcg, events: &mut [Event]) {
    let written: Vec<(u64, Access)> = events
        .iter()
        .flat_map(|event| event.ops.iter().map(move |access| (event.id, access.clone())))
        .filter(|(_, access)| access.mode == Mode::Write)
        .collect();
    for event in events {
        let id = event.id;
        for access in event.ops.iter_mut().filter(|access| access.mode == Mode::Read) {
            let values: Vec<&Option<String>> = written
                .iter()
                .filter(|(by, write)| *by != id && write.key == access.key)
                .map(|(_, w)| &w.value)
                .collect();
            let choice = random.random_range(0..=values.len());
            access.value = values.get(choice).and_then(|value| (*value).clone());
        }
    }
}
