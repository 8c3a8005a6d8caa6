//! What the log of a shard drives: versions, prepared transactions, decisions, and the timestamps that were given away.
//!
//! # Guarantee
//! - Of a transaction that is decided nothing else is ever decided or prepared: its decision stands as a *tombstone*
//!   until no timestamp below its `until` can be given, and after that it is refused for being late. So the tombstones
//!   are bounded by the transactions begun in one lifetime of a transaction. One that committed stays, whatever the
//!   time, until all its participants have said that they know.
//! - [`Shard::safe`]: transactions prepared, and those committed that were not prepared here, behind this point of the
//!   log have timestamps above it.
//! - [`Shard::lease`]: leaders of later terms give only timestamps above it. So what a leader promises below it, without
//!   a word in the log, is kept by all that come after.
//!
//! # Assumptions
//! Leaders propose timestamps that only grow, beginning above `safe` and `lease` (`lead`).

use super::message::{Part, Partition, Timestamp, Txn, TxnId, Write};
use super::versions::{Version, Versions};
use crate::multipaxos::log::{Ballot, Slot, StateMachine};
use crate::notices::Notices;
use crate::topology::key_hash;
use crate::{machine, wire};
use bytes::Bytes;
use imbl::{OrdMap, OrdSet};
use minicbor::{Decode, Encode};
use std::collections::BTreeSet;
use std::sync::Arc;

/// An entry of the log: what the leader of a term wants done.
///
/// It counts only if nothing of a later term stands before it. What a deposed leader has proposed may be taken up by a later
/// one *behind* entries of a leader in between, who knew nothing of it when it gave locks and timestamps.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct Command {
    /// The term in which it was proposed.
    #[n(0)]
    pub term: Ballot,
    /// What is to be done.
    #[n(1)]
    pub action: Action,
}

/// What an entry does.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub enum Action {
    /// A participant's part is prepared.
    #[n(0)]
    Prepare(#[n(0)] Prepared),
    /// The coordinator has decided to commit.
    #[n(1)]
    Commit {
        /// Its own part.
        #[n(0)]
        part: Part,
        /// The commit timestamp.
        #[n(1)]
        at: Timestamp,
        /// The latest of the shards' earliest ends.
        #[n(2)]
        earliest_end: Timestamp,
        /// Who must learn of it.
        #[n(3)]
        participants: Vec<Partition>,
    },
    /// At a participant: what was decided. At a coordinator: aborted.
    #[n(2)]
    Decide {
        /// The transaction.
        #[n(0)]
        txn: Txn,
        /// Its commit timestamp, or that it is aborted.
        #[n(1)]
        at: Option<Timestamp>,
    },
    /// No timestamp up to `lease` will be given by other leaders, none up to `safe` by anybody.
    #[n(3)]
    Lease {
        /// The end of the lease.
        #[n(0)]
        lease: Timestamp,
        /// The highest timestamp given or promised so far.
        #[n(1)]
        safe: Timestamp,
        /// Versions that only reads below this time can see are not needed.
        #[n(2)]
        horizon: Timestamp,
        /// Transactions of which all participants know what was decided.
        #[n(3)]
        known: Vec<TxnId>,
    },
}

/// A participant's part that waits for the coordinator's decision.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct Prepared {
    /// The part; its earliest end is the clamped one.
    #[n(0)]
    pub part: Part,
    /// The prepare timestamp.
    #[n(1)]
    pub at: Timestamp,
    /// Who decides.
    #[n(2)]
    pub coordinator: Partition,
}

/// What was decided.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct Decision {
    /// The transaction.
    #[n(0)]
    pub txn: Txn,
    /// The commit timestamp and the earliest end, or that it is aborted.
    #[n(1)]
    pub committed: Option<(Timestamp, Timestamp)>,
    /// At the coordinator: participants that have not said yet that they know.
    #[n(2)]
    pub participants: Vec<Partition>,
}

/// The timestamps of a shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Clocks {
    /// See [`Shard::safe`].
    #[n(0)]
    pub safe: Timestamp,
    /// See [`Shard::lease`].
    #[n(1)]
    pub lease: Timestamp,
    /// The newest commit timestamp.
    #[n(2)]
    pub newest: Timestamp,
    /// Reads below this time are not served.
    #[n(3)]
    pub horizon: Timestamp,
    /// The latest term of which something was applied.
    #[n(4)]
    pub term: Ballot,
}

