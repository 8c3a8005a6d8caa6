//! Stabilization: what all partitions of a region have, so that whoever reads there finds it (Contrarian §4.2).
//!
//! Each partition tells the others up to when it has every region's writes; the least of these, entry by entry, is the
//! *global stable snapshot*. Few partitions tell each other directly. Many form a tree: each inner one tells its parent the
//! least of its own and its children's as soon as all of them have reported, and what the root finds goes down again.

use super::vector::Vector;
use crate::planted::{Plant, Planted};
use crate::topology::Region;
use minicbor::{Decode, Encode};
use std::collections::{BTreeMap, BTreeSet};

/// Up to so many partitions tell each other directly.
const MESH: u16 = 8;

/// How many children each partition has in the tree.
const FANOUT: u16 = 8;

/// What one partition, or all below it in the tree, have.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Report {
    /// Up to when each region's writes are there.
    #[n(0)]
    pub least: Vector,
    /// The highest clock.
    #[n(1)]
    pub clock: u64,
}

/// A message to another partition of the region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Tell {
    /// What is there.
    Report(Report),
    /// What is stable, from the root down.
    Stable(Report),
}

/// One partition's part.
#[derive(Clone, Debug)]
pub(crate) struct Stabilization {
    partition: u16,
    partitions: u16,
    plant: Plant,
    /// What the others have reported; in a tree the children.
    reports: BTreeMap<u16, Report>,
    /// Children that have reported since this partition last told its parent.
    fresh: BTreeSet<u16>,
    /// The global stable snapshot. No entry ever goes back.
    stable: Vector,
}

impl Stabilization {
    pub(crate) fn new(partition: u16, partitions: u16, stable: Vector, plant: Plant) -> Self {
        Self { partition, partitions, plant, reports: BTreeMap::new(), fresh: BTreeSet::new(), stable }
    }

    /// The global stable snapshot, as far as it is known here.
    pub(crate) fn stable(&self) -> &Vector {
        &self.stable
    }

    /// Raises it to what was stable elsewhere in the region, but for the region's own entry.
    pub(crate) fn raise(&mut self, to: &Vector, own: Region) {
        self.stable.join_but(to, own);
    }

    fn mesh(&self) -> bool {
        self.partitions <= MESH
    }

    fn parent(&self) -> Option<u16> {
        self.partition.checked_sub(1).map(|before| before / FANOUT)
    }

    fn children(&self) -> impl Iterator<Item = u16> + use<> {
        let first = u32::from(self.partition) * u32::from(FANOUT) + 1;
        let end = (first + u32::from(FANOUT)).min(u32::from(self.partitions));
        (first.min(end)..end).map(|child| child as u16)
    }

    /// Whose reports are needed here.
    fn sources(&self) -> usize {
        if self.mesh() { usize::from(self.partitions) - 1 } else { self.children().count() }
    }

    /// The period has passed; `own` is what this partition has. Answers whom to tell what.
    pub(crate) fn tick(&mut self, own: &Report) -> Vec<(u16, Tell)> {
        self.find(own);
        if self.mesh() {
            let others = (0..self.partitions).filter(|partition| *partition != self.partition);
            return others.map(|partition| (partition, Tell::Report(own.clone()))).collect();
        }
        // Inner partitions tell when all below have reported, and here only if one of them has not for a whole period.
        self.pass_up(own)
    }

    /// Another partition has reported.
    pub(crate) fn on_report(&mut self, from: u16, report: Report, own: &Report) -> Vec<(u16, Tell)> {
        let expected = if self.mesh() { from < self.partitions } else { self.children().any(|c| c == from) };
        if !expected || from == self.partition {
            return Vec::new();
        }
        match self.reports.get_mut(&from) {
            // Reports may overtake each other; what was there once is there for ever.
            Some(known) => {
                known.least.join(&report.least);
                known.clock = known.clock.max(report.clock);
            }
            None => {
                self.reports.insert(from, report);
            }
        }
        self.fresh.insert(from);
        self.find(own);
        let complete = !self.mesh() && self.fresh.len() == self.sources();
        if complete { self.pass_up(own) } else { Vec::new() }
    }

    /// The root has found what is stable.
    pub(crate) fn on_stable(&mut self, report: &Report) -> Vec<(u16, Tell)> {
        if self.mesh() {
            return Vec::new();
        }
        self.stable.join(&report.least);
        self.pass_down(report)
    }

