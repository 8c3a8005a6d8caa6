//! `COMMAND` and `HELP`: the table of commands, told to clients.

use super::State;
use crate::resp::encode::Encoder;
use crate::resp::glob;
use crate::resp::parse::Args;
use crate::resp::table::{self, Entry, Own};
use crate::resp::typed::SYNTAX;

impl State {
    /// `COMMAND COUNT | DOCS | GETKEYS | INFO | LIST`.
    pub(super) fn on_command_command(&mut self, own: Own, args: Args<'_>) {
        let names: Vec<&[u8]> = args.iter().skip(2).collect();
        match own {
            Own::CommandCount => self.reply().int(table::all().len() as i64),
            Own::CommandDocs => self.on_command_docs(&names),
            Own::CommandGetKeys => self.on_command_get_keys(&names),
            Own::CommandList => self.on_command_list(&names),
            _ => self.on_command_info(&names, names.is_empty()),
        }
    }

    /// `COMMAND`, `COMMAND INFO [name…]`.
    pub(super) fn on_command_info(&mut self, names: &[&[u8]], all: bool) {
        let mut to = self.reply();
        if all {
            to.array(table::all().len());
            for entry in table::all() {
                info(&mut to, entry);
            }
            return;
        }
        to.array(names.len());
        for name in names {
            match find(name) {
                Some(entry) => info(&mut to, entry),
                None => to.null_array(),
            }
        }
    }

    fn on_command_docs(&mut self, names: &[&[u8]]) {
        let entries: Vec<&Entry> = if names.is_empty() {
            table::all().iter().collect()
        } else {
            names.iter().filter_map(|name| find(name)).collect()
        };
        let mut to = self.reply();
        to.map(entries.len());
        for entry in entries {
            docs(&mut to, entry);
        }
    }

    fn on_command_list(&mut self, options: &[&[u8]]) {
        let pattern = match options {
            [] => None,
            [filter, kind, pattern]
                if filter.eq_ignore_ascii_case(b"filterby") && kind.eq_ignore_ascii_case(b"pattern") =>
            {
                Some(pattern.to_ascii_lowercase())
            }
            [filter, kind, category]
                if filter.eq_ignore_ascii_case(b"filterby") && kind.eq_ignore_ascii_case(b"aclcat") =>
            {
                let category = String::from_utf8_lossy(category).to_ascii_lowercase();
                // What is no category has no commands.
                let has = |entry: &&Entry| entry.categories().any(|has| has == category);
                return list(&mut self.reply(), table::all().iter().filter(has).collect());
            }
            _ => return self.error(&SYNTAX),
        };
        let wanted = |entry: &&Entry| {
            pattern.as_ref().is_none_or(|pattern| glob::matches(pattern, entry.name.as_bytes()))
        };
        list(&mut self.reply(), table::all().iter().filter(wanted).collect());
    }

    fn on_command_get_keys(&mut self, words: &[&[u8]]) {
        let Some(entry) = words.first().and_then(|name| table::find(name)) else {
            return self.error("ERR Invalid command specified");
        };
        if entry.keys.first == 0 {
            return self.error("ERR The command has no key arguments");
        }
        if !entry.accepts(words.len()) {
            return self.error("ERR Invalid number of arguments specified for command");
        }
        let indexes: Vec<_> = entry.keys.indexes(words.len()).collect();
        let mut to = self.reply();
        to.array(indexes.len());
        for index in indexes {
            to.bulk(words[index]);
        }
    }

    /// `CLIENT HELP` and its kin.
    pub(super) fn on_help(&mut self, args: Args<'_>) {
        let Some(container) = table::find(&args[0]) else { return self.error(&SYNTAX) };
        let name = container.name.to_uppercase();
        let mut to = self.reply();
        to.array(1 + container.subcommands.len() * 2);
        to.simple(&format!("{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"));
        for entry in container.subcommands {
            to.simple(&entry.subname().to_uppercase());
            to.simple(&format!("    {}", entry.summary));
        }
    }
}

/// A command, or a sub-command as `command|sub-command`.
fn find(name: &[u8]) -> Option<&'static Entry> {
    let mut parts = name.splitn(2, |byte| *byte == b'|');
    let entry = table::find(parts.next()?)?;
    match parts.next() {
        None => Some(entry),
        Some(sub) => {
            entry.subcommands.iter().find(|entry| entry.subname().as_bytes().eq_ignore_ascii_case(sub))
        }
    }
}

fn list(to: &mut Encoder<'_>, entries: Vec<&Entry>) {
    to.array(entries.len());
    for entry in entries {
        to.bulk(entry.name.as_bytes());
    }
}

/// A command's ten properties, as Redis 7 gives them.
fn info(to: &mut Encoder<'_>, entry: &Entry) {
    to.array(10);
    to.bulk(entry.name.as_bytes());
    to.int(i64::from(entry.arity));
    to.set(entry.flag_names().count());
    for name in entry.flag_names() {
        to.simple(name);
    }
    for number in [entry.keys.first, entry.keys.last, entry.keys.step] {
        to.int(i64::from(number));
    }
    let categories: Vec<_> = entry.categories().collect();
    to.set(categories.len());
    for name in categories {
        to.simple(&format!("@{name}"));
    }
    // Tips and key specifications: none.
    to.array(0);
    to.array(0);
    to.array(entry.subcommands.len());
    for entry in entry.subcommands {
        info(to, entry);
    }
}

fn docs(to: &mut Encoder<'_>, entry: &Entry) {
    to.bulk(entry.name.as_bytes());
    to.map(3 + usize::from(!entry.subcommands.is_empty()));
    for (name, value) in [("summary", entry.summary), ("since", entry.since), ("group", entry.group)] {
        to.bulk(name.as_bytes());
        to.bulk(value.as_bytes());
    }
    if !entry.subcommands.is_empty() {
        to.bulk(b"subcommands");
        to.map(entry.subcommands.len());
        for entry in entry.subcommands {
            docs(to, entry);
        }
    }
}
