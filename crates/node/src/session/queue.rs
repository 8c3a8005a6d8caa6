//! `LMOVE`, `BLPOP` and their kin: taking items off lists, at once or when there are some.
//!
//! Whoever waits stands in the line of each of its keys ([`meridian_protocol::waiting`]) and is called when the own region's
//! replica holds an item; the commands behind it wait with it. Inside a transaction nothing waits.

use super::job::Job;
use super::{Host, State, outcome};
use crate::resp::encode::{Encoder, Nil, printable};
use crate::resp::parse::Args;
use crate::resp::table::Entry;
use crate::resp::typed::queues::{Patience, Take as Asked, TakeTyper, What};
use crate::resp::typed::{SYNTAX, int};
use bytes::Bytes;
use meridian_protocol::machine::{Level, Outcome, Request, RequestId, Together};
use meridian_protocol::object::{Action, Answer, Class, Command, Fault, Reply};
use meridian_protocol::registry::Several;
use meridian_protocol::transfer::{Next, Transfer};
use meridian_protocol::waiting::{End, Turn, WaitId};

/// A command that takes an item.
#[derive(Debug)]
pub(super) struct Take {
    asked: Asked,
    /// The keyspace that it began in.
    keyspace: usize,
    /// Its place in the lines, if it may wait.
    wait: Option<WaitId>,
    /// How many of its keys were tried, if it may not.
    tried: usize,
    /// It has found nothing at least once, and waits for what comes.
    patient: bool,
    trying: Option<Try>,
}

/// One try to take an item off one list.
#[derive(Debug)]
struct Try {
    key: Bytes,
    request: RequestId,
    /// The move in steps, where one step is of one key.
    transfer: Option<Transfer>,
}

/// What came of a try.
enum Found {
    /// There is more to do.
    More,
    /// An item, nothing, or a fault.
    Reply(Reply),
    /// No answer; it says what is known, as a line for the client.
    Failed(String),
}

impl State {
    pub(super) fn on_take(
        &mut self,
        entry: &'static Entry,
        typer: TakeTyper,
        args: Args<'_>,
        host: &mut impl Host,
    ) {
        let keyspace = &host.keyspaces()[self.keyspace];
        let refusal = outcome::not_served(keyspace, Class::ReadModifyWrite, entry.name)
            .or_else(|| self.unfit_for_prefix(Class::ReadModifyWrite, entry.name));
        if let Some(refusal) = refusal {
            return self.error(&refusal);
        }
        let asked = match typer(args) {
            Ok(asked) => asked,
            Err(refusal) => return self.error(&refusal),
        };
        let now = host.now().monotonic;
        let until = match asked.patience {
            Patience::For(span) => Some(now.saturating_add(span)),
            Patience::None | Patience::Endless => None,
        };
        // Whoever waited inside a transaction would hold its locks for as long.
        let waits = asked.patience != Patience::None && self.open.is_none();
        let wait = waits.then(|| host.wait(self.id, self.keyspace, asked.keys.clone(), until));
        let blocked = wait.map(|wait| (self.keyspace, wait));
        self.update(host, |info| info.blocked = blocked);
        let mut take = Take { asked, keyspace: self.keyspace, wait, tried: 0, patient: false, trying: None };
        if !take.go_on(self, host) {
            self.run(Job::Take(take));
        }
    }

    /// The node says that somebody who waits has something to do.
    pub(super) fn on_called(&mut self, args: Args<'_>, host: &mut impl Host) -> bool {
        let Some(mut running) = self.running.take() else { return false };
        let args = args.skip(running.prefix);
        let ended = match &mut running.job {
            Job::Take(take) if take.trying.is_none() => match self.may_still(args, take.keyspace) {
                Ok(()) => take.go_on(self, host),
                Err(refusal) => {
                    take.leave(false, host);
                    self.error(&refusal);
                    take.end(self, host)
                }
            },
            _ => false,
        };
        if !ended {
            self.running = Some(running);
        }
        ended
    }

    /// The client is gone: nobody waits any more.
    pub(super) fn leave_lines(&mut self, host: &mut impl Host) {
        if let Some(Job::Take(take)) = self.running.as_mut().map(|running| &mut running.job) {
            take.leave(false, host);
        }
    }

    /// Whether the command that runs only waits.
    pub(super) fn only_waits(&self) -> bool {
        let job = self.running.as_ref().map(|running| &running.job);
        matches!(job, Some(Job::Take(take)) if take.trying.is_none())
    }

    /// `CLIENT UNBLOCK id [TIMEOUT | ERROR]`.
    pub(super) fn on_client_unblock(&mut self, args: Args<'_>, host: &mut impl Host) {
        let how = match args.get(3).map(<[u8]>::to_ascii_lowercase).as_deref() {
            None | Some(b"timeout") => End::Time,
            Some(b"error") => End::Error,
            Some(_) => {
                return self.error("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR");
            }
        };
        if args.len() > 4 {
            return self.error(&SYNTAX);
        }
        let Ok(serial) = int(&args[2]) else {
            return self.error("ERR value is not an integer or out of range");
        };
        let clients = host.shared().clients.list();
        let blocked = clients.iter().find(|info| info.id.serial as i64 == serial).and_then(|i| i.blocked);
        let ended = blocked.is_some_and(|(keyspace, wait)| host.waits(keyspace).end(wait, how));
        self.reply().int(i64::from(ended));
    }
}

