//! What a bench prints: a table for people, JSON for scripts.

use super::tally::Tally;
use super::workload::Verb;
use hdrhistogram::Histogram;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The result of a bench; its JSON.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    target: String,
    clients: usize,
    seconds: f64,
    ops: u64,
    errors: u64,
    unknown: u64,
    ops_per_s: f64,
    by_op: BTreeMap<&'static str, Latency>,
    seed: u64,
    version: &'static str,
    /// `closed`: latency counts from the send; `open`: from the intended start.
    r#loop: &'static str,
    reconnects: u64,
    /// Open loop: operations that were due but never sent.
    behind: u64,
    error_words: BTreeMap<String, u64>,
}

#[derive(Debug, Serialize)]
struct Latency {
    n: u64,
    p50_us: f64,
    p90_us: f64,
    p99_us: f64,
    p999_us: f64,
    max_us: f64,
}

impl Latency {
    fn of(nanos: &Histogram<u64>) -> Self {
        // Three significant digits is what the histogram keeps.
        let micros = |nanos: u64| (nanos as f64 / 100.0).round() / 10.0;
        let at = |quantile| micros(nanos.value_at_quantile(quantile));
        Self {
            n: nanos.len(),
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: micros(nanos.max()),
        }
    }
}

impl Report {
    /// Sums up `tally`, measured for `seconds`.
    pub(super) fn new(
        tally: &Tally,
        target: &str,
        clients: usize,
        seconds: f64,
        open: bool,
        seed: u64,
    ) -> Self {
        let mut by_op: BTreeMap<_, _> = Verb::ALL
            .into_iter()
            .filter(|verb| !tally.latencies(*verb).is_empty())
            .map(|verb| (verb.name(), Latency::of(tally.latencies(verb))))
            .collect();
        let all = tally.all_latencies();
        let ops = all.len();
        if by_op.len() > 1 {
            by_op.insert("all", Latency::of(&all));
        }
        Self {
            target: target.to_owned(),
            clients,
            seconds,
            ops,
            errors: tally.errors,
            unknown: tally.unknown,
            ops_per_s: if seconds > 0.0 { (ops as f64 / seconds * 10.0).round() / 10.0 } else { 0.0 },
            by_op,
            seed,
            version: env!("CARGO_PKG_VERSION"),
            r#loop: if open { "open" } else { "closed" },
            reconnects: tally.reconnects,
            behind: tally.behind,
            error_words: tally.error_words.clone(),
        }
    }

    /// Whether anything ended ok.
    pub(super) fn any(&self) -> bool {
        self.ops > 0
    }

    /// The table for people.
    pub(super) fn table(&self) -> String {
        let mut text = String::new();
        let counts_from = match self.r#loop {
            "open" => "open loop: latency counts from the intended start",
            _ => "closed loop: latency counts from the send, so a slow server is also asked less",
        };
        let _ =
            writeln!(text, "{} · {} clients · seed {} · {counts_from}", self.target, self.clients, self.seed);
        let _ = writeln!(
            text,
            "{:<9}{:>12}{:>12}{:>11}{:>11}{:>11}{:>11}{:>11}",
            "", "ops", "ops/s", "p50 ms", "p90 ms", "p99 ms", "p99.9 ms", "max ms"
        );
        for name in Verb::ALL.into_iter().map(Verb::name).chain(["all"]) {
            let Some(latency) = self.by_op.get(name) else { continue };
            let _ = write!(text, "{name:<9}{:>12}{:>12.1}", latency.n, latency.n as f64 / self.seconds);
            for micros in [latency.p50_us, latency.p90_us, latency.p99_us, latency.p999_us, latency.max_us] {
                let _ = write!(text, "{:>11.3}", micros / 1_000.0);
            }
            text.push('\n');
        }
        let _ = writeln!(
            text,
            "{} ok in {:.1} s · {} errors · {} unknown · {} reconnects",
            self.ops, self.seconds, self.errors, self.unknown, self.reconnects
        );
        for (word, count) in &self.error_words {
            let _ = writeln!(text, "  {word}: {count}");
        }
        if self.behind > 0 {
            let _ = writeln!(
                text,
                "{} operations were due and never sent: the server cannot keep this rate, so read the latencies as those of an overload",
                self.behind
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_json_has_what_scripts_rely_on() {
        let mut tally = Tally::new();
        for micros in 1..=1_000 {
            tally.ok(Verb::Get, Duration::from_micros(micros));
        }
        tally.ok(Verb::Set, Duration::from_millis(5));
        tally.unknown = 2;
        let report = Report::new(&tally, "h:1", 4, 2.0, false, 9);
        let json = serde_json::to_value(&report).unwrap();
        for key in [
            "target",
            "clients",
            "seconds",
            "ops",
            "errors",
            "unknown",
            "ops_per_s",
            "by_op",
            "seed",
            "version",
        ] {
            assert!(json.get(key).is_some(), "{key} is missing");
        }
        assert_eq!(json["ops"], 1_001);
        assert_eq!(json["ops_per_s"], 500.5);
        let p50 = json["by_op"]["get"]["p50_us"].as_f64().unwrap();
        assert!((p50 - 500.0).abs() < 1.0, "{p50}");
        assert_eq!(json["by_op"]["set"]["n"], 1);
        assert!(json["by_op"].get("rmw").is_none());
        let table = report.table();
        assert!(table.contains("closed loop") && table.contains("2 unknown"), "{table}");
    }
}
