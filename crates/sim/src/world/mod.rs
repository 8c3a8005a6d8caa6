//! A world of nodes under virtual time: host 1 of the protocols' machines.
//!
//! Time passes from event to event. A node hosts replicas and client machines as a real one does: it feeds them
//! messages and wakes, and holds what they send behind a barrier until their records are durable. Whoever owns
//! the world submits requests, plays the weather and the crashes, and learns of what ended by [`Notice`]s.

mod cpu;
mod leaving;
mod network;
mod node;
mod queue;
mod shape;
mod trace;

pub use cpu::CpuCost;
pub use network::{Mishaps, Weather};
pub use shape::Shape;

use bytes::Bytes;
use meridian_protocol::clock::{Heard, Micros, Vouched};
use meridian_protocol::machine::{Client, Completion, Engine, Place, Replica, Request, RequestId, Status};
use meridian_protocol::notices;
use meridian_protocol::topology::{Address, Region, ReplicaId};
use network::Network;
use node::{Buffers, Clock, Disk, Hosted, Input, Node};
use queue::Queue;
use rand::{RngExt, SeedableRng, seq::SliceRandom};
use rand_pcg::Pcg64Mcg;
use std::collections::{BTreeMap, VecDeque};
use std::io::Write;
use std::ops::RangeInclusive;
use trace::Trace;

/// The only keyspace of a world.
const KEYSPACE: u16 = 0;

/// How the world treats its machines, apart from the weather.
#[derive(Clone, Debug)]
pub struct Conduct {
    /// Where all chance comes from.
    pub seed: u64,
    /// How long a commit to disk takes.
    pub commit: RangeInclusive<Micros>,
    /// Whether every message goes through its encoding, as between real nodes.
    pub codec: bool,
    /// What work costs on a node; `None`: nothing, nodes are infinitely fast.
    pub cpu: Option<CpuCost>,
}

/// One machine on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Machine {
    /// By its place among the replicas of the node.
    Replica(usize),
    /// By its slot.
    Client(usize),
}

/// What the owner of the world must know.
#[derive(Debug)]
pub enum Notice {
    /// A request ended.
    Done {
        /// The node of its client.
        node: usize,
        /// The slot of its client.
        slot: u32,
        /// How it ended.
        completion: Completion,
    },
    /// A time has come that [`World::remind`] was given, with its token.
    Reminder(u64),
    /// A replica tells of a key for which somebody waits ([`World::watch`]), or from which an item is on its way.
    Told {
        /// The replica's node.
        node: usize,
        /// What it tells.
        notice: notices::Notice,
    },
}

/// A message on its way, as tests see it.
#[derive(Clone, Debug, PartialEq)]
pub struct Envelope<M> {
    /// Who sent it.
    pub from: Address,
    /// Who is to get it.
    pub to: Address,
    /// What it says.
    pub message: M,
    /// The earliest that the time could be when it was sent, if its sender's clock is trusted.
    pub earliest: Option<Micros>,
}

/// What becomes of a message that an [`World::intercept`]or has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It travels on.
    Pass,
    /// It is put aside; [`World::held`] has it.
    Hold,
    /// It is lost.
    Lose,
}

/// Sees every message before it travels.
type Interceptor<M> = Box<dyn FnMut(&Envelope<M>) -> Fate>;

enum Happening<M> {
    /// To a node; if a life is named, only in that life.
    Input {
        node: usize,
        life: Option<u32>,
        input: Input<M>,
    },
    /// To a node that has now done the work for it.
    Served {
        node: usize,
        life: Option<u32>,
        input: Input<M>,
    },
    Reminder(u64),
}

