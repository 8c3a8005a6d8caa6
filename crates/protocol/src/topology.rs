//! Logical addresses: who takes part in a protocol. Where they run is the host's business.

use minicbor::{Decode, Encode};
use std::fmt;

/// A region: one data centre, counted from 0 in the order of the configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct Region(#[n(0)] pub u8);

impl Region {
    /// The region as an index into per-region arrays.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// One region's copy of one partition of one keyspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct ReplicaId {
    /// The keyspace's number, as in `SELECT`.
    #[n(0)]
    pub keyspace: u16,
    /// The partition, in `0..partitions` of the keyspace.
    #[n(1)]
    pub partition: u16,
    /// The region that holds this copy.
    #[n(2)]
    pub region: Region,
}

/// One client machine in one life of one node; part of every carstamp that it writes.
///
/// Packed as node (12 bits, from 1), incarnation (24 bits) and slot (28 bits), so that it is never 0 and a
/// restarted node never reuses one: the host bumps the incarnation durably before it first sends.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct ClientId(#[n(0)] pub u64);

impl ClientId {
    /// Packs the parts; bits beyond a part's width are cut off. `node` counts from 1.
    pub fn new(node: u16, incarnation: u32, slot: u32) -> Self {
        let node = u64::from(node) & 0xfff;
        debug_assert!(node > 0, "nodes count from 1, so that no client is 0");
        Self(node << 52 | (u64::from(incarnation) & 0xff_ffff) << 28 | u64::from(slot) & 0xfff_ffff)
    }

    /// The node on which the client lives, counted from 1.
    pub fn node(self) -> u16 {
        (self.0 >> 52) as u16
    }

    /// How often that node had started when the client was made.
    pub fn incarnation(self) -> u32 {
        (self.0 >> 28 & 0xff_ffff) as u32
    }

    /// The client's place in the node's table of clients.
    pub fn slot(self) -> u32 {
        (self.0 & 0xfff_ffff) as u32
    }
}

impl fmt::Debug for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "c{}.{}.{}", self.node(), self.incarnation(), self.slot())
    }
}

/// Where a message comes from or goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub enum Address {
    /// A replica machine.
    #[n(0)]
    Replica(#[n(0)] ReplicaId),
    /// A client machine. Its keyspace travels with it, as one slot has a machine per keyspace.
    #[n(1)]
    Client(#[n(0)] u16, #[n(1)] ClientId),
}

impl Address {
    /// The keyspace in which the machine lives.
    pub fn keyspace(self) -> u16 {
        match self {
            Self::Replica(replica) => replica.keyspace,
            Self::Client(keyspace, _) => keyspace,
        }
    }
}

/// A keyspace as its machines see it: how many copies and slices there are, and which copies are near.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The keyspace's number.
    pub keyspace: u16,
    /// Hash slices, at least 1.
    pub partitions: u16,
    /// Copies of each partition, one a region: 2f+1.
    pub regions: u8,
}

impl Group {
    /// The partition that holds `key`.
    pub fn partition_of(&self, key: &[u8]) -> u16 {
        partition_of_hash(key_hash(key), self.partitions)
    }

    /// The replica of `partition` in `region`.
    pub fn replica(&self, partition: u16, region: Region) -> ReplicaId {
        ReplicaId { keyspace: self.keyspace, partition, region }
    }

    /// How many replicas a majority has: f+1 of 2f+1.
    pub fn majority(&self) -> usize {
        usize::from(self.regions) / 2 + 1
    }
}

/// The hash that places keys in partitions and orders them in scans: FNV-1a with a final mix, fixed for
/// ever because it decides where data lies.
pub fn key_hash(key: &[u8]) -> u64 {
    let fnv = key.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let mixed = (fnv ^ fnv >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    mixed ^ mixed >> 33
}

/// The partition of so many that holds the keys of that hash. Partitions are slices of the hash in order, so
/// that a walk by hash goes through one after the other.
pub fn partition_of_hash(hash: u64, partitions: u16) -> u16 {
    (((hash >> 32) * u64::from(partitions)) >> 32) as u16
}

/// The lowest hash of a partition of so many.
pub fn first_hash(partition: u16, partitions: u16) -> u64 {
    (u64::from(partition) << 32).div_ceil(u64::from(partitions)) << 32
}

/// A set of regions, as the bits of one word: who has answered, who holds a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
pub struct RegionSet(#[n(0)] u64);

impl RegionSet {
    /// The set of one.
    pub fn of(region: Region) -> Self {
        Self(1 << region.0)
    }

    /// Adds a region; true if it was not in the set. Counting distinct replicas, never messages, is what
    /// keeps a retransmission from faking a quorum.
    pub fn insert(&mut self, region: Region) -> bool {
        let before = self.0;
        self.0 |= 1 << region.0;
        self.0 != before
    }

    /// Whether the region is in the set.
    pub fn contains(self, region: Region) -> bool {
        self.0 >> region.0 & 1 == 1
    }

    /// How many regions are in the set.
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether no region is in the set.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_ids_keep_their_parts() {
        let id = ClientId::new(4095, 0xff_ffff, 0xfff_ffff);
        assert_eq!((id.node(), id.incarnation(), id.slot()), (4095, 0xff_ffff, 0xfff_ffff));
        assert!(ClientId::new(1, 0, 0).0 > 0);
    }

    #[test]
    fn partitions_are_even_and_fixed() {
        let group = Group { keyspace: 0, partitions: 4, regions: 3 };
        let mut counts = [0; 4];
        for i in 0..10_000 {
            counts[usize::from(group.partition_of(format!("key{i}").as_bytes()))] += 1;
        }
        assert!(counts.iter().all(|count| (2_300..2_700).contains(count)), "{counts:?}");
        assert_eq!(key_hash(b"meridian"), key_hash(b"meridian"));
    }

    #[test]
    fn partitions_are_slices_of_the_hash() {
        for partitions in [1, 2, 3, 4, 7, 100, u16::MAX] {
            assert_eq!(first_hash(0, partitions), 0);
            assert_eq!(partition_of_hash(u64::MAX, partitions), partitions - 1);
            for partition in 1..partitions.min(1000) {
                let first = first_hash(partition, partitions);
                assert_eq!(partition_of_hash(first, partitions), partition);
                assert_eq!(partition_of_hash(first - 1, partitions), partition - 1);
            }
        }
    }

    #[test]
    fn duplicates_do_not_count() {
        let mut set = RegionSet::of(Region(2));
        assert!(!set.insert(Region(2)));
        assert!(set.insert(Region(0)));
        assert_eq!(set.len(), 2);
    }
}
