//! Tries every order of events of a small system: each message that is on its way may be the next one to arrive, a
//! replica may be woken (which is when it takes up what others left), one may crash.
//!
//! Messages are not lost or doubled, but one that never arrives before the end is as good as lost. Two states in which
//! machines, messages and facts are the same are explored once; deadlines and the order of sending are no part of that.
//! States are told apart by digests of 64 bits: of 10 million states two get the same one with a probability of 1 in 400,000.
//!
//! An arrival after which all machines are as before, and nothing is sent, is left out. That loses nothing: what can happen
//! after it can also happen while that message is still on its way, and what is checked depends on no message's absence.

use crate::steps::{Sent, Steps};
use meridian_protocol::clock::Micros;
use meridian_protocol::machine::Engine;
use meridian_protocol::topology::{Address, ReplicaId};
use std::collections::HashSet;
use std::fmt::{self, Debug, Write as _};
use std::hash::{DefaultHasher, Hasher};
use std::rc::Rc;

/// What may happen besides arrivals, and how much is tried.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// The region whose replica may crash, at any point, for good.
    pub crash: Option<u8>,
    /// How often each region's replica may be woken.
    pub wakes: Vec<u8>,
    /// How much time passes before a wake: longer than any deadline.
    pub later: Micros,
    /// The most states.
    pub states: usize,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Explored {
    /// Different states.
    pub states: usize,
    /// States in which nothing more can happen that changes anything.
    pub ends: usize,
    /// The longest sequence of events.
    pub depth: usize,
    /// Whether these are all.
    pub exhausted: bool,
}

/// What is learned from messages on the way from the beginning to a state, and must not contradict itself.
pub trait Facts<E: Engine>: Clone + Debug {
    /// A message has been sent. Answers whether it is to be delivered at some time, rather than dropped.
    ///
    /// # Errors
    /// What is wrong.
    fn sent(&mut self, sent: &Sent<E::Message>) -> Result<bool, String>;

    /// Whether a message on its way will change nothing whenever it arrives, as its receiver stands: then it is taken
    /// away, and states with it and without it are one.
    fn is_over(&self, _: &Sent<E::Message>, _: &[E::Replica]) -> bool {
        false
    }

    /// The replicas stand like this after an event and what it has sent.
    ///
    /// # Errors
    /// What is wrong.
    fn reached(&mut self, _: &[E::Replica]) -> Result<(), String> {
        Ok(())
    }
}

struct State<E: Engine, F> {
    steps: Steps<E>,
    facts: F,
    wakes: Vec<u8>,
    crashed: Option<u8>,
    /// Digests of the replicas and of what is on its way, so that an event costs only what it changes.
    replicas: Vec<u64>,
    wire: Vec<(u64, Rc<str>)>,
    /// What has happened.
    path: Option<Rc<Path>>,
    depth: usize,
}

/// An event and what came before it.
struct Path {
    event: Rc<str>,
    before: Option<Rc<Path>>,
}

/// What led to a state, for a person to read.
fn told(path: Option<&Rc<Path>>) -> String {
    let mut events = Vec::new();
    let mut next = path;
    while let Some(path) = next {
        events.push(&*path.event);
        next = path.before.as_ref();
    }
    events.reverse();
    events.join("\n  ")
}

fn digest(what: &impl Debug) -> u64 {
    struct Hashing(DefaultHasher);
    impl fmt::Write for Hashing {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0.write(text.as_bytes());
            Ok(())
        }
    }
    let mut hashing = Hashing(DefaultHasher::new());
    write!(hashing, "{what:?}").expect("hashing does not fail");
    hashing.0.finish()
}

/// Tries all orders from `steps` on.
///
/// # Errors
/// The first contradiction, and what led to it.
pub fn explore<E, F>(steps: Steps<E>, facts: F, bounds: &Bounds) -> Result<Explored, String>
where
    E: Engine,
    E::Replica: Clone + Debug,
    E::Client: Clone,
    F: Facts<E>,
{
    let wakes = vec![0; steps.replicas.len()];
    let replicas = steps.replicas.iter().map(digest).collect();
    let mut first =
        State { steps, facts, wakes, crashed: None, replicas, wire: Vec::new(), path: None, depth: 0 };
    first.sift(0)?;
    let mut seen = HashSet::from([first.key()]);
    let mut explored = Explored { states: 1, ends: 0, depth: 0, exhausted: true };
    let mut open = vec![first];
    while let Some(state) = open.pop() {
        explored.depth = explored.depth.max(state.depth);
        let next = state.successors(bounds)?;
        if next.is_empty() {
            explored.ends += 1;
        }
        for next in next {
            if !seen.insert(next.key()) {
                continue;
            }
            if explored.states >= bounds.states {
                explored.exhausted = false;
                return Ok(explored);
            }
            explored.states += 1;
            open.push(next);
        }
    }
    Ok(explored)
}

