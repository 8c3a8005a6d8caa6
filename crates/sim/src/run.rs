//! One run: clients at work in a storm, then healing, then a test of life, then agreement, then judgement.

use crate::options::{Options, Workload};
use crate::plan::{Plan, Sort};
use crate::recorder::{Index, Recorder, Step};
use crate::report::{End, Ended, Latency, Report};
use crate::storm::{Changes, Storm};
use crate::work::{Planner, Work};
use crate::world::{Conduct, Notice, Shape, World};
use meridian_check::{self as check, Judgement, Model, Verdict};
use meridian_protocol::clock::Micros;
use meridian_protocol::history::Ended as Outcome;
use meridian_protocol::machine::{Completion, Engine, RequestId};
use meridian_protocol::topology::{Region, ReplicaId};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::{BTreeMap, VecDeque};
use std::io::Write;

/// Operations begun in the healed world: one in so many.
const LIVELY_SHARE: usize = 10;

/// The longest that an operation of the healed world may take, and it must end ok.
const LIVELY_WITHIN: Micros = 10_000_000;

/// The longest from the last operation's end until replicas agree.
const AGREEMENT_WITHIN: Micros = 30_000_000;

/// The longest that the first phase may last: much more than any workload needs.
const STORM_WITHIN: Micros = 3_600_000_000;

/// The longest history that is also judged by search: full runs are, by far longer ones only their witnesses.
const SEARCHED: usize = 3_000;

/// How much of a search that witnesses have made needless is done all the same: a violation shows early.
const SHARE: f64 = 0.03;

/// What makes a full run (the fewest operations, the fewest sessions).
const FULL: (usize, usize) = (1_000, 6);

/// Reminders with tokens from here on belong to sessions, those below to the storm.
const SESSIONS: u64 = 1 << 40;

/// Runs one engine and judges what came of it by `model`. `story` gets a line for everything that happens.
pub fn run_engine<E: Engine>(
    engine: E,
    name: &'static str,
    model: Model,
    options: &Options,
    story: Option<Box<dyn Write>>,
) -> Report {
    let _seed = TellSeed { seed: options.seed, engine: name };
    let mut run = Run::new(engine, options, story);
    let stuck = run.all_phases().err();
    run.report(name, model, stuck)
}

/// Tells the seed of a run that a failed assertion has ended, so that it can be had again.
struct TellSeed {
    seed: u64,
    engine: &'static str,
}

impl Drop for TellSeed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the run with seed={} engine={} has panicked", self.seed, self.engine);
        }
    }
}

struct Run<'o, E: Engine> {
    options: &'o Options,
    world: World<E>,
    storm: Storm,
    random: Pcg64Mcg,
    recorder: Recorder,
    sessions: Vec<Session>,
    /// Which session waits for which request of which node.
    open: BTreeMap<(usize, RequestId), usize>,
    /// Operations that may still be begun in this phase.
    budget: usize,
    /// A value of each key that was seen not long ago.
    seen: BTreeMap<String, Option<String>>,
    latencies: Vec<Latency>,
    /// In the healed world: the first operation that did not end ok, though it had to.
    failure: Option<Index>,
    /// In the healed world: open transactions, and those of them that were given up.
    doubtful: (usize, usize),
    healed: bool,
}

/// One client's sessions, one after another: an operation of unknown outcome ends a session, as what follows
/// it has no place in its order.
struct Session {
    node: usize,
    /// Its client machine, while the node is up.
    slot: Option<u32>,
    generation: usize,
    operations: usize,
    busy: Option<Busy>,
}

struct Busy {
    index: Index,
    sort: Sort,
    since: Micros,
    /// What is still to be asked.
    steps: VecDeque<Step>,
    may_be_given_up: bool,
    /// It has opened a transaction.
    opened: bool,
}

impl<'o, E: Engine> Run<'o, E> {
    fn new(engine: E, options: &'o Options, story: Option<Box<dyn Write>>) -> Self {
        let mut random = Pcg64Mcg::seed_from_u64(options.seed);
        let shape = Shape {
            rtt: options.rtt.clone(),
            nodes_per_region: options.nodes_per_region,
            partitions: options.partitions,
        };
        let nodes = shape.nodes();
        let conduct = Conduct {
            seed: random.random(),
            commit: options.commit.clone(),
            codec: options.codec,
            cpu: options.cpu,
        };
        let mut world = World::new(engine, shape, conduct, story);
        let chance = Pcg64Mcg::seed_from_u64(random.random());
        let faults = Storm::begin(&mut world, options, chance);
        let sessions = (0..options.workload.clients)
            .map(|client| Session {
                node: client % nodes,
                slot: None,
                generation: 0,
                operations: 0,
                busy: None,
            })
            .collect();
        Self {
            options,
            world,
            storm: faults,
            random,
            recorder: Recorder::default(),
            sessions,
            open: BTreeMap::new(),
            budget: 0,
            seen: BTreeMap::new(),
            latencies: Vec::new(),
            failure: None,
            doubtful: (0, 0),
            healed: false,
        }
    }

