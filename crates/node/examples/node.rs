//! Temporary runner.
use meridian_node::config::Config;
use meridian_node::{DevOptions, dev, serve};
use meridian_protocol::latency::RttMatrix;
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let result = if args[1] == "dev" {
        dev(&DevOptions {
            regions: RttMatrix::of_flags("3", &args[2], |_| Err("no".into())).unwrap(),
            nodes_per_region: args.get(5).map_or(1, |n| n.parse().unwrap()),
            partitions: 4,
            port: args[3].parse().unwrap(),
            bind: "127.0.0.1".into(),
            keyspaces: vec![
                DevOptions::keyspace("0=linearizable").unwrap(),
                DevOptions::keyspace("1=rsc").unwrap(),
            ],
            session: None,
            clock_error: std::time::Duration::from_millis(1),
            data: args.get(4).filter(|d| *d != "-").map(Into::into),
        })
    } else {
        serve(Config::load(std::path::Path::new(&args[2])).unwrap(), &args[3])
    };
    if let Err(e) = result {
        eprintln!("meridian: {e}");
    }
}
