//! A store that lives as long as its process.

use crate::{Batch, Store, StoreError};
use std::collections::BTreeMap;

/// Pairs in memory: for tests, and for clusters that say at start that nothing outlives them.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    pairs: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Memory {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Store for Memory {
    fn commit(&mut self, batch: &Batch) -> Result<(), StoreError> {
        for (key, value) in batch.changes() {
            match value {
                Some(value) => self.pairs.insert(key.to_vec(), value.to_vec()),
                None => self.pairs.remove(key),
            };
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    fn for_each(&self, prefix: &[u8], visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<(), StoreError> {
        for (key, value) in self.pairs.range(prefix.to_vec()..).take_while(|(key, _)| key.starts_with(prefix))
        {
            visit(key, value);
        }
        Ok(())
    }
}
