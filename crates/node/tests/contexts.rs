//! Sessions that go from keyspace to keyspace, and from session to session: what is fenced and entered ahead of which
//! command, and what a context carries.

#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

mod common;

use common::{FakeHost, SECRET, TestClient};
use meridian_node::session::KeyspaceInfo;
use meridian_node::token::{Carried, Tokens};
use meridian_protocol::machine::{Context, Outcome, Request};
use meridian_protocol::registry::Model;

const LINEARIZABLE: usize = 0;
const RSC: usize = 1;
const RSS: usize = 2;
const RSS2: usize = 3;
const TCC: usize = 4;
const CONTRARIAN: usize = 5;

/// Keyspaces of each role, by number as by place.
fn host() -> FakeHost {
    host_with("connection")
}

/// As [`host`], with that scope for the second rss keyspace.
fn host_with(scope: &'static str) -> FakeHost {
    let mut host = FakeHost::of_all_models();
    let keyspace = |number, model, engine, session| {
        let name = format!("k{number}");
        KeyspaceInfo { number, name, model, engine, partitions: 1, session }
    };
    host.keyspaces = vec![
        keyspace(0, Model::Linearizable, "gryff", "connection"),
        keyspace(1, Model::Rsc, "gryff-rsc", "connection"),
        keyspace(2, Model::Rss, "spanner-rss", "connection"),
        keyspace(3, Model::Rss, "spanner-rss", scope),
        keyspace(4, Model::Causal, "tcc", "connection"),
        keyspace(5, Model::Causal, "contrarian", "connection"),
    ];
    host
}

fn word(request: &Request) -> &'static str {
    match request {
        Request::Fence => "fence",
        Request::Enter => "enter",
        Request::Export => "export",
        Request::Import(_) => "import",
        _ => "act",
    }
}

/// What was asked of which keyspace since the last call.
fn asked(host: &mut FakeHost) -> Vec<(usize, &'static str)> {
    host.asked.drain(..).map(|(keyspace, request)| (keyspace, word(&request))).collect()
}

fn say(client: &mut TestClient, host: &mut FakeHost, lines: &[&str]) -> String {
    lines.iter().map(|line| client.say(line, host)).last().unwrap()
}

fn get_token(client: &mut TestClient, host: &mut FakeHost) -> String {
    let answer = client.say("MERIDIAN.CONTEXT GET", host);
    answer.lines().nth(1).unwrap_or_else(|| panic!("no token: {answer}")).to_owned()
}

fn tokens() -> Tokens {
    Tokens::new("test", SECRET).unwrap()
}

/// What a token says, by keyspace.
fn told(token: &str) -> Vec<(u16, bool, Vec<u64>)> {
    let now_s = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let carried = tokens().read(token.as_bytes(), now_s).unwrap();
    carried.into_iter().map(|Carried { keyspace, owed, context }| (keyspace, owed, context.0)).collect()
}

#[test]
fn who_goes_to_another_keyspace_fences_all_that_it_owes_first() {
    let mut host = host();
    let mut client = host.connect();
    say(&mut client, &mut host, &["SELECT 1", "GET k", "SELECT 2", "GET k"]);
    assert_eq!(asked(&mut host), [(RSC, "act"), (RSS, "enter"), (RSC, "fence"), (RSS, "act")]);
    say(&mut client, &mut host, &["SELECT 1", "GET k", "SELECT 0"]);
    asked(&mut host);
    client.send(b"GET k\r\n", &mut host);
    assert_eq!(asked(&mut host), [(RSC, "fence")], "the rss one was fenced on the way back");
    client.settle(&mut host);
    assert_eq!(asked(&mut host), [(LINEARIZABLE, "act")]);
    assert_eq!(&client.take()[..], b"$-1\r\n");
    say(&mut client, &mut host, &["GET k", "SELECT 1", "GET k"]);
    assert_eq!(asked(&mut host), [(LINEARIZABLE, "act"), (RSC, "act")], "a linearizable one is owed nothing");
}

