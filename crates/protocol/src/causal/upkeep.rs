//! What replicas do unasked: replication, heartbeats, stabilization, and forgetting what nobody reads any more.

use super::message::Message;
use super::replica::{Alarm, Out, Replica};
use super::replication::Replicate;
use super::stabilization::{Report, Tell};
use super::{ClockKind, Record, Update};
use crate::clock::Now;
use crate::topology::{Address, Region, ReplicaId};

impl Replica {
    pub(super) fn set_alarm(&mut self, now: Now, alarm: Alarm, out: &mut Out) {
        let settings = &self.engine.settings;
        let after = match alarm {
            Alarm::Heartbeat => settings.causal.heartbeat,
            Alarm::Stabilize => settings.causal.stabilization,
            Alarm::Retry => settings.retry,
            Alarm::Forget => settings.causal.keep / 4,
            Alarm::Late => return,
        };
        self.alarms.set(now.monotonic + after.max(1), alarm, out);
    }

    // Between regions.

    pub(super) fn on_heartbeat_alarm(&mut self, now: Now, out: &mut Out) {
        let clock = self.clock.read(now);
        let messages = self.streams.heartbeat(now.monotonic, clock);
        self.replicate(messages, out);
        self.trim(out);
    }

    /// Drops what all regions have from what may have to be sent; what is read no more either is forgotten for good.
    fn trim(&mut self, out: &mut Out) {
        for (_, update) in self.streams.trim() {
            if self.versions.get(&update.key, update.id).is_none() {
                out.output(Record::Version(update.key, update.id, None));
            }
        }
    }

    pub(super) fn on_replicate(
        &mut self,
        now: Now,
        from: Region,
        replicate: Replicate<Update>,
        out: &mut Out,
    ) {
        let origin = replicate.origin;
        let fresh = self.streams.receive(now.monotonic, from, replicate);
        if fresh.is_empty() {
            return;
        }
        self.counters.applied += fresh.len() as u64;
        if let Some(update) = fresh.last().filter(|_| self.shows_time()) {
            self.visibility.follow(origin, &update.dependencies);
        }
        for update in fresh {
            self.install(update, out);
        }
        out.output(Record::Applied(origin, self.streams.applied_of(origin)));
    }

    pub(super) fn on_retry_alarm(&mut self, now: Now, out: &mut Out) {
        let messages = self.streams.retry(now.monotonic);
        self.replicate(messages, out);
        self.waiting.retain(|_, waiting| waiting.give_up > now.monotonic);
        self.fences.retain(|_, (_, give_up)| *give_up > now.monotonic);
    }

    // Between partitions.

    pub(super) fn on_stabilize_alarm(&mut self, now: Now, out: &mut Out) {
        let own = self.report(now);
        let told = self.stabilization.tick(&own);
        self.counters.stabilizations += 1;
        let stable = self.stabilization.stable().clone().with(self.region(), own.clock).lowest();
        if stable > 0 {
            let lag = own.clock - stable.min(own.clock);
            self.counters.staleness_us += lag;
            self.visibility.lag = self.shows_time().then_some(lag);
        }
        self.tell(told, out);
        self.on_snapshot(now, out);
    }

    pub(super) fn on_report(&mut self, now: Now, from: u16, report: Report, out: &mut Out) {
        let own = self.report(now);
        // Snapshots that begin here soon hold what was just written there.
        self.clock.advance(report.clock);
        let told = self.stabilization.on_report(from, report, &own);
        self.tell(told, out);
        self.on_snapshot(now, out);
    }

    pub(super) fn on_stable(&mut self, now: Now, report: &Report, out: &mut Out) {
        self.clock.advance(report.clock);
        let told = self.stabilization.on_stable(report);
        self.tell(told, out);
        self.on_snapshot(now, out);
    }

    /// The stable snapshot may have gone on.
    fn on_snapshot(&mut self, now: Now, out: &mut Out) {
        self.visibility.look(now.wall, self.stabilization.stable(), self.id.region);
        self.serve_waiting(now, out);
    }

    /// Whether timestamps are times.
    fn shows_time(&self) -> bool {
        self.engine.settings.causal.clock != ClockKind::Logical
    }

    fn tell(&self, told: Vec<(u16, Tell)>, out: &mut Out) {
        for (partition, tell) in told {
            let message = match tell {
                Tell::Report(report) => Message::Report(report),
                Tell::Stable(report) => Message::Stable(report),
            };
            out.send(Address::Replica(ReplicaId { partition, ..self.id }), message);
        }
    }

    // Forgetting.

    pub(super) fn on_forget_alarm(&mut self, now: Now, out: &mut Out) {
        for (client, lane) in self.lanes.forget(now.monotonic, self.engine.settings.remember) {
            out.output(Record::Lane(client, lane, None));
        }
        self.clock.read(now);
        self.marks.push_back((now.monotonic, self.snapshot()));
        let keep = self.engine.settings.causal.keep;
        while let Some((_, mark)) = self.marks.pop_front_if(|(at, _)| *at + keep <= now.monotonic) {
            self.horizon = mark;
        }
        self.forget_versions(out);
    }

    /// Forgets the versions that no snapshot shows which covers the horizon, and tombstones that are old enough and after
    /// which nothing older can come.
    fn forget_versions(&mut self, out: &mut Out) {
        let horizon = &self.horizon;
        let tombstones = self.engine.settings.causal.tombstones;
        let arrived = self.streams.clocks().with(self.id.region, self.clock.value()).lowest();
        let old = self.clock.value().saturating_sub(tombstones).min(arrived);
        let forgotten =
            self.versions.prune(|version| horizon.covers(&version.meta), |version| version.id.ts < old);
        if forgotten.is_empty() {
            return;
        }
        self.counters.forgotten += forgotten.len() as u64;
        out.output(Record::Horizon(self.horizon.clone()));
        for (key, id) in forgotten {
            // A region that lacks it gets it from the records, even after a restart.
            if !self.streams.keeps(id.region, id.ts) {
                out.output(Record::Version(key, id, None));
            }
        }
    }
}
