//! `MULTI`, `EXEC`, `DISCARD`, `WATCH` and `UNWATCH`: transactions on one key, each one step of the keyspace.

use super::dispatch::{OUT_OF_MEMORY, nil_of};
use super::job::Job;
use super::{Host, State, outcome};
use crate::resp::encode::{Encoder, Nil, printable};
use crate::resp::parse::{Args, OwnedArgs};
use crate::resp::table::{Each, Entry, Kind, MEMORY};
use crate::resp::typed::Refusal;
use bytes::Bytes;
use meridian_protocol::machine::{Level, Outcome, Request, RequestId};
use meridian_protocol::object::{Action, Answer, Class, Command, Reply, Version};

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

/// A `WATCH` that waits for the version.
#[derive(Debug)]
pub(super) struct Watch {
    request: RequestId,
    key: Bytes,
}

/// An `EXEC` that waits for its answer.
#[derive(Debug)]
pub(super) struct Exec {
    request: RequestId,
    slots: Vec<Slot>,
}

/// One command's place in the answer of `EXEC`.
#[derive(Debug)]
enum Slot {
    /// It was sent; its nothing has this form.
    Sent(Nil),
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
        let single = match entry.kind {
            Kind::Key(_) => true,
            Kind::Each(Each::Delete | Each::Exists) => args.len() == 2,
            Kind::Each(_) | Kind::Own(_) => false,
        };
        let keyspace = &host.keyspaces()[self.keyspace];
        if !single && matches!(entry.kind, Kind::Each(_)) {
            return Some(outcome::several_keys(
                keyspace,
                &format!("{name} inside MULTI may have several keys"),
            ));
        }
        if !single {
            return Some(format!(
                "ERR {name} is not served inside MULTI: a transaction is one step on one key; send it before or after"
            ));
        }
        if multi.bytes > Multi::BYTES_MAX {
            return Some(format!("ERR a transaction has at most {} bytes", Multi::BYTES_MAX));
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
        self.watched = None;
        self.reply().ok();
        self.show_transaction(host);
    }

    /// `WATCH key`.
    pub(super) fn on_watch(&mut self, args: Args<'_>, host: &mut impl Host) {
        if self.multi.is_some() {
            return self.error("ERR WATCH inside MULTI is not allowed");
        }
        let key = args.bytes(1);
        let same = |watched: &Watched| watched.key == key && watched.keyspace == self.keyspace;
        let several = args.iter().skip(2).any(|other| other != key);
        if several || self.watched.as_ref().is_some_and(|watched| !same(watched)) {
            let keyspace = &host.keyspaces()[self.keyspace];
            let what = format!("'{}' is watched beside another key", printable(&key, 64));
            return self.error(&outcome::several_keys(keyspace, &what));
        }
        if self.watched.is_some() {
            // The version seen first is the one that counts.
            return self.reply().ok();
        }
        let at_ms = host.now().wall_ms();
        let request = self.submit(
            Request::Act { key: key.clone(), action: Action::Watch, at_ms, level: Level::default() },
            host,
        );
        self.run(Job::Watch(Watch { request, key }));
    }

    /// `UNWATCH`.
    pub(super) fn on_unwatch(&mut self, host: &mut impl Host) {
        self.watched = None;
        self.reply().ok();
        self.show_transaction(host);
    }

