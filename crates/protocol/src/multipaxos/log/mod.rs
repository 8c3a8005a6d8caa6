//! A replicated log: Multi-Paxos, with the state machine that it drives as a type parameter.
//!
//! # Guarantee
//! All replicas apply the same entries in the same order, each entry once. An entry is *chosen* when a majority has
//! accepted it at one ballot; only chosen entries are applied. Entries are chosen while a majority of replicas
//! answers each other, after an election if the leader is gone.
//!
//! # Assumptions
//! 2f+1 replicas, f of which may stop or be away. A replica that comes back has all it had stored. Messages may be
//! lost, doubled, delayed and reordered. No clock is trusted, except by leases, which are off unless asked for and
//! need clocks that run at nearly the same rate.
//!
//! # Parts
//! `acceptor` promises and accepts, learns what is chosen, applies it, makes the state durable and forgets the log
//! behind it. `election` finds a leader, `lead` is one, `catch_up` brings a replica that was away back.
//!
//! # Sources
//! Lamport, *The Part-Time Parliament* and *Paxos Made Simple* for ballots and accepting; the leader's part follows
//! the evaluation of Gryff (NSDI 2020, §6). What the papers leave open and is decided here: a candidate first asks
//! whether it would be supported, so that a replica that comes back does not depose a healthy leader; state is made
//! durable fact by fact, so that no checkpoint costs more than what has changed.

mod acceptor;
mod catch_up;
mod election;
mod lead;
pub mod message;
pub mod record;
#[cfg(test)]
mod tests;

pub use message::Message;
pub use record::Record;

use crate::clock::{Micros, Now};
use crate::machine::{self, Place};
use crate::planted::Plant;
use crate::topology::{Region, ReplicaId, key_hash};
use crate::wire::{self, Wire};
use bytes::Bytes;
use catch_up::{CatchingUp, Outgoing};
use election::Preparing;
use lead::Leading;
use minicbor::{Decode, Encode};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeMap;
use std::fmt::{self, Debug};

/// A place in the log, from 1.
pub type Slot = u64;

/// A term of leadership. The default is below every real one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct Ballot {
    /// Grows with every attempt to lead.
    #[n(0)]
    pub round: u64,
    /// Whose attempt it is.
    #[n(1)]
    pub region: Region,
}

/// What stands in a slot.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub enum Entry<C> {
    /// Nothing: a hole that a new leader has filled.
    #[n(0)]
    Nop,
    /// The begin of a leader's term: once it is chosen the leader has applied all that was chosen before.
    #[n(1)]
    Barrier,
    /// A command for the state machine.
    #[n(2)]
    Command(#[n(0)] C),
}

/// An entry with the ballot at which it was accepted.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct Accepted<C> {
    /// The ballot.
    #[n(0)]
    pub ballot: Ballot,
    /// The entry.
    #[n(1)]
    pub entry: Entry<C>,
}

/// What the log drives. A clone must be cheap (shared structure): one is kept while a snapshot is sent.
///
/// The durable form of a state is a set of *facts*. They are what a checkpoint stores and what a snapshot sends.
pub trait StateMachine: Clone {
    /// What entries hold.
    type Command: Wire;
    /// A part of the state.
    type Fact: Wire + machine::Record;
    /// What applying a command tells the leader.
    type Answer: Debug;
    /// Whether a leader needs a trusted bound on its clock to be of use.
    const NEEDS_CLOCK: bool = false;

    /// Applies a chosen command: a function of the state, the slot and the command. `leading` says whether an answer
    /// is of use to anybody; it must not change what the state becomes.
    fn apply(&mut self, slot: Slot, command: &Self::Command, leading: bool) -> Option<Self::Answer>;
    /// The facts that have changed since this was last asked, those that are no more among them.
    fn checkpoint(&mut self) -> Vec<Self::Fact>;
    /// Takes back a stored fact, at the start.
    fn restore(&mut self, fact: Self::Fact);
    /// Some facts of the state, about `bytes` of them, from where the page before has ended (empty: from the
    /// start), and where this one ends unless it is the last.
    fn page(&self, after: &Bytes, bytes: usize) -> (Vec<Self::Fact>, Option<Bytes>);
    /// Becomes the state that all pages together are. The next checkpoint tells how it differs from before.
    fn install(&mut self, facts: Vec<Self::Fact>);
    /// A digest of the state.
    fn digest(&self) -> u64;
}

