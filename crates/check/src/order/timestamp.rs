//! What commit and snapshot timestamps claim (protocols of Spanner's kind), and whether the values bear it out.
//!
//! A read-write transaction's reads saw the newest versions below its commit timestamp, a read-only
//! transaction's the newest that are not above its snapshot timestamp. Two transactions that write one key have
//! different commit timestamps. A transaction of unknown outcome may have been seen without that anybody knows its
//! timestamp: it is left to the search, among the others' order.

use super::versions::{Stamp, Versions};
use crate::operations::{ABSENT, Op, Operations, Touch, Value};
use crate::sources::Sources;
use meridian_protocol::history::{Ended, Witness};
use std::collections::HashMap;

/// Takes the timestamps of `ops`, the operations of a service, apart.
///
/// # Errors
/// The first contradiction between witnesses and values, in words.
pub(crate) fn claim(
    operations: &Operations<'_>,
    sources: &Sources,
    ops: &[Op],
    versions: &mut Versions,
) -> Result<(), String> {
    let mut claims = Claims { operations, sources, ops, stamps: HashMap::new(), versions };
    claims.place_updates()?;
    claims.check_reads()
}

struct Claims<'a> {
    operations: &'a Operations<'a>,
    sources: &'a Sources,
    ops: &'a [Op],
    /// Where updates stand.
    stamps: HashMap<Op, Stamp>,
    versions: &'a mut Versions,
}

impl Claims<'_> {
    /// The version below which, or up to which, an operation reads.
    fn sees(&self, op: Op) -> Option<Stamp> {
        match self.operations.events[op].witness {
            Some(Witness::Snap(snap)) => Some((snap, u64::MAX, 0)),
            _ => self.stamps.get(&op).copied(),
        }
    }

    fn place_updates(&mut self) -> Result<(), String> {
        for &op in self.ops.iter().filter(|op| self.operations.all[**op].outcome != Ended::Failed) {
            if let (Some(Witness::Tc(tc)), true) =
                (&self.operations.events[op].witness, self.operations.all[op].updates())
            {
                self.place(op, (*tc, 0, 0))?;
            }
        }
        Ok(())
    }

    fn place(&mut self, op: Op, stamp: Stamp) -> Result<(), String> {
        self.stamps.insert(op, stamp);
        self.versions.takes_part[op] = true;
        for touch in self.operations.all[op].touches.iter().filter(|touch| touch.write.is_some()) {
            let version = self.versions.chains[touch.key].entry(stamp).or_default();
            if let Some(other) = version.update.replace(op) {
                return Err(format!(
                    "{} and {} committed {} at the same timestamp {}",
                    self.operations.name(other),
                    self.operations.name(op),
                    self.operations.key(touch.key),
                    stamp.0
                ));
            }
        }
        Ok(())
    }

    /// Each read whose writer has a timestamp saw the newest of those that have one.
    fn check_reads(&mut self) -> Result<(), String> {
        for &op in self.ops {
            let Some(sees) = self.sees(op) else { continue };
            for touch in &self.operations.all[op].touches {
                let Some(value) = touch.read else { continue };
                if self.is_unplaced(op, touch.key, value) {
                    continue;
                }
                let (stamp, update) = self.newest(touch, sees, op);
                let left = update.map_or(ABSENT, |update| self.left(update, touch.key));
                if left != value {
                    return Err(self.not_newest(op, touch, value, sees, update));
                }
                if touch.write.is_none() {
                    self.versions.chains[touch.key].entry(stamp).or_default().readers.push(op);
                }
            }
        }
        Ok(())
    }

    /// Whether the value may come from a transaction of unknown outcome whose timestamp nobody told.
    fn is_unplaced(&mut self, reader: Op, key: usize, value: Value) -> bool {
        let mut writers = self.sources.writers(key, value).iter().filter(|writer| **writer != reader);
        let unplaced = writers.any(|writer| !self.stamps.contains_key(writer));
        self.versions.unplaced |= unplaced;
        unplaced
    }

    /// The newest version below `sees`, which is above all commits of a snapshot's own time.
    fn newest(&self, touch: &Touch, sees: Stamp, op: Op) -> (Stamp, Option<Op>) {
        let mut older = self.versions.chains[touch.key].range(..sees).rev();
        let found = older.find(|(_, version)| version.update.is_some_and(|update| update != op));
        found.map_or(((0, 0, 0), None), |(stamp, version)| (*stamp, version.update))
    }

    fn left(&self, update: Op, key: usize) -> Value {
        let mut touches = self.operations.all[update].touches.iter();
        touches.find(|touch| touch.key == key).and_then(|touch| touch.write).unwrap_or(ABSENT)
    }

    fn not_newest(&self, op: Op, touch: &Touch, value: Value, sees: Stamp, update: Option<Op>) -> String {
        let newest = update.map_or("the key as it began".to_string(), |update| self.operations.name(update));
        format!(
            "{} saw {} at timestamp {}, where the newest version of {} is that of {newest}",
            self.operations.name(op),
            self.operations.value(value),
            sees.0,
            self.operations.key(touch.key),
        )
    }
}
