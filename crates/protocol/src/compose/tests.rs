//! The rules one by one, and what merging contexts must keep.

use super::{Fence, Refused, Role, Services, Session};
use crate::machine::Context;
use crate::planted::Plant;
use proptest::prelude::*;

/// A linearizable service, one that settles, two that are entered, and a causal one.
const ALL: [(&str, Role); 5] = [
    ("lin", Role::Ordered),
    ("rsc", Role::Settles),
    ("rss", Role::Enters),
    ("rss2", Role::Enters),
    ("causal", Role::Apart),
];

fn services() -> Services<&'static str> {
    services_with(Plant::default())
}

fn services_with(plant: Plant) -> Services<&'static str> {
    let mut services = Services::new(plant);
    for (name, role) in ALL {
        services.register(name, role).unwrap();
    }
    services
}

type Owing = Session<&'static str>;

/// The services to be fenced before an operation at `service`.
fn fences(services: &Services<&'static str>, session: &Owing, service: &'static str) -> Vec<&'static str> {
    session.before(services, service).fences.into_iter().map(|(other, _)| other).collect()
}

fn fence(session: &mut Owing, service: &'static str) {
    let (_, fence) = session.unfenced().into_iter().find(|(other, _)| *other == service).unwrap();
    session.on_fenced(service, fence);
}

#[test]
fn every_other_owed_service_is_fenced_and_only_those() {
    let services = services();
    let mut session = Session::default();
    assert!(session.before(&services, "rss").is_nothing(), "a session that has done nothing owes nothing");
    for service in ["rsc", "lin", "rss"] {
        session.on_begin(&services, service);
    }
    assert_eq!(fences(&services, &session, "lin"), ["rsc", "rss"]);
    assert_eq!(fences(&services, &session, "rss"), ["rsc"]);
    assert_eq!(fences(&services, &session, "rsc"), ["rss"]);
    fence(&mut session, "rsc");
    assert_eq!(fences(&services, &session, "rss"), [""; 0]);
    assert_eq!(fences(&services, &session, "lin"), ["rss"]);
}

#[test]
fn a_service_that_keeps_apart_is_owed_nothing_and_paid_like_any_other() {
    let services = services();
    let mut session = Session::default();
    session.on_begin(&services, "causal");
    assert!(session.before(&services, "rss").is_nothing());
    session.on_begin(&services, "rss");
    assert_eq!(fences(&services, &session, "causal"), ["rss"]);
    assert_eq!(session.unfenced().len(), 2, "a fence that is asked for covers both");
}

#[test]
fn a_fence_covers_what_was_before_it() {
    let services = services();
    let mut session = Session::default();
    session.on_begin(&services, "rsc");
    let begun = session.before(&services, "lin").fences[0].1;
    // Another connection of the session reads while the fence runs.
    session.on_begin(&services, "rsc");
    session.on_fenced("rsc", begun);
    assert_eq!(fences(&services, &session, "lin"), ["rsc"], "the second read is not covered");
    fence(&mut session, "rsc");
    assert_eq!(fences(&services, &session, "lin"), [""; 0]);
    session.on_begin(&services, "rsc");
    assert_eq!(fences(&services, &session, "lin"), ["rsc"], "what was fenced once is owed again");
    session.on_fenced("never used", Fence(1));
}

#[test]
fn coming_from_another_service_enters() {
    let services = services();
    let enters = |session: &Owing, service| session.before(&services, service).enters;
    let mut session = Session::default();
    assert!(!enters(&session, "rss"), "it comes from nowhere");
    session.on_begin(&services, "rss");
    assert!(!enters(&session, "rss") && enters(&session, "rss2"));
    session.on_begin(&services, "causal");
    assert!(!enters(&session, "rss"), "a causal service promises no real time");
    session.on_begin(&services, "lin");
    assert!(enters(&session, "rss"), "the fence that a linearizable one does not need is not the question");
    assert!(!enters(&session, "rsc") && !enters(&session, "causal"));
    session.on_begin(&services, "rss");
    assert!(!enters(&session, "rss"), "once is enough");

    let mut fresh = Session::default();
    fresh.import(&services, [("rss", true)]);
    assert!(!enters(&fresh, "rss"), "a context of the same service alone says when");
    fresh.import(&services, [("lin", false)]);
    assert!(enters(&fresh, "rss"), "a service that the context names counts as used");
    session.import(&services, [("rss", true)]);
    assert!(!enters(&session, "rss"));
    session.import(&services, [("rsc", false)]);
    assert!(enters(&session, "rss"));
}

#[test]
fn a_context_brings_the_debts_of_both() {
    let services = services();
    let mut session = Session::default();
    session.on_begin(&services, "rsc");
    session.import(&services, [("rss", true), ("rsc", false), ("lin", false)]);
    assert_eq!(fences(&services, &session, "rss2"), ["rsc", "rss"], "its own debt is not forgiven");
    assert_eq!(session.used(&services), [("rss", true), ("rsc", true), ("lin", false)]);
}

