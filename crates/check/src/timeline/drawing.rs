//! The layout as two pictures side by side: names of lanes, which stay in view, and the lanes.

use super::layout::{Bar, LINE, Lane, Layout, SERVICE};
use super::words::{self, Text};
use crate::{Explanation, Step, Why};
use std::fmt::{self, Display, Formatter};

/// Half the width of a step's number.
const NUMBER: f64 = 9.0;
/// How far a curve between operations beside each other goes out.
const BULGE: f64 = 36.0;
/// The length of an arrow's head.
const HEAD: f64 = 9.0;
/// The width of a digit on the axis.
const DIGIT: f64 = 6.1;

/// Colours that fade, for operations without end; once a page.
pub(super) const DEFINITIONS: &str = r#"<svg width="0" height="0" style="position:absolute" aria-hidden="true"><defs>
<linearGradient id="fade"><stop class="from" offset=".4"/><stop class="to" offset="1"/></linearGradient>
<linearGradient id="fade-core"><stop class="from core" offset=".4"/><stop class="to core" offset="1"/></linearGradient>
</defs></svg>
"#;

/// A drawing of one explanation.
pub(super) struct Drawing<'a> {
    pub(super) layout: &'a Layout<'a>,
    pub(super) explanation: &'a Explanation,
    /// The explanation's number on the page, for names that must be unique there.
    pub(super) number: usize,
}

impl Display for Drawing<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.names(f)?;
        let Layout { width, height, .. } = self.layout;
        let n = self.number;
        writeln!(
            f,
            "<svg class=\"lanes\" role=\"img\" aria-labelledby=\"title{n} words{n}\" width=\"{width:.0}\" height=\"{height:.0}\">\
             <title id=\"title{n}\">Timeline: why {} is violated</title>",
            self.explanation.model
        )?;
        self.bands(f, *width)?;
        self.axis(f)?;
        for bar in &self.layout.bars {
            bar_of(f, bar)?;
        }
        self.steps(f)?;
        f.write_str("</svg>\n")
    }
}

impl Drawing<'_> {
    fn names(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let names = self.layout.lanes.iter().flat_map(|lane| [Some(lane.session), lane.service]).flatten();
        let longest = names.map(|name| words::name(name).chars().count()).max().unwrap_or(0);
        let width = longest as f64 * 7.4 + 18.0;
        let height = self.layout.height;
        writeln!(
            f,
            "<svg class=\"names\" aria-hidden=\"true\" width=\"{width:.0}\" height=\"{height:.0}\">"
        )?;
        self.bands(f, width)?;
        for Lane { session, service, y, height } in &self.layout.lanes {
            if let Some(service) = service {
                let name = words::name(if service.is_empty() { "(no service)" } else { service });
                let above = y - SERVICE / 2.0 + 4.0;
                writeln!(f, "<text class=\"service\" x=\"8\" y=\"{above:.1}\">{}</text>", Text(&name))?;
            }
            let middle = y + height / 2.0 + 16.0;
            writeln!(f, "<text x=\"8\" y=\"{middle:.1}\">{}</text>", Text(&words::name(session)))?;
        }
        f.write_str("</svg>\n")
    }

    fn bands(&self, f: &mut Formatter<'_>, width: f64) -> fmt::Result {
        for Lane { y, height, .. } in self.layout.lanes.iter().step_by(2) {
            writeln!(
                f,
                "<rect class=\"band\" x=\"0\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"/>"
            )?;
        }
        Ok(())
    }

    fn axis(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let height = self.layout.height;
        let origin = origin(self.layout);
        let mut free = f64::NEG_INFINITY;
        for tick in &self.layout.ticks {
            let x = tick.x;
            if let Some(before) = tick.squeezed {
                let width = x - before;
                writeln!(
                    f,
                    "<rect class=\"gap\" x=\"{before:.1}\" y=\"0\" width=\"{width:.1}\" height=\"{height:.0}\"/>"
                )?;
            }
            let time = i128::from(tick.time) - i128::from(origin.unwrap_or(0));
            let label = format!("{}{time}", if origin.is_some() { "+" } else { "" });
            let width = label.len() as f64 * DIGIT;
            // The label stands right of its time, the last one left of it if there is no room.
            let last = x + width > self.layout.width;
            if (if last { x - width } else { x }) < free {
                continue;
            }
            free = x + width + 2.0 * DIGIT;
            let class = if last { "axis last" } else { "axis" };
            writeln!(
                f,
                "<line class=\"tick\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"18\" y2=\"{height:.0}\"/>\
                 <text class=\"{class}\" x=\"{x:.1}\" y=\"13\">{label}</text>"
            )?;
        }
        Ok(())
    }

    /// First all arrows, then all numbers, so that no arrow runs over a number.
    fn steps(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let bar_of = |step: &Step| self.layout.bars.iter().find(|bar| bar.event.id == step.id);
        let arrow = |(index, (from, to)): (usize, (&Step, &Step))| {
            let (a, b) = (bar_of(from)?, bar_of(to)?);
            let (before, after) = (words::sentence(a.event), words::sentence(b.event));
            let sentence = format!("{}. {before} {} {after}", index + 1, from.why.words());
            Some(Arrow { number: index + 1, why: from.why, sentence, curve: Curve::between(a, b) })
        };
        let arrows: Vec<Arrow> = pairs(&self.explanation.cycle).enumerate().filter_map(arrow).collect();
        for Arrow { why, sentence, curve, .. } in &arrows {
            let (class, dashes, _) = words::style(*why);
            let path = curve.path();
            writeln!(
                f,
                "<g class=\"step {class}\"><title>{}</title><path class=\"halo\" d=\"{path}\"/>\
                 <path class=\"line\" stroke-dasharray=\"{dashes}\" d=\"{path}\"/><path class=\"head\" d=\"{}\"/></g>",
                Text(sentence),
                curve.head(),
            )?;
        }
        let mut taken: Vec<Point> = Vec::new();
        for (index, Arrow { number, why, sentence, curve }) in arrows.iter().enumerate() {
            let others = arrows.iter().enumerate().filter(|(other, _)| *other != index);
            let (x, y) =
                curve.place_of_number(&self.layout.bars, others.map(|(_, arrow)| &arrow.curve), &taken);
            taken.push((x, y));
            writeln!(
                f,
                "<g class=\"number {}\"><title>{}</title><circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{NUMBER}\"/>\
                 <text x=\"{x:.1}\" y=\"{:.1}\">{number}</text></g>",
                words::style(*why).0,
                Text(sentence),
                y + 4.0,
            )?;
        }
        Ok(())
    }
}

