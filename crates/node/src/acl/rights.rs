//! What a user may do, as its rules have added it up.

use super::{Levels, PasswordHash};
use crate::resp::categories::Access;
use crate::resp::glob;
use crate::resp::parse::Args;
use crate::resp::table::{self, Entry, NO_AUTH};
use bytes::Bytes;
use std::collections::BTreeSet;

/// What a user may do.
#[derive(Clone, Default)]
pub struct Rights {
    pub(super) enabled: bool,
    /// Any password is right.
    pub(super) no_password: bool,
    /// Kept because Redis tells it; nothing here takes payloads.
    pub(super) payload: Option<&'static str>,
    pub(super) passwords: Vec<PasswordHash>,
    pub(super) commands: Commands,
    pub(super) keys: Keys,
    /// Kept because Redis has them; there are no channels here.
    pub(super) channels: Channels,
    pub(super) keyspaces: Keyspaces,
    /// The keyspace in which its connections begin, if it is not the first.
    pub(super) start: Option<usize>,
    pub(super) levels: Option<Levels>,
    /// How many commands a second its connections may send together, if that is limited.
    pub(super) rate: Option<u32>,
}

/// Which commands.
#[derive(Clone, Default)]
pub(super) struct Commands {
    /// By place in the table: bit 0 is the command itself, the others its sub-commands. Empty: none at all.
    masks: Vec<u32>,
    /// All, and nothing was taken away since.
    all: bool,
    /// Everything that is not named, so also what later versions bring.
    pub(super) others: bool,
    /// What was said since all or none was: whether it adds, and what.
    pub(super) said: Vec<(bool, String)>,
}

/// Which keys.
#[derive(Clone, Default)]
pub(super) struct Keys {
    pub(super) all: bool,
    pub(super) patterns: Vec<(Bytes, Access)>,
}

/// Which channels.
#[derive(Clone, Default)]
pub(super) struct Channels {
    pub(super) all: bool,
    pub(super) patterns: Vec<Bytes>,
}

/// Which keyspaces, by their places.
#[derive(Clone, Default)]
pub(super) enum Keyspaces {
    #[default]
    All,
    Only(BTreeSet<usize>),
}

/// Why a command is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// The user may not run it.
    Command,
    /// One of its keys matches no pattern.
    Key,
    /// It works in a keyspace that is not the user's.
    Keyspace,
}

impl Rights {
    /// Those of the default user, unless it was told otherwise.
    pub(super) fn everything() -> Self {
        let mut rights = Self { enabled: true, no_password: true, ..Self::default() };
        rights.commands.set_all(true);
        (rights.keys.all, rights.channels.all) = (true, true);
        rights
    }

    /// Whether every command on every key of every keyspace is allowed.
    pub fn is_unrestricted(&self) -> bool {
        self.commands.all && self.keys.all && matches!(self.keyspaces, Keyspaces::All) && self.rate.is_none()
    }

    /// Whether whoever comes is this user without a password.
    pub fn is_open(&self) -> bool {
        self.enabled && self.no_password
    }

    /// Whether any password is right.
    pub fn needs_no_password(&self) -> bool {
        self.no_password
    }

    /// Whether a password with that hash is the user's, and the user on. Looks at all of them: what it takes tells nothing.
    pub(super) fn accepts(&self, hash: &PasswordHash) -> bool {
        let differs = |known: &PasswordHash| known.iter().zip(hash).fold(0, |sum, (a, b)| sum | (a ^ b)) != 0;
        let known = self.passwords.iter().fold(false, |found, known| found | !differs(known));
        self.enabled && (known | self.no_password)
    }

    /// The keyspace in which its connections begin, by place.
    pub fn start(&self) -> Option<usize> {
        self.start
    }

    /// What its operations ask for at first.
    pub fn levels(&self) -> Option<Levels> {
        self.levels
    }

    /// How many commands a second its connections may send together, if that is limited.
    pub fn rate(&self) -> Option<u32> {
        self.rate
    }

    /// Whether the keyspace at that place is the user's.
    pub fn may_use(&self, keyspace: usize) -> bool {
        match &self.keyspaces {
            Keyspaces::All => true,
            Keyspaces::Only(own) => own.contains(&keyspace),
        }
    }

