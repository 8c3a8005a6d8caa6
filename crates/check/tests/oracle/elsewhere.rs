//! A second opinion on linearizability and sequential consistency: the testers of stateright, which share no code and no
//! author with ours.

use meridian_check::{Model, Verdict, by_search};
use meridian_protocol::history::{Access, Ended, Event, Kind, Mode};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use stateright::semantics::{
    ConsistencyTester, LinearizabilityTester, SequentialConsistencyTester, SequentialSpec,
};
use std::collections::BTreeMap;

/// What a key holds, if anything.
type Value = Option<String>;

/// A store of registers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Store(BTreeMap<String, Value>);

/// What is done to one key; an rmw sees what it replaces.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Step {
    key: String,
    sees: bool,
    leaves: Option<Value>,
}

impl SequentialSpec for Store {
    type Op = Step;
    /// What was seen, if anything was to be.
    type Ret = Option<Value>;

    fn invoke(&mut self, step: &Step) -> Self::Ret {
        let seen = self.0.get(&step.key).cloned().flatten();
        if let Some(value) = &step.leaves {
            self.0.insert(step.key.clone(), value.clone());
        }
        step.sees.then_some(seen)
    }
}

const SEEDS: u64 = 6_000;

#[test]
fn stateright_agrees_about_linearizability_and_sequential_consistency() {
    let mut counts = [[0_u32; 2]; 2];
    for seed in 0..SEEDS {
        let events = random_history(&mut Pcg64Mcg::seed_from_u64(seed));
        // Nothing but real time counts, so that each operation can be a thread of its own.
        let threads: Vec<usize> = (0..events.len()).collect();
        let linearizable = consistent(LinearizabilityTester::new(Store::default()), &events, &threads);
        let sessions: Vec<usize> = events.iter().map(|event| event.session[1..].parse().unwrap()).collect();
        let sequential = consistent(SequentialConsistencyTester::new(Store::default()), &events, &sessions);
        let theirs = [(Model::Linearizable, linearizable), (Model::Sequential, sequential)];
        for (index, (model, holds)) in theirs.into_iter().enumerate() {
            let judgement = by_search(model, &events);
            let expected = if holds { Verdict::Holds } else { Verdict::Violated };
            assert_eq!(judgement.verdict, expected, "seed {seed}, {model}: {}", judgement.reason);
            counts[index][usize::from(holds)] += 1;
        }
    }
    println!("[violated, holds] of linearizable and sequential: {counts:?}");
    assert!(counts.iter().flatten().all(|count| *count > 500), "{counts:?}");
}

/// Feeds invocations and returns to a tester in the order of time.
fn consistent<T>(mut tester: T, events: &[Event], threads: &[usize]) -> bool
where
    T: ConsistencyTester<usize, Store>,
{
    let mut moments: Vec<(i64, bool, usize)> = Vec::new();
    for (index, event) in events.iter().enumerate() {
        // An operation that returns when another is invoked overlaps it: invocations first.
        moments.push((event.invoke, false, index));
        moments.extend(event.returned.map(|returned| (returned, true, index)));
    }
    moments.sort_unstable();
    for (_, returns, index) in moments {
        let (step, seen) = step(&events[index]);
        if returns {
            tester.on_return(threads[index], seen).expect("the thread is waiting");
        } else {
            tester.on_invoke(threads[index], step).expect("the thread is free");
        }
    }
    tester.is_consistent()
}

fn step(event: &Event) -> (Step, Option<Value>) {
    let read = event.ops.iter().find(|access| access.mode == Mode::Read);
    let write = event.ops.iter().find(|access| access.mode == Mode::Write);
    let leaves = write.map(|access| access.value.clone());
    let step = Step { key: event.ops[0].key.clone(), sees: read.is_some(), leaves };
    (step, read.map(|access| access.value.clone()))
}

/// Up to nine reads, writes and rmws of sessions that wait for each answer and stop when none comes.
fn random_history(random: &mut Pcg64Mcg) -> Vec<Event> {
    let sessions = random.random_range(2..=4_usize);
    let longest = [3, 8, 20][random.random_range(0..3)];
    let mut clocks = vec![Some(0_i64); sessions];
    let mut store: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    let mut events = Vec::new();
    for id in 1..=random.random_range(4..=9_u64) {
        let session = random.random_range(0..sessions);
        let Some(clock) = clocks[session] else { continue };
        let invoke = clock + random.random_range(1..4);
        let returned = invoke + random.random_range(1..longest);
        let pending = random.random_bool(0.05);
        // Two in one session must not overlap, not even in one moment.
        clocks[session] = (!pending).then_some(returned);
        let key = ["x", "y"][usize::from(random.random_bool(0.3))];
        let versions = store.entry(key.to_string()).or_insert_with(|| vec![None]);
        let back = if random.random_bool(0.25) { random.random_range(0..versions.len()) } else { 0 };
        let seen = versions[versions.len() - 1 - back].clone();
        let access = |mode, value| Access { mode, key: key.to_string(), value };
        let value = random.random_bool(0.9).then(|| format!("v{id}"));
        let ops = match random.random_range(0..10) {
            0..5 => vec![access(Mode::Read, seen)],
            // What never answered has shown nothing.
            8.. if !pending => vec![access(Mode::Read, seen), access(Mode::Write, value.clone())],
            _ => vec![access(Mode::Write, value.clone())],
        };
        if ops.iter().any(|access| access.mode == Mode::Write) {
            versions.push(value);
        }
        events.push(Event {
            id,
            session: format!("p{session}"),
            service: String::new(),
            kind: Kind::Op,
            ops,
            invoke,
            returned: (!pending).then_some(returned),
            outcome: if pending { Ended::Unknown } else { Ended::Ok },
            level: None,
            after: Vec::new(),
            witness: None,
        });
    }
    events
}
