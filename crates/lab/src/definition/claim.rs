//! What a paper claims, and how our own value of it is computed from runs.

use super::point::Point;
use serde::Deserialize;

/// A claim.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Claim {
    /// What is claimed, in one sentence.
    pub text: String,
    /// Where: section and figure.
    #[serde(rename = "where")]
    pub place: String,
    /// Whether the paper's summary rests on it: if its direction fails, commands exit with 1.
    #[serde(default)]
    pub headline: bool,
    /// The number printed, if there is one.
    pub published: Option<f64>,
    /// Its unit: `ms`, `x` for a ratio, `ops/s`, `%`.
    pub unit: String,
    /// What our value must be for the claim to hold at all.
    pub holds: Holds,
    /// By how much our value may differ from the published one to count as the same, as a share of it.
    #[serde(default = "a_tenth")]
    pub within: f64,
    /// Our value.
    pub value: Value,
    /// Why our value differs, found and not guessed; empty if nobody knows.
    #[serde(default)]
    pub differs: String,
}

/// Bounds, both of them allowed themselves.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Holds {
    /// The least.
    pub from: Option<f64>,
    /// The most.
    pub to: Option<f64>,
}

/// How a value is computed.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Value {
    /// A percentile of latencies, in ms.
    Latency(Latency),
    /// The mean of latencies, in ms.
    Mean(Latencies),
    /// The share of operations, in %, that waited for clocks, for others or for what their session had done before.
    Waited(Latencies),
    /// Operations a second.
    Throughput(Pick),
    /// The most operations a second among the points that are picked.
    Peak(Pick),
    /// How much replicas counted of something for each of something else.
    Counted(Counted),
    /// The first divided by the second.
    Ratio(Box<[Value; 2]>),
    /// The second taken from the first.
    Difference(Box<[Value; 2]>),
    /// The largest.
    Most(Vec<Value>),
    /// The smallest.
    Least(Vec<Value>),
}

/// A percentile of latencies.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Latency {
    /// Which one: 50, 99.9.
    pub p: f64,
    /// Of which operations: `read`, `write`, `rmw`, `ro`, `rw`, `rot`, `put`, `request`; `read waits` and so on for the
    /// part of it that they waited.
    pub op: String,
    /// Of which series.
    pub series: String,
    /// At which points.
    #[serde(default)]
    pub at: Point,
}

/// All latencies of some operations.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Latencies {
    /// Of which operations.
    pub op: String,
    /// Of which series.
    pub series: String,
    /// At which points.
    #[serde(default)]
    pub at: Point,
}

/// Something that the engine counts.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Counted {
    /// Its name.
    pub name: String,
    /// The name of what it is divided by.
    pub each: String,
    /// Of which series.
    pub series: String,
    /// At which points.
    #[serde(default)]
    pub at: Point,
}

/// Runs: one series, at the points that have these coordinates; those left out may be any.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Pick {
    /// The series.
    pub series: String,
    /// The coordinates.
    #[serde(default)]
    pub at: Point,
}

fn a_tenth() -> f64 {
    0.1
}

impl Holds {
    /// Whether a value is within the bounds.
    pub fn includes(&self, value: f64) -> bool {
        self.from.is_none_or(|from| value >= from) && self.to.is_none_or(|to| value <= to)
    }
}

impl Value {
    /// All runs that it is made of, as series and points.
    pub fn picks(&self) -> Vec<(&str, &Point)> {
        match self {
            Self::Latency(latency) => vec![(&latency.series, &latency.at)],
            Self::Mean(of) | Self::Waited(of) => vec![(&of.series, &of.at)],
            Self::Counted(counted) => vec![(&counted.series, &counted.at)],
            Self::Throughput(pick) | Self::Peak(pick) => vec![(&pick.series, &pick.at)],
            Self::Ratio(pair) | Self::Difference(pair) => pair.iter().flat_map(Self::picks).collect(),
            Self::Most(values) | Self::Least(values) => values.iter().flat_map(Self::picks).collect(),
        }
    }
}
