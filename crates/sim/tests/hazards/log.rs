//! The replicated log: terms, promises, holes, retries, snapshots, leases.

use crate::schedules::multipaxos::{
    self, LogMessage, Sent, counter, dictated, is_accept, is_accepted, judged, leader_as_seen, led,
    log_message, replica,
};
use crate::schedules::{set, text};
use meridian_protocol::clock::Micros;
use meridian_protocol::machine::Outcome;
use meridian_protocol::multipaxos::log::LogSettings;
use meridian_protocol::multipaxos::{Message, MultiPaxos};
use meridian_protocol::registry::Settings;
use meridian_protocol::topology::{Region, ReplicaId};
use meridian_sim::Plan;
use meridian_sim::script::{Script, Setting, from_region, to_region};

fn engine() -> MultiPaxos {
    dictated(&Settings::default())
}

#[test]
fn a_deposed_leader_answers_nothing_by_itself() {
    multipaxos::read_from_a_deposed_leader(engine()).unwrap();
}

#[test]
fn a_promise_outlives_a_restart() {
    multipaxos::restart_after_a_promise(engine()).unwrap();
}

#[test]
fn a_promise_holds_for_slots_that_are_filled() {
    multipaxos::an_old_entry_in_a_filled_slot(engine()).unwrap();
}

#[test]
fn acceptances_count_for_their_own_term() {
    multipaxos::acceptances_of_an_earlier_term(engine()).unwrap();
}

#[test]
fn a_snapshot_tells_what_was_done_already() {
    multipaxos::retry_after_a_snapshot(&engine()).unwrap();
}

/// Elections by themselves: a leader that is silent for a second is replaced.
fn watchful() -> MultiPaxos {
    let log = LogSettings { leader: Some(Region(0)), ..LogSettings::default() };
    MultiPaxos::new(Settings { log, ..Settings::default() })
}

fn is_reply(m: &Sent) -> bool {
    matches!(m.message, Message::Reply { .. })
}

/// Three slots are open when the leader dies: the first nobody else has, the others two more replicas each, so that
/// they are chosen. They survive; the hole before them is filled.
#[test]
fn the_open_slots_of_a_dead_leader_are_closed() {
    let mut script = led(watchful(), 5);
    let clients: Vec<_> = (0..3).map(|_| script.session(0)).collect();
    let reader = script.session(1);
    let mut open = 0;
    script.lose(move |m| {
        let first = from_region(m, 0) && is_accept(m);
        open += u32::from(first);
        // Four copies of each: the first reaches nobody, the second regions 3 and 4, the third 1 and 2.
        first && (open <= 4 || (open <= 8) != (to_region(m, 3) || to_region(m, 4)))
    });
    for (client, value) in clients.iter().zip(["a", "b", "c"]) {
        script.begin(*client, value, &set(value));
    }
    script.run_for(100_000);
    script.crash(0);
    script.run_for(5_000_000);
    let values: Vec<_> =
        ["a", "b", "c"].iter().map(|key| text(&script.run(reader, key, &Plan::Get))).collect();
    assert_eq!(values, [None, Some("b".to_string()), Some("c".to_string())]);
    let nops: u64 = (1..5).map(|region| counter(&mut script, region, "nop")).sum();
    assert!(nops > 0, "the first slot is filled with nothing");
    script.restart(0);
    script.agree().unwrap();
    judged(&script).unwrap();
}

/// The leader dies between the choice of an update and its answer; the client retries at the next leader.
#[test]
fn an_update_whose_answer_died_with_the_leader_takes_effect_once() {
    for regions in [3, 5] {
        let mut script = led(watchful(), regions);
        let (client, reader) = (script.session(1), script.session(2));
        let unheard = script.lose(|m| is_reply(m) && from_region(m, 0));
        let append = script.begin(client, "x", &Plan::Append("a".into()));
        script.run_for(180_000);
        script.crash(0);
        script.end_rule(unheard);
        script.finish(append);
        assert_eq!(text(&script.run(reader, "x", &Plan::Get)).as_deref(), Some("a"));
        script.restart(0);
        script.agree().unwrap();
        judged(&script).unwrap();
    }
}

