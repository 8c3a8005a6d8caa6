//! Two-phase locking and wound-wait.

use super::{key, txn};
use crate::spanner::locks::{LockTable, Mode};
use crate::spanner::message::{Txn, TxnId};
use bytes::Bytes;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const SHARED: Mode = Mode::Shared;
const EXCLUSIVE: Mode = Mode::Exclusive;

fn younger(table: &LockTable, number: u64) -> Vec<u64> {
    table.younger_in_the_way(txn(number).id).into_iter().map(|id| id.number).collect()
}

#[test]
fn readers_share_and_a_writer_waits_for_older_ones() {
    let mut table = LockTable::default();
    let x = key("x");
    table.acquire(&txn(1), &x, SHARED);
    table.acquire(&txn(2), &x, SHARED);
    assert!(!table.waits(txn(1).id) && !table.waits(txn(2).id));
    table.acquire(&txn(3), &x, EXCLUSIVE);
    assert!(table.waits(txn(3).id) && younger(&table, 3).is_empty());
    assert!(table.release(txn(1).id).is_empty());
    assert_eq!(table.release(txn(2).id), [txn(3).id]);
    assert!(table.holds(txn(3).id, &x, EXCLUSIVE) && !table.waits(txn(3).id));
    table.release(txn(3).id);
    assert_eq!(table.size(), (0, 0));
}

#[test]
fn an_older_transaction_wounds_those_in_its_way_and_a_younger_one_waits() {
    let mut table = LockTable::default();
    let x = key("x");
    table.acquire(&txn(5), &x, EXCLUSIVE);
    table.acquire(&txn(7), &x, SHARED);
    assert!(younger(&table, 7).is_empty(), "the younger one waits");
    table.acquire(&txn(3), &x, SHARED);
    assert_eq!(younger(&table, 3), [5]);
    assert_eq!(table.release(txn(5).id), [txn(3).id, txn(7).id]);
}

/// Two readers that both want to write: the upgrade waits like a write, or both would wait for ever.
#[test]
fn of_two_upgrades_the_older_wins() {
    let mut table = LockTable::default();
    let x = key("x");
    table.acquire(&txn(1), &x, SHARED);
    table.acquire(&txn(2), &x, SHARED);
    table.acquire(&txn(2), &x, EXCLUSIVE);
    assert!(table.waits(txn(2).id) && younger(&table, 2).is_empty());
    table.acquire(&txn(1), &x, EXCLUSIVE);
    assert_eq!(younger(&table, 1), [2]);
    table.release(txn(2).id);
    assert!(table.holds(txn(1).id, &x, EXCLUSIVE));
}

/// Otherwise a stream of readers would starve the writer.
#[test]
fn a_younger_reader_does_not_pass_a_writer_that_waits() {
    let mut table = LockTable::default();
    let x = key("x");
    table.acquire(&txn(1), &x, SHARED);
    table.acquire(&txn(2), &x, EXCLUSIVE);
    table.acquire(&txn(3), &x, SHARED);
    assert!(table.waits(txn(3).id));
    assert_eq!(table.release(txn(1).id), [txn(2).id]);
    assert_eq!(table.release(txn(2).id), [txn(3).id]);
}

/// The locks of an attempt whose end was not heard are not waited for by the next attempt.
#[test]
fn a_later_attempt_wounds_an_earlier_one() {
    let mut table = LockTable::default();
    let x = key("x");
    let first = txn(4);
    let second = Txn { id: txn(9).id, ..first };
    table.acquire(&first, &x, EXCLUSIVE);
    table.acquire(&second, &x, EXCLUSIVE);
    assert_eq!(table.younger_in_the_way(second.id), BTreeSet::from([first.id]));
    assert!(table.younger_in_the_way(first.id).is_empty());
}

#[derive(Clone, Debug)]
enum Act {
    Lock(u64, usize, bool),
    Release(u64),
}

fn any_act() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => (1..8_u64, 0..3_usize, any::<bool>()).prop_map(|(t, k, x)| Act::Lock(t, k, x)),
        1 => (1..8_u64).prop_map(Act::Release),
    ]
}

proptest! {
    /// Whatever is asked in whatever order, with the wounded released at once: locks exclude each other, nobody waits
    /// unless somebody older is in the way, and when all others have ended nobody waits at all.
    #[test]
    fn locks_exclude_and_nobody_waits_for_ever(acts in prop::collection::vec(any_act(), 1..60)) {
        let keys = [key("a"), key("b"), key("c")];
        let mut table = LockTable::default();
        let mut wanted: BTreeMap<TxnId, BTreeMap<Bytes, Mode>> = BTreeMap::new();
        for act in acts {
            match act {
                Act::Lock(number, k, exclusive) => {
                    let mode = if exclusive { EXCLUSIVE } else { SHARED };
                    table.acquire(&txn(number), &keys[k], mode);
                    let had = wanted.entry(txn(number).id).or_default().entry(keys[k].clone()).or_insert(mode);
                    *had = mode.max(*had);
                    for victim in table.younger_in_the_way(txn(number).id) {
                        prop_assert!(victim > txn(number).id, "only younger ones are wounded");
                        table.release(victim);
                        wanted.remove(&victim);
                    }
                }
                Act::Release(number) => {
                    let freed = table.release(txn(number).id);
                    prop_assert!(freed.iter().all(|id| !table.waits(*id)));
                    wanted.remove(&txn(number).id);
                }
            }
            for key in &keys {
                let holds = |mode| wanted.keys().filter(|id| table.holds(**id, key, mode)).count();
                prop_assert!(holds(EXCLUSIVE) == 0 || holds(SHARED) == 1);
            }
            // The oldest of all is never in anybody's way but its own.
            if let Some(oldest) = wanted.keys().next() {
                prop_assert!(!table.waits(*oldest), "the oldest waits");
            }
        }
        while let Some(oldest) = wanted.keys().next().copied() {
            prop_assert!(!table.waits(oldest));
            for (key, mode) in &wanted[&oldest] {
                prop_assert!(table.holds(oldest, key, *mode));
            }
            table.release(oldest);
            wanted.remove(&oldest);
        }
        prop_assert_eq!(table.size(), (0, 0));
    }
}
