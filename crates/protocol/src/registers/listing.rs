//! Keys as replicas list them to clients.

use super::carstamp::Carstamp;
use crate::object::TypeName;
use crate::topology::{Region, key_hash};
use bytes::Bytes;
use minicbor::{Decode, Encode};
use std::collections::BTreeMap;

/// A key in a listing.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct Listed {
    /// The key.
    #[n(0)]
    #[cbor(with = "crate::wire::blob")]
    pub key: Bytes,
    /// The version that the lister holds.
    #[n(1)]
    pub carstamp: Carstamp,
    /// The type of its value, `TypeName::None` for a tombstone.
    #[n(2)]
    pub kind: TypeName,
}

/// Puts the pages of a quorum together: of each key the newest version says whether it is there. The page ends
/// where the shortest reply ends, as beyond it not all of the quorum have spoken.
pub(crate) fn merge_pages(
    replies: &BTreeMap<Region, (Vec<Listed>, Option<u64>)>,
) -> (Vec<(Bytes, &'static str)>, Option<u64>) {
    let next = replies.values().filter_map(|(_, next)| *next).min();
    let mut newest: BTreeMap<(u64, &Bytes), &Listed> = BTreeMap::new();
    for listed in replies.values().flat_map(|(keys, _)| keys) {
        let hash = key_hash(&listed.key);
        if next.is_some_and(|next| hash >= next) {
            continue;
        }
        let entry = newest.entry((hash, &listed.key)).or_insert(listed);
        if listed.carstamp > entry.carstamp {
            *entry = listed;
        }
    }
    let present = newest.into_values().filter(|listed| listed.kind != TypeName::None);
    (present.map(|listed| (listed.key.clone(), listed.kind.as_str())).collect(), next)
}
