//! One key's rmws: instances not yet executed, and what executing the others has left.
//!
//! All rmws of a key interfere, and every replica executes them in the same order. So what executing them has left
//! is one of a single sequence of states, and a replica that has fallen behind may take a peer's state in place of
//! the instances that led to it: an instance can be forgotten as soon as it is executed. Only Nops have no place
//! in that order, and leave nothing but the mark that they are done.

use super::carstamp::Held;
use super::instance::{Instance, InstanceId, Phase, Rmw};
use super::message::OpId;
use super::record::Head;
use crate::components::{self, Dependencies};
use crate::object::apply;
pub use crate::results::Remembered;
use crate::results::{Lane, Results};
use crate::topology::Region;
use minicbor::{Decode, Encode};
use std::collections::BTreeMap;

/// What executing rmws has left. Two replicas whose `latest` is the same agree in all but `executed`, which Nops
/// can set apart.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct ChainState {
    /// For each row, up to which index its instances are executed.
    #[n(0)]
    pub executed: Vec<u64>,
    /// For each row, the last executed index that was not a Nop.
    #[n(1)]
    pub latest: Vec<u64>,
    /// The result of the rmw executed last (`prev` in Gryff).
    #[n(2)]
    pub previous: Held,
    /// The newest client time among executed rmws, ms.
    #[n(3)]
    pub newest_ms: u64,
    /// The last result of each lane.
    #[n(4)]
    pub results: Vec<Remembered>,
}

/// A key's rmws at one replica.
#[derive(Clone, Debug)]
pub(super) struct Chain {
    /// For each row, up to which index instances are executed here; they are no longer in `instances`.
    pub(super) executed: Vec<u64>,
    /// As in [`ChainState`]: lets a replica tell whether an executed instance was a Nop.
    pub(super) latest: Vec<u64>,
    /// As in [`ChainState`].
    pub(super) previous: Held,
    newest_ms: u64,
    results: Results,
    /// Instances not executed here.
    pub(super) instances: BTreeMap<InstanceId, Instance>,
}

/// What executing an instance came to.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Execution {
    /// It did nothing, and never will.
    Nop,
    /// The operation took effect, now or in another instance before; this is its result.
    Done(Box<Remembered>),
    /// It took no effect in this instance, and whether it did in another one is no longer known.
    Forgotten,
}

/// What can be executed now, and what stands in the way of the rest.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Plan {
    /// Instances in the order in which to execute them.
    pub(super) order: Vec<InstanceId>,
    /// Instances that committed ones wait for and that are not committed here.
    pub(super) missing: Vec<InstanceId>,
}

impl Chain {
    pub(super) fn new(regions: u8) -> Self {
        let rows = usize::from(regions);
        Self {
            executed: vec![0; rows],
            latest: vec![0; rows],
            previous: Held::default(),
            newest_ms: 0,
            results: Results::default(),
            instances: BTreeMap::new(),
        }
    }

    /// Takes back what was on disk.
    pub(super) fn restore(&mut self, head: Head) {
        let rows = self.executed.len();
        self.executed = head.executed;
        self.executed.resize(rows, 0);
        self.latest = head.latest;
        self.latest.resize(rows, 0);
        self.previous = head.previous;
        self.newest_ms = head.newest_ms;
    }

    /// Takes back a remembered result.
    pub(super) fn restore_result(&mut self, result: Remembered) {
        self.results.insert(result);
    }

    /// Lanes whose results were forgotten since this was last asked, to be forgotten on disk too.
    pub(super) fn take_forgotten(&mut self) -> Vec<Lane> {
        self.results.take_forgotten()
    }

    /// What executing has left, apart from the results, for the disk.
    pub(super) fn head(&self) -> Head {
        Head {
            executed: self.executed.clone(),
            latest: self.latest.clone(),
            previous: self.previous.clone(),
            newest_ms: self.newest_ms,
        }
    }

