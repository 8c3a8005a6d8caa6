//! Operations whose effect can be told from their answer, and the history of what sessions did with them.

use bytes::Bytes;
use meridian_protocol::clock::Micros;
use meridian_protocol::history::{Access, Ended, Event, Kind, Mode};
use meridian_protocol::machine::{Completion, Level, Outcome, Request};
use meridian_protocol::object::{Action, Answer, Command, Condition, Expiry, Reply, Set, SetAnswer};

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
    /// `MULTI`, `GET`, `APPEND piece`, `EXEC`.
    Append(String),
    /// A fence: no key.
    Fence,
}

/// What sort of operation a plan is, for statistics.
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
}

impl Plan {
    /// What sort of operation it is.
    pub fn sort(&self) -> Sort {
        match self {
            Self::Get => Sort::Read,
            Self::Set(_) => Sort::Write,
            Self::Fence => Sort::Fence,
            _ => Sort::Rmw,
        }
    }

    /// The request that carries it out.
    pub fn request(&self, key: &str, at_ms: u64) -> Request {
        let set = |value: &str, condition, answer| {
            Command::Set(Set { value: bytes(value), condition, expiry: Expiry::Never, answer })
        };
        let command = match self {
            Self::Fence => return Request::Fence,
            Self::Get => Command::Get,
            Self::Set(value) => set(value, Condition::Always, SetAnswer::Ok),
            Self::Swap(value) => set(value, Condition::Always, SetAnswer::Old),
            Self::Create(value) => set(value, Condition::IfAbsent, SetAnswer::Old),
            Self::Replace { expected, value } => {
                set(value, Condition::IfEqual(bytes(expected)), SetAnswer::Old)
            }
            Self::Take => Command::GetDel,
            Self::Append(piece) => {
                let commands = vec![Command::Get, Command::Append(bytes(piece))];
                let action = Action::Transaction { watched: None, commands };
                return Request::Act { key: bytes(key), action, at_ms, level: Level::default() };
            }
        };
        Request::Act { key: bytes(key), action: Action::Command(command), at_ms, level: Level::default() }
    }

    /// What the answer shows to have been read and written. An rmw that changed nothing leaves what it read:
    /// in the engine's order it is an update like the others.
    fn accesses(&self, key: &str, answer: &Answer) -> Result<Vec<Access>, String> {
        let odd = || format!("{self:?} of {key} was answered {answer:?}");
        let reply = match (self, answer) {
            (Self::Append(piece), Answer::Exec(Some(replies))) => {
                let [old, Reply::Int(length)] = &replies[..] else { return Err(odd()) };
                let old = string(old).map_err(|()| odd())?;
                let new = old.clone().unwrap_or_default() + piece;
                return if new.len() as i64 == *length { Ok(rmw(key, old, Some(new))) } else { Err(odd()) };
            }
            (_, Answer::One(reply)) => reply,
            _ => return Err(odd()),
        };
        if let Self::Set(new) = self {
            return if *reply == Reply::Ok { Ok(vec![write(key, Some(new.clone()))]) } else { Err(odd()) };
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
            Self::Set(_) | Self::Append(_) | Self::Fence => return Err(odd()),
        })
    }

    /// What it did if it had an effect at all, as far as that is known without an answer.
    fn possible_accesses(&self, key: &str) -> Vec<Access> {
        match self {
            Self::Get | Self::Fence | Self::Append(_) => Vec::new(),
            Self::Set(value) | Self::Swap(value) => vec![write(key, Some(value.clone()))],
            Self::Create(value) => rmw(key, None, Some(value.clone())),
            Self::Replace { expected, value } => rmw(key, Some(expected.clone()), Some(value.clone())),
            Self::Take => vec![write(key, None)],
        }
    }
}

/// An operation in the history, as [`Recorder::begin`] names it.
pub(crate) type Index = usize;

