//! A checker must be able to fail: long valid histories hold, and each kind of violation planted into them is
//! found.

use meridian_check::{Model, Verdict, by_witness};
use meridian_protocol::history::{Access, Ended, Event, Kind, Mode, Witness};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::HashMap;

type Carstamp = (u64, u64, u32);

const SEEDS: std::ops::Range<u64> = 0..25;

#[test]
fn valid_histories_hold() {
    for seed in SEEDS {
        let events = valid(seed);
        assert!(events.len() > 1_000);
        for model in [Model::Linearizable, Model::Rsc] {
            let judgement = by_witness(model, &events);
            assert_eq!(judgement.verdict, Verdict::Holds, "seed {seed}, {model}: {}", judgement.reason);
        }
    }
}

#[test]
fn a_stale_read_is_found() {
    // It saw, consistently, a version that had been overwritten before it began.
    planted(&[Model::Linearizable, Model::Rsc], |events, random| {
        let (read, update) = pick(random, events, |events, read, update| {
            is_read(&events[read])
                && writes(&events[update])
                && same_key(&events[read], &events[update])
                && events[update].outcome == Ended::Ok
                && overwritten_before(events, update, read)
        });
        events[read].ops[0].value = events[update].ops.last().unwrap().value.clone();
        events[read].witness = events[update].witness.clone();
    });
}

#[test]
fn a_value_that_is_not_its_carstamps_is_found() {
    planted(&[Model::Linearizable, Model::Rsc], |events, random| {
        let (read, update) = pick(random, events, |events, read, update| {
            is_read(&events[read])
                && writes(&events[update])
                && same_key(&events[read], &events[update])
                && events[read].ops[0].value != events[update].ops.last().unwrap().value
        });
        events[read].ops[0].value = events[update].ops.last().unwrap().value.clone();
    });
}

#[test]
fn two_updates_with_one_carstamp_are_found() {
    planted(&[Model::Linearizable, Model::Rsc], |events, random| {
        let (a, b) = pick(random, events, |events, a, b| {
            a != b && is_ok_write(&events[a]) && is_ok_write(&events[b]) && same_key(&events[a], &events[b])
        });
        events[a].witness = events[b].witness.clone();
    });
}

#[test]
fn a_write_below_a_finished_one_is_found() {
    planted(&[Model::Linearizable, Model::Rsc], |events, random| {
        let (late, early) = pick(random, events, |events, late, early| {
            is_ok_write(&events[late])
                && is_ok_write(&events[early])
                && same_key(&events[late], &events[early])
                && events[early].returned.unwrap() < events[late].invoke
                && !observed(events, late)
        });
        let (ts, id, _) = carstamp(&events[early]);
        events[late].witness = Some(Witness::Cs((ts, id - 1, 0)));
    });
}

#[test]
fn an_rmw_that_skips_a_version_is_found() {
    planted(&[Model::Linearizable, Model::Rsc], |events, random| {
        let (rmw, _) = pick(random, events, |events, rmw, _| {
            events[rmw].ops.len() == 2 && events[rmw].outcome == Ended::Ok && !observed(events, rmw)
        });
        let (ts, id, rmwc) = carstamp(&events[rmw]);
        events[rmw].witness = Some(Witness::Cs((ts, id, rmwc + 1)));
    });
}

#[test]
fn a_failed_operation_that_was_seen_is_found() {
    planted(&[Model::Linearizable, Model::Rsc], |events, random| {
        let (write, _) =
            pick(random, events, |events, write, _| is_ok_write(&events[write]) && observed(events, write));
        events[write].outcome = Ended::Failed;
        events[write].witness = None;
    });
}

#[test]
fn a_write_of_unknown_outcome_that_surfaced_twice_is_found() {
    planted(&[Model::Linearizable, Model::Rsc], |events, random| {
        let (write, read) = pick(random, events, |events, write, read| {
            is_ok_write(&events[write])
                && is_read(&events[read])
                && events[write].witness == events[read].witness
                && same_key(&events[read], &events[write])
                && readers(events, write) > 1
        });
        events[write].outcome = Ended::Unknown;
        events[write].witness = None;
        let (ts, id, _) = carstamp(&events[read]);
        events[read].witness = Some(Witness::Cs((ts, id + 1, 0)));
    });
}

#[test]
fn a_session_that_goes_back_is_found() {
    // The update is never known to have ended, so that only the session's order speaks.
    planted(&[Model::Linearizable, Model::Rsc], |events, random| {
        let (later, earlier) = pick(random, events, |events, later, earlier| {
            is_read(&events[later])
                && is_read(&events[earlier])
                && same_key(&events[later], &events[earlier])
                && events[later].session == events[earlier].session
                && events[earlier].returned.unwrap() < events[later].invoke
                && carstamp(&events[earlier]) > (1, 0, 0)
        });
        // Back to the version before the one that the earlier read saw.
        let seen = carstamp(&events[earlier]);
        let key = events[later].ops[0].key.clone();
        let before = events
            .iter()
            .filter(|event| writes(event) && event.outcome == Ended::Ok && event.ops[0].key == key)
            .filter(|event| carstamp(event) < seen)
            .max_by_key(|event| carstamp(event));
        let (value, witness) = before.map_or((None, Some(Witness::Cs((0, 0, 0)))), |event| {
            (event.ops.last().unwrap().value.clone(), event.witness.clone())
        });
        events[later].ops[0].value = value;
        events[later].witness = witness;
        for event in events.iter_mut().filter(|event| writes(event) && carstamp(event) >= seen) {
            event.returned = None;
            event.outcome = Ended::Unknown;
            event.session.push_str("-last");
        }
    });
}

