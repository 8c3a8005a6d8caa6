//! Nothing leaves before the records are durable, and records come back.

use super::Cluster;
use crate::clock::Clock;
use crate::config::Config;
use crate::core::Core;
use crate::handshake::tests::LIFE;
use crate::link::Link;
use crate::node::{Node, spawn};
use crate::outside::Outside;
use crate::placement::Placement;
use meridian_store::{Batch, Memory, Store, StoreError};
use std::cell::RefCell;
use std::io::Read;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

#[test]
fn records_survive_the_restart_of_one_and_of_all() {
    let directory = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::start_all(Some(directory.path()));
    let mut client = cluster.client(0);
    for i in 0..20 {
        assert_eq!(client.ask(&format!("SET key{i} {i}")), "OK");
    }
    assert_eq!(client.ask("INCR counter"), "1");
    cluster.stop(2).unwrap();
    assert_eq!(client.ask("INCR counter"), "2");
    cluster.start(2);
    cluster.await_peers(2, 2);
    // The one that was away is needed for a quorum now.
    cluster.stop(1).unwrap();
    assert_eq!(client.ask("INCR counter"), "3");
    assert_eq!(cluster.client(2).ask("GET key7"), "7");
    cluster.stop(0).unwrap();
    cluster.stop(2).unwrap();
    for node in 0..3 {
        cluster.start(node);
    }
    for node in 0..3 {
        cluster.await_peers(node, 2);
    }
    let mut client = cluster.client(1);
    for i in 0..20 {
        assert_eq!(client.ask(&format!("GET key{i}")), i.to_string());
    }
    assert_eq!(client.ask("INCR counter"), "4");
}

#[test]
fn records_made_under_another_configuration_are_not_taken_up() {
    let directory = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::start_all(Some(directory.path()));
    cluster.stop(0).unwrap();
    let mut other = Cluster::new(Some(directory.path()));
    other.config.keyspaces[0].partitions = 9;
    other.start(0);
    let running = other.nodes[0].take().unwrap();
    let error = running.thread.join().unwrap().unwrap_err().to_string();
    assert!(error.contains("another configuration") || error.contains("made under"), "{error}");
}

/// A store that looks, at each commit, whether the client has already been answered.
struct Watching {
    pairs: Memory,
    client: std::net::TcpStream,
    log: Rc<RefCell<Vec<&'static str>>>,
    broken: bool,
}

impl Store for Watching {
    fn commit(&mut self, batch: &Batch) -> Result<(), StoreError> {
        let answered = matches!(self.client.peek(&mut [0]), Ok(count) if count > 0);
        self.log.borrow_mut().push(if answered { "too late" } else { "in time" });
        if self.broken {
            return Err(StoreError::Poisoned("no space left on device".to_owned()));
        }
        self.pairs.commit(batch)
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    fn for_each(&self, prefix: &[u8], visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<(), StoreError> {
        self.pairs.for_each(prefix, visit)
    }
}

/// The node of one region alone.
fn lonely_node(store: Option<Box<dyn Store>>) -> Node {
    let text = "[cluster]\nid = \"one\"\n[[node]]\nname = \"a\"\nregion = \"a\"\nclient = 1\npeer = 2\ndata = \"x\"\n\
                [[keyspace]]\nnumber = 0\nmodel = \"linearizable\"\n";
    let config = Config::parse(text, Path::new("")).unwrap();
    let links = vec![Link::new(1 << 20, Duration::ZERO)];
    let placement = Placement::new(&config);
    let outside = Outside::new(
        Clock::new(meridian_clock::Clock::open(&meridian_clock::Source::None).unwrap(), 1),
        0,
        1,
        placement,
        links,
        Some(Batch::new()),
    );
    let core = Core::new(&config, outside, store.as_deref(), None).unwrap();
    Node::new(config, core, store, LIFE).unwrap()
}

#[test]
fn a_task_that_panics_fails_the_node() {
    let node = Rc::new(RefCell::new(lonely_node(None)));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build_local(tokio::runtime::LocalOptions::default())
        .unwrap();
    runtime.block_on(async {
        let other = node.clone();
        spawn(&node, async move { drop(other.borrow()) }).await.unwrap();
        assert_eq!(node.borrow().failure, None);
        let other = node.clone();
        let task = spawn(&node, async move {
            let _changing = other.borrow_mut();
            panic!("as a test");
        });
        assert!(task.await.unwrap_err().is_panic());
    });
    assert!(node.borrow().failure.as_ref().is_some_and(|why| why.contains("panicked")));
}

/// One region alone, its node driven by hand: gives what the store saw, and what the client was told.
fn set_on_a_lonely_node(broken: bool) -> (Vec<&'static str>, String, Option<String>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut client = std::net::TcpStream::connect(address).unwrap();
        client.set_nonblocking(true).unwrap();
        let (stream, peer) = listener.accept().await.unwrap();
        let log = Rc::new(RefCell::new(Vec::new()));
        let watched = client.try_clone().unwrap();
        let store = Watching { pairs: Memory::new(), client: watched, log: log.clone(), broken };
        let store: Option<Box<dyn Store>> = Some(Box::new(store));
        let mut node = lonely_node(store);
        let (_reader, writer) = crate::wire::Stream::plain(stream).into_split();
        let id = node.open(writer, peer, address).ok().unwrap();
        let waker = std::task::Waker::noop();
        let command = b"SET key value\r\nINCR n\r\nPING\r\n";
        node.input(id, waker).unwrap().extend_from_slice(command);
        node.on_input(id, command.len());
        for _ in 0..10 {
            node.flush();
        }
        let mut answer = String::new();
        std::thread::sleep(Duration::from_millis(50));
        let _ = client.read_to_string(&mut answer);
        let seen = log.borrow().clone();
        (seen, answer, node.failure)
    })
}

#[test]
fn no_answer_leaves_before_its_records_are_durable() {
    let (seen, answer, failure) = set_on_a_lonely_node(false);
    assert_eq!(answer, "+OK\r\n:1\r\n+PONG\r\n");
    assert!(!seen.is_empty() && seen.iter().all(|word| *word == "in time"), "{seen:?}");
    assert_eq!(failure, None);
}

#[test]
fn nothing_leaves_after_a_commit_has_failed() {
    let (seen, answer, failure) = set_on_a_lonely_node(true);
    assert_eq!(answer, "");
    assert_eq!(seen.len(), 1, "one attempt, then silence");
    assert!(failure.unwrap().contains("no space left"));
}
