//! What a request does to keys: which it must read, what it leaves, and what it answers. All meaning comes from
//! [`apply`].

use super::message::{Partition, Timestamp};
use super::versions::Version;
use crate::machine::{Outcome, Together};
use crate::object::{self, Action, Answer, Class, Command, Reply, State, apply, move_item};
use crate::topology::Group;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// One request's actions on keys.
#[derive(Clone, Debug)]
pub(super) enum Work {
    /// On one key.
    Act { key: Bytes, action: Action, at_ms: u64 },
    /// On several.
    Together(Together),
}

/// What came of it.
pub(super) struct Done {
    pub(super) outcome: Outcome,
    /// New states; `None` if a watched key had changed, so that nothing is done.
    pub(super) writes: Option<BTreeMap<Bytes, State>>,
}

/// The version by which `WATCH` knows a key.
fn watch_version(at: Timestamp) -> object::Version {
    object::Version(at, 0, 0)
}

impl Work {
    /// Whether it changes nothing.
    pub(super) fn is_read(&self) -> bool {
        match self {
            Self::Act { action: Action::Transaction { commands, .. }, .. } => {
                commands.iter().all(|command| command.class() == Class::Read)
            }
            Self::Act { action, .. } => action.class() == Class::Read,
            Self::Together(together) => {
                together.steps.iter().all(|(_, command)| command.class() == Class::Read)
            }
        }
    }

    /// All keys.
    pub(super) fn keys(&self) -> BTreeSet<Bytes> {
        match self {
            Self::Act { key, .. } => BTreeSet::from([key.clone()]),
            Self::Together(together) => {
                let watched = together.watched.iter().map(|(key, _)| key);
                let steps = together.steps.iter().flat_map(|(key, command)| keys_of(key, command));
                steps.chain(watched).cloned().collect()
            }
        }
    }

    /// Keys whose states it depends on.
    pub(super) fn needs(&self) -> BTreeSet<Bytes> {
        match self {
            Self::Act { action, .. } if action.class() == Class::Write => BTreeSet::new(),
            Self::Act { key, .. } => BTreeSet::from([key.clone()]),
            Self::Together(together) => {
                let mut needs: BTreeSet<_> = together.watched.iter().map(|(key, _)| key.clone()).collect();
                let mut replaced = BTreeSet::new();
                for (key, command) in &together.steps {
                    if command.class() == Class::Write {
                        replaced.insert(key);
                    } else if !replaced.contains(key) {
                        needs.insert(key.clone());
                    }
                    needs.extend(keys_of(key, command).skip(1).cloned());
                }
                needs
            }
        }
    }

    /// Carries it out on the versions that were read; `written` is what the transaction has written before.
    pub(super) fn run(&self, seen: &BTreeMap<Bytes, Version>, written: &BTreeMap<Bytes, State>) -> Done {
        let initial = Version::default();
        let before = |key: &Bytes| {
            let version = seen.get(key).unwrap_or(&initial);
            (written.get(key).unwrap_or(&version.value), watch_version(version.at))
        };
        match self {
            Self::Act { key, action, at_ms } => {
                let (state, version) = before(key);
                let (new, answer) = apply(state, version, action, *at_ms);
                let writes = match answer {
                    Answer::Exec(None) => None,
                    _ if self.is_read() => Some(BTreeMap::new()),
                    _ => Some(BTreeMap::from([(key.clone(), new)])),
                };
                Done { outcome: Outcome::Answer(answer), writes }
            }
            Self::Together(together) => {
                let changed = together.watched.iter().any(|(key, watched)| {
                    let (state, version) = before(key);
                    apply(state, version, &Action::Watch, together.at_ms).1 != Answer::Version(*watched)
                });
                if changed {
                    return Done { outcome: Outcome::Answers(None), writes: None };
                }
                let mut writes: BTreeMap<Bytes, State> = BTreeMap::new();
                let steps = together.steps.iter().map(|(key, command)| {
                    if let Command::ListMove(from, to, destination) = command {
                        let state = |key| writes.get(key).unwrap_or(before(key).0);
                        let (source, target) = (state(key), state(destination));
                        let (after, reply) = move_item(source, target, (*from, *to), together.at_ms);
                        if let Some((source, target)) = after {
                            writes.extend([(key.clone(), source), (destination.clone(), target)]);
                        }
                        return reply;
                    }
                    let (state, version) = before(key);
                    let state = writes.get(key).unwrap_or(state);
                    let action = Action::Command(command.clone());
                    let (new, answer) = apply(state, version, &action, together.at_ms);
                    if command.class() != Class::Read {
                        writes.insert(key.clone(), new);
                    }
                    match answer {
                        Answer::One(reply) => reply,
                        _ => Reply::Nil,
                    }
                });
                let replies: Vec<Reply> = steps.collect();
                Done { outcome: Outcome::Answers(Some(replies)), writes: Some(writes) }
            }
        }
    }
}

/// The key of a step and, where it moves an item, its destination.
fn keys_of<'a>(key: &'a Bytes, command: &'a Command) -> impl Iterator<Item = &'a Bytes> {
    let destination =
        if let Command::ListMove(_, _, destination) = command { Some(destination) } else { None };
    std::iter::once(key).chain(destination)
}

/// Keys by the partition that holds them.
pub(super) fn by_partition(
    group: &Group,
    keys: impl IntoIterator<Item = Bytes>,
) -> BTreeMap<Partition, Vec<Bytes>> {
    let mut parts: BTreeMap<Partition, Vec<Bytes>> = BTreeMap::new();
    for key in keys {
        parts.entry(group.partition_of(&key)).or_default().push(key);
    }
    parts
}
