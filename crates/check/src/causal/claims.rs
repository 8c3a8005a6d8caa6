//! What engines with vectors claim, beyond the order of versions: the vector of an update covers it and all
//! that it depends on, and a read returned the newest of what its snapshot vector covers. Entries are per region.
//!
//! Claims depend on the level that an operation asked for, and not on the model that it is judged by: who asked
//! for nothing was promised nothing. Where a level is named that does not exist nothing is claimed.

use super::levels::Level;
use crate::operations::{NEVER, Op, Operations};
use meridian_protocol::history::{Version, Witness};
use std::collections::BTreeMap;

/// Verifies the claims of all witnesses that carry vectors.
///
/// # Errors
/// The first claim that is not true.
pub(crate) fn verify(operations: &Operations<'_>) -> Result<(), String> {
    let any = operations.events.iter().any(|event| match &event.witness {
        Some(Witness::Put { vc, .. }) => !vc.is_empty(),
        Some(Witness::Got { sv, .. }) => !sv.is_empty(),
        _ => false,
    });
    if !any {
        return Ok(());
    }
    let puts = Puts::new(operations)?;
    for op in 0..operations.all.len() {
        puts.newest_in_snapshot(operations, op)?;
    }
    sessions(operations, &puts)
}

/// Whether every entry of one is at most the other's. Entries beyond an end are 0.
fn covered(vector: &[u64], by: &[u64]) -> bool {
    vector.iter().enumerate().all(|(region, entry)| *entry <= by.get(region).copied().unwrap_or(0))
}

fn join(vector: &mut Vec<u64>, other: &[u64]) {
    if vector.len() < other.len() {
        vector.resize(other.len(), 0);
    }
    for (own, other) in vector.iter_mut().zip(other) {
        *own = (*own).max(*other);
    }
}

/// A put's version and vector, if it ended ok and has both.
fn put<'h>(operations: &Operations<'h>, op: Op) -> Option<(Version, &'h [u64])> {
    match &operations.events[op].witness {
        Some(Witness::Put { at, vc }) if operations.all[op].is_ok() && !vc.is_empty() => Some((*at, vc)),
        _ => None,
    }
}

/// What a read saw, access by access, and its snapshot.
fn got<'h>(operations: &Operations<'h>, op: Op) -> Option<(&'h [Option<Version>], &'h [u64])> {
    match &operations.events[op].witness {
        Some(Witness::Got { at, sv }) if operations.all[op].is_ok() && !sv.is_empty() => Some((at, sv)),
        _ => None,
    }
}

/// Puts with vectors.
struct Puts {
    /// For each key and region in the order of versions.
    of_key: Vec<BTreeMap<u32, Vec<(Version, Op)>>>,
    by_version: BTreeMap<(usize, Version), Op>,
}

impl Puts {
    fn new(operations: &Operations<'_>) -> Result<Self, String> {
        let mut of_key: Vec<BTreeMap<u32, Vec<(Version, Op)>>> = vec![BTreeMap::new(); operations.keys.len()];
        let mut by_version = Vec::new();
        for op in 0..operations.all.len() {
            let Some((at, vc)) = put(operations, op) else { continue };
            if vc.get(at.1 as usize) != Some(&at.0) {
                let op = operations.name(op);
                return Err(format!(
                    "{op} has version {at:?}, and its vector {vc:?} says otherwise of its region"
                ));
            }
            by_version.push(((operations.all[op].service, at), op));
            for touch in operations.all[op].touches.iter().filter(|touch| touch.write.is_some()) {
                of_key[touch.key].entry(at.1).or_default().push((at, op));
            }
        }
        for versions in of_key.iter_mut().flat_map(BTreeMap::values_mut) {
            versions.sort_unstable();
        }
        Ok(Self { of_key, by_version: by_version.into_iter().collect() })
    }

    /// A read returned the newest version of each key that its snapshot covers: one snapshot for all keys.
    fn newest_in_snapshot(&self, operations: &Operations<'_>, op: Op) -> Result<(), String> {
        let Some((at, sv)) = got(operations, op) else { return Ok(()) };
        let service = operations.all[op].service;
        for (access, version) in operations.events[op].ops.iter().zip(at) {
            let touches = &operations.all[op].touches;
            let Some(touch) = touches.iter().find(|touch| operations.keys[touch.key].1 == access.key) else {
                continue;
            };
            if let Some(version) = version
                && let Some(update) = self.by_version.get(&(service, *version))
                && put(operations, *update).is_some_and(|(_, vc)| !covered(vc, sv))
            {
                let (op, update) = (operations.name(op), operations.name(*update));
                return Err(format!(
                    "{op} saw what {update} wrote, which its snapshot {sv:?} does not cover"
                ));
            }
            if let Some(newer) = self.newer(operations, touch.key, *version, sv) {
                let (op, newer) = (operations.name(op), operations.name(newer));
                return Err(format!(
                    "the snapshot {sv:?} of {op} covers {newer}, which is newer than what it returned"
                ));
            }
        }
        Ok(())
    }

