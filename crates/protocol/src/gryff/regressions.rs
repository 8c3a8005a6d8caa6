//! Schedules that once broke these machines, message by message.

use super::chain::Chain;
use super::instance::{Attributes, Ballot, Instance, InstanceId, Operation, Phase, Proposal, Step};
use super::message::Message;
use super::{Gryff, Record, Replica};
use crate::clock::Now;
use crate::machine::{Client as _, Completion, Effects, Engine, Level, OpId, Place, Replica as _, Request};
use crate::object::{Action, Command, Condition, Expiry, Set, SetAnswer, Version, apply};
use crate::planted::Plant;
use crate::registers::carstamp::{Carstamp, Held, Keyed};
use crate::registry::Settings;
use crate::topology::{Address, ClientId, Group, Region};
use bytes::Bytes;

type Sent = Vec<(Address, Message)>;

fn group(regions: u8) -> Group {
    Group { keyspace: 0, partitions: 1, regions }
}

fn place(own: u8, regions: u8) -> Place {
    let others = (0..regions).filter(|region| *region != own);
    let nearest_first = std::iter::once(own).chain(others).map(Region).collect();
    Place { group: group(regions), nearest_first, seed: u64::from(own) }
}

fn replica(region: u8, regions: u8) -> Replica {
    let engine = Gryff::linearizable(Settings::default());
    engine.replica(group(regions).replica(0, Region(region)), place(region, regions), Vec::new())
}

fn from_replica(region: u8) -> Address {
    Address::Replica(group(3).replica(0, Region(region)))
}

const CLIENT: u16 = 1;

fn op(request: u64) -> OpId {
    OpId { client: ClientId::new(CLIENT, 1, 0), request }
}

fn from_client() -> Address {
    Address::Client(0, op(0).client)
}

fn at(micros: u64) -> Now {
    Now { monotonic: micros, wall: 1_000_000_000 + micros, uncertainty: None, passed: 0 }
}

fn version(value: &'static str, ts: u64) -> Held {
    let value = Bytes::from_static(value.as_bytes());
    let set = Set { value, condition: Condition::Always, expiry: Expiry::Never, answer: SetAnswer::Ok };
    let (value, _) = apply(&None, Version::default(), &Action::Command(Command::Set(set)), 0);
    Held { value, carstamp: Carstamp { ts, id: 1, rmw_count: 0 } }
}

fn rmw(request: u64, lane: u32, at_ms: u64) -> Operation {
    Operation { op: op(request), lane, action: Action::Command(Command::IncrBy(1)), at_ms }
}

fn attributes() -> Attributes {
    Attributes { dependencies: vec![0; 3].into(), ..Attributes::default() }
}

fn step(replica: &mut Replica, now: Now, from: Address, message: Message) -> Sent {
    let mut effects: Effects<Message, Record> = Effects::default();
    replica.on_message(now, from, message, &mut effects);
    effects.sends
}

fn about(key: &Bytes, id: InstanceId, step: Step) -> Message {
    Message::Instance { key: key.clone(), id, step, dependency: None }
}

/// A read tried twice at one proxy: an answer to the first try's write-back says nothing of the second's version.
#[test]
fn a_late_answer_to_a_write_back_counts_for_what_it_says() {
    let mut proxy = replica(0, 5);
    let key = Bytes::from("k");
    let read = || Message::Read { op: op(1), key: key.clone(), dependency: None };
    let shows =
        |held: &Held| Message::Read1Reply { op: op(1), carstamp: held.carstamp, value: held.value.clone() };
    let (old, new) = (version("old", 1), version("new", 2));
    step(&mut proxy, at(1), from_client(), read());
    step(&mut proxy, at(2), from_replica(1), shows(&old));
    let sent = step(&mut proxy, at(3), from_replica(2), shows(&Held::default()));
    assert!(sent.iter().any(|(_, message)| matches!(message, Message::Read2 { .. })));
    let holds_old = || Message::Read2Reply { op: op(1), carstamp: old.carstamp };
    let sent = step(&mut proxy, at(4), from_replica(2), holds_old());
    assert!(sent.iter().any(|(_, message)| matches!(message, Message::ReadReply { settled: true, .. })));
    // That answer is lost, and the client asks again.
    step(&mut proxy, at(5), from_client(), read());
    step(&mut proxy, at(6), from_replica(1), shows(&new));
    step(&mut proxy, at(7), from_replica(2), shows(&old));
    let sent = step(&mut proxy, at(8), from_replica(3), holds_old());
    assert!(sent.is_empty(), "the new version is on two of five: {sent:?}");
}

