//! Retwis, a clone of Twitter, as transactions: the RSS/RSC paper's workload (§6), with the sizes that the benchmark of
//! TAPIR gave them. Three of them read and write in one transaction, the fourth only reads.

use super::registers::{numbered, zipf_of};
use super::{Drawer, Operation, set, value_of};
use crate::definition;
use bytes::Bytes;
use meridian_protocol::machine::{Level, Request, Together};
use meridian_protocol::object::{Command, SetAnswer};
use rand::RngExt;
use rand_distr::{Distribution, Zipf};

/// Among a hundred transactions how many are of each kind, how many keys each reads, and how many it writes. A key that is
/// both read and written is one key.
pub(super) const SHARES: [(u32, usize, usize); 3] = [
    // Add a user.
    (5, 1, 3),
    // Follow, or stop following.
    (15, 2, 2),
    // Post a tweet.
    (30, 3, 5),
];

/// The most keys that loading a timeline reads; at least one.
pub(super) const TIMELINE: usize = 10;

#[derive(Debug)]
pub(crate) struct Retwis {
    zipf: Zipf<f64>,
    value: Bytes,
}

impl Retwis {
    pub(super) fn new(definition: &definition::Retwis) -> Self {
        Self { zipf: zipf_of(definition.keys, definition.theta), value: value_of(64) }
    }

    pub(super) fn draw(&mut self, drawer: &mut Drawer<'_>) -> Operation {
        let mut choice = drawer.random.random_range(0..100);
        for (share, reads, writes) in SHARES {
            if choice < share {
                return self.transaction("rw", reads, writes, drawer);
            }
            choice -= share;
        }
        let reads = drawer.random.random_range(1..=TIMELINE);
        self.transaction("ro", reads, 0, drawer)
    }

    fn transaction(
        &self,
        label: &'static str,
        reads: usize,
        writes: usize,
        drawer: &mut Drawer<'_>,
    ) -> Operation {
        let keys = self.different(reads.max(writes), drawer);
        let gets = keys.iter().take(reads).map(|key| (key.clone(), Command::Get));
        let puts = keys.iter().take(writes).map(|key| (key.clone(), set(&self.value, SetAnswer::Ok)));
        let steps = gets.chain(puts).collect();
        let together = Together {
            steps,
            watched: Vec::new(),
            at_ms: drawer.at_ms,
            snapshot: None,
            level: Level::default(),
        };
        Operation { label, request: Request::Together(together), away: 0 }
    }

    fn different(&self, count: usize, drawer: &mut Drawer<'_>) -> Vec<Bytes> {
        let mut keys: Vec<Bytes> = Vec::with_capacity(count);
        while keys.len() < count {
            let key = numbered(self.zipf.sample(drawer.random) as u64);
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        keys
    }
}
