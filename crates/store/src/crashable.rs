//! A store that crashes on command: the simulator's disk.

use crate::{Batch, Memory, Store, StoreError};
use std::collections::VecDeque;

/// A store whose batches are durable only once [`Store::sync`] was called; [`Crashable::crash`] drops the rest.
///
/// Reading shows what is durable, as reading happens after a crash.
#[derive(Clone, Debug, Default)]
pub struct Crashable {
    durable: Memory,
    /// Committed and not yet durable, oldest first.
    volatile: VecDeque<Batch>,
}

impl Crashable {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many batches a crash would endanger.
    pub fn at_risk(&self) -> usize {
        self.volatile.len()
    }

    /// Crashes: of the batches at risk the first `survivors` had reached the disk, the others are gone. No batch
    /// survives in part, which is what a checksum over each is for.
    pub fn crash(&mut self, survivors: usize) {
        for batch in self.volatile.drain(..).take(survivors) {
            apply(&mut self.durable, &batch);
        }
    }
}

impl Store for Crashable {
    fn commit(&mut self, batch: &Batch) -> Result<(), StoreError> {
        if !batch.is_empty() {
            self.volatile.push_back(batch.clone());
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        for batch in self.volatile.drain(..) {
            apply(&mut self.durable, &batch);
        }
        Ok(())
    }

    fn for_each(&self, prefix: &[u8], visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<(), StoreError> {
        self.durable.for_each(prefix, visit)
    }
}

fn apply(pairs: &mut Memory, batch: &Batch) {
    pairs.commit(batch).expect("memory does not fail");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(store: &Crashable) -> Vec<Vec<u8>> {
        let mut keys = Vec::new();
        store.for_each(b"", &mut |key, _| keys.push(key.to_vec())).unwrap();
        keys
    }

    #[test]
    fn a_crash_keeps_what_was_synced_and_a_prefix_of_the_rest() {
        let mut store = Crashable::new();
        for (i, key) in [b"a", b"b", b"c", b"d"].into_iter().enumerate() {
            let mut batch = Batch::new();
            batch.put(key, b"");
            store.commit(&batch).unwrap();
            if i == 0 {
                store.sync().unwrap();
            }
        }
        assert_eq!(store.at_risk(), 3);
        let mut torn = store.clone();
        torn.crash(1);
        assert_eq!(keys(&torn), [b"a", b"b"]);
        store.crash(0);
        assert_eq!(keys(&store), [b"a"]);
        assert_eq!(store.at_risk(), 0);
    }
}
