//! Time as machines see it: given with every input, never read.

/// A point or span of time in microseconds.
pub type Micros = u64;

/// The host's reading of its clocks at the moment of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Microseconds on a clock that never goes back while the process lives. Timers are set on it.
    pub monotonic: Micros,
    /// Microseconds since the Unix epoch, as this node believes. Only expiry times and labels come from it.
    pub wall: Micros,
    /// Half-width of the interval around `wall` that is trusted to hold true time, or `None` when the
    /// node has no trusted bound.
    pub uncertainty: Option<Micros>,
}

/// `TrueTime`: an interval trusted to hold the true time, in microseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// No true time below this is possible now.
    pub earliest: Micros,
    /// No true time above this is possible now.
    pub latest: Micros,
}

impl Now {
    /// The interval that holds true time, or `None` on a node without a trusted bound.
    pub fn truetime(&self) -> Option<Interval> {
        self.uncertainty.map(|half| Interval {
            earliest: self.wall.saturating_sub(half),
            latest: self.wall.saturating_add(half),
        })
    }

    /// Milliseconds since the Unix epoch: the unit in which commands state expiry.
    pub fn wall_ms(&self) -> u64 {
        self.wall / 1_000
    }
}
