//! Schedules in which a wrong Multi-Paxos goes wrong.

use super::{Played, set, text};
use meridian_check::{Model, Verdict};
use meridian_protocol::machine::Replica as _;
use meridian_protocol::multipaxos::log::{self, Ballot, LogSettings};
use meridian_protocol::multipaxos::message::{Command, Outcome};
use meridian_protocol::multipaxos::store::Fact;
use meridian_protocol::multipaxos::{Message, MultiPaxos};
use meridian_protocol::registry::Settings;
use meridian_protocol::topology::{Address, Region, ReplicaId};
use meridian_sim::Plan;
use meridian_sim::script::{Script, Setting, from_region, to_region};
use meridian_sim::world::Envelope;

pub(crate) type Sent = Envelope<Message>;

pub(crate) type LogMessage = log::Message<Command, Fact>;

/// Region 0 leads first, and nothing but the schedule says who leads next: silence is not noticed for long.
pub(crate) fn dictated(settings: &Settings) -> MultiPaxos {
    let log = LogSettings { election: 40_000_000, leader: Some(Region(0)), ..settings.log.clone() };
    let retry = 60_000_000;
    MultiPaxos::new(Settings { retry, operation_timeout: 600_000_000, log, ..settings.clone() })
}

/// A script of `regions` regions, 100 ms apart, in which region 0 leads.
pub(crate) fn led(engine: MultiPaxos, regions: u8) -> Script<MultiPaxos> {
    let mut script = Script::new(engine, Setting::equidistant(regions, 100));
    script.run_for(1_000_000);
    assert_eq!(leader_as_seen(&mut script, 0).map(|ballot| ballot.region), Some(Region(0)));
    script
}

pub(crate) fn replica(region: u8) -> ReplicaId {
    ReplicaId { keyspace: 0, partition: 0, region: Region(region) }
}

pub(crate) fn leader_as_seen(script: &mut Script<MultiPaxos>, region: u8) -> Option<Ballot> {
    script.world().replica(replica(region)).and_then(|replica| replica.log().leader())
}

pub(crate) fn counter(script: &mut Script<MultiPaxos>, region: u8, name: &str) -> u64 {
    let status = script.world().replica(replica(region)).expect("the replica is up").status();
    status.counters.iter().find(|(known, _)| *known == name).expect("there is such a counter").1
}

fn between(from: u8, to: u8, message: LogMessage) -> Sent {
    let address = |region| Address::Replica(replica(region));
    Envelope { from: address(from), to: address(to), message: Message::Log(message), earliest: None }
}

pub(crate) fn log_message(sent: &Sent) -> Option<&LogMessage> {
    if let Message::Log(message) = &sent.message { Some(message) } else { None }
}

pub(crate) fn is_accept(sent: &Sent) -> bool {
    matches!(log_message(sent), Some(LogMessage::Accept { .. }))
}

pub(crate) fn is_accepted(sent: &Sent) -> bool {
    matches!(log_message(sent), Some(LogMessage::Accepted { .. }))
}

fn is_election(sent: &Sent) -> bool {
    matches!(log_message(sent), Some(LogMessage::Canvass { .. } | LogMessage::Prepare { .. }))
}

pub(crate) fn is_refusal(sent: &Sent) -> bool {
    matches!(log_message(sent), Some(LogMessage::Refused { .. }))
}

pub(crate) fn is_answer(sent: &Sent) -> bool {
    matches!(&sent.message, Message::Reply { outcome: Outcome::Answer { .. }, .. })
}

/// Makes a follower stand for election. Support promises nothing, so that a schedule may give it freely.
pub(crate) fn stand(script: &mut Script<MultiPaxos>, region: u8) {
    let leader = leader_as_seen(script, region).expect("it follows somebody");
    script.inject(between(leader.region.0, region, LogMessage::TakeOver { ballot: leader }));
    script.run_for(1_000);
    let canvasses = script.sent(|m| from_region(m, region));
    let asked = canvasses.iter().rev().find_map(|m| match log_message(m) {
        Some(LogMessage::Canvass { ballot, .. }) => Some(*ballot),
        _ => None,
    });
    let ballot = asked.expect("it asks for support");
    let regions = script.world().shape().rtt.regions();
    for other in (0..regions).filter(|other| *other != region) {
        script.inject(between(other, region, LogMessage::Support { ballot }));
    }
    script.run_for(1_000);
}

