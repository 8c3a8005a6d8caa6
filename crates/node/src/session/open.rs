//! `MERIDIAN.BEGIN`, `COMMIT` and `ABORT`: a transaction that is open over many commands.
//!
//! What is sent between them belongs to it. If a command of it ends without an answer, the transaction is over: nothing
//! of it was done, and until the client has sent `COMMIT` or `ABORT` every command on keys is refused, so that what was
//! meant for the transaction is never done outside of it.

use super::job::Job;
use super::{Host, State, outcome};
use crate::resp::encode::printable;
use crate::resp::parse::Args;
use crate::resp::table::{Entry, Kind, Own, WRITE};
use meridian_protocol::machine::{Outcome, Request, RequestId};
use meridian_protocol::registry::Several;

/// The transaction that is open.
#[derive(Debug)]
pub(super) struct Open {
    read_only: bool,
    /// It has been given up, and the client was told.
    over: bool,
    /// How often the user's rights had changed when it began.
    rights: u64,
}

/// A command that begins or ends the transaction.
#[derive(Debug)]
pub(super) struct Control {
    request: RequestId,
    what: What,
}

#[derive(Debug)]
enum What {
    Begin(Open),
    Commit {
        read_only: bool,
    },
    Abort,
    /// An abort in a commit's place: the user may have written what it may write no more.
    Outlaw,
}

impl State {
    /// `MERIDIAN.BEGIN [RO]`.
    pub(super) fn on_begin(&mut self, args: Args<'_>, host: &mut impl Host) {
        let keyspace = &host.keyspaces()[self.keyspace];
        let read_only = match (args.len(), args.get(1)) {
            (1, _) => false,
            (2, Some(word)) if word.eq_ignore_ascii_case(b"ro") => true,
            _ => return self.error("ERR MERIDIAN.BEGIN takes RO or nothing"),
        };
        if keyspace.model.several() != Several::Transactions {
            return self.error(&outcome::no_transactions(keyspace, "MERIDIAN.BEGIN"));
        }
        if keyspace.session != "connection" {
            let text = format!(
                "ERR MERIDIAN.BEGIN needs session = \"connection\", keyspace {} '{}' has \"{}\": its connections share one session, and a session has one transaction",
                keyspace.number, keyspace.name, keyspace.session
            );
            return self.error(&text);
        }
        if !self.watched.is_empty() {
            return self.error("ERR MERIDIAN.BEGIN after WATCH is not allowed: UNWATCH first");
        }
        let what = What::Begin(Open { read_only, over: false, rights: self.user.changes() });
        self.control(Request::Begin { read_only }, what, host);
    }

    /// `MERIDIAN.COMMIT`.
    pub(super) fn on_commit(&mut self, host: &mut impl Host) {
        match self.open.take() {
            None => self.error("ERR MERIDIAN.COMMIT without MERIDIAN.BEGIN"),
            Some(Open { over: true, .. }) => self.error(&outcome::over(&host.keyspaces()[self.keyspace])),
            Some(Open { rights, read_only: false, .. })
                if !self.user.is_unrestricted() && self.user.changes() != rights =>
            {
                self.control(Request::Abort, What::Outlaw, host);
            }
            Some(Open { read_only, .. }) => self.control(Request::Commit, What::Commit { read_only }, host),
        }
    }

    /// `MERIDIAN.ABORT`.
    pub(super) fn on_abort(&mut self, host: &mut impl Host) {
        match self.open.take() {
            None => self.error("ERR MERIDIAN.ABORT without MERIDIAN.BEGIN"),
            Some(Open { over: true, .. }) => self.reply().ok(),
            Some(_) => self.control(Request::Abort, What::Abort, host),
        }
    }

    fn control(&mut self, request: Request, what: What, host: &mut impl Host) {
        let request = self.submit(request, host);
        self.run(Job::Control(Control { request, what }));
    }

    /// Why a command cannot be sent while a transaction is open.
    pub(super) fn unfit_for_open(&self, entry: &Entry, args: Args<'_>, host: &impl Host) -> Option<String> {
        let open = self.open.as_ref()?;
        let name = || printable(&args[0], 64).to_uppercase();
        match entry.kind {
            Kind::Own(own) if ends_or_leaves(own) => None,
            Kind::Own(_) => Some(format!(
                "ERR {} is not served inside MERIDIAN.BEGIN: send it before, or after MERIDIAN.COMMIT or ABORT",
                name()
            )),
            Kind::Key(_) | Kind::Each(_) | Kind::Take(_) if open.over => {
                Some(outcome::over(&host.keyspaces()[self.keyspace]))
            }
            Kind::Key(_) | Kind::Each(_) | Kind::Take(_) if open.read_only && entry.is(WRITE) => {
                Some(format!("ERR {} may write, and the transaction began with RO: it only reads", name()))
            }
            Kind::Key(_) | Kind::Each(_) | Kind::Take(_) => None,
        }
    }

    /// A command of the open transaction has ended; without an answer the transaction is over.
    pub(super) fn end_open(&mut self, given_up: bool) {
        if let Some(open) = &mut self.open {
            open.over |= given_up;
        }
    }

    /// The client leaves: its transaction is given up at once, rather than when its locks run out.
    pub(super) fn leave_open(&mut self, host: &mut impl Host) {
        if self.open.take().is_some_and(|open| !open.over) && self.running.is_none() {
            self.submit(Request::Abort, host);
        }
    }
}

/// Whether a command ends the transaction, or is none of its business.
fn ends_or_leaves(own: Own) -> bool {
    !matches!(
        own,
        Own::Auth
            | Own::Begin
            | Own::ContextGet
            | Own::ContextMerge
            | Own::ContextReset
            | Own::ContextSet
            | Own::DbSize
            | Own::Discard
            | Own::Enter
            | Own::Exec
            | Own::Fence
            | Own::Flush
            | Own::Keys
            | Own::Level
            | Own::Multi
            | Own::Scan
            | Own::Select
            | Own::Snapshot
            | Own::Unwatch
            | Own::Use
            | Own::Watch
    )
}

impl Control {
    pub(super) fn on_outcome(
        &mut self,
        request: RequestId,
        outcome: &Outcome,
        state: &mut State,
        host: &impl Host,
    ) -> bool {
        if self.request != request {
            return false;
        }
        match (&mut self.what, outcome) {
            (What::Begin(open), Outcome::Done) => {
                state.open = Some(Open { ..*open });
                state.reply().ok();
            }
            // Whatever became of the request: it was not committed, and never will be.
            (What::Abort, _) | (What::Commit { .. }, Outcome::Done) => state.reply().ok(),
            (What::Outlaw, _) => state.error(
                "NOPERM what this user may do has changed since MERIDIAN.BEGIN: nothing was done, begin again",
            ),
            (what, other) => {
                let read = !matches!(what, What::Commit { read_only: false });
                state.error(&outcome::error(&host.keyspaces()[state.keyspace], other, read));
            }
        }
        true
    }
}
