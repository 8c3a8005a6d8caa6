//! The order of all versions, key by key, as the witnesses claim it.

use super::{carstamp, timestamp};
use crate::operations::{Op, Operation, Operations};
use crate::sources::Sources;
use meridian_protocol::history::Witness;
use std::collections::{BTreeMap, BTreeSet};

/// Where a version stands among its key's: a carstamp, or a commit timestamp in its place.
pub(crate) type Stamp = (u64, u64, u32);

/// The order of all updates, key by key, as the witnesses state it.
#[derive(Debug)]
pub(crate) struct Versions {
    /// Whether each operation took part: it ended ok, or what it wrote was seen.
    pub(crate) takes_part: Vec<bool>,
    /// For each key its versions in ascending order.
    pub(crate) chains: Vec<BTreeMap<Stamp, Version>>,
    /// Operations of unknown outcome that could have been swapped for another: their place in their session's
    /// order proves nothing.
    pub(crate) interchangeable: BTreeSet<Op>,
    /// Whether something was seen whose place no witness tells, so that it must be searched for.
    pub(crate) unplaced: bool,
}

/// One version of a key.
#[derive(Debug, Default)]
pub(crate) struct Version {
    /// Who made it; `None` for the initial version.
    pub(crate) update: Option<Op>,
    /// Reads that saw it. Read-modify-writes that saw it are the next version's update.
    pub(crate) readers: Vec<Op>,
}

/// Takes the witnesses apart, each service's by their own kind.
///
/// # Errors
/// The first contradiction between witnesses and values, in words.
pub(crate) fn claimed(operations: &Operations<'_>, sources: &Sources) -> Result<Versions, String> {
    let mut versions = Versions {
        takes_part: operations.all.iter().map(Operation::is_ok).collect(),
        chains: (0..operations.keys.len()).map(|_| BTreeMap::new()).collect(),
        interchangeable: BTreeSet::new(),
        unplaced: false,
    };
    let mut of_service: Vec<Vec<Op>> = vec![Vec::new(); operations.services];
    for op in (0..operations.all.len()).filter(|op| !operations.all[*op].touches.is_empty()) {
        of_service[operations.all[op].service].push(op);
    }
    for ops in of_service {
        let timed =
            |op: &Op| matches!(operations.events[*op].witness, Some(Witness::Tc(_) | Witness::Snap(_)));
        if ops.iter().any(timed) {
            timestamp::claim(operations, sources, &ops, &mut versions)?;
        } else {
            carstamp::claim(operations, &ops, &mut versions)?;
        }
    }
    Ok(versions)
}

/// The first operation that ended ok, touched a key, and carries no witness of its place that fits it.
pub(crate) fn first_without_witness(operations: &Operations<'_>) -> Option<Op> {
    (0..operations.all.len()).find(|&op| {
        let operation = &operations.all[op];
        let fits = match operations.events[op].witness {
            Some(Witness::Cs(_)) => operation.touches.len() == 1,
            Some(Witness::Tc(_)) => operation.updates(),
            Some(Witness::Snap(_)) => !operation.updates(),
            _ => false,
        };
        operation.is_ok() && !operation.touches.is_empty() && !fits
    })
}