    /// A digest of which instances are executed here; 0 if none.
    pub(super) fn progress(&self) -> u64 {
        if self.executed.iter().all(|last| *last == 0) {
            return 0;
        }
        self.executed.iter().chain(&self.latest).fold(1, |digest, last| mix(digest, *last))
    }

    pub(super) fn is_executed(&self, id: InstanceId) -> bool {
        self.executed.get(id.row.index()).is_some_and(|last| id.index <= *last)
    }

    /// The instances that a new one must be ordered with: for each row, the last one of which a command is known.
    pub(super) fn dependencies(&self) -> Vec<u64> {
        let mut last = self.executed.clone();
        for (id, instance) in &self.instances {
            if instance.phase >= Phase::PreAccepted {
                let entry = &mut last[id.row.index()];
                *entry = (*entry).max(id.index);
            }
        }
        last
    }

    /// The next free index of a row: for the row's own replica, which stores an instance before it sends it.
    pub(super) fn next_index(&self, row: Region) -> u64 {
        let open = self.instances.keys().filter(|id| id.row == row).map(|id| id.index).max();
        open.unwrap_or(0).max(self.executed[row.index()]) + 1
    }

    /// The result of an operation, if it is executed and remembered.
    pub(super) fn result_of(&self, op: OpId, lane: u32) -> Option<&Remembered> {
        self.results.of(op, lane)
    }

    /// What can be executed: strongly connected components of the dependency graph of committed instances, in
    /// reverse topological order; inside a component by index, then row. Any order that all replicas share
    /// would do there, because an rmw answers only after execution.
    pub(super) fn plan(&self) -> Plan {
        let found = components::plan(self, self.instances.keys().copied());
        let mut order = Vec::new();
        for mut component in found.components {
            component.sort_unstable();
            order.append(&mut component);
        }
        Plan { order, missing: found.missing }
    }

