//! What a connection means, told by the bytes that go in and come out.

mod common;

use common::{FakeHost, command, script};
use meridian_node::session::Dev;
use meridian_protocol::machine::{Outcome, Request};
use meridian_protocol::object::{Action, Class};

#[test]
fn a_conversation_in_resp2() {
    script(
        "> PING
        +PONG|
        > ping hello
        $5|hello|
        > ECHO 'a b'
        $3|a b|
        > SET k v
        +OK|
        > GET k
        $1|v|
        > GET none
        $-1|
        > SET k w NX
        $-1|
        > INCR n
        :1|
        > HSET h f 1 g 2
        :2|
        > HGETALL h
        *4|$1|f|$1|1|$1|g|$1|2|
        > LPOP none 2
        *-1|
        > TYPE h
        +hash|
        > GET h
        -WRONGTYPE Operation against a key holding the wrong kind of value|
        > SET k v IFEQ x
        $-1|
        > DELIFEQ k v
        :1|
        > TIME extra
        -ERR wrong number of arguments for 'time' command|",
    );
}

#[test]
fn a_conversation_in_resp3() {
    script(
        "> HELLO 3 AUTH default any SETNAME me
        %7|$6|server|$5|redis|$7|version|$5|7.2.4|$5|proto|:3|$2|id|:1|$4|mode|$10|standalone|$4|role|$6|master|$7|modules|*0|
        > GET none
        _|
        > LPOP none 2
        _|
        > HSET h f 1
        :1|
        > HGETALL h
        %1|$1|f|$1|1|
        > HMGET h f x
        *2|$1|1|_|
        > CLIENT GETNAME
        $2|me|
        > RESET
        +RESET|
        > CLIENT GETNAME
        $-1|
        > HELLO 4
        -NOPROTO unsupported protocol version|
        > HELLO x
        -ERR Protocol version is not an integer or out of range|
        > HELLO 3 FOO
        -ERR Syntax error in HELLO option 'FOO'|
        > HELLO 2 AUTH joe secret
        -WRONGPASS invalid username-password pair or user is disabled.|
        > AUTH secret
        -ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?|",
    );
}

#[test]
fn what_is_not_known_is_refused_in_redis_words() {
    script(
        "> RENAME a b
        -ERR unknown command 'RENAME', with args beginning with: 'a' 'b' |
        > RANDOMKEY
        -ERR unknown command 'RANDOMKEY', with args beginning with: |
        > CLIENT KILL x
        -ERR unknown subcommand 'KILL'. Try CLIENT HELP.|
        > client setname
        -ERR wrong number of arguments for 'client|setname' command|
        > CLIENT
        -ERR wrong number of arguments for 'client' command|
        > GET
        -ERR wrong number of arguments for 'get' command|
        > MSET a 1 b
        -ERR wrong number of arguments for 'mset' command|
        > SET k v FOO
        -ERR syntax error|
        > FLUSHDB
        -ERR FLUSHDB is refused: no one step of keyspace 0 'main' empties all of its partitions in all regions; delete the keys that SCAN lists|",
    );
}

#[test]
fn keyspaces_have_numbers_and_names() {
    script(
        "> SET k zero
        +OK|
        > SELECT 1
        +OK|
        > GET k
        $-1|
        > SELECT 2
        -ERR DB index is out of range|
        > SELECT x
        -ERR value is not an integer or out of range|
        > MERIDIAN.USE main
        +OK|
        > GET k
        $4|zero|
        > MERIDIAN.USE mars
        -ERR no keyspace is called 'mars': there are main, social, registers|
        > SELECT 7
        +OK|
        > SET k v
        +OK|
        > INCR k
        -ERR INCR depends on the value that it changes, keyspace 7 'registers' is linearizable by abd; served by linearizable (gryff, epaxos, multipaxos), rsc (gryff-rsc), strict-serializable (spanner), rss (spanner-rss), po-serializable (spanner-po)|
        > DEL k l
        :1|
        > GET k
        $-1|
        > GETDEL k
        -ERR GETDEL depends on the value that it changes, keyspace 7 'registers' is linearizable by abd; served by linearizable (gryff, epaxos, multipaxos), rsc (gryff-rsc), strict-serializable (spanner), rss (spanner-rss), po-serializable (spanner-po)|",
    );
}

