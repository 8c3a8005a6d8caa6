//! The session side: names transactions, sends what they need to shards, and keeps what the session has seen (`t_min`).
//!
//! `read_write` runs transactions that change something, `read_only` those that do not. A machine has one interactive
//! transaction at a time; of other requests any number.

use super::Kind;
use super::distances::Distances;
use super::message::{Message, Partition, Priority, Reason, Reply, Request as Asked, Timestamp, Txn, TxnId};
use super::read_only::ReadOnly;
use super::read_write::ReadWrite;
use super::work::Work;
use crate::alarms::Alarms;
use crate::clock::{Micros, Now};
use crate::machine::{
    self, Completion, Context, Cost, Effects, FOREIGN_CONTEXT, Outcome, Place, Request, RequestId,
};
use crate::multipaxos::log::Ballot;
use crate::registry::Settings;
use crate::topology::{Address, ClientId, Region};
use std::collections::BTreeMap;

pub(super) type Out = Effects<Message, Completion>;

/// Why a request finds no transaction.
const NONE_OPEN: &str = "no transaction is open";
/// Why a transaction cannot be begun.
const ONE_OPEN: &str = "a transaction is open already";
/// Why a read-only transaction refuses a request.
const READS_ONLY: &str = "a read-only transaction changes nothing";
/// Why a read cannot be served here.
pub(super) const NO_CLOCK: &str = "this node has no trusted bound on its clock";
/// Why a read cannot be served here.
pub(super) const CLOCK_BEHIND: &str =
    "this node's clock is behind what the session has seen: it is outside its bound";
/// Why there is no fence.
const NO_FENCE: &str = "po-serializable keyspaces have no fence: what others read may be of any time";

/// A session's machine, or one that the sessions of a node share.
#[derive(Clone, Debug)]
pub struct Client {
    pub(super) id: ClientId,
    pub(super) kind: Kind,
    pub(super) settings: Settings,
    pub(super) place: Place,
    /// For each partition of which the host said so, the regions in order of preference.
    nearest_first: BTreeMap<Partition, Vec<Region>>,
    /// Where leaders were last heard.
    leaders: BTreeMap<Partition, Region>,
    /// What the session has seen is not younger than this (`t_min`).
    pub(super) minimum: Timestamp,
    /// The session comes from another service, and has not read since.
    pub(super) entering: bool,
    /// The time at which it last entered. Reads that begin before that has passed are told once theirs has.
    pub(super) entered: Timestamp,
    /// The last transaction's number. Never goes back.
    numbers: u64,
    pub(super) writers: BTreeMap<u64, ReadWrite>,
    pub(super) readers: BTreeMap<u64, ReadOnly>,
    lists: BTreeMap<u64, Listing>,
    /// Fences, with the time that must have passed, and when they are given up.
    fences: BTreeMap<RequestId, (Timestamp, Micros)>,
    /// Reads that wait until this node has a bound on its clock, and when they are given up.
    pub(super) clockless: BTreeMap<RequestId, (Work, Micros)>,
    pub(super) open: Option<Open>,
    pub(super) alarms: Alarms<Due>,
    pub(super) distances: Distances,
}

/// The session's open transaction.
#[derive(Clone, Copy, Debug)]
pub(super) enum Open {
    /// One that may change something, by its number.
    ReadWrite(u64),
    /// One that reads: the time at which it does, chosen when it first does, and the newest that it has seen.
    ReadOnly(Option<Timestamp>, Timestamp),
}

/// What a deadline is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Due {
    Writer(u64),
    Reader(u64),
    List(u64),
    /// A read has all that it needs but for the time to have passed.
    Passing(u64),
    Fence(RequestId),
    Clock(RequestId),
}

/// A listing that waits for its answer.
#[derive(Clone, Debug)]
struct Listing {
    request: RequestId,
    partition: Partition,
    asked: Asked,
    give_up: Micros,
    attempt: usize,
}

pub(super) fn complete(request: RequestId, outcome: Outcome, cost: Cost, out: &mut Out) {
    out.output(Completion { request, outcome, cost });
}

/// Ends a request that is not done.
pub(super) fn refuse(request: RequestId, why: &'static str, out: &mut Out) {
    complete(request, Outcome::Aborted(why), Cost::default(), out);
}

