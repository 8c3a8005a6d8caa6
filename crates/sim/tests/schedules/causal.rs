//! Schedules in which a wrong causal engine goes wrong.

use super::{Played, set, text};
use meridian_check::{Model, Verdict};
use meridian_protocol::causal::{Causal, Message};
use meridian_protocol::history::Kind;
use meridian_protocol::machine::{Engine, Level, Outcome};
use meridian_protocol::topology::{Address, Group, Region, ReplicaId};
use meridian_sim::script::{Operation, Script, Session, Setting, to_region};
use meridian_sim::world::Envelope;
use meridian_sim::{Plan, Step};

type Sent = Envelope<Message>;

/// A key of each partition.
pub(crate) fn keys(partitions: u16) -> Vec<String> {
    let group = Group { keyspace: 0, partitions, regions: 1 };
    let first = |partition| {
        let names = (0..).map(|i| format!("k{i}"));
        names.into_iter().find(|name| group.partition_of(name.as_bytes()) == partition)
    };
    (0..partitions).map(|partition| first(partition).expect("there is no end of names")).collect()
}

/// So many regions, 100 ms apart, with so many partitions, each on a node of its own.
pub(crate) fn setting(regions: u8, partitions: u16) -> Setting {
    let mut setting = Setting::equidistant(regions, 100);
    setting.shape.partitions = partitions;
    setting.shape.nodes_per_region = usize::from(partitions);
    setting
}

pub(crate) fn to_partition<M>(sent: &Envelope<M>, wanted: u16) -> bool {
    matches!(sent.to, Address::Replica(ReplicaId { partition, .. }) if partition == wanted)
}

/// Begins a read of several keys from one snapshot.
pub(crate) fn rot<E: Engine>(script: &mut Script<E>, session: Session, keys: &[&str]) -> Operation {
    let parts = keys.iter().map(|key| ((*key).to_string(), Plan::Get)).collect();
    script.begin_with(session, Kind::Rot, None, Step::Together(parts))
}

/// Begins an operation at a level.
pub(crate) fn at(
    script: &mut Script<Causal>,
    session: Session,
    key: &str,
    (plan, level): (Plan, Level),
) -> Operation {
    script.begin_with(session, Kind::Op, Some(level), Step::Act(key.to_string(), plan))
}

pub(crate) fn judged<E: Engine>(script: &Script<E>, model: Model) -> Played {
    let judgement = script.judge(model);
    if judgement.verdict == Verdict::Holds { Ok(()) } else { Err(judgement.reason) }
}

fn writes_key(sent: &Sent, key: &str) -> bool {
    let Message::Replicate(replicate) = &sent.message else { return false };
    replicate.writes.iter().any(|write| write.key == key.as_bytes())
}

/// The second of two writes to a partition overtakes the first on the way to another region.
pub(crate) fn overtaken_write(engine: Causal) -> Played {
    let mut script = Script::new(engine, setting(3, 1));
    script.run_for(300_000);
    let (writer, reader) = (script.session(0), script.session(1));
    let slow = script.hold(|m| to_region(m, 1) && writes_key(m, "x"));
    script.run(writer, "x", &set("1"));
    script.run(writer, "y", &set("2"));
    script.run_for(300_000);
    let read = rot(&mut script, reader, &["x", "y"]);
    script.finish(read);
    script.release(slow);
    script.run_for(1_500_000);
    assert_eq!(text(&script.run(reader, "y", &Plan::Get)).as_deref(), Some("2"));
    judged(&script, Model::CausalRot)
}

/// A write follows one of another region, and comes to a third region before it.
pub(crate) fn slow_third_link(engine: Causal) -> Played {
    let mut script = Script::new(engine, setting(3, 2));
    script.run_for(300_000);
    let (first, second, reader) = (script.session(0), script.session(1), script.session(2));
    let [x, y] = &keys(2)[..] else { unreachable!("two keys of two partitions") };
    let to_lose = x.clone();
    let slow = script.hold(move |m| to_region(m, 2) && writes_key(m, &to_lose));
    script.run(first, x, &set("1"));
    script.run_for(300_000);
    assert_eq!(text(&script.run(second, x, &Plan::Get)).as_deref(), Some("1"));
    script.run(second, y, &set("2"));
    script.run_for(300_000);
    let read = rot(&mut script, reader, &[x, y]);
    script.finish(read);
    script.release(slow);
    script.run_for(1_500_000);
    assert_eq!(text(&script.run(reader, y, &Plan::Get)).as_deref(), Some("2"));
    judged(&script, Model::CausalRot)
}

/// A transaction's snapshot is taken where the clock is a second ahead; one partition has served it and another has not
/// when two writes, one after the other, come to both.
pub(crate) fn writes_behind_a_snapshot(engine: Causal) -> Played {
    let mut script = Script::new(engine, setting(1, 3));
    let [x, z, y] = &keys(3)[..] else { unreachable!("three keys of three partitions") };
    let (reader, writer) = (script.session(0), script.session(0));
    script.world().set_clock(1, 1_000_000, None);
    let upkeep = script.lose(|m| matches!(m.message, Message::Report(_)));
    script.run_for(100_000);
    let slow = script.hold(|m| matches!(m.message, Message::ReadAt { .. }) && to_partition(m, 0));
    // The first request of its node, which the second of the partitions coordinates.
    let read = rot(&mut script, reader, &[x, z, y]);
    script.run_for(10_000);
    assert_eq!(script.held(slow).len(), 1);
    script.run(writer, y, &set("1"));
    script.run(writer, x, &set("2"));
    script.release(slow);
    script.finish(read);
    script.end_rule(upkeep);
    judged(&script, Model::CausalRot)
}

