//! Several services under one virtual time, and sessions that go from one to another and tell each other what they have
//! seen: the rules of [`compose`] at work, judged as if all of it were one service.
//!
//! Each service is a [`World`] with faults of its own. They go on in steps of [`STEP`]: what has ended within one is taken
//! up at its end, when all have come so far, so that a session that goes on at another service does so after it.

use crate::options::Options;
use crate::recorder::{Index, Recorder, Step};
use crate::storm::{Changes, Storm};
use crate::world::{Conduct, Notice, Shape, World};
use meridian_protocol::clock::Micros;
use meridian_protocol::compose::{self, Fence, Services};
use meridian_protocol::history::{Ended, Event, Kind};
use meridian_protocol::machine::{Completion, Context, Engine, Outcome, Request, RequestId};
use meridian_protocol::registry::{self, EngineName, Visitor};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeMap;

/// By how much services go on at once.
pub const STEP: Micros = 100;

/// One service, whatever its engine.
trait Service {
    /// Goes on until `until`; what happened meanwhile.
    fn pass(&mut self, until: Micros) -> Vec<Happened>;
    /// A new client machine on a node that is up.
    fn open_client(&mut self, node: usize) -> u32;
    fn submit(&mut self, node: usize, slot: u32, request: Request) -> RequestId;
    fn wall_ms(&self, node: usize) -> u64;
    /// Whether the node takes requests now.
    fn is_ready(&self, node: usize) -> bool;
    /// All faults end.
    fn heal(&mut self);
    fn happened(&self) -> BTreeMap<&'static str, u64>;
}

enum Happened {
    Done(usize, Completion),
    /// A node has lost its client machines.
    Down(usize),
}

struct Member<E: Engine> {
    world: World<E>,
    storm: Storm,
}

impl<E: Engine> Service for Member<E> {
    fn pass(&mut self, until: Micros) -> Vec<Happened> {
        let mut all = Vec::new();
        while let Some(notice) = self.world.next(until) {
            match notice {
                Notice::Done { node, completion, .. } => all.push(Happened::Done(node, completion)),
                Notice::Reminder(token) => {
                    let Changes { down, .. } = self.storm.strike(&mut self.world, token as usize);
                    all.extend(down.into_iter().map(Happened::Down));
                }
                // Nobody waits for items here.
                Notice::Told { .. } => {}
            }
        }
        all
    }

    fn open_client(&mut self, node: usize) -> u32 {
        self.world.open_client(node)
    }

    fn submit(&mut self, node: usize, slot: u32, request: Request) -> RequestId {
        self.world.submit(node, slot, request)
    }

    fn wall_ms(&self, node: usize) -> u64 {
        self.world.wall_ms(node)
    }

    fn is_ready(&self, node: usize) -> bool {
        self.world.is_ready(node)
    }

    fn heal(&mut self) {
        self.storm.end(&mut self.world);
    }

    fn happened(&self) -> BTreeMap<&'static str, u64> {
        self.storm.happened().clone()
    }
}

/// Makes a service of an engine.
struct Make<'o>(&'o Options, u64);

impl Visitor for Make<'_> {
    type Output = Box<dyn Service>;

    fn visit<E: Engine>(self, engine: E) -> Self::Output {
        let Self(options, seed) = self;
        let shape = Shape {
            rtt: options.rtt.clone(),
            nodes_per_region: options.nodes_per_region,
            partitions: options.partitions,
        };
        let conduct =
            Conduct { seed, commit: options.commit.clone(), codec: options.codec, cpu: options.cpu };
        let mut world = World::new(engine, shape, conduct, None);
        let storm = Storm::begin(&mut world, options, Pcg64Mcg::seed_from_u64(seed ^ 1));
        Box::new(Member { world, storm })
    }
}

/// What one session tells another: what it has used and owes, what engines must be told, and its last operation.
#[derive(Clone, Debug, Default)]
pub struct Told {
    services: Vec<(usize, bool)>,
    contexts: Vec<(usize, Context)>,
    after: Vec<u64>,
}

/// What a session does next.
#[derive(Clone, Debug)]
pub enum Task {
    /// An operation of one request at a service.
    Operate(usize, Kind, Step),
    /// Fences all services used since their last fence.
    Fence,
    /// Tells its context.
    Tell,
    /// Goes on after another session.
    Hear(Told),
}

/// How a task ended.
#[derive(Clone, Debug)]
pub enum Done {
    /// The operation has ended, so.
    Operated(Ended),
    /// What is told.
    Told(Told),
    /// All that was fenced is.
    Fenced,
    /// What was told has been taken over.
    Heard,
    /// A fence or another step ahead of it failed: it was not done.
    NotDone,
    /// The session is over, as a node was lost or nobody knows how its operation ended; another one begins in its place.
    Lost,
}

