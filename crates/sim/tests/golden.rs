//! Every kind of messages and records that runs make has its bytes in `crates/protocol/tests/golden`, where
//! `crates/protocol/tests/golden.rs` holds the code to them.
//!
//! `MERIDIAN_GOLDEN=write` adds those that are missing, and leaves the others as they are.

#![expect(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use meridian_check::Model;
use meridian_protocol::causal::Rounds;
use meridian_protocol::clock::{Micros, Now};
use meridian_protocol::machine::{
    Client, Completion, Effects, Engine, Message, Place, Record, Replica, Request, RequestId, Status,
};
use meridian_protocol::notices::Notices;
use meridian_protocol::registry::{EngineName, Settings, Visitor, Writes, with_engine};
use meridian_protocol::topology::{Address, ClientId, Region, ReplicaId};
use meridian_protocol::wire;
use meridian_sim::world::{Conduct, Notice, Shape, World};
use meridian_sim::{Clocks, Keys, Mix, Options, Plan, fitting, run_engine};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::{Debug, Write as _};
use std::path::PathBuf;
use std::rc::Rc;

/// The files, and the engines whose machines speak so.
const FAMILIES: [(&str, &[&str]); 6] = [
    ("gryff", &["gryff", "gryff-rsc", "abd"]),
    ("epaxos", &["epaxos"]),
    ("multipaxos", &["multipaxos"]),
    ("spanner", &["spanner", "spanner-rss", "spanner-po"]),
    ("causal", &["contrarian", "tcc"]),
    ("cc-lo", &["cc-lo"]),
];

/// What no short run says, as bytes: that a clock must be wrong, that one waits, the next page of a large state.
const RARE: [(&str, &[&str]); 5] = [
    (
        "gryff",
        &[
            "820d81821b0010000020000000183e",
            "821481821b0010000020000000183e",
            "821581821b0010000020000000183e",
            "821681821b0010000020000000183e",
        ],
    ),
    ("epaxos", &["820281821b0010000020000000183e", "820683426b348300010202"]),
    ("multipaxos", &["820381820d8207426b34"]),
    ("spanner", &["820381820d8207426b34"]),
    ("causal", &["82088282821b003000001000000018290083010203"]),
];

/// Longer ones are only kept of kinds that have no shorter ones.
const LONG: usize = 300;

/// One of each kind, by its title: its bytes and how it is shown.
type Kinds = BTreeMap<String, (String, String)>;

#[derive(Clone, Default)]
struct Seen(Rc<RefCell<Kinds>>);

impl Seen {
    fn message(&self, message: &impl Message) {
        let mut bytes = Vec::new();
        wire::encode(message, &mut bytes);
        self.keep("message", message, hex(&bytes));
    }

    fn record(&self, record: &impl Record) {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        record.encode_key(&mut key);
        if record.encode_value(&mut value) {
            self.keep("record", record, format!("{} {}", hex(&key), hex(&value)));
        }
    }

    /// The longest that is not long says most.
    fn keep(&self, sort: &str, what: &impl Debug, bytes: String) {
        let meaning = format!("{what:?}");
        let title = format!("{sort} {}", kind(&meaning));
        let mut kinds = self.0.borrow_mut();
        let better = kinds.get(&title).is_none_or(|(known, _)| {
            let (new, old) = (bytes.len() / 2, known.len() / 2);
            if old > LONG { new < old } else { new > old && new <= LONG }
        });
        if better {
            kinds.insert(title, (bytes, meaning));
        }
    }
}

