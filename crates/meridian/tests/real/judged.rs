//! Load on a keyspace of every engine at once, and the judgement of all that its clients saw.

use crate::harness::{Cluster, Plan, Process, run, stderr, stdout, wait_for};
use crate::resp::{Client, Value};
use meridian_protocol::history::{Access, Ended, Event, Kind, Mode, Version, Witness};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

/// A cluster with a keyspace of every engine, clocks that may be off by 20 ms, and time-outs for the impatient.
pub(crate) const EVERY_ENGINE: Plan = Plan {
    nodes_per_region: 1,
    partitions: 2,
    durability: "fsync",
    more: "[clock]\nsource = \"configured\"\nerror = \"20ms\"\n[timeouts]\noperation = \"3s\"\nelection = \"500ms\"\n\
           [[keyspace]]\nnumber = 2\nmodel = \"linearizable\"\nengine = \"epaxos\"\npartitions = 2\n\
           [[keyspace]]\nnumber = 3\nmodel = \"linearizable\"\nengine = \"multipaxos\"\npartitions = 2\n\
           [[keyspace]]\nnumber = 4\nmodel = \"linearizable\"\nengine = \"abd\"\npartitions = 2\n\
           [[keyspace]]\nnumber = 5\nmodel = \"causal\"\nengine = \"contrarian\"\npartitions = 2\n\
           [[keyspace]]\nnumber = 6\nmodel = \"causal\"\nengine = \"cc-lo\"\npartitions = 2\n\
           [[keyspace]]\nnumber = 7\nmodel = \"causal\"\nengine = \"tcc\"\npartitions = 2\n\
           [[keyspace]]\nnumber = 8\nmodel = \"strict-serializable\"\npartitions = 2\n\
           [[keyspace]]\nnumber = 9\nmodel = \"rss\"\npartitions = 2\n\
           [[keyspace]]\nnumber = 10\nmodel = \"po-serializable\"\npartitions = 2\n\
           [[keyspace]]\nnumber = 11\nmodel = \"linearizable\"\nwrites = \"one-round\"\npartitions = 2\n",
};

/// A keyspace of [`EVERY_ENGINE`], the load that it gets, and by which model it is judged.
#[derive(Debug)]
pub(crate) struct Keyspace {
    number: &'static str,
    engine: &'static str,
    model: &'static str,
    load: &'static [&'static str],
}

const RMWS: &[&str] = &["--mix", "5:4:2", "--keys", "4"];
const REGISTERS: &[&str] = &["--mix", "5:4:0", "--keys", "4"];
const SNAPSHOTS: &[&str] = &["--mix", "5:4:0", "--keys", "4", "--read-keys", "2"];
const TRANSACTIONS: &[&str] = &["--retwis", "--keys", "12"];

/// All of them. Those whose promises rest on clocks stand last.
pub(crate) static KEYSPACES: [Keyspace; 12] = [
    Keyspace { number: "0", engine: "gryff", model: "linearizable", load: RMWS },
    Keyspace { number: "1", engine: "gryff-rsc", model: "rsc", load: RMWS },
    Keyspace { number: "2", engine: "epaxos", model: "linearizable", load: RMWS },
    Keyspace { number: "3", engine: "multipaxos", model: "linearizable", load: RMWS },
    Keyspace { number: "4", engine: "abd", model: "linearizable", load: REGISTERS },
    Keyspace { number: "5", engine: "contrarian", model: "causal-rot", load: SNAPSHOTS },
    Keyspace { number: "6", engine: "cc-lo", model: "causal-rot", load: SNAPSHOTS },
    Keyspace { number: "7", engine: "tcc", model: "tcc-closed", load: SNAPSHOTS },
    Keyspace { number: "8", engine: "spanner", model: "strict-serializable", load: TRANSACTIONS },
    Keyspace { number: "9", engine: "spanner-rss", model: "rss", load: TRANSACTIONS },
    Keyspace { number: "10", engine: "spanner-po", model: "po-serializable", load: TRANSACTIONS },
    Keyspace { number: "11", engine: "gryff, one round", model: "linearizable", load: RMWS },
];

/// How long a cluster may take until all regions show what was acknowledged anywhere.
pub(crate) const PATIENCE: Duration = Duration::from_mins(5);

/// A seed for a test's choices: `MERIDIAN_SEED`, or another one each time. It is printed.
pub(crate) fn seed() -> u64 {
    let given = std::env::var("MERIDIAN_SEED").ok();
    let now =
        || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| now.as_micros() as u64);
    let seed = given.map_or_else(now, |seed| seed.parse().expect("MERIDIAN_SEED is a number"));
    println!("MERIDIAN_SEED={seed}");
    seed
}

/// Choices by a seed.
pub(crate) fn choices(seed: u64) -> Pcg64Mcg {
    Pcg64Mcg::seed_from_u64(seed)
}

