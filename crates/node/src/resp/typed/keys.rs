//! Commands on keys of any type.

#![expect(clippy::unnecessary_wraps, reason = "all have the type that the table holds")]

use super::{Refusal, Unit, int, invalid_expire};
use crate::resp::encode::printable;
use crate::resp::parse::Args;
use meridian_protocol::object::{Command, ExpireIf, TtlForm};

/// What the functions here answer.
type Typed = Result<Command, Refusal>;

pub(in crate::resp) fn type_of(_: Args<'_>, _: u64) -> Typed {
    Ok(Command::Type)
}

pub(in crate::resp) fn persist(_: Args<'_>, _: u64) -> Typed {
    Ok(Command::Persist)
}

pub(in crate::resp) fn ttl(_: Args<'_>, _: u64) -> Typed {
    Ok(Command::Ttl(TtlForm::Seconds))
}

pub(in crate::resp) fn pttl(_: Args<'_>, _: u64) -> Typed {
    Ok(Command::Ttl(TtlForm::Millis))
}

pub(in crate::resp) fn expiretime(_: Args<'_>, _: u64) -> Typed {
    Ok(Command::Ttl(TtlForm::AtSeconds))
}

pub(in crate::resp) fn pexpiretime(_: Args<'_>, _: u64) -> Typed {
    Ok(Command::Ttl(TtlForm::AtMillis))
}

pub(in crate::resp) fn expire(args: Args<'_>, now_ms: u64) -> Typed {
    expire_with(args, now_ms, Unit::Seconds, "expire")
}

pub(in crate::resp) fn pexpire(args: Args<'_>, now_ms: u64) -> Typed {
    expire_with(args, now_ms, Unit::Millis, "pexpire")
}

pub(in crate::resp) fn expireat(args: Args<'_>, now_ms: u64) -> Typed {
    expire_with(args, now_ms, Unit::AtSeconds, "expireat")
}

pub(in crate::resp) fn pexpireat(args: Args<'_>, now_ms: u64) -> Typed {
    expire_with(args, now_ms, Unit::AtMillis, "pexpireat")
}

/// `key time [NX | XX | GT | LT]…`.
fn expire_with(args: Args<'_>, now_ms: u64, unit: Unit, name: &str) -> Typed {
    let (mut none, mut some, mut later, mut earlier) = (false, false, false, false);
    for option in args.iter().skip(3) {
        match option.to_ascii_lowercase().as_slice() {
            b"nx" => none = true,
            b"xx" => some = true,
            b"gt" => later = true,
            b"lt" => earlier = true,
            _ => {
                return Err(format!("ERR Unsupported option {}", printable(option, 128)).into());
            }
        }
    }
    if none && (some || later || earlier) {
        return Err("ERR NX and XX, GT or LT options at the same time are not compatible".into());
    }
    if later && earlier {
        return Err("ERR GT and LT options at the same time are not compatible".into());
    }
    let condition = match (none, some, later, earlier) {
        (true, ..) => ExpireIf::None,
        // A key that does not expire counts as expiring never, so that nothing is later.
        (_, _, true, _) => ExpireIf::Later,
        (_, true, _, true) => ExpireIf::SomeEarlier,
        (_, _, _, true) => ExpireIf::Earlier,
        (_, true, ..) => ExpireIf::Some,
        _ => ExpireIf::Always,
    };
    let at = unit.absolute(int(&args[2])?, now_ms).ok_or_else(|| invalid_expire(name))?;
    // A time before the epoch has passed as much as the epoch itself.
    Ok(Command::Expire(at.max(0) as u64, condition))
}
