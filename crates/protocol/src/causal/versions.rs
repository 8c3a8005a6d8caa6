//! The versions that a replica holds: for each key a chain in the order of writes.

use super::message::Listed;
use super::vector::VersionId;
use crate::Map;
use crate::object::{Object, State};
use crate::topology::key_hash;
use crate::wire;
use bytes::Bytes;
use std::collections::{BTreeSet, VecDeque};

/// How many keys are looked at for what may be forgotten, at a time.
const AT_A_TIME: usize = 50_000;

/// A key is looked at only every so many times that there is something to forget: seldom is there sooner.
const WAIT: u64 = 4;

/// The most keys in one page of a listing, unless more have the same hash.
const LIST_LIMIT: usize = 10_000;

/// A version of a key, with what an engine must know about it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Version<M> {
    pub(crate) id: VersionId,
    /// `None` is a tombstone.
    pub(crate) value: State,
    pub(crate) meta: M,
}

/// A key's versions.
#[derive(Clone, Debug)]
struct Chain<M> {
    /// Ascending by id, never empty.
    versions: Vec<Version<M>>,
    /// The key is among the crowded ones.
    crowded: bool,
}

/// All chains.
#[derive(Clone, Debug)]
pub(crate) struct Chains<M> {
    of_key: Map<Bytes, Chain<M>>,
    /// Keys in the order in which they are listed.
    order: BTreeSet<(u64, Bytes)>,
    /// Keys of which something may be forgotten some time, those with several versions or with a tombstone, each with the
    /// call of [`Chains::prune`] before which it was put here or looked at: in that order.
    crowded: VecDeque<(u64, Bytes)>,
    /// How often there was such a call.
    prunings: u64,
    /// Approximate bytes of keys and values.
    pub(crate) bytes: u64,
    /// How many versions there are.
    pub(crate) count: u64,
}

impl<M> Chain<M> {
    /// Whether something of it may be forgotten some time.
    fn may_shrink(&self) -> bool {
        self.versions.len() > 1 || self.versions.first().is_some_and(|version| version.value.is_none())
    }
}

impl<M> Chains<M> {
    pub(crate) fn new() -> Self {
        Self {
            of_key: Map::default(),
            order: BTreeSet::new(),
            crowded: VecDeque::new(),
            prunings: 0,
            bytes: 0,
            count: 0,
        }
    }

    /// How many keys have versions, tombstones included.
    pub(crate) fn keys(&self) -> usize {
        self.of_key.len()
    }

    /// Adds a version; nothing happens if it is there.
    pub(crate) fn insert(&mut self, key: &Bytes, version: Version<M>) -> bool {
        let chain = self.of_key.entry_ref(key).or_insert_with(|| {
            self.order.insert((key_hash(key), key.clone()));
            self.bytes += key.len() as u64;
            Chain { versions: Vec::new(), crowded: false }
        });
        let place = chain.versions.partition_point(|other| other.id < version.id);
        if chain.versions.get(place).is_some_and(|other| other.id == version.id) {
            return false;
        }
        self.bytes += size(&version);
        self.count += 1;
        chain.versions.insert(place, version);
        if !chain.crowded && chain.may_shrink() {
            chain.crowded = true;
            self.crowded.push_back((self.prunings, key.clone()));
        }
        true
    }

    /// A key's versions, the oldest first.
    pub(crate) fn of(&self, key: &[u8]) -> &[Version<M>] {
        self.of_key.get(key).map_or(&[], |chain| &chain.versions)
    }

    /// The newest version of a key among those that are `visible`.
    pub(crate) fn newest(&self, key: &[u8], visible: impl Fn(&Version<M>) -> bool) -> Option<&Version<M>> {
        self.of(key).iter().rev().find(|version| visible(version))
    }

    /// The version of that name.
    pub(crate) fn get(&self, key: &[u8], id: VersionId) -> Option<&Version<M>> {
        let chain = self.of(key);
        chain.binary_search_by_key(&id, |version| version.id).ok().map(|place| &chain[place])
    }

    /// Forgets, in each chain, all versions before the newest one that is `settled`: that one or a newer one is in
    /// whatever is still read. If it is the last of its chain, and a tombstone that is `over`, it goes too. Answers
    /// what was forgotten.
    pub(crate) fn prune(
        &mut self,
        settled: impl Fn(&Version<M>) -> bool,
        over: impl Fn(&Version<M>) -> bool,
    ) -> Vec<(Bytes, VersionId)> {
        let mut forgotten = Vec::new();
        self.prunings += 1;
        for _ in 0..AT_A_TIME {
            let due = |(at, _): &mut (u64, Bytes)| *at + WAIT <= self.prunings;
            let Some((_, key)) = self.crowded.pop_front_if(due) else { break };
            let Some(chain) = self.of_key.get_mut(&key) else { continue };
            if let Some(first) = chain.versions.iter().rposition(&settled) {
                let newest = &chain.versions[first];
                let only_tombstone = first + 1 == chain.versions.len() && newest.value.is_none();
                let end = if only_tombstone && over(newest) { first + 1 } else { first };
                for version in chain.versions.drain(..end) {
                    self.bytes -= size(&version);
                    self.count -= 1;
                    forgotten.push((key.clone(), version.id));
                }
            }
            chain.crowded = chain.may_shrink();
            if chain.crowded {
                self.crowded.push_back((self.prunings, key));
            } else if chain.versions.is_empty() {
                self.of_key.remove(&key);
                self.bytes -= key.len() as u64;
                self.order.remove(&(key_hash(&key), key));
            }
        }
        forgotten
    }

