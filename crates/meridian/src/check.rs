//! `meridian check`: judges recorded histories.

mod explain;
mod transform;

use crate::fault::{Ended, Fault, Verdict};
use meridian_check::history::{self, Format, History};
use meridian_check::{Judgement, Model};
use serde::Serialize;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

/// Judge recorded histories: do they obey the consistency models named?
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[arg(long, value_name = "M[,M...]|all", value_delimiter = ',', required = true, help = help_of_models())]
    model: Vec<String>,
    /// History files; each is judged for itself
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// What the files are: native, jepsen or porcupine; by default each file's beginning and name tell
    #[arg(long, value_name = "FORMAT", value_parser = format_named)]
    format: Option<Format>,
    /// Write a page that shows why models are violated: the operations that have no order, on a timeline
    #[arg(long, value_name = "OUT.html")]
    explain: Option<PathBuf>,
    /// Write the equivalent history that is linearizable (strictly serializable), if rsc (rss) holds
    #[arg(long, value_name = "OUT.jsonl")]
    transform: Option<PathBuf>,
    /// Print one JSON object a line instead of columns
    #[arg(long)]
    json: bool,
}

fn help_of_models() -> String {
    format!("Models to judge by, separated by commas, or 'all': {}", names_of_models())
}

fn names_of_models() -> String {
    Model::ALL.map(|(name, _)| name).join(", ")
}

fn format_named(name: &str) -> Result<Format, String> {
    Format::named(name)
        .ok_or_else(|| format!("choose one of {}", Format::ALL.map(|(name, _)| name).join(", ")))
}

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
    if all && options.model.len() > 1 {
        faults.push(Fault::new(
            "--model",
            "'all' is every model, and no violation fails",
            "name all alone, or models",
        ));
    }
    if all {
        models = Model::ALL.map(|(_, model)| model).into();
    }
    if (options.explain.is_some() || options.transform.is_some()) && options.files.len() > 1 {
        faults.push(Fault::new("--explain, --transform", "they are about one history", "name one file"));
    }
    if options.transform.is_some() && !matches!(models[..], [Model::Rsc | Model::Rss]) {
        faults.push(Fault::new(
            "--transform",
            "it needs one model to start from",
            "add --model rsc or --model rss",
        ));
    }
    let mut histories = Vec::new();
    for path in &options.files {
        match read(path, options.format) {
            Ok(history) => histories.push((path, history)),
            Err(more) => faults.extend(more),
        }
    }
    if !faults.is_empty() {
        return Err(faults);
    }

    let mut verdict = Verdict::Fine;
    for (path, history) in &histories {
        warn(path, history);
        let mut violated = Vec::new();
        for model in &models {
            let judgement = history.judge(*model);
            violated.extend((judgement.verdict == meridian_check::Verdict::Violated).then_some(*model));
            print_line(options, path, *model, &judgement);
            // Asked about everything, no single answer is a failure.
            if !all {
                verdict = verdict.and(verdict_of(&judgement));
                faults.extend(not_applicable(path, *model, &judgement));
            }
        }
        if let Some(out) = &options.explain {
            explain::write(out, &violated, &history.events)?;
        }
        if let Some(out) = &options.transform {
            verdict = verdict.and(transform::write(options, out, models[0], &history.events)?);
        }
    }
    if faults.is_empty() { Ok(verdict) } else { Err(faults) }
}

fn model_named(name: &str) -> Result<Model, Fault> {
    Model::named(name).ok_or_else(|| {
        let way_out = format!("choose one of {}, or all", names_of_models());
        Fault::new(format!("--model {name}"), "no model is called so", way_out)
    })
}

fn read(path: &Path, format: Option<Format>) -> Result<History, Vec<Fault>> {
    let unreadable = |error| vec![Fault::new(path.display().to_string(), error, "name a history file")];
    let mut input = BufReader::new(File::open(path).map_err(unreadable)?);
    let beginning = input.fill_buf().map_err(unreadable)?;
    let format = format.unwrap_or_else(|| Format::detect(path, beginning));
    history::read(input, format).map_err(|faults| {
        let fault = |fault: &history::Fault| {
            let what = format!("{}: line {}", path.display(), fault.line);
            Fault::new(what, &fault.reason, &fault.remedy)
        };
        faults.iter().map(fault).collect()
    })
}

/// Says what a person should know about a history that can be judged all the same.
fn warn(path: &Path, history: &History) {
    let path = path.display();
    if history.events.is_empty() {
        eprintln!("meridian: {path}: the history is empty: it obeys every model and proves nothing");
    }
    for warning in &history.warnings {
        eprintln!("meridian: {path}: {warning}");
    }
}

fn verdict_of(judgement: &Judgement) -> Verdict {
    match judgement.verdict {
        meridian_check::Verdict::Holds => Verdict::Fine,
        meridian_check::Verdict::Violated => Verdict::Negative,
        meridian_check::Verdict::Undecided | meridian_check::Verdict::NotApplicable => Verdict::Undecided,
    }
}

/// Who names a model of single operations for transactions has asked the wrong question: a script must not take
/// that for "holds". That a history has nothing that a model speaks of leaves it undecided.
fn not_applicable(path: &Path, model: Model, judgement: &Judgement) -> Option<Fault> {
    if judgement.verdict != meridian_check::Verdict::NotApplicable {
        return None;
    }
    let way_out = format!("name {} instead", model.for_transactions()?);
    Some(Fault::new(format!("{}: --model {model}", path.display()), &judgement.reason, way_out))
}

/// Prints a line, to nobody if the reader of a pipe has gone: the exit status still tells.
fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
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
        say(&serde_json::to_string(&line).expect("a line is made of strings"));
    } else if options.files.len() > 1 {
        say(&format!("{model}\t{}\t{file}: {}", judgement.verdict, judgement.reason));
    } else {
        say(&format!("{model}\t{}\t{}", judgement.verdict, judgement.reason));
    }
}
