//! Schedules that a test dictates, message by message: hold these, let those pass, crash that one, look.
//!
//! ```text
//! let mut script = Script::new(engine, Setting::regions(3));
//! let (p1, p2) = (script.session(0), script.session(1));
//! let stuck = script.hold(|m| matches!(m.message, Message::Write2 { .. }) && to_region(m, 2));
//! let write = script.begin(p1, "x", &Plan::Set("1".into()));
//! script.run_for(200_000);
//! script.release(stuck);
//! script.finish(write);
//! script.expect(Model::Linearizable, Verdict::Holds);
//! ```
//!
//! There are no faults but those that the script makes; messages take exactly half a round trip, commits no time.

use crate::options::first_regions;
use crate::plan::Plan;
use crate::recorder::{Index, Recorder, Step};
use crate::world::{Conduct, Envelope, Fate, Notice, Shape, World};
use bytes::Bytes;
use meridian_check::{self as check, Judgement, Model, Verdict};
use meridian_protocol::clock::Micros;
use meridian_protocol::history::{Event, Kind};
use meridian_protocol::latency::RttMatrix;
use meridian_protocol::machine::{Completion, Engine, Level, Outcome, Request, RequestId};
use meridian_protocol::topology::{Address, Region, ReplicaId};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// The longest that [`Script::finish`] waits.
const PATIENCE: Micros = 120_000_000;

/// The world of a script.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Which nodes there are; by default one a region and one partition.
    pub shape: Shape,
    /// Where machines' own chance comes from.
    pub seed: u64,
}

impl Setting {
    /// The first `count` regions of the paper.
    pub fn regions(count: u8) -> Self {
        Self { shape: Shape { rtt: first_regions(count), nodes_per_region: 1, partitions: 1 }, seed: 1 }
    }

    /// `count` regions, each `rtt_ms` from each other.
    pub fn equidistant(count: u8, rtt_ms: u32) -> Self {
        let names: Vec<String> = (0..count).map(|region| format!("r{region}")).collect();
        let row = |from| {
            let cells = (0..count).map(|to| if to == from { "0".to_string() } else { rtt_ms.to_string() });
            cells.collect::<Vec<_>>().join(",")
        };
        let rows: Vec<String> = (0..count).map(row).collect();
        let rtt = RttMatrix::from_csv(&format!("{}\n{}", names.join(","), rows.join("\n")));
        let rtt = rtt.expect("a square of numbers is a matrix");
        Self { shape: Shape { rtt, nodes_per_region: 1, partitions: 1 }, seed: 1 }
    }
}

/// A session of the script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session(usize);

/// An operation of the script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation(Index);

/// A rule about messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule(usize);

type Predicate<M> = Box<dyn FnMut(&Envelope<M>) -> bool>;

struct Rules<M> {
    /// `None` for a rule that is no more.
    all: Vec<Option<(Fate, Predicate<M>)>>,
    /// Which rule put aside each held message, in the order of [`World::held`].
    holders: Vec<usize>,
    /// All messages that have been sent.
    sent: Vec<Envelope<M>>,
}

/// A world and what sessions do in it.
pub struct Script<E: Engine> {
    world: World<E>,
    recorder: Recorder,
    sessions: Vec<Place>,
    open: BTreeMap<(usize, RequestId), Index>,
    sessions_of: BTreeMap<Index, Session>,
    answers: BTreeMap<Index, Completion>,
    ended: BTreeMap<Index, (Micros, Completion)>,
    rules: Rc<RefCell<Rules<E::Message>>>,
}

struct Place {
    node: usize,
    slot: u32,
    name: String,
}

impl<E: Engine> Script<E> {
    /// A world in which nothing has happened yet.
    pub fn new(engine: E, setting: Setting) -> Self {
        let conduct = Conduct { seed: setting.seed, commit: 0..=0, codec: true, cpu: None };
        let mut world = World::new(engine, setting.shape, conduct, None);
        let rules = Rc::new(RefCell::new(Rules { all: Vec::new(), holders: Vec::new(), sent: Vec::new() }));
        let shared = Rc::clone(&rules);
        world.intercept(move |envelope| {
            let mut rules = shared.borrow_mut();
            rules.sent.push(envelope.clone());
            for index in 0..rules.all.len() {
                let Some((fate, fits)) = &mut rules.all[index] else { continue };
                let fate = *fate;
                if fits(envelope) {
                    if fate == Fate::Hold {
                        rules.holders.push(index);
                    }
                    return fate;
                }
            }
            Fate::Pass
        });
        Self {
            world,
            recorder: Recorder::default(),
            sessions: Vec::new(),
            open: BTreeMap::new(),
            sessions_of: BTreeMap::new(),
            answers: BTreeMap::new(),
            ended: BTreeMap::new(),
            rules,
        }
    }

