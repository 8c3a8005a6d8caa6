//! For tests: machines on a perfect network. What each kind of operation does and costs can be told there; schedules
//! with faults are the simulator's business.

use crate::clock::Now;
use crate::machine::{
    Client as _, Completion, Effects, Engine, Level, Outcome, Place, Replica as _, Request,
};
use crate::object::{Action, Answer, Command, Condition, Expiry, Reply, Set, SetAnswer};
use crate::topology::{Address, ClientId, Group, Region};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};

/// Replicas of one partition and clients, and messages under way in the order in which they were sent.
pub(crate) struct Cluster<E: Engine> {
    engine: E,
    regions: u8,
    pub(crate) now: Now,
    pub(crate) replicas: Vec<E::Replica>,
    pub(crate) records: Vec<BTreeMap<Vec<u8>, E::Record>>,
    clients: BTreeMap<ClientId, E::Client>,
    pub(crate) wire: VecDeque<(Address, Address, E::Message)>,
    pub(crate) done: Vec<Completion>,
    requests: u64,
}

impl<E: Engine> Cluster<E> {
    pub(crate) fn new(engine: &E, regions: u8) -> Self {
        let now = Now { monotonic: 1, wall: 1_000_000_000, uncertainty: None, passed: 0 };
        let group = Group { keyspace: 0, partitions: 1, regions };
        let place = |own: u8| place(own, regions);
        let replica = |r: u8| engine.replica(group.replica(0, Region(r)), place(r), Vec::new());
        let client = |r: u8| {
            let id = ClientId::new(u16::from(r) + 1, 1, 0);
            (id, engine.client(id, place(r)))
        };
        Self {
            engine: engine.clone(),
            regions,
            now,
            replicas: (0..regions).map(replica).collect(),
            records: vec![BTreeMap::new(); usize::from(regions)],
            clients: (0..regions).map(client).collect(),
            wire: VecDeque::new(),
            done: Vec::new(),
            requests: 0,
        }
    }

    /// Crashes a replica and starts it again from its records.
    pub(crate) fn restart(&mut self, region: u8) {
        let id = place(region, self.regions).group.replica(0, Region(region));
        let records = self.records[usize::from(region)].values().cloned().collect();
        let mut effects = Effects::default();
        let mut replica = self.engine.replica(id, place(region, self.regions), records);
        replica.start(self.now, &mut effects);
        self.replicas[usize::from(region)] = replica;
        self.take_from_replica(Region(region), effects);
    }

    /// Delivers a message.
    pub(crate) fn deliver(&mut self, (from, to, message): (Address, Address, E::Message)) {
        match to {
            Address::Client(_, id) => {
                let mut effects = Effects::default();
                self.clients.get_mut(&id).unwrap().on_message(self.now, from, message, &mut effects);
                self.take_from_client(id, effects);
            }
            Address::Replica(id) => {
                let mut effects = Effects::default();
                self.replicas[id.region.index()].on_message(self.now, from, message, &mut effects);
                self.take_from_replica(id.region, effects);
            }
        }
    }

    /// Begins an action at the client of a region; answers its number.
    pub(crate) fn begin(&mut self, region: u8, key: &str, action: Action) -> u64 {
        self.requests += 1;
        let id = ClientId::new(u16::from(region) + 1, 1, 0);
        let request = Request::Act {
            key: Bytes::from(key.to_owned()),
            action,
            at_ms: self.now.wall_ms(),
            level: Level::default(),
        };
        let mut effects = Effects::default();
        self.clients.get_mut(&id).unwrap().begin(self.now, self.requests, request, &mut effects);
        self.take_from_client(id, effects);
        self.requests
    }

    fn take_from_client(&mut self, id: ClientId, effects: Effects<E::Message, Completion>) {
        let from = Address::Client(0, id);
        self.wire.extend(effects.sends.into_iter().map(|(to, message)| (from, to, message)));
        self.done.extend(effects.outputs);
    }

    fn take_from_replica(&mut self, region: Region, effects: Effects<E::Message, E::Record>) {
        use crate::machine::Record as _;
        let from = Address::Replica(Group { keyspace: 0, partitions: 1, regions: 3 }.replica(0, region));
        self.wire.extend(effects.sends.into_iter().map(|(to, message)| (from, to, message)));
        for record in effects.outputs {
            let (mut key, mut value) = (Vec::new(), Vec::new());
            record.encode_key(&mut key);
            if record.encode_value(&mut value) {
                assert_eq!(E::Record::decode(&key, &value).unwrap(), record);
                self.records[region.index()].insert(key, record);
            } else {
                self.records[region.index()].remove(&key);
            }
        }
    }

    /// Delivers messages in order, but for those that `lost` takes, until none is left.
    pub(crate) fn run(&mut self, lost: impl Fn(Address, Address, &E::Message) -> bool) {
        while let Some((from, to, message)) = self.wire.pop_front() {
            if lost(from, to, &message) {
                continue;
            }
            let mut bytes = Vec::new();
            crate::wire::encode(&message, &mut bytes);
            assert_eq!(crate::wire::decode::<E::Message>(&bytes).unwrap(), message);
            self.deliver((from, to, message));
        }
    }

    /// Lets time pass: wakes every machine, and delivers what that brings.
    pub(crate) fn pass(&mut self, micros: u64, lost: impl Fn(Address, Address, &E::Message) -> bool) {
        self.now.monotonic += micros;
        self.now.wall += micros;
        for region in 0..self.replicas.len() {
            let mut effects = Effects::default();
            self.replicas[region].on_wake(self.now, &mut effects);
            self.take_from_replica(Region(region as u8), effects);
        }
        for id in self.clients.keys().copied().collect::<Vec<_>>() {
            let mut effects = Effects::default();
            self.clients.get_mut(&id).unwrap().on_wake(self.now, &mut effects);
            self.take_from_client(id, effects);
        }
        self.run(lost);
    }

    /// Performs an action with nothing lost; answers its outcome and rounds.
    pub(crate) fn act(&mut self, region: u8, key: &str, action: Action) -> (Outcome, u32) {
        let request = self.begin(region, key, action);
        self.run(|_, _, _| false);
        let done = self.done.iter().find(|done| done.request == request).expect("nothing is lost");
        (done.outcome.clone(), done.cost.rounds)
    }

    pub(crate) fn counter(&self, region: usize, name: &str) -> u64 {
        let status = self.replicas[region].status();
        status.counters.iter().find(|(known, _)| *known == name).map(|(_, count)| *count).unwrap()
    }
}

fn place(own: u8, regions: u8) -> Place {
    let others = (0..regions).filter(|region| *region != own);
    let nearest_first = std::iter::once(own).chain(others).map(Region).collect();
    Place { group: Group { keyspace: 0, partitions: 1, regions }, nearest_first, seed: 7 }
}

pub(crate) fn get() -> Action {
    Action::Command(Command::Get)
}

pub(crate) fn set(value: &str) -> Action {
    let value = Bytes::from(value.to_owned());
    Action::Command(Command::Set(Set {
        value,
        condition: Condition::Always,
        expiry: Expiry::Never,
        answer: SetAnswer::Ok,
    }))
}

pub(crate) fn incr() -> Action {
    Action::Command(Command::IncrBy(1))
}

pub(crate) fn bulk(value: &str) -> Outcome {
    Outcome::Answer(Answer::One(Reply::Bulk(Bytes::from(value.to_owned()))))
}

pub(crate) fn int(value: i64) -> Outcome {
    Outcome::Answer(Answer::One(Reply::Int(value)))
}
