//! Users: who a connection is, what it may do, and that this is said as Redis says it.

mod common;

use common::redis::Redis;
use common::{FakeHost, command, script};
use meridian_node::session::Shared;

#[test]
fn who_has_not_said_who_it_is_is_served_nothing() {
    script(
        "> ACL WHOAMI
        $7|default|
        > ACL SETUSER default >secret
        +OK|
        > PING
        +PONG|
        > RESET
        +RESET|
        > PING
        -NOAUTH Authentication required.|
        > GET k
        -NOAUTH Authentication required.|
        > ACL WHOAMI
        -NOAUTH Authentication required.|
        > NOSUCH
        -ERR unknown command 'NOSUCH', with args beginning with: |
        > HELLO 3
        -NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time|
        > AUTH wrong
        -WRONGPASS invalid username-password pair or user is disabled.|
        > AUTH nobody secret
        -WRONGPASS invalid username-password pair or user is disabled.|
        > HELLO 3 AUTH default wrong
        -WRONGPASS invalid username-password pair or user is disabled.|
        > AUTH secret
        +OK|
        > PING
        +PONG|
        > AUTH default wrong
        -WRONGPASS invalid username-password pair or user is disabled.|
        > ACL WHOAMI
        $7|default|",
    );
}

#[test]
fn a_stranger_cannot_send_much() {
    let mut host = FakeHost::new();
    let mut operator = host.connect();
    operator.say("ACL SETUSER default >secret", &mut host);
    for (sent, why) in
        [("*11\r\n", "unauthenticated multibulk length"), ("*1\r\n$16385\r\n", "unauthenticated bulk length")]
    {
        let mut stranger = host.connect();
        let told = stranger.ask(sent.as_bytes(), &mut host);
        assert_eq!(String::from_utf8_lossy(&told), format!("-ERR Protocol error: {why}\r\n"));
        assert!(stranger.session.closing());
    }
    assert_eq!(operator.say("PING", &mut host), "+PONG\r\n");
    let long = command(&["SET", "k", &"x".repeat(20_000)]);
    assert_eq!(operator.ask(&long, &mut host), b"+OK\r\n");
}

#[test]
fn a_restricted_user_is_held_to_its_rules() {
    script(
        "> ACL SETUSER ann on >pw ~own:* %R~read:* +@read +set +config|get +select +multi +exec +acl|whoami db=main,social
        +OK|
        > AUTH ann pw
        +OK|
        > ACL WHOAMI
        $3|ann|
        > SET own:1 x
        +OK|
        > GET read:1
        $-1|
        > SET read:1 x
        -NOPERM No permissions to access a key|
        > MGET own:1 other
        -NOPERM No permissions to access a key|
        > DEL own:1
        -NOPERM User ann has no permissions to run the 'del' command|
        > CONFIG SET maxmemory 0
        -NOPERM User ann has no permissions to run the 'config|set' command|
        > ACL LIST
        -NOPERM User ann has no permissions to run the 'acl|list' command|
        > SELECT 1
        +OK|
        > GET own:1
        $-1|
        > SELECT 7
        -NOPERM User ann has no permissions to use keyspace 7 'registers'|
        > SELECT 0
        +OK|
        > MULTI
        +OK|
        > GET own:1
        +QUEUED|
        > DEL own:1
        -NOPERM User ann has no permissions to run the 'del' command|
        > EXEC
        -EXECABORT Transaction discarded because of previous errors.|
        > RESET
        +RESET|
        > ACL WHOAMI
        $7|default|",
    );
}

#[test]
fn what_follows_a_prefix_is_held_to_the_rules_too() {
    let mut host = FakeHost::of_all_models();
    let mut client = host.connect();
    client.say(
        "ACL SETUSER ann on nopass ~own:* +get +meridian.level +meridian.snapshot +select +del",
        &mut host,
    );
    client.say("AUTH ann x", &mut host);
    client.say("SELECT 3", &mut host);
    assert_eq!(client.say("MERIDIAN.LEVEL ec GET own:1", &mut host), "$-1\r\n");
    let other = client.say("MERIDIAN.LEVEL ec GET other", &mut host);
    assert_eq!(other, "-NOPERM No permissions to access a key\r\n");
    let other = client.say("MERIDIAN.LEVEL ec SET own:1 x", &mut host);
    assert_eq!(other, "-NOPERM User ann has no permissions to run the 'set' command\r\n");
    client.say("SELECT 2", &mut host);
    let other = client.say("MERIDIAN.SNAPSHOT 1 GET other", &mut host);
    assert_eq!(other, "-NOPERM No permissions to access a key\r\n");
}

