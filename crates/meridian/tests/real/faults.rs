//! Links are cut, both ways or one, regions are isolated, processes stopped and continued, clocks moved, under load on every engine: its
//! model holds.

use crate::harness::Cluster;
use crate::judged::{EVERY_ENGINE, KEYSPACES, Load, PATIENCE, assert_hold, choices, seed};
use crate::proxy::{Proxy, Way};
use rand::RngExt;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

/// A cluster whose nodes reach each other through proxies, and whose clocks can be moved.
struct Faulty {
    cluster: Cluster,
    /// The links, each with the two nodes that it joins; the first one dials.
    links: Vec<(u16, u16, Proxy)>,
}

/// What goes wrong for a while.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// Nothing comes through a link.
    Cut,
    /// Nothing comes through one way of it.
    OneWay(Way),
    /// No link of a node works.
    Isolated,
    /// A process does not run.
    Paused,
    /// A clock is moved, to stay wrong until it is moved again.
    Clock,
}

const FAULTS: [Fault; 6] = [
    Fault::Cut,
    Fault::OneWay(Way::Forth),
    Fault::Isolated,
    Fault::Paused,
    Fault::OneWay(Way::Back),
    Fault::Clock,
];

/// A file of a node's own.
fn own_file(cluster: &Cluster, index: u16, kind: &str) -> PathBuf {
    cluster.directory.path().join(format!("{}.{kind}", cluster.name(index)))
}

/// A node with a configuration and a clock of its own.
fn apart(cluster: &Cluster, index: u16) -> Command {
    let mut command = cluster.serve(index, &own_file(cluster, index, "toml"));
    command.env("MERIDIAN_CLOCK_OFFSET", own_file(cluster, index, "clock"));
    command
}

impl Faulty {
    fn start() -> Self {
        let mut cluster = Cluster::prepare(EVERY_ENGINE, |_| ());
        let pairs = [(0, 1), (0, 2), (1, 2)];
        let links = pairs.map(|(from, to)| (from, to, Proxy::to(cluster.peer_port(to))));
        let text = fs::read_to_string(cluster.config()).expect("the configuration is there");
        for index in 0..3 {
            let mut own = text.clone();
            for (_, to, proxy) in links.iter().filter(|(from, ..)| *from == index) {
                let peer = |port: u16| format!("peer = {port}\n");
                assert!(own.contains(&peer(cluster.peer_port(*to))), "{own}");
                own = own.replace(&peer(cluster.peer_port(*to)), &peer(proxy.port));
            }
            fs::write(own_file(&cluster, index, "toml"), own).expect("it can be written");
        }
        cluster.launch = apart;
        cluster.start_nodes(0..3);
        cluster.wait_met(3);
        Self { cluster, links: links.into() }
    }

    /// Moves a node's clock.
    fn move_clock(&self, index: u16, micros: i64) {
        // No reader sees half a number.
        let new = own_file(&self.cluster, index, "new");
        fs::write(&new, micros.to_string()).expect("it can be written");
        fs::rename(new, own_file(&self.cluster, index, "clock")).expect("it can be renamed");
    }

    /// Something goes wrong, and is put right again; but a clock stays wrong by up to `clocks`.
    fn happen(&mut self, fault: Fault, random: &mut impl RngExt, longest: Duration, clocks: i64) {
        let node = random.random_range(0..3);
        let link = random.random_range(0..3_usize);
        let span = longest.mul_f64(random.random_range(0.1..1.0));
        let reset = random.random();
        sleep(Duration::from_millis(random.random_range(100..500)));
        match fault {
            Fault::Cut => [Way::Forth, Way::Back].into_iter().for_each(|way| self.links[link].2.cut(way)),
            Fault::OneWay(way) => self.links[link].2.cut(way),
            Fault::Isolated => {
                for (.., link) in self.links.iter().filter(|(a, b, _)| [a, b].contains(&&node)) {
                    link.cut(Way::Forth);
                    link.cut(Way::Back);
                }
            }
            Fault::Paused => self.cluster.node(node).signal("STOP"),
            Fault::Clock => {
                for index in 0..3 {
                    self.move_clock(index, random.random_range(-clocks..=clocks));
                }
            }
        }
        println!("{fault:?}, node {node} or link {link}, {span:?}, reset {reset}");
        sleep(span);
        if let Fault::Paused = fault {
            self.cluster.node(node).signal("CONT");
        }
        for (.., link) in &self.links {
            link.heal(reset);
        }
    }
}

/// Within what [`EVERY_ENGINE`] says of its clocks, with some room for what reading them takes.
const WITHIN: i64 = 18_000;

#[test]
fn every_engine_keeps_its_model_whatever_the_network_and_the_clocks_do() {
    let seed = seed();
    let mut random = choices(seed);
    let mut faulty = Faulty::start();
    let load = Load::start(&faulty.cluster, &KEYSPACES, 60, seed);
    for fault in FAULTS {
        faulty.happen(fault, &mut random, Duration::from_millis(2_500), WITHIN);
    }
    faulty.cluster.wait_met(3);
    load.go_on(20);
    assert_hold(&load.end(&faulty.cluster, PATIENCE));
}

#[test]
// Longer than anybody wants to wait for while working: `make test-long` runs it.
#[ignore = "takes five minutes"]
fn every_engine_keeps_its_model_for_long() {
    let seed = seed();
    let mut faulty = Faulty::start();
    for round in 0..5 {
        let mut random = choices(seed + round);
        let load = Load::start(&faulty.cluster, &KEYSPACES, 60, seed + round);
        for _ in 0..15 {
            let fault = FAULTS[random.random_range(0..FAULTS.len())];
            // Now and then longer than nodes wait for a sign of life before they connect anew.
            let longest = Duration::from_secs(if random.random_bool(0.1) { 15 } else { 3 });
            faulty.happen(fault, &mut random, longest, WITHIN);
        }
        faulty.cluster.wait_met(3);
        load.go_on(20);
        assert_hold(&load.end(&faulty.cluster, PATIENCE));
    }
}

/// Where nobody relies on clocks they may be off by an hour, and leap.
#[test]
// As above.
#[ignore = "takes two minutes"]
fn engines_that_need_no_clock_keep_their_models_with_any() {
    let seed = seed();
    let mut faulty = Faulty::start();
    for round in 0..3 {
        let mut random = choices(seed + round);
        let load = Load::start(&faulty.cluster, &KEYSPACES[..8], 60, seed + round);
        for number in 0..10 {
            let fault =
                if number % 2 == 0 { Fault::Clock } else { FAULTS[random.random_range(0..FAULTS.len())] };
            faulty.happen(fault, &mut random, Duration::from_secs(2), 3_600_000_000);
        }
        faulty.cluster.wait_met(3);
        load.go_on(20);
        assert_hold(&load.end(&faulty.cluster, PATIENCE));
    }
}
