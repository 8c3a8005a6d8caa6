//! Machines stepped one message at a time, each choice made by the test: for schedules below the level of a script,
//! and for trying all of them ([`crate::explore`]).
//!
//! No time passes by itself, what is sent waits until it is delivered, in any order or never, and records are
//! durable at once. Clocks are given no bound, unless [`Steps::set_clock`] says so; replica and client machine of a region
//! go by the same one.

use bytes::Bytes;
use meridian_protocol::clock::{Micros, Now, Vouched};
use meridian_protocol::machine::{
    Client, Completion, Effects, Engine, Level, Place, Replica, Request, RequestId,
};
use meridian_protocol::object::Action;
use meridian_protocol::topology::{Address, ClientId, Group, Region};

/// A message on its way.
#[derive(Clone, Debug, PartialEq)]
pub struct Sent<M> {
    /// Who sent it.
    pub from: Address,
    /// Who is to get it.
    pub to: Address,
    /// What it says.
    pub message: M,
    /// The earliest that the time could be by its sender's clock; 0 from one without a bound.
    pub earliest: Micros,
}

/// A region's clock.
#[derive(Clone, Debug)]
struct Clock {
    /// By how much it is ahead, in µs.
    ahead: i64,
    /// How far it may be off; `None`: nobody knows.
    bound: Option<Micros>,
    vouched: Vouched,
}

impl Clock {
    fn new(ahead: i64, bound: Option<Micros>, regions: u8) -> Self {
        Self { ahead, bound, vouched: Vouched::of(usize::from(regions)) }
    }
}

/// Replicas of one partition, one client machine a region, and what is on its way.
pub struct Steps<E: Engine> {
    /// Since the start, in µs; and true time less that.
    monotonic: Micros,
    epoch: Micros,
    clocks: Vec<Clock>,
    /// By region.
    pub replicas: Vec<E::Replica>,
    /// By region.
    pub clients: Vec<E::Client>,
    /// In the order in which it was sent.
    pub wire: Vec<Sent<E::Message>>,
    /// What has ended.
    pub done: Vec<Completion>,
    requests: RequestId,
}

impl<E: Engine> Clone for Steps<E>
where
    E::Replica: Clone,
    E::Client: Clone,
{
    fn clone(&self) -> Self {
        Self {
            monotonic: self.monotonic,
            epoch: self.epoch,
            clocks: self.clocks.clone(),
            replicas: self.replicas.clone(),
            clients: self.clients.clone(),
            wire: self.wire.clone(),
            done: self.done.clone(),
            requests: self.requests,
        }
    }
}

fn group(regions: u8) -> Group {
    Group { keyspace: 0, partitions: 1, regions }
}

fn client_id(region: usize) -> ClientId {
    ClientId::new(region as u16 + 1, 1, 0)
}

/// Where a machine stands.
pub(crate) fn region_of(machine: Address) -> usize {
    match machine {
        Address::Client(_, id) => usize::from(id.node()) - 1,
        Address::Replica(id) => id.region.index(),
    }
}

impl<E: Engine> Steps<E> {
    /// So many regions; each prefers itself, then the others in ascending order.
    pub fn new(engine: &E, regions: u8) -> Self {
        let place = |own: u8| {
            let others = (0..regions).filter(|region| *region != own);
            let nearest_first = std::iter::once(own).chain(others).map(Region).collect();
            Place { group: group(regions), nearest_first, seed: 7 }
        };
        let replica = |r: u8| engine.replica(group(regions).replica(0, Region(r)), place(r), Vec::new());
        let client = |r: u8| engine.client(client_id(usize::from(r)), place(r));
        Self {
            monotonic: 1,
            epoch: 1_000_000_000,
            clocks: vec![Clock::new(0, None, regions); usize::from(regions)],
            replicas: (0..regions).map(replica).collect(),
            clients: (0..regions).map(client).collect(),
            wire: Vec::new(),
            done: Vec::new(),
            requests: 0,
        }
    }

