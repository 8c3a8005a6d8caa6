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
    /// The key.
    pub(super) key: String,
    /// The value that was read, if that is known.
    pub(super) read: Option<String>,
    /// The value that was written.
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
        let saw_nothing_known = seen.outcome != Ended::Ok && seen.read.is_none();
        let read = Access { mode: Mode::Read, key: seen.key.clone(), value: seen.read };
        let write = Access { mode: Mode::Write, key: seen.key, value: Some(seen.written) };
        let event = Event {
            id: self.next_id,
            session: seen.session,
            service: self.service.clone(),
            kind: Kind::Op,
            ops: match seen.verb {
                Verb::Get => vec![read],
                Verb::Set => vec![write],
                // To state its read would say that the key was absent.
                Verb::Rmw if saw_nothing_known => vec![write],
                Verb::Rmw => vec![read, write],
            },
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

    /// The accesses of an rmw that ended so, as the file has them.
    fn rmw(outcome: Ended, read: Option<&str>) -> Vec<(Mode, Option<String>)> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("one.jsonl");
        let origin = Instant::now();
        let mut file = HistoryFile::create(&path, "db0".into(), origin).unwrap();
        file.append(Seen {
            session: "p0.0".into(),
            verb: Verb::Rmw,
            key: "x".into(),
            read: read.map(str::to_owned),
            written: "1".into(),
            sent: origin,
            answered: (outcome == Ended::Ok).then_some(origin),
            outcome,
            witness: None,
        });
        file.finish().unwrap();
        let event: Event = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        event.ops.into_iter().map(|access| (access.mode, access.value)).collect()
    }

    #[test]
    fn an_rmw_whose_answer_never_came_does_not_claim_that_the_key_was_absent() {
        let write = (Mode::Write, Some("1".to_owned()));
        assert_eq!(rmw(Ended::Ok, None), [(Mode::Read, None), write.clone()]);
        assert_eq!(rmw(Ended::Ok, Some("0")), [(Mode::Read, Some("0".to_owned())), write.clone()]);
        assert_eq!(rmw(Ended::Unknown, None), [write]);
    }
}
