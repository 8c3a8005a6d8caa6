//! One key's rmws: instances not yet executed, and what executing the others has left.
//!
//! All rmws of a key interfere, and every replica executes them in the same order. So what executing them has left is
//! one of a single sequence of states ([`crate::instances::log`]). Only Nops have no place in that order, and leave
//! nothing but the mark that they are done.

use super::Gryff;
use super::instance::{Base, InstanceId, Operation, Proposal};
use crate::instances::log::digest;
use crate::instances::{self, Adopted, Indexes, Log, LogState};
use crate::object::apply;
use crate::registers::carstamp::Held;
pub use crate::results::Remembered;
use crate::topology::Region;
use crate::wire;
use minicbor::{Decode, Encode};
use std::sync::Arc;

/// A key's rmws at one replica.
pub(super) type Chain = Log<Gryff>;

/// What executing rmws has left, apart from the remembered results. Two replicas whose `latest` is the same agree in
/// all but `executed`, which Nops can set apart.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct Head {
    /// For each row, up to which index its instances are executed.
    #[n(0)]
    #[cbor(with = "crate::wire::numbers")]
    pub executed: Indexes,
    /// For each row, the last executed index that was not a Nop.
    #[n(1)]
    #[cbor(with = "crate::wire::numbers")]
    pub latest: Indexes,
    /// The result of the rmw executed last (`prev` in Gryff).
    #[n(2)]
    pub previous: Held,
    /// The newest client time among executed rmws, ms.
    #[n(3)]
    pub newest_ms: u64,
}

impl instances::Head<Gryff> for Head {
    fn resize(&mut self, regions: u8) {
        self.executed.resize(usize::from(regions), 0);
        self.latest.resize(usize::from(regions), 0);
    }

    fn is_executed(&self, id: InstanceId) -> bool {
        self.executed.get(id.row.index()).is_some_and(|last| id.index <= *last)
    }

    fn progress(&self) -> u64 {
        digest(self.executed.iter().chain(&self.latest).copied())
    }

    fn agreed(&self, buffer: &mut Vec<u8>) {
        wire::encode(self, buffer);
    }
}

/// What executing an instance came to.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Execution {
    /// It did nothing, and never will.
    Nop,
    /// The operation took effect, now or in another instance before; this is its result.
    Done(Arc<Remembered>),
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
    /// The instances that a new one must be ordered with: for each row, the last one of which a command is known.
    pub(super) fn dependencies(&self) -> Indexes {
        let mut last = self.head.executed.clone();
        for (id, instance) in &self.instances {
            if instance.is_known() {
                let entry = &mut last[id.row.index()];
                *entry = (*entry).max(id.index);
            }
        }
        last
    }

    /// The next free index of a row: for the row's own replica, which stores an instance before it sends it.
    pub(super) fn next_index(&self, row: Region) -> u64 {
        let open = self.instances.keys().filter(|id| id.row == row).map(|id| id.index).max();
        open.unwrap_or(0).max(self.head.executed[row.index()]) + 1
    }

    /// What can be executed: strongly connected components of the dependency graph of committed instances, in
    /// reverse topological order; inside a component by index, then row. Any order that all replicas share
    /// would do there, because an rmw answers only after execution.
    pub(super) fn order(&mut self) -> Plan {
        let found = self.plan();
        let mut order = Vec::new();
        for mut component in found.components {
            component.sort_unstable();
            order.append(&mut component);
        }
        Plan { order, missing: found.missing }
    }

    /// The unexecuted instances that one waits for: the last one of each row that it depends on, and its own
    /// predecessor. The others of a row come before its last one, because each depends on its predecessor.
    pub(super) fn edges(&self, id: InstanceId) -> impl Iterator<Item = InstanceId> + '_ {
        let attributes = self.instances.get(&id).map(|instance| &instance.proposal.attributes);
        self.head.executed.iter().enumerate().filter_map(move |(row, executed)| {
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
        let instance = self.take_final(id);
        let row = id.row.index();
        assert!(self.head.executed[row] + 1 == id.index, "rows are executed in order");
        self.head.executed[row] = id.index;
        let Proposal { command: Some(rmw), attributes } = instance.proposal else { return Execution::Nop };
        let before: u64 = self.head.latest.iter().sum();
        self.head.latest[row] = id.index;
        let execution = self.execute_once(&rmw, &attributes.base, horizon_ms);
        let after: u64 = self.head.latest.iter().sum();
        self.forget_results((before, after), self.head.newest_ms.saturating_sub(horizon_ms));
        execution
    }

    fn execute_once(&mut self, rmw: &Operation, base: &Base, horizon_ms: u64) -> Execution {
        let Operation { op, lane, action, at_ms } = rmw;
        let last = self.results.last((op.client, *lane));
        if let Some(result) = last.filter(|result| result.request >= op.request) {
            let same = result.request == op.request;
            return if same { Execution::Done(result.clone()) } else { Execution::Forgotten };
        }
        let head = &mut self.head;
        if at_ms.saturating_add(horizon_ms) < head.newest_ms {
            return Execution::Forgotten;
        }
        // Never an earlier time than the lane's last: what it replaces must not be forgotten later than it is.
        let remembered_ms = last.map_or(*at_ms, |last| last.at_ms.max(*at_ms));
        let on = if base.carstamp > head.previous.carstamp {
            assert!(base.carstamp.is_write(), "the rmw that made the base is executed before this one");
            Held { value: base.value.clone(), carstamp: base.carstamp }
        } else {
            std::mem::take(&mut head.previous)
        };
        let Some(carstamp) = on.carstamp.next_rmw() else {
            head.previous = on;
            return Execution::Forgotten;
        };
        let (value, answer) = apply(&on.value, on.carstamp.version(), action, *at_ms);
        head.previous = Held { value, carstamp };
        head.newest_ms = head.newest_ms.max(*at_ms);
        let (client, lane, request) = (op.client, *lane, op.request);
        let result = Arc::new(Remembered { client, lane, request, at_ms: remembered_ms, answer, carstamp });
        self.results.insert(result.clone());
        Execution::Done(result)
    }

    /// Takes over from a peer's state what is later than this one, if anything is.
    pub(super) fn adopt(&mut self, state: LogState<Head>) -> Option<Adopted<InstanceId>> {
        let rows = usize::from(self.regions);
        let LogState { head: theirs, results } = state;
        if theirs.executed.len() != rows || theirs.latest.len() != rows {
            return None;
        }
        let head = &mut self.head;
        let ahead = theirs.latest.iter().zip(&head.latest).all(|(theirs, mine)| theirs >= mine);
        let later = ahead && theirs.latest != head.latest;
        // Of two states one has executed all non-Nops that the other has, so what is executed there and not in
        // the later one is a Nop.
        let executed = head.executed.iter().zip(&theirs.executed).map(|(mine, theirs)| *mine.max(theirs));
        let executed: Indexes = executed.collect();
        if !later && executed == head.executed {
            return None;
        }
        if later {
            *head = theirs;
            self.results.replace(results);
        }
        self.head.executed = executed;
        Some(Adopted { covered: self.drop_executed(), later })
    }
}
