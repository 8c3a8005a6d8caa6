//! Reads of what a replica holds, whoever leads: at a time that the log vouches for.
//!
//! # Guarantee
//! A read at `t` sees all that was ever committed at times up to `t`: the log is *safe* up to `t` as far as it is applied
//! here, and nothing prepared that writes the keys has a timestamp up to `t`.

use super::message::{Held, Local, Reason, Reply, Request, Timestamp, TxnId};
use super::replica::{Replica, Step};
use crate::clock::Micros;
use crate::planted::Planted;

/// A read that waits until the replica has come so far.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    local: Local,
    at: Timestamp,
    since: Micros,
}

impl Replica {
    pub(super) fn on_local(&mut self, cx: &mut Step<'_>, local: Local) {
        match local.at {
            None => self.tell_safe(cx, &local),
            Some(at) => {
                let id = local.id;
                self.local.insert(id, Waiting { local, at, since: cx.now.monotonic });
                self.advance_local(cx, id);
                if self.local.contains_key(&id) {
                    self.ask_to_advance(cx, at);
                }
            }
        }
    }

    /// Up to which time the keys can be read here now.
    fn tell_safe(&mut self, cx: &mut Step<'_>, local: &Local) {
        let (id, attempt) = (local.id, local.attempt);
        let Some(time) = cx.now.truetime() else {
            return self.reply(cx, id, Reply::Refused { id, reason: Reason::NoClock });
        };
        // Of what lies ahead nobody knows that it is over: a transaction that begins later may be given a lower timestamp.
        let safe = self.safe_for(local).min(time.earliest);
        let horizon = self.state().versions().horizon();
        if self.state().safe() + self.settings.spanner.staleness < time.earliest {
            self.ask_to_advance(cx, time.earliest);
        }
        self.reply(cx, id, Reply::Safe { id, attempt, safe, horizon });
    }

    /// All that is committed up to this time and writes the keys is applied here.
    fn safe_for(&self, local: &Local) -> Timestamp {
        let state = self.state();
        let conflicting = state
            .prepared()
            .values()
            .filter(|prepared| prepared.part.writes.iter().any(|write| local.keys.contains(&write.key)));
        let first = conflicting.map(|prepared| prepared.at - 1).min().unwrap_or(Timestamp::MAX);
        state.safe().min(first)
    }

    /// Answers a read if the replica has come so far.
    fn advance_local(&mut self, cx: &mut Step<'_>, id: TxnId) {
        let Some(Waiting { local, at, since }) = self.local.get(&id) else { return };
        let (at, attempt, waited) = (*at, local.attempt, cx.now.monotonic - since);
        let versions = self.state().versions();
        let too_old = at < versions.horizon() && !self.settings.plant.has(Planted::ReadBelowHorizon);
        if too_old {
            self.local.remove(&id);
            return self.reply(cx, id, Reply::Refused { id, reason: Reason::TooOld });
        }
        if self.safe_for(local) < at {
            return;
        }
        let held = local.keys.iter().map(|key| Held { key: key.clone(), version: versions.read(key, at) });
        let held = held.collect();
        self.local.remove(&id);
        self.counters.local_read += 1;
        self.reply(cx, id, Reply::Fast { id, attempt, held, skipped: Vec::new(), waited });
    }

    /// The log has gone on.
    pub(super) fn advance_locals(&mut self, cx: &mut Step<'_>) {
        for id in self.local.keys().copied().collect::<Vec<_>>() {
            self.advance_local(cx, id);
        }
    }

    /// Asks again for what reads wait for, and drops those that are given up.
    pub(super) fn tick_locals(&mut self, cx: &mut Step<'_>) {
        let patience = self.settings.operation_timeout;
        self.local.retain(|_, waiting| cx.now.monotonic < waiting.since + patience);
        if let Some(at) = self.local.values().map(|waiting| waiting.at).max() {
            self.ask_to_advance(cx, at);
        }
    }

    /// Has the leader vouch for a time.
    fn ask_to_advance(&mut self, cx: &mut Step<'_>, to: Timestamp) {
        if self.lead.open {
            return self.on_advance(cx, to);
        }
        if let Some(leader) = self.log.leader() {
            self.send_to_leader(cx, leader, Request::Advance(to));
        }
    }
}
