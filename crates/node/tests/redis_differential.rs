//! The same commands to a real Redis 7 and to a session, and the same bytes back.
//!
//! The test starts `redis-server` from the path, or `$REDIS_SERVER`; without one it says so and passes, unless
//! `MERIDIAN_REQUIRE_REDIS` is set, as `make test` does. Documented differences are listed in [`Comparison`].

#![expect(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

mod common;

use common::redis::{Connection, Redis, reply_end};
use common::{FakeHost, TestClient, command};
use meridian_protocol::registry::Model;
use rand::Rng as _;
use rand_pcg::Pcg64;
use std::net::TcpStream;
use std::time::Duration;

/// How the two answers to a command are compared.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Comparison {
    /// Byte by byte.
    Exact,
    /// Hashes and keyspaces have another order: by name in Meridian, by chance in Redis.
    AnyOrder,
    /// The same in names and values taken two by two.
    AnyOrderOfPairs,
    /// A time that is left: the two were not asked at the same moment.
    Near(i64),
    /// Meridian checks the arguments before it looks at the key: where it complains of them, Redis may answer
    /// that the key is absent or of another type.
    ArgumentsFirst,
    /// The longest value is another, and named in the error.
    Limit,
}

/// What is compared with Redis.
enum Meridian {
    /// A session on a node that is one map.
    Session(Box<(FakeHost, TestClient)>),
    /// A running node, named by `MERIDIAN_ADDR`, with keyspaces 0 and 1 and nobody else using it.
    Node(Connection<TcpStream>),
}

impl Meridian {
    fn session() -> Self {
        let mut host = FakeHost::new();
        let client = host.connect();
        Self::Session(Box::new((host, client)))
    }

    /// A session whose keyspaces have transactions on several keys.
    fn with_transactions() -> Self {
        let mut host = FakeHost::new();
        for keyspace in &mut host.keyspaces {
            (keyspace.model, keyspace.engine) = (Model::StrictSerializable, "spanner");
        }
        let client = host.connect();
        Self::Session(Box::new((host, client)))
    }

    fn named_or_session() -> Self {
        let Ok(address) = std::env::var("MERIDIAN_ADDR") else { return Self::session() };
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        Self::Node(Connection::new(stream))
    }

    fn ask(&mut self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Self::Session(both) => both.1.ask(bytes, &mut both.0),
            Self::Node(connection) => connection.ask(bytes),
        }
    }
}

/// The items of an aggregate, each with its header.
fn items(reply: &[u8]) -> Vec<&[u8]> {
    let mut at = reply.windows(2).position(|pair| pair == b"\r\n").unwrap() + 2;
    let mut items = Vec::new();
    while at < reply.len() {
        let end = reply_end(reply, at).unwrap();
        items.push(&reply[at..end]);
        at = end;
    }
    items
}

fn same(comparison: Comparison, redis: &[u8], ours: &[u8]) -> bool {
    if redis == ours {
        return true;
    }
    // What a client sent stands in some errors, of a transaction too: bytes that are not UTF-8 as a mark in Meridian.
    if String::from_utf8_lossy(redis).contains("-ERR Unsupported option")
        && String::from_utf8_lossy(redis).as_bytes() == ours
    {
        return true;
    }
    let aggregate = |reply: &[u8]| matches!(reply[0], b'*' | b'%' | b'~');
    let number =
        |reply: &[u8]| std::str::from_utf8(reply).ok()?.strip_prefix(':')?.trim().parse::<i64>().ok();
    match comparison {
        Comparison::AnyOrder if aggregate(redis) && aggregate(ours) => {
            let (mut a, mut b) = (items(redis), items(ours));
            a.sort_unstable();
            b.sort_unstable();
            redis[0] == ours[0] && a == b
        }
        Comparison::AnyOrderOfPairs if aggregate(redis) && aggregate(ours) => {
            let (a, b) = (items(redis), items(ours));
            let (mut a, mut b): (Vec<_>, Vec<_>) = (a.chunks(2).collect(), b.chunks(2).collect());
            a.sort_unstable();
            b.sort_unstable();
            redis[0] == ours[0] && a == b
        }
        Comparison::Exact | Comparison::AnyOrder | Comparison::AnyOrderOfPairs => false,
        Comparison::Near(distance) => match (number(redis), number(ours)) {
            // -1 and -2 are no times.
            (Some(a), Some(b)) => a >= 0 && b >= 0 && a.abs_diff(b) <= distance.unsigned_abs(),
            _ => false,
        },
        Comparison::Limit => {
            redis.starts_with(b"-ERR string exceeds maximum allowed size")
                && ours.starts_with(b"-ERR value would exceed 33554432 bytes")
        }
        Comparison::ArgumentsFirst => {
            let complains = |reply: &[u8]| {
                reply.starts_with(b"-ERR value is not a") || reply.starts_with(b"-ERR invalid expire time")
            };
            complains(ours) && (redis == b"$-1\r\n" || redis == b"_\r\n" || redis.starts_with(b"-WRONGTYPE"))
        }
    }
}

