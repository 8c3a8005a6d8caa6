//! The server side: takes messages, hands what is for the leader to it, and carries out what the log wants.

use super::Record;
use super::lead::{Leader, Stage};
use super::local::Waiting;
use super::message::{Message, Partition, Reply, Request, TxnId};
use super::shard::{Action, Applied, Command, Shard};
use super::snapshot::List;
use crate::clock::{Micros, Now};
use crate::machine::{self, Effects, Place, Status};
use crate::multipaxos::log::{self, Ballot, Log, Out as LogOut};
use crate::notices::Notices;
use crate::registry::Settings;
use crate::topology::{Address, ClientId, Region, ReplicaId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

pub(super) type Out = Effects<Message, Record>;

/// The most requests that wait for a leader.
const WAITING: usize = 10_000;

/// One region's copy of one shard.
#[derive(Clone, Debug)]
pub struct Replica {
    pub(super) id: ReplicaId,
    pub(super) settings: Settings,
    pub(super) log: Log<Shard>,
    pub(super) lead: Leader,
    /// The last term of its own of which the log was told.
    pub(super) announced: Option<Ballot>,
    /// Reads of what this replica holds.
    pub(super) local: BTreeMap<TxnId, Waiting>,
    /// Where the leaders of other partitions were last heard.
    leaders: BTreeMap<Partition, Region>,
    nearest_first: Vec<Region>,
    /// Requests that came while nobody led.
    waiting: VecDeque<Request>,
    pub(super) timers: BTreeSet<(Micros, Due)>,
    /// The alarm that stands.
    asked: Option<Micros>,
    /// What is sent is sent again, and how often that was done.
    again: bool,
    ticks: usize,
    applied: log::Slot,
    pub(super) counters: Counters,
}

/// What there is to do at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Due {
    /// A commit timestamp has passed.
    CommitWait,
    /// Look after everything.
    Tick,
}

/// How often things happened, apart from the log.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counters {
    pub(super) forward: u64,
    pub(super) term: u64,
    pub(super) lease: u64,
    pub(super) commit: u64,
    pub(super) abort: u64,
    pub(super) wound: u64,
    pub(super) lock_wait: u64,
    pub(super) silent: u64,
    pub(super) in_doubt: u64,
    pub(super) fast_reply: u64,
    pub(super) skipped: u64,
    pub(super) awaited: u64,
    pub(super) slow_reply: u64,
    pub(super) blocked_read: u64,
    pub(super) local_read: u64,
    pub(super) no_clock: u64,
}

/// One input's time and effects.
pub(super) struct Step<'a> {
    pub(super) now: Now,
    pub(super) out: &'a mut Out,
    pub(super) log: LogOut<Shard>,
}

impl Replica {
    pub(super) fn new(settings: Settings, id: ReplicaId, place: Place, records: Vec<Record>) -> Self {
        let how = (settings.log.clone(), settings.retry, settings.plant);
        let log = Log::new(how, id, &place, Shard::default(), records);
        Self {
            id,
            applied: log.applied(),
            log,
            settings,
            lead: Leader::default(),
            announced: None,
            local: BTreeMap::new(),
            leaders: BTreeMap::new(),
            nearest_first: place.nearest_first,
            waiting: VecDeque::new(),
            timers: BTreeSet::new(),
            asked: None,
            again: false,
            ticks: 0,
            counters: Counters::default(),
        }
    }

    /// The log with its state.
    pub fn log(&self) -> &Log<Shard> {
        &self.log
    }

    fn peer(&self, region: Region) -> Address {
        Address::Replica(ReplicaId { region, ..self.id })
    }

    /// Answers the client of a transaction.
    pub(super) fn reply(&self, cx: &mut Step<'_>, id: TxnId, reply: Reply) {
        self.reply_to(cx, id.client(), reply);
    }

    fn reply_to(&self, cx: &mut Step<'_>, client: ClientId, reply: Reply) {
        cx.out.send(Address::Client(self.id.keyspace, client), Message::Reply(reply));
    }

    /// Puts a command into the log. Only a leader gives one.
    pub(super) fn propose(&mut self, cx: &mut Step<'_>, action: Action) {
        let Some(term) = self.lead.term else { return };
        // A leader that is deposed in this very step loses it with its term.
        let _ = self.log.propose(cx.now, Command { term, action }, &mut cx.log);
    }

