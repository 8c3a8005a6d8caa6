//! The leader: puts commands into slots, counts who has accepted them, and keeps its followers.

use super::message::Progress;
use super::{Accepted, Ballot, Entry, Log, MESSAGE_BYTES, Message, Out, Role, Slot, StateMachine, size};
use crate::clock::{Micros, Now};
use crate::planted::Planted;
use crate::topology::{Region, RegionSet};
use std::collections::{BTreeMap, VecDeque};
use std::fmt::{self, Debug};

/// A term of leadership.
#[derive(Clone)]
pub(super) struct Leading<C> {
    pub(super) ballot: Ballot,
    since: Micros,
    next: Slot,
    /// Who has accepted each slot that is not chosen yet.
    acks: BTreeMap<Slot, RegionSet>,
    /// The last slot of each message whose entries are not all chosen, and when it was sent.
    batches: VecDeque<(Slot, Micros)>,
    /// Commands that wait for room in the pipeline.
    queue: VecDeque<Entry<C>>,
    /// The slot of this term's barrier.
    barrier: Slot,
    pub(super) heartbeat_at: Micros,
    followers: BTreeMap<Region, Follower>,
    /// When another replica may be asked (again) to take over.
    hand_over_at: Micros,
    /// It was asked in this term: the lease is no longer used.
    has_consented: bool,
}

/// What the leader knows of another replica.
#[derive(Clone, Copy, Default)]
struct Follower {
    heard: Micros,
    /// Since when it has been heard without a long silence.
    since: Micros,
    progress: Progress,
    /// Until when it promises nobody else.
    lease_until: Micros,
    /// The shortest time from a heartbeat to its answer.
    round_trip: Option<Micros>,
    /// When it answered last, it trusted a bound on its clock.
    has_clock: bool,
}

/// Without the times.
impl<C: Debug> Debug for Leading<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let batches: Vec<_> = self.batches.iter().map(|(last, _)| last).collect();
        let progress: Vec<_> = self.followers.values().map(|follower| follower.progress).collect();
        f.debug_struct("Leading")
            .field("ballot", &self.ballot)
            .field("next", &self.next)
            .field("acks", &self.acks)
            .field("batches", &batches)
            .field("queue", &self.queue)
            .field("barrier", &self.barrier)
            .field("progress", &progress)
            .field("has_consented", &self.has_consented)
            .finish_non_exhaustive()
    }
}

impl<S: StateMachine> Log<S> {
    /// Begins a term: re-proposes what may be chosen, fills the holes between, and puts a barrier behind.
    pub(super) fn lead(
        &mut self,
        now: Now,
        ballot: Ballot,
        mut highest: BTreeMap<Slot, Accepted<S::Command>>,
        out: &mut Out<S>,
    ) {
        self.counters.election += 1;
        let next = self.commit + 1;
        let top = highest.keys().next_back().copied().unwrap_or(0).max(self.commit);
        let follower = Follower { heard: now.monotonic, since: now.monotonic, ..Follower::default() };
        self.leader = None;
        self.catching_up = None;
        self.resend_at = Micros::MAX;
        self.role = Role::Leading(Leading {
            ballot,
            since: now.monotonic,
            next,
            acks: BTreeMap::new(),
            batches: VecDeque::new(),
            queue: VecDeque::new(),
            barrier: top + 1,
            heartbeat_at: now.monotonic,
            followers: self.others().map(|region| (region, follower)).collect(),
            hand_over_at: now.monotonic,
            has_consented: false,
        });
        let mut open: VecDeque<_> = (next..=top)
            .map(|slot| {
                let found = highest.remove(&slot).map(|accepted| accepted.entry);
                self.counters.nop += u64::from(found.is_none());
                found.unwrap_or(Entry::Nop)
            })
            .collect();
        open.push_back(Entry::Barrier);
        while !open.is_empty() {
            let batch = self.take_batch(&mut open);
            self.append(now, batch, out);
        }
        self.try_commit(now, out);
        self.lead_on(now, out);
    }

    /// Puts a command into the log if this replica leads; otherwise gives it back.
    ///
    /// # Errors
    /// The command, if this replica does not lead.
    pub fn propose(&mut self, now: Now, command: S::Command, out: &mut Out<S>) -> Result<(), S::Command> {
        let Role::Leading(leading) = &mut self.role else { return Err(command) };
        leading.queue.push_back(Entry::Command(command));
        self.fill_pipeline(now, out);
        self.try_commit(now, out);
        Ok(())
    }

    /// Whether reads may be answered from the state: nobody else can have become the leader, and all that was
    /// chosen before this term is applied. Never on a node that trusts no bound on its clock.
    pub fn may_read_alone(&self, now: Now) -> bool {
        let Role::Leading(leading) = &self.role else { return false };
        if self.commit < leading.barrier {
            return false;
        }
        if self.plant.has(Planted::ServeStaleBallot) {
            return true;
        }
        let lends = |follower: &&Follower| now.monotonic < follower.lease_until;
        let lenders = leading.followers.values().filter(lends).count() + 1;
        let bounded = now.uncertainty.is_some();
        self.settings.lease > 0 && bounded && !leading.has_consented && lenders >= self.majority()
    }

