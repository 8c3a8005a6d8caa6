//! `check --transform`: the equivalent history that obeys the stronger model (RSS paper, lemma 1).

use super::{Options, print_line, verdict_of};
use crate::fault::{Fault, Verdict};
use meridian_check::{Model, history, transform};
use meridian_protocol::history::Event;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

/// Writes the transformed history and prints the stronger model's verdict on it, or says why there is none.
pub(super) fn write(options: &Options, out: &Path, model: Model, events: &[Event]) -> Result<Verdict, Fault> {
    let name = out.display().to_string();
    let done = match transform(model, events) {
        Ok(done) => done,
        Err(judgement) => {
            eprintln!("meridian: {name}: not written: {model} {}: {}", judgement.verdict, judgement.reason);
            return Ok(verdict_of(&judgement).and(Verdict::Undecided));
        }
    };
    let write = || history::write(&done.events, BufWriter::new(File::create(out)?));
    write().map_err(|error| Fault::new(name, error, "name a file that can be written"))?;
    let mut judgement = done.judgement;
    let what = if done.changed { "times reassigned, every session's own order kept" } else { "unchanged" };
    judgement.reason = format!("{what}: {}", judgement.reason);
    print_line(options, out, done.target, &judgement);
    Ok(Verdict::Fine)
}
