//! How long a million operations take, and how much memory.

use crate::FAMILY;
use crate::replicated::{Options, history, without_witness};
use meridian_check::{Model, Verdict, by_search, by_witness};
use std::time::{Duration, Instant};

/// The most memory that this process has had resident so far, in MiB, where the system tells.
fn peak_mib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? / 1024)
}

/// The processor time that this process has used, where the system tells in hundredths of a second.
fn used() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect::<Vec<_>>();
    let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
    Duration::from_millis((ticks(11) + ticks(12)) * 10)
}

#[test]
// A measurement, for a machine with nothing else to do.
#[ignore = "takes minutes: run it alone and optimised, `cargo test --profile sim -p meridian-check --test causal -- \
            --ignored --nocapture a_million`; MODELS=a,b and MODE=values|witness pick some, for their \
            memory alone; SESSIONS=n other than 16"]
fn a_million_operations() {
    let picked = std::env::var("MODELS").ok();
    let mode = std::env::var("MODE").unwrap_or_default();
    let sessions = std::env::var("SESSIONS").ok().and_then(|sessions| sessions.parse().ok());
    let options = Options {
        sessions: sessions.unwrap_or(16),
        keys: 1_000,
        operations: 1_000_000,
        transactions: 10,
        true_time: true,
        ..Options::default()
    };
    let events = history(1, &options);
    let bare = if mode == "witness" { Vec::new() } else { without_witness(&events) };
    println!("the history itself: peak {:?} MiB", peak_mib());
    let models = FAMILY.into_iter().chain([Model::Eventual]);
    for model in
        models.filter(|model| picked.as_ref().is_none_or(|picked| picked.contains(&model.to_string())))
    {
        for (name, judge) in [("witness", by_witness as fn(_, _) -> _), ("values", by_search)] {
            if !mode.is_empty() && mode != name {
                continue;
            }
            let (start, before) = (Instant::now(), used());
            let judgement: meridian_check::Judgement =
                judge(model, if name == "values" { &bare } else { &events });
            let (took, cpu) = (start.elapsed(), used().saturating_sub(before));
            println!(
                "{model} by {name}: {} in {took:.2?}, processor {cpu:.2?}, peak {:?} MiB",
                judgement.verdict,
                peak_mib()
            );
            if model != Model::Eventual {
                assert_eq!(judgement.verdict, Verdict::Holds, "{}", judgement.reason);
            }
            assert!(sessions.is_some() || cpu < Duration::from_secs(10), "{cpu:?}");
        }
    }
}
