//! x
use meridian_protocol::planted::{Plant, Planted};
use meridian_protocol::registry::{EngineName, Settings};
use meridian_sim::*;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let n: u64 = a[1].parse().expect("n");
    let tight = |seed: u64, regions: u8| {
        let mut o = Options::new(seed, Settings::default()).regions(regions);
        o.partitions = 1;
        o.settings.recovery = 300_000 + (seed % 5) * 100_000;
        o.settings.retry = 250_000;
        o.settings.thrifty = seed % 2 == 0;
        o.workload.ops = 600;
        o.workload.clients = 7;
        o.workload.keys = Keys::Few(1);
        o.workload.mix = Mix { reads: 1, writes: 1, rmws: 3 };
        o.workload.fence_every = 0;
        o
    };
    let regs = |seed: u64, regions: u8| {
        let mut o = Options::new(seed, Settings::default()).regions(regions);
        o.partitions = 1;
        o.workload.ops = 1000;
        o.workload.clients = 15;
        o.workload.keys = Keys::Few(2);
        o.workload.mix = Mix { reads: 3, writes: 2, rmws: 0 };
        o.workload.fence_every = 0;
        o
    };
    for (name, bug) in Planted::ALL {
        if !a[2..].iter().any(|x| name == x) {
            continue;
        }
        for engine in EngineName::all() {
            for regions in [3, 5] {
                for kind in ["tight", "regs"] {
                    let mut found: Vec<(u64, meridian_sim::End)> = Vec::new();
                    let mut reason = String::new();
                    let start = std::time::Instant::now();
                    for seed in 0..n {
                        let mut options =
                            if kind == "tight" { tight(seed, regions) } else { regs(seed, regions) };
                        options.settings.plant = Plant::new(bug);
                        let r = meridian_sim::run(engine, &options, None);
                        if r.end != meridian_sim::End::Holds {
                            if reason.is_empty() || r.end == meridian_sim::End::Violated {
                                reason = r.reason.clone();
                            }
                            found.push((seed, r.end));
                        }
                    }
                    println!(
                        "{name} {} {regions} {kind}: {} of {n}: {:?} {} {:?}",
                        engine.name,
                        found.len(),
                        &found[..found.len().min(8)],
                        reason.chars().take(300).collect::<String>(),
                        start.elapsed()
                    );
                }
            }
        }
    }
}