#[test]
fn several_keys_are_each_on_their_own() {
    script(
        "> MSET a 1 b 2 a 3
        +OK|
        > MGET a b c a
        *4|$1|3|$1|2|$-1|$1|3|
        > LPUSH l x
        :1|
        > MGET l
        *1|$-1|
        > EXISTS a a b c
        :3|
        > DEL a a c
        :1|
        > UNLINK b
        :1|
        > EXISTS a b
        :0|",
    );
}

#[test]
fn many_keys_are_in_flight_at_once_but_not_without_bound() {
    let mut host = FakeHost::new();
    let mut client = host.connect();
    let mut words = vec!["MSET".to_owned()];
    for i in 0..5000 {
        words.extend([format!("key{i}"), format!("{i}")]);
    }
    assert_eq!(client.ask(&command(&words), &mut host), b"+OK\r\n");
    assert_eq!(host.most_pending, 1024);
    assert_eq!(client.say("DBSIZE", &mut host), ":5000\r\n");
}

#[test]
fn transactions_have_one_key() {
    script(
        "> MULTI
        +OK|
        > SET k 1
        +QUEUED|
        > INCRBY k x
        +QUEUED|
        > INCR k
        +QUEUED|
        > LLEN k
        +QUEUED|
        > EXEC
        *4|+OK|-ERR value is not an integer or out of range|:2|-WRONGTYPE Operation against a key holding the wrong kind of value|
        > MULTI
        +OK|
        > EXEC
        *0|
        > EXEC
        -ERR EXEC without MULTI|
        > DISCARD
        -ERR DISCARD without MULTI|
        > MULTI
        +OK|
        > MULTI
        -ERR MULTI calls can not be nested|
        > WATCH k
        -ERR WATCH inside MULTI is not allowed|
        > SET k 5
        +QUEUED|
        > SET j 5
        -CROSSSLOT 'j' after 'k', keyspace 0 'main' is linearizable by gryff: its transactions have one key; several are served by strict-serializable (spanner), rss (spanner-rss), po-serializable (spanner-po)|
        > EXEC
        -EXECABORT Transaction discarded because of previous errors.|
        > MULTI
        +OK|
        > PING
        -ERR PING is not served inside MULTI: a transaction is one step on one key; send it before or after|
        > EXEC
        -EXECABORT Transaction discarded because of previous errors.|
        > MULTI
        +OK|
        > NOSUCH
        -ERR unknown command 'NOSUCH', with args beginning with: |
        > DISCARD
        +OK|
        > GET k
        $1|2|
        > MULTI
        +OK|
        > LPOP none 1
        +QUEUED|
        > DEL none
        +QUEUED|
        > EXEC
        *2|*-1|:0|",
    );
}

