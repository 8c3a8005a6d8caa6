//! Ordered bytes to bytes, written in atomic batches.
//!
//! A host keeps its replicas' records here. What it asks of a store is little: apply a [`Batch`] whole or not
//! at all, make it durable, and give everything back after a crash. [`Log`] is the one on disk, [`Memory`]
//! forgets with the process, and [`Crashable`] loses on command what was not yet durable.

mod batch;
mod crashable;
mod log;
mod memory;

pub use batch::{Batch, Change};
pub use crashable::Crashable;
pub use log::{Log, Options, Stamp};
pub use memory::Memory;

use std::io;
use std::path::PathBuf;

/// Ordered bytes to bytes.
pub trait Store {
    /// Applies the batch, all of it or nothing. Whether it is durable on return is the store's mode; where it
    /// is not, [`Store::sync`] makes it so.
    ///
    /// # Errors
    /// After an error the store is poisoned: what it holds on disk is no longer known, every later call fails,
    /// and only opening it again finds out.
    fn commit(&mut self, batch: &Batch) -> Result<(), StoreError>;

    /// Makes durable all that was committed.
    ///
    /// # Errors
    /// As [`Store::commit`].
    fn sync(&mut self) -> Result<(), StoreError>;

    /// Called now and then: a store that has been idle since the last time says on disk that what it holds is whole, so that
    /// damage to the last batch can be told from a crash that cut it short.
    ///
    /// # Errors
    /// As [`Store::commit`].
    fn vouch(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Gives every pair whose key begins with `prefix` to `visit`, in the order of keys.
    ///
    /// # Errors
    /// What could not be read.
    fn for_each(&self, prefix: &[u8], visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<(), StoreError>;

    /// What an operator wants to know of it.
    fn status(&self) -> StoreStatus {
        StoreStatus::default()
    }
}

/// Figures of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStatus {
    /// How often data were forced to disk.
    pub syncs: u64,
    /// How long that has taken in all, in microseconds.
    pub sync_us: u64,
    /// Bytes written, copies made by compaction included.
    pub written: u64,
    /// Bytes in use on disk.
    pub used: u64,
    /// Of these, bytes of pairs that still stand.
    pub live: u64,
}

/// Why a store cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The operating system refused.
    #[error("{}: cannot {what}: {source}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// What is on disk is not what was written.
    #[error(
        "{}: damaged at byte {offset}: {why}: treat this replica's disk as lost; the other replicas still serve, and an old copy in its place would silently lose acknowledged writes",
        path.display()
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Where in it.
        offset: u64,
        /// What is wrong.
        why: String,
    },
    /// Another process has the directory.
    #[error("{}: in use by another process: stop that one, or choose another directory", path.display())]
    Locked {
        /// The directory.
        path: PathBuf,
    },
    /// The directory is not this node's.
    #[error("{}: {why}", path.display())]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// Whose it is.
        why: String,
    },
    /// A pair is whole and yet makes no sense to its reader.
    #[error(
        "{0}: use the version that wrote it; if that cannot read it either, treat this replica's disk as lost"
    )]
    Record(String),
    /// An earlier error stands.
    #[error("the store stopped after an error ({0}): restart the node when its cause is gone")]
    Poisoned(String),
}