/// A step of the cycle as it is drawn.
struct Arrow {
    number: usize,
    why: Why,
    sentence: String,
    curve: Curve,
}

/// Each step of a cycle with the next.
pub(super) fn pairs(cycle: &[Step]) -> impl Iterator<Item = (&Step, &Step)> {
    cycle.iter().zip(cycle.iter().cycle().skip(1))
}

/// What times are told from, if they are too long to read as they are.
pub(super) fn origin(layout: &Layout<'_>) -> Option<i64> {
    let times = || layout.ticks.iter().map(|tick| tick.time);
    times().min().filter(|_| times().any(|time| time.unsigned_abs() >= 100_000))
}

fn bar_of(f: &mut Formatter<'_>, bar: &Bar<'_>) -> fmt::Result {
    let Bar { event, x, y, width, height, .. } = bar;
    let core = if bar.core { " core" } else { "" };
    let failed = if event.outcome == meridian_protocol::history::Ended::Failed { " failed" } else { "" };
    let (sentence, duration) = (words::sentence(event), words::duration(event));
    write!(f, "<g class=\"op{core}{failed}\"><title>{}; {duration}</title>", Text(&sentence))?;
    if bar.open {
        let fade = if bar.core { "fade-core" } else { "fade" };
        write!(
            f,
            "<rect fill=\"url(#{fade})\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"5\"/>\
             <path class=\"edge\" d=\"M{:.1},{y:.1}h-9q-5,0 -5,5v{:.1}q0,5 5,5h9\"/>",
            x + 14.0,
            height - 10.0
        )?;
    } else {
        write!(
            f,
            "<rect class=\"bar\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"5\"/>"
        )?;
    }
    for (index, line) in bar.lines.iter().enumerate() {
        let down = y + 16.0 + index as f64 * LINE;
        let id = event.id.to_string();
        if index == 0 {
            write!(
                f,
                "<text x=\"{:.1}\" y=\"{down:.1}\"><tspan class=\"id\">{id}</tspan> {}</text>",
                x + 8.0,
                Text(line)
            )?;
        } else {
            let indent = x + 8.0 + (id.len() + 1) as f64 * 7.23;
            write!(f, "<text x=\"{indent:.1}\" y=\"{down:.1}\">{}</text>", Text(line))?;
        }
    }
    f.write_str("</g>\n")
}

type Point = (f64, f64);

/// A cubic Bézier curve that leaves and arrives upright.
struct Curve {
    points: [Point; 4],
}

