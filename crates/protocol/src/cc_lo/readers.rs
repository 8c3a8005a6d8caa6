//! What a partition knows of read-only transactions: what they have read, and what they must not see.

use super::message::RotId;
use crate::causal::vector::VersionId;
use crate::causal::versions::{Chains, Version};
use crate::clock::Micros;
use bytes::Bytes;
use std::collections::BTreeMap;

/// What is kept of a version beside its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Installed {
    /// Which install of this partition it was. Counted, because neither ids nor clocks tell in which order versions
    /// became visible here.
    pub(crate) number: u64,
    /// When that was.
    pub(crate) at: Micros,
}

/// What a transaction has read of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Read {
    /// The version; `None`: there was none.
    pub(crate) id: Option<VersionId>,
    /// The partition's clock then. Only the printed rule asks for it.
    pub(crate) clock: u64,
}

/// One key's transactions.
#[derive(Clone, Debug, Default)]
struct OfKey {
    /// What each has read, and when.
    read: BTreeMap<RotId, (Read, Micros)>,
    /// From which install on each sees nothing, and since when.
    bounds: BTreeMap<RotId, (u64, Micros)>,
}

/// All keys' transactions.
#[derive(Clone, Debug)]
pub(crate) struct Readers {
    of: BTreeMap<Bytes, OfKey>,
    one_a_session: bool,
}

impl Readers {
    pub(crate) fn new(one_a_session: bool) -> Self {
        Self { of: BTreeMap::new(), one_a_session }
    }

    /// What a transaction has read of a key before, if it has.
    pub(crate) fn has_read(&self, key: &[u8], rot: RotId) -> Option<Read> {
        self.of.get(key)?.read.get(&rot).map(|(read, _)| *read)
    }

    /// The version that a transaction sees: the newest that is not hidden from it.
    pub(crate) fn candidate<'v>(
        &self,
        versions: &'v Chains<Installed>,
        key: &[u8],
        rot: RotId,
    ) -> Option<&'v Version<Installed>> {
        let bound = self.of.get(key).and_then(|of_key| of_key.bounds.get(&rot)).map(|(bound, _)| *bound);
        versions.newest(key, |version| bound.is_none_or(|bound| version.meta.number < bound))
    }

    /// Remembers what a transaction has read.
    pub(crate) fn note(&mut self, now: Micros, key: &Bytes, rot: RotId, what: Read) {
        let read = &mut self.of.entry(key.clone()).or_default().read;
        if self.one_a_session {
            // The session's transactions before it have ended.
            let first = RotId { number: 0, ..rot };
            let before: Vec<RotId> = read.range(first..rot).map(|(rot, _)| *rot).collect();
            for over in before {
                read.remove(&over);
            }
        }
        read.entry(rot).or_insert((what, now));
    }

    /// The transactions that do not see a version which is installed, and so must not see what depends on it: those that
    /// have read an older one; those from which it is hidden; those that are shown an older one. With each the clock when it
    /// read.
    pub(crate) fn old_readers(
        &self,
        versions: &Chains<Installed>,
        (key, id): (&[u8], VersionId),
        also_hidden: bool,
        found: &mut BTreeMap<RotId, u64>,
    ) {
        let Some(of_key) = self.of.get(key) else { return };
        let read_older = of_key.read.iter().filter(|(_, (read, _))| read.id < Some(id));
        found.extend(read_older.map(|(rot, (read, _))| (*rot, read.clock)));
        // If it is forgotten it was installed before all transactions that are still under way began.
        let number = versions.get(key, id).map_or(0, |version| version.meta.number);
        for (rot, (bound, _)) in &of_key.bounds {
            let shown = || versions.newest(key, |version| version.meta.number < *bound).map(|v| v.id);
            if also_hidden && *bound <= number || shown() < Some(id) {
                found.entry(*rot).or_insert(u64::MAX);
            }
        }
    }

    /// Hides an install, and all that come after, from transactions.
    ///
    /// The cut is the install and nothing earlier: a transaction may have read something that depends on any version
    /// installed before, whatever that version's id, so that hiding it would break its snapshot.
    pub(crate) fn bind(&mut self, now: Micros, key: &Bytes, rots: impl Iterator<Item = (RotId, u64)>) {
        let mut rots = rots.peekable();
        if rots.peek().is_none() {
            return;
        }
        let bounds = &mut self.of.entry(key.clone()).or_default().bounds;
        for (rot, number) in rots {
            let (bound, _) = bounds.entry(rot).or_insert((number, now));
            *bound = (*bound).min(number);
        }
        if self.one_a_session {
            keep_last(bounds);
        }
    }

    /// Leaves of each session's transactions the last one: those before it have ended.
    pub(crate) fn prune<T>(&self, rots: &mut BTreeMap<RotId, T>) {
        if self.one_a_session {
            keep_last(rots);
        }
    }

    /// Forgets what came before a time.
    pub(crate) fn forget_before(&mut self, time: Micros) {
        self.of.retain(|_, of_key| {
            of_key.read.retain(|_, (_, at)| *at >= time);
            of_key.bounds.retain(|_, (_, at)| *at >= time);
            !(of_key.read.is_empty() && of_key.bounds.is_empty())
        });
    }

    /// How many transactions are remembered, over all keys.
    pub(crate) fn len(&self) -> u64 {
        self.of.values().map(|of_key| (of_key.read.len() + of_key.bounds.len()) as u64).sum()
    }
}

fn keep_last<T>(rots: &mut BTreeMap<RotId, T>) {
    let lane = |rot: &RotId| (rot.client, rot.lane);
    let pairs = rots.keys().zip(rots.keys().skip(1));
    let over: Vec<RotId> = pairs.filter(|(rot, next)| lane(rot) == lane(next)).map(|(rot, _)| *rot).collect();
    for rot in over {
        rots.remove(&rot);
    }
}
