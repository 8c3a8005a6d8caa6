//! Transactions on real processes, whose leaders are killed: money is neither made nor lost, nothing is overwritten unseen,
//! and what two transactions have read together holds when both have written.

use crate::harness::{Cluster, Plan, meridian, stderr, stdout};
use crate::resp::{Client, Value};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const TRANSACTIONS: Plan = Plan {
    nodes_per_region: 1,
    partitions: 4,
    durability: "fsync",
    more: "[clock]\nsource = \"configured\"\nerror = \"2ms\"\n[timeouts]\nelection = \"500ms\"\n\
           [[keyspace]]\nnumber = 2\nmodel = \"strict-serializable\"\npartitions = 3\n\
           [[keyspace]]\nnumber = 3\nmodel = \"rss\"\npartitions = 3\n\
           [[keyspace]]\nnumber = 4\nmodel = \"po-serializable\"\npartitions = 3\n",
};

/// Keyspaces with their models.
const MODELS: [(&str, &str); 3] = [("2", "strict-serializable"), ("3", "rss"), ("4", "po-serializable")];

const ACCOUNTS: usize = 8;
const EACH: i64 = 100;

/// What came of a client's transactions.
#[derive(Debug, Default)]
struct Ended {
    done: u64,
    unknown: u64,
    not_done: u64,
}

impl Ended {
    fn count(&mut self, how: &Done) {
        match how {
            Done::Yes => self.done += 1,
            Done::Unknown => self.unknown += 1,
            Done::No => self.not_done += 1,
        }
    }
}

/// How a transaction ended.
#[derive(Debug, PartialEq, Eq)]
enum Done {
    Yes,
    No,
    Unknown,
}

/// A client that connects again when its node was killed.
struct Persistent {
    port: u16,
    database: &'static str,
    client: Option<Client>,
}

impl Persistent {
    fn new(port: u16, database: &'static str) -> Self {
        Self { port, database, client: None }
    }

    /// The reply; `None` if the connection is lost, or there is none.
    fn ask(&mut self, words: &[&str]) -> Option<Value> {
        if self.client.is_none() {
            let mut client = Client::connect(self.port).ok()?;
            client.ask(&["SELECT", self.database]).ok()?;
            self.client = Some(client);
        }
        let reply = self.client.as_mut()?.ask(words).ok();
        if reply.is_none() {
            self.client = None;
        }
        reply
    }

    fn integer(&mut self, key: &str) -> Option<i64> {
        match self.ask(&["GET", key])? {
            Value::Bulk(Some(text)) => Some(text.parse().expect("accounts hold numbers")),
            _ => None,
        }
    }

    /// Ends a transaction with a command; asked to do it or not, a lost connection leaves it open what has happened.
    fn end(&mut self, words: &[&str]) -> Done {
        match self.ask(words) {
            Some(Value::Array(_) | Value::Simple(_)) => Done::Yes,
            Some(Value::Error(error)) if error.starts_with("UNKNOWNOUTCOME") => Done::Unknown,
            Some(Value::Error(_) | Value::Bulk(None)) => Done::No,
            Some(other) => panic!("{words:?} was answered {other:?}"),
            None => Done::Unknown,
        }
    }

    /// Blind commands in one step.
    fn exec(&mut self, commands: &[&[&str]]) -> Done {
        let queued = Value::Simple("QUEUED".to_owned());
        let all_queued = self.ask(&["MULTI"]) == Some(Value::ok())
            && commands.iter().all(|command| self.ask(command).as_ref() == Some(&queued));
        if !all_queued {
            self.client = None;
            return Done::No;
        }
        self.end(&["EXEC"])
    }

