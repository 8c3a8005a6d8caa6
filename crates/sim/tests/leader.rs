//! What an engine with a leader costs without faults, and how long it stands still when the leader dies. Exact, because a
//! message takes exactly half a round trip here and nothing else takes time.

use meridian_protocol::clock::Micros;
use meridian_protocol::multipaxos::MultiPaxos;
use meridian_protocol::multipaxos::log::LogSettings;
use meridian_protocol::registry::{EngineName, Settings};
use meridian_protocol::topology::Region;
use meridian_sim::script::{Script, Setting};
use meridian_sim::{Keys, Mix, Options, Plan};
use std::collections::BTreeSet;

/// When the first election is long over.
const SETTLED: i64 = 2_000_000_000;

/// The latencies, in microseconds, of the operations of one client in each region once there is a leader.
fn latencies(regions: u8, adjust: impl FnOnce(&mut Options)) -> Vec<BTreeSet<i64>> {
    let mut options = Options::exact(1, Settings::default()).regions(regions);
    options.settings.log.leader = Some(Region(0));
    options.workload.ops = 300 * usize::from(regions);
    options.workload.clients = regions.into();
    options.workload.keys = Keys::Conflict(0);
    options.workload.mix = Mix { reads: 1, writes: 1, rmws: 1 };
    options.workload.fence_every = 0;
    adjust(&mut options);
    let engine = EngineName::of_engine("multipaxos").expect("the engine is built");
    let report = meridian_sim::run(engine, &options, None);
    assert_eq!(report.ended.ok, options.workload.ops, "{report}: {}", report.reason);
    let mut all = vec![BTreeSet::new(); usize::from(regions)];
    let mut settled = 0;
    for event in report.history.iter().filter(|event| event.invoke > SETTLED) {
        let client: usize = event.session[1..].parse().expect("sessions are numbered");
        let returned = event.returned.expect("it ended ok");
        all[client].insert(returned / 1_000 - event.invoke / 1_000);
        settled += 1;
    }
    assert!(settled > options.workload.ops / 2);
    all
}

/// The same for all operations of a region.
fn one_each(expected: &[i64]) -> Vec<BTreeSet<i64>> {
    expected.iter().map(|ms| BTreeSet::from([ms * 1_000])).collect()
}

/// A round trip from the leader to the nearest majority, and one from the client to the leader.
#[test]
fn three_regions_as_the_arithmetic_says() {
    assert_eq!(latencies(3, |_| {}), one_each(&[72, 144, 223]));
}

#[test]
fn five_and_seven_regions_as_the_arithmetic_says() {
    for regions in [5, 7] {
        let rtt = Options::new(1, Settings::default()).regions(regions).rtt;
        let leader = Region(0);
        let majority = rtt.rtt(leader, rtt.nearest_first(leader)[usize::from(regions) / 2]);
        let expected: Vec<i64> = (0..regions)
            .map(|region| ((majority + rtt.rtt(Region(region), leader)) / 1_000) as i64)
            .collect();
        println!("n={regions}: {expected:?} ms");
        assert_eq!(latencies(regions, |_| {}), one_each(&expected));
        if regions == 5 {
            assert_eq!(expected, [72, 144, 223, 131, 185]);
        }
    }
}

#[test]
fn any_region_may_lead() {
    let virginia = |options: &mut Options| options.settings.log.leader = Some(Region(1));
    assert_eq!(latencies(3, virginia), one_each(&[144, 72, 160]));
}

/// Conflicts cost nothing: there is one order anyway.
#[test]
fn conflicts_cost_nothing() {
    let conflicts = |options: &mut Options| options.workload.keys = Keys::Conflict(100);
    assert_eq!(latencies(3, conflicts), one_each(&[72, 144, 223]));
}

/// How long an operation takes that is begun when the leader dies: the silence that is waited for, an election, the
/// operation itself, and the wait until it is sent again if it went to the leader that is gone.
#[test]
fn a_dead_leader_is_replaced_within_the_time_that_is_set() {
    for election in [300_000, 1_000_000, 3_000_000] {
        let mut waits: Vec<Micros> = (0..40).map(|seed| failover(election, seed)).collect();
        waits.sort_unstable();
        let retry = Settings::default().retry;
        // Support, promises and entries between Virginia and Ireland take 88 ms each; the client is in Virginia, 88 ms
        // from a leader in Ireland.
        let longest = 2 * election + 3 * 88_000 + retry + 88_000;
        println!(
            "election {election}: median {} us, longest {} us, bound {longest} us",
            waits[20], waits[39]
        );
        // The leader's last heartbeat was sent up to a quarter of the time before it died.
        assert!(waits[0] >= election * 3 / 4 - 100_000, "{} is too soon", waits[0]);
        assert!(waits[39] <= longest, "{} is too late", waits[39]);
    }
}

fn failover(election: Micros, seed: u64) -> Micros {
    let log = LogSettings { election, leader: Some(Region(0)), ..LogSettings::default() };
    let engine = MultiPaxos::new(Settings { log, ..Settings::default() });
    let mut script = Script::new(engine, Setting { seed, ..Setting::regions(3) });
    let client = script.session(1);
    script.run(client, "x", &Plan::Set("a".into()));
    script.run_for(4_000_000 + seed * 17_000);
    script.crash(0);
    let write = script.begin(client, "x", &Plan::Set("b".into()));
    script.finish(write);
    script.latency(write).expect("it has ended")
}
