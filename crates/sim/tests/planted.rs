//! A check must be able to fail: each planted bug is found, by the schedule made for it or by storms.

#![cfg(feature = "planted-bugs")]

mod schedules;

use meridian_protocol::gryff::Gryff;
use meridian_protocol::multipaxos::MultiPaxos;
use meridian_protocol::planted::{Plant, Planted};
use meridian_protocol::registry::{EngineName, Settings};
use meridian_sim::{End, Keys, Mix, Options, Report};
use schedules::{Played, Zigzag, explicit};

fn with(bug: Planted) -> Settings {
    Settings { plant: Plant::new(bug), ..Settings::default() }
}

/// The schedule goes wrong with the bug, and the judgement says so for the reason that the bug has.
fn caught(played: Played, reason: &str) {
    let told = played.expect_err("the schedule goes wrong with the bug");
    println!("{told}");
    assert!(told.contains(reason), "not for this reason: {reason}");
}

#[test]
fn skip_write_back() {
    caught(
        schedules::read_without_write_back(Gryff::linearizable(with(Planted::SkipWriteBack))),
        "was seen by op 2 (p2: r x=new) returned before the invocation of op 3 (p3: r x=null)",
    );
}

#[test]
fn drop_dependency() {
    caught(
        schedules::dependency_dropped(Gryff::rsc(with(Planted::DropDependency))),
        "came, in its session, before op 5 (p3: r x=null) was overwritten by op 1 (p1: w x=1)",
    );
}

#[test]
fn piggyback_dependency() {
    let clients = |settings| explicit(&Settings { read_proxy: false, ..settings });
    for write in [false, true] {
        let three = Zigzag { regions: 3, p2: 0, late: &[1], write };
        caught(
            schedules::zigzag(Gryff::rsc(clients(with(Planted::PiggybackDependency))), &three),
            "came, in its session, before op 3",
        );
        let five = Zigzag { regions: 5, p2: 1, late: &[3, 4], write };
        caught(
            schedules::zigzag(Gryff::rsc(explicit(&with(Planted::PiggybackDependency))), &five),
            "came, in its session, before op 3",
        );
    }
}

#[test]
fn complete_after_one_execution() {
    caught(
        schedules::one_execution(Gryff::linearizable(with(Planted::CompleteAfterOneExecution))),
        "returned before the invocation of op 2 (p2: r x=null) was overwritten by op 1",
    );
}

#[test]
fn compare_carstamps_wrongly() {
    caught(
        schedules::rmw_between_two_writes(Gryff::linearizable(with(Planted::CompareCarstampsWrongly))),
        "op 1 (p2: w x=high) returned before the invocation of op 4 (p3: r x=low.rmw)",
    );
}

#[test]
fn single_ballot() {
    caught(
        schedules::two_outcomes_at_two_ballots(Gryff::linearizable(with(Planted::SingleBallot))),
        "one instance was committed with two outcomes",
    );
}

#[test]
fn single_ballot_in_epaxos() {
    caught(
        schedules::epaxos::two_outcomes_of_one_instance(&with(Planted::SingleBallot)),
        "one instance was committed as",
    );
}

#[test]
fn small_fast_quorum() {
    caught(
        schedules::base_of_a_lost_coordinator(Gryff::linearizable(with(Planted::SmallFastQuorum))),
        "op 2 (p1: w x=new) returned before the invocation of op 3 (p2: r x=old w x=old.rmw)",
    );
}

#[test]
fn reuse_carstamp() {
    caught(
        schedules::two_writes_in_flight(Gryff::linearizable(with(Planted::ReuseCarstamp))),
        "created the same carstamp",
    );
    caught(
        schedules::write_after_one_given_up(Gryff::linearizable(with(Planted::ReuseCarstamp))),
        "carstamp",
    );
}

fn multipaxos(bug: Planted) -> MultiPaxos {
    schedules::multipaxos::dictated(&with(bug))
}