    /// Plays the run.
    ///
    /// # Errors
    /// Where it got stuck.
    fn all_phases(&mut self) -> Result<(), String> {
        let ops = self.options.workload.ops;
        let lively = ops / LIVELY_SHARE;
        self.budget = ops - lively;
        for node in 0..self.world.shape().nodes() {
            self.connect(node);
        }
        let deadline = self.world.time() + STORM_WITHIN;
        self.work_until(deadline, |run| run.budget == 0);
        if self.budget > 0 {
            return Err(format!("{} operations were never begun in an hour of virtual time", self.budget));
        }

        let up = self.storm.end(&mut self.world);
        for node in up {
            self.connect(node);
        }
        let deadline = self.world.time() + self.options.settings.operation_timeout + LIVELY_WITHIN;
        self.work_until(deadline, |run| run.open.is_empty());
        if let Some(session) = self.open.values().next() {
            return Err(self.still_open(*session));
        }

        self.healed = true;
        self.budget = lively;
        for session in 0..self.sessions.len() {
            self.go_on(session);
        }
        let deadline = self.world.time() + LIVELY_WITHIN * (lively as u64).max(1);
        self.work_until(deadline, |run| run.failure.is_some() || run.budget == 0 && run.open.is_empty());
        if let Some(index) = self.failure {
            let event = self.recorder.event(index);
            return Err(format!(
                "operation {} of {} did not end ok in the healed world: {event:?}",
                event.id, event.session
            ));
        }
        if let Some(session) = self.open.values().next() {
            return Err(self.still_open(*session));
        }
        if self.budget > 0 {
            return Err(format!("{} operations were never begun in the healed world", self.budget));
        }
        // On few hot keys most are wounded, and of a dozen it may be all but one.
        if let (all @ 10.., given_up) = self.doubtful
            && (given_up == all || all >= 40 && given_up * 10 > all * 9)
        {
            return Err(format!("{given_up} of {all} transactions were given up in the healed world"));
        }
        self.await_agreement()
    }

    fn still_open(&self, session: usize) -> String {
        let busy = self.sessions[session].busy.as_ref();
        let (index, since) = busy.map(|busy| (busy.index, busy.since)).unwrap_or_default();
        let waited = self.world.time() - since;
        format!(
            "operation {} has not ended {waited} us after its invocation: {:?}",
            index + 1,
            self.recorder.event(index)
        )
    }

    fn work_until(&mut self, deadline: Micros, done: impl Fn(&Self) -> bool) {
        while !done(self) {
            match self.world.next(deadline) {
                None => return,
                // Nobody waits for items here.
                Some(Notice::Told { .. }) => {}
                Some(Notice::Done { node, slot, completion }) => self.ended(node, slot, &completion),
                Some(Notice::Reminder(token)) if token >= SESSIONS => self.go_on((token - SESSIONS) as usize),
                Some(Notice::Reminder(token)) => {
                    let Changes { down, up } = self.storm.strike(&mut self.world, token as usize);
                    for node in down {
                        self.disconnect(node);
                    }
                    for node in up {
                        self.connect(node);
                    }
                }
            }
        }
    }

    /// A node takes requests: its sessions go on, with new machines if it had crashed.
    fn connect(&mut self, node: usize) {
        let shared = self.options.workload.sessions_per_machine.max(1);
        let here: Vec<usize> = (0..self.sessions.len()).filter(|&s| self.sessions[s].node == node).collect();
        for together in here.chunks(shared) {
            if self.sessions[together[0]].slot.is_none() {
                let slot = self.world.open_client(node);
                for &session in together {
                    self.sessions[session].slot = Some(slot);
                }
            }
        }
        for session in here {
            self.go_on(session);
        }
    }

    /// A node has crashed: what its sessions waited for is of unknown outcome, but for transactions that nobody had asked
    /// to commit yet: those never happen.
    fn disconnect(&mut self, node: usize) {
        self.open.retain(|(at, _), _| *at != node);
        for session in self.sessions.iter_mut().filter(|session| session.node == node) {
            session.slot = None;
            session.generation += 1;
            if let Some(busy) = session.busy.take().filter(|busy| !busy.steps.is_empty()) {
                self.recorder.leave(self.world.time(), busy.index);
            }
        }
    }

