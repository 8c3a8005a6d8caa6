//! Which update each read saw: by the versions that the engine named, or by the values alone.
//!
//! Values leave some reads unclear: absence where something was deleted, a value that was written twice.
//! Versions leave only those of updates of unknown outcome. Each such doubt is a [`Choice`].

use crate::operations::{ABSENT, Op, Operation, Operations, Value};
use crate::sources::{Source, Sources};
use meridian_protocol::history::{Ended, Mode, Version, Witness};
use std::collections::{BTreeMap, HashMap};

/// What one operation saw of one key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    pub(crate) op: Op,
    pub(crate) key: usize,
    /// Who had written it; [`Source::Several`] as long as that is open.
    pub(crate) source: Source,
}

/// Readings that go back to one of several sources.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    /// The readings, all with the same source.
    pub(crate) readings: Vec<usize>,
    /// The version that they saw, if that is known. Two versions have two sources.
    pub(crate) version: Option<(usize, Version)>,
    pub(crate) candidates: Vec<Source>,
}

/// All readings of operations that ended ok, in the order of the operations.
#[derive(Clone, Debug)]
pub(crate) struct Readings {
    pub(crate) all: Vec<Reading>,
    /// Where each operation's readings begin; one more than there are operations.
    starts: Vec<u32>,
    /// Each update's version, if the engine named them.
    pub(crate) versions: Option<Vec<Option<Version>>>,
    pub(crate) choices: Vec<Choice>,
}

impl Readings {
    /// By the values.
    ///
    /// # Errors
    /// A value that nobody wrote.
    pub(crate) fn by_values(operations: &Operations<'_>) -> Result<Self, String> {
        let mut readings = Self::new(operations);
        let sources = Sources::new(operations);
        let mut values = values(operations);
        for index in 0..readings.all.len() {
            let Reading { op, key, .. } = readings.all[index];
            let value = values.next().expect("a value for each reading");
            let source = sources.of(op, key, value);
            readings.all[index].source = source;
            match source {
                Source::Nobody => return Err(nobody(operations, op, key, value)),
                Source::Several => {
                    let updates = sources.writers(key, value).iter().filter(|update| **update != op);
                    let initial = (value == ABSENT).then_some(Source::Initial);
                    let candidates = updates.map(|update| Source::Update(*update)).chain(initial).collect();
                    readings.choices.push(Choice { readings: vec![index], version: None, candidates });
                }
                Source::Initial | Source::Update(_) => {}
            }
        }
        Ok(readings)
    }

    /// By the versions.
    ///
    /// # Errors
    /// Versions that contradict each other or the values.
    pub(crate) fn by_versions(operations: &Operations<'_>) -> Result<Self, String> {
        let mut readings = Self::new(operations);
        let mut versions = vec![None; operations.all.len()];
        let mut created: HashMap<(usize, Version), Op> = HashMap::with_capacity(operations.all.len() / 2);
        for op in (0..operations.all.len()).filter(|op| operations.all[*op].is_ok()) {
            let Some(Witness::Put { at, .. }) = operations.events[op].witness else { continue };
            versions[op] = Some(at);
            if let Some(other) = created.insert((operations.all[op].service, at), op) {
                let (other, op) = (operations.name(other), operations.name(op));
                return Err(format!("{other} and {op} created the same version {at:?}"));
            }
        }
        let mut orphans: BTreeMap<(usize, Version), Vec<usize>> = BTreeMap::new();
        let mut values = values(operations);
        for index in 0..readings.all.len() {
            let Reading { op, key, .. } = readings.all[index];
            let value = values.next().expect("a value for each reading");
            let service = operations.all[op].service;
            readings.all[index].source = match seen(operations, op, key)? {
                None if value == ABSENT => Source::Initial,
                None => {
                    let (op, value, key) =
                        (operations.name(op), operations.value(value), operations.key(key));
                    return Err(format!("{op} saw {value} at {key} as if {key} had never been written"));
                }
                Some(version) => {
                    if let Some(update) = created.get(&(service, version)) {
                        matches(operations, op, *update, (key, value), version)?;
                        Source::Update(*update)
                    } else {
                        orphans.entry((service, version)).or_default().push(index);
                        Source::Several
                    }
                }
            };
        }
        readings.versions = Some(versions);
        readings.place_orphans(operations, orphans)?;
        Ok(readings)
    }

