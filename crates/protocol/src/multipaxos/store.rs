//! The state machine: keys with their values, and the results of updates so that a retry takes effect once.

use super::log::{Slot, StateMachine};
use super::message::{Command, Listed, Outcome, Work};
use crate::machine::{self, OpId};
use crate::notices::Notices;
use crate::object::{Action, Class, apply};
use crate::planted::{Plant, Planted};
use crate::registers::carstamp::{Carstamp, Held};
use crate::registry::Settings;
use crate::results::Remembered;
use crate::topology::{ClientId, key_hash};
use crate::wire;
use bytes::Bytes;
use imbl::OrdMap;
use minicbor::{Decode, Encode};
use std::collections::BTreeSet;
use std::sync::Arc;

/// One partition of a keyspace.
#[derive(Clone, Debug)]
pub struct Store {
    remember_ms: u64,
    plant: Plant,
    /// Every key that ever had a value, in the order of listing. A deleted key keeps its carstamp: who watches it
    /// must see that it has changed.
    keys: OrdMap<Place, Held>,
    /// Approximate bytes of keys and values.
    bytes: u64,
    /// The last result of each lane of each client.
    results: OrdMap<Lane, Arc<Remembered>>,
    /// The newest client time among updates, ms.
    newest_ms: u64,
    /// What has changed since the last checkpoint.
    changed_keys: BTreeSet<Place>,
    changed_lanes: BTreeSet<Lane>,
    notices: Notices,
}

/// A key behind its hash.
type Place = (u64, Bytes);

/// One of a client's concurrent updates.
type Lane = (ClientId, u32);

