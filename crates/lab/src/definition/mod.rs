//! Experiments as data: one file each, read and checked as a whole, so that adding one needs no code.
//!
//! A file has one run's definition (`[run]`). A `[[series]]` is a line in a plot and says what it changes in the run; a
//! `[[sweep]]` is an axis: each of its values replaces one setting. The runs of an experiment are all series at all
//! points of the axes. `[quick]` makes them smaller. `[[claim]]`s are judged by the runs, `[[plot]]`s show them.

mod claim;
mod point;
mod read;
mod run;
#[cfg(test)]
mod tests;

pub use claim::{Claim, Counted, Holds, Latencies, Latency, Pick, Value};
pub use point::{Coordinate, Point};
pub use run::{
    Clients, Closed, Cpu, EngineChoice, Keys, PartlyOpen, Place, Registers, Requests, Retwis, Rots, Run,
    Time, Workload, Ycsb, YcsbMix, Zipf,
};
pub(crate) use run::{level, micros};
#[cfg(test)]
pub(crate) use tests::SOUND as SOUND_FOR_TESTS;

use serde::Deserialize;
use std::collections::BTreeMap;
use toml::Table;

/// How large an experiment is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scale {
    /// Only what headlines need, and a third of the quick one's time: for tests.
    Smoke,
    /// As `[quick]` says.
    Quick,
    /// As `[run]` says.
    Full,
}

/// An experiment.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// What stands before the series.
    pub header: Header,
    /// The lines of the plots.
    pub series: Vec<Series>,
    /// The axes.
    pub sweeps: Vec<Sweep>,
    /// What is drawn.
    pub plots: Vec<Plot>,
    /// What is claimed.
    pub claims: Vec<Claim>,
    base: Table,
    quick: Quick,
}

/// What an experiment is.
#[derive(Clone, Debug, Deserialize)]
pub struct Header {
    /// Its name, as commands take it.
    pub name: String,
    /// The paper: `Gryff`, `RSS/RSC`, `Contrarian`, `TCC`.
    pub paper: String,
    /// Figure, table or section.
    pub figure: String,
    /// What is shown.
    pub title: String,
    /// What is smaller than in the paper, or otherwise different, in words; empty if nothing.
    #[serde(default)]
    pub scale: String,
    /// What a reader should know beside.
    #[serde(default)]
    pub notes: String,
    /// How many runs, with different seeds, go into each point.
    #[serde(default = "once")]
    pub repeat: u64,
    /// About how long it takes on two cores, in seconds: in full and quick.
    pub seconds: [u32; 2],
}

fn once() -> u64 {
    1
}

/// A line in a plot.
#[derive(Clone, Debug, Deserialize)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// What it changes in the run.
    #[serde(default)]
    pub set: Table,
}

/// An axis.
#[derive(Clone, Debug, Deserialize)]
pub struct Sweep {
    /// Its name.
    pub axis: String,
    /// The setting that each value replaces, as a path: `workload.registers.writes`; or several.
    #[serde(deserialize_with = "read::one_or_more")]
    pub set: Vec<String>,
    /// The values.
    pub values: Vec<toml::Value>,
    /// What the axis is called in plots; its name if empty.
    #[serde(default)]
    pub label: String,
}

/// A plot.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Plot {
    /// What stands above it.
    pub title: String,
    /// What it shows.
    pub shows: Shows,
    /// Of which operations; empty if it shows none.
    #[serde(default)]
    pub op: String,
    /// Only runs with these coordinates.
    #[serde(default)]
    pub at: Point,
    /// Only these series; all if empty.
    #[serde(default)]
    pub series: Vec<String>,
}

/// What a plot shows.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shows {
    /// Which share of operations took at most how long.
    Cdf,
    /// The same with the last hundredths drawn apart.
    Tail,
    /// A percentile along an axis.
    Line(Line),
    /// The median, or another percentile, against operations a second, along the axis of load.
    Load(f64),
    /// A percentile, a bar for each series and point.
    Bars(f64),
    /// What replicas counted, along an axis.
    Counted(CountedLine),
}

