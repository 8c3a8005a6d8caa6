//! The shared registers of one replica: each key's newest version, and what comparing them with a peer's needs.

use super::carstamp::{Carstamp, Held};
use super::comparison::Compared;
use super::listing::Listed;
use crate::Map;
use crate::notices::Notices;
use crate::object::{Object, TypeName};
use crate::topology::key_hash;
use bytes::Bytes;
use std::collections::BTreeSet;

/// How many buckets of keys replicas compare by digest.
const BUCKETS: usize = 256;

/// The most keys in one page, unless more have the same hash.
const LIST_LIMIT: usize = 10_000;

/// What replicas must agree on once nothing is in flight: a key's version and which rmws are executed.
#[derive(Clone, Debug, Default)]
struct Entry {
    held: Held,
    executed: u64,
}

/// Every key that ever had a version. A deleted key keeps its carstamp as a tombstone: forgetting it would let
/// an older version come back.
#[derive(Clone, Debug)]
pub(crate) struct Registers {
    entries: Map<Bytes, Entry>,
    /// Keys in the order in which they are listed.
    order: BTreeSet<(u64, Bytes)>,
    /// For each bucket of hashes, the sum of its entries' digests.
    digests: Vec<u64>,
    /// Approximate bytes of keys and values.
    pub(crate) bytes: u64,
    pub(crate) notices: Notices,
}

impl Registers {
    pub(crate) fn new() -> Self {
        Self {
            entries: Map::default(),
            order: BTreeSet::new(),
            digests: vec![0; BUCKETS],
            bytes: 0,
            notices: Notices::default(),
        }
    }

    /// The version held; a key never written holds the initial one.
    pub(crate) fn get(&self, key: &[u8]) -> Held {
        self.entries.get(key).map(|entry| entry.held.clone()).unwrap_or_default()
    }

    pub(crate) fn carstamp(&self, key: &[u8]) -> Carstamp {
        self.entries.get(key).map(|entry| entry.held.carstamp).unwrap_or_default()
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Overwrites the key's version; the caller has seen that `held` is newer.
    pub(crate) fn set(&mut self, key: &Bytes, held: Held) {
        let added = size(&held);
        let mut removed = 0;
        self.notices.note(key, &held.value);
        self.change(key, |entry| {
            removed = size(&entry.held);
            entry.held = held;
        });
        self.bytes = self.bytes + added - removed;
    }

    /// Notes which rmws of the key are executed, as a digest.
    pub(crate) fn set_executed(&mut self, key: &Bytes, executed: u64) {
        self.change(key, |entry| entry.executed = executed);
    }

    /// Changes a key's entry, made if it is new, and its bucket's digest with it.
    fn change(&mut self, key: &Bytes, change: impl FnOnce(&mut Entry)) {
        let hash = key_hash(key);
        let entry = self.entries.entry_ref(key).or_insert_with(|| {
            self.order.insert((hash, key.clone()));
            self.bytes += key.len() as u64;
            Entry::default()
        });
        let before = digest_of(hash, entry);
        change(entry);
        let digest = &mut self.digests[bucket_of(hash)];
        *digest = digest.wrapping_sub(before).wrapping_add(digest_of(hash, entry));
    }

    /// Digest of each bucket.
    pub(crate) fn digests(&self) -> &[u64] {
        &self.digests
    }

    /// The keys of a bucket as replicas compare them.
    pub(crate) fn bucket(&self, bucket: usize) -> Vec<Compared> {
        let shift = 64 - BUCKETS.trailing_zeros();
        let from = (bucket as u64) << shift;
        let keys = self.order.range((from, Bytes::new())..);
        let keys = keys.take_while(|(hash, _)| bucket_of(*hash) == bucket);
        keys.map(|(_, key)| {
            let entry = &self.entries[key];
            Compared { key: key.clone(), carstamp: entry.held.carstamp, executed: entry.executed }
        })
        .collect()
    }

    /// About `count` keys from hash `from` on, and the hash at which the next page begins. Keys of equal hash
    /// are never separated, so a page may be longer. A page has at most `LIST_LIMIT` of them otherwise.
    pub(crate) fn list(&self, from: u64, count: usize, at_ms: u64) -> (Vec<Listed>, Option<u64>) {
        let mut keys: Vec<Listed> = Vec::new();
        let mut last = from;
        for (hash, key) in self.order.range((from, Bytes::new())..) {
            if keys.len() >= count.clamp(1, LIST_LIMIT) && *hash != last {
                return (keys, Some(*hash));
            }
            last = *hash;
            let held = &self.entries[key].held;
            keys.push(Listed {
                key: key.clone(),
                carstamp: held.carstamp,
                kind: kind_at(held.value.as_ref(), at_ms),
            });
        }
        (keys, None)
    }

    /// Every key with its version and a digest of its executed rmws, in the order of listing.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Bytes, &Held, u64)> {
        self.order.iter().map(|(_, key)| {
            let entry = &self.entries[key];
            (key, &entry.held, entry.executed)
        })
    }
}

fn kind_at(value: Option<&Object>, at_ms: u64) -> TypeName {
    value.filter(|object| !object.expired(at_ms)).map_or(TypeName::None, |object| object.data.type_name())
}

fn size(held: &Held) -> u64 {
    held.value.as_ref().map_or(0, |object| object.footprint() as u64)
}

fn bucket_of(hash: u64) -> usize {
    (hash >> (64 - BUCKETS.trailing_zeros())) as usize
}

/// Mixes what must agree into one word; sums of these are compared.
fn digest_of(hash: u64, entry: &Entry) -> u64 {
    let Entry { held: Held { carstamp, .. }, executed } = entry;
    if *carstamp == Carstamp::default() && *executed == 0 {
        return 0;
    }
    [carstamp.ts, carstamp.id, u64::from(carstamp.rmw_count), *executed].into_iter().fold(
        hash,
        |digest, word| {
            let mixed = (digest ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            mixed ^ mixed >> 29
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(ts: u64) -> Held {
        Held { value: None, carstamp: Carstamp { ts, id: 1, rmw_count: 0 } }
    }

    #[test]
    fn digests_depend_on_content_and_not_on_history() {
        let (mut one, mut other) = (Registers::new(), Registers::new());
        for ts in [1, 5, 9] {
            one.set(&Bytes::from("a"), held(ts));
        }
        one.set_executed(&Bytes::from("b"), 3);
        other.set_executed(&Bytes::from("b"), 3);
        assert_ne!(one.digests(), other.digests());
        other.set(&Bytes::from("a"), held(9));
        assert_eq!(one.digests(), other.digests());
    }

    #[test]
    fn pages_together_list_every_key_once() {
        let mut registers = Registers::new();
        for i in 0..100 {
            registers.set(&Bytes::from(format!("k{i}")), held(1));
        }
        let (mut from, mut seen) = (0, Vec::new());
        loop {
            let (keys, next) = registers.list(from, 7, 0);
            seen.extend(keys.into_iter().map(|listed| listed.key));
            let Some(next) = next else { break };
            from = next;
        }
        assert_eq!(seen.len(), 100);
        let buckets: usize = (0..BUCKETS).map(|bucket| registers.bucket(bucket).len()).sum();
        assert_eq!(buckets, 100);
    }
}
