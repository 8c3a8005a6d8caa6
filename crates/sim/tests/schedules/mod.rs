//! Schedules of messages in which a wrong Gryff goes wrong, each as the hazard dictates it. Every one of them is
//! played on the right engine, which must stand it, and where a bug can be planted on the wrong one, which must
//! not.

pub(crate) mod causal;
pub(crate) mod cc_lo;
pub(crate) mod epaxos;
pub(crate) mod instances;
pub(crate) mod multipaxos;
pub(crate) mod one_round;
pub(crate) mod spanner;

use meridian_check::{Model, Verdict};
use meridian_protocol::gryff::instance::Step;
use meridian_protocol::gryff::{Gryff, Message};
use meridian_protocol::machine::{Completion, Outcome};
use meridian_protocol::object::{Answer, Reply};
use meridian_protocol::registry::Settings;
use meridian_protocol::topology::{Address, Region, ReplicaId};
use meridian_sim::Plan;
use meridian_sim::script::{Rule, Script, Setting, from_region, to_region};
use meridian_sim::world::Envelope;

/// What came of a schedule: nothing wrong, or what.
pub(crate) type Played = Result<(), String>;

pub(crate) type Sent = Envelope<Message>;

/// First phases go to all, and nothing is sent again for a long time: the schedule alone says who hears what.
pub(crate) fn explicit(settings: &Settings) -> Settings {
    Settings { retry: 60_000_000, operation_timeout: 600_000_000, thrifty: false, ..settings.clone() }
}

pub(crate) fn set(value: &str) -> Plan {
    Plan::Set(value.to_string())
}

pub(crate) fn append(piece: &str) -> Plan {
    Plan::Append(piece.to_string())
}

pub(crate) fn about(sent: &Sent, wanted: &str) -> bool {
    let key = match &sent.message {
        Message::Read { key, .. }
        | Message::Read1 { key, .. }
        | Message::Write1 { key, .. }
        | Message::Rmw { key, .. } => key,
        Message::Read2 { keyed, .. } | Message::Write2 { keyed, .. } => &keyed.key,
        _ => return false,
    };
    key == wanted.as_bytes()
}

pub(crate) fn is_write2(sent: &Sent) -> bool {
    matches!(sent.message, Message::Write2 { .. })
}

pub(crate) fn is_read2(sent: &Sent) -> bool {
    matches!(sent.message, Message::Read2 { .. })
}

/// Keeps replicas from comparing what they hold: a schedule would otherwise heal by itself.
pub(crate) fn no_comparison(script: &mut Script<Gryff>) {
    script.lose(|m| matches!(m.message, Message::Comparison(_) | Message::KeyState { .. }));
}

pub(crate) fn judged(script: &Script<Gryff>, model: Model) -> Played {
    let judgement = script.judge(model);
    if judgement.verdict == Verdict::Holds { Ok(()) } else { Err(judgement.reason) }
}

pub(crate) fn text(completion: &Completion) -> Option<String> {
    match &completion.outcome {
        Outcome::Answer(Answer::One(Reply::Bulk(bytes))) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Outcome::Answer(Answer::One(Reply::Nil)) => None,
        other => panic!("no answer to a read: {other:?}"),
    }
}

/// A read that returns a value which only one replica and its own proxy hold, and a later read that asks three
/// others.
pub(crate) fn read_without_write_back(engine: Gryff) -> Played {
    let mut script = Script::new(engine, Setting::equidistant(5, 100));
    no_comparison(&mut script);
    let (writer, first, second) = (script.session(0), script.session(4), script.session(1));
    // Of region 4 the nearest are 0 and 1, of region 1 they are 2 and 3.
    let slow = script.hold(|m| is_write2(m) && !to_region(m, 0) || is_read2(m));
    let write = script.begin(writer, "x", &set("new"));
    script.run_for(300_000);
    let read = script.begin(first, "x", &Plan::Get);
    script.run_for(400_000);
    let answered_without_a_quorum = script.outcome(read).is_some();
    script.run(second, "x", &Plan::Get);
    script.release(slow);
    script.finish(write);
    script.finish(read);
    judged(&script, Model::Linearizable)?;
    if answered_without_a_quorum {
        Err("the read answered before a quorum held its value".into())
    } else {
        Ok(())
    }
}

