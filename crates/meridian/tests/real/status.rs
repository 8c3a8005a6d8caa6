//! `meridian status`: what an operator is told of clusters that are well, and of others.

use crate::harness::{Cluster, Dev, Plan, run, stderr, stdout, wait_for};
use crate::resp::Value;
use serde_json::Value as Json;
use std::time::Duration;

/// Runs it on these targets; gives its exit status and what it prints.
fn status(targets: &str, more: &[&str]) -> (Option<i32>, String) {
    let output = run(&[&["status", "--target", targets], more].concat());
    assert!(stderr(&output).is_empty(), "{}", stderr(&output));
    (output.status.code(), stdout(&output))
}

fn targets(ports: impl IntoIterator<Item = u16>) -> String {
    ports.into_iter().map(|port| format!("127.0.0.1:{port}")).collect::<Vec<_>>().join(",")
}

#[test]
fn a_cluster_is_told_with_its_leaders_lags_clocks_and_round_trips() {
    let dev = Dev::start(&["--regions", "3", "--partitions", "2"]);
    assert_eq!(dev.client(0).call(&["SET", "k", "v"]), Value::ok());
    let targets = targets((0..3).map(|region| dev.port(region)));
    let report = || -> Json { serde_json::from_str(&status(&targets, &["--json"]).1).unwrap() };
    let mut json = report();
    // Leaders are elected, round trips measured and snapshots found soon after the nodes are ready.
    wait_for("the cluster is settled", Duration::from_mins(1), || {
        json = report();
        let settled = |keyspace: &Json| match keyspace["engine"].as_str().unwrap() {
            "spanner" | "spanner-rss" => keyspace["leaders"].get("").is_none(),
            "contrarian" => keyspace["lag_us"].is_u64(),
            _ => true,
        };
        json["round_trips"].as_array().unwrap().len() == 6
            && json["keyspaces"].as_array().unwrap().iter().all(settled)
    });
    assert_eq!((&json["ready"], json["nodes"].as_array().unwrap().len()), (&true.into(), 3));
    for node in json["nodes"].as_array().unwrap() {
        let own = &node["own"];
        assert_eq!((&node["seen_by"], &own["ready"]), (&serde_json::json!([2, 2]), &true.into()), "{node}");
        assert_eq!(
            (&own["version"], &own["clock_source"]),
            (&env!("CARGO_PKG_VERSION").into(), &"configured".into())
        );
        assert!(own["clock_error_us"].as_u64() > Some(0) && own["clients"].as_u64() > Some(0), "{node}");
        assert_eq!((&own["durability"], &own["clock_contradicted"]), (&"memory".into(), &0.into()));
    }
    let trip = |from: &str, to: &str| {
        let trips = json["round_trips"].as_array().unwrap();
        trips.iter().find(|trip| trip["from"] == from && trip["to"] == to).unwrap()["us"].as_u64().unwrap()
    };
    assert!(trip("ca", "va") >= 72_000 && trip("ir", "ca") >= 151_000, "{json}");
    let keyspace = |engine: &str| {
        let keyspaces = json["keyspaces"].as_array().unwrap();
        keyspaces
            .iter()
            .find(|keyspace| keyspace["engine"] == engine)
            .unwrap_or_else(|| panic!("{engine} in {json}"))
    };
    assert!(keyspace("gryff")["leaders"].is_null() && keyspace("gryff")["lag_us"].is_null());
    assert_eq!((&keyspace("gryff")["keys"], &keyspace("gryff")["partitions"]), (&1.into(), &2.into()));
    // What comes from 151 ms away cannot be stable earlier.
    assert!(keyspace("contrarian")["lag_us"].as_u64() >= Some(70_000), "{json}");

    let (code, table) = status(&targets, &[]);
    assert_eq!(code, Some(0), "{table}");
    for part in
        ["cluster dev: all nodes asked are ready", "from \\ to", "strict-serializable", "leaders", "2 of 2"]
    {
        assert!(table.contains(part), "{part} in {table}");
    }
}

const USERS: &str = r#"
[[user]]
name = "default"
rules = "on +@all ~*"
password_file = "admin.password"

[[user]]
name = "watch"
rules = "on >an0ther-secret +info +meridian.status +meridian.keyspaces"
"#;

#[test]
fn who_is_away_alone_or_refuses_makes_it_fail_and_no_password_is_told() {
    let mut cluster = Cluster::prepare(Plan { more: USERS, ..Plan::default() }, |directory| {
        std::fs::write(directory.join("admin.password"), "correct horse\n").unwrap();
    });
    cluster.start_nodes(0..3);
    let all = targets((0..3).map(|index| cluster.port(index)));
    let file = cluster.directory.path().join("admin.password").display().to_string();
    let secret = ["--password-file", file.as_str()];
    wait_for("all nodes are seen", Duration::from_secs(20), || {
        status(&all, &secret).1.matches("2 of 2").count() == 3
    });
    assert_eq!(status(&all, &secret).0, Some(0));
    // Who watches needs no more than this.
    let watch = ["--user", "watch", "--password", "an0ther-secret"];
    assert_eq!(status(&all, &watch).0, Some(0));

    for (more, part) in [
        (&[][..], "does not answer: MERIDIAN.STATUS is refused: NOAUTH"),
        (&["--password", "wrong-secret"], "does not answer: AUTH is refused: WRONGPASS"),
        (&["--user", "watch", "--password", "wrong-secret"], "WRONGPASS"),
    ] {
        let (code, table) = status(&all, more);
        assert!(code == Some(1) && table.matches(part).count() == 3 && !table.contains("secret"), "{table}");
    }

    // One node is away: the others have a majority.
    cluster.kill([2]);
    let two = targets((0..2).map(|index| cluster.port(index)));
    wait_for("its absence is noticed", Duration::from_secs(30), || {
        status(&two, &secret).1.contains("0 of 2")
    });
    let (code, table) = status(&two, &secret);
    assert!(
        code == Some(0)
            && table.contains("not asked")
            && table.contains("warning: ca-1 has no connection to ir-1"),
        "{table}"
    );
    let (code, table) = status(&all, &secret);
    assert!(code == Some(1) && table.contains("NOT READY") && table.contains("does not answer: "), "{table}");
    // Nobody else is left.
    cluster.kill([1]);
    let one = targets([cluster.port(0)]);
    wait_for("it is alone", Duration::from_secs(30), || status(&one, &secret).0 == Some(1));
    assert!(status(&one, &secret).1.contains("not ready"));
}

#[test]
fn other_servers_are_told_apart_from_nodes() {
    // Takes connections and says nothing.
    let mute = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (code, table) = status(&mute.local_addr().unwrap().to_string(), &["--timeout", "200ms"]);
    assert!(code == Some(1) && table.contains("no answer within 200ms"), "{table}");
}