/// The world.
pub struct World<E: Engine> {
    engine: E,
    shape: Shape,
    conduct: Conduct,
    time: Micros,
    queue: Queue<Happening<E::Message>>,
    nodes: Vec<Node<E>>,
    network: Network,
    notices: VecDeque<Notice>,
    interceptor: Option<Interceptor<E::Message>>,
    held: Vec<Envelope<E::Message>>,
    random: Pcg64Mcg,
    buffers: Buffers<E>,
    scratch: Vec<u8>,
    trace: Trace,
    delivered: u64,
    /// What replicas had counted when they crashed.
    buried: Vec<(&'static str, u64)>,
}

impl<E: Engine> World<E> {
    /// A world with all nodes up. `story` gets a line for each thing that happens.
    pub fn new(engine: E, shape: Shape, conduct: Conduct, story: Option<Box<dyn Write>>) -> Self {
        let mut random = Pcg64Mcg::seed_from_u64(conduct.seed);
        let network = Network::new(&shape, Pcg64Mcg::seed_from_u64(random.random()));
        let nodes = (0..shape.nodes())
            .map(|index| Node {
                number: index as u16 + 1,
                region: shape.region_of(index),
                life: 0,
                up: false,
                paused: false,
                inbox: Vec::new(),
                replicas: Vec::new(),
                clients: Vec::new(),
                attached: BTreeMap::new(),
                disks: shape.partitions_on(index).map(|_| Disk::default()).collect(),
                barrier: node::Barrier::default(),
                busy_until: 0,
                slowness: 1.0,
                clock: Clock::right(),
                vouched: Vouched::of(shape.nodes()),
                last_request: 0,
            })
            .collect();
        let mut world = Self {
            engine,
            shape,
            conduct,
            time: 0,
            queue: Queue::default(),
            nodes,
            network,
            notices: VecDeque::new(),
            interceptor: None,
            held: Vec::new(),
            random,
            buffers: Buffers::default(),
            scratch: Vec::new(),
            trace: Trace::new(story),
            delivered: 0,
            buried: Vec::new(),
        };
        for node in 0..world.nodes.len() {
            world.start(node);
        }
        world
    }

    /// The virtual time since the run's start.
    pub fn time(&self) -> Micros {
        self.time
    }

    /// Which nodes there are.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// A digest of all that happened so far.
    pub fn trace(&self) -> u64 {
        self.trace.digest()
    }

    /// How many messages have arrived.
    pub fn delivered(&self) -> u64 {
        self.delivered
    }

    /// What happened to messages.
    pub fn mishaps(&self) -> Mishaps {
        self.network.mishaps
    }

    /// Lets time pass until something happens that the owner must know, or until `until`.
    pub fn next(&mut self, until: Micros) -> Option<Notice> {
        while self.notices.is_empty() {
            let Some((at, happening)) = self.queue.pop(until) else {
                self.time = self.time.max(until);
                return None;
            };
            self.time = at;
            match happening {
                Happening::Reminder(token) => self.notices.push_back(Notice::Reminder(token)),
                Happening::Input { node, life, input } => {
                    let done = self.work(node, input.work());
                    if done > at {
                        self.queue.push(done, Happening::Served { node, life, input });
                    } else if life.is_none_or(|life| life == self.nodes[node].life) {
                        self.take(node, input);
                    }
                }
                Happening::Served { node, life, input } => {
                    if life.is_none_or(|life| life == self.nodes[node].life) {
                        self.take(node, input);
                    }
                }
            }
        }
        self.notices.pop_front()
    }

    /// Gives a [`Notice::Reminder`] with `token` at `at`.
    pub fn remind(&mut self, at: Micros, token: u64) {
        self.queue.push(at.max(self.time), Happening::Reminder(token));
    }

    /// A new client machine on a node that is up; its slot.
    pub fn open_client(&mut self, node: usize) -> u32 {
        let slot = self.nodes[node].clients.len() as u32;
        let place = self.place(node, slot.into());
        let client = self.engine.client(self.nodes[node].client_id(slot), place);
        self.nodes[node].clients.push(Hosted::new(client));
        slot
    }

    /// Lets the replica of a key on a node that is up tell of the key's items, or no more. A crash ends it.
    pub fn watch(&mut self, node: usize, key: &Bytes, watched: bool) {
        let id = self.shape.group().replica(self.shape.group().partition_of(key), self.nodes[node].region);
        if self.shape.node_of(id) == node
            && let Some(notices) = self.nodes[node].replicas[self.shape.index_on_node(id)].machine.notices()
        {
            notices.watch(key, watched);
        }
    }

    /// The address of a client machine of a node that is up.
    pub fn client_address(&self, node: usize, slot: u32) -> Address {
        Address::Client(KEYSPACE, self.nodes[node].client_id(slot))
    }

