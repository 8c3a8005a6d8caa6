//! Writes what the clients did and saw as a history that `meridian check` judges.

use meridian_protocol::history::{Access, Ended, Event, Kind, Mode, Witness};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::Instant;

use super::workload::Verb;

/// A history file under way.
#[derive(Debug)]
pub(super) struct HistoryFile {
    out: BufWriter<File>,
    service: String,
    origin: Instant,
    next_id: u64,
    /// The first write that failed, reported when the bench ends.
    failed: Option<io::Error>,
}

/// One operation as its session saw it.
#[derive(Debug)]
pub(super) struct Seen {
    /// The client and which of its connections: process order ends where a connection does.
    pub(super) session: String,
    /// What it was.
    pub(super) verb: Verb,
    /// The keys; those that are read and those that are written are the first ones.
    pub(super) keys: Vec<String>,
    /// The values that were read; none if they are not known.
    pub(super) read: Vec<Option<String>>,
    /// The value that was written to each.
    pub(super) written: String,
    /// When it was sent (not when it was intended: an operation cannot act before it is sent).
    pub(super) sent: Instant,
    /// When its answer came.
    pub(super) answered: Option<Instant>,
    /// How it ended.
    pub(super) outcome: Ended,
    /// The server's proof of order.
    pub(super) witness: Option<Witness>,
}

impl HistoryFile {
    /// A new file; times count from `origin`.
    pub(super) fn create(path: &Path, service: String, origin: Instant) -> io::Result<Self> {
        let out = BufWriter::new(File::create(path)?);
        Ok(Self { out, service, origin, next_id: 0, failed: None })
    }

    /// Appends one operation.
    pub(super) fn append(&mut self, seen: Seen) {
        let nanos = |at: Instant| at.saturating_duration_since(self.origin).as_nanos() as i64;
        let keys = seen.keys;
        let (reads, writes) = (seen.verb.reads(keys.len()), seen.verb.writes());
        let value = |index: usize| seen.read.get(index).cloned().flatten();
        let read = |(index, key): (usize, &String)| Access {
            mode: Mode::Read,
            key: key.clone(),
            value: value(index),
        };
        let write =
            |key: &String| Access { mode: Mode::Write, key: key.clone(), value: Some(seen.written.clone()) };
        // To state a read of which nothing is known would say that the key was absent.
        let stated = if seen.read.is_empty() && writes > 0 { 0 } else { reads };
        let ops = keys.iter().enumerate().take(stated).map(read).chain(keys.iter().take(writes).map(write));
        let event = Event {
            id: self.next_id,
            session: seen.session,
            service: self.service.clone(),
            kind: match seen.verb {
                Verb::Get | Verb::Set | Verb::Rmw => Kind::Op,
                Verb::AddUser | Verb::Follow | Verb::Post => Kind::Rw,
                Verb::Mget | Verb::Timeline => Kind::Ro,
            },
            ops: ops.collect(),
            invoke: nanos(seen.sent),
            returned: seen.answered.map(nanos),
            outcome: seen.outcome,
            level: None,
            after: Vec::new(),
            witness: seen.witness,
        };
        self.next_id += 1;
        let line = serde_json::to_string(&event).map_err(io::Error::from);
        if let Err(error) = line.and_then(|line| writeln!(self.out, "{line}")) {
            self.failed.get_or_insert(error);
        }
    }

    /// Writes what is left, and says if anything went wrong on the way.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.out.flush()?;
        self.failed.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The accesses of an operation that ended so, as the file has them.
    fn accesses(verb: Verb, keys: &[&str], outcome: Ended, read: &[Option<&str>]) -> Vec<String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("one.jsonl");
        let origin = Instant::now();
        let mut file = HistoryFile::create(&path, "db0".into(), origin).unwrap();
        file.append(Seen {
            session: "p0.0".into(),
            verb,
            keys: keys.iter().map(|key| (*key).to_owned()).collect(),
            read: read.iter().map(|value| value.map(str::to_owned)).collect(),
            written: "1".into(),
            sent: origin,
            answered: (outcome == Ended::Ok).then_some(origin),
            outcome,
            witness: None,
        });
        file.finish().unwrap();
        let event: Event = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        event.ops.iter().map(|access| serde_json::to_string(access).unwrap()).collect()
    }

    #[test]
    fn an_rmw_whose_answer_never_came_does_not_claim_that_the_key_was_absent() {
        let rmw = |outcome, read: &[Option<&str>]| accesses(Verb::Rmw, &["x"], outcome, read);
        let write = r#"["w","x","1"]"#;
        assert_eq!(rmw(Ended::Ok, &[None]), [r#"["r","x",null]"#, write]);
        assert_eq!(rmw(Ended::Ok, &[Some("0")]), [r#"["r","x","0"]"#, write]);
        assert_eq!(rmw(Ended::Unknown, &[]), [write]);
    }

    #[test]
    fn a_transaction_reads_the_first_of_its_keys_and_writes_the_first() {
        let add = |outcome, read: &[Option<&str>]| accesses(Verb::AddUser, &["x", "y", "z"], outcome, read);
        let writes = [r#"["w","x","1"]"#, r#"["w","y","1"]"#, r#"["w","z","1"]"#];
        assert_eq!(add(Ended::Ok, &[Some("0")]), [&[r#"["r","x","0"]"#], &writes[..]].concat());
        assert_eq!(add(Ended::Unknown, &[]), writes);
        let timeline = accesses(Verb::Timeline, &["x", "y"], Ended::Ok, &[Some("0"), None]);
        assert_eq!(timeline, [r#"["r","x","0"]"#, r#"["r","y",null]"#]);
    }
}
