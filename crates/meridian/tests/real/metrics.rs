//! What a node tells operators and their tools, against what clients did and what it tells clients.

#![expect(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use crate::harness::{Cluster, Plan, ports, wait_for};
use crate::resp::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// The status and the body of what is at a path.
pub(crate) fn get(port: u16, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// The samples of a page in Prometheus's format, by name and labels. Each belongs to the family that was announced last.
pub(crate) fn samples(page: &str) -> BTreeMap<String, f64> {
    let mut samples = BTreeMap::new();
    let (mut families, mut family) = (BTreeSet::new(), String::new());
    for line in page.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            let words: Vec<&str> = comment.splitn(3, ' ').collect();
            match words[0] {
                "HELP" => {
                    words[1].clone_into(&mut family);
                    assert!(families.insert(family.clone()), "{family} comes twice");
                }
                "TYPE" => assert!(
                    words[1] == family && ["counter", "gauge", "histogram", "summary"].contains(&words[2]),
                    "{line}"
                ),
                _ => panic!("{line}"),
            }
            continue;
        }
        let (name, value) = line.rsplit_once(' ').unwrap();
        let rest = name.strip_prefix(&family).unwrap_or_else(|| panic!("{line} is not of {family}"));
        let rest =
            ["_bucket", "_sum", "_count"].iter().find_map(|end| rest.strip_prefix(end)).unwrap_or(rest);
        assert!(rest.is_empty() || (rest.starts_with('{') && rest.ends_with("\"}")), "{line}");
        assert!(samples.insert(name.to_owned(), value.parse().unwrap()).is_none(), "{line} comes twice");
    }
    samples
}

fn info(text: &Value, name: &str) -> u64 {
    let Value::Bulk(Some(text)) = text else { panic!("{text:?}") };
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("{name} in {text}")).trim().parse().unwrap()
}

#[test]
fn metrics_say_what_clients_did_and_readiness_whether_they_could() {
    let mut cluster = Cluster::prepare(Plan::default(), |_| ());
    let peer = format!("peer = {}\n", cluster.peer_port(0));
    let port = ports(1);
    // Where a node tells of itself is its own affair.
    let config = cluster.altered(&peer, &format!("{peer}admin = {port}\n"));
    let mut node = cluster.spawn_with(0, &config);
    cluster.start_nodes([1, 2]);
    node.wait_ready();
    cluster.wait_met(3);
    assert_eq!(get(port, "/ready"), (200, "ok\n".to_owned()));
    assert_eq!(get(port, "/health"), (200, "ok\n".to_owned()));
    assert_eq!(get(port, "/nothing").0, 404);

    let mut client = cluster.client(0);
    for index in 0..20 {
        let key = format!("k{index}");
        assert_eq!(client.call(&["SET", &key, "v"]), Value::ok());
        assert_eq!(client.call(&["GET", &key]), Value::bulk("v"));
        assert_eq!(client.call(&["GET", &key]), Value::bulk("v"));
    }
    for _ in 0..7 {
        client.call(&["INCR", "n"]);
    }
    client.call(&["ACL", "SETUSER", "ann", "on", ">pw"]);
    client.call(&["AUTH", "ann", "wrong"]);
    client.call(&["SELECT", "1"]);
    client.call(&["SET", "k", "v"]);
    let (status, page) = get(port, "/metrics");
    assert_eq!(status, 200);
    let samples = samples(&page);
    let seconds = |name: &str| *samples.get(name).unwrap_or_else(|| panic!("{name} in {page}"));
    let of = |name: &str| seconds(name) as u64;
    for (kind, count) in [("read", 40), ("write", 20), ("rmw", 7)] {
        let labels = format!("keyspace=\"db0\",engine=\"gryff\",kind=\"{kind}\"");
        assert_eq!(of(&format!("meridian_operations_total{{{labels},end=\"done\"}}")), count, "{kind}");
        assert_eq!(of(&format!("meridian_operations_total{{{labels},end=\"unknown\"}}")), 0);
        assert_eq!(of(&format!("meridian_operation_seconds_count{{{labels}}}")), count);
        assert_eq!(of(&format!("meridian_operation_seconds_bucket{{{labels},le=\"+Inf\"}}")), count);
        assert!(seconds(&format!("meridian_operation_seconds_sum{{{labels}}}")) > 0.0);
        let rounds =
            |rounds: usize| of(&format!("meridian_operation_rounds_total{{{labels},rounds=\"{rounds}\"}}"));
        assert_eq!((0..=4).map(rounds).sum::<u64>(), count);
        assert!(rounds(if kind == "read" { 1 } else { 2 }) > 0, "as docs/commands.md says");
    }
    assert_eq!(
        of("meridian_operations_total{keyspace=\"db1\",engine=\"gryff-rsc\",kind=\"write\",end=\"done\"}"),
        1
    );
    for (command, count) in [("get", 40), ("set", 20), ("incr", 7)] {
        let labels = format!("keyspace=\"db0\",engine=\"gryff\",command=\"{command}\"");
        assert_eq!(of(&format!("meridian_command_seconds_count{{{labels}}}")), count, "{command}");
    }
    let event = |event: &str| {
        of(&format!("meridian_engine_events_total{{keyspace=\"db0\",engine=\"gryff\",event=\"{event}\"}}"))
    };
    assert!(event("fast_path") + event("slow_path") > 0);
    assert_eq!(of("meridian_denied_total{what=\"authentication\"}"), 1);
    let commits = of("meridian_store_commit_seconds_count");
    assert!(commits > 0 && of("meridian_store_syncs_total") >= commits);
    // Each batch of records has its sync, which is a part of what it took.
    assert_eq!(of("meridian_store_sync_seconds_count"), commits);
    assert!(
        of("meridian_store_sync_records_sum") >= commits && seconds("meridian_store_sync_seconds_sum") > 0.0
    );
    assert!(seconds("meridian_store_sync_seconds_sum") <= seconds("meridian_store_commit_seconds_sum"));
    assert_eq!(of("meridian_clients_waiting"), 0);
    for peer in ["va-1", "ir-1"] {
        assert_eq!(of(&format!("meridian_peer_up{{peer=\"{peer}\"}}")), 1);
        assert!(seconds(&format!("meridian_peer_round_trip_seconds{{peer=\"{peer}\"}}")) > 0.0);
    }
    // As clients are told, but for the question itself and those of `wait_met`, which may still be counted as connected.
    let told = client.call(&["INFO", "stats"]);
    assert_eq!(of("meridian_commands_total"), info(&told, "total_commands_processed"));
    assert_eq!(of("meridian_connections_total"), info(&told, "total_connections_received"));
    assert_eq!(of("meridian_errors_total"), info(&told, "total_error_replies"));
    assert!(of("meridian_clients") >= 1 && of("meridian_keys{keyspace=\"db0\",engine=\"gryff\"}") > 0);

    cluster.kill([1, 2]);
    wait_for("it is not ready", Duration::from_secs(20), || get(port, "/ready").0 == 503);
    assert!(get(port, "/ready").1.contains("most nodes are away"));
    assert_eq!(get(port, "/health").0, 200, "a restart would not help");
    let (_, page) = get(port, "/metrics");
    assert!(page.contains("\nmeridian_peer_up{peer=\"va-1\"} 0\n"), "{page}");
}
