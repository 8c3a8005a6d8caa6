//! Commands on lists.

#![expect(clippy::unnecessary_wraps, reason = "all have the type that the table holds")]

use super::{Refusal, int, wrong_arity};
use crate::resp::parse::Args;
use meridian_protocol::object::{Command, End, integer};

/// What the functions here answer.
type Typed = Result<Command, Refusal>;

pub(in crate::resp) fn len(_: Args<'_>, _: u64) -> Typed {
    Ok(Command::ListLen)
}

pub(in crate::resp) fn range(args: Args<'_>, _: u64) -> Typed {
    Ok(Command::ListRange(int(&args[2])?, int(&args[3])?))
}

pub(in crate::resp) fn index(args: Args<'_>, _: u64) -> Typed {
    Ok(Command::ListIndex(int(&args[2])?))
}

pub(in crate::resp) fn lpush(args: Args<'_>, _: u64) -> Typed {
    Ok(Command::ListPush(End::Head, args.rest(2)))
}

pub(in crate::resp) fn rpush(args: Args<'_>, _: u64) -> Typed {
    Ok(Command::ListPush(End::Tail, args.rest(2)))
}

pub(in crate::resp) fn lpop(args: Args<'_>, _: u64) -> Typed {
    Ok(Command::ListPop(End::Head, count(args, "lpop")?))
}

pub(in crate::resp) fn rpop(args: Args<'_>, _: u64) -> Typed {
    Ok(Command::ListPop(End::Tail, count(args, "rpop")?))
}

pub(in crate::resp) fn trim(args: Args<'_>, _: u64) -> Typed {
    Ok(Command::ListTrim(int(&args[2])?, int(&args[3])?))
}

pub(in crate::resp) fn remove(args: Args<'_>, _: u64) -> Typed {
    Ok(Command::ListRemove(int(&args[2])?, args.bytes(3)))
}

fn count(args: Args<'_>, name: &str) -> Result<Option<u64>, Refusal> {
    if args.len() > 3 {
        return Err(wrong_arity(name));
    }
    let Some(word) = args.get(2) else { return Ok(None) };
    match integer(word).map(u64::try_from) {
        Some(Ok(count)) => Ok(Some(count)),
        _ => Err("ERR value is out of range, must be positive".into()),
    }
}
