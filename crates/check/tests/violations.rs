//! The mutation table of the models that want one order: long random histories that obey a model hold, and with
//! one violation planted that the model forbids they never do, judged by their values alone and by witness.

#![allow(clippy::ptr_arg, reason = "all mutations have one type, and some add operations")]

#[path = "common/generate.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod generate;

use generate::{Freshness, Shape, any, history, unwitnessed};
use meridian_check::{Model, Verdict, by_search, by_witness};
use meridian_protocol::history::{Access, Ended, Event, Kind, Mode};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use std::collections::HashMap;
use std::fmt::Write;
use std::time::Instant;

const SEEDS: u64 = 12;

/// The models, and the freshness of histories that obey them.
const MODELS: [(Model, Freshness); 12] = [
    (Model::Linearizable, Freshness::Current),
    (Model::StrictSerializable, Freshness::Current),
    (Model::Rsc, Freshness::Regular),
    (Model::Rss, Freshness::Regular),
    (Model::RscPerService, Freshness::Regular),
    (Model::RssPerService, Freshness::Regular),
    (Model::Sequential, Freshness::Session),
    (Model::PoSerializable, Freshness::Session),
    (Model::Serializable, Freshness::Any),
    (Model::OscU, Freshness::Current),
    (Model::Crdb, Freshness::Current),
    (Model::VvRegularity, Freshness::Current),
];

/// What a mutation breaks, which decides who must notice.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Breaks {
    /// That values come from somewhere, or that there is one order: everyone notices.
    Order,
    /// The order of a session.
    Process,
    /// What a message told.
    Message,
    /// Real time from an update to a read of its key.
    Freshness,
    /// Real time between updates, seen by the reads of a session.
    UpdateOrder,
}