#[test]
fn a_watched_key_that_changes_stops_the_transaction() {
    let mut host = FakeHost::new();
    let (mut one, mut two) = (host.connect(), host.connect());
    for (touch, answer) in [(false, "*1\r\n+OK\r\n"), (true, "*-1\r\n")] {
        assert_eq!(one.say("WATCH k", &mut host), "+OK\r\n");
        if touch {
            two.say("SET k other", &mut host);
        }
        one.say("MULTI", &mut host);
        one.say("SET k mine", &mut host);
        assert_eq!(one.say("EXEC", &mut host), answer);
    }
    assert_eq!(one.say("GET k", &mut host), "$5\r\nother\r\n");
    script(
        "> WATCH k l
        -CROSSSLOT 'k' is watched beside another key, keyspace 0 'main' is linearizable by gryff: its transactions have one key; several are served by strict-serializable (spanner), rss (spanner-rss), po-serializable (spanner-po)|
        > WATCH k k
        +OK|
        > WATCH l
        -CROSSSLOT 'l' is watched beside another key, keyspace 0 'main' is linearizable by gryff: its transactions have one key; several are served by strict-serializable (spanner), rss (spanner-rss), po-serializable (spanner-po)|
        > MULTI
        +OK|
        > SET l 1
        +QUEUED|
        > EXEC
        -CROSSSLOT 'k' is watched and another key is changed, keyspace 0 'main' is linearizable by gryff: its transactions have one key; several are served by strict-serializable (spanner), rss (spanner-rss), po-serializable (spanner-po)|
        > WATCH k
        +OK|
        > UNWATCH
        +OK|
        > WATCH l
        +OK|
        > MULTI
        +OK|
        > EXEC
        *0|",
    );
}

#[test]
fn outcomes_have_their_words() {
    let mut host = FakeHost::new();
    let mut client = host.connect();
    for (outcome, on_write, on_read) in [
        (Outcome::NoQuorum, "-CLUSTERDOWN ", "-CLUSTERDOWN "),
        (Outcome::Aborted("the log is full"), "-TRYAGAIN ", "-TRYAGAIN "),
        (Outcome::LATE, "-UNKNOWNOUTCOME ", "-CLUSTERDOWN "),
    ] {
        host.fail = Some(match outcome {
            Outcome::NoQuorum => |_| Some(Outcome::NoQuorum),
            Outcome::Unknown(_) => |_| Some(Outcome::LATE),
            _ => |_| Some(Outcome::Aborted("the log is full")),
        });
        for line in ["SET k v", "INCR k", "DEL k", "MSET k v l w", "DEL k l"] {
            let answer = client.say(line, &mut host);
            assert!(answer.starts_with(on_write), "{line}: {answer}");
            assert!(answer.contains(" keyspace 0 'main' is linearizable by gryff: "), "{answer}");
        }
        for line in ["GET k", "MGET k l", "EXISTS k l", "WATCH k", "KEYS *", "SCAN 0", "DBSIZE"] {
            let answer = client.say(line, &mut host);
            assert!(answer.starts_with(on_read), "{line}: {answer}");
        }
        client.say("MULTI", &mut host);
        client.say("GET k", &mut host);
        let answer = client.say("EXEC", &mut host);
        assert!(answer.starts_with(on_write), "EXEC: {answer}");
        assert!(client.say("MERIDIAN.FENCE", &mut host).starts_with(on_read));
        assert_eq!(client.say("PING", &mut host), "+PONG\r\n");
    }
}

#[test]
fn a_multi_key_write_that_is_partly_done_is_of_unknown_outcome() {
    let mut host = FakeHost::new();
    let mut client = host.connect();
    host.fail = Some(|request| match request {
        Request::Act { key, action, .. } if key == "b" && action.class() != Class::Read => {
            Some(Outcome::NoQuorum)
        }
        _ => None,
    });
    let answer = client.say("MSET a 1 b 2 c 3", &mut host);
    assert!(
        answer.starts_with("-UNKNOWNOUTCOME keyspace 0 'main' is linearizable by gryff: 2 of 3 keys"),
        "{answer}"
    );
    assert_eq!(client.say("MGET a b c", &mut host), "*3\r\n$1\r\n1\r\n$-1\r\n$1\r\n3\r\n");
}

#[test]
fn pipelined_commands_run_one_after_the_other() {
    let mut host = FakeHost::new();
    let (mut one, mut two) = (host.connect(), host.connect());
    one.send(b"SET k 1\r\nINCR k\r\nPING\r\nGET k\r\n", &mut host);
    two.send(b"GET k\r\n", &mut host);
    assert_eq!(host.pending.len(), 2, "one request a connection");
    assert!(one.take().is_empty());
    // The second connection is answered first.
    let (_, completion) = host.pending.pop().unwrap();
    two.session.on_completion(completion, &mut host);
    assert_eq!(&two.take()[..], b"$1\r\n1\r\n");
    one.settle(&mut host);
    assert_eq!(&one.take()[..], b"+OK\r\n:2\r\n+PONG\r\n$1\r\n2\r\n");
}

