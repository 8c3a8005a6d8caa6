//! What nodes tell of themselves while they run: lines on stderr.

use std::io::IsTerminal;
use tracing::level_filters::LevelFilter;

/// The variable that chooses how much is told.
const VARIABLE: &str = "MERIDIAN_LOG";

/// Begins to write what is at least as grave as `standard`, or as `MERIDIAN_LOG` says: off, error, warn, info,
/// debug or trace.
pub(crate) fn begin(standard: LevelFilter) {
    let wanted = std::env::var(VARIABLE).unwrap_or_default();
    let level = wanted.parse().ok().filter(|_| !wanted.is_empty());
    if level.is_none() && !wanted.is_empty() {
        eprintln!(
            "meridian: {VARIABLE}={wanted}: no such level: choose off, error, warn, info, debug or trace"
        );
    }
    tracing_subscriber::fmt()
        .with_max_level(level.unwrap_or(standard))
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .init();
}
