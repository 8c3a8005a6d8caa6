//! Commands that wait for the node: which requests they make of it, and what they answer when those have ended.

use super::contexts::{Export, Import};
use super::crossing::Crossing;
use super::open::Control;
use super::queue::Take;
use super::shared::SlowEntry;
use super::transaction::Exec;
use super::{Host, Running, State, outcome, transaction, walk::Walk};
use crate::resp::encode::{Encoder, Nil};
use crate::resp::parse::Args;
use crate::resp::table::{Each as EachKind, Keys};
use bytes::Bytes;
use meridian_protocol::clock::Micros;
use meridian_protocol::machine::{Completion, Level, Outcome, Request, RequestId};
use meridian_protocol::object::{Action, Answer, Command, Condition, Expiry, Fault, Reply, Set, SetAnswer};
use std::collections::HashMap;

/// What a running command waits for.
#[derive(Debug)]
pub(super) enum Job {
    /// One step on one key.
    One(One),
    /// One step on each of several keys.
    Each(Each),
    /// One step on several keys.
    Together(Together),
    /// `MERIDIAN.BEGIN`, `COMMIT` and `ABORT`.
    Control(Control),
    /// A listing of keys.
    Walk(Walk),
    /// `WATCH`.
    Watch(transaction::Watch),
    /// `EXEC`.
    Exec(Exec),
    /// Fences, of `MERIDIAN.FENCE` or ahead of a command.
    Crossing(Crossing),
    /// `MERIDIAN.CONTEXT GET`.
    Export(Export),
    /// `MERIDIAN.CONTEXT SET` and `MERGE`.
    Import(Import),
    /// Taking an item off a list.
    Take(Take),
}

/// One step on one key.
#[derive(Debug)]
pub(super) struct One {
    pub(super) request: RequestId,
    pub(super) nil: Nil,
    pub(super) read: bool,
}

impl State {
    /// Takes up the end of a request; `args` are the words of the command that runs.
    pub(super) fn on_completion(&mut self, args: Args<'_>, completion: Completion, host: &mut impl Host) {
        let Some(running) = self.running.take() else { return };
        let (began, whole) = (running.began, args);
        match running {
            Running { job: Job::Crossing(crossing), .. } => {
                self.on_crossing(crossing, completion, args, host);
            }
            Running { job: Job::Export(export), .. } => self.on_export(export, completion, host),
            Running { job: Job::Import(import), .. } => self.on_import(import, completion, host),
            running => self.on_operation(running, args, completion, host),
        }
        if self.running.is_none() {
            self.note_time(began, whole, host);
        }
    }

    /// Takes up the end of a request of an operation.
    fn on_operation(
        &mut self,
        mut running: Running,
        args: Args<'_>,
        completion: Completion,
        host: &mut impl Host,
    ) {
        let Completion { request, outcome, cost } = completion;
        let args = args.skip(running.prefix);
        let given_up = matches!(outcome, Outcome::NoQuorum | Outcome::Aborted(_) | Outcome::Unknown(_));
        let ended = match &mut running.job {
            Job::One(one) if one.request == request => {
                self.answer(one, &outcome, host);
                self.cost = cost;
                true
            }
            Job::One(_) => false,
            Job::Each(each) => {
                self.add_cost(cost);
                each.on_outcome(request, outcome, self, args, host)
            }
            Job::Walk(walk) => {
                self.add_cost(cost);
                walk.on_outcome(request, outcome, self, host)
            }
            Job::Together(together) => {
                self.cost = cost;
                together.on_outcome(request, &outcome, self, host)
            }
            Job::Control(control) => {
                self.cost = cost;
                control.on_outcome(request, &outcome, self, host)
            }
            Job::Watch(watch) => {
                self.add_cost(cost);
                watch.on_outcome(request, outcome, self, host)
            }
            Job::Exec(exec) => {
                self.cost = cost;
                exec.on_outcome(request, &outcome, self, host)
            }
            Job::Crossing(_) | Job::Export(_) | Job::Import(_) => unreachable!("it is no operation"),
            Job::Take(take) => {
                self.cost = cost;
                take.on_outcome(request, outcome, self, host)
            }
        };
        if ended {
            self.add_crossing();
            self.end_open(given_up);
        } else {
            self.running = Some(running);
        }
    }

    fn answer(&mut self, one: &One, outcome: &Outcome, host: &impl Host) {
        match outcome {
            Outcome::Answer(Answer::One(reply)) => {
                self.errors += u64::from(matches!(reply, Reply::Error(_)));
                self.reply().reply(reply, one.nil);
            }
            other => self.error(&outcome::error(&host.keyspaces()[self.keyspace], other, one.read)),
        }
    }