#[test]
fn a_client_that_does_not_read_is_not_read_from() {
    let mut host = FakeHost::new();
    let mut client = host.connect();
    let value = vec![b'x'; 400_000];
    client.ask(&command(&[&b"SET"[..], b"k", &value]), &mut host);
    for _ in 0..10 {
        client.send(b"GET k\r\n", &mut host);
    }
    client.settle(&mut host);
    let waiting = client.session.output().len();
    assert!((1_048_576..1_700_000).contains(&waiting), "{waiting}");
    assert!(!client.session.wants_input());
    let mut answered = client.take().len();
    while answered < 10 * 400_011 {
        client.session.on_input(&mut host);
        client.settle(&mut host);
        answered += client.take().len();
    }
    assert!(client.session.wants_input());
    client.send(b"GET k\r\n", &mut host);
    assert!(client.session.wants_input(), "a few commands may wait");
    client.send(&b"PING\r\n".repeat(20_000), &mut host);
    assert!(!client.session.wants_input(), "many may not");
}

#[test]
fn violations_of_the_protocol_end_the_connection() {
    for (input, answer) in [
        (&b"*1\r\n$1073741824\r\n"[..], "-ERR Protocol error: invalid bulk length\r\n"),
        (b"*9999999\r\n", "-ERR Protocol error: invalid multibulk length\r\n"),
        (b"PING\r\n*1\r\n!", "+PONG\r\n-ERR Protocol error: expected '$', got '!'\r\n"),
    ] {
        let mut host = FakeHost::new();
        let mut client = host.connect();
        assert_eq!(String::from_utf8(client.ask(input, &mut host)).unwrap(), answer);
        assert!(client.session.closing() && !client.session.wants_input());
        client.send(b"PING\r\n", &mut host);
        assert!(client.take().is_empty());
    }
    let mut host = FakeHost::new();
    let mut client = host.connect();
    assert_eq!(client.ask(b"QUIT\r\nPING\r\n", &mut host), b"+OK\r\n");
    assert!(client.session.closing());
}

#[test]
fn a_value_over_the_limit_is_refused_and_the_connection_goes_on() {
    let mut host = FakeHost::new();
    let mut client = host.connect();
    assert_eq!(client.say("CONFIG SET proto-max-bulk-len 32mb", &mut host), "+OK\r\n");
    let half = vec![b'x'; 20 * 1024 * 1024];
    assert_eq!(client.ask(&command(&[&b"APPEND"[..], b"k", &half]), &mut host), b":20971520\r\n");
    let answer = client.ask(&command(&[&b"APPEND"[..], b"k", &half]), &mut host);
    assert_eq!(
        String::from_utf8_lossy(&answer),
        "-ERR value would exceed 33554432 bytes, the most that a key may hold\r\n"
    );
    assert_eq!(client.say("STRLEN k", &mut host), ":20971520\r\n");
    assert!(client.say("CONFIG SET proto-max-bulk-len 64mb", &mut host).contains("must be between"));

    client.say("CONFIG SET proto-max-bulk-len 8mb", &mut host);
    client.say("MULTI", &mut host);
    let answer = client.ask(&command(&[&b"SET"[..], b"k", &half]), &mut host);
    assert_eq!(
        String::from_utf8_lossy(&answer),
        "-ERR a string of 20971520 bytes exceeds proto-max-bulk-len, 8388608: send less, or raise it to 33554432 at most\r\n"
    );
    assert!(client.session.input().capacity() < 1 << 20, "what was passed over is not held");
    assert!(client.say("EXEC", &mut host).starts_with("-EXECABORT"));
    let words =
        [&b"MSET"[..], b"a", &half[..8 << 20], b"b", &half[..8 << 20], b"c", &half[..8 << 20]].into_iter();
    let words: Vec<_> = words.chain(std::iter::repeat_n(&half[..8 << 20], 6)).collect();
    let answer = client.ask(&command(&words), &mut host);
    assert_eq!(
        String::from_utf8_lossy(&answer),
        "-ERR the command has more than 67108864 bytes: send it in parts\r\n"
    );
    assert_eq!(client.say("EXISTS a b c", &mut host), ":0\r\n");
}

