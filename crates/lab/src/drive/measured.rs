//! What a run came to.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How exactly latencies are kept: to four digits.
const DIGITS: u8 = 4;

/// The longest that is told apart, in µs.
const LONGEST: u64 = 1_000_000_000;

/// What was measured in a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Operations that ended ok while the run was watched.
    pub operations: u64,
    /// Operations that did not, in the whole run.
    pub failures: u64,
    /// How often one was tried again because the engine had given it up, in the whole run.
    pub retries: u64,
    /// Operations a second.
    pub per_second: f64,
    /// How long they took, by what they were.
    pub latencies: BTreeMap<String, Latencies>,
    /// How much of that they waited for clocks, for others or for what their session had done before, by what they were.
    #[serde(default)]
    pub waits: BTreeMap<String, Latencies>,
    /// What the replicas counted in the whole run.
    pub counted: BTreeMap<String, u64>,
    /// Messages that arrived in the whole run.
    pub messages: u64,
}

impl Measured {
    /// How long the operations of a label took; or, if it ends in ` waits`, for how much of that they waited.
    pub fn latencies_of(&self, label: &str) -> Option<&Latencies> {
        match label.strip_suffix(" waits") {
            Some(label) => self.waits.get(label),
            None => self.latencies.get(label),
        }
    }

    /// How much replicas counted of something for each of something else; `None` if there was none of that.
    pub fn counted_each(&self, name: &str, each: &str) -> Option<f64> {
        let [count, divisor] = [name, each].map(|name| self.counted.get(name).copied().unwrap_or_default());
        (divisor > 0).then(|| count as f64 / divisor as f64)
    }
}

/// Latencies in µs with how often each was seen, ascending.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Latencies(Vec<(u64, u64)>);

impl Latencies {
    /// How many.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|(_, count)| count).sum()
    }

    /// The latency in ms that a share of operations, in a hundred, does not exceed; `None` if there are none.
    pub fn percentile(&self, percent: f64) -> Option<f64> {
        let rank = (percent / 100.0 * self.count() as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        let found = self.0.iter().find(|(_, count)| {
            seen += count;
            seen >= rank
        });
        found.map(|(micros, _)| *micros as f64 / 1_000.0)
    }

    /// Which share of them is not 0, in a hundred; `None` if there are none.
    pub fn above_zero(&self) -> Option<f64> {
        let above: u64 = self.0.iter().filter(|(micros, _)| *micros > 0).map(|(_, count)| count).sum();
        let count = self.count();
        (count > 0).then(|| 100.0 * above as f64 / count as f64)
    }

    /// The mean in ms; `None` if there are none.
    pub fn mean(&self) -> Option<f64> {
        let total: f64 = self.0.iter().map(|(micros, count)| *micros as f64 * *count as f64).sum();
        let count = self.count();
        (count > 0).then(|| total / count as f64 / 1_000.0)
    }

    /// Each latency in ms with the share of operations that took no longer, ascending.
    pub fn shares(&self) -> Vec<(f64, f64)> {
        let all = self.count() as f64;
        let mut seen = 0;
        let share = |(micros, count): &(u64, u64)| {
            seen += count;
            (*micros as f64 / 1_000.0, seen as f64 / all)
        };
        self.0.iter().map(share).collect()
    }

    /// Those of several runs together.
    pub fn of_all<'a>(all: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut together: BTreeMap<u64, u64> = BTreeMap::new();
        for (micros, count) in all.into_iter().flat_map(|latencies| &latencies.0) {
            *together.entry(*micros).or_default() += count;
        }
        Self(together.into_iter().collect())
    }
}

/// Latencies as they come in.
#[derive(Debug)]
pub(super) struct Recording(Histogram<u64>);

impl Default for Recording {
    fn default() -> Self {
        Self(Histogram::new_with_max(LONGEST, DIGITS).expect("the histogram's bounds are valid constants"))
    }
}

impl Recording {
    pub(super) fn add(&mut self, micros: u64) {
        self.0.saturating_record(micros);
    }

    pub(super) fn finish(&self) -> Latencies {
        let seen = self.0.iter_recorded();
        Latencies(
            seen.map(|step| (self.0.lowest_equivalent(step.value_iterated_to()), step.count_at_value()))
                .collect(),
        )
    }
}
