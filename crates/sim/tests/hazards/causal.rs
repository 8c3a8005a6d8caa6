//! The causal family: streams, vectors, clocks, sessions that move; readers checks.

use crate::schedules::{causal, cc_lo};
use meridian_check::{Model, Verdict};
use meridian_protocol::causal::{Causal, CausalSettings, Rounds};
use meridian_protocol::cc_lo::CcLo;
use meridian_protocol::machine::Level;
use meridian_protocol::registry::Settings;
use meridian_sim::script::Script;

/// Nothing ends by itself while a schedule keeps it waiting.
pub(crate) fn settings() -> Settings {
    Settings { operation_timeout: 600_000_000, ..Settings::default() }
}

pub(crate) fn both() -> [Causal; 2] {
    [Causal::contrarian(settings()), Causal::tcc(settings())]
}

fn tcc() -> Causal {
    Causal::tcc(settings())
}

pub(crate) fn cc_lo() -> CcLo {
    CcLo::new(settings())
}

#[test]
fn writes_are_seen_in_the_order_of_their_stream() {
    for engine in both() {
        causal::overtaken_write(engine).unwrap();
    }
}

#[test]
fn a_write_is_not_seen_before_what_it_depends_on_in_a_third_region() {
    for engine in both() {
        causal::slow_third_link(engine).unwrap();
    }
}

#[test]
fn what_is_written_behind_a_snapshot_is_not_in_it() {
    let two = CausalSettings { rounds: Rounds::Two, ..CausalSettings::default() };
    let engines = both().into_iter().chain([Causal::contrarian(Settings { causal: two, ..settings() })]);
    for engine in engines {
        causal::writes_behind_a_snapshot(engine).unwrap();
    }
}

#[test]
fn what_was_stable_stays_so_through_a_restart() {
    causal::restart_before_the_next_heartbeat(Causal::contrarian(settings())).unwrap();
}

#[test]
fn a_session_sees_what_it_has_written() {
    causal::read_of_the_own_write(tcc()).unwrap();
}

/// For every pair that the paper tells apart: the level holds what it promises, and the level without it does not.
#[test]
fn weaker_levels_are_weaker() {
    let pairs = [
        (Model::Ryw, Level::ReadYourWrites, Level::Eventual),
        (Model::Ryw, Level::ReadYourWrites, Level::MonotonicReads),
    ];
    for (model, strong, weak) in pairs {
        causal::read_after_moving(tcc(), strong).expect(model, Verdict::Holds);
        let script = causal::read_after_moving(tcc(), weak);
        script.expect(model, Verdict::Violated);
        script.expect(Model::TccClosed, Verdict::Holds);
    }
    for weak in [Level::Eventual, Level::ReadYourWrites] {
        causal::read_again_after_moving(tcc(), Level::MonotonicReads).expect(Model::Mr, Verdict::Holds);
        let script = causal::read_again_after_moving(tcc(), weak);
        script.expect(Model::Mr, Verdict::Violated);
        script.expect(Model::TccClosed, Verdict::Holds);
    }
    for weak in [Level::Eventual, Level::WritesFollowReads] {
        let strong = causal::write_after_moving_to_a_slower_clock(tcc(), Level::MonotonicWrites);
        strong.expect(Model::TccClosed, Verdict::Holds);
        strong.expect(Model::Mw, Verdict::Holds);
        assert_eq!(last_read(&strong).as_deref(), Some("second"));
        let script = causal::write_after_moving_to_a_slower_clock(tcc(), weak);
        script.expect(Model::TccClosed, Verdict::Holds);
        script.expect(Model::Mw, Verdict::Violated);
        assert_eq!(last_read(&script).as_deref(), Some("first"), "{weak:?}");
    }
    for weak in [Level::Eventual, Level::MonotonicWrites] {
        let strong = causal::write_over_a_faster_clock(tcc(), Level::WritesFollowReads);
        strong.expect(Model::TccClosed, Verdict::Holds);
        strong.expect(Model::Wfr, Verdict::Holds);
        assert_eq!(last_read(&strong).as_deref(), Some("mine"));
        let script = causal::write_over_a_faster_clock(tcc(), weak);
        script.expect(Model::TccClosed, Verdict::Holds);
        script.expect(Model::Wfr, Verdict::Violated);
        assert_eq!(last_read(&script).as_deref(), Some("theirs"), "{weak:?}");
    }
    let all = [
        causal::read_after_moving(tcc(), Level::Causal),
        causal::read_again_after_moving(tcc(), Level::Causal),
        causal::write_after_moving_to_a_slower_clock(tcc(), Level::Causal),
        causal::write_over_a_faster_clock(tcc(), Level::Causal),
    ];
    for script in all {
        script.expect(Model::TccClosed, Verdict::Holds);
    }
}

fn last_read(script: &Script<Causal>) -> Option<String> {
    script.history().last().and_then(|event| event.ops.last()?.value.clone())
}

#[test]
fn a_transaction_of_one_round_does_not_see_what_depends_on_what_it_missed() {
    cc_lo::dependent_write_between_two_reads(cc_lo()).unwrap();
}

#[test]
fn only_the_dependency_itself_satisfies_a_dependency_check() {
    cc_lo::newer_version_of_a_dependency(cc_lo()).unwrap();
}

#[test]
fn a_check_names_those_from_whom_the_dependency_is_hidden() {
    cc_lo::dependency_hidden_behind_a_newer_version(cc_lo()).unwrap();
}

#[test]
fn an_old_reader_sees_what_was_there_before_the_dangerous_write() {
    cc_lo::needed_version_before_a_dangerous_one(cc_lo()).unwrap();
}

#[test]
fn what_a_restart_has_lost_of_transactions_is_waited_out() {
    cc_lo::restart_of_a_partition_that_hides_something(cc_lo()).unwrap();
}
