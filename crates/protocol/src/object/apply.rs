//! Executing an action on a state.

#![expect(clippy::unnecessary_wraps, reason = "whoever carries out a command answers a Step")]

use super::{
    Action, Answer, Class, Command, Condition, Data, ExpireIf, Expiry, Fault, Object, Reply, SetAnswer,
};
use super::{Moves, State, TtlForm, TypeName, Version, hashes, lists, moves, strings};
use std::sync::Arc;

/// Executes `action` at time `at_ms` (ms since the Unix epoch) on `state`, whose version is `version`.
///
/// Answers the new state and the answer. A read leaves the state as it is; a refused command does too. A value
/// that has expired at `at_ms` counts as absent, and is absent in the new state if anything was written.
///
/// `WATCH` answers `version`, or the version of nothing if the value has expired: a key that expires between
/// `WATCH` and `EXEC` has changed, and one that had expired before has not.
pub fn apply(state: &State, version: Version, action: &Action, at_ms: u64) -> (State, Answer) {
    match action {
        Action::Command(command) => {
            let (after, reply) = step(state, version, command, at_ms);
            (after.unwrap_or_else(|| state.clone()), Answer::One(reply))
        }
        Action::Transaction { watched, commands } => {
            if watched.is_some_and(|watched| watched != seen(state, version, at_ms)) {
                return (state.clone(), Answer::Exec(None));
            }
            let mut current = state.clone();
            let mut replies = Vec::with_capacity(commands.len());
            for command in commands {
                // As in Redis: after one that is refused the others are executed all the same.
                let (after, reply) = step(&current, version, command, at_ms);
                current = after.unwrap_or(current);
                replies.push(reply);
            }
            (current, Answer::Exec(Some(replies)))
        }
        Action::Watch => (state.clone(), Answer::Version(seen(state, version, at_ms))),
    }
}

/// Executes one command; answers what it leaves, `None` if that is what was there, and its reply.
pub fn execute(state: &State, command: &Command, at_ms: u64) -> (Option<State>, Reply) {
    step(state, Version::default(), command, at_ms)
}

fn step(state: &State, version: Version, command: &Command, at_ms: u64) -> (Option<State>, Reply) {
    let live = state.as_ref().filter(|object| !object.expired(at_ms));
    let mut remembered = state.as_ref().and_then(|object| object.moves.clone());
    let result = if is_move(command) {
        let moves = Arc::make_mut(remembered.get_or_insert_default());
        // Such a step may change what is remembered only.
        run_move(live, moves, version, command).map(|(change, reply)| match change {
            Change::Keep => (Change::To(live.cloned()), reply),
            Change::To(_) => (change, reply),
        })
    } else {
        run(live, command, at_ms)
    };
    match result {
        Ok((Change::Keep, reply)) => (None, reply),
        // What a blind write leaves does not depend on what was there.
        Ok((Change::To(new), reply)) if command.class() == Class::Write => (Some(new), reply),
        Ok((Change::To(new), reply)) => (Some(moves::remembering(new, remembered)), reply),
        Err(fault) => (None, Reply::Error(fault)),
    }
}

fn is_move(command: &Command) -> bool {
    matches!(command, Command::ListMove(..) | Command::ListReceive(..) | Command::ListSettle(..))
}

fn run_move(live: Live<'_>, moves: &mut Moves, version: Version, command: &Command) -> Step {
    match command {
        Command::ListMove(from, to, destination) => {
            moves::take(live, moves, (*from, *to), destination, version)
        }
        Command::ListReceive(source, claims) => moves::receive(live, moves, source, claims),
        Command::ListSettle(destination, last, refused) => {
            moves::settle(live, moves, destination, *last, refused)
        }
        _ => keep(Reply::Nil),
    }
}

fn seen(state: &State, version: Version, at_ms: u64) -> Version {
    if state.as_ref().is_some_and(|object| object.lapsed(at_ms)) { Version::default() } else { version }
}

impl Action {
    /// How the action may be executed.
    pub fn class(&self) -> Class {
        match self {
            Self::Command(command) => command.class(),
            Self::Transaction { .. } => Class::ReadModifyWrite,
            Self::Watch => Class::Read,
        }
    }
}

