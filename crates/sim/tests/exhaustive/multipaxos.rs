//! Multi-Paxos: two increments, two leaders, messages that arrive in any order.
//!
//! Time plays no part: silence is never waited for (`election` is 0), so that a replica that is woken stands for election
//! whoever leads, and others support it. A replica that leads sends again what is open and stands down when it is woken.
//! That is more than can happen with real deadlines, and makes states that differ only in them behave the same.

use super::REGIONS;
use meridian_protocol::clock::Micros;
use meridian_protocol::machine::OpId;
use meridian_protocol::multipaxos::log::{Entry, LogSettings, Message as LogMessage, Slot};
use meridian_protocol::multipaxos::message::{Command, Outcome, Work};
use meridian_protocol::multipaxos::{Message, MultiPaxos, Replica};
use meridian_protocol::object::{Action, Answer, Command as Update, Reply};
use meridian_protocol::registry::Settings;
use meridian_protocol::topology::{Address, Region};
use meridian_sim::explore::{Bounds, Explored, Facts, explore};
use meridian_sim::steps::{Sent, Steps};
use std::collections::{BTreeMap, BTreeSet};

/// What a log must keep: one entry a slot, held by a majority from when it is first applied on; each command applied once,
/// and before it is answered.
#[derive(Clone, Debug)]
struct Chosen {
    /// Candidates of higher rounds are not heard, so that there is an end.
    rounds: u64,
    /// Whether a replica hears that its ballot is too low.
    refusals: bool,
    slots: BTreeMap<Slot, Entry<Command>>,
    answers: BTreeMap<OpId, Answer>,
}

fn operations<'a>(entries: impl Iterator<Item = &'a Entry<Command>>) -> BTreeSet<OpId> {
    let command = |entry: &Entry<Command>| match entry {
        Entry::Command(command) => Some(command.op),
        Entry::Nop | Entry::Barrier => None,
    };
    entries.filter_map(command).collect()
}

/// What the counter stands at.
fn count(replica: &Replica) -> Answer {
    let work = Work::Act { key: "x".into(), lane: 0, action: Action::Command(Update::IncrBy(0)), at_ms: 1 };
    match replica.log().state().read(&work) {
        Outcome::Answer { answer, .. } => answer,
        other => panic!("a key is read, not {other:?}"),
    }
}

impl Facts<MultiPaxos> for Chosen {
    fn sent(&mut self, sent: &Sent<Message>) -> Result<bool, String> {
        match &sent.message {
            Message::Log(LogMessage::Canvass { ballot, .. }) => Ok(ballot.round <= self.rounds),
            Message::Log(LogMessage::Refused { .. }) => Ok(self.refusals),
            // Says when a follower was heard, and how far it has come: of use to leases, to handing over to the
            // preferred region and to forgetting the log, none of which comes up here.
            Message::Log(LogMessage::HeartbeatReply { .. }) => Ok(false),
            Message::Reply { op, outcome: Outcome::Answer { answer, .. }, .. } => {
                if self.answers.insert(*op, answer.clone()).is_some_and(|other| other != *answer) {
                    return Err(format!("{op:?} was answered twice, at last {answer:?}"));
                }
                Ok(false)
            }
            Message::Reply { outcome, .. } => Err(format!("an increment came to {outcome:?}")),
            _ => Ok(true),
        }
    }

    /// What belongs to a term that its receiver has left or brought to its end: ballots of a replica only grow.
    fn is_over(&self, sent: &Sent<Message>, replicas: &[Replica]) -> bool {
        let (Address::Replica(to), Message::Log(message)) = (sent.to, &sent.message) else { return false };
        let log = replicas[to.region.index()].log();
        let leads = |ballot| log.leads() && log.leader() == Some(ballot);
        match message {
            // A candidate promises its own ballot before it asks for promises, and that ends the asking for support.
            LogMessage::Support { ballot } => log.promised() >= *ballot,
            LogMessage::Promise { ballot, .. } => log.promised() > *ballot || leads(*ballot),
            // Beyond that it says how far the follower has come, as above.
            LogMessage::Accepted { ballot, last, .. } => leads(*ballot) && *last <= log.applied(),
            _ => false,
        }
    }

