//! From a command's words to what is done.

use super::job::{Each, Form, Job, One, Together};
use super::{Host, Running, State, outcome};
use crate::resp::encode::{Nil, printable};
use crate::resp::parse::{Args, COMMAND_MAX, Oversize};
use crate::resp::table::{self, Each as EachKind, Entry, Kind, Own};
use crate::resp::typed::{Typer, wrong_arity};
use bytes::Bytes;
use meridian_protocol::machine::{self, Cost, Request};
use meridian_protocol::object::{Action, Class, Command, OBJECT_LIMIT};
use meridian_protocol::registry::Several;
use std::fmt::Write as _;

impl State {
    /// Runs a command: answers it, or leaves it running.
    pub(super) fn on_command(&mut self, args: Args<'_>, host: &mut impl Host) {
        if args.is_empty() {
            return;
        }
        let entry = match self.check(args, host) {
            Ok(entry) => entry,
            Err(refusal) => return self.reject(&refusal),
        };
        if let Some(refusal) = self.comes_too_soon(entry, host) {
            return self.reject(&refusal);
        }
        self.active = host.now().monotonic;
        let active = self.active;
        self.update(host, |info| {
            info.active = active;
            info.command = entry.name;
        });
        if self.multi.is_some() && !ends_or_breaks_multi(entry) {
            return self.queue(entry, args, host);
        }
        if let Some(refusal) = self.unfit_for_open(entry, args, host) {
            return self.error(&refusal);
        }
        self.crossed = Cost::default();
        if !self.crosses(entry, args, host) {
            self.carry_out(entry, args, host);
        }
    }

