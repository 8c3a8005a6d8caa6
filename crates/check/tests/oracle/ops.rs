//! Events as the oracle reads them, and the relations between them that need no order: session order, messages,
//! real time.

use meridian_protocol::history::{Ended, Event, Kind, Mode};

/// A key is `(service, name)`.
pub(crate) type Key = (String, String);

/// One operation or transaction.
#[derive(Clone, Debug)]
pub(crate) struct Op {
    pub(crate) session: String,
    pub(crate) service: String,
    pub(crate) invoke: i64,
    /// When it ended, for those that ended ok.
    pub(crate) returned: Option<i64>,
    pub(crate) outcome: Ended,
    pub(crate) fence: bool,
    /// What it saw of others: reads of its own writes are not among them.
    pub(crate) reads: Vec<(Key, Option<String>)>,
    /// The last that it wrote to each key.
    pub(crate) writes: Vec<(Key, Option<String>)>,
    pub(crate) level: Option<String>,
}

impl Op {
    pub(crate) fn updates(&self) -> bool {
        !self.writes.is_empty()
    }

    pub(crate) fn writes_to(&self, key: &Key) -> bool {
        self.writes.iter().any(|(written, _)| written == key)
    }

    pub(crate) fn keys(&self) -> Vec<&Key> {
        let mut keys: Vec<&Key> = self.reads.iter().chain(&self.writes).map(|(key, _)| key).collect();
        keys.sort();
        keys.dedup();
        keys
    }
}

/// A history, and what follows from it alone.
pub(crate) struct History {
    pub(crate) ops: Vec<Op>,
    /// `session[a][b]`: the same session did `b` after `a` had returned.
    pub(crate) session: Vec<Vec<bool>>,
    /// `real_time[a][b]`: `a` had returned when `b` was invoked.
    pub(crate) real_time: Vec<Vec<bool>>,
    /// Session order and messages, and what follows from both. A message that reached a session is known to all
    /// that the session invokes from then on.
    pub(crate) told: Vec<Vec<bool>>,
}

impl History {
    pub(crate) fn new(events: &[Event]) -> Self {
        let ops: Vec<Op> = events.iter().map(op).collect();
        let relation = |holds: &dyn Fn(usize, usize) -> bool| -> Vec<Vec<bool>> {
            (0..ops.len()).map(|a| (0..ops.len()).map(|b| holds(a, b)).collect()).collect()
        };
        let real_time = relation(&|a, b| ops[a].returned.is_some_and(|returned| returned < ops[b].invoke));
        let session = relation(&|a, b| real_time[a][b] && ops[a].session == ops[b].session);
        // What had returned to a sender's session when it could send: its own operation had, the receiver's had not
        // been invoked.
        let sent = |a: usize, sender: usize, receiver: usize| {
            let latest =
                events[sender].returned.unwrap_or(ops[sender].invoke - 1).min(ops[receiver].invoke - 1);
            let known = ops[a].returned.is_some_and(|returned| returned <= latest);
            a == sender || ops[a].session == ops[sender].session && known
        };
        let reached = |receiver: usize, b: usize| {
            b == receiver || ops[b].session == ops[receiver].session && ops[receiver].invoke < ops[b].invoke
        };
        let message = relation(&|a, b| {
            let all = || 0..ops.len();
            let carries = |from: usize, to: usize| events[to].after.contains(&events[from].id);
            a != b
                && all().any(|from| all().any(|to| carries(from, to) && sent(a, from, to) && reached(to, b)))
        });
        let mut told = relation(&|a, b| session[a][b] || message[a][b]);
        close(&mut told);
        Self { ops, session, real_time, told }
    }

