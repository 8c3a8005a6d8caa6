//! `meridian dev`: a whole cluster in one process.

use crate::fault::{Ended, Fault, Verdict};
use meridian_node::DevOptions;
use meridian_node::config::units::duration;
use meridian_node::config::{Scope, is_local};
use meridian_protocol::latency::RttMatrix;
use meridian_protocol::registry::{EngineName, Writes};
use std::path::PathBuf;
use std::time::Duration;
use tracing::level_filters::LevelFilter;

/// Run a whole cluster in this process, wide-area delays emulated
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Regions: names of --rtt, or how many of them: 3, 5 or 7
    #[arg(long, value_name = "NAMES|N", default_value = "3")]
    regions: String,
    /// Nodes in each region; partitions are spread over them
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    nodes_per_region: u16,
    /// Partitions of each keyspace
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=1_024))]
    partitions: u16,
    /// Port of the first region; region i listens on port+i-1
    #[arg(long, value_name = "PORT", default_value_t = 7001)]
    port: u16,
    /// Address to listen on
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    bind: String,
    /// Let whoever reaches a public --bind use the cluster
    #[arg(long)]
    unprotected: bool,
    /// Round-trip times between regions: paper (Gryff's figure 5), paper-spanner (62/136/68 ms), none, or a CSV
    /// file with a header of region names, then milliseconds
    #[arg(long, value_name = "RTT", default_value = "paper")]
    rtt: String,
    /// How far clocks may be off
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = duration)]
    clock_error: Duration,
    /// A keyspace: its number, its model and, if not the default, its engine; may be repeated. linearizable
    /// (gryff, abd, epaxos, multipaxos), rsc (gryff-rsc), strict-serializable (spanner), rss (spanner-rss),
    /// po-serializable (spanner-po), causal (contrarian, cc-lo, tcc) [default: 0=linearizable, 1=rsc,
    /// 2=rss, 3=strict-serializable and 4=causal]
    #[arg(long, value_name = "N=MODEL[:ENGINE]", value_parser = DevOptions::keyspace)]
    db: Vec<(u16, EngineName)>,
    /// Which connections share causal metadata: node, client-name or connection [default: node for linearizable,
    /// connection for others]
    #[arg(long, value_name = "SCOPE", value_parser = Scope::of_name)]
    session: Option<Scope>,
    /// How writes of gryff, gryff-rsc and abd find their timestamps: two-round, one-round (from clocks that are right
    /// within --clock-error) or auto
    #[arg(long, value_name = "HOW", default_value = "two-round", value_parser = Writes::named)]
    writes: Writes,
    /// Keep nothing: the default
    #[arg(long, conflicts_with = "data")]
    ephemeral: bool,
    /// Keep records in this directory, forced to disk before anything is answered
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

/// Runs until it is told to stop.
pub(crate) fn run(options: Options) -> Ended {
    let mut faults = Vec::new();
    let read = |path: &str| std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"));
    let regions = RttMatrix::of_flags(&options.regions, &options.rtt, read)
        .map_err(|why| faults.push(Fault::new("dev: --regions and --rtt", why, "see 'meridian dev --help'")))
        .ok();
    let mut numbers: Vec<u16> = options.db.iter().map(|(number, _)| *number).collect();
    numbers.sort_unstable();
    for pair in numbers.windows(2).filter(|pair| pair[0] == pair[1]) {
        faults.push(Fault::new(
            format!("dev: --db {}", pair[0]),
            "given twice",
            "give each keyspace its number",
        ));
    }
    let chosen = options.writes != Writes::TwoRounds && !options.db.is_empty();
    if chosen && !options.db.iter().any(|(_, engine)| engine.has_one_round_writes()) {
        let serving = EngineName::naming(EngineName::has_one_round_writes);
        faults.push(Fault::new(
            format!("dev: --writes {}", options.writes.name()),
            format!("no --db names an engine that writes by the clock; {serving} do"),
            "leave it out, or name one of them",
        ));
    }
    // An address that stands for itself, without a port, may have colons.
    if !options.unprotected && !is_local(&format!("[{}]:0", options.bind)) {
        faults.push(Fault::new(
            format!("dev: --bind {}", options.bind),
            "whoever reaches it could use every keyspace",
            "add --unprotected if the network lets in only whom you trust",
        ));
    }
    let nodes = regions
        .as_ref()
        .map_or(0, |regions| u32::from(regions.regions()) * u32::from(options.nodes_per_region));
    if options.port > 0 && u32::from(options.port) + nodes > 1 << 16 {
        faults.push(Fault::new(
            "dev: --port",
            "the last node's port would be above 65535",
            "choose a lower one",
        ));
    }
    let Some(regions) = regions.filter(|_| faults.is_empty()) else { return Err(faults) };

    let standard = ["0=linearizable", "1=rsc", "2=rss", "3=strict-serializable", "4=causal"]
        .map(|text| DevOptions::keyspace(text).expect("these are models"));
    let cluster = DevOptions {
        regions,
        nodes_per_region: options.nodes_per_region,
        partitions: options.partitions,
        port: options.port,
        bind: options.bind,
        keyspaces: if options.db.is_empty() { standard.to_vec() } else { options.db },
        session: options.session,
        writes: options.writes,
        clock_error: options.clock_error,
        data: options.data,
    };
    crate::log::begin(LevelFilter::WARN);
    meridian_node::dev(&cluster).map(|()| Verdict::Fine).map_err(|error| Fault::of("dev", &error).into())
}
