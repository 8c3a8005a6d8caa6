//! `meridian serve`: one node of a real cluster.

use crate::fault::{Ended, Fault, Verdict};
use meridian_node::config::Config;
use std::path::PathBuf;
use tracing::level_filters::LevelFilter;

/// Run one node of a cluster
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The cluster's configuration, the same file on all nodes
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Which node of it to run, by its name
    #[arg(long, value_name = "NAME")]
    node: String,
    /// Only check the configuration
    #[arg(long)]
    check: bool,
}

/// Runs until it is told to stop.
pub(crate) fn run(options: &Options) -> Ended {
    let path = options.config.display();
    let config = Config::load(&options.config).map_err(|faults| {
        let fault = |fault: &meridian_node::config::Fault| {
            // Line 0 is the file as a whole.
            let place =
                if fault.line == 0 { path.to_string() } else { format!("{path}: line {}", fault.line) };
            Fault::new(place, &fault.reason, "mend the file; docs/operations.md explains every setting")
        };
        faults.iter().map(fault).collect::<Vec<_>>()
    })?;
    let Some(me) = config.node(&options.node) else {
        let names: Vec<&str> = config.nodes.iter().map(|node| node.name.as_str()).collect();
        let why = format!("no [[node]] of {path} is called so");
        return Err(Fault::new(
            format!("--node {}", options.node),
            why,
            format!("choose one of {}", names.join(", ")),
        )
        .into());
    };
    if options.check {
        meridian_node::check(&config, me).map_err(|error| Fault::of("serve", &error))?;
        println!("{path}: sound: {} nodes, {} keyspaces", config.nodes.len(), config.keyspaces.len());
        return Ok(Verdict::Fine);
    }
    crate::log::begin(LevelFilter::INFO);
    meridian_node::serve(config, &options.node)
        .map(|()| Verdict::Fine)
        .map_err(|error| Fault::of("serve", &error).into())
}
