//! Random histories of a few operations: oracle and checkers agree on them, and stronger models imply weaker ones.

use super::corpus::corpus;
use super::judge;
use meridian_check::{Model, Verdict, by_search};
use meridian_protocol::history::{Access, Ended, Event, Kind, Mode};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// After so many writes a history goes on with reads: every order of all of them is tried.
const MOST_WRITES: usize = 4;

const SEEDS: u64 = 12_000;

/// A history with the oracle's verdicts.
type Judged = (Vec<Event>, BTreeMap<Model, Verdict>);

fn judged() -> &'static [Judged] {
    static JUDGED: LazyLock<Vec<Judged>> = LazyLock::new(|| {
        let judged = |seed| {
            let events = random_history(seed);
            let verdicts = judge(&events);
            (events, verdicts)
        };
        (0..SEEDS).map(judged).collect()
    });
    &JUDGED
}

#[test]
fn checkers_agree_with_the_oracle() {
    let mut disagreements: BTreeMap<Model, Vec<String>> = BTreeMap::new();
    let mut counts: BTreeMap<Model, [u32; 3]> = BTreeMap::new();
    for (seed, (events, verdicts)) in judged().iter().enumerate() {
        let unanswered = events.iter().any(|event| event.outcome == Ended::Unknown && reads(event));
        // Models of views do not ask what an operation has read that never answered; the oracle does.
        for (&model, &expected) in verdicts.iter().filter(|(model, _)| !(unanswered && about_views(**model)))
        {
            let counts = counts.entry(model).or_default();
            counts[0] += u32::from(expected == Verdict::Violated);
            counts[1] += u32::from(expected == Verdict::Holds);
            let judgement = by_search(model, events);
            if judgement.verdict == Verdict::Undecided {
                counts[2] += 1;
            } else if judgement.verdict != expected {
                let found =
                    format!("seed {seed}: {expected}, not {}: {}", judgement.verdict, judgement.reason);
                disagreements.entry(model).or_default().push(format!("{found}\n{}", in_lines(events)));
            }
        }
    }
    println!("[violated, holds, undecided]: {counts:?}");
    let told: Vec<String> = disagreements
        .iter()
        .map(|(model, found)| format!("{model}, {} times, as {}", found.len(), found[0]))
        .collect();
    assert!(told.is_empty(), "{}", told.join("\n"));
    for (model, [violated, holds, undecided]) in counts {
        assert!(violated > 200 && holds > 200, "{model}: both verdicts are represented");
        assert!(undecided * 1_000 <= violated + holds, "{model}: {undecided} undecided");
    }
}

fn reads(event: &Event) -> bool {
    event.ops.iter().any(|access| access.mode == Mode::Read)
}

/// A model implies those that it is said to imply; and those that it is not said to imply it does not, as some
/// history of the corpus or a random one shows.
#[test]
fn the_order_of_models_is_what_histories_show() {
    let mut separated: BTreeMap<(Model, Model), u32> = BTreeMap::new();
    let corpus = corpus().into_iter().map(|litmus| (litmus.events, litmus.expected));
    for (events, verdicts) in corpus.chain(judged().iter().cloned()) {
        let from_the_future = sees_the_future(&events);
        for (stronger, weaker) in pairs() {
            if (verdicts[&stronger], verdicts[&weaker]) != (Verdict::Holds, Verdict::Violated) {
                continue;
            }
            if from_the_future && about_registers(weaker) && !about_registers(stronger) {
                continue;
            }
            assert!(!implied(stronger, weaker), "{stronger} without {weaker}:\n{}", in_lines(&events));
            *separated.entry((stronger, weaker)).or_default() += 1;
        }
    }
    let missing: Vec<String> = pairs()
        .filter(|(a, b)| !implied(*a, *b) && !separated.contains_key(&(*a, *b)))
        .map(|(a, b)| format!("{a} may imply {b}"))
        .collect();
    assert!(missing.is_empty(), "{}", missing.join("\n"));
    println!(
        "{} pairs, each separated by {:?} histories at least",
        separated.len(),
        separated.values().min()
    );
}

