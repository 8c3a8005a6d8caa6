//! A history in the form in which models judge it: numbers for names, and each access normalised.

use meridian_protocol::Map;
use meridian_protocol::history::{Ended, Event, Kind, Mode};
use std::collections::BTreeMap;

/// An operation's index among all.
pub(crate) type Op = usize;

/// A value's number; [`ABSENT`] is an absent key.
pub(crate) type Value = u32;

/// The value of a key that nothing has written, or that was deleted.
pub(crate) const ABSENT: Value = 0;

/// The time at which an operation returned that never did.
pub(crate) const NEVER: i64 = i64::MAX;

/// What an operation did to one key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Touch {
    /// The key, counted over all services.
    pub(crate) key: usize,
    /// What it saw before its own write.
    pub(crate) read: Option<Value>,
    /// What it left.
    pub(crate) write: Option<Value>,
}

/// One operation or transaction.
#[derive(Debug)]
pub(crate) struct Operation {
    pub(crate) session: usize,
    pub(crate) service: usize,
    pub(crate) invoke: i64,
    /// [`NEVER`] unless the operation ended ok.
    pub(crate) returned: i64,
    pub(crate) outcome: Ended,
    pub(crate) fence: bool,
    pub(crate) touches: Vec<Touch>,
}

impl Operation {
    /// Whether it writes.
    pub(crate) fn updates(&self) -> bool {
        self.touches.iter().any(|touch| touch.write.is_some())
    }

    /// Whether it ended ok.
    pub(crate) fn is_ok(&self) -> bool {
        self.outcome == Ended::Ok
    }

    /// Whether it returned before `later` was invoked.
    pub(crate) fn returned_before(&self, later: &Self) -> bool {
        self.returned < later.invoke
    }
}

/// A history, ready to be judged.
#[derive(Debug)]
pub(crate) struct Operations<'h> {
    pub(crate) events: &'h [Event],
    /// One for each event, in the same order.
    pub(crate) all: Vec<Operation>,
    /// Keys as `(service, key)`.
    pub(crate) keys: Vec<(&'h str, &'h str)>,
    pub(crate) sessions: usize,
    pub(crate) services: usize,
    /// Operations by their id.
    pub(crate) by_id: Map<u64, Op>,
    /// Sessions cut into chains in which each operation returned before the next was invoked: one a session,
    /// more where it had several operations outstanding, and one for each operation that never returned.
    pub(crate) lanes: Vec<Vec<Op>>,
    /// The lanes of each session, without operations that never returned.
    lanes_of: Vec<Vec<u32>>,
    /// For operations that messages had reached, whose results they carried.
    messages: BTreeMap<Op, Vec<Op>>,
    values: Vec<&'h str>,
}

impl<'h> Operations<'h> {
    /// Normalises a history.
    ///
    /// # Errors
    /// A transaction that contradicts itself: it saw two values of one key, or not what it had written.
    pub(crate) fn new(events: &'h [Event]) -> Result<Self, String> {
        let mut names = Names::default();
        let by_id = events.iter().enumerate().map(|(op, event)| (event.id, op)).collect();
        let mut all = Vec::with_capacity(events.len());
        for event in events {
            let touches = names.touches(event)?;
            all.push(Operation {
                session: number(&mut names.sessions, &event.session),
                service: number(&mut names.services, &event.service),
                invoke: event.invoke,
                returned: event.returned.filter(|_| event.outcome == Ended::Ok).unwrap_or(NEVER),
                outcome: event.outcome,
                fence: event.kind == Kind::Fence,
                touches,
            });
        }
        let (sessions, services) = (names.sessions.len(), names.services.len());
        let lanes = Lanes::new(&all, sessions);
        let mut operations = Self {
            messages: BTreeMap::new(),
            lanes: lanes.lanes,
            lanes_of: lanes.of_session,
            events,
            all,
            keys: names.named_keys,
            sessions,
            services,
            by_id,
            values: names.named_values,
        };
        operations.deliver();
        Ok(operations)
    }

