//! Streams of writes between the copies of a partition: in order, nothing lost, nothing twice.
//!
//! Each region's writes to a partition are a stream, ascending in timestamp. A [`Replicate`] claims: *these are all
//! writes of that stream between `after` and my clock*. A replica takes it only if it has applied the stream up to
//! `after`; what comes too early is held until the gap is filled. So timestamps are the sequence numbers, a message
//! without writes is a heartbeat, and a replica that was away goes on where it had come to.
//!
//! Every message says how far its sender has applied each stream, durably. That is the acknowledgement: writes are
//! kept until all regions have them, and sent again when an acknowledgement stays away. If the origin has fallen silent
//! the others pass on what they have of its stream, so that a region that is lost for good leaves all others alike.

use super::vector::Vector;
use crate::clock::Micros;
use crate::planted::{Plant, Planted};
use crate::topology::Region;
use minicbor::{Decode, Encode};
use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};

/// The most writes in one message.
const BATCH: usize = 256;

/// The most bytes of writes in one message, but for a single larger one.
const BATCH_BYTES: usize = 1 << 20;

/// The most writes that are sent to one region without any of them being acknowledged.
const WINDOW: usize = 64 * BATCH;

/// The most messages of one stream that are held because an earlier one is missing.
const HELD: usize = 1_024;

/// A write as it travels.
pub(crate) trait Write: Clone {
    /// Its timestamp, unique in its stream.
    fn ts(&self) -> u64;
    /// About how many bytes it takes.
    fn bytes(&self) -> usize;
}

/// A piece of a stream, or with no writes a heartbeat.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct Replicate<T> {
    /// The region whose stream it is.
    #[n(0)]
    pub origin: Region,
    /// The timestamp of the stream's last write before these.
    #[n(1)]
    pub after: u64,
    /// The writes, ascending.
    #[n(2)]
    pub writes: Vec<T>,
    /// No other write of the stream after `after` is at or below this time.
    #[n(3)]
    pub clock: u64,
    /// For each region, up to where the sender has applied its stream.
    #[n(4)]
    pub applied: Vector,
}

#[derive(Clone, Debug)]
struct Stream<T> {
    /// The timestamp of the last write applied, all before it included.
    applied: u64,
    /// All writes up to this time have been applied.
    clock: u64,
    /// Writes that some region may lack.
    log: BTreeMap<u64, T>,
    /// What came too early, by what must come before it.
    held: BTreeMap<u64, (Vec<T>, u64)>,
    /// When it last moved.
    heard: Micros,
}

#[derive(Clone, Debug)]
struct Peer {
    /// What it says it has applied; `None` as long as it has said nothing.
    applied: Option<Vector>,
    /// Up to where this region's own stream was sent to it.
    sent: u64,
    /// Writes sent since it last acknowledged any.
    unacknowledged: usize,
    /// What it had applied of it when the retry alarm last rang.
    at_last_alarm: u64,
    /// When it was last heard.
    heard: Micros,
}

/// The streams of all regions as one replica sees them.
#[derive(Clone, Debug)]
pub(crate) struct Streams<T> {
    own: Region,
    plant: Plant,
    /// After so long without a word a region is taken to be away.
    silence: Micros,
    of: Vec<Stream<T>>,
    peers: Vec<Peer>,
    /// How often writes were sent again, and how many messages were held.
    pub(crate) resent: u64,
    pub(crate) gaps: u64,
    /// How often another region's stream was passed on.
    pub(crate) relayed: u64,
}

impl<T: Write> Streams<T> {
    /// Streams in which nothing has happened.
    pub(crate) fn new(own: Region, regions: u8, silence: Micros, plant: Plant) -> Self {
        let stream =
            || Stream { applied: 0, clock: 0, log: BTreeMap::new(), held: BTreeMap::new(), heard: 0 };
        let peer = || Peer { applied: None, sent: 0, unacknowledged: 0, at_last_alarm: 0, heard: 0 };
        Self {
            own,
            plant,
            silence,
            of: (0..regions).map(|_| stream()).collect(),
            peers: (0..regions).map(|_| peer()).collect(),
            resent: 0,
            gaps: 0,
            relayed: 0,
        }
    }

    /// Takes back a write from the records: it may have to be sent.
    pub(crate) fn restore_write(&mut self, origin: Region, write: T) {
        let ts = write.ts();
        if let Some(stream) = self.of.get_mut(origin.index()) {
            stream.log.insert(ts, write);
        }
        if origin == self.own {
            self.restore_applied(origin, ts);
            // Told what the others have, it goes back as far as it must.
            for peer in &mut self.peers {
                peer.sent = peer.sent.max(ts);
            }
        }
    }

