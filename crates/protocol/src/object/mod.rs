//! What values are and what commands mean: the sequential specification.
//!
//! Every engine executes through [`apply`] and every checker judges with it. It is a function: whether a value
//! has expired is judged by a time carried in the request, never by the clock of whoever executes it.

mod apply;
mod collections;
mod encoding;
mod extended;
mod hashes;
mod lists;
mod moves;
#[cfg(test)]
mod moves_tests;
mod strings;
#[cfg(test)]
mod tests;

pub use apply::{apply, execute};
pub use collections::{Hash, ITEM_OVERHEAD, List};
pub use extended::Extended;
pub use moves::{Claim, Leaving, Moves, Refused, move_item};
pub use strings::integer;

use bytes::Bytes;
use minicbor::{Decode, Encode};
use std::sync::Arc;

/// What a key holds: `None` is an absent (or deleted) key.
pub type State = Option<Object>;

/// A value and when it ends.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct Object {
    /// The value.
    #[n(0)]
    pub data: Data,
    /// Milliseconds since the Unix epoch from which on the key counts as absent.
    #[n(1)]
    pub expires_at: Option<u64>,
    /// What the key remembers of items that were moved from it and to it. It outlives the value.
    #[n(2)]
    #[cbor(with = "encoding::shared", has_nil)]
    pub moves: Option<Arc<Moves>>,
}

/// A value of one of Redis's types. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub enum Data {
    /// A string of bytes.
    #[n(0)]
    Str(
        #[n(0)]
        #[cbor(with = "crate::wire::blob")]
        Bytes,
    ),
    /// A list; never empty.
    #[n(1)]
    List(#[n(0)] List),
    /// A hash; never empty.
    #[n(2)]
    Hash(#[n(0)] Hash),
    /// Nothing: the key counts as absent, and remembers moves.
    #[n(3)]
    Absent,
}

/// Marks one version of a key's value: equal versions mean that nothing was written between. `WATCH`
/// compares them. A key's versions only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct Version(#[n(0)] pub u64, #[n(1)] pub u64, #[n(2)] pub u32);

/// What is done to one key in one step.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub enum Action {
    /// One command.
    #[n(0)]
    Command(#[n(0)] Command),
    /// `EXEC`: all commands in order, or nothing if the key is no longer at the watched version.
    #[n(1)]
    Transaction {
        /// The version seen by `WATCH`, if there was one.
        #[n(0)]
        watched: Option<Version>,
        /// The queued commands.
        #[n(1)]
        commands: Vec<Command>,
    },
    /// `WATCH`: answers the key's version.
    #[n(2)]
    Watch,
}

/// How an action may be executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Changes nothing.
    Read,
    /// Replaces the value whatever it was, and answers the same whatever it was.
    Write,
    /// Depends on the value that it changes.
    ReadModifyWrite,
}

