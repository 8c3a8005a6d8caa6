//! Machines stepped one message at a time, each choice made by the test: for schedules below the level of a script,
//! and for trying all of them ([`crate::explore`]).
//!
//! No time passes by itself, what is sent waits until it is delivered, in any order or never, and records are
//! durable at once.

use bytes::Bytes;
use meridian_protocol::clock::{Micros, Now};
use meridian_protocol::machine::{Client, Completion, Effects, Engine, Level, Place, Replica, Request};
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
}

/// Replicas of one partition, one client machine a region, and what is on its way.
pub struct Steps<E: Engine> {
    now: Now,
    /// By region.
    pub replicas: Vec<E::Replica>,
    clients: Vec<E::Client>,
    /// In the order in which it was sent.
    pub wire: Vec<Sent<E::Message>>,
    /// What has ended.
    pub done: Vec<Completion>,
    requests: u64,
}

impl<E: Engine> Clone for Steps<E>
where
    E::Replica: Clone,
    E::Client: Clone,
{
    fn clone(&self) -> Self {
        Self {
            now: self.now,
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
            now: Now { monotonic: 1, wall: 1_000_000_000, uncertainty: None, passed: 0 },
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

    /// Begins an action at the client of a region; answers its number.
    pub fn begin(&mut self, region: u8, key: &str, action: Action) -> u64 {
        self.requests += 1;
        let key = Bytes::copy_from_slice(key.as_bytes());
        let request = Request::Act { key, action, at_ms: self.now.wall_ms(), level: Level::default() };
        let mut effects = Effects::default();
        self.clients[usize::from(region)].begin(self.now, self.requests, request, &mut effects);
        self.take(Address::Client(0, client_id(usize::from(region))), effects.sends);
        self.done.extend(effects.outputs);
        self.requests
    }

    /// Lets time pass and wakes one replica.
    pub fn wake(&mut self, region: u8, micros: Micros) {
        self.now.monotonic += micros;
        self.now.wall += micros;
        let mut effects = Effects::default();
        self.replicas[usize::from(region)].on_wake(self.now, &mut effects);
        self.take(self.replica(region), effects.sends);
    }

    /// Delivers the message at a place in the wire.
    pub fn deliver_at(&mut self, index: usize) {
        let Sent { from, to, message } = self.wire.remove(index);
        match to {
            Address::Client(_, id) => {
                let mut effects = Effects::default();
                let region = usize::from(id.node()) - 1;
                self.clients[region].on_message(self.now, from, message, &mut effects);
                self.take(to, effects.sends);
                self.done.extend(effects.outputs);
            }
            Address::Replica(id) => {
                let mut effects = Effects::default();
                self.replicas[id.region.index()].on_message(self.now, from, message, &mut effects);
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
        self.wire.extend(sends.into_iter().map(|(to, message)| Sent { from, to, message }));
    }
}