/// Clients at work, each of which writes down what it did and saw.
pub(crate) struct Load {
    benches: Vec<(&'static Keyspace, PathBuf, Process)>,
}

/// What came out for a keyspace.
#[derive(Debug)]
pub(crate) struct Judgement {
    pub(crate) engine: &'static str,
    /// The checker's line.
    pub(crate) line: String,
    history: PathBuf,
}

impl Judgement {
    pub(crate) fn holds(&self) -> bool {
        self.line.contains("\tholds\t")
    }
}

/// Asserts that all hold. Histories that do not are kept.
pub(crate) fn assert_hold(judgements: &[Judgement]) {
    let mut bad = Vec::new();
    for judgement in judgements {
        if !judgement.holds() {
            let kept = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{}.jsonl", judgement.engine));
            fs::copy(&judgement.history, &kept).expect("the history can be kept");
            bad.push(format!("{}: {} ({})", judgement.engine, judgement.line, kept.display()));
        }
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

impl Load {
    /// Begins to load keyspaces, each at this rate a second.
    pub(crate) fn start(cluster: &Cluster, keyspaces: &'static [Keyspace], rate: u32, seed: u64) -> Self {
        let targets = [0, 1, 2].map(|index| format!("127.0.0.1:{}", cluster.port(index))).join(",");
        let bench = |keyspace: &'static Keyspace| {
            let history = cluster.directory.path().join(format!("{}-{seed}.jsonl", keyspace.number));
            let (rate, seed, path) = (rate.to_string(), seed.to_string(), history.display().to_string());
            let mut arguments =
                vec!["bench", "--target", &targets, "--db", keyspace.number, "--clients", "6"];
            // Ends when it is told to.
            arguments.extend(["--warmup", "0s", "--duration", "60m", "--timeout", "5s"]);
            arguments.extend(["--rate", &rate, "--seed", &seed, "--history", &path]);
            arguments.extend(keyspace.load);
            (keyspace, history, Process::start(&arguments))
        };
        let mut benches: Vec<_> = keyspaces.iter().map(bench).collect();
        // What fails at the beginning ends a bench: each must have connected before anything goes wrong.
        for (keyspace, history, bench) in &mut benches {
            wait_for("the bench has begun", PATIENCE, || {
                assert!(bench.ended().is_none(), "{}: {}", keyspace.engine, bench.said());
                history.exists()
            });
        }
        Self { benches }
    }

    /// Waits until every keyspace has acknowledged so many operations more.
    pub(crate) fn go_on(&self, more: usize) {
        let acknowledged = |path: &PathBuf| {
            let text = fs::read_to_string(path).expect("the bench writes a history");
            text.matches("\"outcome\":\"ok\"").count()
        };
        let before: Vec<usize> = self.benches.iter().map(|(_, history, _)| acknowledged(history)).collect();
        for ((keyspace, history, _), before) in self.benches.iter().zip(before) {
            let what = format!("{} goes on", keyspace.engine);
            wait_for(&what, PATIENCE, || acknowledged(history) >= before + more);
        }
    }

    /// Ends the load, has every region read every key, and judges. All nodes must be up. What was acknowledged in a causal
    /// keyspace must show in all regions within `patience`.
    pub(crate) fn end(self, cluster: &Cluster, patience: Duration) -> Vec<Judgement> {
        let mut benches = self.benches;
        for (.., bench) in &benches {
            bench.signal("INT");
        }
        for (keyspace, _, bench) in &mut benches {
            assert_eq!(bench.wait_end(), Some(0), "{}: {}", keyspace.engine, bench.said());
        }
        benches
            .into_iter()
            .map(|(keyspace, history, _)| judge(cluster, keyspace, history, patience))
            .collect()
    }
}

fn judge(cluster: &Cluster, keyspace: &'static Keyspace, history: PathBuf, patience: Duration) -> Judgement {
    let text = fs::read_to_string(&history).expect("the bench has written a history");
    let events: Vec<Event> = text.lines().map(|line| serde_json::from_str(line).expect("an event")).collect();
    let began = Instant::now();
    let last = Ending::new(keyspace, &events, patience).read(cluster);
    let read = began.elapsed();
    let mut file = fs::OpenOptions::new().append(true).open(&history).expect("the history is there");
    for event in &last {
        let line = serde_json::to_string(event).expect("an event can be written");
        writeln!(file, "{line}").expect("the history can be added to");
    }
    let output = run(&["check", "--model", keyspace.model, &history.display().to_string()]);
    let line = format!("{}{}", stdout(&output), stderr(&output)).trim().to_owned();
    let ended = |how| events.iter().filter(|event| event.outcome == how).count();
    let (engine, acknowledged, unknown) = (keyspace.engine, ended(Ended::Ok), ended(Ended::Unknown));
    let verdict: String = line.chars().take(100).collect();
    println!("{engine}: {acknowledged} acknowledged, {unknown} unknown, read again in {read:?}: {verdict}");
    Judgement { engine, line, history }
}

/// What is read when all is over, so that a lost write shows.
struct Ending<'h> {
    keyspace: &'static Keyspace,
    keys: BTreeSet<&'h str>,
    /// The newest version of each key that was acknowledged, in causal keyspaces.
    newest: BTreeMap<&'h str, Version>,
    /// The acknowledged writes, where nothing but a message makes a new session see them.
    told: Vec<u64>,
    /// How long all of that may take to show.
    patience: Duration,
    began: Instant,
    next_id: u64,
    /// Later than anything in the history.
    time: i64,
}

impl<'h> Ending<'h> {
    fn new(keyspace: &'static Keyspace, events: &'h [Event], patience: Duration) -> Self {
        let mut newest = BTreeMap::new();
        let mut told = Vec::new();
        for event in events.iter().filter(|event| event.outcome == Ended::Ok) {
            if let Some(Witness::Put { at, .. }) = &event.witness {
                told.push(event.id);
                for access in &event.ops {
                    let version = newest.entry(access.key.as_str()).or_insert(*at);
                    *version = (*version).max(*at);
                }
            }
        }
        let times = events.iter().flat_map(|event| [Some(event.invoke), event.returned]).flatten();
        Self {
            keyspace,
            keys: events.iter().flat_map(|event| &event.ops).map(|access| access.key.as_str()).collect(),
            newest,
            told,
            patience,
            began: Instant::now(),
            next_id: events.iter().map(|event| event.id + 1).max().unwrap_or(0),
            time: times.max().unwrap_or(0),
        }
    }

