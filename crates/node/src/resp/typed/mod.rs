//! From words to commands: one function a command, a file a family of values.
//!
//! The table has checked how many words there are. Arguments are checked before the key is looked at.

pub mod hashes;
pub mod keys;
pub mod lists;
pub mod queues;
pub mod strings;

use super::parse::Args;
use meridian_protocol::object::{Command, integer};
use std::borrow::Cow;

/// Makes a command of its words; the second argument is the time, in ms since the Unix epoch.
pub type Typer = fn(Args<'_>, u64) -> Result<Command, Refusal>;

/// Why words make no command: the error's text, its word included.
pub type Refusal = Cow<'static, str>;

/// The words are in no order that the command knows.
pub const SYNTAX: Refusal = Cow::Borrowed("ERR syntax error");
/// A word should be an integer.
pub const NOT_AN_INTEGER: Refusal = Cow::Borrowed("ERR value is not an integer or out of range");

/// Reads an integer.
///
/// # Errors
/// That it is none.
pub fn int(word: &[u8]) -> Result<i64, Refusal> {
    integer(word).ok_or(NOT_AN_INTEGER)
}

/// The command has another number of words.
pub fn wrong_arity(name: &str) -> Refusal {
    format!("ERR wrong number of arguments for '{name}' command").into()
}

/// How a time of expiry is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    /// Seconds from now.
    Seconds,
    /// Milliseconds from now.
    Millis,
    /// Seconds since the Unix epoch.
    AtSeconds,
    /// Milliseconds since the Unix epoch.
    AtMillis,
}

impl Unit {
    /// The unit that an option of `SET` and `GETEX` names.
    fn of_option(word: &[u8]) -> Option<Self> {
        let options: [(&[u8], Self); 4] = [
            (b"ex", Self::Seconds),
            (b"px", Self::Millis),
            (b"exat", Self::AtSeconds),
            (b"pxat", Self::AtMillis),
        ];
        options.into_iter().find(|(name, _)| word.eq_ignore_ascii_case(name)).map(|(_, unit)| unit)
    }

    /// The time in ms since the Unix epoch; `None` if it is too far away to be written down. It may lie before
    /// the epoch.
    fn absolute(self, number: i64, now_ms: u64) -> Option<i64> {
        let millis = match self {
            Self::Seconds | Self::AtSeconds => number.checked_mul(1000)?,
            Self::Millis | Self::AtMillis => number,
        };
        match self {
            Self::Seconds | Self::Millis => millis.checked_add(i64::try_from(now_ms).ok()?),
            Self::AtSeconds | Self::AtMillis => Some(millis),
        }
    }

    /// A time of expiry that must be positive, as that of `SET`.
    fn positive(self, word: &[u8], now_ms: u64, command: &str) -> Result<u64, Refusal> {
        let number = int(word)?;
        let at = if number > 0 { self.absolute(number, now_ms) } else { None };
        at.map(i64::unsigned_abs).ok_or_else(|| invalid_expire(command))
    }
}

fn invalid_expire(command: &str) -> Refusal {
    format!("ERR invalid expire time in '{command}' command").into()
}

#[cfg(test)]
mod tests {
    use super::super::parse::Parser;
    use super::super::table::{self, Kind};
    use super::*;
    use bytes::Bytes;
    use meridian_protocol::object::{Condition, End, ExpireIf, Expiry, Set, SetAnswer, TtlForm};

    const NOW: u64 = 1_000_000;

    fn typed(line: &str) -> Result<Command, String> {
        let input = format!("{line}\n");
        let mut parser = Parser::default();
        assert_eq!(parser.parse(input.as_bytes(), 1000), Ok(true));
        let args = parser.args(input.as_bytes());
        match table::find(&args[0]).unwrap().kind {
            Kind::Key(typer) => typer(args, NOW).map_err(Cow::into_owned),
            _ => panic!("{line} is not on one key"),
        }
    }

    fn set(condition: Condition, expiry: Expiry, answer: SetAnswer) -> Command {
        Command::Set(Set { value: Bytes::from("v"), condition, expiry, answer })
    }