/// A percentile along an axis.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Line {
    /// The axis.
    pub axis: String,
    /// The percentile.
    pub p: f64,
}

/// What replicas counted, along an axis.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct CountedLine {
    /// The axis.
    pub axis: String,
    /// What was counted.
    pub name: String,
    /// What it is divided by.
    pub each: String,
    /// What the result is called.
    pub label: String,
}

/// What is smaller in a quick run.
#[derive(Clone, Debug, Default, Deserialize)]
struct Quick {
    /// What it changes in the run.
    #[serde(default)]
    set: Table,
    /// Only these values of axes.
    #[serde(default)]
    only: BTreeMap<String, Vec<toml::Value>>,
}

/// What a point changes in the run: paths and values.
type Settings<'e> = Vec<(&'e str, &'e toml::Value)>;

/// A run of an experiment.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The series.
    pub series: String,
    /// Where in the sweep it stands.
    pub point: Point,
    /// What is run.
    pub run: Run,
}

impl Experiment {
    /// Reads an experiment's file.
    ///
    /// # Errors
    /// All its faults, in words.
    pub fn read(text: &str) -> Result<Self, Vec<String>> {
        read::experiment(text)
    }

    /// Its runs, in the order of series and points.
    ///
    /// # Errors
    /// What is wrong with their definitions.
    pub fn runs(&self, scale: Scale) -> Result<Vec<Planned>, Vec<String>> {
        let mut runs = Vec::new();
        let mut faults = Vec::new();
        for series in &self.series {
            for (point, settings) in self.points(scale) {
                if scale == Scale::Smoke && !self.headlines_need(&series.name, &point) {
                    continue;
                }
                match self.planned(scale, series, point, &settings) {
                    Ok(planned) => runs.push(planned),
                    Err(found) => faults.extend(found),
                }
            }
        }
        faults.sort();
        faults.dedup();
        if faults.is_empty() { Ok(runs) } else { Err(faults) }
    }

    /// The axis of that name.
    pub fn sweep(&self, axis: &str) -> Option<&Sweep> {
        self.sweeps.iter().find(|sweep| sweep.axis == axis)
    }

    /// All points of the axes, with the settings that make them.
    fn points(&self, scale: Scale) -> Vec<(Point, Settings<'_>)> {
        let mut points: Vec<(Point, Settings<'_>)> = vec![(Point::default(), Vec::new())];
        for sweep in &self.sweeps {
            let values = match self.quick.only.get(&sweep.axis) {
                Some(values) if scale < Scale::Full => values,
                _ => &sweep.values,
            };
            let mut longer = Vec::new();
            for (point, settings) in &points {
                for value in values {
                    let (mut point, mut settings) = (point.clone(), settings.clone());
                    point.0.extend(Coordinate::of(value).map(|coordinate| (sweep.axis.clone(), coordinate)));
                    settings.extend(sweep.set.iter().map(|path| (path.as_str(), value)));
                    longer.push((point, settings));
                }
            }
            points = longer;
        }
        points
    }

    fn headlines_need(&self, series: &str, point: &Point) -> bool {
        let headlines = self.claims.iter().filter(|claim| claim.headline);
        headlines
            .flat_map(|claim| claim.value.picks())
            .any(|(needed, at)| needed == series && point.includes(at))
    }

    fn planned(
        &self,
        scale: Scale,
        series: &Series,
        point: Point,
        settings: &[(&str, &toml::Value)],
    ) -> Result<Planned, Vec<String>> {
        let mut table = self.base.clone();
        if scale < Scale::Full {
            read::overlay(&mut table, &self.quick.set);
        }
        read::overlay(&mut table, &series.set);
        for (path, value) in settings {
            read::set(&mut table, path, (*value).clone()).map_err(|fault| vec![fault])?;
        }
        let mut run: Run = read::section("[run]", toml::Value::Table(table))?;
        if scale == Scale::Smoke {
            run.time.measure_s /= 3.0;
        }
        let faults = run.faults();
        if faults.is_empty() {
            Ok(Planned { series: series.name.clone(), point, run })
        } else {
            Err(faults.into_iter().map(|fault| format!("[run]: {fault}")).collect())
        }
    }
}