impl Command {
    /// How the command may be executed.
    pub fn class(&self) -> Class {
        match self {
            Self::Get
            | Self::StrLen
            | Self::GetRange(..)
            | Self::Exists
            | Self::Type
            | Self::Ttl(_)
            | Self::ListLen
            | Self::ListRange(..)
            | Self::ListIndex(_)
            | Self::HashGet(_)
            | Self::HashGetMany(_)
            | Self::HashExists(_)
            | Self::HashGetAll
            | Self::HashKeys
            | Self::HashValues
            | Self::HashLen => Class::Read,
            Self::Set(set) if set.is_blind() => Class::Write,
            Self::Set(_)
            | Self::GetDel
            | Self::GetEx(_)
            | Self::Delete
            | Self::DeleteIfEqual(_)
            | Self::Append(_)
            | Self::SetRange(..)
            | Self::IncrBy(_)
            | Self::IncrByFloat(_)
            | Self::Expire(..)
            | Self::Persist
            | Self::ListPush(..)
            | Self::ListPop(..)
            | Self::ListTrim(..)
            | Self::ListRemove(..)
            | Self::ListRotate(..)
            | Self::ListMove(..)
            | Self::ListReceive(..)
            | Self::ListSettle(..)
            | Self::HashSet(_)
            | Self::HashDelete(_)
            | Self::HashIncrBy(..) => Class::ReadModifyWrite,
        }
    }
}

impl super::Set {
    /// Whether neither the effect nor the answer depends on the old value.
    fn is_blind(&self) -> bool {
        self.condition == Condition::Always && self.expiry != Expiry::Keep && self.answer == SetAnswer::Ok
    }
}

impl Object {
    /// A value of a key that remembers nothing else.
    pub fn new(data: Data, expires_at: Option<u64>) -> Self {
        Self { data, expires_at, moves: None }
    }

    /// Whether the key counts as absent at `at_ms`.
    pub fn expired(&self, at_ms: u64) -> bool {
        matches!(self.data, Data::Absent) || self.lapsed(at_ms)
    }

    /// Whether its time of expiry has passed at `at_ms`.
    fn lapsed(&self, at_ms: u64) -> bool {
        self.expires_at.is_some_and(|end| end <= at_ms)
    }

    /// Approximate bytes that the value takes, in constant time.
    pub fn footprint(&self) -> usize {
        size_of::<Self>() + self.data.bytes() + self.moves.as_ref().map_or(0, |moves| moves.bytes())
    }
}

impl Data {
    /// Bytes of content as [`super::OBJECT_LIMIT`] counts them.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Str(value) => value.len(),
            Self::List(list) => list.bytes(),
            Self::Hash(hash) => hash.bytes(),
            Self::Absent => 0,
        }
    }

    /// The name of the value's type.
    pub fn type_name(&self) -> TypeName {
        match self {
            Self::Str(_) => TypeName::String,
            Self::List(_) => TypeName::List,
            Self::Hash(_) => TypeName::Hash,
            Self::Absent => TypeName::None,
        }
    }
}

/// A value that is present and has not expired.
pub(super) type Live<'a> = Option<&'a Object>;

/// What a command does to the state.
pub(super) enum Change {
    /// Nothing.
    Keep,
    /// The state becomes this.
    To(State),
}

/// What a command does and answers, or why it was refused.
pub(super) type Step = Result<(Change, Reply), Fault>;

/// Answers without changing anything.
pub(super) fn keep(reply: Reply) -> Step {
    Ok((Change::Keep, reply))
}

/// Puts `data` in place of the old value, whose time of expiry stays.
pub(super) fn replace(live: Live<'_>, data: Data, reply: Reply) -> Step {
    let expires_at = live.and_then(|object| object.expires_at);
    Ok((Change::To(Some(Object::new(data, expires_at))), reply))
}

/// Removes the key.
pub(super) fn remove(reply: Reply) -> Step {
    Ok((Change::To(None), reply))
}

/// A length or count as Redis answers it.
pub(super) fn int(count: usize) -> Reply {
    Reply::Int(count as i64)
}

/// `start..=stop` as `LRANGE`, `LTRIM` and `GETRANGE` count, negative from the end, clipped to a sequence of
/// `length`; `None` if nothing is left.
pub(super) fn clip(start: i64, stop: i64, length: usize) -> Option<(usize, usize)> {
    let length = length as i64;
    let from_end = |index: i64| if index < 0 { length.saturating_add(index).max(0) } else { index };
    let first = from_end(start);
    // A stop before the first item is not clipped to it, or the first would be answered.
    let last = if stop < 0 { length.saturating_add(stop) } else { stop.min(length - 1) };
    (first <= last && first < length).then_some((first as usize, last as usize))
}

