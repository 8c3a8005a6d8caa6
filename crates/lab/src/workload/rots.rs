//! Read-only transactions and puts, as in the Contrarian paper (§5.1): a transaction reads one key of each of `p`
//! partitions, chosen at random; a put writes one key.

use super::registers::zipf_of;
use super::{Drawer, Operation, value_of, write};
use crate::definition;
use bytes::Bytes;
use meridian_protocol::machine::{Level, Request, Together};
use meridian_protocol::object::Command;
use meridian_protocol::topology::{key_hash, partition_of_hash};
use rand::RngExt;
use rand::seq::SliceRandom;
use rand_distr::{Distribution, Zipf};

#[derive(Debug)]
pub(crate) struct Rots {
    /// How likely an operation is a put.
    puts: f64,
    spans: usize,
    /// All of them, in the order in which they were last drawn.
    partitions: Vec<u16>,
    zipf: Zipf<f64>,
    value: Bytes,
}

impl Rots {
    pub(super) fn new(definition: &definition::Rots, partitions: u16) -> Self {
        let spans = usize::from(definition.partitions);
        // w counts keys, of which a transaction reads `spans`: w = q / (q + (1 - q) spans), solved for q.
        let w = definition.writes;
        let puts = w * spans as f64 / (1.0 - w + w * spans as f64);
        Self {
            puts,
            spans,
            partitions: (0..partitions).collect(),
            zipf: zipf_of(definition.keys_per_partition, definition.theta),
            value: value_of(definition.value_bytes),
        }
    }

    pub(super) fn draw(&mut self, drawer: &mut Drawer<'_>) -> Operation {
        if drawer.random.random_bool(self.puts) {
            let partition = drawer.random.random_range(0..self.count());
            let key = key_in(partition, self.count(), self.zipf.sample(drawer.random) as u64);
            let action = write(&self.value);
            let request = Request::Act { key, action, at_ms: drawer.at_ms, level: Level::default() };
            return Operation { label: "put", request, away: 0 };
        }
        let count = self.count();
        let (chosen, _) = self.partitions.partial_shuffle(drawer.random, self.spans);
        let mut key = |partition: &u16| key_in(*partition, count, self.zipf.sample(drawer.random) as u64);
        let steps = chosen.iter().map(|partition| (key(partition), Command::Get)).collect();
        let together = Together {
            steps,
            watched: Vec::new(),
            at_ms: drawer.at_ms,
            snapshot: None,
            level: Level::default(),
        };
        Operation { label: "rot", request: Request::Together(together), away: 0 }
    }

    fn count(&self) -> u16 {
        self.partitions.len() as u16
    }
}

/// The key of a rank within a partition: the first of its names that hashes there.
pub(super) fn key_in(partition: u16, partitions: u16, rank: u64) -> Bytes {
    let named = (0_u32..).map(|attempt| format!("r{rank}.{attempt}"));
    let mut there =
        named.filter(|name| partition_of_hash(key_hash(name.as_bytes()), partitions) == partition);
    Bytes::from(there.next().expect("hashes are even: some name has it"))
}
