//! Reading an experiment's file so that all its faults are told at once.

use super::{
    Claim, Coordinate, CountedLine, Experiment, Header, Line, Plot, Quick, Scale, Series, Shows, Sweep,
};
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer};
use std::collections::BTreeSet;
use toml::{Table, Value};

/// Reads one section: what it is made of, or what is wrong with it, unknown keys included.
pub(super) fn section<T: DeserializeOwned>(name: &str, value: Value) -> Result<T, Vec<String>> {
    let mut faults = Vec::new();
    // A question mark stands for the variant of an enum in a path.
    let unknown = |path: serde_ignored::Path<'_>| {
        faults.push(format!("{name}: unknown key '{}'", path.to_string().replace("?.", "")));
    };
    match serde_ignored::deserialize(value, unknown) {
        Ok(read) if faults.is_empty() => Ok(read),
        Ok(_) => Err(faults),
        Err(error) => {
            faults.push(format!(
                "{name}: {}",
                error.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
            ));
            Err(faults)
        }
    }
}

/// Lays one table over another, section by section.
pub(super) fn overlay(base: &mut Table, over: &Table) {
    for (key, value) in over {
        match (base.get_mut(key), value) {
            (Some(Value::Table(below)), Value::Table(above)) => overlay(below, above),
            _ => {
                base.insert(key.clone(), value.clone());
            }
        }
    }
}

/// Replaces one setting.
pub(super) fn set(table: &mut Table, path: &str, value: Value) -> Result<(), String> {
    let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
    let Some(rest) = rest else {
        table.insert(first.to_owned(), value);
        return Ok(());
    };
    match table.entry(first).or_insert_with(|| Value::Table(Table::new())) {
        Value::Table(below) => set(below, rest, value),
        _ => Err(format!("[[sweep]]: '{path}' leads through '{first}', which is no section")),
    }
}

pub(super) fn experiment(text: &str) -> Result<Experiment, Vec<String>> {
    let mut document: Table = text.parse().map_err(|error: toml::de::Error| {
        vec![error.to_string().split_whitespace().collect::<Vec<_>>().join(" ")]
    })?;
    let mut faults = Vec::new();
    let base = if let Some(Value::Table(table)) = document.remove("run") {
        table
    } else {
        faults.push("there is no section [run]".to_owned());
        Table::new()
    };
    let series: Vec<Series> = list(&mut document, "series", &mut faults);
    let sweeps: Vec<Sweep> = list(&mut document, "sweep", &mut faults);
    let plots: Vec<Plot> = list(&mut document, "plot", &mut faults);
    let claims: Vec<Claim> = list(&mut document, "claim", &mut faults);
    let quick: Option<Quick> = document
        .remove("quick")
        .map_or(Some(Quick::default()), |value| keep(section("[quick]", value), &mut faults));
    let header: Option<Header> = keep(section("the header", Value::Table(document)), &mut faults);
    let (Some(header), Some(quick)) = (header, quick) else { return Err(faults) };
    let experiment = Experiment { header, series, sweeps, plots, claims, base, quick };
    faults.extend(experiment.inconsistencies());
    for scale in [Scale::Full, Scale::Quick] {
        faults.extend(experiment.runs(scale).err().unwrap_or_default());
    }
    let mut told = BTreeSet::new();
    faults.retain(|fault| told.insert(fault.clone()));
    if faults.is_empty() { Ok(experiment) } else { Err(faults) }
}

fn list<T: DeserializeOwned>(document: &mut Table, key: &str, faults: &mut Vec<String>) -> Vec<T> {
    let items = match document.remove(key) {
        None => Vec::new(),
        Some(Value::Array(items)) => items,
        Some(_) => {
            faults.push(format!("{key} is no list: write [[{key}]]"));
            Vec::new()
        }
    };
    let read = items
        .into_iter()
        .enumerate()
        .filter_map(|(index, item)| keep(section(&format!("[[{key}]] {}", index + 1), item), faults));
    read.collect()
}

