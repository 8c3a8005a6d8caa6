use super::*;
use crate::definition::{Experiment, SOUND_FOR_TESTS, Scale};

fn run(changes: &[(&str, &str)]) -> Run {
    let mut text = SOUND_FOR_TESTS.to_owned();
    for (old, new) in changes {
        assert!(text.contains(old), "{old}");
        text = text.replace(old, new);
    }
    let experiment = Experiment::read(&text).unwrap_or_else(|faults| panic!("{faults:#?}"));
    experiment.runs(Scale::Full).unwrap()[0].run.clone()
}

/// In µs.
fn percentile(measured: &Measured, op: &str, p: f64) -> u64 {
    (measured.latencies[op].percentile(p).unwrap() * 1_000.0).round() as u64
}

#[test]
fn the_same_seed_measures_the_same_and_another_one_something_else() {
    let run = run(&[("measure_s = 10.0", "measure_s = 5.0")]);
    let [once, again, other] = [1, 1, 2].map(|seed| measure(&run, seed).unwrap());
    assert_eq!(once, again);
    assert_ne!(once, other);
}

/// Two clients in each of California, Virginia and Ireland: a read takes 72 or 88 ms, a write twice as long.
#[test]
fn closed_clients_measure_what_the_arithmetic_says() {
    let measured = measure(&run(&[]), 1).unwrap();
    assert_eq!((percentile(&measured, "read", 1.0), percentile(&measured, "read", 100.0)), (72_000, 88_000));
    assert_eq!(
        (percentile(&measured, "write", 1.0), percentile(&measured, "write", 100.0)),
        (144_000, 176_000)
    );
    // 10% writes: a client in Ireland ends one in 88 × 1.1 ms.
    let expected = 2.0 * (2.0 / 72.0 + 1.0 / 88.0) / 1.1 * 1_000.0;
    assert!(
        (measured.per_second / expected - 1.0).abs() < 0.05,
        "{} against {expected}",
        measured.per_second
    );
    assert_eq!((measured.failures, measured.retries), (0, 0));
}

/// From a node of their own clients are half a round trip inside the region away from the replica there.
/// By the clock a write takes one round trip to the nearest majority, and waits for what that does not hide of twice the
/// clocks' bound.
#[test]
fn writes_by_the_clock_take_one_round_trip_or_twice_the_bound() {
    let by_clock = |error_ms: u32| {
        let engine = "name = \"gryff\"\nwrites = \"one-round\"";
        let place = format!("regions = \"3\"\nclock_error_ms = {error_ms}");
        measure(
            &run(&[
                ("name = \"gryff\"\n\n[run.place]", &format!("{engine}\n\n[run.place]")),
                ("regions = \"3\"", &place),
            ]),
            1,
        )
        .unwrap()
    };
    let near = by_clock(1);
    assert_eq!(percentile(&near, "write", 50.0), 72_000);
    assert_eq!(near.waits["write"].above_zero(), Some(0.0));
    let far = by_clock(60);
    assert!(percentile(&far, "write", 50.0) >= 120_000);
    assert_eq!(far.waits["write"].above_zero(), Some(100.0));
    assert_eq!(far.latencies_of("write waits"), Some(&far.waits["write"]));
}

#[test]
fn clients_may_have_nodes_of_their_own() {
    let own = run(&[("regions = \"3\"", "regions = \"3\"\nclient_nodes = 2")]);
    let measured = measure(&own, 1).unwrap();
    assert_eq!((percentile(&measured, "read", 1.0), percentile(&measured, "read", 100.0)), (72_200, 88_200));
}

#[test]
fn clients_that_think_do_less() {
    let think = |ms: &str| {
        measure(&run(&[("per_region = 2", &format!("per_region = 2\nthink_ms = {ms}"))]), 1).unwrap()
    };
    let (hasty, calm) = (think("0"), think("500"));
    assert_eq!(percentile(&hasty, "read", 50.0), percentile(&calm, "read", 50.0));
    let (expected, seen) = (83.0 / 583.0, calm.per_second / hasty.per_second);
    assert!((seen / expected - 1.0).abs() < 0.15, "{seen}, expected about {expected}");
}

