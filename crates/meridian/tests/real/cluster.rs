//! Real processes in three regions: what survives, who is let in.

use crate::harness::{Cluster, Plan, run, stderr, timed, wait_for};
use crate::resp::{Client, Value};
use std::path::Path;
use std::time::Duration;

/// How long an operation may take while a node is away: its other replicas answer at once or are asked again.
const SOON: Duration = Duration::from_secs(2);

fn within(limit: Duration, client: &mut Client, words: &[&str]) -> Value {
    let (value, took) = timed(client, words);
    assert!(took < limit, "{words:?} took {took:?}");
    value
}

#[test]
fn one_of_three_may_die_and_come_back() {
    let mut cluster = Cluster::start(Plan::default());
    let mut ca = cluster.client(0);
    for i in 0..20 {
        assert_eq!(ca.call(&["SET", &format!("k{i}"), "old"]), Value::ok());
    }
    cluster.kill([2]);
    for index in [0, 1] {
        let mut client = cluster.client(index);
        for i in 0..20 {
            let key = format!("k{i}");
            assert!(matches!(within(SOON, &mut client, &["GET", &key]), Value::Bulk(Some(_))));
            assert_eq!(within(SOON, &mut client, &["SET", &key, &format!("new{index}")]), Value::ok());
        }
        assert_eq!(within(SOON, &mut client, &["INCR", "n"]), Value::Int(i64::from(index) + 1));
    }
    cluster.start_nodes([2]);
    let mut ir = cluster.client(2);
    assert_eq!(ir.call(&["GET", "k7"]), Value::bulk("new1"), "the one that was away reads the newest");
    assert_eq!(ir.call(&["INCR", "n"]), Value::Int(3));

    // Nothing that was acknowledged may live in memory alone.
    cluster.kill([0, 1, 2]);
    cluster.start_nodes([0, 1, 2]);
    let mut va = cluster.client(1);
    assert_eq!(va.call(&["GET", "k7"]), Value::bulk("new1"));
    assert_eq!(va.call(&["INCR", "n"]), Value::Int(4));
}