/// A read tried at two proxies: the second's older version being settled does not settle the first's answer.
#[test]
fn settled_at_another_proxy_counts_for_what_it_says() {
    let mut client = Gryff::rsc(Settings::default()).client(op(0).client, place(0, 5));
    let get = |key: &'static str| Request::Act {
        key: Bytes::from_static(key.as_bytes()),
        action: Action::Command(Command::Get),
        at_ms: 1,
        level: Level::default(),
    };
    let mut effects: Effects<Message, Completion> = Effects::default();
    client.begin(at(1), 1, get("x"), &mut effects);
    client.on_wake(at(600_000), &mut effects);
    let held = version("new", 2);
    let answer = Message::ReadReply { op: op(1), held: held.clone(), rounds: 1, settled: false };
    client.on_message(at(700_000), from_replica(0), answer, &mut effects);
    let old = version("old", 1).carstamp;
    client.on_message(
        at(700_001),
        from_replica(1),
        Message::Settled { op: op(1), carstamp: old },
        &mut effects,
    );
    let mut effects: Effects<Message, Completion> = Effects::default();
    client.begin(at(700_002), 2, get("y"), &mut effects);
    assert!(effects.sends.is_empty(), "the new version is not settled");
    let settled = Message::Settled { op: op(1), carstamp: held.carstamp };
    client.on_message(at(700_003), from_replica(0), settled, &mut effects);
    assert!(!effects.sends.is_empty(), "now it is");
}

/// One replica has executed an rmw, another a Nop of another row: each must take over what it lacks.
#[test]
fn states_that_nops_have_set_apart_come_together() {
    let (mut a, mut b) = (replica(0, 3), replica(1, 3));
    let key = Bytes::from("k");
    let id = |row: u8| InstanceId { row: Region(row), index: 1 };
    let proposal = Box::new(Proposal { command: Some(Box::new(rmw(1, 0, 1))), attributes: attributes() });
    step(&mut b, at(1), from_replica(0), about(&key, id(1), Step::Commit { proposal }));
    let ballot = Ballot { counter: 1, leader: 2 };
    let proposal = Box::<Proposal>::default;
    let accept = Step::Accept { ballot, proposal: proposal() };
    step(&mut a, at(1), from_replica(2), about(&key, id(2), accept));
    step(&mut a, at(2), from_replica(2), about(&key, id(2), Step::Commit { proposal: proposal() }));
    assert_eq!(a.log(&key).head.executed[..], [0, 0, 1]);
    assert_eq!(b.log(&key).head.executed[..], [0, 1, 0]);
    // Each asks for what it lacks, and is sent the other's state instead.
    let ask = |leader, row| about(&key, id(row), Step::Recover { ballot: Ballot { counter: 2, leader } });
    let of_b = step(&mut b, at(3), from_replica(0), ask(0, 1));
    let of_a = step(&mut a, at(3), from_replica(1), ask(1, 2));
    let [(_, of_b @ Message::KeyState { .. })] = &of_b[..] else { panic!("{of_b:?}") };
    let [(_, of_a @ Message::KeyState { .. })] = &of_a[..] else { panic!("{of_a:?}") };
    step(&mut a, at(4), from_replica(1), of_b.clone());
    step(&mut b, at(4), from_replica(0), of_a.clone());
    assert_eq!(a.log(&key).state(), b.log(&key).state());
    assert_eq!(a.log(&key).head.executed[..], [0, 1, 1]);
}

/// Replicas may execute a Nop at different points of the order, and must forget the same results all the same.
#[test]
fn forgetting_does_not_depend_on_where_nops_are_executed() {
    let run = |nop_first: bool| {
        let mut chain = Chain::new(3, Plant::default());
        let old_or_new = |index| if index < 60 { 1 } else { 1_000_000 };
        let rmws =
            (1..=63).map(|index| (0, index, Some(Box::new(rmw(index, index as u32, old_or_new(index))))));
        let mut order: Vec<_> = rmws.collect();
        let place = if nop_first { 0 } else { order.len() };
        order.insert(place, (1, 1, None));
        order.extend(
            (64..=70).map(|index| (0, index, Some(Box::new(rmw(index, index as u32, old_or_new(index)))))),
        );
        for (row, index, rmw) in order {
            let id = InstanceId { row: Region(row), index };
            let proposal = Proposal { command: rmw, attributes: attributes() };
            let instance = Instance { phase: Phase::Committed, proposal, ..Instance::unknown() };
            chain.instances.insert(id, Box::new(instance));
            chain.execute(id, 1_000);
        }
        chain.state()
    };
    let (first, last) = (run(true), run(false));
    assert_eq!(first, last);
    assert!(first.results.len() < 20, "the old ones are forgotten");
}

