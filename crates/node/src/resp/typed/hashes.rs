//! Commands on hashes.

#![expect(clippy::unnecessary_wraps, reason = "all have the type that the table holds")]

use super::{Refusal, int, wrong_arity};
use crate::resp::parse::Args;
use meridian_protocol::object::Command;

/// What the functions here answer.
type Typed = Result<Command, Refusal>;

pub(in crate::resp) fn get(args: Args<'_>, _: u64) -> Typed {
    Ok(Command::HashGet(args.bytes(2)))
}

pub(in crate::resp) fn get_many(args: Args<'_>, _: u64) -> Typed {
    Ok(Command::HashGetMany(args.rest(2)))
}

pub(in crate::resp) fn exists(args: Args<'_>, _: u64) -> Typed {
    Ok(Command::HashExists(args.bytes(2)))
}

pub(in crate::resp) fn get_all(_: Args<'_>, _: u64) -> Typed {
    Ok(Command::HashGetAll)
}

pub(in crate::resp) fn keys(_: Args<'_>, _: u64) -> Typed {
    Ok(Command::HashKeys)
}

pub(in crate::resp) fn values(_: Args<'_>, _: u64) -> Typed {
    Ok(Command::HashValues)
}

pub(in crate::resp) fn len(_: Args<'_>, _: u64) -> Typed {
    Ok(Command::HashLen)
}

pub(in crate::resp) fn set(args: Args<'_>, _: u64) -> Typed {
    if args.len() % 2 == 1 {
        return Err(wrong_arity("hset"));
    }
    Ok(Command::HashSet(args.rest(2)))
}

pub(in crate::resp) fn delete(args: Args<'_>, _: u64) -> Typed {
    Ok(Command::HashDelete(args.rest(2)))
}

pub(in crate::resp) fn incr_by(args: Args<'_>, _: u64) -> Typed {
    Ok(Command::HashIncrBy(args.bytes(2), int(&args[3])?))
}
