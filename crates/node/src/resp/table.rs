//! The one table of all commands: arity, flags, keys and documentation, and how each is served.
//!
//! Arity checks, `COMMAND` and its kin, `HELP` and the session's dispatch all read it.

use super::parse::Args;
use super::typed::queues::TakeTyper;
use super::typed::{Typer, hashes, keys, lists, queues, strings};

/// A command, or a sub-command of one.
#[derive(Debug)]
pub struct Entry {
    /// Its name in lower case; a sub-command's is `command|sub-command`.
    pub name: &'static str,
    /// How many words it has, its name included; negative: at least so many.
    pub arity: i32,
    /// Properties, as bits named in [`FLAGS`].
    pub flags: u16,
    /// Which words are keys.
    pub keys: Keys,
    /// To which group it belongs, as in `COMMAND DOCS`.
    pub group: &'static str,
    /// The version of Redis, or of Meridian, that brought it.
    pub since: &'static str,
    /// What it does, in one sentence.
    pub summary: &'static str,
    /// How it is served.
    pub kind: Kind,
    /// Its sub-commands.
    pub subcommands: &'static [Entry],
}

/// How a command is served.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// One step on the key that is its first argument.
    Key(Typer),
    /// A step on each of its keys, or one on all of them.
    Each(Each),
    /// Items taken off lists, if need be when there are some.
    Take(TakeTyper),
    /// By the session.
    Own(Own),
}

/// Commands on several keys: in one step or each on its own, as the model has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Each {
    /// `MGET`.
    Get,
    /// `MSET`.
    Set,
    /// `DEL`, `UNLINK`.
    Delete,
    /// `EXISTS`.
    Exists,
}

/// Commands of the connection, the keyspace and the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the entries of the table say what each does")]
pub enum Own {
    Abort,
    AclCat,
    AclDelUser,
    AclGenPass,
    AclGetUser,
    AclList,
    AclSetUser,
    AclUsers,
    AclWhoAmI,
    Auth,
    Begin,
    ClientGetName,
    ClientId,
    ClientInfo,
    ClientList,
    ClientSetInfo,
    ClientSetName,
    ClientUnblock,
    Commit,
    Command,
    CommandCount,
    CommandDocs,
    CommandGetKeys,
    CommandInfo,
    CommandList,
    ConfigGet,
    ConfigSet,
    /// A command that has only sub-commands.
    Container,
    ContextGet,
    ContextMerge,
    ContextReset,
    ContextSet,
    DbSize,
    Discard,
    Echo,
    Enter,
    Exec,
    Fence,
    Flush,
    Hello,
    Help,
    Info,
    Keys,
    Keyspaces,
    LastCost,
    Level,
    Multi,
    DevCut,
    DevHeal,
    DevPause,
    DevResume,
    Ping,
    Quit,
    Reset,
    Scan,
    Select,
    SlowLogGet,
    SlowLogLen,
    SlowLogReset,
    Snapshot,
    Status,
    Time,
    Unwatch,
    Use,
    Watch,
}

/// Which words of a command are keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys {
    /// The first key, 0 if there is none.
    pub first: i32,
    /// The last key; negative: counted from the end.
    pub last: i32,
    /// How many words lie from one key to the next.
    pub step: i32,
}

impl Keys {
    /// The indexes of the keys in a command of so many words.
    pub fn indexes(self, words: usize) -> impl Iterator<Item = usize> {
        let last = if self.last < 0 { words as i32 + self.last } else { self.last };
        let range = if self.first == 0 { 0..0 } else { self.first as usize..(last + 1).max(0) as usize };
        range.step_by(self.step.max(1) as usize)
    }
}

/// The names of [`Entry::flags`]' bits.
pub const FLAGS: [&str; 9] =
    ["write", "readonly", "denyoom", "admin", "loading", "stale", "fast", "no_auth", "blocking"];

/// The command may change what is stored.
pub const WRITE: u16 = 1;
/// The command only reads what is stored.
pub const READ: u16 = 1 << 1;
/// The command may need more memory, and is refused when there is none.
pub const MEMORY: u16 = 1 << 2;
/// The command is an operator's.
pub const ADMIN: u16 = 1 << 3;
const LOADING: u16 = 1 << 4;
const STALE: u16 = 1 << 5;
/// The command takes constant time.
pub const FAST: u16 = 1 << 6;
/// The command is served to clients that have not said who they are.
pub const NO_AUTH: u16 = 1 << 7;
/// The command may wait for items.
pub const BLOCKING: u16 = 1 << 8;

