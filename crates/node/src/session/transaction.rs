//! `MULTI`, `EXEC`, `DISCARD`, `WATCH` and `UNWATCH`: transactions, each one step of the keyspace. Which keys one may
//! have says the keyspace's model.

use super::dispatch::{OUT_OF_MEMORY, nil_of};
use super::job::{Each, Job, aggregate};
use super::{Host, State, outcome, queue};
use crate::resp::encode::{Encoder, Nil, printable};
use crate::resp::parse::{Args, OwnedArgs};
use crate::resp::table::{Each as EachKind, Entry, Kind, MEMORY};
use crate::resp::typed::queues::Take;
use crate::resp::typed::{Refusal, wrong_arity};
use bytes::Bytes;
use meridian_protocol::machine::{Cost, Level, Outcome, Request, RequestId, Together};
use meridian_protocol::object::{Action, Answer, Class, Command, Reply, Version};
use meridian_protocol::registry::Several;
use std::collections::HashSet;

/// A transaction that is being gathered.
#[derive(Debug, Default)]
pub(super) struct Multi {
    commands: Vec<(&'static Entry, OwnedArgs)>,
    bytes: usize,
    /// A command was refused: `EXEC` will be too.
    spoiled: bool,
}

impl Multi {
    /// How many bytes of commands may be queued.
    const BYTES_MAX: usize = crate::resp::parse::COMMAND_MAX;

    /// Makes `EXEC` fail, because a command was refused.
    pub(super) fn spoil(&mut self) {
        self.spoiled = true;
    }

    /// The key on which the queued commands are.
    fn key(&self) -> Option<&[u8]> {
        self.commands.first().and_then(|(_, args)| args.args().get(1))
    }
}

/// A key whose version was seen by `WATCH`.
#[derive(Clone, Debug)]
pub(super) struct Watched {
    keyspace: usize,
    key: Bytes,
    version: Version,
}

/// A `WATCH` that waits for versions.
#[derive(Debug)]
pub(super) struct Watch {
    waiting: Vec<(RequestId, Bytes)>,
    seen: Vec<(Bytes, Version)>,
    failed: Option<Outcome>,
}

impl Watch {
    /// How many keys can be watched.
    const KEYS_MAX: usize = 1024;
}

/// An `EXEC` that waits for its answer.
#[derive(Debug)]
pub(super) struct Exec {
    request: RequestId,
    slots: Vec<Slot>,
    /// Nothing in it writes.
    read: bool,
}

/// One command's place in the answer of `EXEC`.
#[derive(Debug)]
enum Slot {
    /// It was sent; its nothing has this form.
    Sent(Nil),
    /// It was sent as a step on each of so many keys.
    Each(EachKind, usize),
    /// An item was to be taken off its key.
    Take(Take),
    /// Its arguments make no command.
    Refused(Refusal),
}

impl State {
    /// `MULTI`.
    pub(super) fn on_multi(&mut self, host: &mut impl Host) {
        if self.multi.is_some() {
            return self.error("ERR MULTI calls can not be nested");
        }
        self.multi = Some(Multi::default());
        self.reply().ok();
        self.show_transaction(host);
    }

    /// How many bytes it keeps for `EXEC`.
    pub(super) fn gathered(&self) -> usize {
        let queued = self.multi.as_ref().map_or(0, |multi| multi.bytes);
        queued + self.watched.iter().map(|watched| watched.key.len()).sum::<usize>()
    }

    /// Takes a command into the transaction.
    pub(super) fn queue(&mut self, entry: &'static Entry, args: Args<'_>, host: &mut impl Host) {
        let refusal = self.unfit(entry, args, host);
        let Some(multi) = &mut self.multi else { return };
        if let Some(refusal) = refusal {
            multi.spoil();
            return self.error(&refusal);
        }
        let args = OwnedArgs::copy(args);
        multi.bytes += args.bytes();
        multi.commands.push((entry, args));
        self.reply().simple("QUEUED");
        self.show_transaction(host);
    }