/// All replicas forget everything but what they have stored.
#[test]
fn what_was_answered_survives_the_crash_of_all() {
    let log = LogSettings { checkpoint: 7, leader: Some(Region(0)), ..LogSettings::default() };
    let mut script = led(MultiPaxos::new(Settings { log, ..Settings::default() }), 3);
    let client = script.session(0);
    for i in 0..20 {
        script.run(client, &format!("k{}", i % 6), &Plan::Append(format!("{i};")));
    }
    for region in 0..3 {
        script.crash(region);
    }
    for region in 0..3 {
        script.restart(region);
    }
    let reader = script.session(1);
    assert_eq!(text(&script.run(reader, "k1", &Plan::Get)).as_deref(), Some("1;7;13;19;"));
    judged(&script).unwrap();
}

/// A leader that hears nobody does not keep the others from finding another one.
#[test]
fn a_leader_that_hears_nobody_gives_up() {
    let mut script = led(watchful(), 3);
    let client = script.session(1);
    script.lose(|m| to_region(m, 0) && log_message(m).is_some());
    let write = script.begin(client, "x", &set("a"));
    script.run_for(8_000_000);
    assert!(script.outcome(write).is_some(), "another leader has taken it");
    judged(&script).unwrap();
}

/// Region 2 is alone for a while and keeps asking for support. When it is back it follows.
#[test]
fn a_replica_that_comes_back_deposes_nobody() {
    let mut script = led(watchful(), 3);
    let client = script.session(1);
    let away = script.lose(|m| log_message(m).is_some() && (from_region(m, 2) || to_region(m, 2)));
    script.run(client, "x", &set("a"));
    script.run_for(20_000_000);
    let before = leader_as_seen(&mut script, 0);
    script.end_rule(away);
    script.run_for(5_000_000);
    assert_eq!(leader_as_seen(&mut script, 2), before);
    script.agree().unwrap();
    assert_eq!(counter(&mut script, 2, "election"), 0);
    assert!(counter(&mut script, 2, "catch_up") > 0);
}

/// Leadership returns to the preferred region when that is well again, and no operation fails over it.
#[test]
fn the_leader_returns_to_its_region() {
    let mut script = led(watchful(), 3);
    let client = script.session(1);
    script.crash(0);
    script.run(client, "x", &set("a"));
    assert_ne!(leader_as_seen(&mut script, 1).map(|ballot| ballot.region), Some(Region(0)));
    script.restart(0);
    script.run_for(10_000_000);
    assert_eq!(leader_as_seen(&mut script, 1).map(|ballot| ballot.region), Some(Region(0)));
    assert_eq!(counter(&mut script, 0, "handover"), 1);
    script.run(client, "x", &set("b"));
    judged(&script).unwrap();
}

/// Leaders of partitions are spread over the regions unless one is named.
#[test]
fn leaders_are_spread() {
    let mut setting = Setting::equidistant(3, 100);
    setting.shape.partitions = 6;
    let mut script = Script::new(MultiPaxos::new(Settings::default()), setting);
    script.run_for(1_000_000);
    for partition in 0..6 {
        let id = ReplicaId { partition, ..replica(0) };
        let leader = script.world().replica(id).unwrap().log().leader().expect("all have one");
        assert_eq!(u16::from(leader.region.0), partition % 3);
    }
}

/// A listing goes through the log, and shows what is there.
#[test]
fn keys_are_listed_at_the_leader() {
    let mut script = led(watchful(), 3);
    let (client, far) = (script.session(0), script.session(2));
    for i in 0..25 {
        script.run(client, &format!("k{i}"), &set("v"));
    }
    script.run(client, "k3", &Plan::Take);
    let mut keys = script.list(far, 0);
    keys.sort();
    let mut expected: Vec<_> = (0..25).filter(|i| *i != 3).map(|i| format!("k{i}")).collect();
    expected.sort();
    assert_eq!(keys, expected);
}

