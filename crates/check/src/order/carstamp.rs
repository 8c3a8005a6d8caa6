//! What carstamps claim, and whether the values bear it out.
//!
//! The engine's witness puts the updates of each key into one order and says which of them each read saw.
//! Here that claim is taken apart into chains, and refused where it contradicts the values: two updates with
//! one carstamp, a read whose value is not its update's, an rmw that did not follow what it saw.

use super::versions::{Stamp, Versions};
use crate::operations::{ABSENT, Op, Operations, Value};
use meridian_protocol::history::{Ended, Witness};
use std::collections::{BTreeMap, HashMap, VecDeque};

/// The carstamp of a key that nothing has written.
const INITIAL: Stamp = (0, 0, 0);

/// Takes the carstamps of `ops`, the operations of a service, apart.
///
/// # Errors
/// The first contradiction between witnesses and values, in words.
pub(crate) fn claim(operations: &Operations<'_>, ops: &[Op], versions: &mut Versions) -> Result<(), String> {
    let mut claims = Claims {
        operations,
        ops,
        of: vec![None; operations.all.len()],
        values: vec![BTreeMap::from([(INITIAL, (ABSENT, None))]); operations.keys.len()],
        stands_for: BTreeMap::new(),
        versions,
    };
    claims.place_updates()?;
    claims.place_observed_unknowns()?;
    claims.check_observations()
}

struct Claims<'a> {
    operations: &'a Operations<'a>,
    ops: &'a [Op],
    /// Each operation's carstamp: the one that an update created or that a read saw. `None` for operations of
    /// which nothing was ever seen.
    of: Vec<Option<Stamp>>,
    /// For each key the value at each carstamp, and the update that left it.
    values: Vec<BTreeMap<Stamp, (Value, Option<Op>)>>,
    /// Stamps of rmws that changed nothing, and the version whose value they kept.
    stands_for: BTreeMap<(usize, Stamp), Stamp>,
    versions: &'a mut Versions,
}

