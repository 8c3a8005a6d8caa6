//! Machines on a perfect network: what each kind of operation does and costs. Schedules with faults are the
//! simulator's business.

use super::Gryff;
use super::chain::{Chain, Execution, Head};
use super::instance::{Attributes, Base, Instance, InstanceId, Operation, Proposal, Step};
use super::message::Message;
use crate::cluster::{Cluster, bulk, get, incr, int, set};
use crate::instances::Adopted;
use crate::instances::record::come_back;
use crate::machine::{Effects, Engine, OpId, Outcome, Replica as _};
use crate::object::{Action, Answer, Command, End, Reply};
use crate::planted::Plant;
use crate::registers::carstamp::Carstamp;
use crate::registry::Settings;
use crate::topology::{Address, ClientId, Region};
use bytes::Bytes;

fn everyone(_: Address, _: Address, _: &Message) -> bool {
    false
}

#[test]
fn operations_take_the_rounds_that_the_papers_say() {
    for regions in [1, 3, 5, 7] {
        for engine in [Gryff::linearizable(Settings::default()), Gryff::rsc(Settings::default())] {
            let mut cluster = Cluster::new(&engine, regions);
            assert_eq!(cluster.act(0, "k", get()), (Outcome::Answer(Answer::One(Reply::Nil)), 1));
            let ok = Outcome::Answer(Answer::One(Reply::Ok));
            assert_eq!(cluster.act(0, "k", set("1")), (ok, 2), "{regions} regions");
            assert_eq!(cluster.act(regions - 1, "k", get()), (bulk("1"), 1));
            assert_eq!(cluster.act(0, "k", incr()), (int(2), 2));
            assert_eq!(cluster.act(regions - 1, "k", incr()), (int(3), 2));
            assert_eq!(cluster.act(0, "k", get()), (bulk("3"), 1));
        }
    }
}

#[test]
fn without_a_proxy_the_client_reads_itself() {
    let settings = Settings { read_proxy: false, ..Settings::default() };
    let mut cluster = Cluster::new(&Gryff::linearizable(settings), 5);
    cluster.act(0, "k", set("1"));
    assert_eq!(cluster.act(4, "k", get()), (bulk("1"), 1));
}

#[test]
fn concurrent_rmws_each_take_effect_once() {
    for regions in [3, 5, 7] {
        let mut cluster = Cluster::new(&Gryff::linearizable(Settings::default()), regions);
        for _ in 0..20 {
            for region in 0..regions {
                cluster.begin(region, "n", incr());
            }
            cluster.run(everyone);
        }
        let total = 20 * i64::from(regions);
        assert_eq!(cluster.done.len() as i64, total);
        assert_eq!(cluster.act(0, "n", incr()).0, int(total + 1));
        let slow: u64 = (0..usize::from(regions)).map(|r| cluster.counter(r, "slow_path")).sum();
        assert!(slow > 0 || regions == 3, "concurrent rmws at {regions} replicas should take the slow path");
        let open: u64 = cluster.replicas.iter().map(|replica| replica.status().open_instances).sum();
        assert_eq!(open, 0, "executed instances are forgotten");
        assert!(cluster.replicas.iter().all(|r| r.logs.values().all(|chain| chain.instances.is_empty())));
    }
}

#[test]
fn a_dead_coordinators_instance_is_recovered() {
    for regions in [3, 5] {
        let mut cluster = Cluster::new(&Gryff::linearizable(Settings::default()), regions);
        let dead = |from: Address, to: Address| {
            [from, to].iter().any(|a| matches!(a, Address::Replica(id) if id.region == Region(0)))
        };
        // The coordinator dies when its pre-accepts are out: no reply reaches it.
        cluster.begin(0, "n", incr());
        cluster.run(|from, to, message| {
            dead(from, to)
                && !matches!(
                    message,
                    Message::Instance { step: Step::PreAccept { .. }, .. } | Message::Rmw { .. }
                )
        });
        let request = cluster.begin(1, "n", incr());
        for _ in 0..20 {
            cluster.pass(400_000, |from, to, _| dead(from, to));
        }
        let done = cluster.done.iter().find(|done| done.request == request).expect("the others go on");
        // The dead coordinator's client was told nothing, so its rmw may have taken effect or not.
        assert!([int(1), int(2)].contains(&done.outcome), "{:?}", done.outcome);
        let recoveries: u64 = (1..usize::from(regions)).map(|r| cluster.counter(r, "recovery")).sum();
        assert!(recoveries > 0);
        // The client retries at the next coordinator, under the same id.
        assert_eq!(cluster.done.len(), 2);
        let total = cluster.begin(1, "n", incr());
        for _ in 0..10 {
            cluster.pass(400_000, |from, to, _| dead(from, to));
        }
        assert_eq!(cluster.done.iter().find(|done| done.request == total).unwrap().outcome, int(3));
    }
}