/// A part of the state.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub enum Fact {
    /// A key's version.
    #[n(0)]
    Key(
        #[n(0)]
        #[cbor(with = "crate::wire::blob")]
        Bytes,
        #[n(1)] Held,
    ),
    /// A lane's last result, or that it is forgotten.
    #[n(1)]
    Result(#[n(0)] ClientId, #[n(1)] u32, #[n(2)] Option<Remembered>),
    /// The newest client time among updates, ms.
    #[n(2)]
    Newest(#[n(0)] u64),
}

/// Where a page of a snapshot ends.
#[derive(Encode, Decode)]
enum Cursor {
    #[n(0)]
    Key(
        #[n(0)]
        #[cbor(with = "crate::wire::blob")]
        Bytes,
    ),
    #[n(1)]
    Result(#[n(0)] ClientId, #[n(1)] u32),
}

/// The most keys in one page of a listing, unless more have the same hash.
const LIST_LIMIT: usize = 10_000;

impl Store {
    /// An empty one.
    pub fn new(settings: &Settings) -> Self {
        Self {
            remember_ms: settings.remember / 1_000,
            plant: settings.plant,
            keys: OrdMap::new(),
            bytes: 0,
            results: OrdMap::new(),
            newest_ms: 0,
            changed_keys: BTreeSet::new(),
            changed_lanes: BTreeSet::new(),
            notices: Notices::default(),
        }
    }

    /// How many keys are held, tombstones included.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether nothing was ever written.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Approximate bytes of keys and values.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Where it tells of keys that somebody waits for.
    pub(super) fn notices(&mut self) -> &mut Notices {
        &mut self.notices
    }

    /// The result of an update that was applied and is remembered.
    pub fn result_of(&self, command: &Command) -> Option<Outcome> {
        let Work::Act { lane, .. } = command.work else { return None };
        let result = self.results.get(&(command.op.client, lane))?;
        (result.request == command.op.request).then(|| outcome_of(result))
    }

    /// What a read sees.
    pub fn read(&self, work: &Work) -> Outcome {
        match work {
            Work::Act { key, action, at_ms, .. } => {
                let held = self.get(key);
                let (_, answer) = apply(&held.value, held.carstamp.version(), action, *at_ms);
                Outcome::Answer { answer, carstamp: held.carstamp }
            }
            Work::List { from, count, at_ms } => self.list(*from, (*count as usize).min(LIST_LIMIT), *at_ms),
        }
    }

    fn get(&self, key: &Bytes) -> Held {
        self.keys.get(&(key_hash(key), key.clone())).cloned().unwrap_or_default()
    }

    fn set(&mut self, key: &Bytes, held: Held) {
        let place = (key_hash(key), key.clone());
        let size = |held: &Held| held.value.as_ref().map_or(0, |object| object.footprint() as u64);
        self.bytes += size(&held);
        self.notices.note(key, &held.value);
        self.changed_keys.insert(place.clone());
        match self.keys.insert(place, held) {
            Some(old) => self.bytes -= size(&old),
            None => self.bytes += key.len() as u64,
        }
    }

    /// About `count` keys from hash `from` on, and the hash at which the next page begins. Keys of equal hash are
    /// never separated.
    fn list(&self, from: u64, count: usize, at_ms: u64) -> Outcome {
        let mut keys: Vec<Listed> = Vec::new();
        let mut last = from;
        for ((hash, key), held) in self.keys.range((from, Bytes::new())..) {
            if keys.len() >= count.max(1) && *hash != last {
                return Outcome::Page { keys, next: Some(*hash) };
            }
            last = *hash;
            if let Some(object) = held.value.as_ref().filter(|object| !object.expired(at_ms)) {
                keys.push(Listed { key: key.clone(), kind: object.data.type_name() });
            }
        }
        Outcome::Page { keys, next: None }
    }

    /// Applies an update, once.
    fn update(
        &mut self,
        slot: Slot,
        op: OpId,
        (key, lane, action, at_ms): (&Bytes, u32, &Action, u64),
    ) -> Outcome {
        let lane = (op.client, lane);
        let last = self.results.get(&lane);
        if let Some(result) = last.filter(|result| result.request >= op.request) {
            let same = result.request == op.request;
            // A lane asks for the next when it has the answer to the last, or has given it up.
            return if same { outcome_of(result) } else { Outcome::Forgotten };
        }
        if at_ms.saturating_add(self.remember_ms) < self.newest_ms {
            // It may have been applied, and forgotten since.
            return Outcome::Forgotten;
        }
        // Never an earlier time than the lane's last: what it replaces must not be forgotten later than it is.
        let remembered_ms = last.map_or(at_ms, |last| last.at_ms.max(at_ms));
        let held = self.get(key);
        let (carstamp, base) = if action.class() == Class::Write {
            (Carstamp { ts: slot, id: 0, rmw_count: 0 }, Held::default())
        } else {
            let Some(carstamp) = held.carstamp.next_rmw() else { return Outcome::Forgotten };
            (carstamp, held)
        };
        let (value, answer) = apply(&base.value, base.carstamp.version(), action, at_ms);
        self.set(key, Held { value, carstamp });
        let result = Remembered {
            client: lane.0,
            lane: lane.1,
            request: op.request,
            at_ms: remembered_ms,
            answer,
            carstamp,
        };
        let outcome = outcome_of(&result);
        self.results.insert(lane, Arc::new(result));
        self.changed_lanes.insert(lane);
        self.note_time(at_ms);
        outcome
    }

    /// Forgets old results when the clients' time has gone on enough: at the same updates on every replica.
    fn note_time(&mut self, at_ms: u64) {
        let every = (self.remember_ms / 4).max(1);
        let before = self.newest_ms / every;
        self.newest_ms = self.newest_ms.max(at_ms);
        if self.newest_ms / every == before {
            return;
        }
        let oldest = self.newest_ms.saturating_sub(self.remember_ms);
        let old: Vec<_> =
            self.results.iter().filter(|(_, result)| result.at_ms < oldest).map(|(lane, _)| *lane).collect();
        for lane in old {
            self.results.remove(&lane);
            self.changed_lanes.insert(lane);
        }
    }

    fn fact_of_lane(&self, lane: Lane) -> Fact {
        Fact::Result(lane.0, lane.1, self.results.get(&lane).map(|result| (**result).clone()))
    }
}

fn outcome_of(result: &Remembered) -> Outcome {
    Outcome::Answer { answer: result.answer.clone(), carstamp: result.carstamp }
}

impl StateMachine for Store {
    type Command = Command;
    type Fact = Fact;
    type Answer = (OpId, Outcome);

    fn apply(&mut self, slot: Slot, command: &Command, leading: bool) -> Option<(OpId, Outcome)> {
        match &command.work {
            work if work.is_read() => leading.then(|| (command.op, self.read(work))),
            Work::Act { key, lane, action, at_ms } => {
                let outcome = self.update(slot, command.op, (key, *lane, action, *at_ms));
                leading.then_some((command.op, outcome))
            }
            Work::List { .. } => None,
        }
    }

    fn checkpoint(&mut self) -> Vec<Fact> {
        let keys = std::mem::take(&mut self.changed_keys).into_iter();
        let keys = keys.filter_map(|place| {
            let held = self.keys.get(&place)?.clone();
            Some(Fact::Key(place.1, held))
        });
        let mut facts: Vec<Fact> = keys.collect();
        let lanes = std::mem::take(&mut self.changed_lanes);
        facts.extend(lanes.into_iter().map(|lane| self.fact_of_lane(lane)));
        facts.push(Fact::Newest(self.newest_ms));
        facts
    }

    fn restore(&mut self, fact: Fact) {
        match fact {
            Fact::Key(key, held) => {
                self.set(&key, held);
                self.changed_keys.clear();
            }
            Fact::Result(client, lane, Some(result)) => {
                self.results.insert((client, lane), Arc::new(result));
            }
            Fact::Result(client, lane, None) => {
                self.results.remove(&(client, lane));
            }
            Fact::Newest(newest_ms) => self.newest_ms = newest_ms,
        }
    }

    /// Keys in the order of listing, then lanes, then the time.
    fn page(&self, after: &Bytes, bytes: usize) -> (Vec<Fact>, Option<Bytes>) {
        let cursor = if after.is_empty() { None } else { wire::decode::<Cursor>(after).ok() };
        let ends = |cursor: &Cursor| {
            let mut buffer = Vec::new();
            wire::encode(cursor, &mut buffer);
            Some(Bytes::from(buffer))
        };
        let (mut facts, mut size) = (Vec::new(), 0);
        let lanes_from = match cursor {
            Some(Cursor::Result(client, lane)) => (client, lane),
            key => {
                let skip = if let Some(Cursor::Key(key)) = key { Some((key_hash(&key), key)) } else { None };
                let from = skip.clone().unwrap_or_default();
                for (place, held) in
                    self.keys.range(from..).filter(|(place, _)| Some(*place) != skip.as_ref())
                {
                    let fact = Fact::Key(place.1.clone(), held.clone());
                    size += wire::length(&fact);
                    facts.push(fact);
                    if size >= bytes {
                        return (facts, ends(&Cursor::Key(place.1.clone())));
                    }
                }
                (ClientId(0), 0)
            }
        };
        if !self.plant.has(Planted::SnapshotWithoutSessions) {
            for ((client, lane), result) in self.results.range(lanes_from..) {
                if (*client, *lane) == lanes_from {
                    continue;
                }
                let fact = Fact::Result(*client, *lane, Some((**result).clone()));
                size += wire::length(&fact);
                facts.push(fact);
                if size >= bytes {
                    return (facts, ends(&Cursor::Result(*client, *lane)));
                }
            }
        }
        facts.push(Fact::Newest(self.newest_ms));
        (facts, None)
    }

    fn install(&mut self, facts: Vec<Fact>) {
        // Keys are never forgotten; lanes are, and some of those may not have been told to a checkpoint yet.
        self.changed_lanes.extend(self.results.keys().copied());
        (self.keys, self.results, self.bytes) = (OrdMap::new(), OrdMap::new(), 0);
        for fact in facts {
            self.restore(fact);
        }
        self.changed_keys = self.keys.keys().cloned().collect();
        self.changed_lanes.extend(self.results.keys().copied());
    }

    fn digest(&self) -> u64 {
        let mut buffer = Vec::new();
        let mut sum = self.newest_ms;
        let mut add = |fact: &Fact| {
            buffer.clear();
            wire::encode(fact, &mut buffer);
            sum = sum.wrapping_add(key_hash(&buffer));
        };
        for ((_, key), held) in &self.keys {
            add(&Fact::Key(key.clone(), held.clone()));
        }
        for lane in self.results.keys() {
            add(&self.fact_of_lane(*lane));
        }
        sum
    }
}

impl machine::Record for Fact {
    fn encode_key(&self, buffer: &mut Vec<u8>) {
        match self {
            Self::Key(key, _) => {
                buffer.push(b'k');
                buffer.extend_from_slice(key);
            }
            Self::Result(client, lane, _) => {
                buffer.push(b'r');
                buffer.extend_from_slice(&client.0.to_be_bytes());
                buffer.extend_from_slice(&lane.to_be_bytes());
            }
            Self::Newest(_) => buffer.push(b'n'),
        }
    }

    fn encode_value(&self, buffer: &mut Vec<u8>) -> bool {
        match self {
            Self::Key(_, held) => wire::encode(held, buffer),
            Self::Result(_, _, Some(result)) => wire::encode(result, buffer),
            Self::Result(_, _, None) => return false,
            Self::Newest(newest_ms) => wire::encode(newest_ms, buffer),
        }
        true
    }

    fn decode(key: &[u8], value: &[u8]) -> Result<Self, String> {
        let unreadable = |error: minicbor::decode::Error| format!("the record is unreadable: {error}");
        match key.split_first() {
            Some((b'k', key)) => {
                Ok(Self::Key(Bytes::copy_from_slice(key), wire::decode(value).map_err(unreadable)?))
            }
            Some((b'r', rest)) => {
                let (client, lane) = rest.split_first_chunk::<8>().ok_or("the record's key is cut short")?;
                let lane = lane.try_into().map_err(|_| "the record's key names no lane")?;
                let (client, lane) = (ClientId(u64::from_be_bytes(*client)), u32::from_be_bytes(lane));
                Ok(Self::Result(client, lane, Some(wire::decode(value).map_err(unreadable)?)))
            }
            Some((b'n', [])) => wire::decode(value).map(Self::Newest).map_err(unreadable),
            _ => Err("no such part of a state is known".into()),
        }
    }
}
