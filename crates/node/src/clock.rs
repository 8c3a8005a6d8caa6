//! The node's clocks as machines are given them.

use meridian_clock::Reading;
use meridian_protocol::clock::{Heard, Micros, Now, Vouched};
use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

/// How long a reading of the wall clock is carried on by the monotonic one: stepping the wall clock shows after
/// so long, and most readings cost one look at one clock.
const CARRY: Micros = 10_000;

/// By how much a clock that is carried on may go wrong: the kernel slews by one part in 2,000 at most.
const DRIFT: Micros = 2_000;

/// One in so many contradictions is logged.
const TELL_AGAIN: u64 = 10_000;

/// Reads both clocks.
#[derive(Debug)]
pub(crate) struct Clock {
    start: Instant,
    wall: RefCell<meridian_clock::Clock>,
    /// When the wall clock was last read, and what it then showed.
    anchor: Cell<(Micros, Reading)>,
    /// The latest wall time given out.
    latest: Cell<Micros>,
    /// What is known of true time besides.
    vouched: RefCell<Vouched>,
}

impl Clock {
    /// A clock that takes its time from `wall`, on a node of so many.
    pub(crate) fn new(mut wall: meridian_clock::Clock, nodes: usize) -> Self {
        if let Some(path) = wall.moved_by() {
            let (variable, path) = (meridian_clock::OFFSET, path.display());
            tracing::warn!(
                "{variable}: the clock is moved by what {path} says: for tests, and for nothing else"
            );
        }
        let start = Instant::now();
        let (monotonic, reading) = bracketed(|| elapsed(start), || wall.read());
        tell(None, reading.error);
        Self {
            start,
            wall: RefCell::new(wall),
            anchor: Cell::new((monotonic, reading)),
            latest: Cell::new(reading.wall),
            vouched: RefCell::new(Vouched::of(nodes)),
        }
    }

    /// The time, which never goes back. The bound holds for what is shown: what carrying on and never going back add to
    /// the clock's error is in it.
    pub(crate) fn now(&self) -> Now {
        let mut monotonic = elapsed(self.start);
        let (mut read_at, mut reading) = self.anchor.get();
        if monotonic - read_at >= CARRY {
            let before = reading.error;
            (read_at, reading) = bracketed(|| elapsed(self.start), || self.wall.borrow_mut().read());
            monotonic = read_at;
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
        self.vouched.borrow_mut().reading(monotonic, wall, uncertainty)
    }

    /// The clock of node `from`, called `name`, says that the time is `earliest` at least. What contradicts the own clock
    /// is logged, now and then.
    pub(crate) fn hear(&self, from: u16, name: &str, earliest: Micros) {
        let now = self.now();
        let mut vouched = self.vouched.borrow_mut();
        match vouched.hear(&now, from, earliest) {
            Heard::Distrusted => tracing::error!(
                "the clock of '{name}' too is ahead of all that this node's bound allows: this node's is trusted no more: put it \
                 right, or state a larger bound, and start the node again"
            ),
            Heard::Contradicts if vouched.contradicted() % TELL_AGAIN == 1 => {
                let by = earliest.saturating_sub(now.truetime().map_or(0, |own| own.latest));
                tracing::error!(
                    "the clock of '{name}' is ahead of all that this node's bound allows by {by} us: one of them is out of its bound, \
                     and what rests on clocks may be wrong: compare both with a source of time"
                );
            }
            Heard::Agrees | Heard::Contradicts => {}
        }
    }

    /// How often other nodes' clocks have contradicted this one.
    pub(crate) fn contradicted(&self) -> u64 {
        self.vouched.borrow().contradicted()
    }

    /// What the monotonic clock shows: for spans of time, at a third of the cost of [`Self::now`].
    pub(crate) fn monotonic(&self) -> Micros {
        elapsed(self.start)
    }

    /// The moment at which the monotonic clock will show `at`.
    pub(crate) fn instant(&self, at: Micros) -> Instant {
        self.start + Duration::from_micros(at)
    }
}

fn elapsed(start: Instant) -> Micros {
    start.elapsed().as_micros() as Micros
}

/// Reads the wall clock, and the monotonic one before and after: the wall's time belongs to some moment between, as the
/// thread may have lost the processor there. It is taken for the first one's, and the bound grows by as much.
fn bracketed(monotonic: impl Fn() -> Micros, wall: impl FnOnce() -> Reading) -> (Micros, Reading) {
    let before = monotonic();
    let Reading { wall, error } = wall();
    let between = monotonic() - before;
    (before, Reading { wall, error: error.map(|error| error + between) })
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
        let clock = Clock::new(meridian_clock::Clock::open(&source).unwrap(), 3);
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
        assert!(first.uncertainty.unwrap() >= 2_000);
    }

    #[test]
    fn a_pause_between_the_two_clocks_is_in_the_bound() {
        let monotonic = Cell::new(100);
        let pause_before_and_after = || {
            monotonic.set(monotonic.get() + 5_000);
            let reading = Reading { wall: 1_000_000 + monotonic.get(), error: Some(10) };
            monotonic.set(monotonic.get() + 700);
            reading
        };
        let (at, reading) = bracketed(|| monotonic.get(), pause_before_and_after);
        // The wall clock shows a million more than the monotonic one; this reading, carried on, 5,000 more than that.
        assert_eq!((at, reading.wall - at), (100, 1_005_000));
        assert_eq!(reading.error, Some(10 + 5_700));
    }

    #[test]
    fn a_clock_that_others_contradict_has_no_bound_any_more() {
        let source = Source::Configured(Duration::from_millis(2));
        let clock = Clock::new(meridian_clock::Clock::open(&source).unwrap(), 3);
        let first = clock.now();
        clock.hear(1, "b", first.wall + 1_000);
        assert_eq!((clock.now().passed, clock.contradicted()), (first.wall + 1_000, 0));
        clock.hear(1, "b", first.wall + 60_000_000);
        assert!(clock.now().uncertainty.is_some());
        clock.hear(2, "c", first.wall + 60_000_000);
        assert_eq!((clock.now().uncertainty, clock.contradicted()), (None, 2));
    }
}
