//! Lemma 1, carried out on histories: who did what, and in which order each session saw it, stays.

mod common;

use common::history;
use meridian_check::{Model, Verdict, by_search, transform};
use meridian_protocol::history::{Access, Ended, Event, Kind, Mode};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// What each session did, action by action: (session, time, whether it is a response, id), sorted by time.
fn actions(events: &[Event]) -> Vec<(String, bool, u64)> {
    let mut timed: Vec<(String, i64, bool, u64)> = Vec::new();
    for event in events {
        timed.push((event.session.clone(), event.invoke, false, event.id));
        timed.extend(event.returned.map(|returned| (event.session.clone(), returned, true, event.id)));
    }
    timed.sort();
    timed.into_iter().map(|(session, _, response, id)| (session, response, id)).collect()
}

/// Everything but times.
fn timeless(events: &[Event]) -> Vec<Event> {
    let timeless = |event: &Event| Event { invoke: 0, returned: event.returned.map(|_| 0), ..event.clone() };
    events.iter().map(timeless).collect()
}

fn assert_faithful(before: &[Event], after: &[Event]) {
    assert_eq!(timeless(before), timeless(after), "operations and answers are the same");
    assert_eq!(actions(before), actions(after), "each session has its own order");
    for event in after {
        for sender in after.iter().filter(|sender| event.after.contains(&sender.id)) {
            assert!(sender.returned.unwrap_or(sender.invoke) < event.invoke, "a message from the future");
        }
    }
}

fn stronger(model: Model) -> Model {
    if model == Model::Rsc { Model::Linearizable } else { Model::StrictSerializable }
}

/// Transforms, and holds the result to all that lemma 1 promises.
fn assert_transforms(model: Model, events: &[Event]) -> Vec<Event> {
    let done = transform(model, events).unwrap_or_else(|refusal| panic!("{}\n{events:#?}", refusal.reason));
    assert_faithful(events, &done.events);
    let judgement = by_search(stronger(model), &done.events);
    assert_eq!(judgement.verdict, Verdict::Holds, "{}\n{:#?}", judgement.reason, done.events);
    assert_eq!(done.changed, done.events != events);
    if done.changed {
        let moments = done.events.iter().flat_map(|event| [Some(event.invoke), event.returned]);
        let mut moments: Vec<i64> = moments.flatten().collect();
        moments.sort_unstable();
        assert!(moments.iter().copied().eq(0..moments.len() as i64), "one tick for each action: {moments:?}");
    }
    let again = transform(model, &done.events).expect("it holds still");
    assert!(!again.changed && again.events == done.events, "a second time changes nothing");
    done.events
}

#[test]
fn a_read_that_was_late_moves_before_the_write() {
    // F10 of the RSS paper's appendix.
    let before = history("p1 [0,10] w x 1; p2 [1,2] r x 1; p3 [3,4] r x 0");
    let after = assert_transforms(Model::Rsc, &before);
    let times: Vec<_> = after.iter().map(|event| (event.invoke, event.returned.unwrap())).collect();
    assert_eq!(times, [(2, 3), (4, 5), (0, 1)]);
}

#[test]
fn a_linearizable_history_stays_as_it_is() {
    let before = history("p1 [0,10] w x 1; p2 [1,2] r x 0; p3 [3,4] r x 1");
    assert_eq!(assert_transforms(Model::Rsc, &before), before);
}

#[test]
fn transactions_become_strictly_serializable() {
    // S4: figure 4 of the RSS paper.
    assert_transforms(Model::Rss, &history("p1 [0,20] w x 1, w y 1; p2 [1,2] r x 1; p3 [3,4] r y 0"));
}

#[test]
fn operations_of_unknown_outcome_keep_it() {
    let seen = assert_transforms(Model::Rsc, &history("p1 [0,] w x 1; p2 [1,2] r x 1; p3 [3,4] r x 0"));
    assert_eq!((seen[0].returned, seen[0].outcome), (None, Ended::Unknown));
    assert!(seen[0].invoke < seen[1].returned.unwrap(), "it was invoked before anyone saw it");
    // Nobody saw the second write: it keeps its place in its session and constrains nobody.
    assert_transforms(
        Model::Rsc,
        &history("p1 [0,20] w x 1; p2 [1,2] r x 1; p3 [3,4] r x 0; p4 [1,] w y 7; p4 [9,10] r y 0"),
    );
}