/// Random commands from a seed; the second counts times of expiry.
struct Generator(Pcg64, u64);

impl Generator {
    fn below(&mut self, bound: u64) -> u64 {
        self.0.next_u64() % bound
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len() as u64) as usize]
    }

    fn key(&mut self) -> String {
        format!("k{}", self.below(6))
    }

    fn value(&mut self) -> Vec<u8> {
        match self.below(8) {
            0 => (0..self.below(20)).map(|_| self.0.next_u64() as u8).collect(),
            1 => self.below(1000).to_string().into_bytes(),
            2 => self.integer().into_bytes(),
            3 => self.float().into_bytes(),
            _ => self.pick(&["a", "b", "c", "", "hello", "12", "a b\r\n"]).as_bytes().to_vec(),
        }
    }

    fn integer(&mut self) -> String {
        match self.below(12) {
            0 => {
                self.pick(&["9223372036854775807", "-9223372036854775808", "9223372036854775808"]).to_owned()
            }
            1 => self.pick(&["x", "", "1.5", "+1", "01", " 1", "-0", "1e3"]).to_owned(),
            _ => (self.below(24) as i64 - 12).to_string(),
        }
    }

    fn float(&mut self) -> String {
        match self.below(10) {
            0 => self.pick(&["x", "", "1e4000", " 1", "1 ", "3.0e3", "1e-20", ".5", "5.", "1e30"]).to_owned(),
            1 => format!("{}e{}", self.below(100_000), self.below(30) as i64 - 15),
            _ => {
                let (whole, fraction) = (self.below(2000) as i64 - 1000, self.below(10_000));
                format!("{whole}.{fraction}")
            }
        }
    }

    /// As short as can be, so that little time is lost.
    fn timeout(&mut self) -> Vec<u8> {
        self.pick(&["0.001", "0.001", "1e-3", "0.0001", ".001", "-1", "x", ""]).into()
    }

    fn word(&mut self, option: &str) -> Vec<u8> {
        if self.below(2) == 0 { option.to_lowercase().into_bytes() } else { option.as_bytes().to_vec() }
    }

    /// A command on one key, and how its answers are compared.
    fn on_key(&mut self, key: &str) -> (Vec<Vec<u8>>, Comparison) {
        let mut words: Vec<Vec<u8>> = Vec::new();
        let name = self.pick(&[
            "GET",
            "STRLEN",
            "GETRANGE",
            "TYPE",
            "TTL",
            "PTTL",
            "EXPIRETIME",
            "PEXPIRETIME",
            "LLEN",
            "LRANGE",
            "LINDEX",
            "HGET",
            "HMGET",
            "HEXISTS",
            "HGETALL",
            "HKEYS",
            "HVALS",
            "HLEN",
            "SET",
            "SET",
            "SETNX",
            "GETSET",
            "SETEX",
            "PSETEX",
            "GETDEL",
            "GETEX",
            "APPEND",
            "SETRANGE",
            "INCR",
            "DECR",
            "INCRBY",
            "DECRBY",
            "INCRBYFLOAT",
            "EXPIRE",
            "PEXPIRE",
            "EXPIREAT",
            "PEXPIREAT",
            "PERSIST",
            "LPUSH",
            "RPUSH",
            "LPUSH",
            "RPUSH",
            "LPOP",
            "RPOP",
            "LTRIM",
            "LREM",
            "LMOVE",
            "RPOPLPUSH",
            "BLPOP",
            "BRPOP",
            "BLMOVE",
            "BRPOPLPUSH",
            "HSET",
            "HSET",
            "HDEL",
            "HINCRBY",
            "DEL",
            "EXISTS",
            "UNLINK",
        ]);
        let mut comparison = Comparison::Exact;
        words.extend([self.word(name), key.as_bytes().to_vec()]);
        match name {
            "GETRANGE" | "LRANGE" | "LTRIM" => words.extend([self.integer().into(), self.integer().into()]),
            "LINDEX" => {
                words.push(self.integer().into());
                comparison = Comparison::ArgumentsFirst;
            }
            "INCRBY" | "DECRBY" => words.push(self.integer().into()),
            "INCRBYFLOAT" => {
                words.push(self.float().into());
                comparison = Comparison::ArgumentsFirst;
            }
            "TTL" | "EXPIRETIME" => comparison = Comparison::Near(2),
            "PTTL" | "PEXPIRETIME" => comparison = Comparison::Near(2000),
            "HGET" | "HEXISTS" => words.push(self.field()),
            "HMGET" | "HDEL" => words.extend((0..=self.below(2)).map(|_| self.field())),
            "HGETALL" => comparison = Comparison::AnyOrderOfPairs,
            "HKEYS" | "HVALS" => comparison = Comparison::AnyOrder,
            "SETNX" | "GETSET" | "APPEND" => words.push(self.value()),
            "SET" => {
                words.push(self.value());
                for _ in 0..self.below(3) {
                    let option =
                        self.pick(&["NX", "XX", "GET", "KEEPTTL", "EX", "PX", "EXAT", "PXAT", "FOO"]);
                    words.push(self.word(option));
                    if option.ends_with('X') && option.len() == 2 && !matches!(option, "NX" | "XX") {
                        words.push(self.seconds().into());
                    } else if option.ends_with("AT") {
                        words.push(self.time(option == "EXAT").into());
                    }
                }
            }
            "SETEX" => words.extend([self.seconds().into(), self.value()]),
            "PSETEX" => words.extend([format!("{}000", self.seconds()).into(), self.value()]),
            "GETEX" => {
                comparison = Comparison::ArgumentsFirst;
                match self.below(5) {
                    0 => {}
                    1 => words.push(self.word("PERSIST")),
                    2 => words.extend([self.word("EX"), self.seconds().into()]),
                    3 => words.extend([self.word("EXAT"), self.time(true).into()]),
                    _ => words.push(self.pick(&["NX", "EX", "KEEPTTL"]).into()),
                }
            }
            "SETRANGE" => {
                words.extend([self.integer().into(), self.value()]);
                comparison = Comparison::Limit;
            }
            "EXPIRE" | "PEXPIRE" | "EXPIREAT" | "PEXPIREAT" => {
                words.push(match name {
                    "EXPIRE" => self.seconds().into(),
                    "PEXPIRE" => format!("{}000", self.seconds()).into(),
                    _ => self.time(name == "EXPIREAT").into(),
                });
                for _ in 0..self.below(3) {
                    let option = self.pick(&["NX", "XX", "GT", "LT", "LT", "foo"]);
                    words.push(self.word(option));
                }
            }
            "LPUSH" | "RPUSH" => words.extend((0..=self.below(3)).map(|_| self.value())),
            "LPOP" | "RPOP" if self.below(2) == 0 => words.push(self.integer().into()),
            "LMOVE" | "BLMOVE" => {
                words.push(self.key().into());
                for _ in 0..2 {
                    let end = self.pick(&["LEFT", "RIGHT", "RIGHT", "LEFT", "UP"]);
                    words.push(self.word(end));
                }
                if name == "BLMOVE" {
                    words.push(self.timeout());
                }
            }
            "RPOPLPUSH" => words.push(self.key().into()),
            "BRPOPLPUSH" => words.extend([self.key().into(), self.timeout()]),
            "BLPOP" | "BRPOP" => {
                words.extend((0..self.below(3)).map(|_| self.key().into_bytes()));
                words.push(self.timeout());
            }
            "LREM" => words.extend([self.integer().into(), self.value()]),
            "HSET" => words.extend((0..=self.below(2)).flat_map(|_| [self.field(), self.value()])),
            "HINCRBY" => words.extend([self.field(), self.integer().into()]),
            _ => {}
        }
        // Now and then a word too few or too many.
        match self.below(60) {
            // It would be a timeout, and a long one.
            0 if matches!(name, "BLPOP" | "BRPOP") => {}
            0 => words.push(self.value()),
            1 if words.len() > 2 => {
                words.pop();
            }
            _ => {}
        }
        (words, comparison)
    }

    fn field(&mut self) -> Vec<u8> {
        self.pick(&["f", "g", "h", "", "\0"]).as_bytes().to_vec()
    }

    /// Seconds from now, or wrong: long enough that nothing expires while the test runs, and never the same
    /// twice, as which one is later must not hang on a millisecond between the two servers.
    fn seconds(&mut self) -> String {
        if self.below(10) == 0 {
            return self.pick(&["0", "-1", "x", "9223372036854775807", "9223372036854775"]).to_owned();
        }
        // Steps through all residues of a prime, in no order.
        self.1 += 7919;
        (1000 + 100 * (self.1 % 50_021)).to_string()
    }

    /// A time long ago or far away.
    fn time(&mut self, seconds: bool) -> String {
        let unit = if seconds { "" } else { "000" };
        match self.below(8) {
            0 => "1".to_owned(),
            1 => self.pick(&["0", "-5", "x"]).to_owned(),
            _ => format!("{}{unit}", 4_000_000_000 + self.below(5) * 1000),
        }
    }

    /// A command on several keys, on the keyspace or on the connection.
    fn on_others(&mut self) -> (Vec<Vec<u8>>, Comparison) {
        let name = self.pick(&[
            "MGET", "MSET", "DEL", "UNLINK", "EXISTS", "KEYS", "DBSIZE", "PING", "ECHO", "SELECT", "CLIENT",
            "HELLO", "NOSUCH", "COMMAND", "QUITE", "AUTH", "EXEC", "DISCARD", "UNWATCH", "CONFIG",
        ]);
        self.on_other(name)
    }

    /// A command on several keys.
    fn on_keys(&mut self) -> Vec<Vec<u8>> {
        let name = self.pick(&["MGET", "MSET", "DEL", "UNLINK", "EXISTS"]);
        let (mut words, _) = self.on_other(name);
        if self.below(20) == 0 {
            words.push(self.value());
        }
        words
    }

    fn on_other(&mut self, name: &str) -> (Vec<Vec<u8>>, Comparison) {
        let mut words = vec![self.word(name)];
        let mut comparison = Comparison::Exact;
        match name {
            "MGET" | "DEL" | "UNLINK" | "EXISTS" => {
                words.extend((0..=self.below(4)).map(|_| self.key().into()));
            }
            "MSET" => words.extend((0..=self.below(3)).flat_map(|_| [self.key().into(), self.value()])),
            "KEYS" => {
                words.push(self.pick(&["*", "k?", "k[0-3]", "*2", "x*", "k[^1]", "\\k1"]).into());
                comparison = Comparison::AnyOrder;
            }
            "PING" => words.extend((0..self.below(3)).map(|_| self.value())),
            "ECHO" => words.push(self.value()),
            "SELECT" => words.push(self.pick(&["0", "1", "1", "0", "2", "-1", "x"]).into()),
            "CLIENT" => match self.below(5) {
                1 => words.extend([self.word("SETNAME"), self.pick(&["", "me", "a b", "\r\n"]).into()]),
                2 => words.push(self.pick(&["nosuch", "setname"]).into()),
                _ => words.push(self.word("GETNAME")),
            },
            "HELLO" => words.push(self.pick(&["4", "x", "1"]).into()),
            "NOSUCH" | "QUITE" => words.extend((0..self.below(5)).map(|_| {
                let byte = b'a' + self.below(26) as u8;
                vec![byte; self.below(100) as usize]
            })),
            "COMMAND" => {
                let name = self.pick(&["PING", "nosuch", "GET", "mset"]);
                words.extend([self.word("GETKEYS"), name.into(), "a".into(), "b".into()]);
            }
            "AUTH" => words.extend((0..self.below(3)).map(|_| self.pick(&["default", "joe"]).into())),
            "CONFIG" => {
                words.extend(["GET".into(), self.pick(&["save", "appendonly", "nosuch", "SAVE"]).into()]);
            }
            _ => {}
        }
        (words, comparison)
    }
}

