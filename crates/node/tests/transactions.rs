//! Transactions, snapshots and levels as a client sees them, in keyspaces of every kind of model.

mod common;

use common::{FakeHost, script_on};
use meridian_protocol::machine::{Level, Outcome, Request};
use meridian_protocol::object::{Class, Command};

fn script(text: &str) {
    script_on(text, &mut FakeHost::of_all_models());
}

#[test]
fn several_keys_are_one_step_where_the_model_has_transactions() {
    let mut host = FakeHost::of_all_models();
    let text = "> MERIDIAN.USE bank
        +OK|
        > MSET a 1 b 2 a 3
        +OK|
        > MGET a b c a
        *4|$1|3|$1|2|$-1|$1|3|
        > LPUSH l x
        :1|
        > MGET l a
        *2|$-1|$1|3|
        > MGET a
        *1|$1|3|
        > EXISTS a a b c
        :3|
        > DEL a a c
        :1|
        > UNLINK b l
        :2|
        > EXISTS a b l
        :0|
        > MSET a
        -ERR wrong number of arguments for 'mset' command|
        > MSET a 1 b
        -ERR wrong number of arguments for 'mset' command|
        > INCR n
        :1|
        > SET k v NX GET
        $-1|";
    script_on(text, &mut host);
    let together = |request: &&Request| matches!(request, Request::Together(_));
    let asked = host.take_asked();
    assert_eq!(asked.iter().filter(together).count(), 8, "one request a command: {asked:?}");
    assert_eq!(asked.len(), 8 + 3);
}

#[test]
fn a_transaction_has_any_keys_and_any_commands_on_keys() {
    script(
        "> SELECT 2
        +OK|
        > MULTI
        +OK|
        > SET a 1
        +QUEUED|
        > INCRBY a x
        +QUEUED|
        > INCR b
        +QUEUED|
        > MSET c 5 d 6
        +QUEUED|
        > MSET c 5 d
        +QUEUED|
        > MGET a b none
        +QUEUED|
        > LLEN a
        +QUEUED|
        > DEL a c c none
        +QUEUED|
        > EXISTS a d d
        +QUEUED|
        > GET d
        +QUEUED|
        > EXEC
        *10|+OK|-ERR value is not an integer or out of range|:1|+OK|-ERR wrong number of arguments for 'mset' command|*3|$1|1|$1|1|$-1|-WRONGTYPE Operation against a key holding the wrong kind of value|:2|:2|$1|6|
        > MULTI
        +OK|
        > EXEC
        *0|
        > MULTI
        +OK|
        > PING
        -ERR PING is not served inside MULTI: a transaction is one step on keys; send it before or after|
        > EXEC
        -EXECABORT Transaction discarded because of previous errors.|
        > MULTI
        +OK|
        > SET a 1
        +QUEUED|
        > DISCARD
        +OK|
        > GET a
        $-1|",
    );
}

#[test]
fn watched_keys_that_change_stop_the_transaction() {
    let mut host = FakeHost::of_all_models();
    let (mut one, mut two) = (host.connect(), host.connect());
    for client in [&mut one, &mut two] {
        assert_eq!(client.say("MERIDIAN.USE bank", &mut host), "+OK\r\n");
    }
    for (touched, answer) in [("other", "*2\r\n+OK\r\n:1\r\n"), ("k", "*-1\r\n"), ("l", "*-1\r\n")] {
        one.say("DEL n", &mut host);
        assert_eq!(one.say("WATCH k l k", &mut host), "+OK\r\n");
        assert_eq!(one.say("WATCH l m", &mut host), "+OK\r\n");
        two.say(&format!("SET {touched} x"), &mut host);
        one.say("MULTI", &mut host);
        one.say("SET k mine", &mut host);
        one.say("INCR n", &mut host);
        assert_eq!(one.say("EXEC", &mut host), answer, "{touched}");
    }
    // What was watched is forgotten.
    for end in ["UNWATCH", "DISCARD", "EXEC", "RESET"] {
        one.say("MERIDIAN.USE bank", &mut host);
        one.say("WATCH k", &mut host);
        if end != "UNWATCH" && end != "RESET" {
            one.say("MULTI", &mut host);
        }
        one.say(end, &mut host);
        two.say("SET k y", &mut host);
        one.say("MERIDIAN.USE bank", &mut host);
        one.say("MULTI", &mut host);
        one.say("GET k", &mut host);
        assert_eq!(one.say("EXEC", &mut host), "*1\r\n$1\r\ny\r\n", "{end}");
    }
    // A transaction that does nothing still says whether its keys have changed.
    for (touch, answer) in [(false, "*0\r\n"), (true, "*-1\r\n")] {
        one.say("WATCH k", &mut host);
        if touch {
            two.say("SET k z", &mut host);
        }
        one.say("MULTI", &mut host);
        assert_eq!(one.say("EXEC", &mut host), answer);
    }
    script(
        "> WATCH k
        +OK|
        > SELECT 2
        +OK|
        > WATCH k
        -ERR keys of another keyspace are watched: UNWATCH them first|
        > MULTI
        +OK|
        > GET k
        +QUEUED|
        > EXEC
        -ERR keys of another keyspace are watched: select it before EXEC|",
    );
    let words: Vec<String> = (0..1025).map(|i| format!("k{i}")).collect();
    let answer = one.say(&format!("WATCH {}", words.join(" ")), &mut host);
    assert_eq!(answer, "-ERR at most 1024 keys can be watched\r\n");
}

