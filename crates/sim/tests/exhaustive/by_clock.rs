//! Writes by the clock in every order of events: clients with a few operations each, clocks at the ends of their bound, and
//! time that may pass between any two events. What there is at an end is a history, judged by search: its values alone count.

use super::states;
use meridian_check::{Model, Verdict, by_search};
use meridian_protocol::clock::Micros;
use meridian_protocol::gryff::{Gryff, Message};
use meridian_protocol::history::{Event, Kind};
use meridian_protocol::machine::{Completion, RequestId};
use meridian_protocol::planted::Plant;
use meridian_protocol::registry::{Settings, Writes};
use meridian_sim::explore::{Bounds, Explored, Facts, explore};
use meridian_sim::steps::{Sent, Steps};
use meridian_sim::{Plan, Recorder, Step};
use std::collections::BTreeMap;
use std::fmt;

/// What the clients did and saw so far.
#[derive(Clone)]
struct History {
    model: Model,
    recorder: Recorder,
    /// By request, the place of the operation.
    open: BTreeMap<RequestId, usize>,
}

/// As much of it as later judgements can depend on: what was done and seen, and who had returned before whom was invoked.
impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let history = self.recorder.history();
        let mut events: Vec<&Event> = history.iter().collect();
        events.sort_by_key(|event| (&event.session, event.invoke));
        let entry = |own: &&Event| {
            let before = events.iter().map(|other| other.returned.is_some_and(|at| at < own.invoke));
            (own.session.clone(), own.ops.clone(), own.outcome, before.collect::<Vec<bool>>())
        };
        f.debug_list().entries(events.iter().map(entry)).finish()
    }
}

impl Facts<Gryff> for History {
    fn sent(&mut self, sent: &Sent<Message>) -> Result<bool, String> {
        Ok(!matches!(sent.message, Message::Comparison(_)))
    }

    fn began(&mut self, region: u8, request: RequestId, key: &str, plan: &Plan) {
        let index = self.recorder.begin(0, &region.to_string(), Kind::Op, None);
        self.recorder.ask(index, Step::Act(key.to_owned(), plan.clone()), 0);
        self.open.insert(request, index);
    }

    fn ended(&mut self, completion: &Completion) -> Result<(), String> {
        let index = self.open.remove(&completion.request).ok_or("what nobody began has ended")?;
        self.recorder.take(0, index, completion);
        Ok(())
    }

    fn over(&self) -> Result<(), String> {
        let judgement = by_search(self.model, &self.recorder.history());
        match judgement.verdict {
            Verdict::Holds => Ok(()),
            _ => Err(judgement.reason),
        }
    }
}

/// Three clients and what each of them does.
struct Small {
    model: Model,
    /// How far each region's clock is ahead of true time, in µs.
    ahead: [i64; 3],
    /// The bound that all clocks state, in µs.
    bound: Micros,
    programs: [Vec<(&'static str, Plan)>; 3],
    /// Whether the third client begins only when the others have ended.
    last: bool,
    /// How often time passes, at any moments, and how much of it.
    ticks: (u64, Micros),
}

impl Small {
    /// Runs it in every order of events, up to so many states.
    fn tried(&self, plant: Plant, most: usize) -> Result<Explored, String> {
        // Phases go to all, and clients coordinate their reads: fewer messages, and every quorum that there can be.
        let (writes, thrifty, read_proxy) = (Writes::OneRound, false, false);
        let settings = Settings { writes, thrifty, read_proxy, plant, ..Settings::default() };
        let engine =
            if self.model == Model::Rsc { Gryff::rsc(settings) } else { Gryff::linearizable(settings) };
        let mut steps = Steps::new(&engine, 3);
        for (region, ahead) in (0..).zip(self.ahead) {
            steps.set_clock(region, ahead, self.bound);
        }
        let history = History { model: self.model, recorder: Recorder::default(), open: BTreeMap::new() };
        let bounds = Bounds {
            wakes: vec![0; 3],
            states: most,
            programs: self.programs.to_vec(),
            last: self.last.then_some(2),
            ticks: self.ticks.0,
            tick: self.ticks.1,
            ..Bounds::default()
        };
        explore(steps, history, &bounds)
    }
}

fn set(value: &str) -> Plan {
    Plan::Set(value.to_owned())
}

/// A write of a clock that is ahead, one of a clock that is behind, and a reader when both have ended.
fn two_writes() -> Small {
    let programs = [vec![("x", set("1"))], vec![("x", set("2"))], vec![("x", Plan::Get)]];
    Small { model: Model::Linearizable, ahead: [1, -1, 0], bound: 1, programs, last: true, ticks: (3, 3) }
}

/// A write of a clock that is ahead; a read and a write where the clock is behind; a reader at last.
fn write_after_a_read() -> Small {
    let programs = [vec![("x", set("1"))], vec![("x", Plan::Get), ("x", set("2"))], vec![("x", Plan::Get)]];
    Small { programs, ..two_writes() }
}

/// The same sessions, whose reads may be told before their time: they wait before they write.
fn write_after_a_read_of_rsc() -> Small {
    Small { model: Model::Rsc, ..write_after_a_read() }
}

/// As many orders as fit into a short time; the next test tries more.
#[test]
fn operations_by_the_clock() {
    for small in [two_writes(), write_after_a_read(), write_after_a_read_of_rsc()] {
        let explored = small.tried(Plant::default(), states(40_000)).unwrap();
        println!("{:?} by the clock, {:?}: {explored:?}", small.model, small.programs);
        assert!(explored.ends > 100, "{explored:?}");
    }
}

#[test]
// Too long for every run; `make test-long` has it.
#[ignore = "takes minutes"]
fn operations_by_the_clock_in_all_orders() {
    let two = two_writes().tried(Plant::default(), usize::MAX).unwrap();
    println!("two writes by the clock: {two:?}");
    assert!(two.exhausted);
    for small in [write_after_a_read(), write_after_a_read_of_rsc()] {
        let explored = small.tried(Plant::default(), states(2_000_000)).unwrap();
        println!("{:?}, a write after a read, by the clock: {explored:?}", small.model);
        assert!(explored.ends > 1_000, "{explored:?}");
    }
}

#[cfg(feature = "planted-bugs")]
#[test]
fn operations_that_go_by_a_time_that_has_not_passed_are_found() {
    use meridian_protocol::planted::Planted;
    for (small, bug) in [
        (two_writes(), Planted::NoCommitWait),
        (Small { ticks: (4, 1), ..two_writes() }, Planted::TimestampFromEarliest),
        (write_after_a_read(), Planted::NoReadWait),
        (write_after_a_read_of_rsc(), Planted::ForgetSessionMaximum),
    ] {
        let found =
            small.tried(Plant::new(bug), 400_000).expect_err("an order of events exists that shows it");
        println!("{bug:?}: {found}");
    }
}
