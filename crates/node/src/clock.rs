//! The node's clocks as machines are given them.

use meridian_protocol::clock::{Micros, Now};
use std::cell::Cell;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long a reading of the wall clock is carried on by the monotonic one: stepping the wall clock shows after
/// so long, and most readings cost one look at one clock.
const CARRY: Micros = 10_000;

/// Reads both clocks.
#[derive(Debug)]
pub(crate) struct Clock {
    start: Instant,
    uncertainty: Option<Micros>,
    /// When the wall clock was last read, and what it then showed.
    anchor: Cell<(Micros, Micros)>,
    /// The latest wall time given out.
    latest: Cell<Micros>,
}

impl Clock {
    /// A clock whose wall time is trusted to be off by at most `error`, if that is known.
    pub(crate) fn new(error: Option<Duration>) -> Self {
        let wall = wall();
        Self {
            start: Instant::now(),
            uncertainty: error.map(|error| error.as_micros() as Micros),
            anchor: Cell::new((0, wall)),
            latest: Cell::new(wall),
        }
    }

    /// The time, which never goes back.
    pub(crate) fn now(&self) -> Now {
        let monotonic = self.start.elapsed().as_micros() as Micros;
        let (read_at, mut shown) = self.anchor.get();
        if monotonic - read_at >= CARRY {
            shown = wall();
            self.anchor.set((monotonic, shown));
        } else {
            shown += monotonic - read_at;
        }
        let wall = shown.max(self.latest.get());
        self.latest.set(wall);
        Now { monotonic, wall, uncertainty: self.uncertainty }
    }

    /// The moment at which the monotonic clock will show `at`.
    pub(crate) fn instant(&self, at: Micros) -> Instant {
        self.start + Duration::from_micros(at)
    }
}

fn wall() -> Micros {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as Micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_on_and_never_back() {
        let clock = Clock::new(Some(Duration::from_millis(2)));
        // Pretend that the wall clock was stepped back by a minute since it was last read.
        let first = clock.now();
        clock.latest.set(first.wall + 60_000_000);
        let later = clock.now();
        assert_eq!(later.wall, first.wall + 60_000_000);
        assert!(later.monotonic >= first.monotonic);
        assert_eq!(later.uncertainty, Some(2_000));
        assert!(clock.instant(first.monotonic) <= Instant::now());
    }
}