    /// Why a command cannot be a part of the transaction.
    fn unfit(&self, entry: &Entry, args: Args<'_>, host: &impl Host) -> Option<String> {
        let multi = self.multi.as_ref()?;
        let name = entry.name.replace('|', " ").to_uppercase();
        let keyspace = &host.keyspaces()[self.keyspace];
        let several = keyspace.model.several();
        if matches!(entry.kind, Kind::Own(_)) {
            return Some(format!(
                "ERR {name} is not served inside MULTI: a transaction is one step on {}; send it before or after",
                if several == Several::Transactions { "keys" } else { "one key" }
            ));
        }
        if several == Several::Snapshots {
            return Some(outcome::no_transactions(keyspace, &format!("{name} inside MULTI")));
        }
        if multi.bytes > Multi::BYTES_MAX {
            return Some(format!("ERR a transaction has at most {} bytes", Multi::BYTES_MAX));
        }
        if let Kind::Take(typer) = entry.kind
            && typer(args).is_ok_and(|take| take.keys.len() > 1)
        {
            return Some(format!(
                "ERR {name} inside MULTI is served with one key: which one has an item is not known before EXEC"
            ));
        }
        if several == Several::Transactions {
            return None;
        }
        let single = match entry.kind {
            Kind::Each(EachKind::Delete | EachKind::Exists) => args.len() == 2,
            Kind::Each(_) => false,
            Kind::Take(typer) => !typer(args).is_ok_and(|take| take.is_of_two()),
            Kind::Key(_) | Kind::Own(_) => true,
        };
        if !single {
            let what = format!("{name} inside MULTI may have several keys");
            return Some(outcome::several_keys(keyspace, &what));
        }
        let other = multi.key().filter(|key| *key != &args[1])?;
        let what = format!("'{}' after '{}'", printable(&args[1], 64), printable(other, 64));
        Some(outcome::several_keys(keyspace, &what))
    }

    /// `DISCARD`.
    pub(super) fn on_discard(&mut self, host: &mut impl Host) {
        if self.multi.take().is_none() {
            return self.error("ERR DISCARD without MULTI");
        }
        self.watched.clear();
        self.reply().ok();
        self.show_transaction(host);
    }

    /// `WATCH key…`.
    pub(super) fn on_watch(&mut self, args: Args<'_>, host: &mut impl Host) {
        if self.multi.is_some() {
            return self.error("ERR WATCH inside MULTI is not allowed");
        }
        let keyspace = &host.keyspaces()[self.keyspace];
        let several = keyspace.model.several();
        if several == Several::Snapshots {
            return self.error(&outcome::no_transactions(keyspace, "WATCH"));
        }
        // Of a key that is watched already the version seen first is the one that counts.
        let known = self.watched.iter().filter(|watched| watched.keyspace == self.keyspace);
        let mut known: HashSet<&[u8]> = known.map(|watched| &watched.key[..]).collect();
        let keys: Vec<Bytes> =
            args.iter().skip(1).filter(|key| known.insert(key)).map(Bytes::copy_from_slice).collect();
        let elsewhere = self.watched.iter().any(|watched| watched.keyspace != self.keyspace);
        if elsewhere && several == Several::Transactions {
            return self.error("ERR keys of another keyspace are watched: UNWATCH them first");
        }
        let count = self.watched.len() + keys.len();
        if count > 1 && several == Several::Each {
            let what = format!("'{}' is watched beside another key", printable(&args[1], 64));
            return self.error(&outcome::several_keys(keyspace, &what));
        }
        if count > Watch::KEYS_MAX {
            return self.error(&format!("ERR at most {} keys can be watched", Watch::KEYS_MAX));
        }
        if keys.is_empty() {
            return self.reply().ok();
        }
        let at_ms = host.now().wall_ms();
        let mut ask = |key: Bytes| {
            let (action, level) = (Action::Watch, Level::default());
            (self.submit(Request::Act { key: key.clone(), action, at_ms, level }, host), key)
        };
        let waiting = keys.into_iter().map(&mut ask).collect();
        self.cost = Cost::default();
        self.run(Job::Watch(Watch { waiting, seen: Vec::new(), failed: None }));
    }

    /// `UNWATCH`.
    pub(super) fn on_unwatch(&mut self, host: &mut impl Host) {
        self.watched.clear();
        self.reply().ok();
        self.show_transaction(host);
    }