fn unhex(text: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(digit).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Its name, and those of what it carries where it only carries something: `Log(Accept { … })` is `Log.Accept`.
fn kind(meaning: &str) -> String {
    /// Messages whose fields say what they are for.
    const ENVELOPES: [(&str, &str); 2] = [("ToLeader", "request: "), ("Instance", "step: ")];
    let end = meaning.find(|c: char| !c.is_alphanumeric()).unwrap_or(meaning.len());
    let (name, rest) = meaning.split_at(end);
    let inner = ENVELOPES.iter().find(|(envelope, _)| *envelope == name);
    let rest = match inner {
        Some((_, field)) => rest.split_once(field).map_or("", |(_, rest)| rest),
        None => rest.strip_prefix('(').unwrap_or_default(),
    };
    if rest.starts_with(|c: char| c.is_uppercase()) {
        format!("{name}.{}", kind(rest))
    } else {
        name.to_owned()
    }
}

/// An engine whose machines are watched.
#[derive(Clone)]
struct Watched<E>(E, Seen);

struct WatchedReplica<R>(R, Seen);

struct WatchedClient<C>(C, Seen);

impl<E: Engine> Engine for Watched<E> {
    type Message = E::Message;
    type Record = E::Record;
    type Replica = WatchedReplica<E::Replica>;
    type Client = WatchedClient<E::Client>;

    fn replica(&self, id: ReplicaId, place: Place, records: Vec<E::Record>) -> Self::Replica {
        WatchedReplica(self.0.replica(id, place, records), self.1.clone())
    }

    fn client(&self, id: ClientId, place: Place) -> Self::Client {
        WatchedClient(self.0.client(id, place), self.1.clone())
    }
}

impl<R: Replica> WatchedReplica<R> {
    fn look(&self, effects: &Effects<R::Message, R::Record>) {
        effects.sends.iter().for_each(|(_, message)| self.1.message(message));
        effects.outputs.iter().for_each(|record| self.1.record(record));
    }
}

impl<R: Replica> Replica for WatchedReplica<R> {
    type Message = R::Message;
    type Record = R::Record;

    fn start(&mut self, now: Now, effects: &mut Effects<R::Message, R::Record>) {
        self.0.start(now, effects);
        self.look(effects);
    }

    fn on_message(
        &mut self,
        now: Now,
        from: Address,
        message: R::Message,
        effects: &mut Effects<R::Message, R::Record>,
    ) {
        self.0.on_message(now, from, message, effects);
        self.look(effects);
    }

    fn on_wake(&mut self, now: Now, effects: &mut Effects<R::Message, R::Record>) {
        self.0.on_wake(now, effects);
        self.look(effects);
    }

    fn on_regions(&mut self, nearest_first: &[Region]) {
        self.0.on_regions(nearest_first);
    }

    fn notices(&mut self) -> Option<&mut Notices> {
        self.0.notices()
    }

    fn status(&self) -> Status {
        self.0.status()
    }

    fn fingerprint(&self) -> u64 {
        self.0.fingerprint()
    }
}

impl<C: Client> WatchedClient<C> {
    fn look(&self, effects: &Effects<C::Message, Completion>)
    where
        C::Message: Message,
    {
        effects.sends.iter().for_each(|(_, message)| self.1.message(message));
    }
}

impl<C: Client> Client for WatchedClient<C>
where
    C::Message: Message,
{
    type Message = C::Message;

    fn begin(
        &mut self,
        now: Now,
        id: RequestId,
        request: Request,
        effects: &mut Effects<C::Message, Completion>,
    ) {
        self.0.begin(now, id, request, effects);
        self.look(effects);
    }

    fn on_message(
        &mut self,
        now: Now,
        from: Address,
        message: C::Message,
        effects: &mut Effects<C::Message, Completion>,
    ) {
        self.0.on_message(now, from, message, effects);
        self.look(effects);
    }

    fn on_wake(&mut self, now: Now, effects: &mut Effects<C::Message, Completion>) {
        self.0.on_wake(now, effects);
        self.look(effects);
    }

    fn on_regions(&mut self, partition: u16, nearest_first: &[Region]) {
        self.0.on_regions(partition, nearest_first);
    }

    fn end_session(&mut self) {
        self.0.end_session();
    }
}

/// Runs in which everything is said: faults, logs that are soon forgotten, and in some of them many partitions, leases, writes by the clock.
fn options(seed: u64) -> Options {
    let mut options = Options::new(seed, Settings::default());
    options.workload.ops = 200;
    options.workload.levels = true;
    options.workload.moves_percent = 10;
    let settings = &mut options.settings;
    settings.causal.rounds = if seed % 2 == 1 { Rounds::Two } else { Rounds::OneAndAHalf };
    settings.log.checkpoint = 10;
    settings.log.keep_bytes = 2_000;
    settings.log.lease = if seed % 2 == 1 { 400_000 } else { 0 };
    settings.thrifty = seed % 3 != 2;
    settings.writes = if seed % 2 == 1 { Writes::OneRound } else { Writes::TwoRounds };
    settings.batch = if seed % 2 == 1 { 1_000 } else { 0 };
    match seed {
        // Stabilization in a tree.
        2 => {
            options.partitions = 10;
            options.nodes_per_region = 2;
        }
        // Everything is recovered, and clocks cannot be relied upon.
        3 => {
            options = options.regions(5);
            options.settings.retry = 120_000;
            options.settings.recovery = 250_000;
            options.workload.keys = Keys::Few(1);
            options.workload.mix = Mix { reads: 1, writes: 1, rmws: 3 };
            options.clocks = Clocks::Broken;
            options.settings.causal.keep = 50_000;
        }
        _ => {}
    }
    options
}

/// What no run asks for: lists of keys, of more than fit into a message.
fn list<E: Engine>(engine: E, options: &Options) {
    let shape = Shape { rtt: options.rtt.clone(), nodes_per_region: 1, partitions: 1 };
    let conduct = Conduct { seed: 1, commit: 0..=0, codec: false, cpu: None };
    let mut world = World::new(engine, shape, conduct, None);
    for node in 0..world.shape().nodes() {
        world.set_clock(node, 0, Some(options.clock_error));
    }
    let slot = world.open_client(0);
    let at_ms = world.wall_ms(0);
    let set = |key| Plan::Set("v".to_owned()).request(key, at_ms);
    let scan = || Request::Scan { partition: 0, from: 0, count: 2, at_ms };
    for request in [set("a"), set("b"), set("c"), scan(), Request::Fence] {
        let id = world.submit(0, slot, request);
        let done = |notice| matches!(notice, Notice::Done { completion, .. } if completion.request == id);
        while !world.next(Micros::MAX).is_some_and(done) {}
    }
}

/// What the engines of a family say and store in a few short runs.
fn kinds(family: &str, engines: &[&str]) -> Kinds {
    struct Rare<'a>(&'a str, Seen);
    impl Visitor for Rare<'_> {
        type Output = ();
        fn visit<E: Engine>(self, _: E) {
            for rare in RARE.iter().filter(|(family, _)| *family == self.0).flat_map(|(_, rare)| *rare) {
                self.1.message(&wire::decode::<E::Message>(&unhex(rare)).unwrap());
            }
        }
    }
    struct Runner<'a>(EngineName, &'a Options, Seen);
    impl Visitor for Runner<'_> {
        type Output = ();
        fn visit<E: Engine>(self, engine: E) {
            let model = Model::named(self.0.model.name()).unwrap();
            list(Watched(engine.clone(), self.2.clone()), self.1);
            // What came of the run is other tests' business.
            run_engine(Watched(engine, self.2), self.0.name, model, self.1, None);
        }
    }
    let seen = Seen::default();
    for engine in engines {
        let engine = EngineName::of_engine(engine).unwrap();
        with_engine(engine, &Settings::default(), Rare(family, seen.clone()));
        for seed in 0..4 {
            let options = fitting(engine, &options(seed));
            with_engine(engine, &options.settings, Runner(engine, &options, seen.clone()));
        }
    }
    seen.0.take()
}

