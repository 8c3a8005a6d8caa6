//! The two ways of judging agree. A search finds a legal order if and only if some choice of carstamps is a
//! witness that verifies: on small histories all choices can be tried.

use meridian_check::{Model, Verdict, by_search, by_witness};
use meridian_protocol::history::{Access, Ended, Event, Kind, Mode, Witness};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

type Carstamp = (u64, u64, u32);

#[test]
fn search_and_witness_agree_on_small_histories() {
    let mut counts = [[0_u32; 2]; 2];
    let mut disagreements = Vec::new();
    for seed in 0..10_000 {
        let events = random_history(&mut Pcg64Mcg::seed_from_u64(seed));
        for (index, model) in [Model::Linearizable, Model::Rsc].into_iter().enumerate() {
            let searched = by_search(model, &events);
            let witnessed =
                witnesses(&events).any(|witnessed| by_witness(model, &witnessed).verdict == Verdict::Holds);
            assert_ne!(searched.verdict, Verdict::Undecided);
            if (searched.verdict == Verdict::Holds) != witnessed {
                disagreements
                    .push(format!("seed {seed}, {model}: {}: {}", searched.verdict, searched.reason));
            }
            counts[index][usize::from(witnessed)] += 1;
        }
    }
    assert!(disagreements.is_empty(), "{} of them: {:?}", disagreements.len(), disagreements.first());
    // Both verdicts of both models are there, and RSC allows some that linearizability does not.
    println!("[violated, holds] of linearizable and rsc: {counts:?}");
    assert!(counts.iter().flatten().all(|count| *count > 300), "{counts:?}");
    assert!(counts[1][1] > counts[0][1] + 50, "{counts:?}");
}

/// Up to seven operations of up to four sessions on two keys, fences and messages among them. Reads see anything
/// that someone writes.
fn random_history(random: &mut Pcg64Mcg) -> Vec<Event> {
    let count = random.random_range(3..=7_u64);
    let sessions = random.random_range(2..=4);
    let mut clocks = vec![0_i64; sessions];
    let mut events: Vec<Event> = Vec::new();
    for id in 1..=count {
        let session = random.random_range(0..sessions);
        let invoke = clocks[session] + random.random_range(1..4);
        let returned = invoke + random.random_range(1..12);
        clocks[session] = returned;
        let fence = random.random_bool(0.1);
        let key = if random.random_bool(0.6) { "x" } else { "y" };
        let writes = !fence && random.random_bool(0.5);
        let reads = !fence && (!writes || random.random_bool(0.3));
        let mut ops = Vec::new();
        if reads {
            ops.push(Access { mode: Mode::Read, key: key.to_string(), value: None });
        }
        if writes {
            ops.push(Access { mode: Mode::Write, key: key.to_string(), value: Some(id.to_string()) });
        }
        let pending = random.random_bool(0.15);
        events.push(Event {
            id,
            session: format!("p{session}{}", if pending { "-last" } else { "" }),
            service: String::new(),
            kind: if fence { Kind::Fence } else { Kind::Op },
            ops,
            invoke,
            returned: (!pending).then_some(returned),
            outcome: if pending { Ended::Unknown } else { Ended::Ok },
            level: None,
            after: Vec::new(),
            witness: None,
        });
    }
    // Only of an operation that ended can a message tell.
    for index in 1..events.len() {
        let sender = random.random_range(0..index);
        if events[sender].outcome == Ended::Ok && random.random_bool(0.1) {
            let id = events[sender].id;
            events[index].after.push(id);
        }
    }
    let written: Vec<(String, Option<String>)> = events
        .iter()
        .flat_map(|event| &event.ops)
        .filter(|access| access.mode == Mode::Write)
        .map(|access| (access.key.clone(), access.value.clone()))
        .collect();
    for event in &mut events {
        let id = event.id.to_string();
        for access in event.ops.iter_mut().filter(|access| access.mode == Mode::Read) {
            let values: Vec<&Option<String>> = written
                .iter()
                .filter(|(key, value)| *key == access.key && value.as_ref() != Some(&id))
                .map(|(_, value)| value)
                .collect();
            let choice = random.random_range(0..=values.len());
            access.value = values.get(choice).and_then(|value| (*value).clone());
        }
    }
    events
}

/// The history with every choice of carstamps: one for each pair of orders of the two keys' updates.
fn witnesses(events: &[Event]) -> impl Iterator<Item = Vec<Event>> {
    let orders = |key: &str| {
        let updates: Vec<usize> = (0..events.len())
            .filter(|&i| events[i].ops.iter().any(|a| a.mode == Mode::Write && a.key == key))
            .collect();
        permutations(&updates)
    };
    let (xs, ys) = (orders("x"), orders("y"));
    let pairs: Vec<(Vec<usize>, Vec<usize>)> =
        xs.into_iter().flat_map(|x| ys.iter().map(move |y| (x.clone(), y.clone()))).collect();
    pairs.into_iter().map(|(x, y)| witnessed(events, &[x, y]))
}

