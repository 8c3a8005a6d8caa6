//! `meridian sim`: seeded runs of the protocols under virtual time, judged by the model that they promise.

use crate::fault::{Ended, Fault, Verdict};
use indicatif::{ProgressBar, ProgressStyle};
use meridian_node::config::units::duration;
use meridian_protocol::causal::ClockKind;
use meridian_protocol::latency::RttMatrix;
use meridian_protocol::planted::Plant;
use meridian_protocol::registry::{EngineName, Settings, Writes};
use meridian_sim::world::CpuCost;
use meridian_sim::{Clocks, End, Faults, Keys, Mix, Report, Totals, Workload, percentile};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

/// Simulate a cluster under faults and judge what its clients saw
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Engine to run: gryff, gryff-rsc, abd, epaxos, multipaxos, spanner, spanner-rss, spanner-po, contrarian,
    /// cc-lo, tcc
    #[arg(long, value_name = "E")]
    engine: String,
    /// Regions: the first so many of the round-trip times
    #[arg(long, value_name = "N", default_value_t = 3)]
    n: u8,
    /// Nodes in each region; partitions are spread over them
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    nodes_per_region: u16,
    /// Partitions of the keyspace
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=1_024))]
    partitions: u16,
    /// Seed of the run: the same seed with the same flags is the same run
    #[arg(long, value_name = "S", default_value_t = 1, conflicts_with = "seeds")]
    seed: u64,
    /// Runs with each seed from A up to, but not including, B
    #[arg(long, value_name = "A..B", value_parser = seeds)]
    seeds: Option<Range<u64>>,
    /// What goes wrong: all, none, or some of loss,duplicate,reorder,partition,pause,crash,skew
    #[arg(long, value_name = "KINDS", default_value = "all", value_parser = Faults::named)]
    faults: Faults,
    /// Bound that nodes trust on the error of their clocks, in engines that rest on clocks
    #[arg(long, value_name = "D", default_value = "10ms", value_parser = duration)]
    clock_error: Duration,
    /// Let clocks leave the bound that nodes trust: engines that rest on clocks must then be found out
    #[arg(long)]
    untrue_clocks: bool,
    /// What the timestamps of contrarian and tcc are made of: hybrid, logical or physical
    #[arg(long, value_name = "KIND", value_parser = ClockKind::named)]
    clock: Option<ClockKind>,
    /// Operations of a run
    #[arg(long, value_name = "N", default_value_t = 2_000)]
    ops: usize,
    /// Sessions, each with one operation at a time
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..))]
    clients: u16,
    /// Keys, all shared by all sessions
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    keys: u32,
    /// Round-trip times: paper, paper-spanner, none, or a CSV file with a header of region names, then milliseconds
    #[arg(long, value_name = "RTT", default_value = "paper")]
    rtt: String,
    /// What work costs on a node, in ns: a client's request, a message at each end, each byte of it, each item
    /// (dependency, instance, log entry) that it carries; nothing goes to disk. Prints throughput and latency
    #[arg(long, value_name = "REQUEST,MESSAGE,BYTE,ITEM", value_parser = cpu)]
    cpu: Option<CpuCost>,
    /// How writes of gryff, gryff-rsc and abd find their timestamps: in two rounds, in one round from clocks that are right
    /// within --clock-error, or auto: whichever is sooner over
    #[arg(long, value_name = "HOW", default_value = "two-round", value_parser = Writes::named)]
    writes: Writes,
    /// Shares of reads, writes and rmws
    #[arg(long, value_name = "READ:WRITE:RMW", default_value = "5:3:2", value_parser = mix)]
    mix: Mix,
    /// Of all operations so many in a hundred go to one shared key, the others to a key of the session's own; instead
    /// of --keys
    #[arg(long, value_name = "PCT", value_parser = clap::value_parser!(u32).range(0..=100), conflicts_with = "keys")]
    conflict: Option<u32>,
    /// Write what the sessions did and saw, in the form that `meridian check` reads; takes a single seed
    #[arg(long, value_name = "F", conflicts_with = "seeds")]
    history: Option<PathBuf>,
    /// Write a line for everything that happens; takes a single seed
    #[arg(long, value_name = "F", conflicts_with = "seeds")]
    trace: Option<PathBuf>,
    /// Run with a known bug, which the judgement must then find
    #[cfg(feature = "planted-bugs")]
    #[arg(long, value_name = "NAME", value_parser = plant)]
    plant: Option<meridian_protocol::planted::Planted>,
}