    /// `EXEC`.
    pub(super) fn on_exec(&mut self, entry: &'static Entry, host: &mut impl Host) {
        let Some(multi) = self.multi.take() else { return self.error("ERR EXEC without MULTI") };
        let watched = std::mem::take(&mut self.watched);
        self.show_transaction(host);
        if multi.spoiled {
            return self.error("EXECABORT Transaction discarded because of previous errors.");
        }
        let limit = host.shared().tunables.maxmemory;
        let needs_memory = multi.commands.iter().any(|(entry, _)| entry.is(MEMORY));
        if needs_memory && limit > 0 && host.used_memory() > limit {
            let why = OUT_OF_MEMORY.trim_start_matches("OOM ");
            return self.error(&format!("EXECABORT Transaction discarded because of: {why}"));
        }
        let at_ms = host.now().wall_ms();
        let (slots, steps) = typed(&multi, at_ms, |entry, args| self.still_permits(entry, args));
        if steps.is_empty() && watched.is_empty() {
            return answer(&mut self.errors, &mut Encoder::new(&mut self.output, self.protocol), &slots, &[]);
        }
        let read = steps.iter().all(|(_, command)| command.class() == Class::Read);
        let several = host.keyspaces()[self.keyspace].model.several();
        let (request, read) = if several == Several::Transactions {
            (self.on_any_keys(steps, &watched, at_ms), read)
        } else {
            (self.on_one_key(entry, &multi, steps, watched, at_ms, host), false)
        };
        match request {
            Ok(request) => {
                let request = self.submit(request, host);
                self.run(Job::Exec(Exec { request, slots, read }));
            }
            Err(refusal) => self.error(&refusal),
        }
    }

    /// The request for a transaction on any keys.
    fn on_any_keys(
        &self,
        mut steps: Vec<(Bytes, Command)>,
        watched: &[Watched],
        at_ms: u64,
    ) -> Result<Request, String> {
        if watched.iter().any(|watched| watched.keyspace != self.keyspace) {
            return Err("ERR keys of another keyspace are watched: select it before EXEC".to_owned());
        }
        if let (true, Some(watched)) = (steps.is_empty(), watched.first()) {
            // Nothing is to be done if the keys are as they were: whether they are is asked with a step all the same.
            steps.push((watched.key.clone(), Command::Exists));
        }
        let watched = watched.iter().map(|watched| (watched.key.clone(), watched.version)).collect();
        Ok(Request::Together(Together { steps, watched, at_ms, snapshot: None, level: Level::default() }))
    }

    /// The request for a transaction on the one key that the model allows.
    fn on_one_key(
        &self,
        entry: &Entry,
        multi: &Multi,
        steps: Vec<(Bytes, Command)>,
        mut watched: Vec<Watched>,
        at_ms: u64,
        host: &impl Host,
    ) -> Result<Request, String> {
        let keyspace = &host.keyspaces()[self.keyspace];
        let watched = watched.pop();
        let own = |watched: &Watched| {
            watched.keyspace == self.keyspace && multi.key().is_none_or(|key| key == watched.key)
        };
        if let Some(foreign) = watched.as_ref().filter(|watched| !own(watched)) {
            let what = format!("'{}' is watched and another key is changed", printable(&foreign.key, 64));
            return Err(outcome::several_keys(keyspace, &what));
        }
        if let Some(refusal) = outcome::not_served(keyspace, Class::ReadModifyWrite, entry.name) {
            return Err(refusal);
        }
        let key = steps.first().map(|(key, _)| key).or(watched.as_ref().map(|watched| &watched.key));
        let key = key.cloned().unwrap_or_default();
        let commands = steps.into_iter().map(|(_, command)| command).collect();
        let action = Action::Transaction { watched: watched.map(|watched| watched.version), commands };
        Ok(Request::Act { key, action, at_ms, level: Level::default() })
    }