/// Both sides of the comparison.
struct Pair<'a> {
    redis: &'a mut Redis,
    meridian: Meridian,
    asked: usize,
    /// Whether transactions have several keys.
    several: bool,
}

impl Pair<'_> {
    fn compare(&mut self, words: &[Vec<u8>], comparison: Comparison) -> Vec<u8> {
        if words[0].eq_ignore_ascii_case(b"DBSIZE") {
            // Redis counts what has expired, until it comes across it.
            self.redis.ask(b"EXISTS k0 k1 k2 k3 k4 k5\r\n");
        }
        let bytes = command(words);
        let redis = self.redis.ask(&bytes);
        let ours = self.meridian.ask(&bytes);
        self.asked += 1;
        assert!(
            same(comparison, &redis, &ours),
            "command {}: {:?}\nredis:    {:?}\nmeridian: {:?}",
            self.asked,
            words.iter().map(|word| String::from_utf8_lossy(word)).collect::<Vec<_>>(),
            String::from_utf8_lossy(&redis),
            String::from_utf8_lossy(&ours),
        );
        ours
    }

    fn say(&mut self, words: &[&str]) -> Vec<u8> {
        let words: Vec<_> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        self.compare(&words, Comparison::Exact)
    }

    /// A transaction on one key or on several, watched or not, with what makes it fail now and then.
    fn transaction(&mut self, random: &mut Generator) {
        let mut key = random.key();
        if random.below(2) == 0 {
            self.say(&["WATCH", &key]);
            if self.several && random.below(2) == 0 {
                key = random.key();
                self.say(&["WATCH", &random.key(), &key]);
            }
            if random.below(3) == 0 {
                // By this very connection: that counts as a change, too. It must succeed: an update that is refused
                // leaves no trace in Redis, and counts as a change in some engines.
                self.say(&["SET", &key, "x"]);
            }
        }
        self.say(&["MULTI"]);
        let mut comparison = Comparison::Exact;
        for _ in 0..random.below(if self.several { 8 } else { 4 }) {
            if self.several {
                key = random.key();
                if random.below(3) == 0 {
                    self.compare(&random.on_keys(), Comparison::Exact);
                    continue;
                }
            }
            let (words, how) = random.on_key(&key);
            if !self.several
                && words.len() > 2
                && matches!(&words[0].to_ascii_lowercase()[..], b"del" | b"unlink" | b"exists")
            {
                continue;
            }
            if takes_of_several(&words, self.several) {
                continue;
            }
            if how == Comparison::Exact || how == Comparison::ArgumentsFirst {
                comparison = if how == Comparison::Exact { comparison } else { how };
                self.compare(&words, Comparison::Exact);
            }
        }
        match random.below(8) {
            0 => drop(self.say(&["DISCARD"])),
            1 => {
                self.say(&["NOSUCH"]);
                self.say(&["EXEC"]);
            }
            2 => {
                self.say(&["MULTI"]);
                self.say(&["WATCH", "k1"]);
                self.say(&["DISCARD"]);
            }
            // Inside an array the difference cannot be told apart; without it the answers are equal.
            _ if comparison == Comparison::ArgumentsFirst => drop(self.say(&["DISCARD"])),
            _ => drop(self.say(&["EXEC"])),
        }
        self.say(&["UNWATCH"]);
    }
}

