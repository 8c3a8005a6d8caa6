//! The contract between protocols and hosts: the first file to read.
//!
//! A protocol is two machines. A [`Replica`] serves one partition in one region; a [`Client`] is the session
//! side. A machine is a plain value: it takes one input at a time, with the time, and writes what it wants
//! into [`Effects`]. A *host* (the simulator, the node) owns machines and the outside world.
//!
//! # What a host must keep
//! - **Durability**: no message and no completion leaves a host before the records that the same or an
//!   earlier step stored are durable, in the chosen durability mode. The records of one step become durable
//!   all together or not at all. A replica rebuilt from its records is then just a slow one. Hosts gather the
//!   effects of many steps, commit them once, then send.
//! - **Identity**: a [`ClientId`] is never used by two lives of a node; [`RequestId`]s given to a client only
//!   grow.
//!   A process that lost its records never comes back under its old name.
//! - **Delivery**: messages may be lost, doubled, delayed and reordered at will.
//! - **Wakes**: after a step that asked for [`Effects::wake_at`] the machine's `on_wake` is called at that
//!   time or later. A machine has one alarm: the last time asked for counts. An early or doubled call is harmless.

use crate::clock::{Micros, Now};
use crate::notices::Notices;
use crate::object::{Action, Answer, Command, Reply, Version};
use crate::topology::{Address, ClientId, Group, Region, ReplicaId};
use crate::wire::Wire;
use bytes::Bytes;
use minicbor::{Decode, Encode};

/// What one step of a machine wants done: messages, an alarm, and outputs (a replica's are records to
/// store, a client's are completions).
#[derive(Debug)]
pub struct Effects<M, Output> {
    /// Messages to send, in order. An address may be of this very host; it is delivered all the same.
    pub sends: Vec<(Address, M)>,
    /// Records to make durable, or completions to hand to the application, in order.
    pub outputs: Vec<Output>,
    /// When the machine wants to be woken, in [`Now::monotonic`]; `None` keeps the alarm that stands.
    pub wake: Option<Micros>,
    /// Whether the host keeps records. If not, a machine need not make them ([`Self::store`]).
    pub keeps_records: bool,
}

impl<M, Output> Default for Effects<M, Output> {
    fn default() -> Self {
        Self { sends: Vec::new(), outputs: Vec::new(), wake: None, keeps_records: true }
    }
}

impl<M, Output> Effects<M, Output> {
    /// Sends `message` to `to`.
    pub fn send(&mut self, to: Address, message: M) {
        self.sends.push((to, message));
    }

    /// Stores a record, if records are kept.
    pub fn store(&mut self, record: impl FnOnce() -> Output) {
        if self.keeps_records {
            self.outputs.push(record());
        }
    }

    /// Stores a record or completes a request.
    pub fn output(&mut self, output: Output) {
        self.outputs.push(output);
    }

    /// Sets the machine's one alarm, in place of the one that stands.
    pub fn wake_at(&mut self, at: Micros) {
        self.wake = Some(at);
    }
}

/// A request's number: grows with every request of a node, so that no two of one client are equal.
pub type RequestId = u64;

/// An operation: unique over all clients and their lives, and the same in every retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct OpId {
    /// The client that asks.
    #[n(0)]
    pub client: ClientId,
    /// The client's number for the request; grows.
    #[n(1)]
    pub request: u64,
}