/// What an operator can set about a replicated log, with defaults for a wide area.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// After how long without a word from the leader replicas look for another one: at least this long, at most twice.
    pub election: Micros,
    /// The region that leads whenever it can; `None` spreads the partitions' leaders over the regions.
    pub leader: Option<Region>,
    /// How long replicas lend the leader the right to answer reads alone; 0 is never. Less than `election`.
    pub lease: Micros,
    /// After how many applied entries the state is made durable.
    pub checkpoint: u64,
    /// Bytes of log kept for replicas that are away; one that lacks more is sent a snapshot.
    pub keep_bytes: u64,
    /// How many messages with entries may be under way before further commands wait and travel together.
    pub pipeline: usize,
    /// The most entries in one message.
    pub batch: usize,
}

impl Default for LogSettings {
    fn default() -> Self {
        Self {
            election: 1_000_000,
            leader: None,
            lease: 0,
            checkpoint: 1_000,
            keep_bytes: 64 << 20,
            pipeline: 64,
            batch: 256,
        }
    }
}

/// About how many bytes go into one message, unless a single entry or fact is larger.
const MESSAGE_BYTES: usize = 1 << 20;

/// What an entry counts beside its command.
const ENTRY_BYTES: usize = 32;

/// A message of the log that drives `S`.
pub type MessageOf<S> = Message<<S as StateMachine>::Command, <S as StateMachine>::Fact>;

/// A record of the log that drives `S`.
pub type RecordOf<S> = Record<<S as StateMachine>::Command, <S as StateMachine>::Fact>;

/// What a step wants done. Records first: nothing may leave before they are durable.
#[derive(Debug)]
pub struct Out<S: StateMachine> {
    /// Messages to the other regions' replicas.
    pub sends: Vec<(Region, MessageOf<S>)>,
    /// Records to store.
    pub records: Vec<RecordOf<S>>,
    /// What applying told, if this replica leads.
    pub answers: Vec<S::Answer>,
    /// As in [`machine::Effects`].
    pub keeps_records: bool,
}

impl<S: StateMachine> Out<S> {
    /// Stores a record, if records are kept.
    fn store(&mut self, record: impl FnOnce() -> RecordOf<S>) {
        if self.keeps_records {
            self.records.push(record());
        }
    }
}

impl<S: StateMachine> Default for Out<S> {
    fn default() -> Self {
        Self { sends: Vec::new(), records: Vec::new(), answers: Vec::new(), keeps_records: true }
    }
}

#[derive(Clone, Debug)]
enum Role<C> {
    /// Follows a leader, or waits for one.
    Following,
    /// Would lead, and asks whether a majority would have it.
    Canvassing(election::Canvassing),
    /// Asks for promises.
    Preparing(Preparing<C>),
    /// Leads.
    Leading(Leading<C>),
}

/// One replica of a log, and its state.
#[derive(Clone)]
pub struct Log<S: StateMachine> {
    own: Region,
    regions: u8,
    preferred: Region,
    settings: LogSettings,
    /// After how long without an answer a message is sent again.
    retry: Micros,
    plant: Plant,
    state: S,

    /// The highest ballot promised; entries of lower ones are refused.
    promised: Ballot,
    /// The highest ballot heard of.
    seen: Ballot,
    /// What is accepted, and not yet forgotten.
    entries: BTreeMap<Slot, Accepted<S::Command>>,
    /// All slots up to here are chosen and applied.
    commit: Slot,
    /// All slots up to here are in the durable state.
    checkpoint: Slot,
    /// All slots up to here are forgotten.
    floor: Slot,
    /// All slots up to here are in the durable state of every replica, as far as the leader has said.
    everywhere: Slot,
    /// Approximate bytes of `entries`.
    bytes: u64,

    role: Role<S::Command>,
    /// The leader followed.
    leader: Option<Ballot>,
    /// When it was last heard.
    heard: Micros,
    /// When to look for another one, or to begin the search anew.
    election_at: Micros,
    /// When what was asked and not answered is sent again.
    resend_at: Micros,
    /// The leader that has a lease from this replica (the default: one unknown, from before a restart), and until when.
    lent: Option<(Ballot, Micros)>,
    catching_up: Option<CatchingUp<S::Fact>>,
    outgoing: BTreeMap<Region, Outgoing<S>>,
    rng: Pcg64Mcg,
    counters: Counters,
}

