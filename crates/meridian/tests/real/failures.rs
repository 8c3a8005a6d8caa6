//! A coordinator dies under load: who goes on, how soon, and what the count says afterwards.

use crate::harness::{Cluster, Plan, meridian, stderr, stdout, wait_for};
use crate::resp::{Client, Value};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// What one client saw.
#[derive(Default)]
struct Seen {
    acknowledged: u64,
    unknown: u64,
    /// The longest time between two acknowledgements after the kill.
    gap: Duration,
    lost: bool,
}

#[test]
fn a_killed_coordinator_loses_no_count_and_holds_up_nobody() {
    let mut cluster = Cluster::start(Plan::default());
    let stop = AtomicBool::new(false);
    let killed = AtomicBool::new(false);
    let seen: Vec<(u16, Seen)> = thread::scope(|scope| {
        let clients: Vec<_> = (0..50_u16)
            .map(|number| {
                let (region, port) = (number % 3, cluster.port(number % 3));
                let (stop, killed) = (&stop, &killed);
                (region, scope.spawn(move || increment(port, stop, killed)))
            })
            .collect();
        thread::sleep(Duration::from_secs(1));
        cluster.kill([0]);
        killed.store(true, Ordering::SeqCst);
        thread::sleep(Duration::from_secs(5));
        stop.store(true, Ordering::SeqCst);
        clients.into_iter().map(|(region, client)| (region, client.join().unwrap())).collect()
    });

    let acknowledged: u64 = seen.iter().map(|(_, seen)| seen.acknowledged).sum();
    let unknown: u64 = seen.iter().map(|(_, seen)| seen.unknown).sum();
    for (region, seen) in &seen {
        assert_eq!(seen.lost, *region == 0, "only the clients of the killed node lose their connection");
        if *region > 0 {
            assert!(seen.gap < Duration::from_secs(2), "a client of region {region} waited {:?}", seen.gap);
        }
    }
    let worst = seen.iter().filter(|(region, _)| *region > 0).map(|(_, seen)| seen.gap).max();
    // The first answer may have to finish what the dead coordinator left open.
    let Value::Bulk(Some(count)) = cluster.client(1).call(&["GET", "n"]) else { panic!("the count is gone") };
    let count: u64 = count.parse().unwrap();
    println!("acknowledged {acknowledged}, counted {count}, unknown {unknown}, longest wait {worst:?}");
    assert!(acknowledged > 500, "too few to mean anything: {acknowledged}");
    assert!((acknowledged..=acknowledged + unknown).contains(&count), "{acknowledged} {count} {unknown}");

    cluster.start_nodes([0]);
    let mut ca = cluster.client(0);
    wait_for("the restarted node agrees", Duration::from_secs(10), || {
        ca.call(&["GET", "n"]) == Value::bulk(&count.to_string())
    });
}

fn increment(port: u16, stop: &AtomicBool, killed: &AtomicBool) -> Seen {
    let mut seen = Seen::default();
    let mut client = Client::new(port);
    let mut last = Instant::now();
    while !stop.load(Ordering::SeqCst) {
        match client.ask(&["INCR", "n"]) {
            Ok(Value::Int(_)) => {
                seen.acknowledged += 1;
                if killed.load(Ordering::SeqCst) {
                    seen.gap = seen.gap.max(last.elapsed());
                }
                last = Instant::now();
            }
            Ok(Value::Error(error)) if error.starts_with("UNKNOWNOUTCOME") => seen.unknown += 1,
            // Any other error says that nothing was done.
            Ok(Value::Error(_)) => {}
            Ok(other) => panic!("INCR answered {other:?}"),
            Err(_) => {
                // The connection died with the operation in flight.
                seen.unknown += 1;
                seen.lost = true;
                return seen;
            }
        }
    }
    seen.gap = seen.gap.max(last.elapsed());
    seen
}

#[test]
fn histories_with_a_crash_and_a_restart_obey_their_models() {
    for (database, model) in [("0", "linearizable"), ("1", "rsc")] {
        let mut cluster = Cluster::start(Plan::default());
        let history = cluster.directory.path().join("history.jsonl").display().to_string();
        let targets: Vec<String> = (0..3).map(|index| format!("127.0.0.1:{}", cluster.port(index))).collect();
        let targets = targets.join(",");
        let bench = meridian(&["bench", "--target", &targets, "--db", database, "--clients", "12"])
            .args(["--duration", "5s", "--warmup", "0s", "--mix", "5:4:1", "--keys", "5", "--rate", "600"])
            .args(["--history", &history])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        thread::sleep(Duration::from_millis(1_500));
        cluster.kill([1]);
        thread::sleep(Duration::from_secs(1));
        cluster.start_nodes([1]);
        let output = bench.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        println!("{}", stdout(&output));
        let output = meridian(&["check", "--model", model, &history]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
        assert!(stdout(&output).starts_with(&format!("{model}\tholds\t")), "{}", stdout(&output));
        let operations = std::fs::read_to_string(&history).unwrap();
        assert!(operations.lines().count() > 1_000, "{}", operations.lines().count());
        assert!(operations.contains("\"witness\""), "a Meridian server is asked for its proof of order");
    }
}
