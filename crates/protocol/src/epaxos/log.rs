//! One key's log: instances not yet executed, and what executing the others has left.
//!
//! All updates of a key interfere, so every replica executes them in one order, and what that leaves is one of a
//! single sequence of states. A replica that has fallen behind may take a peer's state in place of the instances
//! that led to it, so an instance can be forgotten as soon as it is executed. Reads and Nops have no place in that
//! sequence and leave nothing but the mark that they are done; whatever depends on a read is executed after it
//! on every replica, so the marks of two replicas may be put together.

use super::instance::{Attributes, Instance, InstanceId, Kind, Operation, Proposal, line_of};
use crate::components::{self, Dependencies, Plan};
use crate::gryff::carstamp::{Carstamp, Held};
use crate::gryff::instance::Phase;
use crate::object::{Answer, Class, apply};
use crate::planted::{Plant, Planted};
use crate::results::{Lane, Remembered, Results};
use crate::topology::{ClientId, Region};
use minicbor::{Decode, Encode};
use std::collections::{BTreeMap, BTreeSet};

/// What executing has left of a key's instances, apart from the value and the remembered results.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct Head {
    /// For each line, up to which index all its instances are executed.
    #[n(0)]
    pub executed: Vec<u64>,
    /// Instances executed beyond that: a read does not wait for the reads before it.
    #[n(1)]
    pub beyond: BTreeSet<InstanceId>,
    /// For each line, the last executed index that was not a Nop.
    #[n(2)]
    pub latest: Vec<u64>,
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

/// What executing has left, for a peer that is behind.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct LogState {
    /// What instances have left.
    #[n(0)]
    pub head: Head,
    /// The last result of each lane.
    #[n(1)]
    pub results: Vec<Remembered>,
}

/// A key's log at one replica.
#[derive(Clone, Debug)]
pub(super) struct Log {
    regions: u8,
    plant: Plant,
    pub(super) head: Head,
    results: Results,
    /// Instances not executed here.
    pub(super) instances: BTreeMap<InstanceId, Instance>,
}

/// What executing an operation came to.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Execution {
    /// The update took effect; this is its result.
    Done(Box<Remembered>),
    /// The update had taken effect in another instance before, with this result.
    Again(Box<Remembered>),
    /// What a read saw.
    Seen(Answer, Carstamp),
    /// The update took no effect in this instance, and whether it did in another one is no longer known.
    Forgotten,
}

impl Log {
    pub(super) fn new(regions: u8, plant: Plant) -> Self {
        let lines = 2 * usize::from(regions);
        let head = Head { executed: vec![0; lines], latest: vec![0; lines], ..Head::default() };
        Self { regions, plant, head, results: Results::default(), instances: BTreeMap::new() }
    }

    /// Takes back what was on disk.
    pub(super) fn restore(&mut self, head: Head) {
        let lines = self.lines();
        self.head = head;
        self.head.executed.resize(lines, 0);
        self.head.latest.resize(lines, 0);
    }