#[test]
fn an_open_transaction_is_seen_by_nobody_until_it_is_committed() {
    let mut host = FakeHost::of_all_models();
    let (mut one, mut two) = (host.connect(), host.connect());
    for client in [&mut one, &mut two] {
        client.say("MERIDIAN.USE bank", &mut host);
    }
    let mut tell = |line: &str, answer: &str, seen: &str| {
        assert_eq!(one.say(line, &mut host).replace("\r\n", "|"), answer, "{line}");
        assert_eq!(two.say("MGET a b", &mut host).replace("\r\n", "|"), seen, "after {line}");
    };
    let nothing = "*2|$-1|$-1|";
    tell("MERIDIAN.BEGIN", "+OK|", nothing);
    tell("INCR a", ":1|", nothing);
    tell("MSET a 5 b 6", "+OK|", nothing);
    tell("MGET a b", "*2|$1|5|$1|6|", nothing);
    tell("LPUSH a x", "-WRONGTYPE Operation against a key holding the wrong kind of value|", nothing);
    tell("MERIDIAN.COMMIT", "+OK|", "*2|$1|5|$1|6|");
    tell("MERIDIAN.BEGIN", "+OK|", "*2|$1|5|$1|6|");
    tell("DEL a b", ":2|", "*2|$1|5|$1|6|");
    tell("MERIDIAN.ABORT", "+OK|", "*2|$1|5|$1|6|");
    assert_eq!(host.open_transactions(), 0);
}

