//! Lemma 1 of the RSS paper (§3.5 and lemma C.5), carried out: from a history that obeys RSC (RSS) to the
//! linearizable (strictly serializable) one that no process can tell from it.
//!
//! *Guaranteed*: the same operations with the same answers, every session's own order of invocations and responses,
//! and every message still from the past to the future; only times are new, one tick for each action. The result
//! is judged by the checker before anyone gets it.
//!
//! *How.* The lemma moves each action behind the last one, by the legal order S, that causally precedes it. Here
//! every operation that S holds gets a point, the points follow each other as in S, and S is walked: before a
//! point its operation is invoked, with all that its session did and was told before; behind a point follow the
//! responses that no longer wait for one. Real time between operations is then a part of S.
//!
//! *Departures.* The paper's processes have one operation outstanding; a session here may have several, as long as
//! they need no order against S. An operation of unknown outcome that S holds has a point and no response (or
//! one that says nothing, and may come before the point); one that S leaves out, one that failed, and a fence
//! that S leaves out, have no point and stay where their session has them. Invocations that no point asks for come
//! last, as in lemma C.5. Where a return and an invocation of one session have the same time the two operations
//! count as overlapping, as they do for all models.

use crate::{Judgement, Model, Verdict, check, order};
use meridian_protocol::history::{Ended, Event};
use std::collections::{BTreeMap, HashMap};

/// What became of a history.
#[derive(Clone, Debug)]
pub struct Transformed {
    /// The same operations in the same order of lines, with other times.
    pub events: Vec<Event>,
    /// Whether times were reassigned at all: a history that obeys the stronger model already stays as it is.
    pub changed: bool,
    /// The stronger model.
    pub target: Model,
    /// Its judgement of `events`: it holds.
    pub judgement: Judgement,
}

/// The model that a history of `model` can be transformed into, for those that lemma 1 speaks of.
fn target(model: Model) -> Option<Model> {
    match model {
        Model::Rsc => Some(Model::Linearizable),
        Model::Rss => Some(Model::StrictSerializable),
        _ => None,
    }
}

/// Finds the equivalent history that obeys the stronger model. Transforming the result again changes nothing.
///
/// # Errors
/// The judgement that stands in the way: the history violates `model`, or no order for it could be found.
pub fn transform(model: Model, events: &[Event]) -> Result<Transformed, Judgement> {
    let Some(target) = target(model) else {
        return Err(Judgement::not_applicable(format!("lemma 1 is about rsc and rss, not about {model}")));
    };
    let order = order(model, events)?;
    let actions = Actions::new(events);
    let judgement = check(target, events);
    if judgement.verdict == Verdict::Holds && actions.backward_message(events).is_none() {
        return Ok(Transformed { events: events.to_vec(), changed: false, target, judgement });
    }
    let schedule = Walk::new(events, &actions, &order).schedule(&order)?;
    let events = retimed(events, &schedule);
    let after = Actions::new(&events);
    assert!(actions.sessions == after.sessions, "a session keeps its own order of actions");
    assert!(after.backward_message(&events).is_none(), "messages go from the past to the future");
    let judgement = check(target, &events);
    match judgement.verdict {
        Verdict::Holds => Ok(Transformed { events, changed: true, target, judgement }),
        verdict => Err(Judgement::undecided(format!(
            "the order found makes a history of which {target} is {verdict}: {}",
            judgement.reason
        ))),
    }
}

/// An invocation or a response of an operation, by its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Action {
    op: usize,
    response: bool,
}

/// What each session did, in its own order.
struct Actions {
    /// Sessions in the order of their names.
    sessions: Vec<Vec<Action>>,
    /// Each operation's session.
    session_of: Vec<usize>,
    /// Each operation's invocation and last action, as indices among its session's actions.
    place: Vec<(usize, usize)>,
    /// For each operation those whose results a message brought.
    senders: Vec<Vec<usize>>,
}

impl Actions {
    fn new(events: &[Event]) -> Self {
        let mut names: BTreeMap<&str, Vec<(i64, bool, usize)>> = BTreeMap::new();
        for (op, event) in events.iter().enumerate() {
            let actions = names.entry(&event.session).or_default();
            actions.push((event.invoke, false, op));
            actions.extend(event.returned.map(|returned| (returned, true, op)));
        }
        let mut session_of = vec![0; events.len()];
        let mut place = vec![(0, 0); events.len()];
        let mut sessions = Vec::with_capacity(names.len());
        for (session, mut actions) in names.into_values().enumerate() {
            actions.sort_unstable();
            for (index, &(_, response, op)) in actions.iter().enumerate() {
                session_of[op] = session;
                place[op] = if response { (place[op].0, index) } else { (index, index) };
            }
            sessions.push(actions.into_iter().map(|(_, response, op)| Action { op, response }).collect());
        }
        let by_id: HashMap<u64, usize> =
            events.iter().enumerate().map(|(op, event)| (event.id, op)).collect();
        let senders = events.iter().map(|event| event.after.iter().filter_map(|id| by_id.get(id).copied()));
        Self { sessions, session_of, place, senders: senders.map(Iterator::collect).collect() }
    }

