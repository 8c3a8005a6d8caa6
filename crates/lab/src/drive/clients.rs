//! The clients of a run: when they begin requests, what these are made of, and what is measured of them.

use super::measured::{Measured, Recording};
use crate::definition::{Clients, Run, micros};
use crate::workload::{Drawer, Generator, Operation};
use meridian_protocol::clock::Micros;
use meridian_protocol::machine::{Completion, Engine, Outcome, Request, RequestId};
use meridian_protocol::topology::Region;
use meridian_sim::world::{Notice, World};
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Exp};
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeMap;

/// Reminders from here on are arrivals in a region, those below a client's turn.
const ARRIVALS: u64 = 1 << 40;

/// Clients that never think begin within this time, so that they do not all keep step.
const SPREAD: Micros = 500_000;

/// How long a client waits before it tries again what the engine has given up.
const BACK_OFF: Micros = 1_000;

pub(super) struct Driver<'r, E: Engine> {
    run: &'r Run,
    world: World<E>,
    generator: Generator,
    random: Pcg64Mcg,
    clients: Vec<Client>,
    /// Clients without a session, by region.
    idle: Vec<Vec<usize>>,
    /// Whose parts are under way: of which client, and which one.
    open: BTreeMap<(usize, RequestId), (usize, usize)>,
    /// Who waits before trying something again, and what: by token.
    given_up: BTreeMap<u64, (usize, usize)>,
    arrivals: Option<Exp<f64>>,
    /// How long operations took, and for how much of that they waited, by their labels.
    recordings: BTreeMap<&'static str, (Recording, Recording)>,
    measured: Measured,
}

/// A client: one session, or one for each of the parts that it does at once.
struct Client {
    node: usize,
    slots: Vec<u32>,
    /// How many regions on from its own each session was last.
    away: Vec<u8>,
    random: Pcg64Mcg,
    drawn: u64,
    request: Active,
}

/// The request under way.
#[derive(Default)]
struct Active {
    parts: Vec<Part>,
    /// How many parts have begun and how many have ended.
    begun: usize,
    ended: usize,
    /// The longest that a part took; `None` once one has failed.
    longest: Option<Micros>,
}

struct Part {
    operation: Operation,
    since: Micros,
}

impl<'r, E: Engine> Driver<'r, E> {
    pub(super) fn new(run: &'r Run, world: World<E>, random: Pcg64Mcg) -> Self {
        let generator = Generator::new(run, world.shape().rtt.regions());
        let regions = usize::from(world.shape().rtt.regions());
        let mut driver = Self {
            run,
            world,
            generator,
            random,
            clients: Vec::new(),
            idle: vec![Vec::new(); regions],
            open: BTreeMap::new(),
            given_up: BTreeMap::new(),
            arrivals: None,
            recordings: BTreeMap::new(),
            measured: Measured::default(),
        };
        match &run.clients {
            Clients::Closed(closed) => {
                for _ in 0..closed.per_region {
                    for region in 0..regions {
                        let client = driver.client_of(region);
                        let start = driver.random.random_range(0..SPREAD);
                        driver.world.remind(start, client as u64);
                    }
                }
            }
            Clients::PartlyOpen(open) => {
                let rate = open.sessions_per_second / 1e6;
                driver.arrivals = Some(Exp::new(rate).expect("definitions are checked before they are run"));
                for region in 0..regions {
                    driver.expect_arrival(region);
                }
            }
        }
        driver
    }

    /// Plays the run to its end.
    pub(super) fn measure(mut self) -> Measured {
        let begin = micros(self.run.time.warm_up_s * 1_000.0);
        let end = begin + micros(self.run.time.measure_s * 1_000.0);
        while let Some(notice) = self.world.next(end) {
            match notice {
                Notice::Done { node, completion, .. } => self.ended(node, &completion, begin),
                // Nobody waits for items here.
                Notice::Told { .. } => {}
                Notice::Reminder(token) if token >= ARRIVALS => self.arrived((token - ARRIVALS) as usize),
                Notice::Reminder(token) => match self.given_up.remove(&token) {
                    Some((client, part)) => self.submit(client, part),
                    None => self.begin(token as usize),
                },
            }
        }
        for (name, count) in self.world.counters() {
            *self.measured.counted.entry(name.to_owned()).or_default() += count;
        }
        self.measured.messages = self.world.delivered();
        self.measured.per_second = self.measured.operations as f64 / self.run.time.measure_s;
        for (label, (times, waits)) in &self.recordings {
            self.measured.latencies.insert((*label).to_owned(), times.finish());
            self.measured.waits.insert((*label).to_owned(), waits.finish());
        }
        self.measured
    }

