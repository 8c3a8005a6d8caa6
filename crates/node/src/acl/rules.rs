//! Rules in Redis's words: taken up, and told.
//!
//! Beside Redis's there are Valkey's for keyspaces (`db=`, `alldbs`, `resetdbs`), and three of Meridian's own: `use=`, where the user's
//! connections begin, `level=`, what their operations in causal keyspaces ask for, and `rate=`, how many commands they may send.

use super::rights::{Channels, Keys, Keyspaces, Rights};
use super::{PasswordHash, hash_password};
use crate::resp::categories::{Access, CATEGORIES};
use crate::resp::encode::printable;
use crate::resp::table::{self, Entry};
use bytes::Bytes;
use meridian_protocol::machine::Level;
use std::collections::BTreeSet;
use std::fmt::Write as _;

const SANITIZE: &str = "sanitize-payload";
const SYNTAX: &str = "Syntax error";
const UNKNOWN_COMMAND: &str = "Unknown command or category name in ACL";
const NO_SUCH_PASSWORD: &str = "The password you are trying to remove from the user does not exist";
const BAD_HASH: &str =
    "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters";
const ALL_KEYS: &str = "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any effect. \
                        Try 'resetkeys' to start with an empty list of patterns";
const ALL_CHANNELS: &str = "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not have any \
                            effect. Try 'resetchannels' to start with an empty list of channels";
const NO_DEEPER: &str = "Allowing first-arg of a subcommand is not supported";
const NO_SELECTORS: &str = "Selectors are not served: make a user for each";
const NO_FIRST_ARGUMENTS: &str = "Allowing first-arg of a command is not served: for keyspaces there is db=";

impl Rights {
    /// Takes up a rule. `keyspaces` are the numbers and names of those that there are.
    ///
    /// # Errors
    /// What is wrong with it, as a line for the client that does not show a password.
    pub(super) fn apply(&mut self, rule: &[u8], keyspaces: &[(u16, String)]) -> Result<(), String> {
        self.take(rule, keyspaces).map_err(|why| {
            // What follows these marks is, or was meant to be, a password.
            let shown = if matches!(rule.first(), Some(b'>' | b'<')) { &rule[..1] } else { rule };
            format!("Error in ACL SETUSER modifier '{}': {why}", printable(shown, 128))
        })
    }

    fn take(&mut self, rule: &[u8], keyspaces: &[(u16, String)]) -> Result<(), String> {
        let Some((mark, rest)) = rule.split_first() else { return Err(SYNTAX.to_owned()) };
        let lower = rule.to_ascii_lowercase();
        match lower.as_slice() {
            b"on" => self.enabled = true,
            b"off" => self.enabled = false,
            b"nopass" => {
                self.no_password = true;
                self.passwords.clear();
            }
            b"resetpass" => {
                self.no_password = false;
                self.passwords.clear();
            }
            b"sanitize-payload" => self.payload = Some(SANITIZE),
            b"skip-sanitize-payload" => self.payload = Some("skip-sanitize-payload"),
            b"reset" => *self = Self { payload: Some(SANITIZE), ..Self::default() },
            b"allkeys" | b"~*" => self.keys = Keys { all: true, patterns: Vec::new() },
            b"resetkeys" => self.keys = Keys::default(),
            b"allchannels" | b"&*" => self.channels = Channels { all: true, patterns: Vec::new() },
            b"resetchannels" => self.channels = Channels::default(),
            b"allcommands" | b"+@all" => self.commands.set_all(true),
            b"nocommands" | b"-@all" => self.commands.set_all(false),
            b"alldbs" => self.keyspaces = Keyspaces::All,
            b"resetdbs" => self.keyspaces = Keyspaces::Only(BTreeSet::new()),
            // There are none to clear.
            b"clearselectors" => {}
            _ => match mark {
                b'>' => self.add_password(hash_password(rest)),
                b'#' => self.add_password(read_hash(rest)?),
                b'<' => self.remove_password(hash_password(rest))?,
                b'!' => self.remove_password(read_hash(rest)?)?,
                b'(' => return Err(NO_SELECTORS.to_owned()),
                b'~' | b'%' => self.add_keys(rule)?,
                b'&' => self.add_channel(rest)?,
                b'+' | b'-' => self.change_commands(&lower[1..], *mark == b'+')?,
                _ => return self.take_own(rule, keyspaces),
            },
        }
        Ok(())
    }

