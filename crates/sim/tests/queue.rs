//! Queues in a storm: producers push items of their own, consumers wait for them and move or pop them, machines crash,
//! messages get lost. Nothing that was acknowledged is lost or doubled, and whoever waits when the storm is over is served.

use bytes::Bytes;
use meridian_protocol::clock::Micros;
use meridian_protocol::latency::RttMatrix;
use meridian_protocol::machine::{Completion, Engine, Level, Outcome, Request, RequestId};
use meridian_protocol::object::{Action, Answer, Command, End, Reply};
use meridian_protocol::registry::{EngineName, Settings, Visitor, with_engine};
use meridian_protocol::transfer::{Mender, Next, Transfer};
use meridian_protocol::waiting::{Turn, WaitId, Waits};
use meridian_sim::world::{Conduct, Notice, Shape, Weather, World};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::{BTreeMap, BTreeSet};

const NODES: usize = 3;
const CONSUMERS: usize = 3;
const STORM: Micros = 60_000_000;
/// Within this time after the storm all must be done.
const CALM: Micros = 120_000_000;
/// How long a move may stand still, as on a node.
const PATIENCE: Micros = 3_000_000;

/// What consumers do, and what is wrong with their node.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Plan {
    seed: u64,
    moves: bool,
    flaw: Flaw,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Flaw {
    None,
    /// What others have left half moved stays where it is.
    NoMender,
    /// Nobody is called at all: what comes is seen by whoever begins to wait.
    NeverCalled,
}

/// What a run came to.
#[derive(Debug, Default)]
struct Found {
    acknowledged: usize,
    lost: usize,
    doubled: usize,
    /// Consumers that wait although an item is there.
    waiting: usize,
    /// Pops of which nobody knows what they took.
    unknown: usize,
    mended: usize,
    restarts: u64,
}

struct Queues<E: Engine> {
    plan: Plan,
    world: World<E>,
    random: Pcg64Mcg,
    nodes: Vec<Node>,
    pushed: u64,
    acknowledged: BTreeSet<Bytes>,
    popped: Vec<Bytes>,
    /// Where consumers have taken what they moved: each life of a node has lists of its own, so that nobody comes back to
    /// finish what another life has begun.
    lists: BTreeSet<Bytes>,
    found: Found,
    storm: bool,
}

/// A node's sessions in one life.
struct Node {
    waits: Waits<usize>,
    mender: Mender,
    producer: u32,
    helper: u32,
    consumers: Vec<Consumer>,
    open: BTreeMap<RequestId, Doing>,
    /// When a reminder of the mender is set.
    reminder: Option<Micros>,
}

struct Consumer {
    slot: u32,
    wait: Option<WaitId>,
    trying: bool,
}

#[derive(Clone, Debug)]
enum Doing {
    Push(Bytes),
    Pop(usize),
    Move(usize, Transfer),
    Mend(Transfer),
    Aside,
}

fn jobs() -> Bytes {
    Bytes::from("jobs")
}

/// Reminders: a node's producer, a node's mender, the storm.
const PRODUCE: u64 = 0;
const MEND: u64 = 100;
const STRIKE: u64 = 200;
const START: u64 = 300;

impl<E: Engine> Queues<E> {
    fn new(engine: E, plan: Plan) -> Self {
        let rtt = RttMatrix::of_flags("3", "paper", |_| Err(String::new())).expect("three regions");
        let shape = Shape { rtt, nodes_per_region: 1, partitions: 2 };
        let conduct = Conduct { seed: plan.seed, commit: 0..=2_000, codec: true, cpu: None };
        let mut world = World::new(engine, shape, conduct, None);
        for node in 0..NODES {
            world.set_clock(node, 0, Some(10_000));
            world.remind(500_000, PRODUCE + node as u64);
        }
        let nodes = (0..NODES).map(|node| Self::connect(&mut world, node)).collect();
        let random = Pcg64Mcg::seed_from_u64(plan.seed);
        let mut queues = Self {
            plan,
            world,
            random,
            nodes,
            pushed: 0,
            acknowledged: BTreeSet::new(),
            popped: Vec::new(),
            lists: BTreeSet::new(),
            found: Found::default(),
            storm: true,
        };
        for node in 0..NODES {
            queues.begin(node);
        }
        queues.world.remind(1_000_000, STRIKE);
        queues
    }

