//! What timestamps are made of (Contrarian §4.2): how stale what is read is with each kind of clock, and what waits.
//! `docs/engines/contrarian.md` has the figures, printed with `--nocapture`.

use super::locality::out_of_step;
use crate::schedules::{causal, set};
use meridian_protocol::causal::{Causal, CausalSettings, ClockKind};
use meridian_protocol::machine::Outcome;
use meridian_protocol::object::Reply;
use meridian_protocol::registry::Settings;
use meridian_sim::script::{Script, Session};

/// How many writes are followed.
const WRITES: usize = 60;

/// What came of a run; times in us.
#[derive(Debug)]
struct Found {
    /// Of a hundred transactions of another session that begin in the region within 5 ms after a write, so many miss it.
    missed_percent: usize,
    /// From a write's answer until a transaction in another region, 50 ms away, shows it, on average.
    remote: u64,
    /// The longest transaction and the longest write.
    longest: (u64, u64),
    /// Requests that had to wait for a clock.
    late: u64,
}

/// Two of the four partitions of a region have clocks that differ by `skew`, the others are right; one session writes now
/// here, now there.
fn run(clock: ClockKind, skew: i64) -> Found {
    let causal = CausalSettings { clock, ..CausalSettings::default() };
    let engine = Causal::contrarian(Settings { causal, ..Settings::default() });
    let mut script = Script::new(engine, causal::setting(3, 4));
    script.world().set_clock(1, skew / 2, None);
    script.world().set_clock(2, -skew / 2, None);
    out_of_step(&mut script);
    script.run_for(300_000);
    let (writer, far) = (script.session(0), script.session(1));
    let keys = causal::keys(4);
    let mut found = Found { missed_percent: 0, remote: 0, longest: (0, 0), late: 0 };
    for nth in 0..WRITES {
        script.run_for(15_000 + 1_370 * (nth as u64 % 7));
        let value = nth.to_string();
        let write = script.begin(writer, &keys[nth % 4], &set(&value));
        script.finish(write);
        let written = script.world().time();
        found.longest.1 = found.longest.1.max(script.latency(write).unwrap_or_default());
        // A session that knows nothing, and nobody who reads before it: both would bring news of the write.
        let near = script.session(0);
        script.run_for(410 * (nth as u64 % 12));
        found.missed_percent += usize::from(!shows(&mut script, near, (&keys, nth), &mut found.longest.0));
        script.run_for(45_000);
        while !shows(&mut script, far, (&keys, nth), &mut found.longest.0) {
            script.run_for(250);
        }
        found.remote += (script.world().time() - written) / WRITES as u64;
    }
    found.missed_percent = found.missed_percent * 100 / WRITES;
    let late =
        script.world().counters().into_iter().filter(|(name, _)| ["late_put", "late_read"].contains(name));
    found.late = late.map(|(_, count)| count).sum();
    found
}

/// Whether a transaction over all keys shows what was written last.
fn shows(
    script: &mut Script<Causal>,
    session: Session,
    (keys, nth): (&[String], usize),
    longest: &mut u64,
) -> bool {
    let names: Vec<&str> = keys.iter().map(String::as_str).collect();
    let read = causal::rot(script, session, &names);
    let Outcome::Answers(Some(replies)) = script.finish(read).outcome else { panic!("it was not answered") };
    *longest = (*longest).max(script.latency(read).unwrap_or_default());
    matches!(&replies[nth % 4], Reply::Bulk(seen) if *seen == nth.to_string().as_bytes())
}

#[test]
fn hybrid_clocks_are_fresh_and_are_not_waited_for() {
    let skew = 100_000;
    let table = ClockKind::NAMES.map(|(kind, _)| (kind, run(kind, 0), run(kind, skew)));
    for (kind, right, wrong) in &table {
        println!("{kind:?}: right clocks {right:?}; {skew} us apart {wrong:?}");
    }
    let [(_, hybrid, apart), (_, logical, _), (_, physical, waiting)] = table;
    assert!(logical.missed_percent >= hybrid.missed_percent + 20, "{logical:?} is as fresh as {hybrid:?}");
    assert!(logical.remote >= hybrid.remote + 1_000, "{logical:?} is as fresh as {hybrid:?}");
    assert!(physical.remote <= hybrid.remote + 1_000, "{physical:?} is staler than {hybrid:?}");
    for found in [&hybrid, &apart, &logical] {
        assert!(found.late == 0 && found.longest.0 <= 1_000 && found.longest.1 <= 1_000, "{found:?} waits");
    }
    assert!(apart.remote <= hybrid.remote + 5_000, "{apart:?} suffers from wrong clocks");
    assert!(waiting.late > 0 && waiting.longest.0 >= 50_000, "{waiting:?} does not wait");
    assert!(waiting.remote >= apart.remote + 20_000, "{waiting:?} is as fresh as {apart:?}");
}