#[test]
fn a_replica_that_was_away_catches_up_unasked() {
    let mut cluster = Cluster::new(&Gryff::linearizable(Settings::default()), 3);
    for region in 0..3 {
        let mut effects = Effects::default();
        cluster.replicas[region].start(cluster.now, &mut effects);
    }
    let away = |from: Address, to: Address, _: &Message| {
        [from, to].iter().any(|a| matches!(a, Address::Replica(id) if id.region == Region(2)))
    };
    for i in 0..50 {
        cluster.begin(0, &format!("r{}", i % 7), set(&i.to_string()));
        cluster.begin(1, &format!("n{}", i % 5), incr());
        cluster.run(away);
    }
    assert_ne!(cluster.replicas[0].fingerprint(), cluster.replicas[2].fingerprint());
    for _ in 0..12 {
        cluster.pass(1_000_000, everyone);
    }
    assert_eq!(cluster.replicas[0].fingerprint(), cluster.replicas[2].fingerprint());
    assert!(cluster.counter(2, "catch_up") > 0);
}

#[test]
fn a_replica_is_rebuilt_from_its_records() {
    let engine = Gryff::linearizable(Settings::default());
    let mut cluster = Cluster::new(&engine, 3);
    for i in 0..30 {
        cluster.act(i % 3, "n", incr());
        cluster.act(i % 3, &format!("k{i}"), set("v"));
    }
    let list = Action::Command(Command::ListPush(End::Tail, vec![Bytes::from("a"), Bytes::from("b")]));
    cluster.act(0, "l", list);
    for region in 0..3_u8 {
        let records = cluster.records[usize::from(region)].values().cloned().collect();
        let place = cluster.replicas[usize::from(region)].place.clone();
        let again = engine.replica(place.group.replica(0, Region(region)), place, records);
        assert_eq!(again.fingerprint(), cluster.replicas[usize::from(region)].fingerprint());
    }
}

#[test]
fn writes_of_one_client_never_share_a_carstamp() {
    let mut cluster = Cluster::new(&Gryff::linearizable(Settings::default()), 3);
    cluster.begin(0, "k", set("a"));
    cluster.begin(0, "k", set("b"));
    cluster.run(everyone);
    let [a, b] = &cluster.done[..] else { panic!("both writes end") };
    assert_ne!(a.cost.witness, b.cost.witness);
}

#[test]
fn rsc_answers_at_once_and_settles_before_the_next_operation() {
    let settings = Settings { thrifty: false, ..Settings::default() };
    let mut cluster = Cluster::new(&Gryff::rsc(settings), 5);
    // A write that reaches one replica only.
    let write = cluster.begin(1, "k", set("new"));
    cluster.run(|_, to, message| {
        matches!(message, Message::Write2 { .. })
            && !matches!(to, Address::Replica(id) if id.region == Region(1))
    });
    let read = cluster.begin(0, "k", get());
    cluster.run(|_, _, message| matches!(message, Message::Read2 { .. }));
    assert!(cluster.done.iter().all(|done| done.request != write));
    let done = cluster.done.iter().find(|done| done.request == read).expect("one round is enough");
    assert_eq!((&done.outcome, done.cost.rounds), (&bulk("new"), 1));
    // Its write-back was lost; the next operation waits until another has gone through.
    let next = cluster.begin(0, "other", get());
    cluster.run(everyone);
    assert!(cluster.done.iter().all(|done| done.request != next));
    cluster.pass(600_000, everyone);
    let done = cluster.done.iter().find(|done| done.request == next).expect("settled");
    assert!(done.cost.waited >= 600_000 && !done.cost.reason.is_empty());
}

fn rmw(request: u64, at_ms: u64) -> Operation {
    let client = ClientId::new(1, 1, 0);
    Operation { op: OpId { client, request }, lane: 0, action: incr(), at_ms }
}

