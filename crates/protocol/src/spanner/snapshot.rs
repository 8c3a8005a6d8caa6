//! Read-only transactions at a shard (RSS/RSC, Algorithm 2).
//!
//! Line 4 is [`Replica::advance_reader`]'s promise under the lease; 5-7 the transactions in the way and those that must
//! be waited for; 8-10 [`Replica::answer_reader`], values and skipped transactions in one step; 11-18 `end_pending`, for
//! those that were skipped only.

use super::lead::Pending;
use super::message::{Held, Reason, Reply, Skipped, Snapshot, Timestamp, TxnId};
use super::replica::{Replica, Step};
use crate::clock::Micros;
use crate::planted::Planted;
use bytes::Bytes;
use std::collections::BTreeSet;

/// A read that waits.
#[derive(Clone, Debug)]
pub(super) struct Reader {
    pub(super) snapshot: Snapshot,
    /// A listing in place of reads of keys.
    list: Option<List>,
    pub(super) since: Micros,
    /// It waits for a transaction, not for the lease.
    blocked: bool,
    /// Only with a bug planted: values from before the wait.
    early: Option<Vec<Held>>,
}

/// What to list.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    /// Keys whose hash is at least this.
    pub(super) from: u64,
    /// About how many.
    pub(super) count: u32,
    /// Time for judging expiry, ms.
    pub(super) at_ms: u64,
}

impl Replica {
    pub(super) fn on_snapshot(&mut self, cx: &mut Step<'_>, snapshot: Snapshot, list: Option<List>) {
        let id = snapshot.id;
        if cx.now.truetime().is_none() {
            return self.reply(cx, id, Reply::Refused { id, reason: Reason::NoClock });
        }
        let bug = self.settings.plant.has(Planted::ValuesBeforeSkipped);
        let early = bug.then(|| snapshot.keys.iter().map(|key| self.held(key, snapshot.at)).collect());
        let since = cx.now.monotonic;
        self.lead.read_at = Some(since);
        self.lead.readers.insert(id, Reader { snapshot, list, since, blocked: false, early });
        self.advance_reader(cx, id);
    }

    /// Lists keys as of now.
    pub(super) fn on_list(&mut self, cx: &mut Step<'_>, id: TxnId, list: List) {
        let at = cx.now.truetime().map_or(0, |time| time.latest);
        let snapshot = Snapshot { id, attempt: 0, keys: Vec::new(), at, min: at };
        self.on_snapshot(cx, snapshot, Some(list));
    }

    /// The lease is longer: reads that waited for it go on.
    pub(super) fn advance_readers(&mut self, cx: &mut Step<'_>) {
        let waiting = self.lead.readers.iter().filter(|(_, reader)| !reader.blocked);
        for id in waiting.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.advance_reader(cx, id);
        }
    }

    /// Answers a read, if nothing stands in its way.
    pub(super) fn advance_reader(&mut self, cx: &mut Step<'_>, id: TxnId) {
        let Some(reader) = self.lead.readers.get_mut(&id) else { return };
        let (at, min) = (reader.snapshot.at, reader.snapshot.min);
        reader.blocked = false;
        self.extend_lease(cx, at);
        if at > self.log.state().lease() {
            return;
        }
        self.promise(at);
        let in_the_way = self.in_the_way(id);
        let late = self.settings.plant.has(Planted::SkipPastEarliestEnd);
        let must_see = |pending: &Pending| {
            pending.at <= min || (pending.part.earliest_end <= at && !(late && pending.part.earliest_end > 0))
        };
        let mut blocked = false;
        for txn in &in_the_way {
            let Some(pending) = self.lead.pending.get_mut(txn) else { continue };
            if must_see(pending) {
                self.counters.awaited += u64::from(pending.blocks.insert(id));
                blocked = true;
            }
        }
        if !blocked {
            return self.answer_reader(cx, id, &in_the_way);
        }
        if let Some(reader) = self.lead.readers.get_mut(&id) {
            reader.blocked = true;
            self.counters.blocked_read += 1;
        }
    }

    /// Transactions with a timestamp not above the read's that write what it reads.
    fn in_the_way(&self, id: TxnId) -> BTreeSet<TxnId> {
        let Some(reader) = self.lead.readers.get(&id) else { return BTreeSet::new() };
        let at = reader.snapshot.at;
        let before = |txn: &&TxnId| self.lead.pending.get(txn).is_some_and(|pending| pending.at <= at);
        if reader.list.is_some() {
            return self.lead.pending.keys().filter(before).copied().collect();
        }
        let writers = reader.snapshot.keys.iter().filter_map(|key| self.lead.writers.get(key));
        writers.filter(before).copied().collect()
    }

    /// The newest version of a key that is not younger than `at`, and may be seen.
    fn held(&self, key: &Bytes, at: Timestamp) -> Held {
        // A commit that the log has and whose timestamp has not passed is not to be seen. Nothing newer can be there.
        let writer = self.lead.writers.get(key).and_then(|txn| self.lead.pending.get(txn));
        let at = writer.map_or(at, |pending| at.min(pending.at.saturating_sub(1)));
        Held { key: key.clone(), version: self.log.state().versions().read(key, at) }
    }

    /// Values and skipped transactions, as they are in this one step.
    fn answer_reader(&mut self, cx: &mut Step<'_>, id: TxnId, skipped: &BTreeSet<TxnId>) {
        let Some(reader) = self.lead.readers.remove(&id) else { return };
        let Snapshot { attempt, keys, at, .. } = reader.snapshot;
        if at < self.state().versions().horizon() {
            return self.reply(cx, id, Reply::Refused { id, reason: Reason::TooOld });
        }
        if let Some(List { from, count, at_ms }) = reader.list {
            let (keys, next) = self.state().versions().list(at, from, count as usize, at_ms);
            return self.reply(cx, id, Reply::Page { id, keys, next });
        }
        let held = reader.early.unwrap_or_else(|| keys.iter().map(|key| self.held(key, at)).collect());
        let skipped: Vec<_> = skipped.iter().filter_map(|txn| self.skip(*txn, id, &keys)).collect();
        self.counters.fast_reply += 1;
        self.counters.skipped += skipped.len() as u64;
        let waited = cx.now.monotonic - reader.since;
        self.reply(cx, id, Reply::Fast { id, attempt, held, skipped, waited });
    }

    /// A transaction that a read does not wait for: the read is told when it ends.
    fn skip(&mut self, txn: TxnId, reader: TxnId, keys: &[Bytes]) -> Option<Skipped> {
        let pending = self.lead.pending.get_mut(&txn)?;
        pending.skipped_by.insert(reader);
        let writes = pending.part.writes.iter().filter(|write| keys.contains(&write.key));
        Some(Skipped { txn, prepared: pending.at, writes: writes.cloned().collect() })
    }
}
