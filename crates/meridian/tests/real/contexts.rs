//! Contexts and fences between keyspaces, on the embedded cluster: what one session has seen, another one sees that was told.

use crate::harness::{Dev, timed};
use crate::resp::{Client, Value};

/// The token of a session's context.
fn context(client: &mut Client) -> String {
    match client.call(&["MERIDIAN.CONTEXT", "GET"]) {
        Value::Bulk(Some(token)) => token,
        other => panic!("no context: {other:?}"),
    }
}

fn cost(client: &mut Client) -> (i64, String) {
    let Value::Array(cost) = client.call(&["MERIDIAN.COST"]) else { panic!("no cost") };
    match (&cost[3], &cost[5]) {
        (Value::Int(waited), Value::Bulk(Some(reason))) => (*waited, reason.clone()),
        other => panic!("{other:?}"),
    }
}

/// While the write cannot leave its region a session elsewhere that knows nothing of it reads on; one that was told waits, and
/// sees it.
#[test]
fn a_token_of_one_region_is_honoured_in_another() {
    for engine in ["contrarian", "tcc", "cc-lo"] {
        let keyspace = format!("0=causal:{engine}");
        let dev = Dev::start(&["--rtt", "none", "--db", &keyspace, "--db", "1=linearizable"]);
        let (mut ca, mut ir, mut unaware) = (dev.client(0), dev.client(2), dev.client(2));
        for other in ["va", "ir"] {
            assert_eq!(ir.call(&["MERIDIAN.DEV", "CUT", "ca", other]), Value::ok());
        }
        assert_eq!(ca.call(&["SET", "photo", "1"]), Value::ok());
        // CC-LO's context tells nothing: getting it waits until everybody sees the photo.
        let token = (engine != "cc-lo").then(|| context(&mut ca));
        assert_eq!(unaware.call(&["GET", "photo"]), Value::Bulk(None), "{engine}");
        assert_eq!(ir.call(&["MERIDIAN.DEV", "HEAL"]), Value::ok());
        let token = token.unwrap_or_else(|| context(&mut ca));
        println!("{engine}: {} characters", token.len());
        assert!(token.len() <= 256);
        let (set, took) = timed(&mut ir, &["MERIDIAN.CONTEXT", "SET", &token]);
        assert_eq!(set, Value::ok(), "{engine}");
        let (seen, read) = timed(&mut ir, &["GET", "photo"]);
        println!("{engine}: taken over in {took:?}, read in {read:?}");
        assert_eq!(seen, Value::bulk("1"), "{engine}");
        // What it writes comes after, also for the first.
        assert_eq!(ir.call(&["SET", "photo", "2"]), Value::ok());
        let back = context(&mut ir);
        assert_eq!(ca.call(&["MERIDIAN.CONTEXT", "MERGE", &back]), Value::ok());
        assert_eq!(ca.call(&["GET", "photo"]), Value::bulk("2"), "{engine}");
    }
}

#[test]
fn what_is_owed_travels_and_costs_what_it_says() {
    let flags = ["--rtt", "none", "--db", "0=linearizable", "--db", "1=rsc", "--db", "2=rss"];
    let dev = Dev::start(&flags);
    let (mut ca, mut ir) = (dev.client(0), dev.client(2));
    for (database, value) in [("2", "album"), ("1", "queue")] {
        assert_eq!(ca.call(&["SELECT", database]), Value::ok());
        assert_eq!(ca.call(&["SET", "k", value]), Value::ok());
    }
    let (waited, reason) = cost(&mut ca);
    println!("from rss to rsc: waited {waited} us for '{reason}'");
    assert!(waited > 100_000, "L is 300 ms");
    assert_eq!(reason, "the fence of an rss keyspace");
    // Back: the rsc keyspace is fenced, the rss one entered.
    assert_eq!(ca.call(&["SELECT", "2"]), Value::ok());
    let (seen, took) = timed(&mut ca, &["GET", "k"]);
    println!("entered in {took:?}: {:?}", cost(&mut ca));
    assert_eq!(seen, Value::bulk("album"));
    let token = context(&mut ca);
    assert_eq!(ir.call(&["MERIDIAN.CONTEXT", "SET", &token]), Value::ok());
    assert_eq!(ir.call(&["GET", "k"]), Value::Bulk(None), "of the linearizable keyspace");
    let (waited, reason) = cost(&mut ir);
    println!("by a token, from rss to linearizable: waited {waited} us for '{reason}'");
    assert_eq!(reason, "the fence of an rss keyspace", "the other session has not run it");
    assert_eq!(ir.call(&["SELECT", "2"]), Value::ok());
    assert_eq!(ir.call(&["GET", "k"]), Value::bulk("album"));

    // Another cluster has another secret.
    let elsewhere = Dev::start(&flags);
    let refused = elsewhere.client(0).call(&["MERIDIAN.CONTEXT", "SET", &token]);
    assert!(refused.error().starts_with("BADTOKEN its tag does not fit"), "{refused:?}");
}
