//! The session side: hands operations to a replica, tries another if there is no answer, and lists keys.

use super::instance::Operation;
use super::message::Message;
use crate::alarms::Alarms;
use crate::clock::{Micros, Now};
use crate::machine::{
    self, Completion, Cost, Effects, NO_TRANSACTIONS, OpId, Outcome, Place, Request, RequestId,
    ordered_by_real_time,
};
use crate::object::Class;
use crate::registers::carstamp::Carstamp;
use crate::registers::listing::{Listed, merge_pages};
use crate::registry::Settings;
use crate::results::Lanes;
use crate::topology::{Address, ClientId, Region, ReplicaId};
use bytes::Bytes;
use std::collections::BTreeMap;

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
    /// Of operations in flight.
    lanes: Lanes,
    alarms: Alarms<RequestId>,
}

#[derive(Clone, Debug)]
struct Op {
    partition: u16,
    work: Work,
    give_up: Micros,
    /// How often the alarm has found it unfinished.
    attempt: u32,
}

#[derive(Clone, Debug)]
enum Work {
    /// A replica coordinates it.
    Submitted { key: Bytes, operation: Box<Operation> },
    /// Lists keys; a majority's replies make a page.
    Listing { from: u64, count: u32, at_ms: u64, replies: BTreeMap<Region, (Vec<Listed>, Option<u64>)> },
}

impl Client {
    pub(super) fn new(settings: Settings, id: ClientId, place: Place) -> Self {
        Self {
            id,
            settings,
            place,
            nearest_first: BTreeMap::new(),
            open: BTreeMap::new(),
            lanes: Lanes::default(),
            alarms: Alarms::new(),
        }
    }

    /// Sends what a request needs: at first, or again.
    fn send(&self, request: RequestId, out: &mut Out) {
        let Some(Op { partition, work, attempt, .. }) = self.open.get(&request) else { return };
        let regions = self.nearest_first.get(partition).unwrap_or(&self.place.nearest_first);
        let replica = |region| Address::Replica(self.place.group.replica(*partition, region));
        match work {
            Work::Submitted { key, operation } => {
                // Once more to the same coordinator, which may only have been slow, then to the next.
                let region = regions[*attempt as usize / 2 % regions.len()];
                let (key, operation) = (key.clone(), operation.clone());
                out.send(replica(region), Message::Submit { key, operation });
            }
            Work::Listing { from, count, at_ms, replies } => {
                let wanted = if *attempt == 0 { self.place.group.majority() } else { usize::MAX };
                let op = OpId { client: self.id, request };
                for region in regions.iter().take(wanted).filter(|region| !replies.contains_key(*region)) {
                    let list = Message::List { op, from: *from, count: *count, at_ms: *at_ms };
                    out.send(replica(*region), list);
                }
            }
        }
    }

    fn set_alarm(&mut self, now: Now, request: RequestId, out: &mut Out) {
        if let Some(op) = self.open.get(&request) {
            let at = (now.monotonic + self.settings.retry).min(op.give_up.max(now.monotonic + 1));
            self.alarms.set(at, request, out);
        }
    }

    fn on_alarm(&mut self, now: Now, request: RequestId, out: &mut Out) {
        let Some(op) = self.open.get_mut(&request) else { return };
        if now.monotonic < op.give_up {
            op.attempt += 1;
            self.send(request, out);
            return self.set_alarm(now, request, out);
        }
        let changes = match &op.work {
            Work::Submitted { operation, .. } => operation.action.class() != Class::Read,
            Work::Listing { .. } => false,
        };
        let outcome = if changes { Outcome::LATE } else { Outcome::NoQuorum };
        self.complete(request, outcome, Cost::default(), out);
    }

    fn complete(&mut self, request: RequestId, outcome: Outcome, cost: Cost, out: &mut Out) {
        let Some(op) = self.open.remove(&request) else { return };
        if let Work::Submitted { operation, .. } = op.work {
            self.lanes.release(operation.lane);
        }
        out.output(Completion { request, outcome, cost });
    }

