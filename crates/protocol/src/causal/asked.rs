//! What applications ask of registers with snapshots, and what they are told.

use super::message::{Seen, Step};
use super::vector::Vector;
use crate::machine::{FOREIGN_CONTEXT, Level, NO_TRANSACTIONS, Outcome, Request, Together};
use crate::object::{Action, Answer, Class, Command, Reply};
use bytes::Bytes;

/// What is answered to commands that depend on what they change.
pub(crate) const NO_RMW: &str = "a causal keyspace does not carry out what depends on the old value";

/// A request that is to be carried out.
#[derive(Debug)]
pub(crate) enum Asked {
    /// A write that depends on nothing that it changes.
    Write { step: Step, at_ms: u64, level: Level },
    /// Reads from one snapshot.
    Read { steps: Vec<(Bytes, Command)>, what: Reads },
    /// A page of a listing.
    List { partition: u16, from: u64, count: u32, at_ms: u64 },
    /// A fence.
    Fence,
    /// To wait until the own region shows all of this.
    Await(Vector),
}

/// How something is to be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reads {
    /// It was asked for as one command, and is answered so.
    pub(crate) single: bool,
    /// The time against which expiry is judged, ms.
    pub(crate) at_ms: u64,
    /// What is asked of it.
    pub(crate) level: Level,
}

/// What a request asks for.
///
/// # Errors
/// How it ends if nothing is to be done.
pub(crate) fn asked(request: Request) -> Result<Asked, Outcome> {
    match request {
        Request::Act { key, action: Action::Command(command), at_ms, level } => {
            // A deletion is a tombstone, whose answer is what was there just before.
            let write = command.class() == Class::Write || command == Command::Delete;
            if command.class() == Class::Read {
                let what = Reads { single: true, at_ms, level };
                Ok(Asked::Read { steps: vec![(key, command)], what })
            } else if write {
                Ok(Asked::Write { step: Step { key, command }, at_ms, level })
            } else {
                Err(Outcome::Aborted(NO_RMW))
            }
        }
        Request::Act { .. } => Err(Outcome::Aborted(NO_RMW)),
        Request::Together(Together { steps, watched, at_ms, snapshot, level }) => {
            let reads = steps.iter().all(|(_, command)| command.class() == Class::Read);
            if !reads || !watched.is_empty() || snapshot.is_some() {
                return Err(Outcome::Aborted(NO_TRANSACTIONS));
            }
            if steps.is_empty() {
                return Err(Outcome::Answers(Some(Vec::new())));
            }
            Ok(Asked::Read { steps, what: Reads { single: false, at_ms, level } })
        }
        Request::Begin { .. } | Request::Commit | Request::Abort => Err(Outcome::Aborted(NO_TRANSACTIONS)),
        Request::Fence => Ok(Asked::Fence),
        // A causal keyspace takes no part in an order by real time.
        Request::Enter => Err(Outcome::Done),
        // Each engine sees to these itself.
        Request::Export | Request::Import(_) => Err(Outcome::Aborted(FOREIGN_CONTEXT)),
        Request::Scan { partition, from, count, at_ms } => Ok(Asked::List { partition, from, count, at_ms }),
    }
}

/// What is told of what was read.
pub(crate) fn told(what: Reads, seen: Vec<Seen>) -> Outcome {
    let mut replies: Vec<Reply> = seen.into_iter().map(|seen| seen.reply).collect();
    match replies.pop() {
        Some(reply) if what.single => Outcome::Answer(Answer::One(reply)),
        last => Outcome::Answers(Some(replies.into_iter().chain(last).collect())),
    }
}
