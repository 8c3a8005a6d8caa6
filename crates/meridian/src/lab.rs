//! `meridian lab`: the published evaluation run again, and engines compared in one's own regions.

use crate::fault::{Ended, Fault, Verdict};
use crate::signals;
use indicatif::{ProgressBar, ProgressStyle};
use meridian_lab::compare::Question;
use meridian_lab::definition::{Experiment, Scale};
use meridian_lab::report::{self, Reported, with_unit};
use meridian_lab::results::{Job, jobs};
use meridian_lab::{batch, catalog};
use std::path::{Path, PathBuf};

/// Reproduce the published evaluation under virtual time, or compare engines in your own regions
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// List the experiments: name, paper and figure, seconds it takes on two cores
    List,
    /// Run experiments; what was finished before is not run again
    Run(Run),
    /// Write report.html from what was run
    Report(Report),
    /// Compare engines in your own regions, with your own mix
    Compare(Compare),
}

#[derive(Debug, clap::Args)]
struct Run {
    /// Names of experiments, or all
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// Smaller runs: all of them in ten minutes on two cores
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    out: Out,
}

#[derive(Debug, clap::Args)]
struct Out {
    /// Where results and the report go
    #[arg(long, value_name = "DIR", default_value = "lab-out")]
    out: PathBuf,
}

#[derive(Debug, clap::Args)]
struct Report {
    #[command(flatten)]
    out: Out,
    /// Write it for keeping here: README.md, pictures under figures, and the page
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
struct Compare {
    /// Names of regions, an odd number, or how many of those that the round-trip times name
    #[arg(long, value_name = "REGIONS")]
    regions: String,
    /// Round-trip times: azure (medians that Microsoft published), paper, paper-spanner, or a CSV file with a header of
    /// region names, then milliseconds
    #[arg(long, value_name = "RTT", default_value = "azure")]
    rtt: String,
    /// Shares of reads, writes and rmws
    #[arg(long, value_name = "READ:WRITE:RMW", default_value = "95:5:0", value_parser = mix)]
    mix: [f64; 3],
    /// Engines to compare, separated by commas
    #[arg(
        long,
        value_name = "ENGINES",
        default_value = "gryff,gryff-rsc,epaxos,multipaxos",
        value_delimiter = ','
    )]
    engines: Vec<String>,
    /// Of all operations so many in a hundred go to one shared key, the others to a key of the client's own
    #[arg(long, value_name = "PCT", default_value_t = 2.0, conflicts_with = "zipf")]
    conflict: f64,
    /// Choose keys by Zipf's law of this skew instead
    #[arg(long, value_name = "THETA")]
    zipf: Option<f64>,
    /// How many keys there are, with --zipf
    #[arg(long, value_name = "N", default_value_t = 1_000_000, requires = "zipf")]
    keys: u32,
    /// Clients in each region, each with one operation at a time
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..))]
    clients: u16,
    /// How long a client waits between two operations, in ms
    #[arg(long, value_name = "MS", default_value_t = 0.0)]
    think: f64,
    /// Virtual seconds to measure
    #[arg(long, value_name = "S", default_value_t = 60.0)]
    seconds: f64,
    #[command(flatten)]
    out: Out,
}

/// Does what was asked.
pub(crate) fn run(options: &Options) -> Ended {
    match &options.what {
        What::List => {
            list();
            Ok(Verdict::Fine)
        }
        What::Run(run) => run_experiments(run),
        What::Report(asked) => report(asked),
        What::Compare(compare) => compare.run(),
    }
}

fn list() {
    for Experiment { header, .. } in catalog::all() {
        println!("{}\t{} {}\t{}", header.name, header.paper, header.figure, header.seconds[0]);
    }
}

fn run_experiments(run: &Run) -> Ended {
    let experiments =
        catalog::named(&run.names).map_err(|unknown| faults(unknown, "see 'meridian lab list'"))?;
    let scale = if run.quick { Scale::Quick } else { Scale::Full };
    let mut work: Vec<Job> = Vec::new();
    let mut verdict = Verdict::Fine;
    for experiment in &experiments {
        let (jobs, refused) = jobs(experiment, scale);
        for (series, why) in refused {
            eprintln!(
                "meridian: {}: {series}: {why}: the experiment's other series are run",
                experiment.header.name
            );
        }
        work.extend(jobs);
    }
    end_when_asked();
    let out = &run.out.out;
    let bar = progress(&work);
    batch::run(&work, out, |job| {
        bar.inc(batch::weight(&job.planned.run));
        bar.set_message(job.experiment.clone());
    })
    .map_err(|error| Fault::new(out.display().to_string(), error, "choose a place that can be written"))?;
    bar.finish_and_clear();
    for experiment in experiments {
        let results = meridian_lab::results::Results::read(&experiment, scale, out);
        let judged = meridian_lab::verdict::judge(&experiment, &results);
        verdict = verdict.and(tell(&Reported { experiment, scale, results, judged }));
    }
    Ok(verdict)
}