    /// The session of a client machine turns to another region, as if it had moved there: from now on that one comes
    /// first among the regions that the machine is told to prefer. Its messages still travel from its node.
    pub fn attach(&mut self, node: usize, slot: u32, region: Region) {
        self.trace.tell(self.time, format_args!("node {} client {slot} moves to {region:?}", node + 1));
        self.nodes[node].attached.insert(slot as usize, region);
        let mut order = self.shape.rtt.nearest_first(self.nodes[node].region);
        prefer(&mut order, region);
        let client = &mut self.nodes[node].clients[slot as usize].machine;
        for partition in 0..self.shape.partitions {
            client.on_regions(partition, &order);
        }
    }

    /// Tells a client machine that its session has ended.
    pub fn end_session(&mut self, node: usize, slot: u32) {
        self.nodes[node].clients[slot as usize].machine.end_session();
    }

    /// Gives a request to a client machine of a node that is up and not paused.
    pub fn submit(&mut self, node: usize, slot: u32, request: Request) -> RequestId {
        let host = &mut self.nodes[node];
        host.last_request += 1;
        let id = host.last_request;
        self.trace.word(id);
        self.trace
            .tell(self.time, format_args!("node {} client {slot} begins {id}: {request:?}", host.number));
        let life = Some(host.life);
        let work = self.conduct.cpu.map_or(0.0, |cpu| cpu.request);
        let done = self.work(node, work);
        let input = Input::Begin { slot: slot as usize, id, request };
        if done > self.time {
            self.queue.push(done, Happening::Served { node, life, input });
        } else {
            self.take(node, input);
        }
        id
    }

    /// The node's wall clock in ms, as a front door reads it for a command's time of expiry.
    pub fn wall_ms(&self, node: usize) -> u64 {
        self.nodes[node].clock.wall(self.time) / 1_000
    }

    /// How often a node has started again.
    pub fn restarts(&self) -> u64 {
        self.nodes.iter().map(|node| u64::from(node.life) - 1).sum()
    }

    /// Whether the node is up.
    pub fn is_up(&self, node: usize) -> bool {
        self.nodes[node].up
    }

    /// Whether the node takes requests now.
    pub fn is_ready(&self, node: usize) -> bool {
        self.nodes[node].up && !self.nodes[node].paused
    }

    /// Sets what may happen to messages from now on.
    pub fn set_weather(&mut self, weather: Weather) {
        self.network.weather = weather;
    }

    /// Sets a node's wall clock, `skew` us ahead of true time, and the bound that the node trusts. It does not drift.
    pub fn set_clock(&mut self, node: usize, skew: i64, uncertainty: Option<Micros>) {
        self.nodes[node].clock.set(self.time, skew, uncertainty);
        self.trace.tell(self.time, format_args!("node {} clock is off by {skew} us", node + 1));
    }

    /// Lets a node's wall clock, once set, drift by so many us a second, but never out of the bound that the node trusts.
    pub fn set_drift(&mut self, node: usize, ppm: i64) {
        self.nodes[node].clock.drift_ppm = ppm;
        self.trace.tell(self.time, format_args!("node {} clock drifts by {ppm} us a second", node + 1));
    }

    /// Cuts or mends the link from one node to another, in this direction only.
    pub fn set_cut(&mut self, from: usize, to: usize, cut: bool) {
        self.network.set_cut(from, to, cut);
    }

    /// Mends all links.
    pub fn mend(&mut self) {
        self.network.mend();
    }

    /// Stops a node: what arrives waits.
    pub fn pause(&mut self, node: usize) {
        self.nodes[node].paused = true;
        self.trace.tell(self.time, format_args!("node {} pauses", node + 1));
    }

    /// Lets a paused node go on, first with all that waited.
    pub fn resume(&mut self, node: usize) {
        self.nodes[node].paused = false;
        self.trace.tell(self.time, format_args!("node {} goes on", node + 1));
        for input in std::mem::take(&mut self.nodes[node].inbox) {
            self.take(node, input);
        }
    }

