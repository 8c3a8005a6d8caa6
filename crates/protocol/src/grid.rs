//! For tests of engines with several partitions: all their machines on a network that loses what a test says. Nothing
//! takes time but what passes.

use crate::clock::Now;
use crate::machine::{Client as _, Completion, Effects, Engine, Level, Outcome, Place};
use crate::machine::{Record as _, Replica as _, Request, Together};
use crate::object::{Action, Answer, Command, Reply};
use crate::topology::{Address, ClientId, Group, Region, ReplicaId};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};

/// How long one step of [`Grid::pass`] is: as fine as the causal engines' alarms.
const TICK: u64 = 5_000;

type Records<E> = BTreeMap<Vec<u8>, <E as Engine>::Record>;

/// All replicas of all partitions, clients, and messages under way in the order in which they were sent.
pub(crate) struct Grid<E: Engine> {
    engine: E,
    group: Group,
    pub(crate) now: Now,
    pub(crate) replicas: BTreeMap<ReplicaId, E::Replica>,
    records: BTreeMap<ReplicaId, Records<E>>,
    clients: BTreeMap<ClientId, E::Client>,
    pub(crate) wire: VecDeque<(Address, Address, E::Message)>,
    pub(crate) done: BTreeMap<u64, Completion>,
    requests: u64,
}

impl<E: Engine> Grid<E> {
    pub(crate) fn new(engine: &E, regions: u8, partitions: u16) -> Self {
        let group = Group { keyspace: 0, partitions, regions };
        let mut grid = Self {
            engine: engine.clone(),
            now: Now { monotonic: 1, wall: 1_000_000_000, uncertainty: None, passed: 0 },
            replicas: BTreeMap::new(),
            records: BTreeMap::new(),
            clients: BTreeMap::new(),
            wire: VecDeque::new(),
            done: BTreeMap::new(),
            requests: 0,
            group,
        };
        for region in (0..regions).map(Region) {
            for partition in 0..partitions {
                grid.restart(grid.group.replica(partition, region));
            }
        }
        grid
    }

    fn place(&self, own: Region) -> Place {
        let others = (0..self.group.regions).map(Region).filter(|region| *region != own);
        let nearest_first = std::iter::once(own).chain(others).collect();
        Place { group: self.group.clone(), nearest_first, seed: 7 }
    }

    pub(crate) fn id(&self, region: u8, partition: u16) -> ReplicaId {
        self.group.replica(partition, Region(region))
    }

    /// A key of a partition; another one for each `nth`.
    pub(crate) fn key(&self, partition: u16, nth: usize) -> String {
        let keys = (0..).map(|i| format!("k{i}"));
        let mut of_partition = keys.filter(|key| self.group.partition_of(key.as_bytes()) == partition);
        of_partition.nth(nth).expect("there is no end of keys")
    }

    /// A new client machine in a region.
    pub(crate) fn client(&mut self, region: u8) -> ClientId {
        let id = ClientId::new(u16::from(region) + 1, 1, self.clients.len() as u32);
        self.clients.insert(id, self.engine.client(id, self.place(Region(region))));
        id
    }

    /// Tells a client machine which regions to prefer, for all partitions.
    pub(crate) fn prefer(&mut self, client: ClientId, nearest_first: &[u8]) {
        let regions: Vec<Region> = nearest_first.iter().copied().map(Region).collect();
        for partition in 0..self.group.partitions {
            self.clients.get_mut(&client).unwrap().on_regions(partition, &regions);
        }
    }

    /// Starts a replica from its records, again if it was running.
    pub(crate) fn restart(&mut self, id: ReplicaId) {
        let records = self.records.entry(id).or_default().values().cloned().collect();
        let mut replica = self.engine.replica(id, self.place(id.region), records);
        let mut effects = Effects::default();
        replica.start(self.now, &mut effects);
        self.replicas.insert(id, replica);
        self.take_from_replica(id, effects);
    }

    pub(crate) fn begin(&mut self, client: ClientId, request: Request) -> u64 {
        self.requests += 1;
        let mut effects = Effects::default();
        let machine = self.clients.get_mut(&client).unwrap();
        machine.begin(self.now, self.requests, request, &mut effects);
        self.take_from_client(client, effects);
        self.requests
    }

    /// Begins a command on one key.
    pub(crate) fn command(&mut self, client: ClientId, key: &str, command: Command, level: Level) -> u64 {
        let at_ms = self.now.wall_ms();
        let key = Bytes::from(key.to_owned());
        self.begin(client, Request::Act { key, action: Action::Command(command), at_ms, level })
    }

    /// Begins a read of several keys from one snapshot.
    pub(crate) fn rot(&mut self, client: ClientId, keys: &[&str], level: Level) -> u64 {
        let steps = keys.iter().map(|key| (Bytes::from((*key).to_owned()), Command::Get)).collect();
        let at_ms = self.now.wall_ms();
        self.begin(client, Request::Together(Together { steps, at_ms, level, ..Together::default() }))
    }

