//! The page of explanations, as far as it can be told without a browser; `tests/pages/` has one.

mod common;

use common::history;
use meridian_check::{Explanation, Model, Step, Why, explain, page};
use meridian_protocol::history::Event;

fn explained(model: Model, events: &[Event]) -> String {
    page(events, &[explain(model, events).expect("it is violated")])
}

/// The names of all elements that the page opens.
fn elements(page: &str) -> Vec<&str> {
    let names = page.split('<').skip(1).filter(|rest| rest.starts_with(|c: char| c.is_ascii_alphabetic()));
    names.map(|rest| rest.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default()).collect()
}

#[test]
fn the_cycle_is_drawn_and_told() {
    let page = explained(Model::Rsc, &history("p1 [0,10] w x 1; p2 [1,2] r x 1; p3 [3,4] r x 0 after 2"));
    for (class, times) in [("op core", 3), ("step saw", 1), ("step message", 1), ("step replaced", 1)] {
        assert_eq!(page.matches(&format!("<g class=\"{class}\">")).count(), times, "{class}");
    }
    for words in
        ["rsc is violated", "op 1: p1 wrote x = 1", "op 3: p3 read x = (absent)", "was told by a message to"]
    {
        assert!(page.contains(words), "{words}");
    }
}

#[test]
fn nothing_in_a_history_is_markup() {
    let evil = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>&lt;\u{202e}\u{0}";
    let mut events = history("p1 [0,1] w x 1; p2 [2,3] r x 0");
    for event in &mut events {
        event.session = format!("{}{evil}", event.session);
        event.service = evil.to_string();
        event.ops[0].key = evil.to_string();
        event.ops[0].value = event.ops[0].value.as_ref().map(|_| evil.to_string());
    }
    let harmless = explained(Model::Linearizable, &history("p1@s [0,1] w x 1; p2@s [2,3] r x 0"));
    let page = explained(Model::Linearizable, &events);
    assert_eq!(elements(&page), elements(&harmless), "the same elements as for a harmless history");
    assert!(!page.contains(['\u{202e}', '\u{0}']) && page.contains("\\u{202e}"));
    assert!(page.contains("&amp;lt;"), "what looks escaped is escaped again");
    // An attribute ends where it should: quotes of the history are all written as references.
    let quotes = |page: &str| page.matches('"').count();
    assert_eq!(quotes(&page), quotes(&harmless));
}

#[test]
fn of_a_long_history_the_neighbourhood_is_drawn() {
    let mut text: Vec<String> =
        (0..5000).map(|i| format!("p{} [{},{}] w k{i} v{i}", i % 8, i * 10, i * 10 + 5)).collect();
    text.push("q [60000,60001] w x 1".to_string());
    text.push("q [60002,60003] r x 0".to_string());
    let events = history(&text.join(";"));
    let explanation = Explanation {
        model: Model::Ryw,
        operations: vec![5001, 5002],
        cycle: vec![Step { id: 5001, why: Why::Session }, Step { id: 5002, why: Why::Replaced }],
        words: "a session missed its own write".to_string(),
        allowed_by: vec![Model::Serializable],
        weakest_allowing: Vec::new(),
        forbidden_by: vec![Model::Ryw],
    };
    let page = page(&events, &[explanation]);
    let drawn = page.matches("<g class=\"op").count();
    assert!((3..60).contains(&drawn), "{drawn}");
    assert!(page.contains(&format!("{} other operations are not shown", 5002 - drawn)));
    assert!(page.contains("k4999=v4999") && !page.contains("k3000=v3000"), "the nearest are drawn");
    assert!(page.contains("The strongest that allow them: serializable."));
    assert!(page.contains("The weakest that forbid them: ryw."));
}

#[test]
fn odd_histories_make_a_page_all_the_same() {
    let mut events = history("p1 [0,] w x 1; p1 [0,0] r x 0; p1 [0,0] r x 0; p2 [5,9] fence");
    events[0].invoke = i64::MIN;
    events[3].returned = Some(i64::MAX);
    let explanation = Explanation {
        model: Model::Rsc,
        operations: vec![1, 2, 77],
        cycle: vec![
            Step { id: 77, why: Why::Session },
            Step { id: 1, why: Why::Saw },
            Step { id: 1, why: Why::Saw },
        ],
        words: String::new(),
        allowed_by: Vec::new(),
        weakest_allowing: Vec::new(),
        forbidden_by: Vec::new(),
    };
    let drawn = page(&events, &[explanation]);
    assert!(!drawn.contains("NaN") && !drawn.contains("inf"), "{drawn}");
    assert!(page(&[], &[]).contains("nothing is violated"));
}
