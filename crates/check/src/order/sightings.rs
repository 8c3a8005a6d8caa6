//! At which timestamps what was seen, as the readers tell.

use crate::operations::Value;
use std::collections::BTreeMap;

/// A version that was seen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sighting {
    /// What it held.
    pub(super) value: Value,
    /// When the first operation that saw it had returned.
    pub(super) returned: i64,
}

/// All that was seen.
#[derive(Debug)]
pub(super) struct Sightings {
    /// By key and timestamp; not the initial versions.
    pub(super) of: BTreeMap<(usize, u64), Sighting>,
    /// For each key, after which timestamp and before which other no version can be: somebody saw the former as the newest
    /// below the latter.
    empty: Vec<Vec<(u64, u64)>>,
}

impl Sightings {
    pub(super) fn new(keys: usize) -> Self {
        Self { of: BTreeMap::new(), empty: vec![Vec::new(); keys] }
    }

    /// A version (of key and timestamp) was seen as the newest below `until`.
    pub(super) fn add(&mut self, (key, at): (usize, u64), until: u64, sighting: Sighting) {
        self.empty[key].push((at, until));
        if at > 0 {
            let known = self.of.entry((key, at)).or_insert(sighting);
            known.returned = known.returned.min(sighting.returned);
        }
    }

    /// Whether a version of the key may stand there.
    pub(super) fn can_be(&self, key: usize, at: u64) -> bool {
        !self.empty[key].iter().any(|(after, until)| *after < at && at < *until)
    }
}
