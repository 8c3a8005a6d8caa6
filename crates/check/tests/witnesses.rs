//! Witnesses that do not fit together, or of which only a part is known.

use meridian_check::{Model, Verdict, by_search, check};
use meridian_protocol::history::Event;

const ORDERS: [Model; 3] = [Model::StrictSerializable, Model::Rss, Model::Serializable];

fn history(lines: &[&str]) -> Vec<Event> {
    lines.iter().map(|line| serde_json::from_str(line).expect("a line of a history")).collect()
}

#[test]
fn witnesses_of_two_kinds_in_one_service_are_none() {
    let events = history(&[
        r#"{"id":1,"session":"a","ops":[["w","x","1"]],"invoke":0,"return":1,"witness":{"tc":1}}"#,
        r#"{"id":2,"session":"b","ops":[["r","x","999"]],"invoke":2,"return":3,"witness":{"cs":[5,5,0]}}"#,
    ]);
    for model in ORDERS {
        assert_eq!(check(model, &events).verdict, Verdict::Violated);
    }
}

#[test]
fn a_stray_timestamp_of_what_never_ended_does_not_turn_carstamps_off() {
    let events = history(&[
        r#"{"id":1,"session":"a","ops":[["w","x","1"]],"invoke":0,"return":1,"witness":{"cs":[1,1,0]}}"#,
        r#"{"id":2,"session":"b","ops":[["r","x",null]],"invoke":2,"return":3,"witness":{"cs":[0,0,0]}}"#,
        r#"{"id":3,"session":"c","ops":[["w","y","1"]],"invoke":0,"return":null,"outcome":"unknown","witness":{"tc":1}}"#,
    ]);
    assert_eq!(check(Model::Linearizable, &events).verdict, Verdict::Violated);
}

#[test]
fn an_unseen_commit_of_unknown_outcome_is_in_nobodys_way() {
    let events = history(&[
        r#"{"id":1,"session":"a","ops":[["w","x","1"]],"invoke":0,"return":1,"witness":{"tc":1}}"#,
        r#"{"id":2,"session":"b","ops":[["w","x","2"]],"invoke":2,"return":null,"outcome":"unknown","witness":{"tc":2}}"#,
        r#"{"id":3,"session":"a","ops":[["w","x","3"]],"invoke":4,"return":5,"witness":{"tc":3}}"#,
        r#"{"id":4,"session":"c","ops":[["w","y","9"]],"invoke":0,"return":null,"outcome":"unknown"}"#,
        r#"{"id":5,"session":"d","kind":"ro","ops":[["r","y","9"]],"invoke":6,"return":7,"witness":{"snap":4}}"#,
    ]);
    for model in ORDERS {
        assert_eq!(check(model, &events).verdict, Verdict::Holds, "{}", check(model, &events).reason);
        assert_eq!(by_search(model, &events).verdict, Verdict::Holds);
    }
}

#[test]
fn a_transaction_reads_below_its_own_commit_timestamp() {
    let events = history(&[
        r#"{"id":1,"session":"a","ops":[["w","x","1"]],"invoke":0,"return":9,"witness":{"tc":5}}"#,
        r#"{"id":2,"session":"b","ops":[["r","x",null],["w","y","1"]],"invoke":0,"return":9,"witness":{"tc":5}}"#,
    ]);
    for model in ORDERS {
        assert_eq!(check(model, &events).verdict, Verdict::Holds, "{}", check(model, &events).reason);
    }
}

/// Two writers of one value, neither of which was ever answered, and who saw them. What each read saw tells where they stand.
fn seen_at(first: &str, second: &str, third: &str) -> Vec<Event> {
    let read = |id: u64, session: &str, value: &str, (snap, saw): (u64, &str)| {
        format!(
            r#"{{"id":{id},"session":"{session}","kind":"ro","ops":[["r","x",{value}]],"invoke":{id},"return":{id},"witness":{{"snap":{{"at":{snap},"saw":[["x",{saw}]]}}}}}}"#
        )
    };
    history(&[
        r#"{"id":1,"session":"a","ops":[["w","x","1"]],"invoke":0,"return":null,"outcome":"unknown"}"#,
        r#"{"id":2,"session":"b","ops":[["w","x","2"]],"invoke":0,"return":30,"witness":{"tc":6}}"#,
        r#"{"id":3,"session":"c","ops":[["w","x","1"],["w","y","1"]],"invoke":0,"return":null,"outcome":"unknown"}"#,
        &read(11, "d", "\"1\"", (5, first)),
        &read(12, "d", "\"2\"", (7, second)),
        &read(13, "d", "\"1\"", (9, third)),
        // The third's timestamp; the first's is the one that is left.
        r#"{"id":14,"session":"e","kind":"ro","ops":[["r","y","1"]],"invoke":14,"return":15,"witness":{"snap":{"at":9,"saw":[["y",8]]}}}"#,
    ])
}

#[test]
fn who_was_seen_stands_where_the_reader_says() {
    for model in ORDERS {
        let told = seen_at("4", "6", "8");
        assert_eq!(check(model, &told).verdict, Verdict::Holds, "{}", check(model, &told).reason);
        // Above the snapshot that saw it; one that another one wrote; older than the newest; never written.
        for (first, second, third) in [("6", "6", "8"), ("4", "8", "8"), ("4", "6", "4"), ("4", "null", "8")]
        {
            let judged = check(model, &seen_at(first, second, third));
            assert_eq!(judged.verdict, Verdict::Violated, "{first}, {second}, {third}: {}", judged.reason);
        }
    }
}
