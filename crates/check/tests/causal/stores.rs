//! What replicated stores do is judged as what they promise.

use crate::FAMILY;
use crate::replicated::{Options, history, without_witness};
use meridian_check::{Model, Verdict, by_search, by_witness};

#[test]
fn causal_stores_are_causal() {
    for seed in 0..40 {
        let percent = |wanted: bool, percent: u32| if wanted { percent } else { 0 };
        let options = Options {
            deletions: percent(seed % 2 == 1, 20),
            unknown: percent(seed % 4 > 1, 3),
            true_time: seed % 8 > 3,
            ..Options::default()
        };
        let events = history(seed, &options);
        let bare = without_witness(&events);
        for model in FAMILY {
            if model == Model::RealTimeCausal && !options.true_time {
                continue;
            }
            let judgement = by_witness(model, &events);
            assert_eq!(judgement.verdict, Verdict::Holds, "seed {seed}, {model}: {}", judgement.reason);
            let judgement = by_search(model, &bare);
            if options.deletions == 0 {
                assert_eq!(judgement.verdict, Verdict::Holds, "seed {seed}, {model}: {}", judgement.reason);
            }
            // Where deletions make many sources possible the values may not be enough, but they never mislead.
            assert_ne!(judgement.verdict, Verdict::Violated, "seed {seed}, {model}: {}", judgement.reason);
        }
    }
}

#[test]
fn stores_that_deliver_out_of_order_converge_and_are_not_causal() {
    let (mut violated, mut disagree) = (0, 0);
    for seed in 0..40 {
        let events = history(seed, &Options { out_of_order: true, quiet_end: true, ..Options::default() });
        let bare = without_witness(&events);
        assert_eq!(by_search(Model::Eventual, &bare).verdict, Verdict::Holds);
        for model in FAMILY {
            let (witnessed, by_values) =
                (by_witness(model, &events).verdict, by_search(model, &bare).verdict);
            violated += u32::from(model == Model::Causal && by_values == Verdict::Violated);
            // Values may be explained by another order than the engine's, but not the other way round.
            assert!(witnessed != Verdict::Holds || by_values == Verdict::Holds, "seed {seed}, {model}");
            disagree += u32::from(witnessed != by_values);
        }
    }
    println!("{violated} of 40 not causal; {disagree} explained by another order than the engine's");
    assert!(violated > 30, "{violated}");
}

#[test]
fn true_clocks_keep_real_time_and_logical_ones_need_not() {
    let lamport = (0..20).filter(|seed| {
        let events = without_witness(&history(*seed, &Options { operations: 2_000, ..Options::default() }));
        by_search(Model::RealTimeCausal, &events).verdict == Verdict::Violated
    });
    assert!(lamport.count() > 10);
}
