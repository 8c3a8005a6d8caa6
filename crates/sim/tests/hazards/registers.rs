//! Reads, writes and their carstamps.

use crate::gryff;
use crate::schedules::{
    self, about, append, is_read2, is_write2, judged, no_comparison, set, text, two_writes_in_flight,
    write_after_one_given_up,
};
use meridian_check::{Model, Verdict};
use meridian_protocol::gryff::Message;
use meridian_protocol::machine::Outcome;
use meridian_sim::Plan;
use meridian_sim::script::{Script, Setting, from_region, to_region};
use std::cell::Cell;

#[test]
fn a_read_writes_back_what_no_quorum_is_known_to_hold() {
    schedules::read_without_write_back(gryff()).unwrap();
}

#[test]
fn two_writes_of_one_client_never_share_a_carstamp() {
    two_writes_in_flight(gryff()).unwrap();
    write_after_one_given_up(gryff()).unwrap();
}

#[test]
fn a_write_of_equal_timestamp_and_higher_id_comes_after_the_rmws_of_the_lower() {
    schedules::rmw_between_two_writes(gryff()).unwrap();
}

/// A write whose second phase got lost is sent again as the same version, never as another.
#[test]
fn a_write_is_sent_again_as_it_was() {
    let mut script = Script::new(gryff(), Setting::equidistant(3, 100));
    no_comparison(&mut script);
    let (p1, p2, p3) = (script.session(0), script.session(1), script.session(2));
    let lost = script.lose(|m| is_write2(m) && !to_region(m, 1));
    let write = script.begin(p1, "x", &set("1"));
    script.run_for(300_000);
    script.run(p2, "x", &Plan::Get);
    let other = script.address(p3);
    script.end_rule(lost);
    let still_lost = script.lose(move |m| is_write2(m) && m.from != other && !to_region(m, 1));
    script.run(p3, "x", &set("2"));
    script.run_for(1_000_000);
    script.end_rule(still_lost);
    script.finish(write);
    script.run(p2, "x", &Plan::Get);
    let first = script.address(p1);
    let versions = script.sent(|m| is_write2(m) && m.from == first);
    assert!(versions.len() > 3, "it was sent again");
    assert!(versions.iter().all(|m| m.message == versions[0].message), "{versions:?}");
    judged(&script, Model::Linearizable).unwrap();
    script.agree().unwrap();
}

/// The proxy's vote is what it held at the start. A write that reaches it meanwhile is not its answer, and makes
/// no second round.
#[test]
fn a_proxy_votes_with_what_it_held_when_the_read_began() {
    let mut script = Script::new(gryff(), Setting::equidistant(3, 100));
    no_comparison(&mut script);
    let (writer, reader, later) = (script.session(1), script.session(0), script.session(2));
    script.run(writer, "x", &set("old"));
    script.run_for(200_000);
    let only_the_proxy = script.lose(|m| is_write2(m) && !to_region(m, 0));
    let write = script.begin(writer, "x", &set("new"));
    script.run_for(120_000);
    let read = script.begin(reader, "x", &Plan::Get);
    script.run_for(40_000);
    // The write's second phase arrives at the proxy now, half a round trip after its first ended.
    let completion = script.finish(read);
    assert_eq!(text(&completion).as_deref(), Some("old"));
    assert_eq!((completion.cost.rounds, script.latency(read)), (1, Some(100_000)));
    script.run(later, "x", &Plan::Get);
    script.end_rule(only_the_proxy);
    script.finish(write);
    judged(&script, Model::Linearizable).unwrap();
}

/// Equal values are not equal versions: unanimity is judged by carstamps.
#[test]
fn equal_values_of_two_writes_are_two_versions() {
    let mut script = Script::new(gryff(), Setting::equidistant(5, 100));
    no_comparison(&mut script);
    let (writer, reader) = (script.session(0), script.session(4));
    script.run(writer, "x", &set("same"));
    script.run_for(200_000);
    let slow = script.lose(|m| is_write2(m) && !to_region(m, 0));
    script.begin(writer, "x", &set("same"));
    script.run_for(200_000);
    let completion = script.run(reader, "x", &Plan::Get);
    assert_eq!(completion.cost.rounds, 2, "the newer version is on region 0 and the proxy only");
    script.end_rule(slow);
}

/// Answers that come thrice are one answer: with two of five replicas nothing is decided.
#[test]
fn doubled_answers_make_no_quorum() {
    for plan in [Plan::Get, set("1"), append("1")] {
        for read_proxy in [true, false] {
            let settings = meridian_protocol::registry::Settings { read_proxy, ..Default::default() };
            let engine = meridian_protocol::gryff::Gryff::linearizable(settings);
            let mut script = Script::new(engine, Setting::equidistant(5, 100));
            let session = script.session(0);
            script.lose(|m| (2..5).any(|region| to_region(m, region)));
            let replies = script.hold(|m| from_region(m, 1));
            let operation = script.begin(session, "x", &plan);
            for _ in 0..40 {
                script.run_for(100_000);
                for reply in script.held(replies) {
                    script.inject(reply.clone());
                    script.inject(reply.clone());
                    script.inject(reply);
                }
                script.discard(replies, |_| true);
            }
            assert_eq!(script.outcome(operation), None, "{plan:?}: two of five are no quorum");
        }
    }
}

