//! Carstamps: consensus-after-register timestamps (Gryff §3.2).

use crate::history::Witness;
use crate::object::{State, Version};
use crate::topology::ClientId;
use bytes::Bytes;
use minicbor::{Decode, Encode};
use std::fmt;

/// The place of an update in the order of its key. Plain lexicographic order: the comparison printed in
/// Gryff §3.2 compares an id with an rmw count in its third clause.
///
/// An rmw on base `u` has `u`'s timestamp and id and one more in the count, so that nothing fits between the
/// two. The initial carstamp is below every other; real writes have timestamps from 1.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct Carstamp {
    /// Logical timestamp, picked by the write's coordinator above all that a quorum has shown.
    #[n(0)]
    pub ts: u64,
    /// The client that coordinated the write, or 0 in the initial carstamp.
    #[n(1)]
    pub id: u64,
    /// How many rmws have followed the write without another write between.
    #[n(2)]
    pub rmw_count: u32,
}

impl Carstamp {
    /// The carstamp of a write.
    pub fn of_write(ts: u64, client: ClientId) -> Self {
        Self { ts, id: client.0, rmw_count: 0 }
    }

    /// The carstamp of an rmw on this base, or `None` when its 2^32 - 1 rmws are used up.
    pub fn next_rmw(self) -> Option<Self> {
        self.rmw_count.checked_add(1).map(|rmw_count| Self { rmw_count, ..self })
    }

    /// Whether a write made this version, rather than an rmw or nobody.
    pub fn is_write(self) -> bool {
        self.ts > 0 && self.rmw_count == 0
    }

    /// As a version for `WATCH`.
    pub fn version(self) -> Version {
        Version(self.ts, self.id, self.rmw_count)
    }

    /// As the witness of an operation in a history.
    pub fn witness(self) -> Witness {
        Witness::Cs((self.ts, self.id, self.rmw_count))
    }
}

impl fmt::Debug for Carstamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({}, {:?}, {})", self.ts, ClientId(self.id), self.rmw_count)
    }
}

/// A version of a key: a value with its carstamp. The default is what every key holds before its first update.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct Held {
    /// The value; `None` is an absent or deleted key.
    #[n(0)]
    pub value: State,
    /// Its place in the key's order.
    #[n(1)]
    pub carstamp: Carstamp,
}

/// A version of a named key.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct Keyed {
    /// The key.
    #[n(0)]
    #[cbor(with = "crate::wire::blob")]
    pub key: Bytes,
    /// The version.
    #[n(1)]
    pub held: Held,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_carstamp() -> impl Strategy<Value = Carstamp> {
        (0..4_u64, 0..4_u64, 0..4_u32).prop_map(|(ts, id, rmw_count)| Carstamp { ts, id, rmw_count })
    }

    proptest! {
        /// The cover property: no carstamp lies between a base and its rmw.
        #[test]
        fn nothing_fits_between_a_base_and_its_rmw(base in any_carstamp(), other in any_carstamp()) {
            let rmw = base.next_rmw().unwrap();
            prop_assert!(base < rmw);
            prop_assert!(other <= base || other >= rmw);
        }
    }

    #[test]
    fn equal_timestamps_are_ordered_by_id_before_rmw_count() {
        let low = Carstamp { ts: 3, id: 1, rmw_count: 9 };
        let high = Carstamp { ts: 3, id: 2, rmw_count: 0 };
        assert!(low < high);
        assert!(Carstamp { rmw_count: u32::MAX, ..low }.next_rmw().is_none());
    }
}
