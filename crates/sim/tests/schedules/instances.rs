//! Schedules of what EPaxos and Gryff's read-modify-writes have in common, message by message.

use super::Played;
use super::epaxos::{LATER, set};
use meridian_protocol::epaxos::{self, Epaxos};
use meridian_protocol::gryff::{self, Gryff};
use meridian_protocol::instances::instance::{Attributes, Command};
use meridian_protocol::instances::message::Step;
use meridian_protocol::machine::Engine;
use meridian_protocol::object::{Action, Command as Redis};
use meridian_protocol::registry::Settings;
use meridian_protocol::topology::{Address, Region};
use meridian_sim::steps::{Sent, Steps};

/// First phases go to all, and the schedule alone says who hears them.
pub(crate) fn explicit(settings: &Settings) -> Settings {
    Settings { thrifty: false, operation_timeout: 1_000 * LATER, ..settings.clone() }
}

/// Five replicas of EPaxos, in which one reply more than the fast quorum adds something.
pub(crate) fn one_reply_more_in_epaxos(settings: &Settings) -> Played {
    let step = |message: &epaxos::Message| match message {
        epaxos::Message::Instance { id, step, .. } => Some((id.row, step.clone())),
        _ => None,
    };
    one_reply_more(&Epaxos::new(explicit(settings)), set("v"), &[1], step)
}

/// The same of Gryff, whose fast quorum is one larger.
pub(crate) fn one_reply_more_in_gryff(settings: &Settings) -> Played {
    let step = |message: &gryff::Message| match message {
        gryff::Message::Instance { id, step, .. } => Some((id.row, step.clone())),
        _ => None,
    };
    let append = Action::Command(Redis::Append("v".into()));
    one_reply_more(&Gryff::linearizable(explicit(settings)), append, &[1, 3], step)
}

/// Region 4 proposes, and alone knows of it. Region 0 proposes: `unchanged` have nothing to add, then region 4 has, then
/// region 2 has nothing, which makes the fast quorum. Then region 0 is silent, and region 1 recovers with 2 and 3.
fn one_reply_more<E: Engine, C: Command, A: Attributes>(
    engine: &E,
    action: Action,
    unchanged: &[u8],
    step: impl Fn(&E::Message) -> Option<(Region, Step<C, A>)>,
) -> Played {
    let mut steps = Steps::new(engine, 5);
    let [p0, p1, p2, p3, p4] = [0, 1, 2, 3, 4].map(|region| steps.replica(region));
    // A step of region 0's instance.
    let between = |from: Address, to: Address, fits: fn(&Step<C, A>) -> bool| {
        let step = &step;
        move |sent: &Sent<E::Message>| {
            let of_it = step(&sent.message).is_some_and(|(row, step)| row == Region(0) && fits(&step));
            sent.from == from && sent.to == to && of_it
        }
    };
    let submit = |to: Address| move |sent: &Sent<E::Message>| sent.to == to;
    let pre_accept = |step: &Step<C, A>| matches!(step, Step::PreAccept { .. });
    let pre_accepted = |step: &Step<C, A>| matches!(step, Step::PreAcceptReply { .. });

    steps.begin(4, "x", action.clone());
    steps.deliver(submit(p4));
    steps.begin(0, "x", action);
    steps.deliver(submit(p0));
    let unchanged: Vec<_> = unchanged.iter().map(|region| steps.replica(*region)).collect();
    for peer in unchanged.into_iter().chain([p4, p2]) {
        steps.deliver(between(p0, peer, pre_accept));
        steps.deliver(between(peer, p0, pre_accepted));
    }
    while !steps.wire.iter().any(between(p1, p2, |step| matches!(step, Step::Recover { .. }))) {
        steps.wake(1, LATER);
    }
    for peer in [p2, p3] {
        steps.deliver(between(p1, peer, |step| matches!(step, Step::Recover { .. })));
        steps.deliver(between(peer, p1, |step| matches!(step, Step::RecoverReply { .. })));
    }
    for peer in [p2, p3] {
        steps.deliver(between(p1, peer, |step| matches!(step, Step::Accept { .. })));
        steps.deliver(between(peer, p1, |step| matches!(step, Step::AcceptReply { .. })));
    }
    let committed = |who: Address| {
        let commits = steps.wire.iter().filter(|sent| sent.from == who);
        let outcome = |sent: &Sent<E::Message>| match step(&sent.message) {
            Some((Region(0), Step::Commit { proposal })) => Some(proposal),
            _ => None,
        };
        commits.filter_map(outcome).next_back().expect("both have committed")
    };
    let (coordinator, recoverer) = (committed(p0), committed(p1));
    if coordinator == recoverer {
        return Ok(());
    }
    Err(format!("one instance was committed as {coordinator:?} and recovered as {recoverer:?}"))
}
