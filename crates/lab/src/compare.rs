//! What each engine would cost in somebody's own regions with somebody's own mix: an experiment made on the spot.

use crate::clouds::AZURE_SOURCE;
use crate::definition::{Experiment, Scale};
use crate::report::{self, Reported};
use crate::results::{Results, jobs};
use crate::{batch, verdict};
use meridian_protocol::registry::EngineName;
use std::error::Error;
use std::io;
use std::path::Path;
use toml::{Table, Value};

/// The question.
#[derive(Clone, Debug)]
pub struct Question {
    /// Names of regions, or how many of those that the round-trip times name.
    pub regions: String,
    /// Round-trip times: `azure`, `paper`, `paper-spanner`, `none`, `same:MS`, or the text of a CSV file.
    pub rtt: String,
    /// Reads, writes and rmws, in any unit.
    pub mix: [f64; 3],
    /// Which keys, as in an experiment's file.
    pub keys: Table,
    /// Closed-loop clients in each region.
    pub clients: usize,
    /// How long each waits between two operations.
    pub think_ms: f64,
    /// Virtual seconds to measure.
    pub seconds: f64,
    /// The engines; those that do not serve the mix are refused by name.
    pub engines: Vec<String>,
}

/// The answer: an experiment with its results.
pub struct Answer(Reported);

/// What an engine costs with one kind of operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Cost {
    /// The engine.
    pub engine: String,
    /// The model that it gives.
    pub model: String,
    /// The kind of operation.
    pub op: String,
    /// Median, p99, p99.9 in ms.
    pub percentiles: [f64; 3],
    /// Operations of all kinds a second.
    pub per_second: f64,
}

impl Question {
    /// Runs all engines and keeps what came of it under `out`.
    ///
    /// # Errors
    /// All that is wrong with the question.
    pub fn ask(&self, out: &Path) -> Result<Answer, Vec<String>> {
        let experiment = self.experiment()?;
        let (jobs, refused) = jobs(&experiment, Scale::Full);
        if !refused.is_empty() {
            return Err(refused.into_values().collect());
        }
        let told = |error: io::Error| vec![error.to_string()];
        batch::run(&jobs, out, |_| {}).map_err(told)?;
        let results = Results::read(&experiment, Scale::Full, out);
        let judged = verdict::judge(&experiment, &results);
        Ok(Answer(Reported { experiment, scale: Scale::Full, results, judged }))
    }

    fn experiment(&self) -> Result<Experiment, Vec<String>> {
        let total: f64 = self.mix.iter().sum();
        if !total.is_normal() || self.mix.iter().any(|share| *share < 0.0) {
            return Err(vec!["the mix must be three shares, not all of them 0".to_owned()]);
        }
        let [reads, writes, rmws] = self.mix.map(|share| share / total * 100.0);
        let first = self.engines.first().cloned().unwrap_or_default();
        let registers =
            table([("writes", writes.into()), ("rmws", rmws.into()), ("keys", self.keys.clone().into())]);
        let run = table([
            ("engine", table([("name", first.into())]).into()),
            (
                "place",
                table([("rtt", self.rtt.clone().into()), ("regions", self.regions.clone().into())]).into(),
            ),
            ("workload", table([("registers", registers.into())]).into()),
            ("clients", table([("closed", self.closed().into())]).into()),
            ("time", table([("warm_up_s", 5.0.into()), ("measure_s", self.seconds.into())]).into()),
        ]);
        let ops =
            [("read", reads), ("write", writes), ("rmw", rmws)].into_iter().filter(|(_, share)| *share > 0.0);
        let plots = ops.map(|(op, _)| plot(op)).collect::<Vec<Value>>();
        let series = self.engines.iter().map(|engine| series(engine)).collect::<Vec<Value>>();
        let source =
            if self.rtt == "azure" { format!(" Round trips: {AZURE_SOURCE}.") } else { String::new() };
        let document = table([
            ("name", "compare".into()),
            ("paper", "Your regions".into()),
            ("figure", "".into()),
            ("title", self.regions.replace(',', ", ").into()),
            ("notes", format!("{}{source}", self.words(reads, writes, rmws)).into()),
            ("seconds", Value::Array(vec![10.into(), 10.into()])),
            ("run", run.into()),
            ("series", series.into()),
            ("plot", plots.into()),
        ]);
        Experiment::read(&document.to_string())
    }

    fn closed(&self) -> Table {
        table([("per_region", (self.clients as i64).into()), ("think_ms", self.think_ms.into())])
    }

    fn words(&self, reads: f64, writes: f64, rmws: f64) -> String {
        let think =
            if self.think_ms > 0.0 { format!(", {} ms of thinking", self.think_ms) } else { String::new() };
        format!(
            "{reads:.1}% reads, {writes:.1}% writes, {rmws:.1}% rmws; keys {}; {} closed-loop clients in each region{think}; {} \
             virtual seconds. Messages take half a round trip; nothing else takes time.",
            self.keys.to_string().trim().replace('\n', ", "),
            self.clients,
            self.seconds,
        )
    }
}

fn table<const N: usize>(entries: [(&str, Value); N]) -> Table {
    entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

fn series(engine: &str) -> Value {
    let set = table([("engine", table([("name", engine.into())]).into())]);
    table([("name", engine.into()), ("set", set.into())]).into()
}

fn plot(op: &str) -> Value {
    table([("title", format!("{op}s").into()), ("shows", "tail".into()), ("op", op.into())]).into()
}

impl Answer {
    /// The costs, in the order of engines.
    pub fn costs(&self) -> Vec<Cost> {
        let of_run = |(engine, _, measured): &(String, _, crate::Measured)| {
            let model = EngineName::of_engine(engine).map(|name| name.model.to_string()).unwrap_or_default();
            let cost = |(op, latencies): (&String, &crate::Latencies)| Cost {
                engine: engine.clone(),
                model: model.clone(),
                op: op.clone(),
                percentiles: [50.0, 99.0, 99.9].map(|p| latencies.percentile(p).unwrap_or_default()),
                per_second: measured.per_second,
            };
            measured.latencies.iter().map(cost).collect::<Vec<_>>()
        };
        self.0.results.points.iter().flat_map(of_run).collect()
    }

    /// The page that shows them.
    ///
    /// # Errors
    /// What the libraries that draw and write say.
    pub fn page(&self) -> Result<String, Box<dyn Error>> {
        let introduction = "What each engine would cost in these regions, under virtual time.".to_owned();
        report::write("Engines compared".to_owned(), introduction, std::slice::from_ref(&self.0))
    }
}