impl Take {
    /// Tries the next key, waits, or ends with nothing; whether it has ended.
    fn go_on(&mut self, state: &mut State, host: &mut impl Host) -> bool {
        let turn = match self.wait {
            Some(wait) => host.waits(self.keyspace).turn(wait),
            None => match self.asked.keys.get(self.tried) {
                Some(key) => Turn::Try(key.clone()),
                None => Turn::Over(End::Time),
            },
        };
        self.tried += 1;
        match turn {
            Turn::Try(key) => {
                self.try_key(key, state, host);
                false
            }
            Turn::Wait => {
                self.patient = true;
                false
            }
            Turn::Over(End::Time) => {
                self.leave(false, host);
                // As Redis has it: only of what cannot wait nothing is a missing string.
                if !self.moves() || self.wait.is_some() {
                    state.reply().null_array();
                } else {
                    state.reply().null();
                }
                self.end(state, host)
            }
            Turn::Over(End::Error) => {
                self.leave(false, host);
                state.error("UNBLOCKED client unblocked via CLIENT UNBLOCK");
                self.end(state, host)
            }
        }
    }

    fn moves(&self) -> bool {
        matches!(self.asked.what, What::Move(..))
    }

    fn try_key(&mut self, key: Bytes, state: &mut State, host: &mut impl Host) {
        let several = host.keyspaces()[self.keyspace].model.several();
        let mut transfer = None;
        let mut command = self.asked.command();
        if let What::Move(from, to, destination) = &self.asked.what
            && self.asked.is_of_two()
            && several != Several::Transactions
        {
            let (begun, first) = Transfer::begin(key.clone(), destination.clone(), (*from, *to));
            (transfer, command) = (Some(begun), first);
        }
        let whole = self.asked.is_of_two() && several == Several::Transactions;
        let request = self.ask(key.clone(), command, whole, state, host);
        self.trying = Some(Try { key, request, transfer });
    }

    /// Asks a step of a key; of two keys if it is a whole move.
    fn ask(
        &self,
        key: Bytes,
        command: Command,
        whole: bool,
        state: &mut State,
        host: &mut impl Host,
    ) -> RequestId {
        let (at_ms, level) = (host.now().wall_ms(), Level::default());
        let request = if whole {
            let steps = vec![(key, command)];
            Request::Together(Together { steps, watched: Vec::new(), at_ms, snapshot: None, level })
        } else {
            Request::Act { key, action: Action::Command(command), at_ms, level }
        };
        state.submit_to(self.keyspace, request, host)
    }

    pub(super) fn on_outcome(
        &mut self,
        request: RequestId,
        outcome: Outcome,
        state: &mut State,
        host: &mut impl Host,
    ) -> bool {
        let Some(trying) = self.trying.take_if(|trying| trying.request == request) else { return false };
        let key = trying.key.clone();
        match self.found(trying, outcome, state, host) {
            Found::More => false,
            Found::Reply(Reply::Nil) => self.go_on(state, host),
            // What waits for a list is not concerned by what else may stand there meanwhile. Of a move it may be the
            // destination that is none, which ends it.
            Found::Reply(Reply::Error(Fault::WrongType)) if self.patient && !self.moves() => {
                self.go_on(state, host)
            }
            Found::Reply(reply) => {
                self.leave(matches!(reply, Reply::Bulk(_)), host);
                state.errors += u64::from(matches!(reply, Reply::Error(_)));
                let mut to = Encoder::new(&mut state.output, state.protocol);
                answer(&mut to, &self.asked.what, &key, &reply);
                self.end(state, host)
            }
            Found::Failed(text) => {
                self.leave(false, host);
                state.error(&text);
                self.end(state, host)
            }
        }
    }

    fn found(&mut self, mut trying: Try, outcome: Outcome, state: &mut State, host: &mut impl Host) -> Found {
        let reply = match outcome {
            Outcome::Answer(Answer::One(reply)) => reply,
            Outcome::Answers(Some(mut replies)) if replies.len() == 1 => replies.remove(0),
            other => return Found::Failed(failure(&trying, &other, self.keyspace, state, host)),
        };
        let Some(transfer) = &mut trying.transfer else { return Found::Reply(reply) };
        match transfer.on_reply(reply) {
            Next::Ask(key, command) => {
                trying.request = self.ask(key, command, false, state, host);
                self.trying = Some(trying);
                Found::More
            }
            Next::Ended(reply, last) => {
                if let Some((key, command)) = last {
                    host.aside(self.keyspace, key, command);
                }
                Found::Reply(reply)
            }
        }
    }

    fn leave(&mut self, with_item: bool, host: &mut impl Host) {
        if let Some(wait) = self.wait {
            host.waits(self.keyspace).leave(wait, with_item);
        }
    }

    fn end(&self, state: &State, host: &mut impl Host) -> bool {
        if self.wait.is_some() {
            state.update(host, |info| info.blocked = None);
        }
        true
    }
}

/// Answers what was taken off a list.
pub(super) fn answer(to: &mut Encoder<'_>, what: &What, key: &[u8], reply: &Reply) {
    match (what, reply) {
        (What::Pop(_), Reply::Bulk(item)) => {
            to.array(2);
            to.bulk(key);
            to.bulk(item);
        }
        (What::Pop(_), reply) => to.reply(reply, Nil::Array),
        (What::Move(..), reply) => to.reply(reply, Nil::String),
    }
}

fn failure(trying: &Try, outcome: &Outcome, keyspace: usize, state: &State, host: &impl Host) -> String {
    let info = &host.keyspaces()[keyspace];
    let under_way = trying.transfer.as_ref().filter(|transfer| transfer.is_under_way());
    match under_way {
        Some(transfer) => {
            outcome::half_moved(info, &printable(&trying.key, 64), &printable(transfer.destination(), 64))
        }
        None => outcome::error(info, outcome, state.open.is_some()),
    }
}