    /// Reads two keys, and sets both to what `change` makes of them; in an open transaction, or with watched keys.
    fn change(
        &mut self,
        (a, b): (&str, &str),
        watch: bool,
        change: impl FnOnce(i64, i64) -> Option<(i64, i64)>,
    ) -> Done {
        let begin: &[&str] = if watch { &["WATCH", a, b] } else { &["MERIDIAN.BEGIN"] };
        let give_up: &[&str] = if watch { &["UNWATCH"] } else { &["MERIDIAN.ABORT"] };
        if self.ask(begin) != Some(Value::ok()) {
            self.client = None;
            return Done::No;
        }
        let read = self.integer(a).and_then(|first| Some((first, self.integer(b)?)));
        let Some((first, second)) = read.and_then(|(first, second)| change(first, second)) else {
            // Given up already if an older one wanted the keys.
            self.ask(give_up);
            return Done::No;
        };
        let (first, second) = (first.to_string(), second.to_string());
        let commands: [&[&str]; 2] = [&["SET", a, &first], &["SET", b, &second]];
        if watch {
            return self.exec(&commands);
        }
        if commands.iter().any(|command| self.ask(command) != Some(Value::ok())) {
            self.ask(give_up);
            return Done::No;
        }
        self.end(&["MERIDIAN.COMMIT"])
    }
}

fn account(number: usize) -> String {
    format!("account{}", number % ACCOUNTS)
}

/// Moves money until it is told to stop, in each of the ways that there are.
fn transfer(port: u16, database: &'static str, number: usize, stop: &AtomicBool) -> Ended {
    let mut client = Persistent::new(port, database);
    let mut ended = Ended::default();
    for round in 0.. {
        if stop.load(Ordering::SeqCst) {
            return ended;
        }
        let (from, to) = (account(number + round), account(number + 3 * round + 1));
        if from == to {
            continue;
        }
        let amount = (round % 7) as i64;
        let how = match round % 3 {
            0 => {
                let amount = amount.to_string();
                client.exec(&[&["DECRBY", &from, &amount], &["INCRBY", &to, &amount]])
            }
            way => client.change((&from, &to), way == 1, |a, b| Some((a - amount, b + amount))),
        };
        ended.count(&how);
        if client.client.is_none() {
            thread::sleep(Duration::from_millis(50));
        }
    }
    ended
}

/// Counts all money again and again; every answer is one snapshot.
fn audit(port: u16, database: &'static str, stop: &AtomicBool) -> u64 {
    let mut client = Persistent::new(port, database);
    let names: Vec<String> = (0..ACCOUNTS).map(account).collect();
    let words: Vec<&str> = std::iter::once("MGET").chain(names.iter().map(String::as_str)).collect();
    let mut audits = 0;
    while !stop.load(Ordering::SeqCst) {
        match client.ask(&words) {
            // A node that has just started may know of nothing yet, where sessions keep no real time between them.
            Some(Value::Array(none))
                if database == "4" && none.iter().all(|one| *one == Value::Bulk(None)) => {}
            Some(Value::Array(balances)) => {
                let total = total(&balances);
                assert_eq!(total, ACCOUNTS as i64 * EACH, "database {database}: {balances:?}");
                audits += 1;
            }
            Some(Value::Error(_)) => {}
            Some(other) => panic!("MGET was answered {other:?}"),
            None => thread::sleep(Duration::from_millis(50)),
        }
    }
    audits
}

fn total(balances: &[Value]) -> i64 {
    let balance = |value: &Value| match value {
        Value::Bulk(Some(text)) => text.parse::<i64>().expect("accounts hold numbers"),
        other => panic!("an account holds {other:?}"),
    };
    balances.iter().map(balance).sum()
}

/// Kills the nodes by turns, one at a time, and starts them again.
fn kill_by_turns(cluster: &mut Cluster, turns: u16) {
    for turn in 0..turns {
        thread::sleep(Duration::from_millis(1_500));
        cluster.kill([turn % 3]);
        thread::sleep(Duration::from_millis(1_500));
        cluster.start_nodes([turn % 3]);
    }
    thread::sleep(Duration::from_millis(1_500));
}

#[test]
fn the_bank_keeps_its_money_while_leaders_are_killed() {
    bank(2);
}

