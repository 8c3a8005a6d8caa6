//! Counting what operations came to: how they ended, how many round trips they took, how long they took and waited.

use meridian_protocol::clock::Micros;
use meridian_protocol::machine::{Completion, Outcome, Request};
use meridian_protocol::object::Class;

/// What a request asks for, as it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
    ReadModifyWrite,
    /// Several keys in one step, and the ends of open transactions.
    Transaction,
    Scan,
    /// Fences, entries, contexts.
    Session,
}

impl Kind {
    /// All of them, with their names.
    pub(crate) const NAMES: [(Self, &'static str); 6] = [
        (Self::Read, "read"),
        (Self::Write, "write"),
        (Self::ReadModifyWrite, "rmw"),
        (Self::Transaction, "transaction"),
        (Self::Scan, "scan"),
        (Self::Session, "session"),
    ];

    /// That of a request.
    pub(crate) fn of(request: &Request) -> Self {
        match request {
            Request::Act { action, .. } => match action.class() {
                Class::Read => Self::Read,
                Class::Write => Self::Write,
                Class::ReadModifyWrite => Self::ReadModifyWrite,
            },
            Request::Together(_) | Request::Begin { .. } | Request::Commit | Request::Abort => {
                Self::Transaction
            }
            Request::Scan { .. } => Self::Scan,
            Request::Fence | Request::Enter | Request::Export | Request::Import(_) => Self::Session,
        }
    }
}

/// The names of how operations end, in the order of [`Tally::ended`].
pub(crate) const ENDS: [&str; 4] = ["done", "no_quorum", "aborted", "unknown"];

/// Round trips are told apart up to this many; more count as so many.
pub(crate) const ROUNDS_MAX: usize = 4;

/// What the operations of one kind came to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    /// How they ended.
    pub(crate) ended: [u64; ENDS.len()],
    /// By the round trips that they took.
    pub(crate) rounds: [u64; ROUNDS_MAX + 1],
    /// For how long they waited for something else than their own round trips, together.
    pub(crate) waited: Micros,
    /// How long they took.
    pub(crate) took: Histogram,
}

impl Tally {
    /// Counts an operation that took so long.
    pub(crate) fn note(&mut self, completion: &Completion, took: Micros) {
        let end = match completion.outcome {
            Outcome::NoQuorum => 1,
            Outcome::Aborted(_) => 2,
            Outcome::Unknown(_) => 3,
            _ => 0,
        };
        self.ended[end] += 1;
        self.rounds[(completion.cost.rounds as usize).min(ROUNDS_MAX)] += 1;
        self.waited += completion.cost.waited;
        self.took.note(took);
    }
}

/// The tallies of a keyspace, one for each kind.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tallies([Tally; Kind::NAMES.len()]);

impl Tallies {
    /// That of a kind.
    pub(crate) fn of(&mut self, kind: Kind) -> &mut Tally {
        &mut self.0[kind as usize]
    }

    /// All, with the names of their kinds.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'static str, &Tally)> {
        Kind::NAMES.iter().map(|(kind, name)| (*name, &self.0[*kind as usize]))
    }
}

/// Times, counted in classes that grow by half an order of magnitude or less.
#[derive(Clone, Debug, Default)]
pub(crate) struct Histogram {
    /// By class; the last one has no bound.
    counts: [u64; Self::BOUNDS.len() + 1],
    /// All of them together.
    pub(crate) sum: Micros,
}

impl Histogram {
    /// The longest time of each class but the last.
    pub(crate) const BOUNDS: [Micros; 18] = [
        50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 200_000, 350_000, 500_000,
        1_000_000, 2_500_000, 5_000_000, 10_000_000,
    ];

    /// Counts a time.
    pub(crate) fn note(&mut self, time: Micros) {
        self.counts[Self::BOUNDS.partition_point(|bound| *bound < time)] += 1;
        self.sum += time;
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// For each bound, how many took no longer.
    pub(crate) fn up_to(&self) -> impl Iterator<Item = (Micros, u64)> {
        let mut sum = 0;
        Self::BOUNDS.iter().zip(&self.counts).map(move |(bound, count)| {
            sum += count;
            (*bound, sum)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use meridian_protocol::machine::Cost;

    #[test]
    fn times_are_counted_up_to_and_with_each_bound() {
        let mut histogram = Histogram::default();
        for time in [0, 50, 51, 10_000_000, 10_000_001] {
            histogram.note(time);
        }
        let up_to: Vec<_> = histogram.up_to().collect();
        assert_eq!((up_to[0], up_to[1], up_to[17]), ((50, 2), (100, 3), (10_000_000, 4)));
        assert_eq!((histogram.count(), histogram.sum), (5, 20_000_102));
        assert!(Histogram::BOUNDS.is_sorted());
    }

    #[test]
    fn an_operation_is_counted_by_its_end_its_rounds_and_its_waits() {
        let mut tallies = Tallies::default();
        let completion = |outcome, rounds| Completion {
            request: 1,
            outcome,
            cost: Cost { rounds, waited: 7, ..Cost::default() },
        };
        for (outcome, rounds) in [
            (Outcome::Done, 0),
            (Outcome::Fenced, 2),
            (Outcome::NoQuorum, 1),
            (Outcome::Aborted("x"), 9),
            (Outcome::LATE, 4),
        ] {
            tallies.of(Kind::Read).note(&completion(outcome, rounds), 100);
        }
        let read = tallies.of(Kind::Read).clone();
        assert_eq!((read.ended, read.rounds, read.waited), ([2, 1, 1, 1], [1, 1, 1, 0, 2], 35));
        assert!(tallies.iter().all(|(name, tally)| tally.took.count() == if name == "read" { 5 } else { 0 }));
        assert!(Kind::NAMES.iter().enumerate().all(|(place, (kind, _))| *kind as usize == place));
    }
}
