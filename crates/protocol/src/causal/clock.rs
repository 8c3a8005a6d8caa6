//! Clocks for timestamps: hybrid ones, as near to the wall clock as they can be, and to compare with them logical and
//! physical ones. None goes back, not even through a restart.

use super::ClockKind;
use crate::clock::{Micros, Now};

/// How far ahead of what was shown the durable bound is moved, so that it is stored about once a second and not at
/// every step. A restarted replica goes on from the bound.
const RESERVE: Micros = 1_000_000;

/// How far ahead of this node's clock a timestamp may be. What is further is refused: were it taken in, one broken clock
/// could use up all timestamps for ever. An hour's difference between regions is unpleasant and still served.
const MAX_DRIFT: Micros = 24 * 3_600_000_000;

/// A clock in microseconds since the Unix epoch. Whatever was shown of it, the next tick is above.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    kind: ClockKind,
    value: u64,
    /// Stored: a restart begins here.
    reserved: u64,
}

impl Clock {
    /// A clock that goes on from what was stored; 0 for a new one.
    pub(crate) fn new(kind: ClockKind, reserved: u64) -> Self {
        Self { kind, value: reserved, reserved }
    }

    fn physical(&self, now: Now) -> u64 {
        match self.kind {
            ClockKind::Hybrid | ClockKind::Physical => now.wall,
            ClockKind::Logical => 0,
        }
    }

    /// The time now. No later [`Clock::tick`] gives this or less.
    pub(crate) fn read(&mut self, now: Now) -> u64 {
        self.value = self.value.max(self.physical(now));
        self.value
    }

    /// A timestamp above all that was shown, and above `than`. A physical clock must have been waited for.
    pub(crate) fn tick(&mut self, now: Now, than: u64) -> u64 {
        self.advance(than);
        self.value = self.physical(now).max(self.value.saturating_add(1));
        assert!(self.value > than, "a write was given the timestamp {} and depends on {than}", self.value);
        self.value
    }

    /// Moves on to a time that others have shown. A physical clock stays: it is waited for.
    pub(crate) fn advance(&mut self, to: u64) {
        if self.kind != ClockKind::Physical {
            self.value = self.value.max(to);
        }
    }

    /// How long to wait until what needs this time can be done: nothing, but for a physical clock.
    pub(crate) fn wait(&mut self, now: Now, until: u64) -> Micros {
        if self.kind == ClockKind::Physical { until.saturating_sub(self.read(now)) } else { 0 }
    }

    /// What it shows.
    pub(crate) fn value(&self) -> u64 {
        self.value
    }

    /// Whether a timestamp is so far ahead that a clock must be broken, there or here.
    pub(crate) fn refuses(&self, now: Now, at: u64) -> bool {
        at > now.wall.max(self.value).saturating_add(MAX_DRIFT)
    }

    /// The bound to be stored before anything leaves, if what is shown has passed the last one.
    pub(crate) fn reserve(&mut self) -> Option<u64> {
        (self.value > self.reserved).then(|| {
            self.reserved = self.value.saturating_add(RESERVE);
            self.reserved
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(wall: Micros) -> Now {
        Now { monotonic: 1, wall, uncertainty: None, passed: 0 }
    }

    #[test]
    fn follows_the_wall_and_never_goes_back() {
        let mut clock = Clock::new(ClockKind::Hybrid, 0);
        assert_eq!(clock.tick(at(100), 0), 100);
        assert_eq!(clock.tick(at(90), 0), 101);
        assert_eq!(clock.tick(at(90), 500), 501);
        assert_eq!(clock.read(at(400)), 501);
        assert_eq!(clock.read(at(600)), 600);
        assert_eq!(clock.tick(at(600), 0), 601);
        let mut logical = Clock::new(ClockKind::Logical, 0);
        assert_eq!((logical.read(at(100)), logical.tick(at(100), 3)), (0, 4));
    }

    #[test]
    fn only_a_physical_clock_is_waited_for() {
        let mut physical = Clock::new(ClockKind::Physical, 0);
        assert_eq!(physical.wait(at(100), 130), 30);
        physical.advance(130);
        assert_eq!((physical.value(), physical.wait(at(135), 130)), (100, 0));
        assert_eq!((physical.tick(at(135), 130), physical.tick(at(135), 130)), (136, 137));
        for kind in [ClockKind::Hybrid, ClockKind::Logical] {
            assert_eq!(Clock::new(kind, 0).wait(at(100), 130), 0);
        }
    }

    #[test]
    fn a_restart_goes_on_above_all_that_was_shown() {
        let mut clock = Clock::new(ClockKind::Hybrid, 0);
        clock.read(at(5_000_000));
        let stored = clock.reserve().expect("nothing was stored before");
        clock.read(at(5_900_000));
        assert_eq!(clock.reserve(), None, "still below the bound");
        let mut again = Clock::new(ClockKind::Hybrid, stored);
        assert!(again.tick(at(1), 0) > 5_900_000);
        assert!(again.refuses(at(1), u64::MAX) && !again.refuses(at(1), stored + 3_600_000_000));
    }
}