#[test]
fn what_does_not_belong_to_a_transaction_is_refused_by_name() {
    script(
        "> MERIDIAN.COMMIT
        -ERR MERIDIAN.COMMIT without MERIDIAN.BEGIN|
        > MERIDIAN.ABORT
        -ERR MERIDIAN.ABORT without MERIDIAN.BEGIN|
        > MERIDIAN.BEGIN
        -ERR MERIDIAN.BEGIN is not served, keyspace 0 'main' is linearizable by gryff; served by strict-serializable (spanner), rss (spanner-rss), po-serializable (spanner-po)|
        > SELECT 3
        +OK|
        > MERIDIAN.BEGIN RO
        -ERR MERIDIAN.BEGIN is not served, keyspace 3 'feed' is causal by tcc; served by strict-serializable (spanner), rss (spanner-rss), po-serializable (spanner-po)|
        > SELECT 5
        +OK|
        > MERIDIAN.BEGIN
        -ERR MERIDIAN.BEGIN needs session = \"connection\", keyspace 5 'pool' has \"node\": its connections share one session, and a session has one transaction|
        > SELECT 2
        +OK|
        > MERIDIAN.BEGIN RW
        -ERR MERIDIAN.BEGIN takes RO or nothing|
        > WATCH k
        +OK|
        > MERIDIAN.BEGIN
        -ERR MERIDIAN.BEGIN after WATCH is not allowed: UNWATCH first|
        > UNWATCH
        +OK|
        > MERIDIAN.BEGIN
        +OK|
        > MERIDIAN.BEGIN
        -ERR MERIDIAN.BEGIN is not served inside MERIDIAN.BEGIN: send it before, or after MERIDIAN.COMMIT or ABORT|
        > SELECT 0
        -ERR SELECT is not served inside MERIDIAN.BEGIN: send it before, or after MERIDIAN.COMMIT or ABORT|
        > MULTI
        -ERR MULTI is not served inside MERIDIAN.BEGIN: send it before, or after MERIDIAN.COMMIT or ABORT|
        > WATCH k
        -ERR WATCH is not served inside MERIDIAN.BEGIN: send it before, or after MERIDIAN.COMMIT or ABORT|
        > KEYS *
        -ERR KEYS is not served inside MERIDIAN.BEGIN: send it before, or after MERIDIAN.COMMIT or ABORT|
        > MERIDIAN.SNAPSHOT 1 GET k
        -ERR MERIDIAN.SNAPSHOT is not served inside MERIDIAN.BEGIN: send it before, or after MERIDIAN.COMMIT or ABORT|
        > PING
        +PONG|
        > MERIDIAN.COMMIT
        +OK|
        > MERIDIAN.BEGIN ro
        +OK|
        > GET k
        $-1|
        > SET k v
        -ERR SET may write, and the transaction began with RO: it only reads|
        > MSET k v l v
        -ERR MSET may write, and the transaction began with RO: it only reads|
        > MGET k l
        *2|$-1|$-1|
        > MERIDIAN.COMMIT
        +OK|
        > MULTI
        +OK|
        > MERIDIAN.BEGIN
        -ERR MERIDIAN.BEGIN is not served inside MULTI: a transaction is one step on keys; send it before or after|
        > DISCARD
        +OK|",
    );
}

/// What was meant for a transaction is never done outside of it.
#[test]
fn a_transaction_that_is_given_up_refuses_what_follows() {
    for (outcome, word) in [
        (Outcome::Aborted("it was wounded"), "-TRYAGAIN "),
        (Outcome::NoQuorum, "-CLUSTERDOWN "),
        (Outcome::LATE, "-CLUSTERDOWN "),
    ] {
        let mut host = FakeHost::of_all_models();
        let mut client = host.connect();
        client.say("MERIDIAN.USE bank", &mut host);
        for (end, answer) in [("MERIDIAN.COMMIT", "-TRYAGAIN "), ("MERIDIAN.ABORT", "+OK")] {
            client.say("MERIDIAN.BEGIN", &mut host);
            client.say("SET a 1", &mut host);
            host.fail = Some(match outcome {
                Outcome::NoQuorum => |_| Some(Outcome::NoQuorum),
                Outcome::Unknown(_) => |_| Some(Outcome::LATE),
                _ => |_| Some(Outcome::Aborted("it was wounded")),
            });
            let told = client.say("SET b 1", &mut host);
            assert!(told.starts_with(word), "{told}");
            host.fail = None;
            host.take_asked();
            for line in ["SET c 1", "MGET a b", "DEL a"] {
                let told = client.say(line, &mut host);
                assert!(told.starts_with("-TRYAGAIN ") && told.contains("send MERIDIAN.ABORT"), "{told}");
            }
            assert!(client.say(end, &mut host).starts_with(answer));
            assert!(host.take_asked().is_empty(), "the machine has given it up itself");
            host.forget_open();
            assert_eq!(client.say("MGET a b c", &mut host), "*3\r\n$-1\r\n$-1\r\n$-1\r\n");
        }
    }
}

