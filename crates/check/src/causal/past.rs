//! Causal pasts, as vector clocks that the checker assigns itself.
//!
//! Updates are put into *lanes*: chains of causality, one a session as long as the session does one thing after
//! another. An operation's past then is a prefix of each lane, and its clock says how long each prefix is.
//! Clocks are kept only as long as someone still needs them, so that memory follows the number of operations
//! whose effects are still to be read, not the length of the history.

use super::readings::Readings;
use crate::graph::{Adjacency, Graph, Why};
use crate::operations::{Op, Operations};
use crate::sources::Source;

/// How many updates of each lane are in the past; lanes beyond the end have none there.
pub(crate) type Clock = Vec<u32>;

/// Joins `other` into `clock`.
pub(crate) fn join(clock: &mut Clock, other: &[u32]) {
    if clock.len() < other.len() {
        clock.resize(other.len(), 0);
    }
    for (own, other) in clock.iter_mut().zip(other) {
        *own = (*own).max(*other);
    }
}

/// The graph of causality: sessions' order, messages, and who saw what. Real time and fences play no part.
pub(crate) fn causality(operations: &Operations<'_>, readings: &Readings) -> Graph {
    let mut graph = Graph::new(operations.all.len());
    sessions(&mut graph, operations);
    for op in 0..operations.all.len() {
        for sender in operations.told(op) {
            graph.edge(*sender, op, Why::Message);
        }
    }
    for reading in &readings.all {
        if let Source::Update(update) = reading.source {
            graph.edge(update, reading.op, Why::Saw);
        }
    }
    graph
}

/// Each session's order: whatever returned before the invocation of another. One edge for each operation while
/// the session does one thing after another; where operations overlap, what returned meets in a joint.
fn sessions(graph: &mut Graph, operations: &Operations<'_>) {
    let mut of_session: Vec<Vec<Op>> = vec![Vec::new(); operations.sessions];
    for (op, operation) in operations.all.iter().enumerate() {
        of_session[operation.session].push(op);
    }
    for mut starts in of_session {
        let mut ends: Vec<Op> = starts.iter().copied().filter(|op| operations.all[*op].is_ok()).collect();
        starts.sort_by_key(|op| operations.all[*op].invoke);
        ends.sort_by_key(|op| operations.all[*op].returned);
        let mut ends = ends.into_iter().peekable();
        // All that has returned is before `last`, or is `last`.
        let mut last: Option<usize> = None;
        let mut after: Option<(Op, Option<usize>)> = None;
        for start in starts {
            let mut ended = Vec::new();
            while let Some(end) =
                ends.next_if(|end| operations.all[*end].returned_before(&operations.all[start]))
            {
                ended.push(end);
            }
            last = match ended[..] {
                [] => last,
                [end] if after == Some((end, last)) => Some(end),
                _ => {
                    let joint = graph.joint();
                    for before in ended.into_iter().chain(last) {
                        graph.edge(before, joint, Why::Session);
                    }
                    Some(joint)
                }
            };
            if let Some(last) = last {
                graph.edge(last, start, Why::Session);
            }
            after = Some((start, last));
        }
    }
}

/// Updates in lanes.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    all: Vec<Vec<Op>>,
    /// The lanes of each session.
    of_session: Vec<Vec<u32>>,
    /// Lanes of updates of unknown outcome, after which their sessions went on without them.
    spare: Vec<u32>,
}

impl Lanes {
    pub(crate) fn new(sessions: usize) -> Self {
        Self { of_session: vec![Vec::new(); sessions], ..Self::default() }
    }

    /// Puts `update` at the end of a lane that is all in its past, and itself into its clock. Returns the lane and
    /// the place there.
    pub(crate) fn append(
        &mut self,
        operations: &Operations<'_>,
        update: Op,
        clock: &mut Clock,
    ) -> (u32, u32) {
        let operation = &operations.all[update];
        let own = if operation.is_ok() { &mut self.of_session[operation.session] } else { &mut self.spare };
        let whole = |lane: &u32| {
            clock.get(*lane as usize).is_some_and(|known| *known as usize == self.all[*lane as usize].len())
        };
        let lane = own.iter().copied().find(whole).unwrap_or_else(|| {
            self.all.push(Vec::new());
            own.push(self.all.len() as u32 - 1);
            self.all.len() as u32 - 1
        });
        let place = self.all[lane as usize].len();
        self.all[lane as usize].push(update);
        if clock.len() <= lane as usize {
            clock.resize(lane as usize + 1, 0);
        }
        clock[lane as usize] = place as u32 + 1;
        (lane, place as u32)
    }

    pub(crate) fn update(&self, lane: u32, place: u32) -> Op {
        self.all[lane as usize][place as usize]
    }
}

/// The clocks that are still needed.
#[derive(Debug)]
pub(crate) struct Clocks {
    of: Vec<Clock>,
    /// How many that come after each node have still to look at its clock.
    needed: Vec<u32>,
    unused: Vec<Clock>,
    /// How many entries of clocks are held, and how many were ever looked at.
    held: usize,
    pub(crate) work: usize,
}

/// The most entries of clocks that are held at a time: 1 GiB of them.
const ROOM: usize = 1 << 28;

/// The most entries of clocks that are looked at before the history is given up: minutes.
const BUDGET: usize = 1 << 36;

impl Clocks {
    /// For a graph, given as seen against the direction of its edges.
    pub(crate) fn new(back: &Adjacency) -> Self {
        let needed = back.incoming();
        Self { of: vec![Clock::new(); needed.len()], needed, unused: Vec::new(), held: 0, work: 0 }
    }

    pub(crate) fn of(&self, node: usize) -> &Clock {
        &self.of[node]
    }

    /// An empty clock.
    pub(crate) fn fresh(&mut self) -> Clock {
        self.unused.pop().unwrap_or_default()
    }

    /// Gives a clock back.
    pub(crate) fn discard(&mut self, mut clock: Clock) {
        clock.clear();
        self.unused.push(clock);
    }

    /// Joins the clock of `node` into `clock`, on behalf of one of those that need it.
    pub(crate) fn take(&mut self, clock: &mut Clock, node: usize) {
        self.work += self.of[node].len() + 1;
        self.needed[node] -= 1;
        if self.needed[node] > 0 {
            return join(clock, &self.of[node]);
        }
        let last = std::mem::take(&mut self.of[node]);
        self.held -= last.len();
        if clock.is_empty() {
            let empty = std::mem::replace(clock, last);
            self.discard(empty);
        } else {
            join(clock, &last);
            self.discard(last);
        }
    }

    /// Keeps a clock for those that need it.
    pub(crate) fn keep(&mut self, node: usize, clock: Clock) {
        if self.needed[node] == 0 {
            return self.discard(clock);
        }
        self.held += clock.len();
        self.of[node] = clock;
    }

    /// Whether the history has become too wide to go on.
    pub(crate) fn exhausted(&self) -> bool {
        self.held > ROOM || self.work > BUDGET
    }
}
