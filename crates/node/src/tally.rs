//! Counting what operations came to: how they ended, how many round trips they took, how long they took and waited.

use crate::resp::table;
use meridian_protocol::clock::Micros;
use meridian_protocol::machine::{Completion, Outcome, Request};
use meridian_protocol::object::Class;
use meridian_store::StoreStatus;

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

/// The longest time of each class but the last.
const TIMES: Bounds = [
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 200_000, 350_000, 500_000,
    1_000_000, 2_500_000, 5_000_000, 10_000_000,
];

/// The same of numbers of things.
const NUMBERS: Bounds = [1, 2, 3, 5, 8, 12, 20, 30, 50, 80, 120, 200, 300, 500, 800, 1_200, 2_000, 5_000];

type Bounds = [u64; 18];

/// How long commands took that waited for an operation, by keyspace and by the command's place in the table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Commands(Vec<Vec<Histogram>>);

impl Commands {
    /// Those of so many keyspaces.
    pub(crate) fn of(keyspaces: usize) -> Self {
        Self(vec![vec![Histogram::default(); table::all().len()]; keyspaces])
    }

    /// Counts a command, by its first word, that took so long.
    pub(crate) fn note(&mut self, keyspace: usize, name: &[u8], took: Micros) {
        let place = table::index_of(name);
        if let Some(histogram) = place.and_then(|place| self.0.get_mut(keyspace)?.get_mut(place)) {
            histogram.note(took);
        }
    }

    /// Those of a keyspace that there were, with their names.
    pub(crate) fn iter(&self, keyspace: usize) -> impl Iterator<Item = (&'static str, &Histogram)> {
        let all = table::all().iter().map(|entry| entry.name).zip(self.0.get(keyspace).into_iter().flatten());
        all.filter(|(_, took)| took.count() > 0)
    }
}

/// What it took to keep records.
#[derive(Clone, Debug)]
pub(crate) struct Commits {
    /// How long batches took.
    pub(crate) took: Histogram,
    /// How long it took to force what was written to disk.
    pub(crate) synced: Histogram,
    /// How many records shared that.
    pub(crate) shared: Histogram,
    /// How many wait for it.
    waiting: u64,
}

impl Default for Commits {
    fn default() -> Self {
        Self {
            took: Histogram::default(),
            synced: Histogram::default(),
            shared: Histogram::of_numbers(),
            waiting: 0,
        }
    }
}

impl Commits {
    /// Counts so many records, whose batch took so long.
    pub(crate) fn note(&mut self, records: usize, took: Micros) {
        self.took.note(took);
        self.waiting += records as u64;
    }

    /// Looks whether the store has forced them to disk since.
    pub(crate) fn look(&mut self, before: &StoreStatus, now: &StoreStatus) {
        if now.syncs > before.syncs {
            self.synced.note(now.sync_us.saturating_sub(before.sync_us));
            self.shared.note(std::mem::take(&mut self.waiting));
        }
    }
}

/// Times, or numbers of things, counted in classes that grow by half an order of magnitude or less.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    bounds: &'static Bounds,
    /// By class; the last one has no bound.
    counts: [u64; TIMES.len() + 1],
    /// All of them together.
    pub(crate) sum: u64,
}

/// Of times in microseconds.
impl Default for Histogram {
    fn default() -> Self {
        Self { bounds: &TIMES, counts: [0; TIMES.len() + 1], sum: 0 }
    }
}

impl Histogram {
    /// Of numbers of things.
    pub(crate) fn of_numbers() -> Self {
        Self { bounds: &NUMBERS, ..Self::default() }
    }

    /// Counts one.
    pub(crate) fn note(&mut self, one: u64) {
        self.counts[self.bounds.partition_point(|bound| *bound < one)] += 1;
        self.sum += one;
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// For each bound, how many did not exceed it.
    pub(crate) fn up_to(&self) -> impl Iterator<Item = (u64, u64)> {
        let mut sum = 0;
        self.bounds.iter().zip(&self.counts).map(move |(bound, count)| {
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
        assert!(TIMES.is_sorted() && NUMBERS.is_sorted());
        let mut numbers = Histogram::of_numbers();
        numbers.note(2);
        assert_eq!(numbers.up_to().take(2).collect::<Vec<_>>(), [(1, 0), (2, 1)]);
    }

    #[test]
    fn a_sync_is_shared_by_all_records_since_the_last_one() {
        let mut commits = Commits::default();
        let status = |syncs, sync_us| StoreStatus { syncs, sync_us, ..StoreStatus::default() };
        commits.note(3, 10);
        commits.look(&status(1, 500), &status(1, 500));
        assert_eq!(
            (commits.synced.count(), commits.shared.count()),
            (0, 0),
            "in mode interval it comes later"
        );
        commits.note(4, 10);
        commits.look(&status(1, 500), &status(2, 720));
        assert_eq!((commits.synced.sum, commits.shared.sum, commits.took.sum), (220, 7, 20));
        commits.look(&status(2, 720), &status(3, 800));
        assert_eq!((commits.synced.count(), commits.shared.sum), (2, 7));
    }

    #[test]
    fn commands_are_counted_by_keyspace_and_name() {
        let mut commands = Commands::of(2);
        commands.note(1, b"gEt", 70);
        commands.note(1, b"GET", 80);
        for (keyspace, name) in [(1, &b"nosuch"[..]), (2, b"get")] {
            commands.note(keyspace, name, 1);
        }
        let seen: Vec<_> = commands.iter(1).map(|(name, took)| (name, took.count(), took.sum)).collect();
        assert_eq!((seen, commands.iter(0).count()), (vec![("get", 2, 150)], 0));
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
