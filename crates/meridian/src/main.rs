//! The `meridian` command.

mod bench;
mod check;
mod client;
mod dev;
mod fault;
mod lab;
mod log;
mod serve;
mod signals;
mod sim;
mod status;

use clap::{CommandFactory, Parser, Subcommand};
use fault::{Ended, Fault, Verdict};
use std::process::ExitCode;

/// A geo-replicated key-value database in which every keyspace states its consistency model
#[derive(Debug, Parser)]
#[command(version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Dev(dev::Options),
    Serve(serve::Options),
    Bench(bench::Options),
    Sim(sim::Options),
    Check(check::Options),
    Lab(lab::Options),
    Status(status::Options),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    report(match cli.command {
        Command::Dev(options) => dev::run(options),
        Command::Serve(options) => serve::run(&options),
        Command::Bench(options) => bench::run(&options),
        Command::Sim(options) => sim::run(&options),
        Command::Check(options) => check::run(&options),
        Command::Lab(options) => lab::run(&options),
        Command::Status(options) => status::run(&options),
    })
}

fn report(ended: Ended) -> ExitCode {
    match ended {
        Ok(verdict) => verdict.into(),
        Err(faults) => {
            for fault in faults {
                eprintln!("{fault}");
            }
            Verdict::BadInput.into()
        }
    }
}

/// Help and version go to stdout and are fine; everything else is one line in the form of all errors.
fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        print!("{}", error.render());
        return Verdict::Fine.into();
    }
    let text = error.render().to_string();
    // What is missing stands on lines of its own.
    let what = text.split("\n\n").next().unwrap_or_default();
    let command = std::env::args().nth(1).filter(|name| Cli::command().find_subcommand(name).is_some());
    let help = command.map_or("--help".to_owned(), |name| format!("{name} --help"));
    let what = what.strip_prefix("error: ").unwrap_or("no command");
    report(Err(Fault::new("usage", what, format!("see 'meridian {help}'")).into()))
}
