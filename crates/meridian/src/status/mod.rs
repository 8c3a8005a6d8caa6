//! `meridian status`: what an operator wants to know of a running cluster, in one table.

mod report;
mod told;

use crate::client::{Access, Login, Opened};
use crate::fault::{Ended, Fault, Verdict};
use meridian_node::config::units::duration;
use report::Report;
use std::rc::Rc;
use std::time::Duration;
use tokio::runtime::LocalOptions;
use told::Told;

/// Show a running cluster: its nodes, keyspaces, leaders, lags and clocks
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Nodes to ask, best all of them: what others see of a node that is not asked is shown as well
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', default_value = "127.0.0.1:7001")]
    target: Vec<String>,
    #[command(flatten)]
    access: Access,
    /// After how long a node counts as one that does not answer
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = duration)]
    timeout: Duration,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Asks all nodes at once and prints what they say.
pub(crate) fn run(options: &Options) -> Ended {
    let access = options.access.open()?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
    let runtime = runtime.map_err(|error| {
        Fault::new("status", format!("cannot start: {error}"), "free memory or file descriptors")
    })?;
    let report = Report::new(&runtime.block_on(ask_all(options, &access)));
    if options.json {
        let text = serde_json::to_string_pretty(&report).expect("a report is made of numbers and strings");
        println!("{text}");
    } else {
        print!("{}", report.table());
    }
    Ok(if report.is_ready() { Verdict::Fine } else { Verdict::Negative })
}

/// What each node says, or why it says nothing.
async fn ask_all(options: &Options, access: &Rc<Opened>) -> Vec<(String, Result<Told, String>)> {
    let ask = |target: &String| {
        let login = Login { target: target.clone(), access: Rc::clone(access), database: None };
        let timeout = options.timeout;
        let asked = async move {
            let told = tokio::time::timeout(timeout, async { Told::ask(&login, timeout).await });
            told.await.unwrap_or_else(|_| Err(format!("no answer within {timeout:?}")))
        };
        (target.clone(), tokio::task::spawn_local(asked))
    };
    let asking: Vec<_> = options.target.iter().map(ask).collect();
    let mut told = Vec::new();
    for (target, asked) in asking {
        told.push((target, asked.await.expect("asking does not panic")));
    }
    told
}
