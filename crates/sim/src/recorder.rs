//! The history of what sessions did, from what they asked and what they were answered.

use crate::plan::{Plan, bytes, rmw};
use bytes::Bytes;
use meridian_protocol::clock::Micros;
use meridian_protocol::history::{Access, Ended, Event, Kind, Mode, Witness};
use meridian_protocol::machine::{Completion, Level, Outcome, Request, Together};
use meridian_protocol::object::{Action, Answer, Reply, Version};
use std::collections::BTreeMap;

/// One request of an operation. Most operations have one; a transaction can have many: it begins with
/// [`Step::Begin`], or with [`Step::Watch`] and then ends with [`Step::Together`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Acts on one key, or fences.
    Act(String, Plan),
    /// Acts on several keys in one step.
    Together(Vec<(String, Plan)>),
    /// `WATCH` of a key.
    Watch(String),
    /// Opens a transaction.
    Begin {
        /// Whether it only reads.
        read_only: bool,
    },
    /// Commits the open transaction.
    Commit,
    /// Gives the open transaction up.
    Abort,
}

/// An operation in the history, as [`Recorder::begin`] names it.
pub(crate) type Index = usize;

/// Writes down what sessions did. Times are nanoseconds, each of them used once, in the order in which things
/// happened: two operations of which one follows the other at the same virtual time are ordered in the history.
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    events: Vec<Event>,
    /// One for each event.
    doings: Vec<Doing>,
    last_stamp: i64,
    /// An answer that no state can explain.
    contradiction: Option<String>,
}

/// What an operation has come to.
#[derive(Clone, Debug)]
struct Doing {
    level: Level,
    /// The request that is asked now.
    step: Step,
    part_of: PartOf,
    watched: Vec<(Bytes, Version)>,
    /// What the answers so far have shown.
    shown: Vec<Access>,
    /// The versions seen by the reads of a transaction that goes on.
    saw: Vec<(String, Option<u64>)>,
    /// Asked, and not answered.
    open: Vec<(String, Plan)>,
}

/// What a request is a part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PartOf {
    /// Nothing: it is the operation.
    Itself,
    /// A transaction that watches keys until its only step.
    Watching,
    /// A transaction that is open until it is committed or given up.
    Transaction,
}

impl Recorder {
    /// A session begins an operation. What it asks is told by [`Self::ask`]; until then nothing is known of it.
    pub fn begin(&mut self, time: Micros, session: &str, kind: Kind, level: Option<Level>) -> Index {
        let invoke = self.stamp(time);
        self.events.push(Event {
            id: self.events.len() as u64 + 1,
            session: session.to_string(),
            service: String::new(),
            kind,
            ops: Vec::new(),
            invoke,
            returned: None,
            outcome: Ended::Unknown,
            level: level.map(|level| level.name().to_string()),
            after: Vec::new(),
            witness: None,
        });
        self.doings.push(Doing {
            level: level.unwrap_or_default(),
            step: Step::Abort,
            part_of: PartOf::Itself,
            watched: Vec::new(),
            shown: Vec::new(),
            saw: Vec::new(),
            open: Vec::new(),
        });
        self.events.len() - 1
    }

    /// At which service the operation is, and after which others its session has heard of by messages.
    pub(crate) fn place(&mut self, index: Index, service: &str, after: Vec<u64>) {
        let event = &mut self.events[index];
        (event.service, event.after) = (service.to_string(), after);
    }

    /// The operation's first or next request.
    pub fn ask(&mut self, index: Index, step: Step, at_ms: u64) -> Request {
        let doing = &mut self.doings[index];
        let level = doing.level;
        doing.step = step.clone();
        let request = match step {
            Step::Act(key, plan) => {
                let request = plan.request_at(level, &key, at_ms);
                doing.open.push((key, plan));
                request
            }
            Step::Together(parts) => {
                let steps = parts.iter().flat_map(|(key, plan)| {
                    plan.commands().into_iter().map(move |command| (bytes(key), command))
                });
                let steps = steps.collect();
                doing.open.extend(parts);
                let watched = doing.watched.clone();
                Request::Together(Together { steps, watched, at_ms, snapshot: None, level })
            }
            Step::Watch(key) => {
                doing.part_of = PartOf::Watching;
                Request::Act { key: bytes(&key), action: Action::Watch, at_ms, level }
            }
            Step::Begin { read_only } => {
                doing.part_of = PartOf::Transaction;
                Request::Begin { read_only }
            }
            Step::Commit => Request::Commit,
            Step::Abort => Request::Abort,
        };
        self.events[index].ops = doing.if_it_happened(|_, _| None);
        request
    }

    /// The request that was asked last has ended. Whether the operation has ended with it; if not, it goes on with
    /// another request, or is never heard of again.
    pub fn take(&mut self, time: Micros, index: Index, completion: &Completion) -> bool {
        let ended = match self.doings[index].take(&completion.outcome) {
            Ok(None) => {
                self.events[index].ops.clone_from(&self.doings[index].shown);
                if let Some(Witness::Snap(stamped)) = &completion.cost.witness {
                    self.doings[index].saw.extend_from_slice(&stamped.saw);
                }
                return false;
            }
            Ok(Some(ended)) => ended,
            Err(odd) => {
                self.contradiction.get_or_insert(odd);
                Ended::Unknown
            }
        };
        let returned = self.stamp(time);
        let event = &mut self.events[index];
        event.outcome = ended;
        if ended == Ended::Ok {
            event.ops.clone_from(&self.doings[index].shown);
            event.witness.clone_from(&completion.cost.witness);
            if let Some(Witness::Snap(stamped)) = &mut event.witness {
                stamped.saw.append(&mut self.doings[index].saw);
                forget_unchanged(&mut event.ops);
            }
        }
        if ended != Ended::Unknown {
            event.returned = Some(returned);
        }
        true
    }