/// As the clients see it; and replicas that have come to different states have gone wrong whoever has seen it.
pub(crate) fn judged(script: &Script<MultiPaxos>) -> Played {
    let judgement = script.judge(Model::Linearizable);
    if judgement.verdict == Verdict::Holds { Ok(()) } else { Err(judgement.reason) }
}

/// A leader that has been deposed and has not heard of it is asked for a value.
pub(crate) fn read_from_a_deposed_leader(engine: MultiPaxos) -> Played {
    let mut script = led(engine, 3);
    let (before, after) = (script.session(0), script.session(1));
    script.run(before, "x", &set("old"));
    let cut = script.lose(|m| log_message(m).is_some() && (from_region(m, 0) || to_region(m, 0)));
    stand(&mut script, 1);
    script.run_for(1_000_000);
    script.run(after, "x", &set("new"));
    let read = script.begin(before, "x", &Plan::Get);
    script.run_for(1_000_000);
    script.end_rule(cut);
    script.finish(read);
    judged(&script)
}

/// An acceptor that has promised restarts; then the old leader's entry arrives.
pub(crate) fn restart_after_a_promise(engine: MultiPaxos) -> Played {
    let mut script = led(engine, 3);
    let (old, new) = (script.session(0), script.session(1));
    let late = script.hold(|m| from_region(m, 0) && is_accept(m));
    let apart = script.lose(|m| to_region(m, 0) && (from_region(m, 1) || is_refusal(m)));
    let write = script.begin(old, "x", &set("a"));
    script.run_for(10_000);
    let first = script.hold(|m| from_region(m, 1) && is_accept(m));
    stand(&mut script, 1);
    script.run_for(500_000);
    assert!(script.held(first).iter().any(|m| to_region(m, 2)), "region 1 leads by the promise of region 2");
    script.crash(2);
    script.restart(2);
    script.deliver(late, |m| to_region(m, 2));
    script.run_for(500_000);
    script.release(first);
    script.run_for(500_000);
    let answered = script.outcome(write).is_some();
    let read = script.run(new, "x", &Plan::Get);
    assert!(!answered || text(&read).is_none(), "otherwise the schedule is another one");
    script.end_rule(late);
    script.end_rule(apart);
    judged(&script)
}

/// Two entries of the first leader are accepted by region 4. The second leader has other ones for their slots, the
/// third has region 4's promise; then the second leader's entries arrive there.
pub(crate) fn an_old_entry_in_a_filled_slot(engine: MultiPaxos) -> Played {
    let mut script = led(engine, 5);
    let (p0, p0b, p1, p3) = (script.session(0), script.session(0), script.session(1), script.session(3));
    let partly = script.lose(|m| from_region(m, 0) && is_accept(m) && !to_region(m, 4));
    let y1 = script.begin(p0, "x", &set("y1"));
    let y2 = script.begin(p0b, "x", &set("y2"));
    script.run_for(200_000);

    let unheard =
        script.lose(|m| from_region(m, 1) && is_election(m) && (to_region(m, 0) || to_region(m, 4)));
    let second = script.hold(|m| from_region(m, 1) && is_accept(m));
    stand(&mut script, 1);
    script.run_for(200_000);
    let w = script.begin(p1, "z", &set("w"));
    script.run_for(10_000);
    script.end_rule(unheard);

    let unheard = script.lose(|m| from_region(m, 3) && (to_region(m, 1) || to_region(m, 2)));
    let deaf = script.lose(|m| to_region(m, 1) && is_refusal(m));
    let third = script.hold(|m| from_region(m, 3) && is_accept(m));
    stand(&mut script, 3);
    script.run_for(200_000);
    assert!(!script.held(third).is_empty(), "region 3 leads by the promises of regions 0 and 4");

    script.deliver(second, |m| to_region(m, 2) || to_region(m, 4));
    script.run_for(200_000);
    let lost = script.outcome(w).is_some();
    script.end_rule(partly);
    script.deliver(third, |m| to_region(m, 0) || to_region(m, 4));
    script.end_rule(third);
    script.run_for(500_000);
    script.run(p3, "z", &Plan::Get);
    script.run(p3, "x", &Plan::Get);
    script.end_rule(unheard);
    script.end_rule(deaf);
    script.end_rule(second);
    script.finish(y1);
    script.finish(y2);
    judged(&script)?;
    if lost { Err("a write was answered that a majority had promised to refuse".into()) } else { Ok(()) }
}