    /// The unexecuted instances that one waits for: the last one of each row that it depends on, and its own
    /// predecessor. The others of a row come before its last one, because each depends on its predecessor.
    fn edges(&self, id: InstanceId) -> impl Iterator<Item = InstanceId> + '_ {
        let attributes = self.instances.get(&id).map(|instance| &instance.proposal.attributes);
        self.executed.iter().enumerate().filter_map(move |(row, executed)| {
            let region = Region(row as u8);
            let listed = attributes.and_then(|a| a.dependencies.get(row)).copied().unwrap_or(0);
            // A Nop lists nothing and another's dependency may name the instance itself.
            let last = if region == id.row { id.index - 1 } else { listed };
            (last > *executed).then_some(InstanceId { index: last, row: region })
        })
    }

    /// Executes the next instance of a plan, whose proposal is final (Gryff Alg. 4).
    ///
    /// `horizon_ms`: how long results are remembered. An operation that is older than the newest by more than
    /// that takes no effect, so that forgetting a result can never make its operation happen twice.
    pub(super) fn execute(&mut self, id: InstanceId, horizon_ms: u64) -> Execution {
        let instance = self.instances.remove(&id).expect("a plan names instances of the chain");
        assert!(instance.phase == Phase::Committed, "only final instances are executed");
        let row = id.row.index();
        assert!(self.executed[row] + 1 == id.index, "rows are executed in order");
        self.executed[row] = id.index;
        let Some(rmw) = instance.proposal.rmw else { return Execution::Nop };
        let before: u64 = self.latest.iter().sum();
        self.latest[row] = id.index;
        let execution = self.execute_once(&rmw, &instance.proposal.attributes.base, horizon_ms);
        let after: u64 = self.latest.iter().sum();
        // Nops do not count: replicas may execute them at different points.
        if before / FORGET_EVERY != after / FORGET_EVERY {
            self.results.forget_before(self.newest_ms.saturating_sub(horizon_ms));
        }
        execution
    }

    fn execute_once(&mut self, rmw: &Rmw, base: &super::instance::Base, horizon_ms: u64) -> Execution {
        let last = self.results.last((rmw.op.client, rmw.lane));
        if let Some(result) = last.filter(|result| result.request >= rmw.op.request) {
            return if result.request == rmw.op.request {
                Execution::Done(Box::new(result.clone()))
            } else {
                Execution::Forgotten
            };
        }
        if rmw.at_ms.saturating_add(horizon_ms) < self.newest_ms {
            return Execution::Forgotten;
        }
        // Never an earlier time than the lane's last: what it replaces must not be forgotten later than it is.
        let at_ms = last.map_or(rmw.at_ms, |last| last.at_ms.max(rmw.at_ms));
        let on = if base.carstamp > self.previous.carstamp {
            assert!(base.carstamp.is_write(), "the rmw that made the base is executed before this one");
            Held { value: base.value.clone(), carstamp: base.carstamp }
        } else {
            std::mem::take(&mut self.previous)
        };
        let Some(carstamp) = on.carstamp.next_rmw() else {
            self.previous = on;
            return Execution::Forgotten;
        };
        let (value, answer) = apply(&on.value, on.carstamp.version(), &rmw.action, rmw.at_ms);
        self.previous = Held { value, carstamp };
        self.newest_ms = self.newest_ms.max(rmw.at_ms);
        let result = Remembered {
            client: rmw.op.client,
            lane: rmw.lane,
            request: rmw.op.request,
            at_ms,
            answer,
            carstamp,
        };
        self.results.insert(result.clone());
        Execution::Done(Box::new(result))
    }

    /// What executing has left, for a peer that is behind.
    pub(super) fn state(&self) -> ChainState {
        ChainState {
            executed: self.executed.clone(),
            latest: self.latest.clone(),
            previous: self.previous.clone(),
            newest_ms: self.newest_ms,
            results: self.results.all(),
        }
    }

    /// Takes over from a peer's state what is later than this one. `None` if nothing is; otherwise the instances
    /// that need not be executed here any more.
    pub(super) fn adopt(&mut self, state: ChainState) -> Option<Vec<InstanceId>> {
        let rows = self.executed.len();
        if state.executed.len() != rows || state.latest.len() != rows {
            return None;
        }
        let ahead = state.latest.iter().zip(&self.latest).all(|(theirs, mine)| theirs >= mine);
        let later = ahead && state.latest != self.latest;
        // Of two states one has executed all non-Nops that the other has, so what is executed there and not in
        // the later one is a Nop.
        let executed = self.executed.iter().zip(&state.executed).map(|(mine, theirs)| *mine.max(theirs));
        let executed: Vec<_> = executed.collect();
        if !later && executed == self.executed {
            return None;
        }
        self.executed = executed;
        if later {
            self.latest = state.latest;
            self.previous = state.previous;
            self.newest_ms = state.newest_ms;
            self.results.replace(state.results);
        }
        Some(self.drop_executed())
    }

    /// Drops instances that are executed; answers which.
    pub(super) fn drop_executed(&mut self) -> Vec<InstanceId> {
        let covered: Vec<_> = self.instances.keys().copied().filter(|id| self.is_executed(*id)).collect();
        for id in &covered {
            self.instances.remove(id);
        }
        covered
    }
}

impl Dependencies for Chain {
    type Id = InstanceId;

    fn is_final(&self, id: InstanceId) -> bool {
        self.instances.get(&id).is_some_and(|instance| instance.phase == Phase::Committed)
    }

    fn waits_for(&self, id: InstanceId) -> Vec<InstanceId> {
        self.edges(id).collect()
    }
}

/// Old results are looked for once in so many executions, at the same ones on every replica.
const FORGET_EVERY: u64 = 64;

fn mix(digest: u64, word: u64) -> u64 {
    let mixed = (digest ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ mixed >> 29
}
