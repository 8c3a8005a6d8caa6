//! From one keyspace to another: the fences that a session owes are run ahead of the command that owes them, and by
//! `MERIDIAN.FENCE` (the rules are [`compose`]'s). With that and `MERIDIAN.ENTER` a session can use services elsewhere, too.
//!
//! What is owed is a connection's own, or shared by those of one client name where a keyspace says so.

use super::job::Job;
use super::{Host, KeyspaceInfo, State, outcome};
use crate::resp::parse::Args;
use crate::resp::table::{Entry, Kind, Own};
use meridian_protocol::clock::Micros;
use meridian_protocol::compose::{self, Fence, Role, Services};
use meridian_protocol::machine::{Completion, Cost, Outcome, Request, RequestId};

/// Fences and an entry that must end.
#[derive(Debug)]
pub(super) struct Crossing {
    waiting: Vec<Step>,
    failed: Option<(Outcome, usize)>,
    began: Micros,
    cost: Cost,
    then: Then,
}

#[derive(Debug)]
struct Step {
    request: RequestId,
    keyspace: usize,
    /// `None` for an entry.
    fence: Option<Fence>,
}

/// What follows when all has ended.
#[derive(Debug)]
enum Then {
    /// The client is told.
    Reply,
    /// The command is carried out.
    Run(&'static Entry),
}

impl State {
    /// What the session owes, with the rules that it owes it by.
    pub(super) fn with_composed<R>(
        &mut self,
        host: &mut impl Host,
        act: impl FnOnce(&mut compose::Session<usize>, &Services<usize>) -> R,
    ) -> R {
        let shared = host.shared();
        let of_name = self.group.as_ref().and_then(|name| shared.groups.get_mut(name));
        act(of_name.map_or(&mut self.composed, |(composed, _)| composed), &shared.services)
    }

    /// A command begins in the selected keyspace. If something must end before, runs that, and the command afterwards.
    pub(super) fn crosses(&mut self, entry: &'static Entry, args: Args<'_>, host: &mut impl Host) -> bool {
        if !operates(entry, args) {
            return false;
        }
        self.join_group(self.keyspace, host);
        let keyspace = self.keyspace;
        let before = self.with_composed(host, |composed, services| composed.before(services, keyspace));
        if before.is_nothing() {
            return false;
        }
        let entry_step = before.enters.then_some((keyspace, None));
        let fences = before.fences.into_iter().map(|(keyspace, fence)| (keyspace, Some(fence)));
        self.run_crossing(entry_step.into_iter().chain(fences).collect(), Then::Run(entry), host);
        true
    }

    /// `MERIDIAN.FENCE`: fences every keyspace that the session has used since its last fence.
    pub(super) fn on_fence(&mut self, host: &mut impl Host) {
        let mut fences = self.with_composed(host, |composed, _| composed.unfenced());
        if fences.is_empty() {
            fences.push((self.keyspace, Fence::default()));
        }
        let none = fences.iter().find(|(keyspace, _)| !host.keyspaces()[*keyspace].engine().has_fences());
        if let Some((keyspace, _)) = none {
            return self.error(&outcome::no_fence(&host.keyspaces()[*keyspace]));
        }
        self.cost = Cost::default();
        let steps = fences.into_iter().map(|(keyspace, fence)| (keyspace, Some(fence))).collect();
        self.run_crossing(steps, Then::Reply, host);
    }

    /// `MERIDIAN.ENTER`: the session comes to the selected keyspace from a service that no node knows of.
    pub(super) fn on_enter(&mut self, host: &mut impl Host) {
        self.cost = Cost::default();
        if host.keyspaces()[self.keyspace].engine().role() == Role::Enters {
            self.run_crossing(vec![(self.keyspace, None)], Then::Reply, host);
        } else {
            self.reply().ok();
        }
    }

    fn run_crossing(&mut self, steps: Vec<(usize, Option<Fence>)>, then: Then, host: &mut impl Host) {
        let submit = |(keyspace, fence): (usize, Option<Fence>)| {
            let request = if fence.is_some() { Request::Fence } else { Request::Enter };
            Step { request: host.submit(self.id, keyspace, request), keyspace, fence }
        };
        let waiting = steps.into_iter().map(submit).collect();
        let began = host.now().monotonic;
        self.run(Job::Crossing(Crossing { waiting, failed: None, began, cost: Cost::default(), then }));
    }

