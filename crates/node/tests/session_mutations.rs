//! Whatever bytes a client sends, a session goes on or ends with an error, holds no more than its limits, and
//! answers the same however the bytes are cut.

mod common;

use common::{FakeHost, TestClient, command};
use rand::Rng as _;
use rand_pcg::Pcg64;

const MUTATIONS: usize = 100_000;
/// A limit that small inputs can meet.
const BULK_MAX: &str = "CONFIG SET proto-max-bulk-len 1024\r\n";

/// What clients send: conversations that reach as much of a session as they can.
fn corpus() -> Vec<Vec<u8>> {
    let lines = [
        "SET k v|GET k|SET k w NX GET EX 100|SET k w XX KEEPTTL|SET k x IFEQ w|DELIFEQ k x|GETEX k EX 5|GETDEL k",
        "INCR n|INCRBY n -5|INCRBYFLOAT n 1.5e3|APPEND n 7|SETRANGE n 3 abc|GETRANGE n 0 -1|STRLEN n|TYPE n",
        "EXPIRE n 10 GT|PEXPIREAT n 99999999999999 XX LT|TTL n|PTTL n|EXPIRETIME n|PERSIST n|SETEX n 3 v",
        "LPUSH l a b c|RPUSH l d|LRANGE l 0 -1|LINDEX l -1|LTRIM l 1 2|LREM l -1 b|LPOP l 2|RPOP l|LLEN l",
        "HSET h f 1 g 2|HMGET h f x|HINCRBY h f 5|HGETALL h|HKEYS h|HVALS h|HDEL h f|HEXISTS h g|HLEN h",
        "MSET a 1 b 2 a 3|MGET a b c|DEL a a c|EXISTS a b|UNLINK b|KEYS *|SCAN 0 MATCH ? COUNT 1 TYPE string|DBSIZE",
        "WATCH k|MULTI|SET k 1|INCR k|EXEC|MULTI|GET k|DISCARD|WATCH k l|UNWATCH|EXEC|MULTI|PING|EXEC",
        "HELLO 3 AUTH default x SETNAME me|PING|ECHO 'a \\'b'|SELECT 1|CLIENT LIST|CLIENT SETNAME x|RESET|AUTH x y",
        "INFO|CONFIG GET *|CONFIG SET timeout 5|SLOWLOG GET 3|COMMAND DOCS|COMMAND INFO get|TIME|CLIENT HELP",
        "MERIDIAN.KEYSPACES|MERIDIAN.USE social|MERIDIAN.FENCE|MERIDIAN.STATUS|MERIDIAN.COST|MERIDIAN.DEV CUT ca va",
        "MERIDIAN.USE bank|MERIDIAN.BEGIN|SET k 1|MGET k l|MERIDIAN.COMMIT|MERIDIAN.BEGIN RO|GET k|MERIDIAN.ABORT|RESET",
        "SELECT 2|WATCH k l|MULTI|MSET k 1 l 2|INCR k|DEL k m|EXEC|MERIDIAN.SNAPSHOT 1000000 MGET k l|MERIDIAN.BEGIN|QUIT",
        "SELECT 3|MERIDIAN.LEVEL|MERIDIAN.LEVEL ryw mw|MERIDIAN.LEVEL ec MSET k 1 l 2|MERIDIAN.LEVEL mr GET k|EXISTS k l",
        "FLUSHDB|NOSUCH \"a\\x41\\n\" b|GET|CLIENT NOSUCH|QUIT|PING",
    ];
    let mut corpus: Vec<Vec<u8>> = lines.iter().map(|line| line.replace('|', "\r\n").into_bytes()).collect();
    for line in lines {
        let array = |line: &str| command(&line.split(' ').collect::<Vec<_>>());
        corpus.push(line.split('|').flat_map(array).collect());
    }
    corpus.push(b"*2\r\n$3\r\nGET\r\n$1073741824\r\n".to_vec());
    corpus.push(b"*1048576\r\n$1\r\na\r\n$0\r\n\r\n*0\r\n*-1\r\n".to_vec());
    corpus
}

fn mutate(bytes: &mut Vec<u8>, random: &mut Pcg64) {
    let mut below = |bound: usize| random.next_u64() as usize % bound.max(1);
    for _ in 0..=below(3) {
        let at = below(bytes.len() + 1);
        match below(7) {
            0 => bytes.insert(at, below(256) as u8),
            1 => bytes.insert(at, b"\r\n*$0123456789\"'\\ -"[below(19)]),
            2 if at < bytes.len() => drop(bytes.remove(at)),
            3 if at < bytes.len() => bytes[at] ^= 1 << below(8),
            4 => bytes.truncate(at),
            5 => {
                let part = bytes[at..(at + below(40)).min(bytes.len())].to_vec();
                let to = below(bytes.len() + 1);
                bytes.splice(to..to, part);
            }
            _ => drop(bytes.splice(at..at, b"99999999999".iter().copied().take(below(12)))),
        }
    }
}

/// What a session answers to the bytes, sent in pieces, and whether it ends.
fn answer(bytes: &[u8], mut piece: impl FnMut(usize) -> usize) -> (Vec<u8>, bool) {
    let mut host = FakeHost::of_all_models();
    host.wall_ms = Some(1_700_000_000_000);
    let mut client: TestClient = host.connect();
    client.ask(BULK_MAX.as_bytes(), &mut host);
    let (mut rest, mut answered) = (bytes, Vec::new());
    while !rest.is_empty() {
        let (part, more) = rest.split_at(piece(rest.len()).clamp(1, rest.len()));
        rest = more;
        let mut answer = client.ask(part, &mut host);
        // A full output holds up the commands behind it until it is taken.
        while !answer.is_empty() {
            answered.append(&mut answer);
            answer = client.ask(b"", &mut host);
        }
        let waiting = client.session.input().capacity();
        assert!(waiting <= 2 * bytes.len() + 4096, "{waiting} bytes held for {} sent", bytes.len());
    }
    (answered, client.session.closing())
}

#[test]
fn mutated_conversations_end_well() {
    let (corpus, mut random) = (corpus(), Pcg64::new(7, 7));
    let (mut closed, mut errors) = (0, 0);
    for number in 0..MUTATIONS {
        let mut bytes = corpus[number % corpus.len()].clone();
        mutate(&mut bytes, &mut random);
        let (whole, closing) = answer(&bytes, |all| all);
        let cut = 1 + random.next_u64() as usize % 40;
        let pieces = answer(&bytes, |_| cut);
        assert!(
            pieces == (whole.clone(), closing),
            "mutation {number} is answered otherwise in pieces of {cut}: {:?}",
            String::from_utf8_lossy(&bytes)
        );
        closed += usize::from(closing);
        errors += usize::from(whole.windows(5).any(|window| window == b"\n-ERR"));
    }
    println!("{MUTATIONS} conversations: {errors} with errors, {closed} closed");
    assert!(closed > MUTATIONS / 20 && errors > MUTATIONS / 4, "{closed} closed, {errors} with errors");
}