    /// The address of a region's replica.
    pub fn replica(&self, region: u8) -> Address {
        Address::Replica(group(self.replicas.len() as u8).replica(0, Region(region)))
    }

    /// From now on a region's clock is ahead of true time by so much, and says that it is right within `bound`.
    pub fn set_clock(&mut self, region: u8, ahead: i64, bound: Micros) {
        self.clocks[usize::from(region)] = Clock::new(ahead, Some(bound), self.replicas.len() as u8);
    }

    /// What a region's clock says.
    fn now(&mut self, region: usize) -> Now {
        let Clock { ahead, bound, vouched } = &mut self.clocks[region];
        let wall = (self.epoch + self.monotonic).saturating_add_signed(*ahead);
        vouched.reading(self.monotonic, wall, *bound)
    }

    /// All that the clocks say and have heard, as far as machines can learn of it.
    pub fn times(&mut self) -> Vec<Now> {
        (0..self.clocks.len()).map(|region| self.now(region)).collect()
    }

    /// Begins an action at the client of a region; answers its number.
    pub fn begin(&mut self, region: u8, key: &str, action: Action) -> RequestId {
        let key = Bytes::copy_from_slice(key.as_bytes());
        let at_ms = self.now(usize::from(region)).wall_ms();
        self.submit(region, Request::Act { key, action, at_ms, level: Level::default() })
    }

    /// Begins a request at the client of a region; answers its number.
    pub fn submit(&mut self, region: u8, request: Request) -> RequestId {
        self.requests += 1;
        let now = self.now(usize::from(region));
        let mut effects = Effects::default();
        self.clients[usize::from(region)].begin(now, self.requests, request, &mut effects);
        self.take(Address::Client(0, client_id(usize::from(region))), effects.sends);
        self.done.extend(effects.outputs);
        self.requests
    }

    /// Lets time pass and wakes one replica.
    pub fn wake(&mut self, region: u8, micros: Micros) {
        self.monotonic += micros;
        let now = self.now(usize::from(region));
        let mut effects = Effects::default();
        self.replicas[usize::from(region)].on_wake(now, &mut effects);
        self.take(self.replica(region), effects.sends);
    }

    /// Lets time pass and wakes all clients.
    pub fn tick(&mut self, micros: Micros) {
        self.monotonic += micros;
        for region in 0..self.clients.len() {
            let now = self.now(region);
            let mut effects = Effects::default();
            self.clients[region].on_wake(now, &mut effects);
            self.take(Address::Client(0, client_id(region)), effects.sends);
            self.done.extend(effects.outputs);
        }
    }

    /// Delivers the message at a place in the wire.
    pub fn deliver_at(&mut self, index: usize) {
        let Sent { from, to, message, earliest } = self.wire.remove(index);
        let (region, sender) = (region_of(to), region_of(from) as u16);
        if earliest > 0 {
            let now = self.now(region);
            self.clocks[region].vouched.hear(&now, sender, earliest);
        }
        let now = self.now(region);
        match to {
            Address::Client(..) => {
                let mut effects = Effects::default();
                self.clients[region].on_message(now, from, message, &mut effects);
                self.take(to, effects.sends);
                self.done.extend(effects.outputs);
            }
            Address::Replica(_) => {
                let mut effects = Effects::default();
                self.replicas[region].on_message(now, from, message, &mut effects);
                self.take(to, effects.sends);
            }
        }
    }

    /// Delivers the last message sent of which `fits` is true.
    ///
    /// # Panics
    /// If there is none.
    pub fn deliver(&mut self, fits: impl Fn(&Sent<E::Message>) -> bool) {
        let index = self.wire.iter().rposition(fits).expect("the schedule has led to such a message");
        self.deliver_at(index);
    }

    fn take(&mut self, from: Address, sends: Vec<(Address, E::Message)>) {
        let earliest = self.now(region_of(from)).truetime().map_or(0, |time| time.earliest);
        self.wire.extend(sends.into_iter().map(|(to, message)| Sent { from, to, message, earliest }));
    }
}
