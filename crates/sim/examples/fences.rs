//! What L costs and brings in Spanner-RSS: how long fences take, which share of the prepared transactions in the way of reads
//! is skipped, and how long transactions take; beside Spanner, on the matrix of the RSS paper's §6.
//!
//! `cargo run --profile sim -p meridian-sim --example fences [-- OPERATIONS]`
//!
//! Messages take exactly half a round trip and nothing else takes time; clocks err by up to 10 ms.

use meridian_protocol::latency::RttMatrix;
use meridian_protocol::registry::{EngineName, Settings};
use meridian_protocol::spanner::SpannerSettings;
use meridian_sim::{Keys, Options, Report, Sort, percentile};

fn main() {
    let operations =
        std::env::args().nth(1).map_or(40_000, |count| count.parse().expect("a number of operations"));
    println!(
        "Latencies in ms; {operations} operations a line; 3 regions, 3 partitions, 24 sessions, 100 keys."
    );
    println!(
        "{:22} {:>15} {:>8} {:>23} {:>23}",
        "", "fence p50   max", "skipped", "read-only p50 p99 p99.9", "read-write p50 p99 p99.9"
    );
    for (engine, fence_ms) in [
        ("spanner", 300),
        ("spanner-rss", 10),
        ("spanner-rss", 100),
        ("spanner-rss", 300),
        ("spanner-rss", 1_000),
    ] {
        let report = measure(engine, fence_ms * 1_000, operations);
        let fences = report.latencies_of(Sort::Fence, None);
        let ms = |micros: u64| micros as f64 / 1e3;
        let count = |name| report.counters.get(name).copied().unwrap_or(0);
        let (skipped, awaited) = (count("skipped"), count("awaited"));
        println!(
            "{:22} {:7.1} {:7.1} {:7.1}% {} {}",
            format!("{engine}, L = {fence_ms} ms"),
            ms(percentile(&fences, 0.5)),
            ms(percentile(&fences, 1.0)),
            100.0 * skipped as f64 / (skipped + awaited).max(1) as f64,
            row(&report, Sort::ReadOnly),
            row(&report, Sort::ReadWrite),
        );
    }
}

fn row(report: &Report, sort: Sort) -> String {
    let ascending = report.latencies_of(sort, None);
    let ms = |share| percentile(&ascending, share) as f64 / 1e3;
    format!("{:7.1} {:7.1} {:7.1}", ms(0.5), ms(0.99), ms(0.999))
}

fn measure(engine: &str, fence: u64, operations: usize) -> Report {
    let spanner = SpannerSettings { fence, ..SpannerSettings::default() };
    let mut options = Options::exact(7, Settings { spanner, ..Settings::default() });
    options.rtt = RttMatrix::paper_spanner();
    options.codec = false;
    options.partitions = 3;
    options.workload.ops = operations;
    options.workload.clients = 24;
    options.workload.keys = Keys::Few(100);
    let engine = EngineName::of_engine(engine).expect("the engine is built");
    meridian_sim::run(engine, &options, None)
}