#[test]
fn a_commit_says_how_it_ended() {
    for (outcome, word, on_read_only) in [
        (Outcome::Aborted("it was wounded"), "-TRYAGAIN ", "-TRYAGAIN "),
        (Outcome::NoQuorum, "-CLUSTERDOWN ", "-CLUSTERDOWN "),
        (Outcome::LATE, "-UNKNOWNOUTCOME ", "-CLUSTERDOWN "),
    ] {
        for (begin, word) in [("MERIDIAN.BEGIN", word), ("MERIDIAN.BEGIN RO", on_read_only)] {
            let mut host = FakeHost::of_all_models();
            let mut client = host.connect();
            client.say("MERIDIAN.USE bank", &mut host);
            client.say(begin, &mut host);
            client.say("GET a", &mut host);
            host.fail = Some(match outcome {
                Outcome::NoQuorum => |_| Some(Outcome::NoQuorum),
                Outcome::Unknown(_) => |_| Some(Outcome::LATE),
                _ => |_| Some(Outcome::Aborted("it was wounded")),
            });
            let told = client.say("MERIDIAN.COMMIT", &mut host);
            assert!(told.starts_with(word), "{begin}: {told}");
            host.fail = None;
            assert_eq!(client.say("SELECT 0", &mut host), "+OK\r\n", "it is over");
        }
    }
    // The same of one step on several keys.
    let mut host = FakeHost::of_all_models();
    let mut client = host.connect();
    client.say("MERIDIAN.USE bank", &mut host);
    host.fail = Some(|_| Some(Outcome::LATE));
    for (line, word) in [
        ("MSET a 1 b 2", "-UNKNOWNOUTCOME "),
        ("DEL a b", "-UNKNOWNOUTCOME "),
        ("MGET a b", "-CLUSTERDOWN "),
        ("EXISTS a b", "-CLUSTERDOWN "),
    ] {
        assert!(client.say(line, &mut host).starts_with(word), "{line}");
    }
    for (queued, word) in [("GET a", "-CLUSTERDOWN "), ("INCR a", "-UNKNOWNOUTCOME ")] {
        client.say("MULTI", &mut host);
        client.say(queued, &mut host);
        assert!(client.say("EXEC", &mut host).starts_with(word), "{queued}");
    }
}

#[test]
fn whoever_leaves_gives_its_transaction_up() {
    for end in ["RESET", "QUIT", ""] {
        let mut host = FakeHost::of_all_models();
        let mut client = host.connect();
        client.say("MERIDIAN.USE bank", &mut host);
        client.say("MERIDIAN.BEGIN", &mut host);
        client.say("SET a 1", &mut host);
        if !end.is_empty() {
            client.say(end, &mut host);
        }
        if end != "RESET" {
            client.session.on_closed(&mut host);
        }
        assert_eq!(host.open_transactions(), 0, "{end}");
        host.pending.clear();
        let mut other = host.connect();
        other.say("MERIDIAN.USE bank", &mut host);
        assert_eq!(other.say("GET a", &mut host), "$-1\r\n");
    }
}

#[test]
fn a_snapshot_reads_as_of_its_time() {
    let mut host = FakeHost::of_all_models();
    host.wall_ms = Some(5_000);
    script_on(
        "> MERIDIAN.SNAPSHOT 4000000 GET k
        -ERR MERIDIAN.SNAPSHOT is not served, keyspace 0 'main' is linearizable by gryff; served by strict-serializable (spanner), rss (spanner-rss), po-serializable (spanner-po)|
        > SELECT 2
        +OK|
        > MERIDIAN.SNAPSHOT 4000000 GET k
        $-1|
        > MERIDIAN.SNAPSHOT 4000000 LPOP k 2
        -ERR LPOP may write, and a snapshot can only be read|
        > MERIDIAN.SNAPSHOT 4000000 MGET k l
        *2|$-1|$-1|
        > MERIDIAN.SNAPSHOT 4000000 EXISTS k
        :0|
        > MERIDIAN.SNAPSHOT 4000000 DEL k l
        -ERR DEL may write, and a snapshot can only be read|
        > MERIDIAN.SNAPSHOT 4000000 GET
        -ERR wrong number of arguments for 'get' command|
        > MERIDIAN.SNAPSHOT 4000000 NOSUCH k
        -ERR unknown command 'NOSUCH', with args beginning with: 'k' |
        > MERIDIAN.SNAPSHOT 4000000 PING
        -ERR PING cannot follow MERIDIAN.SNAPSHOT: only a command on keys can|
        > MERIDIAN.SNAPSHOT 5000001 GET k
        -ERR the time of a snapshot is given in microseconds since the Unix epoch, and has passed|
        > MERIDIAN.SNAPSHOT -1 GET k
        -ERR the time of a snapshot is given in microseconds since the Unix epoch, and has passed|
        > GET k
        $-1|",
        &mut host,
    );
    let mut asked = host.take_asked();
    assert!(matches!(asked.pop(), Some(Request::Act { .. })), "the prefix is for one command");
    for request in asked {
        let Request::Together(together) = request else { panic!("{request:?}") };
        assert_eq!((together.snapshot, together.at_ms), (Some(4_000_000), 4_000));
        assert!(together.steps.iter().all(|(_, command)| command.class() == Class::Read));
    }
}

