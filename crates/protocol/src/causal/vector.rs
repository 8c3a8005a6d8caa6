//! Vectors with one timestamp a region, and names of versions.

use crate::history;
use crate::topology::Region;
use minicbor::{Decode, Encode};

/// One timestamp a region: what a version depends on, what a snapshot holds, how far streams have come.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(transparent)]
pub struct Vector(#[n(0)] Vec<u64>);

impl Vector {
    /// All zero: below everything.
    pub fn zero(regions: u8) -> Self {
        Self(vec![0; usize::from(regions)])
    }

    /// With these entries.
    pub fn of(entries: Vec<u64>) -> Self {
        Self(entries)
    }

    /// The entry of a region; 0 beyond the vector's end, so that a peer's short one does no harm.
    pub fn get(&self, region: Region) -> u64 {
        self.0.get(region.index()).copied().unwrap_or(0)
    }

    /// Sets the entry of a region.
    pub fn set(&mut self, region: Region, at: u64) {
        if let Some(entry) = self.0.get_mut(region.index()) {
            *entry = at;
        }
    }

    /// With another entry for one region.
    #[must_use]
    pub fn with(mut self, region: Region, at: u64) -> Self {
        self.set(region, at);
        self
    }

    /// Raises each entry to at least the other's. What a longer vector has beyond this one's end is of no region.
    pub fn join(&mut self, other: &Self) {
        for (own, other) in self.0.iter_mut().zip(&other.0) {
            *own = (*own).max(*other);
        }
    }

    /// As [`Vector::join`], but for one region's entry.
    pub fn join_but(&mut self, other: &Self, region: Region) {
        let own = self.get(region);
        self.join(other);
        self.set(region, own);
    }

    /// Lowers each entry to at most the other's.
    pub fn meet(&mut self, other: &Self) {
        for (region, own) in self.0.iter_mut().enumerate() {
            *own = (*own).min(other.0.get(region).copied().unwrap_or(0));
        }
    }

    /// Whether no entry of the other is higher.
    pub fn covers(&self, other: &Self) -> bool {
        other.0.iter().enumerate().all(|(region, at)| *at <= self.0.get(region).copied().unwrap_or(0))
    }

    /// As [`Vector::covers`], whatever the entries of one region are.
    pub fn covers_but(&self, other: &Self, region: Region) -> bool {
        let but = |(index, at): (usize, &u64)| {
            index == region.index() || *at <= self.0.get(index).copied().unwrap_or(0)
        };
        other.0.iter().enumerate().all(but)
    }

    /// The highest entry.
    pub fn highest(&self) -> u64 {
        self.0.iter().copied().max().unwrap_or(0)
    }

    /// The lowest entry.
    pub fn lowest(&self) -> u64 {
        self.0.iter().copied().min().unwrap_or(0)
    }

    /// Every entry the same.
    #[must_use]
    pub fn all(&self, at: u64) -> Self {
        Self(vec![at; self.0.len()])
    }

    /// As a witness has it.
    pub fn to_vec(&self) -> Vec<u64> {
        self.0.clone()
    }
}

/// Names a version of a key, and is its place in the order of writes: the greatest wins. Timestamps are above those of
/// all that a write depends on, in whichever region that was written, so that this order extends causality.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct VersionId {
    /// The origin's timestamp.
    #[n(0)]
    pub ts: u64,
    /// The region in which it was written.
    #[n(1)]
    pub region: Region,
}

impl VersionId {
    /// As a witness names it: with the partition, because two partitions of one region may use one timestamp.
    pub fn of_partition(self, partition: u16) -> history::Version {
        (self.ts, u32::from(self.region.0), u32::from(partition))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vector(entries: &[u64]) -> Vector {
        Vector(entries.to_vec())
    }

    #[test]
    fn order_is_entry_by_entry() {
        let (low, high) = (vector(&[1, 5, 3]), vector(&[1, 6, 3]));
        assert!(high.covers(&low) && high.covers(&high) && !low.covers(&high));
        assert!(low.covers_but(&high, Region(1)) && !low.covers_but(&high, Region(0)));
        let mut joined = vector(&[9, 0, 0]);
        joined.join(&high);
        assert_eq!(joined, vector(&[9, 6, 3]));
        joined.join_but(&vector(&[20, 20, 20]), Region(2));
        assert_eq!(joined, vector(&[20, 20, 3]));
        joined.meet(&low);
        assert_eq!(joined, low);
    }

    #[test]
    fn a_peers_vector_of_another_length_does_no_harm() {
        let mut own = vector(&[1, 2]);
        own.join(&vector(&[5, 0, 77]));
        assert_eq!(own, vector(&[5, 2]));
        own.join(&vector(&[]));
        assert!(own.covers(&vector(&[5])) && !own.covers(&vector(&[0, 0, 1])));
        own.set(Region(9), 4);
        assert_eq!((own.get(Region(9)), own.highest()), (0, 5));
    }
}
