//! What a session must remember so that its guarantees hold, and what an operation of each level must see and follow.

use super::Flavour;
use super::vector::Vector;
use crate::machine::{Context, Level};

/// A session's vectors. Contrarian's `DVc` is the join of the first and the last.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    flavour: Flavour,
    /// Join of the snapshots that it has read from (TCC: `hrvc`).
    seen: Vector,
    /// Join of the vectors of the versions that it was returned (`cvr`).
    returned: Vector,
    /// Join of the vectors of the versions that it has written (`hwvc`, which is `cvw`).
    written: Vector,
}

impl Session {
    pub(crate) fn new(flavour: Flavour, regions: u8) -> Self {
        let zero = Vector::zero(regions);
        Self { flavour, seen: zero.clone(), returned: zero.clone(), written: zero }
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        for vector in [&mut self.seen, &mut self.returned, &mut self.written] {
            *vector = vector.all(0);
        }
    }

    /// All that it has seen or written.
    pub(crate) fn past(&self) -> Vector {
        let mut past = self.seen.clone();
        past.join(&self.written);
        past
    }

    /// What another session must be told to go on after this one.
    pub(crate) fn context(&self) -> Context {
        match self.flavour {
            Flavour::Contrarian => Context(self.past().to_vec()),
            Flavour::Tcc => {
                let vectors = [&self.seen, &self.returned, &self.written];
                Context(vectors.into_iter().flat_map(Vector::to_vec).collect())
            }
        }
    }

    /// Goes on after the session that has told this, of the same engine.
    pub(crate) fn join(&mut self, context: &Context) {
        let regions = context.0.len() / 3;
        let vectors = [&mut self.seen, &mut self.returned, &mut self.written];
        for (vector, told) in vectors.into_iter().zip(context.0.chunks(regions.max(1))) {
            vector.join(&Vector::of(told.to_vec()));
        }
    }

    /// Goes on after a session that has seen this much, all of which is here.
    pub(crate) fn follow(&mut self, past: &Vector) {
        self.seen.join(past);
    }

    /// What a read of that level must see.
    pub(crate) fn demand(&self, level: Level) -> Vector {
        match (self.flavour, level) {
            (Flavour::Tcc, Level::Eventual) => self.seen.all(0),
            (Flavour::Tcc, Level::MonotonicReads) => self.seen.clone(),
            (Flavour::Tcc, Level::ReadYourWrites) => self.written.clone(),
            // A level of writes asks reads for nothing less than all of it.
            _ => self.past(),
        }
    }

    /// What a write of that level depends on, and the time that it must come after.
    ///
    /// A write that follows reads comes after *all* that could have been seen, but only what was returned must be seen
    /// before it: so the one is a bound on its timestamp and the other part of its vector.
    pub(crate) fn dependencies(&self, level: Level) -> (Vector, u64) {
        match (self.flavour, level) {
            (Flavour::Contrarian, _) => (self.past(), 0),
            (Flavour::Tcc, Level::Eventual) => (self.seen.all(0), 0),
            (Flavour::Tcc, Level::MonotonicWrites) => (self.written.clone(), self.written.highest()),
            (Flavour::Tcc, Level::WritesFollowReads) => (self.returned.clone(), self.seen.highest()),
            (Flavour::Tcc, _) => {
                let mut both = self.returned.clone();
                both.join(&self.written);
                (both, self.seen.highest().max(self.written.highest()))
            }
        }
    }

    /// It has written a version.
    pub(crate) fn wrote(&mut self, vector: &Vector) {
        self.written.join(vector);
    }

    /// It was returned versions from a snapshot.
    pub(crate) fn saw<'v>(&mut self, snapshot: &Vector, returned: impl Iterator<Item = &'v Vector>) {
        self.seen.join(snapshot);
        for vector in returned {
            self.returned.join(vector);
        }
    }
}