    /// Of a command that made several requests the slowest counts.
    fn add_cost(&mut self, cost: meridian_protocol::machine::Cost) {
        if (cost.rounds, cost.waited) >= (self.cost.rounds, self.cost.waited) {
            self.cost = cost;
        }
    }

    /// Counts what the command took, and logs it if that was long.
    fn note_time(&mut self, began: Micros, args: Args<'_>, host: &mut impl Host) {
        let now = host.now();
        let took = now.monotonic.saturating_sub(began);
        let shared = host.shared();
        shared.commands.note(self.keyspace, &args[0], took);
        let slower_than = shared.tunables.slow_log_slower_than;
        if slower_than < 0 || took < slower_than.unsigned_abs() {
            return;
        }
        let client = shared.clients.get_mut(self.id);
        let (peer, name) = client.map(|info| (info.peer.clone(), info.name.clone())).unwrap_or_default();
        let at_s = now.wall / 1_000_000;
        let entry = SlowEntry { id: 0, at_s, took, args: slow_args(args), peer, name };
        shared.slow_log.push(entry, shared.tunables.slow_log_max_len);
    }
}

/// The words of a command as the slow log keeps them: long ones and many are cut.
fn slow_args(args: Args<'_>) -> Vec<Bytes> {
    const WORDS: usize = 32;
    const BYTES: usize = 128;
    let shown = if args.len() > WORDS { WORDS - 1 } else { args.len() };
    let cut = |word: &[u8]| match word.len().checked_sub(BYTES) {
        Some(more @ 1..) => [&word[..BYTES], format!("... ({more} more bytes)").as_bytes()].concat().into(),
        _ => Bytes::copy_from_slice(word),
    };
    let mut words: Vec<Bytes> = args.iter().take(shown).map(cut).collect();
    if shown < args.len() {
        words.push(format!("... ({} more arguments)", args.len() - shown).into());
    }
    words
}

/// One step on each of several keys. A key that is named twice is stepped on once.
#[derive(Debug)]
pub(super) struct Each {
    kind: EachKind,
    at_ms: u64,
    level: Level,
    /// For each different key, the word that names it; of `MSET` the last, as its value counts.
    keys: Vec<usize>,
    /// For each key as it was named, its place among the different ones.
    named: Vec<usize>,
    /// The requests made so far, in the order of `keys`; their numbers grow.
    requests: Vec<RequestId>,
    /// The answers, in the same order.
    replies: Vec<Option<Reply>>,
    /// How many requests have ended.
    ended: usize,
    /// The worst outcome: no more requests are made.
    failed: Option<Outcome>,
}

impl Each {
    /// How many requests are in flight at most.
    const WINDOW: usize = 1024;

    pub(super) fn new(kind: EachKind, keys: Keys, args: Args<'_>, at_ms: u64, level: Level) -> Self {
        let mut places = HashMap::new();
        let mut different = Vec::new();
        let named = keys.indexes(args.len()).map(|index| {
            let place = *places.entry(&args[index]).or_insert_with(|| {
                different.push(index);
                different.len() - 1
            });
            different[place] = index;
            place
        });
        let named = named.collect();
        Self {
            kind,
            at_ms,
            level,
            keys: different,
            named,
            requests: Vec::new(),
            replies: Vec::new(),
            ended: 0,
            failed: None,
        }
    }

    /// The command for the key at a word.
    fn command(kind: EachKind, args: Args<'_>, index: usize) -> Command {
        match kind {
            EachKind::Get => Command::Get,
            EachKind::Set => Command::Set(Set {
                value: args.bytes(index + 1),
                condition: Condition::Always,
                expiry: Expiry::Never,
                answer: SetAnswer::Ok,
            }),
            EachKind::Delete => Command::Delete,
            EachKind::Exists => Command::Exists,
        }
    }

    /// The steps on all keys as they are named, for one request.
    pub(super) fn steps(
        kind: EachKind,
        keys: Keys,
        args: Args<'_>,
    ) -> impl Iterator<Item = (Bytes, Command)> {
        keys.indexes(args.len()).map(move |index| (args.bytes(index), Self::command(kind, args, index)))
    }

    /// Makes requests until the window is full.
    pub(super) fn fill(&mut self, state: &mut State, args: Args<'_>, host: &mut impl Host) {
        if self.requests.is_empty() {
            state.cost = meridian_protocol::machine::Cost::default();
        }
        while self.failed.is_none() && self.requests.len() - self.ended < Self::WINDOW {
            let Some(index) = self.keys.get(self.requests.len()) else { break };
            let action = Action::Command(Self::command(self.kind, args, *index));
            let request =
                Request::Act { key: args.bytes(*index), action, at_ms: self.at_ms, level: self.level };
            self.requests.push(state.submit(request, host));
            self.replies.push(None);
        }
    }

