//! A short notation for histories: operations separated by `;`, each
//! `SESSION[@SERVICE] [INVOKE,RETURN] ACCESS, ACCESS… [failed] [after NUMBER…] [level NAME] [cs TS ID RMWC]`, an access being
//! `r KEY VALUE` or `w KEY VALUE`. Value 0 is an absent key. `[5,]` is an operation that never returned. Operations
//! are numbered from 1. `fence` in place of accesses is a fence.

use meridian_protocol::history::{Access, Ended, Event, Kind, Mode, Witness};

pub(crate) fn history(text: &str) -> Vec<Event> {
    let ops = text.split(';').map(str::trim).filter(|op| !op.is_empty());
    ops.enumerate().map(|(index, op)| event(index as u64 + 1, op)).collect()
}

fn event(id: u64, text: &str) -> Event {
    let (session, rest) = text.split_once('[').expect("times in brackets");
    let (times, rest) = rest.split_once(']').expect("a closing bracket");
    let (invoke, returned) = times.split_once(',').expect("two times");
    let (rest, carstamp) = rest.split_once("cs").unwrap_or((rest, ""));
    let (rest, level) = rest.split_once("level").unwrap_or((rest, ""));
    let (rest, after) = rest.split_once("after").unwrap_or((rest, ""));
    let (accesses, failed) =
        rest.split_once("failed").map_or((rest, false), |(accesses, _)| (accesses, true));
    let (session, service) = session.trim().split_once('@').unwrap_or((session.trim(), ""));
    let returned: Option<i64> = returned.trim().parse().ok();
    let fence = accesses.trim() == "fence";
    Event {
        id,
        session: session.to_string(),
        service: service.to_string(),
        kind: if fence { Kind::Fence } else { Kind::Op },
        ops: if fence { Vec::new() } else { accesses.split(',').map(access).collect() },
        invoke: invoke.trim().parse().expect("a time"),
        returned,
        outcome: match returned {
            _ if failed => Ended::Failed,
            Some(_) => Ended::Ok,
            None => Ended::Unknown,
        },
        level: Some(level.trim().to_string()).filter(|level| !level.is_empty()),
        after: after.split_whitespace().map(|id| id.parse().expect("an id")).collect(),
        witness: witness(carstamp),
    }
}

fn witness(text: &str) -> Option<Witness> {
    let numbers: Vec<u64> = text.split_whitespace().map(|n| n.parse().expect("a number")).collect();
    let [ts, id, rmwc] = numbers[..] else { return None };
    Some(Witness::Cs((ts, id, rmwc.try_into().expect("a small number"))))
}

fn access(text: &str) -> Access {
    let words: Vec<&str> = text.split_whitespace().collect();
    let [mode, key, value] = words[..] else { panic!("'{text}' is not: mode key value") };
    Access {
        mode: if mode == "r" { Mode::Read } else { Mode::Write },
        key: key.to_string(),
        value: (value != "0").then(|| value.to_string()),
    }
}
