//! Foreign histories become events without a change of meaning: random short logs of each kind are judged as
//! events, and by trying every order of what their operations do to registers, lists and strings themselves.

use meridian_check::history::{self, Format};
use meridian_check::{Model, Verdict};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// What a log is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Jepsen's cas-register, one a key; few values, so that they repeat.
    Register,
    /// Jepsen's list-append.
    List,
    /// Jepsen's rw-register.
    Transaction,
    /// Porcupine's key-value log.
    Text,
}

/// One step of an operation, on one key. A key's content is a list of words: one word in a register.
#[derive(Clone, Debug)]
enum Step {
    Read(u8, Vec<String>),
    Put(u8, String),
    Cas(u8, String, String),
    Append(u8, String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Ok,
    Failed,
    Unknown,
}

#[derive(Clone, Debug)]
struct Operation {
    process: usize,
    steps: Vec<Step>,
    invoke: u32,
    returned: u32,
    end: End,
}

type State = BTreeMap<u8, Vec<String>>;

/// Does the steps to the state; false if they cannot have gone as the operation says.
fn perform(steps: &[Step], state: &mut State, kind: Kind) -> bool {
    steps.iter().all(|step| match step {
        Step::Read(key, seen) => {
            let content = state.get(key).cloned().unwrap_or_default();
            // Strings are compared whole: the same text may have been put together of other pieces.
            if kind == Kind::Text { content.concat() == seen.concat() } else { content == *seen }
        }
        Step::Put(key, word) => {
            state.insert(*key, if word.is_empty() { Vec::new() } else { vec![word.clone()] });
            true
        }
        Step::Cas(key, old, new) => {
            let fits = state.get(key).is_some_and(|content| content == std::slice::from_ref(old));
            state.insert(*key, vec![new.clone()]);
            fits
        }
        Step::Append(key, word) => {
            state.entry(*key).or_default().push(word.clone());
            true
        }
    })
}

/// Whether some order of the operations explains what they saw and keeps `before`.
fn explained(operations: &[Operation], kind: Kind, before: impl Fn(&Operation, &Operation) -> bool) -> bool {
    let predecessors: Vec<u32> = operations
        .iter()
        .map(|later| (0..operations.len()).filter(|i| before(&operations[*i], later)).map(|i| 1 << i).sum())
        .collect();
    let wanted: u32 = (0..operations.len()).filter(|i| operations[*i].end == End::Ok).map(|i| 1 << i).sum();
    extend(operations, kind, &predecessors, wanted, 0, &State::new())
}

/// Whether the order so far can be extended to one with all that is wanted.
fn extend(
    operations: &[Operation],
    kind: Kind,
    predecessors: &[u32],
    wanted: u32,
    done: u32,
    state: &State,
) -> bool {
    if done & wanted == wanted {
        return true;
    }
    (0..operations.len()).any(|next| {
        let operation = &operations[next];
        // What has failed does nothing; what is unknown comes in where it helps, or not at all.
        let skipped = done >> next & 1 == 1 || operation.end == End::Failed;
        if skipped || predecessors[next] & wanted & !done != 0 {
            return false;
        }
        let mut state = state.clone();
        perform(&operation.steps, &mut state, kind)
            && extend(operations, kind, predecessors, wanted, done | 1 << next, &state)
    })
}

/// A log of a store that mostly does each operation between invocation and return, and now and then does not.
fn random(rng: &mut Pcg64Mcg, kind: Kind) -> Vec<Operation> {
    let mut operations = Vec::new();
    let mut free = [0_u32; 3];
    let mut words = 0;
    for _ in 0..rng.random_range(3..=9) {
        let process = rng.random_range(0..free.len());
        let invoke = free[process] + rng.random_range(0..6) * 10 + process as u32 + 1;
        let returned = invoke + rng.random_range(1..6) * 10 + 3;
        free[process] = returned + 3;
        let length = if matches!(kind, Kind::Register | Kind::Text) { 1 } else { rng.random_range(1..=3) };
        let steps = (0..length).map(|_| random_step(rng, kind, &mut words)).collect();
        let end = match rng.random_range(0..10) {
            0 => End::Failed,
            1 => End::Unknown,
            _ => End::Ok,
        };
        // A process whose operation has no end goes on under another name, as in Jepsen.
        let process = if end == End::Unknown { 100 + operations.len() } else { process };
        operations.push(Operation { process, steps, invoke, returned, end });
    }
    // No two things happen at the same time.
    for (index, operation) in operations.iter_mut().enumerate() {
        operation.invoke = operation.invoke * 32 + 2 * index as u32;
        operation.returned = operation.returned * 32 + 2 * index as u32 + 1;
    }
    let moment = |rng: &mut Pcg64Mcg, operation: &Operation| {
        let (from, to) = (operation.invoke, operation.returned);
        if rng.random_bool(0.5) { rng.random_range(from..=to) } else { rng.random_range(0..=to + 2_000) }
    };
    let mut order: Vec<(u32, usize)> =
        operations.iter().enumerate().map(|(index, operation)| (moment(rng, operation), index)).collect();
    order.sort_unstable();
    let mut state = State::new();
    for (_, index) in order {
        let operation = &mut operations[index];
        for step in &mut operation.steps {
            if let Step::Read(key, seen) = step {
                *seen = state.get(key).cloned().unwrap_or_default();
            }
            // A compare-and-set that does not fit fails.
            if let Step::Cas(key, old, _) = step
                && operation.end == End::Ok
                && state.get(key).is_none_or(|content| content != std::slice::from_ref(old))
            {
                operation.end = End::Failed;
            }
            if operation.end != End::Failed && (operation.end == End::Ok || rng.random_bool(0.6)) {
                perform(std::slice::from_ref(step), &mut state, kind);
            }
        }
        if rng.random_bool(0.1)
            && let Some(content) = state.values_mut().next()
        {
            // The store loses the end of something.
            content.pop();
        }
    }
    for operation in operations.iter_mut().filter(|operation| operation.end != End::Ok) {
        // Nobody knows what they read.
        operation.steps.retain(|step| !matches!(step, Step::Read(..)));
    }
    operations
}

fn random_step(rng: &mut Pcg64Mcg, kind: Kind, words: &mut u32) -> Step {
    let key = if kind == Kind::Text { 0 } else { rng.random_range(0..2) };
    *words += 1;
    let few = |rng: &mut Pcg64Mcg| rng.random_range(1..4).to_string();
    let choice = rng.random_range(0..10);
    match kind {
        _ if choice < 4 => Step::Read(key, Vec::new()),
        Kind::Register if choice < 7 => Step::Put(key, few(rng)),
        Kind::Register => Step::Cas(key, few(rng), few(rng)),
        Kind::List => Step::Append(key, words.to_string()),
        Kind::Transaction => Step::Put(key, words.to_string()),
        Kind::Text => {
            // Some words are written again, and some together look like others.
            let word = match rng.random_range(0..8) {
                0..5 => format!("x{}y", rng.random_range(1..4)),
                5 => ["a", "b", "ab"][rng.random_range(0..3)].to_owned(),
                _ => format!("x{words}y"),
            };
            match choice {
                4 => Step::Put(key, String::new()),
                5..7 => Step::Put(key, word),
                _ => Step::Append(key, word),
            }
        }
    }
}

/// The log as text: its entries in the order of time.
fn written(operations: &[Operation], kind: Kind) -> String {
    let mut entries: Vec<(u32, String)> = Vec::new();
    for (index, operation) in operations.iter().enumerate() {
        if operation.steps.is_empty() {
            continue;
        }
        let process = operation.process;
        let entry = |stage: &str, answered: bool| {
            let mut line = format!("{{:process {process}, :type :{stage}, ");
            let _ = match kind {
                Kind::Register => register(&mut line, &operation.steps[0], answered),
                Kind::Text => text(&mut line, &operation.steps[0], answered),
                Kind::List | Kind::Transaction => transaction(&mut line, &operation.steps, answered, kind),
            };
            line + "}\n"
        };
        entries.push((operation.invoke, entry("invoke", false)));
        match operation.end {
            End::Ok => entries.push((operation.returned, entry("ok", true))),
            End::Failed => entries.push((operation.returned, entry("fail", false))),
            End::Unknown if index % 2 == 0 => entries.push((operation.returned, entry("info", false))),
            End::Unknown => {}
        }
    }
    entries.sort_by_key(|(time, _)| *time);
    entries.into_iter().map(|(_, line)| line).collect()
}

fn nil_or(word: Option<&String>) -> &str {
    word.map_or("nil", String::as_str)
}

fn register(line: &mut String, step: &Step, answered: bool) -> std::fmt::Result {
    match step {
        Step::Read(key, seen) => {
            let seen = seen.first().filter(|_| answered);
            write!(line, ":f :read, :value [{key} {}]", nil_or(seen))
        }
        Step::Put(key, word) => write!(line, ":f :write, :value [{key} {word}]"),
        Step::Cas(key, old, new) => write!(line, ":f :cas, :value [{key} [{old} {new}]]"),
        Step::Append(..) => unreachable!("registers know no append"),
    }
}

fn text(line: &mut String, step: &Step, answered: bool) -> std::fmt::Result {
    match step {
        Step::Read(key, _) if !answered => write!(line, ":f :get, :key \"{key}\", :value nil"),
        Step::Read(key, seen) => write!(line, ":f :get, :key \"{key}\", :value \"{}\"", seen.concat()),
        Step::Put(key, word) => write!(line, ":f :put, :key \"{key}\", :value \"{word}\""),
        Step::Append(key, word) => write!(line, ":f :append, :key \"{key}\", :value \"{word}\""),
        Step::Cas(..) => unreachable!("strings know no compare-and-set"),
    }
}

fn transaction(line: &mut String, steps: &[Step], answered: bool, kind: Kind) -> std::fmt::Result {
    line.push_str(":f :txn, :value [");
    for step in steps {
        match step {
            Step::Read(key, _) if !answered => write!(line, "[:r {key} nil]")?,
            Step::Read(key, seen) if kind == Kind::List => write!(line, "[:r {key} [{}]]", seen.join(" "))?,
            Step::Read(key, seen) => write!(line, "[:r {key} {}]", nil_or(seen.first()))?,
            Step::Put(key, word) => write!(line, "[:w {key} {word}]")?,
            Step::Append(key, word) => write!(line, "[:append {key} {word}]")?,
            Step::Cas(..) => unreachable!("transactions know no compare-and-set"),
        }
    }
    line.push(']');
    Ok(())
}

/// How many histories held, were violated, or were refused or undecided.
#[derive(Debug, Default)]
struct Tally {
    holds: u32,
    violated: u32,
    open: u32,
}

fn agree(kind: Kind, format: Format, models: [Model; 2], rounds: u64) -> Tally {
    let mut tally = Tally::default();
    for seed in 0..rounds {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let operations = random(&mut rng, kind);
        let log = written(&operations, kind);
        let history = match history::read(log.as_bytes(), format) {
            Ok(history) => history,
            Err(faults) => {
                let told = faults.iter().all(|fault| {
                    fault.reason.contains("another operation") || fault.reason.contains("several ways")
                });
                assert!(kind == Kind::Text && told, "seed {seed}: {faults:?}\n{log}");
                tally.open += 1;
                continue;
            }
        };
        for model in models {
            let expected = explained(&operations, kind, |a, b| {
                let real_time = model.at_least(Model::StrictSerializable) || a.process == b.process;
                real_time && a.end == End::Ok && a.returned < b.invoke
            });
            let judgement = history.judge(model);
            match judgement.verdict {
                Verdict::Holds => tally.holds += 1,
                Verdict::Violated => tally.violated += 1,
                _ => {
                    tally.open += 1;
                    continue;
                }
            }
            assert_eq!(
                judgement.verdict == Verdict::Holds,
                expected,
                "seed {seed}, {model}: {}\n{log}",
                judgement.reason
            );
        }
    }
    tally
}

fn both_verdicts(tally: &Tally, rounds: u32) {
    assert!(tally.holds > rounds / 8 && tally.violated > rounds / 8, "{tally:?}");
    assert!(tally.open < rounds, "{tally:?}");
}

#[test]
fn registers_keep_their_meaning() {
    let models = [Model::Linearizable, Model::Sequential];
    both_verdicts(&agree(Kind::Register, Format::Jepsen, models, 3_000), 3_000);
}

#[test]
fn transactions_on_lists_keep_their_meaning() {
    let models = [Model::StrictSerializable, Model::PoSerializable];
    both_verdicts(&agree(Kind::List, Format::Jepsen, models, 3_000), 3_000);
}

#[test]
fn transactions_on_registers_keep_their_meaning() {
    let models = [Model::StrictSerializable, Model::PoSerializable];
    both_verdicts(&agree(Kind::Transaction, Format::Jepsen, models, 3_000), 3_000);
}

#[test]
fn strings_keep_their_meaning() {
    let models = [Model::Linearizable, Model::Sequential];
    both_verdicts(&agree(Kind::Text, Format::Porcupine, models, 40_000), 40_000);
}
