//! Seeded runs of every engine with all faults: what clients saw obeys the model, all that was begun ends, the
//! healed cluster serves everything, and its replicas come to agree.

use meridian_protocol::registry::{EngineName, Settings, Writes};
use meridian_protocol::topology::Region;
use meridian_sim::{End, Keys, Mix, Options, Totals};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::ops::Range;

#[test]
fn every_engine_keeps_its_model_in_every_storm() {
    demand(0..runs(50), swarm, must_happen);
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
    demand(1_000..1_000 + runs(50) / 5, options, |engine| match engine {
        "multipaxos" => &["election", "retry", "catch_up", "restart"],
        engine if engine.starts_with("spanner") => &["election", "in_doubt", "catch_up", "restart"],
        _ => &["recovery", "retry", "catch_up", "restart"],
    });
}

/// Short runs are judged by search too: what the values say must not depend on what the engine claims.
#[test]
fn short_runs_hold_by_their_values_alone() {
    let again = again();
    for engine in engines() {
        for seed in again.map_or(0..4 * runs(50), |seed| seed..seed + 1) {
            let mut options = swarm(seed);
            options.workload.ops = 45;
            options.workload.clients = 6;
            let report = meridian_sim::run(engine, &options, again.map(|seed| story(engine, seed)));
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
    demand(2_000..2_000 + runs(50) / 5, options, |engine| match engine {
        "multipaxos" => &["election", "resend", "retry"],
        engine if engine.starts_with("spanner") => &["election", "resend", "wound"],
        _ => &["slow_path", "recovery", "retry"],
    });
}

/// Clocks choose timestamps: right within bounds from far below the distances to far above them, and now and then a node has none.
#[test]
fn writes_by_the_clock_in_every_storm() {
    let options = |seed| {
        let mut options = swarm(seed);
        options.settings.writes = [Writes::OneRound, Writes::OneRound, Writes::Auto][seed as usize / 3 % 3];
        options.clock_error = [10_000, 1_000, 100_000, 400_000][seed as usize / 2 % 4];
        if options.lost_regions > 0 {
            // With so few left machines die before they have waited for the widest.
            options.clock_error = options.clock_error.min(100_000);
        }
        options
    };
    let engines = engines().into_iter().filter(|engine| engine.has_one_round_writes()).collect();
    demand_of(engines, 6_000..6_000 + runs(50) * 2, options, |_| &["retry", "recovery", "restart"]);
}

/// What an engine can stand and still end half of its operations ok. Where reads and writes go through consensus each
/// waits for all that stands before it on its key, and transactions need a leader in each of their partitions; with f
/// regions lost for good and others crashing by turns there is hardly a time at which anything ends. Transactions take
/// many round trips to leaders: where one of few nodes dies every second and a half, most die with a client.
fn bearable(engine: &str, mut options: Options) -> Options {
    if engine.starts_with("spanner") {
        options.calm = 2_000_000;
    }
    if (engine == "epaxos" || engine.starts_with("spanner")) && options.lost_regions > 0 {
        options.faults.crash = false;
    }
    if is_causal(engine) {
        // Operations that stay in their region take no time: without a pause between them they are over before the storm.
        options.workload.think = options.workload.think.max(240_000_000 / options.workload.ops as u64);
        if options.lost_regions > 0 {
            // A fence waits for every region, and a session that moves to a lost one has nobody to ask.
            (options.workload.fence_every, options.workload.moves_percent) = (0, 0);
        }
    }
    options
}

fn is_causal(engine: &str) -> bool {
    ["contrarian", "cc-lo", "tcc"].contains(&engine)
}

/// Whether something can happen with an engine at all.
fn can_happen(engine: &str, what: &str) -> bool {
    match engine {
        "abd" => what == "restart", // Its clients write back, and clients do not count.
        "epaxos" => what != "write_back",
        // Its reads go to leaders, and wait; or to the nearest replicas, and neither wait nor skip.
        "spanner" => !["skipped", "slow_reply", "local_read"].contains(&what),
        "spanner-rss" => what != "local_read",
        "spanner-po" => !["fast_reply", "skipped", "slow_reply", "blocked_read"].contains(&what),
        // What consensus does has no part in them.
        _ if is_causal(engine) => {
            !["slow_path", "write_back", "recovery", "retry", "truncation", "catch_up"].contains(&what)
        }
        _ => true,
    }
}

/// What must have happened at least once in a set of runs: otherwise the set proves nothing about it.
fn must_happen(engine: &str) -> &'static [&'static str] {
    match engine {
        "multipaxos" => &[
            "election",
            "handover",
            "nop",
            "batch",
            "resend",
            "retry",
            "lease_read",
            "truncation",
            "catch_up",
            "snapshot",
            "restart",
        ],
        "contrarian" => &["too_old", "gap", "resend", "relay", "forgotten", "restart"],
        "tcc" => {
            &["wait_ryw", "wait_mr", "wait_cc", "too_old", "gap", "resend", "relay", "forgotten", "restart"]
        }
        "cc-lo" => &["bound", "refused", "gap", "resend", "relay", "forgotten", "restart"],
        engine if engine.starts_with("spanner") => &[
            "election",
            "resend",
            "truncation",
            "catch_up",
            "snapshot",
            "restart",
            "abort",
            "wound",
            "silent",
            "in_doubt",
            "blocked_read",
            "fast_reply",
            "skipped",
            "slow_reply",
            "local_read",
        ],
        _ => &["slow_path", "write_back", "recovery", "retry", "truncation", "catch_up", "restart"],
    }
}

/// The engines that run: all, or the one that `MERIDIAN_ENGINE` names.
fn engines() -> Vec<EngineName> {
    match std::env::var("MERIDIAN_ENGINE") {
        Ok(name) => vec![EngineName::of_engine(&name).expect("MERIDIAN_ENGINE is an engine's name")],
        Err(_) => EngineName::all(),
    }
}

/// How many runs a set has: `MERIDIAN_RUNS`, or `default`.
fn runs(default: u64) -> u64 {
    std::env::var("MERIDIAN_RUNS").map_or(default, |runs| runs.parse().expect("MERIDIAN_RUNS is a number"))
}

/// The seed that `MERIDIAN_SEED` names, to be played again.
fn again() -> Option<u64> {
    std::env::var("MERIDIAN_SEED").ok().and_then(|seed| seed.parse().ok())
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
    // A log that is forgotten soon, a narrow pipeline, leaders anywhere, and leases in some runs.
    let log = &mut options.settings.log;
    log.checkpoint = [1_000, 10, 40][seed as usize % 3];
    log.keep_bytes = [1 << 20, 4_000][seed as usize % 2];
    log.pipeline = [64, 2][seed as usize / 2 % 2];
    log.leader = [None, Some(Region(0)), Some(Region(2))][seed as usize % 3];
    log.lease = if seed % 4 == 1 { 400_000 } else { 0 };
    options.workload.sessions_per_machine = if seed % 9 == 4 { 3 } else { 1 };
    options.workload.clients = 8 + seed as usize % 5;
    options.workload.think = [0, 0, 50_000][seed as usize % 3];
    // Where operations choose, a share of runs asks for everything, and in another sessions move.
    options.workload.levels = seed % 4 != 3;
    options.workload.moves_percent = if seed % 3 == 1 { 10 } else { 0 };
    options.clock_error = [10_000, 1_000, 100_000][seed as usize % 3];
    options
}

/// Runs every seed of a set on every engine, each engine in a thread of its own, and demands that all runs are
/// whole and hold.
///
/// `MERIDIAN_SEED=S` plays that seed alone, again, and writes its story to `ENGINE-S.story` in the directory for
/// temporary files. `MERIDIAN_ENGINE=E` plays that engine alone.
fn demand(
    seeds: Range<u64>,
    options: impl Fn(u64) -> Options + Sync,
    must_happen: impl Fn(&str) -> &'static [&'static str] + Sync,
) {
    demand_of(engines(), seeds, options, must_happen);
}

/// The same of some engines.
fn demand_of(
    engines: Vec<EngineName>,
    seeds: Range<u64>,
    options: impl Fn(u64) -> Options + Sync,
    must_happen: impl Fn(&str) -> &'static [&'static str] + Sync,
) {
    let again = again();
    let seeds = again.map_or(seeds, |seed| seed..seed + 1);
    let set = |engine: EngineName| {
        let mut totals = Totals::default();
        let mut failures = Vec::new();
        for seed in seeds.clone() {
            let options = bearable(engine.name, options(seed));
            let report = meridian_sim::run(engine, &options, again.map(|seed| story(engine, seed)));
            failures.extend(report.verify().err().map(|why| format!("{why}\n  again: MERIDIAN_SEED={seed}")));
            totals.add(&report);
        }
        println!("{}: {totals}", engine.name);
        let all = if again.is_some() { &[] } else { must_happen(engine.name) };
        let expected: Vec<&str> = all.iter().copied().filter(|name| can_happen(engine.name, name)).collect();
        let never = totals.never(&expected);
        if !never.is_empty() {
            failures.push(format!("{}: never happened: {}", engine.name, never.join(", ")));
        }
        failures
    };
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
