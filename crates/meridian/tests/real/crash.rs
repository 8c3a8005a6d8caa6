//! Any nodes and all of them are killed under load, at any moment, or find their disk full, and are started again: what every engine has
//! acknowledged is there, and its model holds.

use crate::harness::{Cluster, Plan};
use crate::judged::{EVERY_ENGINE, KEYSPACES, Load, PATIENCE, assert_hold, choices, seed};
use rand::RngExt;
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

/// How nodes go down.
#[derive(Clone, Copy, Debug)]
enum End {
    /// By SIGKILL.
    Killed,
    /// By themselves, as nothing more can be written: the last record may be cut off anywhere.
    Full,
}

fn millis(random: &mut impl RngExt, from: u64, to: u64) -> Duration {
    Duration::from_millis(random.random_range(from..to))
}

/// One, two or all nodes go down, and are started again.
fn cycle(cluster: &mut Cluster, random: &mut impl RngExt, end: End, victims: u8) {
    let victims: Vec<u16> = (0..3).filter(|index| victims & 1 << index != 0).collect();
    sleep(millis(random, 100, 1_200));
    if let End::Full = end {
        for &victim in &victims {
            let beyond = random.random_range(0..4_000);
            fill_disk(cluster, victim, beyond);
        }
        for &victim in &victims {
            let node = cluster.node(victim);
            assert_eq!(node.wait_end(), Some(2), "{}", node.said());
            let told = node.said();
            let said = told.lines().any(|line| line.contains("stopped: ") && line.contains("File too large"));
            assert!(said, "it says why: {told}");
        }
    }
    cluster.kill(victims.iter().copied());
    sleep(millis(random, 0, 1_000));
    cluster.begin_nodes(victims.iter().copied());
    // Otherwise the next ones may go down while these only start.
    if random.random() {
        for &victim in &victims {
            cluster.node(victim).wait_ready();
        }
    }
    println!("{end:?} {victims:?}");
}

/// From here on a node cannot write beyond a little more than it has written.
fn fill_disk(cluster: &mut Cluster, index: u16, beyond: u64) {
    cluster.node(index).wait_ready();
    let logs = fs::read_dir(cluster.data(index)).expect("the node has a directory").flatten();
    let last =
        logs.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|it| it == "log")).max();
    let bytes = fs::read(last.expect("the node has a log")).expect("the log can be read");
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last as u64 + 1);
    let pid = Pid::from_raw(cluster.node(index).id() as i32);
    let limit = Rlimit { current: Some(end + beyond), maximum: None };
    prlimit(pid, Resource::Fsize, limit).expect("a child's limits can be set");
}

/// A node for which a file that grows too large is an error, and not its end.
fn patient(cluster: &Cluster, index: u16) -> Command {
    let node = cluster.serve(index, Path::new(&cluster.config()));
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""]).arg(node.get_program()).args(node.get_args());
    command
}

fn start(plan: Plan) -> Cluster {
    let mut cluster = Cluster::prepare(plan, |_| ());
    cluster.launch = patient;
    cluster.start_nodes(0..3);
    cluster.wait_met(3);
    cluster
}

fn all_up(cluster: &mut Cluster) {
    for index in 0..3 {
        cluster.node(index).wait_ready();
    }
    cluster.wait_met(3);
}

#[test]
fn every_engine_survives_any_crash_and_a_full_disk() {
    let seed = seed();
    let mut random = choices(seed);
    let mut cluster = start(EVERY_ENGINE);
    let load = Load::start(&cluster, &KEYSPACES, 60, seed);
    load.go_on(20);
    let some = random.random_range(1..7);
    cycle(&mut cluster, &mut random, End::Killed, some);
    let some = random.random_range(1..8);
    cycle(&mut cluster, &mut random, End::Full, some);
    cycle(&mut cluster, &mut random, End::Killed, 7);
    all_up(&mut cluster);
    load.go_on(20);
    assert_hold(&load.end(&cluster, PATIENCE));
}

#[test]
// Longer than anybody wants to wait for while working: `make test-long` runs it.
#[ignore = "takes ten minutes"]
fn every_engine_survives_a_hundred_crashes() {
    let seed = seed();
    let mut cluster = start(EVERY_ENGINE);
    for round in 0..12 {
        let mut random = choices(seed + round);
        let load = Load::start(&cluster, &KEYSPACES, 60, seed + round);
        load.go_on(20);
        for number in 0..10 {
            let end = if number == 5 { End::Full } else { End::Killed };
            let some = random.random_range(1..8);
            cycle(&mut cluster, &mut random, end, some);
        }
        all_up(&mut cluster);
        load.go_on(20);
        assert_hold(&load.end(&cluster, PATIENCE));
    }
}

/// All nodes come back with an older copy of their records, which they cannot tell themselves: what was acknowledged
/// since is lost, and the judgement must say so of every engine.
#[test]
fn what_is_lost_is_found() {
    let mut cluster = start(EVERY_ENGINE);
    let load = Load::start(&cluster, &KEYSPACES, 60, 1);
    load.go_on(20);
    let swap = |cluster: &mut Cluster, from: &str, to: &str| {
        cluster.kill(0..3);
        for index in 0..3 {
            let data = cluster.data(index);
            let named = |suffix: &str| data.with_file_name(format!("{}{suffix}", cluster.name(index)));
            let _ = fs::remove_dir_all(named(to));
            let copied = Command::new("cp").arg("-r").args([named(from), named(to)]).status();
            assert!(copied.is_ok_and(|status| status.success()));
        }
        cluster.start_nodes(0..3);
        cluster.wait_met(3);
    };
    swap(&mut cluster, "", ".old");
    load.go_on(50);
    swap(&mut cluster, ".old", "");
    for judgement in load.end(&cluster, Duration::from_millis(500)) {
        println!("{}: {}", judgement.engine, judgement.line);
        assert!(judgement.line.contains("\tviolated\t"), "{}: {}", judgement.engine, judgement.line);
    }
}
