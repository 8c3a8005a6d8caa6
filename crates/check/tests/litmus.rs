//! Small histories that tell models apart, most of them from the papers, with their known verdicts.

mod common;

use meridian_check::{Model, Verdict, by_search, check};

/// Name, history, whether it is linearizable (strictly serializable, with transactions), whether it is RSC (RSS).
const LITMUS: &[(&str, &str, bool, bool)] = &[
    ("an order in real time", "p1 [0,1] w x 1; p2 [2,3] r x 1", true, true),
    ("F9: RSS/RSC, appendix A", "p1 [0,2] w x 1; p2 [3,5] w y 1; p3 [1,6] r x 0, r y 1", false, false),
    ("F10", "p1 [0,10] w x 1; p2 [1,2] r x 1; p3 [3,4] r x 0", false, true),
    ("F10m: F10 with a message", "p1 [0,10] w x 1; p2 [1,2] r x 1; p3 [3,4] r x 0 after 2", false, false),
    ("F11: write skew", "p1 [0,4] r y 0, w x 1; p2 [1,5] r x 0, w y 1", false, false),
    ("F13: a stale read", "p1 [0,1] w x 1; p2 [2,3] r x 0", false, false),
    ("F14", "p1 [0,20] w x 2; p2 [1,2] r x 2; p3 [3,4] w x 1; p4 [5,6] r x 1; p4 [7,8] r x 2", false, true),
    (
        "F15a: independent reads of independent writes",
        "p1 [0,20] w x 1; p2 [0,20] w y 1; p3 [1,2] r x 1; p3 [3,4] r y 0; p4 [1,2] r y 1; p4 [3,4] r x 0",
        false,
        false,
    ),
    (
        "F15b",
        "p1 [0,20] w x 1; p2 [0,20] w x 2; p3 [1,2] r x 2; p3 [3,4] r x 0; p4 [1,2] r x 2; p4 [3,4] r x 0",
        false,
        false,
    ),
    ("F16", "p1 [0,3] w x 1; p2 [0,3] w x 2; p3 [4,5] r x 1; p4 [4,5] r x 2", false, false),
    (
        "AQS: Gryff, appendix C",
        "p1 [0,1] w x 1; p2 [2,6] w x 2; p3 [3,7] r x 1, w x 3; p4 [8,9] r x 3",
        false,
        false,
    ),
    ("AQSok", "p1 [0,1] w x 1; p2 [2,6] w x 2; p3 [3,7] r x 1, w x 3; p4 [8,9] r x 2", true, true),
    ("S4: RSS/RSC, figure 4", "p1 [0,20] w x 1, w y 1; p2 [1,2] r x 1; p3 [3,4] r y 0", false, true),
    ("S4s", "p1 [0,20] w x 1, w y 1; p2 [1,2] r x 1; p2 [3,4] r y 0", false, false),
    ("FRAC: half a transaction", "p1 [0,20] w x 1, w y 1; p2 [1,2] r x 1, r y 0", false, false),
    (
        "COMP: each of two services is RSC, both are not",
        "p0@x [0,20] w k 1; p9@y [0,20] w k 1; p1@x [1,2] r k 1; p1@y [3,4] r k 0; p2@y [1,2] r k 1; p2@x [3,4] r k 0",
        false,
        false,
    ),
    (
        "COMPRT: a fence at one service, real time across both",
        "p1@x [0,24] w a 1, w b 1; p2@x [5,6] r b 1, w n 1; p3@y [9,11] w q 1; p4@y [12,13] r q 1; \
         p4@y [13,14] fence; p4@x [15,16] r a 0",
        false,
        false,
    ),
    (
        "I2: a photo and its place in a queue",
        "p1@x [0,1] w k 1; p1@q [2,3] w k 1; p2@q [4,5] r k 1, w k 0; p2@x [6,7] r k 0",
        false,
        false,
    ),
    ("MONO", "p1 [0,20] w x 1; p2 [1,2] r x 1; p2 [3,4] r x 0", false, false),
    ("RYW", "p1 [0,1] w x 1; p1 [2,3] r x 0", false, false),
    ("WW", "p1 [0,1] w x 1; p2 [2,3] w y 1; p3 [4,5] r y 1; p3 [6,7] r x 0", false, false),
    (
        "C1: Contrarian, figure 1",
        "p2 [0,1] w x 1; p2 [2,3] w x 2; p2 [4,5] w y 2; p1 [0,6] r x 1, r y 2",
        false,
        false,
    ),
    ("DEKK", "p1 [0,2] w x 1; p1 [3,5] r y 0; p2 [0,2] w y 1; p2 [3,5] r x 0", false, false),
    ("LOST: a lost update", "p1 [0,5] r x 0, w x 1; p2 [1,4] r x 0, w x 2", false, false),
    ("PEND", "p1 [0,] w x 1; p2 [1,2] r x 1; p3 [3,4] r x 0", false, true),
    ("PEND2", "p1 [0,] w x 1; p2 [1,2] r x 1; p2 [3,4] w y 1; p3 [5,6] r y 1; p3 [7,8] r x 0", false, false),
    (
        "WRETRY: a write that surfaced twice",
        "p1 [0,10] w x 1; p2 [1,2] r x 1; p3 [3,4] w x 2; p2 [5,6] r x 2; p2 [7,8] r x 1",
        false,
        false,
    ),
    (
        "RMWSTALE: an rmw that missed a write",
        "p1 [0,1] w x 1; p1 [2,3] w x 2; p2 [4,6] r x 1, w x 3; p3 [7,8] r x 2",
        false,
        false,
    ),
    (
        "DWRITE: a dependency lost in an rmw",
        "p1 [0,30] w x 1; p2 [1,2] r x 1; p2 [3,8] r y 0, w y 1; p3 [4,5] r y 1; p3 [6,7] r x 0",
        false,
        false,
    ),
    (
        "ZIGZAG-R",
        "p1 [0,30] w x c; p2 [1,2] r x c; p2 [3,14] r y 0; p3 [5,7] w y 1; p4 [8,12] w x w; p5 [31,32] r x c; \
         p6 [33,34] r y 1",
        false,
        false,
    ),
    (
        "ZIGZAG-W",
        "p1 [0,30] w x c; p2 [1,2] r x c; p2 [3,16] w y 2; p3 [5,7] w y 1; p4 [8,12] w x w; p5 [31,32] r x c; \
         p6 [33,34] r y 1",
        false,
        false,
    ),
    (
        "a pending write that nobody saw",
        "p1 [0,] w x 1; p2 [1,2] r x 0; p3 [3,4] w x 2; p2 [5,6] r x 2",
        true,
        true,
    ),
    (
        "a pending deletion seen late",
        "p1 [0,1] w x 1; p2 [2,] w x 0; p3 [3,4] r x 1; p3 [5,6] r x 0",
        true,
        true,
    ),
    ("a value that nobody wrote", "p1 [0,1] w x 1; p2 [2,3] r x 7", false, false),
    ("pipelined reads have no order", "p1 [0,20] w x 1; p2 [1,5] r x 1; p2 [2,4] r x 0", true, true),
    (
        "a fence makes what was seen visible to all",
        "p1 [0,30] w x 1; p2 [1,2] r x 1; p2 [3,4] fence; p3 [5,6] r x 0",
        false,
        false,
    ),
    ("a fence that has seen nothing", "p1 [0,30] w x 1; p2 [1,2] fence; p3 [5,6] r x 0", true, true),
];

