//! What came of a claim: our value beside the published one.

use crate::Measured;
use crate::definition::{Claim, Experiment, Point, Value};
use crate::results::Results;
use std::fmt;

/// A claim and what came of it.
#[derive(Clone, Debug)]
pub struct Judged {
    /// The claim.
    pub claim: Claim,
    /// Our value, if there is one.
    pub ours: Option<f64>,
    /// What came of it.
    pub verdict: Verdict,
}

/// What came of a claim.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Our value is within the claim's tolerance of the published one: by what share it is off.
    Reproduced(f64),
    /// It is not, but what was claimed holds: by what share it is off.
    Differs(f64),
    /// No number was published; what was claimed holds.
    Holds,
    /// What was claimed does not hold here.
    Fails,
    /// Nobody knows yet, and why.
    Open(String),
}

impl Verdict {
    /// One word.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Reproduced(_) => "reproduced",
            Self::Differs(_) => "differs",
            Self::Holds => "holds",
            Self::Fails => "fails",
            Self::Open(_) => "open",
        }
    }
}

impl fmt::Display for Judged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.verdict {
            Verdict::Reproduced(off) => write!(f, "reproduced within {:.1}%", off.abs() * 100.0),
            Verdict::Holds => f.write_str("holds"),
            Verdict::Open(why) => write!(f, "open: {why}"),
            Verdict::Differs(off) => write!(f, "holds, {:+.0}%: {}", off * 100.0, self.reason()),
            Verdict::Fails => write!(f, "fails: {}", self.reason()),
        }
    }
}

impl Judged {
    fn reason(&self) -> &str {
        if self.claim.differs.is_empty() { "why is not known" } else { &self.claim.differs }
    }

    /// Our value divided by the published one.
    pub fn ratio(&self) -> Option<f64> {
        Some(self.ours? / self.claim.published?)
    }

    /// Whether a headline's direction has failed.
    pub fn is_alarming(&self) -> bool {
        self.claim.headline && self.verdict == Verdict::Fails
    }
}

/// Judges all claims of an experiment.
pub fn judge(experiment: &Experiment, results: &Results) -> Vec<Judged> {
    experiment.claims.iter().map(|claim| judge_one(claim, results)).collect()
}

fn judge_one(claim: &Claim, results: &Results) -> Judged {
    let (ours, verdict) = match evaluate(&claim.value, results) {
        Ok(ours) => (Some(ours), compare(claim, ours)),
        Err(why) => (None, Verdict::Open(why)),
    };
    Judged { claim: claim.clone(), ours, verdict }
}

fn compare(claim: &Claim, ours: f64) -> Verdict {
    let off = claim.published.map(|published| ours / published - 1.0);
    match off {
        _ if !claim.holds.includes(ours) => Verdict::Fails,
        None => Verdict::Holds,
        Some(off) if off.abs() <= claim.within => Verdict::Reproduced(off),
        Some(off) => Verdict::Differs(off),
    }
}

/// Computes a value from runs.
///
/// # Errors
/// What it lacks.
pub fn evaluate(value: &Value, results: &Results) -> Result<f64, String> {
    let all = |values: &[Value]| {
        values.iter().map(|value| evaluate(value, results)).collect::<Result<Vec<f64>, _>>()
    };
    let extreme = |values: &[Value], of: fn(f64, f64) -> f64| {
        all(values)?.into_iter().reduce(of).ok_or_else(|| "a list of values is empty".to_owned())
    };
    match value {
        Value::Latency(latency) => one(results, &latency.series, &latency.at, |measured| {
            measured.latencies_of(&latency.op)?.percentile(latency.p)
        }),
        Value::Mean(mean) => {
            one(results, &mean.series, &mean.at, |measured| measured.latencies_of(&mean.op)?.mean())
        }
        Value::Waited(of) => {
            one(results, &of.series, &of.at, |measured| measured.waits.get(&of.op)?.above_zero())
        }
        Value::Throughput(pick) => one(results, &pick.series, &pick.at, |measured| Some(measured.per_second)),
        Value::Counted(counted) => one(results, &counted.series, &counted.at, |measured| {
            measured.counted_each(&counted.name, &counted.each)
        }),
        Value::Peak(pick) => some(results, &pick.series, &pick.at)?
            .into_iter()
            .map(|measured| measured.per_second)
            .reduce(f64::max)
            .ok_or_else(|| format!("{} was not run", pick.series)),
        Value::Ratio(pair) => Ok(evaluate(&pair[0], results)? / evaluate(&pair[1], results)?),
        Value::Difference(pair) => Ok(evaluate(&pair[0], results)? - evaluate(&pair[1], results)?),
        Value::Most(values) => extreme(values, f64::max),
        Value::Least(values) => extreme(values, f64::min),
    }
}

fn some<'a>(results: &'a Results, series: &'a str, at: &'a Point) -> Result<Vec<&'a Measured>, String> {
    if let Some(why) = results.refused.get(series) {
        return Err(why.clone());
    }
    Ok(results.at(series, at).map(|(_, measured)| measured).collect())
}

fn one(
    results: &Results,
    series: &str,
    at: &Point,
    of: impl Fn(&Measured) -> Option<f64>,
) -> Result<f64, String> {
    match some(results, series, at)?[..] {
        [] => Err(format!("{series} at {at} was not run")),
        [measured] => of(measured).ok_or_else(|| format!("{series} at {at} has no such operation")),
        _ => Err(format!("{series} at {at} are several runs: name all coordinates")),
    }
}