    fn reached(&mut self, replicas: &[Replica]) -> Result<(), String> {
        for log in replicas.iter().map(Replica::log) {
            for (slot, accepted) in log.accepted().range(..=log.applied()) {
                let chosen = self.slots.entry(*slot).or_insert_with(|| accepted.entry.clone());
                if *chosen != accepted.entry {
                    return Err(format!("slot {slot} is {chosen:?} and {:?}", accepted.entry));
                }
            }
        }
        for (slot, entry) in &self.slots {
            let holds = |replica: &&Replica| {
                replica.log().accepted().get(slot).is_some_and(|accepted| accepted.entry == *entry)
            };
            if replicas.iter().filter(holds).count() <= usize::from(REGIONS) / 2 {
                return Err(format!("{entry:?} was applied in slot {slot} and is lost by a majority"));
            }
        }
        for replica in replicas {
            let log = replica.log();
            let applied = log.accepted().range(..=log.applied()).map(|(_, accepted)| &accepted.entry);
            let applied = operations(applied).len();
            if count(replica) != Answer::One(Reply::Int(applied as i64)) {
                return Err(format!("{applied} increments have made {:?}", count(replica)));
            }
        }
        let chosen = operations(self.slots.values());
        if let Some((op, _)) = self.answers.iter().find(|(op, _)| !chosen.contains(*op)) {
            return Err(format!("{op:?} was answered and is not in the log"));
        }
        Ok(())
    }
}

fn engine(settings: &Settings) -> MultiPaxos {
    let log = LogSettings { election: 0, leader: Some(Region(0)), ..settings.log.clone() };
    MultiPaxos::new(Settings { retry: 1, log, ..settings.clone() })
}

/// Longer than any deadline.
const LATER: Micros = 100;

/// Region 0 leads, and two clients have asked, there and at region 1, which has not arrived.
fn led(settings: &Settings) -> Steps<MultiPaxos> {
    let mut steps = Steps::new(&engine(settings), REGIONS);
    steps.wake(0, LATER);
    while !steps.wire.is_empty() {
        steps.deliver_at(0);
    }
    assert!(steps.replicas[0].log().leads());
    for region in 0..2 {
        steps.begin(region, "x", Action::Command(Update::IncrBy(1)));
    }
    steps
}

/// Then region 0 has put the first command into the log, and region 1 stands for election. What it has asked the others
/// has arrived, their answers have not.
fn contested(settings: &Settings) -> Steps<MultiPaxos> {
    let mut steps = led(settings);
    let leader = steps.replica(0);
    steps.deliver(|sent| sent.to == leader);
    steps.wake(1, LATER);
    let is_canvass = |sent: &Sent<Message>| matches!(sent.message, Message::Log(LogMessage::Canvass { .. }));
    while steps.wire.iter().any(is_canvass) {
        steps.deliver(is_canvass);
    }
    steps
}

fn every_order(
    from: Steps<MultiPaxos>,
    wakes: [u8; 3],
    (rounds, refusals): (u64, bool),
    states: usize,
) -> Result<Explored, String> {
    let facts = Chosen { rounds, refusals, slots: BTreeMap::new(), answers: BTreeMap::new() };
    explore(
        from,
        facts,
        &Bounds { crash: None, wakes: wakes.to_vec(), later: LATER, states, ..Bounds::default() },
    )
}

#[test]
fn two_commands_and_two_leaders_on_multipaxos() {
    let from = contested(&Settings::default());
    let explored = every_order(from, [0, 0, 0], (2, true), 200_000).unwrap();
    println!("multipaxos, the second leader has asked for support: {explored:?}");
    assert!(explored.exhausted);
}

/// Region 1 may stand at any time.
#[test]
// Too long for every run; `make test-long` has it.
#[ignore = "takes minutes"]
fn two_commands_and_a_second_leader_at_any_time_on_multipaxos() {
    let from = led(&Settings::default());
    let explored = every_order(from, [0, 1, 0], (2, true), 3_000_000).unwrap();
    println!("multipaxos, the second leader at any time: {explored:?}");
    assert!(explored.exhausted);
}

/// The third leader is told of an entry of the first, which the second one has not been told of.
#[cfg(feature = "planted-bugs")]
#[test]
fn a_promise_that_does_not_hold_in_a_filled_slot_is_found() {
    use meridian_protocol::planted::{Plant, Planted};
    let plant = Plant::new(Planted::PromiseSkipsFilledSlots);
    let from = contested(&Settings { plant, ..Settings::default() });
    let found = every_order(from, [0, 0, 1], (3, false), 1_000_000)
        .expect_err("an order of events exists that shows it");
    println!("{found}");
    assert!(found.contains("is lost by a majority"), "{found}");
}
