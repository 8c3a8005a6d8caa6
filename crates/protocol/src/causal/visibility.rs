//! How late writes of other regions become visible, for operators: it decides nothing.

use super::vector::Vector;
use crate::clock::Micros;
use crate::topology::Region;
use std::collections::BTreeMap;
use std::fmt;

/// Follows one write of each other region at a time, from its origin's clock until it can be seen here.
#[derive(Clone, Default)]
pub(super) struct Visibility {
    /// By origin: what the write that is followed depends on, itself included.
    followed: BTreeMap<Region, Vector>,
    /// How many were followed to the end, and how long all of them took, µs.
    pub(super) seen: u64,
    pub(super) us: u64,
    /// By how much the stable snapshot was behind the clock when that was last looked at.
    pub(super) lag: Option<Micros>,
}

/// Counts say nothing of where a machine stands.
impl fmt::Debug for Visibility {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Visibility")
    }
}

impl Visibility {
    /// A write has come that cannot be seen yet.
    pub(super) fn follow(&mut self, origin: Region, dependencies: &Vector) {
        self.followed.entry(origin).or_insert_with(|| dependencies.clone());
    }

    /// Looks which can be seen, as all but what is of region `own` must be stable.
    pub(super) fn look(&mut self, wall: Micros, stable: &Vector, own: Region) {
        let (seen, us) = (&mut self.seen, &mut self.us);
        self.followed.retain(|origin, dependencies| {
            let hidden = !stable.covers_but(dependencies, own);
            if !hidden {
                *seen += 1;
                // Clocks of two regions: the difference may come out below nothing.
                *us += wall.saturating_sub(dependencies.get(*origin));
            }
            hidden
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_write_of_each_region_is_followed_until_it_is_stable() {
        let mut visibility = Visibility::default();
        let at = |a, b, c| Vector::zero(3).with(Region(0), a).with(Region(1), b).with(Region(2), c);
        visibility.follow(Region(1), &at(90, 1_000, 50));
        visibility.follow(Region(1), &at(90, 1_100, 50));
        visibility.follow(Region(2), &at(0, 0, 1_500));
        visibility.look(1_200, &at(0, 999, 60), Region(0));
        assert_eq!((visibility.seen, visibility.us), (0, 0));
        visibility.look(1_300, &at(0, 1_000, 49), Region(0));
        assert_eq!(visibility.seen, 0, "what it depends on is not stable");
        visibility.look(1_400, &at(0, 1_000, 50), Region(0));
        assert_eq!((visibility.seen, visibility.us), (1, 400));
        visibility.look(1_450, &at(0, 1_000, 1_500), Region(0));
        assert_eq!((visibility.seen, visibility.us), (2, 400), "its clock is ahead");
        visibility.look(9_000, &at(0, 9_000, 9_000), Region(0));
        assert_eq!(visibility.seen, 2);
    }
}