/// A replica restarts and has heard nothing of the other region since: what was stable there once still is.
pub(crate) fn restart_before_the_next_heartbeat(engine: Causal) -> Played {
    let mut script = Script::new(engine, setting(3, 1));
    script.run_for(300_000);
    let (writer, reader) = (script.session(0), script.session(1));
    for value in 0..30 {
        script.run(writer, "x", &set(&value.to_string()));
        script.run_for(100_000);
    }
    assert_ne!(text(&script.run(reader, "x", &Plan::Get)), None);
    script.lose(|m| to_region(m, 1) && matches!(m.message, Message::Replicate(_)));
    // What is on the way has come.
    script.run_for(100_000);
    script.crash(1);
    script.restart(1);
    script.run_for(1_000_000);
    let reader = script.session(1);
    script.run(reader, "x", &Plan::Get);
    judged(&script, Model::CausalRot)
}

pub(crate) fn attach(script: &mut Script<Causal>, session: Session, region: u8) {
    let Address::Client(_, id) = script.address(session) else { unreachable!("a session is a client") };
    script.world().attach(usize::from(id.node()) - 1, id.slot(), Region(region));
}

/// A session writes a key, moves to a region whose clock is five seconds behind, writes it again, and reads it.
pub(crate) fn write_after_moving_to_a_slower_clock(engine: Causal, level: Level) -> Script<Causal> {
    let mut script = Script::new(engine, setting(3, 1));
    script.world().set_clock(0, 5_000_000, None);
    let slow = script.hold(|m| matches!(m.message, Message::Replicate(_)));
    let session = script.session(0);
    let first = at(&mut script, session, "x", (set("first"), level));
    script.finish(first);
    attach(&mut script, session, 1);
    let second = at(&mut script, session, "x", (set("second"), level));
    script.finish(second);
    script.release(slow);
    script.run_for(1_500_000);
    let read = at(&mut script, session, "x", (Plan::Get, Level::MonotonicReads));
    script.finish(read);
    script
}

/// A session writes, moves to a region that the write has not reached, and reads there at a level.
pub(crate) fn read_after_moving(engine: Causal, level: Level) -> Script<Causal> {
    let mut script = Script::new(engine, setting(3, 1));
    script.run_for(300_000);
    let slow = script.hold(|m| to_region(m, 1) && writes_key(m, "x"));
    let session = script.session(0);
    let write = at(&mut script, session, "x", (set("1"), Level::Causal));
    script.finish(write);
    attach(&mut script, session, 1);
    let read = at(&mut script, session, "x", (Plan::Get, level));
    script.run_for(500_000);
    script.release(slow);
    script.finish(read);
    script
}

/// A session has seen another's write, moves to a region that the write has not reached, and reads there at a level.
pub(crate) fn read_again_after_moving(engine: Causal, level: Level) -> Script<Causal> {
    let mut script = Script::new(engine, setting(3, 1));
    script.run_for(300_000);
    let slow = script.hold(|m| to_region(m, 1) && writes_key(m, "x"));
    let (writer, session) = (script.session(0), script.session(0));
    let write = at(&mut script, writer, "x", (set("1"), Level::Causal));
    script.finish(write);
    let read = at(&mut script, session, "x", (Plan::Get, Level::MonotonicReads));
    script.finish(read);
    attach(&mut script, session, 1);
    let read = at(&mut script, session, "x", (Plan::Get, level));
    script.run_for(500_000);
    script.release(slow);
    script.finish(read);
    script
}

/// A session reads what was written under a clock that is five seconds ahead, and overwrites it at a level.
pub(crate) fn write_over_a_faster_clock(engine: Causal, level: Level) -> Script<Causal> {
    let mut script = Script::new(engine, setting(3, 1));
    script.world().set_clock(0, 5_000_000, None);
    script.run_for(300_000);
    let (other, session) = (script.session(0), script.session(1));
    let write = at(&mut script, other, "x", (set("theirs"), Level::Causal));
    script.finish(write);
    script.run_for(300_000);
    let read = at(&mut script, session, "x", (Plan::Get, Level::Eventual));
    assert_eq!(text(&script.finish(read)).as_deref(), Some("theirs"));
    let write = at(&mut script, session, "x", (set("mine"), level));
    script.finish(write);
    for _ in 0..2 {
        let read = at(&mut script, session, "x", (Plan::Get, Level::MonotonicReads));
        script.finish(read);
    }
    script
}

/// A session writes a key and reads it at once.
pub(crate) fn read_of_the_own_write(engine: Causal) -> Played {
    let mut script = Script::new(engine, setting(3, 1));
    script.run_for(300_000);
    let session = script.session(0);
    script.run(session, "x", &set("1"));
    let read = at(&mut script, session, "x", (Plan::Get, Level::ReadYourWrites));
    match script.finish(read).outcome {
        Outcome::Answer(_) => judged(&script, Model::TccClosed),
        other => Err(format!("the session's read of what it has written ended {other:?}")),
    }
}
