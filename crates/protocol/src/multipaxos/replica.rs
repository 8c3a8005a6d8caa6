//! The server side: takes requests, hands them to the log or to whoever leads, and answers clients.

use super::Record;
use super::log::{Ballot, Log, Out as LogOut};
use super::message::{Command, Message, Outcome, Work};
use super::store::Store;
use crate::Map;
use crate::clock::{Micros, Now};
use crate::machine::{self, Effects, OpId, Place, Status};
use crate::notices::Notices;
use crate::registry::Settings;
use crate::topology::{Address, Region, ReplicaId};
use std::collections::{BTreeSet, VecDeque};
use std::fmt::{self, Debug};

type Out = Effects<Message, Record>;

/// The most requests that wait for a leader.
const WAITING: usize = 10_000;

/// One region's copy of one partition.
#[derive(Clone)]
pub struct Replica {
    id: ReplicaId,
    settings: Settings,
    log: Log<Store>,
    /// Operations put into the log by this leader and not applied yet, so that a retry is known.
    under_way: Map<OpId, ()>,
    /// Operations that came while nobody led.
    waiting: VecDeque<Command>,
    /// The alarm that stands.
    asked: Option<Micros>,
    counters: Counters,
}

/// How often things happened, apart from the log.
#[derive(Clone, Copy, Default)]
struct Counters {
    forward: u64,
    retry: u64,
    lease_read: u64,
}

/// Where it stands: the alarm and the counts say nothing of that.
impl Debug for Replica {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let under_way: BTreeSet<_> = self.under_way.keys().collect();
        f.debug_struct("Replica")
            .field("id", &self.id)
            .field("log", &self.log)
            .field("under_way", &under_way)
            .field("waiting", &self.waiting)
            .finish_non_exhaustive()
    }
}

impl Replica {
    pub(super) fn new(settings: Settings, id: ReplicaId, place: &Place, records: Vec<Record>) -> Self {
        let how = (settings.log.clone(), settings.retry, settings.plant);
        Self {
            id,
            log: Log::new(how, id, place, Store::new(&settings), records),
            settings,
            under_way: Map::default(),
            waiting: VecDeque::new(),
            asked: None,
            counters: Counters::default(),
        }
    }

    /// The log with its state.
    pub fn log(&self) -> &Log<Store> {
        &self.log
    }

    fn peer(&self, region: Region) -> Address {
        Address::Replica(ReplicaId { region, ..self.id })
    }

    fn reply(&self, op: OpId, outcome: Outcome, rounds: u32, out: &mut Out) {
        let client = Address::Client(self.id.keyspace, op.client);
        out.send(client, Message::Reply { op, outcome, rounds });
    }

    /// Takes a request from a client, or from a replica that knows the leader of `known`.
    fn on_request(
        &mut self,
        now: Now,
        command: Command,
        known: Ballot,
        log: &mut LogOut<Store>,
        out: &mut Out,
    ) {
        if let Some(outcome) = self.log.state().result_of(&command) {
            // What is applied was chosen: any replica may say so, whoever leads.
            self.counters.retry += 1;
            return self.reply(command.op, outcome, 0, out);
        }
        if !self.log.leads() {
            return self.forward(command, known, out);
        }
        if self.under_way.contains_key(&command.op) {
            self.counters.retry += 1;
            return;
        }
        let ahead_ms = self.settings.remember / 2_000;
        if let Work::Act { at_ms, .. } = command.work
            && !command.work.is_read()
            && at_ms > now.wall_ms().saturating_add(ahead_ms)
        {
            return self.reply(command.op, Outcome::Refused, 0, out);
        }
        if command.work.is_read() && self.log.may_read_alone(now) {
            self.counters.lease_read += 1;
            let outcome = self.log.state().read(&command.work);
            return self.reply(command.op, outcome, 0, out);
        }
        self.under_way.insert(command.op, ());
        if let Err(command) = self.log.propose(now, command, log) {
            self.under_way.remove(&command.op);
        }
    }

    /// Hands a request to the leader, if one is known that the sender does not know already.
    fn forward(&mut self, command: Command, known: Ballot, out: &mut Out) {
        match self.log.leader() {
            Some(ballot) if ballot > known => {
                self.counters.forward += 1;
                out.send(self.peer(ballot.region), Message::Forward { command, ballot });
            }
            // The sender's leader is gone; the client asks again.
            Some(_) => {}
            None => {
                if self.waiting.len() == WAITING {
                    self.waiting.pop_front();
                }
                self.waiting.push_back(command);
            }
        }
    }

    /// Carries out what a step of the log wants, and what has waited for it.
    fn finish(&mut self, now: Now, mut log: LogOut<Store>, out: &mut Out) {
        if self.log.leader().is_some() {
            for command in std::mem::take(&mut self.waiting) {
                self.on_request(now, command, Ballot::default(), &mut log, out);
            }
        }
        let rounds = u32::from(self.log.regions() > 1);
        for record in log.records {
            out.store(|| record);
        }
        for (op, outcome) in log.answers {
            self.under_way.remove(&op);
            self.reply(op, outcome, rounds, out);
        }
        if !self.log.leads() {
            self.under_way.clear();
        }
        for (region, message) in log.sends {
            out.send(self.peer(region), Message::Log(message));
        }
        let at = self.log.next_alarm();
        if self.asked.is_none_or(|asked| at < asked) {
            self.asked = Some(at);
            out.wake_at(at);
        }
    }
}

impl machine::Replica for Replica {
    type Message = Message;
    type Record = Record;

    fn start(&mut self, now: Now, out: &mut Out) {
        let mut log = LogOut { keeps_records: out.keeps_records, ..LogOut::default() };
        self.log.start(now, &mut log);
        self.finish(now, log, out);
    }

    fn on_message(&mut self, now: Now, from: Address, message: Message, out: &mut Out) {
        let mut log = LogOut { keeps_records: out.keeps_records, ..LogOut::default() };
        match (message, from) {
            (Message::Request(command), Address::Client(_, client)) if command.op.client == client => {
                self.on_request(now, command, Ballot::default(), &mut log, out);
            }
            (Message::Forward { command, ballot }, Address::Replica(_)) => {
                self.on_request(now, command, ballot, &mut log, out);
            }
            (Message::Log(message), Address::Replica(replica)) => {
                self.log.on_message(now, replica.region, message, &mut log);
            }
            // Not for a replica.
            _ => return,
        }
        self.finish(now, log, out);
    }

    fn on_wake(&mut self, now: Now, out: &mut Out) {
        self.asked = None;
        let mut log = LogOut { keeps_records: out.keeps_records, ..LogOut::default() };
        self.log.on_time(now, &mut log);
        self.finish(now, log, out);
    }

    /// Who leads decides how fast an operation is, and that is a setting.
    fn on_regions(&mut self, _: &[Region]) {}

    fn notices(&mut self) -> Option<&mut Notices> {
        Some(self.log.state_mut().notices())
    }

    fn status(&self) -> Status {
        let c = self.counters;
        let mut counters = self.log.counters();
        counters.extend([("forward", c.forward), ("retry", c.retry), ("lease_read", c.lease_read)]);
        let state = self.log.state();
        Status {
            keys: state.len() as u64,
            bytes: state.bytes(),
            open_instances: self.log.open(),
            leader: self.log.leader().map(|ballot| ballot.region),
            lag: None,
            counters,
        }
    }

    fn fingerprint(&self) -> u64 {
        self.log.digest()
    }
}