/// What region 4 has accepted from a leader's first term is told to it in its second, where it proposes something
/// else in those slots.
pub(crate) fn acceptances_of_an_earlier_term(engine: MultiPaxos) -> Played {
    let mut script = led(engine, 5);
    let (p0, p0b, p1, p3) = (script.session(0), script.session(0), script.session(1), script.session(3));
    let partly = script.lose(|m| from_region(m, 0) && is_accept(m) && !to_region(m, 4));
    let late = script.hold(|m| from_region(m, 4) && is_accepted(m));
    script.begin(p0, "x", &set("y1"));
    script.begin(p0b, "x", &set("y2"));
    script.run_for(200_000);
    assert_eq!(script.held(late).len(), 2);
    script.end_rule(partly);

    // Region 1 leads regions 2 and 3, and keeps what it proposes to itself.
    let unheard =
        script.lose(|m| from_region(m, 1) && (is_election(m) && !to_region(m, 2) && !to_region(m, 3)));
    let second = script.lose(|m| from_region(m, 1) && (is_accept(m) || to_region(m, 4)));
    stand(&mut script, 1);
    script.run_for(200_000);
    let w = script.begin(p1, "z", &set("w"));
    script.run_for(100_000);
    script.end_rule(unheard);

    // Region 0, which has heard of that, leads again, by the promises of regions 1 and 2; only 1 accepts.
    let third = script.lose(|m| {
        from_region(m, 0)
            && (is_accept(m) && !to_region(m, 1) || is_election(m) && (to_region(m, 3) || to_region(m, 4)))
    });
    stand(&mut script, 0);
    script.run_for(300_000);
    script.release(late);
    script.run_for(300_000);
    let answered = script.outcome(w).is_some();
    script.crash(0);
    script.crash(1);
    script.end_rule(second);
    script.end_rule(third);
    script.notice_regions();
    script.run_for(200_000_000);
    script.run(p3, "z", &Plan::Get);
    judged(&script)?;
    if answered { Err("a write was answered that two of five regions have".into()) } else { Ok(()) }
}

/// A replica comes back by a snapshot and leads; then an update is retried there whose answer was lost.
pub(crate) fn retry_after_a_snapshot(engine: &MultiPaxos) -> Played {
    let short = LogSettings { checkpoint: 5, keep_bytes: 0, ..engine.settings().log.clone() };
    let settings = Settings { retry: 500_000, log: short, ..engine.settings().clone() };
    let mut script = led(MultiPaxos::new(settings), 3);
    let (client, other) = (script.session(0), script.session(1));
    script.crash(2);
    let at = script.address(client);
    let unheard = script.lose(move |m| m.to == at && is_answer(m) && !from_region(m, 2));
    let append = script.begin(client, "x", &Plan::Append("a".into()));
    script.run_for(300_000);
    for i in 0..20 {
        script.run(other, &format!("k{i}"), &set("v"));
    }
    script.restart(2);
    script.run_for(15_000_000);
    assert!(counter(&mut script, 2, "snapshot") > 0, "region 2 gets a snapshot");
    stand(&mut script, 2);
    script.run_for(1_000_000);
    script.finish(append);
    script.end_rule(unheard);
    let read = script.run(other, "x", &Plan::Get);
    judged(&script)?;
    if text(&read).as_deref() == Some("a") { Ok(()) } else { Err(format!("{read:?}")) }
}