/// A session reads what one replica and its proxy hold, then writes another key; another session sees that write
/// and then misses what came before it.
pub(crate) fn dependency_dropped(engine: Gryff) -> Played {
    let mut script = Script::new(engine, Setting::equidistant(5, 100));
    no_comparison(&mut script);
    let (writer, reader, observer) = (script.session(0), script.session(4), script.session(1));
    let slow = script.hold(|m| about(m, "x") && (is_write2(m) && !to_region(m, 0) || is_read2(m)));
    let write = script.begin(writer, "x", &set("1"));
    script.run_for(300_000);
    let seen = script.run(reader, "x", &Plan::Get);
    assert_eq!(text(&seen).as_deref(), Some("1"), "the schedule lets the reader see the write");
    let follows = script.begin(reader, "y", &set("2"));
    script.run_for(1_000_000);
    let waited = script.outcome(follows).is_none();
    if waited {
        script.release(slow);
        script.finish(follows);
    }
    let later = script.run(observer, "y", &Plan::Get);
    assert_eq!(text(&later).as_deref(), Some("2"));
    script.run(observer, "x", &Plan::Get);
    if !waited {
        script.release(slow);
    }
    script.finish(write);
    judged(&script, Model::Rsc)
}

/// Where the regions of a ZIGZAG schedule are.
pub(crate) struct Zigzag {
    /// How many there are.
    pub(crate) regions: u8,
    /// p2's own.
    pub(crate) p2: u8,
    /// Those that handle p2's operation on y last: together with p2's own a quorum.
    pub(crate) late: &'static [u8],
    /// Whether p2's operation on y is a write instead of a read.
    pub(crate) write: bool,
}

/// c (of x) is on region 0 alone; p2 has read it, and its next operation, on y, takes c along. p2's own region
/// is sampled first. Then y=1 is written, not to the late regions, and x=w, with c's timestamp and a smaller id,
/// to none that hold c. Only then the late regions handle p2's operation, adopt c, and know nothing of y=1.
pub(crate) fn zigzag(engine: Gryff, zigzag: &Zigzag) -> Played {
    let Zigzag { regions, p2: own, late, write } = *zigzag;
    let mut script = Script::new(engine, Setting::equidistant(regions, 100));
    no_comparison(&mut script);
    // Ids grow with the region and then with the session: w's is below c's, and p2's below that of y=1.
    let w = script.session(0);
    let c = script.session(0);
    let p2 = script.session(own);
    let y = script.session(2);
    let (p5, p6) = (script.session(late[0]), script.session(2));
    let [c_at, p2_at, w_at, y_at] = [c, p2, w, y].map(|session| script.address(session));
    let from_p2 = move |m: &Sent| m.from == p2_at || from_region(m, own);

    let c_slow = script.hold(move |m| m.from == c_at && is_write2(m) && !to_region(m, 0));
    let c_write = script.begin(c, "x", &set("c"));
    script.run_for(150_000);
    let elsewhere =
        script.lose(move |m| from_p2(m) && about(m, "x") && late.iter().any(|r| to_region(m, *r)));
    let settling = script.hold(move |m| from_p2(m) && is_read2(m));
    let seen = script.run(p2, "x", &Plan::Get);
    script.end_rule(elsewhere);
    assert_eq!(text(&seen).as_deref(), Some("c"), "the schedule lets p2 read c");

    let p2_slow = script.hold(move |m| from_p2(m) && about(m, "y") && !to_region(m, own));
    let operation = script.begin(p2, "y", &if write { set("2") } else { Plan::Get });
    script.run_for(10_000);

    let y_away = script.lose(move |m| m.from == y_at && late.iter().any(|region| to_region(m, *region)));
    script.run(y, "y", &set("1"));
    let w_away = script.lose(move |m| m.from == w_at && (to_region(m, 0) || to_region(m, own)));
    script.run(w, "x", &set("w"));
    script.end_rule(y_away);
    script.end_rule(w_away);

    script.deliver(p2_slow, |m| late.iter().any(|region| to_region(m, *region)));
    script.run_for(110_000);
    script.release(settling);
    script.release(p2_slow);
    script.finish(operation);
    script.release(c_slow);
    script.finish(c_write);
    script.run(p5, "x", &Plan::Get);
    script.run(p6, "y", &Plan::Get);
    judged(&script, Model::Rsc)
}

/// The coordinator executes an rmw; the others have not heard of its commit. A read that they serve comes later.
pub(crate) fn one_execution(engine: Gryff) -> Played {
    let mut script = Script::new(engine, Setting::equidistant(3, 100));
    no_comparison(&mut script);
    let (p1, p2) = (script.session(0), script.session(1));
    let commits = script.hold(is_commit);
    let rmw = script.begin(p1, "x", &append("a"));
    script.run_for(400_000);
    let answered = script.outcome(rmw).is_some();
    script.run(p2, "x", &Plan::Get);
    script.release(commits);
    script.finish(rmw);
    judged(&script, Model::Linearizable)?;
    if answered {
        Err("the rmw answered although no other replica can have executed it".into())
    } else {
        Ok(())
    }
}

