//! What sessions do next, by chance.

use crate::options::{Keys, Workload};
use crate::plan::{Plan, Sort};
use crate::recorder::Step;
use meridian_protocol::history::Kind;
use meridian_protocol::machine::Level;
use meridian_protocol::registry::Several;
use rand::{RngExt, seq::IndexedRandom};
use rand_pcg::Pcg64Mcg;
use std::collections::{BTreeMap, VecDeque};

/// What a read may ask for where each operation chooses.
const OF_READS: [Level; 4] = [Level::Causal, Level::Eventual, Level::ReadYourWrites, Level::MonotonicReads];

/// What a write may ask for.
const OF_WRITES: [Level; 4] =
    [Level::Causal, Level::Eventual, Level::MonotonicWrites, Level::WritesFollowReads];

/// One operation of a session.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) kind: Kind,
    pub(crate) sort: Sort,
    /// The level that it asks for, where each operation chooses.
    pub(crate) level: Option<Level>,
    /// Its requests. A session that has come to their end without having committed walks away.
    pub(crate) steps: VecDeque<Step>,
}

impl Work {
    fn new(kind: Kind, sort: Sort, steps: impl IntoIterator<Item = Step>) -> Self {
        Self { kind, sort, level: None, steps: steps.into_iter().collect() }
    }

    pub(crate) fn one(key: String, plan: Plan) -> Self {
        let kind = if plan == Plan::Fence { Kind::Fence } else { Kind::Op };
        Self::new(kind, plan.sort(), [Step::Act(key, plan)])
    }

    /// Whether it may rightly be given up, however well all goes: a client must try such a transaction again itself.
    pub(crate) fn may_be_given_up(&self) -> bool {
        self.steps.len() > 1
    }
}

/// Plans a session's next operation.
pub(crate) struct Planner<'r> {
    pub(crate) workload: &'r Workload,
    pub(crate) random: &'r mut Pcg64Mcg,
    /// A value of each key that was seen not long ago.
    pub(crate) seen: &'r BTreeMap<String, Option<String>>,
    pub(crate) session: usize,
    /// A number that no other operation has: written values are made of it.
    pub(crate) number: usize,
}

impl Planner<'_> {
    pub(crate) fn plan(&mut self) -> Work {
        let several = self.workload.several != Several::Each
            && self.random.random_range(0..100) < self.workload.several_percent;
        let mut work = match self.workload.several {
            Several::Transactions if several => self.transaction(),
            Several::Snapshots if several => {
                let steps = [Step::Together(self.reads(2..=4))];
                Work::new(Kind::Rot, Sort::ReadOnly, steps)
            }
            _ => self.one(),
        };
        if self.workload.several == Several::Snapshots && self.workload.levels {
            let levels = if work.sort == Sort::Write { OF_WRITES } else { OF_READS };
            work.level = levels.choose(self.random).copied();
        }
        work
    }

    fn one(&mut self) -> Work {
        let key = self.key();
        let value = self.number.to_string();
        let mix = self.workload.mix;
        let choice = self.random.random_range(0..mix.reads + mix.writes + mix.rmws);
        let plan = if choice < mix.reads {
            Plan::Get
        } else if choice < mix.reads + mix.writes {
            self.write(value)
        } else {
            let seen = self.seen.get(&key).cloned().flatten();
            match (self.random.random_range(0..10), seen) {
                (0..3, Some(expected)) => Plan::Replace { expected, value },
                (0..5, _) => Plan::Swap(value),
                (5..6, _) => Plan::Create(value),
                (6..7, _) => Plan::Take,
                _ => Plan::Append(format!(".{value};")),
            }
        };
        Work::one(key, plan)
    }

    /// A blind write; in causal keyspaces some of them delete.
    fn write(&mut self, value: String) -> Plan {
        if self.workload.several == Several::Snapshots && self.random.random_bool(0.1) {
            Plan::Delete
        } else {
            Plan::Set(value)
        }
    }

    fn key(&mut self) -> String {
        match self.workload.keys {
            Keys::Few(keys) => format!("k{}", self.random.random_range(0..keys)),
            Keys::Conflict(percent) if self.random.random_range(0..100) < percent => "shared".to_string(),
            Keys::Conflict(_) => format!("own{}", self.session),
        }
    }

    fn transaction(&mut self) -> Work {
        // A client machine that sessions share can have no transaction open for one of them.
        let alone = self.workload.sessions_per_machine <= 1;
        match self.random.random_range(0..10) {
            0..4 => Work::new(Kind::Ro, Sort::ReadOnly, [Step::Together(self.reads(1..=4))]),
            4..7 => Work::new(Kind::Rw, Sort::ReadWrite, [Step::Together(self.parts())]),
            7 | 8 if alone => self.open(),
            _ => self.watched(),
        }
    }

    /// Watches keys, reads them, and writes if they are still the same: what was read is what it replaces.
    fn watched(&mut self) -> Work {
        let reads = self.reads(1..=2);
        let watches = reads.iter().map(|(key, _)| Step::Watch(key.clone()));
        let mut steps: Vec<Step> = watches.collect();
        steps.extend(reads.into_iter().map(|(key, plan)| Step::Act(key, plan)));
        steps.push(Step::Together(self.parts()));
        Work::new(Kind::Rw, Sort::ReadWrite, steps)
    }

    /// A transaction over many requests. Most are committed, some given up, and some left alone.
    fn open(&mut self) -> Work {
        let read_only = self.random.random_bool(0.2);
        let mut steps = vec![Step::Begin { read_only }];
        for part in if read_only { self.reads(1..=3) } else { self.parts() } {
            if self.random.random_bool(0.8) {
                steps.push(Step::Act(part.0, part.1));
            } else {
                steps.push(Step::Together(vec![part]));
            }
        }
        match self.random.random_range(0..20) {
            0 => {}
            1..3 => steps.push(Step::Abort),
            _ => steps.push(Step::Commit),
        }
        let (kind, sort) = if read_only { (Kind::Ro, Sort::ReadOnly) } else { (Kind::Rw, Sort::ReadWrite) };
        Work::new(kind, sort, steps)
    }

    /// Reads of different keys.
    fn reads(&mut self, count: std::ops::RangeInclusive<usize>) -> Vec<(String, Plan)> {
        let count = self.random.random_range(count);
        let mut keys: Vec<String> = (0..count).map(|_| self.key()).collect();
        keys.sort_unstable();
        keys.dedup();
        keys.into_iter().map(|key| (key, Plan::Get)).collect()
    }

    /// Up to five reads and writes of any keys, at least one of which may write.
    fn parts(&mut self) -> Vec<(String, Plan)> {
        let count = self.random.random_range(1..=4);
        let mut parts: Vec<(String, Plan)> = (0..count).map(|part| (self.key(), self.part(part))).collect();
        let value = format!("{}x{count}", self.number);
        parts.push((self.key(), Plan::Set(value)));
        let last = self.random.random_range(0..parts.len());
        parts.swap(last, count);
        parts
    }

    /// Part of a transaction: what it did must be told even if nobody answers, and none of the others may depend on
    /// whether it did anything.
    fn part(&mut self, part: usize) -> Plan {
        let value = format!("{}x{part}", self.number);
        match self.random.random_range(0..10) {
            0..4 => Plan::Get,
            4..6 => Plan::Set(value),
            6..8 => Plan::Swap(value),
            8 => Plan::Take,
            _ => Plan::Append(format!(".{value};")),
        }
    }
}
