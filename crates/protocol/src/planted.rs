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
    /// A commit in one round takes in what a reply beyond the fast quorum has added.
    CommitUnion,
    /// Replicas are told that an instance is final, but not its outcome, whether or not they hold that.
    FinalToAll,
    /// EPaxos takes an entry of a dependency array for that one instance, not for all up to it.
    SingleInstanceDependencies,
    /// EPaxos executes a component of the dependency graph in the order in which the search met it.
    UnsortedComponent,
    /// A region's stable snapshot is what was last found, even if that is less than before.
    StableGoesBack,
    /// Stabilization takes one minimum over all regions' entries, and assigns it, as printed (Contrarian Alg. 2).
    OneMinimum,
    /// A region's writes are taken in whatever order they come.
    ReplicationOutOfOrder,
    /// Writes are replicated without what they depend on.
    VectorNotSent,
    /// A partition serves a causal snapshot without moving its clock to it.
    ClockNotMoved,
    /// A write's timestamp is above the own region's entry of its dependencies only, as printed (TCC Alg. 2).
    TimestampAboveOwnEntry,
    /// A region's own entry of the stable snapshot stays 0, and own writes too must be stable to be seen, as printed (TCC
    /// Alg. 1 and 3).
    OwnEntryStaysZero,
    /// Reads of tcc do not wait for what their level asks for.
    LevelsNotAwaited,
    /// A write of CC-LO is visible before those who hold what it depends on were asked who must not see it.
    SkipReadersCheck,
    /// What an old reader sees of a dangerous write's key ends at the logical time of its earlier read, as printed.
    CutAtEarlierRead,
    /// A readers check leaves out transactions from which the dependency is hidden.
    HiddenDependencyNotTold,
    /// A newer version of a dependency's key counts as the dependency, as in COPS.
    NewerVersionSatisfies,
    /// Spanner tells a commit, and Gryff a one-round write, before its timestamp has passed.
    NoCommitWait,
    /// A Spanner-RSS session does not carry along what it has seen (`t_min`).
    ForgetMinimum,
    /// Spanner-RSS skips a prepared transaction although its earliest end has passed.
    SkipPastEarliestEnd,
    /// Spanner-RSS takes a read's values when it arrives and the skipped transactions when it is answered.
    ValuesBeforeSkipped,
    /// A new leader of a Spanner shard does not lock what is prepared.
    LoseLocks,
    /// A participant that has only read gives its locks up when it is prepared.
    ReleaseReadersAtPrepare,
    /// A replica serves reads at times of which it has forgotten versions.
    ReadBelowHorizon,
    /// A coordinator tells its decision before the log has it.
    UnreplicatedDecision,
    /// A Spanner-RSS shard lets a transaction end later than L after its commit.
    UnclampedEnd,
    /// A partition of CC-LO that has restarted tells at once of transactions, of which it knows nothing any more.
    SpeaksAfterRestart,
    /// A linearizable read tells a value whose timestamp has not passed.
    NoReadWait,
    /// An rmw is told although the timestamp that it has from its base has not passed.
    NoRmwWait,
    /// A write's timestamp may be below one that its session has read.
    ForgetSessionMaximum,
    /// An operation of one-round RSC begins before what its session has read has passed.
    BeginUnsettled,
    /// A write of RSC begins while what its session has read is still being settled.
    SendDependencyAlong,
    /// A one-round write has its timestamp from when it arrived, not from when its session was settled.
    ClockReadEarly,
    /// A fence of one-round RSC does not wait until what its session has read has passed.
    NoFenceWait,
    /// A node without a bound on its clock tells answers without another's word that their timestamps have passed.
    NoVoucher,
    /// A one-round write's timestamp is the earliest that the time can be.
    TimestampFromEarliest,
    /// A session that goes to another service fences the one that it used last, and does nothing else, as published (libRSS).
    LastServiceOnly,
    /// A session that goes to another service does nothing on the way.
    NoAutoFence,
    /// A session that comes from another service does not follow what has ended there in real time only.
    NoEntryRule,
    /// What CC-LO tells another session does not wait until transactions are over that may have read what is older.
    ExportAtOnce,
}

impl Planted {
    /// Every bug with the name that `sim --plant` takes.
    pub const ALL: [(&'static str, Self); 53] = [
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
        ("commit-union", Self::CommitUnion),
        ("final-to-all", Self::FinalToAll),
        ("single-instance-dependencies", Self::SingleInstanceDependencies),
        ("unsorted-component", Self::UnsortedComponent),
        ("stable-goes-back", Self::StableGoesBack),
        ("one-minimum", Self::OneMinimum),
        ("replication-out-of-order", Self::ReplicationOutOfOrder),
        ("vector-not-sent", Self::VectorNotSent),
        ("clock-not-moved", Self::ClockNotMoved),
        ("timestamp-above-own-entry", Self::TimestampAboveOwnEntry),
        ("own-entry-stays-zero", Self::OwnEntryStaysZero),
        ("levels-not-awaited", Self::LevelsNotAwaited),
        ("skip-readers-check", Self::SkipReadersCheck),
        ("cut-at-earlier-read", Self::CutAtEarlierRead),
        ("hidden-dependency-not-told", Self::HiddenDependencyNotTold),
        ("newer-version-satisfies", Self::NewerVersionSatisfies),
        ("no-commit-wait", Self::NoCommitWait),
        ("forget-minimum", Self::ForgetMinimum),
        ("skip-past-earliest-end", Self::SkipPastEarliestEnd),
        ("values-before-skipped", Self::ValuesBeforeSkipped),
        ("lose-locks", Self::LoseLocks),
        ("release-readers-at-prepare", Self::ReleaseReadersAtPrepare),
        ("read-below-horizon", Self::ReadBelowHorizon),
        ("unreplicated-decision", Self::UnreplicatedDecision),
        ("unclamped-end", Self::UnclampedEnd),
        ("speaks-after-restart", Self::SpeaksAfterRestart),
        ("no-read-wait", Self::NoReadWait),
        ("no-rmw-wait", Self::NoRmwWait),
        ("forget-session-maximum", Self::ForgetSessionMaximum),
        ("begin-unsettled", Self::BeginUnsettled),
        ("send-dependency-along", Self::SendDependencyAlong),
        ("clock-read-early", Self::ClockReadEarly),
        ("no-fence-wait", Self::NoFenceWait),
        ("no-voucher", Self::NoVoucher),
        ("timestamp-from-earliest", Self::TimestampFromEarliest),
        ("last-service-only", Self::LastServiceOnly),
        ("no-auto-fence", Self::NoAutoFence),
        ("no-entry-rule", Self::NoEntryRule),
        ("export-at-once", Self::ExportAtOnce),
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