impl Client {
    pub(super) fn new((kind, settings): (Kind, Settings), id: ClientId, place: Place) -> Self {
        Self {
            id,
            kind,
            settings,
            place,
            nearest_first: BTreeMap::new(),
            leaders: BTreeMap::new(),
            minimum: 0,
            entering: false,
            entered: 0,
            numbers: 0,
            writers: BTreeMap::new(),
            readers: BTreeMap::new(),
            lists: BTreeMap::new(),
            fences: BTreeMap::new(),
            clockless: BTreeMap::new(),
            open: None,
            alarms: Alarms::new(),
            distances: Distances::default(),
        }
    }

    /// The name of the next attempt at a transaction.
    pub(super) fn next_id(&mut self) -> TxnId {
        self.numbers += 1;
        TxnId::new(self.id, self.numbers)
    }

    /// The next attempt at a transaction, with the first one's priority.
    pub(super) fn next_txn(&mut self, now: Now, priority: Option<Priority>, lifetime: Micros) -> Txn {
        let id = self.next_id();
        let priority = priority.unwrap_or(Priority { start: now.wall, first: id });
        Txn { id, priority, until: now.wall + lifetime }
    }

    /// The region to ask about a partition at a client's so many-th attempt, if not its leader's.
    pub(super) fn region(&self, partition: Partition, attempt: usize) -> Region {
        let regions = self.nearest_first.get(&partition).unwrap_or(&self.place.nearest_first);
        regions[attempt % regions.len()]
    }

    /// Where the leader of a partition was last heard.
    pub(super) fn leader(&self, partition: Partition) -> Option<Region> {
        self.leaders.get(&partition).copied()
    }

    /// Asks whoever leads a partition: first where the leader was last heard, then by way of the nearest replica, which
    /// hears soon who leads, and of another one in turn.
    pub(super) fn ask(&self, partition: Partition, attempt: usize, request: Asked, out: &mut Out) {
        let heard = self.leader(partition).filter(|_| attempt == 0);
        let region = heard.unwrap_or_else(|| self.region(partition, attempt));
        let nearest = self.region(partition, 0);
        if attempt > 0 && nearest != region {
            self.ask_in(partition, nearest, request.clone(), out);
        }
        self.ask_in(partition, region, request, out);
    }

    fn ask_in(&self, partition: Partition, region: Region, request: Asked, out: &mut Out) {
        let replica = self.place.group.replica(partition, region);
        out.send(Address::Replica(replica), Message::ToLeader { request, known: Ballot::default() });
    }

    /// Asks leaders how far they are from the others, now and then.
    pub(super) fn measure(&mut self, now: Now, partition: Partition, out: &mut Out) {
        if self.distances.should_ask(now.monotonic, partition) {
            let request = Asked::Measure { client: self.id, sent: now.monotonic };
            self.ask(partition, 0, request, out);
        }
    }

    /// Whether a request that is given up at that time has still half of its time before it. So long it waits for a bound on
    /// this node's clock, or for a leader with one.
    pub(super) fn is_patient(&self, now: Now, give_up: Micros) -> bool {
        now.monotonic + self.settings.operation_timeout / 2 < give_up
    }

    /// What the session has seen may not be forgotten by what it sees next.
    pub(super) fn raise_minimum(&mut self, at: Timestamp) {
        self.minimum = self.minimum.max(at);
    }

    fn begin_transaction(&mut self, now: Now, request: RequestId, read_only: bool, out: &mut Out) {
        if self.open.is_some() {
            return refuse(request, ONE_OPEN, out);
        }
        if read_only {
            self.open = Some(Open::ReadOnly(None, self.minimum));
        } else {
            let number = self.open_read_write(now, out);
            self.open = Some(Open::ReadWrite(number));
        }
        complete(request, Outcome::Done, Cost::default(), out);
    }

    fn on_work(&mut self, now: Now, request: RequestId, work: Work, out: &mut Out) {
        match self.open {
            Some(Open::ReadWrite(number)) => self.continue_read_write(now, number, (request, work), out),
            Some(Open::ReadOnly(..)) if !work.is_read() => self.refuse_read(request, READS_ONLY, out),
            Some(Open::ReadOnly(..)) => self.begin_read(now, request, work, out),
            None if work.is_read() => self.begin_read(now, request, work, out),
            None => self.begin_read_write(now, request, work, out),
        }
    }