#[test]
fn a_user_begins_in_its_keyspace_at_its_level() {
    let mut host = FakeHost::of_all_models();
    let mut client = host.connect();
    client.say("ACL SETUSER reports on >pw ~* +@all use=feed level=ryw,mw db=feed", &mut host);
    assert_eq!(client.say("AUTH reports pw", &mut host), "+OK\r\n");
    assert!(
        client.say("CLIENT INFO", &mut host).contains(" db=3 ")
            && client.say("CLIENT INFO", &mut host).contains(" user=reports ")
    );
    assert_eq!(
        client.say("MERIDIAN.LEVEL", &mut host),
        "*4\r\n$5\r\nreads\r\n$3\r\nryw\r\n$6\r\nwrites\r\n$2\r\nmw\r\n"
    );
    // What it asks for itself goes before.
    client.say("MERIDIAN.LEVEL mr", &mut host);
    client.say("AUTH reports pw", &mut host);
    assert!(client.say("MERIDIAN.LEVEL", &mut host).contains("$2\r\nmr\r\n"));
    client.say("RESET", &mut host);
    assert!(client.say("CLIENT INFO", &mut host).contains(" db=0 "));
    // The same inside HELLO, and for a connection that is the user from the beginning.
    assert!(client.say("HELLO 3 AUTH reports pw", &mut host).starts_with("%7"));
    assert!(client.say("CLIENT INFO", &mut host).contains(" db=3 "));
    client.say("ACL SETUSER default use=bank", &mut host);
    assert!(host.connect().say("CLIENT INFO", &mut host).contains(" db=2 "));
    // Where the default user begins says nothing of who comes next.
    let mut other = host.connect();
    other.say("ACL SETUSER feeder on nopass ~* +@all db=feed", &mut host);
    other.say("AUTH feeder x", &mut host);
    assert_eq!(
        other.say("GET k", &mut host),
        "-NOPERM User feeder has no permissions to use keyspace 0 'main'\r\n"
    );
    assert_eq!(other.say("MERIDIAN.USE feed", &mut host), "+OK\r\n");
    assert_eq!(
        other.say("MERIDIAN.USE bank", &mut host),
        "-NOPERM User feeder has no permissions to use keyspace 2 'bank'\r\n"
    );
}

#[test]
fn a_change_holds_for_connections_that_stand() {
    let mut host = FakeHost::new();
    let (mut operator, mut ann) = (host.connect(), host.connect());
    operator.say("ACL SETUSER ann on nopass ~* +@all", &mut host);
    ann.say("AUTH ann x", &mut host);
    assert_eq!(ann.say("SET k v", &mut host), "+OK\r\n");
    ann.say("MULTI", &mut host);
    ann.say("GET k", &mut host);
    ann.say("SET k w", &mut host);
    operator.say("ACL SETUSER ann -set", &mut host);
    let told = ann.say("EXEC", &mut host);
    assert!(told.starts_with("*2\r\n$1\r\nv\r\n-NOPERM ACLs rules changed between the moment"), "{told}");
    assert!(told.contains("reason: no permission to execute the command or subcommand"), "{told}");
    assert_eq!(ann.say("GET k", &mut host), "$1\r\nv\r\n", "the write was not carried out");

    // Off keeps out who comes, and not who is in, as in Redis.
    operator.say("ACL SETUSER ann off", &mut host);
    assert_eq!(ann.say("GET k", &mut host), "$1\r\nv\r\n");
    assert!(host.connect().say("AUTH ann x", &mut host).starts_with("-WRONGPASS"));
    // Who is deleted goes.
    assert_eq!(operator.say("ACL DELUSER ann nobody", &mut host), ":1\r\n");
    assert!(ann.session.is_departed() && !operator.session.is_departed());
    assert!(host.shared.users.take_departed());
    operator.say("ACL SETUSER eve on nopass +@all", &mut host);
    operator.say("AUTH eve x", &mut host);
    assert_eq!(operator.say("ACL DELUSER eve", &mut host), ":1\r\n");
    assert!(operator.session.closing(), "whoever deletes itself has its answer, and goes");
}

