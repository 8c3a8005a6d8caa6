//! Writes by the clock.

use crate::schedules::one_round::{self, Skewed, by_clock};
use crate::schedules::{self, Zigzag, explicit, is_write2, judged, set, text};
use meridian_check::Model;
use meridian_protocol::clock::Micros;
use meridian_protocol::gryff::Gryff;
use meridian_protocol::latency::RttMatrix;
use meridian_protocol::machine::{Cost, Outcome};
use meridian_protocol::registry::{Settings, Writes};
use meridian_sim::Plan;
use meridian_sim::script::{Script, Setting, to_region};
use meridian_sim::world::Shape;

fn gryff() -> Gryff {
    Gryff::linearizable(by_clock(&Settings::default()))
}

fn rsc() -> Gryff {
    Gryff::rsc(by_clock(&Settings::default()))
}

#[test]
fn what_lies_ahead_is_told_when_it_has_passed() {
    one_round::one_after_the_other(gryff()).unwrap();
    one_round::read_ahead(gryff()).unwrap();
    one_round::read_without_a_clock(gryff()).unwrap();
    one_round::rmw_ahead(gryff(), Model::Linearizable).unwrap();
}

#[test]
fn sessions_of_rsc_go_on_when_what_they_have_read_has_passed() {
    one_round::write_over_what_was_read(rsc()).unwrap();
    one_round::skip(rsc()).unwrap();
    one_round::fence(rsc()).unwrap();
    one_round::rmw_ahead(rsc(), Model::Rsc).unwrap();
    one_round::write_after_reading(rsc()).unwrap();
}

#[test]
fn zigzag_is_impossible_by_the_clock_too() {
    for write in [false, true] {
        for writes in [Writes::OneRound, Writes::Auto] {
            let settings = Settings { writes, ..explicit(&Settings::default()) };
            let five = Zigzag { regions: 5, p2: 1, late: &[3, 4], write };
            schedules::zigzag(Gryff::rsc(settings.clone()), &five).unwrap();
            let three = Zigzag { regions: 3, p2: 0, late: &[1], write };
            schedules::zigzag(Gryff::rsc(Settings { read_proxy: false, ..settings }), &three).unwrap();
        }
    }
}

/// The promise rests on the bound: a clock behind by more writes after a right one, of whose write it has not heard, and
/// its write, which was answered, is lost. The nodes find out.
#[test]
fn a_clock_out_of_its_bound_loses_a_write_and_is_found_out() {
    let Skewed { mut script, other, .. } = {
        let mut skewed = Skewed::new(gryff(), Model::Linearizable);
        skewed.script.world().set_clock(1, -450_000, Some(50_000));
        let away = skewed.script.lose(|m| to_region(m, 1) && is_write2(m));
        let write = skewed.write_ahead();
        skewed.script.finish(write);
        skewed.script.end_rule(away);
        skewed
    };
    script.run(other, "x", &set("later"));
    let reader = script.session(2);
    script.run(reader, "x", &Plan::Get);
    let why = judged(&script, Model::Linearizable).expect_err("the later write is below the earlier one");
    assert!(why.contains("returned before the invocation of"), "{why}");
    assert!(script.world().contradicted() > 1);
}

/// One bad clock, ahead by minutes, must not make a key unreadable until its timestamp has passed.
#[test]
fn replicas_refuse_what_lies_too_far_ahead() {
    let Skewed { mut script, ahead, behind, .. } = Skewed::new(gryff(), Model::Linearizable);
    script.world().set_clock(0, 300_000_000, Some(200_000));
    let own = script.lose(|m| to_region(m, 0));
    let write = script.begin(ahead, "x", &set("ahead"));
    script.run_for(100_000);
    let ended = script.outcome(write).expect("two of three have refused");
    assert!(matches!(ended.outcome, Outcome::Unknown(why) if why.contains("clock")), "{ended:?}");
    script.end_rule(own);
    let read = script.run(behind, "x", &Plan::Get);
    assert_eq!(text(&read), None);
}

/// Three regions so many microseconds apart, with clocks that are right within so many: what the second write costs.
fn second_write(writes: Writes, round_trip_ms: f64, bound: Micros) -> Cost {
    let row = |own: usize| {
        let cells = (0..3).map(|to| if to == own { "0".to_owned() } else { round_trip_ms.to_string() });
        cells.collect::<Vec<_>>().join(",")
    };
    let matrix = format!("a,b,c\n{}\n{}\n{}", row(0), row(1), row(2));
    let rtt = RttMatrix::from_csv(&matrix).expect("a matrix");
    let shape = Shape { rtt, nodes_per_region: 1, partitions: 1 };
    let engine = Gryff::linearizable(Settings { writes, ..Settings::default() });
    let mut script = Script::new(engine, Setting { shape, seed: 1 });
    for node in 0..3 {
        script.world().set_clock(node, 0, Some(bound));
    }
    let session = script.session(0);
    script.run(session, "x", &Plan::Set("1".into()));
    script.run(session, "x", &Plan::Set("2".into())).cost
}

/// A node whose clock is much worse than the others' goes by their word where that comes sooner: here, in the 11 ms that the
/// others' clocks take to say so and a round trip, in place of the 600 ms of its own.
#[test]
fn a_better_clocks_word_is_asked_for_where_it_comes_sooner() {
    let mut script = Script::new(gryff(), Setting::equidistant(3, 10));
    for (node, bound) in [(0, 300_000), (1, 1_000), (2, 1_000)] {
        script.world().set_clock(node, 0, Some(bound));
    }
    let session = script.session(0);
    script.run(session, "x", &Plan::Set("1".into()));
    let second = script.run(session, "x", &Plan::Set("2".into()));
    assert!((300_000..320_000).contains(&second.cost.waited), "{second:?}");
}

#[test]
fn auto_asks_where_asking_is_sooner_over_than_the_clock() {
    assert_eq!(second_write(Writes::Auto, 0.2, 2_000).rounds, 2);
    assert_eq!(second_write(Writes::Auto, 0.2, 50).rounds, 1);
    assert_eq!(second_write(Writes::OneRound, 0.2, 2_000).rounds, 1);
}

/// A clock with so wide a bound may be right and yet so far ahead of the others that they would refuse its writes.
#[test]
fn a_write_asks_where_its_clock_might_look_like_a_wrong_one() {
    assert_eq!(second_write(Writes::OneRound, 0.2, 500_000).rounds, 1);
    assert_eq!(second_write(Writes::OneRound, 0.2, 500_001).rounds, 2);
}

/// The wait is hidden in the round trip unless twice the bound exceeds it.
#[test]
fn the_commit_wait_is_what_the_round_trip_does_not_hide() {
    assert_eq!(second_write(Writes::OneRound, 72.0, 36_000).waited, 1);
    assert_eq!(second_write(Writes::OneRound, 72.0, 35_000).waited, 0);
    assert_eq!(second_write(Writes::OneRound, 72.0, 50_000).waited, 28_001);
}