    fn end_transaction(&mut self, now: Now, request: RequestId, commit: bool, out: &mut Out) {
        match self.open.take() {
            None => refuse(request, NONE_OPEN, out),
            Some(Open::ReadWrite(number)) => self.end_read_write(now, number, (request, commit), out),
            Some(Open::ReadOnly(_, snap)) => {
                let witness = commit.then_some(crate::history::Witness::Snap(snap.into()));
                complete(request, Outcome::Done, Cost { witness, ..Cost::default() }, out);
            }
        }
    }

    fn fence(&mut self, now: Now, request: RequestId, out: &mut Out) {
        match self.kind {
            // What has ended is before all that begins.
            Kind::Strict => complete(request, Outcome::Fenced, Cost::default(), out),
            Kind::Po => refuse(request, NO_FENCE, out),
            Kind::Rss => {
                let passed = self.minimum.saturating_add(self.settings.spanner.fence);
                self.fences.insert(request, (passed, now.monotonic + self.settings.operation_timeout));
                self.advance_fence(now, request, out);
            }
        }
    }

    /// Waits until no read that begins can skip what the session has seen: its earliest end is not above `t_min` + L
    /// (RSS/RSC §5.1).
    fn advance_fence(&mut self, now: Now, request: RequestId, out: &mut Out) {
        let Some((passed, give_up)) = self.fences.get(&request).copied() else { return };
        let Some(time) = now.truetime() else {
            if self.is_patient(now, give_up) {
                return self.alarms.set(now.monotonic + self.settings.retry / 4, Due::Fence(request), out);
            }
            self.fences.remove(&request);
            return refuse(request, NO_CLOCK, out);
        };
        if passed >= time.earliest {
            let at = now.monotonic + (passed + 1 - time.earliest);
            return self.alarms.set(at, Due::Fence(request), out);
        }
        self.fences.remove(&request);
        complete(request, Outcome::Fenced, Cost::default(), out);
    }

    fn list(&mut self, now: Now, request: RequestId, asked: (Partition, u64, u32, u64), out: &mut Out) {
        let id = self.next_id();
        let (partition, from, count, at_ms) = asked;
        let asked = Asked::List { id, from, count, at_ms };
        let give_up = now.monotonic + self.settings.operation_timeout;
        self.lists.insert(id.number, Listing { request, partition, asked, give_up, attempt: 0 });
        self.send_list(now, id.number, out);
    }

    fn send_list(&mut self, now: Now, number: u64, out: &mut Out) {
        let Some(listing) = self.lists.get(&number) else { return };
        self.ask(listing.partition, listing.attempt, listing.asked.clone(), out);
        self.alarms.set(now.monotonic + self.settings.retry, Due::List(number), out);
    }

    fn on_list_alarm(&mut self, now: Now, number: u64, out: &mut Out) {
        let Some(listing) = self.lists.get_mut(&number) else { return };
        listing.attempt += 1;
        if now.monotonic < listing.give_up {
            return self.send_list(now, number, out);
        }
        let request = listing.request;
        self.lists.remove(&number);
        complete(request, Outcome::NoQuorum, Cost::default(), out);
    }

    fn on_reply(&mut self, now: Now, (partition, region): (Partition, Region), reply: Reply, out: &mut Out) {
        if matches!(
            reply,
            Reply::Read { .. } | Reply::Ended { .. } | Reply::Page { .. } | Reply::Distances { .. }
        ) {
            self.leaders.insert(partition, region);
        }
        match reply {
            Reply::Read { txn, term, held } => self.on_read(now, (txn.number, partition), term, held, out),
            Reply::Ended { txn, ending, decided } => self.on_ended(now, txn.number, (ending, decided), out),
            Reply::Fast { id, attempt, held, skipped, waited } => {
                let told = (attempt, held, skipped, waited);
                self.on_fast(now, (id.number, partition, region), told, out);
            }
            Reply::Slow { id, txn, at } => self.on_slow(now, (id.number, partition), (txn, at), out),
            Reply::Safe { id, attempt, safe, horizon } => {
                self.on_safe(now, (id.number, partition), (attempt, safe, horizon), out);
            }
            Reply::Refused { id, reason } => {
                if let Some(listing) = self.lists.get(&id.number) {
                    if reason == Reason::NoClock && self.is_patient(now, listing.give_up) {
                        return;
                    }
                    refuse(listing.request, reason.text(), out);
                    self.lists.remove(&id.number);
                    return;
                }
                self.on_refused(now, id.number, reason, out);
            }
            Reply::Page { id, keys, next } => {
                let Some(listing) = self.lists.remove(&id.number) else { return };
                let keys = keys.into_iter().map(|listed| (listed.key, listed.kind.as_str())).collect();
                complete(listing.request, Outcome::Page(keys, next), Cost::default(), out);
            }
            Reply::Distances { sent, round_trips } => {
                let took = now.monotonic.saturating_sub(sent);
                self.distances.note(region, took, &round_trips);
            }
        }
    }

