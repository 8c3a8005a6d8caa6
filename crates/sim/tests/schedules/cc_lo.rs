//! Schedules in which a wrong CC-LO goes wrong.

use super::causal::{judged, keys, rot, setting, to_partition};
use super::{Played, set};
use meridian_check::Model;
use meridian_protocol::cc_lo::{CcLo, Message};
use meridian_sim::Plan;
use meridian_sim::script::{Script, to_region};
use meridian_sim::world::Envelope;

fn reads(sent: &Envelope<Message>, partition: u16) -> bool {
    matches!(sent.message, Message::Read { spread: true, .. }) && to_partition(sent, partition)
}

/// A transaction has read one key when it is overwritten, and then another, which depends on that; then it reads the other.
pub(crate) fn dependent_write_between_two_reads(engine: CcLo) -> Played {
    let mut script = Script::new(engine, setting(1, 2));
    let [x, y] = &keys(2)[..] else { unreachable!("two keys of two partitions") };
    let (reader, writer) = (script.session(0), script.session(0));
    let slow = script.hold(|m| reads(m, 1));
    let read = rot(&mut script, reader, &[x, y]);
    script.run_for(10_000);
    script.run(writer, x, &set("1"));
    script.run(writer, y, &set("2"));
    script.release(slow);
    script.finish(read);
    judged(&script, Model::CausalRot)
}

/// Z is written, then X, then Y; Z is late in the other region, where somebody overwrites X without having seen it.
pub(crate) fn newer_version_of_a_dependency(engine: CcLo) -> Played {
    let mut script = Script::new(engine, setting(3, 3));
    script.run_for(300_000);
    let [z, x, y] = &keys(3)[..] else { unreachable!("three keys of three partitions") };
    let (writer, other, reader) = (script.session(0), script.session(1), script.session(1));
    let slow = script.hold(|m| to_region(m, 1) && to_partition(m, 0) && from_writes(m));
    for (key, value) in [(z, "1"), (x, "2"), (y, "3")] {
        script.run(writer, key, &set(value));
    }
    script.run_for(200_000);
    script.run(other, x, &set("4"));
    script.run_for(100_000);
    let read = rot(&mut script, reader, &[z, y]);
    script.finish(read);
    script.release(slow);
    script.run_for(2_000_000);
    let read = rot(&mut script, reader, &[z, x, y]);
    script.finish(read);
    judged(&script, Model::CausalRot)
}

fn from_writes(sent: &Envelope<Message>) -> bool {
    matches!(&sent.message, Message::Replicate(replicate) if !replicate.writes.is_empty())
}

/// W, X and Y are written one after the other. A transaction of the other region has read an older W; X is hidden from it
/// there, behind a newer version that it may see; then it reads Y.
pub(crate) fn dependency_hidden_behind_a_newer_version(engine: CcLo) -> Played {
    let mut script = Script::new(engine, setting(3, 3));
    let [w, x, y] = &keys(3)[..] else { unreachable!("three keys of three partitions") };
    let between = script.hold(|m| matches!(m.message, Message::Replicate(_)));
    let (writer, other, reader) = (script.session(0), script.session(1), script.session(1));
    for (key, value) in [(w, "1"), (x, "2"), (y, "3")] {
        script.run(writer, key, &set(value));
    }
    // Their logical clock runs ahead of the writer's.
    for value in 10..20 {
        script.run(other, x, &set(&value.to_string()));
    }
    // Each region hears that the other is there, and sends what it has.
    script.run_for(20_000);
    script.deliver(between, |m| !from_writes(m));
    script.run_for(20_000);
    let slow = script.hold(|m| reads(m, 2));
    let read = rot(&mut script, reader, &[w, y]);
    script.run_for(10_000);
    script.deliver(between, from_writes);
    script.run_for(50_000);
    script.release(slow);
    script.finish(read);
    script.release(between);
    script.run_for(2_000_000);
    let read = rot(&mut script, reader, &[w, x, y]);
    script.finish(read);
    judged(&script, Model::CausalRot)
}

/// A transaction reads an old X, then W, which depends on a version of Y that is newer than that read; then a dangerous
/// version of Y comes, and it reads Y.
pub(crate) fn needed_version_before_a_dangerous_one(engine: CcLo) -> Played {
    let mut script = Script::new(engine, setting(1, 3));
    let [x, w, y] = &keys(3)[..] else { unreachable!("three keys of three partitions") };
    let (reader, first, second) = (script.session(0), script.session(0), script.session(0));
    let slow = script.hold(|m| reads(m, 1) || reads(m, 2));
    let read = rot(&mut script, reader, &[x, w, y]);
    script.run_for(10_000);
    script.run(first, y, &set("1"));
    script.run(first, w, &set("2"));
    script.deliver(slow, |m| reads(m, 1));
    script.run_for(10_000);
    script.run(second, x, &set("3"));
    script.run(second, y, &set("4"));
    script.release(slow);
    script.finish(read);
    judged(&script, Model::CausalRot)
}

/// A transaction has read one key, a dependent write hides from it, and the partition of the other key restarts before it
/// is asked.
pub(crate) fn restart_of_a_partition_that_hides_something(engine: CcLo) -> Played {
    let mut script = Script::new(engine, setting(1, 2));
    let [x, y] = &keys(2)[..] else { unreachable!("two keys of two partitions") };
    let (reader, writer) = (script.session(0), script.session(0));
    let slow = script.hold(|m| reads(m, 1));
    let read = rot(&mut script, reader, &[x, y]);
    script.run_for(10_000);
    script.run(writer, x, &set("1"));
    script.run(writer, y, &set("2"));
    script.world().crash(1);
    script.world().start(1);
    script.run_for(10_000);
    script.release(slow);
    script.finish(read);
    let after = script.run(reader, y, &Plan::Get);
    assert_eq!(super::text(&after).as_deref(), Some("2"));
    judged(&script, Model::CausalRot)
}
