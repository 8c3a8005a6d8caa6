//! Read-modify-writes: recovery, retries, bases.

use crate::gryff;
use crate::schedules::{
    self, append, is_accept, is_commit, is_consensus, is_pre_accept, is_write2, judged, no_comparison,
    redirected, set, text,
};
use meridian_check::Model;
use meridian_protocol::gryff::Message;
use meridian_protocol::gryff::instance::Step;
use meridian_protocol::machine::Outcome;
use meridian_protocol::object::{Answer, Reply};
use meridian_sim::Plan;
use meridian_sim::script::{Script, Setting, from_region, to_region};

#[test]
fn an_rmw_answers_when_a_quorum_has_executed_it() {
    schedules::one_execution(gryff()).unwrap();
}

#[test]
fn an_outcome_accepted_by_a_majority_outlives_an_older_one() {
    schedules::two_outcomes_at_two_ballots(gryff()).unwrap();
}

#[test]
fn the_base_of_a_lost_coordinator_is_not_trusted() {
    schedules::base_of_a_lost_coordinator(gryff()).unwrap();
}

/// A coordinator commits in one round, executes, and is gone before anybody hears of it. The others come to the
/// same outcome, and a retry elsewhere is answered with it: the operation takes effect once.
#[test]
fn a_fast_commit_that_nobody_heard_of_is_found_again() {
    for regions in [3, 5, 7] {
        let mut script = Script::new(gryff(), Setting::equidistant(regions, 100));
        let (client, reader) = (script.session(1), script.session(2));
        script.run(reader, "x", &set("base"));
        script.run_for(300_000);
        let at = script.address(client);
        let asked = script.hold(move |m| m.from == at && matches!(m.message, Message::Rmw { .. }));
        let unheard = script.lose(|m| from_region(m, 0) && is_commit(m));
        let rmw = script.begin(client, "x", &append(".once"));
        let request = script.held(asked).remove(0);
        script.inject(redirected(&request, 0));
        script.run_for(150_000);
        assert!(!script.sent(is_commit).is_empty(), "n={regions}: committed in one round");
        script.crash(0);
        script.end_rule(unheard);
        script.notice_regions();
        script.release(asked);
        script.finish(rmw);
        assert_eq!(text(&script.run(reader, "x", &Plan::Get)).as_deref(), Some("base.once"), "n={regions}");
        script.restart(0);
        script.agree().unwrap();
        judged(&script, Model::Linearizable).unwrap();
    }
}

/// The coordinator's commit has reached one replica; the client retries at the third.
#[test]
fn a_retry_at_another_coordinator_takes_effect_once() {
    let mut script = Script::new(gryff(), Setting::equidistant(3, 100));
    let (client, reader) = (script.session(2), script.session(1));
    let at = script.address(client);
    let asked = script.hold(move |m| m.from == at && matches!(m.message, Message::Rmw { .. }));
    let unheard = script.lose(|m| is_commit(m) && to_region(m, 2));
    let rmw = script.begin(client, "x", &append("a"));
    let request = script.held(asked).remove(0);
    script.inject(redirected(&request, 0));
    script.run_for(180_000);
    script.crash(0);
    script.end_rule(unheard);
    script.notice_regions();
    script.inject(redirected(&request, 1));
    script.inject(request);
    script.finish(rmw);
    script.restart(0);
    script.run_for(3_000_000);
    assert_eq!(text(&script.run(reader, "x", &Plan::Get)).as_deref(), Some("a"));
    judged(&script, Model::Linearizable).unwrap();
    script.agree().unwrap();
}

/// The coordinator dies between the executions of f and of f+1 replicas: the retry's coordinator counts anew.
#[test]
fn a_coordinator_that_dies_while_it_counts_executions_is_replaced() {
    let mut script = Script::new(gryff(), Setting::equidistant(5, 100));
    let (client, reader) = (script.session(4), script.session(2));
    let at = script.address(client);
    let asked = script.hold(move |m| m.from == at && matches!(m.message, Message::Rmw { .. }));
    script.lose(|m| matches!(m.message, Message::Executed { .. }) && to_region(m, 0) && !from_region(m, 1));
    let rmw = script.begin(client, "x", &append("a"));
    let request = script.held(asked).remove(0);
    script.inject(redirected(&request, 0));
    script.run_for(400_000);
    assert_eq!(script.outcome(rmw), None, "two of five have executed as far as the coordinator knows");
    script.crash(0);
    script.notice_regions();
    script.release(asked);
    script.finish(rmw);
    assert_eq!(text(&script.run(reader, "x", &Plan::Get)).as_deref(), Some("a"));
    judged(&script, Model::Linearizable).unwrap();
}