#[test]
fn every_litmus_history_gets_its_verdict() {
    let mut wrong = Vec::new();
    for (name, text, linearizable, rsc) in LITMUS {
        let events = common::history(text);
        for (model, allowed) in [(Model::Linearizable, *linearizable), (Model::Rsc, *rsc)] {
            let judgement = by_search(model, &events);
            assert_eq!(judgement, check(model, &events), "{name}: no witness, so the two are one");
            let expected = if allowed { Verdict::Holds } else { Verdict::Violated };
            if judgement.verdict != expected {
                wrong.push(format!("{name}: {model} {}: {}", judgement.verdict, judgement.reason));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_reason_names_the_operations() {
    let reason = |text: &str| by_search(Model::Linearizable, &common::history(text)).reason;
    assert_eq!(
        reason("p1 [0,1] w x 1; p2 [2,3] r x 0"),
        "no order can keep all of this: op 1 (p1: w x=1) returned before the invocation of op 2 (p2: r x=null) \
         was overwritten by op 1 (p1: w x=1)"
    );
    assert_eq!(
        reason("p1 [0,1] w x 1; p2 [2,3] r x 7"),
        "op 2 (p2: r x=7) read 7 from x, which no operation that may have happened wrote"
    );
}

#[test]
fn an_empty_history_holds_and_a_long_one_without_witness_is_undecided() {
    assert_eq!(check(Model::Rsc, &[]).verdict, Verdict::Holds);
    let long: Vec<String> = (1..200).map(|i| format!("p{i} [0,1000] w x {i}")).collect();
    assert_eq!(check(Model::Rsc, &common::history(&long.join(";"))).verdict, Verdict::Undecided);
}