/// Its name, what it breaks, and how; false if the history has no place for it.
type Mutation = (&'static str, Breaks, fn(&mut Vec<Event>, &mut Pcg64Mcg) -> bool);

const MUTATIONS: [Mutation; 11] = [
    ("a value nobody wrote", Breaks::Order, thin_air),
    ("a failed write that was seen", Breaks::Order, failed_write),
    ("a lost update", Breaks::Order, lost_update),
    ("half a transaction", Breaks::Order, fractured),
    ("write skew", Breaks::Order, write_skew),
    ("a stale read", Breaks::Freshness, stale),
    ("an own write not seen", Breaks::Process, own_write),
    ("a read that goes back", Breaks::Process, goes_back),
    ("a long fork", Breaks::Process, long_fork),
    ("a message forgotten", Breaks::Message, forgotten_message),
    ("writes seen against real time", Breaks::UpdateOrder, update_order),
];

fn forbids(model: Model, breaks: Breaks) -> bool {
    let process = !matches!(model, Model::Serializable | Model::VvRegularity);
    match breaks {
        Breaks::Order => true,
        Breaks::Process => process,
        Breaks::Message => matches!(
            model,
            Model::Linearizable
                | Model::StrictSerializable
                | Model::Rsc
                | Model::Rss
                | Model::RscPerService
                | Model::RssPerService
        ),
        Breaks::Freshness => {
            !matches!(model, Model::Sequential | Model::PoSerializable | Model::Serializable | Model::OscU)
        }
        Breaks::UpdateOrder => process && !matches!(model, Model::Sequential | Model::PoSerializable),
    }
}

fn shape(model: Model, freshness: Freshness) -> Shape {
    let operations = if model == Model::Serializable || model == Model::VvRegularity { 250 } else { 600 };
    let transactions = model.for_transactions().is_none() && model != Model::VvRegularity;
    Shape { transactions, unknown: 1, messages: 3, ..Shape::plain(operations, 8, 6, freshness) }
}

#[test]
fn every_planted_violation_is_found() {
    let mut table = String::new();
    let mut missed = Vec::new();
    for (model, freshness) in MODELS {
        let mut undecided = 0;
        for seed in 0..SEEDS {
            let valid = history(seed, shape(model, freshness));
            let judgement = by_witness(model, &valid);
            assert_eq!(judgement.verdict, Verdict::Holds, "{model}, seed {seed}: {}", judgement.reason);
            let judgement = by_search(model, &unwitnessed(valid));
            assert_ne!(judgement.verdict, Verdict::Violated, "{model}, seed {seed}: {}", judgement.reason);
            undecided += u32::from(judgement.verdict == Verdict::Undecided);
        }
        let _ = writeln!(table, "{model}: {SEEDS} valid histories, {undecided} undecided by search");
        assert!(
            undecided * 20 <= SEEDS as u32 || freshness == Freshness::Any || freshness == Freshness::Session
        );
        for (name, _, mutate) in MUTATIONS.iter().filter(|(_, breaks, _)| forbids(model, *breaks)) {
            let (mut planted, mut by_values, mut by_claims) = (0, 0, 0);
            for seed in 0..SEEDS {
                let mut events = history(seed, shape(model, freshness));
                if !mutate(&mut events, &mut Pcg64Mcg::seed_from_u64(seed)) {
                    continue;
                }
                planted += 1;
                let searched = by_search(model, &unwitnessed(events.clone()));
                by_values += i32::from(searched.verdict == Verdict::Violated);
                by_claims += i32::from(by_witness(model, &events).verdict != Verdict::Holds);
                if searched.verdict != Verdict::Violated {
                    missed.push(format!("{model}, {name}, seed {seed}: {}", searched.reason));
                }
            }
            let _ = writeln!(
                table,
                "    {name}: {planted} planted, {by_values} found by values, {by_claims} not upheld by witness"
            );
            let for_transactions = matches!(*name, "half a transaction" | "write skew");
            assert!(
                planted > 0 || (for_transactions && !shape(model, freshness).transactions),
                "{model}, {name}"
            );
            assert_eq!(by_claims, planted, "{model}, {name}: the witness must be refused\n{table}");
        }
    }
    println!("{table}");
    assert!(missed.is_empty(), "{}\n{table}", missed.join("\n"));
}

/// Histories as long and as untidy as those of a storm: keys are deleted, outcomes unknown, updates change nothing.
#[test]
fn long_histories_are_decided_and_what_is_planted_in_them_is_found() {
    for (model, transactions) in [(Model::Rsc, false), (Model::Rss, true)] {
        let shape = Shape {
            transactions,
            unknown: 6,
            messages: 1,
            deletions: 4,
            idle: 20,
            ..Shape::plain(10_000, 16, 5, Freshness::Regular)
        };
        let valid = unwitnessed(history(1, shape));
        let start = Instant::now();
        let judged = by_search(model, &valid);
        println!("{model}, nothing planted: {}, {:?}", judged.verdict, start.elapsed());
        assert_eq!(judged.verdict, Verdict::Holds, "{model}: {}", judged.reason);
        for (name, breaks, mutate) in MUTATIONS {
            let mut events = valid.clone();
            // In the midst, and not too far apart.
            let mut part: Vec<Event> = events.splice(4_700..5_300, []).collect();
            if !forbids(model, breaks) || !mutate(&mut part, &mut Pcg64Mcg::seed_from_u64(1)) {
                assert!(!transactions, "{model}: no place for {name}");
                continue;
            }
            for (added, event) in part.iter_mut().skip(600).enumerate() {
                event.id = 10_001 + added as u64;
            }
            events.splice(4_700..4_700, part);
            let start = Instant::now();
            let judged = by_search(model, &events);
            println!("{model}, {name}: {}, {:?}", judged.verdict, start.elapsed());
            assert_eq!(judged.verdict, Verdict::Violated, "{model}, {name}: {}", judged.reason);
        }
    }
}

/// Who wrote which value: values are unique.
fn writers(events: &[Event]) -> HashMap<(String, String), usize> {
    let mut writers = HashMap::new();
    for (index, event) in events.iter().enumerate() {
        for access in event.ops.iter().filter(|access| access.mode == Mode::Write) {
            // Who leaves what it saw did not write it.
            let seen = read_of(event, &access.key).and_then(|read| read.value.clone());
            if let Some(value) = access.value.as_ref().filter(|value| seen.as_ref() != Some(value)) {
                writers.insert((access.key.clone(), value.clone()), index);
            }
        }
    }
    writers
}

fn read_of<'a>(event: &'a Event, key: &str) -> Option<&'a Access> {
    event.ops.iter().find(|access| access.mode == Mode::Read && access.key == key)
}

fn writes(event: &Event) -> bool {
    event.ops.iter().any(|access| access.mode == Mode::Write)
}

fn ok(event: &Event) -> bool {
    event.outcome == Ended::Ok
}

/// An rmw of a key that ended ok and changed it: (index, key, value seen, value left). It follows what it saw in
/// every order.
fn rmws(events: &[Event]) -> Vec<(usize, String, String, String)> {
    let mut rmws = Vec::new();
    for (index, event) in events.iter().enumerate().filter(|(_, event)| ok(event)) {
        for written in event.ops.iter().filter(|access| access.mode == Mode::Write) {
            let seen = read_of(event, &written.key).and_then(|read| read.value.clone());
            if let (Some(seen), Some(left)) = (seen, written.value.clone())
                && seen != left
            {
                rmws.push((index, written.key.clone(), seen, left));
            }
        }
    }
    rmws
}

fn set_read(event: &mut Event, key: &str, value: &str) {
    for access in event.ops.iter_mut().filter(|access| access.mode == Mode::Read && access.key == key) {
        access.value = Some(value.to_string());
    }
}