#[test]
fn several_fences_run_at_once_and_the_command_after_all_of_them() {
    let mut host = host();
    let mut client = host.connect();
    let context = tokens().write(
        &[1, 2, 3].map(|keyspace| Carried { keyspace, owed: true, context: Context::default() }),
        std::time::UNIX_EPOCH.elapsed().unwrap().as_secs(),
    );
    assert_eq!(client.say(&format!("MERIDIAN.CONTEXT SET {context}"), &mut host), "+OK\r\n");
    // Two commands in one piece: the second must not overtake the first.
    client.send(b"SET k v\r\nGET k\r\n", &mut host);
    assert_eq!(asked(&mut host), [(RSC, "fence"), (RSS, "fence"), (RSS2, "fence")]);
    for _ in 0..2 {
        let (_, completion) = host.pending.pop().unwrap();
        client.session.on_completion(completion, &mut host);
        assert_eq!(asked(&mut host), []);
    }
    client.settle(&mut host);
    assert_eq!(asked(&mut host), [(LINEARIZABLE, "act"), (LINEARIZABLE, "act")]);
    assert_eq!(&client.take()[..], b"+OK\r\n$1\r\nv\r\n");
}

#[test]
fn what_fails_is_owed_on_and_nothing_is_done() {
    let mut host = host();
    let mut client = host.connect();
    say(&mut client, &mut host, &["SELECT 2", "GET k", "SELECT 0"]);
    host.fail = Some(|request| matches!(request, Request::Fence).then_some(Outcome::NoQuorum));
    let refused = client.say("SET k v", &mut host);
    assert!(refused.starts_with("-CLUSTERDOWN keyspace 2 "), "{refused}");
    assert_eq!(asked(&mut host), [(RSS, "act"), (RSS, "fence")]);
    host.fail = None;
    assert_eq!(client.say("GET k", &mut host), "$-1\r\n", "it was not set");
    assert_eq!(asked(&mut host), [(RSS, "fence"), (LINEARIZABLE, "act")]);
    // An operation that failed may have shown something.
    host.fail = Some(|request| matches!(request, Request::Act { .. }).then_some(Outcome::LATE));
    say(&mut client, &mut host, &["SELECT 1", "SET k v"]);
    host.fail = None;
    say(&mut client, &mut host, &["SELECT 0", "GET k"]);
    assert_eq!(asked(&mut host), [(RSC, "act"), (RSC, "fence"), (LINEARIZABLE, "act")]);
}

#[test]
fn every_kind_of_command_pays_what_is_owed() {
    let each: &[(&[&str], &str)] = &[
        (&["SELECT 2"], "MGET a b"),
        (&["SELECT 2"], "MERIDIAN.BEGIN"),
        (&["SELECT 2"], "WATCH k"),
        (&["SELECT 2"], "MERIDIAN.SNAPSHOT 1 GET k"),
        (&["SELECT 2", "MULTI", "SET k v"], "EXEC"),
        (&["SELECT 0"], "DBSIZE"),
        (&["SELECT 0"], "SCAN 0"),
        (&["SELECT 4"], "MERIDIAN.LEVEL ec GET k"),
    ];
    for (before, line) in each {
        let mut host = host();
        let mut client = host.connect();
        say(&mut client, &mut host, &["SELECT 1", "GET k"]);
        asked(&mut host);
        say(&mut client, &mut host, before);
        let answer = client.say(line, &mut host);
        let asked = asked(&mut host);
        assert!(
            asked.contains(&(RSC, "fence")) && asked.last().unwrap().1 == "act" || line.contains("BEGIN"),
            "{line}: {asked:?}"
        );
        assert!(asked.contains(&(RSC, "fence")), "{line}");
        assert!(!answer.starts_with('-'), "{line}: {answer}");
    }
    let mut host = host();
    let mut client = host.connect();
    say(&mut client, &mut host, &["SELECT 1", "GET k", "SELECT 2"]);
    asked(&mut host);
    say(
        &mut client,
        &mut host,
        &["PING", "TIME", "MULTI", "GET k", "DISCARD", "MERIDIAN.COST", "SELECT 4", "MERIDIAN.LEVEL ec"],
    );
    assert_eq!(asked(&mut host), [], "what touches no key crosses nothing");
}

