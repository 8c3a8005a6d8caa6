//! Porcupine's logs.

use super::{Format, read, refused, shorts};
use crate::{Model, Verdict};

const PORCUPINE: Format = Format::Porcupine;

/// Key-value operations on one key, one after another: `append a`, `put b`, `get ab`.
fn log(operations: &[(u32, &str, &str)]) -> String {
    let both = |(process, f, value): &(u32, &str, &str)| {
        let asked = if *f == "get" { "nil".to_owned() } else { format!("{value:?}") };
        let entry = |stage: &str, value: &str| {
            format!("{{:process {process}, :type :{stage}, :f :{f}, :key \"k\", :value {value}}}\n")
        };
        entry("invoke", &asked) + &entry("ok", &format!("{value:?}"))
    };
    operations.iter().map(both).collect()
}

fn verdict(text: &str) -> Verdict {
    read(text, PORCUPINE).expect("it can be read").judge(Model::Linearizable).verdict
}

#[test]
fn strings_are_taken_apart() {
    let text = log(&[
        (0, "get", ""),
        (0, "append", "a;"),
        (1, "append", "b;"),
        (0, "put", "c;"),
        (1, "append", "d;"),
        (2, "get", "c;d;"),
        (2, "put", ""),
        (2, "append", ""),
        (2, "get", ""),
    ]);
    let history = read(&text, PORCUPINE).unwrap();
    assert_eq!(
        shorts(&history),
        [
            "0 0: r k=null [0,1]",
            // What nobody saw before it was overwritten may have stood anywhere before that.
            "2 0: w k=…2+a; [2,3]",
            "4 1: w k=…4+b; [4,5]",
            "6 0: w k=c; [6,7]",
            "8 1: r k=c; w k=c;d; [8,9]",
            "10 2: r k=c;d; [10,11]",
            "12 2: w k=null [12,13]",
            "16 2: r k=null [16,17]",
        ]
    );
    assert_eq!(history.judge(Model::Linearizable).verdict, Verdict::Holds);
    assert_eq!(verdict(&text.replace("\"c;d;\"", "\"d;c;\"")), Verdict::Violated, "a put is not appended");
    assert_eq!(verdict(&text.replace("\"c;d;\"", "\"c;e;\"")), Verdict::Violated, "nobody wrote e");
    assert_eq!(verdict(&text.replace("\"c;d;\"", "\"c;b;\"")), Verdict::Violated, "b came before c");
}

#[test]
fn keys_without_appends_are_registers() {
    let text = log(&[(0, "put", "aa"), (1, "put", "a"), (0, "put", "aa"), (1, "get", "aa")]);
    assert_eq!(verdict(&text), Verdict::Holds);
    assert_eq!(verdict(&(text + &log(&[(2, "get", "a")]))), Verdict::Violated);
}

#[test]
fn texts_written_twice_are_told_apart_by_time_or_refused() {
    let told = log(&[
        (0, "append", "a;"),
        (1, "get", "a;"),
        (0, "put", "b;"),
        (0, "append", "a;"),
        (1, "get", "b;a;"),
    ]);
    let history = read(&told, PORCUPINE).unwrap();
    assert_eq!(history.told_by_time, ["k"]);
    assert_eq!(shorts(&history)[3], "6 0: r k=b; w k=b;a; [6,7]");
    assert_eq!(history.judge(Model::Linearizable).verdict, Verdict::Holds);
    assert_eq!(
        history.judge(Model::Sequential).verdict,
        Verdict::Holds,
        "some way to tell them apart is enough"
    );
    // A violation that only the telling apart brought about is none of a model without real time.
    let stale = told + &log(&[(1, "get", "a;")]);
    let history = read(&stale, PORCUPINE).unwrap();
    assert_eq!(history.judge(Model::Linearizable).verdict, Verdict::Violated);
    assert_eq!(history.judge(Model::Sequential).verdict, Verdict::Undecided);
    // One on another key is.
    let elsewhere =
        (stale + &log(&[(2, "get", "c;")]).replace("\"k\"", "\"l\"")).replace(":process 2", ":process 1");
    assert_eq!(read(&elsewhere, PORCUPINE).unwrap().judge(Model::Sequential).verdict, Verdict::Violated);

    let both = log(&[(0, "append", "a;"), (0, "append", "b;"), (0, "append", "a;"), (1, "get", "b;a;")]);
    // Either a; may be the one that was seen: the history can be judged, but not by one set of events.
    let overlapping = both.replace("{:process 0, :type :ok, :f :append, :key \"k\", :value \"a;\"}\n", "");
    let overlapping = overlapping.replacen(":process 0", ":process 7", 1);
    refused(&overlapping, PORCUPINE, &[(4, "writes \"a;\" to \"k\" as another operation does")]);
}

#[test]
fn strings_of_several_makings_are_refused() {
    let text = log(&[(0, "append", "a"), (0, "append", "aa"), (1, "get", "aaa")]);
    refused(&text, PORCUPINE, &[(5, "read a string from \"k\" that its pieces can make in several ways")]);
}

#[test]
fn operations_that_are_none_of_a_string_are_faults() {
    let text = log(&[(0, "delete", "a"), (0, "put", "a")])
        + "{:process 1, :type :invoke, :f :get, :value nil}\n"
        + "{:process 2, :type :invoke, :f :get, :key 3, :value nil}\n"
        + "{:process 3, :type :invoke, :f :put, :key \"3\", :value 3}\n"
        + "{:process 4, :type :invoke, :f :put, :key \"3\", :value \"3\"}\n"
        + "{:process 4, :type :ok, :f :put, :key \"3\", :value \"4\"}\n"
        + "{:process 5, :type :invoke, :f :get, :key \"3\"";
    refused(
        &text,
        PORCUPINE,
        &[
            (1, "invokes :delete"),
            (5, "has no :key that is a string"),
            (6, "has no :key that is a string"),
            (7, "has a :value that is no string"),
            (8, "ends with another value than it began with"),
            (10, "is truncated"),
        ],
    );
}

#[test]
fn a_console_log_has_lines_that_say_other_things() {
    let text = "WARN  starting\n\
                INFO  jepsen.util - 0\t:invoke\t:read\tnil\n\
                INFO  jepsen.util - :nemesis\t:info\t:start\tnil\n\
                INFO  jepsen.util - 1\t:invoke\t:write\t4\n\
                INFO  jepsen.util - 0\t:ok\t:read\tnil\n\
                INFO [2026-01-01] worker 2 - jepsen.util 2\t:invoke\t:cas\t[4 1]\n\
                INFO  jepsen.util - 1\t:info\t:write\t:timed-out\n\
                INFO  jepsen.util - 2\t:fail\t:cas\t[4 1]\n";
    assert_eq!(
        shorts(&read(text, PORCUPINE).unwrap()),
        ["0 0: r register=null [0,3]", "2 1: w register=4 [2,]", "4 2: r register=4 w register=1 [4,6]"]
    );
    let bad = text.to_owned()
        + "INFO  jepsen.util - 0\t:ok\t:read\t3\n\
           INFO  jepsen.util - 3\t:invoke\n\
           INFO  jepsen.util - 4\t:invoke\t:drain\tnil\n\
           INFO  jepsen.util - 5\t:invoke\t:cas\t[1";
    refused(
        &bad,
        PORCUPINE,
        &[(9, "never invoked"), (10, "is no operation"), (11, "no register knows"), (12, "is not closed")],
    );
    refused("WARN  starting\n", PORCUPINE, &[(1, "no line of it has an operation")]);
}