    /// The sessions of a node that has started.
    fn connect(world: &mut World<E>, node: usize) -> Node {
        let consumers = (0..CONSUMERS)
            .map(|_| Consumer { slot: world.open_client(node), wait: None, trying: false })
            .collect();
        Node {
            waits: Waits::default(),
            mender: Mender::new(PATIENCE * (1 + node as u64)),
            producer: world.open_client(node),
            helper: world.open_client(node),
            consumers,
            open: BTreeMap::new(),
            reminder: None,
        }
    }

    fn begin(&mut self, node: usize) {
        for consumer in 0..CONSUMERS {
            self.wait(node, consumer);
        }
    }

    fn ask(&mut self, node: usize, slot: u32, key: Bytes, command: Command, doing: Doing) {
        let (at_ms, level) = (self.world.wall_ms(node), Level::default());
        let request = Request::Act { key, action: Action::Command(command), at_ms, level };
        let id = self.world.submit(node, slot, request);
        self.nodes[node].open.insert(id, doing);
    }

    // Consumers.

    fn wait(&mut self, node: usize, consumer: usize) {
        let id = self.nodes[node].waits.join(consumer, vec![jobs()], None);
        self.nodes[node].consumers[consumer].wait = Some(id);
        self.follow(node);
        self.go_on(node, consumer);
    }

    fn follow(&mut self, node: usize) {
        for (key, watched) in self.nodes[node].waits.take_watches() {
            self.world.watch(node, &key, watched);
        }
    }

    fn go_on(&mut self, node: usize, consumer: usize) {
        let Consumer { slot, wait: Some(wait), .. } = self.nodes[node].consumers[consumer] else { return };
        self.nodes[node].consumers[consumer].trying = false;
        if let Turn::Try(key) = self.nodes[node].waits.turn(wait) {
            self.nodes[node].consumers[consumer].trying = true;
            if self.plan.moves {
                let own = Bytes::from(format!("taken:{node}:{}:{consumer}", self.world.restarts()));
                self.lists.insert(own.clone());
                let (transfer, command) = Transfer::begin(key.clone(), own, (End::Head, End::Tail));
                self.ask(node, slot, key, command, Doing::Move(consumer, transfer));
            } else {
                self.ask(node, slot, key, Command::ListPop(End::Head, None), Doing::Pop(consumer));
            }
        }
    }

    fn call(&mut self, node: usize) {
        while let Some(consumer) = self.nodes[node].waits.take_called() {
            self.go_on(node, consumer);
        }
    }

    /// A try has ended without nothing: whoever was served, or failed, begins anew.
    fn end_try(&mut self, node: usize, consumer: usize, with_item: bool) {
        if let Some(wait) = self.nodes[node].consumers[consumer].wait.take() {
            self.nodes[node].waits.leave(wait, with_item);
        }
        self.follow(node);
        self.wait(node, consumer);
        self.call(node);
    }

    // What happens.

    fn run(&mut self, until: Micros, done: impl Fn(&Self) -> bool) {
        while !done(self) {
            match self.world.next(until) {
                None => return,
                Some(Notice::Done { node, completion, .. }) => self.ended(node, completion),
                Some(Notice::Told { node, notice }) => {
                    let now = self.world.time();
                    self.nodes[node].mender.on_notice(now, &notice);
                    self.remind_mender(node);
                    if self.plan.flaw != Flaw::NeverCalled {
                        self.nodes[node].waits.on_items(&notice.key, notice.items);
                        self.call(node);
                    }
                }
                Some(Notice::Reminder(token)) => self.on_reminder(token),
            }
        }
    }

    fn on_reminder(&mut self, token: u64) {
        match token {
            MEND..STRIKE => self.mend((token - MEND) as usize),
            STRIKE if self.storm => self.strike(),
            STRIKE => {}
            START.. => self.start((token - START) as usize),
            _ => {
                let node = token as usize;
                if self.storm {
                    if self.world.is_ready(node) {
                        self.push(node);
                    }
                    let pause = self.random.random_range(50_000..600_000);
                    self.world.remind(self.world.time() + pause, token);
                }
            }
        }
    }

    fn push(&mut self, node: usize) {
        self.pushed += 1;
        let item = Bytes::from(format!("item{}", self.pushed));
        let slot = self.nodes[node].producer;
        let command = Command::ListPush(End::Tail, vec![item.clone()]);
        self.ask(node, slot, jobs(), command, Doing::Push(item));
    }