/// A peer that lags in all but a Nop: what it has is not what is to be stored.
#[test]
fn an_older_peers_results_do_not_replace_newer_ones_on_disk() {
    let key = Bytes::from("k");
    let id = |row: u8, index| InstanceId { row: Region(row), index };
    let commit = |id, command| {
        let proposal = Box::new(Proposal { command, attributes: attributes() });
        about(&key, id, Step::Commit { proposal })
    };
    let (mut ahead, mut behind) = (replica(0, 3), replica(1, 3));
    for replica in [&mut ahead, &mut behind] {
        step(replica, at(1), from_replica(2), commit(id(2, 1), Some(Box::new(rmw(1, 0, 1)))));
    }
    step(&mut ahead, at(2), from_replica(2), commit(id(2, 2), Some(Box::new(rmw(2, 0, 2)))));
    step(&mut behind, at(2), from_replica(2), commit(id(1, 1), None));
    let keyed = Keyed { key: key.clone(), held: Held::default() };
    let state = Message::KeyState { keyed, state: Some(Box::new(behind.log(&key).state())) };
    let mut effects: Effects<Message, Record> = Effects::default();
    ahead.on_message(at(3), from_replica(1), state, &mut effects);
    let mut stored = Vec::new();
    for record in effects.outputs {
        if let Record::Result(.., Some(result)) = record {
            stored.push(result.request);
        }
    }
    assert!(stored.is_empty(), "what it has is stored: {stored:?}");
}

/// Five replicas; the coordinator and one more are gone. What is the rmw's base? (Gryff's 3 of 5 can't tell.)
fn recovered_by_one(second_had_it: bool) -> Proposal {
    let mut recoverer = replica(1, 5);
    let key = Bytes::from("k");
    let id = InstanceId { index: 1, row: Region(0) };
    let base = super::instance::Base::of(&version("old", 1));
    let initial = Attributes { dependencies: vec![0; 5].into(), base };
    let from = |region: u8| Address::Replica(group(5).replica(0, Region(region)));
    let proposal = Proposal { command: Some(Box::new(rmw(1, 0, 1))), attributes: initial.clone() };
    let pre_accept = Step::PreAccept { proposal: Box::new(proposal.clone()), partner: None };
    step(&mut recoverer, at(1), from(0), about(&key, id, pre_accept));
    let mut effects: Effects<Message, Record> = Effects::default();
    recoverer.on_wake(at(2_000_000), &mut effects);
    let ballot = effects.sends.iter().find_map(|(_, message)| match message {
        Message::Instance { step: Step::Recover { ballot }, .. } => Some(*ballot),
        _ => None,
    });
    let ballot = ballot.expect("it takes the instance up");
    let unchanged =
        Instance { phase: Phase::PreAccepted, proposal, initial: Some(initial), ..Instance::unknown() };
    let second = if second_had_it { unchanged } else { Instance::unknown() };
    // The third holds a newer write and has never seen the instance.
    for (region, instance) in [(2, second), (3, Instance::unknown())] {
        let report = Box::new(instance.report());
        let reply = about(&key, id, Step::RecoverReply { ballot, report });
        for (_, message) in step(&mut recoverer, at(2_000_001), from(region), reply) {
            if let Message::Instance { step: Step::Accept { proposal, .. }, .. } = message {
                return *proposal;
            }
        }
    }
    panic!("a majority has promised")
}

/// All but one of those asked had pre-accepted unchanged: the rmw may have been committed, executed and read, so
/// its base must stay, whatever newer write is about.
#[test]
fn a_base_that_may_have_been_committed_is_kept() {
    let proposal = recovered_by_one(true);
    assert!(proposal.command.is_some());
    assert_eq!(proposal.attributes.base.carstamp, version("old", 1).carstamp);
}

/// Two had not: it was not committed, and a write that completed before it began may be newer than its base.
#[test]
fn a_base_that_may_be_stale_is_not_kept() {
    assert_eq!(recovered_by_one(false), Proposal::default());
}