    /// Finds the command and checks what can be checked before it is looked at.
    pub(super) fn check(&mut self, args: Args<'_>, host: &mut impl Host) -> Result<&'static Entry, String> {
        let container = table::find(&args[0]).ok_or_else(|| unknown_command(args))?;
        let entry = container.resolve(args).ok_or_else(|| unknown_subcommand(args))?;
        if !entry.accepts(args.len()) {
            return Err(wrong_arity(entry.name).into_owned());
        }
        if !self.user.is_unrestricted() {
            self.permit(entry, args, host)?;
        }
        let limit = host.shared().tunables.maxmemory;
        if limit > 0 && entry.is(table::MEMORY) && host.used_memory() > limit {
            return Err(OUT_OF_MEMORY.to_owned());
        }
        Ok(entry)
    }

    /// Does what the command says, as nothing stands before it any more.
    pub(super) fn carry_out(&mut self, entry: &'static Entry, args: Args<'_>, host: &mut impl Host) {
        match entry.kind {
            Kind::Key(typer) => self.on_key(entry, typer, args, host),
            Kind::Each(each) => self.on_each(entry, each, args, host),
            Kind::Take(typer) => self.on_take(entry, typer, args, host),
            Kind::Own(own) => self.on_own(entry, own, args, host),
        }
    }

    /// Refuses a command that is longer than the limits.
    pub(super) fn on_oversize(&mut self, oversize: Oversize, host: &mut impl Host) {
        let limit = host.shared().tunables.max_bulk_len;
        self.reject(&match oversize {
            Oversize::String(length) => format!(
                "ERR a string of {length} bytes exceeds proto-max-bulk-len, {limit}: send less, or raise it to \
                 {OBJECT_LIMIT} at most"
            ),
            Oversize::Command => {
                format!("ERR the command has more than {COMMAND_MAX} bytes: send it in parts")
            }
        });
    }

    /// Refuses a command before it is looked at, which a transaction does not survive.
    fn reject(&mut self, refusal: &str) {
        if let Some(multi) = &mut self.multi {
            multi.spoil();
        }
        self.error(refusal);
    }

    /// Leaves the command running.
    pub(super) fn run(&mut self, job: Job) {
        self.running = Some(Running { began: self.active, prefix: 0, job });
    }

    pub(super) fn on_key(
        &mut self,
        entry: &'static Entry,
        typer: Typer,
        args: Args<'_>,
        host: &mut impl Host,
    ) {
        let at_ms = host.now().wall_ms();
        match typer(args, at_ms) {
            Ok(command) => self.act(entry, args.bytes(1), command, at_ms, host),
            Err(refusal) => self.error(&refusal),
        }
    }

    /// Begins one step on one key.
    fn act(&mut self, entry: &'static Entry, key: Bytes, command: Command, at_ms: u64, host: &mut impl Host) {
        let class = command.class();
        if let Some(refusal) = self.not_served(entry, &command, host) {
            return self.error(&refusal);
        }
        let nil = nil_of(&command);
        if self.once.snapshot.is_some() {
            return self.together(vec![(key, command)], Form::One(nil), at_ms, host);
        }
        let level = self.level_of(class);
        let request = self.submit(Request::Act { key, action: Action::Command(command), at_ms, level }, host);
        // Inside a transaction a write is not done before the commit.
        let read = class == Class::Read || self.open.is_some();
        self.run(Job::One(One { request, nil, read }));
    }

    /// Why the command is not served in this keyspace, or not as its prefix says.
    fn not_served(&self, entry: &Entry, command: &Command, host: &impl Host) -> Option<String> {
        outcome::command_not_served(&host.keyspaces()[self.keyspace], command, entry.name)
            .or_else(|| self.unfit_for_prefix(command.class(), entry.name))
    }

    pub(super) fn on_each(
        &mut self,
        entry: &'static Entry,
        each: EachKind,
        args: Args<'_>,
        host: &mut impl Host,
    ) {
        if each == EachKind::Set && args.len().is_multiple_of(2) {
            return self.error(&wrong_arity(entry.name));
        }
        let at_ms = host.now().wall_ms();
        let mut steps = Each::steps(each, entry.keys, args);
        let Some((key, command)) = steps.next() else { return };
        if args.len() == 2 && each != EachKind::Get {
            return self.act(entry, key, command, at_ms, host);
        }
        if let Some(refusal) = self.not_served(entry, &command, host) {
            return self.error(&refusal);
        }
        let several = host.keyspaces()[self.keyspace].model.several();
        let class = command.class();
        if several == Several::Transactions || several == Several::Snapshots && class == Class::Read {
            let steps = std::iter::once((key, command)).chain(steps).collect();
            return self.together(steps, Form::Each(each), at_ms, host);
        }
        let mut job = Each::new(each, entry.keys, args, at_ms, self.level_of(class));
        job.fill(self, args, host);
        self.run(Job::Each(job));
    }

    /// Begins one step on several keys, or one that reads as of a time in the past.
    fn together(&mut self, steps: Vec<(Bytes, Command)>, form: Form, at_ms: u64, host: &mut impl Host) {
        let read = steps.iter().all(|(_, command)| command.class() == Class::Read);
        let level = self.level_of(if read { Class::Read } else { Class::Write });
        let snapshot = self.once.snapshot;
        // What had not expired at the time of the snapshot is in it.
        let at_ms = snapshot.map_or(at_ms, |time| time / 1_000);
        let together = machine::Together { steps, watched: Vec::new(), at_ms, snapshot, level };
        let request = self.submit(Request::Together(together), host);
        self.run(Job::Together(Together { request, form, read: read || self.open.is_some() }));
    }
}

/// In which form a command answers that there is nothing.
pub(super) fn nil_of(command: &Command) -> Nil {
    if matches!(command, Command::ListPop(_, Some(_))) { Nil::Array } else { Nil::String }
}

/// Whether a command is carried out at once although a transaction is being gathered.
fn ends_or_breaks_multi(entry: &Entry) -> bool {
    matches!(
        entry.kind,
        Kind::Own(Own::Exec | Own::Discard | Own::Multi | Own::Watch | Own::Quit | Own::Reset)
    )
}

/// What is answered to a command that may need more memory, when there is none.
pub(super) const OUT_OF_MEMORY: &str = "OOM command not allowed when used memory > 'maxmemory'.";

/// As Redis words it: the first 128 bytes of the name and of the arguments.
fn unknown_command(args: Args<'_>) -> String {
    let mut begins = String::new();
    for word in args.iter().skip(1) {
        if begins.len() >= 128 {
            break;
        }
        let shown = printable(word, 128 - begins.len());
        // Writing to a string has no error.
        let _ = write!(begins, "'{shown}' ");
    }
    format!("ERR unknown command '{}', with args beginning with: {begins}", printable(&args[0], 128))
}

fn unknown_subcommand(args: Args<'_>) -> String {
    let name = String::from_utf8_lossy(&args[0]).to_uppercase();
    format!("ERR unknown subcommand '{}'. Try {name} HELP.", printable(&args[1], 128))
}
