//! Registers in logs: `:read`, `:write` and `:cas`, of one register or of one a key.

use super::Fault;
use super::calls::{Call, access};
use super::edn::Edn;
use meridian_protocol::history::{Access, Ended, Event, Kind, Mode};

/// The key of a history with only one register.
const ONLY: &str = "register";

/// Whether this is an operation on a register.
pub(super) fn knows(call: &Call<'_>) -> bool {
    matches!(call.f, "read" | "write" | "cas")
}

/// The operations as events. A compare-and-set that failed saw another value than it hoped for, but says neither
/// which nor that nothing else made it fail: it had no effect, and that is all. Reads without an answer are left
/// out.
pub(super) fn events(calls: &[Call<'_>], faults: &mut Vec<Fault>) -> Vec<Event> {
    let keyed = calls.iter().filter(|call| key_of(call).is_some()).count() * 2 > calls.len();
    let mut events = Vec::with_capacity(calls.len());
    for call in calls {
        match accesses(call, keyed) {
            Ok(Some(ops)) => events.push(call.event(Kind::Op, ops)),
            Ok(None) => {}
            Err(fault) => faults.push(fault),
        }
    }
    events
}

/// The key and what is asked of it, if the value of the invocation is such a pair. A bare read asks for nothing,
/// a bare compare-and-set for two values that are no pairs.
fn key_of<'c, 'a>(call: &'c Call<'a>) -> Option<(&'c Edn<'a>, &'c Edn<'a>)> {
    let pair = pair(&call.asked)?;
    (call.f != "cas" || self::pair(pair.1).is_some()).then_some(pair)
}

fn pair<'c, 'a>(value: &'c Edn<'a>) -> Option<(&'c Edn<'a>, &'c Edn<'a>)> {
    if let [first, second] = value.sequence()? { Some((first, second)) } else { None }
}

/// What an operation did; `None` if that is nothing.
fn accesses(call: &Call<'_>, keyed: bool) -> Result<Option<Vec<Access>>, Fault> {
    let fault = |reason: &str, remedy: &str| Fault::new(call.line, reason, remedy);
    let (key, asked) = match keyed.then(|| key_of(call)) {
        None => (ONLY.to_owned(), &call.asked),
        Some(Some((key, asked))) => (spelled(call, key)?, asked),
        Some(None) => {
            return Err(fault(
                "names no key, as most others do",
                "write [key value], or keep histories apart",
            ));
        }
    };
    let answered = match (&call.answered, keyed) {
        (Some(answer), true) => match pair(answer) {
            Some((answered, value)) if spelled(call, answered)? == key => Some(value),
            _ => return Err(fault("ends with another key than it began with", "mend the line of its end")),
        },
        (answer, _) => answer.as_ref(),
    };
    if call.f != "read" && answered.is_some_and(|answer| *answer != Edn::Nil && answer != asked) {
        return Err(fault("ends with another value than it began with", "mend the line of its end"));
    }
    let access = |mode, value| Ok(access(mode, &key, content(call, value)?));
    Ok(Some(match call.f {
        "read" => match answered {
            Some(answer) if call.outcome == Ended::Ok => vec![access(Mode::Read, answer)?],
            _ => return Ok(None),
        },
        "write" => vec![access(Mode::Write, asked)?],
        _ => {
            let Some((old, new)) = pair(asked) else {
                return Err(fault("is a :cas without two values", "write [old new]"));
            };
            vec![access(Mode::Read, old)?, access(Mode::Write, new)?]
        }
    }))
}

/// A register's content; `nil` is an absent key.
pub(super) fn content(call: &Call<'_>, value: &Edn<'_>) -> Result<Option<String>, Fault> {
    if *value == Edn::Nil { Ok(None) } else { spelled(call, value).map(Some) }
}

/// A key or value as text.
pub(super) fn spelled(call: &Call<'_>, value: &Edn<'_>) -> Result<String, Fault> {
    value.spelled().map(Into::into).ok_or_else(|| no_value(call))
}

/// A key or value is none that can be compared.
pub(super) fn no_value(call: &Call<'_>) -> Fault {
    Fault::new(
        call.line,
        "has a map, a set or a bare word where a key or a value belongs",
        "use numbers, strings, keywords, or vectors of them",
    )
}
