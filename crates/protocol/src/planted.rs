//! Bugs that a test plants so that a checker can be seen to catch them.

/// A known bug. Each is caught by name in the simulator's tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Planted {
    /// A Gryff read answers after its first phase although its value is not known on a quorum.
    SkipWriteBack,
    /// A Gryff-RSC session forgets what it has read instead of settling it.
    DropDependency,
    /// A Gryff-RSC session sends its dependency along with the next operation's first phase, as published.
    PiggybackDependency,
    /// An rmw answers after one execution instead of f+1.
    CompleteAfterOneExecution,
    /// Carstamps are compared by (ts, rmwc, id): an rmw of one write overtakes another write of equal ts.
    CompareCarstampsWrongly,
    /// One ballot per instance: answering a recovery raises the ballot at which a value counts as accepted.
    SingleBallot,
    /// The rmw fast quorum is 3 of 5, which cannot recover the base.
    SmallFastQuorum,
    /// A write picks its timestamp without regard to its coordinator's earlier writes.
    ReuseCarstamp,
    /// A Multi-Paxos leader answers reads alone without knowing that it still leads.
    ServeStaleBallot,
    /// An acceptor forgets at a restart what it has promised.
    ForgetPromise,
    /// A promise does not hold for slots in which something is accepted already.
    PromiseSkipsFilledSlots,
    /// A leader counts what was accepted at other ballots than its own.
    CountAcksAcrossBallots,
    /// A snapshot leaves out which updates have been applied.
    SnapshotWithoutSessions,
    /// EPaxos's slow path proposes what the coordinator knew, without what the replies add.
    LostDependency,
    /// EPaxos takes an entry of a dependency array for that one instance, not for all up to it.
    SingleInstanceDependencies,
    /// EPaxos executes a component of the dependency graph in the order in which the search met it.
    UnsortedComponent,
}

impl Planted {
    /// Every bug with the name that `sim --plant` takes.
    pub const ALL: [(&'static str, Self); 16] = [
        ("skip-write-back", Self::SkipWriteBack),
        ("drop-dependency", Self::DropDependency),
        ("piggyback-dependency", Self::PiggybackDependency),
        ("complete-after-one-execution", Self::CompleteAfterOneExecution),
        ("compare-carstamps-wrongly", Self::CompareCarstampsWrongly),
        ("single-ballot", Self::SingleBallot),
        ("small-fast-quorum", Self::SmallFastQuorum),
        ("reuse-carstamp", Self::ReuseCarstamp),
        ("serve-stale-ballot", Self::ServeStaleBallot),
        ("forget-promise", Self::ForgetPromise),
        ("promise-skips-filled-slots", Self::PromiseSkipsFilledSlots),
        ("count-acks-across-ballots", Self::CountAcksAcrossBallots),
        ("snapshot-without-sessions", Self::SnapshotWithoutSessions),
        ("lost-dependency", Self::LostDependency),
        ("single-instance-dependencies", Self::SingleInstanceDependencies),
        ("unsorted-component", Self::UnsortedComponent),
    ];
}

/// The bug planted in a machine: none, in every build without the feature `planted-bugs`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Plant {
    #[cfg(feature = "planted-bugs")]
    bug: Option<Planted>,
}

impl Plant {
    /// Plants `bug`.
    #[cfg(feature = "planted-bugs")]
    pub fn new(bug: Planted) -> Self {
        Self { bug: Some(bug) }
    }

    /// Whether `bug` is planted.
    pub fn has(self, bug: Planted) -> bool {
        #[cfg(feature = "planted-bugs")]
        return self.bug == Some(bug);
        #[cfg(not(feature = "planted-bugs"))]
        {
            let _ = bug;
            false
        }
    }
}
