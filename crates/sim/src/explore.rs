//! Tries every order of events of a small system: each message that is on its way may be the next one to arrive, a
//! replica may be woken (which is when it takes up what others left), one may crash, a client may begin what is next in
//! its program, time may pass.
//!
//! Messages are not lost or doubled, but one that never arrives before the end is as good as lost. Two states in which
//! machines, messages and facts are the same are explored once; deadlines and the order of sending are no part of that.
//! States are told apart by digests of 64 bits: of 10 million states two get the same one with a probability of 1 in 400,000.
//!
//! An arrival after which all machines are as before, and nothing is sent, is left out. That loses nothing: what can happen
//! after it can also happen while that message is still on its way, and what is checked depends on no message's absence.

use crate::plan::Plan;
use crate::steps::{Sent, Steps, region_of};
use meridian_protocol::clock::{Micros, Now};
use meridian_protocol::machine::{Completion, Engine, RequestId};
use meridian_protocol::topology::{Address, Region, ReplicaId};
use std::collections::HashSet;
use std::fmt::{self, Debug, Write as _};
use std::hash::{DefaultHasher, Hasher};
use std::rc::Rc;

/// What may happen besides arrivals, and how much is tried.
#[derive(Clone, Debug, Default)]
pub struct Bounds {
    /// The region whose replica may crash, at any point, for good.
    pub crash: Option<u8>,
    /// How often each region's replica may be woken.
    pub wakes: Vec<u8>,
    /// How much time passes before a wake: longer than any deadline.
    pub later: Micros,
    /// The most states.
    pub states: usize,
    /// What the client of each region does, one after the other, each on a key.
    pub programs: Vec<Vec<(&'static str, Plan)>>,
    /// The region whose client begins only when all others' programs have ended.
    pub last: Option<u8>,
    /// How often time may pass, for all clocks and all clients,
    pub ticks: u64,
    /// and how much of it.
    pub tick: Micros,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Explored {
    /// Different states.
    pub states: usize,
    /// States in which nothing more can happen that changes anything.
    pub ends: usize,
    /// The longest sequence of events.
    pub depth: usize,
    /// Whether these are all.
    pub exhausted: bool,
}

/// What is learned from messages on the way from the beginning to a state, and must not contradict itself.
pub trait Facts<E: Engine>: Clone + Debug {
    /// A message has been sent. Answers whether it is to be delivered at some time, rather than dropped.
    ///
    /// # Errors
    /// What is wrong.
    fn sent(&mut self, sent: &Sent<E::Message>) -> Result<bool, String>;

    /// Whether a message on its way will change nothing whenever it arrives, as its receiver stands: then it is taken
    /// away, and states with it and without it are one.
    fn is_over(&self, _: &Sent<E::Message>, _: &[E::Replica]) -> bool {
        false
    }

    /// The client of a region begins what is next in its program.
    fn began(&mut self, _region: u8, _request: RequestId, _key: &str, _plan: &Plan) {}

    /// What a program began has ended.
    ///
    /// # Errors
    /// What is wrong.
    fn ended(&mut self, _: &Completion) -> Result<(), String> {
        Ok(())
    }

    /// Nothing more can happen that changes anything.
    ///
    /// # Errors
    /// What is wrong.
    fn over(&self) -> Result<(), String> {
        Ok(())
    }

    /// The replicas stand like this after an event and what it has sent.
    ///
    /// # Errors
    /// What is wrong.
    fn reached(&mut self, _: &[E::Replica]) -> Result<(), String> {
        Ok(())
    }
}

struct State<E: Engine, F> {
    steps: Steps<E>,
    facts: F,
    wakes: Vec<u8>,
    crashed: Option<u8>,
    /// Of each region's program: how much has begun, and what of it has not ended.
    begun: Vec<(usize, Option<RequestId>)>,
    ticks: u64,
    /// Digests of the replicas, of the clients and of what is on its way, so that an event costs only what it changes.
    replicas: Vec<u64>,
    clients: Vec<u64>,
    wire: Vec<(u64, Rc<str>)>,
    /// What the clocks say.
    times: Vec<Now>,
    /// What has happened.
    path: Option<Rc<Path>>,
    depth: usize,
}

/// What happens next, and where.
#[derive(Clone, Copy, Debug)]
enum Event {
    Arrival(Address),
    Wake(Region),
    Crash,
    Begin(Region),
    Tick,
}

/// An event and what came before it.
struct Path {
    event: Rc<str>,
    before: Option<Rc<Path>>,
}

/// What led to a state, for a person to read.
fn told(path: Option<&Rc<Path>>) -> String {
    let mut events = Vec::new();
    let mut next = path;
    while let Some(path) = next {
        events.push(&*path.event);
        next = path.before.as_ref();
    }
    events.reverse();
    events.join("\n  ")
}

fn digest(what: &impl Debug) -> u64 {
    struct Hashing(DefaultHasher);
    impl fmt::Write for Hashing {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0.write(text.as_bytes());
            Ok(())
        }
    }
    let mut hashing = Hashing(DefaultHasher::new());
    write!(hashing, "{what:?}").expect("hashing does not fail");
    hashing.0.finish()
}

/// Tries all orders from `steps` on.
///
/// # Errors
/// The first contradiction, and what led to it.
pub fn explore<E, F>(steps: Steps<E>, facts: F, bounds: &Bounds) -> Result<Explored, String>
where
    E: Engine,
    E::Replica: Clone + Debug,
    E::Client: Clone + Debug,
    F: Facts<E>,
{
    let wakes = vec![0; steps.replicas.len()];
    let replicas = steps.replicas.iter().map(digest).collect();
    let clients = steps.clients.iter().map(digest).collect();
    let begun = vec![(0, None); steps.clients.len()];
    let mut first = State {
        times: Vec::new(),
        steps,
        facts,
        wakes,
        crashed: None,
        begun,
        ticks: 0,
        replicas,
        clients,
        wire: Vec::new(),
        path: None,
        depth: 0,
    };
    first.times = first.steps.times();
    first.sift(0)?;
    let mut seen = HashSet::from([first.key()]);
    let mut explored = Explored { states: 1, ends: 0, depth: 0, exhausted: true };
    let mut open = vec![first];
    while let Some(state) = open.pop() {
        explored.depth = explored.depth.max(state.depth);
        let next = state.successors(bounds)?;
        if next.is_empty() {
            explored.ends += 1;
            state.facts.over().map_err(|why| format!("{why}\nafter {}", told(state.path.as_ref())))?;
        }
        for next in next {
            if !seen.insert(next.key()) {
                continue;
            }
            if explored.states >= bounds.states {
                explored.exhausted = false;
                return Ok(explored);
            }
            explored.states += 1;
            open.push(next);
        }
    }
    Ok(explored)
}

impl<E, F> State<E, F>
where
    E: Engine,
    E::Replica: Clone + Debug,
    E::Client: Clone + Debug,
    F: Facts<E>,
{
    /// Looks at what was sent last, from a place in the wire on, and keeps what is to be delivered.
    fn sift(&mut self, from: usize) -> Result<(), String> {
        let sent = self.steps.wire.split_off(from);
        for sent in sent {
            let keep = self.facts.sent(&sent)?;
            if keep && !self.is_lost(sent.to) {
                let text = format!("{sent:?}");
                self.wire.push((digest(&text), text.into()));
                self.steps.wire.push(sent);
            }
        }
        for index in (0..self.wire.len()).rev() {
            if self.facts.is_over(&self.steps.wire[index], &self.steps.replicas) {
                self.steps.wire.remove(index);
                self.wire.remove(index);
            }
        }
        for completion in std::mem::take(&mut self.steps.done) {
            let own = self.begun.iter_mut().find(|(_, open)| *open == Some(completion.request));
            if let Some((_, open)) = own {
                *open = None;
                self.facts.ended(&completion)?;
            }
        }
        self.facts.reached(&self.steps.replicas)
    }

    fn is_lost(&self, to: Address) -> bool {
        matches!(to, Address::Replica(ReplicaId { region, .. }) if Some(region.0) == self.crashed)
    }

    /// What an event leads to; nothing if it is an arrival that changes nothing.
    fn after(
        &self,
        (event, told_as): (Event, Rc<str>),
        change: impl FnOnce(&mut Self) -> usize,
    ) -> Result<Option<Self>, String> {
        let mut next = Self {
            steps: self.steps.clone(),
            facts: self.facts.clone(),
            wakes: self.wakes.clone(),
            crashed: self.crashed,
            begun: self.begun.clone(),
            ticks: self.ticks,
            replicas: self.replicas.clone(),
            clients: self.clients.clone(),
            times: self.times.clone(),
            wire: self.wire.clone(),
            path: Some(Rc::new(Path { event: told_as, before: self.path.clone() })),
            depth: self.depth + 1,
        };
        let from = change(&mut next);
        let is_silent = next.steps.wire.len() == from && next.steps.done.is_empty();
        next.sift(from).map_err(|why| format!("{why}\nafter {}", told(next.path.as_ref())))?;
        next.times = next.steps.times();
        match event {
            Event::Arrival(Address::Replica(ReplicaId { region, .. })) | Event::Wake(region) => {
                next.replicas[region.index()] = digest(&next.steps.replicas[region.index()]);
            }
            Event::Arrival(client) => next.digest_client(region_of(client)),
            Event::Begin(region) => next.digest_client(region.index()),
            Event::Tick => (0..next.clients.len()).for_each(|region| next.digest_client(region)),
            Event::Crash => {}
        }
        let is_same =
            next.replicas == self.replicas && next.clients == self.clients && next.times == self.times;
        let is_idle = matches!(event, Event::Arrival(_)) && is_silent && is_same;
        Ok((!is_idle).then_some(next))
    }

    fn digest_client(&mut self, region: usize) {
        self.clients[region] = digest(&self.steps.clients[region]);
    }

    fn successors(&self, bounds: &Bounds) -> Result<Vec<Self>, String> {
        let mut all = Vec::new();
        let wire = &self.steps.wire;
        // What comes last here is tried first: what has begun ends before something else begins, and time stands still.
        if self.ticks < bounds.ticks {
            all.extend(self.after((Event::Tick, "a tick".into()), |next| {
                next.ticks += 1;
                next.steps.tick(bounds.tick);
                wire.len()
            })?);
        }
        for (region, program) in bounds.programs.iter().enumerate().rev() {
            let region = region as u8;
            let Some((key, plan)) = self.next_of(region, program, bounds) else { continue };
            let event = (Event::Begin(Region(region)), format!("{region} begins {plan:?} of {key}").into());
            all.extend(self.after(event, |next| {
                let request = next.steps.submit(region, plan.request(key, 0));
                let (begun, open) = &mut next.begun[usize::from(region)];
                (*begun, *open) = (*begun + 1, Some(request));
                next.facts.began(region, request, key, plan);
                wire.len()
            })?);
        }
        for (index, sent) in wire.iter().enumerate() {
            if wire[..index].contains(sent) {
                continue;
            }
            all.extend(self.after((Event::Arrival(sent.to), Rc::clone(&self.wire[index].1)), |next| {
                next.wire.remove(index);
                next.steps.deliver_at(index);
                wire.len() - 1
            })?);
        }
        let alive = |region: u8| self.crashed != Some(region);
        for (region, most) in (0..).zip(&bounds.wakes) {
            if self.wakes[usize::from(region)] < *most && alive(region) {
                let event = (Event::Wake(Region(region)), format!("{region} wakes").into());
                all.extend(self.after(event, |next| {
                    next.wakes[usize::from(region)] += 1;
                    next.steps.wake(region, bounds.later);
                    wire.len()
                })?);
            }
        }
        if let (Some(region), None) = (bounds.crash, self.crashed) {
            all.extend(self.after((Event::Crash, format!("{region} crashes").into()), |next| {
                next.crashed = Some(region);
                next.replicas[usize::from(region)] = 0;
                let all =
                    std::mem::take(&mut next.wire).into_iter().zip(std::mem::take(&mut next.steps.wire));
                let kept: Vec<_> = all.filter(|(_, sent)| !next.is_lost(sent.to)).collect();
                (next.wire, next.steps.wire) = kept.into_iter().unzip();
                next.steps.wire.len()
            })?);
        }
        Ok(all)
    }

    /// What a region's client may begin now.
    fn next_of<'p>(
        &self,
        region: u8,
        program: &'p [(&'static str, Plan)],
        bounds: &Bounds,
    ) -> Option<&'p (&'static str, Plan)> {
        let ended = |(other, program): (u8, &Vec<_>)| {
            other == region || self.begun[usize::from(other)] == (program.len(), None)
        };
        let (begun, open) = self.begun[usize::from(region)];
        let is_its_turn = bounds.last != Some(region) || (0..).zip(&bounds.programs).all(ended);
        program.get(begun).filter(|_| open.is_none() && is_its_turn)
    }

    fn key(&self) -> u64 {
        let mut wire: Vec<_> = self.wire.iter().map(|(digest, _)| *digest).collect();
        wire.sort_unstable();
        let machines = (&self.replicas, &self.clients, &self.times);
        let begun: Vec<_> = self.begun.iter().map(|(begun, open)| (begun, open.is_some())).collect();
        digest(&(machines, wire, &self.facts, &self.wakes, self.crashed, begun, self.ticks))
    }
}
