//! One key's log: instances not yet executed, and what executing the others has left.
//!
//! All updates of a key interfere, so every replica executes them in one order, and what that leaves is one of a
//! single sequence of states ([`crate::instances::log`]). Reads and Nops have no place in that sequence and leave
//! nothing but the mark that they are done; whatever depends on a read is executed after it on every replica, so the
//! marks of two replicas may be put together.

use super::Epaxos;
use super::instance::{Attributes, Instance, InstanceId, Kind, Operation, Phase, Proposal, line_of};
use crate::components::Plan;
use crate::instances::instance::{Attributes as _, Operations};
use crate::instances::log::digest;
use crate::instances::{self, Adopted, Indexes, LogState};
use crate::object::{Answer, Class, apply};
use crate::planted::Planted;
use crate::registers::carstamp::{Carstamp, Held};
use crate::results::Remembered;
use crate::topology::{ClientId, Region};
use crate::wire;
use minicbor::{Decode, Encode};
use smallvec::smallvec;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A key's log at one replica.
pub(super) type Log = instances::Log<Epaxos>;

/// What executing has left of a key's instances, apart from the value and the remembered results.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct Head {
    /// For each line, up to which index all its instances are executed.
    #[n(0)]
    #[cbor(with = "crate::wire::numbers")]
    pub executed: Indexes,
    /// Instances executed beyond that: a read does not wait for the reads before it.
    #[n(1)]
    pub beyond: BTreeSet<InstanceId>,
    /// For each line, the last executed index that was not a Nop.
    #[n(2)]
    #[cbor(with = "crate::wire::numbers")]
    pub latest: Indexes,
    /// The highest sequence number known of updates, executed or not. Higher than needed is harmless.
    #[n(3)]
    pub update_seq: u64,
    /// The same of reads.
    #[n(4)]
    pub read_seq: u64,
    /// The newest client time known of updates, ms. Higher than needed makes fewer retries known again.
    #[n(5)]
    pub newest_ms: u64,
    /// The newest client time among executed updates, ms.
    #[n(6)]
    pub executed_ms: u64,
}

impl Head {
    fn regions(&self) -> u8 {
        (self.executed.len() / 2) as u8
    }

    /// The highest executed index of a line.
    fn last_executed(&self, kind: Kind, row: Region) -> u64 {
        let id = |index| InstanceId { kind, row, index };
        let beyond = self.beyond.range(id(0)..=id(u64::MAX)).next_back().map_or(0, |id| id.index);
        beyond.max(self.executed[line_of(kind, row, self.regions())])
    }

    /// Moves what is executed next to a prefix into it.
    fn close_gaps(&mut self) {
        let regions = self.regions();
        // In the order of lines and indexes, so that one pass does.
        self.beyond.retain(|id| {
            let last = &mut self.executed[id.line(regions)];
            *last += u64::from(id.index == *last + 1);
            id.index > *last
        });
    }

    /// How many updates that were no Nops are executed: counts the same on every replica at the same point of the order.
    fn updates(&self) -> u64 {
        self.latest[..usize::from(self.regions())].iter().sum()
    }
}

impl instances::Head<Epaxos> for Head {
    fn resize(&mut self, regions: u8) {
        self.executed.resize(2 * usize::from(regions), 0);
        self.latest.resize(2 * usize::from(regions), 0);
    }

    fn is_executed(&self, id: InstanceId) -> bool {
        let prefix = self.executed.get(id.line(self.regions())).is_some_and(|last| id.index <= *last);
        prefix || self.beyond.contains(&id)
    }

    fn progress(&self) -> u64 {
        let beyond = self.beyond.iter().flat_map(|id| [id.line(self.regions()) as u64, id.index]);
        digest(self.executed.iter().chain(&self.latest).copied().chain(beyond))
    }

    fn note(&mut self, id: InstanceId, operations: &Operations, attributes: &Attributes) {
        self.newest_ms = self.newest_ms.max(attributes.newest_ms);
        if id.kind == Kind::Read {
            self.read_seq = self.read_seq.max(attributes.seq);
        } else {
            self.update_seq = self.update_seq.max(attributes.seq);
            let newest = operations.iter().map(|operation| operation.at_ms).max().unwrap_or(0);
            self.newest_ms = self.newest_ms.max(newest);
        }
    }

    /// Not what is known of instances that are still to be executed.
    fn agreed(&self, buffer: &mut Vec<u8>) {
        wire::encode(&(self.progress(), &self.latest[..]), buffer);
    }
}

/// What executing an operation came to.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Execution {
    /// The update took effect; this is its result.
    Done(Arc<Remembered>),
    /// The update had taken effect in another instance before, with this result.
    Again(Arc<Remembered>),
    /// What a read saw.
    Seen(Answer, Carstamp),
    /// The update took no effect in this instance, and whether it did in another one is no longer known.
    Forgotten,
}

impl Log {
    fn lines(&self) -> usize {
        2 * usize::from(self.regions)
    }

