//! Commands on strings.

#![expect(clippy::unnecessary_wraps, reason = "all have the type that the table holds")]

use super::{Refusal, SYNTAX, Unit, int};
use crate::resp::parse::Args;
use meridian_protocol::object::{Command, Condition, Expiry, Extended, Set, SetAnswer};

/// What the functions here answer.
type Typed = Result<Command, Refusal>;

pub(in crate::resp) fn get(_: Args<'_>, _: u64) -> Typed {
    Ok(Command::Get)
}

pub(in crate::resp) fn strlen(_: Args<'_>, _: u64) -> Typed {
    Ok(Command::StrLen)
}

pub(in crate::resp) fn get_range(args: Args<'_>, _: u64) -> Typed {
    Ok(Command::GetRange(int(&args[2])?, int(&args[3])?))
}

/// `SET key value [NX | XX | IFEQ old] [GET] [EX s | PX ms | EXAT s | PXAT ms | KEEPTTL]`.
pub(in crate::resp) fn set(args: Args<'_>, now_ms: u64) -> Typed {
    let mut set = Set {
        value: args.bytes(2),
        condition: Condition::Always,
        expiry: Expiry::Never,
        answer: SetAnswer::Ok,
    };
    // The time is read last, as Redis complains of the syntax of all options first. An option may be repeated.
    let mut expiry = None;
    let mut index = 3;
    while let Some(option) = args.get(index) {
        let is = |name: &str| option.eq_ignore_ascii_case(name.as_bytes());
        let unconditional = set.condition == Condition::Always;
        let value = args.get(index + 1);
        if is("NX") && (unconditional || set.condition == Condition::IfAbsent) {
            set.condition = Condition::IfAbsent;
        } else if is("XX") && (unconditional || set.condition == Condition::IfPresent) {
            set.condition = Condition::IfPresent;
        } else if is("IFEQ") && unconditional && value.is_some() {
            set.condition = Condition::IfEqual(args.bytes(index + 1));
            index += 1;
        } else if is("GET") {
            set.answer = SetAnswer::Old;
        } else if is("KEEPTTL") && expiry.is_none() {
            set.expiry = Expiry::Keep;
        } else if let (Some(unit), Some(value)) = (Unit::of_option(option), value)
            && set.expiry == Expiry::Never
            && expiry.is_none_or(|(earlier, _)| earlier == unit)
        {
            expiry = Some((unit, value));
            index += 1;
        } else {
            return Err(SYNTAX);
        }
        index += 1;
    }
    if let Some((unit, value)) = expiry {
        set.expiry = Expiry::At(unit.positive(value, now_ms, "set")?);
    }
    Ok(Command::Set(set))
}

pub(in crate::resp) fn setnx(args: Args<'_>, _: u64) -> Typed {
    Ok(plain(args, 2, Condition::IfAbsent, Expiry::Never, SetAnswer::Flag))
}

pub(in crate::resp) fn getset(args: Args<'_>, _: u64) -> Typed {
    Ok(plain(args, 2, Condition::Always, Expiry::Never, SetAnswer::Old))
}

pub(in crate::resp) fn setex(args: Args<'_>, now_ms: u64) -> Typed {
    let at = Unit::Seconds.positive(&args[2], now_ms, "setex")?;
    Ok(plain(args, 3, Condition::Always, Expiry::At(at), SetAnswer::Ok))
}

pub(in crate::resp) fn psetex(args: Args<'_>, now_ms: u64) -> Typed {
    let at = Unit::Millis.positive(&args[2], now_ms, "psetex")?;
    Ok(plain(args, 3, Condition::Always, Expiry::At(at), SetAnswer::Ok))
}

pub(in crate::resp) fn getdel(_: Args<'_>, _: u64) -> Typed {
    Ok(Command::GetDel)
}

/// `GETEX key [EX s | PX ms | EXAT s | PXAT ms | PERSIST]`.
pub(in crate::resp) fn getex(args: Args<'_>, now_ms: u64) -> Typed {
    let (mut persist, mut expiry) = (false, None);
    let mut index = 2;
    while let Some(option) = args.get(index) {
        if option.eq_ignore_ascii_case(b"PERSIST") && expiry.is_none() {
            persist = true;
        } else if let (Some(unit), Some(value)) = (Unit::of_option(option), args.get(index + 1))
            && !persist
            && expiry.is_none_or(|(earlier, _)| earlier == unit)
        {
            expiry = Some((unit, value));
            index += 1;
        } else {
            return Err(SYNTAX);
        }
        index += 1;
    }
    Ok(match expiry {
        Some((unit, value)) => Command::GetEx(Some(unit.positive(value, now_ms, "getex")?)),
        None if persist => Command::GetEx(None),
        None => Command::Get,
    })
}

pub(in crate::resp) fn delete_if_equal(args: Args<'_>, _: u64) -> Typed {
    Ok(Command::DeleteIfEqual(args.bytes(2)))
}

pub(in crate::resp) fn append(args: Args<'_>, _: u64) -> Typed {
    Ok(Command::Append(args.bytes(2)))
}

pub(in crate::resp) fn set_range(args: Args<'_>, _: u64) -> Typed {
    let offset = u64::try_from(int(&args[2])?).map_err(|_| "ERR offset is out of range")?;
    Ok(Command::SetRange(offset, args.bytes(3)))
}

pub(in crate::resp) fn incr(_: Args<'_>, _: u64) -> Typed {
    Ok(Command::IncrBy(1))
}

pub(in crate::resp) fn decr(_: Args<'_>, _: u64) -> Typed {
    Ok(Command::IncrBy(-1))
}

pub(in crate::resp) fn incr_by(args: Args<'_>, _: u64) -> Typed {
    Ok(Command::IncrBy(int(&args[2])?))
}

pub(in crate::resp) fn decr_by(args: Args<'_>, _: u64) -> Typed {
    let by = int(&args[2])?.checked_neg().ok_or("ERR decrement would overflow")?;
    Ok(Command::IncrBy(by))
}

pub(in crate::resp) fn incr_by_float(args: Args<'_>, _: u64) -> Typed {
    Extended::parse(&args[2]).map(Command::IncrByFloat).ok_or("ERR value is not a valid float".into())
}

fn plain(args: Args<'_>, value: usize, condition: Condition, expiry: Expiry, answer: SetAnswer) -> Command {
    Command::Set(Set { value: args.bytes(value), condition, expiry, answer })
}