#[test]
fn services_come_and_go_unless_something_is_owed() {
    let mut services = services();
    assert_eq!(services.register("lin", Role::Enters), Err(Refused::Known));
    let mut session = Session::default();
    for service in ["rsc", "lin"] {
        session.on_begin(&services, service);
    }
    assert_eq!(services.unregister("rsc", [&session]), Err(Refused::Owed));
    assert_eq!(services.unregister("lin", [&session]), Ok(()));
    assert_eq!(services.unregister("lin", [&session]), Err(Refused::Unknown));
    fence(&mut session, "rsc");
    assert_eq!(services.unregister("rsc", [&session, &Session::default()]), Ok(()));
    let last = session.before(&services, "rss");
    assert!(last.fences.is_empty() && last.enters, "that it was used still counts");
}

/// Each bug does what its name says, so that what the simulator finds with it is its doing.
#[cfg(feature = "planted-bugs")]
#[test]
fn planted_bugs_leave_out_what_they_say() {
    use crate::planted::Planted;
    let mut session = Session::default();
    for service in ["rsc", "rss", "lin"] {
        session.on_begin(&services(), service);
    }
    let before = |bug| {
        let services = services_with(Plant::new(bug));
        (fences(&services, &session, "rss2"), session.before(&services, "rss2").enters)
    };
    assert_eq!(before(Planted::LastServiceOnly), (vec![], false), "the last was linearizable");
    assert_eq!(before(Planted::NoAutoFence), (vec![], false));
    assert_eq!(before(Planted::NoEntryRule), (vec!["rsc", "rss"], false));
}

/// All that a session's rules can be told by.
fn seen(session: &Owing) -> Vec<(Vec<&'static str>, bool)> {
    let services = services();
    ALL.iter()
        .map(|(name, _)| (fences(&services, session, name), session.before(&services, name).enters))
        .collect()
}

fn used() -> impl Strategy<Value = Vec<(&'static str, bool)>> {
    // What a session exports owes only what can be owed.
    let debts = (0..ALL.len(), any::<bool>()).prop_map(|(i, owed)| (ALL[i].0, owed && ALL[i].1.owes()));
    prop::collection::btree_map(0..ALL.len(), debts, 0..4).prop_map(|all| {
        let mut all: Vec<_> = all.into_values().collect();
        all.sort_unstable();
        all.dedup_by_key(|(name, _)| *name);
        all
    })
}

fn own() -> impl Strategy<Value = Owing> {
    prop::collection::vec(0..ALL.len(), 0..5).prop_map(|ops| {
        let mut session = Session::default();
        for op in ops {
            session.on_begin(&services(), ALL[op].0);
        }
        session
    })
}

fn imported(session: &Owing, contexts: &[&Vec<(&'static str, bool)>]) -> Owing {
    let mut session = session.clone();
    for context in contexts {
        session.import(&services(), (*context).clone());
    }
    session
}

fn joined(contexts: &[&Vec<u64>]) -> Context {
    let mut all = Context::default();
    for context in contexts {
        all.join(&Context((*context).clone()));
    }
    all
}

proptest! {
    #[test]
    fn debts_unite_in_any_order(session in own(), a in used(), b in used(), c in used()) {
        let all = seen(&imported(&session, &[&a, &b, &c]));
        prop_assert_eq!(&all, &seen(&imported(&session, &[&c, &a, &b])));
        prop_assert_eq!(&all, &seen(&imported(&session, &[&b, &a, &a, &c, &b])));
        let mut both = a.clone();
        both.extend(b.iter().copied());
        prop_assert_eq!(&all, &seen(&imported(&session, &[&both, &c])));
        // The least context after both owes what either does, and nothing else.
        let merged = imported(&session, &[&a]);
        for (name, _) in ALL {
            let services = services();
            let mut expected = fences(&services, &session, name);
            expected.extend(a.iter().filter(|(other, owed)| *owed && *other != name).map(|(other, _)| *other));
            expected.sort_unstable();
            expected.dedup();
            prop_assert_eq!(fences(&services, &merged, name), expected);
        }
    }

    #[test]
    fn contexts_join_in_any_order(a in prop::collection::vec(any::<u64>(), 0..8), b in prop::collection::vec(any::<u64>(), 0..8), c in prop::collection::vec(any::<u64>(), 0..8)) {
        let all = joined(&[&a, &b, &c]);
        prop_assert_eq!(&all, &joined(&[&c, &b, &a]));
        prop_assert_eq!(&all, &joined(&[&a, &b, &b, &c, &a]));
        prop_assert_eq!(&all, &joined(&[&joined(&[&a, &b]).0, &c]));
        // The least: no entry is above all three.
        for (place, entry) in all.0.iter().enumerate() {
            prop_assert!([&a, &b, &c].iter().any(|one| one.get(place) == Some(entry)));
        }
    }
}
