//! What clients may do to a node.

use super::{Client, Cluster};
use std::io::{Read, Write};
use std::time::{Duration, Instant};

#[test]
fn a_value_at_the_limit_passes_and_a_larger_one_is_refused() {
    let cluster = Cluster::start_all(None);
    let mut client = cluster.client(0);
    let length = 8 << 20;
    client.send(format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${length}\r\n").as_bytes());
    client.send(&vec![b'x'; length]);
    client.send(b"\r\n");
    assert_eq!(client.answer(), "OK");
    let read = cluster.client(2).ask("GET k");
    assert!(read.len() == length && read.bytes().all(|byte| byte == b'x'));

    client.send(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1073741824\r\n");
    let refused = client.answer();
    assert!(refused.contains("invalid bulk length"), "{refused}");
    assert_eq!(client.answer(), "(closed)");
    assert_eq!(cluster.client(0).ask("PING"), "PONG");
}

#[test]
fn half_a_command_and_silence_hold_up_nobody() {
    let cluster = Cluster::start_all(None);
    let mut silent = cluster.client(0);
    silent.send(b"*3\r\n$3\r\nSET\r\n$4\r\nha");
    let mut other = cluster.client(0);
    assert_eq!(other.ask("SET key 1"), "OK");
    silent.send(b"lf\r\n$1\r\n1\r\n");
    assert_eq!(silent.answer(), "OK");
    silent.send(b"*2\r\n$3\r\nGET\r\n$4\r\nha");
    drop(silent);
    assert_eq!(other.ask("GET half"), "1");
}

#[test]
fn nonsense_ends_the_connection_with_an_error() {
    let cluster = Cluster::start_all(None);
    for nonsense in ["*1\r\n$-5\r\n", "*99999999999\r\n", "*1\r\n:5\r\n"] {
        let mut client = cluster.client(0);
        client.send(nonsense.as_bytes());
        assert!(client.answer().starts_with("ERR Protocol error"), "{nonsense:?}");
        assert_eq!(client.answer(), "(closed)");
    }
    assert_eq!(cluster.client(0).ask("PING"), "PONG");
}

#[test]
fn a_client_that_does_not_read_is_not_read_from() {
    let cluster = Cluster::start_all(None);
    assert_eq!(cluster.client(0).ask(&format!("SET big {}", "x".repeat(60_000))), "OK");
    let mut greedy = cluster.client(0);
    // 600 MB of answers are asked for; what the node holds for this client stays far below.
    let stream = greedy.stream.get_mut();
    stream.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    let command = b"GET big\r\n".repeat(100);
    let mut sent = 0;
    while sent < 10_000 && stream.write_all(&command).is_ok() {
        sent += 100;
    }
    let begin = Instant::now();
    assert_eq!(cluster.client(0).ask("GET big").len(), 60_000);
    assert!(begin.elapsed() < Duration::from_secs(2));
    // Once it reads, it gets its answers.
    let mut answers = vec![0; 10_000_000];
    greedy.stream.read_exact(&mut answers).unwrap();
}

#[test]
fn too_many_clients_are_told_so() {
    let mut cluster = Cluster::new(None);
    cluster.config.limits.connections = 3;
    cluster.start(0);
    let mut clients: Vec<Client> = (0..3).map(|_| cluster.client(0)).collect();
    for client in &mut clients {
        assert_eq!(client.ask("PING"), "PONG");
    }
    let mut fourth = cluster.client(0);
    assert_eq!(fourth.answer(), "ERR max number of clients reached");
    drop(clients.pop());
    let deadline = Instant::now() + Duration::from_secs(5);
    while cluster.client(0).ask("PING") != "PONG" {
        assert!(Instant::now() < deadline);
    }
}

#[test]
fn whoever_ends_its_input_still_gets_its_answers() {
    let cluster = Cluster::start_all(None);
    let mut client = cluster.client(0);
    client.send(b"SET a 1\r\nINCR a\r\nGET a\r\nGET half");
    client.stream.get_mut().shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!([client.answer(), client.answer(), client.answer()], ["OK", "2", "2"]);
    assert_eq!(client.answer(), "(closed)");
    // Also if there are more than wait at once, and if nothing was asked.
    assert_eq!(cluster.client(0).ask(&format!("SET big {}", "x".repeat(60_000))), "OK");
    let mut greedy = cluster.client(0);
    greedy.send(&b"GET big\r\n".repeat(200));
    greedy.stream.get_mut().shutdown(std::net::Shutdown::Write).unwrap();
    let mut answers = Vec::new();
    greedy.stream.read_to_end(&mut answers).unwrap();
    assert_eq!(answers.len(), 200 * ("$60000\r\n".len() + 60_000 + 2));
    let mut silent = cluster.client(0);
    silent.stream.get_mut().shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(silent.answer(), "(closed)");
}

#[test]
fn a_renamed_session_keeps_its_machine() {
    let cluster = Cluster::start_all(None);
    let mut client = cluster.client(0);
    assert_eq!(client.ask("SELECT 1"), "OK");
    for name in ["a", "b", "c"] {
        assert_eq!(client.ask(&format!("CLIENT SETNAME {name}")), "OK");
        assert_eq!(client.ask("SET key 1"), "OK");
    }
    // Another under the first name shares the machine; one under the last does not.
    let machines = |cluster: &Cluster| {
        let status = cluster.client(0).ask("MERIDIAN.STATUS");
        status.lines().find(|line| line.starts_with("keyspace_db1_clients:")).unwrap().to_owned()
    };
    let mut before = machines(&cluster);
    for (name, is_new) in [("a", false), ("c", true)] {
        let mut other = cluster.client(0);
        assert_eq!(other.ask("SELECT 1"), "OK");
        assert_eq!(other.ask(&format!("CLIENT SETNAME {name}")), "OK");
        assert_eq!(other.ask("GET key"), "1");
        let now = machines(&cluster);
        assert_eq!(now != before, is_new, "{name}");
        before = now;
    }
}

#[test]
fn operations_of_a_minority_end_in_time_with_the_right_word() {
    let mut cluster = Cluster::new(None);
    cluster.config.timeouts.operation = Duration::from_millis(700);
    for node in 0..3 {
        cluster.start(node);
    }
    cluster.await_peers(0, 2);
    assert_eq!(cluster.client(0).ask("SET key 1"), "OK");
    cluster.stop(1).unwrap();
    assert_eq!(cluster.client(0).ask("INCR key"), "2", "two of three are enough");
    cluster.stop(2).unwrap();
    for (command, words) in [
        ("GET key", &["CLUSTERDOWN"][..]),
        ("SET key 3", &["CLUSTERDOWN", "UNKNOWNOUTCOME"]),
        ("INCR key", &["CLUSTERDOWN", "UNKNOWNOUTCOME"]),
    ] {
        let begin = Instant::now();
        let answer = cluster.client(0).ask(command);
        let word = answer.split(' ').next().unwrap();
        assert!(words.contains(&word), "{command}: {answer}");
        assert!((0.5..2.5).contains(&begin.elapsed().as_secs_f64()), "{command}: {:?}", begin.elapsed());
    }
}

#[test]
fn client_machines_are_bounded_by_the_sessions_that_live_at_once() {
    let cluster = Cluster::start_all(None);
    for round in 0..50 {
        let mut client = cluster.client(0);
        assert_eq!(client.ask("SELECT 1"), "OK");
        if round % 2 == 0 {
            assert_eq!(client.ask(&format!("CLIENT SETNAME name{round}")), "OK");
        }
        assert_eq!(client.ask("SET key 1"), "OK");
        assert_eq!(client.ask("GET key"), "1");
    }
    let status = cluster.client(0).ask("MERIDIAN.STATUS");
    let line = status.lines().find(|line| line.starts_with("keyspace_db1_clients:")).unwrap();
    let machines: u64 = line.split(':').nth(1).unwrap().parse().unwrap();
    assert!(machines <= 3, "{line}");
}

/// How often something was counted, in `INFO stats`.
fn counted(client: &mut Client, name: &str) -> u64 {
    let stats = client.ask("INFO stats");
    let line = stats.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("{name} in {stats}")).trim().parse().unwrap()
}

/// Asks for answers of 6 MB and takes none.
fn greedy(cluster: &Cluster) -> Client {
    assert_eq!(cluster.client(0).ask(&format!("SET big {}", "x".repeat(60_000))), "OK");
    let mut greedy = cluster.client(0);
    greedy.send(&b"GET big\r\n".repeat(200));
    greedy
}

/// A cluster with other limits.
fn limited(change: impl FnOnce(&mut crate::config::Config)) -> Cluster {
    let mut cluster = Cluster::new(None);
    change(&mut cluster.config);
    (0..3).for_each(|node| cluster.start(node));
    cluster
}

fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn whoever_takes_no_answers_is_ended() {
    let cluster = limited(|config| config.limits.stall = Duration::from_secs(1));
    cluster.await_peers(0, 2);
    let mut other = cluster.client(0);
    // It asks for nothing either, and may.
    let mut idle = cluster.client(0);
    let _greedy = greedy(&cluster);
    wait_for("it is ended", || counted(&mut other, "evicted_clients") == 1);
    assert_eq!(idle.ask("PING"), "PONG");
}

#[test]
fn whoever_holds_most_is_ended_when_clients_hold_too_much() {
    let cluster = Cluster::start_all(None);
    let mut other = cluster.client(0);
    let _greedy = greedy(&cluster);
    assert_eq!(counted(&mut other, "evicted_clients"), 0);
    assert_eq!(other.ask("CONFIG SET maxmemory-clients 512kb"), "OK");
    wait_for("it is ended", || counted(&mut other, "evicted_clients") == 1);
}

#[test]
fn whoever_does_not_say_who_it_is_is_ended() {
    let cluster = limited(|config| {
        config.limits.authentication = Duration::from_secs(1);
        let rules = ["on", ">pw", "+@all", "~*"].map(str::to_owned).to_vec();
        config.users.push(crate::config::UserConfig { name: "default".to_owned(), rules });
    });
    let mut known = cluster.client(0);
    assert_eq!(known.ask("AUTH pw"), "OK");
    let mut silent = cluster.client(0);
    assert_eq!(silent.answer(), "(closed)");
    assert_eq!(known.ask("PING"), "PONG");
    assert_eq!(counted(&mut known, "evicted_clients"), 1);
}

#[test]
fn there_are_no_more_clients_than_there_may_be() {
    let cluster = Cluster::start_all(None);
    let mut first = cluster.client(0);
    let _second = cluster.client(0).ask("PING");
    assert!(first.ask("CONFIG SET maxclients 20000").contains("argument must be between 1 and"));
    // Those of the test that are gone may still be counted for a moment.
    wait_for("nobody else is there", || first.ask("INFO clients").contains("connected_clients:1\r\n"));
    assert_eq!(first.ask("CONFIG SET maxclients 1"), "OK");
    let mut third = cluster.client(0);
    assert_eq!(third.answer(), "ERR max number of clients reached");
    assert_eq!(third.answer(), "(closed)");
    assert_eq!(counted(&mut first, "rejected_connections"), 1);
    assert_eq!(first.ask("CONFIG SET maxclients 2"), "OK");
    assert_eq!(cluster.client(0).ask("PING"), "PONG");
}
