//! Many runs on all cores. What is finished is kept at once: a batch that was stopped goes on where it was.

use crate::definition::{Clients, Run};
use crate::measure;
use crate::results::Job;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

/// About how much work a run is, in no particular unit.
pub fn weight(run: &Run) -> u64 {
    let time = run.time.warm_up_s + run.time.measure_s;
    let clients = match &run.clients {
        Clients::Closed(closed) => closed.per_region as f64,
        Clients::PartlyOpen(open) => open.sessions_per_second / (1.0 - open.stay),
    };
    let at_once =
        run.requests.as_ref().filter(|requests| requests.at_once).map_or(1, |requests| requests.parts);
    (time * clients * at_once as f64 * 10.0).max(1.0) as u64
}

/// Runs every job that has no result under `out` yet, the largest first. `done` hears of each that has one now.
///
/// # Errors
/// A result that could not be written, or a run that could not be done.
pub fn run(jobs: &[Job], out: &Path, mut done: impl FnMut(&Job)) -> io::Result<()> {
    let (finished, mut waiting): (Vec<&Job>, Vec<&Job>) =
        jobs.iter().partition(|job| job.result(out).is_some());
    for job in finished {
        done(job);
    }
    waiting.sort_by_key(|job| std::cmp::Reverse(weight(&job.planned.run)));
    let next = AtomicUsize::new(0);
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(waiting.len());
    let (tell, told) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..workers {
            let tell = tell.clone();
            let (next, waiting) = (&next, &waiting);
            scope.spawn(move || {
                while let Some(job) = waiting.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let kept = measure(&job.planned.run, job.seed)
                        .map_err(io::Error::other)
                        .and_then(|measured| job.keep(out, measured));
                    // The receiver is gone when a result could not be kept: then there is no more to do.
                    if tell.send((*job, kept)).is_err() {
                        break;
                    }
                }
            });
        }
        drop(tell);
        for (job, kept) in told {
            kept?;
            done(job);
        }
        Ok(())
    })
}