fn committed(
    chain: &mut Chain,
    row: u8,
    index: u64,
    dependencies: [u64; 3],
    rmw: Option<Operation>,
) -> InstanceId {
    let command = rmw.map(Box::new);
    let id = InstanceId { index, row: Region(row) };
    let attributes = Attributes { dependencies: dependencies[..].into(), base: Base::default() };
    chain.instances.insert(id, Box::new(Instance::unknown()));
    chain.finish(id, Some(Proposal { command, attributes }));
    id
}

#[test]
fn execution_follows_dependencies_and_stops_at_what_is_not_committed() {
    let mut chain = Chain::new(3, Plant::default());
    let b = committed(&mut chain, 1, 1, [1, 0, 0], Some(rmw(2, 0)));
    let plan = chain.order();
    let a = InstanceId { index: 1, row: Region(0) };
    assert_eq!((plan.order, plan.missing), (vec![], vec![a]));
    committed(&mut chain, 0, 1, [0, 0, 0], Some(rmw(1, 0)));
    // A cycle, beside what waits for something unknown.
    let c = committed(&mut chain, 2, 1, [1, 2, 0], Some(rmw(3, 0)));
    let d = committed(&mut chain, 1, 2, [0, 0, 1], Some(rmw(4, 0)));
    committed(&mut chain, 0, 2, [0, 0, 7], Some(rmw(5, 0)));
    let plan = chain.order();
    assert_eq!(plan.order, vec![a, b, c, d]);
    assert_eq!(plan.missing, vec![InstanceId { index: 7, row: Region(2) }]);
}

#[test]
fn execution_does_not_depend_on_a_deep_stack() {
    let mut chain = Chain::new(3, Plant::default());
    for index in 1..=50_000 {
        committed(&mut chain, 0, index, [0, index - 1, 0], None);
        committed(&mut chain, 1, index, [index, 0, 0], None);
    }
    assert_eq!(chain.order().order.len(), 100_000);
}

#[test]
fn a_retried_rmw_takes_effect_once_and_a_forgotten_one_never_again() {
    let mut chain = Chain::new(3, Plant::default());
    let horizon = 1_000;
    let run = |chain: &mut Chain, index, rmw| {
        let id = committed(chain, 0, index, [0, 0, 0], Some(rmw));
        chain.execute(id, horizon)
    };
    let Execution::Done(first) = run(&mut chain, 1, rmw(1, 5_000)) else { panic!("it is new") };
    let Execution::Done(again) = run(&mut chain, 2, rmw(1, 5_000)) else { panic!("it is remembered") };
    assert_eq!(first, again);
    assert_eq!(chain.head.previous.carstamp, Carstamp { ts: 0, id: 0, rmw_count: 1 });
    // The lane has gone on: what it asked before is over.
    assert!(matches!(run(&mut chain, 3, rmw(3, 5_001)), Execution::Done(_)));
    assert_eq!(run(&mut chain, 4, rmw(2, 5_001)), Execution::Forgotten);
    // Another lane, older than the horizon: it may have been executed and forgotten.
    let old = Operation { lane: 1, ..rmw(9, 3_000) };
    assert_eq!(run(&mut chain, 5, old), Execution::Forgotten);
    assert_eq!(chain.head.previous.carstamp.rmw_count, 2);
}

#[test]
fn a_peers_state_is_taken_only_if_it_is_later() {
    let (mut behind, mut ahead) = (Chain::new(3, Plant::default()), Chain::new(3, Plant::default()));
    for index in 1..=3 {
        let id = committed(&mut ahead, 0, index, [0, 0, 0], Some(rmw(index, 0)));
        ahead.execute(id, 1_000);
    }
    let open = committed(&mut behind, 0, 2, [1, 0, 0], Some(rmw(2, 0)));
    assert_eq!(behind.adopt(ahead.state()), Some(Adopted { covered: vec![open], later: true }));
    assert_eq!(behind.state(), ahead.state());
    assert_eq!(behind.adopt(Chain::new(3, Plant::default()).state()), None);
    assert_eq!(behind.adopt(ahead.state()), None);
}

#[test]
fn records_come_back_and_bad_ones_are_refused() {
    let id = InstanceId { index: 7, row: Region(2) };
    come_back::<Gryff>(id, Head { executed: vec![1, 2].into(), ..Head::default() });
}