    fn on_outcome(
        &mut self,
        request: RequestId,
        outcome: Outcome,
        state: &mut State,
        args: Args<'_>,
        host: &mut impl Host,
    ) -> bool {
        let Ok(place) = self.requests.binary_search(&request) else { return false };
        self.ended += 1;
        match outcome {
            Outcome::Answer(Answer::One(reply)) => self.replies[place] = Some(reply),
            // What may have happened weighs more than what has not.
            other => {
                if self.failed.is_none() || matches!(other, Outcome::Unknown(_)) {
                    self.failed = Some(other);
                }
            }
        }
        self.fill(state, args, host);
        if self.ended < self.requests.len() {
            return false;
        }
        self.finish(state, host);
        true
    }

    fn finish(&self, state: &mut State, host: &impl Host) {
        let keyspace = &host.keyspaces()[state.keyspace];
        let written = self.replies.iter().flatten().filter(|reply| !matches!(reply, Reply::Error(_))).count();
        let read = matches!(self.kind, EachKind::Get | EachKind::Exists);
        match &self.failed {
            Some(Outcome::NoQuorum | Outcome::Aborted(_)) if !read && written > 0 => {
                state.error(&outcome::partly(keyspace, written, self.keys.len()));
            }
            Some(Outcome::Unknown(_)) if !read => {
                state.error(&outcome::partly(keyspace, written, self.keys.len()));
            }
            Some(other) => state.error(&outcome::error(keyspace, other, read)),
            None => self.answer(state),
        }
    }

    fn answer(&self, state: &mut State) {
        let reply = |place: &usize| self.replies[*place].as_ref().unwrap_or(&Reply::Nil);
        let replies: Vec<&Reply> = match self.kind {
            // A key that is named twice exists twice, but is deleted once.
            EachKind::Get | EachKind::Exists => self.named.iter().map(reply).collect(),
            EachKind::Set | EachKind::Delete => self.replies.iter().flatten().collect(),
        };
        aggregate(
            &mut state.errors,
            &mut Encoder::new(&mut state.output, state.protocol),
            self.kind,
            &replies,
        );
    }
}

/// Answers a command on several keys.
pub(super) fn aggregate(errors: &mut u64, to: &mut Encoder<'_>, kind: EachKind, replies: &[&Reply]) {
    let fault = replies.iter().find(|reply| matches!(reply, Reply::Error(_)));
    match (kind, fault) {
        (EachKind::Get, _) => {
            to.array(replies.len());
            for reply in replies {
                // To `MGET` a value of another type is nothing.
                let wrong = **reply == Reply::Error(Fault::WrongType);
                to.reply(if wrong { &Reply::Nil } else { reply }, Nil::String);
            }
        }
        (_, Some(fault)) => {
            *errors += 1;
            to.reply(fault, Nil::String);
        }
        (EachKind::Set, None) => to.ok(),
        (EachKind::Exists | EachKind::Delete, None) => {
            to.int(replies.iter().map(|reply| count_of(reply)).sum());
        }
    }
}

fn count_of(reply: &Reply) -> i64 {
    if let Reply::Int(count) = reply { *count } else { 0 }
}

/// One step on several keys, or on one as of a time in the past.
#[derive(Debug)]
pub(super) struct Together {
    pub(super) request: RequestId,
    pub(super) form: Form,
    pub(super) read: bool,
}

/// How the replies to the steps are answered.
#[derive(Clone, Copy, Debug)]
pub(super) enum Form {
    /// As those to a command on several keys.
    Each(EachKind),
    /// As the only one; its nothing has this form.
    One(Nil),
}

impl Together {
    fn on_outcome(&self, request: RequestId, outcome: &Outcome, state: &mut State, host: &impl Host) -> bool {
        if self.request != request {
            return false;
        }
        let mut to = Encoder::new(&mut state.output, state.protocol);
        match (outcome, self.form) {
            (Outcome::Answers(Some(replies)), Form::Each(kind)) => {
                aggregate(&mut state.errors, &mut to, kind, &replies.iter().collect::<Vec<_>>());
            }
            (Outcome::Answers(Some(replies)), Form::One(nil)) if replies.len() == 1 => {
                state.errors += u64::from(matches!(replies[0], Reply::Error(_)));
                to.reply(&replies[0], nil);
            }
            (other, _) => {
                state.error(&outcome::error(&host.keyspaces()[state.keyspace], other, self.read));
            }
        }
        true
    }
}
