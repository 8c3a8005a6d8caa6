//! The `meridian` command.

mod bench;
mod check;
mod dev;
mod fault;
mod lab;
mod log;
mod serve;
mod signals;
mod sim;

use clap::{CommandFactory, Parser, Subcommand};
use fault::{Ended, Fault, Verdict};
use std::ffi::OsString;
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
    /// Show a running cluster (not built yet: refused)
    #[command(disable_help_flag = true)]
    Status(Anything),
}

/// Whatever follows a command that is not built yet.
#[derive(Debug, clap::Args)]
struct Anything {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    _words: Vec<OsString>,
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
        Command::Status(_) => not_built("status", "ask a node with 'redis-cli -p PORT MERIDIAN.STATUS'"),
    })
}

fn not_built(command: &str, way_out: &str) -> Ended {
    Err(Fault::new(command, "not built yet", way_out).into())
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
    let what = text.lines().next().unwrap_or_default();
    let command = std::env::args().nth(1).filter(|name| Cli::command().find_subcommand(name).is_some());
    let help = command.map_or("--help".to_owned(), |name| format!("{name} --help"));
    let what = what.strip_prefix("error: ").unwrap_or("no command");
    report(Err(Fault::new("usage", what, format!("see 'meridian {help}'")).into()))
}