/// Whether it takes items off several lists, or moves one where a transaction has one key: not served inside `MULTI`.
fn takes_of_several(words: &[Vec<u8>], several: bool) -> bool {
    match &words[0].to_ascii_lowercase()[..] {
        b"blpop" | b"brpop" => words.len() > 3,
        b"lmove" | b"blmove" | b"rpoplpush" | b"brpoplpush" => !several && words.get(1) != words.get(2),
        _ => false,
    }
}

/// 20,000 commands; transactions are more frequent where they have several keys.
fn compare(redis: &mut Redis, seed: u64, protocol: &str, mut meridian: Meridian, several: bool) {
    redis.ask(b"RESET\r\n");
    redis.ask(b"FLUSHALL\r\n");
    redis.ask(&command(&["HELLO", protocol]));
    for keyspace in ["1", "0"] {
        meridian.ask(&command(&["SELECT", keyspace]));
        meridian.ask(b"DEL k0 k1 k2 k3 k4 k5\r\n");
    }
    meridian.ask(&command(&["HELLO", protocol]));
    let mut pair = Pair { redis, meridian, asked: 0, several };
    let mut random = Generator(Pcg64::new(u128::from(seed), 1), 0);
    println!("seed {seed}, RESP{protocol}");
    let (mut errors, mut asked) = (0, 0);
    while pair.asked < 20_000 {
        let (words, comparison) = match random.below(if several { 4 } else { 20 }) {
            0 => {
                pair.transaction(&mut random);
                continue;
            }
            1..4 => random.on_others(),
            _ => {
                let key = random.key();
                random.on_key(&key)
            }
        };
        let answer = pair.compare(&words, comparison);
        errors += usize::from(answer.starts_with(b"-"));
        asked += 1;
    }
    println!("{} commands, {errors} of {asked} refused", pair.asked);
    assert!(errors * 2 < asked, "most commands should do something");
}