    /// Each line that holds instances of a kind that interferes with `kind`.
    fn interfering(&self, kind: Kind) -> impl Iterator<Item = (usize, Kind, Region)> + use<> {
        let regions = self.regions;
        let kinds = Kind::ALL.into_iter().filter(move |other| kind.interferes(*other));
        kinds.flat_map(move |other| {
            (0..regions).map(move |row| (line_of(other, Region(row), regions), other, Region(row)))
        })
    }

    fn line(
        &self,
        kind: Kind,
        row: Region,
        after: u64,
    ) -> impl DoubleEndedIterator<Item = (&InstanceId, &Instance)> {
        let id = |index| InstanceId { kind, row, index };
        let line = self.instances.range(id(after.saturating_add(1))..=id(u64::MAX));
        line.map(|(id, instance)| (id, &**instance))
    }

    /// The attributes of a new instance: it comes after every interfering one of which this replica knows the
    /// operations.
    pub(super) fn attributes(&self, kind: Kind) -> Attributes {
        let mut dependencies: Indexes = smallvec![0; self.lines()];
        for (line, other, row) in self.interfering(kind) {
            let known = self.line(other, row, 0).rev().find(|(_, instance)| instance.is_known());
            dependencies[line] = self.head.last_executed(other, row).max(known.map_or(0, |(id, _)| id.index));
        }
        let reads = if kind == Kind::Update { self.head.read_seq } else { 0 };
        Attributes { dependencies, seq: 1 + reads.max(self.head.update_seq), newest_ms: self.head.newest_ms }
    }

    /// The same for an instance that another replica proposes with `initial`: what that one knows, with what this
    /// replica knows added. Later instances of its own line come after it anyway.
    pub(super) fn merged(&self, id: InstanceId, initial: &Attributes) -> Attributes {
        let mut local = self.attributes(id.kind);
        let own = &mut local.dependencies[id.line(self.regions)];
        *own = (*own).min(id.index - 1);
        let mut merged = initial.clone();
        merged.merge(&local);
        merged
    }

    /// Whether attributes have an entry for each line.
    pub(super) fn fits(&self, attributes: &Attributes) -> bool {
        attributes.dependencies.len() == self.lines()
    }

    /// The next free index of a line: for the row's own replica, which stores an instance before it sends it.
    pub(super) fn next_index(&self, kind: Kind, row: Region) -> u64 {
        let open = self.line(kind, row, 0).next_back().map_or(0, |(id, _)| id.index);
        open.max(self.head.last_executed(kind, row)) + 1
    }

    /// The last result of a lane.
    pub(super) fn last_result(&self, client: ClientId, lane: u32) -> Option<&Remembered> {
        self.results.last((client, lane)).map(|result| &**result)
    }

    /// What can be executed: components of the dependency graph, each in the order of sequence numbers.
    pub(super) fn order(&mut self) -> Plan<InstanceId> {
        let mut plan = self.plan();
        if !self.plant.has(Planted::UnsortedComponent) {
            for component in &mut plan.components {
                component.sort_by_key(|id| {
                    (self.instances[id].proposal.attributes.seq, id.row, id.index, id.kind)
                });
            }
        }
        plan
    }

    /// Executes a component whose instances are final, on the key's value. `horizon_ms`: how long results are
    /// remembered.
    pub(super) fn execute(
        &mut self,
        component: &[InstanceId],
        held: &mut Held,
        horizon_ms: u64,
    ) -> Vec<(InstanceId, Vec<Execution>)> {
        let before = self.head.updates();
        let mut executed = Vec::with_capacity(component.len());
        for &id in component {
            let Proposal { command: operations, attributes } = self.take_final(id).proposal;
            self.head.beyond.insert(id);
            self.head.close_gaps();
            if !operations.is_empty() {
                let latest = &mut self.head.latest[id.line(self.regions)];
                *latest = id.index.max(*latest);
            }
            let one = |operation: &Operation| match id.kind {
                Kind::Update => self.update(operation, &attributes, held, horizon_ms),
                Kind::Read => {
                    let Held { value, carstamp } = &*held;
                    let (_, answer) = apply(value, carstamp.version(), &operation.action, operation.at_ms);
                    Execution::Seen(answer, *carstamp)
                }
            };
            executed.push((id, operations.iter().map(one).collect()));
        }
        // Whatever is executed in a later component depends on the update with the newest time here, so that its
        // attributes tell it.
        let oldest_ms = self.head.executed_ms.saturating_sub(horizon_ms);
        self.forget_results((before, self.head.updates()), oldest_ms);
        executed
    }