/// Makes a read-only operation, one that `fits` beside an rmw, see what the rmw replaced.
fn set_back(
    events: &mut [Event],
    random: &mut Pcg64Mcg,
    fits: impl Fn(&[Event], usize, &(usize, String, String, String)) -> bool,
) -> bool {
    let mut choices = Vec::new();
    for rmw in rmws(events) {
        for read in 0..events.len() {
            let event = &events[read];
            if ok(event) && !writes(event) && read_of(event, &rmw.1).is_some() && fits(events, read, &rmw) {
                choices.push((read, rmw.1.clone(), rmw.2.clone()));
            }
        }
    }
    let Some((read, key, value)) = any(random, &choices).cloned() else { return false };
    set_read(&mut events[read], &key, &value);
    true
}

fn before(a: &Event, b: &Event) -> bool {
    ok(a) && a.returned.is_some_and(|returned| returned < b.invoke)
}

fn stale(events: &mut Vec<Event>, random: &mut Pcg64Mcg) -> bool {
    set_back(events, random, |events, read, rmw| before(&events[rmw.0], &events[read]))
}

fn own_write(events: &mut Vec<Event>, random: &mut Pcg64Mcg) -> bool {
    set_back(events, random, |events, read, rmw| {
        events[rmw.0].session == events[read].session && before(&events[rmw.0], &events[read])
    })
}

/// Whether `other` saw what the rmw left.
fn saw(other: &Event, rmw: &(usize, String, String, String)) -> bool {
    ok(other) && read_of(other, &rmw.1).is_some_and(|read| read.value.as_deref() == Some(&rmw.3))
}

fn goes_back(events: &mut Vec<Event>, random: &mut Pcg64Mcg) -> bool {
    set_back(events, random, |events, read, rmw| {
        events.iter().any(|other| {
            other.session == events[read].session && before(other, &events[read]) && saw(other, rmw)
        })
    })
}

fn forgotten_message(events: &mut Vec<Event>, random: &mut Pcg64Mcg) -> bool {
    set_back(events, random, |events, read, rmw| {
        let told = |id: &u64| events.iter().any(|other| other.id == *id && saw(other, rmw));
        events[read].after.iter().any(told)
    }) || {
        // No message told of such a thing: make one.
        let mut choices = Vec::new();
        for rmw in rmws(events) {
            for (teller, other) in events.iter().enumerate().filter(|(_, other)| saw(other, &rmw)) {
                for (read, event) in events.iter().enumerate() {
                    if before(other, event) && ok(event) && !writes(event) && read_of(event, &rmw.1).is_some()
                    {
                        choices.push((teller, read, rmw.1.clone(), rmw.2.clone()));
                    }
                }
            }
        }
        let Some((teller, read, key, value)) = any(random, &choices).cloned() else { return false };
        let id = events[teller].id;
        events[read].after.push(id);
        set_read(&mut events[read], &key, &value);
        true
    }
}

fn thin_air(events: &mut Vec<Event>, random: &mut Pcg64Mcg) -> bool {
    let reads: Vec<usize> = (0..events.len()).filter(|i| ok(&events[*i]) && !writes(&events[*i])).collect();
    let Some(read) = any(random, &reads).copied() else { return false };
    events[read].ops[0].value = Some("nobody".to_string());
    true
}

fn failed_write(events: &mut Vec<Event>, random: &mut Pcg64Mcg) -> bool {
    let writers = writers(events);
    let seen: Vec<usize> = events
        .iter()
        .filter(|event| ok(event))
        .flat_map(|event| event.ops.iter().filter(|access| access.mode == Mode::Read))
        .filter_map(|read| writers.get(&(read.key.clone(), read.value.clone()?)).copied())
        .collect();
    let Some(writer) = any(random, &seen).copied() else { return false };
    events[writer].outcome = Ended::Failed;
    events[writer].witness = None;
    true
}

fn lost_update(events: &mut Vec<Event>, random: &mut Pcg64Mcg) -> bool {
    let rmws = rmws(events);
    let mut choices = Vec::new();
    for a in &rmws {
        for b in rmws.iter().filter(|b| a.1 == b.1 && a.0 != b.0 && a.2 != b.2) {
            choices.push((b.0, a.1.clone(), a.2.clone()));
        }
    }
    let Some((index, key, value)) = any(random, &choices).cloned() else { return false };
    set_read(&mut events[index], &key, &value);
    true
}