/// Writes down what sessions did. Times are nanoseconds, each of them used once, in the order in which things
/// happened: two operations of which one follows the other at the same virtual time are ordered in the history.
#[derive(Debug, Default)]
pub struct Recorder {
    events: Vec<Event>,
    plans: Vec<(String, Plan)>,
    last_stamp: i64,
    /// An answer that no state can explain.
    contradiction: Option<String>,
}

impl Recorder {
    /// A session begins an operation.
    pub fn begin(&mut self, time: Micros, session: &str, key: &str, plan: &Plan) -> Index {
        let invoke = self.stamp(time);
        self.events.push(Event {
            id: self.events.len() as u64 + 1,
            session: session.to_string(),
            service: String::new(),
            kind: if *plan == Plan::Fence { Kind::Fence } else { Kind::Op },
            ops: plan.possible_accesses(key),
            invoke,
            returned: None,
            outcome: Ended::Unknown,
            level: None,
            after: Vec::new(),
            witness: None,
        });
        self.plans.push((key.to_string(), plan.clone()));
        self.events.len() - 1
    }

    /// The operation ended. One that never ends stays of unknown outcome.
    pub fn end(&mut self, time: Micros, index: Index, completion: &Completion) {
        let returned = self.stamp(time);
        let (key, plan) = &self.plans[index];
        let event = &mut self.events[index];
        event.outcome = match &completion.outcome {
            Outcome::Fenced if *plan == Plan::Fence => Ended::Ok,
            Outcome::Answer(answer) => match plan.accesses(key, answer) {
                Ok(accesses) => {
                    event.ops = accesses;
                    event.witness.clone_from(&completion.cost.witness);
                    Ended::Ok
                }
                Err(odd) => {
                    self.contradiction.get_or_insert(odd);
                    Ended::Unknown
                }
            },
            Outcome::NoQuorum | Outcome::Aborted(_) => Ended::Failed,
            Outcome::Unknown => Ended::Unknown,
            odd => {
                self.contradiction.get_or_insert_with(|| format!("{plan:?} of {key} ended as {odd:?}"));
                Ended::Unknown
            }
        };
        if event.outcome != Ended::Unknown {
            event.returned = Some(returned);
        }
    }

    /// The operation, as far as it is known.
    pub fn event(&self, index: Index) -> &Event {
        &self.events[index]
    }

    /// How many operations have begun.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Whether none has begun.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// The history, and the first answer that no state can explain.
    pub fn finish(mut self) -> (Vec<Event>, Option<String>) {
        self.explain_appends();
        (self.events, self.contradiction)
    }

    /// The history so far.
    pub fn history(&self) -> Vec<Event> {
        let mut events = self.events.clone();
        for (event, accesses) in self.seen_appends() {
            events[event].ops = accesses;
        }
        events
    }

    fn explain_appends(&mut self) {
        for (event, accesses) in self.seen_appends() {
            self.events[event].ops = accesses;
        }
    }

    /// Appends without an answer, but seen: what they did is told by the first value that holds their piece.
    fn seen_appends(&self) -> Vec<(Index, Vec<Access>)> {
        let mut explained = Vec::new();
        for (index, (key, plan)) in self.plans.iter().enumerate() {
            let Plan::Append(piece) = plan else { continue };
            if self.events[index].outcome == Ended::Ok {
                continue;
            }
            let values = self.events.iter().flat_map(|event| &event.ops).filter(|access| access.key == *key);
            let seen = values.filter_map(|access| {
                let value = access.value.as_deref()?;
                Some((value, value.find(piece)?))
            });
            if let Some((value, start)) = seen.min_by_key(|(value, _)| value.len()) {
                let old = (start > 0).then(|| value[..start].to_string());
                let new = value[..start + piece.len()].to_string();
                explained.push((index, rmw(key, old, Some(new))));
            }
        }
        explained
    }

    fn stamp(&mut self, time: Micros) -> i64 {
        self.last_stamp = (self.last_stamp + 1).max(time as i64 * 1_000);
        self.last_stamp
    }
}

fn bytes(text: &str) -> Bytes {
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

fn rmw(key: &str, old: Option<String>, new: Option<String>) -> Vec<Access> {
    vec![read(key, old), write(key, new)]
}