    /// A fence or an entry has ended.
    pub(super) fn on_crossing(
        &mut self,
        mut crossing: Crossing,
        completion: Completion,
        args: Args<'_>,
        host: &mut impl Host,
    ) {
        crossing.take(completion, self, host);
        if !crossing.waiting.is_empty() {
            return self.run(Job::Crossing(crossing));
        }
        if let Some((outcome, keyspace)) = &crossing.failed {
            // A fence that has not ended has no effect, and nothing else was done.
            return self.error(&outcome::error(&host.keyspaces()[*keyspace], outcome, true));
        }
        match crossing.then {
            Then::Reply => {
                self.cost = crossing.cost;
                self.reply().ok();
            }
            Then::Run(entry) => {
                self.crossed = crossing.cost;
                self.carry_out(entry, args, host);
            }
        }
    }

    /// Adds what the way into the keyspace has cost to what the operation did.
    pub(super) fn add_crossing(&mut self) {
        let crossed = std::mem::take(&mut self.crossed);
        self.cost.rounds += crossed.rounds;
        if crossed.waited > self.cost.waited {
            self.cost.reason = crossed.reason;
        }
        self.cost.waited += crossed.waited;
    }

    /// Joins the sessions of the client's name, if the keyspace is one that they share. Stays with them.
    pub(super) fn join_group(&mut self, keyspace: usize, host: &mut impl Host) {
        if self.group.is_some() || host.keyspaces()[keyspace].session != "client-name" {
            return;
        }
        let shared = host.shared();
        let name = shared.clients.get(self.id).map(|info| info.name.clone()).unwrap_or_default();
        if name.is_empty() {
            return;
        }
        let (composed, members) = shared.groups.entry(name.clone()).or_default();
        composed.import(&shared.services, self.composed.used(&shared.services));
        *members += 1;
        self.group = Some(name);
    }

    /// The connection ends, or begins anew.
    pub(super) fn leave_group(&mut self, host: &mut impl Host) {
        let Some(name) = self.group.take() else { return };
        let groups = &mut host.shared().groups;
        if let Some((_, members)) = groups.get_mut(&name) {
            *members -= 1;
            if *members == 0 {
                groups.remove(&name);
            }
        }
    }
}

impl Crossing {
    fn take(&mut self, completion: Completion, state: &mut State, host: &mut impl Host) {
        let Completion { request, outcome, cost } = completion;
        let Some(place) = self.waiting.iter().position(|step| step.request == request) else { return };
        let Step { keyspace, fence, .. } = self.waiting.swap_remove(place);
        match (fence, outcome) {
            (None, Outcome::Done) => {}
            (Some(fence), Outcome::Fenced) => {
                state.with_composed(host, |composed, _| composed.on_fenced(keyspace, fence));
                let waited = host.now().monotonic.saturating_sub(self.began);
                let reason = reason(&host.keyspaces()[keyspace]);
                self.cost = Cost { rounds: self.cost.rounds.max(cost.rounds), waited, reason, witness: None };
            }
            // It is still owed.
            (_, outcome) => self.failed = Some((outcome, keyspace)),
        }
    }
}

/// What is waited for while a keyspace is fenced.
fn reason(keyspace: &KeyspaceInfo) -> &'static str {
    match keyspace.engine().role() {
        Role::Enters => "the fence of an rss keyspace",
        Role::Settles => "the fence of an rsc keyspace",
        Role::Apart => "the fence of a causal keyspace",
        Role::Ordered => "",
    }
}

/// Whether a command acts on keys, or may.
pub(super) fn operates(entry: &Entry, args: Args<'_>) -> bool {
    match entry.kind {
        Kind::Key(_) | Kind::Each(_) | Kind::Take(_) => true,
        // With fewer words it only says what others ask for.
        Kind::Own(Own::Level) => args.len() > 3,
        Kind::Own(own) => matches!(
            own,
            Own::Begin
                | Own::DbSize
                | Own::Exec
                | Own::Flush
                | Own::Keys
                | Own::Scan
                | Own::Snapshot
                | Own::Watch
        ),
    }
}