#[test]
// Longer than anybody wants to wait for while working: `make test-long` runs it.
#[ignore = "takes two minutes"]
fn the_bank_keeps_its_money_for_long() {
    bank(30);
}

fn bank(turns: u16) {
    let mut cluster = Cluster::start(TRANSACTIONS);
    let ports = [0, 1, 2].map(|index| cluster.port(index));
    for (database, _) in MODELS {
        let mut client = Persistent::new(ports[0], database);
        let all: Vec<String> = (0..ACCOUNTS).flat_map(|number| [account(number), EACH.to_string()]).collect();
        let words: Vec<&str> = std::iter::once("MSET").chain(all.iter().map(String::as_str)).collect();
        assert_eq!(client.ask(&words), Some(Value::ok()));
    }
    let stop = AtomicBool::new(false);
    let (moved, audits) = thread::scope(|scope| {
        let mut movers = Vec::new();
        let mut auditors = Vec::new();
        for (database, _) in MODELS {
            for (number, port) in ports.into_iter().enumerate() {
                let stop = &stop;
                movers.push((database, scope.spawn(move || transfer(port, database, number, stop))));
                auditors.push((database, scope.spawn(move || audit(port, database, stop))));
            }
        }
        kill_by_turns(&mut cluster, turns);
        stop.store(true, Ordering::SeqCst);
        let moved: Vec<_> = movers
            .into_iter()
            .map(|(database, mover)| (database, mover.join().expect("no mover panics")))
            .collect();
        let audits: Vec<_> = auditors
            .into_iter()
            .map(|(database, one)| (database, one.join().expect("every audit adds up")))
            .collect();
        (moved, audits)
    });
    println!("{moved:?}\n{audits:?}");
    for (database, model) in MODELS {
        let done: u64 = moved.iter().filter(|(own, _)| *own == database).map(|(_, ended)| ended.done).sum();
        let audits: u64 = audits.iter().filter(|(own, _)| *own == database).map(|(_, audits)| audits).sum();
        assert!(done > 20 && audits > 50, "{model}: {done} transfers and {audits} audits prove little");
    }
}

/// Two transactions each of which reads both keys and clears one, if the other is set: one of them must be set for ever.
#[test]
fn two_transactions_do_not_clear_each_others_ground() {
    let cluster = Cluster::start(TRANSACTIONS);
    for ((database, model), rounds) in MODELS.into_iter().zip([12, 12, 12]) {
        let (mut both, mut one) = (0, 0);
        for round in 0..rounds {
            let keys = [format!("skew{round}a"), format!("skew{round}b")];
            let mut first = Persistent::new(cluster.port(0), database);
            assert_eq!(first.ask(&["MSET", &keys[0], "1", &keys[1], "1"]), Some(Value::ok()));
            let clear = |index: usize| {
                let mut client = Persistent::new(cluster.port(index as u16 + 1), database);
                let (own, other) = (&keys[index], &keys[1 - index]);
                client.change((own, other), round % 2 == 0, |own, other| {
                    (own + other == 2).then_some((0, other))
                })
            };
            let ended = thread::scope(|scope| {
                let clearing = [scope.spawn(|| clear(0)), scope.spawn(|| clear(1))];
                clearing.map(|thread| thread.join().unwrap())
            });
            let Some(Value::Array(left)) = first.ask(&["MGET", &keys[0], &keys[1]]) else {
                panic!("no answer")
            };
            assert!(total(&left) >= 1, "{model}: {ended:?} left {left:?}");
            let done = ended.iter().filter(|how| **how == Done::Yes).count();
            assert!(done < 2, "{model}: both say that they have cleared");
            one += done;
            both += 1;
        }
        assert!(one > 0, "{model}: of {both} rounds none did anything");
    }
}

