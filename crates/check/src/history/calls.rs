//! Operations as Jepsen and its kin log them: an entry when a process invokes one, another when it ends.
//!
//! Times are positions in the log. Such logs are written by one thread in the order of what happened, so that
//! an operation whose end stands before another's invocation did end before it; clock readings may be equal
//! where positions are not.

use super::Fault;
use super::edn::{Broken, Edn, Reader};
use meridian_protocol::history::{Access, Ended, Event, Kind, Mode};
use std::collections::HashMap;

/// An operation with both its ends.
#[derive(Debug)]
pub(super) struct Call<'a> {
    /// The line of its invocation.
    pub(super) line: usize,
    pub(super) id: u64,
    process: &'a str,
    /// What was asked for: `read`, `txn` and so on.
    pub(super) f: &'a str,
    /// The key, in logs that have it apart from the value.
    pub(super) key: Option<Edn<'a>>,
    /// The value of the invocation.
    pub(super) asked: Edn<'a>,
    /// The value of the end, if it ended ok.
    pub(super) answered: Option<Edn<'a>>,
    pub(super) invoke: i64,
    pub(super) returned: Option<i64>,
    pub(super) outcome: Ended,
}

impl Call<'_> {
    /// As an event with these accesses.
    pub(super) fn event(&self, kind: Kind, ops: Vec<Access>) -> Event {
        Event {
            id: self.id,
            session: self.process.to_owned(),
            service: String::new(),
            kind,
            ops,
            invoke: self.invoke,
            returned: self.returned,
            outcome: self.outcome,
            level: None,
            after: Vec::new(),
            witness: None,
        }
    }
}

/// One access to a key.
pub(super) fn access(mode: Mode, key: &str, value: Option<String>) -> Access {
    Access { mode, key: key.to_owned(), value }
}

/// One line of a log.
#[derive(Debug)]
pub(super) struct Entry<'a> {
    pub(super) line: usize,
    /// What the log itself counts it as.
    pub(super) index: Option<u64>,
    pub(super) process: &'a str,
    /// `invoke`, or how it ended: `ok`, `fail`, `info`.
    pub(super) stage: &'a str,
    pub(super) f: &'a str,
    pub(super) key: Option<Edn<'a>>,
    pub(super) value: Edn<'a>,
}

/// Brings invocations and ends together, process by process.
#[derive(Debug, Default)]
pub(super) struct Pairing<'a> {
    calls: Vec<Call<'a>>,
    /// The log's own numbers of the invocations, if it has them.
    indexes: Vec<Option<u64>>,
    /// Each process's operation that has not ended.
    open: HashMap<&'a str, usize>,
    position: u32,
}

impl<'a> Pairing<'a> {
    /// Counts an entry that is no client's.
    pub(super) fn pass(&mut self) {
        self.position += 1;
    }

    /// Takes the next entry of the log.
    ///
    /// # Errors
    /// It contradicts those before it.
    pub(super) fn add(&mut self, entry: Entry<'a>) -> Result<(), Fault> {
        let position = self.position;
        self.position += 1;
        let line = entry.line;
        let fault = |reason| {
            Err(Fault::new(line, reason, "a process does one thing at a time: mend or leave out the line"))
        };
        let open = self.open.remove(entry.process);
        let outcome = match (entry.stage, open) {
            ("invoke", None) => {
                self.open.insert(entry.process, self.calls.len());
                self.begin(entry, position);
                return Ok(());
            }
            ("invoke", Some(open)) => {
                self.open.insert(entry.process, open);
                let since = self.calls[open].line;
                return fault(format!(
                    "process {} invokes :{} while its operation of line {since} is still open",
                    entry.process, entry.f
                ));
            }
            ("ok", _) => Ended::Ok,
            ("fail", _) => Ended::Failed,
            ("info", _) => Ended::Unknown,
            (other, _) => {
                return Err(Fault::new(
                    line,
                    format!("has the type :{other}"),
                    "types are :invoke, :ok, :fail and :info",
                ));
            }
        };
        let Some(open) = open else {
            return fault(format!("ends an operation of process {} that was never invoked", entry.process));
        };
        let call = &mut self.calls[open];
        if call.f != entry.f {
            let (asked, since) = (call.f, call.line);
            return fault(format!("ends :{}, but line {since} invoked :{asked}", entry.f));
        }
        call.outcome = outcome;
        call.returned = (outcome != Ended::Unknown).then_some(i64::from(position));
        call.answered = (outcome == Ended::Ok).then_some(entry.value);
        Ok(())
    }

    fn begin(&mut self, entry: Entry<'a>, position: u32) {
        self.indexes.push(entry.index);
        self.calls.push(Call {
            line: entry.line,
            id: u64::from(position),
            process: entry.process,
            f: entry.f,
            key: entry.key,
            asked: entry.value,
            answered: None,
            invoke: i64::from(position),
            returned: None,
            outcome: Ended::Unknown,
        });
    }

