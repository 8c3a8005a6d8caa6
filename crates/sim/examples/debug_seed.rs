//! x
#[path = "../tests/common/mod.rs"]
mod common;
use common::swarm;
use meridian_protocol::registry::EngineName;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let seed: u64 = a[2].parse().expect("n");
    let mut options = swarm(seed);
    if let Some(o) = a.get(4) {
        options.workload.ops = o.parse().expect("n");
    }
    let story: Option<Box<dyn std::io::Write>> =
        a.get(5).map(|f| Box::new(std::io::BufWriter::new(std::fs::File::create(f).expect("f"))) as _);
    let r = meridian_sim::run(EngineName::of_engine(&a[1]).expect("e"), &options, story);
    println!("{r} {}", r.reason);
    println!(
        "n={} proxy={} thrifty={} lost={} think={}",
        options.rtt.regions(),
        options.settings.read_proxy,
        options.settings.thrifty,
        options.lost_regions,
        options.workload.think
    );
    meridian_check::history::write(&r.history, std::fs::File::create(&a[3]).expect("f")).expect("w");
}