    fn on_list_reply(
        &mut self,
        (request, region): (RequestId, Region),
        (asked_from, keys, next): (u64, Vec<Listed>, Option<u64>),
        out: &mut Out,
    ) {
        let quorum = self.place.group.majority();
        let Some(Op { work: Work::Listing { from, replies, .. }, .. }) = self.open.get_mut(&request) else {
            return;
        };
        if asked_from != *from {
            return;
        }
        replies.insert(region, (keys, next));
        if replies.len() >= quorum {
            let (keys, next) = merge_pages(replies);
            let cost = Cost { rounds: 1, ..Cost::default() };
            self.complete(request, Outcome::Page(keys, next), cost, out);
        }
    }
}

impl machine::Client for Client {
    type Message = Message;

    fn begin(&mut self, now: Now, id: RequestId, request: Request, out: &mut Out) {
        let op = OpId { client: self.id, request: id };
        let (partition, work) = match request {
            Request::Act { key, action, at_ms, level: _ } => {
                let operation = Box::new(Operation { op, lane: self.lanes.take(), action, at_ms });
                (self.place.group.partition_of(&key), Work::Submitted { key, operation })
            }
            Request::Fence | Request::Enter | Request::Export | Request::Import(_) => {
                // What a session has seen is in the order that all share.
                return out.output(ordered_by_real_time(id, &request));
            }
            Request::Scan { partition, from, count, at_ms } => {
                (partition, Work::Listing { from, count, at_ms, replies: BTreeMap::new() })
            }
            Request::Together(_) | Request::Begin { .. } | Request::Commit | Request::Abort => {
                let (outcome, cost) = (Outcome::Aborted(NO_TRANSACTIONS), Cost::default());
                return out.output(Completion { request: id, outcome, cost });
            }
        };
        let give_up = now.monotonic + self.settings.operation_timeout;
        self.open.insert(id, Op { partition, work, give_up, attempt: 0 });
        self.send(id, out);
        self.set_alarm(now, id, out);
    }

    fn on_message(&mut self, _: Now, from: Address, message: Message, out: &mut Out) {
        let Address::Replica(ReplicaId { region, .. }) = from else { return };
        match message {
            Message::Done { op, answer, carstamp, rounds, waited } if op.client == self.id => {
                if !matches!(self.open.get(&op.request), Some(Op { work: Work::Submitted { .. }, .. })) {
                    return;
                }
                let outcome = answer.map_or(Outcome::FORGOTTEN, Outcome::Answer);
                let witness = carstamp.filter(|_| matches!(outcome, Outcome::Answer(_)));
                let witness = witness.map(Carstamp::witness);
                let reason = if waited > 0 { "operations that this one comes after" } else { "" };
                self.complete(op.request, outcome, Cost { rounds, waited, reason, witness }, out);
            }
            // If another coordinator was asked too, its word counts.
            Message::TooFarAhead { op }
                if op.client == self.id && self.open.get(&op.request).is_some_and(|op| op.attempt == 0) =>
            {
                let outcome = Outcome::Aborted("this node's clock is far ahead of its neighbour's");
                self.complete(op.request, outcome, Cost::default(), out);
            }
            Message::ListReply { op, from, keys, next } if op.client == self.id => {
                self.on_list_reply((op.request, region), (from, keys, next), out);
            }
            // Not for a client.
            _ => {}
        }
    }

    fn on_wake(&mut self, now: Now, out: &mut Out) {
        while let Some(request) = self.alarms.take_due(now.monotonic) {
            self.on_alarm(now, request, out);
        }
        let open = &self.open;
        self.alarms.rearm(|request| open.contains_key(request), out);
    }

    fn on_regions(&mut self, partition: u16, nearest_first: &[Region]) {
        self.nearest_first.insert(partition, nearest_first.to_vec());
    }

    fn end_session(&mut self) {
        self.open.clear();
        self.lanes.clear();
    }
}
