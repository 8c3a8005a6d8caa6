//! Seeded runs of every engine with all faults: what clients saw obeys the model, all that was begun ends, the
//! healed cluster serves everything, and its replicas come to agree.

use meridian_protocol::registry::{EngineName, Settings};
use meridian_sim::{End, Keys, Mix, Options, Totals};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::ops::Range;

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
    let gryff = EngineName::of_engine("gryff").expect("gryff is built");
    let report = meridian_sim::run(gryff, &options, None);
    let shortfall = report.verify().expect_err("a hundred operations are no run");
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

/// What must have happened at least once in a set of runs: otherwise the set proves nothing about it.
const MUST_HAPPEN: [&str; 7] =
    ["slow_path", "write_back", "recovery", "retry", "truncation", "catch_up", "restart"];

/// How many runs a set has: `MERIDIAN_RUNS`, or `default`.
fn runs(default: u64) -> u64 {
    std::env::var("MERIDIAN_RUNS").map_or(default, |runs| runs.parse().expect("MERIDIAN_RUNS is a number"))
}

/// A run in which the seed also decides the cluster, its settings and its losses: most have three regions, a
/// share five or seven.
fn swarm(seed: u64) -> Options {
    let mut options = Options::new(seed, Settings::default());
    options = options.regions([3, 5, 3, 3, 7, 3, 5, 3][seed as usize % 8]);
    options.settings.read_proxy = seed % 7 != 3;
    options.settings.thrifty = seed % 5 != 2;
    if seed % 6 == 5 {
        options.lost_regions = usize::from(options.rtt.regions()) / 2;
    }
    options.workload.sessions_per_machine = if seed % 9 == 4 { 3 } else { 1 };
    options.workload.clients = 8 + seed as usize % 5;
    options.workload.think = [0, 0, 50_000][seed as usize % 3];
    options
}

/// Runs every seed of a set on every engine, each engine in a thread of its own, and demands that all runs are
/// whole and hold.
///
/// `MERIDIAN_SEED=S` plays that seed alone, again, and writes its story to `ENGINE-S.story` in the directory for
/// temporary files.
fn demand(seeds: Range<u64>, options: impl Fn(u64) -> Options + Sync, must_happen: &[&str]) {
    let again: Option<u64> = std::env::var("MERIDIAN_SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = again.map_or(seeds, |seed| seed..seed + 1);
    let must_happen = if again.is_some() { &[] } else { must_happen };
    let set = |engine: EngineName| {
        let mut totals = Totals::default();
        let mut failures = Vec::new();
        for seed in seeds.clone() {
            let report = meridian_sim::run(engine, &options(seed), again.map(|seed| story(engine, seed)));
            failures.extend(report.verify().err().map(|why| format!("{why}\n  again: MERIDIAN_SEED={seed}")));
            totals.add(&report);
        }
        println!("{}: {totals}", engine.name);
        let never = totals.never(must_happen);
        if !never.is_empty() {
            failures.push(format!("{}: never happened: {}", engine.name, never.join(", ")));
        }
        failures
    };
    let engines = EngineName::all();
    let failures: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = engines.into_iter().map(|engine| scope.spawn(move || set(engine))).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("the run told its seed")).collect()
    });
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

fn story(engine: EngineName, seed: u64) -> Box<dyn Write> {
    let path = std::env::temp_dir().join(format!("{}-{seed}.story", engine.name));
    println!("the story is in {}", path.display());
    Box::new(BufWriter::new(File::create(path).expect("the temporary directory is writable")))
}
