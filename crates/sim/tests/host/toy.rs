//! An engine small enough to be seen through: one primary executes everything and copies what it has to the others.
//! It can be given a flaw, so that the simulator can be seen to find it.

use bytes::Bytes;
use meridian_protocol::clock::{Micros, Now};
use meridian_protocol::machine::{
    Client, Completion, Cost, Effects, Engine, Outcome, Place, Record, Replica, Request, RequestId, Status,
};
use meridian_protocol::object::{Action, Answer, Class, apply};
use meridian_protocol::registers::carstamp::{Carstamp, Held};
use meridian_protocol::topology::{Address, ClientId, Region, ReplicaId, key_hash};
use meridian_protocol::wire;
use minicbor::{Decode, Encode};
use std::collections::BTreeMap;

const RETRY: Micros = 300_000;
const GIVE_UP: Micros = 8_000_000;
const COPY_EVERY: Micros = 500_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    None,
    /// Reads are served by the client's own region.
    LocalReads,
    /// Nothing is stored.
    Forgetful,
    /// The primary does not know a request that comes again.
    TwiceIsTwice,
    /// Others never get a copy.
    NoCopies,
    /// Requests for the key `k1` are never answered.
    Silent,
}

#[derive(Clone, Debug)]
pub(crate) struct Toy(pub(crate) Flaw);

#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub(crate) enum Message {
    #[n(0)]
    Do {
        #[n(0)]
        request: u64,
        #[n(1)]
        #[cbor(with = "wire::blob")]
        key: Bytes,
        #[n(2)]
        action: Action,
    },
    #[n(1)]
    Done {
        #[n(0)]
        request: u64,
        #[n(1)]
        answer: Answer,
        #[n(2)]
        carstamp: Carstamp,
    },
    #[n(2)]
    Copy {
        #[n(0)]
        #[cbor(with = "wire::blob")]
        key: Bytes,
        #[n(1)]
        held: Held,
    },
}

#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub(crate) enum Fact {
    #[n(0)]
    Register(
        #[n(0)]
        #[cbor(with = "wire::blob")]
        Bytes,
        #[n(1)] Held,
    ),
    #[n(1)]
    Result(#[n(0)] ClientId, #[n(1)] u64, #[n(2)] Answer, #[n(3)] Carstamp),
}

impl Record for Fact {
    fn encode_key(&self, buffer: &mut Vec<u8>) {
        match self {
            Self::Register(key, _) => buffer.extend_from_slice(key),
            Self::Result(client, request, ..) => wire::encode(&(client, request), buffer),
        }
    }

    fn encode_value(&self, buffer: &mut Vec<u8>) -> bool {
        wire::encode(self, buffer);
        true
    }

    fn decode(_: &[u8], value: &[u8]) -> Result<Self, String> {
        wire::decode(value).map_err(|error| error.to_string())
    }
}

impl meridian_protocol::machine::Message for Message {}

impl Engine for Toy {
    type Message = Message;
    type Record = Fact;
    type Replica = ToyReplica;
    type Client = ToyClient;

    fn replica(&self, id: ReplicaId, place: Place, records: Vec<Fact>) -> ToyReplica {
        let mut replica =
            ToyReplica { flaw: self.0, id, place, held: BTreeMap::new(), results: BTreeMap::new() };
        for record in records {
            match record {
                Fact::Register(key, held) => drop(replica.held.insert(key, held)),
                Fact::Result(client, request, answer, cs) => {
                    replica.results.insert((client, request), (answer, cs));
                }
            }
        }
        replica
    }

    fn client(&self, _: ClientId, place: Place) -> ToyClient {
        ToyClient { flaw: self.0, place, open: BTreeMap::new() }
    }
}

#[derive(Debug)]
pub(crate) struct ToyReplica {
    flaw: Flaw,
    id: ReplicaId,
    place: Place,
    held: BTreeMap<Bytes, Held>,
    results: BTreeMap<(ClientId, u64), (Answer, Carstamp)>,
}

impl ToyReplica {
    fn execute(
        &mut self,
        key: &Bytes,
        action: &Action,
        out: &mut Effects<Message, Fact>,
    ) -> (Answer, Carstamp) {
        let held = self.held.get(key).cloned().unwrap_or_default();
        let (value, answer) = apply(&held.value, held.carstamp.version(), action, 0);
        let carstamp = match action.class() {
            Class::Read => return (answer, held.carstamp),
            Class::Write => Carstamp { ts: held.carstamp.ts + 1, id: 1, rmw_count: 0 },
            Class::ReadModifyWrite => held.carstamp.next_rmw().expect("a run is short"),
        };
        let held = Held { value, carstamp };
        self.held.insert(key.clone(), held.clone());
        if self.flaw != Flaw::Forgetful {
            out.output(Fact::Register(key.clone(), held));
        }
        (answer, carstamp)
    }
}