    /// A new session, with a client machine of its own, on the first node of a region.
    pub fn session(&mut self, region: u8) -> Session {
        let node = usize::from(region) * self.world.shape().nodes_per_region;
        let slot = self.world.open_client(node);
        let name = format!("p{}", self.sessions.len() + 1);
        self.sessions.push(Place { node, slot, name });
        Session(self.sessions.len() - 1)
    }

    /// The session begins an operation.
    pub fn begin(&mut self, session: Session, key: &str, plan: &Plan) -> Operation {
        let kind = if *plan == Plan::Fence { Kind::Fence } else { Kind::Op };
        self.begin_with(session, kind, None, Step::Act(key.to_string(), plan.clone()))
    }

    /// The session begins to act on several keys in one step.
    pub fn begin_together(&mut self, session: Session, parts: &[(&str, Plan)]) -> Operation {
        let reads = parts.iter().all(|(_, plan)| *plan == Plan::Get);
        let parts = parts.iter().map(|(key, plan)| ((*key).to_string(), plan.clone())).collect();
        self.begin_with(session, if reads { Kind::Ro } else { Kind::Rw }, None, Step::Together(parts))
    }

    /// The session begins an operation with a first request, of which it may not be the last.
    pub fn begin_with(
        &mut self,
        session: Session,
        kind: Kind,
        level: Option<Level>,
        step: Step,
    ) -> Operation {
        let name = &self.sessions[session.0].name;
        let operation = Operation(self.recorder.begin(self.world.time(), name, kind, level));
        self.sessions_of.insert(operation.0, session);
        self.ask(operation, step);
        operation
    }

    /// The operation goes on with its next request.
    pub fn ask(&mut self, operation: Operation, step: Step) {
        let Place { node, slot, .. } = self.sessions[self.sessions_of[&operation.0].0];
        self.answers.remove(&operation.0);
        let request = self.recorder.ask(operation.0, step, self.world.wall_ms(node));
        let request = self.world.submit(node, slot, request);
        self.open.insert((node, request), operation.0);
    }

    /// Lets time pass until the operation's last request is answered; the answer.
    ///
    /// # Panics
    /// If that takes more than two minutes.
    pub fn answer(&mut self, operation: Operation) -> Completion {
        let until = self.world.time() + PATIENCE;
        while !self.answers.contains_key(&operation.0) {
            assert!(self.advance(until), "{:?} was not answered", self.recorder.event(operation.0));
        }
        self.answers[&operation.0].clone()
    }

    /// Lets time pass.
    pub fn run_for(&mut self, micros: Micros) {
        let until = self.world.time() + micros;
        while self.advance(until) {}
    }

    /// Lets time pass until the operation has ended; how it ended.
    ///
    /// # Panics
    /// If it does not end within two minutes.
    pub fn finish(&mut self, operation: Operation) -> Completion {
        let until = self.world.time() + PATIENCE;
        while !self.ended.contains_key(&operation.0) {
            let goes_on = self.advance(until);
            assert!(
                goes_on,
                "operation {operation:?} has not ended in two minutes: {:?}",
                self.recorder.history()
            );
        }
        self.ended[&operation.0].1.clone()
    }

    /// Begins an operation and lets time pass until it has ended.
    pub fn run(&mut self, session: Session, key: &str, plan: &Plan) -> Completion {
        let operation = self.begin(session, key, plan);
        self.finish(operation)
    }