/// λ sessions a second in each region, each of 1 / (1 - p) requests.
#[test]
fn partly_open_clients_arrive_and_stay_as_defined() {
    let open = "[run.clients.partly_open]\nsessions_per_second = 20.0\nstay = 0.75";
    let changes = [("[run.clients.closed]\nper_region = 2", open), ("measure_s = 10.0", "measure_s = 60.0")];
    let measured = measure(&run(&changes), 1).unwrap();
    let expected = 3.0 * 20.0 * 4.0;
    assert!(
        (measured.per_second / expected - 1.0).abs() < 0.08,
        "{} against {expected}",
        measured.per_second
    );
}

#[test]
fn a_request_takes_as_long_as_its_slowest_part() {
    for at_once in [false, true] {
        let requests = format!("[run.requests]\nparts = 20\nat_once = {at_once}\n\n[run.clients.closed]");
        let measured = measure(&run(&[("[run.clients.closed]", &requests)]), 1).unwrap();
        // Of 20 parts at 10% writes seven of eight requests hold one: its two round trips are what counts.
        assert!(percentile(&measured, "request", 5.0) <= 88_000);
        assert_eq!(percentile(&measured, "request", 30.0), 144_000);
        let parts = measured.latencies["read"].count() + measured.latencies["write"].count();
        assert_eq!(parts, measured.operations);
        let requests = measured.latencies["request"].count();
        assert!((parts / 20).abs_diff(requests) <= 6, "{parts} parts, {requests} requests");
    }
}

#[test]
fn work_costs_what_the_definition_says() {
    let local = [
        ("rtt = \"paper\"", "rtt = \"same:0.2\""),
        ("per_region = 2", "per_region = 64"),
        ("warm_up_s = 1.0", "warm_up_s = 0.6"),
        ("measure_s = 10.0", "measure_s = 0.05"),
    ];
    let free = measure(&run(&local), 1).unwrap();
    let mut costly = run(&local);
    costly.cpu = crate::definition::Cpu::Node;
    let costly = measure(&costly, 1).unwrap();
    assert!(costly.per_second < free.per_second / 2.0, "{} and {}", costly.per_second, free.per_second);
    // A node answers no more requests than it has time for.
    assert!(costly.per_second < 3.0 * 1e9 / crate::cpu::COSTS.of("gryff").request);
}

#[test]
fn machines_of_clients_are_not_slower() {
    let read = |client_nodes: &str| {
        let mut lone = run(&[
            ("rtt = \"paper\"", "rtt = \"same:0.2\""),
            ("regions = \"3\"", &format!("regions = \"3\"\n{client_nodes}")),
            ("per_region = 2", "per_region = 1"),
        ]);
        lone.cpu = crate::definition::Cpu::Slower(1_000.0);
        percentile(&measure(&lone, 1).unwrap(), "read", 50.0)
    };
    let request = crate::cpu::COSTS.of("gryff").request as u64;
    assert!(read("") > request);
    assert!((request / 2..request).contains(&read("client_nodes = 1")));
}

#[test]
fn an_engine_that_is_none_is_refused_by_name() {
    let run = run(&[("name = \"gryff\"\n\n[run.place]", "name = \"griffin\"\n\n[run.place]")]);
    assert!(measure(&run, 1).unwrap_err().contains("'griffin'"));
}

#[test]
fn percentiles_of_few() {
    let mut recording = measured::Recording::default();
    for micros in [3_000, 1_000, 2_000, 4_000] {
        recording.add(micros);
    }
    let latencies = recording.finish();
    let of = |p: f64| latencies.percentile(p).map(|ms| ms.round() as u64);
    let expected = [1, 1, 2, 3, 4, 4].map(Some);
    assert_eq!([0.0, 25.0, 50.0, 75.0, 99.0, 100.0].map(of), expected);
    assert_eq!((latencies.count(), latencies.mean()), (4, Some(2.5)));
    assert_eq!(latencies.shares()[1], (2.0, 0.5));
    let twice = Latencies::of_all([&latencies, &latencies]);
    assert_eq!((twice.count(), twice.percentile(50.0)), (8, Some(2.0)));
    assert_eq!(Latencies::default().percentile(50.0), None);
}