#[test]
fn memory_runs_out_for_commands_that_need_more() {
    let mut host = FakeHost::new();
    let mut client = host.connect();
    client.say("SET k 1", &mut host);
    assert_eq!(client.say("CONFIG SET maxmemory 1mb", &mut host), "+OK\r\n");
    client.say("MULTI", &mut host);
    client.say("SET k 2", &mut host);
    host.memory = 2 << 20;
    assert_eq!(
        client.say("EXEC", &mut host),
        "-EXECABORT Transaction discarded because of: command not allowed when used memory > 'maxmemory'.\r\n"
    );
    let oom = "-OOM command not allowed when used memory > 'maxmemory'.\r\n";
    for (line, answer) in [("SET k 2", oom), ("MSET k 2", oom), ("GET k", "$1\r\n1\r\n"), ("DEL k", ":1\r\n")]
    {
        assert_eq!(client.say(line, &mut host), answer, "{line}");
    }
}

/// Reads all keys through SCAN, as a client does.
fn scan_all(client: &mut common::TestClient, host: &mut FakeHost, options: &str) -> (Vec<String>, usize) {
    let (mut cursor, mut keys, mut calls) = ("0".to_owned(), Vec::new(), 0);
    loop {
        let answer = client.say(&format!("SCAN {cursor} {options}"), host);
        let lines: Vec<_> = answer.split("\r\n").collect();
        assert_eq!(lines[0], "*2");
        lines[2].clone_into(&mut cursor);
        keys.extend(lines[4..].chunks(2).filter(|pair| pair.len() == 2).map(|pair| pair[1].to_owned()));
        calls += 1;
        if cursor == "0" {
            keys.sort();
            return (keys, calls);
        }
        assert!(cursor.parse::<i64>().is_ok(), "{cursor} fits a signed number");
    }
}

#[test]
fn keys_are_listed_by_pages() {
    let mut host = FakeHost::new();
    let mut client = host.connect();
    let mut all: Vec<_> = (0..3000).map(|i| format!("key{i}")).collect();
    for key in &all {
        client.say(&format!("SET {key} v"), &mut host);
    }
    all.sort();
    for (options, calls) in [("", 200), ("COUNT 100", 25), ("COUNT 100000", 2)] {
        let (mut keys, made) = scan_all(&mut client, &mut host, options);
        keys.dedup();
        assert_eq!(keys, all, "{options}");
        assert!((calls..calls * 2).contains(&made), "{made} calls with {options}");
    }
    client.say("LPUSH list x", &mut host);
    assert_eq!(scan_all(&mut client, &mut host, "TYPE list").0, ["list"]);
    assert_eq!(scan_all(&mut client, &mut host, "MATCH key12?4 COUNT 50").0.len(), 10);
    assert_eq!(client.say("KEYS l*", &mut host), "*1\r\n$4\r\nlist\r\n");
    assert_eq!(client.say("DBSIZE", &mut host), ":3001\r\n");
    assert_eq!(client.say("SELECT 1", &mut host), "+OK\r\n");
    assert_eq!(client.say("SCAN 0", &mut host), "*2\r\n$1\r\n0\r\n*0\r\n");
    for line in ["SCAN x", "SCAN -1", "SCAN 9223372036854775808"] {
        assert_eq!(client.say(line, &mut host), "-ERR invalid cursor\r\n");
    }
    for line in ["SCAN 0 COUNT 0", "SCAN 0 COUNT", "SCAN 0 FOO 1"] {
        assert_eq!(client.say(line, &mut host), "-ERR syntax error\r\n");
    }
}