impl<E, F> State<E, F>
where
    E: Engine,
    E::Replica: Clone + Debug,
    E::Client: Clone,
    F: Facts<E>,
{
    /// Looks at what was sent last, from a place in the wire on, and keeps what is to be delivered.
    fn sift(&mut self, from: usize) -> Result<(), String> {
        let sent = self.steps.wire.split_off(from);
        for sent in sent {
            let keep = self.facts.sent(&sent)?;
            if keep && !self.is_lost(sent.to) {
                let text = format!("{sent:?}");
                self.wire.push((digest(&text), text.into()));
                self.steps.wire.push(sent);
            }
        }
        for index in (0..self.wire.len()).rev() {
            if self.facts.is_over(&self.steps.wire[index], &self.steps.replicas) {
                self.steps.wire.remove(index);
                self.wire.remove(index);
            }
        }
        self.facts.reached(&self.steps.replicas)
    }

    fn is_lost(&self, to: Address) -> bool {
        matches!(to, Address::Replica(ReplicaId { region, .. }) if Some(region.0) == self.crashed)
    }

    fn after(
        &self,
        event: Rc<str>,
        changed: Option<u8>,
        change: impl FnOnce(&mut Self) -> usize,
    ) -> Result<Option<Self>, String> {
        let mut next = Self {
            steps: self.steps.clone(),
            facts: self.facts.clone(),
            wakes: self.wakes.clone(),
            crashed: self.crashed,
            replicas: self.replicas.clone(),
            wire: self.wire.clone(),
            path: Some(Rc::new(Path { event, before: self.path.clone() })),
            depth: self.depth + 1,
        };
        let from = change(&mut next);
        let is_silent = next.steps.wire.len() == from;
        next.sift(from).map_err(|why| format!("{why}\nafter {}", told(next.path.as_ref())))?;
        if let Some(region) = changed.map(usize::from) {
            next.replicas[region] = digest(&next.steps.replicas[region]);
            let is_arrival = next.wakes == self.wakes;
            if is_arrival && is_silent && next.replicas[region] == self.replicas[region] {
                return Ok(None);
            }
        }
        Ok(Some(next))
    }

    fn successors(&self, bounds: &Bounds) -> Result<Vec<Self>, String> {
        let mut all = Vec::new();
        let wire = &self.steps.wire;
        for (index, sent) in wire.iter().enumerate() {
            if wire[..index].contains(sent) {
                continue;
            }
            let to = match sent.to {
                Address::Replica(replica) => Some(replica.region.0),
                Address::Client(..) => None,
            };
            all.extend(self.after(Rc::clone(&self.wire[index].1), to, |next| {
                next.wire.remove(index);
                next.steps.deliver_at(index);
                wire.len() - 1
            })?);
        }
        let alive = |region: u8| self.crashed != Some(region);
        for (region, most) in bounds.wakes.iter().enumerate() {
            if self.wakes[region] < *most && alive(region as u8) {
                all.extend(self.after(format!("{region} wakes").into(), Some(region as u8), |next| {
                    next.wakes[region] += 1;
                    next.steps.wake(region as u8, bounds.later);
                    wire.len()
                })?);
            }
        }
        if let (Some(region), None) = (bounds.crash, self.crashed) {
            all.extend(self.after(format!("{region} crashes").into(), None, |next| {
                next.crashed = Some(region);
                next.replicas[usize::from(region)] = 0;
                let all =
                    std::mem::take(&mut next.wire).into_iter().zip(std::mem::take(&mut next.steps.wire));
                let kept: Vec<_> = all.filter(|(_, sent)| !next.is_lost(sent.to)).collect();
                (next.wire, next.steps.wire) = kept.into_iter().unzip();
                next.steps.wire.len()
            })?);
        }
        Ok(all)
    }

    fn key(&self) -> u64 {
        let mut wire: Vec<_> = self.wire.iter().map(|(digest, _)| *digest).collect();
        wire.sort_unstable();
        digest(&(&self.replicas, wire, &self.facts, &self.wakes, self.crashed))
    }
}
