//! The host itself, with an engine that can be seen through: what it promises machines, and that it finds flaws.

mod ledger;
mod toy;
mod transactions;

use meridian_check::Model;
use meridian_protocol::machine::{Completion, Outcome};
use meridian_protocol::registry::Settings;
use meridian_protocol::topology::{Address, Region};
use meridian_sim::world::{Conduct, CpuCost, Fate, Notice, Weather, World};
use meridian_sim::{End, Options, Plan, Report, run_engine, script};
use std::cell::RefCell;
use std::rc::Rc;
use toy::{Flaw, Message, Toy};

fn run(flaw: Flaw, seed: u64, adjust: impl FnOnce(&mut Options)) -> Report {
    let mut options = Options::new(seed, Settings::default());
    // The primary's own clients take no time at all: without a pause they would be done before the first fault.
    options.workload.think = 50_000;
    adjust(&mut options);
    run_engine(Toy(flaw), "toy", Model::Linearizable, &options, None)
}

#[test]
fn an_engine_without_flaw_holds() {
    for seed in 0..20 {
        let report = run(Flaw::None, seed, |_| {});
        assert_eq!(report.end, End::Holds, "{report}: {}", report.reason);
        assert!(report.verify().is_ok(), "{:?}", report.verify());
    }
}

/// The seeds of the first ten runs that end badly.
fn found(flaw: Flaw, bad: End) -> Vec<Report> {
    (0..10).map(|seed| run(flaw, seed, |_| {})).filter(|report| report.end == bad).collect()
}

#[test]
fn flaws_are_found() {
    for (flaw, bad) in [
        (Flaw::LocalReads, End::Violated),
        (Flaw::Forgetful, End::Violated),
        (Flaw::TwiceIsTwice, End::Violated),
        (Flaw::NoCopies, End::Stuck),
        (Flaw::Silent, End::Stuck),
    ] {
        let reports = found(flaw, bad);
        assert!(reports.len() >= 5, "{flaw:?} was found in {} of ten runs", reports.len());
        println!("{flaw:?}: {}", reports[0].reason);
    }
}

#[test]
fn a_run_says_which_replicas_differ_and_which_operation_did_not_end() {
    let differ = &found(Flaw::NoCopies, End::Stuck)[0].reason;
    assert!(differ.contains("these replicas still differ: partition 0: region 0"), "{differ}");
    let silent = &found(Flaw::Silent, End::Stuck)[0].reason;
    assert!(silent.contains("did not end ok in the healed world"), "{silent}");
}

fn world(commit: std::ops::RangeInclusive<u64>) -> World<Toy> {
    let setting = script::Setting::equidistant(3, 100);
    World::new(Toy(Flaw::None), setting.shape, Conduct { seed: 1, commit, codec: true, cpu: None }, None)
}

fn done(world: &mut World<Toy>, until: u64) -> Option<Completion> {
    match world.next(until) {
        Some(Notice::Done { completion, .. }) => Some(completion),
        _ => None,
    }
}

#[test]
fn nothing_leaves_a_node_before_its_records_are_durable() {
    let mut world = world(5_000..=5_000);
    let slot = world.open_client(1);
    world.submit(1, slot, Plan::Set("v".into()).request("k", 0));
    // Half a round trip there, 5 ms for the commit, half a round trip back.
    let completion = done(&mut world, 1_000_000).expect("it ends");
    assert!(matches!(completion.outcome, Outcome::Answer(_)));
    assert_eq!(world.time(), 105_000);
}

#[test]
fn a_crash_before_the_commit_loses_the_record_and_what_waited_for_it() {
    let mut lost = 0;
    for seed in 0..20 {
        let setting = script::Setting::equidistant(3, 100);
        let conduct = Conduct { seed, commit: 5_000..=5_000, codec: true, cpu: None };
        let mut world = World::new(Toy(Flaw::None), setting.shape, conduct, None);
        let slot = world.open_client(1);
        let sent = Rc::new(RefCell::new(0));
        let count = Rc::clone(&sent);
        world.intercept(move |envelope| {
            *count.borrow_mut() += usize::from(matches!(envelope.message, Message::Done { .. }));
            Fate::Pass
        });
        world.submit(1, slot, Plan::Set("v".into()).request("k", 0));
        assert!(done(&mut world, 52_000).is_none());
        world.crash(0);
        world.start(0);
        assert!(done(&mut world, 200_000).is_none(), "no answer has left");
        assert_eq!(*sent.borrow(), 0);
        // The commit under way may have become durable all the same; only the answer must not have left.
        let id = world.shape().group().replica(0, Region(0));
        lost += usize::from(world.status(id).expect("the node is up").keys == 0);
        // The client asks again, and now it happens, once.
        assert!(done(&mut world, 2_000_000).is_some());
        assert_eq!(world.status(id).expect("the node is up").keys, 1);
    }
    assert!((1..20).contains(&lost), "sometimes the record is lost, sometimes not: {lost} of 20");
}

