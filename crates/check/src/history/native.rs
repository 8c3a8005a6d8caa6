//! The house's own format: one JSON object a line.

use super::{Fault, History};
use meridian_protocol::history::{Access, Ended, Event, Kind, Mode, Witness};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::io::{self, BufRead, Write};

const MEND: &str = "mend the line or leave it out";

/// Reads a history line by line. Empty lines are skipped and unknown fields ignored.
pub(super) fn read(mut input: impl BufRead, faults: &mut Vec<Fault>) -> History {
    let mut events = Vec::new();
    let mut lines = Vec::new();
    let mut buffer = Vec::new();
    for line in 1.. {
        buffer.clear();
        match input.read_until(b'\n', &mut buffer) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) => {
                let reason = format!("cannot be read: {error}");
                faults.push(Fault::new(line, reason, "name a file that can be read"));
                break;
            }
        }
        // Some editors begin a file with a byte order mark.
        let marked = if line == 1 { buffer.strip_prefix("\u{feff}".as_bytes()) } else { None };
        let text = marked.unwrap_or(&buffer).trim_ascii();
        if text.is_empty() {
            continue;
        }
        match serde_json::from_slice::<Event>(text) {
            Ok(event) if text[0] == b'{' => {
                events.push(event);
                lines.push(line);
            }
            Ok(_) => faults.push(Fault::new(line, "is no JSON object", MEND)),
            Err(error) => explain(line, text, &error, buffer.last() != Some(&b'\n'), faults),
        }
    }
    contradictions(&events, &lines, faults);
    let warnings = outstanding(&events).into_iter().collect();
    History { events, warnings, ..History::default() }
}

/// Writes a history.
///
/// # Errors
/// What the output answers.
pub fn write(events: &[Event], mut output: impl Write) -> io::Result<()> {
    for event in events {
        serde_json::to_writer(&mut output, event)?;
        output.write_all(b"\n")?;
    }
    output.flush()
}

/// Says all that is wrong with a line that is no event.
fn explain(line: usize, text: &[u8], error: &serde_json::Error, last: bool, faults: &mut Vec<Fault>) {
    let object = match serde_json::from_slice::<Value>(text) {
        Ok(Value::Object(object)) => object,
        Ok(_) => return faults.push(Fault::new(line, "is no JSON object", MEND)),
        Err(error) if error.is_eof() && last => {
            let remedy =
                "was the file cut short? leave the line out, and the history is one operation shorter";
            return faults.push(Fault::new(line, "is truncated: the file ends within it", remedy));
        }
        Err(error) => return faults.push(Fault::new(line, format!("is no JSON: {}", words(&error)), MEND)),
    };
    let before = faults.len();
    let mut fields = Fields { line, object: &object, faults };
    fields.check::<u64>("id", true, "a number from 0 on that no other operation has");
    fields.check::<String>("session", true, "a string");
    fields.check::<String>("service", false, "a string");
    fields.check::<Kind>("kind", false, "\"op\", \"rw\", \"ro\", \"rot\" or \"fence\"");
    fields.check::<Vec<Access>>("ops", false, "a list of [\"r\" or \"w\", key, value or null], all strings");
    fields.check::<i64>("invoke", true, "an integer");
    fields.check::<Option<i64>>("return", false, "an integer or null");
    fields.check::<Ended>("outcome", false, "\"ok\", \"failed\" or \"unknown\"");
    fields.check::<Option<String>>("level", false, "a string");
    fields.check::<Vec<u64>>("after", false, "a list of ids");
    let witness = "{\"cs\":[ts,id,rmwc]}, {\"tc\":n}, {\"snap\":n} (n or \
                   {\"at\":n,\"saw\":[[key,n or null],…]}), {\"put\":{\"at\":[ts,region,n],\"vc\":[…]}} or \
                   {\"got\":{\"at\":[[ts,region,n],…],\"sv\":[…]}}";
    fields.check::<Option<Witness>>("witness", false, witness);
    if faults.len() == before {
        // Each field is right for itself: one may stand there twice.
        faults.push(Fault::new(line, words(error), MEND));
    }
}

struct Fields<'a> {
    line: usize,
    object: &'a Map<String, Value>,
    faults: &'a mut Vec<Fault>,
}

impl Fields<'_> {
    fn check<T: DeserializeOwned>(&mut self, name: &str, required: bool, wanted: &str) {
        let reason = match self.object.get(name) {
            None if required => format!("has no \"{name}\""),
            Some(value) if T::deserialize(value).is_err() => format!("has a wrong \"{name}\": {value}"),
            _ => return,
        };
        self.faults.push(Fault::new(self.line, reason, format!("it is {wanted}")));
    }
}