/// Whether all that obeys `stronger` obeys `weaker`, where both have something to say.
fn implied(stronger: Model, weaker: Model) -> bool {
    // On operations of single keys a model of those and its twin for transactions are the same.
    let twins = |model: Model| {
        let operations = Model::ALL.into_iter().map(|(_, twin)| twin);
        operations.filter(move |twin| *twin == model || twin.for_transactions() == Some(model))
    };
    let of_single_keys = about_registers(weaker) || weaker.for_transactions().is_some();
    let weaker_twin = weaker.for_transactions().unwrap_or(weaker);
    let above = Model::ALL.into_iter().map(|(_, model)| model).filter(|model| stronger.at_least(*model));
    stronger.at_least(weaker)
        || stronger.at_least(weaker_twin)
        || of_single_keys && above.flat_map(twins).any(|twin| twin.at_least(weaker))
        // Linearizability is local, so that for single keys real time between operations that share one is enough.
        || of_single_keys && stronger == Model::Crdb
        // A read of one key can always stand behind what it saw.
        || about_registers(stronger) && weaker == Model::Serializable
        // On registers these two are the same: serializations that agree are one order.
        || about_registers(stronger) && stronger.at_least(Model::MwrWo) && Model::VvRegularity.at_least(weaker)
}

fn pairs() -> impl Iterator<Item = (Model, Model)> {
    let models = || Model::ALL.into_iter().map(|(_, model)| model);
    models().flat_map(move |a| models().filter(move |b| *b != a).map(move |b| (a, b)))
}

fn about_views(model: Model) -> bool {
    matches!(
        model,
        Model::Causal
            | Model::CausalRot
            | Model::RealTimeCausal
            | Model::Ryw
            | Model::Mr
            | Model::Mw
            | Model::Wfr
            | Model::TccSpec
            | Model::TccClosed
    )
}

fn about_registers(model: Model) -> bool {
    matches!(model, Model::MwrWeak | Model::MwrWo | Model::MwrRf | Model::MwrNi)
}

/// Whether a value was read before an operation that wrote it was invoked. No execution does that, but models that do
/// not order reads before later updates allow it.
fn sees_the_future(events: &[Event]) -> bool {
    let values = |event: &Event, mode: Mode| -> Vec<(String, String, Option<String>)> {
        let accesses = event.ops.iter().filter(|access| access.mode == mode);
        accesses.map(|access| (event.service.clone(), access.key.clone(), access.value.clone())).collect()
    };
    events.iter().filter(|read| read.outcome == Ended::Ok).any(|read| {
        let later = |write: &&Event| read.returned.is_some_and(|returned| returned < write.invoke);
        events.iter().filter(later).any(|write| {
            let seen = values(read, Mode::Read);
            values(write, Mode::Write).iter().any(|value| seen.contains(value))
        })
    })
}

fn in_lines(events: &[Event]) -> String {
    let mut text = Vec::new();
    meridian_check::history::write(events, &mut text).expect("memory takes it");
    String::from_utf8(text).expect("it is text")
}

/// What may occur in a history.
#[derive(Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "each stands alone")]
struct Style {
    rmws: bool,
    transactions: bool,
    services: bool,
    fences: bool,
    messages: bool,
    levels: bool,
    deletes: bool,
    /// Sessions may have several operations in flight.
    pipelined: bool,
}

/// Up to seven operations of up to four sessions on two keys.
pub(crate) fn random_history(seed: u64) -> Vec<Event> {
    let random = &mut Pcg64Mcg::seed_from_u64(seed);
    let style = Style {
        rmws: random.random_bool(0.4),
        transactions: random.random_bool(0.4),
        services: random.random_bool(0.25),
        fences: random.random_bool(0.2),
        messages: random.random_bool(0.3),
        levels: random.random_bool(0.5),
        deletes: random.random_bool(0.25),
        pipelined: random.random_bool(0.15),
    };
    let mut events = plan(random, style);
    explain(random, &mut events);
    events
}

/// Operations with their times and writes; reads have not seen anything yet.
fn plan(random: &mut Pcg64Mcg, style: Style) -> Vec<Event> {
    let count = random.random_range(4..=7_u64);
    let sessions = random.random_range(2..=5_usize);
    let [longest, longest_read] = [[4, 4], [12, 12], [30, 30], [30, 4]][random.random_range(0..4)];
    let mut clocks = vec![0_i64; sessions];
    let mut events: Vec<Event> = Vec::new();
    for id in 1..=count {
        let session = random.random_range(0..sessions);
        let writes = events.iter().flat_map(|event| &event.ops).filter(|a| a.mode == Mode::Write).count();
        let fence = style.fences && random.random_bool(0.2);
        let ops = if fence { Vec::new() } else { accesses(random, style, id, writes >= MOST_WRITES) };
        let reads = ops.iter().all(|access| access.mode == Mode::Read);
        let invoke = clocks[session] + random.random_range(1..4);
        let returned = invoke + random.random_range(1..if reads { longest_read } else { longest });
        clocks[session] = if style.pipelined && random.random_bool(0.5) { invoke } else { returned };
        let outcome = match random.random_range(0..20) {
            0 => Ended::Failed,
            1 | 2 => Ended::Unknown,
            _ => Ended::Ok,
        };
        let service = if style.services && random.random_bool(0.5) { "s" } else { "" };
        let told = |event: &&Event| event.returned.is_some_and(|returned| returned < invoke);
        let sender = events.iter().filter(told).map(|event| event.id).next_back();
        let level = ["ec", "ryw", "mr", "mw", "wfr", "cc", "ryw+mr", "mw+wfr"][random.random_range(0..8)];
        events.push(Event {
            id,
            session: format!("p{session}"),
            service: service.to_string(),
            kind: if fence { Kind::Fence } else { Kind::Op },
            ops,
            invoke,
            returned: (outcome != Ended::Unknown).then_some(returned),
            outcome,
            level: (style.levels && random.random_bool(0.8)).then(|| level.to_string()),
            after: sender.filter(|_| style.messages && random.random_bool(0.3)).into_iter().collect(),
            witness: None,
        });
    }
    events
}

