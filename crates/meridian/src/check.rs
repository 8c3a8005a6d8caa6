//! `meridian check`: judges recorded histories.

use crate::fault::{Ended, Fault, Verdict};
use meridian_check::{Judgement, Model};
use meridian_protocol::history::Event;
use serde::Serialize;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

/// Judge recorded histories: do they obey the consistency models named?
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Models to judge by, separated by commas, or 'all': linearizable, rsc
    #[arg(long, value_name = "M[,M...]|all", value_delimiter = ',', required = true)]
    model: Vec<String>,
    /// History files, one JSON object a line; each is judged for itself
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Draw what violates a model (not built yet: refused)
    #[arg(long, value_name = "OUT.html")]
    explain: Option<PathBuf>,
    /// Print one JSON object a line instead of columns
    #[arg(long)]
    json: bool,
}

/// Models that `check` is to judge one day, by the names that interfaces promise.
const NOT_BUILT: [&str; 18] = [
    "sequential",
    "strict-serializable",
    "rss",
    "rss-per-service",
    "rsc-per-service",
    "po-serializable",
    "serializable",
    "causal",
    "causal-rot",
    "ryw",
    "mr",
    "mw",
    "wfr",
    "tcc-spec",
    "tcc-closed",
    "eventual",
    "osc",
    "vv-regularity",
];

/// One line of the output.
#[derive(Serialize)]
struct Line<'a> {
    model: String,
    verdict: String,
    reason: &'a str,
    file: String,
}

/// Judges every file by every model and prints a line for each.
pub(crate) fn run(options: &Options) -> Ended {
    let all = options.model.iter().any(|name| name == "all");
    let mut faults = Vec::new();
    let mut models = Vec::new();
    for name in options.model.iter().filter(|name| *name != "all") {
        match model_named(name) {
            Ok(model) => models.push(model),
            Err(fault) => faults.push(fault),
        }
    }
    if all {
        models = Model::ALL.iter().map(|(_, model)| *model).collect();
    }
    if let Some(path) = &options.explain {
        let what = format!("--explain {}", path.display());
        faults.push(Fault::new(what, "not built yet", "read the reason that each line gives"));
    }
    let mut histories = Vec::new();
    for path in &options.files {
        match read(path) {
            Ok(events) => histories.push((path, events)),
            Err(more) => faults.extend(more),
        }
    }
    if !faults.is_empty() {
        return Err(faults);
    }

    let mut verdict = Verdict::Fine;
    for (path, events) in &histories {
        if events.is_empty() {
            eprintln!(
                "meridian: {}: the history is empty: it obeys every model and proves nothing",
                path.display()
            );
        }
        for model in &models {
            let judgement = meridian_check::check(*model, events);
            // Asked about everything, no single answer is a failure.
            if !all {
                verdict = verdict.and(verdict_of(&judgement));
            }
            print_line(options, path, *model, &judgement);
        }
    }
    Ok(verdict)
}

fn model_named(name: &str) -> Result<Model, Fault> {
    let known = || Model::ALL.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    Model::named(name).ok_or_else(|| {
        let why = if NOT_BUILT.contains(&name) { "not built yet" } else { "no model is called so" };
        Fault::new(format!("--model {name}"), why, format!("choose one of {}, or all", known()))
    })
}

fn read(path: &Path) -> Result<Vec<Event>, Vec<Fault>> {
    let fault = |why: String, way_out: &str| Fault::new(path.display().to_string(), why, way_out);
    let file = File::open(path)
        .map_err(|error| vec![fault(error.to_string(), "name a history file, one JSON object a line")])?;
    meridian_check::history::read(BufReader::new(file)).map_err(|faults| {
        faults.iter().map(|f| fault(f.to_string(), "mend the line or leave it out")).collect()
    })
}

fn verdict_of(judgement: &Judgement) -> Verdict {
    match judgement.verdict {
        meridian_check::Verdict::Holds => Verdict::Fine,
        meridian_check::Verdict::Violated => Verdict::Negative,
        meridian_check::Verdict::Undecided => Verdict::Undecided,
    }
}

fn print_line(options: &Options, path: &Path, model: Model, judgement: &Judgement) {
    let file = path.display().to_string();
    if options.json {
        let line = Line {
            model: model.to_string(),
            verdict: judgement.verdict.to_string(),
            reason: &judgement.reason,
            file,
        };
        println!("{}", serde_json::to_string(&line).expect("a line is made of strings"));
    } else if options.files.len() > 1 {
        println!("{model}\t{}\t{file}: {}", judgement.verdict, judgement.reason);
    } else {
        println!("{model}\t{}\t{}", judgement.verdict, judgement.reason);
    }
}