    fn pass_down(&self, report: &Report) -> Vec<(u16, Tell)> {
        self.children().map(|child| (child, Tell::Stable(report.clone()))).collect()
    }

    fn pass_up(&mut self, own: &Report) -> Vec<(u16, Tell)> {
        let Some(all) = self.all(own) else { return Vec::new() };
        self.fresh.clear();
        match self.parent() {
            Some(parent) => vec![(parent, Tell::Report(all))],
            None => self.pass_down(&Report { least: self.stable.clone(), clock: all.clock }),
        }
    }

    /// The least of all that has been reported, once all have.
    fn all(&self, own: &Report) -> Option<Report> {
        if self.reports.len() < self.sources() {
            return None;
        }
        let mut all = own.clone();
        for report in self.reports.values() {
            all.least.meet(&report.least);
            all.clock = all.clock.max(report.clock);
        }
        Some(all)
    }

    /// Finds the stable snapshot, where that is done here.
    fn find(&mut self, own: &Report) {
        if !self.mesh() && self.partition != 0 {
            return;
        }
        let Some(all) = self.all(own) else { return };
        if self.plant.has(Planted::OneMinimum) {
            self.stable = all.least.all(all.least.lowest());
        } else if self.plant.has(Planted::StableGoesBack) {
            self.stable = all.least;
        } else {
            self.stable.join(&all.least);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(partition: u16) -> Report {
        let least = Vector::zero(2).with(Region(0), 100 + u64::from(partition)).with(Region(1), 500);
        Report { least: least.with(Region(1), 500 - u64::from(partition)), clock: u64::from(partition) }
    }

    /// Plays periods with nothing lost until nothing is told any more; answers how many messages there were.
    fn play(all: &mut [Stabilization], periods: usize) -> usize {
        let mut count = 0;
        for _ in 0..periods {
            let mut wire = Vec::new();
            for partition in 0..all.len() as u16 {
                let told = all[usize::from(partition)].tick(&report(partition));
                wire.extend(told.into_iter().map(|(to, tell)| (partition, to, tell)));
            }
            while let Some((from, to, tell)) = wire.pop() {
                count += 1;
                let told = match tell {
                    Tell::Report(r) => all[usize::from(to)].on_report(from, r, &report(to)),
                    Tell::Stable(r) => all[usize::from(to)].on_stable(&r),
                };
                wire.extend(told.into_iter().map(|(next, tell)| (to, next, tell)));
            }
        }
        count
    }

    fn region(partitions: u16) -> Vec<Stabilization> {
        let one = |p| Stabilization::new(p, partitions, Vector::zero(2), Plant::default());
        (0..partitions).map(one).collect()
    }

    #[test]
    fn every_partition_finds_the_least_of_each_entry() {
        for partitions in [1, 2, 8, 9, 10, 45, 100] {
            let mut all = region(partitions);
            play(&mut all, 2);
            let highest = u64::from(partitions) - 1;
            let least = Vector::zero(2).with(Region(0), 100).with(Region(1), 500 - highest);
            for (partition, one) in all.iter().enumerate() {
                assert_eq!(*one.stable(), least, "partition {partition} of {partitions}");
            }
        }
    }

    #[test]
    fn a_tree_tells_far_less_than_all_to_all() {
        let mut all = region(45);
        play(&mut all, 1);
        let told = play(&mut all, 1);
        assert!(told < 45 * 6, "{told} messages in a period, where all to all takes {}", 45 * 44);
    }

    #[test]
    fn nothing_is_stable_before_all_have_reported_and_nothing_goes_back() {
        let mut all = region(3);
        let one = &mut all[0];
        one.tick(&report(0));
        one.on_report(1, report(1), &report(0));
        assert_eq!(*one.stable(), Vector::zero(2));
        one.on_report(2, report(2), &report(0));
        let found = one.stable().clone();
        assert_eq!(found.get(Region(1)), 498);
        // An older report, overtaken; and a partition that is none.
        one.on_report(2, Report { least: Vector::zero(2), clock: 0 }, &report(0));
        one.on_report(77, Report { least: Vector::zero(2), clock: 0 }, &report(0));
        assert_eq!(*one.stable(), found);
    }
}