/// What an application asks of a client machine.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// Act on one key.
    Act {
        /// The key.
        key: Bytes,
        /// What to do with it.
        action: Action,
        /// The time against which expiry is judged, in ms since the Unix epoch, on every replica alike.
        at_ms: u64,
        /// What is asked of it, in keyspaces where each operation chooses.
        level: Level,
    },
    /// Act on several keys in one step: a transaction of its own, or a part of the one that is open.
    Together(Together),
    /// Open the session's transaction: what is asked until [`Request::Commit`] or [`Request::Abort`] belongs to it. When a
    /// request of it ends without an answer (no quorum, aborted, unknown) the transaction is over, nothing of it was
    /// done, and the host neither commits it nor gives it up.
    Begin {
        /// Whether it only reads, and all of it one snapshot.
        read_only: bool,
    },
    /// Commit the session's open transaction.
    Commit,
    /// Give the session's open transaction up.
    Abort,
    /// Make all that this session has seen visible to all that comes after (libRSS).
    Fence,
    /// The session comes from another service: what it does next comes after all that has ended there (the entry rule of
    /// [`crate::compose`]). Done at once where real time orders operations anyhow.
    Enter,
    /// Tell what another session must be told to go on after this one. Asked when nothing of the session is in flight; what
    /// cannot be told is first made visible to everybody, as by a fence.
    Export,
    /// Go on after the session that has told this, too: both pasts count.
    Import(Context),
    /// List keys of a partition in the order of [`crate::topology::key_hash`].
    Scan {
        /// The partition to list.
        partition: u16,
        /// Only keys whose hash is at least this.
        from: u64,
        /// About how many keys to return; keys of equal hash are never separated.
        count: u32,
        /// The time against which expiry is judged, in ms since the Unix epoch.
        at_ms: u64,
    },
}

/// What a session must remember of a keyspace besides what everybody sees, as timestamps whose meaning and number
/// ([`crate::registry::EngineName::context_entries`]) are its engine's; none: nothing. It names no keys and holds no values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Context(pub Vec<u64>);

impl Context {
    /// Becomes the least context after both: of each entry the higher counts.
    pub fn join(&mut self, other: &Self) {
        self.0.resize(self.0.len().max(other.0.len()), 0);
        for (own, other) in self.0.iter_mut().zip(&other.0) {
            *own = (*own).max(*other);
        }
    }

    /// Whether it says nothing: it is the context of a session that has done nothing.
    pub fn is_nothing(&self) -> bool {
        self.0.iter().all(|entry| *entry == 0)
    }
}

/// Commands on several keys that take effect in one step. If all of them are reads it is a read-only transaction.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Together {
    /// Keys with what to do to them, in order; a key may come several times.
    pub steps: Vec<(Bytes, Command)>,
    /// Nothing is done unless these keys are still at the versions that `WATCH` has seen.
    pub watched: Vec<(Bytes, Version)>,
    /// The time against which expiry is judged, in ms since the Unix epoch, on every replica alike.
    pub at_ms: u64,
    /// Read as of this time, in µs since the Unix epoch, instead of now. Only reads may ask for it.
    pub snapshot: Option<Micros>,
    /// What is asked of it, in keyspaces where each operation chooses.
    pub level: Level,
}

/// What one operation asks of a keyspace in which each chooses (TCC, §II): a read one of the first, a write
/// one of the last, either of them all of it. Other keyspaces give what their model states and ignore it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub enum Level {
    /// Causal consistency: all of the guarantees below.
    #[default]
    #[n(0)]
    Causal,
    /// Eventual consistency: none of them.
    #[n(1)]
    Eventual,
    /// Reads see what the session has written.
    #[n(2)]
    ReadYourWrites,
    /// Reads see what earlier reads of the session have seen.
    #[n(3)]
    MonotonicReads,
    /// Writes come after the session's earlier writes.
    #[n(4)]
    MonotonicWrites,
    /// Writes come after what the session has read.
    #[n(5)]
    WritesFollowReads,
}

impl Level {
    /// Every level with the name by which histories and commands know it.
    pub const NAMES: [(Self, &'static str); 6] = [
        (Self::Causal, "cc"),
        (Self::Eventual, "ec"),
        (Self::ReadYourWrites, "ryw"),
        (Self::MonotonicReads, "mr"),
        (Self::MonotonicWrites, "mw"),
        (Self::WritesFollowReads, "wfr"),
    ];

    /// The level's name.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(level, _)| *level == self).map_or("", |(_, name)| name)
    }
}

