//! Every headline's direction, in the smallest runs that show it. The numbers themselves come from full runs.

use meridian_lab::definition::Scale;
use meridian_lab::results::{Results, jobs};
use meridian_lab::verdict::{Verdict, judge};
use meridian_lab::{batch, catalog};

#[test]
fn headlines_hold_in_small_runs() {
    let out = tempfile::tempdir().unwrap();
    let experiments = catalog::all();
    let work: Vec<_> = experiments.iter().flat_map(|experiment| jobs(experiment, Scale::Smoke).0).collect();
    batch::run(&work, out.path(), |_| ()).unwrap();
    let (mut held, mut failed) = (0, Vec::new());
    for experiment in &experiments {
        let results = Results::read(experiment, Scale::Smoke, out.path());
        for judged in judge(experiment, &results).into_iter().filter(|judged| judged.claim.headline) {
            let told =
                format!("{}: {} ({:?}): {judged}", experiment.header.name, judged.claim.text, judged.ours);
            println!("{told}");
            match judged.verdict {
                Verdict::Fails | Verdict::Open(_) => failed.push(told),
                Verdict::Reproduced(_) | Verdict::Differs(_) | Verdict::Holds => held += 1,
            }
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
    assert!(held >= 9, "only {held} headlines were judged");
}
