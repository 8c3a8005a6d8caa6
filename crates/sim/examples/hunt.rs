//! x
#[path = "../tests/common/mod.rs"]
#[allow(dead_code)]
mod common;
use common::swarm;
use meridian_protocol::planted::{Plant, Planted};
use meridian_protocol::registry::EngineName;
fn main() {
    let n: u64 = std::env::args().nth(1).map_or(40, |n| n.parse().expect("n"));
    for (name, bug) in Planted::ALL {
        for engine in EngineName::all() {
            let mut found: Vec<(u64, meridian_sim::End)> = Vec::new();
            let mut reason = String::new();
            for seed in 0..n {
                let mut options = swarm(seed);
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
                "{name} {}: {} of {n}: {:?} {}",
                engine.name,
                found.len(),
                &found[..found.len().min(8)],
                &reason[..reason.len().min(300)]
            );
        }
    }
}