#[test]
fn what_is_durable_survives() {
    let mut world = world(0..=0);
    let slot = world.open_client(1);
    world.submit(1, slot, Plan::Set("v".into()).request("k", 0));
    assert!(done(&mut world, 1_000_000).is_some());
    world.crash(0);
    world.start(0);
    let id = world.shape().group().replica(0, Region(0));
    assert_eq!(world.status(id).expect("the node is up").keys, 1);
    assert_eq!(world.restarts(), 1);
}

#[test]
fn what_a_paused_node_is_sent_waits() {
    let mut world = world(0..=0);
    let slot = world.open_client(1);
    world.pause(0);
    world.submit(1, slot, Plan::Set("v".into()).request("k", 0));
    assert!(done(&mut world, 250_000).is_none());
    world.resume(0);
    assert!(done(&mut world, 310_000).is_some(), "it went on with what had waited");
}

#[test]
fn a_client_of_an_earlier_life_gets_nothing() {
    let mut world = world(0..=0);
    let slot = world.open_client(1);
    let before = world.client_address(1, slot);
    world.submit(1, slot, Plan::Set("v".into()).request("k", 0));
    assert!(done(&mut world, 60_000).is_none());
    world.crash(1);
    world.start(1);
    let slot = world.open_client(1);
    assert_ne!(before, world.client_address(1, slot), "a new life has new clients");
    assert!(done(&mut world, 3_000_000).is_none(), "the answer was for a client that is no more");
}

#[test]
fn links_keep_their_order_but_for_what_is_reordered() {
    for (reorder, in_order) in [(0.0, true), (0.5, false)] {
        let mut world = world(0..=0);
        world.set_weather(Weather { jitter: 0.9, reorder, longest_delay: 300_000, ..Weather::default() });
        let order = Rc::new(RefCell::new(Vec::new()));
        let seen = Rc::clone(&order);
        world.intercept(move |envelope| {
            if let (Message::Done { request, .. }, Address::Client(..)) = (&envelope.message, envelope.to) {
                seen.borrow_mut().push(*request);
            }
            Fate::Pass
        });
        let slot = world.open_client(1);
        for index in 0..50 {
            let until = world.time() + 1_000;
            while world.next(until).is_some() {}
            world.submit(1, slot, Plan::Set(index.to_string()).request("k", 0));
        }
        while world.next(150_000).is_some() {}
        let order = order.borrow();
        assert_eq!(order.is_sorted(), in_order, "{order:?}");
    }
}

#[test]
fn work_takes_its_time_one_thing_after_the_other() {
    let setting = script::Setting::equidistant(3, 100);
    let cpu = Some(CpuCost { request: 500_000.0, message: 1e6, byte: 0.0, item: 0.0 });
    let conduct = Conduct { seed: 1, commit: 0..=0, codec: true, cpu };
    let mut world = World::new(Toy(Flaw::None), setting.shape, conduct, None);
    let slots: Vec<u32> = (0..3).map(|_| world.open_client(1)).collect();
    for slot in &slots {
        world.submit(1, *slot, Plan::Get.request("k", 0));
    }
    let ends: Vec<u64> = slots
        .iter()
        .map(|_| {
            assert!(done(&mut world, 10_000_000).is_some());
            world.time()
        })
        .collect();
    // The node takes on three requests, half a ms each, before the first question leaves: 2.5 ms. Half a round trip
    // later the server has 6 ms of work, three questions and three answers. Its last answer leaves at 58.5 ms, and
    // takes half a round trip and a ms at the client's node; the first had left after two questions and itself.
    assert_eq!(ends, [106_500, 108_500, 109_500]);
}

#[test]
fn mishaps_happen_as_often_as_they_should() {
    let report = run(Flaw::None, 3, |options| options.workload.ops = 4_000);
    let share =
        |kind: &str| report.faults.get(kind).copied().unwrap_or_default() as f64 / report.messages as f64;
    for (kind, most) in [("loss", 0.08), ("duplicate", 0.08), ("reorder", 0.25)] {
        assert!(share(kind) > 0.001 && share(kind) < most, "{kind}: {}", share(kind));
    }
}
