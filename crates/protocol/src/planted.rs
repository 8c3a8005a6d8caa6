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
}

impl Planted {
    /// Every bug with the name that `sim --plant` takes.
    pub const ALL: [(&'static str, Self); 8] = [
        ("skip-write-back", Self::SkipWriteBack),
        ("drop-dependency", Self::DropDependency),
        ("piggyback-dependency", Self::PiggybackDependency),
        ("complete-after-one-execution", Self::CompleteAfterOneExecution),
        ("compare-carstamps-wrongly", Self::CompareCarstampsWrongly),
        ("single-ballot", Self::SingleBallot),
        ("small-fast-quorum", Self::SmallFastQuorum),
        ("reuse-carstamp", Self::ReuseCarstamp),
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