/// A read-only transaction sees one write of a transaction and not the other.
fn fractured(events: &mut Vec<Event>, random: &mut Pcg64Mcg) -> bool {
    let rmws = rmws(events);
    let mut choices = Vec::new();
    for (a, b) in rmws.iter().zip(rmws.iter().skip(1)).filter(|(a, b)| a.0 == b.0) {
        for (read, event) in events.iter().enumerate().filter(|(_, event)| ok(event) && !writes(event)) {
            if read_of(event, &a.1).is_some() && read_of(event, &b.1).is_some() {
                choices.push((read, a.clone(), b.clone()));
            }
        }
    }
    let Some((read, a, b)) = any(random, &choices).cloned() else { return false };
    set_read(&mut events[read], &a.1, &a.3);
    set_read(&mut events[read], &b.1, &b.2);
    true
}

/// Splits a transaction that read and wrote two keys into two that read both and write one each.
fn write_skew(events: &mut Vec<Event>, random: &mut Pcg64Mcg) -> bool {
    let rmws = rmws(events);
    let pairs: Vec<_> = rmws.iter().zip(rmws.iter().skip(1)).filter(|(a, b)| a.0 == b.0).collect();
    let Some((a, b)) = any(random, &pairs).map(|(a, b)| ((*a).clone(), (*b).clone())) else { return false };
    let id = events.len() as u64 + 1;
    let new_value = format!("{}-skewed", b.3);
    for access in events.iter_mut().flat_map(|event| &mut event.ops) {
        if access.key == b.1 && access.value.as_deref() == Some(&b.3) {
            access.value = Some(new_value.clone());
        }
    }
    let first = &mut events[a.0];
    first.ops.retain(|access| !(access.mode == Mode::Write && access.key == b.1));
    let mut second = first.clone();
    second.ops.retain(|access| access.mode == Mode::Read);
    second.ops.push(Access { mode: Mode::Write, key: b.1, value: Some(new_value) });
    second.id = id;
    second.session = "skewed".to_string();
    second.after = Vec::new();
    events.push(second);
    true
}

/// Two writes of new keys that two sessions see in opposite orders.
fn long_fork(events: &mut Vec<Event>, random: &mut Pcg64Mcg) -> bool {
    let Some(start) = any(random, events).map(|event| event.invoke) else { return false };
    let event =
        |id: u64, session: &str, times: (i64, i64), mode: Mode, key: &str, value: Option<&str>| Event {
            id,
            session: session.to_string(),
            service: String::new(),
            kind: Kind::Op,
            ops: vec![Access { mode, key: key.to_string(), value: value.map(str::to_string) }],
            invoke: start + times.0,
            returned: Some(start + times.1),
            outcome: Ended::Ok,
            level: None,
            after: Vec::new(),
            witness: None,
        };
    let id = events.len() as u64;
    events.extend([
        event(id + 1, "fork1", (0, 20), Mode::Write, "left", Some("l")),
        event(id + 2, "fork2", (0, 20), Mode::Write, "right", Some("r")),
        event(id + 3, "fork3", (1, 2), Mode::Read, "left", Some("l")),
        event(id + 4, "fork3", (3, 4), Mode::Read, "right", None),
        event(id + 5, "fork4", (1, 2), Mode::Read, "right", Some("r")),
        event(id + 6, "fork4", (3, 4), Mode::Read, "left", None),
    ]);
    true
}

/// Two blind writes of one key, one after the other in real time, that a session sees the other way round.
fn update_order(events: &mut Vec<Event>, random: &mut Pcg64Mcg) -> bool {
    let mut choices = Vec::new();
    let single = |event: &Event| event.ops.len() == 1;
    for a in (0..events.len()).filter(|i| single(&events[*i]) && writes(&events[*i])) {
        for b in (0..events.len()).filter(|i| single(&events[*i]) && writes(&events[*i])) {
            if !(before(&events[a], &events[b])
                && ok(&events[b])
                && events[a].ops[0].key == events[b].ops[0].key)
            {
                continue;
            }
            let key = &events[a].ops[0].key;
            let reads: Vec<usize> = (b + 1..events.len().min(b + 150))
                .filter(|i| ok(&events[*i]) && !writes(&events[*i]) && read_of(&events[*i], key).is_some())
                .collect();
            for (first, second) in reads.iter().flat_map(|x| reads.iter().map(move |y| (*x, *y))) {
                if events[first].session == events[second].session && before(&events[first], &events[second])
                {
                    choices.push((a, b, first, second));
                }
            }
        }
        if choices.len() > 50 {
            break;
        }
    }
    let Some((a, b, first, second)) = any(random, &choices).copied() else { return false };
    let (key, old) = (events[a].ops[0].key.clone(), events[a].ops[0].value.clone().unwrap_or_default());
    let new = events[b].ops[0].value.clone().unwrap_or_default();
    set_read(&mut events[first], &key, &new);
    set_read(&mut events[second], &key, &old);
    true
}