    /// Crashes a node: what is not durable is lost. A commit under way may be half done.
    pub fn crash(&mut self, node: usize) {
        self.trace.tell(self.time, format_args!("node {} crashes", node + 1));
        self.trace.word(node as u64);
        for hosted in &self.nodes[node].replicas {
            self.buried.extend(hosted.machine.status().counters);
        }
        let steps = self.nodes[node].barrier.committing.as_ref().map_or(0, |batch| batch.records.len());
        let survivors = self.random.random_range(0..=steps);
        self.nodes[node].crash(survivors);
    }

    /// Starts a node again from what is on its disk.
    pub fn start(&mut self, node: usize) {
        self.nodes[node].life += 1;
        self.nodes[node].up = true;
        self.nodes[node].clock.monotonic = self.random.random_range(0..1_000_000_000);
        self.trace.tell(self.time, format_args!("node {} starts, life {}", node + 1, self.nodes[node].life));
        let region = self.nodes[node].region;
        for (index, partition) in self.shape.partitions_on(node).enumerate() {
            let id = self.shape.group().replica(partition, region);
            let mut records = self.nodes[node].load(index);
            // Nothing is promised about the order in which records come back.
            records.shuffle(&mut self.random);
            let place = self.place(node, 1 << 32 | u64::from(partition));
            let replica = self.engine.replica(id, place, records);
            self.nodes[node].replicas.push(Hosted::new(replica));
        }
        for index in 0..self.nodes[node].replicas.len() {
            let now = self.nodes[node].now(self.time);
            self.nodes[node].replicas[index].machine.start(now, &mut self.buffers.replica);
            self.after_replica(node, index);
        }
    }

    /// Tells a node's machines, at `at`, which regions seem reachable then.
    pub fn hint_regions(&mut self, node: usize, at: Micros) {
        let life = Some(self.nodes[node].life);
        self.queue.push(at.max(self.time), Happening::Input { node, life, input: Input::Regions });
    }

    /// Replicas that are up, each with the digest of what it holds.
    pub fn fingerprints(&self) -> Vec<(ReplicaId, u64)> {
        let mut all = Vec::new();
        for (index, node) in self.nodes.iter().enumerate() {
            for (partition, hosted) in self.shape.partitions_on(index).zip(&node.replicas) {
                let id = self.shape.group().replica(partition, node.region);
                all.push((id, hosted.machine.fingerprint()));
            }
        }
        all
    }

    /// What the replica tells of itself, if its node is up.
    pub fn status(&self, id: ReplicaId) -> Option<Status> {
        Some(self.replica(id)?.status())
    }

    /// The replica's machine, if its node is up.
    pub fn replica(&self, id: ReplicaId) -> Option<&E::Replica> {
        let node = &self.nodes[self.shape.node_of(id)];
        node.replicas.get(self.shape.index_on_node(id)).map(|hosted| &hosted.machine)
    }

    /// What all replicas have counted in all their lives, by name; one name may come often.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        let living = self.nodes.iter().flat_map(|node| &node.replicas);
        let counted = living.flat_map(|hosted| hosted.machine.status().counters);
        self.buried.iter().copied().chain(counted).collect()
    }

    /// How often nodes, in their present lives, have found another's clock to contradict their own.
    pub fn contradicted(&self) -> u64 {
        self.nodes.iter().map(|node| node.vouched.contradicted()).sum()
    }

    /// Shows every message to `interceptor` before it travels, also those inside a node.
    pub fn intercept(&mut self, interceptor: impl FnMut(&Envelope<E::Message>) -> Fate + 'static) {
        self.interceptor = Some(Box::new(interceptor));
    }

    /// The messages that were put aside, the oldest first.
    pub fn held(&mut self) -> &mut Vec<Envelope<E::Message>> {
        &mut self.held
    }

    /// Delivers a message now. It takes its turn behind what is due at this time already.
    pub fn deliver(&mut self, envelope: Envelope<E::Message>) {
        let Some(node) = self.node_at(envelope.to) else { return };
        let (message, digest) = self.through_codec(envelope.message);
        let Envelope { from, to, .. } = envelope;
        let input = Input::Message { from, to, message, earliest: envelope.earliest, digest, work: 0.0 };
        self.queue.push(self.time, Happening::Input { node, life: None, input });
    }

