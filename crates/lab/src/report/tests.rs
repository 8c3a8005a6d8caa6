use super::*;
use crate::definition::SOUND_FOR_TESTS;
use crate::results::jobs;
use crate::{batch, measure};

/// The small experiment, run; claims may be changed.
fn reported(changes: &[(&str, &str)]) -> Reported {
    let mut text = SOUND_FOR_TESTS.to_owned();
    for (old, new) in changes {
        assert!(text.contains(old), "{old}");
        text = text.replace(old, new);
    }
    let experiment = Experiment::read(&text).unwrap_or_else(|faults| panic!("{faults:#?}"));
    let (jobs, _) = jobs(&experiment, Scale::Quick);
    let mut results = Results::default();
    results.add(jobs.into_iter().map(|job| {
        let measured = measure(&job.planned.run, job.seed).unwrap();
        (job.planned.series, job.planned.point, measured)
    }));
    let judged = judge(&experiment, &results);
    Reported { experiment, scale: Scale::Quick, results, judged }
}

#[test]
fn a_verdict_turns_with_its_claim() {
    let verdict = |changes: &[(&str, &str)]| {
        let reported = reported(changes);
        let judged = &reported.judged[0];
        (judged.verdict.word(), judged.to_string(), judged.is_alarming())
    };
    assert_eq!(verdict(&[]), ("reproduced", "reproduced within 0.0%".to_owned(), false));
    let (word, text, alarming) =
        verdict(&[("published = 88.0", "published = 44.0\ndiffers = \"half the way\"")]);
    assert_eq!((word, text.as_str(), alarming), ("differs", "holds, +100%: half the way", false));
    let (word, text, alarming) = verdict(&[("holds = { to = 90.0 }", "holds = { to = 80.0 }")]);
    assert_eq!((word, text.as_str(), alarming), ("fails", "fails: why is not known", true));
    assert_eq!(verdict(&[("published = 88.0", "")]).0, "holds");
    assert!(!verdict(&[("holds = { to = 90.0 }", "holds = { to = 80.0 }"), ("headline = true", "")]).2);
    assert_eq!(verdict(&[("op = \"read\", series", "op = \"rmw\", series")]).0, "open");
}

#[test]
fn the_page_says_what_was_found() {
    let page = page(&[reported(&[("A test", "A <test> & more")])]).unwrap();
    for part in [
        "Reads take one round trip",
        "88 ms",
        "reproduced within 0.0%",
        "meridian lab run small --quick",
        "<svg",
    ] {
        assert!(page.contains(part), "{part}");
    }
    assert!(page.contains("A &#60;test&#62; &#38; more"), "text is escaped");
    for part in ["<script", "src=", "http://www.example", "@import"] {
        assert!(!page.contains(part), "{part}");
    }
}

#[test]
fn what_is_kept_is_the_same_in_markdown_and_pictures() {
    let files = kept::files(&[reported(&[("A test", "A <test> | more")])]).unwrap();
    let names: Vec<_> = files.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["README.md", "figures/small-1.svg", "report.html"]);
    let [readme, picture, page] = [0, 1, 2].map(|file| files[file].1.as_str());
    for part in [
        "| 88 ms | 88 ms | 1.00 | reproduced within 0.0% |",
        "src=\"figures/small-1.svg\"",
        "`meridian lab run small --quick`",
    ] {
        assert!(readme.contains(part), "{part}\n{readme}");
    }
    assert!(picture.starts_with("<svg xmlns") && picture.trim_end().ends_with("</svg>"), "{picture}");
    assert!(page.starts_with("<!DOCTYPE html>"));
}

#[test]
fn results_are_kept_and_not_computed_again() {
    let out = tempfile::tempdir().unwrap();
    let experiment = Experiment::read(SOUND_FOR_TESTS).unwrap();
    let (jobs, refused) = jobs(&experiment, Scale::Quick);
    assert!(refused.is_empty());
    let mut done = 0;
    batch::run(&jobs, out.path(), |_| done += 1).unwrap();
    assert_eq!(done, jobs.len());
    let first = std::fs::read(jobs[0].path(out.path())).unwrap();
    // What is there is taken as it is: changed, it stays changed.
    let text = String::from_utf8(first.clone()).unwrap();
    std::fs::write(jobs[0].path(out.path()), text.replace("\"failures\":0", "\"failures\":77")).unwrap();
    batch::run(&jobs, out.path(), |_| ()).unwrap();
    assert_eq!(jobs[0].result(out.path()).unwrap().measured.failures, 77);
    // A torn file is none; what is computed anew is the same, byte for byte.
    std::fs::write(jobs[0].path(out.path()), &text[..text.len() / 2]).unwrap();
    assert!(jobs[0].result(out.path()).is_none());
    batch::run(&jobs, out.path(), |_| ()).unwrap();
    assert_eq!(std::fs::read(jobs[0].path(out.path())).unwrap(), first);
    // Another definition or seed has another file.
    let mut other = jobs[0].clone();
    other.planned.run.time.measure_s += 1.0;
    assert!(other.result(out.path()).is_none());
    other = jobs[0].clone();
    other.seed += 1;
    assert!(other.result(out.path()).is_none());
    assert_eq!(Reported::read(experiment, out.path()).scale, Scale::Quick);
}
