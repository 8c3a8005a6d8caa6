//! Reading and writing history files: one JSON object a line.

use meridian_protocol::history::{Ended, Event};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io::{self, BufRead, Write};

/// What is wrong with one line of a history file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The line, counted from 1.
    pub line: usize,
    /// What is wrong with it.
    pub reason: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.reason)
    }
}

/// Reads a history. Empty lines are skipped and unknown fields ignored.
///
/// # Errors
/// Every fault of the input, not just the first.
pub fn read(input: impl BufRead) -> Result<Vec<Event>, Vec<Fault>> {
    let mut events = Vec::new();
    let mut faults = Vec::new();
    for (index, line) in input.split(b'\n').enumerate() {
        let line_number = index + 1;
        let mut fault = |reason: String| faults.push(Fault { line: line_number, reason });
        let line = match line {
            Ok(line) => line,
            Err(error) => {
                fault(format!("cannot be read: {error}"));
                break;
            }
        };
        if line.trim_ascii().is_empty() {
            continue;
        }
        match serde_json::from_slice::<Event>(&line) {
            Ok(event) => events.push((line_number, event)),
            Err(error) => fault(format!("is no operation of a history: {error}")),
        }
    }
    faults.extend(inconsistencies(&events));
    faults.sort_by_key(|fault| fault.line);
    if faults.is_empty() { Ok(events.into_iter().map(|(_, event)| event).collect()) } else { Err(faults) }
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

/// Faults that need more than the line's own syntax to be seen.
fn inconsistencies(events: &[(usize, Event)]) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut first_line = HashMap::new();
    for (line, event) in events {
        let mut fault = |reason: String| faults.push(Fault { line: *line, reason });
        let earlier = *first_line.entry(event.id).or_insert(*line);
        if earlier != *line {
            fault(format!("id {} stands on line {earlier} already", event.id));
        }
        match event.returned {
            Some(returned) if returned < event.invoke => {
                fault(format!(
                    "operation {} returned at {returned}, before its invocation at {}",
                    event.id, event.invoke
                ));
            }
            None if event.outcome == Ended::Ok => {
                fault(format!("operation {} ended ok but has no return time: say outcome unknown", event.id));
            }
            _ => {}
        }
    }
    let ids: HashSet<u64> = events.iter().map(|(_, event)| event.id).collect();
    for (line, event) in events {
        for after in event.after.iter().filter(|after| !ids.contains(*after)) {
            let reason =
                format!("operation {} comes after operation {after}, which is not in the history", event.id);
            faults.push(Fault { line: *line, reason });
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let text = concat!(
            r#"{"id":7,"session":"p1","service":"db0","kind":"op","ops":[["r","x","1"],["w","x",null]],"#,
            r#""invoke":10,"return":20,"outcome":"ok","after":[8],"witness":{"cs":[4,1,0]}}"#,
            "\n",
            r#"{"id":8,"session":"p2","service":"","kind":"fence","ops":[],"invoke":1,"return":null,"outcome":"unknown"}"#,
            "\n",
        );
        let events = read(text.as_bytes()).unwrap();
        assert_eq!(events.len(), 2);
        let mut written = Vec::new();
        write(&events, &mut written).unwrap();
        assert_eq!(String::from_utf8(written).unwrap(), text);
    }

    #[test]
    fn defaults_fill_in_and_unknown_fields_are_ignored() {
        let text = "\n{\"id\":1,\"session\":\"a\",\"invoke\":0,\"return\":1,\"colour\":\"red\"}\n\n";
        let events = read(text.as_bytes()).unwrap();
        assert_eq!((events[0].outcome, events[0].ops.len()), (Ended::Ok, 0));
    }

    #[test]
    fn every_fault_is_reported() {
        let text = concat!(
            "{\"id\":1,\"session\":\"a\",\"invoke\":5,\"return\":4}\n",
            "nonsense\n",
            "{\"id\":1,\"session\":\"a\",\"invoke\":5,\"return\":null}\n",
            "{\"id\":2,\"session\":\"a\",\"invoke\":5,\"return\":9,\"after\":[77]}\n",
            "\u{0}\u{1}\n",
        );
        let faults = read(text.as_bytes()).unwrap_err();
        let lines: Vec<usize> = faults.iter().map(|fault| fault.line).collect();
        assert_eq!(lines, [1, 2, 3, 3, 4, 5]);
        assert_eq!(faults[2].to_string(), "line 3: id 1 stands on line 1 already");
    }

    #[test]
    fn bytes_that_are_no_text_are_a_fault() {
        assert_eq!(read(&b"\xff\xfe{\n"[..]).unwrap_err().len(), 1);
    }
}
