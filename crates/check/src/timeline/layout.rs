//! Where things stand in the drawing. The order of times is exact, distances are not: columns are as wide as labels
//! need, and what is between two times far apart is squeezed.

use super::words;
use crate::Explanation;
use meridian_protocol::history::{Ended, Event, Kind};
use std::collections::{BTreeMap, BTreeSet};

/// Histories up to this length are drawn whole.
const WHOLE: usize = 40;
/// Of longer ones so many operations nearest to the minimal set are drawn with it.
const NEIGHBOURS: usize = 24;
/// Accesses that a bar shows; of longer transactions one line less, and how many are left.
const LINES: usize = 4;

const LETTER: f64 = 7.3;
pub(super) const LINE: f64 = 16.0;
/// Room above a lane's bars, where arrows pass.
const ABOVE: f64 = 40.0;
const BELOW: f64 = 10.0;
pub(super) const SERVICE: f64 = 22.0;
const AXIS: f64 = 22.0;
const MARGIN: f64 = 16.0;
/// Room in which what has not ended fades.
const FADE: f64 = 48.0;

/// One operation as a bar.
pub(super) struct Bar<'h> {
    pub(super) event: &'h Event,
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) width: f64,
    pub(super) height: f64,
    pub(super) lines: Vec<String>,
    /// Whether it belongs to the minimal set.
    pub(super) core: bool,
    /// Whether its end is not known.
    pub(super) open: bool,
}

/// One session at one service.
pub(super) struct Lane<'h> {
    pub(super) session: &'h str,
    /// The service, where a group of lanes begins with this one.
    pub(super) service: Option<&'h str>,
    pub(super) y: f64,
    pub(super) height: f64,
}

/// A time on the axis, and whether what lies before it was squeezed.
pub(super) struct Tick {
    pub(super) x: f64,
    pub(super) time: i64,
    pub(super) squeezed: Option<f64>,
}

/// The whole drawing.
pub(super) struct Layout<'h> {
    pub(super) bars: Vec<Bar<'h>>,
    pub(super) lanes: Vec<Lane<'h>>,
    pub(super) ticks: Vec<Tick>,
    pub(super) width: f64,
    pub(super) height: f64,
    /// Operations of the history that are not drawn.
    pub(super) hidden: usize,
}

/// A moment: a time, and at one time invocations come before returns, since such operations have no order.
type Moment = (i64, bool);

/// When an operation ended, if that is known.
pub(super) fn end(event: &Event) -> Option<i64> {
    event.returned.filter(|_| event.outcome != Ended::Unknown)
}

impl<'h> Layout<'h> {
    pub(super) fn new(events: &'h [Event], explanation: &Explanation) -> Self {
        let core: BTreeSet<u64> = explanation
            .operations
            .iter()
            .copied()
            .chain(explanation.cycle.iter().map(|step| step.id))
            .collect();
        let drawn = drawn(events, &core);
        let common = common_keys(&drawn, &core);
        let labels: Vec<Vec<String>> = drawn.iter().map(|event| label(event, &common)).collect();
        let columns = Columns::new(&drawn, &labels);
        let several = drawn.iter().any(|event| event.service != drawn[0].service);
        let (lanes, tops, height) = lanes(&drawn, &labels, several);
        let bars = drawn.iter().zip(labels).zip(tops).map(|((event, lines), y)| {
            let x = columns.of[&(event.invoke, false)];
            let right = end(event).map_or(columns.width, |end| columns.of[&(end, true)]);
            Bar {
                event,
                x,
                y,
                width: right - x,
                height: tall(&lines),
                lines,
                core: core.contains(&event.id),
                open: end(event).is_none(),
            }
        });
        Self {
            bars: bars.collect(),
            lanes,
            ticks: columns.ticks(),
            width: columns.width,
            height,
            hidden: events.len() - drawn.len(),
        }
    }
}

