//! Writes: two rounds, of which the first asks a quorum for its carstamps, or one, if the clock says what must be below.

use super::{Client, Op, Out, Phase, Work};
use crate::clock::{Micros, Now};
use crate::machine::{Cost, Outcome, RequestId};
use crate::object::{Answer, Class, State, Version, apply};
use crate::planted::Planted;
use crate::registers::carstamp::{Carstamp, Held};
use crate::registry::Writes;
use crate::topology::{Region, RegionSet};

/// Why nobody knows whether a write that the replicas refused takes effect. What the machine has once used as a timestamp it
/// stays above, so putting the clock right is not enough.
const AHEAD: &str = "replicas refuse it because this node's clock is or was far ahead of theirs (put it right and start the node again)";

impl Client {
    pub(super) fn on_write1_reply(
        &mut self,
        now: Now,
        (request, from): (RequestId, Region),
        carstamp: Carstamp,
        out: &mut Out,
    ) {
        let quorum = self.quorum();
        let Some(op) = self.open.get_mut(&request) else { return };
        let (Phase::Write1 { replied, newest }, Work::Act { action, at_ms }) = (&mut op.phase, &op.work)
        else {
            return;
        };
        replied.insert(from);
        *newest = carstamp.ts.max(*newest);
        if replied.len() < quorum {
            return;
        }
        let (value, answer) = apply(&None, Version::default(), action, *at_ms);
        let (newest, partition, took) = (*newest, op.partition, now.monotonic - op.sent);
        self.note_round_trip(partition, took);
        self.write(now, request, (newest, value, answer), 2, out);
    }

    /// Whether a write that begins now takes its timestamp from the clock.
    pub(super) fn writes_in_one_round(&self, now: Now, partition: u16) -> bool {
        // A clock that is right can be ahead of another by twice the bound. Replicas would refuse its writes as those of
        // a wrong one.
        let Some(uncertainty) = now.uncertainty.filter(|bound| 2 * bound <= self.engine.settings.clock_ahead)
        else {
            return false;
        };
        match self.engine.settings.writes {
            Writes::TwoRounds => false,
            Writes::OneRound => true,
            Writes::Auto => {
                self.round_trips.get(&partition).is_some_and(|round_trip| uncertainty < *round_trip)
            }
        }
    }

    /// A quorum of a partition has answered after so long. The shortest counts, though not for ever: regions go away.
    fn note_round_trip(&mut self, partition: u16, took: Micros) {
        if self.is_clocked() {
            let known = self.round_trips.entry(partition).or_insert(took);
            *known = took.min(*known + *known / 16 + 1);
        }
    }

    /// Begins a write's only phase: its timestamp is above the time of its beginning, and so above all that had
    /// ended before.
    pub(super) fn write_by_clock(&mut self, now: Now, request: RequestId, out: &mut Out) {
        let Some(Op { work: Work::Act { action, at_ms }, began, .. }) = self.open.get(&request) else {
            return;
        };
        let (value, answer) = apply(&None, Version::default(), action, *at_ms);
        let Some(time) = now.truetime() else { return };
        let plant = &self.engine.settings.plant;
        let latest = if plant.has(Planted::TimestampFromEarliest) {
            time.earliest
        } else if plant.has(Planted::ClockReadEarly) {
            time.latest - (now.monotonic - began)
        } else {
            time.latest
        };
        self.write(now, request, (latest.saturating_sub(1), value, answer), 1, out);
    }

    /// Chooses the carstamp of a write above `least`, and begins its last phase.
    pub(super) fn write(
        &mut self,
        now: Now,
        request: RequestId,
        (least, value, answer): (u64, State, Answer),
        rounds: u32,
        out: &mut Out,
    ) {
        let plant = &self.engine.settings.plant;
        let own = if plant.has(Planted::ReuseCarstamp) { 0 } else { self.last_ts };
        let seen = if plant.has(Planted::ForgetSessionMaximum) { 0 } else { self.seen };
        let ts = least.max(own).max(seen) + 1;
        self.last_ts = ts;
        let held = Held { value, carstamp: Carstamp::of_write(ts, self.id) };
        let Some(op) = self.open.get_mut(&request) else { return };
        let (acked, refused) = (RegionSet::default(), RegionSet::default());
        op.sent = now.monotonic;
        op.phase = Phase::Write2 { held, answer, rounds, acked, refused };
        self.drop_piggyback(request);
        if self.engine.settings.plant.has(Planted::SendDependencyAlong) {
            self.unsettled.keys().for_each(|key| self.send_settle(key, out));
        }
        self.send(request, self.op_id(request), false, out);
        self.go_on(now, out);
    }

    pub(super) fn on_write2_reply(&mut self, now: Now, (request, from): (RequestId, Region), out: &mut Out) {
        let quorum = self.quorum();
        let Some(Op { phase: Phase::Write2 { held, answer, rounds, acked, .. }, partition, sent, .. }) =
            self.open.get_mut(&request)
        else {
            return;
        };
        acked.insert(from);
        if acked.len() < quorum {
            return;
        }
        let (answer, carstamp, partition, took) =
            (answer.clone(), held.carstamp, *partition, now.monotonic - *sent);
        let cost = Cost { rounds: *rounds, witness: Some(carstamp.witness()), ..Cost::default() };
        self.note_round_trip(partition, took);
        self.tell(now, request, (Class::Write, carstamp.ts), (Outcome::Answer(answer), cost), out);
    }

    /// A replica does not hold the version, as its timestamp lies too far ahead.
    pub(super) fn on_refused(&mut self, now: Now, (request, from): (RequestId, Region), out: &mut Out) {
        let most = usize::from(self.place.group.regions) - self.quorum();
        let Some(Op { phase: Phase::Write2 { refused, .. }, .. }) = self.open.get_mut(&request) else {
            return;
        };
        refused.insert(from);
        if refused.len() > most {
            // Some replica may hold it all the same, now or when its clock has come so far.
            self.complete(now, request, Outcome::Unknown(AHEAD), Cost::default(), out);
        }
    }
}
