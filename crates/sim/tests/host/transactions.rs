//! Transactions, snapshots and clocks of the host, with an engine that can be seen through.

use crate::ledger::{Flaw, Ledger};
use meridian_check::{Model, Verdict};
use meridian_protocol::history::{Ended, Event, Kind, Mode};
use meridian_protocol::machine::{Level, Outcome};
use meridian_protocol::registry::{Settings, Several};
use meridian_sim::script::{self, Script, Setting};
use meridian_sim::{Clocks, End, Mix, Options, Plan, Report, Step, run_engine};

fn run(flaw: Flaw, seed: u64, adjust: impl FnOnce(&mut Options)) -> Report {
    let mut options = Options::new(seed, Settings::default());
    options.workload.several = Several::Transactions;
    options.workload.think = 50_000;
    options.clocks = Clocks::Bounded;
    adjust(&mut options);
    run_engine(Ledger(flaw), "ledger", Model::StrictSerializable, &options, None)
}

#[test]
fn a_ledger_without_flaw_holds() {
    for seed in 0..20 {
        let report = run(Flaw::None, seed, |options| {
            options.workload.sessions_per_machine = if seed % 5 == 4 { 2 } else { 1 };
        });
        assert!(report.verify().is_ok(), "{:?}", report.verify());
    }
}

/// Otherwise the runs above prove nothing about them.
#[test]
fn transactions_of_every_kind_end_in_every_way() {
    let report = run(Flaw::None, 1, |options| options.workload.ops = 6_000);
    let count = |kind: Kind, outcome: Ended| {
        let fits = |event: &&Event| event.kind == kind && event.outcome == outcome && event.ops.len() > 1;
        report.history.iter().filter(fits).count()
    };
    for outcome in [Ended::Ok, Ended::Failed, Ended::Unknown] {
        assert!(count(Kind::Rw, outcome) >= 5, "rw {outcome:?}: {}", count(Kind::Rw, outcome));
    }
    assert!(count(Kind::Ro, Ended::Ok) >= 5);
}

#[test]
fn flaws_of_transactions_are_found() {
    for flaw in
        [Flaw::NoCommitWait, Flaw::SplitReads, Flaw::IgnoreWatches, Flaw::CommitAborted, Flaw::LoseLastWrite]
    {
        let reports: Vec<Report> = (0..10).map(|seed| run(flaw, seed, |_| {})).collect();
        let found: Vec<&Report> = reports.iter().filter(|report| report.end == End::Violated).collect();
        assert!(found.len() >= 5, "{flaw:?} was found in {} of ten runs", found.len());
        println!("{flaw:?}: {}", found[0].reason);
    }
}

/// What causal engines are asked for: snapshots of several keys, deletions, and levels, which change nothing here.
#[test]
fn snapshots_are_judged() {
    let snapshots = |flaw, seed| {
        run(flaw, seed, |options| {
            options.workload.several = Several::Snapshots;
            options.workload.mix = Mix { reads: 3, writes: 2, rmws: 0 };
            options.workload.moves_percent = 10;
        })
    };
    let report = snapshots(Flaw::None, 1);
    assert!(report.verify().is_ok(), "{:?}", report.verify());
    let rots = report.history.iter().filter(|event| event.kind == Kind::Rot && event.ops.len() > 1);
    assert!(rots.count() > 300);
    let deletes = report.history.iter().flat_map(|event| &event.ops);
    assert!(deletes.filter(|access| access.mode == Mode::Write && access.value.is_none()).count() > 20);
    for (level, name) in Level::NAMES {
        let of_level = report.history.iter().filter(|event| event.level.as_deref() == Some(name));
        assert!(of_level.count() > 50, "{level:?}");
    }
    let found = (0..10).filter(|seed| snapshots(Flaw::SplitReads, *seed).end == End::Violated);
    assert!(found.count() >= 5);
}

fn together(script: &mut Script<Ledger>, session: script::Session, parts: &[(&str, Plan)]) -> Outcome {
    let operation = script.begin_together(session, parts);
    script.finish(operation).outcome
}

#[test]
fn a_script_dictates_transactions_request_by_request() {
    let mut script = Script::new(Ledger(Flaw::None), Setting::equidistant(3, 100));
    let (one, two) = (script.session(1), script.session(2));
    let set = |value: &str| Plan::Set(value.into());
    assert!(matches!(
        together(&mut script, one, &[("x", set("1")), ("y", set("2")), ("x", Plan::Append("a".into()))]),
        Outcome::Answers(Some(replies)) if replies.len() == 4
    ));
    for (disturbed, ended) in [(false, Ended::Ok), (true, Ended::Failed)] {
        let open = script.begin_with(one, Kind::Rw, None, Step::Begin { read_only: false });
        assert_eq!(script.answer(open).outcome, Outcome::Done);
        for (key, plan) in [("x", Plan::Get), ("y", set("3"))] {
            script.ask(open, Step::Act(key.into(), plan));
            assert!(matches!(script.answer(open).outcome, Outcome::Answer(_)));
        }
        if disturbed {
            script.run(two, "x", &set("9"));
        }
        script.ask(open, Step::Commit);
        script.finish(open);
        let history = script.history();
        let event = history.iter().rfind(|event| event.kind == Kind::Rw);
        assert_eq!(event.map(|event| event.outcome), Some(ended), "{history:?}");
    }
    script.expect(Model::StrictSerializable, Verdict::Holds);
}

#[test]
fn clocks_outside_of_their_bound_break_the_promise_that_rests_on_them() {
    let broken = |seed| run(Flaw::None, seed, |options| options.clocks = Clocks::Broken);
    let found = (0..10).filter(|seed| broken(*seed).end == End::Violated).count();
    assert!(found >= 5, "found in {found} of ten runs");
}