/// What is drawn of a history: all of a short one; of a long one the minimal set and what is nearest to it in time,
/// preferably at the same keys.
fn drawn<'h>(events: &'h [Event], core: &BTreeSet<u64>) -> Vec<&'h Event> {
    let mut drawn: Vec<&Event> = events.iter().filter(|event| core.contains(&event.id)).collect();
    let mut others: Vec<&Event> = events.iter().filter(|event| !core.contains(&event.id)).collect();
    if events.len() > WHOLE {
        let keys: BTreeSet<(&str, &str)> = drawn.iter().flat_map(|event| keys(event)).collect();
        let spans: Vec<(i64, i64)> = drawn.iter().map(|event| span(event)).collect();
        others.sort_by_cached_key(|event| {
            let stranger = !keys.is_empty() && !self::keys(event).any(|key| keys.contains(&key));
            (stranger, distance(span(event), &spans), event.invoke, event.id)
        });
        others.truncate(NEIGHBOURS);
    }
    drawn.append(&mut others);
    drawn.sort_by_key(|event| (event.invoke, event.id));
    drawn
}

fn keys(event: &Event) -> impl Iterator<Item = (&str, &str)> {
    event.ops.iter().map(|access| (event.service.as_str(), access.key.as_str()))
}

/// An operation without end is near to nothing but its invocation.
fn span(event: &Event) -> (i64, i64) {
    (event.invoke, end(event).unwrap_or(event.invoke))
}

fn distance(span: (i64, i64), to: &[(i64, i64)]) -> i64 {
    let gap = |other: &(i64, i64)| other.0.saturating_sub(span.1).max(span.0.saturating_sub(other.1)).max(0);
    to.iter().map(gap).min().unwrap_or(0)
}

/// Keys that several operations of the minimal set touch: what a bar shows first.
fn common_keys<'h>(drawn: &[&'h Event], core: &BTreeSet<u64>) -> BTreeSet<(&'h str, &'h str)> {
    let mut seen = BTreeMap::new();
    for event in drawn.iter().filter(|event| core.contains(&event.id)) {
        for key in keys(event).collect::<BTreeSet<_>>() {
            *seen.entry(key).or_insert(0) += 1;
        }
    }
    seen.into_iter().filter(|(_, count)| *count > 1).map(|(key, _)| key).collect()
}

fn label(event: &Event, common: &BTreeSet<(&str, &str)>) -> Vec<String> {
    if event.ops.is_empty() {
        return vec![if event.kind == Kind::Fence { "fence" } else { "nothing" }.to_string()];
    }
    if event.ops.len() <= LINES {
        return event.ops.iter().map(words::brief).collect();
    }
    let mut shown: Vec<usize> = (0..event.ops.len()).collect();
    shown.sort_by_key(|index| !common.contains(&(event.service.as_str(), event.ops[*index].key.as_str())));
    shown.truncate(LINES - 1);
    shown.sort_unstable();
    let mut lines: Vec<String> = shown.iter().map(|index| words::brief(&event.ops[*index])).collect();
    lines.push(format!("… {} more", event.ops.len() - lines.len()));
    lines
}

fn tall(lines: &[String]) -> f64 {
    lines.len() as f64 * LINE + 8.0
}

/// The room that a label takes: letters of far scripts are twice as wide.
fn label_width(event: &Event, lines: &[String]) -> f64 {
    let letters = |line: &String| line.chars().map(|c| if c < '\u{1100}' { 1 } else { 2 }).sum::<usize>();
    let longest = lines.iter().map(letters).max().unwrap_or(0);
    (longest + event.id.to_string().len() + 1) as f64 * LETTER + 18.0
}

/// Where each moment stands.
struct Columns {
    of: BTreeMap<Moment, f64>,
    squeezed: BTreeMap<i64, f64>,
    width: f64,
}