fn run(live: Live<'_>, command: &Command, at_ms: u64) -> Step {
    match command {
        Command::Get => strings::get(live),
        Command::StrLen => strings::len(live),
        Command::GetRange(start, end) => strings::get_range(live, *start, *end),
        Command::Exists => keep(int(usize::from(live.is_some()))),
        Command::Type => keep(Reply::Simple(live.map_or(TypeName::None, |object| object.data.type_name()))),
        Command::Ttl(form) => keep(Reply::Int(ttl(live, *form, at_ms))),
        Command::ListLen => lists::len(live),
        Command::ListRange(start, stop) => lists::range(live, *start, *stop),
        Command::ListIndex(index) => lists::index(live, *index),
        Command::HashGet(field) => hashes::get(live, field),
        Command::HashGetMany(fields) => hashes::get_many(live, fields),
        Command::HashExists(field) => hashes::exists(live, field),
        Command::HashGetAll => hashes::get_all(live),
        Command::HashKeys => hashes::keys(live),
        Command::HashValues => hashes::values(live),
        Command::HashLen => hashes::len(live),
        Command::Set(set) => strings::set(live, set, at_ms),
        Command::GetDel => strings::get_del(live),
        Command::GetEx(expires_at) => strings::get_ex(live, *expires_at, at_ms),
        Command::Delete if live.is_some() => remove(Reply::Int(1)),
        Command::Delete => keep(Reply::Int(0)),
        Command::DeleteIfEqual(value) => strings::delete_if_equal(live, value),
        Command::Append(value) => strings::append(live, value),
        Command::SetRange(offset, value) => strings::set_range(live, *offset, value),
        Command::IncrBy(by) => strings::incr_by(live, *by),
        Command::IncrByFloat(by) => strings::incr_by_float(live, *by),
        Command::Expire(at, condition) => expire(live, *at, *condition, at_ms),
        Command::Persist => persist(live),
        Command::ListPush(end, items) => lists::push(live, *end, items),
        Command::ListPop(end, count) => lists::pop(live, *end, *count),
        Command::ListTrim(start, stop) => lists::trim(live, *start, *stop),
        Command::ListRemove(count, value) => lists::remove(live, *count, value),
        Command::ListRotate(from, to) => lists::rotate(live, *from, *to),
        Command::HashSet(pairs) => hashes::set(live, pairs),
        Command::HashDelete(fields) => hashes::delete(live, fields),
        Command::HashIncrBy(field, by) => hashes::incr_by(live, field, *by),
        // They are run with what the key remembers.
        Command::ListMove(..) | Command::ListReceive(..) | Command::ListSettle(..) => keep(Reply::Nil),
    }
}

fn ttl(live: Live<'_>, form: TtlForm, at_ms: u64) -> i64 {
    let Some(object) = live else { return -2 };
    let Some(end) = object.expires_at else { return -1 };
    let round = |ms: u64| ms.saturating_add(500) / 1000;
    let answer = match form {
        TtlForm::Seconds => round(end - at_ms),
        TtlForm::Millis => end - at_ms,
        TtlForm::AtSeconds => round(end),
        TtlForm::AtMillis => end,
    };
    answer as i64
}

fn expire(live: Live<'_>, at: u64, condition: ExpireIf, at_ms: u64) -> Step {
    let Some(object) = live else { return keep(Reply::Int(0)) };
    let met = match (condition, object.expires_at) {
        (ExpireIf::Always, _) | (ExpireIf::None | ExpireIf::Earlier, None) | (ExpireIf::Some, Some(_)) => {
            true
        }
        // No time of expiry counts as an endless one.
        (ExpireIf::None, Some(_)) | (ExpireIf::Some | ExpireIf::Later | ExpireIf::SomeEarlier, None) => false,
        (ExpireIf::Later, Some(now)) => at > now,
        (ExpireIf::Earlier | ExpireIf::SomeEarlier, Some(now)) => at < now,
    };
    if !met {
        keep(Reply::Int(0))
    } else if at <= at_ms {
        remove(Reply::Int(1))
    } else {
        let object = Object::new(object.data.clone(), Some(at));
        Ok((Change::To(Some(object)), Reply::Int(1)))
    }
}

fn persist(live: Live<'_>) -> Step {
    match live {
        Some(Object { data, expires_at: Some(_), .. }) => {
            Ok((Change::To(Some(Object::new(data.clone(), None))), Reply::Int(1)))
        }
        _ => keep(Reply::Int(0)),
    }
}
