//! A client's read on its way: which partitions have answered, and from which snapshot.

use super::message::{Leg, Seen, Step};
use super::vector::Vector;
use crate::clock::Micros;
use crate::history;
use crate::object::Command;
use crate::topology::Group;
use bytes::Bytes;
use std::collections::BTreeMap;

/// A read of one or several keys.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    /// What is asked of each partition, with the places of its steps among all.
    legs: BTreeMap<u16, (Vec<Step>, Vec<usize>)>,
    steps: usize,
    /// The snapshot of this attempt, once it is known.
    pub(crate) snapshot: Option<Vector>,
    /// What partitions have answered.
    answers: BTreeMap<u16, Vec<Seen>>,
    /// The longest that any of them waited.
    pub(crate) waited: Micros,
    /// A partition had forgotten a part of the snapshot when it was asked. A coordinator is nearer to it than a client.
    pub(crate) late: bool,
}

impl Reading {
    pub(crate) fn new(group: &Group, steps: Vec<(Bytes, Command)>) -> Self {
        let mut legs: BTreeMap<u16, (Vec<Step>, Vec<usize>)> = BTreeMap::new();
        let count = steps.len();
        for (place, (key, command)) in steps.into_iter().enumerate() {
            let leg = legs.entry(group.partition_of(&key)).or_default();
            leg.0.push(Step { key, command });
            leg.1.push(place);
        }
        Self { legs, steps: count, snapshot: None, answers: BTreeMap::new(), waited: 0, late: false }
    }

    /// The only partition that it reads from, with what it reads there.
    pub(crate) fn only_leg(&self) -> Option<(u16, &[Step])> {
        let (partition, (steps, _)) = self.legs.first_key_value()?;
        (self.legs.len() == 1).then_some((*partition, steps.as_slice()))
    }

    /// The partition that chooses the snapshot: another one for each request, so that all do their share.
    pub(crate) fn coordinator(&self, request: u64) -> u16 {
        let nth = request as usize % self.legs.len().max(1);
        self.legs.keys().nth(nth).copied().unwrap_or_default()
    }

    /// All that is asked.
    pub(crate) fn all_legs(&self) -> Vec<Leg> {
        let leg = |(partition, (steps, _)): (&u16, &(Vec<Step>, Vec<usize>))| Leg {
            partition: *partition,
            steps: steps.clone(),
        };
        self.legs.iter().map(leg).collect()
    }

    /// What is asked of partitions that have not answered.
    pub(crate) fn open_legs(&self) -> impl Iterator<Item = (u16, &[Step])> {
        let open = self.legs.iter().filter(|(partition, _)| !self.answers.contains_key(*partition));
        open.map(|(partition, (steps, _))| (*partition, steps.as_slice()))
    }

    /// Begins again: another attempt has another snapshot.
    pub(crate) fn restart(&mut self) {
        self.snapshot = None;
        self.answers.clear();
    }

    /// Takes a partition's answer. Only answers from one snapshot go together.
    pub(crate) fn answer(&mut self, partition: u16, snapshot: Vector, seen: Vec<Seen>, waited: Micros) {
        let fits = self.legs.get(&partition).is_some_and(|(steps, _)| steps.len() == seen.len());
        if fits && self.snapshot.as_ref().is_none_or(|known| *known == snapshot) {
            self.snapshot = Some(snapshot);
            self.waited = self.waited.max(waited);
            self.answers.insert(partition, seen);
        }
    }

    /// The keys, in the order in which they were asked for.
    pub(crate) fn keys(&self) -> Vec<Bytes> {
        let mut keys = vec![Bytes::new(); self.steps];
        for (steps, places) in self.legs.values() {
            for (step, place) in steps.iter().zip(places) {
                keys[*place] = step.key.clone();
            }
        }
        keys
    }

    /// The versions of what was seen, in the order in which it was asked for.
    pub(crate) fn versions(&self, seen: &[Seen]) -> Vec<Option<history::Version>> {
        let mut partition_of = vec![0; self.steps];
        for (partition, (_, places)) in &self.legs {
            for place in places {
                partition_of[*place] = *partition;
            }
        }
        let named = seen.iter().zip(partition_of);
        named.map(|(seen, partition)| seen.id.map(|id| id.of_partition(partition))).collect()
    }

    /// What was seen, in the order in which it was asked for, and the snapshot; `None` as long as a partition is missing.
    pub(crate) fn complete(&mut self) -> Option<(Vector, Vec<Seen>)> {
        if self.answers.len() < self.legs.len() {
            return None;
        }
        let snapshot = self.snapshot.clone()?;
        let mut all: Vec<(usize, Seen)> = Vec::with_capacity(self.steps);
        for (partition, seen) in std::mem::take(&mut self.answers) {
            let (_, places) = &self.legs[&partition];
            all.extend(places.iter().copied().zip(seen));
        }
        all.sort_unstable_by_key(|(place, _)| *place);
        Some((snapshot, all.into_iter().map(|(_, seen)| seen).collect()))
    }
}
