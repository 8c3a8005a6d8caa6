//! Machines on a perfect network: what each kind of operation does and costs. Schedules with faults are the
//! simulator's business.

use super::instance::{Attributes, Instance, InstanceId, Kind, Operation, Proposal, Step};
use super::log::{Execution, Log};
use super::message::Message;
use super::{Epaxos, Head};
use crate::cluster::{Cluster, bulk, get, incr, int, set};
use crate::components::Plan;
use crate::instances::instance::Ballot;
use crate::instances::record::come_back;
use crate::instances::{Adopted, LogState};
use crate::machine::{self, OpId, Outcome, Replica as _};
use crate::object::{Action, Answer, Reply};
use crate::planted::Plant;
use crate::registers::carstamp::Held;
use crate::registry::Settings;
use crate::topology::{Address, ClientId, Region, ReplicaId};

const REGIONS: u8 = 3;
const HORIZON_MS: u64 = 1_000;

fn cluster(regions: u8) -> Cluster<Epaxos> {
    Cluster::new(&Epaxos::new(Settings::default()), regions)
}

fn everyone(_: Address, _: Address, _: &Message) -> bool {
    false
}

fn in_region(address: Address, region: u8) -> bool {
    matches!(address, Address::Replica(ReplicaId { region: Region(at), .. }) if at == region)
}

fn total(cluster: &Cluster<Epaxos>, regions: u8, name: &str) -> u64 {
    (0..usize::from(regions)).map(|region| cluster.counter(region, name)).sum()
}

#[test]
fn every_operation_takes_one_round_without_conflicts() {
    for regions in [1, 3, 5, 7] {
        let mut cluster = cluster(regions);
        assert_eq!(cluster.act(0, "k", get()), (Outcome::Answer(Answer::One(Reply::Nil)), 1));
        assert_eq!(cluster.act(0, "k", set("1")), (Outcome::Answer(Answer::One(Reply::Ok)), 1));
        assert_eq!(cluster.act(regions - 1, "k", get()), (bulk("1"), 1));
        assert_eq!(cluster.act(0, "k", incr()), (int(2), 1));
        assert_eq!(cluster.act(regions - 1, "k", incr()), (int(3), 1));
        assert_eq!(cluster.act(0, "k", get()), (bulk("3"), 1));
        assert_eq!(total(&cluster, regions, "slow_path"), 0);
        let open: u64 = cluster.replicas.iter().map(|replica| replica.status().open_instances).sum();
        assert_eq!(open, 0, "executed instances are forgotten");
    }
}

#[test]
fn concurrent_updates_each_take_effect_once() {
    for (regions, batch) in [(3, 0), (5, 0), (7, 0), (3, 1_000), (5, 1_000)] {
        let settings = Settings { batch, ..Settings::default() };
        let mut cluster = Cluster::new(&Epaxos::new(settings), regions);
        for _ in 0..20 {
            for region in (0..regions).chain(0..regions) {
                cluster.begin(region, "n", incr());
            }
            cluster.run(everyone);
            if batch > 0 {
                cluster.pass(batch, everyone);
            }
        }
        let sum = 40 * i64::from(regions);
        assert_eq!(cluster.done.len() as i64, sum);
        let request = cluster.begin(0, "n", incr());
        cluster.run(everyone);
        cluster.pass(batch, everyone);
        let done = cluster.done.iter().find(|done| done.request == request).unwrap();
        assert_eq!(done.outcome, int(sum + 1));
        let instances = total(&cluster, regions, "truncation") / u64::from(regions);
        let expected = if batch > 0 { sum / 2 + 1 } else { sum + 1 };
        assert_eq!(instances as i64, expected, "a batch shares an instance");
    }
}

#[test]
fn reads_do_not_interfere_with_reads() {
    let mut cluster = cluster(5);
    cluster.act(0, "k", set("1"));
    for region in 0..5 {
        cluster.begin(region, "k", get());
    }
    cluster.run(everyone);
    assert_eq!(total(&cluster, 5, "slow_path"), 0);
}

