//! The RSS paper's figure 7 in virtual time: latencies of reads and writes of Gryff, of Gryff-RSC with the rule as
//! published and of Gryff-RSC corrected, in the five regions of its table 2, without rmws.
//!
//! `cargo run --profile sim -p meridian-sim --example figure7 [-- OPERATIONS]`
//!
//! Messages take exactly half a round trip and nothing else takes time. A latency counts from the invocation; with
//! the corrected rule it holds the wait until the session's last read is settled.

use meridian_protocol::clock::Micros;
use meridian_protocol::registry::{EngineName, Settings};
use meridian_sim::{Keys, Mix, Options, Report, Sort, percentile};

/// The three protocols: what to call them, the engine, whether with the rule as published.
const PROTOCOLS: [(&str, &str, bool); 3] = [
    ("gryff", "gryff", false),
    ("gryff-rsc, published", "gryff-rsc", true),
    ("gryff-rsc, corrected", "gryff-rsc", false),
];

struct Load {
    clients: usize,
    conflict: u32,
    writes: u32,
    think: Micros,
}

fn main() {
    let operations =
        std::env::args().nth(1).map_or(40_000, |count| count.parse().expect("a number of operations"));
    println!("Latencies in ms; {operations} operations a line; five regions of table 2; closed loop.");
    for clients in [15, 80] {
        for conflict in [2, 10, 25] {
            for writes in [10, 30, 50, 70, 90] {
                compare(&Load { clients, conflict, writes, think: 0 }, operations);
            }
        }
    }
    println!("\nWith think times: what the corrected rule settles meanwhile costs nothing.");
    for clients in [15, 80] {
        for think in [0, 50_000, 150_000, 300_000] {
            compare(&Load { clients, conflict: 10, writes: 30, think }, operations);
        }
    }
}

fn compare(load: &Load, operations: usize) {
    let Load { clients, conflict, writes, think } = load;
    println!("\n{clients} clients, {conflict}% conflicts, {writes}% writes, think time {} ms", think / 1_000);
    println!(
        "  {:22} {:>26}   {:>26}   {:>8}",
        "", "read p50   p99    p99.9", "write p50   p99    p99.9", "ops/s"
    );
    for (name, engine, published) in PROTOCOLS {
        let report = measure(load, operations, engine, published);
        let [reads, updates] = [Sort::Read, Sort::Write].map(|sort| row(&report.latencies_of(sort, None)));
        let rate = report.ended.ok as f64 / (report.duration as f64 / 1e6);
        println!("  {name:22} {reads:>26}   {updates:>26}   {rate:>8.1}");
    }
}

fn row(ascending: &[Micros]) -> String {
    let ms = |share| percentile(ascending, share) as f64 / 1e3;
    format!("{:7.1} {:7.1} {:7.1}", ms(0.5), ms(0.99), ms(0.999))
}

fn measure(load: &Load, operations: usize, engine: &str, published: bool) -> Report {
    let settings = Settings { rsc_as_published: published, ..Settings::default() };
    let mut options = Options::exact(7, settings).regions(5);
    options.codec = false;
    options.partitions = 1;
    options.workload.ops = operations;
    options.workload.clients = load.clients;
    options.workload.keys = Keys::Conflict(load.conflict);
    options.workload.mix = Mix { reads: 100 - load.writes, writes: load.writes, rmws: 0 };
    options.workload.fence_every = 0;
    options.workload.think = load.think;
    let engine = EngineName::of_engine(engine).expect("the engine is built");
    let report = meridian_sim::run(engine, &options, None);
    assert!(report.ended.ok == operations, "{report}: {}", report.reason);
    report
}