    /// Whose results had reached the session by a message when `op` was invoked, unless an earlier operation of the
    /// session that ended ok knew them.
    pub(crate) fn told(&self, op: Op) -> &[Op] {
        self.messages.get(&op).map_or(&[], Vec::as_slice)
    }

    /// A message is known to all that its receiver's session invokes from then on, even if the operation that it
    /// is noted at fails; and a sender whose operation failed tells what its session knew.
    fn deliver(&mut self) {
        let mut receivers: Vec<Op> =
            (0..self.all.len()).filter(|op| !self.events[*op].after.is_empty()).collect();
        if receivers.is_empty() {
            return;
        }
        let mut sessions: Vec<Vec<Op>> = vec![Vec::new(); self.sessions];
        for (op, operation) in self.all.iter().enumerate() {
            sessions[operation.session].push(op);
        }
        for ops in sessions.iter_mut().chain([&mut receivers]) {
            ops.sort_by_key(|op| self.all[*op].invoke);
        }
        for receiver in receivers {
            let operation = &self.all[receiver];
            let senders = self.senders(receiver);
            let session = &sessions[operation.session];
            let next = session.partition_point(|op| self.all[*op].invoke <= operation.invoke);
            let mut known = operation.returned;
            let mut hear = vec![receiver];
            for &later in &session[next..] {
                if known < self.all[later].invoke {
                    break;
                }
                known = known.min(self.all[later].returned);
                hear.push(later);
            }
            for op in hear {
                self.messages.entry(op).or_default().extend(&senders);
            }
        }
    }

    fn senders(&self, receiver: Op) -> Vec<Op> {
        let mut senders = Vec::new();
        for sender in self.events[receiver].after.iter().filter_map(|id| self.by_id.get(id).copied()) {
            senders.push(sender);
            senders.extend(self.known_to_sender(sender, receiver));
            if !self.all[sender].is_ok() {
                senders.extend(self.told(sender));
            }
        }
        senders
    }

    /// The last operations of a sender's session that had returned when it could send: before it returned itself if
    /// it did. Where a session has several operations outstanding that is more than came before the sender.
    fn known_to_sender(&self, sender: Op, receiver: Op) -> impl Iterator<Item = Op> + '_ {
        let latest = self.events[sender].returned.unwrap_or(self.all[sender].invoke.saturating_sub(1));
        let sent = latest.min(self.all[receiver].invoke.saturating_sub(1));
        self.lanes_of[self.all[sender].session].iter().filter_map(move |lane| {
            let lane = &self.lanes[*lane as usize];
            let before = lane.partition_point(|other| self.all[*other].returned <= sent);
            before.checked_sub(1).map(|last| lane[last]).filter(|last| *last != sender)
        })
    }

    /// The last operations of its session that returned before `op` was invoked.
    pub(crate) fn previous_in_session(&self, op: Op) -> impl Iterator<Item = Op> + '_ {
        let operation = &self.all[op];
        self.lanes_of[operation.session].iter().filter_map(move |lane| {
            let lane = &self.lanes[*lane as usize];
            let before = lane.partition_point(|other| self.all[*other].returned_before(operation));
            before.checked_sub(1).map(|last| lane[last])
        })
    }

    /// How a person reads the operation: `op 7 (p1: r x=3 w x=4)`.
    pub(crate) fn name(&self, op: Op) -> String {
        let event = &self.events[op];
        let mut text = format!("op {} ({}:", event.id, event.session);
        if event.kind == Kind::Fence {
            text.push_str(" fence");
        }
        for access in &event.ops {
            let mode = if access.mode == Mode::Read { "r" } else { "w" };
            let value = access.value.as_deref().map_or("null".to_string(), shortened);
            text.extend([" ", mode, " ", &access.key, "=", &value]);
        }
        text.push_str(match event.outcome {
            Ended::Ok => ")",
            Ended::Failed => ", failed)",
            Ended::Unknown => ", outcome unknown)",
        });
        on_one_line(&text)
    }

    /// How a person reads the value.
    pub(crate) fn value(&self, value: Value) -> String {
        let name = value.checked_sub(1).map(|index| self.values[index as usize]);
        name.map_or("null".to_string(), |name| on_one_line(&shortened(name)))
    }

    /// How a person reads the key.
    pub(crate) fn key(&self, key: usize) -> String {
        match self.keys[key] {
            ("", name) => on_one_line(name),
            (service, name) => on_one_line(&format!("{service}/{name}")),
        }
    }
}