/// A write is answered at commit; a read that comes after one that is not committed waits for it.
#[test]
fn writes_are_answered_at_commit_and_reads_after_execution() {
    let mut cluster = cluster(3);
    // 2's update reaches its partner 0, and is not committed.
    let stuck = cluster.begin(2, "k", incr());
    let reply = |_: Address, to: Address, message: &Message| {
        in_region(to, 2) && matches!(message, Message::Instance { step: Step::PreAcceptReply { .. }, .. })
    };
    cluster.run(reply);
    let (write, read) = (cluster.begin(0, "k", set("1")), cluster.begin(0, "k", get()));
    cluster.run(reply);
    let ended = |cluster: &Cluster<Epaxos>, request| cluster.done.iter().any(|done| done.request == request);
    assert!(ended(&cluster, write) && !ended(&cluster, read) && !ended(&cluster, stuck));
    // It is sent again, and all ends; the update came first, as the others depend on it.
    cluster.pass(500_000, everyone);
    let outcome = |request| cluster.done.iter().find(|done| done.request == request).unwrap().outcome.clone();
    assert_eq!((outcome(stuck), outcome(read)), (int(1), bulk("1")));
}

#[test]
fn what_a_lost_coordinator_left_is_finished_by_another() {
    for regions in [3, 5, 7] {
        let mut cluster = cluster(regions);
        cluster.begin(0, "k", incr());
        // Region 0 hears nothing any more once it has sent its pre-accepts.
        cluster.run(|from, to, _| in_region(to, 0) && !matches!(from, Address::Client(..)));
        let lost = |from: Address, to: Address, _: &Message| in_region(from, 0) || in_region(to, 0);
        for _ in 0..20 {
            cluster.pass(1_000_000, lost);
        }
        assert!(total(&cluster, regions, "recovery") > 0);
        assert_eq!(cluster.replicas[1].status().open_instances, 0, "{regions} regions");
        // The client has tried another replica; whichever instance came first, it has counted once.
        assert_eq!(cluster.act(1, "k", get()).0, bulk("1"));
    }
}

#[test]
fn a_restart_loses_nothing_and_uses_no_index_twice() {
    let mut cluster = cluster(3);
    for _ in 0..3 {
        cluster.act(1, "k", incr());
    }
    // Proposed, and nobody heard of it.
    cluster.begin(1, "k", incr());
    cluster.run(|from, _, _| in_region(from, 1));
    let before = cluster.replicas[1].fingerprint();
    cluster.restart(1);
    assert_eq!(cluster.replicas[1].fingerprint(), before);
    let key = bytes::Bytes::from("k");
    assert_eq!(cluster.replicas[1].log(&key).next_index(Kind::Update, Region(1)), 5);
    // The client tries again, and the lost instance comes to an end without it.
    for _ in 0..10 {
        cluster.pass(1_000_000, everyone);
    }
    assert_eq!(cluster.act(0, "k", get()).0, bulk("4"));
    let open: u64 = cluster.replicas.iter().map(|replica| replica.status().open_instances).sum();
    assert_eq!(open, 0);
}

#[test]
fn a_replica_that_was_away_takes_over_the_state() {
    let mut cluster = cluster(5);
    let away = |from: Address, to: Address, _: &Message| in_region(from, 4) || in_region(to, 4);
    for round in 0..200 {
        cluster.begin(round % 4, "k", if round % 3 == 0 { get() } else { incr() });
        cluster.run(away);
    }
    assert_eq!(cluster.replicas[4].status().keys, 0);
    for region in 0..5 {
        cluster.restart(region);
    }
    for _ in 0..10 {
        cluster.pass(1_000_000, everyone);
    }
    let digests: Vec<u64> = cluster.replicas.iter().map(machine::Replica::fingerprint).collect();
    assert!(digests.iter().all(|digest| *digest == digests[0]), "{digests:?}");
    assert!(cluster.counter(4, "catch_up") > 0);
    assert_eq!(cluster.counter(4, "truncation"), 0, "it has executed none of them");
}