    /// The session begins its next operation, if it can.
    fn go_on(&mut self, index: usize) {
        let session = &self.sessions[index];
        let (Some(slot), None) = (session.slot, session.busy.as_ref()) else { return };
        let node = session.node;
        if self.budget == 0 || !self.world.is_ready(node) {
            return;
        }
        self.budget -= 1;
        self.travel(node, slot);
        let work = self.plan(index);
        let name = match self.sessions[index].generation {
            0 => format!("s{index}"),
            generation => format!("s{index}.{generation}"),
        };
        let event = self.recorder.begin(self.world.time(), &name, work.kind, work.level);
        let may_be_given_up = work.may_be_given_up();
        let opened = matches!(work.steps.front(), Some(Step::Begin { .. }));
        let Work { sort, steps, .. } = work;
        let since = self.world.time();
        self.sessions[index].busy = Some(Busy { index: event, sort, since, steps, may_be_given_up, opened });
        self.ask(index, node, slot);
    }

    /// The session turns to another region, now and then.
    fn travel(&mut self, node: usize, slot: u32) {
        let Workload { moves_percent, sessions_per_machine, .. } = self.options.workload;
        // Where sessions share a machine, none can move without the others.
        if moves_percent > 0 && sessions_per_machine <= 1 && self.random.random_range(0..100) < moves_percent
        {
            let region = Region(self.random.random_range(0..self.world.shape().rtt.regions()));
            self.world.attach(node, slot, region);
        }
    }

    fn plan(&mut self, session: usize) -> Work {
        let workload = &self.options.workload;
        self.sessions[session].operations += 1;
        let count = self.sessions[session].operations;
        if workload.fence_every > 0 && count.is_multiple_of(workload.fence_every) {
            return Work::one(String::new(), Plan::Fence);
        }
        let number = self.recorder.len() + 1;
        Planner { workload, random: &mut self.random, seen: &self.seen, session, number }.plan()
    }

    /// The session's operation goes on with its next request; if there is none, the session walks away from it.
    fn ask(&mut self, session: usize, node: usize, slot: u32) {
        let Some(busy) = self.sessions[session].busy.as_mut() else { return };
        if let Some(step) = busy.steps.pop_front() {
            let request = self.recorder.ask(busy.index, step, self.world.wall_ms(node));
            let request = self.world.submit(node, slot, request);
            self.open.insert((node, request), session);
            return;
        }
        self.recorder.leave(self.world.time(), busy.index);
        self.sessions[session].busy = None;
        self.end_session(session, node, slot);
        self.pause(session);
    }

    /// A request ended.
    fn ended(&mut self, node: usize, slot: u32, completion: &Completion) {
        let Some(index) = self.open.remove(&(node, completion.request)) else { return };
        let Some(busy) = self.sessions[index].busy.as_ref() else { return };
        if !self.recorder.take(self.world.time(), busy.index, completion) {
            return self.ask(index, node, slot);
        }
        let Some(busy) = self.sessions[index].busy.take() else { return };
        let event = self.recorder.event(busy.index);
        let outcome = event.outcome;
        let micros = self.world.time() - busy.since;
        if outcome == Outcome::Ok {
            if let Some(access) = event.ops.last() {
                self.seen.insert(access.key.clone(), access.value.clone());
            }
            let region = self.world.shape().region_of(node);
            self.latencies.push(Latency { sort: busy.sort, region, micros, rounds: completion.cost.rounds });
        }
        if outcome == Outcome::Unknown {
            self.end_session(index, node, slot);
        }
        if self.healed {
            self.demand_life(&busy, outcome, micros);
        }
        self.pause(index);
    }

    /// What follows has no place in the order of what came before: another session begins.
    fn end_session(&mut self, session: usize, node: usize, slot: u32) {
        self.sessions[session].generation += 1;
        if self.options.workload.sessions_per_machine <= 1 {
            self.world.end_session(node, slot);
        }
    }

    /// In the healed world operations end ok, and in time.
    fn demand_life(&mut self, busy: &Busy, outcome: Outcome, micros: Micros) {
        let given_up = busy.may_be_given_up && outcome == Outcome::Failed;
        // One that finds a watched key changed has ended as it should, and on few keys nearly all do.
        self.doubtful.0 += usize::from(busy.opened);
        self.doubtful.1 += usize::from(busy.opened && given_up);
        let patience = if busy.may_be_given_up { 6 * LIVELY_WITHIN } else { LIVELY_WITHIN };
        if outcome != Outcome::Ok && !given_up || micros > patience {
            self.failure.get_or_insert(busy.index);
        }
    }

