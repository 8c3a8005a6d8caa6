//! One key's instances that are not executed yet, and what executing the others has left.
//!
//! Every replica executes what changes a key in one order, and what that leaves is one of a single sequence of states.
//! A replica that has fallen behind may take a peer's state in place of the instances that led to it, so an instance
//! is forgotten as soon as it is executed, and there is no truncation to agree on.

use super::instance::{Instance, Phase, Proposal};
use super::recovery::Recovery;
use super::{Coordination, Protocol};
use crate::components::{self, Dependencies, HeldUp, Plan};
use crate::machine::OpId;
use crate::planted::Plant;
use crate::results::{Lane, Remembered, Results};
use minicbor::{Decode, Encode};
use std::collections::BTreeMap;
use std::mem;

/// What executing has left of a key's instances, apart from the value and the remembered results.
pub trait Head<P: Protocol>: Default {
    /// Gives it an entry for each row of so many regions, where it has none.
    fn resize(&mut self, regions: u8);

    /// Whether an instance is executed.
    fn is_executed(&self, id: P::Id) -> bool;

    /// A digest of which instances are executed; 0 if none.
    fn progress(&self) -> u64;

    /// Counts a proposal that has become known here.
    fn note(&mut self, _id: P::Id, _command: &P::Command, _attributes: &P::Attributes) {}

    /// Appends what replicas must agree on at rest.
    fn agreed(&self, buffer: &mut Vec<u8>);
}

/// What executing has left of a key's instances, for a peer that is behind.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct LogState<H> {
    /// All but the results.
    #[n(0)]
    pub head: H,
    /// The last result of each lane.
    #[n(1)]
    pub results: Vec<Remembered>,
}

/// What a peer's state has brought.
#[derive(Debug, PartialEq)]
pub struct Adopted<Id> {
    /// Instances that need not be executed here any more.
    pub(crate) covered: Vec<Id>,
    /// Whether the peer had executed more; otherwise it only knew more Nops and reads to be done.
    pub(crate) later: bool,
}

/// An instance of a protocol.
pub(crate) type InstanceOf<P> = Instance<<P as Protocol>::Command, <P as Protocol>::Attributes>;

/// A key's instances at one replica.
#[derive(Clone, Debug)]
pub struct Log<P: Protocol> {
    pub(crate) regions: u8,
    pub(crate) plant: Plant,
    pub(crate) head: P::Head,
    pub(crate) results: Results,
    /// Instances not executed here.
    pub(crate) instances: BTreeMap<P::Id, Box<InstanceOf<P>>>,
    /// Instances that this replica coordinates.
    pub(crate) coordinations: BTreeMap<P::Id, Box<Coordination<P>>>,
    /// Other replicas' instances (or its own from an earlier life) that this replica is finishing.
    pub(crate) recoveries: BTreeMap<P::Id, Recovery<P>>,
    /// Those of them to look at for execution: since the last time they have become final, or what held them up has.
    ready: Vec<P::Id>,
    held_up: HeldUp<P::Id>,
}

impl<P: Protocol> Log<P> {
    pub(crate) fn new(regions: u8, plant: Plant) -> Self {
        let mut head = P::Head::default();
        head.resize(regions);
        Self {
            regions,
            plant,
            head,
            results: Results::default(),
            instances: BTreeMap::new(),
            coordinations: BTreeMap::new(),
            recoveries: BTreeMap::new(),
            ready: Vec::new(),
            held_up: HeldUp::default(),
        }
    }

    /// Takes back what was on disk.
    pub(super) fn restore(&mut self, head: P::Head) {
        self.head = head;
        self.head.resize(self.regions);
    }

    pub(crate) fn is_executed(&self, id: P::Id) -> bool {
        self.head.is_executed(id)
    }

    /// Whether an instance is not yet final here.
    pub(crate) fn is_undecided(&self, id: P::Id) -> bool {
        !self.is_executed(id) && self.instances.get(&id).is_none_or(|i| i.phase < Phase::Committed)
    }

    /// Whether something final waits for what is not.
    pub(crate) fn is_held_up(&self) -> bool {
        self.instances.values().any(|instance| instance.phase == Phase::Committed)
    }

    /// Counts what an instance says as it is known here.
    pub(super) fn note(&mut self, id: P::Id) {
        if let Some(instance) = self.instances.get(&id) {
            let proposal = &instance.proposal;
            self.head.note(id, &proposal.command, &proposal.attributes);
        }
    }

