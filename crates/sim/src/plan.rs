//! Operations on one key whose effect can be told from their answer.

use bytes::Bytes;
use meridian_protocol::history::{Access, Mode};
use meridian_protocol::machine::{Level, Request};
use meridian_protocol::object::{Action, Command, Condition, Expiry, Reply, Set, SetAnswer};

/// What a session does with one key. Each kind is a read, a write or both, of values that can be told from the
/// answer; written values are given by whoever plans, and are different in every operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// `GET`.
    Get,
    /// `SET value`, blind.
    Set(String),
    /// `SET value GET`.
    Swap(String),
    /// `SET value NX GET`.
    Create(String),
    /// `SET value IFEQ expected GET`.
    Replace {
        /// The value that must stand there.
        expected: String,
        /// The new one.
        value: String,
    },
    /// `GETDEL`.
    Take,
    /// `DEL`, where it is a blind write: its count says nothing.
    Delete,
    /// `MULTI`, `GET`, `APPEND piece`, `EXEC`.
    Append(String),
    /// A fence: no key.
    Fence,
}

/// What sort of operation it is, for statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sort {
    /// Reads only.
    Read,
    /// A blind write.
    Write,
    /// Reads and writes.
    Rmw,
    /// A fence.
    Fence,
    /// A transaction of several keys that only reads.
    ReadOnly,
    /// Any other transaction of several keys.
    ReadWrite,
}

impl Plan {
    /// What sort of operation it is.
    pub fn sort(&self) -> Sort {
        match self {
            Self::Get => Sort::Read,
            Self::Set(_) | Self::Delete => Sort::Write,
            Self::Fence => Sort::Fence,
            _ => Sort::Rmw,
        }
    }

    /// The request that carries it out.
    pub fn request(&self, key: &str, at_ms: u64) -> Request {
        self.request_at(Level::default(), key, at_ms)
    }

    pub(crate) fn request_at(&self, level: Level, key: &str, at_ms: u64) -> Request {
        let action = match (self, self.commands().pop()) {
            (Self::Append(_), _) => Action::Transaction { watched: None, commands: self.commands() },
            (_, Some(command)) => Action::Command(command),
            (_, None) => return Request::Fence,
        };
        Request::Act { key: bytes(key), action, at_ms, level }
    }

    /// The commands that it consists of: one, two of an append, none of a fence.
    pub fn commands(&self) -> Vec<Command> {
        let set = |value: &str, condition, answer| {
            Command::Set(Set { value: bytes(value), condition, expiry: Expiry::Never, answer })
        };
        vec![match self {
            Self::Fence => return Vec::new(),
            Self::Append(piece) => return vec![Command::Get, Command::Append(bytes(piece))],
            Self::Get => Command::Get,
            Self::Set(value) => set(value, Condition::Always, SetAnswer::Ok),
            Self::Swap(value) => set(value, Condition::Always, SetAnswer::Old),
            Self::Create(value) => set(value, Condition::IfAbsent, SetAnswer::Old),
            Self::Replace { expected, value } => {
                set(value, Condition::IfEqual(bytes(expected)), SetAnswer::Old)
            }
            Self::Take => Command::GetDel,
            Self::Delete => Command::Delete,
        }]
    }

    /// What the replies to its commands show to have been read and written. An rmw that changed nothing leaves what
    /// it read: in the engine's order it is an update like the others.
    pub(crate) fn accesses(&self, key: &str, replies: &[Reply]) -> Result<Vec<Access>, String> {
        let odd = || format!("{self:?} of {key} was answered {replies:?}");
        if let Self::Append(piece) = self {
            let [old, Reply::Int(length)] = replies else { return Err(odd()) };
            let old = string(old).map_err(|()| odd())?;
            let new = old.clone().unwrap_or_default() + piece;
            return if new.len() as i64 == *length { Ok(rmw(key, old, Some(new))) } else { Err(odd()) };
        }
        let [reply] = replies else { return Err(odd()) };
        match (self, reply) {
            (Self::Set(new), Reply::Ok) => return Ok(vec![write(key, Some(new.clone()))]),
            (Self::Delete, Reply::Int(0 | 1)) => return Ok(vec![write(key, None)]),
            _ => {}
        }
        let old = string(reply).map_err(|()| odd())?;
        Ok(match self {
            Self::Get => vec![read(key, old)],
            Self::Swap(new) => rmw(key, old, Some(new.clone())),
            Self::Create(new) => {
                let left = old.clone().or_else(|| Some(new.clone()));
                rmw(key, old, left)
            }
            Self::Replace { expected, value } => {
                let left = if old.as_ref() == Some(expected) { Some(value.clone()) } else { old.clone() };
                rmw(key, old, left)
            }
            Self::Take => rmw(key, old, None),
            Self::Set(_) | Self::Delete | Self::Append(_) | Self::Fence => return Err(odd()),
        })
    }

    /// What it did if it had an effect at all, as far as that is known without an answer.
    pub(crate) fn possible_accesses(&self, key: &str) -> Vec<Access> {
        match self {
            Self::Get | Self::Fence | Self::Append(_) => Vec::new(),
            Self::Set(value) | Self::Swap(value) => vec![write(key, Some(value.clone()))],
            Self::Create(value) => rmw(key, None, Some(value.clone())),
            Self::Replace { expected, value } => rmw(key, Some(expected.clone()), Some(value.clone())),
            Self::Take | Self::Delete => vec![write(key, None)],
        }
    }
}

pub(crate) fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

/// The string that a reply shows, `None` for an absent key; an error if it is no reply of that kind.
fn string(reply: &Reply) -> Result<Option<String>, ()> {
    match reply {
        Reply::Nil => Ok(None),
        Reply::Bulk(bytes) => Ok(Some(String::from_utf8_lossy(bytes).into_owned())),
        _ => Err(()),
    }
}

fn read(key: &str, value: Option<String>) -> Access {
    Access { mode: Mode::Read, key: key.to_string(), value }
}

fn write(key: &str, value: Option<String>) -> Access {
    Access { mode: Mode::Write, key: key.to_string(), value }
}

pub(crate) fn rmw(key: &str, old: Option<String>, new: Option<String>) -> Vec<Access> {
    vec![read(key, old), write(key, new)]
}
