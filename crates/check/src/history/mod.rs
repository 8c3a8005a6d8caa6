//! Histories as files: reading three formats, writing the first, and every fault of one that cannot be judged.
//!
//! - [`Format::Native`]: one JSON object a line, written by the simulator and by `bench`.
//! - [`Format::Jepsen`]: EDN as Jepsen stores it: registers, list-append and rw-register transactions.
//! - [`Format::Porcupine`]: the logs that the Go checker Porcupine is tested with: key-value logs with appends
//!   to strings, and Jepsen's console logs of a register.
//!
//! All of them become the same events. What is guaranteed: a foreign history obeys a model if and only if its
//! events do, or it is refused with a fault; whatever the bytes, nothing panics, and every fault is told.
//! `docs/history-format.md` describes the formats for who writes them.

mod calls;
mod console;
mod edn;
mod growth;
mod jepsen;
mod native;
mod porcupine;
mod registers;
#[cfg(test)]
mod tests;

pub use native::write;

use crate::{Judgement, Model, Verdict};
use meridian_protocol::history::Event;
use std::fmt;
use std::io::{BufRead, Read};
use std::path::Path;

/// A history that can be judged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// Its operations.
    pub events: Vec<Event>,
    /// What a person should know about it, one line each: what, then what follows from it.
    pub warnings: Vec<String>,
    /// Keys to which some operations write the same value and had to be told apart by real time: see
    /// [`History::judge`].
    pub told_by_time: Vec<String>,
}

impl History {
    /// Judges the history, as [`crate::check`] does, and takes no violation for proven that only real time shows
    /// while the model does not keep it. What is left when keys are left out obeys a model if the whole does, so a
    /// violation that the other keys show is one.
    pub fn judge(&self, model: Model) -> Judgement {
        let judgement = crate::check(model, &self.events);
        let exact = self.told_by_time.is_empty() || model.at_least(Model::StrictSerializable);
        if exact || judgement.verdict != Verdict::Violated {
            return judgement;
        }
        let told = |event: &&Event| event.ops.iter().all(|access| !self.told_by_time.contains(&access.key));
        let others: Vec<Event> = self.events.iter().filter(told).cloned().collect();
        let judgement = crate::check(model, &others);
        if judgement.verdict == Verdict::Violated {
            return judgement;
        }
        Judgement::undecided(
            "some operations write the same value; told apart by real time, which this model does not keep, \
             they violate it",
        )
    }
}

/// How a history is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// One JSON object a line.
    Native,
    /// Jepsen's EDN.
    Jepsen,
    /// Logs as Porcupine's tests have them.
    Porcupine,
}

impl Format {
    /// Every format by its name.
    pub const ALL: [(&'static str, Self); 3] =
        [("native", Self::Native), ("jepsen", Self::Jepsen), ("porcupine", Self::Porcupine)];

    /// The format of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, format)| *format)
    }

    /// The format of a file, by how it begins, and by its name where that tells nothing.
    pub fn detect(path: &Path, beginning: &[u8]) -> Self {
        Self::of_content(beginning).unwrap_or_else(|| {
            match path.extension().and_then(|extension| extension.to_str()) {
                Some("edn") => Self::Jepsen,
                Some("log" | "txt") => Self::Porcupine,
                _ => Self::Native,
            }
        })
    }

    fn of_content(beginning: &[u8]) -> Option<Self> {
        // A buffer may end within a letter.
        let text = match std::str::from_utf8(beginning) {
            Ok(text) => text,
            Err(error) => std::str::from_utf8(&beginning[..error.valid_up_to()]).unwrap_or_default(),
        };
        let content = edn::without_comments(text);
        let object = content.trim_start_matches(['[', '(']).trim_start();
        if object.strip_prefix('{').is_some_and(|rest| rest.trim_start().starts_with(['"', '}'])) {
            return Some(Self::Native);
        }
        if content.starts_with(['{', '[', '(', '#']) {
            // Only key-value logs name the key beside the value.
            let keyed = edn::Reader::new(object).next().is_ok_and(|form| {
                form.is_some_and(|entry| entry.field("key").is_some() && entry.field("type").is_some())
            });
            return Some(if keyed { Self::Porcupine } else { Self::Jepsen });
        }
        text.contains(console::MARK).then_some(Self::Porcupine)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::ALL.iter().find(|(_, format)| format == self).map_or("", |(name, _)| name))
    }
}

/// What is wrong with one line of a history file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The line, counted from 1.
    pub line: usize,
    /// What is wrong with it.
    pub reason: String,
    /// What to do about it.
    pub remedy: String,
}

impl Fault {
    fn new(line: usize, reason: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { line, reason: reason.into(), remedy: remedy.into() }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}: {}", self.line, self.reason, self.remedy)
    }
}

/// Reads a history.
///
/// # Errors
/// Every fault of the input, not just the first, in the order of lines.
pub fn read(input: impl BufRead, format: Format) -> Result<History, Vec<Fault>> {
    let mut faults = Vec::new();
    let history = match format {
        Format::Native => native::read(input, &mut faults),
        Format::Jepsen => {
            let text = text_of(input).map_err(|fault| vec![fault])?;
            jepsen::read(calls::of_entries(&text, &mut faults), &mut faults)
        }
        Format::Porcupine => {
            let text = text_of(input).map_err(|fault| vec![fault])?;
            porcupine::read(&text, &mut faults)
        }
    };
    if faults.is_empty() {
        return Ok(history);
    }
    faults.sort_by_key(|fault| fault.line);
    Err(faults)
}

/// All of the input, if it is text.
fn text_of(mut input: impl Read) -> Result<String, Fault> {
    let mut bytes = Vec::new();
    input
        .read_to_end(&mut bytes)
        .map_err(|error| Fault::new(1, format!("cannot be read: {error}"), "name a file that can be read"))?;
    String::from_utf8(bytes).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = 1 + String::from_utf8_lossy(valid).matches('\n').count();
        Fault::new(line, "has bytes that are no UTF-8 text", "is this a history at all?")
    })
}
