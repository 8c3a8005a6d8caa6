//! Operations of the causal family stay in their region: how long they take, what they wait for, and when others see
//! what they wrote.

use super::causal::{both, cc_lo, settings};
use crate::schedules::causal::{at, attach, judged, keys, rot, setting};
use crate::schedules::{set, text};
use meridian_check::{Model, Verdict};
use meridian_protocol::causal::{Causal, CausalSettings, ClockKind, Message, Rounds};
use meridian_protocol::clock::Micros;
use meridian_protocol::latency::RttMatrix;
use meridian_protocol::machine::{Engine, Level, Outcome};
use meridian_protocol::object::{Answer, Reply};
use meridian_protocol::registry::{EngineName, Settings};
use meridian_sim::script::Script;
use meridian_sim::{End, Keys, Mix, Options, Plan};

/// Longer than two round trips inside a region, and far shorter than any between regions, us.
const IN_REGION: Micros = 1_000;

/// An answer is taken however often the question was asked meanwhile.
#[test]
fn who_is_further_away_than_its_patience_is_answered() {
    for rounds in [Rounds::Two, Rounds::OneAndAHalf] {
        let causal = CausalSettings { rounds, ..CausalSettings::default() };
        let settings = Settings { causal, retry: 60_000, ..Settings::default() };
        reads_from_afar(Causal::tcc(settings)).expect(Model::TccClosed, Verdict::Holds);
    }
}

/// Contrarian §4.2: neither a clock nor a message of another partition is waited for; with physical clocks one is.
#[test]
fn transactions_wait_for_physical_clocks_only() {
    let took = |clock, rounds| {
        let causal = CausalSettings { clock, rounds, ..CausalSettings::default() };
        transaction_ahead_of_a_clock(Causal::contrarian(Settings { causal, ..settings() }))
    };
    for rounds in [Rounds::Two, Rounds::OneAndAHalf] {
        for clock in [ClockKind::Hybrid, ClockKind::Logical] {
            assert!(took(clock, rounds) <= IN_REGION, "{clock:?}, {rounds:?}");
        }
        assert!(took(ClockKind::Physical, rounds) >= 900_000);
    }
}

/// Local operations go on at local latency, whatever the other regions do.
#[test]
fn a_region_that_is_cut_off_works_on_alone() {
    for engine in both() {
        assert!(region_alone(engine) <= IN_REGION);
    }
    assert!(region_alone(cc_lo()) <= IN_REGION);
}

/// Contrarian §4.2: the way there, a heartbeat, a period of stabilization, and where partitions form a tree one more for each
/// of its levels, as what an inner one has been told waits for its last child. Measured by looking every millisecond.
#[test]
fn a_write_is_seen_elsewhere_as_soon_as_all_partitions_may_have_heard() {
    let CausalSettings { heartbeat, stabilization, .. } = CausalSettings::default();
    for (partitions, levels) in [(3, 0), (12, 2)] {
        for engine in both() {
            let mut script = Script::new(engine, setting(3, partitions));
            out_of_step(&mut script);
            script.run_for(300_000);
            let (writer, reader) = (script.session(0), script.session(1));
            let bound = 50_000 + heartbeat + stabilization * (1 + levels) + 1_000 + IN_REGION;
            let mut longest = 0;
            for key in keys(partitions) {
                script.run_for(1_700);
                script.run(writer, &key, &set("new"));
                let written = script.world().time();
                while text(&script.run(reader, &key, &Plan::Get)).is_none() {
                    script.run_for(1_000);
                }
                let after = script.world().time() - written;
                assert!(
                    after >= 50_000,
                    "{key} was seen {after} us after it was written, before it can have come"
                );
                longest = longest.max(after);
            }
            println!("{partitions} partitions: seen after at most {longest} us, the bound is {bound} us");
            assert!(longest <= bound, "seen {longest} us after it was written, where {bound} is the bound");
        }
    }
}

/// A session moves so far away that a message takes longer there and back than it waits before it asks again.
fn reads_from_afar(engine: Causal) -> Script<Causal> {
    let mut script = Script::new(engine, setting(3, 2));
    script.run_for(300_000);
    let keys = keys(2);
    let session = script.session(0);
    for key in &keys {
        script.run(session, key, &set("1"));
    }
    attach(&mut script, session, 1);
    let read = at(&mut script, session, &keys[0], (Plan::Get, Level::ReadYourWrites));
    assert_eq!(text(&script.finish(read)).as_deref(), Some("1"));
    let read = rot(&mut script, session, &[&keys[0], &keys[1]]);
    assert!(matches!(script.finish(read).outcome, Outcome::Answers(Some(_))));
    script
}