#[test]
fn a_late_pre_accept_changes_nothing_that_was_reported() {
    let mut cluster = cluster(3);
    cluster.begin(0, "k", incr());
    let mut late = Vec::new();
    while let Some(sent) = cluster.wire.pop_front() {
        if matches!(sent.2, Message::Instance { step: Step::PreAccept { .. }, .. }) {
            late.push(sent);
        } else {
            cluster.deliver(sent);
        }
    }
    let (from, to, pre_accept) = late.pop().unwrap();
    let Message::Instance { key, id, .. } = pre_accept.clone() else { unreachable!() };
    let ballot = Ballot { counter: 1, leader: 2 };
    let recoverer = Address::Replica(ReplicaId { keyspace: 0, partition: 0, region: Region(2) });
    cluster.deliver((recoverer, to, Message::Instance { key, id, step: Step::Recover { ballot } }));
    cluster.wire.clear();
    cluster.deliver((from, to, pre_accept));
    let answers: Vec<_> = cluster.wire.iter().map(|(_, _, message)| message).collect();
    assert!(matches!(answers[..], [Message::Instance { step: Step::Refused { .. }, .. }]), "{answers:?}");
}

// The log alone.

fn id(kind: Kind, row: u8, index: u64) -> InstanceId {
    InstanceId { kind, row: Region(row), index }
}

fn operation(request: u64, action: Action, at_ms: u64) -> Operation {
    let op = OpId { client: ClientId::new(1, 1, 0), request };
    Operation { op, lane: request as u32, action, at_ms }
}

/// A log in which these are final: each with its operation's number, its dependencies and its sequence number.
fn log_of(instances: &[(InstanceId, u64, &[u64], u64)]) -> Log {
    let mut log = Log::new(REGIONS, Plant::default());
    for (id, request, dependencies, seq) in instances {
        let action = if id.kind == Kind::Read { get() } else { incr() };
        let proposal = Proposal {
            command: vec![operation(*request, action, 1)].into(),
            attributes: Attributes { dependencies: (*dependencies).into(), seq: *seq, newest_ms: 0 },
        };
        log.instances.insert(*id, Box::new(Instance::unknown()));
        log.finish(*id, Some(proposal));
    }
    log
}

#[test]
fn an_entry_of_the_array_means_all_up_to_it() {
    let (first, second) = (id(Kind::Read, 1, 1), id(Kind::Read, 1, 2));
    let update = id(Kind::Update, 0, 1);
    let reads = [0, 0, 0, 0, 0, 0];
    let mut log = log_of(&[(second, 2, &reads, 1), (update, 3, &[0, 0, 0, 0, 2, 0], 2)]);
    // The second read waits for nothing, the update also for the first.
    let plan = log.order();
    assert_eq!((plan.components, plan.missing), (vec![vec![second]], vec![first]));
    log.execute(&[second], &mut Held::default(), HORIZON_MS);
    assert!(log.is_executed(second) && !log.is_executed(first));
    assert_eq!(log.order(), Plan { components: vec![], missing: vec![] }, "nothing has changed");
    let proposal = log_of(&[(first, 1, &reads, 1)]).instances.remove(&first).unwrap().proposal;
    log.instances.insert(first, Box::new(Instance::unknown()));
    log.finish(first, Some(proposal));
    assert_eq!(log.order().components, [vec![first], vec![update]]);
}

#[test]
fn a_component_is_executed_by_sequence_number() {
    let (a, b, c) = (id(Kind::Update, 0, 1), id(Kind::Update, 1, 1), id(Kind::Read, 2, 1));
    // a after b, b after the read, the read after a.
    let mut log = log_of(&[
        (a, 1, &[0, 1, 0, 0, 0, 0], 3),
        (b, 2, &[0, 0, 0, 0, 0, 1], 1),
        (c, 3, &[1, 0, 0, 0, 0, 0], 2),
    ]);
    assert_eq!(log.order().components, [vec![b, c, a]]);
}

#[test]
fn a_long_component_does_not_need_a_deep_stack() {
    const LONG: u64 = 50_000;
    let arrays: Vec<[u64; 6]> = (1..=LONG).map(|i| [i - 1, LONG, 0, 0, 0, 0]).collect();
    let mut instances: Vec<_> =
        (1..=LONG).map(|i| (id(Kind::Update, 0, i), i, &arrays[i as usize - 1][..], i)).collect();
    let back = [LONG, 0, 0, 0, 0, 0];
    instances.extend((1..=LONG).map(|i| (id(Kind::Update, 1, i), LONG + i, &back[..], LONG + i)));
    let mut log = log_of(&instances);
    // A test has a stack of 2 MiB; as many calls as there are members would not fit.
    let components = log.order().components;
    assert_eq!(components.iter().map(Vec::len).collect::<Vec<_>>(), [2 * LONG as usize]);
}