struct Session {
    node: usize,
    /// How many there were in its place before.
    generation: usize,
    slots: Vec<Option<u32>>,
    composed: compose::Session<usize>,
    /// What its next operation comes after by messages.
    after: Vec<u64>,
    /// Its last operation that ended.
    last: Option<u64>,
    doing: Option<Doing>,
}

struct Doing {
    /// What it waits for.
    waiting: BTreeMap<(usize, RequestId), Part>,
    failed: bool,
    then: Then,
}

#[derive(Clone, Copy)]
enum Part {
    Fence(Fence),
    Other,
}

enum Then {
    Begin(usize, Kind, Step),
    Operated(Index),
    Fenced,
    Told(Told),
    Heard(Told),
}

/// Services and the sessions that use them.
pub struct Composition {
    names: Vec<String>,
    services: Vec<Box<dyn Service>>,
    rules: Services<usize>,
    time: Micros,
    recorder: Recorder,
    sessions: Vec<Session>,
    open: BTreeMap<(usize, usize, RequestId), usize>,
}

impl Composition {
    /// One service by each engine, all as `options` say, with the bug that is planted in their settings.
    pub fn new(engines: &[EngineName], options: &Options) -> Self {
        let mut random = Pcg64Mcg::seed_from_u64(options.seed);
        let mut rules = Services::new(options.settings.plant);
        let mut services = Vec::new();
        for (index, engine) in engines.iter().enumerate() {
            // An index comes once.
            let _ = rules.register(index, engine.role());
            let make = Make(options, random.random());
            services.push(registry::with_engine(*engine, &options.settings, make));
        }
        Self {
            names: (0..engines.len()).map(|index| format!("s{index}")).collect(),
            services,
            rules,
            time: 0,
            recorder: Recorder::default(),
            sessions: Vec::new(),
            open: BTreeMap::new(),
        }
    }

    /// A new session on a node; the services have as many each.
    pub fn session(&mut self, node: usize) -> usize {
        let slots = vec![None; self.services.len()];
        let composed = compose::Session::default();
        self.sessions.push(Session {
            node,
            generation: 0,
            slots,
            composed,
            after: Vec::new(),
            last: None,
            doing: None,
        });
        self.sessions.len() - 1
    }

    /// The virtual time.
    pub fn time(&self) -> Micros {
        self.time
    }

    /// Whether the session waits for nothing, and all services take its requests.
    pub fn is_ready(&self, session: usize) -> bool {
        let Session { node, doing, .. } = &self.sessions[session];
        doing.is_none() && self.services.iter().all(|service| service.is_ready(*node))
    }

    /// The session begins a task; [`Self::pass`] says how it ends.
    pub fn begin(&mut self, session: usize, task: Task) {
        assert!(self.is_ready(session), "one task at a time, on nodes that take requests");
        match task {
            Task::Operate(service, kind, step) => {
                let before = self.sessions[session].composed.before(&self.rules, service);
                let mut waiting = BTreeMap::new();
                for (other, fence) in before.fences {
                    waiting.insert((other, self.submit(session, other, Request::Fence)), Part::Fence(fence));
                }
                if before.enters {
                    waiting.insert((service, self.submit(session, service, Request::Enter)), Part::Other);
                }
                self.wait(session, waiting, Then::Begin(service, kind, step));
            }
            Task::Fence => {
                let mut waiting = BTreeMap::new();
                for (service, fence) in self.sessions[session].composed.unfenced() {
                    let request = self.submit(session, service, Request::Fence);
                    waiting.insert((service, request), Part::Fence(fence));
                }
                self.wait(session, waiting, Then::Fenced);
            }
            Task::Tell => {
                let services = self.sessions[session].composed.used(&self.rules);
                let mut waiting = BTreeMap::new();
                for (service, _) in &services {
                    waiting.insert((*service, self.submit(session, *service, Request::Export)), Part::Other);
                }
                let after = self.sessions[session].last.into_iter().collect();
                self.wait(session, waiting, Then::Told(Told { services, contexts: Vec::new(), after }));
            }
            Task::Hear(told) => {
                let mut waiting = BTreeMap::new();
                for (service, context) in &told.contexts {
                    let request = self.submit(session, *service, Request::Import(context.clone()));
                    waiting.insert((*service, request), Part::Other);
                }
                self.wait(session, waiting, Then::Heard(told));
            }
        }
    }

    fn submit(&mut self, session: usize, service: usize, request: Request) -> RequestId {
        let Session { node, slots, .. } = &mut self.sessions[session];
        let host = &mut self.services[service];
        let slot = *slots[service].get_or_insert_with(|| host.open_client(*node));
        let id = host.submit(*node, slot, request);
        self.open.insert((service, *node, id), session);
        id
    }

    fn wait(&mut self, session: usize, waiting: BTreeMap<(usize, RequestId), Part>, then: Then) {
        self.sessions[session].doing = Some(Doing { waiting, failed: false, then });
    }