    /// Lists all keys of a partition, page by page, with nothing else going on in the session.
    ///
    /// # Panics
    /// If a page cannot be had.
    pub fn list(&mut self, session: Session, partition: u16) -> Vec<Bytes> {
        let Place { node, slot, .. } = self.sessions[session.0];
        let mut all = Vec::new();
        let mut from = 0;
        loop {
            let at_ms = self.world.wall_ms(node);
            let request = self.world.submit(node, slot, Request::Scan { partition, from, count: 10, at_ms });
            let until = self.world.time() + PATIENCE;
            let outcome = loop {
                match self.world.next(until) {
                    Some(Notice::Done { node: at, completion, .. })
                        if at == node && completion.request == request =>
                    {
                        break completion.outcome;
                    }
                    Some(notice) => self.note(notice),
                    None => panic!("a page from {from} did not come in two minutes"),
                }
            };
            let Outcome::Page(keys, next) = outcome else {
                panic!("a page from {from} ended as {outcome:?}")
            };
            all.extend(keys.into_iter().map(|(key, _)| key));
            match next {
                Some(next) => from = next,
                None => return all,
            }
        }
    }

    /// How the operation ended, if it has.
    pub fn outcome(&self, operation: Operation) -> Option<&Completion> {
        self.ended.get(&operation.0).map(|(_, completion)| completion)
    }

    /// How long the operation took, if it has ended.
    pub fn latency(&self, operation: Operation) -> Option<Micros> {
        let (ended, _) = self.ended.get(&operation.0)?;
        Some(ended - (self.recorder.event(operation.0).invoke / 1_000) as Micros)
    }

    /// From now on messages of which `fits` is true are put aside.
    pub fn hold(&mut self, fits: impl FnMut(&Envelope<E::Message>) -> bool + 'static) -> Rule {
        self.rule(Fate::Hold, Box::new(fits))
    }

    /// From now on messages of which `fits` is true are lost.
    pub fn lose(&mut self, fits: impl FnMut(&Envelope<E::Message>) -> bool + 'static) -> Rule {
        self.rule(Fate::Lose, Box::new(fits))
    }

    /// The rule ends. What it has put aside stays so.
    pub fn end_rule(&mut self, rule: Rule) {
        self.rules.borrow_mut().all[rule.0] = None;
    }

    /// The rule ends, and what it has put aside is delivered now, in the order in which it was sent.
    pub fn release(&mut self, rule: Rule) {
        self.end_rule(rule);
        self.deliver(rule, |_| true);
    }

    /// Of what the rule has put aside, delivers now that of which `fits` is true; the rule goes on. How many.
    pub fn deliver(&mut self, rule: Rule, fits: impl Fn(&Envelope<E::Message>) -> bool) -> usize {
        let envelopes = self.take_held(rule, fits);
        let count = envelopes.len();
        for envelope in envelopes {
            self.world.deliver(envelope);
        }
        count
    }

    /// Of what the rule has put aside, loses that of which `fits` is true. How many.
    pub fn discard(&mut self, rule: Rule, fits: impl Fn(&Envelope<E::Message>) -> bool) -> usize {
        self.take_held(rule, fits).len()
    }

    /// What the rule has put aside and still keeps.
    pub fn held(&mut self, rule: Rule) -> Vec<Envelope<E::Message>> {
        let rules = self.rules.borrow();
        let kept =
            rules.holders.iter().zip(self.world.held().iter()).filter(|(holder, _)| **holder == rule.0);
        kept.map(|(_, envelope)| envelope.clone()).collect()
    }

    /// Delivers a message now that nobody has sent, or once more one that was.
    pub fn inject(&mut self, envelope: Envelope<E::Message>) {
        self.world.deliver(envelope);
    }

    /// All messages sent so far of which `fits` is true.
    pub fn sent(&self, fits: impl Fn(&Envelope<E::Message>) -> bool) -> Vec<Envelope<E::Message>> {
        self.rules.borrow().sent.iter().filter(|envelope| fits(envelope)).cloned().collect()
    }

    /// The address of the session's client machine.
    pub fn address(&self, session: Session) -> Address {
        let Place { node, slot, .. } = self.sessions[session.0];
        self.world.client_address(node, slot)
    }

    /// Crashes all nodes of a region. Its sessions are gone.
    pub fn crash(&mut self, region: u8) {
        for node in self.nodes(region) {
            self.world.crash(node);
            self.open.retain(|(at, _), _| *at != node);
        }
    }

