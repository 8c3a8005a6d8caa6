//! Multi-version storage against a model that forgets nothing.

use super::{key, txn, value};
use crate::object::State;
use crate::spanner::versions::{Version, Versions};
use proptest::prelude::*;
use std::collections::BTreeMap;

#[expect(clippy::unnecessary_wraps, reason = "what a key holds is an option")]
fn some(text: &str) -> State {
    Some(value(text))
}

fn version(at: u64, value: State) -> Version {
    Version { at, writer: txn(at).id, value }
}

#[test]
fn a_read_finds_the_newest_version_that_is_not_younger() {
    let mut versions = Versions::default();
    let x = key("x");
    assert_eq!(versions.read(&x, u64::MAX), Version::default());
    versions.write(&x, version(10, some("a")));
    versions.write(&x, version(20, None));
    assert_eq!(versions.read(&x, 9), Version::default());
    assert_eq!(versions.read(&x, 10).value, some("a"));
    assert_eq!(versions.read(&x, 19).value, some("a"));
    assert_eq!(versions.read(&x, 20), version(20, None));
}

/// A deleted key keeps its last version: who watches it must see that it has changed.
#[test]
fn the_newest_version_stays() {
    let mut versions = Versions::default();
    versions.write(&key("x"), version(10, some("a")));
    versions.write(&key("x"), version(20, None));
    let before = versions.bytes();
    versions.collect(19);
    assert_eq!(versions.bytes(), before);
    versions.collect(20);
    assert!(versions.bytes() < before);
    assert_eq!(versions.read(&key("x"), 10), Version::default(), "forgotten, and no longer served");
    assert_eq!(versions.read(&key("x"), 20), version(20, None));
    versions.collect(5);
    assert_eq!(versions.horizon(), 20, "the horizon does not go back");
}

#[test]
#[should_panic(expected = "in the order of their timestamps")]
fn a_version_between_others_is_a_bug() {
    let mut versions = Versions::default();
    versions.write(&key("x"), version(10, some("a")));
    versions.write(&key("x"), version(10, some("b")));
}

#[test]
fn a_listing_is_of_its_time() {
    let mut versions = Versions::default();
    for number in 0..30_u64 {
        versions.write(&key(&format!("k{number}")), version(number + 1, some("v")));
    }
    versions.write(&key("k3"), version(40, None));
    let mut listed = Vec::new();
    let mut from = 0;
    loop {
        let (page, next) = versions.list(25, from, 4, 0);
        listed.extend(page.into_iter().map(|listed| listed.key));
        let Some(next) = next else { break };
        from = next;
    }
    listed.sort_unstable();
    let mut expected: Vec<_> = (0..25).map(|number| key(&format!("k{number}"))).collect();
    expected.sort_unstable();
    assert_eq!(listed, expected);
    assert_eq!(versions.list(50, 0, 100, 0).0.len(), 29);
}

proptest! {
    /// Whatever is collected, reads from the horizon on see what they would have seen; and a copy made of the facts
    /// sees the same.
    #[test]
    fn collecting_changes_no_read_above_the_horizon(
        steps in prop::collection::vec((0..4_u8, any::<bool>(), 0..40_u64), 1..80),
    ) {
        let mut versions = Versions::default();
        let mut all: BTreeMap<u8, Vec<Version>> = BTreeMap::new();
        let mut now = 0;
        for (k, collects, amount) in steps {
            if collects {
                versions.collect(amount.min(now));
            } else {
                now += 1 + amount % 3;
                let written = version(now, (amount % 5 > 0).then(|| some("v")).flatten());
                versions.write(&key(&k.to_string()), written.clone());
                all.entry(k).or_default().push(written);
            }
        }
        let mut copy = Versions::default();
        for (name, versions) in versions.after(None) {
            copy.restore(name, versions.to_vec());
        }
        copy.collect(versions.horizon());
        prop_assert_eq!(copy.bytes(), versions.bytes());
        for (k, written) in &all {
            for at in versions.horizon()..=now {
                let expected = written.iter().rev().find(|version| version.at <= at).cloned();
                let expected = expected.unwrap_or_default();
                prop_assert_eq!(&versions.read(&key(&k.to_string()), at), &expected);
                prop_assert_eq!(&copy.read(&key(&k.to_string()), at), &expected);
            }
        }
    }
}