    /// The ballot at which this replica leads, once all that was chosen before its term is applied here.
    pub fn term(&self) -> Option<Ballot> {
        match &self.role {
            Role::Leading(leading) if self.commit >= leading.barrier => Some(leading.ballot),
            _ => None,
        }
    }

    /// The shortest round trips to the followers in this term, as far as they trust their clocks.
    pub fn round_trips(&self) -> Vec<(Region, Micros)> {
        let Role::Leading(leading) = &self.role else { return Vec::new() };
        let known =
            leading.followers.iter().filter_map(|(region, follower)| Some((*region, follower.round_trip?)));
        known.collect()
    }

    fn fill_pipeline(&mut self, now: Now, out: &mut Out<S>) {
        while let Role::Leading(leading) = &mut self.role
            && !leading.queue.is_empty()
            && leading.batches.len() < self.settings.pipeline.max(1)
        {
            let mut queue = std::mem::take(&mut leading.queue);
            let batch = self.take_batch(&mut queue);
            if let Role::Leading(leading) = &mut self.role {
                leading.queue = queue;
            }
            self.append(now, batch, out);
        }
    }

    /// What goes into one message.
    fn take_batch(&self, queue: &mut VecDeque<Entry<S::Command>>) -> Vec<Entry<S::Command>> {
        let mut bytes = 0;
        let fits = queue.iter().take(self.settings.batch.max(1)).take_while(|entry| {
            let before = bytes;
            bytes += size(entry);
            before == 0 || bytes <= MESSAGE_BYTES
        });
        let count = fits.count();
        queue.drain(..count).collect()
    }

    /// Accepts entries in the next slots and asks the others to.
    fn append(&mut self, now: Now, entries: Vec<Entry<S::Command>>, out: &mut Out<S>) {
        let commit = self.commit;
        let own = self.own;
        let Role::Leading(leading) = &mut self.role else { return };
        let (ballot, first) = (leading.ballot, leading.next);
        leading.next += entries.len() as Slot;
        let last = leading.next - 1;
        leading.acks.extend((first..=last).map(|slot| (slot, RegionSet::of(own))));
        leading.batches.push_back((last, now.monotonic));
        self.resend_at = self.resend_at.min(now.monotonic + self.retry);
        self.counters.batch += u64::from(entries.len() > 1);
        for (slot, entry) in (first..).zip(&entries) {
            self.accept(slot, Accepted { ballot, entry: entry.clone() }, out);
        }
        self.send_all(&Message::Accept { ballot, first, entries, commit }, out);
    }

    pub(super) fn on_accepted(
        &mut self,
        now: Now,
        from: Region,
        (ballot, first, last, progress): (Ballot, Slot, Slot, Progress),
        out: &mut Out<S>,
    ) {
        let counts_all = self.plant.has(Planted::CountAcksAcrossBallots);
        let Role::Leading(leading) = &mut self.role else { return };
        if leading.ballot != ballot && !counts_all {
            return; // Said to another term: what was accepted then need not be what is proposed now.
        }
        for (_, acks) in leading.acks.range_mut(first..=last.max(first)) {
            acks.insert(from);
        }
        self.hear(now, from, progress);
        self.try_commit(now, out);
    }

    fn hear(&mut self, now: Now, from: Region, progress: Progress) {
        let patience = self.settings.election;
        let Role::Leading(leading) = &mut self.role else { return };
        let Some(follower) = leading.followers.get_mut(&from) else { return };
        if follower.heard + patience < now.monotonic {
            follower.since = now.monotonic;
        }
        follower.heard = now.monotonic;
        follower.progress = progress;
    }

    /// Applies what a majority has accepted, in the order of slots, and makes use of the room that this gives.
    fn try_commit(&mut self, now: Now, out: &mut Out<S>) {
        let majority = self.majority();
        while let Role::Leading(leading) = &mut self.role
            && leading.acks.get(&(self.commit + 1)).is_some_and(|acks| acks.len() >= majority)
        {
            leading.acks.remove(&(self.commit + 1));
            self.apply_next(true, out);
        }
        let commit = self.commit;
        if let Role::Leading(leading) = &mut self.role {
            while leading.batches.front().is_some_and(|(last, _)| *last <= commit) {
                leading.batches.pop_front();
            }
            if leading.queue.is_empty() {
                return;
            }
        }
        self.fill_pipeline(now, out);
    }