    fn ended(&mut self, node: usize, completion: Completion) {
        let Some(doing) = self.nodes[node].open.remove(&completion.request) else { return };
        let reply = match completion.outcome {
            Outcome::Answer(Answer::One(reply)) => Some(reply),
            _ => None,
        };
        match (doing, reply) {
            (Doing::Push(item), Some(_)) => drop(self.acknowledged.insert(item)),
            (Doing::Pop(consumer), Some(Reply::Bulk(item))) => {
                self.popped.push(item);
                self.end_try(node, consumer, true);
            }
            (Doing::Pop(consumer), Some(_)) => {
                self.go_on(node, consumer);
            }
            (Doing::Pop(consumer), None) => {
                self.found.unknown += 1;
                self.end_try(node, consumer, false);
            }
            (Doing::Move(consumer, transfer), Some(reply)) => self.moved(node, consumer, transfer, reply),
            (Doing::Move(consumer, _), None) => self.end_try(node, consumer, false),
            (Doing::Mend(mut transfer), Some(reply)) => {
                if let Next::Ask(key, command) = transfer.on_reply(reply) {
                    let slot = self.nodes[node].helper;
                    self.ask(node, slot, key, command, Doing::Mend(transfer));
                }
            }
            (Doing::Push(_) | Doing::Mend(_), None) | (Doing::Aside, _) => {}
        }
    }

    fn moved(&mut self, node: usize, consumer: usize, mut transfer: Transfer, reply: Reply) {
        let slot = self.nodes[node].consumers[consumer].slot;
        match transfer.on_reply(reply) {
            Next::Ask(key, command) => self.ask(node, slot, key, command, Doing::Move(consumer, transfer)),
            Next::Ended(reply, last) => {
                if let Some((key, command)) = last {
                    let slot = self.nodes[node].helper;
                    self.ask(node, slot, key, command, Doing::Aside);
                }
                match reply {
                    Reply::Bulk(_) => self.end_try(node, consumer, true),
                    _ => self.go_on(node, consumer),
                }
            }
        }
    }

    // Moves that stand still.

    fn remind_mender(&mut self, node: usize) {
        let due = self.nodes[node].mender.next_due();
        if let Some(due) = due.filter(|due| self.nodes[node].reminder.is_none_or(|at| *due < at)) {
            self.nodes[node].reminder = Some(due);
            self.world.remind(due, MEND + node as u64);
        }
    }

    fn mend(&mut self, node: usize) {
        if !self.world.is_ready(node) || self.plan.flaw == Flaw::NoMender {
            return;
        }
        self.nodes[node].reminder = None;
        for (source, leaving) in self.nodes[node].mender.take_due(self.world.time()) {
            self.found.mended += 1;
            let (transfer, command) = Transfer::resume(source, leaving);
            let slot = self.nodes[node].helper;
            self.ask(node, slot, transfer.destination().clone(), command, Doing::Mend(transfer));
        }
        self.remind_mender(node);
    }

    // The storm.

    fn strike(&mut self) {
        let share = |random: &mut Pcg64Mcg| random.random_range(0.0..0.1);
        let weather = Weather {
            loss: share(&mut self.random),
            duplicate: share(&mut self.random),
            reorder: share(&mut self.random),
            longest_delay: 300_000,
            jitter: 0.1,
        };
        self.world.set_weather(weather);
        let node = self.random.random_range(0..NODES);
        if (0..NODES).all(|node| self.world.is_up(node)) {
            self.world.crash(node);
            let open = std::mem::take(&mut self.nodes[node].open);
            self.found.unknown += open.values().filter(|doing| matches!(doing, Doing::Pop(_))).count();
            self.nodes[node].waits = Waits::default();
            let away = self.random.random_range(100_000..8_000_000);
            self.world.remind(self.world.time() + away, START + node as u64);
        }
        let next = self.random.random_range(1_000_000..4_000_000);
        self.world.remind(self.world.time() + next, STRIKE);
    }

    fn start(&mut self, node: usize) {
        self.world.start(node);
        self.nodes[node] = Self::connect(&mut self.world, node);
        self.begin(node);
    }

    // The end.

