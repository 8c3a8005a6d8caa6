//! The notation of Jepsen's files.

use super::super::edn::{Edn, Reader};

fn form(text: &str) -> Edn<'_> {
    Reader::new(text).next().expect("it can be read").expect("there is a form")
}

fn spelled(text: &str) -> Option<String> {
    form(text).spelled().map(Into::into)
}

#[test]
fn values_are_spelled_alike_only_if_they_are_alike() {
    for (text, expected) in [
        ("nil", "nil"),
        ("true", "true"),
        ("+7", "7"),
        ("7N", "7"),
        ("-1.50M", "-1.50"),
        (":a/b", ":a/b"),
        ("\"a\\n\\u0041\\\"\"", "\"a\\nA\\\"\""),
        ("\\a", "\\a"),
        ("\\(", "\\("),
        ("(1, [2 #_3 \"x\"])", "[1 [2 \"x\"]]"),
        ("#jepsen.independent.Tuple [1 2]", "[1 2]"),
        ("#_ #_ a b 3", "3"),
        ("; nothing\n 4 ; four", "4"),
        ("[#_1]", "[]"),
    ] {
        assert_eq!(spelled(text).as_deref(), Some(expected), "{text}");
    }
    for text in ["word", "{:a 1}", "#{1 2}", "[1 word]"] {
        assert_eq!(spelled(text), None, "{text}");
    }
}

#[test]
fn maps_are_asked_by_keyword() {
    let map = form("#jepsen.history.Op{:type :ok, \"type\" 3, :value [1 {2 3}]}");
    assert_eq!(map.field("type"), Some(&Edn::Keyword("ok")));
    assert_eq!(map.field("process"), None);
    assert_eq!(form("[:type :ok]").field("type"), None);
}

#[test]
fn what_cannot_be_read_says_where_and_why() {
    for (text, line, part, unfinished) in [
        ("\n\n]", 3, "closes nothing", false),
        ("[1\n", 2, "not closed", true),
        ("\"abc", 1, "not closed", true),
        ("\"abc\\", 1, "not closed", true),
        ("\"\\q\"", 1, "no escape", false),
        ("\"\\uD800\"", 1, "no letter", false),
        ("\"\\u00", 1, "not closed", true),
        ("{:a}", 1, "a key and no value", false),
        ("[1 }", 1, "closes nothing", false),
        (": ", 1, "without a name", false),
        ("#tag", 1, "not closed", true),
        ("#_", 1, "not closed", true),
        ("\\", 1, "not closed", true),
    ] {
        let broken = Reader::new(text).next().expect_err(text);
        assert_eq!((broken.line, broken.unfinished), (line, unfinished), "{text}: {broken:?}");
        assert!(broken.reason.contains(part), "{text}: {broken:?}");
    }
}

#[test]
fn depth_is_bounded_however_it_is_made() {
    for opening in ["[", "(", "{", "#{", "#t ", "#_", "[#_"] {
        let broken = Reader::new(&opening.repeat(100_000)).next().expect_err(opening);
        assert!(broken.reason.contains("nested more than 64 deep"), "{opening}: {broken:?}");
    }
    let deepest = format!("{}{}", "[".repeat(64), "]".repeat(64));
    assert!(Reader::new(&deepest).next().is_ok());
}