fn permutations(items: &[usize]) -> Vec<Vec<usize>> {
    if items.is_empty() {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for (index, first) in items.iter().enumerate() {
        let mut rest = items.to_vec();
        rest.remove(index);
        for mut tail in permutations(&rest) {
            tail.insert(0, *first);
            all.push(tail);
        }
    }
    all
}

fn witnessed(events: &[Event], orders: &[Vec<usize>]) -> Vec<Event> {
    let mut created: Vec<Option<Carstamp>> = vec![None; events.len()];
    for order in orders {
        let mut last = (0, 0, 0);
        for (position, &update) in order.iter().enumerate() {
            let rmw = events[update].ops.len() == 2;
            last = if rmw { (last.0, last.1, last.2 + 1) } else { (position as u64 + 1, 1, 0) };
            created[update] = Some(last);
        }
    }
    let mut events = events.to_vec();
    for index in 0..events.len() {
        let Some(seen) = events[index].ops.first().filter(|_| events[index].outcome == Ended::Ok) else {
            continue;
        };
        let cs = created[index].unwrap_or_else(|| {
            let update = events.iter().position(|event| {
                event.ops.iter().any(|a| a.mode == Mode::Write && a.key == seen.key && a.value == seen.value)
            });
            update.map_or((0, 0, 0), |update| created[update].expect("updates have one"))
        });
        events[index].witness = Some(Witness::Cs(cs));
    }
    events
}

/// The same for transactions: a search finds a legal order if and only if some choice of commit and snapshot
/// timestamps is a witness that verifies.
#[test]
fn search_and_timestamps_agree_on_small_histories() {
    const MODELS: [Model; 4] =
        [Model::StrictSerializable, Model::Rss, Model::PoSerializable, Model::Serializable];
    let mut counts = [[0_u32; 2]; 4];
    for seed in 0..3_000 {
        let events = random_transactions(&mut Pcg64Mcg::seed_from_u64(seed));
        let choices = timestamps(&events);
        for (index, model) in MODELS.into_iter().enumerate() {
            let searched = by_search(model, &events);
            let witnessed = choices.iter().any(|events| by_witness(model, events).verdict == Verdict::Holds);
            assert_eq!(
                searched.verdict == Verdict::Holds,
                witnessed,
                "seed {seed}, {model}: {}",
                searched.reason
            );
            counts[index][usize::from(witnessed)] += 1;
        }
    }
    println!("[violated, holds] of {MODELS:?}: {counts:?}");
    assert!(counts.iter().flatten().all(|count| *count > 200), "{counts:?}");
}

/// Up to four transactions of up to three sessions on two keys.
fn random_transactions(random: &mut Pcg64Mcg) -> Vec<Event> {
    let mut events = random_history(random);
    events.retain(|event| event.kind == Kind::Op && event.outcome == Ended::Ok);
    events.truncate(4);
    let ids: Vec<u64> = events.iter().map(|event| event.id).collect();
    let written = |key: &str, events: &[Event]| -> Vec<Option<String>> {
        let accesses = events.iter().flat_map(|event| &event.ops);
        let writes = accesses.filter(|access| access.mode == Mode::Write && access.key == key);
        writes.map(|access| access.value.clone()).chain([None]).collect()
    };
    // A second key for some, written or read.
    for event in &mut events {
        event.after.retain(|id| ids.contains(id));
        let other = if event.ops[0].key == "x" { "y" } else { "x" };
        let updates = event.ops.iter().any(|access| access.mode == Mode::Write);
        if random.random_bool(0.6) {
            let mode = if updates && random.random_bool(0.6) { Mode::Write } else { Mode::Read };
            let value = (mode == Mode::Write).then(|| event.id.to_string());
            event.ops.push(Access { mode, key: other.to_string(), value });
        }
    }
    let (x, y) = (written("x", &events), written("y", &events));
    for event in &mut events {
        let id = Some(event.id.to_string());
        for access in event.ops.iter_mut().filter(|access| access.mode == Mode::Read) {
            let values = if access.key == "x" { &x } else { &y };
            let others: Vec<_> = values.iter().filter(|value| **value != id).collect();
            access.value.clone_from(others[random.random_range(0..others.len())]);
        }
    }
    events
}

/// The history with every choice of timestamps.
fn timestamps(events: &[Event]) -> Vec<Vec<Event>> {
    let updates: Vec<usize> =
        (0..events.len()).filter(|i| events[*i].ops.iter().any(|a| a.mode == Mode::Write)).collect();
    let reads: Vec<usize> = (0..events.len()).filter(|i| !updates.contains(i)).collect();
    let mut all = Vec::new();
    for order in permutations(&updates) {
        let snapshots = (updates.len() as u64 + 1).pow(reads.len() as u32);
        for mut choice in 0..snapshots {
            let mut events = events.to_vec();
            for (position, update) in order.iter().enumerate() {
                events[*update].witness = Some(Witness::Tc((position as u64 + 1).into()));
            }
            for read in &reads {
                events[*read].witness = Some(Witness::Snap((choice % (updates.len() as u64 + 1)).into()));
                choice /= updates.len() as u64 + 1;
            }
            all.push(events);
        }
    }
    all
}