#[test]
fn serve_stale_ballot() {
    caught(
        schedules::multipaxos::read_from_a_deposed_leader(multipaxos(Planted::ServeStaleBallot)),
        "returned before the invocation of op 3 (p1: r x=old) was overwritten by op 2 (p2: w x=new)",
    );
}

#[test]
fn forget_promise() {
    caught(
        schedules::multipaxos::restart_after_a_promise(multipaxos(Planted::ForgetPromise)),
        "returned before the invocation of op 2 (p2: r x=null) was overwritten by op 1",
    );
}

#[test]
fn promise_skips_filled_slots() {
    caught(
        schedules::multipaxos::an_old_entry_in_a_filled_slot(multipaxos(Planted::PromiseSkipsFilledSlots)),
        "returned before the invocation of op 4 (p4: r z=null) was overwritten by op 3",
    );
}

#[test]
fn count_acks_across_ballots() {
    caught(
        schedules::multipaxos::acceptances_of_an_earlier_term(multipaxos(Planted::CountAcksAcrossBallots)),
        "returned before the invocation of op 4 (p4: r z=null) was overwritten by op 3",
    );
}

#[test]
fn snapshot_without_sessions() {
    caught(
        schedules::multipaxos::retry_after_a_snapshot(&multipaxos(Planted::SnapshotWithoutSessions)),
        "saw a at carstamp (0, 0, 1) of x, which no update created",
    );
}

/// Bugs that random storms meet soon too: the schedules are not all that stands between them and a release.
#[test]
fn storms_find_what_is_not_rare() {
    for bug in [
        Planted::SkipWriteBack,
        Planted::CompleteAfterOneExecution,
        Planted::CompareCarstampsWrongly,
        Planted::SmallFastQuorum,
        Planted::ReuseCarstamp,
    ] {
        let found = (0..STORMS).map(|seed| storm(bug, seed)).find(|report| report.end == End::Violated);
        let found = found.unwrap_or_else(|| panic!("{bug:?} was not found in {STORMS} storms"));
        println!("{bug:?}: {found}: {}", found.reason);
    }
}

/// As above, for what can go wrong in EPaxos.
#[test]
fn storms_find_what_is_not_rare_in_epaxos() {
    for bug in [Planted::LostDependency, Planted::SingleInstanceDependencies, Planted::UnsortedComponent] {
        let storms = (0..STORMS).map(|seed| epaxos_storm(bug, seed));
        let found = storms.enumerate().find(|(_, report)| [End::Violated, End::Stuck].contains(&report.end));
        let (seed, found) = found.unwrap_or_else(|| panic!("{bug:?} was not found in {STORMS} storms"));
        println!("{bug:?}: storm {seed}: {found}: {}", found.reason);
    }
}

fn epaxos_storm(bug: Planted, seed: u64) -> Report {
    let mut options = Options::new(seed, with(bug)).regions(5);
    options.partitions = 1;
    options.workload.clients = 15;
    options.workload.keys = Keys::Few(2);
    options.workload.mix = Mix { reads: 3, writes: 4, rmws: 1 };
    meridian_sim::run(EngineName::of_engine("epaxos").expect("epaxos is built"), &options, None)
}

/// The most storms until a bug is found.
const STORMS: u64 = 300;

fn storm(bug: Planted, seed: u64) -> Report {
    let mut options = Options::new(seed, with(bug)).regions(5);
    options.partitions = 1;
    options.workload.clients = 15;
    options.workload.keys = Keys::Few(2);
    // Without rmws there are more reads of what few replicas hold.
    options.workload.mix =
        Mix { reads: 4, writes: 2, rmws: if bug == Planted::SkipWriteBack { 0 } else { 3 } };
    options.workload.sessions_per_machine = if bug == Planted::ReuseCarstamp { 3 } else { 1 };
    meridian_sim::run(EngineName::of_engine("gryff").expect("gryff is built"), &options, None)
}
