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

impl Versions {
    /// Who wrote what an operation read from a key: the update of the version that it saw.
    pub(crate) fn writers(&self) -> BTreeMap<(Op, usize), Op> {
        let mut writers = BTreeMap::new();
        for (key, chain) in self.chains.iter().enumerate() {
            let mut previous = None;
            for version in chain.values() {
                writers.extend(
                    version.readers.iter().filter_map(|reader| Some(((*reader, key), version.update?))),
                );
                // An update that read the key read the version before its own.
                writers.extend(version.update.zip(previous).map(|(update, seen)| ((update, key), seen)));
                previous = version.update;
            }
        }
        writers
    }
}

/// Takes the witnesses apart, each service's by their own kind; `supposed` with commits placed where they were seen.
///
/// # Errors
/// The first contradiction between witnesses and values, in words.
pub(crate) fn claimed(
    operations: &Operations<'_>,
    sources: &Sources,
    supposed: bool,
) -> Result<Versions, String> {
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
    let kinds = kinds(operations);
    for (service, ops) in of_service.into_iter().enumerate() {
        if kinds[service] == Some(Kind::Timestamp) {
            timestamp::claim(operations, sources, &ops, supposed, &mut versions)?;
        } else {
            carstamp::claim(operations, &ops, &mut versions)?;
        }
    }
    Ok(versions)
}

/// How an engine proves where an operation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Carstamp,
    Timestamp,
}

/// The kind of the witness that an operation carries, if it fits the operation.
fn kind(operations: &Operations<'_>, op: Op) -> Option<Kind> {
    let operation = &operations.all[op];
    match operations.events[op].witness {
        Some(Witness::Cs(_)) if operation.touches.len() == 1 => Some(Kind::Carstamp),
        Some(Witness::Tc(_)) if operation.updates() => Some(Kind::Timestamp),
        Some(Witness::Snap(_)) if !operation.updates() => Some(Kind::Timestamp),
        _ => None,
    }
}

/// The kind of witness of each service: that of its first operation that ended ok and touched a key.
fn kinds(operations: &Operations<'_>) -> Vec<Option<Kind>> {
    let mut kinds = vec![None; operations.services];
    for (op, operation) in operations.all.iter().enumerate().rev() {
        if operation.is_ok() && !operation.touches.is_empty() {
            kinds[operation.service] = kind(operations, op);
        }
    }
    kinds
}

/// The first operation that ended ok, touched a key, and carries no witness of its place that fits it and is of
/// its service's kind.
pub(crate) fn first_without_witness(operations: &Operations<'_>) -> Option<Op> {
    let kinds = kinds(operations);
    (0..operations.all.len()).find(|&op| {
        let operation = &operations.all[op];
        let own = kind(operations, op);
        let fits = own.is_some() && own == kinds[operation.service];
        operation.is_ok() && !operation.touches.is_empty() && !fits
    })
}