#[test]
fn leaving_a_causal_keyspace_runs_nothing() {
    let mut host = host();
    let mut client = host.connect();
    say(&mut client, &mut host, &["SELECT 4", "SET k v", "SELECT 5", "SET k v", "SELECT 2", "GET k"]);
    assert_eq!(asked(&mut host), [(TCC, "act"), (CONTRARIAN, "act"), (RSS, "act")]);
    say(&mut client, &mut host, &["MERIDIAN.FENCE"]);
    let mut fenced = asked(&mut host);
    fenced.sort_unstable();
    assert_eq!(fenced, [(RSS, "fence"), (TCC, "fence"), (CONTRARIAN, "fence")], "asked for, it covers all");
}

#[test]
fn the_cost_names_the_fence() {
    let mut host = host();
    let mut client = host.connect();
    say(&mut client, &mut host, &["SELECT 1", "GET k", "SELECT 0"]);
    client.send(b"GET k\r\n", &mut host);
    host.monotonic += 150_000;
    client.settle(&mut host);
    client.take();
    let cost = client.say("MERIDIAN.COST", &mut host).replace("\r\n", " ");
    assert!(cost.contains("rounds $1 :2 ") || cost.contains("rounds :2 "), "{cost}");
    assert!(cost.contains("waited_us :150003 ") && cost.contains("the fence of an rsc keyspace"), "{cost}");
    client.say("GET k", &mut host);
    let cost = client.say("MERIDIAN.COST", &mut host);
    assert!(cost.contains("test") && !cost.contains("fence"), "{cost}");
}

#[test]
fn a_context_takes_debts_and_memory_along() {
    let mut host = host();
    let (mut one, mut two) = (host.connect(), host.connect());
    host.contexts[RSS] = Context(vec![77]);
    host.contexts[TCC] = Context(vec![9; 9]);
    say(&mut one, &mut host, &["GET k", "SELECT 1", "GET k", "SELECT 2", "GET k", "SELECT 4", "GET k"]);
    asked(&mut host);
    let token = get_token(&mut one, &mut host);
    let mut exported = asked(&mut host);
    exported.sort_unstable();
    assert_eq!(exported, [(LINEARIZABLE, "export"), (RSC, "export"), (RSS, "export"), (TCC, "export")]);
    let mut all = told(&token);
    all.sort();
    assert_eq!(all, [(0, false, vec![]), (1, false, vec![]), (2, false, vec![77]), (4, false, vec![9; 9])]);

    host.contexts.fill(Context::default());
    assert_eq!(two.say(&format!("MERIDIAN.CONTEXT MERGE {token}"), &mut host), "+OK\r\n");
    let mut imported = asked(&mut host);
    imported.sort_unstable();
    assert_eq!(imported, [(RSS, "import"), (TCC, "import")]);
    assert_eq!((&host.contexts[RSS].0[..], host.contexts[TCC].0.len()), (&[77][..], 9));
    assert!(host.forgotten.is_empty());
    say(&mut two, &mut host, &["SELECT 3", "GET k"]);
    assert_eq!(
        asked(&mut host),
        [(RSS2, "enter"), (RSS2, "act")],
        "what the exporter has fenced is not owed"
    );

    // One that is left without a fence is.
    say(&mut one, &mut host, &["SELECT 2", "GET k"]);
    let token = get_token(&mut one, &mut host);
    asked(&mut host);
    assert_eq!(two.say(&format!("MERIDIAN.CONTEXT SET {token}"), &mut host), "+OK\r\n");
    assert_eq!(host.forgotten.len(), 1, "set begins anew");
    asked(&mut host);
    say(&mut two, &mut host, &["SELECT 0", "GET k"]);
    assert_eq!(asked(&mut host), [(RSS, "fence"), (LINEARIZABLE, "act")]);
}

