//! Waiting for timestamps to pass: answers that must not be told before, and operations that must not begin before.
//!
//! With the own clock the wait is about as long as the timestamp lies ahead. A node without a bound, or with one so much
//! wider than the others' that their word comes sooner, asks replicas: their messages bring what has passed ([`Now::passed`]).

use super::{Alarm, Client, Out, Phase};
use crate::clock::{Micros, Now};
use crate::gryff::Consistency;
use crate::gryff::message::Message;
use crate::machine::{Cost, Outcome, RequestId};
use crate::object::Class;
use crate::planted::Planted;
use crate::registry::Writes;
use crate::topology::RegionSet;

/// The least time from one question for the time to the next: the answers to the last are on their way.
const BETWEEN_QUESTIONS: Micros = 1_000;

impl Client {
    /// Whether timestamps are of clocks: then what is at a timestamp may only be told once that has passed.
    pub(super) fn is_clocked(&self) -> bool {
        self.engine.settings.writes != Writes::TwoRounds
    }

    /// Ends a request with an answer that shows, or made, a version with timestamp `ts`, once that has passed.
    pub(super) fn tell(
        &mut self,
        now: Now,
        request: RequestId,
        (class, ts): (Class, u64),
        (outcome, cost): (Outcome, Cost),
        out: &mut Out,
    ) {
        let plant = &self.engine.settings.plant;
        let waits = match class {
            // What a session of RSC has read is waited for before its next operation.
            Class::Read => {
                self.engine.consistency == Consistency::Linearizable && !plant.has(Planted::NoReadWait)
            }
            Class::Write => !plant.has(Planted::NoCommitWait),
            Class::ReadModifyWrite => !plant.has(Planted::NoRmwWait),
        };
        let waits = waits && self.is_clocked() && ts > 0 && now.passed <= ts;
        if !waits || self.needs_no_voucher(now) {
            return self.complete(now, request, outcome, cost, out);
        }
        let Some(op) = self.open.get_mut(&request) else { return };
        if let Phase::Rmw { lane } = op.phase {
            self.lanes.release(lane);
        }
        op.phase = Phase::Passing { outcome, cost, since: now.monotonic };
        self.await_passing(now, ts, request, out);
    }

    /// The planted bug that a node without a bound answers without another's word.
    pub(super) fn needs_no_voucher(&self, now: Now) -> bool {
        now.uncertainty.is_none() && self.engine.settings.plant.has(Planted::NoVoucher)
    }

    /// Goes on with a request once `ts` has passed.
    pub(super) fn await_passing(&mut self, now: Now, ts: u64, request: RequestId, out: &mut Out) {
        if !self.passing.insert((ts, request)) {
            return;
        }
        match now.truetime() {
            None => self.ask_time(request, out),
            Some(own) => {
                let partition = self.open.get(&request).map_or(0, |op| op.partition);
                let round_trip = self.round_trips.get(&partition).copied().unwrap_or(Micros::MAX);
                self.others_know_sooner = now.passed.saturating_sub(own.earliest) > round_trip;
            }
        }
        self.watch_time(now, now.uncertainty.is_some(), out);
    }

    /// Sets the alarm for when the first timestamp will have passed, if that is told by what is known of the time now.
    /// There is one such alarm at a time.
    fn watch_time(&mut self, now: Now, knows: bool, out: &mut Out) {
        let Some((ts, _)) = self.passing.first() else { return };
        let least = if now.uncertainty.is_some() { 1 } else { BETWEEN_QUESTIONS };
        let retry = self.engine.settings.retry;
        let wait = if knows { (ts + 1).saturating_sub(now.passed).clamp(least, retry) } else { retry };
        let at = now.monotonic + wait;
        if self.watch.is_none_or(|watch| at < watch) {
            self.watch = Some(at);
            self.alarms.set(at, Alarm::Passing, out);
        }
    }

    /// Asks the replicas of a request's partition for a message, which brings what they know to have passed.
    pub(super) fn ask_time(&self, request: RequestId, out: &mut Out) {
        let partition = self.open.get(&request).map_or(0, |op| op.partition);
        let op = self.op_id(request);
        self.send_phase(partition, false, RegionSet::default(), &Message::AskTime { op }, out);
    }

    /// Takes up what has waited for timestamps that have passed now.
    pub(super) fn let_pass(&mut self, now: Now, out: &mut Out) {
        while let Some((ts, request)) = self.passing.first().copied()
            && now.passed > ts
        {
            self.passing.pop_first();
            let Some(op) = self.open.get_mut(&request) else { continue };
            if let Phase::Passing { outcome, cost, since } = &mut op.phase {
                let (outcome, mut cost) = (outcome.clone(), std::mem::take(cost));
                cost.waited = now.monotonic - *since;
                cost.reason = "waiting for the timestamp to pass";
                self.complete(now, request, outcome, cost, out);
            } else {
                self.go_on(now, out);
            }
        }
        if self.passing.is_empty() {
            self.watch = None; // Its alarm may be dropped with nothing to wait for.
        }
    }

    pub(super) fn on_passing_alarm(&mut self, now: Now, out: &mut Out) {
        self.let_pass(now, out);
        if self.watch.is_some_and(|watch| watch > now.monotonic) {
            return; // An alarm that an earlier one has replaced.
        }
        self.watch = None;
        let Some((_, request)) = self.passing.first().copied() else { return };
        if now.uncertainty.is_none() || self.others_know_sooner {
            self.ask_time(request, out);
        }
        self.watch_time(now, now.uncertainty.is_some(), out);
    }

    /// A replica has told the time: that was on the message. If it was too early, the next question is due when it will not be.
    pub(super) fn on_time(&mut self, now: Now, out: &mut Out) {
        self.watch_time(now, true, out);
    }
}