    /// The session walks away from a transaction that it has not committed: it will never happen.
    pub fn leave(&mut self, time: Micros, index: Index) {
        let returned = self.stamp(time);
        let event = &mut self.events[index];
        (event.outcome, event.returned) = (Ended::Failed, Some(returned));
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
        for (event, accesses) in self.seen_appends() {
            self.events[event].ops = accesses;
        }
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

    /// Operations with appends that were not answered but seen: what those did is told by the first value that
    /// holds their piece.
    fn seen_appends(&self) -> Vec<(Index, Vec<Access>)> {
        let unanswered = |index: &Index| {
            let appends = self.doings[*index].open.iter().any(|(_, plan)| matches!(plan, Plan::Append(_)));
            appends && self.events[*index].outcome != Ended::Ok
        };
        let seen = |key: &str, piece: &str| {
            let accesses = self.events.iter().flat_map(|event| &event.ops);
            let values = accesses.filter(|access| access.key == key).filter_map(|access| {
                let value = access.value.as_deref()?;
                Some((value, value.find(piece)?))
            });
            let (value, start) = values.min_by_key(|(value, _)| value.len())?;
            let old = (start > 0).then(|| value[..start].to_string());
            Some(rmw(key, old, Some(value[..start + piece.len()].to_string())))
        };
        let all = (0..self.events.len()).filter(unanswered);
        all.map(|index| (index, self.doings[index].if_it_happened(seen))).collect()
    }

    fn stamp(&mut self, time: Micros) -> i64 {
        self.last_stamp = (self.last_stamp + 1).max(time as i64 * 1_000);
        self.last_stamp
    }
}

impl Doing {
    /// The request that is asked now ended: how the operation ended, if it has.
    ///
    /// # Errors
    /// An answer that does not fit the question, in words.
    fn take(&mut self, outcome: &Outcome) -> Result<Option<Ended>, String> {
        let odd = || format!("{:?} ended as {outcome:?}", self.step);
        let goes_on = self.part_of == PartOf::Transaction;
        match (&self.step, outcome) {
            (_, Outcome::NoQuorum | Outcome::Aborted(_)) | (Step::Abort, Outcome::Done) => {
                return Ok(Some(Ended::Failed));
            }
            (_, Outcome::Unknown(_)) => return Ok(Some(Ended::Unknown)),
            (Step::Act(_, Plan::Fence), Outcome::Fenced) | (Step::Commit, Outcome::Done) => {
                return Ok(Some(Ended::Ok));
            }
            (Step::Begin { .. }, Outcome::Done) => return Ok(None),
            (Step::Watch(key), Outcome::Answer(Answer::Version(version))) => {
                self.watched.push((bytes(key), *version));
                return Ok(None);
            }
            (Step::Act(_, plan), Outcome::Answer(answer)) => {
                let replies = match (plan, answer) {
                    (Plan::Append(_), Answer::Exec(Some(replies))) => &replies[..],
                    (_, Answer::One(reply)) => std::slice::from_ref(reply),
                    _ => return Err(odd()),
                };
                self.answered(replies)?;
                return Ok((self.part_of == PartOf::Itself).then_some(Ended::Ok));
            }
            (Step::Together(_), Outcome::Answers(Some(replies))) => self.answered(replies)?,
            (Step::Together(_), Outcome::Answers(None)) if !self.watched.is_empty() => {
                return Ok(Some(Ended::Failed));
            }
            _ => return Err(odd()),
        }
        Ok((!goes_on).then_some(Ended::Ok))
    }

    /// What was open is answered.
    fn answered(&mut self, mut replies: &[Reply]) -> Result<(), String> {
        for (key, plan) in std::mem::take(&mut self.open) {
            let count = plan.commands().len();
            let (own, rest) = replies.split_at_checked(count).ok_or("an answer is missing")?;
            self.shown.extend(plan.accesses(&key, own)?);
            replies = rest;
        }
        if replies.is_empty() { Ok(()) } else { Err(format!("too many answers: {replies:?}")) }
    }

    /// What it did if it had an effect at all. Of an append that nobody answered `seen` knows, if anybody does.
    fn if_it_happened(&self, seen: impl Fn(&str, &str) -> Option<Vec<Access>>) -> Vec<Access> {
        let mut accesses = self.shown.clone();
        for (key, plan) in &self.open {
            accesses.extend(match plan {
                Plan::Append(piece) => seen(key, piece).unwrap_or_default(),
                plan => plan.possible_accesses(key),
            });
        }
        accesses
    }
}

/// A transaction at a snapshot has written nothing, also where its commands may: what they left as it was is no
/// update then.
fn forget_unchanged(ops: &mut Vec<Access>) {
    let mut known: BTreeMap<String, Option<String>> = BTreeMap::new();
    ops.retain(|access| {
        let before = known.insert(access.key.clone(), access.value.clone());
        access.mode == Mode::Read || before.as_ref() != Some(&access.value)
    });
}
