//! Jepsen's histories.

use super::{Format, read, refused, shorts};
use crate::{Model, Verdict};

const JEPSEN: Format = Format::Jepsen;

/// An entry of a process.
fn entry(process: u32, stage: &str, f: &str, value: &str) -> String {
    format!("{{:process {process}, :type :{stage}, :f :{f}, :value {value}}}\n")
}

/// Entries that invoke and end well at once, with the same value but for what is read.
fn transactions(steps: &[(u32, &str, &str)]) -> String {
    let both = |(process, asked, answered): &(u32, &str, &str)| {
        let answered = if answered.is_empty() { asked } else { answered };
        entry(*process, "invoke", "txn", asked) + &entry(*process, "ok", "txn", answered)
    };
    steps.iter().map(both).collect()
}

fn verdict(text: &str, model: Model) -> Verdict {
    read(text, JEPSEN).expect("it can be read").judge(model).verdict
}

#[test]
fn a_register_with_its_nemesis() {
    let text = [
        entry(0, "invoke", "read", "nil"),
        "{:process :nemesis, :type :info, :f :start, :value {:cut #{n1 n2}}}\n".into(),
        entry(1, "invoke", "write", "3"),
        entry(0, "ok", "read", "nil"),
        entry(1, "ok", "write", "3"),
        entry(0, "invoke", "cas", "[3 4]"),
        entry(1, "invoke", "cas", "[7 8]"),
        entry(1, "fail", "cas", "[7 8]"),
        entry(0, "info", "cas", "[3 4]"),
        entry(1, "invoke", "read", "nil"),
        entry(1, "fail", "read", ":timed-out"),
        entry(2, "invoke", "write", "5"),
    ]
    .concat();
    let events = [
        "0 0: r register=null [0,3]",
        "2 1: w register=3 [2,4]",
        "5 0: r register=3 w register=4 [5,]",
        "6 1: r register=7 w register=8 [6,7]",
        "11 2: w register=5 [11,]",
    ];
    assert_eq!(shorts(&read(&text, JEPSEN).unwrap()), events);
    // The same as one vector, and as tagged records with numbers of their own over several lines.
    let vector = format!("; a history\n[{}]\n", text.replace('\n', "\n  "));
    assert_eq!(shorts(&read(&vector, JEPSEN).unwrap()), events);
    let mut index = 0;
    let records: String = text
        .lines()
        .map(|line| {
            index += 10;
            line.replace('{', "#jepsen.history.Op{").replacen(
                "{:process",
                &format!("{{:index {index}\n:process"),
                1,
            )
        })
        .collect();
    let records = records.replace("#jepsen.history.Op{n1 n2}", "{n1 n2}");
    let numbered = shorts(&read(&records.replace(":cut #", ":cut "), JEPSEN).unwrap());
    assert_eq!(numbered[..2], ["10 0: r register=null [0,3]", "30 1: w register=3 [2,4]"]);
}

#[test]
fn registers_of_independent_keys() {
    let text = [
        entry(0, "invoke", "read", "[\"a\" nil]"),
        entry(0, "ok", "read", "[\"a\" nil]"),
        entry(0, "invoke", "cas", "[7 [1 2]]"),
        entry(0, "ok", "cas", "[7 [1 2]]"),
        entry(0, "invoke", "write", "[7 nil]"),
        entry(0, "ok", "write", "[7 nil]"),
    ]
    .concat();
    let events = ["0 0: r \"a\"=null [0,1]", "2 0: r 7=1 w 7=2 [2,3]", "4 0: w 7=null [4,5]"];
    assert_eq!(shorts(&read(&text, JEPSEN).unwrap()), events);
}

#[test]
fn appends_become_rmws_of_what_is_seen() {
    let text = transactions(&[
        (0, "[[:append 3 1]]", ""),
        (1, "[[:append 3 2] [:r 4 nil]]", "[[:append 3 2] [:r 4 []]]"),
        (0, "[[:append 3 9]]", ""),
        (2, "[[:r 3 nil]]", "[[:r 3 [1 2]]]"),
    ]);
    let history = read(&text, JEPSEN).unwrap();
    assert_eq!(
        shorts(&history),
        [
            "0 0: r 3=null w 3=[1] [0,1]",
            "2 1: r 3=[1] w 3=[1 2] r 4=null [2,3]",
            // Nobody saw 9.
            "4 0: w 3=…4+[9] [4,5]",
            "6 2: r 3=[1 2] [6,7]",
        ]
    );
    assert!(history.warnings.is_empty());
    // 9 must stand after the read, and so against real time.
    assert_eq!(history.judge(Model::StrictSerializable).verdict, Verdict::Violated);
    assert_eq!(history.judge(Model::Serializable).verdict, Verdict::Holds);
}

