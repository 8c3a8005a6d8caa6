//! Small systems in every order of events: three replicas, two commands that interfere, one crash, recoveries.

mod by_clock;
mod multipaxos;

use meridian_protocol::epaxos::{self, Epaxos};
use meridian_protocol::gryff::{self, Gryff};
use meridian_protocol::instances::message::Step;
use meridian_protocol::machine::Engine;
use meridian_protocol::object::{Action, Answer, Command};
use meridian_protocol::registry::Settings;
use meridian_protocol::topology::Address;
use meridian_sim::explore::{Bounds, Explored, Facts, explore};
use meridian_sim::steps::{Sent, Steps};
use std::collections::BTreeMap;
use std::fmt::Debug;

const REGIONS: u8 = 3;

/// What consensus must keep: one outcome an instance; of two that interfere one comes after the other; each command
/// counted once, and in one order.
#[derive(Clone, Debug)]
struct Agreement<Id: Ord, Outcome> {
    committed: BTreeMap<Id, Outcome>,
    answers: BTreeMap<u64, Answer>,
}

impl<Id: Ord + Copy + Debug, Outcome: Clone + Debug + PartialEq> Agreement<Id, Outcome> {
    fn new() -> Self {
        Self { committed: BTreeMap::new(), answers: BTreeMap::new() }
    }

    /// An outcome is final. `includes` says whether the first, if it does anything, comes after the instance.
    fn commit(
        &mut self,
        id: Id,
        outcome: &Outcome,
        includes: fn(&Outcome, Id) -> bool,
    ) -> Result<(), String> {
        if let Some(other) = self.committed.get(&id) {
            let same = other == outcome;
            return if same { Ok(()) } else { Err(format!("{id:?} is {outcome:?} and {other:?}")) };
        }
        for (other, theirs) in &self.committed {
            if !includes(outcome, *other) && !includes(theirs, id) {
                return Err(format!("neither of {id:?} and {other:?} depends on the other"));
            }
        }
        self.committed.insert(id, outcome.clone());
        Ok(())
    }

    fn answer(&mut self, request: u64, answer: &Answer) -> Result<(), String> {
        if let Some(other) = self.answers.insert(request, answer.clone())
            && other != *answer
        {
            return Err(format!("request {request} was answered {other:?} and {answer:?}"));
        }
        if self.answers.iter().any(|(other, theirs)| *other != request && theirs == answer) {
            return Err(format!("two increments were answered {answer:?}"));
        }
        Ok(())
    }
}

impl Facts<Epaxos> for Agreement<epaxos::instance::InstanceId, epaxos::instance::Proposal> {
    fn sent(&mut self, sent: &Sent<epaxos::Message>) -> Result<bool, String> {
        match &sent.message {
            epaxos::Message::Instance { id, step: Step::Commit { proposal }, .. } => {
                self.commit(*id, proposal, |p, id| {
                    p.command.is_empty() || p.attributes.includes(id, REGIONS)
                })?;
            }
            epaxos::Message::Done { op, answer: Some(answer), .. } => {
                self.answer(op.request, answer)?;
                return Ok(false);
            }
            // Nothing but the protocol itself.
            epaxos::Message::Comparison(_) => return Ok(false),
            _ => {}
        }
        Ok(true)
    }
}

impl Facts<Gryff> for Agreement<gryff::instance::InstanceId, gryff::instance::Proposal> {
    fn sent(&mut self, sent: &Sent<gryff::Message>) -> Result<bool, String> {
        match &sent.message {
            gryff::Message::Instance { id, step: Step::Commit { proposal }, .. } => {
                self.commit(*id, proposal, |p, id| p.command.is_none() || p.attributes.includes(id))?;
            }
            gryff::Message::RmwReply { op, answer: Some(answer), .. } => {
                self.answer(op.request, answer)?;
                return Ok(false);
            }
            gryff::Message::Comparison(_) => return Ok(false),
            _ => {}
        }
        Ok(true)
    }
}