impl Claims<'_> {
    /// The carstamp that the operation's event carries.
    fn witness(&self, op: Op) -> Option<Stamp> {
        match self.operations.events[op].witness {
            Some(Witness::Cs(cs)) => Some(cs),
            _ => None,
        }
    }

    /// Every update that ended ok stands at its carstamp, alone.
    fn place_updates(&mut self) -> Result<(), String> {
        for &op in self.ops {
            let operation = &self.operations.all[op];
            if !operation.is_ok() {
                continue;
            }
            let (Some(touch), Some(cs)) = (operation.touches.first(), self.witness(op)) else {
                continue;
            };
            self.of[op] = Some(cs);
            if let Some(value) = touch.write {
                self.place(op, touch.key, cs, value)?;
            }
        }
        Ok(())
    }

    fn place(&mut self, op: Op, key: usize, cs: Stamp, value: Value) -> Result<(), String> {
        if let Some((_, other)) = self.values[key].insert(cs, (value, Some(op))) {
            return Err(match other {
                Some(other) => format!(
                    "{} and {} created the same carstamp {cs:?} of {}",
                    self.operations.name(other),
                    self.operations.name(op),
                    self.operations.key(key)
                ),
                None => format!("{} claims the carstamp of the initial state", self.operations.name(op)),
            });
        }
        self.of[op] = Some(cs);
        self.versions.takes_part[op] = true;
        self.versions.chains[key].entry(cs).or_default().update = Some(op);
        Ok(())
    }

    /// A carstamp that was seen but that no update with a known end created belongs to an update whose outcome
    /// is unknown: to an rmw that changed nothing if the value is the one that stood there before, and otherwise
    /// to the operation that writes the value seen.
    fn place_observed_unknowns(&mut self) -> Result<(), String> {
        let mut candidates = self.unknown_updates();
        let mut idle = vec![0; self.operations.keys.len()];
        for op in self.ops.iter().filter(|op| self.operations.all[**op].outcome == Ended::Unknown) {
            for touch in self.operations.all[*op].touches.iter().filter(|touch| touch.write.is_some()) {
                idle[touch.key] += 1;
            }
        }
        loop {
            let mut orphans: BTreeMap<(usize, Stamp), (Op, Value)> = BTreeMap::new();
            for &op in self.ops {
                let Some((key, cs, value)) = self.observation(op) else { continue };
                if !self.values[key].contains_key(&cs) {
                    orphans.entry((key, cs)).or_insert((op, value));
                }
            }
            if orphans.is_empty() {
                return Ok(());
            }
            // An rmw that is placed here has seen something too: the next round looks for who made that. Absence
            // waits until all is known that was seen, as any deletion may be behind it.
            if orphans.values().any(|(_, value)| *value != ABSENT) {
                orphans.retain(|_, (_, value)| *value != ABSENT);
            }
            for ((key, cs), (reader, value)) in orphans {
                // Each step of the chain needs an operation of its own that may have changed nothing.
                let base = self.unchanged_since(key, cs, value);
                if let Some(base) = base.filter(|base| (cs.2 - base.2) as usize <= idle[key]) {
                    idle[key] -= (cs.2 - base.2) as usize;
                    let update = self.values[key][&base].1;
                    self.values[key].insert(cs, (value, update));
                    self.stands_for.insert((key, cs), *self.stands_for.get(&(key, base)).unwrap_or(&base));
                    continue;
                }
                // Equal values (only deletions have them) in the order of their carstamps get the updates in the
                // order of their invocations: if any assignment respects real time, this one does.
                let unknown = candidates.entry((key, value)).or_default();
                if unknown.len() > 1 {
                    self.versions.interchangeable.extend(unknown.iter().copied());
                }
                match unknown.pop_front() {
                    Some(op) => self.place(op, key, cs, value)?,
                    None => return Err(self.thin_air(key, value, cs, reader)),
                }
            }
        }
    }

    /// Updates of unknown outcome by what they write, in the order of their invocations.
    fn unknown_updates(&self) -> HashMap<(usize, Value), VecDeque<Op>> {
        let mut unknown: Vec<Op> = self
            .ops
            .iter()
            .copied()
            .filter(|&op| self.operations.all[op].outcome == Ended::Unknown)
            .filter(|&op| self.operations.all[op].touches.len() == 1)
            .collect();
        unknown.sort_by_key(|&op| self.operations.all[op].invoke);
        let mut updates: HashMap<(usize, Value), VecDeque<Op>> = HashMap::new();
        for op in unknown {
            let touch = self.operations.all[op].touches[0];
            if let Some(value) = touch.write {
                updates.entry((touch.key, value)).or_default().push_back(op);
            }
        }
        updates
    }

    /// The version before `cs` in its chain of rmws, if it has the same value.
    fn unchanged_since(&self, key: usize, cs: Stamp, value: Value) -> Option<Stamp> {
        let (base, (left, _)) = self.values[key].range((cs.0, cs.1, 0)..cs).next_back()?;
        (*left == value).then_some(*base)
    }

    /// What an operation saw: the key, the carstamp and the value. An rmw saw the carstamp before its own.
    fn observation(&self, op: Op) -> Option<(usize, Stamp, Value)> {
        let touch = self.operations.all[op].touches.first()?;
        let value = touch.read?;
        let (ts, id, rmwc) = self.of[op]?;
        let seen = if touch.write.is_some() { (ts, id, rmwc.checked_sub(1)?) } else { (ts, id, rmwc) };
        Some((touch.key, seen, value))
    }

    fn thin_air(&self, key: usize, value: Value, cs: Stamp, reader: Op) -> String {
        let key_name = self.operations.key(key);
        let twin = self.values[key].iter().find_map(|(other, (left, update))| {
            let update = update.filter(|op| self.operations.all[*op].outcome == Ended::Unknown)?;
            (*left == value).then_some((*other, update))
        });
        if let Some((other, update)) = twin {
            return format!(
                "{} took effect more than once: it was seen at carstamps {other:?} and {cs:?} of {key_name}",
                self.operations.name(update)
            );
        }
        let reader = self.operations.name(reader);
        let writers: Vec<String> = self
            .operations
            .all
            .iter()
            .enumerate()
            .filter(|(_, operation)| operation.touches.iter().any(|t| t.key == key && t.write == Some(value)))
            .map(|(op, _)| match self.of[op] {
                Some(own) => format!("{}, which created {own:?}", self.operations.name(op)),
                None => self.operations.name(op),
            })
            .collect();
        let known = if writers.is_empty() { "nothing".to_string() } else { writers.join(" and ") };
        format!(
            "{reader} saw {} at carstamp {cs:?} of {key_name}, which no update created; that value was written by {known}",
            self.operations.value(value)
        )
    }

    /// Every read saw the value that its carstamp's update left, and every rmw follows what it saw.
    fn check_observations(&mut self) -> Result<(), String> {
        for &op in self.ops {
            let operation = &self.operations.all[op];
            let Some(own) = self.of[op] else { continue };
            let Some(touch) = operation.touches.first() else { continue };
            if touch.read.is_none() {
                continue;
            }
            let Some((key, seen, value)) = self.observation(op) else {
                return Err(format!(
                    "{} read and wrote, but its carstamp {own:?} is a blind write's",
                    self.operations.name(op)
                ));
            };
            let (left, update) = self.values[key].get(&seen).expect("all that was seen has been placed");
            if *left != value {
                let by = update.map_or("the initial state".to_string(), |op| self.operations.name(op));
                return Err(format!(
                    "{} saw {} at carstamp {seen:?}, where {by} left {}",
                    self.operations.name(op),
                    self.operations.value(value),
                    self.operations.value(*left)
                ));
            }
            if touch.write.is_none() {
                let version = *self.stands_for.get(&(key, seen)).unwrap_or(&seen);
                self.versions.chains[key].entry(version).or_default().readers.push(op);
            }
        }
        Ok(())
    }
}