/// Why an engine that serves no transactions gives one up. Hosts refuse them before, by name.
pub(crate) const NO_TRANSACTIONS: &str = "this engine has no transactions over several keys";
/// Why an engine does not take over a context. Hosts refuse it before, by name.
pub(crate) const FOREIGN_CONTEXT: &str = "the context is of another engine";

/// How a request ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Done, with the answer to an [`Request::Act`].
    Answer(Answer),
    /// Done, with a reply to each step of a [`Request::Together`]; `None`: not done, because a watched key had changed.
    Answers(Option<Vec<Reply>>),
    /// Done: the transaction is open, committed or given up, the session has entered, or goes on after another one, as
    /// was asked.
    Done,
    /// Done: the session's context.
    Exported(Context),
    /// Done, the fence holds.
    Fenced,
    /// Done: keys with their type names, and the hash from which to go on (`None`: that was all).
    Page(Vec<(Bytes, &'static str)>, Option<u64>),
    /// Not done, and never will be: no quorum answered in time.
    NoQuorum,
    /// Not done, and never will be: given up for the reason named; trying again may help.
    Aborted(&'static str),
    /// It may or may not have happened, now or later; why that is not known.
    Unknown(&'static str),
}

impl Outcome {
    /// Nobody has said in time how it ended.
    pub const LATE: Self = Self::Unknown("no answer in time");
    /// A retry has come when the first attempt's result was remembered no more.
    pub const FORGOTTEN: Self = Self::Unknown("it was tried again so late that its result is forgotten");
    /// It is done or will be, and must not be told before its timestamp has passed, which no clock has said.
    pub const UNPASSED: Self = Self::Unknown("no clock has said in time that its timestamp has passed");
}

/// What an operation cost and the proof of its place in the order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cost {
    /// Wide-area round trips on the way to the answer.
    pub rounds: u32,
    /// Microseconds spent waiting for something other than the operation's own round trips.
    pub waited: Micros,
    /// What was waited for, or what made the operation take more rounds than it might; empty if nothing.
    pub reason: &'static str,
    /// The engine's proof of order.
    pub witness: Option<crate::history::Witness>,
}

/// A client machine's answer to a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Completion {
    /// The request that ended.
    pub request: RequestId,
    /// How it ended.
    pub outcome: Outcome,
    /// What it cost.
    pub cost: Cost,
}

/// How a fence, an entry, an export or an import ends in an engine whose sessions need remember nothing, because what has
/// ended is before all that begins.
pub(crate) fn ordered_by_real_time(request: RequestId, asked: &Request) -> Completion {
    let outcome = match asked {
        Request::Fence => Outcome::Fenced,
        Request::Export => Outcome::Exported(Context::default()),
        _ => Outcome::Done,
    };
    Completion { request, outcome, cost: Cost::default() }
}

/// What the machines of a protocol say to each other.
pub trait Message: Wire {
    /// How many instances, dependencies, log entries, versions and the like it carries or speaks of, one by one: what
    /// handling it costs beyond its bytes.
    fn items(&self) -> usize {
        0
    }
}

/// A replica's durable fact. Storing a record replaces the one with the same key.
pub trait Record: Sized + Clone + std::fmt::Debug + PartialEq + 'static {
    /// Appends the key under which the record stands; different facts have different keys.
    fn encode_key(&self, buffer: &mut Vec<u8>);
    /// Appends the record's content and returns true; false means: forget what stands under the key.
    fn encode_value(&self, buffer: &mut Vec<u8>) -> bool;
    /// Reads a record back.
    ///
    /// # Errors
    /// What is wrong with the bytes, for an operator to read.
    fn decode(key: &[u8], value: &[u8]) -> Result<Self, String>;
}

/// The server side of a protocol: one region's copy of one partition.
pub trait Replica {
    /// What the protocol's machines say to each other.
    type Message: Message;
    /// What must survive a crash.
    type Record: Record;