    /// Whether a command with these words may be run; `keyspace` is where it works, if it works in one.
    ///
    /// # Errors
    /// What is not allowed.
    pub fn check(&self, entry: &Entry, args: Args<'_>, keyspace: Option<usize>) -> Result<(), Denied> {
        if !self.commands.all && !entry.is(NO_AUTH) && !self.commands.allow(entry) {
            return Err(Denied::Command);
        }
        if keyspace.is_some_and(|keyspace| !self.may_use(keyspace)) {
            return Err(Denied::Keyspace);
        }
        if self.keys.all {
            return Ok(());
        }
        let allowed = |(nth, index): (usize, usize)| {
            args.get(index).is_none_or(|key| self.keys.allow(key, entry.access(args, nth)))
        };
        let mut keys = entry.keys.indexes(args.len()).enumerate();
        if keys.all(allowed) { Ok(()) } else { Err(Denied::Key) }
    }
}

impl Keys {
    fn allow(&self, key: &[u8], needed: Access) -> bool {
        self.patterns.iter().any(|(pattern, access)| access.covers(needed) && glob::matches(pattern, key))
    }

    pub(super) fn add(&mut self, pattern: Bytes, access: Access) {
        match self.patterns.iter_mut().find(|(known, _)| *known == pattern) {
            Some((_, known)) => {
                known.read |= access.read;
                known.write |= access.write;
            }
            None => self.patterns.push((pattern, access)),
        }
    }
}

impl Commands {
    pub(super) fn set_all(&mut self, allowed: bool) {
        let mask = if allowed { u32::MAX } else { 0 };
        *self =
            Self { masks: vec![mask; table::all().len()], all: allowed, others: allowed, said: Vec::new() };
    }

    fn allow(&self, entry: &Entry) -> bool {
        let Some((index, bit)) = place(entry.name) else { return false };
        self.masks.get(index).is_some_and(|mask| mask >> bit & 1 == 1)
    }

    /// Allows or forbids a command, with all of its sub-commands, or one sub-command.
    pub(super) fn set_one(&mut self, entry: &Entry, allowed: bool) {
        let Some((index, bit)) = place(entry.name) else { return };
        // A command stands for its sub-commands too.
        self.change(index, if bit == 0 { u32::MAX } else { 1 << bit }, allowed);
        self.say(allowed, entry.name);
    }

    /// Allows or forbids the commands and sub-commands of a category.
    pub(super) fn set_category(&mut self, category: &str, allowed: bool) {
        for (index, entry) in table::all().iter().enumerate() {
            let family = std::iter::once(entry).chain(entry.subcommands).enumerate();
            let bits =
                family.filter(|(_, entry)| entry.is_of(category)).fold(0, |bits, (bit, _)| bits | 1 << bit);
            self.change(index, bits, allowed);
        }
        self.say(allowed, &format!("@{category}"));
    }

    fn change(&mut self, index: usize, bits: u32, allowed: bool) {
        self.masks.resize(table::all().len(), 0);
        if allowed {
            self.masks[index] |= bits;
        } else {
            self.masks[index] &= !bits;
            self.all = false;
        }
    }

    /// Notes what was said, in place of what it makes void: of a command, what was said of it and of its sub-commands.
    fn say(&mut self, allowed: bool, what: &str) {
        let is_void =
            |said: &str| said.strip_prefix(what).is_some_and(|rest| rest.is_empty() || rest.starts_with('|'));
        self.said.retain(|(_, said)| !is_void(said));
        self.said.push((allowed, what.to_owned()));
    }
}

/// Where a command or sub-command stands: its command's place in the table, and its bit.
fn place(name: &str) -> Option<(usize, usize)> {
    let Some((command, _)) = name.split_once('|') else {
        return Some((table::index_of(name.as_bytes())?, 0));
    };
    let index = table::index_of(command.as_bytes())?;
    let nth = table::all()[index].subcommands.iter().position(|sub| sub.name == name)?;
    Some((index, nth + 1))
}