#[test]
fn expiry_is_judged_by_the_sessions_clock() {
    let mut host = FakeHost::new();
    host.wall_ms = Some(1_000_000);
    let mut client = host.connect();
    client.say("SET k v PX 100", &mut host);
    client.say("MULTI", &mut host);
    client.say("PEXPIRE k 1000", &mut host);
    host.wall_ms = Some(1_000_099);
    assert_eq!(client.say("PTTL k", &mut host), "+QUEUED\r\n");
    assert_eq!(client.say("EXEC", &mut host), "*2\r\n:1\r\n:1000\r\n", "counted from EXEC");
    host.wall_ms = Some(1_001_099);
    assert_eq!(client.say("GET k", &mut host), "$-1\r\n");
    assert_eq!(client.say("TIME", &mut host), "*2\r\n$4\r\n1001\r\n$5\r\n99000\r\n");
}

#[test]
fn a_fence_reaches_every_keyspace_that_was_used() {
    let mut host = FakeHost::new();
    let mut client = host.connect();
    client.say("SET k v", &mut host);
    client.say("SELECT 1", &mut host);
    client.say("GET k", &mut host);
    client.send(b"MERIDIAN.FENCE\r\n", &mut host);
    assert_eq!(host.pending.len(), 2);
    client.settle(&mut host);
    assert_eq!(&client.take()[..], b"+OK\r\n");
    client.send(b"MERIDIAN.FENCE\r\n", &mut host);
    assert_eq!(host.pending.len(), 1, "only the selected one is left");
    client.settle(&mut host);
    host.fail = Some(|request| matches!(request, Request::Fence).then_some(Outcome::NoQuorum));
    client.say("GET k", &mut host);
    assert!(client.say("MERIDIAN.FENCE", &mut host).starts_with("-CLUSTERDOWN"));
}

#[test]
fn costs_are_told() {
    let mut host = FakeHost::new();
    let mut client = host.connect();
    client.say("SET k v", &mut host);
    let expected = "*10|$6|rounds|:1|$9|waited_us|:3|$6|reason|$4|test|$12|staleness_us|:0|$7|witness|$14|{\"cs\":[1,1,0]}|";
    assert_eq!(client.say("MERIDIAN.COST", &mut host).replace("\r\n", "|"), expected);
    assert_eq!(client.say("MERIDIAN.COST", &mut host).replace("\r\n", "|"), expected, "asking costs nothing");
}

#[test]
fn a_dev_cluster_can_be_hurt() {
    let mut host = FakeHost::new();
    let mut client = host.connect();
    for line in
        ["MERIDIAN.DEV CUT ca ir", "meridian.dev heal", "MERIDIAN.DEV PAUSE va", "MERIDIAN.DEV RESUME va"]
    {
        assert_eq!(client.say(line, &mut host), "+OK\r\n", "{line}");
    }
    assert_eq!(
        host.devs,
        [Dev::Cut("ca".into(), "ir".into()), Dev::Heal, Dev::Pause("va".into()), Dev::Resume("va".into())]
    );
    assert_eq!(
        client.say("MERIDIAN.DEV PAUSE mars", &mut host),
        "-ERR no region is called 'mars': there are ca, va, ir\r\n"
    );
    assert!(client.say("MERIDIAN.DEV KILL va", &mut host).starts_with("-ERR unknown subcommand 'KILL'"));
}

