//! The cluster in one process: placement over several nodes, emulated distances, cuts and pauses.

use super::Client;
use crate::serve::{DevOptions, Embedded};
use meridian_protocol::latency::RttMatrix;
use meridian_protocol::registry::Writes;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

struct Running {
    /// Region and address, the first node of each region first.
    nodes: Vec<(String, String)>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    /// Starts three regions and waits until they are ready.
    fn start(rtt: &str, nodes_per_region: u16) -> Self {
        let options = DevOptions {
            regions: RttMatrix::of_flags("a,b,c", rtt, |text| Ok(text.to_owned())).unwrap(),
            nodes_per_region,
            partitions: 4,
            port: 0,
            bind: "127.0.0.1".to_owned(),
            keyspaces: ["0=linearizable", "1=rsc"].map(|db| DevOptions::keyspace(db).unwrap()).to_vec(),
            session: None,
            writes: Writes::TwoRounds,
            clock_error: Duration::from_millis(1),
            data: None,
        };
        let cluster = Embedded::bind(&options).unwrap();
        let nodes = cluster.addresses().iter().map(|(r, a)| ((*r).to_owned(), (*a).to_owned())).collect();
        let (stop, stopped) = oneshot::channel();
        let (ready, is_ready) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let stop = async { drop(stopped.await) };
            cluster.run(|| ready.send(()).unwrap(), stop).unwrap();
        });
        is_ready.recv_timeout(Duration::from_secs(20)).expect("the cluster gets ready");
        Self { nodes, stop: Some(stop), thread: Some(thread) }
    }

    fn client(&self, node: usize) -> Client {
        Client::connect(&self.nodes[node].1)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking());
        }
    }
}

#[test]
fn any_of_six_nodes_serves_any_key_of_four_partitions() {
    let cluster = Running::start("none", 2);
    assert_eq!(cluster.nodes.iter().map(|(region, _)| region.as_str()).collect::<String>(), "abcabc");
    let mut clients: Vec<Client> = (0..6).map(|node| cluster.client(node)).collect();
    for i in 0..60 {
        assert_eq!(clients[i % 6].ask(&format!("SET key{i} {i}")), "OK");
    }
    for i in 0..60 {
        for shift in 1..6 {
            assert_eq!(clients[(i + shift) % 6].ask(&format!("GET key{i}")), i.to_string());
        }
    }
    for client in &mut clients {
        client.ask("SELECT 1");
        client.ask("INCR counter");
    }
    assert_eq!(clients[0].ask("GET counter"), "6");
}

/// A real clock tells the floor only; how much more it is depends on the machine, and is printed.
#[test]
fn operations_take_the_round_trips_that_the_distances_ask_for() {
    let cluster = Running::start("a,b,c\n0,20,60\n20,0,50\n60,50,0\n", 1);
    for (node, floor) in [(0, 20), (1, 20), (2, 50)] {
        let mut client = cluster.client(node);
        for (command, round_trips) in [("SET key 1", 2), ("GET key", 1)] {
            let least = (0..5).map(|_| {
                let begin = Instant::now();
                client.ask(command);
                begin.elapsed()
            });
            let least = least.min().unwrap();
            println!("{command} at {}: {least:?}", cluster.nodes[node].0);
            assert!(least >= Duration::from_millis(floor * round_trips), "{command} at {node}: {least:?}");
        }
    }
}

#[test]
fn cuts_and_pauses_hurt_whom_they_should() {
    let cluster = Running::start("none", 1);
    let mut client = cluster.client(0);
    assert_eq!(client.ask("SET key 1"), "OK");
    assert!(client.ask("MERIDIAN.DEV CUT a mars").contains("no region is called 'mars'"));
    assert_eq!(client.ask("MERIDIAN.DEV CUT a b"), "OK");
    assert_eq!(client.ask("INCR key"), "2", "a and c are enough");
    assert_eq!(cluster.client(1).ask("INCR key"), "3", "b and c are enough");
    assert_eq!(client.ask("MERIDIAN.DEV PAUSE c"), "OK");
    let mut waiting = cluster.client(0);
    waiting.send(b"INCR key\r\n");
    std::thread::sleep(Duration::from_millis(300));
    waiting.stream.get_ref().set_nonblocking(true).unwrap();
    assert!(waiting.stream.get_ref().peek(&mut [0]).is_err(), "nobody is left to agree with a");
    waiting.stream.get_ref().set_nonblocking(false).unwrap();
    assert_eq!(client.ask("MERIDIAN.DEV RESUME c"), "OK");
    assert_eq!(waiting.answer(), "4");
    assert_eq!(client.ask("MERIDIAN.DEV HEAL"), "OK");
    assert_eq!(cluster.client(1).ask("GET key"), "4");
}

/// An ended process must not wait for a paused region.
#[test]
fn a_paused_cluster_can_be_stopped() {
    let cluster = Running::start("none", 1);
    assert_eq!(cluster.client(0).ask("MERIDIAN.DEV PAUSE b"), "OK");
    let begin = Instant::now();
    drop(cluster);
    assert!(begin.elapsed() < Duration::from_secs(5));
}