impl Replica for ToyReplica {
    type Message = Message;
    type Record = Fact;

    fn start(&mut self, now: Now, out: &mut Effects<Message, Fact>) {
        out.wake_at(now.monotonic + COPY_EVERY);
    }

    fn on_message(&mut self, _: Now, from: Address, message: Message, out: &mut Effects<Message, Fact>) {
        match message {
            Message::Do { request, key, action } => {
                let Address::Client(_, client) = from else { return };
                if self.flaw == Flaw::Silent && key == "k1" {
                    return;
                }
                let known = self.results.get(&(client, request)).cloned();
                let again = known.filter(|_| self.flaw != Flaw::TwiceIsTwice);
                let (answer, carstamp) = again.unwrap_or_else(|| self.execute(&key, &action, out));
                if self.flaw != Flaw::Forgetful {
                    out.output(Fact::Result(client, request, answer.clone(), carstamp));
                }
                self.results.insert((client, request), (answer.clone(), carstamp));
                out.send(from, Message::Done { request, answer, carstamp });
            }
            Message::Copy { key, held } => {
                if self.held.get(&key).is_none_or(|own| own.carstamp < held.carstamp) {
                    out.output(Fact::Register(key.clone(), held.clone()));
                    self.held.insert(key, held);
                }
            }
            Message::Done { .. } => {}
        }
    }

    fn on_wake(&mut self, now: Now, out: &mut Effects<Message, Fact>) {
        out.wake_at(now.monotonic + COPY_EVERY);
        if self.id.region != Region(0) || self.flaw == Flaw::NoCopies {
            return;
        }
        for region in 1..self.place.group.regions {
            for (key, held) in &self.held {
                let to = Address::Replica(ReplicaId { region: Region(region), ..self.id });
                out.send(to, Message::Copy { key: key.clone(), held: held.clone() });
            }
        }
    }

    fn on_regions(&mut self, _: &[Region]) {}

    fn status(&self) -> Status {
        Status {
            keys: self.held.len() as u64,
            counters: vec![("kept", self.results.len() as u64)],
            ..Status::default()
        }
    }

    fn fingerprint(&self) -> u64 {
        self.held.iter().fold(0, |digest, (key, held)| {
            let mut bytes = key.to_vec();
            wire::encode(held, &mut bytes);
            digest ^ key_hash(&bytes)
        })
    }
}

#[derive(Debug)]
pub(crate) struct ToyClient {
    flaw: Flaw,
    place: Place,
    open: BTreeMap<RequestId, (Address, Message, Micros)>,
}

impl Client for ToyClient {
    type Message = Message;

    fn begin(&mut self, now: Now, id: RequestId, request: Request, out: &mut Effects<Message, Completion>) {
        let Request::Act { key, action, .. } = request else {
            return out.output(Completion { request: id, outcome: Outcome::Fenced, cost: Cost::default() });
        };
        let local = self.flaw == Flaw::LocalReads && action.class() == Class::Read;
        let region = if local { self.place.region() } else { Region(0) };
        let to = Address::Replica(self.place.group.replica(self.place.group.partition_of(&key), region));
        let message = Message::Do { request: id, key, action };
        out.send(to, message.clone());
        self.open.insert(id, (to, message, now.monotonic + GIVE_UP));
        out.wake_at(now.monotonic + RETRY);
    }

    fn on_message(&mut self, _: Now, _: Address, message: Message, out: &mut Effects<Message, Completion>) {
        let Message::Done { request, answer, carstamp } = message else { return };
        if self.open.remove(&request).is_some() {
            let cost = Cost { rounds: 1, witness: Some(carstamp.witness()), ..Cost::default() };
            out.output(Completion { request, outcome: Outcome::Answer(answer), cost });
        }
    }

    fn on_wake(&mut self, now: Now, out: &mut Effects<Message, Completion>) {
        for (id, (to, message, give_up)) in &self.open {
            if now.monotonic >= *give_up {
                out.output(Completion { request: *id, outcome: Outcome::LATE, cost: Cost::default() });
            } else {
                out.send(*to, message.clone());
            }
        }
        self.open.retain(|_, (.., give_up)| now.monotonic < *give_up);
        if !self.open.is_empty() {
            out.wake_at(now.monotonic + RETRY);
        }
    }

    fn on_regions(&mut self, _: u16, _: &[Region]) {}

    fn end_session(&mut self) {
        self.open.clear();
    }
}
