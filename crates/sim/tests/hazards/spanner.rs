//! Spanner, Spanner-RSS and what they promise of time.

use super::schedules::spanner::{self as schedule, Figure4};
use meridian_check::{Model, Verdict};
use meridian_protocol::clock::Micros;
use meridian_protocol::history::Kind as Sort;
use meridian_protocol::machine::Outcome;
use meridian_protocol::object::Reply;
use meridian_protocol::registry::Settings;
use meridian_protocol::spanner::message::{Message, Request as Asked};
use meridian_protocol::spanner::{Kind, Spanner, SpannerSettings};
use meridian_protocol::topology::Region;
use meridian_sim::script::{Script, to_region};
use meridian_sim::{Plan, Step};

/// A message by which a client asks the coordinator to commit.
fn is_commit(sent: &schedule::Sent) -> bool {
    matches!(schedule::asked(sent), Some(Asked::Commit { .. }))
}

/// Where the leader of a partition is, as a region's replica sees it.
fn leader(script: &mut Script<Spanner>, partition: u16, region: u8) -> Option<Region> {
    let id = script.world().shape().group().replica(partition, Region(region));
    let replica = script.world().replica(id)?;
    replica.log().leader().map(|ballot| ballot.region)
}

/// Figure 4 of the RSS paper: the first reader sees the transaction, and a second one in another place, later and with no
/// word from the first. What the second one has seen, and how long that took.
fn figure4(kind: Kind, settings: &Settings) -> (Script<Spanner>, Option<String>, Micros) {
    let mut figure = Figure4::new(kind, settings);
    let (first, second) = (figure.script.session(1), figure.script.session(2));
    figure.until(310);
    let (x, y) = (figure.x.clone(), figure.y.clone());
    assert_eq!(figure.get(first, &x).0.as_deref(), Some("new-x"));
    assert!(figure.script.outcome(figure.writer).is_none(), "the writer is not answered yet");
    let (seen, took) = figure.get(second, &y);
    figure.script.finish(figure.writer);
    (figure.script, seen, took)
}

const ALL: [Kind; 3] = [Kind::Strict, Kind::Rss, Kind::Po];

#[test]
fn leaders_are_where_the_schedules_want_them() {
    let mut script = schedule::settled(Kind::Strict, &Settings::default());
    for partition in 0..3 {
        for region in 0..3 {
            let leader = leader(&mut script, partition, region).expect("all have a leader");
            assert_eq!(u16::from(leader.0), partition);
        }
    }
}

/// Figure 4 of the RSS paper, with the answers that it gives.
#[test]
fn the_second_reader_of_figure_4_waits_in_spanner_and_not_in_spanner_rss() {
    let (script, seen, took) = figure4(Kind::Strict, &Settings::default());
    assert_eq!(seen.as_deref(), Some("new-y"));
    assert!(took > 100_000, "it has waited for the transaction: {took} us");
    script.expect(Model::StrictSerializable, Verdict::Holds);

    let (script, seen, took) = figure4(Kind::Rss, &Settings::default());
    assert_eq!(seen.as_deref(), Some("old-y"));
    assert_eq!(took, 0, "the leader is in its region, and nothing is waited for");
    script.expect(Model::Rss, Verdict::Holds);
    script.expect(Model::StrictSerializable, Verdict::Violated);
}

#[test]
fn a_session_sees_what_it_has_seen() {
    for kind in [Kind::Strict, Kind::Rss] {
        schedule::read_after_a_read(kind, &Settings::default()).unwrap();
    }
}

#[test]
fn whoever_begins_after_the_end_sees_the_transaction() {
    for kind in [Kind::Strict, Kind::Rss] {
        schedule::read_after_the_end(kind, &Settings::default()).unwrap();
    }
}

#[test]
fn clocks_may_be_wrong_within_their_bound() {
    for kind in [Kind::Strict, Kind::Rss] {
        schedule::clocks_within_their_bound(kind, &Settings::default()).unwrap();
    }
}

#[test]
fn what_was_read_stays_locked_until_the_decision() {
    for kind in ALL {
        schedule::write_of_what_is_read(kind, &Settings::default()).unwrap();
        schedule::locks_after_a_failover(kind, &Settings::default()).unwrap();
    }
}

#[test]
fn a_decision_is_told_when_the_log_has_it() {
    for kind in ALL {
        schedule::leader_dies_before_anybody_has_its_decision(kind, &Settings::default()).unwrap();
    }
}

#[test]
fn times_that_are_forgotten_are_not_read() {
    for kind in ALL {
        schedule::read_of_a_forgotten_time(kind, &Settings::default()).unwrap();
    }
}