impl Entry {
    /// Whether it may have so many words.
    pub fn accepts(&self, words: usize) -> bool {
        let words = i32::try_from(words).unwrap_or(i32::MAX);
        if self.arity < 0 { words >= -self.arity } else { words == self.arity }
    }

    /// Whether it has the flag.
    pub fn is(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// The names of its flags.
    pub fn flag_names(&self) -> impl Iterator<Item = &'static str> {
        FLAGS.iter().enumerate().filter(|(bit, _)| self.flags >> bit & 1 == 1).map(|(_, name)| *name)
    }

    /// The entry that the words mean: a sub-command's where there are some.
    pub fn resolve(&'static self, args: Args<'_>) -> Option<&'static Entry> {
        let Some(word) = args.get(1).filter(|_| !self.subcommands.is_empty()) else { return Some(self) };
        self.subcommands.iter().find(|entry| entry.subname().as_bytes().eq_ignore_ascii_case(word))
    }

    /// What follows the `|` in a sub-command's name.
    pub fn subname(&self) -> &'static str {
        self.name.split_once('|').map_or(self.name, |(_, name)| name)
    }
}

/// The command of that name, in letters of any case.
pub fn find(name: &[u8]) -> Option<&'static Entry> {
    index_of(name).map(|index| &TABLE[index])
}

/// Its place in the table.
pub fn index_of(name: &[u8]) -> Option<usize> {
    let mut slot = hash(name);
    loop {
        match INDEX[slot] {
            0 => return None,
            found => {
                let index = usize::from(found) - 1;
                if TABLE[index].name.as_bytes().eq_ignore_ascii_case(name) {
                    return Some(index);
                }
            }
        }
        slot = (slot + 1) % INDEX.len();
    }
}

/// All commands, in the order of the table.
pub fn all() -> &'static [Entry] {
    &TABLE
}

/// Where each name stands in the table, counted from 1: an open hash table that the compiler fills.
static INDEX: [u8; 256] = index();

const fn index() -> [u8; 256] {
    let mut index = [0; 256];
    let mut entry = 0;
    while entry < ENTRIES.len() {
        let mut slot = hash(ENTRIES[entry].name.as_bytes());
        while index[slot] != 0 {
            slot = (slot + 1) % index.len();
        }
        index[slot] = entry as u8 + 1;
        entry += 1;
    }
    index
}

const fn hash(name: &[u8]) -> usize {
    let mut hash: u32 = 0;
    let mut at = 0;
    while at < name.len() && at < 24 {
        // The bit that tells upper from lower case does not count.
        hash = (hash ^ (name[at] | 0x20) as u32).wrapping_mul(0x9e37_79b1);
        at += 1;
    }
    (hash >> 24) as usize
}

static TABLE: [Entry; ENTRIES.len()] = ENTRIES;

const NO_KEYS: Keys = Keys { first: 0, last: 0, step: 0 };
const ONE: Keys = Keys { first: 1, last: 1, step: 1 };
const ALL: Keys = Keys { first: 1, last: -1, step: 1 };
const PAIRS: Keys = Keys { first: 1, last: -1, step: 2 };
const TWO: Keys = Keys { first: 1, last: 2, step: 1 };
const BUT_LAST: Keys = Keys { first: 1, last: -2, step: 1 };

/// What most commands on one key have in common.
const fn key(
    name: &'static str,
    arity: i32,
    flags: u16,
    group: &'static str,
    since: &'static str,
    summary: &'static str,
    typer: Typer,
) -> Entry {
    Entry { name, arity, flags, keys: ONE, group, since, summary, kind: Kind::Key(typer), subcommands: &[] }
}

const fn each(
    name: &'static str,
    arity: i32,
    flags: u16,
    group: &'static str,
    since: &'static str,
    summary: &'static str,
    each: Each,
) -> Entry {
    let keys = if matches!(each, Each::Set) { PAIRS } else { ALL };
    Entry { name, arity, flags, keys, group, since, summary, kind: Kind::Each(each), subcommands: &[] }
}

