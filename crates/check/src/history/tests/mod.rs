//! Tests of the readers: what each format means, and each fault by its words.

mod edn;
mod jepsen;
mod native;
mod porcupine;

use super::{Fault, Format, History};
use meridian_protocol::history::{Access, Event, Mode};
use std::path::Path;

fn read(text: &str, format: Format) -> Result<History, Vec<Fault>> {
    super::read(text.as_bytes(), format)
}

/// The faults, one a line.
fn faults(text: &str, format: Format) -> Vec<String> {
    let faults = read(text, format).expect_err("there are faults");
    faults.iter().map(Fault::to_string).collect()
}

/// That there is exactly one fault for each of `expected`, on that line and with that part.
fn refused(text: &str, format: Format, expected: &[(usize, &str)]) {
    let found = faults(text, format);
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (fault, (line, part)) in found.iter().zip(expected) {
        assert!(fault.starts_with(&format!("line {line}: ")), "line {line}, {part}: {found:#?}");
        assert!(fault.contains(part), "line {line}, {part}: {found:#?}");
        assert!(fault.matches(": ").count() >= 2, "says what to do: {fault}");
    }
}

/// An event in short: `3 p1: r x=1 w x=2 [5,9]`.
fn short(event: &Event) -> String {
    let access = |access: &Access| {
        let mode = if access.mode == Mode::Read { 'r' } else { 'w' };
        format!("{mode} {}={} ", access.key, access.value.as_deref().unwrap_or("null"))
    };
    let accesses: String = event.ops.iter().map(access).collect();
    let returned = event.returned.map_or(String::new(), |returned| returned.to_string());
    format!("{} {}: {accesses}[{},{returned}]", event.id, event.session, event.invoke)
}

fn shorts(history: &History) -> Vec<String> {
    history.events.iter().map(short).collect()
}

#[test]
fn a_format_is_known_by_its_beginning_and_else_by_its_name() {
    use Format::{Jepsen, Native, Porcupine};
    for (name, beginning, format) in [
        ("h", "\n {\"id\":1", Native),
        ("h.edn", "{\"id\":1", Native),
        ("h.jsonl", "{:type :invoke, :f :read", Jepsen),
        ("h", "; a comment\n[{:type :invoke, :process 0}", Jepsen),
        ("h", "#jepsen.history.Op{:type :invoke}", Jepsen),
        ("h.edn", "{:process 0, :type :invoke, :f :get, :key \"3\", :value nil}\n", Porcupine),
        ("h", "[{:process 0, :type :invoke, :f :get, :key \"3\", :value nil}\n", Porcupine),
        ("h.edn", "INFO  jepsen.util - 0\t:invoke\t:read\tnil", Porcupine),
        ("h.edn", "", Jepsen),
        ("h.log", "starting", Porcupine),
        ("h.txt", "\u{0}\u{1}", Porcupine),
        ("h.json", "", Native),
        ("h", "nonsense", Native),
    ] {
        assert_eq!(Format::detect(Path::new(name), beginning.as_bytes()), format, "{name}: {beginning}");
    }
    for (name, format) in Format::ALL {
        assert_eq!((Format::named(name), format.to_string().as_str()), (Some(format), name));
    }
    assert_eq!(Format::named("elle"), None);
}

#[test]
fn nothing_at_all_is_an_empty_history() {
    for (_, format) in Format::ALL {
        for text in ["", "\n\n", "[]"].iter().take(if format == Format::Native { 2 } else { 3 }) {
            assert_eq!(read(text, format), Ok(History::default()), "{format}: {text:?}");
        }
    }
}

#[test]
fn bytes_that_are_no_text_are_a_fault() {
    for (_, format) in Format::ALL {
        let faults = super::read(&b"\n\xff\xfe{\n"[..], format).unwrap_err();
        assert_eq!(faults.iter().map(|fault| fault.line).collect::<Vec<_>>(), [2], "{format}");
    }
}