    pub(super) fn note_leader(&mut self, partition: Partition, region: Region) {
        self.leaders.insert(partition, region);
    }

    fn is_open(&self, due: Due) -> bool {
        match due {
            Due::Writer(number) => self.writers.contains_key(&number),
            Due::Reader(number) | Due::Passing(number) => self.readers.contains_key(&number),
            Due::List(number) => self.lists.contains_key(&number),
            Due::Fence(request) => self.fences.contains_key(&request),
            Due::Clock(request) => self.clockless.contains_key(&request),
        }
    }
}

impl machine::Client for Client {
    type Message = Message;

    fn begin(&mut self, now: Now, id: RequestId, request: Request, out: &mut Out) {
        match request {
            Request::Act { key, action, at_ms, level: _ } => {
                self.on_work(now, id, Work::Act { key, action, at_ms }, out);
            }
            Request::Together(together) => self.on_work(now, id, Work::Together(together), out),
            Request::Begin { read_only } => self.begin_transaction(now, id, read_only, out),
            Request::Commit => self.end_transaction(now, id, true, out),
            Request::Abort => self.end_transaction(now, id, false, out),
            Request::Fence => self.fence(now, id, out),
            Request::Enter => {
                self.entering |= self.kind == Kind::Rss;
                complete(id, Outcome::Done, Cost::default(), out);
            }
            Request::Export => {
                // Strict reads see all that has ended, whoever asks.
                let told = if self.kind == Kind::Strict { Vec::new() } else { vec![self.minimum] };
                complete(id, Outcome::Exported(Context(told)), Cost::default(), out);
            }
            Request::Import(Context(told)) => match told[..] {
                [] => complete(id, Outcome::Done, Cost::default(), out),
                [minimum] => {
                    self.raise_minimum(minimum);
                    complete(id, Outcome::Done, Cost::default(), out);
                }
                _ => refuse(id, FOREIGN_CONTEXT, out),
            },
            Request::Scan { partition, from, count, at_ms } => {
                self.list(now, id, (partition, from, count, at_ms), out);
            }
        }
    }

    fn on_message(&mut self, now: Now, from: Address, message: Message, out: &mut Out) {
        if let (Address::Replica(replica), Message::Reply(reply)) = (from, message) {
            self.on_reply(now, (replica.partition, replica.region), reply, out);
        }
    }

    fn on_wake(&mut self, now: Now, out: &mut Out) {
        while let Some(due) = self.alarms.take_due(now.monotonic) {
            match due {
                Due::Writer(number) => self.on_writer_alarm(now, number, out),
                Due::Reader(number) => self.on_reader_alarm(now, number, out),
                Due::Passing(number) => self.advance_read(now, number, out),
                Due::List(number) => self.on_list_alarm(now, number, out),
                Due::Fence(request) => self.advance_fence(now, request, out),
                Due::Clock(request) => self.read_with_clock(now, request, out),
            }
        }
        let mut alarms = std::mem::replace(&mut self.alarms, Alarms::new());
        alarms.rearm(|due| self.is_open(*due), out);
        self.alarms = alarms;
    }

    fn on_regions(&mut self, partition: u16, nearest_first: &[Region]) {
        self.nearest_first.insert(partition, nearest_first.to_vec());
    }

    fn end_session(&mut self) {
        (self.minimum, self.entered, self.entering) = (0, 0, false);
        self.open = None;
        self.writers.clear();
        self.readers.clear();
        self.lists.clear();
        self.fences.clear();
        self.clockless.clear();
    }
}