fn file(family: &str) -> PathBuf {
    let path = format!("../protocol/tests/golden/{family}.txt");
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path)
}

#[test]
fn every_kind_that_runs_say_and_store_has_golden_bytes() {
    let write = std::env::var("MERIDIAN_GOLDEN").is_ok_and(|how| how == "write");
    let mut missing = Vec::new();
    for (family, engines) in FAMILIES {
        let mut text = std::fs::read_to_string(file(family)).unwrap_or_else(|_| {
            format!("# What {family} says and stores: see crates/protocol/tests/golden.rs.\n")
        });
        for (title, (bytes, meaning)) in kinds(family, engines) {
            if !text.lines().any(|line| line == title) {
                let _ = write!(text, "\n{title}\n{bytes}\n{meaning}\n");
                missing.push(format!("{family}: {title}"));
            }
        }
        if write {
            std::fs::write(file(family), text).unwrap();
        }
    }
    assert!(
        write || missing.is_empty(),
        "these have no golden bytes: run this test with MERIDIAN_GOLDEN=write, and commit what it adds\n{}",
        missing.join("\n")
    );
}

#[test]
fn kinds_are_told_by_what_messages_carry() {
    for (meaning, name) in [
        ("Read { key: b\"k\" }", "Read"),
        ("Log(Accept { slot: 1 })", "Log.Accept"),
        ("Request(Command { id: OpId(1) })", "Request.Command"),
        ("Stop", "Stop"),
    ] {
        assert_eq!(kind(meaning), name);
    }
}
