//! A keyspace's machines on this node, and how they are driven. The only file that sees an engine's types.

use crate::outside::{MachineId, Outside};
use bytes::Bytes;
use meridian_protocol::clock::{Micros, Now};
use meridian_protocol::machine::{
    Client, Completion, Effects, Engine, Message, Place, Record, Replica, Request, RequestId, Status,
};
use meridian_protocol::registry::Visitor;
use meridian_protocol::topology::{Address, Group, Region};
use meridian_protocol::wire;
use meridian_store::{Store, StoreError};
use std::collections::VecDeque;

/// One keyspace's share in a node, whatever its engine.
pub(crate) trait Keyspace {
    /// Starts all replicas.
    fn start(&mut self, outside: &mut Outside);

    /// Delivers a message from another node.
    ///
    /// # Errors
    /// What is wrong with the message, which is then dropped.
    fn receive(
        &mut self,
        outside: &mut Outside,
        from: Address,
        to: Address,
        body: &[u8],
    ) -> Result<(), String>;

    /// Gives a request to the client machine in a slot.
    fn begin(&mut self, outside: &mut Outside, slot: u32, id: RequestId, request: Request);

    /// Wakes a machine, unless it has asked for another time than `at` since.
    fn wake(&mut self, outside: &mut Outside, machine: MachineId, at: Micros);

    /// Says whether the replica of a partition, if it is here, tells of a key's items.
    fn watch(&mut self, partition: u16, key: &Bytes, watched: bool);

    /// Takes a client machine for a session.
    fn open_client(&mut self, outside: &mut Outside) -> u32;

    /// Gives a client machine back.
    fn close_client(&mut self, slot: u32);

    /// Tells all machines anew which regions to prefer.
    fn prefer(&mut self, outside: &Outside);

    /// How many client machines there are, idle ones included.
    fn clients(&self) -> usize;

    /// What the local replicas tell of themselves, by partition.
    fn status(&self) -> Vec<(u16, Status)>;
}

/// Makes a [`Keyspace`] of an engine; give it to [`meridian_protocol::registry::with_engine`].
pub(crate) struct Make<'a> {
    /// The keyspace's place among the node's.
    pub(crate) index: usize,
    pub(crate) group: Group,
    /// Where the replicas' records are; `None` if none are kept.
    pub(crate) store: Option<&'a dyn Store>,
    pub(crate) outside: &'a Outside,
}

impl Visitor for Make<'_> {
    type Output = Result<Box<dyn Keyspace>, StoreError>;

    fn visit<E: Engine>(self, engine: E) -> Self::Output {
        Ok(Box::new(Hosted::new(engine, &self)?))
    }
}

/// The first bytes of the keys of a replica's records.
fn record_prefix(keyspace: u16, partition: u16) -> [u8; 5] {
    let (k, p) = (keyspace.to_be_bytes(), partition.to_be_bytes());
    [RECORDS, k[0], k[1], p[0], p[1]]
}

/// The first byte of the keys of records; the host's own facts begin with another.
const RECORDS: u8 = b'r';

/// A keyspace served by engine `E`.
struct Hosted<E: Engine> {
    engine: E,
    index: usize,
    group: Group,
    /// By partition; those that this node holds.
    replicas: Vec<Option<Hosting<E::Replica>>>,
    /// By slot; one that ended its session waits in `free` for the next.
    clients: Vec<Hosting<E::Client>>,
    free: Vec<u32>,
    /// For each partition, as client machines last heard it.
    preferred: Vec<Vec<Region>>,
    /// Messages from machines here to machines here.
    local: VecDeque<(Address, Address, E::Message)>,
    replica_effects: Effects<E::Message, E::Record>,
    client_effects: Effects<E::Message, Completion>,
}

/// A machine, and when it wants to be woken.
struct Hosting<M> {
    machine: M,
    alarm: Option<Micros>,
}

impl<E: Engine> Hosted<E> {
    fn new(engine: E, make: &Make<'_>) -> Result<Self, StoreError> {
        let (group, outside) = (&make.group, make.outside);
        let region = outside.placement.region_of(outside.me);
        let mut replicas = Vec::new();
        let mut preferred = Vec::new();
        for partition in 0..group.partitions {
            preferred.push(preference(outside, partition));
            if outside.placement.holder(partition, region) != outside.me {
                replicas.push(None);
                continue;
            }
            let records = match make.store {
                Some(store) => read_records(store, group.keyspace, partition)?,
                None => Vec::new(),
            };
            let id = group.replica(partition, region);
            let place = place(group, region, outside, u64::from(partition));
            replicas.push(Some(Hosting { machine: engine.replica(id, place, records), alarm: None }));
        }
        Ok(Self {
            engine,
            index: make.index,
            group: group.clone(),
            replicas,
            clients: Vec::new(),
            free: Vec::new(),
            preferred,
            local: VecDeque::new(),
            replica_effects: Effects { keeps_records: make.store.is_some(), ..Effects::default() },
            client_effects: Effects::default(),
        })
    }