    /// All operations in the order of their invocations. Those still open may have happened. Ids are the log's
    /// own numbers if these can serve, and otherwise positions from 0.
    pub(super) fn finish(mut self) -> Vec<Call<'a>> {
        if self.indexes.iter().all(Option::is_some) && self.indexes.is_sorted_by(|a, b| a < b) {
            for (call, index) in self.calls.iter_mut().zip(self.indexes) {
                call.id = index.unwrap_or(call.id);
            }
        }
        self.calls
    }
}

/// The operations of a log made of maps, one after another or in one vector.
pub(super) fn of_entries<'a>(text: &'a str, faults: &mut Vec<Fault>) -> Vec<Call<'a>> {
    let mut pairing = Pairing::default();
    for form in forms(text) {
        let entry = form.and_then(|(line, form)| entry(line, form));
        let result = match entry {
            Ok(Some(entry)) => pairing.add(entry),
            Ok(None) => {
                pairing.pass();
                Ok(())
            }
            Err(fault) => Err(fault),
        };
        faults.extend(result.err());
    }
    pairing.finish()
}

/// What an entry says; `None` if it is not a client's.
fn entry(line: usize, form: Edn<'_>) -> Result<Option<Entry<'_>>, Fault> {
    let fault = |reason: &str| {
        Err(Fault::new(line, reason, "an entry is {:process 0, :type :invoke, :f :read, :value nil}"))
    };
    let Edn::Map(fields) = form else { return fault("is no map") };
    let (mut process, mut stage, mut index, mut f) = (None, None, None, "");
    let (mut key, mut value) = (None, Edn::Nil);
    for (name, content) in fields {
        match (name.keyword(), content) {
            (Some("process"), Edn::Atom(number)) if number.parse::<i64>().is_ok() => process = Some(number),
            // The nemesis, which breaks things and is no client.
            (Some("process"), _) => return Ok(None),
            (Some("type"), content) => stage = content.keyword(),
            (Some("index"), Edn::Atom(number)) => index = number.parse().ok(),
            (Some("f"), content) => f = content.keyword().unwrap_or(""),
            (Some("key"), content) => key = Some(content),
            (Some("value"), content) => value = content,
            _ => {}
        }
    }
    match (process, stage) {
        (Some(process), Some(stage)) => Ok(Some(Entry { line, index, process, stage, f, key, value })),
        (None, _) => fault("names no :process"),
        (_, None) => fault("has no :type"),
    }
}

/// All forms of the text with their lines, or what is wrong with them.
fn forms(text: &str) -> Vec<Result<(usize, Edn<'_>), Fault>> {
    let mut reader = Reader::new(text);
    let mut found = Vec::new();
    let wrapped = if reader.take(b'[') { Some(b']') } else { reader.take(b'(').then_some(b')') };
    while !wrapped.is_some_and(|end| reader.take(end)) {
        let Some(line) = reader.seek() else {
            if wrapped.is_some() {
                found.push(Err(Fault::new(reader.line(), "the vector is not closed", CUT_SHORT)));
            }
            return found;
        };
        let rest = reader.rest();
        match reader.next() {
            Ok(Some(form)) => found.push(Ok((line, form))),
            Ok(None) => {}
            Err(broken) if wrapped.is_some() => {
                found.push(Err(fault(line, broken, rest)));
                return found;
            }
            Err(broken) if broken.unfinished => {
                found.push(Err(fault(line, broken, rest)));
                // It swallowed the rest: what follows is read line by line.
                let lines = rest.split_inclusive('\n').enumerate().skip(1);
                found.extend(lines.flat_map(|(passed, text)| of_line(line + passed, text)));
                return found;
            }
            Err(broken) => {
                found.push(Err(fault(line, broken, rest)));
                reader.skip_line();
            }
        }
    }
    found.extend(
        reader
            .seek()
            .map(|line| Err(Fault::new(line, "stands behind the end of the vector", "leave it out"))),
    );
    found
}

/// The forms of one line.
fn of_line(line: usize, text: &str) -> Vec<Result<(usize, Edn<'_>), Fault>> {
    let mut reader = Reader::new(text);
    let mut found = Vec::new();
    while reader.seek().is_some() {
        match reader.next() {
            Ok(Some(form)) => found.push(Ok((line, form))),
            Ok(None) => {}
            Err(broken) => {
                found.push(Err(fault(line, Broken { line, ..broken }, text)));
                break;
            }
        }
    }
    found
}

/// What to do about a log that ends too early.
pub(super) const CUT_SHORT: &str = "was the file cut short? add what is missing or leave the line out";

/// The fault of a form that began on this line; `rest` is the text from there on.
fn fault(line: usize, broken: Broken, rest: &str) -> Fault {
    if !broken.unfinished {
        return Fault::new(broken.line, broken.reason, "mend the line or leave it out");
    }
    let reason = if rest.contains('\n') { "is not closed" } else { "is truncated" };
    Fault::new(line, reason, CUT_SHORT)
}