    /// Notes that the outcome of an instance that is known here is final: this, or what it holds already.
    pub(crate) fn finish(&mut self, id: P::Id, outcome: Option<Proposal<P::Command, P::Attributes>>) {
        if let Some(instance) = self.instances.get_mut(&id) {
            instance.phase = Phase::Committed;
            if let Some(outcome) = outcome {
                instance.proposal = outcome;
            }
            self.note(id);
            self.ready.push(id);
            self.ready.extend(self.held_up.take(id));
        }
    }

    /// What can be executed that could not be when this was last asked.
    pub(crate) fn plan(&mut self) -> Plan<P::Id> {
        let (ready, mut held_up) = (mem::take(&mut self.ready), mem::take(&mut self.held_up));
        let plan = components::plan(self, &mut held_up, &ready);
        self.held_up = held_up;
        plan
    }

    /// The result of an operation, if it is executed and remembered.
    pub(crate) fn result_of(&self, op: OpId, lane: u32) -> Option<&Remembered> {
        self.results.of(op, lane)
    }

    /// What executing has left, for a peer that is behind.
    pub(crate) fn state(&self) -> LogState<P::Head> {
        LogState { head: self.head.clone(), results: self.results.all() }
    }

    /// Lanes whose results were forgotten since this was last asked, to be forgotten on disk too.
    pub(crate) fn take_forgotten(&mut self) -> Vec<Lane> {
        self.results.take_forgotten()
    }

    /// Takes an instance that is to be executed out.
    pub(crate) fn take_final(&mut self, id: P::Id) -> InstanceOf<P> {
        let instance = self.instances.remove(&id).expect("a plan names instances of the log");
        assert!(instance.phase == Phase::Committed, "only final instances are executed");
        *instance
    }

    /// Forgets results older than a time, once in so many executions: `before` and `after` are how many there were, Nops
    /// not counted, as replicas may execute them at different points.
    pub(crate) fn forget_results(&mut self, (before, after): (u64, u64), oldest_ms: u64) {
        if before / FORGET_EVERY != after / FORGET_EVERY {
            self.results.forget_before(oldest_ms);
        }
    }

    /// Drops instances that are executed; answers which. The others are to be looked at anew.
    pub(crate) fn drop_executed(&mut self) -> Vec<P::Id> {
        let covered: Vec<_> = self.instances.keys().copied().filter(|id| self.is_executed(*id)).collect();
        for id in &covered {
            self.instances.remove(id);
        }
        self.ready = self.instances.keys().copied().collect();
        self.held_up = HeldUp::default();
        covered
    }
}

impl<P: Protocol> Dependencies for Log<P> {
    type Id = P::Id;

    fn is_final(&self, id: P::Id) -> bool {
        self.instances.get(&id).is_some_and(|instance| instance.phase == Phase::Committed)
    }

    fn waits_for(&self, id: P::Id) -> Vec<P::Id> {
        P::waits_for(self, id)
    }
}

/// A digest of how far instances are executed, told in so many words; 0 only of none, whose words are all 0.
pub(crate) fn digest(words: impl Iterator<Item = u64>) -> u64 {
    let mix = |digest: u64, word: u64| {
        let mixed = (digest ^ word).wrapping_mul(SPREAD);
        mixed ^ mixed >> 29
    };
    let (digest, all) = words.fold((SPREAD, 0), |(digest, all), word| (mix(digest, word), all | word));
    if all == 0 { 0 } else { digest.max(1) }
}

/// 2^64 divided by the golden ratio: no index comes near it.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Old results are looked for once in so many executions, at the same ones on every replica.
const FORGET_EVERY: u64 = 64;

#[cfg(test)]
mod tests {
    use super::digest;
    use std::collections::BTreeSet;

    #[test]
    fn digests_tell_how_far_apart_all_short_logs_are() {
        let words = |n: u64| (0..4).map(move |i| n / 5u64.pow(i) % 5);
        let digests: BTreeSet<u64> = (0..625).map(|n| digest(words(n))).collect();
        assert_eq!(digests.len(), 625);
        assert_eq!(digest(words(0)), 0);
        assert!((1..625).all(|n| digest(words(n)) != 0));
    }
}