    /// Every way in which operations of unknown outcome may have happened: which operations did something.
    pub(crate) fn worlds(&self) -> Vec<Vec<usize>> {
        let mut worlds = vec![Vec::new()];
        for (index, op) in self.ops.iter().enumerate() {
            let with = |world: &Vec<usize>| [world.as_slice(), &[index]].concat();
            worlds = match op.outcome {
                Ended::Failed => worlds,
                _ if op.reads.is_empty() && op.writes.is_empty() => worlds,
                Ended::Ok => worlds.iter().map(with).collect(),
                Ended::Unknown => worlds.iter().flat_map(|world| [world.clone(), with(world)]).collect(),
            };
        }
        worlds
    }

    /// All ways to say which of the `world`'s operations wrote what each read saw (`None`: it is as it began).
    pub(crate) fn explanations(&self, world: &[usize]) -> Vec<Vec<Read>> {
        let mut all = vec![Vec::new()];
        for &op in world {
            for (key, value) in &self.ops[op].reads {
                let wrote = |other: &&usize| {
                    **other != op && self.ops[**other].writes.contains(&(key.clone(), value.clone()))
                };
                let mut sources: Vec<Option<usize>> = world.iter().filter(wrote).map(|w| Some(*w)).collect();
                sources.extend(value.is_none().then_some(None));
                let read = |source: &Option<usize>| Read { op, key: key.clone(), source: *source };
                all = all
                    .iter()
                    .flat_map(|reads: &Vec<Read>| {
                        sources.iter().map(|s| [reads.as_slice(), &[read(s)]].concat())
                    })
                    .collect();
            }
        }
        all
    }
}

/// What one read of one operation saw.
#[derive(Clone, Debug)]
pub(crate) struct Read {
    pub(crate) op: usize,
    pub(crate) key: Key,
    pub(crate) source: Option<usize>,
}

/// Makes a relation transitive.
pub(crate) fn close(relation: &mut [Vec<bool>]) {
    for middle in 0..relation.len() {
        for from in 0..relation.len() {
            for to in 0..relation.len() {
                relation[from][to] |= relation[from][middle] && relation[middle][to];
            }
        }
    }
}

/// All orders of `items` for which `may_follow(prefix, item)` holds at every step, until `visit` answers true.
pub(crate) fn orders(
    items: &[usize],
    may_follow: &mut dyn FnMut(&[usize], usize) -> bool,
    visit: &mut dyn FnMut(&[usize]) -> bool,
) -> bool {
    fn extend(
        prefix: &mut Vec<usize>,
        items: &[usize],
        may_follow: &mut dyn FnMut(&[usize], usize) -> bool,
        visit: &mut dyn FnMut(&[usize]) -> bool,
    ) -> bool {
        if prefix.len() == items.len() {
            return visit(prefix);
        }
        for &item in items {
            if !prefix.contains(&item) && may_follow(prefix, item) {
                prefix.push(item);
                if extend(prefix, items, may_follow, visit) {
                    return true;
                }
                prefix.pop();
            }
        }
        false
    }
    extend(&mut Vec::new(), items, may_follow, visit)
}

fn op(event: &Event) -> Op {
    let mut reads: Vec<(Key, Option<String>)> = Vec::new();
    let mut writes: Vec<(Key, Option<String>)> = Vec::new();
    for access in &event.ops {
        let key = (event.service.clone(), access.key.clone());
        let own = writes.iter_mut().find(|(written, _)| *written == key);
        match (access.mode, own) {
            (Mode::Write, Some(own)) => own.1.clone_from(&access.value),
            (Mode::Write, None) => writes.push((key, access.value.clone())),
            (Mode::Read, Some(own)) => assert_eq!(own.1, access.value, "it contradicts itself"),
            (Mode::Read, None) => reads.push((key, access.value.clone())),
        }
    }
    Op {
        session: event.session.clone(),
        service: event.service.clone(),
        invoke: event.invoke,
        returned: event.returned.filter(|_| event.outcome == Ended::Ok),
        outcome: event.outcome,
        fence: event.kind == Kind::Fence,
        reads,
        writes,
        level: event.level.clone(),
    }
}
