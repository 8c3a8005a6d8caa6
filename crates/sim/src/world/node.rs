//! One node: its machines, its disk, and the barrier between a step and what leaves the node.

use super::Machine;
use super::cpu::Nanos;
use meridian_protocol::clock::{Micros, Now, Vouched};
use meridian_protocol::machine::{Completion, Effects, Engine, Record, Request, RequestId};
use meridian_protocol::topology::{Address, ClientId, Region};
use std::collections::BTreeMap;

/// True time at the start of every run, in microseconds since the Unix epoch.
const EPOCH: Micros = 1_700_000_000_000_000;

/// One node.
#[derive(Debug)]
pub(crate) struct Node<E: Engine> {
    /// Counted from 1, as in its clients' identities.
    pub(crate) number: u16,
    pub(crate) region: Region,
    /// How often it has started; its clients' incarnation. Kept on disk before the first message.
    pub(crate) life: u32,
    pub(crate) up: bool,
    pub(crate) paused: bool,
    /// What arrived during a pause.
    pub(crate) inbox: Vec<Input<E::Message>>,
    /// Replicas of the partitions that live here, in the order of partitions.
    pub(crate) replicas: Vec<Hosted<E::Replica>>,
    /// Client machines by slot.
    pub(crate) clients: Vec<Hosted<E::Client>>,
    /// Client machines whose session has moved, by slot: to which region.
    pub(crate) attached: BTreeMap<usize, Region>,
    pub(crate) disks: Vec<Disk>,
    pub(crate) barrier: Barrier<E>,
    /// Until when it works on what it has taken on, in ns of virtual time.
    pub(crate) busy_until: Nanos,
    /// How many times as long as elsewhere work takes here.
    pub(crate) slowness: f64,
    pub(crate) clock: Clock,
    /// What this life has learned of true time.
    pub(crate) vouched: Vouched,
    /// The last request's number; requests of a node only grow.
    pub(crate) last_request: u64,
}

/// What a node takes in.
#[derive(Clone, Debug)]
pub(crate) enum Input<M> {
    /// A message, the earliest that its sender's clock said the time could be, the digest of its bytes, and the work of
    /// taking it in, ns.
    Message { from: Address, to: Address, message: M, earliest: Option<Micros>, digest: u64, work: f64 },
    /// A request to the client machine in a slot.
    Begin { slot: usize, id: RequestId, request: Request },
    /// The time for which a machine had set its alarm has come.
    Wake(Machine),
    /// The commit under way is durable.
    Committed,
    /// Which regions seem reachable has changed.
    Regions,
}

impl<M> Input<M> {
    /// The work of taking it in, ns.
    pub(crate) fn work(&self) -> f64 {
        if let Self::Message { work, .. } = self { *work } else { 0.0 }
    }
}

/// A machine and its alarm.
#[derive(Debug)]
pub(crate) struct Hosted<T> {
    pub(crate) machine: T,
    /// When to wake it.
    pub(crate) alarm: Option<Micros>,
    /// The earliest wake in the queue; later ones may be there too and are ignored.
    pub(crate) queued: Option<Micros>,
}

impl<T> Hosted<T> {
    pub(crate) fn new(machine: T) -> Self {
        Self { machine, alarm: None, queued: None }
    }
}

/// A replica's durable records, encoded.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disk {
    records: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Disk {
    pub(crate) fn store<R: Record>(&mut self, record: &R) {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        record.encode_key(&mut key);
        if record.encode_value(&mut value) {
            self.records.insert(key, value);
        } else {
            self.records.remove(&key);
        }
    }

    /// All records, read back.
    pub(crate) fn load<R: Record>(&self) -> Vec<R> {
        let decode = |(key, value): (&Vec<u8>, &Vec<u8>)| match R::decode(key, value) {
            Ok(record) => record,
            Err(error) => panic!("a record written in this run cannot be read back: {error}"),
        };
        self.records.iter().map(decode).collect()
    }
}

/// What steps want to leave the node, held back until the records before it are durable.
#[derive(Debug)]
pub(crate) struct Barrier<E: Engine> {
    /// Gathered since the last commit began.
    pub(crate) gathering: Batch<E>,
    /// Being made durable.
    pub(crate) committing: Option<Batch<E>>,
}

impl<E: Engine> Default for Barrier<E> {
    fn default() -> Self {
        Self { gathering: Batch::default(), committing: None }
    }
}

impl<E: Engine> Barrier<E> {
    /// Whether something must become durable before anything may leave.
    pub(crate) fn closed(&self) -> bool {
        self.committing.is_some() || !self.gathering.records.is_empty()
    }
}

