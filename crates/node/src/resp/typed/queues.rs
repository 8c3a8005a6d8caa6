//! Commands that take items off lists, at once or when there are some.

#![expect(clippy::unnecessary_wraps, reason = "all have the type that the table holds")]

use super::{Refusal, SYNTAX};
use crate::resp::parse::Args;
use bytes::Bytes;
use meridian_protocol::clock::Micros;
use meridian_protocol::object::{Command, End};
use std::collections::BTreeSet;

/// Makes what is to be taken of a command's words.
pub type TakeTyper = fn(Args<'_>) -> Result<Take, Refusal>;

/// What is to be taken, and how long that may wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Take {
    /// The lists, in the order in which they are asked.
    pub keys: Vec<Bytes>,
    /// What becomes of the item.
    pub what: What,
    /// How long to wait for an item.
    pub patience: Patience,
}

/// What becomes of an item that is taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// It is answered with its key.
    Pop(End),
    /// It goes from one end to the other end of this list, and is answered.
    Move(End, End, Bytes),
}

/// How long to wait for an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// Not at all, as of a command that never does.
    None,
    /// So long.
    For(Micros),
    /// For ever.
    Endless,
}

impl Take {
    /// The one step that does it on the first of the keys.
    pub fn command(&self) -> Command {
        match &self.what {
            What::Pop(end) => Command::ListPop(*end, None),
            What::Move(from, to, _) if !self.is_of_two() => Command::ListRotate(*from, *to),
            What::Move(from, to, destination) => Command::ListMove(*from, *to, destination.clone()),
        }
    }

    /// Whether an item goes from one list to another.
    pub fn is_of_two(&self) -> bool {
        matches!(&self.what, What::Move(_, _, destination) if *destination != self.keys[0])
    }
}

pub(in crate::resp) fn lmove(args: Args<'_>) -> Result<Take, Refusal> {
    Ok(moves(args, end(&args[3])?, end(&args[4])?, Patience::None))
}

pub(in crate::resp) fn rpoplpush(args: Args<'_>) -> Result<Take, Refusal> {
    Ok(moves(args, End::Tail, End::Head, Patience::None))
}

pub(in crate::resp) fn blmove(args: Args<'_>) -> Result<Take, Refusal> {
    Ok(moves(args, end(&args[3])?, end(&args[4])?, patience(&args[5])?))
}

pub(in crate::resp) fn brpoplpush(args: Args<'_>) -> Result<Take, Refusal> {
    Ok(moves(args, End::Tail, End::Head, patience(&args[3])?))
}

pub(in crate::resp) fn blpop(args: Args<'_>) -> Result<Take, Refusal> {
    pops(args, End::Head)
}

pub(in crate::resp) fn brpop(args: Args<'_>) -> Result<Take, Refusal> {
    pops(args, End::Tail)
}

fn moves(args: Args<'_>, from: End, to: End, patience: Patience) -> Take {
    Take { keys: vec![args.bytes(1)], what: What::Move(from, to, args.bytes(2)), patience }
}

fn pops(args: Args<'_>, end: End) -> Result<Take, Refusal> {
    let last = args.len() - 1;
    // A list that is named twice has nothing new the second time.
    let mut named = BTreeSet::new();
    let keys = (1..last).map(|index| args.bytes(index)).filter(|key| named.insert(key.clone())).collect();
    Ok(Take { keys, what: What::Pop(end), patience: patience(&args[last])? })
}

fn end(word: &[u8]) -> Result<End, Refusal> {
    match word.to_ascii_lowercase().as_slice() {
        b"left" => Ok(End::Head),
        b"right" => Ok(End::Tail),
        _ => Err(SYNTAX),
    }
}

/// Seconds, with a fraction; 0 is for ever.
fn patience(word: &[u8]) -> Result<Patience, Refusal> {
    // The longest that Redis counts, in ms.
    const LONGEST_MS: f64 = i64::MAX as f64;
    let seconds = std::str::from_utf8(word).ok().and_then(|text| text.parse::<f64>().ok());
    let Some(seconds) = seconds.filter(|seconds| seconds.is_finite()) else {
        return Err("ERR timeout is not a float or out of range".into());
    };
    let millis = (seconds * 1e3).ceil();
    if millis >= LONGEST_MS {
        return Err("ERR timeout is out of range".into());
    }
    if millis < 0.0 {
        return Err("ERR timeout is negative".into());
    }
    Ok(if millis == 0.0 { Patience::Endless } else { Patience::For((millis as u64).saturating_mul(1_000)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_read_as_redis_reads_them() {
        for (word, expected) in [
            ("0", Ok(Patience::Endless)),
            ("0.0", Ok(Patience::Endless)),
            ("-0.0001", Ok(Patience::Endless)),
            ("0.0001", Ok(Patience::For(1_000))),
            ("1.5", Ok(Patience::For(1_500_000))),
            ("1e3", Ok(Patience::For(1_000_000_000))),
            ("-1", Err("ERR timeout is negative")),
            ("x", Err("ERR timeout is not a float or out of range")),
            ("", Err("ERR timeout is not a float or out of range")),
            ("nan", Err("ERR timeout is not a float or out of range")),
            ("1e300", Err("ERR timeout is out of range")),
        ] {
            assert_eq!(patience(word.as_bytes()), expected.map_err(Into::into), "{word}");
        }
    }
}