#[test]
fn an_error_that_came_back_before_its_effect_stays_where_it_was() {
    let mut before = history(
        "p1 [0,1] w x 1; p1 [2,3] r y 0; p2 [4,5] r x 0; p3 [6,7] w x 3; p3 [8,9] r x 1; p4 [10,11] r x 3",
    );
    before[0].outcome = Ended::Unknown;
    assert_transforms(Model::Rsc, &before);
    before[0].outcome = Ended::Failed;
    assert_eq!(transform(Model::Rsc, &before).unwrap_err().verdict, Verdict::Violated);
}

#[test]
fn pipelined_operations_stay_pipelined() {
    // p2's reads overlap: the later one saw less.
    let after = assert_transforms(
        Model::Rsc,
        &history("p1 [0,20] w x 1; p2 [1,5] r x 1; p2 [2,4] r x 0; p3 [6,7] r x 0; p1 [22,23] r x 1"),
    );
    assert!(after[2].invoke < after[1].returned.unwrap(), "they still overlap");
}

#[test]
fn messages_and_fences_go_with_it() {
    assert_transforms(
        Model::Rsc,
        &history(
            "p1 [0,20] w x 1; p2 [1,2] r x 1; p3 [3,4] r x 0; p3 [5,6] w y 1; p4 [7,8] r x 0 after 4; p4 [25,26] r x 1",
        ),
    );
    assert_transforms(
        Model::Rsc,
        &history(
            "p1 [0,30] w x 1; p2 [1,2] r x 1; p3 [3,4] r x 0; p3 [4,5] fence; p2 [31,32] fence; p4 [33,34] r x 1",
        ),
    );
}

#[test]
fn a_message_that_clocks_show_backwards_goes_forwards() {
    let after = assert_transforms(Model::Rsc, &history("p1 [0,5] w x 1; p2 [3,8] r x 1 after 1"));
    assert!(after[0].returned < Some(after[1].invoke));
}

#[test]
fn what_did_not_happen_keeps_its_place_in_its_session() {
    let mut before =
        history("p1 [0,10] w x 1; p2 [1,2] r x 1; p3 [3,4] r x 0; p4 [5,6] w y 9; p4 [30,31] w y 8");
    for event in &mut before[3..] {
        event.outcome = Ended::Failed;
    }
    assert_transforms(Model::Rsc, &before);
}

#[test]
fn a_message_tells_all_that_had_returned_to_its_sender() {
    // Op 1 had returned to p1 when op 2's result was sent, but is not ordered before it; op 3 missed what op 1 saw.
    let events =
        history("p1 [0,3] r k 1; p1 [1,4] w m 1; p2 [5,6] r k 0 after 2; p3 [0,20] w k 1; p3 [21,22] r k 1");
    let refusal = transform(Model::Rsc, &events).unwrap_err();
    assert_eq!(refusal.verdict, Verdict::Violated);
    assert!(refusal.reason.contains("was told by a message to op 3"), "{}", refusal.reason);
}

#[test]
fn what_violates_the_model_is_refused_with_its_reason() {
    let events = history("p1 [0,1] w x 1; p2 [2,3] r x 0");
    let refusal = transform(Model::Rsc, &events).unwrap_err();
    assert_eq!(refusal.verdict, Verdict::Violated);
    assert!(refusal.reason.contains("op 1 (p1: w x=1)"), "{}", refusal.reason);
    assert_eq!(transform(Model::Causal, &events).unwrap_err().verdict, Verdict::NotApplicable);
    let transaction = history("p1 [0,20] w x 1, w y 1");
    assert_eq!(transform(Model::Rsc, &transaction).unwrap_err().verdict, Verdict::NotApplicable);
}