impl Columns {
    fn new(drawn: &[&Event], labels: &[Vec<String>]) -> Self {
        let mut moments: BTreeSet<Moment> = drawn.iter().map(|event| (event.invoke, false)).collect();
        moments.extend(drawn.iter().filter_map(|event| Some((end(event)?, true))));
        let unit = unit(&moments);
        let mut ending: BTreeMap<Moment, Vec<usize>> = BTreeMap::new();
        for (index, event) in drawn.iter().enumerate() {
            if let Some(end) = end(event) {
                ending.entry((end, true)).or_default().push(index);
            }
        }
        let mut columns = Self { of: BTreeMap::new(), squeezed: BTreeMap::new(), width: 0.0 };
        let mut last: Option<(i64, f64)> = None;
        for moment in moments {
            let gap = last.map_or(MARGIN, |(time, _)| room(moment.0.abs_diff(time) as f64 / unit));
            let mut x = last.map_or(0.0, |(_, x)| x) + gap;
            if let Some((time, before)) =
                last.filter(|(time, _)| moment.0.abs_diff(*time) as f64 / unit > FAR)
            {
                debug_assert!(time < moment.0, "moments are walked in order");
                columns.squeezed.insert(moment.0, before);
            }
            for index in ending.get(&moment).into_iter().flatten() {
                x = x.max(
                    columns.of[&(drawn[*index].invoke, false)] + label_width(drawn[*index], &labels[*index]),
                );
            }
            columns.of.insert(moment, x);
            last = Some((moment.0, x));
        }
        let open = drawn.iter().zip(labels).filter(|(event, _)| end(event).is_none());
        let open =
            open.map(|(event, lines)| columns.of[&(event.invoke, false)] + label_width(event, lines) + FADE);
        columns.width = open.fold(last.map_or(0.0, |(_, x)| x) + MARGIN, f64::max);
        if drawn.iter().any(|event| end(event).is_none()) {
            columns.width = columns.width.max(last.map_or(0.0, |(_, x)| x) + FADE);
        }
        columns
    }

    fn ticks(&self) -> Vec<Tick> {
        let mut ticks: Vec<Tick> = Vec::new();
        for (&(time, _), &x) in &self.of {
            if ticks.last().is_none_or(|tick| tick.time != time) {
                ticks.push(Tick { x, time, squeezed: self.squeezed.get(&time).copied() });
            }
        }
        ticks
    }
}

/// From how many units on a distance is drawn as a gap.
const FAR: f64 = 12.0;

/// The usual distance between neighbouring times.
fn unit(moments: &BTreeSet<Moment>) -> f64 {
    let times: BTreeSet<i64> = moments.iter().map(|(time, _)| *time).collect();
    let mut steps: Vec<u64> = times.iter().zip(times.iter().skip(1)).map(|(a, b)| b.abs_diff(*a)).collect();
    steps.sort_unstable();
    steps.get(steps.len() / 2).map_or(1.0, |step| *step as f64)
}

/// The room for a distance of so many units.
fn room(units: f64) -> f64 {
    (units * 24.0).clamp(16.0, 72.0)
}

/// Lanes from top to bottom, the top of each operation's bar, and the height of all.
fn lanes<'h>(drawn: &[&'h Event], labels: &[Vec<String>], several: bool) -> (Vec<Lane<'h>>, Vec<f64>, f64) {
    let mut members: BTreeMap<(&str, usize, &str), Vec<usize>> = BTreeMap::new();
    for (index, event) in drawn.iter().enumerate() {
        // p2 before p10.
        members.entry((&event.service, event.session.len(), &event.session)).or_default().push(index);
    }
    let mut lanes: Vec<Lane<'h>> = Vec::new();
    let mut tops = vec![0.0; drawn.len()];
    let mut y = AXIS;
    let mut service = None;
    for ((of, _, session), members) in members {
        let begins = several && service != Some(of);
        service = Some(of);
        y += if begins { SERVICE } else { 0.0 };
        let height = rows(drawn, labels, &members, y + ABOVE, &mut tops) + ABOVE + BELOW;
        lanes.push(Lane { session, service: Some(of).filter(|_| begins), y, height });
        y += height;
    }
    (lanes, tops, y + BELOW)
}

/// Puts operations that overlap below each other; returns the height of all rows.
fn rows(drawn: &[&Event], labels: &[Vec<String>], members: &[usize], top: f64, tops: &mut [f64]) -> f64 {
    let mut rows: Vec<(Option<i64>, Vec<usize>)> = Vec::new();
    for &member in members {
        let free = rows.iter_mut().find(|(last, _)| last.is_some_and(|end| end < drawn[member].invoke));
        match free {
            Some((last, row)) => {
                *last = end(drawn[member]);
                row.push(member);
            }
            None => rows.push((end(drawn[member]), vec![member])),
        }
    }
    let mut y = top;
    for (_, row) in &rows {
        let height = row.iter().map(|member| tall(&labels[*member])).fold(0.0, f64::max);
        for member in row {
            tops[*member] = y;
        }
        y += height + BELOW;
    }
    y - BELOW - top
}
