//! What operations cost without faults: exact, because a message takes exactly half a round trip here and nothing
//! else takes time.

use meridian_protocol::clock::Micros;
use meridian_protocol::registry::{EngineName, Settings, Writes};
use meridian_protocol::topology::Region;
use meridian_sim::{Keys, Mix, Options, Report, Sort, percentile};

/// Operations of one client in each region, each with a key of its own.
fn alone(engine: &str, regions: u8, adjust: impl FnOnce(&mut Options)) -> Report {
    let mut options = Options::exact(1, Settings::default()).regions(regions);
    options.workload.ops = 60 * usize::from(regions);
    options.workload.clients = regions.into();
    options.workload.keys = Keys::Conflict(0);
    options.workload.mix = Mix { reads: 1, writes: 1, rmws: 1 };
    options.workload.fence_every = 0;
    adjust(&mut options);
    let engine = EngineName::of_engine(engine).expect("the engine is built");
    let report = meridian_sim::run(engine, &options, None);
    assert!(report.ended.ok == options.workload.ops, "{report}: {}", report.reason);
    report
}

/// The one latency that all operations of that sort in that region had.
fn latency(report: &Report, sort: Sort, region: u8) -> Micros {
    let all = report.latencies_of(sort, Some(Region(region)));
    assert!(!all.is_empty(), "no {sort:?} in region {region}");
    assert_eq!(all[0], all[all.len() - 1], "all {sort:?} of region {region} take the same");
    all[0]
}

/// The round trip after which `others` other regions have answered.
fn round(regions: u8, region: u8, others: usize) -> Micros {
    let rtt = Options::new(1, Settings::default()).regions(regions).rtt;
    rtt.rtt(Region(region), rtt.nearest_first(Region(region))[others])
}

#[test]
fn three_regions_as_in_the_paper() {
    for engine in ["gryff", "gryff-rsc"] {
        let report = alone(engine, 3, |_| {});
        // California, Virginia, Ireland: a read takes a round trip to the nearest other region, a write two.
        for (region, read) in [(0, 72_000), (1, 72_000), (2, 88_000)] {
            assert_eq!(latency(&report, Sort::Read, region), read);
            assert_eq!(latency(&report, Sort::Write, region), 2 * read);
            // Pre-accept with the nearest, then execution there.
            assert_eq!(latency(&report, Sort::Rmw, region), 2 * read);
        }
    }
}

#[test]
fn five_and_seven_regions_take_a_majority_and_rmws_a_fast_quorum() {
    for engine in ["gryff", "gryff-rsc"] {
        for regions in [5, 7] {
            let report = alone(engine, regions, |_| {});
            let majority = usize::from(regions) / 2;
            let fast = usize::from(regions) - 2;
            for region in 0..regions {
                assert_eq!(latency(&report, Sort::Read, region), round(regions, region, majority));
                assert_eq!(latency(&report, Sort::Write, region), 2 * round(regions, region, majority));
                let rmw = round(regions, region, fast) + round(regions, region, majority);
                assert_eq!(latency(&report, Sort::Rmw, region), rmw, "n={regions}, region {region}");
            }
        }
    }
}

/// By the clock a write is as fast as a read, as long as twice the clocks' bound is below the round trip.
#[test]
fn one_round_writes_in_five_regions() {
    for engine in ["gryff", "gryff-rsc", "abd"] {
        for error in [1_000, 4_000, 10_000] {
            let report = alone(engine, 5, |options| {
                options.settings.writes = Writes::OneRound;
                options.clock_error = error;
            });
            for (region, write) in [72_000, 88_000, 145_000, 93_000, 121_000].into_iter().enumerate() {
                assert_eq!(latency(&report, Sort::Write, region as u8), write);
                assert_eq!(latency(&report, Sort::Read, region as u8), write);
            }
        }
    }
}

/// Every operation is one round trip to the fast quorum: the nearest other region of three, two others of five,
/// four of seven.
#[test]
fn epaxos_without_conflicts() {
    let report = alone("epaxos", 3, |_| {});
    for (region, commit) in [(0, 72_000), (1, 72_000), (2, 88_000)] {
        for sort in [Sort::Read, Sort::Write, Sort::Rmw] {
            assert_eq!(latency(&report, sort, region), commit, "{sort:?} in region {region}");
        }
    }
    for (regions, others) in [(5, 2), (7, 4)] {
        let report = alone("epaxos", regions, |_| {});
        for region in 0..regions {
            for sort in [Sort::Read, Sort::Write, Sort::Rmw] {
                assert_eq!(latency(&report, sort, region), round(regions, region, others));
            }
        }
    }
}

/// Gryff's figure 6: what reads wait for grows with conflicts, as they come after writes under way.
#[test]
fn epaxos_reads_have_a_tail_that_grows_with_conflicts() {
    let tail = |engine: &str, regions: u8, percent: u32| {
        let report = alone(engine, regions, |options| {
            options.workload.ops = 6_000;
            options.workload.clients = 4 * usize::from(regions);
            options.workload.keys = Keys::Conflict(percent);
            options.workload.mix = Mix { reads: 1, writes: 1, rmws: 0 };
        });
        percentile(&report.latencies_of(Sort::Read, None), 0.99)
    };
    for regions in [3, 5] {
        let tails = [0, 2, 10, 25].map(|percent| tail("epaxos", regions, percent));
        let gryff = tail("gryff", regions, 25);
        println!(
            "n={regions}: p99 of reads at 0, 2, 10, 25% conflicts: {tails:?} us; gryff at 25%: {gryff} us"
        );
        assert!(tails[3] > tails[0] + 50_000, "{tails:?}");
        assert!(tails[3] > gryff + 20_000, "{tails:?}, gryff {gryff}");
    }
}

