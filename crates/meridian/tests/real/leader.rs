//! Multi-Paxos in real processes: its leader dies under load and comes back.

use crate::harness::{Cluster, Plan, meridian, stderr, stdout, wait_for};
use crate::resp::{Client, Value};
use std::process::Stdio;
use std::thread;
use std::time::Duration;

const LED: Plan = Plan {
    nodes_per_region: 1,
    partitions: 4,
    durability: "fsync",
    more: "[[keyspace]]\nnumber = 2\nmodel = \"linearizable\"\nengine = \"multipaxos\"\nleader = \"ca\"\n\
           partitions = 2\n[timeouts]\nelection = \"500ms\"\n",
};

#[test]
fn a_killed_leader_is_replaced_and_nothing_answered_is_lost() {
    let mut cluster = Cluster::start(LED);
    let history = cluster.directory.path().join("history.jsonl").display().to_string();
    let targets: Vec<String> = (0..3).map(|index| format!("127.0.0.1:{}", cluster.port(index))).collect();
    let bench = meridian(&["bench", "--target", &targets.join(","), "--db", "2", "--clients", "12"])
        .args(["--duration", "8s", "--warmup", "0s", "--mix", "5:3:2", "--keys", "5", "--rate", "600"])
        .args(["--history", &history])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    thread::sleep(Duration::from_millis(1_500));
    cluster.kill([0]);
    thread::sleep(Duration::from_millis(2_500));
    cluster.start_nodes([0]);
    let output = bench.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    println!("{}", stdout(&output));
    let output = meridian(&["check", "--model", "linearizable", &history]).output().unwrap();
    assert!(stdout(&output).starts_with("linearizable\tholds\t"), "{}{}", stdout(&output), stderr(&output));

    let operations = std::fs::read_to_string(&history).unwrap();
    assert!(operations.lines().count() > 1_000, "{}", operations.lines().count());
    assert!(operations.contains("\"witness\""));
    let gap = longest_silence(&operations);
    println!("longest time without an answer: {} ms", gap / 1_000_000);
    // A second at most until somebody looks for another leader, and half until a client asks again; the rest is for a
    // busy machine.
    assert!(gap < 5_000_000_000, "nobody was answered for {gap} ns");

    let mut client = cluster.client(2);
    assert_eq!(client.call(&["SELECT", "2"]), Value::Simple("OK".to_owned()));
    assert_eq!(client.call(&["SET", "k", "v"]), Value::Simple("OK".to_owned()));
    let mut back = cluster.client(0);
    assert_eq!(back.call(&["SELECT", "2"]), Value::Simple("OK".to_owned()));
    wait_for("the node that was killed serves", Duration::from_secs(10), || {
        back.call(&["GET", "k"]) == Value::bulk("v")
    });
    let listed = |page: &Value| matches!(page, Value::Array(keys) if keys.contains(&Value::bulk("k")));
    assert!(scanned(&mut back).iter().any(listed));
}

/// All pages of a scan.
fn scanned(client: &mut Client) -> Vec<Value> {
    let (mut cursor, mut pages) = ("0".to_owned(), Vec::new());
    loop {
        let Value::Array(page) = client.call(&["SCAN", &cursor, "COUNT", "100"]) else { panic!("no page") };
        let next = page[0].clone();
        pages.extend(page);
        match next {
            Value::Bulk(Some(next)) if next != "0" => cursor = next,
            _ => return pages,
        }
    }
}

/// The longest time between two answers, in the history's unit.
fn longest_silence(history: &str) -> i64 {
    let ok = history.lines().filter(|line| line.contains("\"outcome\":\"ok\""));
    let mut returns: Vec<i64> = ok
        .filter_map(|line| {
            let (_, rest) = line.split_once("\"return\":")?;
            let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
            digits.parse().ok()
        })
        .collect();
    returns.sort_unstable();
    returns.windows(2).map(|pair| pair[1] - pair[0]).max().expect("there were answers")
}