    fn take_from_client(&mut self, id: ClientId, effects: Effects<E::Message, Completion>) {
        let from = Address::Client(0, id);
        self.wire.extend(effects.sends.into_iter().map(|(to, message)| (from, to, message)));
        for completion in effects.outputs {
            let twice = self.done.insert(completion.request, completion);
            assert!(twice.is_none(), "a request ends once: {twice:?}");
        }
    }

    fn take_from_replica(&mut self, id: ReplicaId, effects: Effects<E::Message, E::Record>) {
        let sends = effects.sends.into_iter();
        self.wire.extend(sends.map(|(to, message)| (Address::Replica(id), to, message)));
        let records = self.records.entry(id).or_default();
        for record in effects.outputs {
            let (mut key, mut value) = (Vec::new(), Vec::new());
            record.encode_key(&mut key);
            if record.encode_value(&mut value) {
                assert_eq!(E::Record::decode(&key, &value).unwrap(), record);
                records.insert(key, record);
            } else {
                records.remove(&key);
            }
        }
    }

    /// How many records a replica has.
    pub(crate) fn stored(&self, id: ReplicaId) -> usize {
        self.records[&id].len()
    }

    /// Delivers a message.
    pub(crate) fn deliver(&mut self, (from, to, message): (Address, Address, E::Message)) {
        let mut bytes = Vec::new();
        crate::wire::encode(&message, &mut bytes);
        assert_eq!(crate::wire::decode::<E::Message>(&bytes).unwrap(), message);
        match to {
            Address::Client(_, id) => {
                let mut effects = Effects::default();
                self.clients.get_mut(&id).unwrap().on_message(self.now, from, message, &mut effects);
                self.take_from_client(id, effects);
            }
            Address::Replica(id) => {
                let mut effects = Effects::default();
                let Some(replica) = self.replicas.get_mut(&id) else { return };
                replica.on_message(self.now, from, message, &mut effects);
                self.take_from_replica(id, effects);
            }
        }
    }

    /// Delivers messages in order, but for those that `lost` takes, until none is left.
    pub(crate) fn run(&mut self, lost: impl Fn(Address, Address, &E::Message) -> bool) {
        while let Some((from, to, message)) = self.wire.pop_front() {
            if !lost(from, to, &message) {
                self.deliver((from, to, message));
            }
        }
    }

    /// Lets time pass: wakes every machine again and again, and delivers what that brings.
    pub(crate) fn pass(&mut self, micros: u64, lost: impl Fn(Address, Address, &E::Message) -> bool) {
        for _ in 0..micros.div_ceil(TICK) {
            self.now.monotonic += TICK;
            self.now.wall += TICK;
            for id in self.replicas.keys().copied().collect::<Vec<_>>() {
                let mut effects = Effects::default();
                self.replicas.get_mut(&id).unwrap().on_wake(self.now, &mut effects);
                self.take_from_replica(id, effects);
            }
            for id in self.clients.keys().copied().collect::<Vec<_>>() {
                let mut effects = Effects::default();
                self.clients.get_mut(&id).unwrap().on_wake(self.now, &mut effects);
                self.take_from_client(id, effects);
            }
            self.run(&lost);
        }
    }

    /// How a request ended.
    pub(crate) fn outcome(&self, request: u64) -> Option<&Outcome> {
        self.done.get(&request).map(|done| &done.outcome)
    }

    /// Whether all copies of all partitions hold the same.
    pub(crate) fn agrees(&self) -> bool {
        self.replicas.iter().all(|(id, replica)| {
            self.replicas[&self.id(0, id.partition)].fingerprint() == replica.fingerprint()
        })
    }

    /// The sum of a counter over all replicas.
    pub(crate) fn counter(&self, name: &str) -> u64 {
        let counters = self.replicas.values().flat_map(|replica| replica.status().counters);
        counters.filter(|(known, _)| *known == name).map(|(_, count)| count).sum()
    }
}

/// Nothing is lost.
pub(crate) fn nothing<M>(_: Address, _: Address, _: &M) -> bool {
    false
}

/// Loses whatever goes to a region or comes from it.
pub(crate) fn away<M>(region: u8) -> impl Fn(Address, Address, &M) -> bool {
    move |from, to, _| {
        let at = |address| match address {
            Address::Replica(id) => Some(id.region),
            Address::Client(..) => None,
        };
        let cut = Some(Region(region));
        let between = matches!((at(from), at(to)), (Some(from), Some(to)) if from != to);
        between && (at(from) == cut || at(to) == cut)
    }
}

pub(crate) fn bulk(value: &str) -> Reply {
    Reply::Bulk(Bytes::from(value.to_owned()))
}

pub(crate) fn one(reply: Reply) -> Outcome {
    Outcome::Answer(Answer::One(reply))
}

pub(crate) fn set(value: &str) -> Command {
    match crate::cluster::set(value) {
        Action::Command(command) => command,
        other => panic!("{other:?} is no command"),
    }
}