    fn place(&self, node: usize, machine: u64) -> Place {
        let life = u64::from(self.nodes[node].life);
        Place {
            group: self.shape.group(),
            nearest_first: self.shape.rtt.nearest_first(self.nodes[node].region),
            seed: trace::digest(
                &[self.conduct.seed, node as u64, life, machine].map(u64::to_le_bytes).concat(),
            ),
        }
    }

    /// The node at which a machine lives, or lived.
    fn node_at(&self, address: Address) -> Option<usize> {
        let node = match address {
            Address::Replica(id) if id.partition < self.shape.partitions => self.shape.node_of(id),
            Address::Replica(_) => return None,
            Address::Client(_, id) => usize::from(id.node()).checked_sub(1)?,
        };
        (node < self.nodes.len()).then_some(node)
    }

    fn take(&mut self, node: usize, input: Input<E::Message>) {
        if !self.nodes[node].up {
            return;
        }
        if self.nodes[node].paused {
            self.nodes[node].inbox.push(input);
            return;
        }
        match input {
            Input::Message { from, to, message, earliest, digest, .. } => {
                self.hear(node, from, earliest);
                self.receive(node, from, to, message, digest);
            }
            Input::Begin { slot, id, request } => self.begin(node, slot, id, request),
            Input::Wake(machine) => self.wake(node, machine),
            Input::Committed => self.committed(node),
            Input::Regions => self.regions(node),
        }
    }

    /// A node learns what another one's clock says.
    fn hear(&mut self, node: usize, from: Address, earliest: Option<Micros>) {
        let (Some(earliest), Some(other)) = (earliest, self.node_at(from)) else { return };
        let now = self.nodes[node].now(self.time);
        if self.nodes[node].vouched.hear(&now, other as u16, earliest) != Heard::Agrees {
            let told =
                format_args!("node {}'s clock and node {}'s contradict each other", other + 1, node + 1);
            self.trace.tell(self.time, told);
        }
    }

    fn begin(&mut self, node: usize, slot: usize, id: RequestId, request: Request) {
        let now = self.nodes[node].now(self.time);
        self.nodes[node].clients[slot].machine.begin(now, id, request, &mut self.buffers.client);
        self.after_client(node, slot);
    }

    fn receive(&mut self, node: usize, from: Address, to: Address, message: E::Message, digest: u64) {
        self.delivered += 1;
        self.trace.word(self.time);
        self.trace.address(from);
        self.trace.address(to);
        self.trace.word(digest);
        self.trace.tell(self.time, format_args!("{from:?} -> {to:?}: {message:?}"));
        let now = self.nodes[node].now(self.time);
        match to {
            Address::Replica(id) => {
                let index = self.shape.index_on_node(id);
                let replica = &mut self.nodes[node].replicas[index].machine;
                replica.on_message(now, from, message, &mut self.buffers.replica);
                self.after_replica(node, index);
            }
            Address::Client(_, id) => {
                let Some(slot) = self.nodes[node].slot_of(id) else { return };
                let client = &mut self.nodes[node].clients[slot].machine;
                client.on_message(now, from, message, &mut self.buffers.client);
                self.after_client(node, slot);
            }
        }
    }

    fn wake(&mut self, node: usize, machine: Machine) {
        let now = self.nodes[node].now(self.time);
        match machine {
            Machine::Replica(index) => {
                if !self.alarm_rings(node, machine) {
                    return;
                }
                self.nodes[node].replicas[index].machine.on_wake(now, &mut self.buffers.replica);
                self.after_replica(node, index);
            }
            Machine::Client(slot) => {
                if !self.alarm_rings(node, machine) {
                    return;
                }
                self.nodes[node].clients[slot].machine.on_wake(now, &mut self.buffers.client);
                self.after_client(node, slot);
            }
        }
    }

    /// Whether the machine's alarm is due; if it was put off, it is queued again.
    fn alarm_rings(&mut self, node: usize, machine: Machine) -> bool {
        let time = self.time;
        let (alarm, queued) = self.alarm(node, machine);
        if queued.is_none_or(|queued| queued > time) {
            return false; // An earlier alarm that was replaced.
        }
        *queued = None;
        match *alarm {
            Some(at) if at <= time => {
                *alarm = None;
                true
            }
            Some(at) => {
                self.queue_wake(node, machine, at);
                false
            }
            None => false,
        }
    }

