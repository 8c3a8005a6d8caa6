//! From results to charts.

use super::chart::{Chart, Kind, Line, TAIL_END};
use crate::definition::{Coordinate, Experiment, Plot, Point, Shows};
use crate::results::Results;
use crate::{Latencies, Measured};

/// Steps of a distribution that are closer than this are drawn as one.
const FINEST: f64 = 0.002;

/// A plot as a chart, with the names under its bars.
pub(super) fn chart(experiment: &Experiment, plot: &Plot, results: &Results) -> (Chart, Vec<String>) {
    let mut groups = Vec::new();
    let mut lines = Vec::new();
    let (x, y, kind) = axes(experiment, plot);
    for (style, series) in experiment.series.iter().enumerate() {
        if !plot.series.is_empty() && !plot.series.contains(&series.name) {
            continue;
        }
        let runs: Vec<(&Point, &Measured)> = results.at(&series.name, &plot.at).collect();
        let latencies = |measured: &Measured| measured.latencies_of(&plot.op).cloned().unwrap_or_default();
        let points = match &plot.shows {
            Shows::Cdf | Shows::Tail => {
                let all: Vec<Latencies> = runs.iter().map(|(_, measured)| latencies(measured)).collect();
                steps(&Latencies::of_all(&all), kind)
            }
            Shows::Line(line) => along(&runs, &line.axis, |measured| latencies(measured).percentile(line.p)),
            Shows::Counted(line) => {
                along(&runs, &line.axis, |measured| measured.counted_each(&line.name, &line.each))
            }
            Shows::Load(p) => {
                let at = |(_, measured): &(&Point, &Measured)| {
                    Some((measured.per_second, latencies(measured).percentile(*p)?))
                };
                runs.iter().filter_map(at).collect()
            }
            Shows::Bars(p) => {
                let at = |(point, measured): &(&Point, &Measured)| {
                    Some((group(&mut groups, point), latencies(measured).percentile(*p)?))
                };
                runs.iter().filter_map(at).collect()
            }
        };
        if !points.is_empty() {
            lines.push(Line { name: series.name.clone(), style, points });
        }
    }
    (Chart { x, y, kind, lines }, groups)
}

/// A point for each run: where it stands on an axis, and what it came to.
fn along(
    runs: &[(&Point, &Measured)],
    axis: &str,
    value: impl Fn(&Measured) -> Option<f64>,
) -> Vec<(f64, f64)> {
    let place = |point: &Point| point.0.get(axis).and_then(Coordinate::number);
    runs.iter().filter_map(|(point, measured)| Some((place(point)?, value(measured)?))).collect()
}

fn axes(experiment: &Experiment, plot: &Plot) -> (String, String, Kind) {
    let percentile = |p: f64| format!("p{p} (ms)");
    let axis = |name: &String| {
        let label = experiment.sweep(name).map(|sweep| &sweep.label).filter(|label| !label.is_empty());
        label.unwrap_or(name).clone()
    };
    match &plot.shows {
        Shows::Cdf => ("latency (ms)".to_owned(), "share of operations".to_owned(), Kind::Cdf),
        Shows::Tail => ("latency (ms)".to_owned(), "share of operations".to_owned(), Kind::Tail),
        Shows::Line(line) => (axis(&line.axis), percentile(line.p), Kind::Marked),
        Shows::Counted(line) => (axis(&line.axis), line.label.clone(), Kind::Marked),
        Shows::Load(p) => ("operations a second".to_owned(), percentile(*p), Kind::Marked),
        Shows::Bars(p) => (String::new(), percentile(*p), Kind::Bars),
    }
}

/// The number of the group of bars for a point.
fn group(groups: &mut Vec<String>, point: &Point) -> f64 {
    let name = point.0.values().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let known = groups.iter().position(|group| *group == name);
    known.unwrap_or_else(|| {
        groups.push(name);
        groups.len() - 1
    }) as f64
}

/// The steps of a distribution, as far as they can be told apart in a picture.
fn steps(latencies: &Latencies, kind: Kind) -> Vec<(f64, f64)> {
    let height = |share: f64| match kind {
        Kind::Tail => (-(1.0 - share).log10()).clamp(0.0, TAIL_END),
        _ => share,
    };
    let finest = if kind == Kind::Tail { FINEST * TAIL_END } else { FINEST };
    let mut points = Vec::new();
    let mut last = 0.0;
    for (ms, share) in latencies.shares() {
        let next = height(share);
        if next - last >= finest || (share >= 1.0 && next > last) {
            points.extend([(ms, last), (ms, next)]);
            last = next;
        }
    }
    points
}