    fn judge(mut self) -> Found {
        self.run(STORM, |_| false);
        self.storm = false;
        self.world.set_weather(Weather::default());
        let end = STORM + CALM;
        self.run(STORM + 30_000_000, |_| false);
        // Whoever waits now is served, and nobody looks by himself.
        for node in 0..NODES {
            self.push(node);
        }
        self.run(end, |_| false);
        self.found.restarts = self.world.restarts();
        let left = self.read(&jobs());
        self.found.waiting = if left.is_empty() {
            0
        } else {
            self.nodes.iter().map(|node| node.consumers.iter().filter(|c| !c.trying).count()).sum()
        };
        let mut count: BTreeMap<Bytes, usize> = BTreeMap::new();
        let mut held = left;
        held.extend(std::mem::take(&mut self.popped));
        for list in std::mem::take(&mut self.lists) {
            held.extend(self.read(&list));
        }
        for item in held {
            *count.entry(item).or_default() += 1;
        }
        self.found.acknowledged = self.acknowledged.len();
        self.found.lost = self.acknowledged.iter().filter(|item| !count.contains_key(*item)).count();
        self.found.doubled = count.values().filter(|times| **times > 1).count();
        self.found
    }

    fn read(&mut self, key: &Bytes) -> Vec<Bytes> {
        let slot = self.nodes[0].producer;
        let (at_ms, level) = (self.world.wall_ms(0), Level::default());
        let action = Action::Command(Command::ListRange(0, -1));
        let id = self.world.submit(0, slot, Request::Act { key: key.clone(), action, at_ms, level });
        let until = self.world.time() + CALM;
        loop {
            match self.world.next(until) {
                Some(Notice::Done { node: 0, completion, .. }) if completion.request == id => {
                    match completion.outcome {
                        Outcome::Answer(Answer::One(Reply::List(items))) => return items,
                        other => panic!("{key:?} cannot be read in the healed world: {other:?}"),
                    }
                }
                Some(_) => {}
                None => panic!("{key:?} was not read in the healed world"),
            }
        }
    }
}

fn play(engine: &str, plan: Plan) -> Found {
    struct Player(Plan);
    impl Visitor for Player {
        type Output = Found;
        fn visit<E: Engine>(self, engine: E) -> Found {
            Queues::new(engine, self.0).judge()
        }
    }
    let name = EngineName::of_engine(engine).expect("the engine is known");
    let found = with_engine(name, &Settings::default(), Player(plan));
    println!("{engine} {plan:?}: {found:?}");
    found
}

const ENGINES: [&str; 5] = ["gryff", "gryff-rsc", "epaxos", "multipaxos", "spanner-rss"];

#[test]
fn what_is_moved_is_never_lost_and_never_doubled() {
    for engine in ENGINES {
        let mut mended = 0;
        for seed in 0..4 {
            let found = play(engine, Plan { seed, moves: true, flaw: Flaw::None });
            assert_eq!((found.lost, found.doubled, found.waiting), (0, 0, 0), "{engine} {seed}: {found:?}");
            assert!(found.acknowledged > 40 && found.restarts > 3, "{engine} {seed}: {found:?}");
            mended += found.mended;
        }
        assert!(mended > 0, "{engine}: no move was cut short, so nothing was tried");
    }
}

#[test]
fn what_is_popped_is_never_doubled_and_lost_only_with_its_consumer() {
    for engine in ENGINES {
        for seed in 10..13 {
            let found = play(engine, Plan { seed, moves: false, flaw: Flaw::None });
            assert_eq!((found.doubled, found.waiting), (0, 0), "{engine} {seed}: {found:?}");
            assert!(found.lost <= found.unknown, "{engine} {seed}: {found:?}");
            assert!(found.acknowledged > 40, "{engine} {seed}: {found:?}");
        }
    }
}

#[test]
fn flaws_are_found() {
    let found = |flaw, wrong: fn(&Found) -> bool| {
        (0..6).filter(|seed| wrong(&play("gryff", Plan { seed: *seed, moves: true, flaw }))).count()
    };
    let lost = found(Flaw::NoMender, |found| found.lost > 0);
    assert!(lost > 0, "moves that nobody finishes were found in no run");
    let asleep = found(Flaw::NeverCalled, |found| found.waiting > 0);
    assert!(asleep > 0, "who is never called was found in no run");
}
