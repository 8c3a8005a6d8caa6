//! Seeded runs of every engine with all faults: what clients saw obeys the model, all that was begun ends, the
//! healed cluster serves everything, and its replicas come to agree.

mod common;

use common::{MUST_HAPPEN, demand, one, runs, swarm};
use meridian_protocol::registry::{EngineName, Settings};
use meridian_sim::{End, Keys, Mix, Options};

#[test]
fn every_engine_keeps_its_model_in_every_storm() {
    demand(0..runs(50), swarm, &MUST_HAPPEN);
}

#[test]
fn three_regions_of_two_nodes_with_four_partitions() {
    let options = |seed| {
        let mut options = Options::new(seed, Settings::default());
        options.nodes_per_region = 2;
        options.partitions = 4;
        options.workload.clients = 12;
        options
    };
    demand(1_000..1_000 + runs(50) / 5, options, &["recovery", "retry", "catch_up", "restart"]);
}

/// Short runs are judged by search too: what the values say must not depend on what the engine claims.
#[test]
fn short_runs_hold_by_their_values_alone() {
    for engine in EngineName::all() {
        for seed in 0..4 * runs(50) {
            let mut options = swarm(seed);
            options.workload.ops = 45;
            options.workload.clients = 6;
            let report = meridian_sim::run(engine, &options, None);
            assert_eq!(report.end, End::Holds, "{report}: {}", report.reason);
        }
    }
}

#[test]
fn a_run_that_is_too_small_or_too_lucky_does_not_count() {
    let mut options = Options::new(1, Settings::default());
    options.workload.ops = 100;
    let shortfall = one("gryff", &options).verify().expect_err("a hundred operations are no run");
    assert!(shortfall.contains("fewer than 1000"), "{shortfall}");
}

/// Rmws of one key, and machines that lose patience before an answer can have come from far away.
#[test]
fn impatient_machines_on_one_hot_key() {
    let options = |seed| {
        let mut options = swarm(seed);
        options.settings.retry = 120_000 + seed % 4 * 60_000;
        options.settings.recovery = 250_000 + seed % 5 * 100_000;
        options.workload.ops = 1_000;
        options.workload.keys = Keys::Few(1);
        options.workload.mix = Mix { reads: 1, writes: 1, rmws: 3 };
        options
    };
    demand(2_000..2_000 + runs(50) / 5, options, &["slow_path", "recovery", "retry"]);
}
