//! The lock table of a shard's leader: strict two-phase locking with wound-wait.
//!
//! # Guarantee
//! At no time do two transactions hold one key of which one holds it exclusively. No deadlock: a transaction waits only
//! for older ones, or for ones that whoever owns the table was told to *wound* (Rosenkrantz, Stearns, Lewis 1978). Locks
//! are given out by age, so that nobody older is passed by. An upgrade from shared to exclusive waits like any other
//! exclusive lock, while the shared one is kept.
//!
//! # Assumptions
//! Whoever owns the table aborts wounded transactions, or sees to it that they end.

use super::message::{Age, Txn, TxnId};
use crate::Map;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// How a key is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// With other readers.
    Shared,
    /// Alone.
    Exclusive,
}

/// Who holds a key and who waits for it.
#[derive(Clone, Debug, Default)]
struct Lock {
    holders: BTreeMap<TxnId, (Age, Mode)>,
    waiters: BTreeMap<Age, (TxnId, Mode)>,
}

impl Lock {
    /// Who stands in the way of a transaction that wants the key.
    fn conflicts(&self, id: TxnId, mode: Mode) -> impl Iterator<Item = (TxnId, Age)> {
        let others = self.holders.iter().filter(move |(holder, _)| **holder != id);
        let conflicting = others.filter(move |(_, (_, held))| mode.max(*held) == Mode::Exclusive);
        conflicting.map(|(holder, (age, _))| (*holder, *age))
    }

    /// Gives the key to those whose turn it is, the oldest first; who no longer waits for it.
    fn settle(&mut self) -> Vec<TxnId> {
        let mut granted = Vec::new();
        while let Some(first) = self.waiters.first_entry() {
            let (age, (id, mode)) = (*first.key(), *first.get());
            if self.conflicts(id, mode).next().is_some() {
                break;
            }
            self.waiters.remove(&age);
            self.holders.insert(id, (age, mode));
            granted.push(id);
        }
        granted
    }
}

/// Keys that a transaction holds or waits for.
#[derive(Clone, Debug)]
struct Wants {
    age: Age,
    keys: BTreeSet<Bytes>,
    /// For how many of them it waits.
    waits: usize,
}

/// The table.
#[derive(Clone, Debug, Default)]
pub struct LockTable {
    locks: Map<Bytes, Lock>,
    wants: BTreeMap<TxnId, Wants>,
}

impl LockTable {
    /// Asks for a lock. It is held at once unless [`Self::waits`] says that the transaction waits.
    pub fn acquire(&mut self, txn: &Txn, key: &Bytes, mode: Mode) {
        let lock = self.locks.entry(key.clone()).or_default();
        let age = txn.age();
        let wants = self.wants.entry(txn.id).or_insert(Wants { age, keys: BTreeSet::new(), waits: 0 });
        wants.keys.insert(key.clone());
        if lock.holders.get(&txn.id).is_some_and(|(_, held)| *held >= mode) {
            return;
        }
        let before = lock.waiters.get(&age).map(|(_, mode)| *mode);
        lock.waiters.insert(age, (txn.id, mode.max(before.unwrap_or(mode))));
        wants.waits += usize::from(before.is_none());
        let granted = lock.settle();
        for id in granted {
            self.note_grant(id);
        }
    }

    fn note_grant(&mut self, id: TxnId) -> bool {
        let Some(wants) = self.wants.get_mut(&id) else { return false };
        wants.waits -= 1;
        wants.waits == 0
    }

    /// Whether the transaction waits for a lock.
    pub fn waits(&self, id: TxnId) -> bool {
        self.wants.get(&id).is_some_and(|wants| wants.waits > 0)
    }

    /// Whether the transaction holds a key at least so.
    pub fn holds(&self, id: TxnId, key: &Bytes, mode: Mode) -> bool {
        let held = self.locks.get(key).and_then(|lock| lock.holders.get(&id));
        held.is_some_and(|(_, held)| *held >= mode)
    }

    /// The younger transactions that hold what this one waits for: to be wounded.
    pub fn younger_in_the_way(&self, id: TxnId) -> BTreeSet<TxnId> {
        let Some(wants) = self.wants.get(&id).filter(|wants| wants.waits > 0) else {
            return BTreeSet::new();
        };
        let waiting = wants.keys.iter().filter_map(|key| {
            let lock = self.locks.get(key)?;
            Some((lock, lock.waiters.get(&wants.age)?.1))
        });
        let conflicts = waiting.flat_map(|(lock, mode)| lock.conflicts(id, mode));
        conflicts.filter(|(_, age)| *age > wants.age).map(|(holder, _)| holder).collect()
    }

    /// The transaction has ended: gives up all that it holds and waits for. Who no longer waits for anything now.
    pub fn release(&mut self, id: TxnId) -> Vec<TxnId> {
        let Some(Wants { age, keys, .. }) = self.wants.remove(&id) else { return Vec::new() };
        let mut freed = Vec::new();
        for key in keys {
            let Some(lock) = self.locks.get_mut(&key) else { continue };
            lock.holders.remove(&id);
            lock.waiters.remove(&age);
            let granted = lock.settle();
            if lock.holders.is_empty() && lock.waiters.is_empty() {
                self.locks.remove(&key);
            }
            freed.extend(granted.into_iter().filter(|id| self.note_grant(*id)));
        }
        freed
    }

    /// Transactions that wait, the number of keys that are locked.
    #[cfg(test)]
    pub(super) fn size(&self) -> (usize, usize) {
        (self.wants.values().filter(|wants| wants.waits > 0).count(), self.locks.len())
    }
}