    /// Rules that say a value after a name.
    fn take_own(&mut self, rule: &[u8], keyspaces: &[(u16, String)]) -> Result<(), String> {
        let rule = std::str::from_utf8(rule).map_err(|_| SYNTAX)?;
        let (name, value) = rule.split_once('=').ok_or(SYNTAX)?;
        match name.to_ascii_lowercase().as_str() {
            "db" => {
                let mut own =
                    if let Keyspaces::Only(own) = &self.keyspaces { own.clone() } else { BTreeSet::new() };
                for word in value.split(',') {
                    own.insert(keyspace(word, keyspaces)?);
                }
                self.keyspaces = Keyspaces::Only(own);
            }
            "use" => self.start = Some(keyspace(value, keyspaces)?),
            "rate" => {
                let rate = value
                    .parse::<u32>()
                    .map_err(|_| "a rate is a number of commands a second; 0 is no limit")?;
                self.rate = Some(rate).filter(|rate| *rate > 0);
            }
            "level" => self.levels = Some(levels(value)?),
            _ => return Err(SYNTAX.to_owned()),
        }
        Ok(())
    }

    fn add_password(&mut self, hash: PasswordHash) {
        self.no_password = false;
        if !self.passwords.contains(&hash) {
            self.passwords.push(hash);
        }
    }

    fn remove_password(&mut self, hash: PasswordHash) -> Result<(), String> {
        let known = self.passwords.iter().position(|known| *known == hash).ok_or(NO_SUCH_PASSWORD)?;
        self.passwords.remove(known);
        Ok(())
    }

    /// `~pattern`, `%R~pattern`, `%W~pattern`, `%RW~pattern`.
    fn add_keys(&mut self, rule: &[u8]) -> Result<(), String> {
        if self.keys.all {
            return Err(ALL_KEYS.to_owned());
        }
        let tilde = rule.iter().position(|byte| *byte == b'~').ok_or(SYNTAX)?;
        let (letters, pattern) = (&rule[..tilde], &rule[tilde + 1..]);
        let access = match letters.to_ascii_lowercase().as_slice() {
            b"" | b"%rw" | b"%wr" => Access::BOTH,
            b"%r" => Access { read: true, write: false },
            b"%w" => Access { read: false, write: true },
            _ => return Err(SYNTAX.to_owned()),
        };
        if has_spaces(pattern) {
            return Err(SYNTAX.to_owned());
        }
        self.keys.add(Bytes::copy_from_slice(pattern), access);
        Ok(())
    }

    fn add_channel(&mut self, pattern: &[u8]) -> Result<(), String> {
        if self.channels.all {
            return Err(ALL_CHANNELS.to_owned());
        }
        if has_spaces(pattern) {
            return Err(SYNTAX.to_owned());
        }
        if !self.channels.patterns.iter().any(|known| known == pattern) {
            self.channels.patterns.push(Bytes::copy_from_slice(pattern));
        }
        Ok(())
    }

    /// `+command`, `+command|sub-command`, `+@category`, and the same with `-`.
    fn change_commands(&mut self, what: &[u8], allowed: bool) -> Result<(), String> {
        let what = std::str::from_utf8(what).map_err(|_| UNKNOWN_COMMAND)?;
        if let Some(category) = what.strip_prefix('@') {
            let known = CATEGORIES.contains(&category);
            return if known {
                self.commands.set_category(category, allowed);
                Ok(())
            } else {
                Err(UNKNOWN_COMMAND.to_owned())
            };
        }
        self.commands.set_one(command(what)?, allowed);
        Ok(())
    }

