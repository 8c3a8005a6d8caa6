//! A check must be able to fail: each planted bug is found, by the schedule made for it or by storms.

#![cfg(feature = "planted-bugs")]

mod schedules;

use meridian_check::Model;
use meridian_protocol::causal::Causal;
use meridian_protocol::cc_lo::CcLo;
use meridian_protocol::gryff::Gryff;
use meridian_protocol::machine::Level;
use meridian_protocol::multipaxos::MultiPaxos;
use meridian_protocol::planted::{Plant, Planted};
use meridian_protocol::registry::{EngineName, Settings};
use meridian_protocol::spanner::Kind;
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
        "was seen by op 2 (p2: r x=new), which returned before the invocation of op 3 (p3: r x=null)",
    );
}

#[test]
fn drop_dependency() {
    caught(
        schedules::dependency_dropped(Gryff::rsc(with(Planted::DropDependency))),
        "came, in its session, before op 5 (p3: r x=null), which was overwritten by op 1 (p1: w x=1)",
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
        "returned before the invocation of op 2 (p2: r x=null), which was overwritten by op 1",
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
fn commit_what_one_reply_more_adds() {
    let settings = with(Planted::CommitUnion);
    caught(schedules::instances::one_reply_more_in_epaxos(&settings), "and recovered as");
    caught(schedules::instances::one_reply_more_in_gryff(&settings), "and recovered as");
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

/// Gryff with writes by the clock and a bug, and Gryff-RSC.
fn by_clock(bug: Planted) -> (Gryff, Gryff) {
    let settings = schedules::one_round::by_clock(&with(bug));
    (Gryff::linearizable(settings.clone()), Gryff::rsc(settings))
}

#[test]
fn what_lies_ahead_is_told_too_soon() {
    let lost = "returned before the invocation of";
    let (gryff, _) = by_clock(Planted::NoCommitWait);
    caught(schedules::one_round::one_after_the_other(gryff), lost);
    let (gryff, _) = by_clock(Planted::TimestampFromEarliest);
    caught(schedules::one_round::one_after_the_other(gryff), lost);
    let (gryff, _) = by_clock(Planted::NoReadWait);
    caught(schedules::one_round::read_ahead(gryff), lost);
    let (gryff, _) = by_clock(Planted::NoVoucher);
    caught(schedules::one_round::read_without_a_clock(gryff), lost);
    let (gryff, rsc) = by_clock(Planted::NoRmwWait);
    caught(schedules::one_round::rmw_ahead(gryff, Model::Linearizable), lost);
    caught(schedules::one_round::rmw_ahead(rsc, Model::Rsc), lost);
}

#[test]
fn sessions_that_do_not_wait_for_what_they_have_read() {
    let (_, rsc) = by_clock(Planted::ForgetSessionMaximum);
    caught(schedules::one_round::write_over_what_was_read(rsc), "came, in its session, before");
    let (_, rsc) = by_clock(Planted::BeginUnsettled);
    caught(schedules::one_round::skip(rsc), "came, in its session, before");
    let (_, rsc) = by_clock(Planted::NoFenceWait);
    caught(schedules::one_round::fence(rsc), "fence");
    for bug in [Planted::SendDependencyAlong, Planted::ClockReadEarly] {
        let (_, rsc) = by_clock(bug);
        caught(schedules::one_round::write_after_reading(rsc), "came, in its session, before");
    }
}

fn multipaxos(bug: Planted) -> MultiPaxos {
    schedules::multipaxos::dictated(&with(bug))
}

#[test]
fn serve_stale_ballot() {
    caught(
        schedules::multipaxos::read_from_a_deposed_leader(multipaxos(Planted::ServeStaleBallot)),
        "returned before the invocation of op 3 (p1: r x=old), which was overwritten by op 2 (p2: w x=new)",
    );
}

#[test]
fn forget_promise() {
    caught(
        schedules::multipaxos::restart_after_a_promise(multipaxos(Planted::ForgetPromise)),
        "returned before the invocation of op 2 (p2: r x=null), which was overwritten by op 1",
    );
}

#[test]
fn promise_skips_filled_slots() {
    caught(
        schedules::multipaxos::an_old_entry_in_a_filled_slot(multipaxos(Planted::PromiseSkipsFilledSlots)),
        "returned before the invocation of op 4 (p4: r z=null), which was overwritten by op 3",
    );
}

#[test]
fn count_acks_across_ballots() {
    caught(
        schedules::multipaxos::acceptances_of_an_earlier_term(multipaxos(Planted::CountAcksAcrossBallots)),
        "returned before the invocation of op 4 (p4: r z=null), which was overwritten by op 3",
    );
}

#[test]
fn snapshot_without_sessions() {
    caught(
        schedules::multipaxos::retry_after_a_snapshot(&multipaxos(Planted::SnapshotWithoutSessions)),
        "saw a at carstamp (0, 0, 1) of x, which no update created",
    );
}

#[test]
#[should_panic(expected = "went back below the horizon")]
fn stable_goes_back() {
    let engine = Causal::contrarian(with(Planted::StableGoesBack));
    let _ = schedules::causal::restart_before_the_next_heartbeat(engine);
}

#[test]
#[should_panic(expected = "went back below the horizon")]
fn one_minimum() {
    let engine = Causal::contrarian(with(Planted::OneMinimum));
    let _ = schedules::causal::restart_before_the_next_heartbeat(engine);
}

#[test]
fn replication_out_of_order() {
    caught(
        schedules::causal::overtaken_write(Causal::contrarian(with(Planted::ReplicationOutOfOrder))),
        "covers op 1 (p1: w x=1), which is newer than what it returned",
    );
}

#[test]
fn vector_not_sent() {
    caught(
        schedules::causal::slow_third_link(Causal::contrarian(with(Planted::VectorNotSent))),
        "saw what op 3 (p2: w k0=2) wrote, which its snapshot",
    );
}

#[test]
fn clock_not_moved() {
    caught(
        schedules::causal::writes_behind_a_snapshot(Causal::contrarian(with(Planted::ClockNotMoved))),
        "which is newer than what it returned",
    );
}

fn judged(script: &meridian_sim::script::Script<Causal>) -> Played {
    schedules::causal::judged(script, meridian_check::Model::TccClosed)
}

#[test]
fn timestamp_above_own_entry() {
    let tcc = || Causal::tcc(with(Planted::TimestampAboveOwnEntry));
    let script = schedules::causal::write_after_moving_to_a_slower_clock(tcc(), Level::MonotonicWrites);
    caught(judged(&script), "misses what its session had written");
    let script = schedules::causal::write_over_a_faster_clock(tcc(), Level::WritesFollowReads);
    caught(judged(&script), "misses what its session had been returned");
}

#[test]
fn own_entry_stays_zero() {
    let tcc = Causal::tcc(with(Planted::OwnEntryStaysZero));
    caught(schedules::causal::read_of_the_own_write(tcc), "has not reached this region yet");
}

#[test]
fn levels_not_awaited() {
    let tcc = || Causal::tcc(with(Planted::LevelsNotAwaited));
    let script = schedules::causal::read_after_moving(tcc(), Level::ReadYourWrites);
    caught(judged(&script), "misses what its session had written");
    let script = schedules::causal::read_again_after_moving(tcc(), Level::MonotonicReads);
    caught(judged(&script), "misses the snapshots of its session's earlier reads");
}

#[test]
fn skip_readers_check() {
    caught(
        schedules::cc_lo::dependent_write_between_two_reads(CcLo::new(with(Planted::SkipReadersCheck))),
        "was known to",
    );
}

#[test]
fn newer_version_satisfies() {
    caught(
        schedules::cc_lo::newer_version_of_a_dependency(CcLo::new(with(Planted::NewerVersionSatisfies))),
        "was known to",
    );
}

#[test]
fn hidden_dependency_not_told() {
    let engine = CcLo::new(with(Planted::HiddenDependencyNotTold));
    caught(schedules::cc_lo::dependency_hidden_behind_a_newer_version(engine), "was known to");
}

#[test]
fn speaks_after_restart() {
    let engine = CcLo::new(with(Planted::SpeaksAfterRestart));
    caught(schedules::cc_lo::restart_of_a_partition_that_hides_something(engine), "was known to");
}

#[test]
fn cut_at_earlier_read() {
    let engine = CcLo::new(with(Planted::CutAtEarlierRead));
    caught(schedules::cc_lo::needed_version_before_a_dangerous_one(engine), "was known to");
}

#[test]
fn no_commit_wait() {
    for kind in [Kind::Strict, Kind::Rss] {
        caught(
            schedules::spanner::clocks_within_their_bound(kind, &with(Planted::NoCommitWait)),
            "returned before the invocation of op 3",
        );
    }
}

#[test]
fn forget_minimum() {
    caught(
        schedules::spanner::read_after_a_read(Kind::Rss, &with(Planted::ForgetMinimum)),
        "came, in its session, before op 7",
    );
}

#[test]
fn skip_past_earliest_end() {
    caught(
        schedules::spanner::read_after_the_end(Kind::Rss, &with(Planted::SkipPastEarliestEnd)),
        "returned before the invocation of op 6",
    );
}

#[test]
fn values_before_skipped() {
    for kind in [Kind::Strict, Kind::Rss] {
        caught(
            schedules::spanner::read_after_the_end(kind, &with(Planted::ValuesBeforeSkipped)),
            "returned before the invocation of op 6",
        );
    }
}

#[test]
fn lose_locks() {
    caught(
        schedules::spanner::locks_after_a_failover(Kind::Strict, &with(Planted::LoseLocks)),
        "where the newest version of",
    );
}

#[test]
fn release_readers_at_prepare() {
    caught(
        schedules::spanner::write_of_what_is_read(Kind::Strict, &with(Planted::ReleaseReadersAtPrepare)),
        "where the newest version of",
    );
}

#[test]
fn read_below_horizon() {
    for kind in [Kind::Strict, Kind::Po] {
        caught(
            schedules::spanner::read_of_a_forgotten_time(kind, &with(Planted::ReadBelowHorizon)),
            "a read of a forgotten time was answered Nil",
        );
    }
}

#[test]
fn unreplicated_decision() {
    caught(
        schedules::spanner::leader_dies_before_anybody_has_its_decision(
            Kind::Strict,
            &with(Planted::UnreplicatedDecision),
        ),
        "returned before the invocation of op 3",
    );
}

#[test]
fn unclamped_end() {
    caught(schedules::spanner::read_after_a_fence(&with(Planted::UnclampedEnd)), "fence");
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
    for bug in [
        Planted::LostDependency,
        Planted::FinalToAll,
        Planted::SingleInstanceDependencies,
        Planted::UnsortedComponent,
    ] {
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

/// As above, for what can go wrong in Spanner-RSS.
#[test]
fn storms_find_what_is_not_rare_in_spanner() {
    for bug in [
        Planted::NoCommitWait,
        Planted::ForgetMinimum,
        Planted::SkipPastEarliestEnd,
        Planted::ValuesBeforeSkipped,
    ] {
        let engine = EngineName { model: meridian_protocol::registry::Model::Rss, name: "spanner-rss" };
        let storms = (0..STORMS).map(|seed| meridian_sim::run(engine, &Options::new(seed, with(bug)), None));
        let found = storms.enumerate().find(|(_, report)| report.end == End::Violated);
        let (seed, found) = found.unwrap_or_else(|| panic!("{bug:?} was not found in {STORMS} storms"));
        println!("{bug:?}: storm {seed}: {found}: {}", found.reason);
    }
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
