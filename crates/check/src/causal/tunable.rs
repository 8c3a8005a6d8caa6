//! Tunable causal consistency (TCC paper, §II): each operation asks for session guarantees.
//!
//! There is a *view* for each read, a set of updates, and one order of all updates, such that each read returns
//! the last update of its key in its view, or finds none there and the key as it began, and
//! - read your writes: what the session wrote before is in the view (definition 8);
//! - monotonic reads: the views of the session's earlier reads are in the view (definition 9);
//! - monotonic writes: what the session wrote before stands before in the order (definition 10);
//! - writes follow reads: the views of the session's earlier reads stand before in the order (definition 11).
//!
//! With known sources the smallest views are the best: all that a larger one does is to forbid. So views are
//! computed and not searched for: what was returned, and what the guarantees put there. *Closed* views hold with
//! each update also what its own guarantees put before it: for monotonic writes all that its session had
//! written, for writes that follow reads all that its session had been *returned* (not all it had in view:
//! that is what the vectors of dependencies carry). That an update comes after what it brings into a view is in
//! the order anyway.
//!
//! Departures from the paper: a level may join several guarantees; the reads of a read-only transaction are reads
//! of their own; any other operation on several accesses is one step, which reads first. By the letter of the
//! paper a read may return what its own session writes only later, and so it may here.

use super::arbitration::{self, Conflict};
use super::levels::Level;
use super::readings::{Reading, Readings};
use super::view::{Closure, Frontiers, Moment, Predecessors, sources};
use crate::Judgement;
use crate::graph::{Graph, Why};
use crate::operations::{NEVER, Op, Operations};
use crate::sources::Source;
use std::collections::HashMap;

/// Judges by the definition above, each operation at its level.
pub(crate) fn judge(
    operations: &Operations<'_>,
    readings: &Readings,
    levels: &[Level],
    closed: bool,
) -> Judgement {
    let happened = readings.happened(operations);
    let schedules = schedules(operations, &happened);
    let mut graph = Graph::new(operations.all.len());
    order(&mut graph, operations, readings, levels, &happened);
    let predecessors = if closed {
        Predecessors::new(operations, readings, &schedules, levels)
    } else {
        Predecessors::none()
    };
    let mut sweep = Sweep {
        operations,
        readings,
        levels,
        predecessors: &predecessors,
        graph: &mut graph,
        seen: Closure::new(operations),
        own: Closure::new(operations),
        step: Closure::new(operations),
        frontiers: Frontiers::new(operations.keys.len()),
        work: 0,
        conflicts: Vec::new(),
    };
    for schedule in &schedules {
        if let Err(judgement) = sweep.session(schedule) {
            return judgement;
        }
    }
    let conflicts = sweep.conflicts;
    arbitration::judge(operations, graph, &conflicts, readings.versions.as_deref())
}

/// For each session what happened, in time.
fn schedules(operations: &Operations<'_>, happened: &[bool]) -> Vec<Vec<(i64, Moment)>> {
    let mut schedules = vec![Vec::new(); operations.sessions];
    for (op, operation) in operations.all.iter().enumerate().filter(|(op, _)| happened[*op]) {
        let schedule = &mut schedules[operation.session];
        schedule.push((operation.invoke, Moment::Start(op)));
        if operation.returned != NEVER {
            schedule.push((operation.returned, Moment::End(op)));
        }
    }
    for schedule in &mut schedules {
        schedule.sort_unstable();
    }
    schedules
}