    fn update(
        &mut self,
        operation: &Operation,
        attributes: &Attributes,
        held: &mut Held,
        horizon_ms: u64,
    ) -> Execution {
        let Operation { op, lane, action, at_ms } = operation;
        let last = self.results.last((op.client, *lane));
        if let Some(result) = last.filter(|result| result.request >= op.request) {
            let same = result.request == op.request;
            return if same { Execution::Again(result.clone()) } else { Execution::Forgotten };
        }
        if !will_count(operation, attributes, horizon_ms) {
            return Execution::Forgotten;
        }
        let carstamp = match action.class() {
            Class::Write => Carstamp::of_write(held.carstamp.ts + 1, op.client),
            Class::Read | Class::ReadModifyWrite => match held.carstamp.next_rmw() {
                Some(carstamp) => carstamp,
                None => return Execution::Forgotten,
            },
        };
        // Never an earlier time than the lane's last: what it replaces must not be forgotten later than it is.
        let remembered_ms = last.map_or(*at_ms, |last| last.at_ms.max(*at_ms));
        let (value, answer) = apply(&held.value, held.carstamp.version(), action, *at_ms);
        *held = Held { value, carstamp };
        self.head.executed_ms = self.head.executed_ms.max(*at_ms);
        let (client, lane, request) = (op.client, *lane, op.request);
        let result = Arc::new(Remembered { client, lane, request, at_ms: remembered_ms, answer, carstamp });
        self.results.insert(result.clone());
        Execution::Done(result)
    }

    /// Takes over from a peer's state what is later than this one, if anything is.
    pub(super) fn adopt(&mut self, state: LogState<Head>) -> Option<Adopted<InstanceId>> {
        let (lines, updates) = (self.lines(), usize::from(self.regions));
        let LogState { head: theirs, results } = state;
        let within = |id: &InstanceId| id.row.0 < self.regions;
        if theirs.executed.len() != lines || theirs.latest.len() != lines || !theirs.beyond.iter().all(within)
        {
            return None;
        }
        let head = &mut self.head;
        // States are one sequence, and each has executed the updates of those before it.
        let ahead = theirs.latest.iter().zip(&head.latest).take(updates).all(|(theirs, mine)| theirs >= mine);
        let later = ahead && theirs.latest[..updates] != head.latest[..updates];
        let before = instances::Head::progress(head);
        for (mine, theirs) in head.executed.iter_mut().zip(&theirs.executed) {
            *mine = (*mine).max(*theirs);
        }
        for (mine, theirs) in head.latest.iter_mut().zip(&theirs.latest) {
            *mine = (*mine).max(*theirs);
        }
        head.beyond.extend(theirs.beyond);
        head.close_gaps();
        if !later && instances::Head::progress(head) == before {
            return None;
        }
        head.update_seq = head.update_seq.max(theirs.update_seq);
        head.read_seq = head.read_seq.max(theirs.read_seq);
        head.newest_ms = head.newest_ms.max(theirs.newest_ms);
        if later {
            head.executed_ms = theirs.executed_ms;
            self.results.replace(results);
        }
        Some(Adopted { covered: self.drop_executed(), later })
    }

    /// What speaks against a commit in one round of an instance that is not executed here: whether something is
    /// final that says there was none, and what may yet come to say so.
    pub(super) fn conflicts(&self, id: InstanceId, initial: &Attributes) -> (bool, Vec<InstanceId>) {
        let (mut refuted, mut open) = (false, Vec::new());
        for (line, kind, row) in self.interfering(id.kind) {
            let listed = initial.dependencies.get(line).copied().unwrap_or(0);
            if kind == id.kind && row == id.row {
                continue; // What is later in its own line depends on it.
            }
            // What is executed here while this one is not does not depend on it, and was no Nop.
            refuted |= self.head.latest[line] > listed;
            for (other, instance) in self.line(kind, row, listed) {
                let Instance { phase, proposal, initial, .. } = instance;
                if *phase == Phase::Committed {
                    refuted |=
                        !proposal.command.is_empty() && !proposal.attributes.includes(id, self.regions);
                } else if initial.as_ref().is_some_and(|initial| !initial.includes(id, self.regions)) {
                    open.push(*other);
                }
            }
        }
        (refuted, open)
    }

    /// Instances not executed here that one must come after or together with.
    pub(super) fn predecessors(&self, id: InstanceId) -> Vec<InstanceId> {
        let exactly = self.plant.has(Planted::SingleInstanceDependencies);
        let attributes = self.instances.get(&id).map(|instance| &instance.proposal.attributes);
        let mut found = Vec::new();
        for (line, kind, row) in self.interfering(id.kind) {
            let listed = attributes.and_then(|a| a.dependencies.get(line)).copied().unwrap_or(0);
            let own = kind == id.kind && row == id.row;
            let last = if own && !exactly { id.index - 1 } else { listed };
            let at = |index| InstanceId { kind, row, index };
            if kind == Kind::Update || exactly {
                // Each update waits for its predecessor, so the last one stands for all.
                found.extend((last > 0 && !self.is_executed(at(last))).then(|| at(last)));
                continue;
            }
            let mut expected = self.head.executed[line] + 1;
            while expected <= last {
                let id = at(expected);
                let executed = self.head.beyond.contains(&id);
                if !executed {
                    found.push(id);
                    // Of those that are not known one is enough to wait for; the others are looked for in turn.
                    if !self.instances.contains_key(&id) {
                        break;
                    }
                }
                expected += 1;
            }
        }
        found
    }
}

/// Whether an update will take effect, now or in another instance, once these attributes are final: it is not so
/// old that a result of it may have been forgotten.
pub(super) fn will_count(operation: &Operation, attributes: &Attributes, horizon_ms: u64) -> bool {
    operation.at_ms.saturating_add(horizon_ms) >= attributes.newest_ms
}