#[test]
fn what_was_written_before_rights_were_taken_away_is_not_committed() {
    let mut host = FakeHost::of_all_models();
    let (mut operator, mut ann) = (host.connect(), host.connect());
    operator.say("ACL SETUSER ann on nopass ~* +@all", &mut host);
    operator.say("SELECT 2", &mut host);
    ann.say("AUTH ann x", &mut host);
    ann.say("SELECT 2", &mut host);
    let refused =
        "-NOPERM what this user may do has changed since MERIDIAN.BEGIN: nothing was done, begin again\r\n";
    // Who may do everything now may have done what it did.
    for (change, answer, there) in [("resetkeys ~own:*", refused, ":0\r\n"), ("~*", "+OK\r\n", ":1\r\n")] {
        assert_eq!(ann.say("MERIDIAN.BEGIN", &mut host), "+OK\r\n");
        assert_eq!(ann.say("SET own:k v", &mut host), "+OK\r\n");
        operator.say(&format!("ACL SETUSER ann {change}"), &mut host);
        assert_eq!(ann.say("MERIDIAN.COMMIT", &mut host), answer, "{change}");
        assert_eq!(host.open_transactions(), 0);
        assert_eq!(operator.say("EXISTS own:k", &mut host), there, "{change}");
    }
}

#[test]
fn another_user_begins_without_what_the_former_one_was_given() {
    let mut host = FakeHost::of_all_models();
    let mut client = host.connect();
    client.say("ACL SETUSER reports on nopass ~* +@all use=feed level=ryw,mw", &mut host);
    client.say("ACL SETUSER plain on nopass ~* +@all", &mut host);
    client.say("AUTH reports x", &mut host);
    client.say("AUTH plain x", &mut host);
    assert!(client.say("CLIENT INFO", &mut host).contains(" db=0 "));
    client.say("SELECT 3", &mut host);
    assert!(client.say("MERIDIAN.LEVEL", &mut host).contains("$2\r\ncc\r\n"));
    client.say("SELECT 4", &mut host);
    client.say("AUTH default x", &mut host);
    assert!(client.say("CLIENT INFO", &mut host).contains(" db=4 "), "what was selected stays");
}

#[test]
fn what_takes_long_to_compare_is_refused() {
    let mut host = FakeHost::new();
    let mut client = host.connect();
    for command in [format!("KEYS {}", "[".repeat(1_025)), format!("SCAN 0 MATCH {}", "*".repeat(1_025))] {
        let told = client.say(&command, &mut host);
        assert_eq!(told, "-ERR a pattern has at most 1024 bytes, and this one 1025\r\n");
    }
    let many = "~a ".repeat(4_097);
    let told = client.say(&format!("ACL SETUSER ann {many}"), &mut host);
    assert_eq!(told, "-ERR At most 4096 rules can be given at once, and here are 4097\r\n");
    assert_eq!(client.say("ACL GETUSER ann", &mut host), "$-1\r\n", "there is no such user");
    let told = client.ask(&command(&["ACL", "SETUSER", "a\x07b"]), &mut host);
    assert!(String::from_utf8_lossy(&told).contains("without control characters"));
}

#[test]
fn the_default_user_that_is_opened_lets_in_who_waits() {
    let mut host = FakeHost::new();
    let mut operator = host.connect();
    operator.say("ACL SETUSER default >pw", &mut host);
    let mut client = host.connect();
    assert!(client.say("PING", &mut host).starts_with("-NOAUTH"));
    operator.say("ACL SETUSER default nopass", &mut host);
    assert_eq!(client.say("PING", &mut host), "+PONG\r\n");
}

#[test]
fn a_user_is_held_to_its_rate_over_all_of_its_connections() {
    let mut host = FakeHost::new();
    let (mut one, mut other) = (host.connect(), host.connect());
    one.say("ACL SETUSER ann on nopass ~* +@all rate=10", &mut host);
    for client in [&mut one, &mut other] {
        assert_eq!(client.say("AUTH ann x", &mut host), "+OK\r\n");
    }
    for _ in 0..5 {
        assert_eq!(one.say("PING", &mut host), "+PONG\r\n");
        assert_eq!(other.say("PING", &mut host), "+PONG\r\n");
    }
    let told = one.say("SET k v", &mut host);
    assert_eq!(
        told,
        "-TRYAGAIN user ann may send 10 commands a second, and has: wait a little, then send it again\r\n"
    );
    assert_eq!(other.say("AUTH ann x", &mut host), "+OK\r\n", "who one is can always be said");
    host.monotonic += 100_000;
    assert_eq!(other.say("GET k", &mut host), "$-1\r\n", "nothing was done");
    assert!(one.say("PING", &mut host).starts_with("-TRYAGAIN"));
}