#[test]
fn a_key_never_written_reads_as_absent_while_its_first_write_is_under_way() {
    let mut script = Script::new(gryff(), Setting::equidistant(5, 100));
    no_comparison(&mut script);
    let (writer, p2, p3) = (script.session(0), script.session(2), script.session(4));
    assert_eq!(text(&script.run(p2, "x", &Plan::Get)), None);
    let slow = script.hold(|m| is_write2(m) && !to_region(m, 0));
    let write = script.begin(writer, "x", &set("first"));
    script.run_for(150_000);
    // Region 2 asks 3 and 4, region 4 asks 0 and 1.
    assert_eq!(text(&script.run(p2, "x", &Plan::Get)), None);
    assert_eq!(text(&script.run(p3, "x", &Plan::Get)).as_deref(), Some("first"));
    assert_eq!(text(&script.run(p2, "x", &Plan::Get)).as_deref(), Some("first"));
    script.release(slow);
    script.finish(write);
    judged(&script, Model::Linearizable).unwrap();
}

/// Values of a megabyte are read back byte for byte, by proxies that lent them and by those that did not.
#[test]
fn large_values_come_back_whole() {
    let mut script = Script::new(gryff(), Setting::equidistant(3, 100));
    let sessions = [0, 1, 2].map(|region| script.session(region));
    let large: String = (0..1_048_576).map(|i| char::from(b'a' + (i * 7 % 26) as u8)).collect();
    let away = script.lose(|m| is_write2(m) && to_region(m, 2));
    script.run(sessions[0], "x", &set(&large));
    script.end_rule(away);
    for session in sessions {
        assert_eq!(text(&script.run(session, "x", &Plan::Get)).as_deref(), Some(large.as_str()));
    }
}

/// Thrifty sends go to a quorum; a replica of it that does not answer is replaced after a while.
#[test]
fn a_silent_replica_of_the_nearest_quorum_is_replaced() {
    for plan in [Plan::Get, set("1"), append("1")] {
        let mut script = Script::new(gryff(), Setting::regions(5));
        let session = script.session(0);
        let nearest = 3; // Oregon is California's neighbour.
        script.lose(move |m| to_region(m, nearest));
        let operation = script.begin(session, "x", &plan);
        script.finish(operation);
        assert!(script.latency(operation) < Some(2_000_000), "{plan:?} took {:?}", script.latency(operation));
        assert_eq!(script.judge(Model::Linearizable).verdict, Verdict::Holds);
    }
}

/// A node whose own replica does not answer uses another region's: reads at once, rmws under their id, and a write
/// only as the version it was.
#[test]
fn a_node_without_its_own_replica_uses_anothers() {
    let mut script = Script::new(gryff(), Setting::equidistant(3, 100));
    let session = script.session(0);
    script.lose(|m| to_region(m, 0));
    for plan in [set("1"), Plan::Get, append("2"), Plan::Get] {
        let completion = script.run(session, "x", &plan);
        assert!(matches!(completion.outcome, Outcome::Answer(_)), "{plan:?}: {completion:?}");
    }
    judged(&script, Model::Linearizable).unwrap();
}

/// A replica crashes after it has shown a version in an answer: it still has it when it is back.
#[test]
fn what_a_replica_has_shown_survives_its_crash() {
    let mut script = Script::new(gryff(), Setting::equidistant(3, 100));
    no_comparison(&mut script);
    let (writer, reader, later) = (script.session(0), script.session(1), script.session(2));
    // The write reaches region 1 alone; region 1 lends it to region 2, which adopts it and answers.
    let slow = script.lose(|m| is_write2(m) && !to_region(m, 1));
    script.begin(writer, "x", &set("1"));
    script.run_for(160_000);
    let seen = script.run(reader, "x", &Plan::Get);
    assert_eq!(text(&seen).as_deref(), Some("1"));
    script.crash(1);
    script.crash(2);
    script.restart(1);
    script.restart(2);
    let again = script.session(2);
    let _ = later;
    script.lose(|m| to_region(m, 1));
    assert_eq!(text(&script.run(again, "x", &Plan::Get)).as_deref(), Some("1"), "region 2 had adopted it");
    script.end_rule(slow);
}

/// Late answers and write-backs of a read that has ended change nothing.
#[test]
fn answers_that_come_after_the_end_are_harmless() {
    let mut script = Script::new(gryff(), Setting::equidistant(5, 100));
    let (writer, reader) = (script.session(0), script.session(2));
    script.run(writer, "x", &set("1"));
    let count = Cell::new(0);
    let late = script.hold(move |m| {
        count.set(count.get() + 1);
        matches!(m.message, Message::Read1Reply { .. } | Message::Write2Reply { .. }) && count.get() % 2 == 0
    });
    for value in ["2", "3", "4"] {
        let write = script.begin(writer, "x", &set(value));
        let read = script.begin(reader, "x", &Plan::Get);
        script.finish(write);
        script.finish(read);
    }
    script.release(late);
    script.run(reader, "x", &Plan::Get);
    assert!(script.sent(|m| is_read2(m) || about(m, "x")).len() > 10);
    judged(&script, Model::Linearizable).unwrap();
    script.agree().unwrap();
}

/// A listing asks f+1 replicas: what was written before it began, and not deleted, is in it, whoever missed it.
#[test]
fn a_listing_misses_nothing_that_a_quorum_holds() {
    let mut script = Script::new(gryff(), Setting::equidistant(3, 100));
    no_comparison(&mut script);
    let (writer, lister) = (script.session(0), script.session(2));
    let away = script.lose(|m| is_write2(m) && to_region(m, 2));
    for index in 0..25 {
        script.run(writer, &format!("key{index}"), &set("1"));
    }
    for index in 0..5 {
        script.run(writer, &format!("key{index}"), &Plan::Take);
    }
    script.end_rule(away);
    let mut keys = script.list(lister, 0);
    keys.sort_unstable();
    let mut expected: Vec<_> = (5..25).map(|index| format!("key{index}")).collect();
    expected.sort_unstable();
    assert_eq!(keys, expected);
}
