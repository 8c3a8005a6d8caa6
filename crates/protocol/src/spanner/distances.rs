//! How long a commit will take at least, from measured round trips; and which shard coordinates it fastest.
//!
//! An estimate that is too low costs reads some waiting, one that is too high costs the transaction's client. So all
//! round trips are the shortest that were seen (RSS/RSC §6).

use super::message::Partition;
use crate::clock::Micros;
use crate::topology::Region;
use std::collections::BTreeMap;

/// After how long a leader is asked again.
const STALE: Micros = 10_000_000;

/// Shortest round trips.
#[derive(Clone, Debug, Default)]
pub(super) struct Distances {
    /// From here to a region.
    own: BTreeMap<Region, Micros>,
    /// From a leader to another region.
    between: BTreeMap<(Region, Region), Micros>,
    /// When leaders were asked last.
    asked: BTreeMap<Partition, Micros>,
}

impl Distances {
    /// Whether a partition's leader should be asked; it counts as asked then.
    pub(super) fn should_ask(&mut self, now: Micros, partition: Partition) -> bool {
        let stale = self.asked.get(&partition).is_none_or(|at| at + STALE <= now);
        if stale {
            self.asked.insert(partition, now);
        }
        stale
    }

    /// A leader has answered after so long.
    pub(super) fn note(&mut self, leader: Region, took: Micros, round_trips: &[(Region, Micros)]) {
        let shorten = |known: &mut Micros, new: Micros| *known = new.min(*known);
        shorten(self.own.entry(leader).or_insert(took), took);
        for (region, took) in round_trips {
            shorten(self.between.entry((leader, *region)).or_insert(*took), *took);
        }
    }

    fn between(&self, a: Region, b: Region) -> Option<Micros> {
        if a == b {
            return Some(0);
        }
        let known = [self.between.get(&(a, b)), self.between.get(&(b, a))];
        known.into_iter().flatten().min().copied()
    }

    /// How long a leader's word takes to reach a majority of so many regions, and back.
    fn replication(&self, leader: Region, regions: u8) -> Option<Micros> {
        let others = (0..regions).map(Region).filter(|region| *region != leader);
        let mut known: Vec<_> = others.filter_map(|region| self.between.get(&(leader, region))).collect();
        known.sort_unstable();
        let others_needed = usize::from(regions) / 2;
        match others_needed.checked_sub(1) {
            None => Some(0),
            Some(last) => known.get(last).map(|took| **took),
        }
    }

    /// From the client's asking to its being answered, if `coordinator` is the leader that decides.
    fn commit(&self, coordinator: Region, participants: &[Region], regions: u8) -> Option<Micros> {
        let own = |region| self.own.get(region).map(|took| took / 2);
        let mut votes = own(&coordinator)?;
        for participant in participants {
            let prepared = own(participant)? + self.replication(*participant, regions)?;
            votes = votes.max(prepared + self.between(*participant, coordinator)? / 2);
        }
        Some(votes + self.replication(coordinator, regions)? + own(&coordinator)?)
    }

    /// The shard that should coordinate, and the least time that the commit takes, if that is known. `leaders` says in
    /// which region each shard's leader is.
    pub(super) fn choose(
        &self,
        leaders: &[(Partition, Option<Region>)],
        regions: u8,
    ) -> Option<(Partition, Option<Micros>)> {
        let estimate = |chosen: &(Partition, Option<Region>)| {
            let others = leaders.iter().filter(|other| other.0 != chosen.0);
            let others: Option<Vec<Region>> = others.map(|(_, region)| *region).collect();
            self.commit(chosen.1?, &others?, regions)
        };
        let near = |region: Option<Region>| region.and_then(|region| self.own.get(&region)).copied();
        let ranked = leaders.iter().map(|chosen| {
            let took = estimate(chosen);
            (took.unwrap_or(Micros::MAX), near(chosen.1).unwrap_or(Micros::MAX), chosen.0, took)
        });
        ranked.min().map(|(_, _, partition, took)| (partition, took))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The matrix of the RSS paper's §6: CA-VA 62 ms, CA-IR 136 ms, VA-IR 68 ms.
    fn paper() -> Distances {
        let mut distances = Distances::default();
        let (ca, va, ir) = (Region(0), Region(1), Region(2));
        distances.note(ca, 200, &[(va, 62_000), (ir, 136_000)]);
        distances.note(va, 62_000, &[(ca, 62_000), (ir, 68_000)]);
        distances.note(ir, 136_000, &[(ca, 136_000), (va, 68_000)]);
        distances
    }

    #[test]
    fn the_coordinator_is_the_one_that_is_answered_soonest() {
        let leaders = [(0, Some(Region(0))), (1, Some(Region(1))), (2, Some(Region(2)))];
        // In CA: votes from IR arrive after 68 + 68 + 68 ms, then 62 ms of replication. In VA: 68 + 68 + 34 ms, 62 ms,
        // and 31 ms back; in IR, 31 + 62 + 34 ms from VA, and 68 + 68 ms.
        assert_eq!(paper().choose(&leaders, 3), Some((1, Some(170_000 + 62_000 + 31_000))));
        assert_eq!(paper().choose(&leaders[..1], 3), Some((0, Some(62_000 + 200))));
        assert_eq!(
            paper().choose(&leaders[..2], 3),
            Some((0, Some(31_000 + 62_000 + 31_000 + 62_000 + 100)))
        );
    }

    #[test]
    fn what_is_not_known_promises_nothing() {
        let leaders = [(4, Some(Region(1))), (7, None)];
        assert_eq!(paper().choose(&leaders, 3), Some((4, None)));
        assert_eq!(Distances::default().choose(&leaders, 3), Some((4, None)));
        assert_eq!(paper().choose(&[], 3), None);
    }

    #[test]
    fn the_shortest_counts() {
        let mut distances = paper();
        distances.note(Region(1), 90_000, &[(Region(0), 70_000)]);
        assert_eq!(distances.choose(&[(0, Some(Region(1)))], 3), Some((0, Some(124_000))));
        assert!(distances.should_ask(0, 3) && !distances.should_ask(STALE - 1, 3));
        assert!(distances.should_ask(STALE, 3));
    }
}