    /// A version that no update with a known end created belongs to one of unknown outcome.
    fn place_orphans(
        &mut self,
        operations: &Operations<'_>,
        orphans: BTreeMap<(usize, Version), Vec<usize>>,
    ) -> Result<(), String> {
        if orphans.is_empty() {
            return Ok(());
        }
        let sources = Sources::new(operations);
        let values: Vec<Value> = values(operations).collect();
        for ((service, version), readings) in orphans {
            // Operations that write several keys give one version to all of them.
            let fits = |update: &Op| {
                operations.all[*update].outcome == Ended::Unknown
                    && readings
                        .iter()
                        .all(|index| sources.writers(self.all[*index].key, values[*index]).contains(update))
            };
            let Reading { op, key, .. } = self.all[readings[0]];
            let candidates: Vec<Source> = sources
                .writers(key, values[readings[0]])
                .iter()
                .copied()
                .filter(fits)
                .map(Source::Update)
                .collect();
            if candidates.is_empty() {
                let (op, key) = (operations.name(op), operations.key(key));
                return Err(format!("{op} saw version {version:?} of {key}, which no update created"));
            }
            self.choices.push(Choice { readings, version: Some((service, version)), candidates });
        }
        let (open, placed) =
            std::mem::take(&mut self.choices).into_iter().partition(|c| c.candidates.len() > 1);
        self.choices = open;
        for choice in placed {
            self.choose(operations, &choice, choice.candidates[0])?;
        }
        Ok(())
    }

    /// Settles a choice.
    ///
    /// # Errors
    /// An update that would have taken effect as two versions.
    pub(crate) fn choose(
        &mut self,
        operations: &Operations<'_>,
        choice: &Choice,
        source: Source,
    ) -> Result<(), String> {
        for index in &choice.readings {
            self.all[*index].source = source;
        }
        if let (Some(versions), Some((_, version)), Source::Update(update)) =
            (&mut self.versions, choice.version, source)
            && let Some(other) = versions[update].replace(version)
            && other != version
        {
            let update = operations.name(update);
            return Err(format!(
                "{update} took effect more than once: as version {other:?} and as {version:?}"
            ));
        }
        Ok(())
    }

    fn new(operations: &Operations<'_>) -> Self {
        let mut all = Vec::with_capacity(operations.all.len());
        let mut starts = Vec::with_capacity(operations.all.len() + 1);
        for (op, operation) in operations.all.iter().enumerate() {
            starts.push(all.len() as u32);
            let reads = operation.touches.iter().filter(|touch| operation.is_ok() && touch.read.is_some());
            all.extend(reads.map(|touch| Reading { op, key: touch.key, source: Source::Several }));
        }
        starts.push(all.len() as u32);
        Self { all, starts, versions: None, choices: Vec::new() }
    }

    /// What `op` saw.
    pub(crate) fn of(&self, op: Op) -> &[Reading] {
        &self.all[self.starts[op] as usize..self.starts[op + 1] as usize]
    }

    /// Which operations happened: those that ended ok, and those of unknown outcome that were seen. To drop an
    /// update that nobody saw takes nothing from anybody's view.
    pub(crate) fn happened(&self, operations: &Operations<'_>) -> Vec<bool> {
        let mut happened: Vec<bool> = operations.all.iter().map(Operation::is_ok).collect();
        for reading in &self.all {
            if let Source::Update(update) = reading.source {
                happened[update] = true;
            }
        }
        happened
    }
}

/// The first operation that ended ok, touched a key, and carries no version for each of its accesses.
pub(crate) fn lacks_witness(operations: &Operations<'_>) -> Option<Op> {
    (0..operations.all.len()).filter(|op| operations.all[*op].is_ok()).find(|&op| {
        let event = &operations.events[op];
        let reads = event.ops.iter().filter(|access| access.mode == Mode::Read).count();
        match &event.witness {
            _ if event.ops.is_empty() => false,
            Some(Witness::Put { .. }) => reads > 0,
            Some(Witness::Got { at, .. }) => reads < event.ops.len() || at.len() != reads,
            _ => true,
        }
    })
}

/// The values of all readings, in their order.
fn values(operations: &Operations<'_>) -> impl Iterator<Item = Value> {
    let ok = operations.all.iter().filter(|operation| operation.is_ok());
    ok.flat_map(|operation| operation.touches.iter().filter_map(|touch| touch.read))
}

/// The version of `key` that the reader's witness names.
fn seen(operations: &Operations<'_>, op: Op, key: usize) -> Result<Option<Version>, String> {
    let event = &operations.events[op];
    let Some(Witness::Got { at, .. }) = &event.witness else { return Ok(None) };
    let name = operations.keys[key].1;
    let mut versions = event.ops.iter().zip(at).filter(|(access, _)| access.key == name).map(|(_, at)| *at);
    let first = versions.next().flatten();
    if versions.any(|other| other != first) {
        return Err(format!("{} saw two versions of {name} within one step", operations.name(op)));
    }
    Ok(first)
}

/// Whether the update of that version left what was read.
fn matches(
    operations: &Operations<'_>,
    reader: Op,
    update: Op,
    (key, value): (usize, Value),
    version: Version,
) -> Result<(), String> {
    let touches = &operations.all[update].touches;
    if touches.iter().any(|touch| touch.key == key && touch.write == Some(value)) {
        return Ok(());
    }
    let (reader, update) = (operations.name(reader), operations.name(update));
    Err(format!("{reader} saw version {version:?} of {}, which {update} created", operations.key(key)))
}

fn nobody(operations: &Operations<'_>, op: Op, key: usize, value: Value) -> String {
    let (op, value, key) = (operations.name(op), operations.value(value), operations.key(key));
    format!("{op} read {value} from {key}, which no operation that may have happened wrote")
}
