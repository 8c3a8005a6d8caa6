//! The page that shows what came of the experiments: one file, no scripts, nothing fetched.

mod chart;
pub mod kept;
mod plots;
#[cfg(test)]
mod tests;

use crate::definition::{Experiment, Scale};
use crate::results::Results;
use crate::verdict::{Judged, judge};
use askama::Template;
use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;

/// The page.
#[derive(Template)]
#[template(path = "report.html")]
struct Page {
    title: String,
    introduction: String,
    headlines: Vec<Row>,
    tally: Vec<(String, usize)>,
    sections: Vec<Section>,
}

/// A claim, as a row of a table.
struct Row {
    experiment: String,
    place: String,
    text: String,
    published: String,
    ours: String,
    ratio: String,
    verdict: String,
    word: &'static str,
}

/// An experiment.
struct Section {
    name: String,
    paper: String,
    figure: String,
    title: String,
    notes: String,
    scale: String,
    command: String,
    refused: Vec<(String, String)>,
    missing: usize,
    pictures: Vec<Picture>,
    rows: Vec<Row>,
}

/// A plot with its legend.
struct Picture {
    title: String,
    svg: String,
    legend: Vec<Key>,
}

/// A series in a legend.
struct Key {
    name: String,
    colour: String,
    dashes: String,
}

/// An experiment with its results and what they say.
pub struct Reported {
    /// The experiment.
    pub experiment: Experiment,
    /// How large it was run.
    pub scale: Scale,
    /// What came of its runs.
    pub results: Results,
    /// What came of its claims.
    pub judged: Vec<Judged>,
}

impl Reported {
    /// What there is of an experiment under `out`: the full runs if they are all there, otherwise the quick ones if any.
    pub fn read(experiment: Experiment, out: &Path) -> Self {
        let full = Results::read(&experiment, Scale::Full, out);
        let quick = Results::read(&experiment, Scale::Quick, out);
        let prefer_quick = full.missing > 0 && quick.points.len() >= full.points.len();
        let (scale, results) = if prefer_quick { (Scale::Quick, quick) } else { (Scale::Full, full) };
        let judged = judge(&experiment, &results);
        Self { experiment, scale, results, judged }
    }
}

/// The report's page.
///
/// # Errors
/// What the libraries that draw and write say.
pub fn page(reported: &[Reported]) -> Result<String, Box<dyn Error>> {
    Ok(whole(reported)?.render()?)
}

fn whole(reported: &[Reported]) -> Result<Page, Box<dyn Error>> {
    let costs = &crate::cpu::COSTS;
    let introduction = format!(
        "Every figure was run under virtual time by the same machines that serve real clients. Medians and tails are of virtual \
         milliseconds; what a claim says is judged by the computer from the claim's definition. Where work costs a node \
         something, the figures are those of {} of {}{}.",
        costs.command,
        costs.measured,
        if costs.note.is_empty() { String::new() } else { format!(", {}", costs.note) },
    );
    gather("The papers' figures, run again".to_owned(), introduction, reported)
}

/// A page of that title.
pub(crate) fn write(
    title: String,
    introduction: String,
    reported: &[Reported],
) -> Result<String, Box<dyn Error>> {
    Ok(gather(title, introduction, reported)?.render()?)
}

fn gather(title: String, introduction: String, reported: &[Reported]) -> Result<Page, Box<dyn Error>> {
    let mut tally: BTreeMap<&str, usize> = BTreeMap::new();
    for judged in reported.iter().flat_map(|reported| &reported.judged) {
        *tally.entry(judged.verdict.word()).or_default() += 1;
    }
    let headlines = reported.iter().flat_map(|reported| {
        let headlines = reported.judged.iter().filter(|judged| judged.claim.headline);
        headlines.map(|judged| row(&reported.experiment.header.name, judged)).collect::<Vec<_>>()
    });
    Ok(Page {
        title,
        introduction,
        headlines: headlines.collect(),
        tally: tally.into_iter().map(|(word, count)| (word.to_owned(), count)).collect(),
        sections: reported.iter().map(section).collect::<Result<_, _>>()?,
    })
}

fn section(reported: &Reported) -> Result<Section, Box<dyn Error>> {
    let Reported { experiment, scale, results, judged } = reported;
    let header = &experiment.header;
    let quick = *scale < Scale::Full;
    let pictures = experiment.plots.iter().map(|plot| picture(experiment, plot, results));
    Ok(Section {
        name: header.name.clone(),
        paper: header.paper.clone(),
        figure: header.figure.clone(),
        title: header.title.clone(),
        notes: header.notes.clone(),
        scale: format!("{}{}", if quick { "Quick run. " } else { "Full run. " }, header.scale),
        command: format!("meridian lab run {}{}", header.name, if quick { " --quick" } else { "" }),
        refused: results.refused.iter().map(|(series, why)| (series.clone(), why.clone())).collect(),
        missing: results.missing,
        pictures: pictures.collect::<Result<_, _>>()?,
        rows: judged.iter().map(|judged| row(&header.name, judged)).collect(),
    })
}

fn picture(
    experiment: &Experiment,
    plot: &crate::definition::Plot,
    results: &Results,
) -> Result<Picture, Box<dyn Error>> {
    let (chart, groups) = plots::chart(experiment, plot, results);
    let key = |line: &chart::Line| {
        let (colour, dashes) = chart::look(line.style);
        Key { name: line.name.clone(), colour, dashes }
    };
    let legend = chart.lines.iter().map(key).collect();
    // A picture of nothing has no axes either.
    let svg = if chart.lines.is_empty() { String::new() } else { chart::draw(&chart, &groups)? };
    Ok(Picture { title: plot.title.clone(), svg, legend })
}

fn row(experiment: &str, judged: &Judged) -> Row {
    let unit = &judged.claim.unit;
    let show = |value: Option<f64>| value.map_or("–".to_owned(), |value| with_unit(value, unit));
    Row {
        experiment: experiment.to_owned(),
        place: judged.claim.place.clone(),
        text: judged.claim.text.clone(),
        published: show(judged.claim.published),
        ours: show(judged.ours),
        ratio: judged.ratio().map_or("–".to_owned(), |ratio| format!("{ratio:.2}")),
        verdict: judged.to_string(),
        word: judged.verdict.word(),
    }
}

/// A value as people read it.
pub fn with_unit(value: f64, unit: &str) -> String {
    match unit {
        "x" => format!("{value:.2}×"),
        "ops/s" => format!("{value:.0} ops/s"),
        "%" => format!("{value:.1}%"),
        "ms" if value.abs() < 10.0 => format!("{value:.2} ms"),
        "ms" => format!("{value:.0} ms"),
        _ => format!("{value:.2} {unit}"),
    }
}
