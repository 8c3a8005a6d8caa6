//! The lab: the published evaluation as data, run under virtual time, plotted and compared with what the papers claim.
//!
//! [`definition`] reads an experiment, [`catalog`] has those that come with the program, [`measure`] plays one run of
//! one, [`batch`] all of them on all cores, keeping what is finished. [`verdict`] computes what came of each claim, and
//! [`report`] writes the page that shows it. [`compare`] makes an experiment of a user's own regions and mix.
//!
//! Results are a function of definition and seed: the same on every machine and in every order of runs.

pub mod batch;
pub mod catalog;
pub mod clouds;
pub mod compare;
pub mod cpu;
pub mod definition;
mod drive;
pub mod report;
pub mod results;
pub mod verdict;
mod workload;

pub use drive::{Latencies, Measured, measure};
