//! Which keys two replicas hold differently, found by digests of buckets of keys. What a replica missed (a lost
//! message, a time away) reaches it so, without being asked for.

use super::carstamp::Carstamp;
use super::table::Registers;
use bytes::Bytes;
use minicbor::{Decode, Encode};
use std::collections::BTreeMap;

/// What replicas say to each other to find out.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub enum Comparing {
    /// Replica to a peer, from time to time: do we hold the same?
    #[n(0)]
    Compare {
        /// Digest of each bucket of keys, or `None` for one that is changing just now.
        #[n(0)]
        digests: Vec<Option<u64>>,
        /// The bucket whose turn it is to be compared even so.
        #[n(1)]
        turn: u32,
    },
    /// Peer to replica: not in this bucket; this is what I hold there.
    #[n(1)]
    Differ {
        /// The bucket.
        #[n(0)]
        bucket: u32,
        /// Its keys.
        #[n(1)]
        keys: Vec<Compared>,
        /// Whether the receiver should tell its own keys of the bucket in return.
        #[n(2)]
        ask: bool,
    },
}

/// A key as replicas compare it.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct Compared {
    /// The key.
    #[n(0)]
    #[cbor(with = "crate::wire::blob")]
    pub key: Bytes,
    /// The register's version.
    #[n(1)]
    pub carstamp: Carstamp,
    /// Digest of which of its instances are executed; 0 if none.
    #[n(2)]
    pub executed: u64,
}

impl Comparing {
    /// How many digests or keys it carries.
    pub(crate) fn items(&self) -> usize {
        match self {
            Self::Compare { digests, .. } => digests.len(),
            Self::Differ { keys, .. } => keys.len(),
        }
    }
}

/// How many differing buckets are looked into at a time.
const BUCKETS_AT_ONCE: usize = 16;

/// How many keys are sent for one bucket at a time.
const KEYS_AT_ONCE: usize = 1_000;

/// What a replica has shown its peers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Comparison {
    /// Digests at the last comparison: a bucket that has changed since is changing just now.
    shown: Vec<u64>,
    /// How many comparisons there were.
    count: usize,
}

impl Comparison {
    /// Which of so many peers is shown what: each in turn, digests of the buckets that have been quiet since last
    /// time, as what differs in the others is most likely on its way. So that none is left out for ever one more
    /// is shown all the same; which one is the last part.
    pub(crate) fn show(&mut self, registers: &Registers, peers: usize) -> (usize, Vec<Option<u64>>, u32) {
        let current = registers.digests();
        let peers = peers.max(1);
        // Each peer sees each bucket in turn.
        let (peer, turn) = (self.count % peers, self.count / peers % current.len());
        self.count += 1;
        let told = |(bucket, digest): (usize, &u64)| {
            let quiet = self.shown.get(bucket) == Some(digest);
            (quiet || bucket == turn).then_some(*digest)
        };
        let digests = current.iter().enumerate().map(told).collect();
        self.shown = current.to_vec();
        (peer, digests, turn as u32)
    }

    /// The buckets that differ from what a peer shows, as far as they are quiet here too.
    pub(crate) fn differing(&self, registers: &Registers, digests: &[Option<u64>], turn: u32) -> Vec<usize> {
        let current = registers.digests();
        if digests.len() != current.len() {
            return Vec::new();
        }
        let differing = digests.iter().zip(current).enumerate().filter(|(bucket, (theirs, mine))| {
            let quiet = self.shown.get(*bucket) == Some(*mine);
            (quiet || *bucket == turn as usize) && theirs.is_some_and(|theirs| theirs != **mine)
        });
        differing.map(|(bucket, _)| bucket).take(BUCKETS_AT_ONCE).collect()
    }
}

/// The keys of a bucket of which a peer that holds `theirs` may lack something.
pub(crate) fn newer(registers: &Registers, bucket: usize, theirs: &[Compared]) -> Vec<Bytes> {
    let theirs: BTreeMap<_, _> = theirs.iter().map(|k| (&k.key, (k.carstamp, k.executed))).collect();
    let mine = registers.bucket(bucket);
    let newer = mine.into_iter().filter(|compared| {
        let (carstamp, executed) = theirs.get(&compared.key).copied().unwrap_or_default();
        // Of two digests of executed instances neither is the later one: the receiver finds out.
        compared.carstamp > carstamp || (compared.executed != executed && compared.executed != 0)
    });
    newer.take(KEYS_AT_ONCE).map(|compared| compared.key).collect()
}