#[test]
fn a_retry_takes_effect_once_and_a_forgotten_one_not_at_all() {
    let mut log = Log::new(REGIONS, Plant::default());
    let mut held = Held::default();
    let mut index = 0;
    let mut execute = |log: &mut Log, held: &mut Held, operation: Operation, newest_ms: u64| {
        index += 1;
        let id = id(Kind::Update, 0, index);
        let attributes =
            Attributes { dependencies: vec![index - 1, 0, 0, 0, 0, 0].into(), seq: index, newest_ms };
        log.instances.insert(id, Box::new(Instance::unknown()));
        log.finish(id, Some(Proposal { command: vec![operation].into(), attributes }));
        log.execute(&[id], held, HORIZON_MS).remove(0).1.remove(0)
    };
    let first = execute(&mut log, &mut held, operation(7, incr(), 100), 0);
    assert!(matches!(first, Execution::Done(_)));
    let again = execute(&mut log, &mut held, operation(7, incr(), 100), 100);
    assert!(matches!(again, Execution::Again(_)));
    // Much later the result is forgotten, which the attributes tell.
    for request in 10..100 {
        execute(&mut log, &mut held, operation(request, incr(), 5_000), 100);
    }
    assert!(log.last_result(ClientId::new(1, 1, 0), 7).is_none());
    let too_late = execute(&mut log, &mut held, operation(7, incr(), 100), 5_000);
    assert_eq!(too_late, Execution::Forgotten);
    assert_eq!(held.carstamp.rmw_count, 91);
}

#[test]
fn states_are_adopted_as_far_as_they_are_later() {
    let [u1, u2, r1] = [id(Kind::Update, 0, 1), id(Kind::Update, 0, 2), id(Kind::Read, 1, 1)];
    let (one, two, none) = ([1, 0, 0, 0, 0, 0], [0; 6], [0; 6]);
    let build = || log_of(&[(u1, 1, &two, 1), (u2, 2, &one, 2), (r1, 3, &none, 1)]);
    let (mut ahead, mut behind) = (build(), build());
    let mut held = Held::default();
    ahead.execute(&[u1], &mut held, HORIZON_MS);
    ahead.execute(&[u2], &mut held, HORIZON_MS);
    behind.execute(&[r1], &mut Held::default(), HORIZON_MS);
    assert_eq!(behind.adopt(ahead.state()), Some(Adopted { covered: vec![u1, u2], later: true }));
    assert!(behind.is_executed(r1), "what was executed here stays so");
    assert_eq!(ahead.adopt(behind.state()), Some(Adopted { covered: vec![r1], later: false }));
    assert_eq!(ahead.adopt(behind.state()), None);
    let mut foreign: LogState<Head> = behind.state();
    foreign.head.executed.push(0);
    assert_eq!(ahead.adopt(foreign), None);
}

/// That the first instance of the first line was a Nop is all that one replica is ahead.
#[test]
fn a_nop_alone_is_adopted() {
    let nop = id(Kind::Update, 0, 1);
    let mut ahead = Log::new(REGIONS, Plant::default());
    ahead.instances.insert(nop, Box::new(Instance::unknown()));
    let mut behind = ahead.clone();
    ahead.finish(nop, Some(Proposal::default()));
    ahead.execute(&[nop], &mut Held::default(), HORIZON_MS);
    assert_eq!(behind.adopt(ahead.state()), Some(Adopted { covered: vec![nop], later: false }));
}

#[test]
fn records_come_back_and_bad_ones_are_refused() {
    let id = id(Kind::Read, 2, 7);
    let head = Head { beyond: [id].into(), executed: vec![1, 2].into(), ..Head::default() };
    come_back::<Epaxos>(id, head);
}
