//! Charts: what is drawn, and how. A chart is one SVG picture without scripts; colours are Okabe and Ito's, which
//! colour-blind people can tell apart, and lines differ in their dashes too.

use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use std::error::Error;

/// Colours of series, in their order.
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(0, 0, 0),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
];

/// Dashes of series, in their order: length and gap; no gap is a whole line.
const DASHES: [(i32, i32); 7] = [(1, 0), (10, 5), (3, 4), (16, 4), (1, 0), (7, 7), (2, 6)];

/// Small enough that text stays legible when the picture is as wide as a phone.
pub(super) const SIZE: (u32, u32) = (560, 380);

const TEXT: i32 = 20;

/// Where the tail ends: the share that is slower, as a power of ten.
pub(super) const TAIL_END: f64 = 4.0;

/// A chart.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Chart {
    pub(super) x: String,
    pub(super) y: String,
    pub(super) kind: Kind,
    pub(super) lines: Vec<Line>,
}

/// What a chart's axes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Numbers from 0, with a mark at each point.
    Marked,
    /// Shares from 0 to 1, in steps.
    Cdf,
    /// The same with the last hundredths apart: y is minus the logarithm of the share that is slower.
    Tail,
    /// Bars: x counts the groups.
    Bars,
}

/// A line, or the bars of one colour.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Line {
    pub(super) name: String,
    /// Which colour and dashes.
    pub(super) style: usize,
    pub(super) points: Vec<(f64, f64)>,
}

/// How a series looks, for legends: colour and `stroke-dasharray`.
pub(super) fn look(style: usize) -> (String, String) {
    let RGBColor(r, g, b) = colour(style);
    let (dash, gap) = DASHES[style % DASHES.len()];
    let dashes = if gap == 0 { "none".to_owned() } else { format!("{dash} {gap}") };
    (format!("#{r:02x}{g:02x}{b:02x}"), dashes)
}

fn colour(style: usize) -> RGBColor {
    COLOURS[style % COLOURS.len()]
}

/// Draws a chart; `groups` are the names under bars.
///
/// # Errors
/// What the drawing library says.
pub(super) fn draw(chart: &Chart, groups: &[String]) -> Result<String, Box<dyn Error>> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let (x, y) = ranges(chart, groups.len());
        let mut builder = ChartBuilder::on(&area);
        builder.margin(8).margin_right(18).x_label_area_size(56).y_label_area_size(82);
        let mut context = builder.build_cartesian_2d(x, y)?;
        let name = |x: &f64| group_name(*x, groups);
        let number = |value: &f64| short(*value);
        let share = |nines: &f64| tail_label(*nines);
        let mut mesh = context.configure_mesh();
        mesh.x_desc(chart.x.as_str())
            .y_desc(chart.y.as_str())
            .axis_desc_style(("sans-serif", TEXT))
            .label_style(("sans-serif", TEXT - 1))
            .light_line_style(TRANSPARENT)
            .x_labels(6)
            .y_labels(6)
            .x_label_formatter(&number)
            .y_label_formatter(&number);
        match chart.kind {
            Kind::Tail => {
                mesh.y_labels(5).y_label_formatter(&share);
            }
            Kind::Bars => {
                mesh.disable_x_mesh().x_labels(2 * groups.len() + 1).x_label_formatter(&name);
            }
            Kind::Marked | Kind::Cdf => {}
        }
        mesh.draw()?;
        for (index, line) in chart.lines.iter().enumerate() {
            if chart.kind == Kind::Bars {
                context.draw_series(bars(line, index, chart.lines.len()))?;
            } else {
                stroke(&mut context, line, chart.kind)?;
            }
        }
        area.present()?;
    }
    Ok(svg)
}

type Plane<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

fn stroke(context: &mut Plane<'_, '_>, line: &Line, kind: Kind) -> Result<(), Box<dyn Error>> {
    let style = colour(line.style).stroke_width(2);
    let (dash, gap) = DASHES[line.style % DASHES.len()];
    if gap == 0 {
        context.draw_series(LineSeries::new(line.points.clone(), style))?;
    } else {
        context.draw_series(DashedLineSeries::new(line.points.clone(), dash, gap, style))?;
    }
    if kind == Kind::Marked {
        let mark = |point: &(f64, f64)| Circle::new(*point, 3, colour(line.style).filled());
        context.draw_series(line.points.iter().map(mark))?;
    }
    Ok(())
}

fn bars(line: &Line, index: usize, count: usize) -> impl Iterator<Item = Rectangle<(f64, f64)>> {
    let width = 0.8 / count.max(1) as f64;
    let from = -0.4 + index as f64 * width;
    let style = colour(line.style).filled();
    let corners = move |(x, y): (f64, f64)| [(x + from, 0.0), (x + from + width * 0.9, y)];
    line.points.clone().into_iter().map(move |point| Rectangle::new(corners(point), style))
}

fn ranges(chart: &Chart, groups: usize) -> (std::ops::Range<f64>, std::ops::Range<f64>) {
    let points = || chart.lines.iter().flat_map(|line| &line.points);
    let most = |of: fn(&(f64, f64)) -> f64| points().map(of).fold(0.0, f64::max).max(1e-9) * 1.05;
    let x = match chart.kind {
        Kind::Bars => -0.5..groups as f64 - 0.5,
        _ => 0.0..most(|point| point.0),
    };
    let y = match chart.kind {
        Kind::Cdf => 0.0..1.0,
        Kind::Tail => 0.0..TAIL_END,
        Kind::Marked | Kind::Bars => 0.0..most(|point| point.1),
    };
    (x, y)
}

fn group_name(x: f64, groups: &[String]) -> String {
    let whole = (x - x.round()).abs() < 1e-6 && x >= 0.0;
    let name = if whole { groups.get(x.round() as usize) } else { None };
    name.cloned().unwrap_or_default()
}

/// The share below which so many nines lie.
fn tail_label(nines: f64) -> String {
    if (nines - nines.round()).abs() > 1e-6 {
        return String::new();
    }
    match nines.round() as i32 {
        0 => "0".to_owned(),
        1 => "90%".to_owned(),
        2 => "99%".to_owned(),
        more => format!("99.{}%", "9".repeat((more - 2).unsigned_abs() as usize)),
    }
}

fn short(value: f64) -> String {
    match value {
        value if value >= 10_000.0 => format!("{:.0}k", value / 1_000.0),
        value if value >= 1_000.0 => format!("{:.1}k", value / 1_000.0),
        value if value >= 10.0 || value.fract() == 0.0 => format!("{value:.0}"),
        value => format!("{value:.2}"),
    }
}