    fn alarm(&mut self, node: usize, machine: Machine) -> (&mut Option<Micros>, &mut Option<Micros>) {
        let node = &mut self.nodes[node];
        match machine {
            Machine::Replica(index) => {
                let hosted = &mut node.replicas[index];
                (&mut hosted.alarm, &mut hosted.queued)
            }
            Machine::Client(slot) => {
                let hosted = &mut node.clients[slot];
                (&mut hosted.alarm, &mut hosted.queued)
            }
        }
    }

    fn set_alarm(&mut self, node: usize, machine: Machine, at: Option<Micros>) {
        let Some(at) = at else { return };
        let at = self.nodes[node].clock.true_time(at).max(self.time);
        let (alarm, queued) = self.alarm(node, machine);
        *alarm = Some(at);
        if queued.is_none_or(|queued| at < queued) {
            self.queue_wake(node, machine, at);
        }
    }

    fn queue_wake(&mut self, node: usize, machine: Machine, at: Micros) {
        *self.alarm(node, machine).1 = Some(at);
        let life = Some(self.nodes[node].life);
        self.queue.push(at, Happening::Input { node, life, input: Input::Wake(machine) });
    }

    fn after_replica(&mut self, node: usize, index: usize) {
        let mut effects = std::mem::take(&mut self.buffers.replica);
        if let Some(notices) = self.nodes[node].replicas[index].machine.notices() {
            self.notices.extend(notices.take().into_iter().map(|notice| Notice::Told { node, notice }));
        }
        self.set_alarm(node, Machine::Replica(index), effects.wake.take());
        let partition = (node % self.shape.nodes_per_region + index * self.shape.nodes_per_region) as u16;
        let me = Address::Replica(self.shape.group().replica(partition, self.nodes[node].region));
        let gathering = &mut self.nodes[node].barrier.gathering;
        if !effects.outputs.is_empty() {
            gathering.records.push((index, std::mem::take(&mut effects.outputs)));
        }
        self.send_all(node, me, &mut effects);
        self.buffers.replica = effects;
    }

    fn after_client(&mut self, node: usize, slot: usize) {
        let mut effects = std::mem::take(&mut self.buffers.client);
        self.set_alarm(node, Machine::Client(slot), effects.wake.take());
        let me = Address::Client(KEYSPACE, self.nodes[node].client_id(slot as u32));
        let gathering = &mut self.nodes[node].barrier.gathering;
        gathering.completions.extend(effects.outputs.drain(..).map(|completion| (slot as u32, completion)));
        self.send_all(node, me, &mut effects);
        self.buffers.client = effects;
    }

    /// Tells all machines of a node which regions seem reachable: nearest first, the others last.
    fn regions(&mut self, node: usize) {
        let region = self.nodes[node].region;
        let nearest = self.shape.rtt.nearest_first(region);
        for partition in 0..self.shape.partitions {
            let reachable = |target: &Region| {
                let other = self.shape.node_of(self.shape.group().replica(partition, *target));
                self.nodes[other].up && self.network.connected(node, other)
            };
            let (mut order, unreachable): (Vec<Region>, Vec<Region>) =
                nearest.iter().copied().partition(reachable);
            order.extend(unreachable);
            let Node { clients, attached, .. } = &mut self.nodes[node];
            for (slot, client) in clients.iter_mut().enumerate() {
                let mut order = order.clone();
                if let Some(elsewhere) = attached.get(&slot) {
                    prefer(&mut order, *elsewhere);
                }
                client.machine.on_regions(partition, &order);
            }
            if usize::from(partition) % self.shape.nodes_per_region == node % self.shape.nodes_per_region {
                let index = usize::from(partition) / self.shape.nodes_per_region;
                prefer(&mut order, region);
                self.nodes[node].replicas[index].machine.on_regions(&order);
            }
        }
    }
}

/// Puts a region before the others.
fn prefer(order: &mut Vec<Region>, region: Region) {
    order.retain(|other| *other != region);
    order.insert(0, region);
}
