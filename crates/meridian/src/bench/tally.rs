//! What was measured: latencies by verb, and how operations ended.

use super::workload::Verb;
use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use std::time::Duration;

/// Latencies and counts of the operations that ended between the warm-up and the end of the measurement.
#[derive(Debug)]
pub(super) struct Tally {
    by_verb: [Histogram<u64>; Verb::ALL.len()],
    /// Operations that ended ok since the bench began, warm-up included: what the progress bar shows.
    pub(super) progress: u64,
    /// Operations that the server refused, or reads whose answer was lost: nothing has happened.
    pub(super) errors: u64,
    /// Operations that may or may not have happened.
    pub(super) unknown: u64,
    /// Connections that were lost and made anew.
    pub(super) reconnects: u64,
    /// Operations that were due but not sent when the time was up (open loop).
    pub(super) behind: u64,
    /// How often each first word of an error was seen.
    pub(super) error_words: BTreeMap<String, u64>,
}

/// A latency above this counts as this: no server answers after an hour.
const LATENCY_MAX: Duration = Duration::from_hours(1);

/// Servers have few words for errors; a broken one must not fill the memory.
const WORDS_MAX: usize = 16;

impl Tally {
    /// Nothing measured yet.
    pub(super) fn new() -> Self {
        let histogram = || {
            Histogram::new_with_max(LATENCY_MAX.as_nanos() as u64, 3)
                .expect("the bounds and the precision are constants in range")
        };
        Self {
            by_verb: std::array::from_fn(|_| histogram()),
            progress: 0,
            errors: 0,
            unknown: 0,
            reconnects: 0,
            behind: 0,
            error_words: BTreeMap::new(),
        }
    }

    /// Counts an operation that ended ok.
    pub(super) fn ok(&mut self, verb: Verb, latency: Duration) {
        self.by_verb[verb as usize].saturating_record(latency.as_nanos() as u64);
    }

    /// Counts an error's first word.
    pub(super) fn word(&mut self, error: &str) {
        let word = error.split_whitespace().next().unwrap_or("(empty)");
        let known = self.error_words.len() < WORDS_MAX || self.error_words.contains_key(word);
        *self.error_words.entry(if known { word } else { "others" }.to_owned()).or_insert(0) += 1;
    }

    /// The latencies of one verb, in nanoseconds.
    pub(super) fn latencies(&self, verb: Verb) -> &Histogram<u64> {
        &self.by_verb[verb as usize]
    }

    /// The latencies of all operations together.
    pub(super) fn all_latencies(&self) -> Histogram<u64> {
        let mut all = self.by_verb[0].clone();
        for histogram in &self.by_verb[1..] {
            all.add(histogram).expect("histograms of equal bounds add");
        }
        all
    }
}