    /// A version of `key` above `version` that the snapshot covers. Only those come into question whose own
    /// timestamp the snapshot's entry of their region covers.
    fn newer(
        &self,
        operations: &Operations<'_>,
        key: usize,
        version: Option<Version>,
        sv: &[u64],
    ) -> Option<Op> {
        self.of_key[key].iter().find_map(|(region, versions)| {
            let bound = sv.get(*region as usize).copied().unwrap_or(0);
            let from = versions.partition_point(|(at, _)| Some(*at) <= version);
            let to = versions.partition_point(|(at, _)| at.0 <= bound).max(from);
            let covers = |op: &Op| put(operations, *op).is_some_and(|(_, vc)| covered(vc, sv));
            versions[from..to].iter().rev().map(|(_, op)| *op).find(covers)
        })
    }
}

/// A session's vectors so far.
#[derive(Default)]
struct Session {
    /// Of its own puts, and the highest timestamp.
    written: (Vec<u64>, u64),
    /// Of the versions that it was returned, and the highest timestamp.
    returned: (Vec<u64>, u64),
    /// Of its snapshots.
    snapshots: Vec<u64>,
}

/// Session guarantees as vectors keep them, each session in time.
fn sessions(operations: &Operations<'_>, puts: &Puts) -> Result<(), String> {
    let mut moments: Vec<(i64, bool, Op)> = Vec::with_capacity(operations.all.len() * 2);
    for (op, operation) in operations.all.iter().enumerate() {
        moments.push((operation.invoke, false, op));
        if operation.returned != NEVER {
            moments.push((operation.returned, true, op));
        }
    }
    moments.sort_unstable();
    let mut sessions: BTreeMap<(usize, usize), Session> = BTreeMap::new();
    for (_, returned, op) in moments {
        let operation = &operations.all[op];
        let session = sessions.entry((operation.session, operation.service)).or_default();
        if returned {
            session.returned(operations, puts, op);
        } else {
            session.invoked(operations, op)?;
        }
    }
    Ok(())
}

impl Session {
    fn invoked(&self, operations: &Operations<'_>, op: Op) -> Result<(), String> {
        let level = Level::of(operations, op).unwrap_or_default();
        if let Some((_, sv)) = got(operations, op) {
            for (asked, vector, what) in [
                (level.ryw, &self.written.0, "what its session had written"),
                (level.mr, &self.snapshots, "the snapshots of its session's earlier reads"),
            ] {
                if asked && !covered(vector, sv) {
                    return Err(format!(
                        "the snapshot {sv:?} of {} misses {what}: {vector:?}",
                        operations.name(op)
                    ));
                }
            }
        }
        if let Some((at, vc)) = put(operations, op) {
            for (asked, (vector, highest), what) in [
                (level.mw, &self.written, "what its session had written"),
                (level.wfr, &self.returned, "what its session had been returned"),
            ] {
                if asked && !(covered(vector, vc) && *highest < at.0) {
                    let op = operations.name(op);
                    return Err(format!(
                        "the vector {vc:?} of {op} misses {what}: {vector:?}, at most {highest}"
                    ));
                }
            }
        }
        Ok(())
    }

    fn returned(&mut self, operations: &Operations<'_>, puts: &Puts, op: Op) {
        if let Some((at, vc)) = put(operations, op) {
            join(&mut self.written.0, vc);
            self.written.1 = self.written.1.max(at.0);
        }
        let Some((at, sv)) = got(operations, op) else { return };
        join(&mut self.snapshots, sv);
        for version in at.iter().flatten() {
            self.returned.1 = self.returned.1.max(version.0);
            let update = puts.by_version.get(&(operations.all[op].service, *version));
            if let Some((_, vc)) = update.and_then(|update| put(operations, *update)) {
                join(&mut self.returned.0, vc);
            }
        }
    }
}