/// Reads and writes as Gryff's without the read proxy, and nothing else.
#[test]
fn abd_takes_one_round_to_read_and_two_to_write() {
    for regions in [3, 5, 7] {
        let report = alone("abd", regions, |_| {});
        let majority = usize::from(regions) / 2;
        for region in 0..regions {
            assert_eq!(latency(&report, Sort::Read, region), round(regions, region, majority));
            assert_eq!(latency(&report, Sort::Write, region), 2 * round(regions, region, majority));
        }
    }
}

#[test]
fn a_region_of_several_nodes_adds_one_hop_inside_it() {
    // Client 0 lives on the first node of region 0; keys of even partitions are there too, others next door.
    let report = alone("gryff", 3, |options| {
        options.nodes_per_region = 2;
        options.partitions = 4;
        options.workload.clients = 6;
        options.workload.keys = Keys::Few(20);
        options.workload.think = 1_000_000;
    });
    for (region, read) in [(0, 72_000), (1, 72_000), (2, 88_000)] {
        let reads = report.latencies_of(Sort::Read, Some(Region(region)));
        assert!(reads.iter().all(|micros| [read, read + 200].contains(micros)), "{reads:?}");
        assert!(reads.contains(&read) && reads.contains(&(read + 200)), "{reads:?}");
    }
}

#[test]
fn without_the_read_proxy_a_read_under_writes_takes_two_rounds() {
    // The same load twice: five regions, many writers of one key. The proxy makes more reads end after one round.
    let share_of_one_round = |read_proxy: bool| {
        let report = alone("gryff", 5, |options| {
            options.settings.read_proxy = read_proxy;
            options.workload.ops = 3_000;
            options.workload.clients = 20;
            options.workload.keys = Keys::Few(1);
            options.workload.mix = Mix { reads: 2, writes: 1, rmws: 0 };
        });
        let reads: Vec<_> = report.latencies.iter().filter(|latency| latency.sort == Sort::Read).collect();
        reads.iter().filter(|latency| latency.rounds <= 1).count() as f64 / reads.len() as f64
    };
    let (with, without) = (share_of_one_round(true), share_of_one_round(false));
    println!("reads of one round: {with:.3} with the proxy, {without:.3} without");
    assert!(with > without + 0.05, "{with} with the proxy, {without} without");
}

#[test]
fn three_regions_with_the_proxy_always_read_in_one_round() {
    let report = alone("gryff", 3, |options| {
        options.workload.ops = 2_000;
        options.workload.clients = 12;
        options.workload.keys = Keys::Few(1);
    });
    for (region, read) in [(0, 72_000), (1, 72_000), (2, 88_000)] {
        assert_eq!(latency(&report, Sort::Read, region), read);
    }
}

/// EPaxos's tail in Gryff's figures 6 and 11 is longer than EPaxos's need be: their program executes all keys in one
/// line, in which a read of another key waits too.
#[test]
fn a_line_of_all_keys_makes_reads_wait_for_others_conflicts() {
    let tail = |published: bool| {
        let report = alone("epaxos", 3, |options| {
            options.settings.epaxos_as_published = published;
            options.workload.ops = 8_000;
            options.workload.clients = 24;
            options.workload.keys = Keys::Conflict(10);
            options.workload.mix = Mix { reads: 17, writes: 1, rmws: 0 };
        });
        percentile(&report.latencies_of(Sort::Read, None), 0.99)
    };
    let (own, published) = (tail(false), tail(true));
    println!("p99 of reads: {own} us, {published} us as published");
    assert!(published > own + 20_000);
}

/// The RSS paper's figure 7, at one point: reads and writes, conflicts, no rmws. What is printed there as Gryff's
/// tail is a second round; with the published rule there is none; with the corrected one it comes before the next
/// operation instead, unless the client thinks for as long.
#[test]
fn settling_costs_the_next_operation_unless_the_client_thinks_meanwhile() {
    let tail = |engine: &str, published: bool, think: Micros| {
        let report = alone(engine, 5, |options| {
            options.settings.rsc_as_published = published;
            options.partitions = 1; // The published rule sends what was read along with an operation of the same partition.
            options.workload.ops = 8_000;
            options.workload.clients = 20;
            options.workload.keys = Keys::Conflict(25);
            options.workload.mix = Mix { reads: 1, writes: 1, rmws: 0 };
            options.workload.think = think;
        });
        percentile(&report.latencies_of(Sort::Read, None), 0.999)
    };
    let one_round = 145_000; // Ireland's nearest majority.
    assert!(tail("gryff", false, 0) > one_round + 80_000);
    assert_eq!(tail("gryff-rsc", true, 0), one_round);
    assert!(tail("gryff-rsc", false, 0) > one_round + 80_000);
    assert!(tail("gryff", false, 300_000) > one_round + 80_000);
    assert_eq!(tail("gryff-rsc", false, 300_000), one_round);
}