/// A slow coordinator's instance is finished by others as one that does nothing. Its operation gets another
/// instance and takes effect once.
#[test]
fn the_operation_of_a_given_up_instance_is_proposed_again() {
    let mut script = Script::new(gryff(), Setting::equidistant(3, 100));
    let (client, other) = (script.session(0), script.session(2));
    let slow = script.hold(|m| from_region(m, 0) && is_pre_accept(m) || to_region(m, 0) && is_consensus(m));
    let rmw = script.begin(client, "x", &append("a"));
    script.run_for(100_000);
    // The others learn that the instance exists, but never what it is: its pre-accept is delivered only after
    // they have promised another ballot.
    script.run_for(6_000_000);
    script.run(other, "x", &append("b"));
    script.release(slow);
    script.finish(rmw);
    let value = text(&script.run(other, "x", &Plan::Get)).unwrap();
    assert!(value == "ab" || value == "ba", "{value}: each of the two once");
    judged(&script, Model::Linearizable).unwrap();
    script.agree().unwrap();
}

/// A pre-accept that comes after a recovery has promised must change nothing.
#[test]
fn a_late_pre_accept_is_refused() {
    let mut script = Script::new(gryff(), Setting::equidistant(5, 100));
    let (client, other, reader) = (script.session(0), script.session(1), script.session(2));
    let late = script.hold(|m| is_pre_accept(m) && from_region(m, 0) && !to_region(m, 1));
    let rmw = script.begin(client, "x", &append("a"));
    script.run_for(100_000);
    script.crash(0);
    script.notice_regions();
    script.run_for(8_000_000);
    script.run(other, "x", &append("b"));
    let first = text(&script.run(reader, "x", &Plan::Get));
    script.release(late);
    script.run_for(2_000_000);
    assert_eq!(text(&script.run(reader, "x", &Plan::Get)), first, "what was decided stays");
    script.restart(0);
    script.run_for(5_000_000);
    assert_eq!(text(&script.run(reader, "x", &Plan::Get)), first);
    assert_eq!(script.outcome(rmw), None, "its client died with the coordinator");
    judged(&script, Model::Linearizable).unwrap();
    script.agree().unwrap();
}

/// Two rmws of one key whose pre-accepts cross: what a coordinator learns meanwhile is not what it proposed.
#[test]
fn crossing_proposals_come_in_one_order() {
    for regions in [3, 5] {
        let mut script = Script::new(gryff(), Setting::equidistant(regions, 100));
        let sessions: Vec<_> = (0..regions).map(|region| script.session(region)).collect();
        for round in 0..5 {
            let rmws: Vec<_> = sessions
                .iter()
                .enumerate()
                .map(|(index, session)| script.begin(*session, "x", &append(&format!("[{round}.{index}]"))))
                .collect();
            for rmw in rmws {
                script.finish(rmw);
            }
        }
        judged(&script, Model::Linearizable).unwrap();
        script.agree().unwrap();
    }
}

/// An instance of another key that is stuck holds up nothing.
#[test]
fn a_stuck_instance_of_another_key_holds_up_nothing() {
    let mut script = Script::new(gryff(), Setting::equidistant(3, 100));
    let (p1, p2) = (script.session(0), script.session(1));
    let stuck = script.hold(|m| match &m.message {
        Message::Instance { key, step, .. } => {
            let stuck = matches!(step, Step::PreAccept { .. } | Step::Recover { .. } | Step::Commit { .. });
            stuck && key == &b"y"[..]
        }
        _ => false,
    });
    let waits = script.begin(p1, "y", &append("a"));
    script.run_for(100_000);
    let goes = script.begin(p2, "x", &append("b"));
    script.finish(goes);
    assert_eq!(script.latency(goes), Some(200_000));
    assert_eq!(script.outcome(waits), None);
    script.release(stuck);
    script.finish(waits);
}

/// A pre-accept that got lost is sent again: thrifty or not.
#[test]
fn a_lost_pre_accept_is_made_good() {
    let mut script = Script::new(gryff(), Setting::equidistant(5, 100));
    let session = script.session(0);
    let lost = script.lose(is_pre_accept);
    let rmw = script.begin(session, "x", &append("a"));
    script.run_for(400_000);
    script.end_rule(lost);
    assert!(matches!(script.finish(rmw).outcome, Outcome::Answer(_)));
}

/// A commit that comes again, or late, changes nothing.
#[test]
fn commits_that_come_again_change_nothing() {
    let mut script = Script::new(gryff(), Setting::equidistant(3, 100));
    let (p1, p2) = (script.session(0), script.session(1));
    script.run(p1, "x", &append("a"));
    script.run(p2, "x", &append("b"));
    for commit in script.sent(is_commit) {
        script.inject(commit.clone());
        script.inject(commit);
    }
    for accept in script.sent(|m| is_accept(m) || is_pre_accept(m)) {
        script.inject(accept);
    }
    script.run_for(3_000_000);
    assert_eq!(text(&script.run(p1, "x", &Plan::Get)).as_deref(), Some("ab"));
    judged(&script, Model::Linearizable).unwrap();
    script.agree().unwrap();
}

