//! Operations of unknown outcome carry no witness. What others saw of them says what they did, or refutes it.

mod common;

use meridian_check::{Model, Verdict, by_witness};

fn verdict(text: &str) -> (Verdict, String) {
    let events = common::history(text);
    let [linearizable, rsc] = [Model::Linearizable, Model::Rsc].map(|model| by_witness(model, &events));
    assert_eq!(linearizable.verdict, rsc.verdict, "{}; {}", linearizable.reason, rsc.reason);
    (linearizable.verdict, linearizable.reason)
}

fn holds(text: &str) {
    let (verdict, reason) = verdict(text);
    assert_eq!(verdict, Verdict::Holds, "{reason}");
}

fn violated(text: &str, because: &str) {
    let (verdict, reason) = verdict(text);
    assert_eq!(verdict, Verdict::Violated, "{reason}");
    assert!(reason.contains(because), "{reason}");
}

#[test]
fn a_write_that_was_seen_happened() {
    holds("p1 [0,] w x 1; p2 [1,2] r x 1 cs 1 1 0; p3 [3,4] w x 2 cs 2 1 0; p2 [5,6] r x 2 cs 2 1 0");
    violated(
        "p1 [0,] w x 1; p2 [1,2] r x 1 cs 1 1 0; p3 [3,4] w x 2 cs 0 9 0; p2 [5,6] r x 2 cs 0 9 0",
        "before",
    );
}

#[test]
fn a_write_that_was_not_seen_may_never_have_happened() {
    holds("p1 [0,] w x 1; p2 [1,2] r x 0 cs 0 0 0");
}

#[test]
fn a_write_happens_at_one_place_only() {
    violated("p1 [0,] w x 1; p2 [1,2] r x 1 cs 1 1 0; p2 [3,4] r x 1 cs 2 1 0", "more than once");
}

#[test]
fn a_value_of_nobody_is_refused() {
    violated("p1 [0,1] w x 1 cs 1 1 0; p2 [2,3] r x 7 cs 2 1 0", "no update created");
}

#[test]
fn a_deletion_of_unknown_outcome_explains_absence() {
    holds("p1 [0,1] w x 1 cs 1 1 0; p2 [2,] w x 0; p3 [3,4] r x 0 cs 1 1 1");
    violated("p1 [0,1] w x 1 cs 1 1 0; p3 [3,4] r x 0 cs 1 1 1", "no update created");
}

#[test]
fn deletions_are_told_apart_by_when_they_were_invoked() {
    // Two versions are absent: the lower one is the first deletion's, whoever saw it when.
    holds(
        "p1 [0,] w x 0; p2 [1,2] w x 1 cs 2 1 0; p3 [10,] w x 0; p4 [11,12] r x 0 cs 3 1 0; p5 [13,14] w x 2 cs 4 1 0",
    );
    violated("p1 [5,] w x 0; p2 [1,2] r x 0 cs 1 1 0; p3 [3,4] w x 1 cs 2 1 0", "before");
}

#[test]
fn an_rmw_that_changed_nothing_needs_an_operation_that_may_have_done_so() {
    let seen = "p2 [3,4] r x 1 cs 1 1 1; p2 [5,6] r x 1 cs 1 1 1";
    holds(&format!("p1 [0,1] w x 1 cs 1 1 0; p3 [2,] r x 9, w x 8; {seen}"));
    violated(&format!("p1 [0,1] w x 1 cs 1 1 0; {seen}"), "no update created");
}

#[test]
fn links_of_a_chain_of_unknown_rmws_are_found_one_by_one() {
    let chain = "p2 [2,] r x 1, w x 12; p3 [3,] r x 12, w x 123";
    holds(&format!("p1 [0,1] w x 1 cs 1 1 0; {chain}; p4 [5,6] r x 123 cs 1 1 2"));
    violated(&format!("p1 [0,1] w x 1 cs 1 1 0; {chain}; p4 [5,6] r x 123 cs 1 1 1"), "");
}

#[test]
fn the_deletion_below_a_chain_is_not_taken_for_a_later_one() {
    // op 2 made way for op 3; the deletion that was invoked last explains only what was seen last.
    holds(
        "p1 [0,1] w x 1 cs 1 1 0; p2 [2,] w x 0; p3 [3,] r x 0, w x 3; p4 [5,6] r x 3 cs 1 1 2; \
         p5 [7,8] w x 4 cs 2 1 0; p6 [20,] w x 0; p7 [21,22] r x 0 cs 2 1 1",
    );
}