const fn take(
    name: &'static str,
    arity: i32,
    (flags, keys): (u16, Keys),
    since: &'static str,
    summary: &'static str,
    typer: TakeTyper,
) -> Entry {
    let kind = Kind::Take(typer);
    Entry { name, arity, flags: WRITE | flags, keys, group: "list", since, summary, kind, subcommands: &[] }
}

const fn own(
    name: &'static str,
    arity: i32,
    flags: u16,
    group: &'static str,
    since: &'static str,
    summary: &'static str,
    own: Own,
) -> Entry {
    let keys = if matches!(own, Own::Watch) { ALL } else { NO_KEYS };
    Entry { name, arity, flags, keys, group, since, summary, kind: Kind::Own(own), subcommands: &[] }
}

const fn with(mut entry: Entry, subcommands: &'static [Entry]) -> Entry {
    entry.subcommands = subcommands;
    entry
}

/// A connection's own affair: served in any state of the node.
const ANY: u16 = LOADING | STALE;

#[rustfmt::skip]
const ENTRIES: [Entry; 95] = [
    // Strings.
    key("get", 2, READ | FAST, "string", "1.0.0", "Reads a string.", strings::get),
    key("set", -3, WRITE | MEMORY, "string", "1.0.0", "Writes a string over whatever the key held; blind, unless an option asks about the old value.", strings::set),
    key("setnx", 3, WRITE | MEMORY | FAST, "string", "1.0.0", "Writes a string if the key is absent.", strings::setnx),
    key("setex", 4, WRITE | MEMORY, "string", "2.0.0", "Writes a string that expires after so many seconds.", strings::setex),
    key("psetex", 4, WRITE | MEMORY, "string", "2.6.0", "Writes a string that expires after so many milliseconds.", strings::psetex),
    key("getset", 3, WRITE | MEMORY | FAST, "string", "1.0.0", "Writes a string and answers the one before.", strings::getset),
    key("getdel", 2, WRITE | FAST, "string", "6.2.0", "Deletes a string and answers what it was.", strings::getdel),
    key("getex", -2, WRITE | FAST, "string", "6.2.0", "Reads a string, and changes when it expires.", strings::getex),
    key("delifeq", 3, WRITE | FAST, "string", "9.0.0", "Deletes a string if it is the one given.", strings::delete_if_equal),
    key("strlen", 2, READ | FAST, "string", "2.2.0", "Tells how many bytes a string has.", strings::strlen),
    key("append", 3, WRITE | MEMORY | FAST, "string", "2.0.0", "Adds bytes to a string's end; an absent key is an empty string.", strings::append),
    key("getrange", 4, READ, "string", "2.4.0", "Reads the bytes of a string between two offsets.", strings::get_range),
    key("setrange", 4, WRITE | MEMORY, "string", "2.2.0", "Writes bytes into a string at an offset; what is missing before it becomes zeros.", strings::set_range),
    key("incr", 2, WRITE | MEMORY | FAST, "string", "1.0.0", "Adds one to an integer; an absent key is 0.", strings::incr),
    key("decr", 2, WRITE | MEMORY | FAST, "string", "1.0.0", "Takes one from an integer; an absent key is 0.", strings::decr),
    key("incrby", 3, WRITE | MEMORY | FAST, "string", "1.0.0", "Adds to an integer; an absent key is 0.", strings::incr_by),
    key("decrby", 3, WRITE | MEMORY | FAST, "string", "1.0.0", "Takes from an integer; an absent key is 0.", strings::decr_by),
    key("incrbyfloat", 3, WRITE | MEMORY | FAST, "string", "2.6.0", "Adds to a number with a fraction; an absent key is 0.", strings::incr_by_float),
    each("mget", -2, READ | FAST, "string", "1.0.0", "Reads strings, as one snapshot where the model has such.", Each::Get),
    each("mset", -3, WRITE | MEMORY, "string", "1.0.1", "Writes strings: in one step where the model has transactions, otherwise each on its own.", Each::Set),
    // Keys of any type.
    each("del", -2, WRITE, "generic", "1.0.0", "Deletes keys: in one step where the model has transactions, otherwise each on its own.", Each::Delete),
    each("unlink", -2, WRITE | FAST, "generic", "4.0.0", "Deletes keys: in one step where the model has transactions, otherwise each on its own.", Each::Delete),
    each("exists", -2, READ | FAST, "generic", "1.0.0", "Counts which of the keys are there, in one snapshot where the model has such.", Each::Exists),
    key("type", 2, READ | FAST, "generic", "1.0.0", "Tells of which type a key's value is.", keys::type_of),
    key("expire", -3, WRITE | FAST, "generic", "1.0.0", "Lets a key expire after so many seconds.", keys::expire),
    key("pexpire", -3, WRITE | FAST, "generic", "2.6.0", "Lets a key expire after so many milliseconds.", keys::pexpire),
    key("expireat", -3, WRITE | FAST, "generic", "1.2.0", "Lets a key expire at a time in Unix seconds.", keys::expireat),
    key("pexpireat", -3, WRITE | FAST, "generic", "2.6.0", "Lets a key expire at a time in Unix milliseconds.", keys::pexpireat),
    key("expiretime", 2, READ | FAST, "generic", "7.0.0", "Tells at which time a key expires, in Unix seconds.", keys::expiretime),
    key("pexpiretime", 2, READ | FAST, "generic", "7.0.0", "Tells at which time a key expires, in Unix milliseconds.", keys::pexpiretime),
    key("ttl", 2, READ | FAST, "generic", "1.0.0", "Tells how many seconds a key has left.", keys::ttl),
    key("pttl", 2, READ | FAST, "generic", "2.6.0", "Tells how many milliseconds a key has left.", keys::pttl),
    key("persist", 2, WRITE | FAST, "generic", "2.2.0", "Takes back that a key expires.", keys::persist),
    own("keys", 2, READ, "generic", "1.0.0", "Lists all keys that fit a pattern.", Own::Keys),
    own("scan", -2, READ, "generic", "2.8.0", "Lists keys, some with each call, from where the last one ended.", Own::Scan),
    own("dbsize", 1, READ, "server", "1.0.0", "Counts the keys in the keyspace, by listing them all.", Own::DbSize),
    own("flushdb", -1, WRITE, "server", "1.0.0", "Refused: no step empties a keyspace consistently.", Own::Flush),
    own("flushall", -1, WRITE, "server", "1.0.0", "Refused: no step empties all keyspaces consistently.", Own::Flush),
    // Lists.
    key("lpush", -3, WRITE | MEMORY | FAST, "list", "1.0.0", "Puts items before a list's head; an absent key is an empty list.", lists::lpush),
    key("rpush", -3, WRITE | MEMORY | FAST, "list", "1.0.0", "Puts items after a list's tail; an absent key is an empty list.", lists::rpush),
    key("lpop", -2, WRITE | FAST, "list", "1.0.0", "Takes items off a list's head.", lists::lpop),
    key("rpop", -2, WRITE | FAST, "list", "1.0.0", "Takes items off a list's tail.", lists::rpop),
    key("llen", 2, READ | FAST, "list", "1.0.0", "Tells how many items a list has.", lists::len),
    key("lrange", 4, READ, "list", "1.0.0", "Reads the items of a list between two places.", lists::range),
    key("lindex", 3, READ, "list", "1.0.0", "Reads the item at a place of a list.", lists::index),
    key("ltrim", 4, WRITE, "list", "1.0.0", "Keeps only the items of a list between two places.", lists::trim),
    key("lrem", 4, WRITE, "list", "1.0.0", "Takes items equal to the given one out of a list.", lists::remove),
    take("lmove", 5, (MEMORY, TWO), "6.2.0", "Moves an item from an end of one list to an end of another, and answers it.", queues::lmove),
    take("rpoplpush", 3, (MEMORY, TWO), "1.2.0", "Moves the item at one list's tail to the head of another, and answers it.", queues::rpoplpush),
    take("blpop", -3, (BLOCKING, BUT_LAST), "2.0.0", "Takes an item off the head of the first list that has one, or waits for it.", queues::blpop),
    take("brpop", -3, (BLOCKING, BUT_LAST), "2.0.0", "Takes an item off the tail of the first list that has one, or waits for it.", queues::brpop),
    take("blmove", 6, (MEMORY | BLOCKING, TWO), "6.2.0", "Moves an item between ends of two lists and answers it, or waits for one.", queues::blmove),
    take("brpoplpush", 4, (MEMORY | BLOCKING, TWO), "2.2.0", "Moves the item at one list's tail to the head of another, or waits for one.", queues::brpoplpush),
    // Hashes.
    key("hset", -4, WRITE | MEMORY | FAST, "hash", "2.0.0", "Writes fields of a hash.", hashes::set),
    key("hget", 3, READ | FAST, "hash", "2.0.0", "Reads a field of a hash.", hashes::get),
    key("hmget", -3, READ | FAST, "hash", "2.0.0", "Reads several fields of a hash.", hashes::get_many),
    key("hdel", -3, WRITE | FAST, "hash", "2.0.0", "Takes fields out of a hash.", hashes::delete),
    key("hexists", 3, READ | FAST, "hash", "2.0.0", "Tells whether a hash has a field.", hashes::exists),
    key("hgetall", 2, READ, "hash", "2.0.0", "Reads a whole hash, fields and values.", hashes::get_all),
    key("hkeys", 2, READ, "hash", "2.0.0", "Lists a hash's fields.", hashes::keys),
    key("hvals", 2, READ, "hash", "2.0.0", "Lists a hash's values.", hashes::values),
    key("hlen", 2, READ | FAST, "hash", "2.0.0", "Tells how many fields a hash has.", hashes::len),
    key("hincrby", 4, WRITE | MEMORY | FAST, "hash", "2.0.0", "Adds to an integer in a field of a hash; an absent field is 0.", hashes::incr_by),
    // Transactions.
    own("multi", 1, ANY | FAST, "transactions", "1.2.0", "Begins to gather a transaction, on one key unless the model allows several.", Own::Multi),
    own("exec", 1, ANY, "transactions", "1.2.0", "Carries out what MULTI gathered, in one step.", Own::Exec),
    own("discard", 1, ANY | FAST, "transactions", "2.0.0", "Drops what MULTI gathered.", Own::Discard),
    own("watch", -2, ANY | FAST, "transactions", "2.2.0", "Lets EXEC do nothing if one of these keys changes before it.", Own::Watch),
    own("unwatch", 1, ANY | FAST, "transactions", "2.2.0", "Drops what WATCH asked for.", Own::Unwatch),
    // The connection.
    own("ping", -1, FAST, "connection", "1.0.0", "Answers PONG, or the word given.", Own::Ping),
    own("echo", 2, ANY | FAST, "connection", "1.0.0", "Answers the word given.", Own::Echo),
    own("hello", -1, ANY | FAST | NO_AUTH, "connection", "6.0.0", "Agrees on RESP2 or RESP3, and on user and name with AUTH and SETNAME.", Own::Hello),
    own("auth", -2, ANY | FAST | NO_AUTH, "connection", "1.0.0", "Says who the client is.", Own::Auth),
    own("select", 2, ANY | FAST, "connection", "1.0.0", "Goes over to the keyspace of that number.", Own::Select),
    own("quit", -1, ANY | FAST | NO_AUTH, "connection", "1.0.0", "Ends the connection after its last answer.", Own::Quit),
    own("reset", 1, ANY | FAST | NO_AUTH, "connection", "6.2.0", "Lets the connection begin anew: no transaction, context, level, name or user.", Own::Reset),
    with(own("client", -2, 0, "connection", "2.4.0", "Commands about connections.", Own::Container), &[
        own("client|getname", 2, ANY, "connection", "2.6.9", "Tells what this connection is called.", Own::ClientGetName),
        own("client|id", 2, ANY, "connection", "5.0.0", "Tells this connection's number.", Own::ClientId),
        own("client|info", 2, ANY, "connection", "6.2.0", "Tells what the node knows of this connection.", Own::ClientInfo),
        own("client|list", -2, ANY | ADMIN, "connection", "2.4.0", "Tells what the node knows of each connection.", Own::ClientList),
        own("client|setinfo", 4, ANY, "connection", "7.2.0", "Takes the name or the version of the client's library.", Own::ClientSetInfo),
        own("client|setname", 3, ANY, "connection", "2.6.9", "Calls this connection so.", Own::ClientSetName),
        own("client|unblock", -3, ANY | ADMIN, "connection", "5.0.0", "Ends another connection's waiting.", Own::ClientUnblock),
        own("client|help", 2, ANY, "connection", "5.0.0", "Lists what can follow.", Own::Help),
    ]),
    // The node.
    with(own("acl", -2, 0, "server", "6.0.0", "Commands about users and their rights.", Own::Container), &[
        own("acl|cat", -2, ANY, "server", "6.0.0", "Lists the categories of commands, or the commands of one.", Own::AclCat),
        own("acl|deluser", -3, ANY | ADMIN, "server", "6.0.0", "Removes users; their connections are closed.", Own::AclDelUser),
        own("acl|genpass", -2, ANY, "server", "6.0.0", "Makes a password that nobody can guess.", Own::AclGenPass),
        own("acl|getuser", 3, ANY | ADMIN, "server", "6.0.0", "Tells what a user may do.", Own::AclGetUser),
        own("acl|list", 2, ANY | ADMIN, "server", "6.0.0", "Tells what each user may do, as rules.", Own::AclList),
        own("acl|setuser", -3, ANY | ADMIN, "server", "6.0.0", "Makes a user, or changes what one may do.", Own::AclSetUser),
        own("acl|users", 2, ANY | ADMIN, "server", "6.0.0", "Lists the users' names.", Own::AclUsers),
        own("acl|whoami", 2, ANY, "server", "6.0.0", "Tells as which user this connection acts.", Own::AclWhoAmI),
        own("acl|help", 2, ANY, "server", "6.0.0", "Lists what can follow.", Own::Help),
    ]),
    with(own("command", -1, ANY, "server", "2.8.13", "Describes all commands, or with a word one thing of them.", Own::Command), &[
        own("command|count", 2, ANY, "server", "2.8.13", "Counts the commands.", Own::CommandCount),
        own("command|docs", -2, ANY, "server", "7.0.0", "Says in words what commands do.", Own::CommandDocs),
        own("command|getkeys", -3, ANY, "server", "2.8.13", "Tells which words of a command are keys.", Own::CommandGetKeys),
        own("command|info", -2, ANY, "server", "2.8.13", "Describes the commands named.", Own::CommandInfo),
        own("command|list", -2, ANY, "server", "7.0.0", "Lists the commands' names.", Own::CommandList),
        own("command|help", 2, ANY, "server", "5.0.0", "Lists what can follow.", Own::Help),
    ]),
    with(own("config", -2, 0, "server", "2.0.0", "Commands about settings.", Own::Container), &[
        own("config|get", -3, ANY | ADMIN, "server", "2.0.0", "Reads the settings that fit patterns.", Own::ConfigGet),
        own("config|set", -4, ANY | ADMIN, "server", "2.0.0", "Changes settings that can be changed while the node runs.", Own::ConfigSet),
        own("config|help", 2, ANY, "server", "5.0.0", "Lists what can follow.", Own::Help),
    ]),
    with(own("slowlog", -2, 0, "server", "2.2.12", "Commands about what took long.", Own::Container), &[
        own("slowlog|get", -2, ANY | ADMIN, "server", "2.2.12", "Tells the latest commands that took long.", Own::SlowLogGet),
        own("slowlog|len", 2, ANY | ADMIN, "server", "2.2.12", "Counts the commands that are remembered as slow.", Own::SlowLogLen),
        own("slowlog|reset", 2, ANY | ADMIN, "server", "2.2.12", "Forgets which commands were slow.", Own::SlowLogReset),
        own("slowlog|help", 2, ANY, "server", "6.2.0", "Lists what can follow.", Own::Help),
    ]),
    own("info", -1, ANY, "server", "1.0.0", "Tells what the node counts and measures.", Own::Info),
    own("time", 1, ANY | FAST, "server", "2.6.0", "Tells the node's time.", Own::Time),
    // Meridian's own.
    own("meridian.keyspaces", 1, ANY, "meridian", "0.1.0", "Lists the keyspaces with their models and engines.", Own::Keyspaces),
    own("meridian.use", 2, ANY | FAST, "meridian", "0.1.0", "Goes over to the keyspace of that name.", Own::Use),
    own("meridian.fence", 1, 0, "meridian", "0.1.0", "Makes all that the session has seen visible to all that comes after.", Own::Fence),
    own("meridian.enter", 1, 0, "meridian", "0.1.0", "Tells that the session comes from a service elsewhere: what it reads next is not older than now.", Own::Enter),
    own("meridian.status", 1, ANY, "meridian", "0.1.0", "Returns the state of the node and its replicas.", Own::Status),
    own("meridian.cost", 1, ANY | FAST, "meridian", "0.1.0", "Returns what the session's last operation cost.", Own::LastCost),
    with(own("meridian.dev", -2, 0, "meridian", "0.1.0", "A container for faults in an emulated wide area.", Own::Container), &[
        own("meridian.dev|cut", 4, ADMIN, "meridian", "0.1.0", "Loses all messages between two regions.", Own::DevCut),
        own("meridian.dev|heal", 2, ADMIN, "meridian", "0.1.0", "Mends all cuts.", Own::DevHeal),
        own("meridian.dev|pause", 3, ADMIN, "meridian", "0.1.0", "Stops the replicas of a region.", Own::DevPause),
        own("meridian.dev|resume", 3, ADMIN, "meridian", "0.1.0", "Lets the replicas of a region go on.", Own::DevResume),
        own("meridian.dev|help", 2, ANY, "meridian", "0.1.0", "Lists what can follow.", Own::Help),
    ]),
    own("meridian.level", -1, 0, "meridian", "0.1.0", "Chooses, or tells, what reads and writes of a causal keyspace ask for; before a command, for that one only.", Own::Level),
    with(own("meridian.context", -2, 0, "meridian", "0.1.0", "A container for what a session must remember.", Own::Container), &[
        own("meridian.context|get", 2, 0, "meridian", "0.1.0", "Returns it as a token, for another session to go on after this one.", Own::ContextGet),
        own("meridian.context|merge", 3, 0, "meridian", "0.1.0", "Goes on after the session of a token, too.", Own::ContextMerge),
        own("meridian.context|reset", 2, 0, "meridian", "0.1.0", "Begins anew, after nobody's session.", Own::ContextReset),
        own("meridian.context|set", 3, 0, "meridian", "0.1.0", "Begins anew, after the session of a token.", Own::ContextSet),
        own("meridian.context|help", 2, ANY, "meridian", "0.1.0", "Lists what can follow.", Own::Help),
    ]),
    own("meridian.begin", -1, 0, "meridian", "0.1.0", "Starts a transaction that is open until it is committed or given up.", Own::Begin),
    own("meridian.commit", 1, 0, "meridian", "0.1.0", "Commits the open transaction.", Own::Commit),
    own("meridian.abort", 1, 0, "meridian", "0.1.0", "Gives the open transaction up.", Own::Abort),
    own("meridian.snapshot", -3, 0, "meridian", "0.1.0", "Runs a command that reads as of a time in the past.", Own::Snapshot),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_found_by_its_name_in_any_case() {
        for entry in all() {
            assert!(std::ptr::eq(find(entry.name.as_bytes()).unwrap(), entry), "{}", entry.name);
            assert!(std::ptr::eq(find(entry.name.to_uppercase().as_bytes()).unwrap(), entry));
            assert!(entry.summary.ends_with('.'), "{}", entry.name);
            assert_ne!(entry.arity, 0);
            let prefix = format!("{}|", entry.name);
            assert!(entry.subcommands.iter().all(|sub| sub.name.starts_with(&prefix)));
        }
        for name in [&b""[..], b"ge", b"gett", b"rename", b"\0", &[b'x'; 5000]] {
            assert!(find(name).is_none());
        }
    }

    #[test]
    fn keys_are_where_the_table_says() {
        let of = |name: &str, words| find(name.as_bytes()).unwrap().keys.indexes(words).collect::<Vec<_>>();
        assert_eq!(of("get", 2), [1]);
        assert_eq!(of("mset", 5), [1, 3]);
        assert_eq!(of("del", 4), [1, 2, 3]);
        assert_eq!(of("ping", 2), [0; 0]);
    }
}