/// What the order of updates must keep, apart from what reads returned. A node for each read holds its view: for
/// an operation that also writes that is a node of its own, before the write.
fn order(
    graph: &mut Graph,
    operations: &Operations<'_>,
    readings: &Readings,
    levels: &[Level],
    happened: &[bool],
) {
    let sessions = operations.sessions;
    let (mut writes, mut after_writes) = (vec![Vec::new(); sessions], vec![Vec::new(); sessions]);
    let (mut views, mut after_views) = (vec![Vec::new(); sessions], vec![Vec::new(); sessions]);
    for (op, operation) in operations.all.iter().enumerate().filter(|(op, _)| happened[*op]) {
        let (session, level) = (operation.session, levels[op]);
        if operation.updates() {
            writes[session].extend(Some((operation.returned, op)).filter(|(returned, _)| *returned != NEVER));
            after_writes[session].extend(level.mw.then_some((operation.invoke, op)));
            after_views[session].extend(level.wfr.then_some((operation.invoke, op)));
        }
        if readings.of(op).is_empty() {
            continue;
        }
        let mut view = op;
        if operation.updates() {
            view = graph.role_of(op);
            graph.edge(view, op, Why::Session);
            after_views[session].extend(level.mr.then_some((operation.invoke, view)));
        }
        views[session].push((operation.returned, view));
        after_writes[session].extend(level.ryw.then_some((operation.invoke, view)));
        for source in sources(readings, op) {
            graph.edge(source, view, Why::Saw);
        }
    }
    for (ends, starts) in writes.into_iter().zip(after_writes).chain(views.into_iter().zip(after_views)) {
        graph.timeline(ends, starts, Why::Session);
    }
}

/// The most updates that are put into views before the history is given up.
const BUDGET: usize = 1 << 32;

/// One session after another, in time, each with its views.
struct Sweep<'a> {
    operations: &'a Operations<'a>,
    readings: &'a Readings,
    levels: &'a [Level],
    predecessors: &'a Predecessors,
    graph: &'a mut Graph,
    /// The views of the session's earlier reads.
    seen: Closure,
    /// What the session wrote.
    own: Closure,
    /// The view of one operation alone.
    step: Closure,
    /// What monotonic reads of the session compare with.
    frontiers: Frontiers,
    work: usize,
    conflicts: Vec<Conflict>,
}

/// What the reads of a session ask for.
#[derive(Clone, Copy)]
struct Asks {
    mr: bool,
    ryw: bool,
    /// Whether one asks to read its writes and not for monotonic reads.
    ryw_alone: bool,
}

/// The state of one session.
#[derive(Default)]
struct Session {
    /// The session's writes in the order of their returns.
    writes: Vec<Op>,
    /// How many of them are in the view of an earlier read.
    read: usize,
    /// For each key the session's writes, with what they bring.
    own: HashMap<usize, Own>,
    /// For reads under way how many writes had returned at their start, and how far the frontiers were.
    started: HashMap<Op, (usize, u32)>,
}

/// What of one key a session has to find in its views because of its own writes.
#[derive(Default)]
struct Own {
    /// In the order in which it came.
    updates: Vec<Op>,
    /// The one among them that was read as the last, and how many there were by then.
    top: Option<(Op, usize)>,
    /// A node after as many of them.
    joint: Option<(usize, usize)>,
}

