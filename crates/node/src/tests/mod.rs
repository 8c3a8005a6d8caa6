//! Whole nodes over loopback: each on a thread of its own, as in a process of its own.

mod clients;
mod durability;
mod embedded;
mod encrypted;
mod identity;
mod peers;

use crate::config::{Config, Durability};
use crate::worker::{self, NodeError, Plan, Ready};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// A cluster whose nodes can be stopped and started one by one.
struct Cluster {
    config: Config,
    /// By node, the sockets of its first start, bound early so that nobody else takes their ports.
    sockets: Vec<Option<(TcpListener, TcpListener)>>,
    nodes: Vec<Option<Running>>,
}

struct Running {
    stop: watch::Sender<bool>,
    thread: JoinHandle<Result<(), NodeError>>,
}

impl Cluster {
    /// Three regions of one node each, not started. Records go to `data`, if that is given.
    fn new(data: Option<&Path>) -> Self {
        let mut text = "[cluster]\nid = \"test\"\n".to_owned();
        text += if data.is_some() { "" } else { "[durability]\nmode = \"memory\"\n" };
        let bind = || worker::bind("127.0.0.1:0").unwrap();
        let sockets: Vec<_> = (0..3).map(|_| (bind(), bind())).collect();
        let port = |socket: &TcpListener| socket.local_addr().unwrap().port();
        for (i, region) in ["ca", "va", "ir"].iter().enumerate() {
            write!(text, "[[node]]\nname = \"{region}-1\"\nregion = \"{region}\"\n").unwrap();
            let (client, peer) = (port(&sockets[i].0), port(&sockets[i].1));
            write!(text, "client = {client}\npeer = {peer}\n").unwrap();
            if data.is_some() {
                writeln!(text, "data = \"{region}\"").unwrap();
            }
        }
        text += "[[keyspace]]\nnumber = 0\nmodel = \"linearizable\"\n";
        text += "[[keyspace]]\nnumber = 1\nmodel = \"rsc\"\nsession = \"client-name\"\n";
        text += "[timeouts]\noperation = \"3s\"\nretry = \"100ms\"\nrecovery = \"200ms\"\nsync = \"200ms\"\n";
        let config = Config::parse(&text, data.unwrap_or(Path::new(""))).unwrap();
        Self { config, sockets: sockets.into_iter().map(Some).collect(), nodes: vec![None, None, None] }
    }

    fn start(&mut self, node: usize) {
        let (client, peer) = self.sockets[node].take().unwrap_or_else(|| {
            let node = &self.config.nodes[node];
            (worker::bind(&node.client).unwrap(), worker::bind(&node.peer).unwrap())
        });
        let delays = vec![Duration::ZERO; 3];
        let plan =
            Plan { config: self.config.clone(), me: node, client, peer, admin: None, delays, controls: None };
        let (stop, mut stopped) = watch::channel(false);
        let thread = std::thread::spawn(move || {
            let stop = async move { drop(stopped.wait_for(|stop| *stop).await) };
            worker::run(plan, Ready::MostOrSoon, || (), stop)
        });
        self.nodes[node] = Some(Running { stop, thread });
    }

    fn start_all(data: Option<&Path>) -> Self {
        let mut cluster = Self::new(data);
        for node in 0..3 {
            cluster.start(node);
        }
        for node in 0..3 {
            cluster.await_peers(node, 2);
        }
        cluster
    }

    fn stop(&mut self, node: usize) -> Result<(), NodeError> {
        let running = self.nodes[node].take().unwrap();
        running.stop.send_replace(true);
        running.thread.join().unwrap()
    }

    fn client(&self, node: usize) -> Client {
        Client::connect(&self.config.nodes[node].client)
    }

    /// Waits until a node is connected to so many others.
    fn await_peers(&self, node: usize, count: usize) {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let status = self.client(node).ask("MERIDIAN.STATUS");
            if status.matches("state=up").count() == count {
                return;
            }
            assert!(Instant::now() < deadline, "{node} has not {count} peers: {status}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for node in 0..3 {
            if self.nodes[node].is_some() {
                let _ = self.stop(node);
            }
        }
    }
}

/// A client that sends lines and takes answers as text.
struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    fn connect(address: &str) -> Self {
        let deadline = Instant::now() + Duration::from_secs(5);
        let stream = loop {
            match TcpStream::connect(address) {
                Ok(stream) => break stream,
                Err(error) => assert!(Instant::now() < deadline, "{address}: {error}"),
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Self { stream: BufReader::new(stream) }
    }

    fn send(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).unwrap();
    }

    /// Sends a line and gives the answer: the text after its first byte, or a bulk string's content.
    fn ask(&mut self, line: &str) -> String {
        self.send(format!("{line}\r\n").as_bytes());
        self.answer()
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        let line = line.trim_end();
        match line.strip_prefix(['$', '=']).map(|length| length.parse::<i64>().unwrap()) {
            None => line.get(1..).unwrap_or("(closed)").to_owned(),
            Some(-1) => "(nil)".to_owned(),
            Some(length) => {
                let mut content = vec![0; length as usize + 2];
                self.stream.read_exact(&mut content).unwrap();
                content.truncate(length as usize);
                String::from_utf8(content).unwrap()
            }
        }
    }
}

#[test]
fn every_region_answers_for_every_key() {
    let cluster = Cluster::start_all(None);
    for node in 0..3 {
        let mut client = cluster.client(node);
        assert_eq!(client.ask(&format!("SET key{node} value{node}")), "OK");
        assert_eq!(client.ask("INCR counter"), (node + 1).to_string());
        for reader in 0..3 {
            assert_eq!(cluster.client(reader).ask(&format!("GET key{node}")), format!("value{node}"));
        }
    }
    assert!(cluster.config.durability == Durability::Memory);
}

#[test]
fn sixty_four_clients_share_the_writes_to_sockets() {
    let cluster = Cluster::start_all(None);
    let count = |name: &str| -> u64 {
        let read = |node| {
            let status = cluster.client(node).ask("MERIDIAN.STATUS");
            let value =
                status.lines().find_map(|line| line.strip_prefix(&format!("{name}:")).map(str::to_owned));
            value.unwrap().trim().parse::<u64>().unwrap()
        };
        (0..3).map(read).sum()
    };
    let before = (count("socket_writes"), count("requests"));
    let addresses: Vec<String> = cluster.config.nodes.iter().map(|node| node.client.clone()).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let clients: Vec<_> = (0..64)
            .map(|i| {
                let address = addresses[i % 3].clone();
                tokio::spawn(async move {
                    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
                    for round in 0..200 {
                        let command = if round % 2 == 0 { "SET" } else { "GET" };
                        let value = if round % 2 == 0 { " v" } else { "" };
                        stream.write_all(format!("{command} k{i}{value}\r\n").as_bytes()).await.unwrap();
                        let mut answer = [0; 64];
                        let read = stream.read(&mut answer).await.unwrap();
                        assert!(answer[..read].ends_with(b"\r\n"));
                    }
                })
            })
            .collect();
        for client in clients {
            client.await.unwrap();
        }
    });
    let (writes, requests) = (count("socket_writes") - before.0, count("requests") - before.1);
    assert_eq!(requests, 64 * 200);
    // One write a message would be 2.5 a read and 4.5 a write; an answer of its own each operation needs.
    let per_operation = writes as f64 / requests as f64;
    assert!(per_operation < 1.8, "{per_operation} writes an operation");
}