    /// Lets a step of time pass; which tasks have ended.
    pub fn pass(&mut self) -> Vec<(usize, Done)> {
        self.time += STEP;
        let mut ended = Vec::new();
        for service in 0..self.services.len() {
            for happened in self.services[service].pass(self.time) {
                match happened {
                    Happened::Done(node, completion) => self.take(service, node, &completion),
                    Happened::Down(node) => self.lose_node(node, &mut ended),
                }
            }
        }
        for session in 0..self.sessions.len() {
            self.go_on(session, &mut ended);
        }
        ended
    }

    /// A request has ended.
    fn take(&mut self, service: usize, node: usize, completion: &Completion) {
        let Some(session) = self.open.remove(&(service, node, completion.request)) else { return };
        let time = self.time;
        let Session { composed, doing, .. } = &mut self.sessions[session];
        let Some(doing) = doing else { return };
        let Some(part) = doing.waiting.remove(&(service, completion.request)) else { return };
        match (&mut doing.then, part, &completion.outcome) {
            (Then::Operated(index), ..) => {
                self.recorder.take(time, *index, completion);
            }
            (_, Part::Fence(fence), Outcome::Fenced) => composed.on_fenced(service, fence),
            (Then::Told(told), _, Outcome::Exported(context)) => {
                told.contexts.push((service, context.clone()));
            }
            (_, Part::Other, Outcome::Done) => {}
            _ => doing.failed = true,
        }
    }

    /// Whatever was open on the node is over, and so are its sessions.
    fn lose_node(&mut self, node: usize, ended: &mut Vec<(usize, Done)>) {
        for session in 0..self.sessions.len() {
            if self.sessions[session].node == node {
                self.renew(session);
                ended.push((session, Done::Lost));
            }
        }
    }

    fn renew(&mut self, session: usize) {
        self.open.retain(|_, other| *other != session);
        let old = &mut self.sessions[session];
        old.generation += 1;
        old.slots.fill(None);
        old.composed = compose::Session::default();
        (old.last, old.doing) = (None, None);
        old.after.clear();
    }

    /// Goes on with what a session has waited for.
    fn go_on(&mut self, session: usize, ended: &mut Vec<(usize, Done)>) {
        let Some(doing) = self.sessions[session].doing.take_if(|doing| doing.waiting.is_empty()) else {
            return;
        };
        if doing.failed {
            return ended.push((session, Done::NotDone));
        }
        match doing.then {
            Then::Begin(service, kind, step) => {
                let ready = self.services[service].is_ready(self.sessions[session].node);
                if !ready {
                    return ended.push((session, Done::NotDone));
                }
                self.operate(session, service, kind, step);
            }
            Then::Operated(index) => {
                let event = self.recorder.event(index);
                let (outcome, id) = (event.outcome, event.id);
                if outcome == Ended::Unknown {
                    // What follows has no place in the order of a session of which nobody knows what it did.
                    self.renew(session);
                    return ended.push((session, Done::Lost));
                }
                self.sessions[session].last = Some(id);
                ended.push((session, Done::Operated(outcome)));
            }
            Then::Fenced => ended.push((session, Done::Fenced)),
            Then::Told(told) => ended.push((session, Done::Told(told))),
            Then::Heard(told) => {
                let Session { composed, after, .. } = &mut self.sessions[session];
                composed.import(&self.rules, told.services);
                after.extend(told.after);
                ended.push((session, Done::Heard));
            }
        }
    }

    fn operate(&mut self, session: usize, service: usize, kind: Kind, step: Step) {
        let Session { node, generation, composed, after, .. } = &mut self.sessions[session];
        composed.on_begin(&self.rules, service);
        let name = format!("p{}.{generation}", session + 1);
        let index = self.recorder.begin(self.time, &name, kind, None);
        self.recorder.place(index, &self.names[service], std::mem::take(after));
        let at_ms = self.services[service].wall_ms(*node);
        let request = self.recorder.ask(index, step, at_ms);
        let id = self.submit(session, service, request);
        self.wait(session, BTreeMap::from([((service, id), Part::Other)]), Then::Operated(index));
    }

    /// All faults end.
    pub fn heal(&mut self) {
        for service in &mut self.services {
            service.heal();
        }
    }

    /// Faults that happened, by kind, at all services.
    pub fn happened(&self) -> BTreeMap<&'static str, u64> {
        let mut all = BTreeMap::new();
        for (kind, count) in self.services.iter().flat_map(|service| service.happened()) {
            *all.entry(kind).or_default() += count;
        }
        all
    }

    /// The session's last operation that has ended, if it is still that session.
    pub fn last(&self, session: usize) -> Option<&Event> {
        let id = self.sessions[session].last?;
        Some(self.recorder.event(id as usize - 1))
    }

    /// What sessions did and saw so far.
    pub fn history(&self) -> Vec<Event> {
        self.recorder.history()
    }
}