/// Two writes with one timestamp; an rmw follows the lower one before the higher one arrives.
pub(crate) fn rmw_between_two_writes(engine: Gryff) -> Played {
    let mut script = Script::new(engine, Setting::equidistant(3, 100));
    no_comparison(&mut script);
    let (low, high, p3) = (script.session(0), script.session(2), script.session(1));
    let high_at = script.address(high);
    let slow = script.hold(move |m| m.from == high_at && is_write2(m));
    let second = script.begin(high, "x", &set("high"));
    script.run(low, "x", &set("low"));
    script.run(low, "x", &append(".rmw"));
    script.run_for(200_000);
    script.release(slow);
    script.finish(second);
    script.run(p3, "x", &Plan::Get);
    judged(&script, Model::Linearizable)?;
    script.agree()
}

/// A client has two writes of one key in flight; both have asked for carstamps before either has told its own.
pub(crate) fn two_writes_in_flight(engine: Gryff) -> Played {
    let mut script = Script::new(engine, Setting::equidistant(3, 100));
    let (p1, p2) = (script.session(0), script.session(1));
    let slow = script.hold(is_write2);
    let writes = ["a", "b"].map(|value| script.begin(p1, "x", &set(value)));
    script.run_for(400_000);
    script.release(slow);
    for write in writes {
        script.finish(write);
    }
    script.run(p2, "x", &Plan::Get);
    judged(&script, Model::Linearizable)?;
    script.agree()
}

/// A write is given up after its second phase has reached one replica; the client's next write asks the others.
pub(crate) fn write_after_one_given_up(engine: Gryff) -> Played {
    let mut script = Script::new(engine, Setting::equidistant(3, 100));
    no_comparison(&mut script);
    let (p1, p2) = (script.session(0), script.session(1));
    let lost = script.lose(|m| is_write2(m) && !to_region(m, 1));
    let first = script.begin(p1, "x", &set("a"));
    assert_eq!(script.finish(first).outcome, Outcome::LATE, "no quorum has its second phase");
    script.end_rule(lost);
    let away = script.lose(|m| matches!(m.message, Message::Write1 { .. }) && to_region(m, 1));
    script.run(p1, "x", &set("b"));
    script.end_rule(away);
    script.run(p2, "x", &Plan::Get);
    judged(&script, Model::Linearizable)?;
    script.agree()
}

/// Gryff's fast quorum of 3 in 5 cannot recover the base. The rmw's coordinator is region 0; a write that ended
/// before it began is on 2, 3 and 4. 1 pre-accepts the old base, 2 answers the new one, then 0 and 2 crash. Who
/// is left must not finish the rmw with the old base.
pub(crate) fn base_of_a_lost_coordinator(engine: Gryff) -> Played {
    let mut script = Script::new(engine, Setting::equidistant(5, 100));
    no_comparison(&mut script);
    let (writer, client, reader) = (script.session(3), script.session(4), script.session(3));
    let client_at = script.address(client);
    script.run(writer, "x", &set("old"));
    script.run_for(1_000_000);
    let away = script.lose(|m| is_write2(m) && (to_region(m, 0) || to_region(m, 1)));
    script.run(writer, "x", &set("new"));
    script.end_rule(away);

    let asked = script.hold(move |m| m.from == client_at && matches!(m.message, Message::Rmw { .. }));
    let unheard = script.lose(|m| {
        matches!(step_of(m), Some(Step::PreAccept { .. }))
            && from_region(m, 0)
            && (to_region(m, 3) || to_region(m, 4))
            || matches!(step_of(m), Some(Step::PreAcceptReply { .. })) && to_region(m, 0)
    });
    let rmw = script.begin(client, "x", &append(".rmw"));
    let request = script.held(asked).remove(0);
    script.inject(redirected(&request, 0));
    script.run_for(70_000);
    script.crash(0);
    script.crash(2);
    script.notice_regions();
    script.end_rule(unheard);
    // Regions 3 and 4 hear of the instance by its recovery.
    script.run_for(8_000_000);
    script.release(asked);
    script.finish(rmw);
    script.run(reader, "x", &Plan::Get);
    judged(&script, Model::Linearizable)
}