#[test]
fn whoever_begins_after_a_fence_sees_what_was_seen_before() {
    schedule::read_after_a_fence(&Settings::default()).unwrap();
}

/// L is what a fence waits for, counted from what the session has seen.
#[test]
fn a_fence_takes_l() {
    for fence in [10_000, 300_000] {
        let spanner = SpannerSettings { fence, ..SpannerSettings::default() };
        let mut script = schedule::settled(Kind::Rss, &Settings { spanner, ..Settings::default() });
        let x = schedule::key(&mut script, 0);
        let session = script.session(0);
        script.run(session, &x, &Plan::Set("1".into()));
        let operation = script.begin(session, "", &Plan::Fence);
        script.finish(operation);
        let took = script.latency(operation).expect("it has ended");
        assert!(
            (fence - 110_000_u64.min(fence)..=fence + 2_100).contains(&took),
            "{took} us for L = {fence}"
        );
    }
}

/// Reads in process order cost a round trip inside the region, wherever the leader is, and another region is asked only where
/// nobody answers.
#[test]
fn reads_in_process_order_stay_in_their_region() {
    let mut script = schedule::settled(Kind::Po, &Settings::default());
    let keys: Vec<String> = (0..3).map(|partition| schedule::key(&mut script, partition)).collect();
    let session = script.session(2);
    for key in &keys {
        let read = script.begin(session, key, &Plan::Get);
        script.finish(read);
        assert!(script.latency(read).is_some_and(|took| took < 1_000), "{key}: {:?}", script.latency(read));
    }
    let local = |sent: &schedule::Sent| matches!(sent.message, Message::Local(_));
    let asked = script.sent(local);
    assert!(!asked.is_empty() && asked.iter().all(|sent| to_region(sent, 2)), "{asked:?}");
    let silent = script.lose(|sent| matches!(sent.message, Message::Local(_)) && to_region(sent, 2));
    let read = script.begin(session, &keys[0], &Plan::Get);
    assert!(matches!(script.finish(read).outcome, Outcome::Answer(_)));
    script.end_rule(silent);
    assert!(script.sent(local).iter().any(|sent| !to_region(sent, 2)));
}

/// A client that dies leaves its locks for no longer than they are lent.
#[test]
fn a_dead_clients_locks_run_out() {
    for kind in ALL {
        let mut script = schedule::settled(kind, &Settings::default());
        let x = schedule::key(&mut script, 0);
        let (dying, other) = (script.session(1), script.session(2));
        let open = script.begin_with(dying, Sort::Rw, None, Step::Begin { read_only: false });
        script.answer(open);
        script.ask(open, Step::Act(x.clone(), Plan::Swap("1".into())));
        script.answer(open);
        script.crash(1);
        let began = script.world().time();
        let done = script.run(other, &x, &Plan::Swap("2".into()));
        assert!(matches!(done.outcome, Outcome::Answer(_)), "{done:?}");
        let took = script.world().time() - began;
        // The lock is shared, and the older transaction's: the younger waits until it runs out.
        let locks = SpannerSettings::default().locks;
        assert!((locks - 500_000..locks + 1_500_000).contains(&took), "{took} us");
    }
}

/// Its coordinator never hears of it: the participants ask, and it is aborted for good.
#[test]
fn what_a_dead_client_has_prepared_is_aborted() {
    let mut script = schedule::settled(Kind::Strict, &Settings::default());
    let (x, y) = (schedule::key(&mut script, 0), schedule::key(&mut script, 2));
    let (dying, other) = (script.session(1), script.session(2));
    let lost = script.lose(is_commit);
    script.begin_together(dying, &[(&x, Plan::Set("1".into())), (&y, Plan::Set("1".into()))]);
    script.run_for(200_000);
    script.crash(1);
    script.end_rule(lost);
    let began = script.world().time();
    for key in [&x, &y] {
        let done = script.run(other, key, &Plan::Swap("2".into()));
        assert!(matches!(done.outcome, Outcome::Answer(_)), "{done:?}");
    }
    let took = script.world().time() - began;
    assert!(took < 3_000_000, "{took} us");
    script.restart(1);
    script.agree().unwrap();
    script.expect(Model::StrictSerializable, Verdict::Holds);
}

/// An interactive transaction that an older one has wounded is told so, and is not run again.
#[test]
fn a_wounded_transaction_is_told() {
    let mut script = schedule::settled(Kind::Strict, &Settings::default());
    let x = schedule::key(&mut script, 0);
    let (old, young) = (script.session(1), script.session(0));
    let first = script.begin_with(old, Sort::Rw, None, Step::Begin { read_only: false });
    script.answer(first);
    script.run_for(10_000);
    let second = script.begin_with(young, Sort::Rw, None, Step::Begin { read_only: false });
    script.answer(second);
    script.ask(second, Step::Act(x.clone(), Plan::Get));
    script.answer(second);
    script.ask(first, Step::Act(x.clone(), Plan::Set("1".into())));
    script.answer(first);
    script.ask(first, Step::Commit);
    assert_eq!(script.answer(first).outcome, Outcome::Done);
    script.ask(second, Step::Commit);
    assert!(matches!(script.answer(second).outcome, Outcome::Aborted(_)));
}

