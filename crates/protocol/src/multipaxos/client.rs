//! The session side: names operations, asks for them until they are answered, and gives up in time.
//!
//! A request goes to the replica of the client's own region, which hears from the leader several times a second and
//! forwards. So clients need not know who leads, and a change of leader costs them nothing but the wait; the price
//! is a hop inside the region, and nothing where the replica is on the client's node.

use super::message::{Command, Listed, Message, Outcome as Told, Work};
use crate::alarms::Alarms;
use crate::clock::{Micros, Now};
use crate::machine::{
    self, Completion, Cost, Effects, NO_TRANSACTIONS, OpId, Outcome, Place, Request, RequestId,
    ordered_by_real_time,
};
use crate::registry::Settings;
use crate::topology::{Address, ClientId, Region, ReplicaId};
use std::collections::{BTreeMap, BTreeSet};

type Out = Effects<Message, Completion>;

/// A session's machine, or one that the sessions of a node share.
#[derive(Clone, Debug)]
pub struct Client {
    id: ClientId,
    settings: Settings,
    place: Place,
    /// For each partition of which the host said so, the regions in order of preference.
    nearest_first: BTreeMap<u16, Vec<Region>>,
    open: BTreeMap<RequestId, Op>,
    /// Lanes with an update in flight.
    busy_lanes: BTreeSet<u32>,
    alarms: Alarms<RequestId>,
}

#[derive(Clone, Debug)]
struct Op {
    partition: u16,
    work: Work,
    give_up: Micros,
    /// How often the alarm has found it unfinished.
    attempt: usize,
}

impl Op {
    fn lane(&self) -> Option<u32> {
        match self.work {
            Work::Act { lane, .. } if !self.work.is_read() => Some(lane),
            _ => None,
        }
    }
}

impl Client {
    pub(super) fn new(settings: Settings, id: ClientId, place: Place) -> Self {
        Self {
            id,
            settings,
            place,
            nearest_first: BTreeMap::new(),
            open: BTreeMap::new(),
            busy_lanes: BTreeSet::new(),
            alarms: Alarms::new(),
        }
    }

    fn send(&mut self, now: Now, request: RequestId, out: &mut Out) {
        let Some(op) = self.open.get(&request) else { return };
        let regions = self.nearest_first.get(&op.partition).unwrap_or(&self.place.nearest_first);
        let region = regions[op.attempt % regions.len()];
        let command = Command { op: OpId { client: self.id, request }, work: op.work.clone() };
        let replica = self.place.group.replica(op.partition, region);
        out.send(Address::Replica(replica), Message::Request(command));
        let at = (now.monotonic + self.settings.retry).min(op.give_up.max(now.monotonic + 1));
        self.alarms.set(at, request, out);
    }

    fn on_alarm(&mut self, now: Now, request: RequestId, out: &mut Out) {
        let Some(op) = self.open.get_mut(&request) else { return };
        if now.monotonic < op.give_up {
            op.attempt += 1;
            return self.send(now, request, out);
        }
        // An update that is in somebody's log may be chosen yet.
        let outcome = if op.lane().is_some() { Outcome::LATE } else { Outcome::NoQuorum };
        self.complete(request, outcome, Cost::default(), out);
    }

    fn on_reply(&mut self, from: Region, request: RequestId, told: Told, rounds: u32, out: &mut Out) {
        let Some(op) = self.open.get(&request) else { return };
        let rounds = rounds + u32::from(from != self.place.region());
        let cost = Cost { rounds, ..Cost::default() };
        let (outcome, witness) = match told {
            Told::Answer { answer, carstamp } => (Outcome::Answer(answer), Some(carstamp.witness())),
            Told::Page { keys, next } => {
                let named = |listed: Listed| (listed.key, listed.kind.as_str());
                (Outcome::Page(keys.into_iter().map(named).collect(), next), None)
            }
            Told::Forgotten => (Outcome::FORGOTTEN, None),
            // If it was asked more than once another leader may have taken it.
            Told::Refused if op.attempt > 0 => return,
            Told::Refused => (Outcome::Aborted("this node's clock is far ahead of the leader's"), None),
        };
        self.complete(request, outcome, Cost { witness, ..cost }, out);
    }

    fn complete(&mut self, request: RequestId, outcome: Outcome, cost: Cost, out: &mut Out) {
        let Some(op) = self.open.remove(&request) else { return };
        if let Some(lane) = op.lane() {
            self.busy_lanes.remove(&lane);
        }
        out.output(Completion { request, outcome, cost });
    }
}

impl machine::Client for Client {
    type Message = Message;

    fn begin(&mut self, now: Now, id: RequestId, request: Request, out: &mut Out) {
        let group = &self.place.group;
        let (partition, work) = match request {
            Request::Act { key, action, at_ms, level: _ } => {
                (group.partition_of(&key), Work::Act { key, lane: 0, action, at_ms })
            }
            Request::Scan { partition, from, count, at_ms } => (partition, Work::List { from, count, at_ms }),
            Request::Together(_) | Request::Begin { .. } | Request::Commit | Request::Abort => {
                let (outcome, cost) = (Outcome::Aborted(NO_TRANSACTIONS), Cost::default());
                return out.output(Completion { request: id, outcome, cost });
            }
            Request::Fence | Request::Enter | Request::Export | Request::Import(_) => {
                // All that has ended is in the one order already.
                return out.output(ordered_by_real_time(id, &request));
            }
        };
        let give_up = now.monotonic + self.settings.operation_timeout;
        let mut op = Op { partition, work, give_up, attempt: 0 };
        if op.lane().is_some()
            && let Work::Act { lane, .. } = &mut op.work
        {
            *lane = (0..u32::MAX).find(|lane| !self.busy_lanes.contains(lane)).unwrap_or(u32::MAX);
            self.busy_lanes.insert(*lane);
        }
        self.open.insert(id, op);
        self.send(now, id, out);
    }

    fn on_message(&mut self, _: Now, from: Address, message: Message, out: &mut Out) {
        let Address::Replica(ReplicaId { region, .. }) = from else { return };
        if let Message::Reply { op, outcome, rounds } = message
            && op.client == self.id
        {
            self.on_reply(region, op.request, outcome, rounds, out);
        }
    }

    fn on_wake(&mut self, now: Now, out: &mut Out) {
        while let Some(request) = self.alarms.take_due(now.monotonic) {
            self.on_alarm(now, request, out);
        }
        self.alarms.rearm(|request| self.open.contains_key(request), out);
    }

    fn on_regions(&mut self, partition: u16, nearest_first: &[Region]) {
        self.nearest_first.insert(partition, nearest_first.to_vec());
    }

    fn end_session(&mut self) {
        self.open.clear();
        self.busy_lanes.clear();
    }
}
