//! A run is a function of its options: twice the same seed gives twice the same trace, also in two processes.

use meridian_protocol::registry::{EngineName, Settings};
use meridian_sim::Options;
use std::process::Command;

/// With this in its environment the test binary prints one run and nothing else.
const CHILD: &str = "MERIDIAN_DETERMINISM_CHILD";

fn line(engine: &str, seed: u64) -> String {
    let mut options = Options::new(seed, Settings::default()).regions(5);
    options.workload.ops = 1_000;
    let engine = EngineName::of_engine(engine).expect("the engine is built");
    meridian_sim::run(engine, &options, None).to_string()
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_one_another() {
    for engine in EngineName::all() {
        for seed in [1, 4] {
            assert_eq!(line(engine.name, seed), line(engine.name, seed));
        }
        assert_ne!(line(engine.name, 1), line(engine.name, 2));
    }
}

#[test]
fn another_process_gives_the_same_run() {
    let me = std::env::current_exe().expect("a running test has a path");
    for engine in EngineName::all() {
        let output = Command::new(&me)
            .args(["--exact", "child_process", "--nocapture"])
            .env(CHILD, engine.name)
            .output()
            .expect("the test binary runs again");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains(&line(engine.name, 4)), "{} differs from:\n{text}", line(engine.name, 4));
    }
}

/// Does nothing unless it is asked for by the test above.
#[test]
fn child_process() {
    if let Ok(engine) = std::env::var(CHILD) {
        println!("{}", line(&engine, 4));
    }
}