#[test]
fn long_lists_have_short_names() {
    let appends: String = (0..500)
        .map(|i| transactions(&[(0, &format!("[[:append x {i}]]").replace('x', ":x"), "")]))
        .collect();
    let list: Vec<String> = (0..500).map(|i| i.to_string()).collect();
    let text = appends + &transactions(&[(1, "[[:r :x nil]]", &format!("[[:r :x [{}]]]", list.join(" ")))]);
    let history = read(&text, JEPSEN).unwrap();
    let longest = history
        .events
        .iter()
        .flat_map(|event| &event.ops)
        .filter_map(|access| access.value.as_ref())
        .map(String::len)
        .max();
    assert!(longest < Some(40), "{longest:?}");
    assert_eq!(history.judge(Model::StrictSerializable).verdict, Verdict::Holds);
    let hole = text.replace("[0 1 2 ", "[0 2 ");
    assert_eq!(verdict(&hole, Model::PoSerializable), Verdict::Violated);
}

#[test]
fn lists_that_no_store_can_have_held_violate_all_models() {
    for (name, reads) in [
        ("no prefixes of each other", ["[1 2]", "[2]"]),
        ("another order", ["[1 2]", "[2 1]"]),
        ("twice in a list", ["[1 2 1]", "[1 2]"]),
        ("appended by nobody", ["[1 7]", "[1 7 2]"]),
        ("appended by one who failed", ["[1 3]", "[1]"]),
    ] {
        let read =
            |process, list: &str| transactions(&[(process, "[[:r :x nil]]", &format!("[[:r :x {list}]]"))]);
        let text = transactions(&[(0, "[[:append :x 1]]", ""), (1, "[[:append :x 2]]", "")])
            + &entry(2, "invoke", "txn", "[[:append :x 3]]")
            + &entry(2, "fail", "txn", "[[:append :x 3]]")
            + &read(3, reads[0])
            + &read(4, reads[1]);
        for model in [Model::StrictSerializable, Model::Rss, Model::PoSerializable, Model::Serializable] {
            assert_eq!(verdict(&text, model), Verdict::Violated, "{name}, {model}");
        }
    }
}

#[test]
fn lists_that_do_not_fit_are_a_warning() {
    let text = transactions(&[
        (0, "[[:append :x 1] [:append :x 2]]", ""),
        (1, "[[:r :x nil]]", "[[:r :x [1 2]]]"),
        (2, "[[:r :x nil]]", "[[:r :x [2]]]"),
    ]);
    let warnings = read(&text, JEPSEN).unwrap().warnings;
    assert_eq!(warnings.len(), 1);
    assert!(
        warnings[0].contains("the lists read from :x do not fit together: 2 follows 2 others"),
        "{warnings:?}"
    );
}

#[test]
fn what_is_unknown_counts_when_it_was_seen() {
    let begun = entry(0, "invoke", "txn", "[[:append :x 1] [:r :y nil]]");
    let told = begun.clone() + &entry(0, "info", "txn", "[[:append :x 1] [:r :y nil]]");
    for text in [begun, told] {
        let seen = text.clone() + &transactions(&[(1, "[[:r :x nil]]", "[[:r :x [1]]]")]);
        let history = read(&seen, JEPSEN).unwrap();
        assert_eq!(shorts(&history)[0], "0 0: r :x=null w :x=[1] [0,]");
        assert_eq!(history.judge(Model::StrictSerializable).verdict, Verdict::Holds);
        let unseen = text + &transactions(&[(1, "[[:r :x nil]]", "[[:r :x nil]]")]);
        assert_eq!(verdict(&unseen, Model::StrictSerializable), Verdict::Holds);
    }
}

#[test]
fn transactions_on_registers() {
    let text = transactions(&[
        (0, "[[:w :x 1] [:w :y \"one\"]]", ""),
        (1, "[[:r :x nil] [:r :y nil] [:r :z nil]]", "[[:r :x 1] [:r :y nil] [:r :z nil]]"),
    ]);
    let history = read(&text, JEPSEN).unwrap();
    assert_eq!(shorts(&history), ["0 0: w :x=1 w :y=\"one\" [0,1]", "2 1: r :x=1 r :y=null r :z=null [2,3]"]);
    assert_eq!(history.judge(Model::Serializable).verdict, Verdict::Violated, "a fractured read");
    assert_eq!(history.judge(Model::Linearizable).verdict, Verdict::NotApplicable);
}

