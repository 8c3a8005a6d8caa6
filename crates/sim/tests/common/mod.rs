//! What the tests of the simulator share.

use meridian_protocol::registry::{EngineName, Settings};
use meridian_sim::{Options, Report, Totals};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::ops::Range;

/// What must have happened at least once in a set of runs: otherwise the set proves nothing about it.
pub(crate) const MUST_HAPPEN: [&str; 7] =
    ["slow_path", "write_back", "recovery", "retry", "truncation", "catch_up", "restart"];

/// How many runs a set has: `MERIDIAN_RUNS`, or `default`.
pub(crate) fn runs(default: u64) -> u64 {
    std::env::var("MERIDIAN_RUNS").map_or(default, |runs| runs.parse().expect("MERIDIAN_RUNS is a number"))
}

/// A run in which the seed also decides the cluster, its settings and its losses: most have three regions, a
/// share five or seven.
pub(crate) fn swarm(seed: u64) -> Options {
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
pub(crate) fn demand(seeds: Range<u64>, options: impl Fn(u64) -> Options + Sync, must_happen: &[&str]) {
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

/// The run of one engine with one seed.
pub(crate) fn one(engine: &str, options: &Options) -> Report {
    meridian_sim::run(EngineName::of_engine(engine).expect("the engine is built"), options, None)
}
