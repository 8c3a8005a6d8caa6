//! Multi-version storage: for each key its versions by commit timestamp.
//!
//! # Guarantee
//! A read at a time `t` not below the *horizon* finds the newest version that is not younger than `t`, whatever was
//! forgotten. Of each key the newest version is kept for ever, also one that says that the key was deleted: who watches
//! the key must see that it has changed.
//!
//! # Assumptions
//! A key's versions are written in the order of their timestamps, which the locks see to.

use super::message::{Timestamp, TxnId};
use crate::multipaxos::message::Listed;
use crate::notices::Notices;
use crate::object::{Object, State};
use crate::topology::key_hash;
use bytes::Bytes;
use imbl::{OrdMap, OrdSet};
use minicbor::{Decode, Encode};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What a key holds from a time on. The default is what every key holds before its first write.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct Version {
    /// The commit timestamp of the transaction that wrote it.
    #[n(0)]
    pub at: Timestamp,
    /// That transaction.
    #[n(1)]
    pub writer: TxnId,
    /// The state; `None` is an absent key.
    #[n(2)]
    pub value: State,
}

/// For each key the time of the version seen, as a history tells it.
pub(super) fn saw(seen: &BTreeMap<Bytes, Version>) -> Vec<(String, Option<Timestamp>)> {
    let told = |at: Timestamp| (at > 0).then_some(at);
    seen.iter().map(|(key, version)| (String::from_utf8_lossy(key).into_owned(), told(version.at))).collect()
}

/// A key behind its hash: the order of listing.
pub(super) type Place = (u64, Bytes);

/// The most keys in one page of a listing, unless more have the same hash.
const LIST_LIMIT: usize = 10_000;

/// All keys with their versions. A clone shares its structure.
#[derive(Clone, Debug, Default)]
pub struct Versions {
    keys: OrdMap<Place, Arc<Vec<Version>>>,
    /// Versions that are not their key's newest, by the time at which the next one was written.
    replaced: OrdSet<(Timestamp, Place)>,
    /// Reads below this time are not served.
    horizon: Timestamp,
    /// Approximate bytes of keys and values.
    bytes: u64,
    /// Keys that have changed since the last checkpoint.
    changed: BTreeSet<Place>,
    pub(super) notices: Notices,
}

fn place(key: &Bytes) -> Place {
    (key_hash(key), key.clone())
}

fn footprint(version: &Version) -> u64 {
    let value = version.value.as_ref().map_or(0, Object::footprint);
    (size_of::<Version>() + value) as u64
}

impl Versions {
    /// How many keys are held, deleted ones included.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether nothing was ever written.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Approximate bytes of keys and values.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Reads below this time are not served.
    pub fn horizon(&self) -> Timestamp {
        self.horizon
    }

    /// The newest version of a key that is not younger than `at`.
    pub fn read(&self, key: &Bytes, at: Timestamp) -> Version {
        let Some(versions) = self.keys.get(&place(key)) else { return Version::default() };
        let upto = versions.partition_point(|version| version.at <= at);
        upto.checked_sub(1).map_or_else(Version::default, |last| versions[last].clone())
    }

    /// Writes a version, younger than all of its key.
    pub fn write(&mut self, key: &Bytes, version: Version) {
        let place = place(key);
        self.bytes += footprint(&version);
        self.notices.note(key, &version.value);
        self.changed.insert(place.clone());
        let Some(versions) = self.keys.get_mut(&place) else {
            self.bytes += key.len() as u64;
            self.keys.insert(place, Arc::new(vec![version]));
            return;
        };
        let newest = versions.last().map_or(0, |newest| newest.at);
        assert!(newest < version.at, "a key's versions are written in the order of their timestamps");
        self.replaced.insert((version.at, place));
        Arc::make_mut(versions).push(version);
    }

    /// Serves no reads below `horizon` any more, and forgets the versions that only those could see.
    pub fn collect(&mut self, horizon: Timestamp) {
        self.horizon = self.horizon.max(horizon);
        while let Some((at, place)) = self.replaced.get_min().cloned()
            && at <= self.horizon
        {
            self.replaced.remove(&(at, place.clone()));
            let Some(versions) = self.keys.get_mut(&place) else { continue };
            let gone = versions.partition_point(|version| version.at < at);
            for version in Arc::make_mut(versions).drain(..gone) {
                self.bytes -= footprint(&version);
            }
            self.changed.insert(place);
        }
    }

    /// Keys that have changed since this was last asked, with their versions.
    pub(super) fn take_changed(&mut self) -> Vec<(Bytes, Vec<Version>)> {
        let changed = std::mem::take(&mut self.changed).into_iter();
        let held = changed.filter_map(|place| {
            let versions = self.keys.get(&place)?.to_vec();
            Some((place.1, versions))
        });
        held.collect()
    }

    /// Takes a key's versions back, as they were stored.
    pub(super) fn restore(&mut self, key: &Bytes, versions: Vec<Version>) {
        let place = place(key);
        if let Some(newest) = versions.last() {
            self.notices.note(key, &newest.value);
        }
        self.bytes += key.len() as u64 + versions.iter().map(footprint).sum::<u64>();
        self.replaced.extend(versions.iter().skip(1).map(|version| (version.at, place.clone())));
        self.keys.insert(place, Arc::new(versions));
    }

    /// Forgets everything, to become what will be restored; what was there counts as changed.
    pub(super) fn clear(&mut self) {
        self.changed.extend(self.keys.keys().cloned());
        (self.keys, self.replaced, self.bytes, self.horizon) = (OrdMap::new(), OrdSet::new(), 0, 0);
    }

    /// All that is there counts as changed.
    pub(super) fn touch_all(&mut self) {
        self.changed.extend(self.keys.keys().cloned());
    }

    /// Keys with their versions in the order of listing, after a key.
    pub(super) fn after(&self, key: Option<&Bytes>) -> impl Iterator<Item = (&Bytes, &[Version])> {
        let skip = key.map(place);
        let from = skip.clone().unwrap_or_default();
        let all = self.keys.range(from..).filter(move |(place, _)| Some(*place) != skip.as_ref());
        all.map(|(place, versions)| (&place.1, versions.as_slice()))
    }

    /// About `count` keys that are there at time `at`, from hash `from` on, and the hash at which the next page begins.
    /// Keys of equal hash are never separated. Expiry is judged by `at_ms`.
    pub fn list(&self, at: Timestamp, from: u64, count: usize, at_ms: u64) -> (Vec<Listed>, Option<u64>) {
        let count = count.clamp(1, LIST_LIMIT);
        let mut keys: Vec<Listed> = Vec::new();
        let mut last = from;
        for ((hash, key), versions) in self.keys.range((from, Bytes::new())..) {
            if keys.len() >= count && *hash != last {
                return (keys, Some(*hash));
            }
            last = *hash;
            let seen = versions.iter().rev().find(|version| version.at <= at);
            let object = seen.and_then(|version| version.value.as_ref());
            if let Some(object) = object.filter(|object| !object.expired(at_ms)) {
                keys.push(Listed { key: key.clone(), kind: object.data.type_name() });
            }
        }
        (keys, None)
    }
}