/// A history whose answers come from one order, and whose times lie around that order only loosely.
fn random(seed: u64, transactions: bool) -> Vec<Event> {
    let mut random = Pcg64::seed_from_u64(seed);
    let mut state: [Option<String>; 2] = [None, None];
    let mut free_at = [0_i64; 4];
    let mut events: Vec<Event> = Vec::new();
    for id in 1..=random.random_range(4..=12_u64) {
        let session = random.random_range(0..free_at.len());
        let keys: Vec<usize> = match random.random_range(0..3) {
            0 if transactions => vec![0, 1],
            key => vec![key % 2],
        };
        let (reads, writes) =
            [(true, false), (true, false), (false, true), (true, true)][random.random_range(0..4)];
        let mut ops = Vec::new();
        let fence = random.random_bool(0.05);
        for &key in keys.iter().filter(|_| !fence) {
            let name = ["x", "y"][key].to_string();
            if reads {
                ops.push(Access { mode: Mode::Read, key: name.clone(), value: state[key].clone() });
            }
            if writes {
                state[key] = Some(id.to_string());
                ops.push(Access { mode: Mode::Write, key: name, value: state[key].clone() });
            }
        }
        let about = id as i64 * 10 + random.random_range(-40..=10);
        let invoke = about.max(free_at[session]);
        let returned = invoke + random.random_range(0..=if writes { 90 } else { 15 });
        let pipelined = random.random_bool(0.15);
        free_at[session] = if pipelined { invoke } else { returned + random.random_range(0..2) };
        let told = events.iter().filter(|e: &&Event| e.returned.is_some_and(|at| at < invoke));
        let after = told.map(|e| e.id).filter(|_| random.random_bool(0.05)).collect();
        let lost = writes && random.random_bool(0.15);
        events.push(Event {
            id,
            session: format!("p{session}"),
            service: String::new(),
            kind: if fence { Kind::Fence } else { Kind::Op },
            ops,
            invoke,
            returned: Some(returned).filter(|_| !lost || random.random_bool(0.5)),
            outcome: if lost { Ended::Unknown } else { Ended::Ok },
            level: None,
            after,
            witness: None,
        });
    }
    events
}

#[test]
fn random_histories_that_hold_are_transformed_and_others_refused() {
    for (model, transactions) in [(Model::Rsc, false), (Model::Rss, true)] {
        let (mut moved, mut kept, mut refused, mut entangled) = (0, 0, 0, 0);
        for seed in 0..3000 {
            let events = random(seed, transactions);
            match by_search(model, &events).verdict {
                Verdict::Holds => {
                    if let Some(refusal) =
                        transform(model, &events).err().filter(|_| pipelined_and_told(&events))
                    {
                        assert_eq!(refusal.verdict, Verdict::Undecided);
                        entangled += 1;
                        continue;
                    }
                    let stronger = by_search(stronger(model), &events).verdict == Verdict::Holds;
                    let after = assert_transforms(model, &events);
                    if after == events {
                        kept += 1;
                    } else {
                        moved += 1;
                    }
                    assert!(stronger || after != events);
                }
                Verdict::Violated => {
                    refused += 1;
                    assert_eq!(transform(model, &events).unwrap_err().verdict, Verdict::Violated);
                }
                other => panic!("{other}"),
            }
        }
        println!("{model}: moved {moved}, kept {kept}, refused {refused}, entangled {entangled}");
        assert!(moved > 300 && kept > 300 && refused > 300, "{moved} {kept} {refused}");
        assert!(entangled < 30, "{entangled} of {moved}");
    }
}

/// Whether messages come from or go to sessions with overlapping operations: they can bind more than the model does.
fn pipelined_and_told(events: &[Event]) -> bool {
    let overlap = |a: &Event, b: &Event| {
        a.id < b.id && a.session == b.session && a.returned.is_none_or(|at| at >= b.invoke)
    };
    events.iter().any(|event| !event.after.is_empty())
        && events.iter().any(|a| events.iter().any(|b| overlap(a, b)))
}