#[test]
fn a_causal_keyspace_reads_snapshots_and_refuses_transactions() {
    let mut host = FakeHost::of_all_models();
    script_on(
        "> MERIDIAN.USE wall
        +OK|
        > MSET a 1 b 2
        +OK|
        > MGET a b c
        *3|$1|1|$1|2|$-1|
        > EXISTS a b c
        :2|
        > DEL a c
        :1|
        > UNLINK b
        :1|
        > INCR a
        -ERR INCR depends on the value that it changes, keyspace 4 'wall' is causal by contrarian; served by linearizable (gryff, epaxos, multipaxos), rsc (gryff-rsc), strict-serializable (spanner), rss (spanner-rss), po-serializable (spanner-po)|
        > SET a 1 NX
        -ERR SET depends on the value that it changes, keyspace 4 'wall' is causal by contrarian; served by linearizable (gryff, epaxos, multipaxos), rsc (gryff-rsc), strict-serializable (spanner), rss (spanner-rss), po-serializable (spanner-po)|
        > WATCH a
        -ERR WATCH is not served, keyspace 4 'wall' is causal by contrarian; served by strict-serializable (spanner), rss (spanner-rss), po-serializable (spanner-po)|
        > MULTI
        +OK|
        > SET a 1
        -ERR SET inside MULTI is not served, keyspace 4 'wall' is causal by contrarian; served by strict-serializable (spanner), rss (spanner-rss), po-serializable (spanner-po)|
        > EXEC
        -EXECABORT Transaction discarded because of previous errors.|
        > GET a
        $-1|",
        &mut host,
    );
    let asked = host.take_asked();
    let snapshots = asked.iter().filter(|request| matches!(request, Request::Together(_))).count();
    assert_eq!((snapshots, asked.len()), (2, 2 + 2 + 2 + 1 + 1), "writes are each for themselves");
}

/// The level of each request, with whether it reads.
fn levels(host: &mut FakeHost) -> Vec<(bool, Level)> {
    let level = |request| match request {
        Request::Act { action, level, .. } => (action.class() == Class::Read, level),
        Request::Together(together) => {
            let reads = |command: &Command| command.class() == Class::Read;
            (together.steps.iter().all(|(_, command)| reads(command)), together.level)
        }
        other => panic!("{other:?} has no level"),
    };
    host.take_asked().into_iter().map(level).collect()
}