/// Prints what came of an experiment's claims.
fn tell(reported: &Reported) -> Verdict {
    let mut verdict = Verdict::Fine;
    for judged in &reported.judged {
        let show =
            |value: Option<f64>| value.map_or("-".to_owned(), |value| with_unit(value, &judged.claim.unit));
        println!(
            "{}\t{}\tpaper {}\tours {}\t{judged}",
            reported.experiment.header.name,
            judged.claim.text,
            show(judged.claim.published),
            show(judged.ours),
        );
        if judged.is_alarming() {
            verdict = verdict.and(Verdict::Negative);
        }
    }
    verdict
}

fn report(asked: &Report) -> Ended {
    let out = &asked.out.out;
    let reported: Vec<Reported> =
        catalog::all().into_iter().map(|experiment| Reported::read(experiment, out)).collect();
    if reported.iter().all(|reported| reported.results.points.is_empty()) {
        return Err(Fault::new(
            out.display().to_string(),
            "there are no results",
            "run 'meridian lab run all' first",
        )
        .into());
    }
    let bug = |error| Fault::new("report.html", error, "report this as a bug");
    match &asked.keep {
        None => write(out, "report.html", &report::page(&reported).map_err(bug)?)?,
        Some(kept) => {
            for (name, text) in report::kept::files(&reported).map_err(bug)? {
                write(kept, &name, &text)?;
            }
        }
    }
    let alarming =
        reported.iter().flat_map(|reported| &reported.judged).any(meridian_lab::verdict::Judged::is_alarming);
    Ok(if alarming { Verdict::Negative } else { Verdict::Fine })
}

fn write(out: &Path, name: &str, page: &str) -> Result<(), Fault> {
    let path = out.join(name);
    let directory = path.parent().unwrap_or(out);
    std::fs::create_dir_all(directory).and_then(|()| std::fs::write(&path, page)).map_err(|error| {
        Fault::new(path.display().to_string(), error, "choose a place that can be written")
    })?;
    println!("{}", path.display());
    Ok(())
}

impl Compare {
    fn run(&self) -> Ended {
        end_when_asked();
        let out = &self.out.out;
        let answer =
            self.question()?.ask(out).map_err(|found| faults(found, "see 'meridian lab compare --help'"))?;
        println!("engine\tmodel\toperation\tp50 ms\tp99 ms\tp99.9 ms\tops/s");
        for cost in answer.costs() {
            let [p50, p99, p999] = cost.percentiles;
            let (engine, model, op) = (cost.engine, cost.model, cost.op);
            println!("{engine}\t{model}\t{op}\t{p50:.1}\t{p99:.1}\t{p999:.1}\t{:.0}", cost.per_second);
        }
        let page =
            answer.page().map_err(|error| Fault::new("compare.html", error, "report this as a bug"))?;
        write(out, "compare.html", &page)?;
        Ok(Verdict::Fine)
    }

    fn question(&self) -> Result<Question, Fault> {
        let mut keys = toml::Table::new();
        if let Some(theta) = self.zipf {
            let zipf = [("keys".to_owned(), i64::from(self.keys).into()), ("theta".to_owned(), theta.into())];
            keys.insert("zipf".to_owned(), toml::Value::Table(zipf.into_iter().collect()));
        } else {
            keys.insert("conflict".to_owned(), self.conflict.into());
        }
        let known = ["azure", "paper", "paper-spanner", "none"].contains(&self.rtt.as_str());
        let rtt = if known || self.rtt.starts_with("same:") {
            self.rtt.clone()
        } else {
            std::fs::read_to_string(&self.rtt).map_err(|error| {
                Fault::new(format!("--rtt {}", self.rtt), error, "name a CSV file, azure or paper")
            })?
        };
        Ok(Question {
            regions: self.regions.clone(),
            rtt,
            mix: self.mix,
            keys,
            clients: self.clients.into(),
            think_ms: self.think,
            seconds: self.seconds,
            engines: self.engines.clone(),
        })
    }
}

/// A bar over all the work; hidden by itself when stderr is no terminal.
fn progress(work: &[Job]) -> ProgressBar {
    let total = work.iter().map(|job| batch::weight(&job.planned.run)).sum();
    let style = ProgressStyle::with_template("{bar:40} {percent:>3}%, {eta} left, {msg}");
    let bar = ProgressBar::new(total).with_style(style.expect("the template is a constant"));
    bar.enable_steady_tick(std::time::Duration::from_secs(1));
    bar
}

/// Ends the process when it is asked to end. What is finished is kept, and nothing else is worth waiting for.
fn end_when_asked() {
    std::thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        if let Ok(runtime) = runtime {
            runtime.block_on(signals::stop());
            std::process::exit(0);
        }
    });
}

fn faults(all: Vec<String>, way_out: &str) -> Vec<Fault> {
    all.into_iter().map(|why| Fault::new("lab", why, way_out)).collect()
}

fn mix(text: &str) -> Result<[f64; 3], String> {
    let parts: Vec<f64> = text.split(':').filter_map(|part| part.parse().ok()).collect();
    <[f64; 3]>::try_from(parts)
        .ok()
        .filter(|shares| {
            shares.iter().all(|share| (0.0..1e9).contains(share)) && shares.iter().any(|share| *share > 0.0)
        })
        .ok_or_else(|| "give three shares, not all zero, such as 95:4.5:0.5".to_owned())
}