    /// A message that was received before it was sent, as (sender, receiver).
    fn backward_message(&self, events: &[Event]) -> Option<(usize, usize)> {
        let sent = |op: usize| events[op].returned.unwrap_or(events[op].invoke);
        let messages =
            self.senders.iter().enumerate().flat_map(|(to, from)| from.iter().map(move |from| (*from, to)));
        messages.into_iter().find(|(from, to)| sent(*from) >= events[*to].invoke)
    }
}

/// The walk along the legal order.
struct Walk<'h> {
    events: &'h [Event],
    actions: &'h Actions,
    /// How many actions of each session have been scheduled.
    done: Vec<usize>,
    /// Operations whose response waits for no point: theirs has passed, or they have none.
    free: Vec<bool>,
    schedule: Vec<Action>,
}

impl<'h> Walk<'h> {
    fn new(events: &'h [Event], actions: &'h Actions, order: &[usize]) -> Self {
        let mut free = vec![true; events.len()];
        for &op in order {
            free[op] = events[op].outcome != Ended::Ok;
        }
        for (op, event) in events.iter().enumerate() {
            let placed = !free[op] || event.outcome != Ended::Ok || event.ops.is_empty();
            assert!(placed, "an order holds every operation that ended well: {}", event.id);
        }
        Self { events, actions, done: vec![0; actions.sessions.len()], free, schedule: Vec::new() }
    }

    fn schedule(mut self, order: &[usize]) -> Result<Vec<Action>, Judgement> {
        for &op in order {
            let session = self.actions.session_of[op];
            self.go_on(session, self.actions.place[op].0)?;
            self.free[op] = true;
            self.respond(session);
        }
        let mut left: Vec<usize> = (0..self.events.len()).collect();
        left.sort_by_key(|op| self.events[*op].invoke);
        for op in left {
            self.go_on(self.actions.session_of[op], self.actions.place[op].1)?;
        }
        Ok(self.schedule)
    }

    /// Lets a session go on until its action at `index` is scheduled, and before that others, whose messages it got.
    fn go_on(&mut self, session: usize, index: usize) -> Result<(), Judgement> {
        // Sessions that wait for the next one: each at most once, otherwise they wait in a circle.
        let mut waiting = vec![(session, index)];
        while let Some(&(session, index)) = waiting.last() {
            let next = self.done[session];
            if next > index {
                waiting.pop();
                self.respond(session);
                continue;
            }
            let action = self.actions.sessions[session][next];
            if action.response && !self.free[action.op] {
                return Err(self.entangled(action.op));
            }
            match self.missing_message(action) {
                Some((sender, _)) if waiting.iter().any(|(other, _)| *other == sender) => {
                    return Err(self.entangled(action.op));
                }
                Some(sender) => waiting.push(sender),
                None => self.take(session),
            }
        }
        Ok(())
    }

    /// Where a message comes from that must be sent before `action`: the session, and its last action before it.
    fn missing_message(&self, action: Action) -> Option<(usize, usize)> {
        let senders = self.actions.senders[action.op].iter().filter(|_| !action.response);
        let mut sent = senders.map(|op| (self.actions.session_of[*op], self.actions.place[*op].1));
        sent.find(|(session, index)| self.done[*session] <= *index)
    }

    /// Schedules the responses that a session can get at once.
    fn respond(&mut self, session: usize) {
        let actions = &self.actions.sessions[session];
        while actions.get(self.done[session]).is_some_and(|next| next.response && self.free[next.op]) {
            self.take(session);
        }
    }

    fn take(&mut self, session: usize) {
        self.schedule.push(self.actions.sessions[session][self.done[session]]);
        self.done[session] += 1;
    }

    fn entangled(&self, op: usize) -> Judgement {
        let event = &self.events[op];
        Judgement::undecided(format!(
            "the order found puts something before op {} that its session {} knew only afterwards: a message out of or \
             into overlapping operations, or one of unknown outcome, binds them beyond the model",
            event.id, event.session
        ))
    }
}

/// The history with each action at the time of its place in the schedule.
fn retimed(events: &[Event], schedule: &[Action]) -> Vec<Event> {
    let mut events = events.to_vec();
    for (time, action) in (0..).zip(schedule) {
        let event = &mut events[action.op];
        if action.response {
            event.returned = Some(time);
        } else {
            event.invoke = time;
        }
    }
    events
}