    /// The session thinks, then goes on.
    fn pause(&mut self, session: usize) {
        if self.options.workload.think > 0 {
            self.world.remind(self.world.time() + self.options.workload.think, SESSIONS + session as u64);
        } else {
            self.go_on(session);
        }
    }

    /// Lets time pass until all replicas of each partition hold the same.
    fn await_agreement(&mut self) -> Result<(), String> {
        let deadline = self.world.time() + AGREEMENT_WITHIN;
        loop {
            let differing = differing(&self.world.fingerprints());
            if differing.is_empty() {
                return Ok(());
            }
            if self.world.time() >= deadline {
                return Err(format!(
                    "{} s after the last operation these replicas still differ: {}",
                    AGREEMENT_WITHIN / 1_000_000,
                    differing.join("; ")
                ));
            }
            let until = self.world.time() + 100_000;
            self.work_until(until, |_| false);
        }
    }

    fn report(self, engine: &'static str, model: Model, stuck: Option<String>) -> Report {
        let counters = self.counters();
        let Self { options, world, storm, recorder, latencies, .. } = self;
        let (history, contradiction) = recorder.finish();
        let mut ended = Ended::default();
        for event in &history {
            match event.outcome {
                Outcome::Ok => ended.ok += 1,
                Outcome::Failed => ended.failed += 1,
                Outcome::Unknown => ended.unknown += 1,
            }
        }
        let judgement = match contradiction {
            Some(contradiction) => Judgement {
                verdict: Verdict::Violated,
                reason: format!("no state explains this answer: {contradiction}"),
                cycle: Vec::new(),
            },
            None => judge(model, &history),
        };
        let mut report = Report {
            seed: options.seed,
            engine,
            end: End::Holds,
            reason: String::new(),
            shortfalls: shortfalls(options, ended, storm.happened()),
            trace: world.trace(),
            history,
            ended,
            counters,
            faults: storm.happened().clone(),
            latencies,
            messages: world.delivered(),
            duration: world.time(),
        };
        report.conclude(judgement, stuck);
        report
    }

    fn counters(&self) -> BTreeMap<&'static str, u64> {
        let mut counters = BTreeMap::new();
        for (name, count) in self.world.counters() {
            *counters.entry(name).or_default() += count;
        }
        counters.insert("restart", self.world.restarts());
        counters
    }
}

/// By witness; a history that is not too long also by search, which must not contradict it.
fn judge(model: Model, history: &[meridian_protocol::history::Event]) -> Judgement {
    let judgement = check::check(model, history);
    if history.len() > SEARCHED || judgement.verdict != Verdict::Holds {
        return judgement;
    }
    match check::by_short_search(model, history, SHARE) {
        searched if searched.verdict == Verdict::Violated => Judgement {
            reason: format!("the witness holds, but the values do not: {}", searched.reason),
            ..searched
        },
        _ => judgement,
    }
}

/// What is missing for a full run.
fn shortfalls(options: &Options, ended: Ended, faults: &BTreeMap<&'static str, u64>) -> Vec<String> {
    let all = ended.ok + ended.failed + ended.unknown;
    let mut missing = Vec::new();
    if all < FULL.0 {
        missing.push(format!("{all} operations, fewer than {}", FULL.0));
    }
    if options.workload.clients < FULL.1 {
        missing.push(format!("{} sessions, fewer than {}", options.workload.clients, FULL.1));
    }
    if ended.ok * 2 < all {
        missing.push(format!("only {} of {all} operations ended ok, fewer than half", ended.ok));
    }
    let absent = options.faults.kinds().into_iter().filter(|kind| !faults.contains_key(kind));
    missing.extend(absent.map(|kind| format!("no fault of kind {kind} happened")));
    missing
}

/// Partitions whose replicas do not hold the same, in words.
fn differing(fingerprints: &[(ReplicaId, u64)]) -> Vec<String> {
    let mut partitions: BTreeMap<u16, Vec<(u8, u64)>> = BTreeMap::new();
    for (id, digest) in fingerprints {
        partitions.entry(id.partition).or_default().push((id.region.0, *digest));
    }
    partitions
        .into_iter()
        .filter(|(_, replicas)| replicas.iter().any(|(_, digest)| *digest != replicas[0].1))
        .map(|(partition, replicas)| {
            let each: Vec<String> =
                replicas.iter().map(|(region, digest)| format!("region {region} {digest:016x}")).collect();
            format!("partition {partition}: {}", each.join(", "))
        })
        .collect()
}