/// The parser's words; its line is always the first, as it is given one at a time.
fn words(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.split_once(" at line ") {
        Some((reason, _)) => format!("{reason} at column {}", error.column()),
        None => text,
    }
}

/// Faults that need more than the line's own syntax to be seen.
fn contradictions(events: &[Event], lines: &[usize], faults: &mut Vec<Fault>) {
    let mut by_id: HashMap<u64, usize> = HashMap::with_capacity(events.len());
    for (index, event) in events.iter().enumerate() {
        let mut fault = |reason: String, remedy: &str| faults.push(Fault::new(lines[index], reason, remedy));
        let id = event.id;
        let first = *by_id.entry(id).or_insert(index);
        if first != index {
            fault(
                format!("id {id} stands on line {} already", lines[first]),
                "give each operation its own id",
            );
        }
        match event.returned {
            Some(returned) if returned < event.invoke => fault(
                format!("operation {id} returned at {returned}, before its invocation at {}", event.invoke),
                "take both times from one clock",
            ),
            None if event.outcome == Ended::Ok => fault(
                format!("operation {id} ended ok but has no return time"),
                "if nobody knows how it ended, say \"outcome\":\"unknown\"",
            ),
            _ => {}
        }
        let writes = event.ops.iter().any(|access| access.mode == Mode::Write);
        match event.kind {
            Kind::Ro | Kind::Rot if writes => {
                fault(format!("operation {id} is read-only by its kind, but writes"), "make its kind \"rw\"");
            }
            Kind::Fence if !event.ops.is_empty() => {
                fault(format!("operation {id} is a fence, but reads or writes"), "leave out its ops");
            }
            _ => {}
        }
    }
    for (event, line) in events.iter().zip(lines).filter(|(event, _)| !event.after.is_empty()) {
        for after in &event.after {
            let sender = by_id.get(after).map(|index| &events[*index]);
            if let Some((reason, remedy)) = no_message(event, *after, sender) {
                faults.push(Fault::new(*line, reason, remedy));
            }
        }
    }
}

/// Why no message can have carried `sender`'s result to `event`.
fn no_message(event: &Event, after: u64, sender: Option<&Event>) -> Option<(String, &'static str)> {
    let id = event.id;
    let Some(sender) = sender else {
        let reason = format!("operation {id} comes after operation {after}, which is not in the history");
        return Some((reason, "add that operation, or take its id out of \"after\""));
    };
    if sender.outcome != Ended::Ok {
        let ended = if sender.outcome == Ended::Failed { "failed" } else { "has an unknown outcome" };
        let reason = format!("operation {id} comes after operation {after}, which {ended} and told nothing");
        return Some((reason, "name in \"after\" only operations that ended ok"));
    }
    let returned = sender.returned.filter(|returned| *returned > event.invoke || after == id)?;
    let reason = format!(
        "operation {id}, invoked at {}, comes after operation {after}, which returned at {returned}",
        event.invoke
    );
    Some((reason, "name in \"after\" only operations that had returned"))
}

/// A warning if a session did not wait for an operation to return before it invoked the next.
fn outstanding(events: &[Event]) -> Option<String> {
    let mut order: Vec<&Event> = events.iter().collect();
    order.sort_by_key(|event| (&event.session, event.invoke));
    let (mut pairs, mut first) = (0_u64, None);
    // The operation of the session that returned last so far; one of unknown outcome has been given up.
    let mut latest: Option<(&Event, i64)> = None;
    for event in order {
        if let Some((earlier, returned)) = latest.filter(|(earlier, _)| earlier.session == event.session) {
            if event.invoke <= returned {
                pairs += 1;
                first.get_or_insert((earlier, event));
            }
        } else {
            latest = None;
        }
        if let Some(returned) = event.returned.filter(|_| event.outcome != Ended::Unknown)
            && latest.is_none_or(|(_, latest)| latest < returned)
        {
            latest = Some((event, returned));
        }
    }
    let (earlier, later) = first?;
    let more = if pairs > 1 { format!(" (and {} more such pairs)", pairs - 1) } else { String::new() };
    Some(format!(
        "session {} invoked operation {} before operation {} had returned{more}: in its own order an operation \
         comes before another only if it had returned before the other's invocation",
        later.session, later.id, earlier.id
    ))
}
