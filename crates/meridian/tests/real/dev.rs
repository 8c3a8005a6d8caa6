//! The embedded cluster: one process, three regions.

use crate::harness::{Dev, timed, wait_for};
use crate::resp::Value;
use std::time::Duration;
use tempfile::TempDir;

#[test]
fn a_value_written_in_one_region_is_read_in_another_at_the_price_of_the_distance() {
    let dev = Dev::start(&["--rtt", "paper", "--ephemeral"]);
    assert!(dev.process.said().contains("outlives"), "--ephemeral says that nothing outlives the process");
    let (mut ca, mut ir) = (dev.client(0), dev.client(2));

    // Gryff, figure 5: from ca the nearest other region is 72 ms away, from ir 88 ms. A read takes one round trip
    // to the nearest quorum, a write two. Only the floor is physics; what a busy machine adds is printed.
    let floors = [
        ("GET at ca", 72, timed(&mut ca, &["GET", "k"])),
        ("SET at ca", 144, timed(&mut ca, &["SET", "k", "from ca"])),
        ("GET at ir", 88, timed(&mut ir, &["GET", "k"])),
        ("SET at ir", 176, timed(&mut ir, &["SET", "k", "from ir"])),
    ];
    for (what, floor_ms, (value, took)) in &floors {
        println!("{what}: {:.1} ms (at least {floor_ms})", took.as_secs_f64() * 1e3);
        assert!(*took >= Duration::from_millis(*floor_ms), "{what} took {took:?}: faster than light");
        assert!(!matches!(value, Value::Error(_)), "{what}: {value:?}");
    }
    assert_eq!(floors[2].2.0, Value::bulk("from ca"), "ir sees what ca wrote");
    assert_eq!(ca.call(&["GET", "k"]), Value::bulk("from ir"), "and ca what ir wrote");
}

/// By the clock a write takes one round trip where it takes two without: what the floor cannot tell, the cost does.
#[test]
fn a_write_by_the_clock_takes_one_round() {
    for (writes, rounds, floor_ms) in [("two-round", 2, 144), ("one-round", 1, 72)] {
        let dev = Dev::start(&["--rtt", "paper", "--ephemeral", "--writes", writes]);
        let mut ca = dev.client(0);
        let (value, took) = timed(&mut ca, &["SET", "k", "1"]);
        println!("{writes}: {:.1} ms (at least {floor_ms})", took.as_secs_f64() * 1e3);
        assert_eq!(value, Value::ok());
        assert!(took >= Duration::from_millis(floor_ms), "{writes}: {took:?} is faster than light");
        let Value::Array(cost) = ca.call(&["MERIDIAN.COST"]) else { panic!("no cost") };
        assert_eq!(cost[..2], [Value::bulk("rounds"), Value::Int(rounds)], "{writes}: {cost:?}");
        assert_eq!(dev.client(2).call(&["GET", "k"]), Value::bulk("1"));
    }
}

#[test]
fn both_models_serve_the_same_commands() {
    let dev = Dev::start(&[
        "--rtt",
        "none",
        "--db",
        "0=linearizable",
        "--db",
        "1=rsc",
        "--db",
        "2=linearizable:epaxos",
    ]);
    for database in ["0", "1", "2"] {
        let (mut ca, mut va) = (dev.client(0), dev.client(1));
        assert_eq!(ca.call(&["SELECT", database]), Value::ok());
        assert_eq!(va.call(&["SELECT", database]), Value::ok());
        assert_eq!(ca.call(&["SET", "s", "1"]), Value::ok());
        assert_eq!(va.call(&["INCR", "s"]), Value::Int(2));
        assert_eq!(ca.call(&["GET", "s"]), Value::bulk("2"));
        assert_eq!(va.call(&["RPUSH", "l", "a", "b"]), Value::Int(2));
        let list = Value::Array(vec![Value::bulk("a"), Value::bulk("b")]);
        assert_eq!(ca.call(&["LRANGE", "l", "0", "-1"]), list);
        assert_eq!(ca.call(&["DEL", "s"]), Value::Int(1));
        assert_eq!(va.call(&["GET", "s"]), Value::Bulk(None));
    }
    assert!(dev.client(0).call(&["SELECT", "9"]).error().starts_with("ERR"), "there is no keyspace 9");
}