    pub(super) fn on_heartbeat_reply(
        &mut self,
        now: Now,
        from: Region,
        (ballot, progress, sent): (Ballot, Progress, Micros),
    ) {
        if !matches!(&self.role, Role::Leading(leading) if leading.ballot == ballot) {
            return;
        }
        self.hear(now, from, progress);
        if let Role::Leading(leading) = &mut self.role
            && let Some(follower) = leading.followers.get_mut(&from)
        {
            follower.has_clock = sent > 0;
            if let Some(took) = now.monotonic.checked_sub(sent).filter(|_| sent > 0) {
                follower.round_trip = Some(follower.round_trip.map_or(took, |least| least.min(took)));
            }
        }
        // A sixteenth less than what the other gives, for clocks that do not run at quite the same rate. The other
        // began to count when the heartbeat arrived, this one when it was sent.
        let lease = self.settings.lease - self.settings.lease / 16;
        if let Role::Leading(leading) = &mut self.role
            && let Some(follower) = leading.followers.get_mut(&from)
        {
            follower.lease_until = follower.lease_until.max(sent + lease);
        }
    }

    /// What a leader does from time to time.
    pub(super) fn lead_on(&mut self, now: Now, out: &mut Out<S>) {
        self.outgoing.retain(|_, outgoing| now.monotonic < outgoing.deadline);
        self.resend(now, out);
        let majority = self.majority();
        let settings = &self.settings;
        let every =
            if settings.lease > 0 { settings.lease.min(settings.election) } else { settings.election } / 4;
        let patience = settings.election;
        let Role::Leading(leading) = &mut self.role else { return };
        if now.monotonic < leading.heartbeat_at {
            return;
        }
        leading.heartbeat_at = now.monotonic + every.max(1);
        let heard = |follower: &&Follower| now.monotonic <= follower.heard + patience;
        if leading.followers.values().filter(heard).count() + 1 < majority {
            // Nobody would look for another leader as long as this one is heard.
            return self.step_down(now, None);
        }
        let everywhere = leading.followers.values().map(|follower| follower.progress.checkpoint);
        let everywhere = everywhere.min().unwrap_or(Slot::MAX).min(self.checkpoint);
        let (ballot, commit, sent) = (leading.ballot, self.commit, now.monotonic);
        self.everywhere = everywhere;
        self.send_all(&Message::Heartbeat { ballot, commit, everywhere, sent }, out);
        self.truncate(out);
        self.hand_over(now, out);
    }

    /// Sends entries again that were not accepted in time, to those who have not.
    fn resend(&mut self, now: Now, out: &mut Out<S>) {
        if now.monotonic < self.resend_at {
            return;
        }
        let Role::Leading(leading) = &self.role else { return };
        let late = leading.batches.iter().take_while(|(_, sent)| sent + self.retry <= now.monotonic);
        let Some((through, _)) = late.last() else {
            let next = leading.batches.front().map_or(Micros::MAX, |(_, sent)| sent + self.retry);
            self.resend_at = next;
            return;
        };
        let (ballot, commit) = (leading.ballot, self.commit);
        for region in self.others() {
            let missing = leading.acks.range(..=*through).filter(|(_, acks)| !acks.contains(region));
            let missing: Vec<_> = missing.map(|(slot, _)| *slot).collect();
            // One message to each at a time: a replica that is away would only lose them.
            let Some(first) = missing.first().copied() else { continue };
            let mut bytes = 0;
            let run = (first..).zip(&missing).take_while(|(slot, missing)| slot == *missing);
            let entries = run.filter_map(|(slot, _)| self.entries.get(&slot)).take_while(|accepted| {
                let before = bytes;
                bytes += size(&accepted.entry);
                before == 0 || bytes <= MESSAGE_BYTES
            });
            let entries = entries.map(|accepted| accepted.entry.clone()).collect();
            out.sends.push((region, Message::Accept { ballot, first, entries, commit }));
            self.counters.resend += 1;
        }
        self.resend_at = now.monotonic + self.retry;
    }

    /// Asks the replica in the preferred region to take over when it has been well for some time; any that is fit, if this
    /// one is not.
    fn hand_over(&mut self, now: Now, out: &mut Out<S>) {
        let election = self.settings.election;
        let (preferred, floor, commit) = (self.preferred, self.floor, self.commit);
        let Role::Leading(leading) = &mut self.role else { return };
        if commit < leading.barrier || now.monotonic < leading.hand_over_at {
            return;
        }
        let may_lead = |follower: &Follower| {
            let heard = now.monotonic <= follower.heard + election;
            heard && follower.progress.commit >= floor && (follower.has_clock || !S::NEEDS_CLOCK)
        };
        let settled = |follower: &Follower| follower.since.max(leading.since) + 2 * election <= now.monotonic;
        let well =
            leading.followers.get(&preferred).is_some_and(|follower| may_lead(follower) && settled(follower));
        let next = if well {
            Some(preferred)
        } else if Self::is_fit(now) {
            None
        } else {
            let fit = leading.followers.iter().filter(|(_, follower)| may_lead(follower));
            fit.min_by_key(|(_, follower)| follower.round_trip).map(|(region, _)| *region)
        };
        let Some(next) = next else { return };
        leading.hand_over_at = now.monotonic + if well { 4 } else { 1 } * election;
        leading.has_consented = true;
        out.sends.push((next, Message::TakeOver { ballot: leading.ballot }));
    }
}