/// What one seed came to: a report, or nothing but the panic that stderr has told.
type Outcome = Option<Box<Report>>;

/// Runs every seed and prints a line for each.
pub(crate) fn run(options: &Options) -> Ended {
    let engine = EngineName::of_engine(&options.engine).map_err(|why| {
        Fault::new(format!("--engine {}", options.engine), why, "see 'meridian sim --help'")
    })?;
    if options.clock.is_some() && !engine.chooses_clock() {
        let why = format!("timestamps of {} are of one kind only", engine.name);
        return Err(Fault::new("--clock", why, "leave it out").into());
    }
    if options.writes != Writes::TwoRounds && !engine.has_one_round_writes() {
        let serving = EngineName::naming(EngineName::has_one_round_writes);
        let why = format!("{} does not write by the clock; {serving} do", engine.name);
        Err(Fault::new(format!("--writes {}", options.writes.name()), why, "leave it out"))?;
    }
    let template = options.template()?;
    let seeds = options.seeds.clone().unwrap_or(options.seed..options.seed.saturating_add(1));
    let story = options.trace.as_deref().map(create).transpose()?;

    let mut verdict = Verdict::Fine;
    let mut totals = Totals::default();
    let bar = progress(&seeds);
    for_each_seed(engine, &template, &seeds, story, |seed, outcome| {
        let Some(report) = outcome else {
            bar.suspend(|| println!("seed={seed} engine={} panicked: an assertion failed", engine.name));
            verdict = verdict.and(Verdict::Negative);
            return Ok(());
        };
        bar.suspend(|| {
            if options.cpu.is_some() {
                print_speed(&report);
            }
            print_report(&report);
        });
        bar.inc(1);
        totals.add(&report);
        verdict = verdict.and(verdict_of(report.end));
        if let Some(path) = &options.history {
            let file = create(path)?;
            meridian_check::history::write(&report.history, file)
                .map_err(|error| cannot_write(path, &error))?;
        }
        Ok(())
    })?;
    bar.finish_and_clear();
    if totals.runs > 1 {
        eprintln!("{totals}");
    }
    Ok(verdict)
}

impl Options {
    /// The run that every seed does.
    fn template(&self) -> Result<meridian_sim::Options, Fault> {
        let read = |path: &str| std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"));
        let regions = self.n.to_string();
        let rtt = RttMatrix::of_flags(&regions, &self.rtt, read)
            .map_err(|why| Fault::new("--n and --rtt", why, "see 'meridian sim --help'"))?;
        let of_seed = meridian_sim::Options::new(self.seed, self.settings());
        Ok(meridian_sim::Options {
            rtt,
            nodes_per_region: usize::from(self.nodes_per_region),
            partitions: self.partitions,
            faults: self.faults,
            cpu: self.cpu,
            clocks: if self.untrue_clocks { Clocks::Broken } else { Clocks::Free },
            clock_error: self.clock_error.as_micros() as u64,
            workload: Workload {
                ops: self.ops,
                clients: usize::from(self.clients),
                keys: self.conflict.map_or(Keys::Few(self.keys as usize), Keys::Conflict),
                mix: self.mix,
                ..Workload::default()
            },
            // Where speed is asked for, nodes keep what they hold in memory.
            commit: if self.cpu.is_some() { 0..=0 } else { of_seed.commit.clone() },
            ..of_seed
        })
    }

    fn settings(&self) -> Settings {
        let mut settings = Settings { plant: self.planted(), writes: self.writes, ..Settings::default() };
        settings.causal.clock = self.clock.unwrap_or(settings.causal.clock);
        settings
    }

    #[cfg(not(feature = "planted-bugs"))]
    #[expect(clippy::unused_self, reason = "the other build looks at --plant")]
    fn planted(&self) -> Plant {
        Plant::default()
    }

    #[cfg(feature = "planted-bugs")]
    fn planted(&self) -> Plant {
        self.plant.map(Plant::new).unwrap_or_default()
    }
}

