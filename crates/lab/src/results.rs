//! What runs came to, on disk: one file a run, named after what the run is, so that it need not be done twice.

use crate::cpu::Cost;
use crate::definition::{Experiment, Planned, Point, Run, Scale};
use crate::{Latencies, Measured};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Part of what a run is: results of other versions of the program are not taken for this one's.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A run with its seed: what one result file holds the result of.
#[derive(Clone, Debug)]
pub struct Job {
    /// The experiment's name.
    pub experiment: String,
    /// The run.
    pub planned: Planned,
    /// Its seed.
    pub seed: u64,
}

/// A result file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunFile {
    /// The experiment.
    pub experiment: String,
    /// The series.
    pub series: String,
    /// Where in the sweep.
    pub point: Point,
    /// The seed.
    pub seed: u64,
    /// The program's version.
    pub version: String,
    /// What was run.
    pub run: Run,
    /// What work cost in it.
    pub cost: Option<Cost>,
    /// What came of it.
    pub measured: Measured,
}

impl Job {
    /// A digest of the definition, the seed, what work costs, and the program's version.
    pub fn digest(&self) -> String {
        let definition =
            serde_json::to_string(&(VERSION, self.seed, &self.planned.run, self.planned.run.cost()));
        let digest = Sha256::digest(definition.expect("a definition has no keys but strings").as_bytes());
        digest.iter().take(8).fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    }

    /// Where its result stands under `out`.
    pub fn path(&self, out: &Path) -> PathBuf {
        let series: String =
            self.planned.series.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        out.join("runs").join(&self.experiment).join(format!("{series}-{}.json", self.digest()))
    }

    /// Its result, if it has been run; a file that is broken or another's counts as none.
    pub fn result(&self, out: &Path) -> Option<RunFile> {
        let file: RunFile = serde_json::from_str(&fs::read_to_string(self.path(out)).ok()?).ok()?;
        let planned = &self.planned.run;
        let same = file.run == *planned && file.cost == planned.cost() && file.seed == self.seed;
        (same && file.version == VERSION).then_some(file)
    }

    /// Writes its result, whole or not at all.
    pub(crate) fn keep(&self, out: &Path, measured: Measured) -> io::Result<()> {
        let file = RunFile {
            experiment: self.experiment.clone(),
            series: self.planned.series.clone(),
            point: self.planned.point.clone(),
            seed: self.seed,
            version: VERSION.to_owned(),
            run: self.planned.run.clone(),
            cost: self.planned.run.cost(),
            measured,
        };
        let path = self.path(out);
        fs::create_dir_all(path.parent().unwrap_or(out))?;
        let draft = path.with_extension("draft");
        fs::write(&draft, serde_json::to_string(&file)? + "\n")?;
        fs::rename(draft, path)
    }
}

/// All jobs of an experiment whose engines serve its workloads, and why others are left out: by series.
///
/// # Panics
/// If the experiment has faults, which [`Experiment::read`] excludes.
pub fn jobs(experiment: &Experiment, scale: Scale) -> (Vec<Job>, BTreeMap<String, String>) {
    let runs = experiment.runs(scale).expect("an experiment that was read has no faults");
    let mut refused = BTreeMap::new();
    let mut jobs = Vec::new();
    for planned in runs {
        if let Err(why) = planned.run.engine() {
            refused.insert(planned.series, why);
            continue;
        }
        let repeat = if scale == Scale::Full { experiment.header.repeat } else { 1 };
        jobs.extend((1..=repeat).map(|seed| Job {
            experiment: experiment.header.name.clone(),
            planned: planned.clone(),
            seed,
        }));
    }
    (jobs, refused)
}

/// What an experiment's runs came to: by series and point, all seeds of a point together.
#[derive(Clone, Debug, Default)]
pub struct Results {
    /// The runs that there are.
    pub points: Vec<(String, Point, Measured)>,
    /// Series that cannot be run, and why.
    pub refused: BTreeMap<String, String>,
    /// How many runs are still missing.
    pub missing: usize,
}

impl Results {
    /// Reads those under `out`.
    pub fn read(experiment: &Experiment, scale: Scale, out: &Path) -> Self {
        let (jobs, refused) = jobs(experiment, scale);
        let mut results = Self { refused, ..Self::default() };
        let found = jobs
            .iter()
            .filter_map(|job| job.result(out).map(|file| (file.series, file.point, file.measured)));
        let found: Vec<_> = found.collect();
        results.missing = jobs.len() - found.len();
        results.add(found);
        results
    }

    /// Adds runs; those of one series and point are put together.
    pub fn add(&mut self, runs: impl IntoIterator<Item = (String, Point, Measured)>) {
        let mut groups: Vec<(String, Point, Vec<Measured>)> = Vec::new();
        for (series, point, measured) in runs {
            match groups.iter_mut().find(|(other, at, _)| *other == series && *at == point) {
                Some((_, _, group)) => group.push(measured),
                None => groups.push((series, point, vec![measured])),
            }
        }
        self.points
            .extend(groups.into_iter().map(|(series, point, group)| (series, point, together(&group))));
    }

    /// Runs of a series at points that have these coordinates.
    pub fn at<'a>(
        &'a self,
        series: &'a str,
        at: &'a Point,
    ) -> impl Iterator<Item = (&'a Point, &'a Measured)> {
        let here =
            move |(other, point, _): &&(String, Point, Measured)| other == series && point.includes(at);
        self.points.iter().filter(here).map(|(_, point, measured)| (point, measured))
    }
}

/// Runs that differ in nothing but their seeds.
fn together(group: &[Measured]) -> Measured {
    let latencies = |of: fn(&Measured) -> &BTreeMap<String, Latencies>| {
        let labels: BTreeSet<&String> = group.iter().flat_map(|measured| of(measured).keys()).collect();
        let all = labels.into_iter().map(|label| {
            let of_label = group.iter().filter_map(|measured| of(measured).get(label));
            (label.clone(), Latencies::of_all(of_label))
        });
        all.collect()
    };
    let mut counted: BTreeMap<String, u64> = BTreeMap::new();
    for (name, count) in group.iter().flat_map(|measured| &measured.counted) {
        *counted.entry(name.clone()).or_default() += count;
    }
    let sum = |of: fn(&Measured) -> u64| group.iter().map(of).sum();
    Measured {
        operations: sum(|measured| measured.operations),
        failures: sum(|measured| measured.failures),
        retries: sum(|measured| measured.retries),
        per_second: group.iter().map(|measured| measured.per_second).sum::<f64>() / group.len() as f64,
        latencies: latencies(|measured| &measured.latencies),
        waits: latencies(|measured| &measured.waits),
        counted,
        messages: sum(|measured| measured.messages),
    }
}