/// The effects of several steps.
#[derive(Debug)]
pub(crate) struct Batch<E: Engine> {
    /// Records with the index of the replica that stored them, one list a step.
    pub(crate) records: Vec<(usize, Vec<E::Record>)>,
    /// Messages as sender, receiver, content.
    pub(crate) sends: Vec<(Address, Address, E::Message)>,
    /// Completions with the slot of their client.
    pub(crate) completions: Vec<(u32, Completion)>,
}

impl<E: Engine> Default for Batch<E> {
    fn default() -> Self {
        Self { records: Vec::new(), sends: Vec::new(), completions: Vec::new() }
    }
}

/// A node's clocks, seen from true time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Clock {
    /// What the monotonic clock read at the run's start. Another one in each life.
    pub(crate) monotonic: Micros,
    /// By how much the wall clock was ahead of true time when it was set.
    skew: i64,
    /// When that was.
    set: Micros,
    /// By how many us a second that grows.
    pub(crate) drift_ppm: i64,
    /// The bound within which the node trusts its wall clock.
    uncertainty: Option<Micros>,
}

impl Clock {
    /// A clock that is right, and trusts a bound of 1 ms.
    pub(crate) fn right() -> Self {
        Self { monotonic: 0, skew: 0, set: 0, drift_ppm: 0, uncertainty: Some(1_000) }
    }

    pub(crate) fn set(&mut self, time: Micros, skew: i64, uncertainty: Option<Micros>) {
        *self = Self { skew, set: time, drift_ppm: 0, uncertainty, ..*self };
    }

    /// What the wall clock shows at a true time since the run's start.
    pub(crate) fn wall(&self, time: Micros) -> Micros {
        (EPOCH + time).saturating_add_signed(self.ahead(time))
    }

    /// By how much the wall clock is ahead of true time.
    fn ahead(&self, time: Micros) -> i64 {
        let bound = self.uncertainty.map_or(0, |uncertainty| uncertainty as i64);
        if self.skew.abs() > bound {
            return self.skew;
        }
        let since = time.saturating_sub(self.set) as i64;
        (self.skew + since / 1_000 * self.drift_ppm / 1_000).clamp(-bound, bound)
    }

    /// The true time at which the monotonic clock reads `at`.
    pub(crate) fn true_time(&self, at: Micros) -> Micros {
        at.saturating_sub(self.monotonic)
    }
}

impl<E: Engine> Node<E> {
    /// The node's reading of its clocks.
    pub(crate) fn now(&mut self, time: Micros) -> Now {
        let Clock { monotonic, uncertainty, .. } = self.clock;
        self.vouched.reading(time + monotonic, self.clock.wall(time), uncertainty)
    }

    pub(crate) fn client_id(&self, slot: u32) -> ClientId {
        ClientId::new(self.number, self.life, slot)
    }

    /// The slot of the client with that address, if it lives here and now.
    pub(crate) fn slot_of(&self, id: ClientId) -> Option<usize> {
        let slot = id.slot() as usize;
        (id.incarnation() == self.life && slot < self.clients.len()).then_some(slot)
    }

    /// Loses all that is not on disk. Of a commit under way some first steps may have become durable, as many
    /// as `survivors` says.
    pub(crate) fn crash(&mut self, survivors: usize) {
        self.up = false;
        self.paused = false;
        self.inbox.clear();
        self.busy_until = 0;
        self.replicas.clear();
        self.clients.clear();
        self.attached.clear();
        self.vouched.forget();
        let barrier = std::mem::take(&mut self.barrier);
        let torn = barrier.committing.map_or(Vec::new(), |batch| batch.records);
        self.store(torn.into_iter().take(survivors));
    }

    pub(crate) fn store(&mut self, steps: impl IntoIterator<Item = (usize, Vec<E::Record>)>) {
        for (replica, records) in steps {
            for record in &records {
                self.disks[replica].store(record);
            }
        }
    }

    /// A replica as its records left it.
    pub(crate) fn load(&self, index: usize) -> Vec<E::Record> {
        self.disks[index].load()
    }
}

/// What machines want done, gathered in buffers that are used again and again.
#[derive(Debug)]
pub(crate) struct Buffers<E: Engine> {
    pub(crate) replica: Effects<E::Message, E::Record>,
    pub(crate) client: Effects<E::Message, Completion>,
}

impl<E: Engine> Default for Buffers<E> {
    fn default() -> Self {
        Self { replica: Effects::default(), client: Effects::default() }
    }
}
