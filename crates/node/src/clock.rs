//! The node's clocks as machines are given them.

use meridian_clock::Reading;
use meridian_protocol::clock::{Micros, Now};
use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

/// How long a reading of the wall clock is carried on by the monotonic one: stepping the wall clock shows after
/// so long, and most readings cost one look at one clock.
const CARRY: Micros = 10_000;

/// By how much a clock that is carried on may go wrong: the kernel slews by one part in 2,000 at most.
const DRIFT: Micros = 2_000;

/// Reads both clocks.
#[derive(Debug)]
pub(crate) struct Clock {
    start: Instant,
    wall: RefCell<meridian_clock::Clock>,
    /// When the wall clock was last read, and what it then showed.
    anchor: Cell<(Micros, Reading)>,
    /// The latest wall time given out.
    latest: Cell<Micros>,
}

impl Clock {
    /// A clock that takes its time from `wall`.
    pub(crate) fn new(mut wall: meridian_clock::Clock) -> Self {
        let reading = wall.read();
        tell(None, reading.error);
        Self {
            start: Instant::now(),
            wall: RefCell::new(wall),
            anchor: Cell::new((0, reading)),
            latest: Cell::new(reading.wall),
        }
    }

    /// The time, which never goes back. The bound holds for what is shown: what carrying on and never going back add to
    /// the clock's error is in it.
    pub(crate) fn now(&self) -> Now {
        let monotonic = self.start.elapsed().as_micros() as Micros;
        let (mut read_at, mut reading) = self.anchor.get();
        if monotonic - read_at >= CARRY {
            let before = reading.error;
            (read_at, reading) = (monotonic, self.wall.borrow_mut().read());
            if before.is_some() != reading.error.is_some() {
                tell(before, reading.error);
            }
            self.anchor.set((read_at, reading));
        }
        let since = monotonic - read_at;
        let true_wall = reading.wall + since;
        let wall = true_wall.max(self.latest.get());
        self.latest.set(wall);
        // A configured bound covers the drift of so short a time.
        let uncertainty = reading.error.map(|error| error + since / DRIFT + (wall - true_wall));
        Now { monotonic, wall, uncertainty }
    }

    /// The moment at which the monotonic clock will show `at`.
    pub(crate) fn instant(&self, at: Micros) -> Instant {
        self.start + Duration::from_micros(at)
    }
}

/// Says that the clock has a bound now, or has none any more.
fn tell(before: Option<Micros>, now: Option<Micros>) {
    match (before, now) {
        (None, Some(error)) => {
            tracing::info!(error_us = error, "the clock has a bound that is trusted");
        }
        (Some(_), None) => {
            tracing::warn!("the clock has no trusted bound any more: what rests on one is refused or waits");
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use meridian_clock::Source;

    #[test]
    fn time_goes_on_and_never_back() {
        let source = Source::Configured(Duration::from_millis(2));
        let clock = Clock::new(meridian_clock::Clock::open(&source).unwrap());
        // Pretend that the wall clock was stepped back by a minute since it was last read.
        let first = clock.now();
        clock.latest.set(first.wall + 60_000_000);
        let later = clock.now();
        assert_eq!(later.wall, first.wall + 60_000_000);
        assert!(later.monotonic >= first.monotonic);
        assert!(clock.instant(first.monotonic) <= Instant::now());
        // True time is what the clock shows, a minute before what is given out: the bound says so.
        let earliest = later.truetime().unwrap().earliest;
        assert!(earliest <= first.wall - 1_000, "{earliest} {first:?}");
        assert!((2_000..2_010).contains(&first.uncertainty.unwrap()));
    }
}