    fn read(mut self, cluster: &Cluster) -> Vec<Event> {
        let mut last: Vec<Event> = Vec::new();
        for region in 0..3 {
            let mut client = cluster.client(region);
            assert_eq!(client.call(&["SELECT", self.keyspace.number]), Value::ok());
            let first = last.len();
            for key in self.keys.clone() {
                // Sessions of this model may see less than others have: only who changes something sees the newest.
                if self.keyspace.model == "po-serializable" && region == 0 {
                    last.push(self.change(&mut client, region, key));
                }
                last.push(self.get(&mut client, region, key));
            }
            // Whoever is told of a write must see it, if it is there still.
            last[first].after.clone_from(&self.told);
        }
        last
    }

    fn get(&mut self, client: &mut Client, region: u16, key: &str) -> Event {
        loop {
            let (value, witness) = ask(client, &["GET", key]);
            let seen = match &witness {
                Some(Witness::Got { at, .. }) => at.first().copied().flatten(),
                _ => None,
            };
            let is_newest =
                self.newest.get(key).is_none_or(|newest| seen.is_some_and(|seen| seen >= *newest));
            if is_newest || self.began.elapsed() > self.patience {
                return self.event(region, vec![(Mode::Read, key.to_owned(), value).into()], witness);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn change(&mut self, client: &mut Client, region: u16, key: &str) -> Event {
        let value = format!("end{}", self.next_id);
        let (old, witness) = ask(client, &["SET", key, &value, "GET"]);
        let ops: [Access; 2] =
            [(Mode::Read, key.to_owned(), old).into(), (Mode::Write, key.to_owned(), Some(value)).into()];
        self.event(region, ops.into(), witness)
    }

    /// One thing after the other.
    fn event(&mut self, region: u16, ops: Vec<Access>, witness: Option<Witness>) -> Event {
        self.next_id += 1;
        self.time += 2;
        Event {
            id: self.next_id - 1,
            session: format!("end{region}"),
            service: format!("db{}", self.keyspace.number),
            kind: Kind::Op,
            ops,
            invoke: self.time - 1,
            returned: Some(self.time),
            outcome: Ended::Ok,
            level: None,
            after: Vec::new(),
            witness,
        }
    }
}

/// The value that a command answers, and the proof of its place. What was refused is asked again: a cluster that was
/// just healed may have no leader yet.
fn ask(client: &mut Client, words: &[&str]) -> (Option<String>, Option<Witness>) {
    let mut found = None;
    wait_for(&words.join(" "), PATIENCE, || match client.call(words) {
        Value::Bulk(value) => {
            let Value::Array(cost) = client.call(&["MERIDIAN.COST"]) else { panic!("no cost") };
            let named = cost.chunks_exact(2).find(|pair| pair[0] == Value::bulk("witness"));
            let Some([_, Value::Bulk(Some(witness))]) = named else { panic!("no witness: {cost:?}") };
            found = Some((value, Some(serde_json::from_str(witness).expect("a witness as in histories"))));
            true
        }
        Value::Error(error) if !error.starts_with("UNKNOWNOUTCOME") => false,
        other => panic!("{words:?} was answered {other:?}"),
    });
    found.expect("it was answered")
}