#[test]
fn a_message_that_arrived_before_it_was_true_is_found() {
    planted(&[Model::Rsc], |events, random| {
        let (earlier, later) = pick(random, events, |events, earlier, later| {
            is_read(&events[earlier])
                && is_ok_write(&events[later])
                && same_key(&events[earlier], &events[later])
                && carstamp(&events[earlier]) < carstamp(&events[later])
        });
        let id = events[later].id;
        events[earlier].after.push(id);
    });
}

/// Plants a violation into valid histories and demands that the models see it.
fn planted(models: &[Model], plant: impl Fn(&mut Vec<Event>, &mut Pcg64Mcg)) {
    for seed in SEEDS {
        let mut events = valid(seed);
        plant(&mut events, &mut Pcg64Mcg::seed_from_u64(seed));
        for model in models {
            let judgement = by_witness(*model, &events);
            assert_eq!(judgement.verdict, Verdict::Violated, "seed {seed}, {model}: {}", judgement.reason);
            assert!(judgement.reason.contains("op "), "the reason names operations: {}", judgement.reason);
        }
    }
}

/// A pair of operations of which `fits` is true.
fn pick(
    random: &mut Pcg64Mcg,
    events: &[Event],
    fits: impl Fn(&[Event], usize, usize) -> bool,
) -> (usize, usize) {
    for _ in 0..3_000_000 {
        let (a, b) = (random.random_range(0..events.len()), random.random_range(0..events.len()));
        if fits(events, a, b) {
            return (a, b);
        }
    }
    panic!("no pair of operations fits the plan");
}

fn is_read(event: &Event) -> bool {
    event.outcome == Ended::Ok && event.ops.len() == 1 && event.ops[0].mode == Mode::Read
}

fn writes(event: &Event) -> bool {
    event.ops.last().is_some_and(|access| access.mode == Mode::Write)
}

fn is_ok_write(event: &Event) -> bool {
    event.outcome == Ended::Ok && event.ops.len() == 1 && writes(event)
}

fn same_key(a: &Event, b: &Event) -> bool {
    a.ops[0].key == b.ops[0].key
}

fn carstamp(event: &Event) -> Carstamp {
    match event.witness {
        Some(Witness::Cs(cs)) => cs,
        _ => (0, 0, 0),
    }
}

fn readers(events: &[Event], update: usize) -> usize {
    let Some(value) = events[update].ops.last().map(|access| &access.value) else { return 0 };
    let sees = |access: &Access| access.mode == Mode::Read && access.value == *value;
    events.iter().filter(|event| event.outcome == Ended::Ok && event.ops.iter().any(sees)).count()
}

fn observed(events: &[Event], update: usize) -> bool {
    readers(events, update) > 0
}

/// Whether an update with a higher carstamp than `update` had ended before `read` began.
fn overwritten_before(events: &[Event], update: usize, read: usize) -> bool {
    events.iter().any(|event| {
        writes(event)
            && event.outcome == Ended::Ok
            && same_key(event, &events[read])
            && carstamp(event) > carstamp(&events[update])
            && event.returned.is_some_and(|returned| returned < events[read].invoke)
    })
}

/// A history of eight sessions in which every operation takes effect at once, somewhere between its invocation
/// and its return.
fn valid(seed: u64) -> Vec<Event> {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut clocks = [0_i64; 8];
    let mut points = Vec::new();
    for id in 0..1_200_u64 {
        let session = random.random_range(0..clocks.len());
        let invoke = clocks[session] + random.random_range(1..20);
        let point = invoke + random.random_range(1..40);
        let returned = point + random.random_range(1..40);
        clocks[session] = returned;
        points.push((point, id, session, invoke, returned));
    }
    points.sort_unstable();
    let mut state: HashMap<u64, (Option<String>, Carstamp)> = HashMap::new();
    let mut events = Vec::new();
    for (_, id, session, invoke, returned) in points {
        let key = random.random_range(0..4_u64);
        let (value, cs) = state.entry(key).or_insert((None, (0, 0, 0)));
        let access =
            |mode, value: &Option<String>| Access { mode, key: format!("k{key}"), value: value.clone() };
        let mut ops = Vec::new();
        match random.random_range(0..10) {
            0..5 => ops.push(access(Mode::Read, value)),
            5..8 => {
                *value = Some(id.to_string());
                *cs = (cs.0 + 1, session as u64 * 10 + 5, 0);
                ops.push(access(Mode::Write, value));
            }
            _ => {
                ops.push(access(Mode::Read, value));
                *value = Some(id.to_string());
                cs.2 += 1;
                ops.push(access(Mode::Write, value));
            }
        }
        events.push(Event {
            id,
            session: format!("p{session}"),
            service: String::new(),
            kind: Kind::Op,
            ops,
            invoke,
            returned: Some(returned),
            outcome: Ended::Ok,
            level: None,
            after: Vec::new(),
            witness: Some(Witness::Cs(*cs)),
        });
    }
    events
}
