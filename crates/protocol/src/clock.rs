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
    /// True time is above this: the largest [`Interval::earliest`] that this node has read itself or that another node's
    /// message has brought. It grows on nodes without a bound too. 0 if nothing is known.
    pub passed: Micros,
}

/// `TrueTime`: an interval trusted to hold the true time, in microseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// No true time below this is possible now.
    pub earliest: Micros,
    /// No true time above this is possible now.
    pub latest: Micros,
}

/// What a node knows of true time from its own clock and from what other nodes' messages vouch for. Hosts keep one a
/// life: with it they make every [`Now`], put [`Interval::earliest`] on all that leaves the node, and hear what comes.
///
/// Clocks are believed: what is told here of contradictions finds a wrong one out, and makes up for nothing. A bound that
/// was wrong for a while leaves [`Now::passed`] too high for as long.
#[derive(Clone, Debug)]
pub struct Vouched {
    passed: Micros,
    /// How many other nodes must contradict the own clock before it counts as the wrong one: a majority of all, and more than one,
    /// which may be wrong itself.
    witnesses: usize,
    /// Nodes whose clocks have contradicted this one's.
    against: Vec<u16>,
    contradicted: u64,
}

/// What came of another node's word about the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// It agrees with the own clock, as far as can be known.
    Agrees,
    /// Its clock and the own one cannot both be within their bounds. It was not believed.
    Contradicts,
    /// So many clocks contradict the own one now that it is trusted no more.
    Distrusted,
}

impl Vouched {
    /// Nothing is known yet, on a node of so many.
    pub fn of(nodes: usize) -> Self {
        Self { passed: 0, witnesses: (nodes / 2 + 1).max(2), against: Vec::new(), contradicted: 0 }
    }

    /// Forgets all that was heard, as the node begins another life.
    pub fn forget(&mut self) {
        *self = Self { witnesses: self.witnesses, ..Self::of(0) };
    }

    /// A reading of the node's clocks, with all that is known to have passed.
    pub fn reading(&mut self, monotonic: Micros, wall: Micros, uncertainty: Option<Micros>) -> Now {
        let uncertainty = uncertainty.filter(|_| self.against.len() < self.witnesses);
        let mut now = Now { monotonic, wall, uncertainty, passed: 0 };
        if let Some(interval) = now.truetime() {
            self.passed = self.passed.max(interval.earliest);
        }
        now.passed = self.passed;
        now
    }

    /// A message of node `from` brings what its own clock says is the earliest that the time can be. If that is later
    /// than the own clock allows, one of the two is out of its bound. A clock that is late by less than messages take
    /// is never found out.
    pub fn hear(&mut self, now: &Now, from: u16, earliest: Micros) -> Heard {
        if now.truetime().is_none_or(|own| earliest <= own.latest) {
            self.passed = self.passed.max(earliest);
            return Heard::Agrees;
        }
        self.contradicted += 1;
        if !self.against.contains(&from) {
            self.against.push(from);
            if self.against.len() == self.witnesses {
                return Heard::Distrusted;
            }
        }
        Heard::Contradicts
    }

    /// How often another clock has contradicted the own one.
    pub fn contradicted(&self) -> u64 {
        self.contradicted
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_passed_anywhere_has_passed() {
        let mut vouched = Vouched::of(3);
        let own = vouched.reading(1, 1_000, Some(10));
        assert_eq!(own.passed, 990);
        assert_eq!(vouched.hear(&own, 2, 1_005), Heard::Agrees);
        assert_eq!(vouched.reading(2, 1_001, Some(10)).passed, 1_005);
        assert_eq!(
            vouched.reading(3, 1_100, None).passed,
            1_005,
            "a clock without a bound vouches for nothing"
        );
    }

    #[test]
    fn a_clock_that_most_others_contradict_is_trusted_no_more() {
        let mut vouched = Vouched::of(3);
        let own = vouched.reading(1, 1_000, Some(10));
        assert_eq!(vouched.hear(&own, 2, 1_011), Heard::Contradicts);
        assert_eq!(vouched.hear(&own, 2, 1_012), Heard::Contradicts, "one clock is one witness");
        let now = vouched.reading(2, 1_001, Some(10));
        assert_eq!((now.uncertainty, now.passed), (Some(10), 991), "and is not believed");
        assert_eq!(vouched.hear(&now, 3, 1_013), Heard::Distrusted);
        let now = vouched.reading(3, 1_002, Some(10));
        assert_eq!((now.truetime(), vouched.contradicted()), (None, 3));
        assert_eq!(vouched.hear(&now, 3, 1_014), Heard::Agrees);
        assert_eq!(vouched.reading(4, 1_003, Some(10)).passed, 1_014, "now the others know better");
    }

    #[test]
    fn the_few_do_not_outvote_the_many() {
        let mut vouched = Vouched::of(5);
        for fast in [1, 2, 1, 2] {
            let own = vouched.reading(1, 1_000, Some(10));
            assert_eq!(vouched.hear(&own, fast, 2_000), Heard::Contradicts);
        }
        let own = vouched.reading(2, 1_001, Some(10));
        assert_eq!((own.uncertainty, own.passed), (Some(10), 991));
        assert_eq!(vouched.hear(&own, 3, 2_000), Heard::Distrusted);
    }
}