#[test]
fn a_session_chooses_levels_and_a_command_its_own() {
    let mut host = FakeHost::of_all_models();
    let mut client = host.connect();
    let mut tell = |line: &str, answer: &str, host: &mut FakeHost| {
        assert_eq!(client.say(line, host).replace("\r\n", "|"), answer, "{line}");
    };
    let (ok, writes) = ("+OK|", false);
    tell(
        "MERIDIAN.LEVEL ec",
        "-ERR MERIDIAN.LEVEL is not served, keyspace 0 'main' is linearizable by gryff; served by causal (tcc)|",
        &mut host,
    );
    tell("MERIDIAN.USE feed", ok, &mut host);
    tell("MERIDIAN.LEVEL", "*4|$5|reads|$2|cc|$6|writes|$2|cc|", &mut host);
    tell("MERIDIAN.LEVEL ryw mw", ok, &mut host);
    tell("MERIDIAN.LEVEL", "*4|$5|reads|$3|ryw|$6|writes|$2|mw|", &mut host);
    tell("MERIDIAN.LEVEL mr", ok, &mut host);
    tell("meridian.level WFR", ok, &mut host);
    tell("MERIDIAN.LEVEL", "*4|$5|reads|$2|mr|$6|writes|$3|wfr|", &mut host);
    tell(
        "MERIDIAN.LEVEL mw ryw",
        "-ERR the first level is that of reads (ec, ryw, mr, cc), the second that of writes (ec, mw, wfr, cc)|",
        &mut host,
    );
    tell(
        "MERIDIAN.LEVEL strong",
        "-ERR no level is called 'strong': there are cc, ec, ryw, mr, mw, wfr|",
        &mut host,
    );
    tell("SET k v", ok, &mut host);
    tell("MERIDIAN.LEVEL ec SET k w", ok, &mut host);
    tell("MERIDIAN.LEVEL mw MSET k v l w", ok, &mut host);
    tell("MERIDIAN.LEVEL mw DEL l", ":1|", &mut host);
    let wfr = (writes, Level::WritesFollowReads);
    let mw = (writes, Level::MonotonicWrites);
    assert_eq!(levels(&mut host), [wfr, (writes, Level::Eventual), mw, mw, mw]);
    tell("GET k", "$1|v|", &mut host);
    tell("MERIDIAN.LEVEL ryw GET k", "$1|v|", &mut host);
    tell("MERIDIAN.LEVEL cc MGET k l", "*2|$1|v|$-1|", &mut host);
    tell("MGET k l", "*2|$1|v|$-1|", &mut host);
    let mr = (true, Level::MonotonicReads);
    assert_eq!(levels(&mut host), [mr, (true, Level::ReadYourWrites), (true, Level::Causal), mr]);
    tell("MERIDIAN.LEVEL mw GET k", "-ERR GET reads, and mw is a level of writes|", &mut host);
    tell("MERIDIAN.LEVEL mr SET k v", "-ERR SET writes, and mr is a level of reads|", &mut host);
    tell(
        "MERIDIAN.LEVEL ec PING",
        "-ERR PING cannot follow MERIDIAN.LEVEL: only a command on keys can|",
        &mut host,
    );
    tell(
        "MERIDIAN.LEVEL ec INCR k",
        "-ERR INCR depends on the value that it changes, keyspace 3 'feed' is causal by tcc; served by linearizable (gryff, epaxos, multipaxos), rsc (gryff-rsc), strict-serializable (spanner), rss (spanner-rss), po-serializable (spanner-po)|",
        &mut host,
    );
    tell("RESET", "+RESET|", &mut host);
    tell("MERIDIAN.USE feed", ok, &mut host);
    tell("MERIDIAN.LEVEL", "*4|$5|reads|$2|cc|$6|writes|$2|cc|", &mut host);
}

/// A command after a prefix whose keys do not all fit into one window asks for the rest later.
#[test]
fn a_long_command_after_a_prefix_keeps_its_words_and_its_level() {
    let mut host = FakeHost::of_all_models();
    let mut client = host.connect();
    client.say("MERIDIAN.USE feed", &mut host);
    let words: Vec<String> = (0..3_000).map(|i| format!("k{i} v{i}")).collect();
    let line = format!("MERIDIAN.LEVEL ec MSET {}", words.join(" "));
    assert_eq!(client.say(&line, &mut host), "+OK\r\n");
    let asked = levels(&mut host);
    assert_eq!(asked.len(), 3_000);
    assert!(asked.iter().all(|asked| *asked == (false, Level::Eventual)));
    for i in [0, 1_500, 2_999] {
        assert!(client.say(&format!("GET k{i}"), &mut host).contains(&format!("v{i}\r\n")));
    }
}

#[test]
fn the_cost_tells_the_level_that_was_served() {
    for (keyspace, level, served) in [("feed", "ryw", "ryw"), ("wall", "ryw", "cc")] {
        let mut host = FakeHost::of_all_models();
        let mut client = host.connect();
        client.say(&format!("MERIDIAN.USE {keyspace}"), &mut host);
        client.say(&format!("MERIDIAN.LEVEL {level} MGET k l"), &mut host);
        let cost = client.say("MERIDIAN.COST", &mut host);
        assert!(cost.starts_with("*12\r\n"), "{cost}");
        assert!(cost.ends_with(&format!("$5\r\nlevel\r\n${}\r\n{served}\r\n", served.len())), "{cost}");
        assert!(cost.contains("{\"cs\":["), "of a request with several keys too: {cost}");
    }
    let mut host = FakeHost::of_all_models();
    let mut client = host.connect();
    client.say("MERIDIAN.USE bank", &mut host);
    client.say("MULTI", &mut host);
    client.say("MSET a 1 b 2", &mut host);
    client.say("EXEC", &mut host);
    let cost = client.say("MERIDIAN.COST", &mut host);
    assert!(cost.starts_with("*10\r\n") && cost.contains("{\"cs\":["), "{cost}");
}
