//! `MERIDIAN.LEVEL` and `MERIDIAN.SNAPSHOT`: how operations are asked for, by the session or of one command that
//! follows as its last words.

use super::{Host, State, outcome};
use crate::resp::encode::printable;
use crate::resp::parse::Args;
use crate::resp::table::Kind;
use meridian_protocol::clock::Micros;
use meridian_protocol::machine::Level;
use meridian_protocol::object::{Class, integer};
use meridian_protocol::registry::{EngineName, Several};

/// What a session asks of its reads and of its writes, where each operation chooses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Levels {
    pub(super) reads: Level,
    pub(super) writes: Level,
}

/// What is asked of the one command that follows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Once {
    level: Option<Level>,
    /// Read as of this time, in us since the Unix epoch.
    pub(super) snapshot: Option<Micros>,
}

impl Levels {
    /// Takes up a level: of reads, of writes, or of both.
    fn set(&mut self, level: Level) {
        if of_reads(level) {
            self.reads = level;
        }
        if of_writes(level) {
            self.writes = level;
        }
    }
}

/// Whether a read can ask for it.
fn of_reads(level: Level) -> bool {
    !matches!(level, Level::MonotonicWrites | Level::WritesFollowReads)
}

/// Whether a write can ask for it.
fn of_writes(level: Level) -> bool {
    !matches!(level, Level::ReadYourWrites | Level::MonotonicReads)
}

fn named(word: &[u8]) -> Option<Level> {
    let named = |(_, name): &&(Level, &str)| word.eq_ignore_ascii_case(name.as_bytes());
    Level::NAMES.iter().find(named).map(|(level, _)| *level)
}

impl State {
    /// What is asked of an operation of that class.
    pub(super) fn level_of(&mut self, class: Class) -> Level {
        let own = if class == Class::Read { self.levels.reads } else { self.levels.writes };
        self.asked_last = self.once.level.unwrap_or(own);
        self.asked_last
    }

    /// `MERIDIAN.LEVEL`, alone, with one or two levels, or with one and a command.
    pub(super) fn on_level(&mut self, args: Args<'_>, host: &mut impl Host) {
        let keyspace = &host.keyspaces()[self.keyspace];
        if keyspace.model.several() != Several::Snapshots {
            return self.error(&outcome::not_of_model(keyspace, "MERIDIAN.LEVEL", EngineName::has_levels));
        }
        let Some(word) = args.get(1) else { return self.tell_levels() };
        let Some(level) = named(word) else {
            let names = Level::NAMES.map(|(_, name)| name).join(", ");
            return self
                .error(&format!("ERR no level is called '{}': there are {names}", printable(word, 64)));
        };
        match (args.get(2), args.get(2).and_then(named), args.len()) {
            (None, ..) => self.levels.set(level),
            (_, Some(writes), 3) if of_reads(level) && of_writes(writes) => {
                self.levels = Levels { reads: level, writes };
            }
            (_, Some(_), 3) => {
                return self.error(
                    "ERR the first level is that of reads (ec, ryw, mr, cc), the second that of writes (ec, mw, wfr, cc)",
                );
            }
            _ => {
                let once = Once { level: Some(level), snapshot: None };
                return self.prefixed(once, 2, args, host);
            }
        }
        self.reply().ok();
    }

    fn tell_levels(&mut self) {
        let Levels { reads, writes } = self.levels;
        let mut to = self.reply();
        to.map(2);
        for (name, level) in [("reads", reads), ("writes", writes)] {
            to.bulk(name.as_bytes());
            to.bulk(level.name().as_bytes());
        }
    }

    /// `MERIDIAN.SNAPSHOT time command…`.
    pub(super) fn on_snapshot(&mut self, args: Args<'_>, host: &mut impl Host) {
        let keyspace = &host.keyspaces()[self.keyspace];
        if keyspace.model.several() != Several::Transactions {
            return self.error(&outcome::no_transactions(keyspace, "MERIDIAN.SNAPSHOT"));
        }
        let time = integer(&args[1]).and_then(|time| Micros::try_from(time).ok());
        let Some(time) = time.filter(|time| *time <= host.now().wall) else {
            return self.error(
                "ERR the time of a snapshot is given in microseconds since the Unix epoch, and has passed",
            );
        };
        self.prefixed(Once { level: None, snapshot: Some(time) }, 2, args, host);
    }

    /// Runs the command that follows a prefix of so many words.
    fn prefixed(&mut self, once: Once, words: usize, args: Args<'_>, host: &mut impl Host) {
        let inner = args.skip(words);
        let entry = match self.check(inner, host) {
            Ok(entry) => entry,
            Err(refusal) => return self.error(&refusal),
        };
        let name = entry.name.to_uppercase();
        self.once = once;
        match entry.kind {
            Kind::Key(typer) => self.on_key(entry, typer, inner, host),
            Kind::Each(each) => self.on_each(entry, each, inner, host),
            Kind::Take(typer) => self.on_take(entry, typer, inner, host),
            Kind::Own(_) => self.error(&format!(
                "ERR {name} cannot follow {}: only a command on keys can",
                printable(&args[0], 64).to_uppercase()
            )),
        }
        self.once = Once::default();
        if let Some(running) = &mut self.running {
            running.prefix = words;
        }
    }

    /// Why a command of that class cannot be asked for as its prefix says.
    pub(super) fn unfit_for_prefix(&self, class: Class, name: &str) -> Option<String> {
        let name = name.to_uppercase();
        if self.once.snapshot.is_some() && class != Class::Read {
            return Some(format!("ERR {name} may write, and a snapshot can only be read"));
        }
        let level = self.once.level?;
        match class {
            Class::Read if !of_reads(level) => {
                Some(format!("ERR {name} reads, and {} is a level of writes", level.name()))
            }
            Class::Write | Class::ReadModifyWrite if !of_writes(level) => {
                Some(format!("ERR {name} writes, and {} is a level of reads", level.name()))
            }
            _ => None,
        }
    }

    /// The level at which the engine has served the last operation, where that says something.
    pub(super) fn level_served(&self, host: &impl Host) -> Option<&'static str> {
        let keyspace = &host.keyspaces()[self.keyspace];
        let engine = keyspace.engine();
        let causal = keyspace.model.several() == Several::Snapshots;
        causal.then(|| if engine.has_levels() { self.asked_last.name() } else { Level::Causal.name() })
    }
}