    /// Lets the replica of a partition take one step, if it is here, and sees to what it wants done.
    fn step_replica(
        &mut self,
        outside: &mut Outside,
        partition: u16,
        step: impl FnOnce(&mut E::Replica, Now, &mut Effects<E::Message, E::Record>),
    ) {
        let Some(Some(hosting)) = self.replicas.get_mut(usize::from(partition)) else { return };
        step(&mut hosting.machine, outside.now(), &mut self.replica_effects);
        if let Some(at) = self.replica_effects.wake.take() {
            hosting.alarm = Some(at);
            outside.set_alarm(at, self.index, MachineId::Replica(partition));
        }
        let prefix = record_prefix(self.group.keyspace, partition);
        for record in self.replica_effects.outputs.drain(..) {
            outside.store(&prefix, &record);
        }
        if let Some(notices) = hosting.machine.notices() {
            outside.notices.extend(notices.take().into_iter().map(|notice| (self.index, notice)));
        }
        let region = outside.placement.region_of(outside.me);
        let from = Address::Replica(self.group.replica(partition, region));
        for (to, message) in self.replica_effects.sends.drain(..) {
            dispatch(&mut self.local, outside, from, to, message);
        }
    }

    /// Lets a client machine take one step, and sees to what it wants done.
    fn step_client(
        &mut self,
        outside: &mut Outside,
        slot: u32,
        step: impl FnOnce(&mut E::Client, Now, &mut Effects<E::Message, Completion>),
    ) {
        let Some(hosting) = self.clients.get_mut(slot as usize) else { return };
        step(&mut hosting.machine, outside.now(), &mut self.client_effects);
        if let Some(at) = self.client_effects.wake.take() {
            hosting.alarm = Some(at);
            outside.set_alarm(at, self.index, MachineId::Client(slot));
        }
        outside.completions.extend(self.client_effects.outputs.drain(..));
        let from = Address::Client(self.group.keyspace, outside.client_id(slot));
        for (to, message) in self.client_effects.sends.drain(..) {
            dispatch(&mut self.local, outside, from, to, message);
        }
    }

    /// Delivers messages among the machines here until there are none.
    fn deliver(&mut self, outside: &mut Outside) {
        while let Some((from, to, message)) = self.local.pop_front() {
            self.deliver_one(outside, from, to, message);
        }
    }

    fn deliver_one(&mut self, outside: &mut Outside, from: Address, to: Address, message: E::Message) {
        match to {
            Address::Replica(id) => self.step_replica(outside, id.partition, |replica, now, effects| {
                replica.on_message(now, from, message, effects);
            }),
            // A client of an earlier life of this node is no more.
            Address::Client(_, id) if id != outside.client_id(id.slot()) => {}
            Address::Client(_, id) => self.step_client(outside, id.slot(), |client, now, effects| {
                client.on_message(now, from, message, effects);
            }),
        }
    }
}

impl<E: Engine> Keyspace for Hosted<E> {
    fn start(&mut self, outside: &mut Outside) {
        for partition in 0..self.group.partitions {
            self.step_replica(outside, partition, Replica::start);
        }
        self.deliver(outside);
    }

    fn receive(
        &mut self,
        outside: &mut Outside,
        from: Address,
        to: Address,
        body: &[u8],
    ) -> Result<(), String> {
        let message = wire::decode(body).map_err(|error| error.to_string())?;
        outside.mail.count(&message, body.len());
        self.deliver_one(outside, from, to, message);
        self.deliver(outside);
        Ok(())
    }

    fn begin(&mut self, outside: &mut Outside, slot: u32, id: RequestId, request: Request) {
        self.step_client(outside, slot, |client, now, effects| client.begin(now, id, request, effects));
        self.deliver(outside);
    }