    /// The names of its flags, in Redis's order.
    pub(crate) fn flags(&self) -> Vec<&'static str> {
        let on = if self.enabled { "on" } else { "off" };
        let nopass = self.no_password.then_some("nopass");
        [Some(on), nopass, self.payload].into_iter().flatten().collect()
    }

    /// The hashes of its passwords, in hexadecimal.
    pub(crate) fn hashes(&self) -> Vec<String> {
        self.passwords.iter().map(|hash| hexadecimal(hash)).collect()
    }

    /// What it says of commands, in the order in which that was said.
    pub(crate) fn commands_text(&self) -> String {
        let mut text = if self.commands.others { "+@all" } else { "-@all" }.to_owned();
        for (allowed, what) in &self.commands.said {
            let mark = if *allowed { '+' } else { '-' };
            // Writing to a string has no error.
            let _ = write!(text, " {mark}{what}");
        }
        text
    }

    /// The patterns of keys, with a blank between two.
    pub(crate) fn keys_text(&self) -> Vec<u8> {
        if self.keys.all {
            return b"~*".to_vec();
        }
        let pattern = |(pattern, access): &(Bytes, Access)| {
            let letters: &[u8] = match (access.read, access.write) {
                (true, true) => b"~",
                (true, false) => b"%R~",
                _ => b"%W~",
            };
            [letters, pattern].concat()
        };
        self.keys.patterns.iter().map(pattern).collect::<Vec<_>>().join(&b' ')
    }

    /// The patterns of channels.
    pub(crate) fn channels_text(&self) -> Vec<u8> {
        if self.channels.all {
            return b"&*".to_vec();
        }
        self.channels
            .patterns
            .iter()
            .map(|pattern| [b"&", &pattern[..]].concat())
            .collect::<Vec<_>>()
            .join(&b' ')
    }

    /// Rules that Redis does not have, where they say something.
    pub(crate) fn own_rules(&self, keyspaces: &[(u16, String)]) -> Vec<String> {
        let name = |index: &usize| keyspaces.get(*index).map_or("", |(_, name)| name.as_str());
        let mut rules = Vec::new();
        match &self.keyspaces {
            Keyspaces::All => {}
            Keyspaces::Only(own) if own.is_empty() => rules.push("resetdbs".to_owned()),
            Keyspaces::Only(own) => {
                rules.push(format!("db={}", own.iter().map(name).collect::<Vec<_>>().join(",")));
            }
        }
        rules.extend(self.start.as_ref().map(|start| format!("use={}", name(start))));
        rules.extend(self.levels.map(|(reads, writes)| format!("level={},{}", reads.name(), writes.name())));
        rules.extend(self.rate.map(|rate| format!("rate={rate}")));
        rules
    }

    /// The user as a line of rules that make it again, as `ACL LIST` tells it.
    pub(crate) fn line(&self, name: &[u8], keyspaces: &[(u16, String)]) -> Vec<u8> {
        let mut words = vec![b"user".to_vec(), name.to_vec()];
        words.extend(self.flags().into_iter().map(|flag| flag.as_bytes().to_vec()));
        words.extend(self.hashes().into_iter().map(|hash| format!("#{hash}").into_bytes()));
        words.push(self.keys_text());
        let channels = self.channels_text();
        if !self.channels.all {
            words.push(b"resetchannels".to_vec());
        }
        words.push(channels);
        words.push(self.commands_text().into_bytes());
        words.extend(self.own_rules(keyspaces).into_iter().map(String::into_bytes));
        words.retain(|word| !word.is_empty());
        words.join(&b' ')
    }
}

/// The command or sub-command of that name, in lower case.
fn command(name: &str) -> Result<&'static Entry, String> {
    let (first, sub) = name.split_once('|').map_or((name, None), |(first, sub)| (first, Some(sub)));
    let entry = table::find(first.as_bytes()).ok_or(UNKNOWN_COMMAND)?;
    match sub {
        None => Ok(entry),
        Some("") => Err(SYNTAX.to_owned()),
        Some(sub) if sub.contains('|') => Err(NO_DEEPER.to_owned()),
        Some(_) if entry.subcommands.is_empty() => Err(NO_FIRST_ARGUMENTS.to_owned()),
        Some(_) => {
            let found = entry.subcommands.iter().find(|entry| entry.name == name);
            Ok(found.ok_or(UNKNOWN_COMMAND)?)
        }
    }
}

/// A keyspace by its number or name.
fn keyspace(word: &str, keyspaces: &[(u16, String)]) -> Result<usize, String> {
    let number = word.parse::<u16>().ok();
    let found = keyspaces.iter().position(|(known, name)| Some(*known) == number || name == word);
    found.ok_or_else(|| {
        let names: Vec<&str> = keyspaces.iter().map(|(_, name)| name.as_str()).collect();
        format!("no keyspace is called '{word}': there are {}", names.join(", "))
    })
}

/// One level or, with a comma between, that of reads and that of writes.
fn levels(value: &str) -> Result<(Level, Level), String> {
    let named = |word: &str| Level::NAMES.iter().find(|(_, name)| *name == word).map(|(level, _)| *level);
    let of_reads = |level: Level| !matches!(level, Level::MonotonicWrites | Level::WritesFollowReads);
    let of_writes = |level: Level| !matches!(level, Level::ReadYourWrites | Level::MonotonicReads);
    let standard = Level::default();
    let levels = match value.split_once(',') {
        Some((reads, writes)) => named(reads).zip(named(writes)),
        None => named(value).map(|level| {
            (if of_reads(level) { level } else { standard }, if of_writes(level) { level } else { standard })
        }),
    };
    levels.filter(|(reads, writes)| of_reads(*reads) && of_writes(*writes)).ok_or_else(|| {
        "a level is ec, ryw, mr or cc of reads, and ec, mw, wfr or cc of writes, as in level=ryw,mw"
            .to_owned()
    })
}

fn has_spaces(pattern: &[u8]) -> bool {
    pattern.iter().any(|byte| byte.is_ascii_whitespace() || matches!(byte, 0 | 0x0b))
}

fn read_hash(text: &[u8]) -> Result<PasswordHash, String> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let (pairs, []) = text.as_chunks::<2>() else { return Err(BAD_HASH.to_owned()) };
    let bytes: Option<Vec<u8>> =
        pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect();
    bytes.and_then(|bytes| bytes.try_into().ok()).ok_or_else(|| BAD_HASH.to_owned())
}

/// Bytes in hexadecimal, in lower case.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