#[test]
fn a_context_that_is_no_good_is_refused_at_once() {
    let mut host = host();
    let mut client = host.connect();
    let now_s = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let carried =
        |keyspace, entries: usize| Carried { keyspace, owed: true, context: Context(vec![1; entries]) };
    let write = |cluster: &str, secret: &[u8], carried: Carried, now_s| {
        Tokens::new(cluster, secret).unwrap().write(&[carried], now_s)
    };
    for (token, why) in [
        ("hello".into(), "not base64url"),
        ("x".repeat(1025), "1025 characters"),
        (write("prod", SECRET, carried(2, 1), now_s), "another cluster"),
        (write("test", b"another secret !!", carried(2, 1), now_s), "forged"),
        (write("test", SECRET, carried(2, 1), now_s - 4_000), "expired 400 s ago"),
        (write("test", SECRET, carried(9, 1), now_s), "keyspace 9, which is unknown"),
        (write("test", SECRET, carried(4, 3), now_s), "tcc says 9"),
        (write("test", SECRET, carried(0, 1), now_s), "gryff says 0"),
    ] {
        for how in ["SET", "MERGE"] {
            let answer = client.say(&format!("MERIDIAN.CONTEXT {how} {token}"), &mut host);
            assert!(answer.starts_with("-BADTOKEN it") && answer.contains(why), "{why}: {answer}");
            assert_eq!(answer.matches('\n').count(), 1);
        }
    }
    assert!(asked(&mut host).is_empty() && host.forgotten.is_empty());
    host.shared.tokens = None;
    assert!(client.say("MERIDIAN.CONTEXT GET", &mut host).contains("secret_file"));
    assert!(client.say("MERIDIAN.CONTEXT SET x", &mut host).contains("secret_file"));
}

#[test]
fn what_does_not_fit_is_fenced_away_the_longest_unused_first() {
    let mut host = host();
    let mut client = host.connect();
    // As many regions as would make each of them half a token.
    host.contexts[TCC] = Context(vec![u64::MAX; 50]);
    host.contexts[CONTRARIAN] = Context(vec![u64::MAX; 50]);
    say(&mut client, &mut host, &["SELECT 5", "SET k v", "SELECT 4", "SET k v"]);
    asked(&mut host);
    let token = get_token(&mut client, &mut host);
    assert!(token.len() <= 1024);
    let asked = asked(&mut host);
    assert_eq!(asked.last(), Some(&(CONTRARIAN, "fence")), "{asked:?}");
    assert_eq!(told(&token), [(4, false, vec![u64::MAX; 50])]);
}

#[test]
fn connections_of_one_name_owe_together() {
    let mut host = host_with("client-name");
    let (mut one, mut two, mut other) = (host.connect(), host.connect(), host.connect());
    for client in [&mut one, &mut two] {
        client.say("CLIENT SETNAME app", &mut host);
    }
    say(&mut one, &mut host, &["SELECT 3", "GET k"]);
    say(&mut two, &mut host, &["SELECT 3"]);
    asked(&mut host);
    two.say("GET k", &mut host);
    // The name is of no meaning where connections keep apart, until one has used what they share.
    say(&mut two, &mut host, &["SELECT 1", "GET k"]);
    assert_eq!(asked(&mut host), [(RSS2, "act"), (RSS2, "fence"), (RSC, "act")]);
    one.say("SELECT 0", &mut host);
    one.say("GET k", &mut host);
    assert_eq!(asked(&mut host), [(RSC, "fence"), (LINEARIZABLE, "act")], "the other connection's debt");
    say(&mut other, &mut host, &["GET k"]);
    assert_eq!(asked(&mut host), [(LINEARIZABLE, "act")]);
    assert_eq!(host.shared.groups.len(), 1);
    one.session.on_closed(&mut host);
    assert_eq!(host.shared.groups.len(), 1);
    two.session.on_closed(&mut host);
    assert!(host.shared.groups.is_empty());
}

#[test]
fn what_a_node_shares_is_told_by_any_of_its_connections() {
    let mut host = host_with("node");
    let mut client = host.connect();
    host.contexts[RSS2] = Context(vec![5]);
    assert_eq!(told(&get_token(&mut client, &mut host)), [(3, true, vec![5])]);
    host.contexts[RSS2] = Context(vec![0]);
    assert_eq!(told(&get_token(&mut client, &mut host)), [], "nobody has used it");
    assert_eq!(host.asked.len(), 2);
}