    fn wake(&mut self, outside: &mut Outside, machine: MachineId, at: Micros) {
        let alarm = match machine {
            MachineId::Replica(partition) => {
                self.replicas.get_mut(usize::from(partition)).and_then(Option::as_mut).map(|h| &mut h.alarm)
            }
            MachineId::Client(slot) => self.clients.get_mut(slot as usize).map(|h| &mut h.alarm),
            // Not a machine of an engine.
            MachineId::Queue => None,
        };
        let Some(alarm) = alarm.filter(|alarm| **alarm == Some(at)) else { return };
        *alarm = None;
        match machine {
            MachineId::Replica(partition) => {
                self.step_replica(outside, partition, Replica::on_wake);
            }
            MachineId::Client(slot) => {
                self.step_client(outside, slot, Client::on_wake);
            }
            MachineId::Queue => {}
        }
        self.deliver(outside);
    }

    fn watch(&mut self, partition: u16, key: &Bytes, watched: bool) {
        let hosting = self.replicas.get_mut(usize::from(partition)).and_then(Option::as_mut);
        if let Some(notices) = hosting.and_then(|hosting| hosting.machine.notices()) {
            notices.watch(key, watched);
        }
    }

    fn open_client(&mut self, outside: &mut Outside) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            let slot = self.clients.len() as u32;
            let region = outside.placement.region_of(outside.me);
            let place = place(&self.group, region, outside, 1 << 32 | u64::from(slot));
            let machine = self.engine.client(outside.client_id(slot), place);
            self.clients.push(Hosting { machine, alarm: None });
            slot
        });
        for (partition, order) in self.preferred.iter().enumerate() {
            self.clients[slot as usize].machine.on_regions(partition as u16, order);
        }
        slot
    }

    fn close_client(&mut self, slot: u32) {
        self.clients[slot as usize].machine.end_session();
        self.free.push(slot);
    }

    fn prefer(&mut self, outside: &Outside) {
        for partition in 0..self.group.partitions {
            let order = preference(outside, partition);
            let before = &mut self.preferred[usize::from(partition)];
            if *before == order {
                continue;
            }
            for client in &mut self.clients {
                client.machine.on_regions(partition, &order);
            }
            if let Some(replica) = &mut self.replicas[usize::from(partition)] {
                replica.machine.on_regions(&order);
            }
            *before = order;
        }
    }

    fn clients(&self) -> usize {
        self.clients.len()
    }

    fn status(&self) -> Vec<(u16, Status)> {
        let held = self.replicas.iter().enumerate();
        held.filter_map(|(p, hosting)| Some((p as u16, hosting.as_ref()?.machine.status()))).collect()
    }
}

fn dispatch<M: Message>(
    local: &mut VecDeque<(Address, Address, M)>,
    outside: &mut Outside,
    from: Address,
    to: Address,
    message: M,
) {
    if outside.is_here(to) {
        local.push_back((from, to, message));
    } else {
        outside.send(from, to, &message);
    }
}

/// In which order to turn to the regions for a partition: reachable ones first, the nearest of them first, and of
/// equally near ones the next in a ring, so that the load of many nodes is spread.
fn preference(outside: &Outside, partition: u16) -> Vec<Region> {
    let count = outside.placement.regions();
    let mine = outside.placement.region_of(outside.me);
    let mut order: Vec<Region> = (0..count).map(|step| Region((mine.0 + step) % count)).collect();
    order.sort_by_key(|region| {
        let holder = outside.placement.holder(partition, *region);
        let link = &outside.links[holder];
        if holder == outside.me { (false, 0) } else { (!link.is_reachable(), link.rank()) }
    });
    order
}

fn place(group: &Group, region: Region, outside: &Outside, machine: u64) -> Place {
    let count = group.regions;
    let nearest_first = (0..count).map(|step| Region((region.0 + step) % count)).collect();
    // Back-off times of different machines and lives should differ; nothing else depends on the seed.
    let parts = [outside.me as u64, u64::from(outside.incarnation), u64::from(group.keyspace), machine];
    let seed = parts.iter().fold(0x6d65_7269_u64, |seed, part| {
        (seed ^ part).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
    });
    Place { group: group.clone(), nearest_first, seed }
}

fn read_records<R: Record>(store: &dyn Store, keyspace: u16, partition: u16) -> Result<Vec<R>, StoreError> {
    let prefix = record_prefix(keyspace, partition);
    let mut records = Vec::new();
    let mut fault = None;
    store.for_each(&prefix, &mut |key, value| match R::decode(&key[prefix.len()..], value) {
        Ok(record) => records.push(record),
        Err(why) => fault = fault.take().or(Some(why)),
    })?;
    match fault {
        None => Ok(records),
        Some(why) => {
            let place = format!("keyspace {keyspace}, partition {partition}");
            Err(StoreError::Record(format!("a record of {place} cannot be read: {why}")))
        }
    }
}