#[test]
fn answers_are_those_of_redis() {
    let Some(mut redis) = Redis::start() else { return };
    let seed = std::env::var("MERIDIAN_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    compare(&mut redis, seed, "2", Meridian::named_or_session(), false);
    compare(&mut redis, seed + 1, "3", Meridian::named_or_session(), false);
}

#[test]
fn transactions_on_several_keys_are_those_of_redis() {
    let Some(mut redis) = Redis::start() else { return };
    compare(&mut redis, 11, "2", Meridian::with_transactions(), true);
    compare(&mut redis, 12, "3", Meridian::with_transactions(), true);
}

#[test]
fn lines_are_read_as_redis_reads_them() {
    let Some(mut redis) = Redis::start() else { return };
    let mut meridian = Meridian::session();
    for line in [
        "ECHO \"a\\x41\\n\\\"\"\r\n",
        "ECHO 'it\\'s'\n",
        "  set   k\t\"\"  \r\n",
        "GET k\r\n",
        "echo a\"b\"\r\n",
        "ECHO \"\\q\\x4\"\r\n",
        "echo '\\n'\r\n",
        "NOSUCH \"a b\" c\r\n",
    ] {
        let (theirs, ours) = (redis.ask(line.as_bytes()), meridian.ask(line.as_bytes()));
        assert_eq!(String::from_utf8_lossy(&ours), String::from_utf8_lossy(&theirs), "{line}");
    }
}

#[test]
fn violations_are_answered_as_redis_answers_them() {
    for input in [
        &b"*1\r\n$9999999999\r\n"[..],
        b"*1\r\n$-1\r\n",
        b"*x\r\n",
        b"*99999999999\r\n",
        b"*1\r\n:1\r\n",
        b"\"a\r\n",
        b"'a'b\r\n",
    ] {
        let Some(mut redis) = Redis::start() else { return };
        let mut host = FakeHost::new();
        let mut client = host.connect();
        let (theirs, ours) = (redis.ask(input), client.ask(input, &mut host));
        assert_eq!(String::from_utf8_lossy(&ours), String::from_utf8_lossy(&theirs));
        assert!(client.session.closing());
    }
}

#[test]
fn keys_expire_as_in_redis() {
    let Some(mut redis) = Redis::start() else { return };
    let mut pair = Pair { redis: &mut redis, meridian: Meridian::session(), asked: 0, several: false };
    pair.say(&["SET", "k", "v", "PX", "40"]);
    pair.say(&["RPUSH", "l", "a"]);
    pair.say(&["PEXPIRE", "l", "40"]);
    pair.say(&["WATCH", "k"]);
    pair.say(&["GET", "k"]);
    std::thread::sleep(Duration::from_millis(80));
    pair.say(&["MULTI"]);
    pair.say(&["GET", "k"]);
    pair.say(&["EXEC"]);
    for words in [
        &["GET", "k"][..],
        &["TTL", "k"],
        &["EXISTS", "k"],
        &["RPUSH", "l", "b"],
        &["LRANGE", "l", "0", "-1"],
    ] {
        pair.say(words);
    }
    pair.say(&["TTL", "l"]);
    pair.say(&["KEYS", "*"]);
    pair.say(&["DBSIZE"]);
}
