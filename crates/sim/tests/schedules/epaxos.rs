//! Schedules in which a wrong EPaxos goes wrong, message by message.

use super::Played;
use super::instances::explicit;
use meridian_protocol::epaxos::instance::{InstanceId, Kind, Step};
use meridian_protocol::epaxos::{Epaxos, Message};
use meridian_protocol::object::{Action, Command, Condition, Expiry, Set, SetAnswer};
use meridian_protocol::registry::Settings;
use meridian_protocol::topology::{Address, Region};
use meridian_sim::steps::{Sent, Steps};

pub(crate) fn set(value: &'static str) -> Action {
    Action::Command(Command::Set(Set {
        value: value.into(),
        condition: Condition::Always,
        expiry: Expiry::Never,
        answer: SetAnswer::Ok,
    }))
}

/// Longer than any alarm.
pub(crate) const LATER: u64 = 5_000_000;

type Fits = fn(&Step) -> bool;

/// The published counterexample to one ballot an instance (Sutra 2019), with this recovery's choices in place of the
/// published ones: p1 = region 0, p2 = 1, p3 = 2.
pub(crate) fn two_outcomes_of_one_instance(settings: &Settings) -> Played {
    let mut steps = Steps::new(&Epaxos::new(explicit(settings)), 3);
    let c2 = InstanceId { kind: Kind::Update, row: Region(0), index: 1 };
    let [p1, p2, p3] = [0, 1, 2].map(|region| steps.replica(region));
    let between = |from: Address, to: Address, id: InstanceId, fits: Fits| {
        move |sent: &Sent<Message>| {
            let step = step_of(&sent.message).filter(|(of, _)| *of == id);
            sent.from == from && sent.to == to && step.is_some_and(|(_, step)| fits(step))
        }
    };
    let submit: fn(&Sent<Message>) -> bool = |sent| matches!(sent.message, Message::Submit { .. });
    let (recover, promise): (Fits, Fits) =
        (|step| matches!(step, Step::Recover { .. }), |step| matches!(step, Step::RecoverReply { .. }));
    let (accept, accepted): (Fits, Fits) =
        (|step| matches!(step, Step::Accept { .. }), |step| matches!(step, Step::AcceptReply { .. }));

    // c1 is proposed at p3, then c2 at p1; p3 alone hears of c2, and adds c1 to its dependencies.
    steps.begin(2, "x", set("c1"));
    steps.deliver(submit);
    steps.begin(0, "x", set("c2"));
    steps.deliver(submit);
    steps.deliver(between(p1, p3, c2, |step| matches!(step, Step::PreAccept { .. })));

    // Ballot 1: p3 with p2, up to its own acceptance.
    steps.wake(2, LATER);
    steps.deliver(between(p3, p2, c2, recover));
    steps.deliver(between(p2, p3, c2, promise));

    // Ballot 2: p2 with p1, up to p1's acceptance of another outcome, of which p2 does not hear yet.
    steps.wake(1, LATER);
    steps.wake(1, LATER);
    steps.deliver(between(p2, p1, c2, recover));
    steps.deliver(between(p1, p2, c2, promise));
    steps.deliver(between(p2, p1, c2, accept));

    // Ballots 3 and 4: p1 with p3. The first promise is lost; the second one shows what the first has left.
    steps.wake(0, LATER);
    steps.wake(0, LATER);
    steps.deliver(between(p1, p3, c2, recover));
    steps.wake(0, LATER);
    steps.deliver(between(p1, p3, c2, recover));
    steps.deliver(between(p3, p1, c2, promise));
    steps.deliver(between(p1, p3, c2, accept));
    steps.deliver(between(p3, p1, c2, accepted));

    // And now p2 hears that its outcome was accepted at ballot 2.
    steps.deliver(between(p1, p2, c2, accepted));
    let committed = steps.wire.iter().filter_map(|sent| match step_of(&sent.message) {
        Some((id, Step::Commit { proposal })) if id == c2 => Some((sent.from, proposal)),
        _ => None,
    });
    let committed: Vec<_> = committed.collect();
    assert!([p1, p2].iter().all(|who| committed.iter().any(|(from, _)| from == who)), "both have committed");
    match committed.iter().find(|(_, proposal)| *proposal != committed[0].1) {
        Some(other) => Err(format!("one instance was committed as {:?} and as {other:?}", committed[0])),
        None => Ok(()),
    }
}

/// The step that a message of consensus tells, and of which instance.
pub(crate) fn step_of(message: &Message) -> Option<(InstanceId, &Step)> {
    if let Message::Instance { id, step, .. } = message { Some((*id, step)) } else { None }
}