/// Runs the seeds on all cores and hands over what came of them in their order.
fn for_each_seed(
    engine: EngineName,
    template: &meridian_sim::Options,
    seeds: &Range<u64>,
    mut story: Option<BufWriter<File>>,
    mut each: impl FnMut(u64, Outcome) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let simulate = |seed: u64, story: Option<BufWriter<File>>| {
        let options = meridian_sim::Options { seed, ..template.clone() };
        let story = story.map(|file| Box::new(file) as Box<dyn Write>);
        // A failed assertion is a finding about this seed; the others can still be run.
        catch_unwind(AssertUnwindSafe(|| meridian_sim::run(engine, &options, story))).ok().map(Box::new)
    };
    if seeds.end - seeds.start == 1 {
        return each(seeds.start, simulate(seeds.start, story.take()));
    }
    let next = AtomicU64::new(seeds.start);
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let (done, results) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..workers {
            let done = done.clone();
            let (next, simulate) = (&next, &simulate);
            scope.spawn(move || {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    // The receiver is gone when a result could not be written: then there is no more to do.
                    if seed >= seeds.end || done.send((seed, simulate(seed, None))).is_err() {
                        break;
                    }
                }
            });
        }
        drop(done);
        let mut early = BTreeMap::new();
        let mut due = seeds.start;
        for (seed, outcome) in results {
            early.insert(seed, outcome);
            while let Some(outcome) = early.remove(&due) {
                each(due, outcome)?;
                due += 1;
            }
        }
        Ok(())
    })
}

/// The reason of a run that did not hold, what it lacks for a full one, and the line that scripts read.
fn print_report(report: &Report) {
    if report.end != End::Holds {
        println!("{}", report.reason);
    }
    for shortfall in &report.shortfalls {
        eprintln!("seed {}: not a full run: {shortfall}", report.seed);
    }
    println!("{report}");
}

/// How fast the run's operations were.
fn print_speed(report: &Report) {
    let mut micros: Vec<u64> = report.latencies.iter().map(|latency| latency.micros).collect();
    micros.sort_unstable();
    let at = |share| percentile(&micros, share);
    println!("ops_per_s={:.0} p50_us={} p99_us={}", report.throughput(), at(0.5), at(0.99));
}

fn verdict_of(end: End) -> Verdict {
    match end {
        End::Holds => Verdict::Fine,
        End::Violated | End::Stuck => Verdict::Negative,
        End::Undecided => Verdict::Undecided,
    }
}

/// A bar over the seeds; hidden for a single one, and by itself when stderr is no terminal.
fn progress(seeds: &Range<u64>) -> ProgressBar {
    let count = seeds.end - seeds.start;
    if count == 1 {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} seeds, {eta} left");
    ProgressBar::new(count).with_style(style.expect("the template is a constant"))
}

fn seeds(text: &str) -> Result<Range<u64>, String> {
    let bounds = text.split_once("..").and_then(|(a, b)| Some(a.parse().ok()?..b.parse().ok()?));
    bounds
        .filter(|range: &Range<u64>| !range.is_empty())
        .ok_or_else(|| "give two numbers, the first below the second, such as 1..100".to_owned())
}

fn cpu(text: &str) -> Result<CpuCost, String> {
    let parts: Vec<f64> = text.split(',').filter_map(|part| part.parse().ok()).collect();
    match parts[..] {
        [request, message, byte, item] if parts.iter().all(|part| (0.0..1e9).contains(part)) => {
            Ok(CpuCost { request, message, byte, item })
        }
        _ => Err("give four times in ns, such as 9000,1500,1,200".to_owned()),
    }
}

fn mix(text: &str) -> Result<Mix, String> {
    let parts: Vec<u32> = text.split(':').filter_map(|part| part.parse().ok()).collect();
    match parts[..] {
        [reads, writes, rmws]
            if (1..1_000_000).contains(&parts.iter().map(|part| u64::from(*part)).sum::<u64>()) =>
        {
            Ok(Mix { reads, writes, rmws })
        }
        _ => Err("give three shares, not all zero, such as 50:49:1".to_owned()),
    }
}

#[cfg(feature = "planted-bugs")]
fn plant(name: &str) -> Result<meridian_protocol::planted::Planted, String> {
    use meridian_protocol::planted::Planted;
    let found = Planted::ALL.iter().find(|(known, _)| *known == name).map(|(_, bug)| *bug);
    found.ok_or_else(|| {
        let known: Vec<&str> = Planted::ALL.iter().map(|(name, _)| *name).collect();
        format!("choose one of {}", known.join(", "))
    })
}

fn create(path: &Path) -> Result<BufWriter<File>, Fault> {
    File::create(path).map(BufWriter::new).map_err(|error| cannot_write(path, &error))
}

fn cannot_write(path: &Path, error: &std::io::Error) -> Fault {
    Fault::new(path.display().to_string(), error, "choose a place that can be written")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_a_range() {
        assert_eq!(seeds("1..100"), Ok(1..100));
        for bad in ["5", "5..5", "6..5", "a..b", "1..=3", ".."] {
            assert!(seeds(bad).is_err(), "{bad}");
        }
    }
}