/// A replica far from the leader serves old times by itself.
#[test]
fn old_times_are_read_at_any_replica() {
    let mut script = schedule::settled(Kind::Strict, &Settings::default());
    let x = schedule::key(&mut script, 1);
    let session = script.session(1);
    script.run(session, &x, &Plan::Set("1".into()));
    script.run_for(2_000_000);
    let at = script.world().wall_ms(0) * 1_000 - 100_000;
    script.run(session, &x, &Plan::Set("2".into()));
    script.run_for(1_000_000);
    let began = script.world().time();
    assert_eq!(schedule::read_at(&mut script, &x, at), Some(Reply::Bulk("1".into())));
    assert_eq!(script.world().time(), began, "nothing was asked of another region");
    let ahead = script.world().wall_ms(0) * 1_000 + 1_000_000;
    assert_eq!(schedule::read_at(&mut script, &x, ahead), None, "what has not come yet is refused");
}

/// `WATCH`, and an `EXEC` on keys of two partitions: done if nothing has changed, and otherwise not.
#[test]
fn what_is_watched_must_not_have_changed() {
    for (kind, disturbed) in ALL.into_iter().flat_map(|kind| [(kind, false), (kind, true)]) {
        let mut script = schedule::settled(kind, &Settings::default());
        let (x, y) = (schedule::key(&mut script, 0), schedule::key(&mut script, 1));
        let (session, other) = (script.session(0), script.session(2));
        script.run(session, &x, &Plan::Set("old".into()));
        let operation = script.begin_with(session, Sort::Rw, None, Step::Watch(x.clone()));
        script.answer(operation);
        if disturbed {
            script.run(other, &x, &Plan::Set("new".into()));
        }
        let parts = vec![(x.clone(), Plan::Get), (y.clone(), Plan::Set("done".into()))];
        script.ask(operation, Step::Together(parts));
        let Outcome::Answers(replies) = script.answer(operation).outcome else { panic!("no answer") };
        assert_eq!(replies.is_some(), !disturbed, "{kind:?}");
        script.expect(schedule::kind_model(kind), Verdict::Holds);
    }
}

/// All increments of one key by many clients happen: nobody starves, though each of them meets all others.
#[test]
fn a_hot_key_starves_nobody() {
    for kind in ALL {
        let mut script = schedule::settled(kind, &Settings::default());
        let x = schedule::key(&mut script, 0);
        let sessions: Vec<_> = (0..12).map(|number| script.session(number % 3)).collect();
        for round in 0..3 {
            let begun: Vec<_> = sessions
                .iter()
                .enumerate()
                .map(|(number, session)| {
                    script.begin(*session, &x, &Plan::Append(format!(".{round}x{number};")))
                })
                .collect();
            for operation in begun {
                let done = script.finish(operation);
                assert!(matches!(done.outcome, Outcome::Answer(_)), "{kind:?}: {done:?}");
            }
        }
        script.expect(schedule::kind_model(kind), Verdict::Holds);
    }
}

/// A transaction whose reads wait for locks takes no longer for the earliest end that it tells: that was estimated when it had them.
#[test]
fn what_reads_have_waited_for_locks_is_not_waited_for_again() {
    let took = |kind| {
        let mut script = schedule::settled(kind, &Settings::default());
        let x = schedule::key(&mut script, 1);
        let clients = [0, 0].map(|region| script.session(region));
        for client in [clients, clients].concat() {
            // By these they have measured the round trips.
            script.run(client, &x, &Plan::Append("-".to_owned()));
            script.run_for(1_000_000);
        }
        let first = script.begin(clients[0], &x, &Plan::Append("a".to_owned()));
        script.run_for(20_000);
        let second = script.begin(clients[1], &x, &Plan::Append("b".to_owned()));
        script.finish(first);
        script.finish(second);
        [first, second].map(|operation| script.latency(operation).expect("it has ended"))
    };
    let [alone, behind] = took(Kind::Rss);
    assert!(behind > alone + 100_000, "it has waited: {behind} and {alone} us");
    // A microsecond is what the end itself takes.
    let strict = took(Kind::Strict);
    assert!(alone <= strict[0] + 1 && behind <= strict[1] + 1, "{alone}, {behind} us and {strict:?}");
}
