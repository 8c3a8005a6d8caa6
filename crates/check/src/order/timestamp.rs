//! What commit and snapshot timestamps claim (protocols of Spanner's kind), and whether the values bear it out.
//!
//! A read-write transaction's reads saw the newest versions below its commit timestamp, a read-only
//! transaction's the newest that are not above its snapshot timestamp. Two transactions that write one key have
//! different commit timestamps.
//!
//! A transaction of unknown outcome has told nobody its own timestamp. Whoever saw what it wrote may tell it. Where that is
//! not told, or several may have written the value, it is left to the search, among the others' order.

use super::sightings::{Sighting, Sightings};
use super::versions::{Stamp, Versions};
use crate::operations::{ABSENT, Op, Operations, Touch, Value};
use crate::sources::Sources;
use meridian_protocol::history::{Ended, Stamped, Witness};
use std::collections::HashMap;

/// Takes the timestamps of `ops`, the operations of a service, apart.
///
/// # Errors
/// The first contradiction between witnesses and values, in words.
pub(crate) fn claim(
    operations: &Operations<'_>,
    sources: &Sources,
    ops: &[Op],
    supposed: bool,
    versions: &mut Versions,
) -> Result<(), String> {
    let mut claims = Claims { operations, sources, ops, stamps: HashMap::new(), versions };
    claims.place_updates()?;
    if supposed {
        claims.place_seen()?;
    }
    claims.check_reads()
}

/// Where every key begins.
const INITIAL: Stamp = (0, 0, 0);

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
            Some(Witness::Snap(Stamped { at: snap, .. })) => Some((snap, u64::MAX, 0)),
            _ => self.stamps.get(&op).copied(),
        }
    }

    /// The version of a key that an operation says it saw: `None` if it says nothing, the initial version is 0.
    fn told(&self, op: Op, key: usize) -> Option<u64> {
        let event = &self.operations.events[op];
        let (Some(Witness::Snap(stamped) | Witness::Tc(stamped)), Ended::Ok) =
            (&event.witness, event.outcome)
        else {
            return None;
        };
        let told = stamped.saw.iter().find(|(name, _)| name == self.operations.keys[key].1)?;
        Some(told.1.unwrap_or(0))
    }

    fn place_updates(&mut self) -> Result<(), String> {
        for &op in self.ops.iter().filter(|op| self.operations.all[**op].outcome != Ended::Failed) {
            if let (Some(Witness::Tc(tc)), true) =
                (&self.operations.events[op].witness, self.operations.all[op].updates())
            {
                self.place(op, (tc.at, 0, 0))?;
            }
        }
        Ok(())
    }

    /// Places updates that told no timestamp and were seen at one: the only update that has none yet and that may have
    /// left the value there. Each that is found leaves fewer for other places.
    fn place_seen(&mut self) -> Result<(), String> {
        let mut sightings = self.sightings();
        loop {
            let before = sightings.of.len();
            for (place, sighting) in std::mem::take(&mut sightings.of) {
                if self.is_update(place.0, (place.1, 0, 0)) {
                    continue;
                }
                match self.candidates(&sightings, place, sighting)[..] {
                    [only] => self.place(only, (place.1, 0, 0))?,
                    [] => {}
                    _ => _ = sightings.of.insert(place, sighting),
                }
            }
            if sightings.of.len() == before {
                break;
            }
        }
        // Equal values (only deletions have them) in the order of their timestamps get the updates in the order of their
        // invocations: if any assignment respects real time, this one does.
        for (place, sighting) in std::mem::take(&mut sightings.of) {
            let candidates = self.candidates(&sightings, place, sighting);
            let is_blind = |op: &Op| {
                let touches = &self.operations.all[*op].touches;
                touches.len() == 1 && touches[0].read.is_none()
            };
            if let (Some(first), true) = (candidates.first(), candidates.iter().all(is_blind)) {
                self.place(*first, (place.1, 0, 0))?;
                self.versions.interchangeable.extend(candidates);
            }
        }
        Ok(())
    }

    fn sightings(&self) -> Sightings {
        let mut sightings = Sightings::new(self.operations.keys.len());
        for &op in self.ops {
            let Some((sees, ..)) = self.sees(op) else { continue };
            let operation = &self.operations.all[op];
            for touch in &operation.touches {
                if let (Some(value), Some(at)) = (touch.read, self.told(op, touch.key)) {
                    let until = if operation.updates() { sees } else { sees.saturating_add(1) };
                    sightings.add((touch.key, at), until, Sighting { value, returned: operation.returned });
                }
            }
        }
        sightings
    }

    /// Who may have left what was seen, in the order of invocation: it has no timestamp, was invoked before somebody had
    /// seen it, and of no key that it writes was an older version seen at a later time.
    fn candidates(&self, sightings: &Sightings, (key, at): (usize, u64), sighting: Sighting) -> Vec<Op> {
        let fits = |op: &Op| {
            let operation = &self.operations.all[*op];
            let mut writes = operation.touches.iter().filter(|touch| touch.write.is_some());
            operation.invoke < sighting.returned && writes.all(|touch| sightings.can_be(touch.key, at))
        };
        let mut fitting: Vec<Op> = self.unplaced(key, sighting.value).filter(fits).collect();
        fitting.sort_by_key(|op| self.operations.all[*op].invoke);
        fitting
    }

    /// Updates that have no timestamp and may have left the value.
    fn unplaced(&self, key: usize, value: Value) -> impl Iterator<Item = Op> {
        let writers = self.sources.writers(key, value).iter().copied();
        writers.filter(|writer| !self.stamps.contains_key(writer))
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
                let told = self.told(op, touch.key).map(|at| (at, 0, 0));
                let (stamp, update) = self.newest(touch, sees, op);
                let is_wrong = told.is_some_and(|told| told < stamp || told >= sees);
                if !is_wrong && told != Some(stamp) && self.is_unplaced(op, touch.key, value) {
                    continue;
                }
                let left = update.map_or(ABSENT, |update| self.left(update, touch.key));
                if is_wrong || left != value {
                    return Err(self.not_newest(op, touch, value, sees, update));
                }
                if touch.write.is_none() {
                    self.versions.chains[touch.key].entry(stamp).or_default().readers.push(op);
                }
            }
        }
        Ok(())
    }

    /// Whether an update stands there.
    fn is_update(&self, key: usize, stamp: Stamp) -> bool {
        self.versions.chains[key].get(&stamp).is_some_and(|version| version.update.is_some())
    }

    /// Whether the value may come from a transaction of unknown outcome whose timestamp nobody told.
    fn is_unplaced(&mut self, reader: Op, key: usize, value: Value) -> bool {
        let unplaced = self.unplaced(key, value).any(|writer| writer != reader);
        self.versions.unplaced |= unplaced;
        unplaced
    }

    /// The newest version below `sees`, which is above all commits of a snapshot's own time.
    fn newest(&self, touch: &Touch, sees: Stamp, op: Op) -> (Stamp, Option<Op>) {
        let mut older = self.versions.chains[touch.key].range(..sees).rev();
        let found = older.find(|(_, version)| version.update.is_some_and(|update| update != op));
        found.map_or((INITIAL, None), |(stamp, version)| (*stamp, version.update))
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