/// Names come from outside: what would end a line or a column is escaped.
fn on_one_line(text: &str) -> String {
    if !text.contains(char::is_control) {
        return text.to_string();
    }
    let escape = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(escape).collect()
}

/// Long values are told by their ends.
fn shortened(value: &str) -> String {
    let length = value.chars().count();
    if length <= 24 {
        return value.to_string();
    }
    let head: String = value.chars().take(10).collect();
    let tail: String = value.chars().skip(length - 10).collect();
    format!("{head}…{tail}")
}

struct Lanes {
    lanes: Vec<Vec<Op>>,
    of_session: Vec<Vec<u32>>,
}

impl Lanes {
    fn new(all: &[Operation], sessions: usize) -> Self {
        let mut by_time: Vec<Op> = (0..all.len()).collect();
        by_time.sort_by_key(|op| (all[*op].invoke, all[*op].returned));
        let mut lanes: Vec<Vec<Op>> = Vec::new();
        let mut of_session: Vec<Vec<u32>> = vec![Vec::new(); sessions];
        for op in by_time {
            // What never returned comes before nothing: a lane of its own, which is nobody's past.
            if all[op].returned == NEVER {
                lanes.push(vec![op]);
                continue;
            }
            let own = &mut of_session[all[op].session];
            let free = own.iter().copied().find(|lane| {
                let lane: &Vec<Op> = &lanes[*lane as usize];
                lane.last().is_none_or(|last| all[*last].returned_before(&all[op]))
            });
            let lane = free.unwrap_or_else(|| {
                lanes.push(Vec::new());
                own.push(lanes.len() as u32 - 1);
                lanes.len() as u32 - 1
            });
            lanes[lane as usize].push(op);
        }
        Self { lanes, of_session }
    }
}

#[derive(Default)]
struct Names<'h> {
    keys: Map<(&'h str, &'h str), usize>,
    named_keys: Vec<(&'h str, &'h str)>,
    values: Map<&'h str, Value>,
    named_values: Vec<&'h str>,
    sessions: Map<&'h str, usize>,
    services: Map<&'h str, usize>,
}

impl<'h> Names<'h> {
    fn touches(&mut self, event: &'h Event) -> Result<Vec<Touch>, String> {
        let mut touches: Vec<Touch> = Vec::with_capacity(1);
        for access in &event.ops {
            let key = self.key((&event.service, &access.key));
            let value = self.value(access.value.as_deref());
            let index = touches.iter().position(|touch| touch.key == key).unwrap_or_else(|| {
                touches.push(Touch { key, read: None, write: None });
                touches.len() - 1
            });
            let touch = &mut touches[index];
            if access.mode == Mode::Write {
                touch.write = Some(value);
                continue;
            }
            match touch.write.or(touch.read) {
                None => touch.read = Some(value),
                Some(expected) if expected == value => {}
                Some(_) => {
                    return Err(format!(
                        "op {} ({}) contradicts itself: within one step it read two values of {}",
                        event.id, event.session, access.key
                    ));
                }
            }
        }
        Ok(touches)
    }

    fn key(&mut self, name: (&'h str, &'h str)) -> usize {
        *self.keys.entry(name).or_insert_with(|| {
            self.named_keys.push(name);
            self.named_keys.len() - 1
        })
    }

    /// Values count from 1, as 0 is [`ABSENT`].
    fn value(&mut self, value: Option<&'h str>) -> Value {
        let Some(name) = value else { return ABSENT };
        *self.values.entry(name).or_insert_with(|| {
            self.named_values.push(name);
            self.named_values.len() as Value
        })
    }
}

fn number<'h>(names: &mut Map<&'h str, usize>, name: &'h str) -> usize {
    let next = names.len();
    *names.entry(name).or_insert(next)
}
