//! What commands are to access control: their categories, and what they do to their keys.

use super::parse::Args;
use super::table::{ADMIN, BLOCKING, Entry, FAST, READ, WRITE};

/// The categories of commands: Redis's, in its order, and Meridian's own.
pub const CATEGORIES: [&str; 22] = [
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
    "meridian",
];

/// What a command does to a key: what a pattern must allow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// It answers with what the key holds, or by it.
    pub read: bool,
    /// It may change or delete it.
    pub write: bool,
}

impl Access {
    const READ: Self = Self { read: true, write: false };
    const WRITE: Self = Self { read: false, write: true };
    /// Both.
    pub const BOTH: Self = Self { read: true, write: true };
    /// It tells of the key no more than whether it is there, of which type and size, and for how long.
    const NEITHER: Self = Self { read: false, write: false };

    /// Whether all of `needed` is in it.
    pub fn covers(self, needed: Self) -> bool {
        (self.read || !needed.read) && (self.write || !needed.write)
    }
}

impl Entry {
    /// Its categories, in the order of [`CATEGORIES`].
    pub fn categories(&self) -> impl Iterator<Item = &'static str> {
        CATEGORIES.into_iter().filter(|category| self.is_of(category))
    }

    /// Whether it belongs to a category.
    pub fn is_of(&self, category: &str) -> bool {
        match category {
            "read" => self.is(READ),
            "write" => self.is(WRITE),
            "admin" => self.is(ADMIN),
            "dangerous" => {
                self.is(ADMIN)
                    || matches!(self.name, "keys" | "flushdb" | "flushall" | "info" | "meridian.status")
            }
            "fast" => self.is(FAST),
            "slow" => !self.is(FAST),
            "blocking" => self.is(BLOCKING),
            "keyspace" => self.group == "generic" || matches!(self.name, "dbsize" | "flushdb" | "flushall"),
            "connection" => self.group == "connection" || self.name.starts_with("command"),
            "transaction" => self.group == "transactions",
            group => self.group == group,
        }
    }

    /// What it does to the `nth` of its keys, counted from 0.
    pub fn access(&self, args: Args<'_>, nth: usize) -> Access {
        match self.name {
            "strlen" | "exists" | "type" | "llen" | "hlen" | "hexists" | "watch" => Access::NEITHER,
            "set" if answers_by_the_value(args) => Access::BOTH,
            "lmove" | "rpoplpush" | "blmove" | "brpoplpush" if nth == 1 => Access::WRITE,
            "getset" | "getdel" | "getex" | "incr" | "incrby" | "incrbyfloat" | "decr" | "decrby"
            | "lpop" | "rpop" | "lmove" | "rpoplpush" | "blpop" | "brpop" | "blmove" | "brpoplpush"
            | "hincrby" | "delifeq" => Access::BOTH,
            _ if self.is(WRITE) => Access::WRITE,
            _ => Access::READ,
        }
    }
}

/// Whether a `SET` has the option `GET` or `IFEQ`.
fn answers_by_the_value(args: Args<'_>) -> bool {
    let reads = |word: &[u8]| word.eq_ignore_ascii_case(b"get") || word.eq_ignore_ascii_case(b"ifeq");
    args.iter().skip(3).any(reads)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::table;

    #[test]
    fn categories_are_those_of_redis() {
        let of = |name: &str| {
            let (first, _) = name.split_once('|').unwrap_or((name, ""));
            let entry = table::find(first.as_bytes()).unwrap();
            let entry = entry.subcommands.iter().find(|sub| sub.name == name).unwrap_or(entry);
            entry.categories().collect::<Vec<_>>().join(" ")
        };
        for (name, categories) in [
            ("get", "read string fast"),
            ("set", "write string slow"),
            ("del", "keyspace write slow"),
            ("keys", "keyspace read slow dangerous"),
            ("flushall", "keyspace write slow dangerous"),
            ("blpop", "write list slow blocking"),
            ("config", "slow"),
            ("config|set", "admin slow dangerous"),
            ("acl|setuser", "admin slow dangerous"),
            ("acl|whoami", "slow"),
            ("client|list", "admin slow dangerous connection"),
            ("command|docs", "slow connection"),
            ("info", "slow dangerous"),
            ("time", "fast"),
            ("watch", "fast transaction"),
            ("meridian.dev|cut", "admin slow dangerous meridian"),
        ] {
            assert_eq!(of(name), categories, "{name}");
        }
        let uncategorized = |entry: &&Entry| entry.categories().next().is_none();
        assert!(table::all().iter().find(uncategorized).is_none());
    }
}
