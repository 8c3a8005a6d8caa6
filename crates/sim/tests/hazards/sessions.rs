//! What Gryff-RSC keeps between the operations of a session.

use crate::schedules::{
    self, Zigzag, about, append, explicit, is_read2, is_write2, judged, no_comparison, set, text,
};
use crate::{gryff, rsc};
use meridian_check::Model;
use meridian_protocol::gryff::Gryff;
use meridian_protocol::machine::Outcome;
use meridian_protocol::registry::Settings;
use meridian_sim::Plan;
use meridian_sim::script::{Operation, Script, Session, Setting, from_region, to_region};

#[test]
fn a_session_settles_what_it_has_read_before_it_goes_on() {
    schedules::dependency_dropped(rsc()).unwrap();
}

#[test]
fn zigzag_is_impossible() {
    for write in [false, true] {
        let clients = explicit(&Settings { read_proxy: false, ..Settings::default() });
        schedules::zigzag(Gryff::rsc(clients), &Zigzag { regions: 3, p2: 0, late: &[1], write }).unwrap();
        let proxies = explicit(&Settings::default());
        schedules::zigzag(Gryff::rsc(proxies), &Zigzag { regions: 5, p2: 1, late: &[3, 4], write }).unwrap();
    }
}

/// The lab switch for the published rule is no planted bug: it is in every build, and is what it says it is.
#[test]
fn the_published_rule_is_not_rsc() {
    let settings = explicit(&Settings { read_proxy: false, rsc_as_published: true, ..Settings::default() });
    let played =
        schedules::zigzag(Gryff::rsc(settings), &Zigzag { regions: 3, p2: 0, late: &[1], write: false });
    assert!(played.is_err(), "the published piggyback lets ZIGZAG-R through");
}

/// Five regions, and x=1 on region 0 alone; the session in region 4 has read it.
fn unsettled_read(engine: Gryff) -> (Script<Gryff>, Session, Operation) {
    let mut script = Script::new(engine, Setting::equidistant(5, 100));
    no_comparison(&mut script);
    let (writer, reader) = (script.session(0), script.session(4));
    script.lose(|m| is_write2(m) && about(m, "x") && !to_region(m, 0));
    script.begin(writer, "x", &set("1"));
    script.run_for(150_000);
    let read = script.begin(reader, "x", &Plan::Get);
    (script, reader, read)
}

#[test]
fn a_read_answers_after_one_round_and_the_next_operation_pays_for_settling() {
    for plan in [Plan::Get, set("2"), append("2"), Plan::Fence] {
        let (mut script, reader, read) = unsettled_read(rsc());
        let completion = script.finish(read);
        assert_eq!(text(&completion).as_deref(), Some("1"));
        assert_eq!((completion.cost.rounds, script.latency(read)), (1, Some(100_000)));
        let alone = match plan {
            Plan::Get => 100_000,
            Plan::Fence => 0,
            _ => 200_000,
        };
        let next = script.begin(reader, "y", &plan);
        let cost = script.finish(next).cost;
        assert_eq!(script.latency(next), Some(100_000 + alone), "{plan:?} waits for one round trip");
        assert_eq!(cost.waited, 100_000, "and says so");
        judged(&script, Model::Rsc).unwrap();
    }
}

#[test]
fn after_a_round_trip_of_thinking_nothing_is_left_to_wait_for() {
    let (mut script, reader, read) = unsettled_read(rsc());
    script.finish(read);
    script.run_for(100_001);
    let next = script.begin(reader, "y", &Plan::Get);
    assert_eq!(script.finish(next).cost.waited, 0);
}

#[test]
fn after_a_read_that_all_agree_on_nothing_waits() {
    let mut script = Script::new(rsc(), Setting::equidistant(5, 100));
    let session = script.session(0);
    script.run(session, "x", &set("1"));
    script.run_for(200_000);
    script.run(session, "x", &Plan::Get);
    let next = script.begin(session, "y", &set("2"));
    assert_eq!(script.finish(next).cost.waited, 0);
}

/// While what was read cannot be settled the session does not go on; it says that it did nothing, and to try again.
#[test]
fn what_cannot_be_settled_holds_the_session_up_and_nothing_is_done() {
    let (mut script, reader, read) = unsettled_read(rsc());
    let cut = script.lose(|m| is_read2(m) && from_region(m, 4) || is_read2(m) && !to_region(m, 4));
    script.finish(read);
    let next = script.begin(reader, "y", &set("2"));
    let completion = script.finish(next);
    assert!(matches!(completion.outcome, Outcome::Aborted(_)), "{completion:?}");
    assert!(script.sent(|m| about(m, "y")).is_empty(), "nothing was sent for it");
    // It is not forgotten either.
    let fence = script.begin(reader, "", &Plan::Fence);
    script.run_for(3_000_000);
    assert_eq!(script.outcome(fence), None);
    script.end_rule(cut);
    assert_eq!(script.finish(fence).outcome, Outcome::Fenced);
    judged(&script, Model::Rsc).unwrap();
}

/// Two reads of one key in flight: the older one's end must not clear what the newer one has seen.
#[test]
fn a_read_does_not_clear_what_another_of_the_same_key_has_seen() {
    let mut script = Script::new(rsc(), Setting::equidistant(5, 100));
    no_comparison(&mut script);
    let (writer, reader, observer) = (script.session(0), script.session(4), script.session(1));
    script.lose(|m| is_write2(m) && about(m, "x") && !to_region(m, 0));
    let settling = script.hold(is_read2);
    let old = script.begin(reader, "x", &Plan::Get);
    script.run_for(20_000);
    script.begin(writer, "x", &set("1"));
    let new = script.begin(reader, "x", &Plan::Get);
    script.finish(old);
    script.finish(new);
    let newest = script.begin(reader, "x", &Plan::Get);
    script.run_for(500_000);
    script.release(settling);
    script.finish(newest);
    script.run(reader, "y", &set("2"));
    script.run(observer, "y", &Plan::Get);
    script.run(observer, "x", &Plan::Get);
    judged(&script, Model::Rsc).unwrap();
}

/// AQS, Gryff's appendix C: the rmw between two writes is ordered before the second, and all see that.
#[test]
fn an_rmw_that_missed_a_concurrent_write_comes_before_it() {
    let mut script = Script::new(gryff(), Setting::equidistant(3, 100));
    no_comparison(&mut script);
    let (p1, p2, p3, p4) = (script.session(0), script.session(1), script.session(2), script.session(0));
    script.run(p1, "x", &set("1"));
    script.run_for(200_000);
    let late = script.address(p2);
    let slow = script.hold(move |m| m.from == late && is_write2(m));
    let write = script.begin(p2, "x", &set("2"));
    script.run_for(120_000);
    let rmw = script.begin(p3, "x", &Plan::Swap("3".to_string()));
    script.finish(rmw);
    script.release(slow);
    script.finish(write);
    assert_eq!(text(&script.run(p4, "x", &Plan::Get)).as_deref(), Some("2"));
    judged(&script, Model::Linearizable).unwrap();
}