/// Each client adds one to what it has read: nothing that was answered is overwritten unseen.
#[test]
fn no_update_is_lost() {
    let mut cluster = Cluster::start(TRANSACTIONS);
    let stop = AtomicBool::new(false);
    let ports = [0, 1, 2].map(|index| cluster.port(index));
    for (database, _) in MODELS {
        let mut client = Persistent::new(ports[0], database);
        assert_eq!(client.ask(&["MSET", "n", "0", "m", "0"]), Some(Value::ok()));
    }
    let add = |port: u16, database: &'static str, stop: &AtomicBool| {
        let mut client = Persistent::new(port, database);
        let mut ended = Ended::default();
        for round in 0.. {
            if stop.load(Ordering::SeqCst) {
                break;
            }
            ended.count(&client.change(("n", "m"), round % 2 == 0, |n, m| Some((n + 1, m + 1))));
            if client.client.is_none() {
                thread::sleep(Duration::from_millis(50));
            }
        }
        ended
    };
    let ended: Vec<(&str, Ended)> = thread::scope(|scope| {
        let places = MODELS.into_iter().flat_map(|(database, _)| ports.map(|port| (database, port)));
        let adding: Vec<_> = places
            .map(|(database, port)| {
                let (add, stop) = (&add, &stop);
                (database, scope.spawn(move || add(port, database, stop)))
            })
            .collect();
        kill_by_turns(&mut cluster, 1);
        stop.store(true, Ordering::SeqCst);
        adding.into_iter().map(|(database, thread)| (database, thread.join().unwrap())).collect()
    });
    println!("{ended:?}");
    for (database, model) in MODELS {
        let of = |what: fn(&Ended) -> u64| -> u64 {
            ended.iter().filter(|(own, _)| *own == database).map(|(_, ended)| what(ended)).sum()
        };
        let (done, unknown) = (of(|ended| ended.done), of(|ended| ended.unknown));
        let mut client = Persistent::new(ports[2], database);
        // One that changes something sees the newest in each of the models.
        let Some(Value::Int(left)) = client.ask(&["INCRBY", "n", "0"]) else { panic!("no answer") };
        assert!(
            (done..=done + unknown).contains(&(left as u64)),
            "{model}: {done} done, {unknown} unknown, {left} left"
        );
        assert!(done > 10, "{model}: {done} prove little");
    }
}

#[test]
fn histories_with_killed_leaders_obey_their_models() {
    let mut cluster = Cluster::start(TRANSACTIONS);
    let targets: Vec<String> = (0..3).map(|index| format!("127.0.0.1:{}", cluster.port(index))).collect();
    let loads = [
        ("single", &["--mix", "5:3:2", "--keys", "5", "--rate", "150"][..]),
        ("retwis", &["--retwis", "--keys", "15", "--rate", "50"]),
    ];
    let bench = |(database, model): (&str, &'static str), (name, load): (&str, &[&str])| {
        let history = cluster.directory.path().join(format!("{database}-{name}.jsonl")).display().to_string();
        let bench = meridian(&["bench", "--target", &targets.join(","), "--db", database, "--clients", "9"])
            .args(["--duration", "7s", "--warmup", "0s", "--history", &history])
            .args(load)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        (model, history, bench.unwrap())
    };
    let benches = MODELS.into_iter().flat_map(|model| loads.map(|load| bench(model, load)));
    let benches: Vec<_> = benches.collect();
    kill_by_turns(&mut cluster, 2);
    for (model, history, bench) in benches {
        let output = bench.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        println!("{}", stdout(&output));
        let output = meridian(&["check", "--model", model, &history]).output().unwrap();
        assert!(
            stdout(&output).starts_with(&format!("{model}\tholds\t")),
            "{}{}",
            stdout(&output),
            stderr(&output)
        );
        let operations = std::fs::read_to_string(&history).unwrap();
        assert!(operations.lines().count() > 150, "{}", operations.lines().count());
        assert!(operations.contains("\"tc\"") && operations.contains("\"snap\""), "proofs of both kinds");
    }
}