    /// A client of that region without a session, a new one if there is none.
    fn client_of(&mut self, region: usize) -> usize {
        if let Some(client) = self.idle[region].pop() {
            return client;
        }
        let per_region = self.world.shape().nodes_per_region;
        let theirs = usize::from(self.run.place.client_nodes);
        let shared = if theirs == 0 { per_region } else { theirs };
        let node = (region + 1) * per_region - 1 - self.clients.len() / self.idle.len() % shared;
        let at_once = self.run.requests.as_ref().filter(|requests| requests.at_once);
        let sessions = at_once.map_or(1, |requests| requests.parts);
        let slots = (0..sessions).map(|_| self.world.open_client(node)).collect();
        let away = vec![0; sessions];
        let random = Pcg64Mcg::seed_from_u64(self.random.random());
        self.clients.push(Client { node, slots, away, random, drawn: 0, request: Active::default() });
        self.clients.len() - 1
    }

    fn expect_arrival(&mut self, region: usize) {
        let Some(arrivals) = &self.arrivals else { return };
        let wait = arrivals.sample(&mut self.random).round() as Micros;
        self.world.remind(self.world.time() + wait, ARRIVALS + region as u64);
    }

    fn arrived(&mut self, region: usize) {
        self.expect_arrival(region);
        let client = self.client_of(region);
        self.begin(client);
    }

    /// The client begins its next request.
    fn begin(&mut self, index: usize) {
        let client = &mut self.clients[index];
        let at_ms = self.world.wall_ms(client.node);
        let count = self.run.requests.as_ref().map_or(1, |requests| requests.parts);
        let since = self.world.time();
        let draw = || {
            let mut drawer = Drawer { client: index, drawn: client.drawn, random: &mut client.random, at_ms };
            client.drawn += 1;
            Part { operation: self.generator.draw(&mut drawer), since }
        };
        let parts: Vec<Part> = std::iter::repeat_with(draw).take(count).collect();
        client.request = Active { parts, longest: Some(0), ..Active::default() };
        let at_first = client.slots.len();
        for _ in 0..at_first {
            self.begin_part(index);
        }
    }

    fn begin_part(&mut self, index: usize) {
        let request = &mut self.clients[index].request;
        let part = request.begun;
        request.begun += 1;
        request.parts[part].since = self.world.time();
        self.submit(index, part);
    }

    fn submit(&mut self, index: usize, part: usize) {
        let client = &mut self.clients[index];
        let session = part % client.slots.len();
        let slot = client.slots[session];
        let operation = &client.request.parts[part].operation;
        let request: Request = operation.request.clone();
        if client.away[session] != operation.away {
            client.away[session] = operation.away;
            let shape = self.world.shape();
            let region = (shape.region_of(client.node).0 + operation.away) % shape.rtt.regions();
            self.world.attach(client.node, slot, Region(region));
        }
        let id = self.world.submit(client.node, slot, request);
        self.open.insert((client.node, id), (index, part));
    }

    /// A part ended.
    fn ended(&mut self, node: usize, completion: &Completion, begin: Micros) {
        let Some((index, part)) = self.open.remove(&(node, completion.request)) else { return };
        let time = self.world.time();
        let watched = time >= begin;
        let request = &mut self.clients[index].request;
        let Part { operation, since } = &request.parts[part];
        let took = time - since;
        match &completion.outcome {
            Outcome::Aborted(_) | Outcome::Answers(None) => {
                self.measured.retries += 1;
                let token = index as u64 | (part as u64) << 24 | 1 << 39;
                self.given_up.insert(token, (index, part));
                self.world.remind(time + BACK_OFF, token);
                return;
            }
            Outcome::NoQuorum | Outcome::Unknown(_) => {
                self.measured.failures += 1;
                request.longest = None;
            }
            _ => {
                request.longest = request.longest.map(|longest| longest.max(took));
                if watched {
                    self.measured.operations += 1;
                    let (times, waits) = self.recordings.entry(operation.label).or_default();
                    times.add(took);
                    waits.add(completion.cost.waited);
                }
            }
        }
        request.ended += 1;
        if request.begun < request.parts.len() {
            self.begin_part(index);
        } else if request.ended == request.parts.len() {
            if let (true, Some(longest), true) = (watched, request.longest, self.run.requests.is_some()) {
                self.recordings.entry("request").or_default().0.add(longest);
            }
            self.go_on(index);
        }
    }

    /// The client's request has ended: it makes another one, now or later, or goes.
    fn go_on(&mut self, index: usize) {
        let think = match &self.run.clients {
            Clients::Closed(closed) => closed.think_ms,
            Clients::PartlyOpen(open) => {
                if !self.clients[index].random.random_bool(open.stay) {
                    self.leave(index);
                    return;
                }
                open.think_ms
            }
        };
        if think > 0.0 {
            self.world.remind(self.world.time() + micros(think), index as u64);
        } else {
            self.begin(index);
        }
    }

    fn leave(&mut self, index: usize) {
        let Client { node, slots, .. } = &self.clients[index];
        let region = self.world.shape().region_of(*node).index();
        for slot in slots {
            self.world.end_session(*node, *slot);
        }
        self.idle[region].push(index);
    }
}