    /// Takes back from the records how far a stream was applied.
    pub(crate) fn restore_applied(&mut self, origin: Region, applied: u64) {
        if let Some(stream) = self.of.get_mut(origin.index()) {
            stream.applied = stream.applied.max(applied);
            stream.clock = stream.clock.max(applied);
        }
    }

    /// For each region the time up to which its writes have all been applied. The own entry is the caller's business.
    pub(crate) fn clocks(&self) -> Vector {
        self.vector(|stream| stream.clock)
    }

    fn applied(&self) -> Vector {
        self.vector(|stream| stream.applied)
    }

    fn vector(&self, entry: impl Fn(&Stream<T>) -> u64) -> Vector {
        let mut vector = Vector::zero(self.of.len() as u8);
        for (region, stream) in self.of.iter().enumerate() {
            vector.set(Region(region as u8), entry(stream));
        }
        vector
    }

    fn others(&self) -> impl Iterator<Item = Region> + use<T> {
        let own = self.own;
        (0..self.of.len() as u8).map(Region).filter(move |region| *region != own)
    }

    /// Whether a write may still have to be sent to someone.
    pub(crate) fn keeps(&self, origin: Region, ts: u64) -> bool {
        self.of.get(origin.index()).is_some_and(|stream| stream.log.contains_key(&ts))
    }

    /// How many writes some region may lack.
    pub(crate) fn backlog(&self) -> u64 {
        self.of.iter().map(|stream| stream.log.len() as u64).sum()
    }

    /// Whether a third region may need what this one holds of a stream.
    fn serves(&self, origin: Region) -> bool {
        self.others().any(|region| region != origin)
    }

    /// Adds a write of this region, if there is another one to have it; answers what to send now. Regions that still lack
    /// earlier ones get it in its turn, with a heartbeat.
    pub(crate) fn append(
        &mut self,
        now: Micros,
        ts: u64,
        write: impl FnOnce() -> T,
    ) -> Vec<(Region, Replicate<T>)> {
        let before = std::mem::replace(&mut self.of[self.own.index()].applied, ts);
        if !self.serves(self.own) {
            return Vec::new();
        }
        self.of[self.own.index()].log.insert(ts, write());
        let ready = self.others().filter(|region| self.peers[region.index()].sent >= before);
        let ready: Vec<Region> = ready.collect();
        let messages = ready.into_iter().map(|region| (region, self.next(now, region, ts)));
        messages.filter(|(_, message)| !message.writes.is_empty()).collect()
    }

    /// The time has come for a heartbeat: to all, with whatever they are still to be sent.
    pub(crate) fn heartbeat(&mut self, now: Micros, clock: u64) -> Vec<(Region, Replicate<T>)> {
        self.others().map(|region| (region, self.next(now, region, clock))).collect()
    }

    /// The next piece of the own stream for a region. None of it if the region is away or has enough to acknowledge:
    /// then the message only says what was applied here.
    fn next(&mut self, now: Micros, to: Region, clock: u64) -> Replicate<T> {
        let (origin, applied) = (self.own, self.applied());
        let peer = &mut self.peers[to.index()];
        let after = peer.sent;
        let away = peer.applied.is_none() || now > peer.heard.saturating_add(self.silence);
        if away || peer.unacknowledged >= WINDOW {
            let complete = after >= self.of[origin.index()].applied;
            let clock = if complete { clock } else { 0 };
            return Replicate { origin, after, writes: Vec::new(), clock, applied };
        }
        let (writes, whole) = piece(&self.of[origin.index()].log, after);
        let last = writes.last().map_or(after, Write::ts);
        peer.sent = last;
        peer.unacknowledged += writes.len();
        let clock = if whole { clock } else { last };
        Replicate { origin, after, writes, clock, applied }
    }

    /// Takes a message; answers the writes that are applied with it, in order, and up to where that takes the stream.
    pub(crate) fn receive(&mut self, now: Micros, from: Region, message: Replicate<T>) -> Vec<T> {
        let Replicate { origin, after, writes, clock, applied } = message;
        if origin.index() >= self.of.len() || from.index() >= self.of.len() || origin == self.own {
            return Vec::new();
        }
        self.note_applied(now, from, &applied);
        let in_any_order = self.plant.has(Planted::ReplicationOutOfOrder);
        let stream = &mut self.of[origin.index()];
        stream.heard = if from == origin { now } else { stream.heard };
        if after > stream.applied && !in_any_order {
            self.gaps += 1;
            if stream.held.len() < HELD && !writes.is_empty() {
                stream.held.insert(after, (writes, clock));
            }
            return Vec::new();
        }
        let mut fresh = Vec::new();
        stream.take(writes, clock, in_any_order, &mut fresh);
        while let Some(entry) = stream.held.first_entry().filter(|entry| *entry.key() <= stream.applied) {
            let (writes, clock) = entry.remove();
            stream.take(writes, clock, in_any_order, &mut fresh);
        }
        if self.serves(origin) {
            let kept = fresh.iter().map(|write: &T| (write.ts(), write.clone()));
            self.of[origin.index()].log.extend(kept);
        }
        fresh
    }