/// One command on one key. Arguments are checked and typed; times are absolute, in ms since the Unix epoch.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub enum Command {
    /// `GET`.
    #[n(0)]
    Get,
    /// `STRLEN`.
    #[n(1)]
    StrLen,
    /// `GETRANGE start end`.
    #[n(2)]
    GetRange(#[n(0)] i64, #[n(1)] i64),
    /// `EXISTS`.
    #[n(3)]
    Exists,
    /// `TYPE`.
    #[n(4)]
    Type,
    /// `TTL`, `PTTL`, `EXPIRETIME`, `PEXPIRETIME`.
    #[n(5)]
    Ttl(#[n(0)] TtlForm),
    /// `LLEN`.
    #[n(6)]
    ListLen,
    /// `LRANGE start stop`.
    #[n(7)]
    ListRange(#[n(0)] i64, #[n(1)] i64),
    /// `LINDEX index`.
    #[n(8)]
    ListIndex(#[n(0)] i64),
    /// `HGET field`.
    #[n(9)]
    HashGet(
        #[n(0)]
        #[cbor(with = "crate::wire::blob")]
        Bytes,
    ),
    /// `HMGET field…`.
    #[n(10)]
    HashGetMany(
        #[n(0)]
        #[cbor(with = "crate::wire::blobs")]
        Vec<Bytes>,
    ),
    /// `HEXISTS field`.
    #[n(11)]
    HashExists(
        #[n(0)]
        #[cbor(with = "crate::wire::blob")]
        Bytes,
    ),
    /// `HGETALL`.
    #[n(12)]
    HashGetAll,
    /// `HKEYS`.
    #[n(13)]
    HashKeys,
    /// `HVALS`.
    #[n(14)]
    HashValues,
    /// `HLEN`.
    #[n(15)]
    HashLen,
    /// `SET` in all its forms, `SETNX`, `GETSET`. Without condition, `GET` and `KEEPTTL` it is a blind write.
    #[n(16)]
    Set(#[n(0)] Set),
    /// `GETDEL`.
    #[n(17)]
    GetDel,
    /// `GETEX` with an option: `None` is `PERSIST`, otherwise the new time of expiry.
    #[n(18)]
    GetEx(#[n(0)] Option<u64>),
    /// `DEL`, `UNLINK`: answers 1 if the key was there.
    #[n(19)]
    Delete,
    /// `DELIFEQ value`.
    #[n(20)]
    DeleteIfEqual(
        #[n(0)]
        #[cbor(with = "crate::wire::blob")]
        Bytes,
    ),
    /// `APPEND value`.
    #[n(21)]
    Append(
        #[n(0)]
        #[cbor(with = "crate::wire::blob")]
        Bytes,
    ),
    /// `SETRANGE offset value`.
    #[n(22)]
    SetRange(
        #[n(0)] u64,
        #[n(1)]
        #[cbor(with = "crate::wire::blob")]
        Bytes,
    ),
    /// `INCR`, `DECR`, `INCRBY`, `DECRBY`.
    #[n(23)]
    IncrBy(#[n(0)] i64),
    /// `INCRBYFLOAT`.
    #[n(24)]
    IncrByFloat(#[n(0)] Extended),
    /// `EXPIRE` and its kin.
    #[n(25)]
    Expire(#[n(0)] u64, #[n(1)] ExpireIf),
    /// `PERSIST`.
    #[n(26)]
    Persist,
    /// `LPUSH`, `RPUSH`.
    #[n(27)]
    ListPush(
        #[n(0)] End,
        #[n(1)]
        #[cbor(with = "crate::wire::blobs")]
        Vec<Bytes>,
    ),
    /// `LPOP`, `RPOP`, with a count if one was given.
    #[n(28)]
    ListPop(#[n(0)] End, #[n(1)] Option<u64>),
    /// `LTRIM start stop`.
    #[n(29)]
    ListTrim(#[n(0)] i64, #[n(1)] i64),
    /// `LREM count value`.
    #[n(30)]
    ListRemove(
        #[n(0)] i64,
        #[n(1)]
        #[cbor(with = "crate::wire::blob")]
        Bytes,
    ),
    /// `HSET field value …`: names and values in turn.
    #[n(31)]
    HashSet(
        #[n(0)]
        #[cbor(with = "crate::wire::blobs")]
        Vec<Bytes>,
    ),
    /// `HDEL field…`.
    #[n(32)]
    HashDelete(
        #[n(0)]
        #[cbor(with = "crate::wire::blobs")]
        Vec<Bytes>,
    ),
    /// `HINCRBY field by`.
    #[n(33)]
    HashIncrBy(
        #[n(0)]
        #[cbor(with = "crate::wire::blob")]
        Bytes,
        #[n(1)] i64,
    ),
    /// `LMOVE` of a list with itself, from one end to the other.
    #[n(34)]
    ListRotate(#[n(0)] End, #[n(1)] End),
    /// `LMOVE` to another list, from one end to the other. Where a step is of one key it is the first of three: it takes
    /// the item, and answers the [`Claim`]s to bring to the destination.
    #[n(35)]
    ListMove(
        #[n(0)] End,
        #[n(1)] End,
        #[n(2)]
        #[cbor(with = "crate::wire::blob")]
        Bytes,
    ),
    /// The second, at the destination: takes in what has come from that source.
    #[n(36)]
    ListReceive(
        #[n(0)]
        #[cbor(with = "crate::wire::blob")]
        Bytes,
        #[n(1)] Vec<Claim>,
    ),
    /// The third, at the source: drops the claims to that destination up to a number, and takes those back that were
    /// refused.
    #[n(37)]
    ListSettle(
        #[n(0)]
        #[cbor(with = "crate::wire::blob")]
        Bytes,
        #[n(1)] Version,
        #[n(2)] Vec<Version>,
    ),
}

/// `SET` with its options.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct Set {
    /// The new value.
    #[n(0)]
    #[cbor(with = "crate::wire::blob")]
    pub value: Bytes,
    /// When it is written.
    #[n(1)]
    pub condition: Condition,
    /// What becomes of the time of expiry.
    #[n(2)]
    pub expiry: Expiry,
    /// What is answered.
    #[n(3)]
    pub answer: SetAnswer,
}

/// The condition of a `SET`.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub enum Condition {
    /// None.
    #[n(0)]
    Always,
    /// `NX`.
    #[n(1)]
    IfAbsent,
    /// `XX`.
    #[n(2)]
    IfPresent,
    /// `IFEQ value`.
    #[n(3)]
    IfEqual(
        #[n(0)]
        #[cbor(with = "crate::wire::blob")]
        Bytes,
    ),
}

/// What a `SET` does to the time of expiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Expiry {
    /// The key no longer expires.
    #[n(0)]
    Never,
    /// The key expires at this time, in ms since the Unix epoch.
    #[n(1)]
    At(#[n(0)] u64),
    /// `KEEPTTL`.
    #[n(2)]
    Keep,
}

/// What a `SET` answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub enum SetAnswer {
    /// `OK`, or nil when the condition failed.
    #[n(0)]
    Ok,
    /// `GET`: the old value or nil; an error if it is no string.
    #[n(1)]
    Old,
    /// `SETNX`: 1 if set, 0 if not.
    #[n(2)]
    Flag,
}

/// In which form a time of expiry is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub enum TtlForm {
    /// `TTL`: seconds left, rounded as Redis rounds.
    #[n(0)]
    Seconds,
    /// `PTTL`: milliseconds left.
    #[n(1)]
    Millis,
    /// `EXPIRETIME`: the time in seconds.
    #[n(2)]
    AtSeconds,
    /// `PEXPIRETIME`: the time in milliseconds.
    #[n(3)]
    AtMillis,
}

/// The condition of an `EXPIRE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub enum ExpireIf {
    /// None.
    #[n(0)]
    Always,
    /// `NX`: only if the key does not expire yet.
    #[n(1)]
    None,
    /// `XX`: only if it does.
    #[n(2)]
    Some,
    /// `GT`: only to a later time.
    #[n(3)]
    Later,
    /// `LT`: only to an earlier time.
    #[n(4)]
    Earlier,
    /// `XX LT`: only to an earlier time than the one that there must be.
    #[n(5)]
    SomeEarlier,
}

/// An end of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub enum End {
    /// The left end, index 0.
    #[n(0)]
    Head,
    /// The right end.
    #[n(1)]
    Tail,
}

/// What one command answers, apart from the form that RESP gives it.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub enum Reply {
    /// `OK`.
    #[n(0)]
    Ok,
    /// Nothing.
    #[n(1)]
    Nil,
    /// An integer.
    #[n(2)]
    Int(#[n(0)] i64),
    /// A string of bytes.
    #[n(3)]
    Bulk(
        #[n(0)]
        #[cbor(with = "crate::wire::blob")]
        Bytes,
    ),
    /// A short name, such as a type's.
    #[n(4)]
    Simple(#[n(0)] TypeName),
    /// A list of strings.
    #[n(5)]
    List(
        #[n(0)]
        #[cbor(with = "crate::wire::blobs")]
        Vec<Bytes>,
    ),
    /// A list of strings or nothing, for `HMGET`.
    #[n(6)]
    Options(
        #[n(0)]
        #[cbor(with = "encoding::options")]
        Vec<Option<Bytes>>,
    ),
    /// Names and values in turn: a map in RESP3.
    #[n(7)]
    Pairs(
        #[n(0)]
        #[cbor(with = "crate::wire::blobs")]
        Vec<Bytes>,
    ),
    /// Redis's own error.
    #[n(8)]
    Error(#[n(0)] Fault),
    /// What is to be brought to the destination, to [`Command::ListMove`].
    #[n(9)]
    Claims(#[n(0)] Vec<Claim>),
    /// What the destination has refused, to [`Command::ListReceive`].
    #[n(10)]
    Refused(#[n(0)] Vec<Refused>),
}

/// The name of a type, as `TYPE` answers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub enum TypeName {
    /// The key is absent.
    #[n(0)]
    None,
    /// A string.
    #[n(1)]
    String,
    /// A list.
    #[n(2)]
    List,
    /// A hash.
    #[n(3)]
    Hash,
}

/// Why a command was refused, in Redis's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Fault {
    /// The value is of another type.
    #[n(0)]
    WrongType,
    /// Not an integer, or out of its range.
    #[n(1)]
    NotAnInteger,
    /// The sum is out of range.
    #[n(2)]
    Overflow,
    /// Not a float.
    #[n(3)]
    NotAFloat,
    /// The sum is not a finite number.
    #[n(4)]
    NotFinite,
    /// The hash field is not an integer.
    #[n(5)]
    HashNotAnInteger,
    /// The string would be longer than the limit.
    #[n(6)]
    TooLong,
}

/// What an action answers.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub enum Answer {
    /// To a command.
    #[n(0)]
    One(#[n(0)] Reply),
    /// To a transaction: one reply a command, or `None` because the watched key changed.
    #[n(1)]
    Exec(#[n(0)] Option<Vec<Reply>>),
    /// To `WATCH`.
    #[n(2)]
    Version(#[n(0)] Version),
}

/// The most bytes that a command may let a value grow to, lists and hashes with [`ITEM_OVERHEAD`] an item. Fixed, as all
/// replicas must decide alike, and far below the largest frame between nodes.
pub const OBJECT_LIMIT: usize = 32 * 1024 * 1024;

impl TypeName {
    /// The name as Redis writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::String => "string",
            Self::List => "list",
            Self::Hash => "hash",
        }
    }
}
