//! How fast the checker judges, and in how much memory: `make bench-check`.
//!
//! Histories are made before the clock starts; what is timed is what `meridian check` does after it has read a file.
//! The peak of resident memory counts the history itself too.

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use generate::{Freshness, Shape, history, unwitnessed};
use meridian_check::{Model, Verdict, by_search, by_witness};
use std::hint::black_box;
use std::time::Duration;

#[path = "../../crates/check/tests/common/generate.rs"]
#[allow(dead_code, reason = "tests use the rest")]
mod generate;

const MILLION: usize = 1_000_000;

/// Models with witnesses: 1,000,000 operations of 16 sessions on 1,000 keys.
fn witnessed(c: &mut Criterion) {
    let mut group = c.benchmark_group("witness, 1,000,000 operations");
    group.sample_size(10).measurement_time(Duration::from_secs(20));
    for (model, freshness, transactions) in [
        (Model::Linearizable, Freshness::Current, false),
        (Model::Rsc, Freshness::Regular, false),
        (Model::Sequential, Freshness::Session, false),
        (Model::StrictSerializable, Freshness::Current, true),
        (Model::Rss, Freshness::Regular, true),
        (Model::RssPerService, Freshness::Regular, true),
        (Model::PoSerializable, Freshness::Session, true),
        (Model::Serializable, Freshness::Any, true),
    ] {
        let shape = Shape { transactions, messages: 1, ..Shape::plain(MILLION, 16, 1_000, freshness) };
        let events = history(1, shape);
        forget_peak();
        assert_eq!(by_witness(model, &events).verdict, Verdict::Holds);
        println!("{model}: peak {} MiB", peak());
        group.bench_function(BenchmarkId::from_parameter(model), |b| {
            b.iter(|| black_box(by_witness(model, &events)));
        });
    }
    group.finish();
}

/// Histories of which nothing is known but values.
fn searched(c: &mut Criterion) {
    let mut group = c.benchmark_group("search");
    group.sample_size(10).measurement_time(Duration::from_secs(10));
    for (name, model, shape) in [
        (
            "linearizable, 2,000 operations on one key",
            Model::Linearizable,
            Shape::plain(2_000, 10, 1, Freshness::Current),
        ),
        ("rsc, 10,000 operations on 5 keys", Model::Rsc, Shape::plain(10_000, 16, 5, Freshness::Regular)),
        (
            "rss, 10,000 transactions on 5 keys",
            Model::Rss,
            Shape { transactions: true, ..Shape::plain(10_000, 16, 5, Freshness::Regular) },
        ),
    ] {
        let events = unwitnessed(history(1, Shape { unknown: 1, messages: 1, ..shape }));
        forget_peak();
        assert_eq!(by_search(model, &events).verdict, Verdict::Holds);
        println!("{name}: peak {} MiB", peak());
        group.bench_function(name, |b| b.iter(|| black_box(by_search(model, &events))));
    }
    group.finish();
}

/// Starts a new count of the peak of resident memory, where the system can.
fn forget_peak() {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// The peak of resident memory in MiB, or 0 where the system does not tell.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) / 1024
}

criterion_group!(benches, witnessed, searched);
criterion_main!(benches);