    /// Begins (again): sets the first alarm and takes up what the records left open.
    fn start(&mut self, now: Now, effects: &mut Effects<Self::Message, Self::Record>);
    /// Handles one message.
    fn on_message(
        &mut self,
        now: Now,
        from: Address,
        message: Self::Message,
        effects: &mut Effects<Self::Message, Self::Record>,
    );
    /// Handles the alarm.
    fn on_wake(&mut self, now: Now, effects: &mut Effects<Self::Message, Self::Record>);
    /// Learns anew in which order to prefer regions: itself first, the nearest next, unreachable ones last.
    /// A hint for speed; safety never depends on it.
    fn on_regions(&mut self, nearest_first: &[Region]);
    /// Where it tells of keys that somebody waits for; `None` if the engine serves nothing that waits. What is watched is
    /// not durable: a host asks again after a restart.
    fn notices(&mut self) -> Option<&mut Notices> {
        None
    }
    /// What an operator or a test wants to know.
    fn status(&self) -> Status;
    /// A digest of all that replicas of a partition must agree on once nothing is in flight.
    fn fingerprint(&self) -> u64;
}

/// The session side of a protocol. Several requests may be in flight at once; a session that keeps process
/// order gives the next one after the last has ended.
pub trait Client {
    /// What the protocol's machines say to each other.
    type Message: Message;

    /// Takes a request. Every request is completed exactly once.
    fn begin(
        &mut self,
        now: Now,
        id: RequestId,
        request: Request,
        effects: &mut Effects<Self::Message, Completion>,
    );
    /// Handles one message.
    fn on_message(
        &mut self,
        now: Now,
        from: Address,
        message: Self::Message,
        effects: &mut Effects<Self::Message, Completion>,
    );
    /// Handles the alarm.
    fn on_wake(&mut self, now: Now, effects: &mut Effects<Self::Message, Completion>);
    /// As [`Replica::on_regions`], for one partition.
    fn on_regions(&mut self, partition: u16, nearest_first: &[Region]);
    /// The session has ended: open requests may be abandoned and what was seen forgotten. The host may give
    /// the machine to another session afterwards; what keeps identities unique stays.
    fn end_session(&mut self);
}

/// Where a machine stands.
#[derive(Clone, Debug)]
pub struct Place {
    /// The keyspace.
    pub group: Group,
    /// All regions: the machine's own first, then the others, the nearest next.
    pub nearest_first: Vec<Region>,
    /// Seed of the machine's random choices (only back-off times).
    pub seed: u64,
}

impl Place {
    /// The machine's own region.
    pub fn region(&self) -> Region {
        self.nearest_first[0]
    }
}

/// A protocol, chosen and configured: what makes its machines.
pub trait Engine: Clone + 'static {
    /// What its machines say to each other.
    type Message: Message;
    /// What its replicas store.
    type Record: Record;
    /// The server side.
    type Replica: Replica<Message = Self::Message, Record = Self::Record>;
    /// The session side.
    type Client: Client<Message = Self::Message>;

    /// A replica of a partition, as its records left it (none: a new one).
    fn replica(&self, id: ReplicaId, place: Place, records: Vec<Self::Record>) -> Self::Replica;
    /// A client machine.
    fn client(&self, id: ClientId, place: Place) -> Self::Client;
}

/// What a replica tells of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Keys held, tombstones included.
    pub keys: u64,
    /// Approximate bytes of keys and values held.
    pub bytes: u64,
    /// Consensus instances not yet executed.
    pub open_instances: u64,
    /// The region whose replica leads, as far as it is known here; none in engines without leaders.
    pub leader: Option<Region>,
    /// By how much what can be seen here of other regions was behind the clock when that was last looked at; none in engines
    /// whose reads do not depend on it.
    pub lag: Option<Micros>,
    /// How often things happened, by name, in a fixed order: `slow_path`, `recovery`, `catch_up` …
    pub counters: Vec<(&'static str, u64)>,
}