    /// Asks the leader of a partition: where it was heard last, or by way of this region's replica; what is asked again goes
    /// by way of all regions in turn.
    pub(super) fn ask_leader(&mut self, cx: &mut Step<'_>, partition: Partition, request: Request) {
        let turn = self.nearest_first[self.ticks % self.nearest_first.len()];
        let heard = self.leaders.get(&partition).copied().unwrap_or(self.nearest_first[0]);
        let region = if self.again { turn } else { heard };
        let to = ReplicaId { partition, region, ..self.id };
        cx.out.send(Address::Replica(to), Message::ToLeader { request, known: Ballot::default() });
    }

    /// Hands a request to the leader of this partition.
    pub(super) fn send_to_leader(&self, cx: &mut Step<'_>, leader: Ballot, request: Request) {
        cx.out.send(self.peer(leader.region), Message::ToLeader { request, known: leader });
    }

    /// Takes a request for the leader, from a sender that knows the leader of `known`.
    fn on_request(&mut self, cx: &mut Step<'_>, request: Request, known: Ballot) {
        if self.lead.open {
            return self.lead_on(cx, request);
        }
        match self.log.leader() {
            Some(ballot) if !self.log.leads() => {
                if ballot > known {
                    self.counters.forward += 1;
                    self.send_to_leader(cx, ballot, request);
                }
            }
            _ => {
                if self.waiting.len() == WAITING {
                    self.waiting.pop_front();
                }
                self.waiting.push_back(request);
            }
        }
    }

    fn lead_on(&mut self, cx: &mut Step<'_>, request: Request) {
        match request {
            Request::Read { txn, keys } => self.on_read(cx, txn, &keys),
            Request::Prepare { part, coordinator } => self.on_prepare(cx, part, coordinator),
            Request::Commit { part, participants } => self.on_commit(cx, part, participants),
            Request::Renew(id) => self.on_renew(cx, id),
            Request::Release(txn) => self.on_release(cx, txn),
            Request::Vote { txn, from, vote } => self.on_vote(cx, txn, from, vote),
            Request::Ask { txn, from, wound } => self.on_ask(cx, txn, from, wound),
            Request::Decide { txn, at, coordinator } => self.on_decide(cx, (txn, at, coordinator)),
            Request::Decided { txn, from } => self.on_decided(txn, from),
            Request::Snapshot(snapshot) => self.on_snapshot(cx, snapshot, None),
            Request::Advance(to) => self.on_advance(cx, to),
            Request::List { id, from, count, at_ms } => {
                self.on_list(cx, id, List { from, count, at_ms });
            }
            Request::Measure { client, sent } => {
                let round_trips = self.log.round_trips();
                self.reply_to(cx, client, Reply::Distances { sent, round_trips });
            }
        }
    }

    fn on_applied(&mut self, cx: &mut Step<'_>, applied: Applied) {
        match applied {
            Applied::Prepared(id) => self.on_prepared(cx, id),
            Applied::Committed(id) => self.on_committed(cx, id),
            Applied::Decided(id) => match self.lead.active.get(&id).map(|active| active.stage.clone()) {
                Some(Stage::Finishing(coordinator, at)) => self.on_finished(cx, id, (coordinator, at)),
                Some(Stage::Aborting(reason, tell)) => self.on_aborted(cx, id, reason, tell),
                _ => {}
            },
            Applied::Lease => self.advance_readers(cx),
        }
    }

    /// Carries out what a step of the log wants, and what has waited for it.
    fn finish(&mut self, mut cx: Step<'_>) {
        loop {
            self.follow_term(&mut cx);
            if self.lead.open || (self.log.leader().is_some() && !self.log.leads()) {
                for request in std::mem::take(&mut self.waiting) {
                    self.on_request(&mut cx, request, Ballot::default());
                }
            }
            let applied = std::mem::take(&mut cx.log.answers);
            if applied.is_empty() {
                break;
            }
            for applied in applied {
                self.on_applied(&mut cx, applied);
            }
        }
        if self.log.applied() != self.applied {
            self.applied = self.log.applied();
            self.advance_locals(&mut cx);
        }
        cx.out.outputs.append(&mut cx.log.records);
        for (region, message) in std::mem::take(&mut cx.log.sends) {
            cx.out.send(self.peer(region), Message::Log(message));
        }
        self.set_alarm(&mut cx);
    }