#[test]
fn clients_are_listed() {
    let mut host = FakeHost::new();
    let (mut one, mut two) = (host.connect(), host.connect());
    one.say("CLIENT SETNAME first", &mut host);
    one.say("CLIENT SETINFO lib-name redis-py", &mut host);
    one.say("CLIENT SETINFO LIB-VER 8.1.0", &mut host);
    two.say("SELECT 1", &mut host);
    let list = two.say("CLIENT LIST", &mut host);
    assert!(list.contains("id=1 addr=127.0.0.1:4 laddr=127.0.0.1:5 name=first "), "{list}");
    assert!(list.contains(" lib-name=redis-py lib-ver=8.1.0\n"), "{list}");
    assert!(
        list.contains("id=2 ") && list.contains(" db=1 ") && list.contains(" cmd=client|list "),
        "{list}"
    );
    assert!(!two.say("CLIENT INFO", &mut host).contains("id=1 "));
    assert!(!two.say("CLIENT LIST ID 1", &mut host).contains("id=2 "));
    assert_eq!(two.say("CLIENT LIST TYPE pubsub", &mut host), "$0\r\n\r\n");
    assert_eq!(two.say("CLIENT ID", &mut host), ":2\r\n");
    assert_eq!(
        two.say("CLIENT SETNAME 'a b'", &mut host),
        "-ERR Client names cannot contain spaces, newlines or special characters.\r\n"
    );
    one.session.on_closed(&mut host);
    assert!(!two.say("CLIENT LIST", &mut host).contains("id=1 "));
    assert!(two.say("CLIENT NO-EVICT on", &mut host).starts_with("-ERR unknown subcommand 'NO-EVICT'"));
}

#[test]
fn slow_commands_are_logged() {
    let mut host = FakeHost::new();
    let mut client = host.connect();
    client.send(&command(&[&b"SET"[..], b"k", &[b'x'; 200]]), &mut host);
    host.monotonic += 2_000_000;
    client.settle(&mut host);
    client.take();
    client.say("GET k", &mut host);
    assert_eq!(client.say("SLOWLOG LEN", &mut host), ":1\r\n");
    let log = client.say("SLOWLOG GET", &mut host);
    assert!(log.starts_with("*1\r\n*6\r\n:0\r\n:"), "{log}");
    assert!(log.contains(":2000000\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$147\r\nxxx"), "{log}");
    assert!(log.contains("... (72 more bytes)"), "{log}");
    assert_eq!(client.say("CONFIG SET slowlog-log-slower-than 0 slowlog-max-len 2", &mut host), "+OK\r\n");
    for _ in 0..5 {
        client.say("GET k", &mut host);
    }
    assert_eq!(client.say("SLOWLOG LEN", &mut host), ":2\r\n");
    assert_eq!(
        client.say("SLOWLOG GET -2", &mut host),
        "-ERR count should be greater than or equal to -1\r\n"
    );
    assert_eq!(client.say("SLOWLOG RESET", &mut host), "+OK\r\n");
    assert_eq!(client.say("SLOWLOG GET -1", &mut host), "*0\r\n");
}

