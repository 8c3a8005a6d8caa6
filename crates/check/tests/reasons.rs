//! What a verdict says beside yes and no.

mod common;

use meridian_check::{Model, Verdict, by_search, check};

#[test]
fn the_reason_names_the_operations() {
    let reason = |text: &str| by_search(Model::Linearizable, &common::history(text)).reason;
    assert_eq!(
        reason("p1 [0,1] w x 1; p2 [2,3] r x 0"),
        "no order can keep all of this: op 1 (p1: w x=1) returned before the invocation of op 2 (p2: r x=null), \
         which was overwritten by op 1 (p1: w x=1)"
    );
    assert_eq!(
        reason("p1 [0,1] w x 1; p2 [2,3] r x 7"),
        "op 2 (p2: r x=7) read 7 from x, which no operation that may have happened wrote"
    );
}

#[test]
fn an_empty_history_holds() {
    assert_eq!(check(Model::Rsc, &[]).verdict, Verdict::Holds);
}