#[test]
fn partitions_spread_over_two_nodes_a_region() {
    let mut cluster = Cluster::start(Plan { nodes_per_region: 2, ..Plan::default() });
    let keys: Vec<String> = (0..100).map(|i| format!("key{i}")).collect();
    for (i, key) in keys.iter().enumerate() {
        let mut client = cluster.client((i % 6) as u16);
        assert_eq!(client.call(&["SET", key, &format!("v{i}")]), Value::ok());
        assert_eq!(client.call(&["INCR", &format!("n{i}")]), Value::Int(1));
    }
    // Any node serves any key; with one node of ca away its partitions are served from other regions.
    for away in [None, Some(1)] {
        cluster.kill(away);
        for index in (0..6).filter(|index| Some(*index) != away) {
            let mut client = cluster.client(index);
            for (i, key) in keys.iter().enumerate().step_by(5) {
                assert_eq!(within(SOON, &mut client, &["GET", key]), Value::bulk(&format!("v{i}")));
            }
        }
    }
    let mut ca = cluster.client(0);
    for (i, key) in keys.iter().enumerate() {
        assert_eq!(within(SOON, &mut ca, &["INCR", &format!("n{i}")]), Value::Int(2));
        assert_eq!(within(SOON, &mut ca, &["SET", key, "again"]), Value::ok());
    }
    cluster.start_nodes([1]);
    assert_eq!(cluster.client(1).call(&["GET", &keys[0]]), Value::bulk("again"));
    let mut found = std::collections::BTreeSet::new();
    let mut cursor = "0".to_owned();
    loop {
        let Value::Array(page) = ca.call(&["SCAN", &cursor, "COUNT", "20"]) else { panic!("SCAN") };
        let [Value::Bulk(Some(next)), Value::Array(names)] = page.as_slice() else { panic!("{page:?}") };
        found.extend(names.iter().map(|name| format!("{name:?}")));
        cursor.clone_from(next);
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(found.len(), 200, "SCAN lists every key once the cluster is whole");
}

#[test]
fn a_minority_says_what_it_cannot_do() {
    let more = "[timeouts]\noperation = \"1500ms\"\n";
    let mut cluster = Cluster::start(Plan { more, ..Plan::default() });
    assert_eq!(cluster.client(0).call(&["SET", "k", "v"]), Value::ok());
    cluster.kill([1, 2]);
    let mut ca = cluster.client(0);
    let limit = Duration::from_secs(3);
    assert!(within(limit, &mut ca, &["GET", "k"]).error().starts_with("CLUSTERDOWN"));
    for command in [&["SET", "k", "w"][..], &["INCR", "n"]] {
        let value = within(limit, &mut ca, command);
        let word = value.error().split(' ').next().unwrap_or_default().to_owned();
        assert!(["CLUSTERDOWN", "UNKNOWNOUTCOME"].contains(&word.as_str()), "{command:?}: {value:?}");
    }
    cluster.start_nodes([1]);
    wait_for("a majority serves again", Duration::from_secs(10), || {
        matches!(ca.call(&["GET", "k"]), Value::Bulk(Some(_)))
    });
}

#[test]
fn a_process_that_forgot_is_refused_by_name() {
    // In memory mode a restart always forgets.
    let more = "[timeouts]\noperation = \"1500ms\"\n";
    let mut cluster = Cluster::start(Plan { durability: "memory", more, ..Plan::default() });
    cluster.wait_met(3);
    assert_eq!(cluster.client(0).call(&["SET", "k", "v"]), Value::ok());
    cluster.kill([2]);
    refused(&cluster, 2);
    assert_eq!(cluster.client(0).call(&["INCR", "n"]), Value::Int(1), "the others go on");

    // With records it forgets when its directory is gone.
    let mut cluster = Cluster::start(Plan { more, ..Plan::default() });
    cluster.wait_met(3);
    cluster.kill([2]);
    std::fs::remove_dir_all(cluster.data(2)).unwrap();
    refused(&cluster, 2);
    assert_eq!(cluster.client(1).call(&["INCR", "n"]), Value::Int(1), "the others go on");
}

fn refused(cluster: &Cluster, index: u16) {
    let process = cluster.spawn(index);
    let name = format!("'{}' was met before", cluster.name(index));
    wait_for("it is told that it is refused, and why", Duration::from_secs(10), || {
        process.said().lines().any(|line| line.contains("refused this one") && line.contains(&name))
    });
    // It may be up and answer, but it has nobody to answer with.
    if let Ok(mut client) = Client::connect(cluster.port(index)) {
        let reply = client.ask(&["GET", "k"]);
        assert!(!matches!(reply, Ok(Value::Bulk(_))), "it was let in: {reply:?}");
    }
}

#[test]
fn another_configuration_is_refused_by_name() {
    let mut cluster = Cluster::start(Plan::default());
    cluster.kill([2]);
    let text = std::fs::read_to_string(cluster.config()).unwrap();
    let other = cluster.directory.path().join("other.toml");
    std::fs::write(&other, text.replace("partitions = 4", "partitions = 8")).unwrap();
    let process = cluster.spawn_with(2, &other);
    wait_for("the difference is named", Duration::from_secs(10), || {
        process.said().lines().any(|line| line.contains("configuration"))
    });
    assert!(!process.said().lines().any(|line| line == "ready"), "{}", process.said());
    assert_eq!(cluster.client(0).call(&["INCR", "n"]), Value::Int(1), "the others go on");
}

#[test]
fn signals_end_a_node_cleanly_and_it_comes_back() {
    let mut cluster = Cluster::start(Plan::default());
    for (index, signal) in [(0, "TERM"), (1, "INT")] {
        assert_eq!(cluster.client(2).call(&["INCR", "n"]), Value::Int(i64::from(index) + 1));
        cluster.node(index).signal(signal);
        assert_eq!(cluster.node(index).wait_end(), Some(0), "SIG{signal}");
        cluster.start_nodes([index]);
        let counted = (i64::from(index) + 1).to_string();
        assert_eq!(cluster.client(index).call(&["GET", "n"]), Value::bulk(&counted));
    }
}

#[test]
fn a_configuration_with_errors_is_told_all_of_them_at_once() {
    let directory = tempfile::TempDir::new().unwrap();
    let path = directory.path().join("cluster.toml");
    std::fs::write(
        &path,
        "[cluster]\nid = \"a b\"\ncolour = 1\n[[node]]\nname = \"x\"\nclient = \"nowhere\"\n",
    )
    .unwrap();
    for check in [false, true] {
        let path = path.display().to_string();
        let mut arguments = vec!["serve", "--config", &path, "--node", "x"];
        if check {
            arguments.push("--check");
        }
        let output = run(&arguments);
        assert_eq!(output.status.code(), Some(2));
        let told = stderr(&output);
        for part in ["line 2", "line 3", "line 4", "line 6"] {
            assert!(told.contains(part), "{part} in:\n{told}");
        }
        assert!(told.lines().all(|line| line.starts_with("meridian: ")), "{told}");
    }
}

#[test]
fn the_example_in_the_repository_is_sound() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let path = root.join("examples/cluster/cluster.toml").display().to_string();
    for node in ["ca-1", "va-1", "ir-1"] {
        let output = run(&["serve", "--config", &path, "--node", node, "--check"]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    }
    let output = run(&["serve", "--config", &path, "--node", "nobody", "--check"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("nobody"), "{}", stderr(&output));
}