    fn set_alarm(&mut self, cx: &mut Step<'_>) {
        let busy = self.lead.term.is_some() || !self.local.is_empty();
        if busy && !self.timers.iter().any(|(_, due)| *due == Due::Tick) {
            self.timers.insert((cx.now.monotonic + self.settings.retry / 2, Due::Tick));
        }
        let own = self.timers.first().map_or(Micros::MAX, |(at, _)| *at);
        let at = own.min(self.log.next_alarm());
        if self.asked.is_none_or(|asked| at < asked) {
            self.asked = Some(at);
            cx.out.wake_at(at);
        }
    }

    /// Remembers where the leader of another partition is.
    fn hear(&mut self, from: Address, request: &Request) {
        let (Request::Vote { from: partition, .. }
        | Request::Ask { from: partition, .. }
        | Request::Decide { coordinator: partition, .. }
        | Request::Decided { from: partition, .. }) = request
        else {
            return;
        };
        if let Address::Replica(replica) = from
            && replica.partition == *partition
        {
            self.leaders.insert(*partition, replica.region);
        }
    }
}

/// Whether the sender may ask this: clients for themselves, replicas what they hand on and ask themselves.
fn may_ask(from: Address, request: &Request) -> bool {
    let Address::Client(_, client) = from else { return true };
    match request {
        Request::Read { txn, .. } | Request::Release(txn) => txn.id.client() == client,
        Request::Prepare { part, .. } | Request::Commit { part, .. } => part.txn.id.client() == client,
        Request::Renew(id) | Request::List { id, .. } => id.client() == client,
        Request::Snapshot(snapshot) => snapshot.id.client() == client,
        Request::Measure { client: asker, .. } => *asker == client,
        Request::Vote { .. }
        | Request::Ask { .. }
        | Request::Decide { .. }
        | Request::Decided { .. }
        | Request::Advance(_) => false,
    }
}

impl machine::Replica for Replica {
    type Message = Message;
    type Record = Record;

    fn start(&mut self, now: Now, out: &mut Out) {
        let mut cx = Step { now, out, log: LogOut::default() };
        self.log.start(now, &mut cx.log);
        self.finish(cx);
    }

    fn on_message(&mut self, now: Now, from: Address, message: Message, out: &mut Out) {
        let mut cx = Step { now, out, log: LogOut::default() };
        if now.uncertainty.is_none() {
            self.counters.no_clock += 1;
        }
        match (message, from) {
            (Message::ToLeader { request, known }, _) if may_ask(from, &request) => {
                self.hear(from, &request);
                self.on_request(&mut cx, request, known);
            }
            (Message::Local(local), Address::Client(_, client)) if local.id.client() == client => {
                self.on_local(&mut cx, local);
            }
            (Message::Log(message), Address::Replica(replica)) => {
                self.log.on_message(now, replica.region, message, &mut cx.log);
            }
            // Not for a replica.
            _ => return,
        }
        self.finish(cx);
    }

    fn on_wake(&mut self, now: Now, out: &mut Out) {
        self.asked = None;
        let mut cx = Step { now, out, log: LogOut::default() };
        self.log.on_time(now, &mut cx.log);
        self.follow_term(&mut cx);
        while let Some((at, due)) = self.timers.first().copied()
            && at <= now.monotonic
        {
            self.timers.remove(&(at, due));
            match due {
                Due::CommitWait => self.end_commit_waits(&mut cx),
                Due::Tick => {
                    self.ticks += 1;
                    self.again = true;
                    self.tick(&mut cx);
                    self.tick_locals(&mut cx);
                    self.again = false;
                }
            }
        }
        self.finish(cx);
    }

    fn on_regions(&mut self, nearest_first: &[Region]) {
        self.nearest_first = nearest_first.to_vec();
    }

    fn notices(&mut self) -> Option<&mut Notices> {
        Some(self.log.state_mut().notices())
    }

    fn status(&self) -> Status {
        let c = self.counters;
        let mut counters = self.log.counters();
        counters.extend([
            ("forward", c.forward),
            ("term", c.term),
            ("lease", c.lease),
            ("commit", c.commit),
            ("abort", c.abort),
            ("wound", c.wound),
            ("lock_wait", c.lock_wait),
            ("silent", c.silent),
            ("in_doubt", c.in_doubt),
            ("fast_reply", c.fast_reply),
            ("skipped", c.skipped),
            ("awaited", c.awaited),
            ("slow_reply", c.slow_reply),
            ("blocked_read", c.blocked_read),
            ("local_read", c.local_read),
            ("no_clock", c.no_clock),
        ]);
        let versions = self.log.state().versions();
        Status {
            keys: versions.len() as u64,
            bytes: versions.bytes(),
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