/// An update of a client whose clock is far ahead would make replicas forget others' results too soon.
#[test]
fn an_update_from_the_future_is_refused() {
    let mut script = led(watchful(), 3);
    script.world().set_clock(1, 600_000_000, None);
    let ahead = script.session(1);
    let done = script.run(ahead, "x", &set("a"));
    assert!(matches!(done.outcome, Outcome::Aborted(_)), "{:?}", done.outcome);
    assert_eq!(text(&script.run(ahead, "x", &Plan::Get)), None);
}

// Leases.

fn leased(lease: Micros) -> MultiPaxos {
    let log = LogSettings { leader: Some(Region(0)), lease, ..LogSettings::default() };
    MultiPaxos::new(Settings { log, ..Settings::default() })
}

/// Three regions, 100 ms apart, whose clocks are trusted; region 0 leads and has a lease.
fn leased_script() -> Script<MultiPaxos> {
    let mut script = Script::new(leased(800_000), Setting::equidistant(3, 100));
    for node in 0..3 {
        script.world().set_clock(node, 0, Some(1_000));
    }
    script.run_for(3_000_000);
    script
}

#[test]
fn a_leader_with_a_lease_reads_alone() {
    let mut script = leased_script();
    let (near, far) = (script.session(0), script.session(1));
    script.run(near, "x", &set("a"));
    let reads = [script.begin(near, "x", &Plan::Get), script.begin(far, "x", &Plan::Get)];
    for (read, micros) in reads.into_iter().zip([0, 100_000]) {
        assert_eq!(text(&script.finish(read)).as_deref(), Some("a"));
        assert_eq!(script.latency(read), Some(micros));
    }
    assert_eq!(counter(&mut script, 0, "lease_read"), 2);
    judged(&script).unwrap();
}

#[test]
fn without_trusted_clocks_there_is_no_lease() {
    let mut script = Script::new(leased(800_000), Setting::equidistant(3, 100));
    for node in 0..3 {
        script.world().set_clock(node, 0, None);
    }
    script.run_for(4_000_000);
    let client = script.session(0);
    let read = script.begin(client, "x", &Plan::Get);
    script.finish(read);
    assert_eq!(script.latency(read), Some(100_000));
    assert_eq!(counter(&mut script, 0, "lease_read"), 0);
}

/// The holder of a lease is cut off: it reads alone for a while, and no more when somebody else answers.
#[test]
fn a_lease_ends_before_another_leader_answers() {
    let mut script = leased_script();
    let (old, new) = (script.session(0), script.session(1));
    script.run(old, "x", &set("old"));
    let cut = script.lose(|m| log_message(m).is_some() && (from_region(m, 0) || to_region(m, 0)));
    let write = script.begin(new, "x", &set("new"));
    let mut alone = 0;
    for _ in 0..200 {
        let read = script.begin(old, "x", &Plan::Get);
        script.run_for(50_000);
        let answered = script.outcome(read).is_some();
        alone += u32::from(answered);
        if script.outcome(write).is_some() {
            assert!(!answered, "the lease is over before somebody else leads");
            break;
        }
    }
    assert!(alone > 5, "the lease was of use for {alone} reads");
    script.finish(write);
    script.end_rule(cut);
    script.run_for(5_000_000);
    judged(&script).unwrap();
}

/// A new leader has a lease at once and applies what an older one left open before it answers.
#[test]
fn a_new_leader_reads_alone_only_behind_its_barrier() {
    let mut script = leased_script();
    let (old, new) = (script.session(0), script.session(1));
    // The old leader's write is chosen and answered; nobody else knows that it is.
    let unheard =
        script.lose(|m| from_region(m, 0) && matches!(log_message(m), Some(LogMessage::Heartbeat { .. })));
    script.run(old, "x", &set("a"));
    script.crash(0);
    script.end_rule(unheard);
    let open = script.hold(is_accepted);
    script.run_for(6_000_000);
    let leader =
        (1..3).find(|region| counter(&mut script, *region, "election") > 0).expect("there is a new one");
    let reader = if leader == 1 { new } else { script.session(2) };
    let read = script.begin(reader, "x", &Plan::Get);
    script.run_for(200_000);
    assert!(script.outcome(read).is_none(), "its barrier is not chosen");
    script.release(open);
    assert_eq!(text(&script.finish(read)).as_deref(), Some("a"));
    judged(&script).unwrap();
}