#[test]
fn entries_that_do_not_fit_are_faults() {
    let text = [
        entry(0, "invoke", "write", "1"),
        entry(0, "invoke", "write", "2"),
        entry(1, "ok", "write", "2"),
        entry(0, "ok", "read", "1"),
        "{:type :invoke, :f :read}\n".into(),
        "{:process 3, :f :read}\n".into(),
        entry(4, "began", "read", "nil"),
        "7\n".into(),
        entry(5, "invoke", "write", "{:a 1}"),
        entry(6, "invoke", "cas", "[1 2 3]"),
        entry(7, "invoke", "enqueue", "1"),
        entry(8, "invoke", "write", "1"),
        entry(8, "ok", "write", "2"),
    ]
    .concat();
    refused(
        &text,
        JEPSEN,
        &[
            (2, "process 0 invokes :write while its operation of line 1 is still open"),
            (3, "ends an operation of process 1 that was never invoked"),
            (4, "ends :read, but line 1 invoked :write"),
            (5, "names no :process"),
            (6, "has no :type"),
            (7, "has the type :began"),
            (8, "is no map"),
            (9, "has a map, a set or a bare word where"),
            (10, "is a :cas without two values"),
            (11, "invokes :enqueue, which is no workload that is read here"),
            (12, "ends with another value than it began with"),
        ],
    );
}

#[test]
fn histories_of_more_than_one_kind_are_faults() {
    let transaction = entry(0, "invoke", "txn", "[[:r :x nil]]");
    let register = entry(1, "invoke", "write", "1");
    refused(&(transaction + &register), JEPSEN, &[(2, "mixes transactions with operations on registers")]);
    let both = transactions(&[(0, "[[:w :x 1]]", ""), (0, "[[:append :y 1]]", "")]);
    refused(&both, JEPSEN, &[(3, "appends, in a history that also has :w")]);
    let keyed = [
        entry(0, "invoke", "write", "[1 2]"),
        entry(1, "invoke", "write", "[1 3]"),
        entry(2, "invoke", "read", "nil"),
    ];
    refused(&keyed.concat(), JEPSEN, &[(3, "names no key, as most others do")]);
    let moved = [entry(0, "invoke", "read", "[1 nil]"), entry(0, "ok", "read", "[2 nil]")];
    refused(&moved.concat(), JEPSEN, &[(1, "ends with another key than it began with")]);
}

#[test]
fn transactions_that_do_not_fit_are_faults() {
    let text = transactions(&[
        (0, "[[:append :x 1]]", ""),
        (0, "[[:append :x 1]]", ""),
        (0, "[[:r :x nil]]", "[[:r :y nil]]"),
        (0, "[[:append :x 4]]", "[[:append :x 5]]"),
        (0, "[[:r :x nil]]", "[[:r :x 5]]"),
        (0, "[[:r :x nil]]", "[]"),
        (0, "[[:r :x nil] [:delete :x nil]]", ""),
    ]);
    refused(
        &text,
        JEPSEN,
        &[
            (3, "appends an element to :x that line 1 appends too"),
            (5, "ends with other steps than it began with"),
            (7, "ends with other steps than it began with"),
            (9, "read something that is no list"),
            (11, "ends with other steps than it began with"),
            (13, "has a step that is not known"),
        ],
    );
}

#[test]
fn files_that_end_too_early_say_so() {
    let whole = [entry(0, "invoke", "write", "1"), entry(0, "ok", "write", "1")].concat();
    let cut = &whole[..whole.len() - 5];
    refused(cut, JEPSEN, &[(2, "is truncated: was the file cut short?")]);
    // In the middle, what follows is still read.
    let cut = format!("{}\n{whole}{}", &whole[..12], entry(0, "ok", "write", "7"));
    refused(&cut, JEPSEN, &[(1, "is not closed"), (4, "never invoked")]);
    refused(&format!("[{whole}"), JEPSEN, &[(3, "the vector is not closed")]);
    refused(&format!("[{whole}] 7"), JEPSEN, &[(3, "stands behind the end of the vector")]);
    refused(&format!("{whole}]\n{whole}}}\n"), JEPSEN, &[(3, "closes nothing"), (6, "closes nothing")]);
}
