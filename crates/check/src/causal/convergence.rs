//! Causal consistency with convergence: each read returns the last update, in one order of all updates that
//! extends causality, of all that it causally follows.
//!
//! With known sources that takes polynomial time (Bouajjani et al. 2017, "bad patterns"): there is such an order
//! unless causality is cyclic, a read saw a key as it began although it follows an update of it, or causality
//! together with *conflicts* is cyclic. There is a conflict from `b` to `a` if a read returned `a` and follows
//! `b`, another update of that key. Of the updates of a key in a lane only the last that a read follows matters,
//! as those before it come before it anyway.

use super::arbitration::{self, Conflict};
use super::past::{Clock, Clocks, Lanes, causality, join};
use super::readings::{Reading, Readings};
use crate::Judgement;
use crate::graph::{Adjacency, Graph, Why};
use crate::operations::{NEVER, Op, Operations};
use crate::sources::Source;

/// Which of the models to judge by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demands {
    /// Whether the reads of a read-only transaction are judged one by one, each with a past of its own.
    pub(crate) reads_apart: bool,
    /// Whether the order of updates respects real time.
    pub(crate) real_time: bool,
}

/// Judges by the definition above.
pub(crate) fn judge(operations: &Operations<'_>, readings: &Readings, demands: Demands) -> Judgement {
    let mut graph = causality(operations, readings);
    let Some(order) = graph.adjacency().topological() else {
        let cycle = graph.cycle(|op| operations.all[op].invoke).expect("without a cycle there is an order");
        return Judgement::cyclic(operations, &cycle);
    };
    let back = graph.backwards();
    let conflicts = match Sweep::new(operations, readings, demands.reads_apart, &back).run(&order) {
        Ok(conflicts) => conflicts,
        Err(judgement) => return judgement,
    };
    if demands.real_time {
        real_time(&mut graph, operations, readings);
    }
    arbitration::judge(operations, graph, &conflicts, readings.versions.as_deref())
}

fn real_time(graph: &mut Graph, operations: &Operations<'_>, readings: &Readings) {
    let happened = readings.happened(operations);
    let updates =
        operations.all.iter().enumerate().filter(|(op, operation)| happened[*op] && operation.updates());
    let starts: Vec<(i64, Op)> = updates.map(|(op, operation)| (operation.invoke, op)).collect();
    let ends = starts.iter().map(|(_, op)| (operations.all[*op].returned, *op));
    let ends = ends.filter(|(returned, _)| *returned != NEVER).collect();
    graph.timeline(ends, starts, Why::RealTime);
}

/// Updates of one key in one lane, by their places there.
type Places = Vec<u32>;

/// All operations, causes before effects, each with its clock.
struct Sweep<'a> {
    operations: &'a Operations<'a>,
    readings: &'a Readings,
    reads_apart: bool,
    /// For each node what must come before it.
    back: &'a Adjacency,
    happened: Vec<bool>,
    clocks: Clocks,
    lanes: Lanes,
    /// For each key the lanes that write it.
    writers: Vec<Vec<(u32, Places)>>,
    conflicts: Vec<Conflict>,
}

impl<'a> Sweep<'a> {
    fn new(
        operations: &'a Operations<'a>,
        readings: &'a Readings,
        reads_apart: bool,
        back: &'a Adjacency,
    ) -> Self {
        Self {
            operations,
            readings,
            reads_apart,
            happened: readings.happened(operations),
            back,
            clocks: Clocks::new(back),
            lanes: Lanes::new(operations.sessions),
            writers: vec![Vec::new(); operations.keys.len()],
            conflicts: Vec::new(),
        }
    }

    fn run(mut self, order: &[usize]) -> Result<Vec<Conflict>, Judgement> {
        for node in order {
            self.step(*node)?;
            if self.clocks.exhausted() {
                return Err(Judgement::undecided(
                    "too many sessions, and too many operations, to follow them all",
                ));
            }
        }
        self.conflicts.sort_unstable();
        self.conflicts.dedup_by_key(|conflict| (conflict.after, conflict.before));
        Ok(self.conflicts)
    }

    fn step(&mut self, node: usize) -> Result<(), Judgement> {
        let mut past = self.clocks.fresh();
        let back = self.back;
        for (before, why) in back.reasons(node) {
            if why != Why::Saw {
                self.clocks.take(&mut past, before);
            }
        }
        self.readings_of(node, &mut past)?;
        for (before, why) in back.reasons(node) {
            if why == Why::Saw {
                self.clocks.take(&mut past, before);
            }
        }
        if node < self.operations.all.len() && self.happened[node] && self.operations.all[node].updates() {
            self.append(node, &mut past);
        }
        self.clocks.keep(node, past);
        Ok(())
    }

    /// Judges what an operation saw. Sources that are in no past of another stay out of `past`.
    fn readings_of(&mut self, op: Op, past: &mut Clock) -> Result<(), Judgement> {
        if op >= self.operations.all.len() {
            return Ok(());
        }
        let readings = self.readings;
        let readings = readings.of(op);
        let apart = self.reads_apart && !self.operations.all[op].updates();
        if !apart || readings.len() < 2 {
            for reading in readings {
                if let Source::Update(update) = reading.source {
                    join(past, self.clocks.of(update));
                }
            }
            return readings.iter().try_for_each(|reading| self.check(reading, past));
        }
        let mut own = self.clocks.fresh();
        for reading in readings {
            own.clone_from(past);
            if let Source::Update(update) = reading.source {
                join(&mut own, self.clocks.of(update));
            }
            self.check(reading, &own)?;
        }
        self.clocks.discard(own);
        Ok(())
    }

    /// Compares what was read with the last update of the key in each lane of the past.
    fn check(&mut self, reading: &Reading, past: &Clock) -> Result<(), Judgement> {
        self.clocks.work += 8 * self.writers[reading.key].len();
        for (lane, places) in &self.writers[reading.key] {
            let known = past.get(*lane as usize).copied().unwrap_or(0);
            let Some(last) = places.partition_point(|place| *place < known).checked_sub(1) else { continue };
            let update = self.lanes.update(*lane, places[last]);
            match reading.source {
                Source::Initial => {
                    let steps = [(update, Why::Known), (reading.op, Why::Replaced)];
                    return Err(Judgement::cyclic(self.operations, &steps));
                }
                Source::Update(seen) if seen != update => {
                    let before = self.clocks.of(seen).get(*lane as usize).copied().unwrap_or(0);
                    if places[last] >= before {
                        let (after, before) = (seen as u32, update as u32);
                        self.conflicts.push(Conflict { after, before, reader: reading.op as u32 });
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn append(&mut self, update: Op, past: &mut Clock) {
        let (lane, place) = self.lanes.append(self.operations, update, past);
        for touch in self.operations.all[update].touches.iter().filter(|touch| touch.write.is_some()) {
            let lanes = &mut self.writers[touch.key];
            match lanes.iter_mut().find(|(known, _)| *known == lane) {
                Some((_, places)) => places.push(place),
                None => lanes.push((lane, vec![place])),
            }
        }
    }
}
