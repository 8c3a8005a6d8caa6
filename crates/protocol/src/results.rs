//! What replicas remember of the operations that clients retry, so that each takes effect once.
//!
//! A client numbers its concurrent operations with *lanes*: one at a time in each. So the last result of a lane is
//! all that must be kept, and an operation with a lower number than that is over.

use crate::machine::OpId;
use crate::object::Answer;
use crate::registers::carstamp::Carstamp;
use crate::topology::ClientId;
use minicbor::{Decode, Encode};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The result of the last operation of one lane of one client on one key.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct Remembered {
    /// The client.
    #[n(0)]
    pub client: ClientId,
    /// Which of its concurrent operations.
    #[n(1)]
    pub lane: u32,
    /// The client's number for the request; a lower one of the same lane is over.
    #[n(2)]
    pub request: u64,
    /// The client's time, ms.
    #[n(3)]
    pub at_ms: u64,
    /// The answer.
    #[n(4)]
    pub answer: Answer,
    /// The carstamp that it created.
    #[n(5)]
    pub carstamp: Carstamp,
}

/// A lane of a client.
pub(crate) type Lane = (ClientId, u32);

/// The last result of each lane.
#[derive(Clone, Debug, Default)]
pub(crate) struct Results {
    table: BTreeMap<Lane, Arc<Remembered>>,
    /// Lanes whose results were forgotten since the host last asked, to be forgotten on disk too.
    forgotten: Vec<Lane>,
}

impl Results {
    /// The lane's last result.
    pub(crate) fn last(&self, lane: Lane) -> Option<&Arc<Remembered>> {
        self.table.get(&lane)
    }

    /// The result of an operation, if it is executed and remembered.
    pub(crate) fn of(&self, op: OpId, lane: u32) -> Option<&Remembered> {
        self.last((op.client, lane)).map(|result| &**result).filter(|result| result.request == op.request)
    }

    /// Remembers a result in place of the lane's last.
    pub(crate) fn insert(&mut self, result: Arc<Remembered>) {
        self.table.insert((result.client, result.lane), result);
    }

    /// Forgets what is older than a time.
    pub(crate) fn forget_before(&mut self, oldest_ms: u64) {
        let forgotten = &mut self.forgotten;
        self.table.retain(|lane, result| {
            let keep = result.at_ms >= oldest_ms;
            if !keep {
                forgotten.push(*lane);
            }
            keep
        });
    }

    /// Takes a peer's table in place of this one.
    pub(crate) fn replace(&mut self, results: Vec<Remembered>) {
        let before = std::mem::take(&mut self.table);
        self.table = results.into_iter().map(|r| ((r.client, r.lane), Arc::new(r))).collect();
        self.forgotten.extend(before.into_keys().filter(|lane| !self.table.contains_key(lane)));
    }

    /// All of them, by lane.
    pub(crate) fn all(&self) -> Vec<Remembered> {
        self.table.values().map(|result| (**result).clone()).collect()
    }

    /// Lanes forgotten since this was last asked.
    pub(crate) fn take_forgotten(&mut self) -> Vec<Lane> {
        std::mem::take(&mut self.forgotten)
    }
}

/// The lanes of one client machine that have an operation in flight.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lanes(BTreeSet<u32>);

impl Lanes {
    /// Takes the lowest free lane.
    pub(crate) fn take(&mut self) -> u32 {
        let free = (0..u32::MAX).find(|lane| !self.0.contains(lane));
        let lane = free.unwrap_or(u32::MAX);
        self.0.insert(lane);
        lane
    }

    /// The lane is free again.
    pub(crate) fn release(&mut self, lane: u32) {
        self.0.remove(&lane);
    }

    /// All are free again.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}
