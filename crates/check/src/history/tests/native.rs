//! The house's own format.

use super::{Format, faults, read, refused};
use meridian_protocol::history::{Access, Ended, Event, Kind, Mode, Stamped, Witness};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

const NATIVE: Format = Format::Native;

/// A line with these fields beside the id, the session and the times.
fn line(id: u64, session: &str, times: (i64, i64), more: &str) -> String {
    let (invoke, returned) = times;
    format!("{{\"id\":{id},\"session\":\"{session}\",\"invoke\":{invoke},\"return\":{returned}{more}}}\n")
}

#[test]
fn what_is_written_is_read_back() {
    let text = concat!(
        r#"{"id":7,"session":"p1","service":"db0","kind":"op","ops":[["r","x","1"],["w","x",null]],"#,
        r#""invoke":10,"return":20,"outcome":"ok","after":[8],"witness":{"cs":[4,1,0]}}"#,
        "\n",
        r#"{"id":8,"session":"p2","service":"","kind":"fence","ops":[],"invoke":1,"return":9,"outcome":"ok"}"#,
        "\n",
    );
    let history = read(text, NATIVE).unwrap();
    let mut written = Vec::new();
    super::super::write(&history.events, &mut written).unwrap();
    assert_eq!(String::from_utf8(written).unwrap(), text);
}

/// Some text, with letters that JSON must escape.
fn text(rng: &mut Pcg64Mcg) -> String {
    let letters = ['a', 'é', '"', '\\', '\n', '\u{0}', '…', '𝄞', ' '];
    (0..rng.random_range(0..6)).map(|_| letters[rng.random_range(0..letters.len())]).collect()
}

fn version(rng: &mut Pcg64Mcg) -> (u64, u32, u32) {
    (rng.random(), rng.random(), rng.random())
}

fn numbers(rng: &mut Pcg64Mcg) -> Vec<u64> {
    (0..rng.random_range(0..4)).map(|_| rng.random()).collect()
}

fn stamped(rng: &mut Pcg64Mcg) -> Stamped {
    let saw = (0..rng.random_range(0..3)).map(|_| (text(rng), rng.random_bool(0.8).then(|| rng.random())));
    let saw = saw.collect();
    Stamped { at: rng.random(), saw }
}

fn witness(rng: &mut Pcg64Mcg) -> Option<Witness> {
    Some(match rng.random_range(0..6) {
        0 => Witness::Cs((rng.random(), rng.random(), rng.random())),
        1 => Witness::Tc(stamped(rng)),
        2 => Witness::Snap(stamped(rng)),
        3 => Witness::Put { at: version(rng), vc: numbers(rng) },
        4 => Witness::Got {
            at: (0..rng.random_range(0..3)).map(|i| (i > 0).then(|| version(rng))).collect(),
            sv: numbers(rng),
        },
        _ => return None,
    })
}

/// A history without contradictions, of the strangest operations.
fn history(rng: &mut Pcg64Mcg) -> Vec<Event> {
    let mut events: Vec<Event> = Vec::new();
    for id in 0..rng.random_range(0..20) {
        let kind = [Kind::Op, Kind::Rw, Kind::Ro, Kind::Rot, Kind::Fence][rng.random_range(0..5)];
        let outcome = [Ended::Ok, Ended::Ok, Ended::Failed, Ended::Unknown][rng.random_range(0..4)];
        let invoke = rng.random_range(-1_000_000..1_000_000);
        let access = |rng: &mut Pcg64Mcg| Access {
            mode: if matches!(kind, Kind::Op | Kind::Rw) && rng.random() { Mode::Write } else { Mode::Read },
            key: text(rng),
            value: rng.random_bool(0.8).then(|| text(rng)),
        };
        let count = if kind == Kind::Fence { 0 } else { rng.random_range(0..4) };
        let told = |event: &&Event| {
            event.outcome == Ended::Ok && event.returned.is_some_and(|returned| returned <= invoke)
        };
        let after = events.iter().filter(told).map(|event| event.id).take(2).collect();
        events.push(Event {
            id: id * 1_000_000_007,
            session: text(rng),
            service: text(rng),
            kind,
            ops: (0..count).map(|_| access(rng)).collect(),
            invoke,
            returned: (outcome != Ended::Unknown).then(|| invoke + rng.random_range(0..1_000)),
            outcome,
            level: rng.random_bool(0.3).then(|| text(rng)),
            after,
            witness: witness(rng),
        });
    }
    events
}