/// A text, or a list of them.
pub(super) fn one_or_more<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a text or a list of texts")]
    enum Given {
        One(String),
        More(Vec<String>),
    }
    Ok(match Given::deserialize(from)? {
        Given::One(text) => vec![text],
        Given::More(texts) => texts,
    })
}

fn keep<T>(read: Result<T, Vec<String>>, faults: &mut Vec<String>) -> Option<T> {
    read.map_err(|found| faults.extend(found)).ok()
}

impl Experiment {
    /// Names that lead nowhere, and what is named twice or missing.
    fn inconsistencies(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if self.series.is_empty() {
            faults.push("there is no [[series]]".to_owned());
        }
        if self.header.repeat == 0 {
            faults.push("repeat must be above 0".to_owned());
        }
        let names =
            self.series.iter().map(|series| &series.name).chain(self.sweeps.iter().map(|sweep| &sweep.axis));
        let mut seen = BTreeSet::new();
        faults
            .extend(names.filter(|name| !seen.insert(*name)).map(|name| format!("'{name}' is named twice")));
        for sweep in &self.sweeps {
            if sweep.values.is_empty() || sweep.values.iter().any(|value| Coordinate::of(value).is_none()) {
                faults.push(format!(
                    "[[sweep]] {}: values must be numbers or words, and at least one",
                    sweep.axis
                ));
            }
        }
        for (axis, values) in &self.quick.only {
            match self.sweep(axis) {
                None => faults.push(format!("[quick]: there is no axis '{axis}'")),
                Some(sweep) => {
                    let strangers = values.iter().filter(|value| !sweep.values.contains(value));
                    faults
                        .extend(strangers.map(|value| format!("[quick]: axis {axis} has no value {value}")));
                }
            }
        }
        for (index, plot) in self.plots.iter().enumerate() {
            let place = format!("[[plot]] {}", index + 1);
            faults.extend(plot.series.iter().filter_map(|name| self.no_series(&place, name)));
            faults.extend(self.no_axes(&place, plot.at.0.keys()));
            match &plot.shows {
                Shows::Line(Line { axis, .. }) | Shows::Counted(CountedLine { axis, .. }) => {
                    faults.extend(self.no_axes(&place, [axis]));
                }
                Shows::Cdf | Shows::Tail | Shows::Load(_) | Shows::Bars(_) => {}
            }
        }
        for (index, claim) in self.claims.iter().enumerate() {
            let place = format!("[[claim]] {}", index + 1);
            for (series, at) in claim.value.picks() {
                faults.extend(self.no_series(&place, series));
                faults.extend(self.no_axes(&place, at.0.keys()));
                let any_at = |scale| self.points(scale).iter().any(|(point, _)| point.includes(at));
                if !any_at(Scale::Full) {
                    faults.push(format!("{place}: no run is at {at}"));
                } else if claim.headline && !any_at(Scale::Quick) {
                    faults.push(format!("{place} is a headline: [quick] leaves out {at}"));
                }
            }
            if claim.published == Some(0.0) {
                faults.push(format!("{place}: nothing can be compared with 0: leave 'published' out"));
            }
            if claim.holds.from.is_none() && claim.holds.to.is_none() {
                faults.push(format!("{place}: holds needs 'from' or 'to'"));
            }
        }
        faults
    }

    fn no_series(&self, place: &str, name: &str) -> Option<String> {
        let known = self.series.iter().any(|series| series.name == name);
        (!known).then(|| format!("{place}: there is no series '{name}'"))
    }

    fn no_axes<'a>(&self, place: &str, axes: impl IntoIterator<Item = &'a String>) -> Vec<String> {
        let strangers = axes.into_iter().filter(|axis| self.sweep(axis).is_none());
        strangers.map(|axis| format!("{place}: there is no axis '{axis}'")).collect()
    }
}