    /// Starts all nodes of a region again.
    pub fn restart(&mut self, region: u8) {
        for node in self.nodes(region) {
            self.world.start(node);
        }
    }

    /// Tells all machines which regions are reachable, as nodes notice it some time after a crash.
    pub fn notice_regions(&mut self) {
        for node in 0..self.world.shape().nodes() {
            self.world.hint_regions(node, self.world.time());
        }
    }

    /// The world: for what has no word of its own here.
    pub fn world(&mut self) -> &mut World<E> {
        &mut self.world
    }

    /// What sessions did and saw so far.
    pub fn history(&self) -> Vec<Event> {
        self.recorder.history()
    }

    /// Judges what sessions did and saw so far, by their witnesses and by search. A violation by either counts.
    pub fn judge(&self, model: Model) -> Judgement {
        let history = self.history();
        let witnessed = check::by_witness(model, &history);
        if witnessed.verdict == Verdict::Violated { witnessed } else { check::by_search(model, &history) }
    }

    /// Demands a verdict.
    ///
    /// # Panics
    /// If the judgement is another.
    pub fn expect(&self, model: Model, verdict: Verdict) {
        let judgement = self.judge(model);
        let lines: Vec<String> = self.history().iter().map(|event| format!("{event:?}")).collect();
        assert_eq!(judgement.verdict, verdict, "{model}: {}\n{}", judgement.reason, lines.join("\n"));
    }

    /// Lets time pass until replicas of each partition hold the same.
    ///
    /// # Errors
    /// What they hold if they do not agree within two minutes.
    pub fn agree(&mut self) -> Result<(), String> {
        let until = self.world.time() + PATIENCE;
        loop {
            let mut digests = BTreeMap::new();
            for (id, digest) in self.world.fingerprints() {
                digests.entry(id.partition).or_insert_with(Vec::new).push(digest);
            }
            if digests.values().all(|all| all.iter().all(|digest| *digest == all[0])) {
                return Ok(());
            }
            if self.world.time() >= until {
                return Err(format!("replicas differ: {:?}", self.world.fingerprints()));
            }
            self.run_for(100_000);
        }
    }

    fn advance(&mut self, until: Micros) -> bool {
        let notice = self.world.next(until);
        let something = notice.is_some();
        if let Some(notice) = notice {
            self.note(notice);
        }
        something
    }

    fn note(&mut self, notice: Notice) {
        if let Notice::Done { node, completion, .. } = notice
            && let Some(index) = self.open.remove(&(node, completion.request))
        {
            if self.recorder.take(self.world.time(), index, &completion) {
                self.ended.insert(index, (self.world.time(), completion.clone()));
            }
            self.answers.insert(index, completion);
        }
    }

    fn rule(&mut self, fate: Fate, fits: Predicate<E::Message>) -> Rule {
        let mut rules = self.rules.borrow_mut();
        rules.all.push(Some((fate, fits)));
        Rule(rules.all.len() - 1)
    }

    fn take_held(
        &mut self,
        rule: Rule,
        fits: impl Fn(&Envelope<E::Message>) -> bool,
    ) -> Vec<Envelope<E::Message>> {
        let mut rules = self.rules.borrow_mut();
        let holders = std::mem::take(&mut rules.holders);
        let held = std::mem::take(self.world.held());
        let mut taken = Vec::new();
        for (holder, envelope) in holders.into_iter().zip(held) {
            if holder == rule.0 && fits(&envelope) {
                taken.push(envelope);
            } else {
                rules.holders.push(holder);
                self.world.held().push(envelope);
            }
        }
        taken
    }

    fn nodes(&self, region: u8) -> std::ops::Range<usize> {
        let first = usize::from(region) * self.world.shape().nodes_per_region;
        first..first + self.world.shape().nodes_per_region
    }
}

/// Whether the message goes to a replica in that region.
pub fn to_region<M>(envelope: &Envelope<M>, region: u8) -> bool {
    matches!(envelope.to, Address::Replica(ReplicaId { region: Region(at), .. }) if at == region)
}

/// Whether the message comes from a replica in that region.
pub fn from_region<M>(envelope: &Envelope<M>, region: u8) -> bool {
    matches!(envelope.from, Address::Replica(ReplicaId { region: Region(at), .. }) if at == region)
}