#[test]
fn any_history_is_read_as_it_was_written() {
    for seed in 0..2_000 {
        let events = history(&mut Pcg64Mcg::seed_from_u64(seed));
        let mut written = Vec::new();
        super::super::write(&events, &mut written).unwrap();
        let read = super::super::read(written.as_slice(), NATIVE).map(|history| history.events);
        assert_eq!(read, Ok(events), "seed {seed}");
    }
}

#[test]
fn defaults_fill_in_and_unknown_fields_are_ignored() {
    let text = "\n{\"id\":1,\"session\":\"a\",\"invoke\":0,\"return\":1,\"colour\":\"red\"}\n\n";
    let events = read(text, NATIVE).unwrap().events;
    assert_eq!((events[0].outcome, events[0].ops.len(), events[0].kind), (Ended::Ok, 0, Kind::Op));
}

#[test]
fn every_fault_is_reported_on_its_line() {
    let text = [
        line(1, "a", (5, 4), ""),
        "nonsense\n".into(),
        "{\"id\":1,\"session\":\"a\",\"invoke\":5,\"return\":null}\n".into(),
        line(2, "b", (5, 9), ",\"after\":[77]"),
        "\u{0}\u{1}\n".into(),
        "[1,2]\n".into(),
        "7\n".into(),
    ]
    .concat();
    refused(
        &text,
        NATIVE,
        &[
            (1, "operation 1 returned at 4, before its invocation at 5"),
            (2, "is no JSON: "),
            (3, "id 1 stands on line 1 already"),
            (3, "operation 1 ended ok but has no return time: if nobody knows how it ended"),
            (4, "operation 2 comes after operation 77, which is not in the history"),
            (5, "is no JSON: "),
            (6, "is no JSON object"),
            (7, "is no JSON object"),
        ],
    );
    assert!(!faults(&text, NATIVE)[1].contains("line 1"), "only the column is the parser's to tell");
}

#[test]
fn each_field_of_a_line_says_its_own_fault() {
    let text = concat!(
        r#"{"id":-1,"session":7,"kind":"write","ops":[["x","k","1"]],"invoke":1.5,"return":"2","#,
        r#""outcome":"fine","level":3,"after":7,"witness":{"cs":[4,1]}}"#,
        "\n{}\n",
        r#"{"id":1,"session":"a","ops":[["r","k",3]],"invoke":1,"return":2}"#,
        "\n",
        r#"{"id":1,"id":2,"session":"a","invoke":1,"return":2}"#,
    );
    refused(
        text,
        NATIVE,
        &[
            (1, "wrong \"id\": -1: it is a number"),
            (1, "wrong \"session\": 7: it is a string"),
            (1, "wrong \"kind\": \"write\""),
            (1, "wrong \"ops\""),
            (1, "wrong \"invoke\": 1.5: it is an integer"),
            (1, "wrong \"return\""),
            (1, "wrong \"outcome\": \"fine\": it is \"ok\", \"failed\" or \"unknown\""),
            (1, "wrong \"level\""),
            (1, "wrong \"after\""),
            (1, "wrong \"witness\": {\"cs\":[4,1]}: it is {\"cs\":[ts,id,rmwc]}"),
            (2, "has no \"id\""),
            (2, "has no \"session\""),
            (2, "has no \"invoke\""),
            (3, "wrong \"ops\": [[\"r\",\"k\",3]]"),
            (4, "duplicate field `id`"),
        ],
    );
}

#[test]
fn witnesses_of_a_wrong_shape_are_refused() {
    for witness in [
        "{}",
        "[4,1,0]",
        "{\"cs\":[4,1,0,9]}",
        "{\"cs\":[4,-1,0]}",
        "{\"cs\":[4,1,4294967296]}",
        "{\"ts\":4}",
        "{\"tc\":\"4\"}",
        "{\"tc\":4,\"snap\":4}",
        "{\"put\":{\"vc\":[1]}}",
        "{\"put\":{\"at\":[1,2]}}",
        "{\"got\":{\"at\":[1,2,3]}}",
    ] {
        let text = line(1, "a", (1, 2), &format!(",\"witness\":{witness}"));
        refused(&text, NATIVE, &[(1, "has a wrong \"witness\"")]);
    }
}

