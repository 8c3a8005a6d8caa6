//! Nobody gets in who does not belong, and nobody further than allowed.

#![expect(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use crate::harness::{Cluster, Plan, run, stderr};
use crate::resp::{Client, Value};

const USERS: &str = r#"
[[user]]
name = "default"
rules = "on +@all ~*"
password_file = "admin.password"

[[user]]
name = "reports"
rules = "on >hunter2 ~reports:* +@read +set +acl|whoami use=db1 db=db1"
"#;

fn cluster() -> Cluster {
    let mut cluster = Cluster::prepare(Plan { more: USERS, ..Plan::default() }, |directory| {
        std::fs::write(directory.join("admin.password"), "correct horse\n").unwrap();
    });
    cluster.start_nodes(0..3);
    cluster
}

fn is(client: &mut Client, words: &[&str], error: &str) {
    assert_eq!(client.call(words).error(), error, "{words:?}");
}

#[test]
fn who_does_not_belong_is_refused_in_redis_words() {
    let mut cluster = cluster();
    let mut client = cluster.client(0);
    is(&mut client, &["GET", "k"], "NOAUTH Authentication required.");
    is(&mut client, &["MERIDIAN.STATUS"], "NOAUTH Authentication required.");
    for words in [&["AUTH", "wrong"][..], &["AUTH", "reports", "wrong"], &["AUTH", "nobody", "hunter2"]] {
        is(&mut client, words, "WRONGPASS invalid username-password pair or user is disabled.");
    }
    is(&mut client, &["GET", "k"], "NOAUTH Authentication required.");
    assert_eq!(client.call(&["AUTH", "correct horse"]), Value::ok());
    assert_eq!(client.call(&["SET", "k", "v"]), Value::ok());

    let mut reports = cluster.client(1);
    assert_eq!(reports.call(&["AUTH", "reports", "hunter2"]), Value::ok());
    assert_eq!(reports.call(&["SET", "reports:1", "v"]), Value::ok());
    is(&mut reports, &["GET", "k"], "NOPERM No permissions to access a key");
    is(
        &mut reports,
        &["DEL", "reports:1"],
        "NOPERM User reports has no permissions to run the 'del' command",
    );
    is(
        &mut reports,
        &["CONFIG", "GET", "*"],
        "NOPERM User reports has no permissions to run the 'config|get' command",
    );
    is(&mut reports, &["SELECT", "0"], "NOPERM User reports has no permissions to run the 'select' command");
    // It works in its own keyspace.
    client.call(&["SELECT", "1"]);
    assert_eq!(client.call(&["GET", "reports:1"]), Value::bulk("v"));
    for index in 0..3 {
        let said = cluster.node(index).said();
        assert!(!said.contains("hunter2") && !said.contains("correct horse"), "{said}");
    }
    let said = cluster.node(0).said();
    assert!(
        said.contains("refused the client at 127.0.0.1:") && said.contains("as user 'default'"),
        "{said}"
    );
}

#[test]
fn whoever_is_deleted_goes_and_the_file_brings_them_back() {
    let mut cluster = cluster();
    let mut admin = cluster.client(0);
    admin.call(&["AUTH", "correct horse"]);
    let (mut one, mut other) = (cluster.client(0), cluster.client(0));
    for client in [&mut one, &mut other] {
        assert_eq!(client.call(&["AUTH", "reports", "hunter2"]), Value::ok());
    }
    // A blocked command does not keep it either.
    admin.call(&["ACL", "SETUSER", "reports", "+blpop"]);
    other.send(b"*3\r\n$5\r\nBLPOP\r\n$9\r\nreports:q\r\n$1\r\n0\r\n").unwrap();
    assert_eq!(admin.call(&["ACL", "DELUSER", "reports"]), Value::Int(1));
    assert!(one.ask(&["GET", "reports:1"]).is_err() && other.read().is_err(), "both are closed");
    is(
        &mut cluster.client(0),
        &["AUTH", "reports", "hunter2"],
        "WRONGPASS invalid username-password pair or user is disabled.",
    );
    assert_eq!(admin.call(&["ACL", "WHOAMI"]), Value::bulk("default"), "nobody else is");
    assert_eq!(cluster.client(1).call(&["AUTH", "reports", "hunter2"]), Value::ok(), "nor on another node");
    cluster.kill([0]);
    cluster.start_nodes([0]);
    assert_eq!(cluster.client(0).call(&["AUTH", "reports", "hunter2"]), Value::ok());
}

#[test]
fn a_node_that_anybody_could_use_does_not_run_unless_told_so() {
    let mut cluster = Cluster::prepare(Plan::default(), |_| ());
    let loopback = format!("client = {}\n", cluster.port(0));
    let public = format!("client = \"0.0.0.0:{}\"\n", cluster.port(0));
    let config = cluster.altered(&loopback, &public);
    let path = config.display().to_string();
    for more in [&["--check"][..], &[]] {
        let arguments = [&["serve", "--config", &path, "--node", "ca-1"], more].concat();
        let refused = run(&arguments);
        assert_eq!(refused.status.code(), Some(2), "{more:?}");
        let told = stderr(&refused);
        assert!(told.contains("could use every keyspace: give the user 'default' a password"), "{told}");
        assert_eq!(told.lines().count(), 1, "{told}");
    }
    let mut text = std::fs::read_to_string(&config).unwrap();
    text.push_str("[security]\nprotected = false\n");
    std::fs::write(&config, text).unwrap();
    let mut node = cluster.spawn_with(0, &config);
    node.wait_ready();
    assert!(node.said().contains("could use every keyspace"), "it is told all the same");
    assert_eq!(cluster.client(0).call(&["PING"]), Value::Simple("PONG".to_owned()));
    cluster.kill([0]);

    let refused = run(&["dev", "--bind", "0.0.0.0", "--port", "0"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("add --unprotected"), "{}", stderr(&refused));
}