#[test]
fn what_is_refused_or_says_who_one_is_does_not_count_against_a_rate() {
    let mut host = FakeHost::of_all_models();
    let mut client = host.connect();
    let told = client.say("ACL SETUSER ann on nopass ~a* +@all -config use=feed rate=3", &mut host);
    assert_eq!(told, "+OK\r\n");
    assert_eq!(client.say("AUTH ann x", &mut host), "+OK\r\n");
    for (line, answer) in [
        ("HELLO 2 AUTH ann x", "*14\r\n"),
        ("AUTH ann wrong", "+OK"),
        ("CONFIG GET *", "-NOPERM"),
        ("GET b", "-NOPERM"),
        ("GET", "-ERR wrong number"),
        ("NOSUCH", "-ERR unknown command"),
        ("RESET", "+RESET"),
        ("AUTH ann x", "+OK"),
    ] {
        for _ in 0..3 {
            assert!(client.say(line, &mut host).starts_with(answer), "{line}");
        }
    }
    // A command that comes behind another one's words is one command.
    host.shared.tunables.maxmemory = 1;
    host.memory = 2;
    assert!(client.say("SET a v", &mut host).starts_with("-OOM"));
    assert_eq!(client.say("PING", &mut host), "+PONG\r\n");
    assert_eq!(client.say("MERIDIAN.LEVEL ec GET a", &mut host), "$-1\r\n");
    assert_eq!(client.say("PING", &mut host), "+PONG\r\n");
    assert!(client.say("PING", &mut host).starts_with("-TRYAGAIN"));
    assert_eq!(client.say("QUIT", &mut host), "+OK\r\n");
}

#[test]
fn passwords_are_in_no_answer_and_no_log() {
    let mut host = FakeHost::new();
    host.shared.tunables.slow_log_slower_than = 0;
    let mut client = host.connect();
    for line in [
        "ACL SETUSER ann on >hunter2 ~* +@all",
        "AUTH ann hunter2",
        "HELLO 2 AUTH ann hunter2",
        "ACL SETUSER ann >hunter2 nosuch",
        "ACL SETUSER ann <hunter2x",
        "SET k v",
        "ACL LIST",
        "ACL GETUSER ann",
        "CLIENT LIST",
        "INFO",
        "SLOWLOG GET 100",
    ] {
        let told = client.say(line, &mut host);
        assert!(!told.contains("hunter2"), "{line}: {told}");
    }
    assert!(client.say("SLOWLOG GET 100", &mut host).contains("$3\r\nSET\r\n"), "the log is on");
    assert!(!format!("{:?}", host.shared).contains("hunter2"));
}

/// Redis's error lines of 7.0, which 7.2 has worded anew, as 7.2 words them.
fn as_newer(reply: &str, user: &str) -> String {
    let command = format!("-NOPERM User {user} has no permissions to run");
    reply
        .replace("-NOPERM this user has no permissions to run", &command)
        .replace(
            "this user has no permissions to access one of the keys used as arguments",
            "No permissions to access a key",
        )
        // Meridian repeats no password.
        .replace("modifier '<pw2'", "modifier '<'")
        .replace("the HELLO AUTH <user>", "the HELLO <proto> AUTH <user>")
}

/// Redis 7.0 tells a user's commands in no order, and 7.2 in that in which they were said.
fn in_any_order(reply: &str) -> String {
    let sorted = |line: &str| {
        let mut words: Vec<&str> = line.split(' ').collect();
        if ["user", "+@all", "-@all"].contains(&words[0]) {
            words[1..].sort_unstable();
        }
        words.join(" ")
    };
    reply.split("\r\n").map(sorted).collect::<Vec<_>>().join("\r\n")
}

/// The same lines to a real Redis and to a session, in both versions of the protocol.
#[test]
fn answers_about_users_are_those_of_redis() {
    for protocol in ["2", "3"] {
        let Some(mut redis) = Redis::start() else { return };
        let mut host = FakeHost::new();
        host.shared = Shared::of(&host.keyspaces);
        let mut ours = host.connect();
        let mut user = "default";
        let mut compared = 0;
        for line in LINES.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let line = line.replace("PROTO", protocol);
            let words: Vec<&str> = line.split(' ').collect();
            let bytes = command(&words);
            let theirs = redis.ask(&bytes);
            let mine = ours.ask(&bytes, &mut host);
            if let (["AUTH", name, _], b"+OK\r\n") = (&words[..], &mine[..]) {
                user = if *name == "ann" { "ann" } else { "default" };
            }
            let (theirs, mine) = (String::from_utf8_lossy(&theirs), String::from_utf8_lossy(&mine));
            // The greeting tells who one speaks to.
            if words[0] != "HELLO" || mine.starts_with('-') {
                let theirs = in_any_order(&as_newer(&theirs, user));
                assert_eq!(theirs, in_any_order(&mine), "RESP{protocol}: {line}");
                compared += 1;
            }
        }
        assert!(compared > 100, "only {compared} answers were compared");
    }
}