#[test]
fn a_truncated_last_line_is_called_so() {
    let whole = line(1, "a", (1, 2), "") + &line(2, "a", (3, 4), ",\"ops\":[[\"r\",\"é\",null]]");
    let second = whole.find('\n').unwrap() + 1;
    for end in second + 1..whole.len() - 1 {
        if whole.is_char_boundary(end) {
            refused(
                &whole[..end],
                NATIVE,
                &[(2, "is truncated: the file ends within it: was the file cut short?")],
            );
        }
    }
    // Without its line end only, it is whole; cut short in the middle of a file, it is not truncated but wrong.
    assert_eq!(read(&whole[..whole.len() - 1], NATIVE).unwrap().events.len(), 2);
    refused(&format!("{}\n{whole}", &whole[..9]), NATIVE, &[(1, "is no JSON: EOF while parsing")]);
}

#[test]
fn messages_come_from_what_had_returned() {
    let text = [
        line(1, "a", (1, 20), ""),
        line(2, "b", (1, 2), ",\"outcome\":\"failed\""),
        "{\"id\":3,\"session\":\"c\",\"invoke\":1,\"return\":null,\"outcome\":\"unknown\"}\n".into(),
        line(4, "d", (20, 30), ",\"after\":[1]"),
        line(5, "e", (19, 30), ",\"after\":[1,2,3,5]"),
        line(6, "f", (7, 7), ",\"after\":[6]"),
    ]
    .concat();
    refused(
        &text,
        NATIVE,
        &[
            (5, "operation 5, invoked at 19, comes after operation 1, which returned at 20"),
            (5, "comes after operation 2, which failed"),
            (5, "comes after operation 3, which has an unknown outcome"),
            (5, "comes after operation 5, which returned at 30"),
            (6, "comes after operation 6, which returned at 7"),
        ],
    );
}

#[test]
fn kinds_that_cannot_write_do_not() {
    let write =
        |kind: &str| line(1, "a", (1, 2), &format!(",\"kind\":\"{kind}\",\"ops\":[[\"w\",\"x\",\"1\"]]"));
    refused(&write("ro"), NATIVE, &[(1, "operation 1 is read-only by its kind, but writes")]);
    refused(&write("rot"), NATIVE, &[(1, "read-only")]);
    refused(&write("fence"), NATIVE, &[(1, "is a fence, but reads or writes")]);
    assert!(read(&write("rw"), NATIVE).is_ok());
}

#[test]
fn two_operations_at_once_in_a_session_are_a_warning_that_names_them() {
    let lines = |times: [(i64, i64); 3]| {
        let lines: Vec<String> = times.iter().zip(1..).map(|(times, id)| line(id, "a", *times, "")).collect();
        lines.concat() + &line(9, "b", (0, 100), "")
    };
    assert!(read(&lines([(1, 2), (3, 4), (5, 6)]), NATIVE).unwrap().warnings.is_empty());
    let warnings = read(&lines([(1, 4), (3, 6), (7, 8)]), NATIVE).unwrap().warnings;
    assert_eq!(warnings.len(), 1);
    assert!(
        warnings[0].starts_with("session a invoked operation 2 before operation 1 had returned: "),
        "{warnings:?}"
    );
    // A long one overlaps with all that come later, whatever lies between.
    let warnings = read(&lines([(1, 40), (3, 6), (7, 8)]), NATIVE).unwrap().warnings;
    assert!(
        warnings[0].contains("operation 2 before operation 1 had returned (and 1 more such pairs)"),
        "{warnings:?}"
    );
    // Equal times do not say which was first.
    let warnings = read(&lines([(1, 2), (3, 5), (5, 6)]), NATIVE).unwrap().warnings;
    assert!(warnings[0].contains("operation 3 before operation 2 had returned"), "{warnings:?}");
    // Who gives up waiting may go on: that is what an unknown outcome is.
    let text =
        "{\"id\":1,\"session\":\"a\",\"invoke\":1,\"return\":null,\"outcome\":\"unknown\"}\n".to_owned();
    assert!(read(&(text + &line(2, "a", (5, 6), "")), NATIVE).unwrap().warnings.is_empty());
}