impl Curve {
    /// From one bar to another: from the end of one to the beginning of the other where they do not overlap.
    fn between(a: &Bar<'_>, b: &Bar<'_>) -> Self {
        let beside = a.y < b.y + b.height && b.y < a.y + a.height;
        let forwards = !a.open && a.x + a.width <= b.x;
        let backwards = !b.open && b.x + b.width <= a.x;
        // There and back again between two bars: beside each other, never across.
        let inner = |bar: &Bar<'_>| (solid(bar) / 2.0).min(28.0);
        let (ax, bx) = match () {
            () if beside && forwards => (a.x + a.width - 10.0, b.x + 10.0),
            () if beside => (a.x + 10.0, b.x + solid(b) - 10.0),
            () if forwards => (a.x + a.width - 10.0, b.x + inner(b)),
            () if backwards => (a.x + 10.0, b.x + b.width - inner(b)),
            // Curves that go up stand left of those that go down.
            () if b.y > a.y => (nearest(a, b) + 9.0, nearest(b, a) + 9.0),
            () => (nearest(a, b) - 9.0, nearest(b, a) - 9.0),
        };
        // Beside each other: over the tops forwards in time, below backwards.
        let (leave, arrive) = match beside {
            true if forwards => (-1.0, 1.0),
            true => (1.0, -1.0),
            false if b.y > a.y => (1.0, 1.0),
            false => (-1.0, -1.0),
        };
        let edge = |bar: &Bar<'_>, down: bool| if down { bar.y + bar.height } else { bar.y };
        let (ay, by) = (edge(a, leave > 0.0), edge(b, arrive < 0.0));
        let reach = if beside { BULGE } else { ((by - ay).abs() / 2.0).max(24.0) };
        Self { points: [(ax, ay), (ax, ay + leave * reach), (bx, by - arrive * reach), (bx, by)] }
    }

    fn at(&self, t: f64) -> Point {
        let s = 1.0 - t;
        let weights = [s * s * s, 3.0 * s * s * t, 3.0 * s * t * t, t * t * t];
        let sum = |part: fn(&Point) -> f64| weights.iter().zip(&self.points).map(|(w, p)| w * part(p)).sum();
        (sum(|p| p.0), sum(|p| p.1))
    }

    /// Where the number covers no label, no other number and best no other arrow, as near to the middle as can be.
    fn place_of_number<'c>(
        &self,
        bars: &[Bar<'_>],
        others: impl Iterator<Item = &'c Self>,
        taken: &[Point],
    ) -> Point {
        let room = NUMBER + 2.0;
        let near = |(x, y): Point, (ox, oy): Point, room: f64| (x - ox).hypot(y - oy) < room;
        let covers = |(x, y): Point| {
            let on = |bar: &Bar<'_>| {
                x > bar.x - room
                    && x < bar.x + solid(bar) + room
                    && y > bar.y - room
                    && y < bar.y + bar.height + room
            };
            bars.iter().any(on) || taken.iter().any(|other| near((x, y), *other, 2.0 * room))
        };
        let lines: Vec<Point> =
            others.flat_map(|other| (0..=40).map(|t| other.at(f64::from(t) / 40.0))).collect();
        let places =
            (0..=32).map(|step| 0.5 + f64::from(step) * if step % 2 == 0 { 0.0125 } else { -0.0125 });
        let free: Vec<Point> = places.map(|t| self.at(t)).filter(|place| !covers(*place)).collect();
        let clear = free.iter().find(|place| !lines.iter().any(|line| near(**place, *line, room)));
        clear.or(free.first()).copied().unwrap_or_else(|| self.at(0.5))
    }

    fn path(&self) -> String {
        let [(ax, ay), (bx, by), (cx, cy), (dx, dy)] = self.points;
        let short = if dy > cy { -HEAD } else { HEAD } / 2.0;
        format!("M{ax:.1},{ay:.1}C{bx:.1},{by:.1} {cx:.1},{cy:.1} {dx:.1},{:.1}", dy + short)
    }

    fn head(&self) -> String {
        let [_, _, (_, before), (x, y)] = self.points;
        let back = if y > before { -HEAD } else { HEAD };
        format!("M{x:.1},{y:.1}l-5,{back}h10z")
    }
}

/// The width of a bar that surely looks like one.
fn solid(bar: &Bar<'_>) -> f64 {
    if bar.open { bar.width * 0.7 } else { bar.width }
}

/// The place on a bar that is nearest to another bar.
fn nearest(bar: &Bar<'_>, other: &Bar<'_>) -> f64 {
    let center = other.x + solid(other).min(120.0) / 2.0;
    let (left, right) = (bar.x + 34.0, bar.x + solid(bar) - 34.0);
    if left < right { center.clamp(left, right) } else { bar.x + solid(bar) / 2.0 }
}