/// Two increments, proposed at different replicas.
fn two_increments<E: Engine>(engine: &E) -> Steps<E> {
    let mut steps = Steps::new(engine, REGIONS);
    for region in 0..2 {
        steps.begin(region, "x", Action::Command(Command::IncrBy(1)));
        let from_client = |sent: &Sent<E::Message>| matches!(sent.from, Address::Client(..));
        steps.deliver(from_client);
    }
    steps
}

fn epaxos(settings: Settings, bounds: &Bounds) -> Result<Explored, String> {
    explore(two_increments(&Epaxos::new(settings)), Agreement::new(), bounds)
}

fn gryff(bounds: &Bounds) -> Result<Explored, String> {
    explore(two_increments(&Gryff::linearizable(Settings::default())), Agreement::new(), bounds)
}

fn bounds(crash: Option<u8>, wakes: [u8; 3], states: usize) -> Bounds {
    Bounds { crash, wakes: wakes.to_vec(), later: 5_000_000, states, ..Bounds::default() }
}

#[test]
fn two_commands_without_failures() {
    let bounds = bounds(None, [0, 0, 0], 1_000_000);
    for explored in [epaxos(Settings::default(), &bounds).unwrap(), gryff(&bounds).unwrap()] {
        println!("no failures: {explored:?}");
        assert!(explored.exhausted);
    }
}

#[test]
fn two_commands_a_crash_and_a_recovery_on_epaxos() {
    let explored = epaxos(Settings::default(), &bounds(Some(0), [0, 0, 1], 200_000)).unwrap();
    println!("epaxos, a crash and a recovery: {explored:?}");
    assert!(explored.exhausted);
    assert!(explored.states > MANY, "a wake takes nothing up: {explored:?}");
}

/// As many orders as fit into a short time; the next test tries all.
#[test]
fn two_commands_a_crash_and_a_recovery_on_gryff() {
    let explored = gryff(&bounds(Some(0), [0, 0, 1], states(50_000))).unwrap();
    println!("gryff, a crash and a recovery: {explored:?}");
    assert!(explored.states > MANY, "a wake takes nothing up: {explored:?}");
}

#[test]
// Too long for every run; `make test-long` has it.
#[ignore = "takes minutes"]
fn two_commands_a_crash_and_a_recovery_on_gryff_in_all_orders() {
    let explored = gryff(&bounds(Some(0), [0, 0, 1], 1_000_000)).unwrap();
    println!("gryff, a crash and a recovery: {explored:?}");
    assert!(explored.exhausted);
}

/// With a recovery at each of those that are left, which takes long.
#[test]
fn two_commands_a_crash_and_two_recoveries_on_epaxos() {
    let explored = epaxos(Settings::default(), &bounds(Some(0), [0, 1, 1], states(50_000))).unwrap();
    println!("epaxos, a crash and two recoveries: {explored:?}");
    assert!(explored.states > MANY, "a wake takes nothing up: {explored:?}");
}

/// Without a recovery there are a few hundred states.
const MANY: usize = 10_000;

/// Where not all can be tried in the time of a test: up to `MERIDIAN_STATES` states.
fn states(default: usize) -> usize {
    std::env::var("MERIDIAN_STATES").map_or(default, |states| states.parse().expect("it is a number"))
}

/// A search that finds nothing must be able to find something: a slow path that loses what the replies have added.
#[cfg(feature = "planted-bugs")]
#[test]
fn a_lost_dependency_is_found() {
    use meridian_protocol::planted::{Plant, Planted};
    let settings = Settings { plant: Plant::new(Planted::LostDependency), ..Settings::default() };
    let bounds = bounds(None, [1, 1, 0], 1_000_000);
    let found = epaxos(settings, &bounds).expect_err("an order of events exists that shows it");
    println!("{found}");
}