    /// `EXEC`.
    pub(super) fn on_exec(&mut self, entry: &'static Entry, host: &mut impl Host) {
        let Some(multi) = self.multi.take() else { return self.error("ERR EXEC without MULTI") };
        let watched = self.watched.take();
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
        if let Some(refusal) = self.foreign(&multi, watched.as_ref(), host) {
            return self.error(&refusal);
        }
        let at_ms = host.now().wall_ms();
        let (slots, commands) = typed(&multi, at_ms);
        let key = multi.key().map(Bytes::copy_from_slice).or_else(|| Some(watched.as_ref()?.key.clone()));
        let (Some(key), false) = (key, commands.is_empty() && watched.is_none()) else {
            return answer(&mut self.errors, &mut Encoder::new(&mut self.output, self.protocol), &slots, &[]);
        };
        let keyspace = &host.keyspaces()[self.keyspace];
        if let Some(refusal) = outcome::not_served(keyspace, Class::ReadModifyWrite, entry.name) {
            return self.error(&refusal);
        }
        let action = Action::Transaction { watched: watched.map(|watched| watched.version), commands };
        let request = self.submit(Request::Act { key, action, at_ms, level: Level::default() }, host);
        self.run(Job::Exec(Exec { request, slots }));
    }

    /// Why the watched key is not the transaction's.
    fn foreign(&self, multi: &Multi, watched: Option<&Watched>, host: &impl Host) -> Option<String> {
        let watched = watched?;
        if watched.keyspace == self.keyspace && multi.key().is_none_or(|key| key == watched.key) {
            return None;
        }
        let what = format!("'{}' is watched and another key is changed", printable(&watched.key, 64));
        Some(outcome::several_keys(&host.keyspaces()[self.keyspace], &what))
    }

    fn show_transaction(&self, host: &mut impl Host) {
        let queued = self.multi.as_ref().map_or(-1, |multi| multi.commands.len() as i64);
        let watching = self.watched.is_some();
        self.update(host, |info| {
            info.queued = queued;
            info.watching = watching;
        });
    }
}

impl Watch {
    pub(super) fn on_outcome(
        &self,
        request: RequestId,
        outcome: &Outcome,
        state: &mut State,
        host: &mut impl Host,
    ) -> bool {
        if self.request != request {
            return false;
        }
        if let Outcome::Answer(Answer::Version(version)) = outcome {
            let (keyspace, key) = (state.keyspace, self.key.clone());
            state.watched = Some(Watched { keyspace, key, version: *version });
            state.reply().ok();
            state.show_transaction(host);
        } else {
            state.error(&outcome::error(&host.keyspaces()[state.keyspace], outcome, true));
        }
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
            Outcome::Answer(Answer::Exec(None)) => to.null_array(),
            Outcome::Answer(Answer::Exec(Some(replies))) => {
                answer(&mut state.errors, &mut to, &self.slots, replies);
            }
            other => state.error(&outcome::error(&host.keyspaces()[state.keyspace], other, false)),
        }
        true
    }
}

/// The queued commands as they are at the time of `EXEC`; those whose arguments are wrong keep their place.
fn typed(multi: &Multi, at_ms: u64) -> (Vec<Slot>, Vec<Command>) {
    let mut commands = Vec::with_capacity(multi.commands.len());
    let slot = |(entry, args): &(&'static Entry, OwnedArgs)| {
        let command = match entry.kind {
            Kind::Key(typer) => typer(args.args(), at_ms),
            Kind::Each(Each::Delete) => Ok(Command::Delete),
            Kind::Each(_) | Kind::Own(_) => Ok(Command::Exists),
        };
        match command {
            Ok(command) => {
                let nil = nil_of(&command);
                commands.push(command);
                Slot::Sent(nil)
            }
            Err(refusal) => Slot::Refused(refusal),
        }
    };
    let slots = multi.commands.iter().map(slot).collect();
    (slots, commands)
}

fn answer(errors: &mut u64, to: &mut Encoder<'_>, slots: &[Slot], replies: &[Reply]) {
    let mut replies = replies.iter();
    to.array(slots.len());
    for slot in slots {
        match slot {
            Slot::Sent(nil) => {
                let reply = replies.next().unwrap_or(&Reply::Nil);
                *errors += u64::from(matches!(reply, Reply::Error(_)));
                to.reply(reply, *nil);
            }
            Slot::Refused(refusal) => {
                *errors += 1;
                to.error(refusal);
            }
        }
    }
}