/// A part of the state.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub enum Fact {
    /// A key's versions.
    #[n(0)]
    Key(
        #[n(0)]
        #[cbor(with = "crate::wire::blob")]
        Bytes,
        #[n(1)] Vec<Version>,
    ),
    /// A prepared part, or that it is decided.
    #[n(1)]
    Prepared(#[n(0)] TxnId, #[n(1)] Option<Prepared>),
    /// A decision, or that it is forgotten.
    #[n(2)]
    Decision(#[n(0)] TxnId, #[n(1)] Option<Decision>),
    /// The timestamps.
    #[n(3)]
    Clocks(#[n(0)] Clocks),
}

/// What applying tells the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// A participant's part is prepared.
    Prepared(TxnId),
    /// The coordinator's commit is decided.
    Committed(TxnId),
    /// A participant knows the decision, or the coordinator's abort is decided.
    Decided(TxnId),
    /// The lease is longer.
    Lease,
}

/// One shard.
#[derive(Clone, Debug, Default)]
pub struct Shard {
    versions: Versions,
    prepared: OrdMap<TxnId, Arc<Prepared>>,
    decisions: OrdMap<TxnId, Arc<Decision>>,
    /// Decisions that wait for nothing but time, by the time after which they are not needed.
    fading: OrdSet<(Timestamp, TxnId)>,
    clocks: Clocks,
    changed_prepared: BTreeSet<TxnId>,
    changed_decisions: BTreeSet<TxnId>,
}

/// Where a page of a snapshot ends.
#[derive(Encode, Decode)]
enum Cursor {
    #[n(0)]
    Key(
        #[n(0)]
        #[cbor(with = "crate::wire::blob")]
        Bytes,
    ),
    #[n(1)]
    Prepared(#[n(0)] TxnId),
    #[n(2)]
    Decision(#[n(0)] TxnId),
}

impl Shard {
    /// The keys with their versions.
    pub fn versions(&self) -> &Versions {
        &self.versions
    }

    /// Where it tells of keys that somebody waits for.
    pub(super) fn notices(&mut self) -> &mut Notices {
        &mut self.versions.notices
    }

    /// Prepared parts.
    pub fn prepared(&self) -> &OrdMap<TxnId, Arc<Prepared>> {
        &self.prepared
    }

    /// Decisions that are not forgotten.
    pub fn decisions(&self) -> &OrdMap<TxnId, Arc<Decision>> {
        &self.decisions
    }

    /// No timestamp up to this one is given behind this point of the log, but to what is prepared.
    pub fn safe(&self) -> Timestamp {
        self.clocks.safe
    }

    /// No timestamp up to this one is given by leaders of later terms.
    pub fn lease(&self) -> Timestamp {
        self.clocks.lease
    }

    /// The latest term of which something was applied: nothing of earlier ones counts any more.
    pub fn term(&self) -> Ballot {
        self.clocks.term
    }

    /// The newest commit timestamp.
    pub fn newest(&self) -> Timestamp {
        self.clocks.newest
    }

    fn prepare(&mut self, prepared: &Prepared) -> Option<Applied> {
        let id = prepared.part.txn.id;
        self.clocks.safe = self.clocks.safe.max(prepared.at);
        if self.decisions.contains_key(&id) {
            return None;
        }
        self.prepared.insert(id, Arc::new(prepared.clone()));
        self.changed_prepared.insert(id);
        Some(Applied::Prepared(id))
    }

    /// Takes over a part's writes.
    fn write(&mut self, id: TxnId, writes: &[Write], at: Timestamp) {
        for Write { key, value } in writes {
            self.versions.write(key, Version { at, writer: id, value: value.clone() });
        }
        self.clocks.safe = self.clocks.safe.max(at);
        self.clocks.newest = self.clocks.newest.max(at);
    }

    fn commit(
        &mut self,
        part: &Part,
        (at, earliest_end): (Timestamp, Timestamp),
        participants: &[Partition],
    ) -> Option<Applied> {
        let id = part.txn.id;
        if self.decisions.contains_key(&id) {
            return None;
        }
        self.write(id, &part.writes, at);
        let participants = participants.to_vec();
        self.decide(Decision { txn: part.txn, committed: Some((at, earliest_end)), participants });
        Some(Applied::Committed(id))
    }

    /// What was prepared takes effect, or not.
    fn finish(&mut self, txn: Txn, at: Option<Timestamp>) -> Option<Applied> {
        if self.decisions.contains_key(&txn.id) {
            return None;
        }
        let prepared = self.prepared.remove(&txn.id);
        if prepared.is_some() {
            self.changed_prepared.insert(txn.id);
        }
        let mut committed = None;
        if let (Some(prepared), Some(at)) = (prepared, at) {
            self.write(txn.id, &prepared.part.writes, at);
            committed = Some((at, prepared.part.earliest_end));
        }
        self.decide(Decision { txn, committed, participants: Vec::new() });
        Some(Applied::Decided(txn.id))
    }

    fn decide(&mut self, decision: Decision) {
        let Txn { id, until, .. } = decision.txn;
        if decision.participants.is_empty() {
            self.fading.insert((until, id));
        }
        self.decisions.insert(id, Arc::new(decision));
        self.changed_decisions.insert(id);
    }

    /// All participants of these know.
    fn note_known(&mut self, known: &[TxnId]) {
        for id in known {
            let Some(decision) = self.decisions.get_mut(id) else { continue };
            Arc::make_mut(decision).participants.clear();
            self.fading.insert((decision.txn.until, *id));
            self.changed_decisions.insert(*id);
        }
    }

    /// Forgets decisions of transactions that are refused for being late.
    fn forget(&mut self) {
        while let Some((until, id)) = self.fading.get_min().copied()
            && until <= self.clocks.safe
        {
            self.fading.remove(&(until, id));
            self.decisions.remove(&id);
            self.changed_decisions.insert(id);
        }
    }

    fn fact_of_prepared(&self, id: TxnId) -> Fact {
        Fact::Prepared(id, self.prepared.get(&id).map(|prepared| (**prepared).clone()))
    }

    fn fact_of_decision(&self, id: TxnId) -> Fact {
        Fact::Decision(id, self.decisions.get(&id).map(|decision| (**decision).clone()))
    }
}

/// Fills a page until it has so many bytes.
struct Page {
    facts: Vec<Fact>,
    bytes: usize,
    limit: usize,
}

impl Page {
    /// Adds a fact; where the page ends if that was the last for which there was room.
    fn add(&mut self, fact: Fact, cursor: &Cursor) -> Option<Bytes> {
        self.bytes += wire::length(&fact);
        self.facts.push(fact);
        (self.bytes >= self.limit).then(|| {
            let mut buffer = Vec::new();
            wire::encode(cursor, &mut buffer);
            buffer.into()
        })
    }
}

impl StateMachine for Shard {
    type Command = Command;
    type Fact = Fact;
    type Answer = Applied;
    const NEEDS_CLOCK: bool = true;

    fn apply(&mut self, _: Slot, command: &Command, leading: bool) -> Option<Applied> {
        if command.term < self.clocks.term {
            return None;
        }
        self.clocks.term = command.term;
        let applied = match &command.action {
            Action::Prepare(prepared) => self.prepare(prepared),
            Action::Commit { part, at, earliest_end, participants } => {
                self.commit(part, (*at, *earliest_end), participants)
            }
            Action::Decide { txn, at } => self.finish(*txn, *at),
            Action::Lease { lease, safe, horizon, known } => {
                self.clocks.lease = self.clocks.lease.max(*lease);
                self.clocks.safe = self.clocks.safe.max(*safe);
                self.versions.collect(*horizon);
                self.note_known(known);
                Some(Applied::Lease)
            }
        };
        self.forget();
        applied.filter(|_| leading)
    }

    fn checkpoint(&mut self) -> Vec<Fact> {
        let keys = self.versions.take_changed().into_iter();
        let mut facts: Vec<Fact> = keys.map(|(key, versions)| Fact::Key(key, versions)).collect();
        let prepared = std::mem::take(&mut self.changed_prepared);
        facts.extend(prepared.into_iter().map(|id| self.fact_of_prepared(id)));
        let decisions = std::mem::take(&mut self.changed_decisions);
        facts.extend(decisions.into_iter().map(|id| self.fact_of_decision(id)));
        facts.push(Fact::Clocks(Clocks { horizon: self.versions.horizon(), ..self.clocks }));
        facts
    }

    fn restore(&mut self, fact: Fact) {
        match fact {
            Fact::Key(key, versions) => self.versions.restore(&key, versions),
            Fact::Prepared(id, Some(prepared)) => {
                self.prepared.insert(id, Arc::new(prepared));
            }
            Fact::Decision(id, Some(decision)) => {
                if decision.participants.is_empty() {
                    self.fading.insert((decision.txn.until, id));
                }
                self.decisions.insert(id, Arc::new(decision));
            }
            Fact::Prepared(_, None) | Fact::Decision(_, None) => {}
            Fact::Clocks(clocks) => {
                self.clocks = clocks;
                self.versions.collect(clocks.horizon);
            }
        }
    }

    /// Keys in the order of listing, then prepared parts, then decisions, then the timestamps.
    fn page(&self, after: &Bytes, bytes: usize) -> (Vec<Fact>, Option<Bytes>) {
        let cursor = if after.is_empty() { None } else { wire::decode::<Cursor>(after).ok() };
        let (key, prepared, decision) = match cursor {
            None => (Some(None), Some(None), None),
            Some(Cursor::Key(key)) => (Some(Some(key)), Some(None), None),
            Some(Cursor::Prepared(id)) => (None, Some(Some(id)), None),
            Some(Cursor::Decision(id)) => (None, None, Some(id)),
        };
        let mut page = Page { facts: Vec::new(), bytes: 0, limit: bytes };
        if let Some(key) = key {
            for (key, versions) in self.versions.after(key.as_ref()) {
                let fact = Fact::Key(key.clone(), versions.to_vec());
                if let Some(end) = page.add(fact, &Cursor::Key(key.clone())) {
                    return (page.facts, Some(end));
                }
            }
        }
        if let Some(after) = prepared {
            for id in self.prepared.range(after.unwrap_or_default()..).map(|(id, _)| *id) {
                if Some(id) != after
                    && let Some(end) = page.add(self.fact_of_prepared(id), &Cursor::Prepared(id))
                {
                    return (page.facts, Some(end));
                }
            }
        }
        for id in self.decisions.range(decision.unwrap_or_default()..).map(|(id, _)| *id) {
            if Some(id) != decision
                && let Some(end) = page.add(self.fact_of_decision(id), &Cursor::Decision(id))
            {
                return (page.facts, Some(end));
            }
        }
        page.facts.push(Fact::Clocks(Clocks { horizon: self.versions.horizon(), ..self.clocks }));
        (page.facts, None)
    }

    fn install(&mut self, facts: Vec<Fact>) {
        self.changed_prepared.extend(self.prepared.keys().copied());
        self.changed_decisions.extend(self.decisions.keys().copied());
        self.versions.clear();
        (self.prepared, self.decisions, self.fading) = (OrdMap::new(), OrdMap::new(), OrdSet::new());
        for fact in facts {
            self.restore(fact);
        }
        self.versions.touch_all();
        self.changed_prepared.extend(self.prepared.keys().copied());
        self.changed_decisions.extend(self.decisions.keys().copied());
    }

    fn digest(&self) -> u64 {
        let mut buffer = Vec::new();
        let mut sum = 0_u64;
        let mut add = |fact: &Fact| {
            buffer.clear();
            wire::encode(fact, &mut buffer);
            sum = sum.wrapping_add(key_hash(&buffer));
        };
        for (key, versions) in self.versions.after(None) {
            add(&Fact::Key(key.clone(), versions.to_vec()));
        }
        for id in self.prepared.keys() {
            add(&self.fact_of_prepared(*id));
        }
        for id in self.decisions.keys() {
            add(&self.fact_of_decision(*id));
        }
        add(&Fact::Clocks(Clocks { horizon: self.versions.horizon(), ..self.clocks }));
        sum
    }
}

fn encode_id(tag: u8, id: TxnId, buffer: &mut Vec<u8>) {
    buffer.push(tag);
    buffer.extend_from_slice(&id.client().0.to_be_bytes());
    buffer.extend_from_slice(&id.number.to_be_bytes());
}

fn decode_id(rest: &[u8]) -> Result<TxnId, String> {
    let bytes: [u8; 16] = rest.try_into().map_err(|_| "the record's key names no transaction")?;
    let (client, number) = bytes.split_at(8);
    let word = |bytes: &[u8]| bytes.iter().fold(0_u64, |word, byte| word << 8 | u64::from(*byte));
    Ok(TxnId::new(crate::topology::ClientId(word(client)), word(number)))
}

impl machine::Record for Fact {
    fn encode_key(&self, buffer: &mut Vec<u8>) {
        match self {
            Self::Key(key, _) => {
                buffer.push(b'k');
                buffer.extend_from_slice(key);
            }
            Self::Prepared(id, _) => encode_id(b'p', *id, buffer),
            Self::Decision(id, _) => encode_id(b'd', *id, buffer),
            Self::Clocks(_) => buffer.push(b'c'),
        }
    }

    fn encode_value(&self, buffer: &mut Vec<u8>) -> bool {
        match self {
            Self::Key(_, versions) => wire::encode(versions, buffer),
            Self::Prepared(_, Some(prepared)) => wire::encode(prepared, buffer),
            Self::Decision(_, Some(decision)) => wire::encode(decision, buffer),
            Self::Prepared(_, None) | Self::Decision(_, None) => return false,
            Self::Clocks(clocks) => wire::encode(clocks, buffer),
        }
        true
    }

    fn decode(key: &[u8], value: &[u8]) -> Result<Self, String> {
        let unreadable = |error: minicbor::decode::Error| format!("the record is unreadable: {error}");
        match key.split_first() {
            Some((b'k', key)) => {
                Ok(Self::Key(Bytes::copy_from_slice(key), wire::decode(value).map_err(unreadable)?))
            }
            Some((b'p', rest)) => {
                Ok(Self::Prepared(decode_id(rest)?, Some(wire::decode(value).map_err(unreadable)?)))
            }
            Some((b'd', rest)) => {
                Ok(Self::Decision(decode_id(rest)?, Some(wire::decode(value).map_err(unreadable)?)))
            }
            Some((b'c', [])) => wire::decode(value).map(Self::Clocks).map_err(unreadable),
            _ => Err("no such part of a state is known".into()),
        }
    }
}