/// How often things happened.
#[derive(Clone, Copy, Default)]
struct Counters {
    election: u64,
    handover: u64,
    nop: u64,
    batch: u64,
    resend: u64,
    refused: u64,
    catch_up: u64,
    snapshot: u64,
    checkpoint: u64,
    truncation: u64,
}

/// Where it stands: deadlines and counts say nothing of that.
impl<S: StateMachine + Debug> Debug for Log<S>
where
    S::Command: Debug,
    S::Fact: Debug,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log")
            .field("promised", &self.promised)
            .field("seen", &self.seen)
            .field("entries", &self.entries)
            .field("applied", &(self.commit, self.checkpoint, self.floor, self.everywhere))
            .field("role", &self.role)
            .field("leader", &self.leader)
            .field("lent", &self.lent.map(|(holder, _)| holder))
            .field("catching_up", &self.catching_up)
            .field("outgoing", &self.outgoing)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl<S: StateMachine> Log<S> {
    /// A replica as its records left it (none: a new one), around a state that nothing has been applied to.
    pub fn new(
        (settings, retry, plant): (LogSettings, Micros, Plant),
        id: ReplicaId,
        place: &Place,
        state: S,
        records: Vec<RecordOf<S>>,
    ) -> Self {
        let regions = place.group.regions;
        let spread = Region((id.partition % u16::from(regions)) as u8);
        let preferred = settings.leader.filter(|region| region.0 < regions).unwrap_or(spread);
        let mut log = Self {
            own: id.region,
            regions,
            preferred,
            settings,
            retry,
            plant,
            state,
            promised: Ballot::default(),
            seen: Ballot::default(),
            entries: BTreeMap::new(),
            commit: 0,
            checkpoint: 0,
            floor: 0,
            everywhere: 0,
            bytes: 0,
            role: Role::Following,
            leader: None,
            heard: 0,
            election_at: 0,
            resend_at: 0,
            lent: None,
            catching_up: None,
            outgoing: BTreeMap::new(),
            rng: Pcg64Mcg::seed_from_u64(place.seed ^ key_hash(format!("{id:?}").as_bytes())),
            counters: Counters::default(),
        };
        log.restore(records);
        log
    }

    /// Begins (again).
    pub fn start(&mut self, now: Now, out: &mut Out<S>) {
        if self.settings.lease > 0 {
            // What was lent before a crash is not on disk.
            self.lent = Some((Ballot::default(), now.monotonic + self.settings.lease));
        }
        self.set_election_alarm(now);
        if self.own == self.preferred && Self::is_fit(now) {
            self.canvass(now, None, out);
        }
    }

    /// Handles a message from the replica in another region.
    pub fn on_message(&mut self, now: Now, from: Region, message: MessageOf<S>, out: &mut Out<S>) {
        if from.0 >= self.regions || from == self.own {
            return;
        }
        match message {
            Message::Canvass { ballot, commit, consent } => {
                self.on_canvass(now, from, (ballot, commit, consent), out);
            }
            Message::Support { ballot } => self.on_support(now, from, ballot, out),
            Message::Prepare { ballot, from: first, consent } => {
                self.on_prepare(now, from, (ballot, first, consent), out);
            }
            Message::Promise { ballot, told } => self.on_promise(now, from, (ballot, told), out),
            Message::Accept { ballot, first, entries, commit } => {
                self.on_accept(now, from, (ballot, first, entries, commit), out);
            }
            Message::Accepted { ballot, first, last, progress } => {
                self.on_accepted(now, from, (ballot, first, last, progress), out);
            }
            Message::Heartbeat { ballot, commit, everywhere, sent } => {
                self.on_heartbeat(now, from, (ballot, commit, everywhere, sent), out);
            }
            Message::HeartbeatReply { ballot, progress, sent } => {
                self.on_heartbeat_reply(now, from, (ballot, progress, sent));
            }
            Message::Refused { promised } => self.on_refused(now, promised, out),
            Message::TakeOver { ballot } => self.on_take_over(now, ballot, out),
            Message::CatchUp { from: first } => self.on_catch_up(now, from, first, out),
            Message::Chosen { first, entries, commit } => {
                self.on_chosen(now, from, (first, entries, commit), out);
            }
            Message::Page { at, after, facts, next } => {
                self.on_page(now, from, (at, after, facts, next), out);
            }
            Message::NextPage { at, after } => self.on_next_page(now, from, (at, &after), out),
        }
    }

    /// Does what is due.
    pub fn on_time(&mut self, now: Now, out: &mut Out<S>) {
        self.end_catch_up(now, out);
        match self.role {
            Role::Leading(_) => self.lead_on(now, out),
            _ if now.monotonic >= self.election_at => self.canvass(now, None, out),
            Role::Following => {}
            Role::Canvassing(_) | Role::Preparing(_) => self.ask_again(now, out),
        }
    }

    /// When to call [`Self::on_time`] next.
    pub fn next_alarm(&self) -> Micros {
        let role = match &self.role {
            Role::Following => self.election_at,
            Role::Canvassing(_) | Role::Preparing(_) => self.election_at.min(self.resend_at),
            Role::Leading(leading) => leading.heartbeat_at.min(self.resend_at),
        };
        let catch_up = self.catching_up.as_ref().map(|catching_up| catching_up.deadline);
        role.min(catch_up.unwrap_or(Micros::MAX))
    }

    /// The replica that leads, as far as this one knows.
    pub fn leader(&self) -> Option<Ballot> {
        match &self.role {
            Role::Leading(leading) => Some(leading.ballot),
            Role::Following => self.leader,
            Role::Canvassing(_) | Role::Preparing(_) => None,
        }
    }

    /// The highest ballot promised.
    pub fn promised(&self) -> Ballot {
        self.promised
    }

    /// Whether this replica leads.
    pub fn leads(&self) -> bool {
        matches!(self.role, Role::Leading(_))
    }

    /// The state, for what is no part of it.
    pub(crate) fn state_mut(&mut self) -> &mut S {
        &mut self.state
    }

    /// The state, with all applied that is known to be chosen.
    pub fn state(&self) -> &S {
        &self.state
    }

    /// How many replicas there are.
    pub fn regions(&self) -> u8 {
        self.regions
    }

    /// A digest of all that replicas must agree on at rest.
    pub fn digest(&self) -> u64 {
        self.state.digest().wrapping_add(self.commit)
    }

    /// What is accepted and not yet forgotten. Up to [`Self::applied`] it is what was chosen.
    pub fn accepted(&self) -> &BTreeMap<Slot, Accepted<S::Command>> {
        &self.entries
    }

    /// How many slots are applied.
    pub fn applied(&self) -> Slot {
        self.commit
    }

    /// How many entries are accepted and not known to be chosen.
    pub fn open(&self) -> u64 {
        self.entries.range(self.commit + 1..).count() as u64
    }

    /// How often things happened, by name.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        let c = self.counters;
        vec![
            ("election", c.election),
            ("handover", c.handover),
            ("nop", c.nop),
            ("batch", c.batch),
            ("resend", c.resend),
            ("refused", c.refused),
            ("catch_up", c.catch_up),
            ("snapshot", c.snapshot),
            ("checkpoint", c.checkpoint),
            ("truncation", c.truncation),
        ]
    }

    fn majority(&self) -> usize {
        usize::from(self.regions) / 2 + 1
    }

    fn others(&self) -> impl Iterator<Item = Region> + use<S> {
        let own = self.own;
        (0..self.regions).map(Region).filter(move |region| *region != own)
    }

    /// At random, so that replicas do not stand against each other for ever. One that is not fit to lead lets the others
    /// go first.
    fn set_election_alarm(&mut self, now: Now) {
        let election = self.settings.election.max(4);
        let later = if Self::is_fit(now) { 0 } else { 2 * election };
        self.election_at = now.monotonic + later + election + self.rng.random_range(0..election);
    }

    /// Whether the state machine has use for a leader whose node has this clock.
    fn is_fit(now: Now) -> bool {
        !S::NEEDS_CLOCK || now.uncertainty.is_some()
    }

    fn see(&mut self, ballot: Ballot) {
        self.seen = self.seen.max(ballot);
    }
}

/// Bytes of an entry, as pipelines, messages and what is kept of the log are measured.
fn size<C: Wire>(entry: &Entry<C>) -> usize {
    ENTRY_BYTES + wire::length(entry)
}