/// A transaction of two partitions, whose coordinator's clock is a second ahead of the other's, while no replica hears of
/// another; how long it took.
fn transaction_ahead_of_a_clock(engine: Causal) -> Micros {
    let mut script = Script::new(engine, setting(3, 2));
    script.run_for(300_000);
    script.lose(|m| matches!(m.message, Message::Report(_) | Message::Stable(_) | Message::Replicate(_)));
    script.world().set_clock(1, 1_000_000, None);
    script.run_for(1_000);
    let keys = keys(2);
    let reader = script.session(0);
    // The first request of its node: the second partition coordinates it.
    let read = rot(&mut script, reader, &[&keys[0], &keys[1]]);
    script.finish(read);
    script.latency(read).expect("it has ended")
}

/// Region 0 is cut off from the others; its session writes, reads and deletes, and reads several keys. Answers the longest
/// that any of it took, and sees that nothing is lost when the cut is mended.
fn region_alone<E: Engine>(engine: E) -> Micros {
    let mut script = Script::new(engine, setting(3, 2));
    script.run_for(300_000);
    let regions = (0..6).map(|node| node / 2).collect::<Vec<_>>();
    for from in 0..6 {
        for to in 0..6 {
            script.world().set_cut(from, to, (regions[from] == 0) != (regions[to] == 0));
        }
    }
    script.run_for(3_000_000);
    let (inside, outside) = (script.session(0), script.session(1));
    let [x, y] = &keys(2)[..] else { unreachable!("two keys of two partitions") };
    let mut longest = 0;
    for round in 0..20 {
        let value = round.to_string();
        for key in [x, y] {
            let write = script.begin(inside, key, &set(&value));
            assert!(matches!(script.finish(write).outcome, Outcome::Answer(_)));
            let read = script.begin(inside, key, &Plan::Get);
            assert_eq!(text(&script.finish(read)).as_deref(), Some(&*value));
            longest = longest.max(script.latency(write).max(script.latency(read)).expect("both have ended"));
        }
        let read = rot(&mut script, inside, &[x, y]);
        assert!(matches!(script.finish(read).outcome, Outcome::Answers(Some(_))));
        longest = longest.max(script.latency(read).expect("it has ended"));
        script.run(outside, x, &set(&format!("outside {round}")));
        script.run_for(300_000);
    }
    assert_eq!(script.run(outside, y, &Plan::Get).outcome, Outcome::Answer(Answer::One(Reply::Nil)));
    script.world().mend();
    script.run_for(3_000_000);
    assert_eq!(text(&script.run(outside, y, &Plan::Get)).as_deref(), Some("19"));
    let seen = text(&script.run(outside, x, &Plan::Get));
    assert_eq!(text(&script.run(inside, x, &Plan::Get)), seen);
    judged(&script, Model::CausalRot).expect("the history holds");
    script.agree().expect("the regions hold the same");
    longest
}
/// Puts the nodes' alarms out of step with each other.
pub(crate) fn out_of_step<E: Engine>(script: &mut Script<E>) {
    for node in 0..script.world().shape().nodes() {
        script.world().pause(node);
        script.run_for(6_310);
        script.world().resume(node);
    }
}

/// Contrarian §6 and its figure 6: what a readers check must carry grows linearly with the clients.
#[test]
fn checks_carry_more_transactions_the_more_clients_there_are() {
    let engine = EngineName::of_engine("cc-lo").unwrap();
    let ids_of_a_check = |clients: usize| {
        let mut options = Options::exact(1, settings());
        options.rtt = RttMatrix::none("1").unwrap();
        (options.partitions, options.nodes_per_region) = (4, 4);
        options.workload.clients = clients;
        options.workload.ops = 100 * clients;
        options.workload.keys = Keys::Few(100);
        options.workload.mix = Mix { reads: 19, writes: 1, rmws: 0 };
        options.workload.think = 5_000;
        let report = meridian_sim::run(engine, &options, None);
        assert_eq!(report.end, End::Holds, "{}", report.reason);
        report.counters["check_ids_distinct"] as f64 / report.counters["check"] as f64
    };
    let clients = [16, 32, 64];
    let found = clients.map(ids_of_a_check);
    println!("ids a check with {clients:?} clients: {found:.2?}");
    for (ids, clients) in found.iter().zip(clients) {
        assert!(*ids <= clients as f64, "{ids} ids a check of {clients} clients, which are one each at most");
    }
    for pair in found.windows(2) {
        let growth = pair[1] / pair[0];
        assert!((1.6..=2.4).contains(&growth), "{found:?}: twice the clients, {growth:.2} times the ids");
    }
}