    /// About `count` keys, if a page may have so many, from hash `from` on that have a value among what is `visible` at `at_ms`, and the hash at
    /// which the next page begins. Keys of equal hash are never separated, so a page may be longer.
    pub(crate) fn list(
        &self,
        (from, count, at_ms): (u64, u32, u64),
        visible: impl Fn(&Version<M>) -> bool,
    ) -> (Vec<Listed>, Option<u64>) {
        let count = (count as usize).clamp(1, LIST_LIMIT);
        let mut keys = Vec::new();
        let mut last = from;
        for (hash, key) in self.order.range((from, Bytes::new())..) {
            if keys.len() >= count && *hash != last {
                return (keys, Some(*hash));
            }
            last = *hash;
            let value = self.newest(key, &visible).and_then(|version| version.value.as_ref());
            if let Some(object) = value.filter(|object| !object.expired(at_ms)) {
                keys.push(Listed { key: key.clone(), kind: object.data.type_name() });
            }
        }
        (keys, None)
    }

    /// A digest of the newest version of each key. A tombstone counts as nothing, because one replica may have
    /// forgotten it before the other.
    pub(crate) fn fingerprint(&self) -> u64 {
        let mut buffer = Vec::new();
        self.order.iter().fold(0, |sum: u64, (_, key)| {
            let Some(Version { id, value: Some(object), .. }) = self.of(key).last() else { return sum };
            buffer.clear();
            buffer.extend_from_slice(key);
            wire::encode(id, &mut buffer);
            wire::encode(object, &mut buffer);
            sum.wrapping_add(key_hash(&buffer))
        })
    }
}

fn size<M>(version: &Version<M>) -> u64 {
    let value = version.value.as_ref().map_or(0, Object::footprint);
    (size_of::<Version<M>>() + value) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Data;
    use crate::topology::Region;

    fn version(ts: u64, value: Option<&str>) -> Version<()> {
        let data = |text: &str| Data::Str(Bytes::copy_from_slice(text.as_bytes()));
        let value = value.map(|text| Object::new(data(text), None));
        Version { id: VersionId { ts, region: Region(0) }, value, meta: () }
    }

    fn timestamps(chains: &Chains<()>, key: &str) -> Vec<u64> {
        chains.of(key.as_bytes()).iter().map(|version| version.id.ts).collect()
    }

    #[test]
    fn chains_are_in_the_order_of_writes_however_they_come() {
        let mut chains = Chains::new();
        let key = Bytes::from("k");
        for ts in [5, 1, 9, 5] {
            chains.insert(&key, version(ts, Some("v")));
        }
        assert_eq!((timestamps(&chains, "k"), chains.count), (vec![1, 5, 9], 3));
        assert_eq!(chains.newest(b"k", |version| version.id.ts < 9).map(|v| v.id.ts), Some(5));
        assert_eq!(chains.newest(b"other", |_| true), None);
    }

    /// Prunes until every crowded key was looked at.
    fn prune(chains: &mut Chains<()>, settled: u64, over: bool) -> Vec<u64> {
        let forgotten = (0..WAIT).flat_map(|_| chains.prune(|version| version.id.ts <= settled, |_| over));
        forgotten.map(|(_, id)| id.ts).collect()
    }

    #[test]
    fn what_may_still_be_read_is_kept() {
        let mut chains = Chains::new();
        let key = Bytes::from("k");
        for ts in [1, 5, 9] {
            chains.insert(&key, version(ts, Some("v")));
        }
        assert_eq!(prune(&mut chains, 6, true), [1]);
        assert_eq!(timestamps(&chains, "k"), [5, 9]);
        assert_eq!(prune(&mut chains, 6, true), [0; 0]);
        chains.insert(&key, version(12, None));
        assert_eq!(prune(&mut chains, 20, false), [5, 9]);
        assert_eq!(timestamps(&chains, "k"), [12], "a tombstone stays as long as older writes may come");
        assert_eq!(prune(&mut chains, 20, true), [12]);
        assert_eq!((chains.keys(), chains.bytes, chains.count), (0, 0, 0));
    }

    #[test]
    fn listings_show_values_only_and_agree_with_the_fingerprint() {
        let mut chains = Chains::new();
        for i in 0..50 {
            chains.insert(&Bytes::from(format!("k{i}")), version(1, Some("v")));
        }
        let before = chains.fingerprint();
        chains.insert(&Bytes::from("gone"), version(1, None));
        assert_eq!(chains.fingerprint(), before);
        let (mut from, mut seen) = (0, 0);
        loop {
            let (keys, next) = chains.list((from, 7, 0), |_| true);
            seen += keys.len();
            let Some(next) = next else { break };
            from = next;
        }
        assert_eq!(seen, 50);
    }
}