#[test]
fn the_node_tells_of_itself() {
    let mut host = FakeHost::new();
    let mut client = host.connect();
    client.say("SET k v", &mut host);
    let info = client.say("INFO", &mut host);
    for line in ["redis_version:7.2.4", "loading:0", "role:master", "db0:keys=1,", "region:ca", "replicas:1"]
    {
        assert!(info.contains(&format!("\r\n{line}")), "{line} in {info}");
    }
    let section = client.say("INFO replication", &mut host);
    assert_eq!(
        section,
        "$52\r\n# Replication\r\nrole:master\r\nconnected_slaves:0\r\n\r\n"
            .replace("$52", &format!("${}", section.len() - 7))
    );
    assert_eq!(client.say("INFO nosuch", &mut host), "$0\r\n\r\n");
    assert_eq!(client.say("CONFIG GET save", &mut host), "*2\r\n$4\r\nsave\r\n$0\r\n\r\n");
    assert_eq!(client.say("CONFIG GET append*", &mut host), "*2\r\n$10\r\nappendonly\r\n$2\r\nno\r\n");
    assert_eq!(client.say("CONFIG GET nosuch", &mut host), "*0\r\n");
    assert_eq!(client.say("CONFIG SET save ''", &mut host), "+OK\r\n");
    for (line, answer) in [
        (
            "CONFIG SET appendonly yes",
            "-ERR CONFIG SET failed (possibly related to argument 'appendonly') - can't set immutable config",
        ),
        ("CONFIG SET nosuch 1", "-ERR Unknown option or number of arguments for CONFIG SET - 'nosuch'"),
        (
            "CONFIG SET timeout x",
            "-ERR CONFIG SET failed (possibly related to argument 'timeout') - argument couldn't be parsed into an integer",
        ),
        (
            "CONFIG SET timeout 5 TIMEOUT 6",
            "-ERR CONFIG SET failed (possibly related to argument 'TIMEOUT') - duplicate parameter",
        ),
        (
            "CONFIG SET timeout 5 maxmemory x",
            "-ERR CONFIG SET failed (possibly related to argument 'maxmemory') - argument must be a memory value",
        ),
        ("CONFIG SET timeout", "-ERR wrong number of arguments for 'config|set' command"),
    ] {
        assert_eq!(client.say(line, &mut host), format!("{answer}\r\n"), "{line}");
    }
    assert_eq!(
        client.say("CONFIG GET timeout", &mut host),
        "*2\r\n$7\r\ntimeout\r\n$1\r\n0\r\n",
        "all or nothing"
    );
    assert_eq!(client.say("MERIDIAN.STATUS", &mut host), "$11\r\nreplicas:1\n\r\n");
    assert!(client.say("MERIDIAN.KEYSPACES", &mut host).starts_with("*3\r\n*12\r\n$6\r\nnumber\r\n:0\r\n"));
}

#[test]
fn the_table_tells_of_commands() {
    let mut host = FakeHost::new();
    let mut client = host.connect();
    assert_eq!(
        client.say("COMMAND INFO get nosuch", &mut host).replace("\r\n", "|"),
        "*2|*10|$3|get|:2|*2|+readonly|+fast|:1|:1|:1|*3|+@read|+@string|+@fast|*0|*0|*0|*-1|"
    );
    assert!(
        client.say("COMMAND DOCS set", &mut host).starts_with("*2\r\n$3\r\nset\r\n*6\r\n$7\r\nsummary\r\n")
    );
    assert_eq!(client.say("COMMAND GETKEYS MSET a 1 b 2", &mut host), "*2\r\n$1\r\na\r\n$1\r\nb\r\n");
    assert_eq!(client.say("COMMAND GETKEYS PING", &mut host), "-ERR The command has no key arguments\r\n");
    assert_eq!(
        client.say("COMMAND LIST FILTERBY PATTERN *incrby", &mut host).replace("\r\n", "|"),
        "*2|$6|incrby|$7|hincrby|"
    );
    let count: usize = client.say("COMMAND COUNT", &mut host)[1..].trim().parse().unwrap();
    assert!(client.say("COMMAND", &mut host).starts_with(&format!("*{count}\r\n*10\r\n")));
    assert!(client.say("COMMAND LIST", &mut host).starts_with(&format!("*{count}\r\n")));
    assert!(client.say("CLIENT HELP", &mut host).contains("+SETNAME\r\n"));
}

#[test]
fn transactions_are_one_request() {
    let mut host = FakeHost::new();
    let mut client = host.connect();
    host.fail = Some(|request| match request {
        Request::Act { action: Action::Transaction { commands, watched: None }, .. } => {
            assert_eq!(commands.len(), 2);
            Some(Outcome::Aborted("seen"))
        }
        _ => None,
    });
    client.say("MULTI", &mut host);
    client.say("GET k", &mut host);
    client.say("INCR k", &mut host);
    assert!(client.say("EXEC", &mut host).contains("seen"));
}