    fn show_transaction(&self, host: &mut impl Host) {
        let queued = self.multi.as_ref().map_or(-1, |multi| multi.commands.len() as i64);
        let watching = !self.watched.is_empty();
        self.update(host, |info| {
            info.queued = queued;
            info.watching = watching;
        });
    }
}

impl Watch {
    pub(super) fn on_outcome(
        &mut self,
        request: RequestId,
        outcome: Outcome,
        state: &mut State,
        host: &mut impl Host,
    ) -> bool {
        let Some(place) = self.waiting.iter().position(|(waiting, _)| *waiting == request) else {
            return false;
        };
        let (_, key) = self.waiting.swap_remove(place);
        match outcome {
            Outcome::Answer(Answer::Version(version)) => self.seen.push((key, version)),
            other => self.failed = Some(other),
        }
        if !self.waiting.is_empty() {
            return false;
        }
        if let Some(outcome) = &self.failed {
            state.error(&outcome::error(&host.keyspaces()[state.keyspace], outcome, true));
            return true;
        }
        let keyspace = state.keyspace;
        let seen = std::mem::take(&mut self.seen).into_iter();
        state.watched.extend(seen.map(|(key, version)| Watched { keyspace, key, version }));
        state.reply().ok();
        state.show_transaction(host);
        true
    }
}

impl Exec {
    pub(super) fn on_outcome(
        &self,
        request: RequestId,
        outcome: &Outcome,
        state: &mut State,
        host: &impl Host,
    ) -> bool {
        if self.request != request {
            return false;
        }
        let mut to = Encoder::new(&mut state.output, state.protocol);
        match outcome {
            Outcome::Answer(Answer::Exec(None)) | Outcome::Answers(None) => to.null_array(),
            Outcome::Answer(Answer::Exec(Some(replies))) | Outcome::Answers(Some(replies)) => {
                answer(&mut state.errors, &mut to, &self.slots, replies);
            }
            other => state.error(&outcome::error(&host.keyspaces()[state.keyspace], other, self.read)),
        }
        true
    }
}

/// The queued commands as they are at the time of `EXEC`; those whose arguments are wrong keep their place.
fn typed(
    multi: &Multi,
    at_ms: u64,
    permits: impl Fn(&Entry, Args<'_>) -> Result<(), Refusal>,
) -> (Vec<Slot>, Vec<(Bytes, Command)>) {
    let mut steps = Vec::with_capacity(multi.commands.len());
    let slot = |(entry, args): &(&'static Entry, OwnedArgs)| {
        let args = args.args();
        if let Err(refusal) = permits(entry, args) {
            return Slot::Refused(refusal);
        }
        match entry.kind {
            Kind::Key(typer) => match typer(args, at_ms) {
                Ok(command) => {
                    let nil = nil_of(&command);
                    steps.push((args.bytes(1), command));
                    Slot::Sent(nil)
                }
                Err(refusal) => Slot::Refused(refusal),
            },
            Kind::Take(typer) => match typer(args) {
                Ok(take) => {
                    steps.push((args.bytes(1), take.command()));
                    Slot::Take(take)
                }
                Err(refusal) => Slot::Refused(refusal),
            },
            Kind::Each(EachKind::Set) if args.len().is_multiple_of(2) => {
                Slot::Refused(wrong_arity(entry.name))
            }
            Kind::Each(each) => {
                let before = steps.len();
                steps.extend(Each::steps(each, entry.keys, args));
                Slot::Each(each, steps.len() - before)
            }
            Kind::Own(_) => Slot::Refused("ERR it is no command on keys".into()),
        }
    };
    let slots = multi.commands.iter().map(slot).collect();
    (slots, steps)
}

fn answer(errors: &mut u64, to: &mut Encoder<'_>, slots: &[Slot], mut replies: &[Reply]) {
    to.array(slots.len());
    for slot in slots {
        match slot {
            Slot::Sent(nil) => {
                let reply = replies.split_off_first().unwrap_or(&Reply::Nil);
                *errors += u64::from(matches!(reply, Reply::Error(_)));
                to.reply(reply, *nil);
            }
            Slot::Take(take) => {
                let reply = replies.split_off_first().unwrap_or(&Reply::Nil);
                *errors += u64::from(matches!(reply, Reply::Error(_)));
                queue::answer(to, &take.what, &take.keys[0], reply);
            }
            Slot::Each(kind, count) => {
                let own = replies.split_off(..*count).unwrap_or_default();
                aggregate(errors, to, *kind, &own.iter().collect::<Vec<_>>());
            }
            Slot::Refused(refusal) => {
                *errors += 1;
                to.error(refusal);
            }
        }
    }
}