const LINES: &str = "
    HELLO PROTO
    ACL WHOAMI
    ACL LIST
    ACL USERS
    ACL GETUSER default
    ACL GETUSER ann
    ACL SETUSER ann
    ACL GETUSER ann
    ACL SETUSER ann on >pw >pw2 ~x* %R~y* %W~z* &ch +get +set +mget +config|get +acl|whoami +lrange +strlen +lmove +getset +multi +exec +llen +select
    ACL GETUSER ann
    ACL LIST
    ACL USERS
    ACL SETUSER ann <pw2
    ACL SETUSER ann <pw2
    ACL SETUSER ann #12
    ACL SETUSER ann #30C952FAB122C3F9759F02A6D95C3758B246B4FEE239957B2D4FEE46E26170C4
    ACL SETUSER ann #30c952fab122c3f9759f02a6d95c3758b246b4fee239957b2d4fee46e26170c4
    ACL SETUSER bob !30c952fab122c3f9759f02a6d95c3758b246b4fee239957b2d4fee46e26170c4
    ACL SETUSER bob +nosuch
    ACL SETUSER bob -nosuch
    ACL SETUSER bob +@nosuch
    ACL SETUSER bob +config|nosuch
    ACL SETUSER bob +get|
    ACL SETUSER bob +client|list|x
    ACL SETUSER bob nosuch
    ACL SETUSER bob %X~a
    ACL SETUSER bob allkeys ~a
    ACL SETUSER bob ~* %R~a
    ACL SETUSER bob allchannels &a
    ACL GETUSER bob
    ACL SETUSER cid on nopass allkeys allcommands allchannels
    ACL GETUSER cid
    ACL SETUSER cid resetpass resetkeys resetchannels nocommands
    ACL GETUSER cid
    ACL SETUSER cid +@all -get
    ACL GETUSER cid
    ACL SETUSER cid skip-sanitize-payload
    ACL GETUSER cid
    ACL SETUSER cid reset
    ACL GETUSER cid
    ACL DELUSER default
    ACL DELUSER ann default
    ACL DELUSER nobody
    ACL DELUSER bob cid
    ACL USERS
    ACL CAT nosuch
    ACL CAT read write
    ACL CAT pubsub extra
    ACL CAT bitmap extra
    ACL GENPASS 0
    ACL GENPASS 4097
    ACL GENPASS x
    ACL GENPASS 1 2
    ACL NOSUCH
    ACL
    ACL SETUSER
    ACL GETUSER
    ACL GETUSER a b
    ACL WHOAMI x
    ACL LIST x
    AUTH
    AUTH x
    AUTH a b c
    AUTH ann wrong
    AUTH nobody pw
    AUTH ann pw
    ACL WHOAMI
    ACL LIST
    ACL USERS
    GET x1
    SET x1 1
    SET y1 1
    SET z1 1
    SET z1 1 GET
    GET z1
    GET y1
    GET other
    STRLEN z1
    STRLEN other
    MGET x1 y1
    MGET x1 z1
    MGET x1 other
    LRANGE y2 0 1
    LMOVE x2 z2 LEFT RIGHT
    LMOVE y2 x2 LEFT RIGHT
    LMOVE z2 x2 LEFT RIGHT
    GETSET y1 1
    GETSET z1 1
    GETSET x1 2
    CONFIG GET nosuch
    CONFIG SET nosuch 1
    CLIENT ID
    CLIENT LIST
    PING
    DEL x1
    NOSUCH
    GET
    MULTI
    GET x1
    GET other
    EXEC
    MULTI
    LLEN x2
    DEL x1
    EXEC
    MULTI
    GET x1
    EXEC
    SELECT 1
    SELECT 0
    AUTH default x
    PING
    ACL SETUSER default >secret
    PING
    AUTH secret
    AUTH default secret
    RESET
    PING
    GET x
    NOSUCH
    GET
    ACL WHOAMI
    HELLO PROTO
    HELLO PROTO AUTH default wrong
    HELLO PROTO AUTH nobody secret
    HELLO PROTO AUTH default secret
    PING
    ACL WHOAMI
    AUTH ann pw
    ACL WHOAMI
    AUTH default secret
    ACL SETUSER ann off
    AUTH ann pw
    ACL SETUSER default resetpass
    AUTH secret
    AUTH default secret
    PING
    ACL SETUSER default nopass
    AUTH secret
    AUTH default anything
    ACL DELUSER ann
    AUTH ann pw
";