    #[test]
    fn set_has_options_in_any_order() {
        use Condition::{Always, IfAbsent, IfEqual, IfPresent};
        use SetAnswer::{Flag, Old};
        for (line, expected) in [
            ("SET k v", set(Always, Expiry::Never, SetAnswer::Ok)),
            ("set k v nx get", set(IfAbsent, Expiry::Never, Old)),
            ("set k v XX EX 5", set(IfPresent, Expiry::At(NOW + 5_000), SetAnswer::Ok)),
            ("set k v PX 5 XX", set(IfPresent, Expiry::At(NOW + 5), SetAnswer::Ok)),
            ("set k v EXAT 7", set(Always, Expiry::At(7_000), SetAnswer::Ok)),
            ("set k v PXAT 7", set(Always, Expiry::At(7), SetAnswer::Ok)),
            ("set k v KEEPTTL", set(Always, Expiry::Keep, SetAnswer::Ok)),
            ("set k v IFEQ w GET", set(IfEqual(Bytes::from("w")), Expiry::Never, Old)),
            ("setnx k v", set(IfAbsent, Expiry::Never, Flag)),
            ("getset k v", set(Always, Expiry::Never, Old)),
            ("setex k 9 v", set(Always, Expiry::At(NOW + 9_000), SetAnswer::Ok)),
            ("psetex k 9 v", set(Always, Expiry::At(NOW + 9), SetAnswer::Ok)),
        ] {
            assert_eq!(typed(line), Ok(expected), "{line}");
        }
        for line in [
            "nx xx",
            "nx ifeq v",
            "ex",
            "ex 1 px 1",
            "ex 1 keepttl",
            "keepttl ex 1",
            "ifeq",
            "persist",
            "foo",
        ] {
            assert_eq!(typed(&format!("set k v {line}")), Err(SYNTAX.into_owned()), "{line}");
        }
        for line in
            ["ex 0", "px -1", "ex 9223372036854775807", "px 9223372036854775807", "exat 9223372036854775"]
        {
            let answer = typed(&format!("set k v {line}"));
            let far = line == "exat 9223372036854775";
            assert_eq!(answer.is_ok(), far, "{line}: {answer:?}");
        }
        assert_eq!(typed("set k v ex x"), Err(NOT_AN_INTEGER.into_owned()));
        assert_eq!(typed("setex k 0 v"), Err("ERR invalid expire time in 'setex' command".into()));
    }

    #[test]
    fn getex_without_options_is_a_read() {
        assert_eq!(typed("getex k"), Ok(Command::Get));
        assert_eq!(typed("getex k persist"), Ok(Command::GetEx(None)));
        assert_eq!(typed("getex k exat 3"), Ok(Command::GetEx(Some(3_000))));
        assert_eq!(typed("getex k ex 0"), Err("ERR invalid expire time in 'getex' command".into()));
        for line in ["persist ex 3", "ex 3 persist", "nx", "keepttl", "get"] {
            assert_eq!(typed(&format!("getex k {line}")), Err(SYNTAX.into_owned()), "{line}");
        }
    }

    #[test]
    fn times_of_expiry_have_conditions() {
        for (line, at, condition) in [
            ("expire k 10", NOW + 10_000, ExpireIf::Always),
            ("pexpire k 10 NX", NOW + 10, ExpireIf::None),
            ("expireat k 10 xx", 10_000, ExpireIf::Some),
            ("pexpireat k 10 gt", 10, ExpireIf::Later),
            ("expire k -99999 xx gt", 0, ExpireIf::Later),
            ("expire k 1 lt lt", NOW + 1_000, ExpireIf::Earlier),
            ("expire k 1 lt xx", NOW + 1_000, ExpireIf::SomeEarlier),
        ] {
            assert_eq!(typed(line), Ok(Command::Expire(at, condition)), "{line}");
        }
        for (line, error) in [
            ("expire k 1 nx gt", "ERR NX and XX, GT or LT options at the same time are not compatible"),
            ("expire k 1 gt lt", "ERR GT and LT options at the same time are not compatible"),
            ("expire k 1 foo", "ERR Unsupported option foo"),
            ("expire k x", "ERR value is not an integer or out of range"),
            ("expire k 9223372036854775807", "ERR invalid expire time in 'expire' command"),
            ("pexpire k 9223372036854775807", "ERR invalid expire time in 'pexpire' command"),
        ] {
            assert_eq!(typed(line), Err(error.into()), "{line}");
        }
        assert_eq!(typed("pexpiretime k"), Ok(Command::Ttl(TtlForm::AtMillis)));
    }

    #[test]
    fn numbers_are_checked() {
        assert_eq!(typed("incr k"), Ok(Command::IncrBy(1)));
        assert_eq!(typed("decrby k -9223372036854775807"), Ok(Command::IncrBy(i64::MAX)));
        assert_eq!(typed("decrby k -9223372036854775808"), Err("ERR decrement would overflow".into()));
        assert_eq!(typed("incrby k 1.5"), Err(NOT_AN_INTEGER.into_owned()));
        assert_eq!(typed("incrbyfloat k x"), Err("ERR value is not a valid float".into()));
        assert_eq!(typed("setrange k -1 v"), Err("ERR offset is out of range".into()));
        assert_eq!(typed("lpop k -1"), Err("ERR value is out of range, must be positive".into()));
        assert_eq!(typed("rpop k 2"), Ok(Command::ListPop(End::Tail, Some(2))));
        assert_eq!(typed("lpop k 2 3"), Err(wrong_arity("lpop").into_owned()));
        assert_eq!(typed("hset k f v g"), Err(wrong_arity("hset").into_owned()));
    }
}
