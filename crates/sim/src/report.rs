//! What came of a run, and of a set of runs.

use crate::plan::Sort;
use meridian_check::{Judgement, Verdict};
use meridian_protocol::clock::Micros;
use meridian_protocol::history::{Ended as Outcome, Event};
use meridian_protocol::topology::Region;
use std::collections::BTreeMap;
use std::fmt;

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// The run's seed.
    pub seed: u64,
    /// The engine that ran.
    pub engine: &'static str,
    /// How the run ended.
    pub end: End,
    /// Why, in words.
    pub reason: String,
    /// What is missing for this to count as a run; empty if nothing.
    pub shortfalls: Vec<String>,
    /// A digest of all that happened.
    pub trace: u64,
    /// What sessions did and saw.
    pub history: Vec<Event>,
    /// Operations that ended ok, failed, and of unknown outcome.
    pub ended: Ended,
    /// What machines counted, by name.
    pub counters: BTreeMap<&'static str, u64>,
    /// Faults that happened, by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// How long operations took that ended ok.
    pub latencies: Vec<Latency>,
    /// Messages that arrived.
    pub messages: u64,
    /// Virtual time that passed.
    pub duration: Micros,
}

/// How many operations ended how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// They happened.
    pub ok: usize,
    /// They did not happen.
    pub failed: usize,
    /// Nobody knows.
    pub unknown: usize,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The model holds, everything ended in time and replicas agree.
    Holds,
    /// The model is violated.
    Violated,
    /// Nobody can tell whether the model holds.
    Undecided,
    /// An operation did not end, or replicas did not come to agree, in time.
    Stuck,
}

impl From<Verdict> for End {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Holds => Self::Holds,
            Verdict::Violated => Self::Violated,
            Verdict::Undecided | Verdict::NotApplicable => Self::Undecided,
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Holds => "holds",
            Self::Violated => "violated",
            Self::Undecided => "undecided",
            Self::Stuck => "stuck",
        })
    }
}

/// How long one operation took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latency {
    /// What it was.
    pub sort: Sort,
    /// Where its client was.
    pub region: Region,
    /// From invocation to return.
    pub micros: Micros,
    /// Wide-area round trips, as the engine counts them.
    pub rounds: u32,
}

impl Report {
    /// The judgement as a reader of one line wants it, worst first: an order that was refused says more than a
    /// run that got stuck.
    pub(crate) fn conclude(&mut self, judgement: Judgement, stuck: Option<String>) {
        self.end = judgement.verdict.into();
        self.reason = judgement.reason;
        if let (Some(stuck), true) = (stuck, self.end != End::Violated) {
            self.end = End::Stuck;
            self.reason = stuck;
        }
    }

    /// Whether the run is one and ended well.
    ///
    /// # Errors
    /// What is wrong, with the seed.
    pub fn verify(&self) -> Result<(), String> {
        match (self.end, self.shortfalls.first()) {
            (End::Holds, None) => Ok(()),
            (End::Holds, Some(shortfall)) => Err(format!("{self}: not a full run: {shortfall}")),
            _ => Err(format!("{self}: {}", self.reason)),
        }
    }

    /// Operations a second that ended ok, over the middle half of them: after the start and before the end.
    pub fn throughput(&self) -> f64 {
        let ok = self.history.iter().filter(|event| event.outcome == Outcome::Ok);
        let mut ends: Vec<i64> = ok.filter_map(|event| event.returned).collect();
        ends.sort_unstable();
        let (from, to) = (ends.len() / 4, ends.len() * 3 / 4);
        match (ends.get(from), ends.get(to)) {
            (Some(first), Some(last)) if last > first => (to - from) as f64 * 1e9 / (last - first) as f64,
            _ => 0.0,
        }
    }

    /// Latencies of one sort of operation, ascending, of one region or of all.
    pub fn latencies_of(&self, sort: Sort, region: Option<Region>) -> Vec<Micros> {
        let fits =
            |latency: &&Latency| latency.sort == sort && region.is_none_or(|region| region == latency.region);
        let mut micros: Vec<Micros> =
            self.latencies.iter().filter(fits).map(|latency| latency.micros).collect();
        micros.sort_unstable();
        micros
    }
}

impl fmt::Display for Report {
    /// The last line of a seed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ended { ok, failed, unknown } = self.ended;
        write!(
            f,
            "seed={} engine={} ops={} ok={ok} failed={failed} unknown={unknown} verdict={} trace={:016x}",
            self.seed,
            self.engine,
            ok + failed + unknown,
            self.end,
            self.trace
        )
    }
}

/// The value below which a share of the latencies lies; they must be ascending. 0 if there are none.
pub fn percentile(ascending: &[Micros], share: f64) -> Micros {
    let rank = (share * ascending.len() as f64).ceil() as usize;
    ascending.get(rank.max(1) - 1).copied().unwrap_or_default()
}

/// What a set of runs had together.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// How many runs.
    pub runs: u64,
    /// Operations that ended ok, failed, and of unknown outcome.
    pub ended: Ended,
    /// What machines counted, by name.
    pub counters: BTreeMap<&'static str, u64>,
    /// Faults that happened, by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// Messages that arrived.
    pub messages: u64,
}

impl Totals {
    /// Adds a run.
    pub fn add(&mut self, report: &Report) {
        self.runs += 1;
        self.messages += report.messages;
        self.ended.ok += report.ended.ok;
        self.ended.failed += report.ended.failed;
        self.ended.unknown += report.ended.unknown;
        for (name, count) in &report.counters {
            *self.counters.entry(name).or_default() += count;
        }
        for (name, count) in &report.faults {
            *self.faults.entry(name).or_default() += count;
        }
    }

    /// Those of `names` that never happened: the set of runs proves nothing about them.
    pub fn never<'n>(&self, names: &[&'n str]) -> Vec<&'n str> {
        names.iter().copied().filter(|name| self.counters.get(name).is_none_or(|count| *count == 0)).collect()
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ended { ok, failed, unknown } = self.ended;
        write!(
            f,
            "{} runs, {} messages; operations: {ok} ok, {failed} failed, {unknown} unknown;",
            self.runs, self.messages
        )?;
        for (name, count) in &self.counters {
            write!(f, " {name}={count}")?;
        }
        f.write_str("; faults:")?;
        for (name, count) in &self.faults {
            write!(f, " {name}={count}")?;
        }
        Ok(())
    }
}