#[test]
fn registers_are_read_written_and_deleted_and_nothing_else() {
    let dev = Dev::start(&["--rtt", "none", "--db", "0=linearizable:abd"]);
    let (mut ca, mut va) = (dev.client(0), dev.client(1));
    assert_eq!(ca.call(&["SET", "k", "1"]), Value::ok());
    assert_eq!(va.call(&["GET", "k"]), Value::bulk("1"));
    let refused = va.call(&["INCR", "k"]);
    assert!(
        refused.error().contains("by abd; served by linearizable (gryff, epaxos, multipaxos)"),
        "{refused:?}"
    );
    assert_eq!(va.call(&["DEL", "k", "l"]), Value::Int(1), "one of them was there");
    assert_eq!(ca.call(&["GET", "k"]), Value::Bulk(None));
    assert_eq!(ca.call(&["DEL", "k"]), Value::Int(0));
}

#[test]
fn a_region_that_is_cut_off_says_so_and_comes_back() {
    let dev = Dev::start(&["--rtt", "none"]);
    let (mut ca, mut va) = (dev.client(0), dev.client(1));
    assert_eq!(ca.call(&["SET", "k", "before"]), Value::ok());
    for other in ["va", "ir"] {
        assert_eq!(va.call(&["MERIDIAN.DEV", "CUT", "ca", other]), Value::ok());
    }
    let (value, took) = timed(&mut ca, &["GET", "k"]);
    assert!(value.error().starts_with("CLUSTERDOWN"), "{value:?}");
    assert!(took < Duration::from_secs(12), "the default time-out is 10 s, this took {took:?}");
    let error = ca.call(&["SET", "k", "lost?"]);
    let error = error.error();
    assert!(error.starts_with("CLUSTERDOWN") || error.starts_with("UNKNOWNOUTCOME"), "{error}");
    assert_eq!(va.call(&["SET", "k", "meanwhile"]), Value::ok(), "the majority goes on");

    assert_eq!(va.call(&["MERIDIAN.DEV", "HEAL"]), Value::ok());
    wait_for("ca answers again", Duration::from_secs(10), || {
        matches!(ca.call(&["GET", "k"]), Value::Bulk(Some(_)))
    });
}

#[test]
fn a_paused_region_holds_nobody_up() {
    let dev = Dev::start(&["--rtt", "none"]);
    let mut ca = dev.client(0);
    assert_eq!(ca.call(&["MERIDIAN.DEV", "PAUSE", "ir"]), Value::ok());
    for i in 0..10 {
        let key = format!("k{i}");
        let (value, took) = timed(&mut ca, &["INCR", &key]);
        assert_eq!(value, Value::Int(1));
        assert!(took < Duration::from_secs(2), "{took:?}");
    }
    assert_eq!(ca.call(&["MERIDIAN.DEV", "RESUME", "ir"]), Value::ok());
    let mut ir = dev.client(2);
    wait_for("ir answers again", Duration::from_secs(10), || ir.call(&["GET", "k9"]) == Value::bulk("1"));
}

#[test]
fn records_in_a_directory_outlive_the_process() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().display().to_string();
    let flags = ["--rtt", "none", "--data", path.as_str()];
    let mut dev = Dev::start(&flags);
    assert_eq!(dev.client(0).call(&["SET", "k", "kept"]), Value::ok());
    assert_eq!(dev.client(1).call(&["INCR", "n"]), Value::Int(1));
    dev.process.kill();
    drop(dev);
    let dev = Dev::start(&flags);
    assert_eq!(dev.client(2).call(&["GET", "k"]), Value::bulk("kept"));
    assert_eq!(dev.client(2).call(&["INCR", "n"]), Value::Int(2));
}

#[test]
fn signals_end_it_cleanly() {
    for signal in ["TERM", "INT"] {
        let mut dev = Dev::start(&["--rtt", "none"]);
        dev.process.signal(signal);
        assert_eq!(dev.process.wait_end(), Some(0), "SIG{signal}");
    }
}