#[test]
fn contexts_are_not_taken_inside_transactions() {
    let mut host = host();
    let mut client = host.connect();
    say(&mut client, &mut host, &["SELECT 2", "MERIDIAN.BEGIN"]);
    for word in ["GET", "RESET", "SET x", "MERGE x"] {
        let told = client.say(&format!("MERIDIAN.CONTEXT {word}"), &mut host);
        assert!(told.contains("not served inside MERIDIAN.BEGIN"), "{told}");
    }
    say(&mut client, &mut host, &["MERIDIAN.ABORT", "MULTI"]);
    assert!(client.say("MERIDIAN.CONTEXT GET", &mut host).contains("not served inside MULTI"));
}

#[test]
fn a_session_that_comes_from_elsewhere_enters_where_that_counts() {
    let mut host = host();
    let mut client = host.connect();
    for (keyspace, entered) in [(LINEARIZABLE, false), (RSC, false), (RSS, true), (TCC, false)] {
        client.say(&format!("SELECT {keyspace}"), &mut host);
        assert_eq!(client.say("MERIDIAN.ENTER", &mut host), "+OK\r\n");
        let expected = if entered { vec![(keyspace, "enter")] } else { Vec::new() };
        assert_eq!(asked(&mut host), expected, "keyspace {keyspace}");
    }
    client.say("SELECT 2", &mut host);
    host.fail = Some(|request| matches!(request, Request::Enter).then_some(Outcome::NoQuorum));
    let refused = client.say("MERIDIAN.ENTER", &mut host);
    assert!(refused.starts_with("-CLUSTERDOWN keyspace 2 "), "{refused}");
    host.fail = None;
    asked(&mut host);
    assert_eq!(say(&mut client, &mut host, &["MERIDIAN.BEGIN", "MERIDIAN.ENTER"]).get(..4), Some("-ERR"));
}

#[test]
fn a_session_that_begins_anew_owes_nothing_and_carries_nothing() {
    for reset in ["RESET", "MERIDIAN.CONTEXT RESET"] {
        let mut host = host();
        let mut client = host.connect();
        say(&mut client, &mut host, &["SELECT 2", "SET k v"]);
        asked(&mut host);
        assert_eq!(say(&mut client, &mut host, &[reset, "SELECT 0", "GET k"]), "$-1\r\n");
        assert_eq!(asked(&mut host), [(LINEARIZABLE, "act")]);
        assert_eq!(host.forgotten.len(), 1, "replicas' clients forget it too");
        let token = get_token(&mut client, &mut host);
        assert!(told(&token).iter().all(|(keyspace, ..)| *keyspace == 0), "{:?}", told(&token));
    }
}

#[test]
fn a_fence_of_what_has_none_is_refused_by_name() {
    let mut host = host();
    host.keyspaces[RSS2].model = Model::PoSerializable;
    host.keyspaces[RSS2].engine = "spanner-po";
    let mut client = host.connect();
    say(&mut client, &mut host, &["SELECT 3", "SET k v", "SELECT 1", "SET k v"]);
    asked(&mut host);
    let refusal = "-ERR keyspace 3 'k3' is po-serializable by spanner-po, which has no fence, and this session uses it: pass on \
                   MERIDIAN.CONTEXT GET, or RESET to forget what was used\r\n";
    assert_eq!(client.say("MERIDIAN.FENCE", &mut host), refusal);
    assert_eq!(asked(&mut host), [], "nothing was fenced");
    assert_eq!(say(&mut client, &mut host, &["RESET", "SELECT 1", "SET k v", "MERIDIAN.FENCE"]), "+OK\r\n");
}

#[test]
fn what_no_model_serves_inside_multi_is_not_said_to_be_served_by_another() {
    let mut host = host();
    for keyspace in ["0", "2", "5"] {
        let mut client = host.connect();
        let told = say(&mut client, &mut host, &[&format!("SELECT {keyspace}"), "MULTI", "MERIDIAN.FENCE"]);
        assert!(
            told.starts_with("-ERR MERIDIAN.FENCE is not served inside MULTI: a transaction is"),
            "{told}"
        );
    }
}
