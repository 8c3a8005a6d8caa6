//! A write as it is replicated and stored, in every engine that has versions and streams.

use super::replication::Write;
use super::vector::{Vector, VersionId};
use crate::object::State;
use crate::wire::Wire;
use bytes::Bytes;
use minicbor::{Decode, Encode};

/// What a write depends on, as its engine says it.
pub trait Dependencies: Wire {
    /// About how many bytes that takes.
    fn bytes(&self) -> usize;
}

/// A vector's entry of the region of the write is the write's own timestamp.
impl Dependencies for Vector {
    fn bytes(&self) -> usize {
        64
    }
}

/// A write.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct Update<D> {
    /// The key.
    #[n(0)]
    #[cbor(with = "crate::wire::blob")]
    pub key: Bytes,
    /// The version.
    #[n(1)]
    pub id: VersionId,
    /// What it depends on: nobody sees it who may not see that.
    #[n(2)]
    pub dependencies: D,
    /// The value; `None` is a tombstone.
    #[n(3)]
    pub value: State,
}

impl<D: Dependencies> Write for Update<D> {
    fn ts(&self) -> u64 {
        self.id.ts
    }

    fn bytes(&self) -> usize {
        let value = self.value.as_ref().map_or(0, |object| object.data.bytes());
        self.key.len() + value + self.dependencies.bytes()
    }
}