/// An outcome of an instance is accepted at a low ballot by one replica alone, another outcome at a higher ballot
/// by a majority. A third recovery hears of both, and must keep the second. With one ballot an instance, to
/// answer the recovery makes the first look as fresh as the second.
pub(crate) fn two_outcomes_at_two_ballots(engine: Gryff) -> Played {
    let mut script = Script::new(engine, Setting::equidistant(3, 10));
    no_comparison(&mut script);
    let (client, reader) = (script.session(0), script.session(1));
    let between = script.hold(is_consensus);
    let rmw = script.begin(client, "x", &append("a"));
    // 2 hears of the proposal, its partner 1 does not.
    await_held(&mut script, between, |m| is_pre_accept(m) && to_region(m, 2));
    script.deliver(between, |m| is_pre_accept(m) && to_region(m, 2));

    // 2 recovers it with 1 and accepts what it knows: at ballot 1, alone.
    let recover =
        |from: u8, to: u8| move |m: &Sent| is_recover(m) && from_region(m, from) && to_region(m, to);
    let reply = |from: u8, to: u8| {
        move |m: &Sent| {
            matches!(step_of(m), Some(Step::RecoverReply { .. })) && from_region(m, from) && to_region(m, to)
        }
    };
    exchange(&mut script, between, recover(2, 1), reply(1, 2));
    // 1 recovers it with 0. The coordinator has promised without having committed: nothing may be done. Both
    // accept that, and 1 does not hear of 0's acceptance yet.
    script.discard(between, |m| !is_recover(m));
    exchange(&mut script, between, recover(1, 0), reply(0, 1));
    await_held(&mut script, between, |m| is_accept(m) && from_region(m, 1) && to_region(m, 0));
    script.deliver(between, |m| is_accept(m) && from_region(m, 1) && to_region(m, 0));
    script.run_for(6_000);
    let accepted = |m: &Sent| {
        matches!(step_of(m), Some(Step::AcceptReply { .. })) && from_region(m, 0) && to_region(m, 1)
    };
    await_held(&mut script, between, accepted);
    // 2 recovers it again, with 0, to the end: with the last of its attempts.
    let again = script.held(between).into_iter().rfind(recover(2, 0));
    let again = again.expect("2 tries again and again while nothing is decided");
    script.discard(between, |m| !accepted(m) && *m != again);
    exchange(&mut script, between, recover(2, 0), reply(0, 2));
    await_held(&mut script, between, |m| is_accept(m) && from_region(m, 2) && to_region(m, 0));
    script.deliver(between, |m| is_accept(m) && from_region(m, 2) && to_region(m, 0));
    script.run_for(6_000);
    script.deliver(between, |m| matches!(step_of(m), Some(Step::AcceptReply { .. })) && to_region(m, 2));
    script.run_for(6_000);
    // Now 1 hears that its outcome was accepted.
    script.deliver(between, accepted);
    script.run_for(6_000);
    let committed: Vec<bool> = script
        .sent(|m| matches!(step_of(m), Some(Step::Commit { .. })))
        .iter()
        .filter_map(|m| match &m.message {
            Message::Instance { id, step: Step::Commit { proposal }, .. } => {
                (id.index == 1 && id.row.0 == 0).then_some(proposal.command.is_some())
            }
            _ => None,
        })
        .collect();
    assert!(!committed.is_empty(), "the schedule leads to a commit");
    if committed.contains(&true) && committed.contains(&false) {
        return Err("one instance was committed with two outcomes".into());
    }
    script.release(between);
    script.finish(rmw);
    script.run(reader, "x", &Plan::Get);
    judged(&script, Model::Linearizable)?;
    script.agree()
}

pub(crate) fn is_pre_accept(m: &Sent) -> bool {
    matches!(step_of(m), Some(Step::PreAccept { .. }))
}

pub(crate) fn is_commit(m: &Sent) -> bool {
    matches!(step_of(m), Some(Step::Commit { .. } | Step::Final))
}

pub(crate) fn is_accept(m: &Sent) -> bool {
    matches!(step_of(m), Some(Step::Accept { .. }))
}

fn is_recover(m: &Sent) -> bool {
    matches!(step_of(m), Some(Step::Recover { .. }))
}

pub(crate) fn is_consensus(m: &Sent) -> bool {
    matches!(m.message, Message::Instance { .. } | Message::Executed { .. })
}

/// The step of an instance that a message tells.
pub(crate) fn step_of(m: &Sent) -> Option<&Step> {
    if let Message::Instance { step, .. } = &m.message { Some(step) } else { None }
}

/// Lets time pass until a rule holds a message of which `fits` is true.
pub(crate) fn await_held(script: &mut Script<Gryff>, rule: Rule, fits: impl Fn(&Sent) -> bool) {
    for _ in 0..1_000 {
        if script.held(rule).iter().any(&fits) {
            return;
        }
        script.run_for(10_000);
    }
    panic!("the schedule waits for a message that never comes; held: {:?}", script.held(rule));
}

/// Delivers the question as soon as it is asked, and its answer.
fn exchange(
    script: &mut Script<Gryff>,
    rule: Rule,
    question: impl Fn(&Sent) -> bool,
    answer: impl Fn(&Sent) -> bool,
) {
    await_held(script, rule, &question);
    script.deliver(rule, &question);
    await_held(script, rule, &answer);
    script.deliver(rule, &answer);
    script.run_for(1_000);
}

/// The same message to another region's replica.
pub(crate) fn redirected(sent: &Sent, region: u8) -> Sent {
    let Address::Replica(id) = sent.to else { panic!("{sent:?} goes to no replica") };
    Envelope { to: Address::Replica(ReplicaId { region: Region(region), ..id }), ..sent.clone() }
}