impl Sweep<'_> {
    fn session(&mut self, schedule: &[(i64, Moment)]) -> Result<(), Judgement> {
        let reads = |moment: &Moment| match *moment {
            Moment::Start(op) if !self.readings.of(op).is_empty() => Some(self.levels[op]),
            _ => None,
        };
        let levels = || schedule.iter().filter_map(|(_, moment)| reads(moment));
        let asks = Asks {
            mr: levels().any(|level| level.mr),
            ryw: levels().any(|level| level.ryw),
            ryw_alone: levels().any(|level| level.ryw && !level.mr),
        };
        self.seen.clear();
        self.own.clear();
        self.frontiers.clear();
        let mut session = Session::default();
        for (_, moment) in schedule {
            match *moment {
                Moment::Start(op) => self.start(&mut session, op)?,
                Moment::End(op) => self.end(&mut session, op, asks),
            }
            if self.work > BUDGET {
                return Err(Judgement::undecided("the views of so many sessions are too large to follow"));
            }
        }
        Ok(())
    }

    /// Judges what an operation returned.
    fn start(&mut self, session: &mut Session, op: Op) -> Result<(), Judgement> {
        let readings = self.readings;
        let readings = readings.of(op);
        if readings.is_empty() {
            return Ok(());
        }
        session.started.insert(op, (session.writes.len(), self.frontiers.now()));
        let level = self.levels[op];
        for reading in readings {
            if level.mr {
                let known: Vec<Op> = self.frontiers.of(reading.key).collect();
                self.known(reading, &known)?;
            }
            if level.ryw
                && let Some(own) = session.own.get_mut(&reading.key)
            {
                self.known_by_own(reading, own)?;
            }
        }
        if self.operations.all[op].updates() && readings.len() > 1 {
            self.one_step(op, readings)?;
        }
        Ok(())
    }

    /// All of `known` is in the view of the reading.
    fn known(&mut self, reading: &Reading, known: &[Op]) -> Result<(), Judgement> {
        match (reading.source, known.first()) {
            (Source::Initial, Some(update)) => {
                let steps = [(*update, Why::Known), (reading.op, Why::Replaced)];
                return Err(Judgement::cyclic(self.operations, &steps));
            }
            (Source::Update(seen), _) => {
                for update in known.iter().filter(|update| **update != seen) {
                    self.conflict(*update, seen, reading.op);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn conflict(&mut self, before: usize, after: Op, reader: Op) {
        self.conflicts.push(Conflict { before: before as u32, after: after as u32, reader: reader as u32 });
    }

    /// All that the session wrote is in the view of the reading.
    fn known_by_own(&mut self, reading: &Reading, own: &mut Own) -> Result<(), Judgement> {
        let Source::Update(seen) = reading.source else { return self.known(reading, &own.updates) };
        if !self.own.contains(seen) {
            let (joint, met) = own.joint.unwrap_or((usize::MAX, 0));
            if met < own.updates.len() {
                let node = self.graph.joint();
                if met > 0 {
                    self.graph.edge(joint, node, Why::Passed);
                }
                for update in &own.updates[met..] {
                    self.graph.edge(*update, node, Why::Passed);
                }
                own.joint = Some((node, own.updates.len()));
            }
            if let Some((joint, _)) = own.joint {
                self.conflict(joint, seen, reading.op);
            }
            return Ok(());
        }
        let (top, compared) = own.top.map_or((None, 0), |(top, compared)| (Some(top), compared));
        let known: Vec<Op> = top.into_iter().chain(own.updates[compared..].iter().copied()).collect();
        own.top = Some((seen, own.updates.len()));
        self.known(reading, &known)
    }

    /// A step that reads several keys and writes has one view: what one of the readings brings the others see.
    fn one_step(&mut self, op: Op, readings: &[Reading]) -> Result<(), Judgement> {
        self.step.clear();
        let mut view = Vec::new();
        for source in sources(self.readings, op) {
            self.step.insert(self.operations, self.predecessors, source, |update| view.push(update));
        }
        self.work += view.len();
        let mut of_key: HashMap<usize, Vec<Op>> = HashMap::new();
        for update in view {
            for touch in self.operations.all[update].touches.iter().filter(|touch| touch.write.is_some()) {
                of_key.entry(touch.key).or_default().push(update);
            }
        }
        readings
            .iter()
            .try_for_each(|reading| self.known(reading, of_key.get(&reading.key).map_or(&[], Vec::as_slice)))
    }

    /// What an operation had in view, and what it wrote, is what later ones start from.
    fn end(&mut self, session: &mut Session, op: Op, asks: Asks) {
        let (operations, predecessors, level) = (self.operations, self.predecessors, self.levels[op]);
        if let Some((writes, then)) = session.started.remove(&op).filter(|_| asks.mr) {
            let views = if level.ryw { session.read..writes.max(session.read) } else { 0..0 };
            let written = session.writes[views.clone()].iter().copied();
            session.read = session.read.max(views.end);
            for update in written.chain(sources(self.readings, op)) {
                self.seen.insert(operations, predecessors, update, |update| {
                    self.work += 1;
                    self.frontiers.add(operations, update);
                });
            }
            for reading in self.readings.of(op).iter().filter(|_| level.mr) {
                if let Source::Update(seen) = reading.source {
                    self.frontiers.replace(reading.key, then, seen);
                }
            }
        }
        if !operations.all[op].updates() {
            return;
        }
        session.writes.push(op);
        if asks.ryw {
            self.own.insert(operations, predecessors, op, |update| {
                self.work += 1;
                // What monotonic reads compare with need not be compared a second time.
                if self.seen.contains(update) && !asks.ryw_alone {
                    return;
                }
                for touch in operations.all[update].touches.iter().filter(|touch| touch.write.is_some()) {
                    session.own.entry(touch.key).or_default().updates.push(update);
                }
            });
        }
    }
}
