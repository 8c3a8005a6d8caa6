//! The last write of each client's lane, so that one that is sent again takes effect once.

use super::record::Done;
use crate::clock::Micros;
use crate::machine::OpId;
use crate::results::Lane;
use std::collections::BTreeMap;

/// Each lane's last write, and when it came.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastWrites(BTreeMap<Lane, (Micros, Done)>);

impl LastWrites {
    /// Remembers a write in place of the lane's last.
    pub(crate) fn insert(&mut self, now: Micros, lane: Lane, done: Done) {
        self.0.insert(lane, (now, done));
    }

    /// The last write of an operation's lane, if the operation is not after it: then it is that one, or over, as its
    /// client has gone on without an answer.
    pub(crate) fn covers(&self, op: OpId, lane: u32) -> Option<&Done> {
        let (_, done) = self.0.get(&(op.client, lane))?;
        (done.request >= op.request).then_some(done)
    }

    /// What was restored counts from now.
    pub(crate) fn begin(&mut self, now: Micros) {
        for (since, _) in self.0.values_mut() {
            *since = now;
        }
    }

    /// Forgets what came `remember` ago or earlier; answers the lanes.
    pub(crate) fn forget(&mut self, now: Micros, remember: Micros) -> Vec<Lane> {
        let over = self.0.extract_if(.., |_, (since, _)| now >= since.saturating_add(remember));
        over.map(|(lane, _)| lane).collect()
    }
}