/// A coordinator that crashes after its pre-accept was sent never gives the instance's number to another rmw.
#[test]
fn instance_numbers_survive_a_crash() {
    let mut script = Script::new(gryff(), Setting::equidistant(3, 100));
    let first = script.session(0);
    script.begin(first, "x", &append("a"));
    script.run_for(10_000);
    script.crash(0);
    script.restart(0);
    let second = script.session(0);
    script.run(second, "x", &append("b"));
    let mut of_operation = std::collections::BTreeMap::new();
    for m in script.sent(|m| is_pre_accept(m) && from_region(m, 0)) {
        let Message::Instance { id, step: Step::PreAccept { proposal, .. }, .. } = m.message else {
            continue;
        };
        let op = proposal.command.expect("an rmw is proposed").op;
        let earlier = of_operation.insert(id, op);
        assert!(earlier.is_none_or(|earlier| earlier == op), "{id:?} was given away twice");
    }
    assert!(of_operation.len() > 1, "two instances: {of_operation:?}");
    judged(&script, Model::Linearizable).unwrap();
    script.agree().unwrap();
}

/// The base's value is on the coordinator alone, which dies: the value travels with the rmw.
#[test]
fn the_value_of_a_base_travels_with_the_rmw() {
    let mut script = Script::new(gryff(), Setting::equidistant(3, 100));
    no_comparison(&mut script);
    let (writer, client, reader) = (script.session(0), script.session(1), script.session(2));
    script.lose(|m| is_write2(m) && !to_region(m, 0));
    script.begin(writer, "x", &set("base"));
    script.run_for(150_000);
    let at = script.address(client);
    let asked = script.hold(move |m| m.from == at && matches!(m.message, Message::Rmw { .. }));
    let rmw = script.begin(client, "x", &append(".rmw"));
    let request = script.held(asked).remove(0);
    script.inject(redirected(&request, 0));
    script.run_for(60_000);
    script.crash(0);
    script.notice_regions();
    script.release(asked);
    let completion = script.finish(rmw);
    let Outcome::Answer(Answer::Exec(Some(replies))) = completion.outcome else { panic!("{completion:?}") };
    assert_eq!(replies[0], Reply::Bulk("base".into()));
    assert_eq!(text(&script.run(reader, "x", &Plan::Get)).as_deref(), Some("base.rmw"));
    judged(&script, Model::Linearizable).unwrap();
}

/// Of two that create the key, one does.
#[test]
fn a_key_is_created_once() {
    let mut script = Script::new(gryff(), Setting::equidistant(3, 100));
    let (p1, p2) = (script.session(0), script.session(1));
    let creations = [(p1, "1"), (p2, "2")].map(|(p, v)| script.begin(p, "x", &Plan::Create(v.to_string())));
    let answers = creations.map(|creation| text(&script.finish(creation)));
    assert_eq!(answers.iter().filter(|answer| answer.is_none()).count(), 1, "{answers:?}: one found nothing");
    judged(&script, Model::Linearizable).unwrap();
}

/// Rmws of two keys, interleaved: each has its own result to go on from.
#[test]
fn rmws_of_two_keys_do_not_mix() {
    let mut script = Script::new(gryff(), Setting::equidistant(3, 100));
    let (p1, p2) = (script.session(0), script.session(1));
    for piece in ["a", "b", "c"] {
        let x = script.begin(p1, "x", &append(piece));
        let y = script.begin(p2, "y", &append(piece));
        script.finish(x);
        script.finish(y);
    }
    assert_eq!(text(&script.run(p1, "y", &Plan::Get)).as_deref(), Some("abc"));
    assert_eq!(text(&script.run(p2, "x", &Plan::Get)).as_deref(), Some("abc"));
}

/// A write of a much higher timestamp overtakes an rmw before it is executed: the rmw changes no register, and is
/// answered all the same.
#[test]
fn an_rmw_that_is_overtaken_is_answered() {
    let mut script = Script::new(gryff(), Setting::equidistant(3, 100));
    let (p1, p2) = (script.session(0), script.session(1));
    let commits = script.hold(is_commit);
    let rmw = script.begin(p1, "x", &append("a"));
    script.run_for(120_000);
    for value in ["1", "2", "3"] {
        script.run(p2, "x", &set(value));
    }
    script.release(commits);
    assert!(matches!(script.finish(rmw).outcome, Outcome::Answer(_)));
    assert_eq!(text(&script.run(p1, "x", &Plan::Get)).as_deref(), Some("3"));
    judged(&script, Model::Linearizable).unwrap();
    script.agree().unwrap();
}

/// A replica that was away for long comes back to what the others hold, and needs none of their log for it.
#[test]
fn a_replica_that_was_away_for_long_catches_up() {
    let mut script = Script::new(gryff(), Setting::equidistant(3, 10));
    let session = script.session(0);
    script.crash(2);
    script.notice_regions();
    for index in 0..200 {
        script.run(session, ["x", "y"][index % 2], &append("a"));
    }
    script.restart(2);
    script.notice_regions();
    script.agree().unwrap();
    let back = script.session(2);
    assert_eq!(text(&script.run(back, "x", &Plan::Get)).map(|value| value.len()), Some(100));
    let group = script.world().shape().group();
    for region in 0..3 {
        let status = script.world().status(group.replica(0, meridian_protocol::topology::Region(region)));
        assert_eq!(status.map(|status| status.open_instances), Some(0), "region {region} keeps no instance");
    }
    judged(&script, Model::Linearizable).unwrap();
}