    /// How far a stream is applied.
    pub(crate) fn applied_of(&self, origin: Region) -> u64 {
        self.of.get(origin.index()).map_or(0, |stream| stream.applied)
    }

    fn note_applied(&mut self, now: Micros, from: Region, applied: &Vector) {
        let zero = Vector::zero(self.of.len() as u8);
        let peer = &mut self.peers[from.index()];
        if peer.applied.is_none() {
            // The first word of this life: goes back as far as it must.
            peer.sent = peer.sent.min(applied.get(self.own));
        }
        let known = peer.applied.get_or_insert(zero);
        let before = known.get(self.own);
        known.join(applied);
        if known.get(self.own) > before {
            peer.unacknowledged = 0;
        }
        peer.heard = now;
    }

    /// Drops from the logs what all regions have; answers which writes that were.
    pub(crate) fn trim(&mut self) -> Vec<(Region, T)> {
        let mut dropped = Vec::new();
        for origin in (0..self.of.len() as u8).map(Region) {
            let others = self.others().filter(|region| *region != origin);
            let known = others
                .map(|region| self.peers[region.index()].applied.as_ref().map_or(0, |all| all.get(origin)));
            let everywhere = known.min().unwrap_or(u64::MAX);
            let log = &mut self.of[origin.index()].log;
            while let Some(entry) = log.first_entry().filter(|entry| *entry.key() <= everywhere) {
                dropped.push((origin, entry.remove()));
            }
        }
        dropped
    }

    /// The retry alarm rang: goes back where nothing was acknowledged since it rang last, and passes on the streams of
    /// regions that have been silent.
    pub(crate) fn retry(&mut self, now: Micros) -> Vec<(Region, Replicate<T>)> {
        let own = self.own;
        for region in self.others() {
            let peer = &mut self.peers[region.index()];
            let Some(known) = peer.applied.as_ref().map(|applied| applied.get(own)) else { continue };
            if known < peer.sent && known == peer.at_last_alarm {
                peer.sent = known;
                peer.unacknowledged = 0;
                self.resent += 1;
            }
            peer.at_last_alarm = known;
        }
        let applied = self.applied();
        let mut sends = Vec::new();
        for origin in self.others() {
            let stream = &self.of[origin.index()];
            if now < stream.heard.saturating_add(self.silence) || stream.clock == 0 {
                continue;
            }
            for to in self.others().filter(|region| *region != origin) {
                let Some(known) = self.peers[to.index()].applied.as_ref().map(|all| all.get(origin)) else {
                    continue;
                };
                if known > stream.applied {
                    continue;
                }
                let (writes, whole) = piece(&stream.log, known);
                let clock = if whole { stream.clock } else { writes.last().map_or(0, Write::ts) };
                sends.push((to, Replicate { origin, after: known, writes, clock, applied: applied.clone() }));
            }
        }
        self.relayed += sends.len() as u64;
        sends
    }
}

impl<T: Write> Stream<T> {
    fn take(&mut self, writes: Vec<T>, clock: u64, in_any_order: bool, fresh: &mut Vec<T>) {
        for write in writes {
            if write.ts() > self.applied || in_any_order {
                self.applied = self.applied.max(write.ts());
                fresh.push(write);
            }
        }
        self.clock = self.clock.max(clock).max(self.applied);
    }
}

/// The writes of a log after a timestamp, as many as one message may have, and whether that is all.
fn piece<T: Write>(log: &BTreeMap<u64, T>, after: u64) -> (Vec<T>, bool) {
    let mut bytes = 0;
    let mut writes: Vec<T> = Vec::new();
    for (_, write) in log.range((Excluded(after), Unbounded)) {
        bytes += write.bytes();
        if !writes.is_empty() && (writes.len() >= BATCH || bytes > BATCH_BYTES) {
            return (writes, false);
        }
        writes.push(write.clone());
    }
    (writes, true)
}