    /// Takes back a remembered result.
    pub(super) fn restore_result(&mut self, result: Remembered) {
        self.results.insert(result);
    }

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
        self.instances.range(id(after.saturating_add(1))..=id(u64::MAX))
    }

    pub(super) fn is_executed(&self, id: InstanceId) -> bool {
        let prefix = self.head.executed.get(id.line(self.regions)).is_some_and(|last| id.index <= *last);
        prefix || self.head.beyond.contains(&id)
    }

    /// The highest executed index of a line.
    fn last_executed(&self, kind: Kind, row: Region) -> u64 {
        let id = |index| InstanceId { kind, row, index };
        let beyond = self.head.beyond.range(id(0)..=id(u64::MAX)).next_back().map_or(0, |id| id.index);
        beyond.max(self.head.executed[line_of(kind, row, self.regions)])
    }

    fn mark_executed(&mut self, id: InstanceId) {
        self.head.beyond.insert(id);
        self.close_gaps();
    }

    /// Moves what is executed next to a prefix into it.
    fn close_gaps(&mut self) {
        let Head { executed, beyond, .. } = &mut self.head;
        let regions = self.regions;
        // In the order of lines and indexes, so that one pass does.
        beyond.retain(|id| {
            let last = &mut executed[id.line(regions)];
            *last += u64::from(id.index == *last + 1);
            id.index > *last
        });
    }

    /// A digest of which instances are executed here; 0 if none.
    pub(super) fn progress(&self) -> u64 {
        if self.head.beyond.is_empty() && self.head.executed.iter().all(|last| *last == 0) {
            return 0;
        }
        let beyond = self.head.beyond.iter().flat_map(|id| [id.line(self.regions) as u64, id.index]);
        self.head.executed.iter().chain(&self.head.latest).copied().chain(beyond).fold(1, mix)
    }

    /// Digest of what must agree with other replicas at rest.
    pub(super) fn fingerprint(&self) -> (u64, &[u64], Vec<Remembered>, u64) {
        (self.progress(), &self.head.latest, self.results.all(), self.instances.len() as u64)
    }

    /// The attributes of a new instance: it comes after every interfering one of which this replica knows the
    /// operations.
    pub(super) fn attributes(&self, kind: Kind) -> Attributes {
        let mut dependencies = vec![0; self.lines()];
        for (line, other, row) in self.interfering(kind) {
            let known = self.line(other, row, 0).rev().find(|(_, instance)| instance.is_known());
            dependencies[line] = self.last_executed(other, row).max(known.map_or(0, |(id, _)| id.index));
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

    /// Counts a proposal that has become known here.
    pub(super) fn note(&mut self, id: InstanceId, proposal: &Proposal) {
        let Proposal { operations, attributes } = proposal;
        let head = &mut self.head;
        head.newest_ms = head.newest_ms.max(attributes.newest_ms);
        if id.kind == Kind::Read {
            head.read_seq = head.read_seq.max(attributes.seq);
        } else {
            head.update_seq = head.update_seq.max(attributes.seq);
            let newest = operations.iter().map(|operation| operation.at_ms).max().unwrap_or(0);
            head.newest_ms = head.newest_ms.max(newest);
        }
    }

    /// The next free index of a line: for the row's own replica, which stores an instance before it sends it.
    pub(super) fn next_index(&self, kind: Kind, row: Region) -> u64 {
        let open = self.line(kind, row, 0).next_back().map_or(0, |(id, _)| id.index);
        open.max(self.last_executed(kind, row)) + 1
    }

    /// The last result of a lane.
    pub(super) fn last_result(&self, client: ClientId, lane: u32) -> Option<&Remembered> {
        self.results.last((client, lane))
    }

    /// What can be executed: components of the dependency graph, each in the order of sequence numbers.
    pub(super) fn plan(&self) -> Plan<InstanceId> {
        let mut plan = components::plan(self, self.instances.keys().copied());
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
        let updates = usize::from(self.regions);
        let before: u64 = self.head.latest[..updates].iter().sum();
        let mut executed = Vec::with_capacity(component.len());
        for &id in component {
            let instance = self.instances.remove(&id).expect("a plan names instances of the log");
            assert!(instance.phase == Phase::Committed, "only final instances are executed");
            self.mark_executed(id);
            let Proposal { operations, attributes } = instance.proposal;
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
        let after: u64 = self.head.latest[..updates].iter().sum();
        // Reads and Nops do not count: replicas may execute them at different points. Whatever is executed in a
        // later component depends on the update with the newest time here, so that its attributes tell it.
        if before / FORGET_EVERY != after / FORGET_EVERY {
            self.results.forget_before(self.head.executed_ms.saturating_sub(horizon_ms));
        }
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
            return if same { Execution::Again(Box::new(result.clone())) } else { Execution::Forgotten };
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
        let result = Remembered { client, lane, request, at_ms: remembered_ms, answer, carstamp };
        self.results.insert(result.clone());
        Execution::Done(Box::new(result))
    }

    /// What executing has left, for a peer that is behind.
    pub(super) fn state(&self) -> LogState {
        LogState { head: self.head.clone(), results: self.results.all() }
    }

    /// Lanes whose results were forgotten since this was last asked, to be forgotten on disk too.
    pub(super) fn take_forgotten(&mut self) -> Vec<Lane> {
        self.results.take_forgotten()
    }

    /// Takes over from a peer's state what is later than this one. `None` if nothing is; otherwise the instances
    /// that need not be executed here any more, and whether the peer's value is the later one.
    pub(super) fn adopt(&mut self, state: LogState) -> Option<(Vec<InstanceId>, bool)> {
        let (lines, updates) = (self.lines(), usize::from(self.regions));
        let LogState { head: theirs, results } = state;
        let within = |id: &InstanceId| id.row.0 < self.regions;
        if theirs.executed.len() != lines || theirs.latest.len() != lines || !theirs.beyond.iter().all(within)
        {
            return None;
        }
        // States are one sequence, and each has executed the updates of those before it.
        let ahead =
            theirs.latest.iter().zip(&self.head.latest).take(updates).all(|(theirs, mine)| theirs >= mine);
        let later = ahead && theirs.latest[..updates] != self.head.latest[..updates];
        let before = self.progress();
        for (mine, theirs) in self.head.executed.iter_mut().zip(&theirs.executed) {
            *mine = (*mine).max(*theirs);
        }
        for (mine, theirs) in self.head.latest.iter_mut().zip(&theirs.latest) {
            *mine = (*mine).max(*theirs);
        }
        self.head.beyond.extend(theirs.beyond);
        self.close_gaps();
        if !later && self.progress() == before {
            return None;
        }
        let head = &mut self.head;
        head.update_seq = head.update_seq.max(theirs.update_seq);
        head.read_seq = head.read_seq.max(theirs.read_seq);
        head.newest_ms = head.newest_ms.max(theirs.newest_ms);
        if later {
            head.executed_ms = theirs.executed_ms;
            self.results.replace(results);
        }
        Some((self.drop_executed(), later))
    }

    /// Drops instances that are executed; answers which.
    pub(super) fn drop_executed(&mut self) -> Vec<InstanceId> {
        let covered: Vec<_> = self.instances.keys().copied().filter(|id| self.is_executed(*id)).collect();
        for id in &covered {
            self.instances.remove(id);
        }
        covered
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
                        !proposal.operations.is_empty() && !proposal.attributes.includes(id, self.regions);
                } else if initial.as_ref().is_some_and(|initial| !initial.includes(id, self.regions)) {
                    open.push(*other);
                }
            }
        }
        (refuted, open)
    }
}

/// Whether an update will take effect, now or in another instance, once these attributes are final: it is not so
/// old that a result of it may have been forgotten.
pub(super) fn will_count(operation: &Operation, attributes: &Attributes, horizon_ms: u64) -> bool {
    operation.at_ms.saturating_add(horizon_ms) >= attributes.newest_ms
}

impl Dependencies for Log {
    type Id = InstanceId;

    fn is_final(&self, id: InstanceId) -> bool {
        self.instances.get(&id).is_some_and(|instance| instance.phase == Phase::Committed)
    }

    fn waits_for(&self, id: InstanceId) -> Vec<InstanceId> {
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

/// Old results are looked for once in so many executions, at the same ones on every replica.
const FORGET_EVERY: u64 = 64;

fn mix(digest: u64, word: u64) -> u64 {
    let mixed = (digest ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ mixed >> 29
}