fn accesses(random: &mut Pcg64Mcg, style: Style, id: u64, only_reads: bool) -> Vec<Access> {
    let value = |random: &mut Pcg64Mcg| (!style.deletes || random.random_bool(0.7)).then(|| format!("v{id}"));
    let access = |mode, key: &str, value| Access { mode, key: key.to_string(), value };
    let mut keys = vec![["x", "y"][usize::from(random.random_bool(0.4))]];
    if style.transactions && random.random_bool(0.5) {
        keys = vec!["x", "y"];
    }
    let only_reads = random.random_bool(0.4) || only_reads;
    let mut accesses = Vec::new();
    for key in keys {
        let reads = only_reads || random.random_bool(if style.transactions { 0.3 } else { 0.1 });
        let both = !reads && style.rmws && random.random_bool(0.5);
        if reads || both {
            accesses.push(access(Mode::Read, key, None));
        }
        if !reads {
            accesses.push(access(Mode::Write, key, value(random)));
        }
    }
    accesses
}

/// Lets the reads see something. A store takes the updates one by one, each at a moment between its invocation and
/// its return; a read sees the store as it was at its own moment or at an earlier one, or anything that somebody
/// writes to the key.
fn explain(random: &mut Pcg64Mcg, events: &mut [Event]) {
    let choices = [[0.0, 0.0], [0.0, 0.2], [0.3, 0.0], [0.6, 0.0], [0.9, 0.0], [0.6, 0.1], [0.0, 0.9]];
    let [stale, wrong] = choices[random.random_range(0..choices.len())];
    let backwards = random.random_bool(0.5);
    // Each key of a transaction as it was at another moment.
    let torn = random.random_bool(0.5);
    let moment = |event: &Event, random: &mut Pcg64Mcg| match event.outcome {
        Ended::Failed => None,
        Ended::Unknown if random.random_bool(0.4) => None,
        // Its own place in time, and one for nobody else.
        _ => Some((random.random_range(event.invoke..event.returned.unwrap_or(event.invoke + 20)), event.id)),
    };
    let mut order: Vec<(Option<(i64, u64)>, usize)> =
        events.iter().enumerate().map(|(index, event)| (moment(event, random), index)).collect();
    order.sort_unstable();
    let mut written: BTreeMap<(String, String), Vec<Option<String>>> = BTreeMap::new();
    for event in events.iter() {
        for access in event.ops.iter().filter(|access| access.mode == Mode::Write) {
            written
                .entry((event.service.clone(), access.key.clone()))
                .or_default()
                .push(access.value.clone());
        }
    }
    let mut states: Vec<BTreeMap<(String, String), Option<String>>> = vec![BTreeMap::new()];
    // The newest state that each session has seen.
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for (moment, index) in order {
        let event = &mut events[index];
        let last = states.len() - 1;
        let floor = if backwards { 0 } else { seen.get(&event.session).copied().unwrap_or(0) };
        let mut at = if random.random_bool(stale) { random.random_range(floor..=last) } else { last };
        seen.insert(event.session.clone(), at);
        let mut next = states[last].clone();
        for access in &mut event.ops {
            let key = (event.service.clone(), access.key.clone());
            if access.mode == Mode::Write {
                next.insert(key, access.value.clone());
                continue;
            }
            at = if torn && random.random_bool(stale) { random.random_range(floor..=last) } else { at };
            let values = written.get(&key).map_or(&[][..], Vec::as_slice);
            access.value = if random.random_bool(wrong) {
                values.get(random.random_range(0..=values.len())).cloned().flatten()
            } else {
                states[at].get(&key).cloned().flatten()
            };
        }
        if moment.is_some() {
            states.push(next);
        }
    }
}
