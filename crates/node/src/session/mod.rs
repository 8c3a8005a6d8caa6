//! What a connection means: commands in, requests to the node, answers out, in order. No sockets.
//!
//! One command of a connection runs at a time; those behind it wait as bytes in the input. [`host`] is what a
//! session asks of its node and what the node must do in return.

mod connection;
mod contexts;
mod crossing;
mod dispatch;
pub mod host;
mod introspection;
mod job;
mod open;
mod outcome;
mod prefix;
mod queue;
mod server;
pub mod shared;
mod transaction;
mod users;
mod walk;

pub use host::{Dev, Facts, Host, KeyspaceInfo, SessionId};
pub use shared::{ClientInfo, Clients, Counters, Shared, SlowEntry, SlowLog, Tunables};

use crate::acl::User;
use crate::resp::encode::{Encoder, Protocol};
use crate::resp::parse::{Parser, ProtocolError};
use bytes::{Buf, Bytes, BytesMut};
use job::Job;
use meridian_protocol::clock::Micros;
use meridian_protocol::compose;
use meridian_protocol::machine::{Completion, Cost, Level, Request, RequestId};
use open::Open;
use prefix::{Levels, Once};
use std::rc::Rc;
use transaction::{Multi, Watched};

/// One client's connection.
#[derive(Debug)]
pub struct Session {
    /// The bytes of the command that runs and of those that wait.
    input: BytesMut,
    /// How far the first of them is understood.
    parser: Parser,
    /// The client sends nothing more.
    ended: bool,
    state: State,
}

/// A connection, apart from the bytes that it has sent.
#[derive(Debug)]
struct State {
    id: SessionId,
    /// Who the client is, as it has shown.
    user: Rc<User>,
    output: BytesMut,
    /// How long the output was at most since its buffer was made.
    output_peak: usize,
    protocol: Protocol,
    /// The selected keyspace, as an index into [`Host::keyspaces`].
    keyspace: usize,
    /// The command that runs.
    running: Option<Running>,
    multi: Option<Multi>,
    watched: Vec<Watched>,
    /// The transaction between `MERIDIAN.BEGIN` and its end.
    open: Option<Open>,
    levels: Levels,
    /// What is asked of the command that is being dispatched.
    once: Once,
    /// The level that was asked for last.
    asked_last: Level,
    /// The keyspaces used, as indexes, and what is owed of them; of no meaning if it shares that with a group.
    composed: compose::Session<usize>,
    /// The client name with whose connections it shares what is owed.
    group: Option<Bytes>,
    /// What the way into the keyspace has cost the command that runs.
    crossed: Cost,
    /// What the last operation cost.
    cost: Cost,
    /// When the last command began.
    active: Micros,
    /// Errors answered and not yet counted.
    errors: u64,
    closing: bool,
}

/// A command that waits for the node.
#[derive(Debug)]
struct Running {
    began: Micros,
    /// How many words stand before it, as of `MERIDIAN.SNAPSHOT`.
    prefix: usize,
    job: Job,
}

impl Session {
    /// Bytes of output that hold up the commands behind it, until the client has taken them.
    const OUTPUT_FULL: usize = 1024 * 1024;
    /// Bytes of commands that wait before the node stops reading.
    const INPUT_FULL: usize = 64 * 1024;
    /// A buffer that had to hold a command or answers larger than this is given back.
    const BUFFER_KEPT: usize = 256 * 1024;

    /// The session of a new connection from `peer` to `local`, as text.
    pub fn new(id: SessionId, peer: String, local: String, host: &mut impl Host) -> Self {
        let now = host.now().monotonic;
        let number = host.keyspaces()[0].number;
        let shared = host.shared();
        let user = shared.users.newcomer();
        shared.counters.connections += 1;
        shared.clients.insert(ClientInfo {
            id,
            peer,
            local,
            name: Bytes::new(),
            user: crate::acl::DEFAULT_USER.into(),
            library: Bytes::new(),
            library_version: Bytes::new(),
            connected: now,
            active: now,
            command: "NULL",
            keyspace: number,
            queued: -1,
            watching: false,
            blocked: None,
            protocol: 2,
        });
        let mut state = State {
            id,
            user,
            output: BytesMut::new(),
            output_peak: 0,
            protocol: Protocol::Resp2,
            keyspace: 0,
            running: None,
            multi: None,
            watched: Vec::new(),
            open: None,
            levels: Levels::default(),
            once: Once::default(),
            asked_last: Level::default(),
            composed: compose::Session::default(),
            group: None,
            crossed: Cost::default(),
            cost: Cost::default(),
            active: now,
            errors: 0,
            closing: false,
        };
        state.begin_as_user(host);
        Self { input: BytesMut::new(), parser: Parser::default(), ended: false, state }
    }

    /// The session's number.
    pub fn id(&self) -> SessionId {
        self.state.id
    }

    /// Where the node puts what the client sends.
    pub fn input(&mut self) -> &mut BytesMut {
        &mut self.input
    }

    /// What is to be sent to the client.
    pub fn output(&mut self) -> &mut BytesMut {
        &mut self.state.output
    }

    /// Whether the node should read from the connection. If not, that changes with a completion or when output
    /// has been sent.
    pub fn wants_input(&self) -> bool {
        !self.state.closing
            && self.state.output.len() < Self::OUTPUT_FULL
            && (self.state.running.is_none() || self.input.len() < Self::INPUT_FULL)
    }

    /// Whether the connection ends once the output is sent.
    pub fn closing(&self) -> bool {
        self.state.closing
    }

    /// Who the client is.
    pub(crate) fn user(&self) -> &Rc<User> {
        &self.state.user
    }

    /// How many bytes wait: of commands, and of answers.
    pub(crate) fn waiting(&self) -> (usize, usize) {
        (self.input.len(), self.state.output.len())
    }

    /// How many bytes it holds: those, and what is gathered for `EXEC`.
    pub(crate) fn held(&self) -> usize {
        let (input, output) = self.waiting();
        input + output + self.state.gathered()
    }

    /// Whether its user was deleted: the connection is to be closed.
    pub fn is_departed(&self) -> bool {
        self.state.user.is_gone() && !self.state.closing
    }

    /// Since when the client has asked for nothing, in monotonic time; `None` while a command runs.
    pub fn idle_since(&self) -> Option<Micros> {
        if self.state.running.is_some() { None } else { Some(self.state.active) }
    }

    /// Runs the commands in the input, until one has to wait. Call it when there is more input, and when output
    /// has been sent.
    pub fn on_input(&mut self, host: &mut impl Host) {
        if self.state.output_peak > Self::BUFFER_KEPT && self.state.output.is_empty() {
            self.state.output = BytesMut::new();
            self.state.output_peak = 0;
        }
        while !self.state.closing
            && self.state.running.is_none()
            && self.state.output.len() < Self::OUTPUT_FULL
        {
            self.parser.expect_stranger(!self.state.is_known(host));
            match self.parser.parse(&self.input, host.shared().tunables.max_bulk_len) {
                Ok(false) => {
                    self.input.advance(self.parser.forget());
                    self.state.closing = self.ended;
                    break;
                }
                Ok(true) => {
                    match self.parser.oversize() {
                        Some(oversize) => self.state.on_oversize(oversize, host),
                        None => self.state.on_command(self.parser.args(&self.input), host),
                    }
                    self.drop_finished(host);
                }
                Err(ProtocolError(text)) => {
                    self.state.error(&format!("ERR Protocol error: {text}"));
                    self.state.count(host);
                    self.state.closing = true;
                }
            }
        }
    }

    /// Takes up that the client sends nothing more: the session ends when what it has sent is answered.
    pub fn on_input_ended(&mut self, host: &mut impl Host) {
        self.ended = true;
        // Nobody is there to take the item that it waits for.
        self.state.closing |= self.state.only_waits();
        self.on_input(host);
    }

    /// Whether the client sends nothing more.
    pub fn input_ended(&self) -> bool {
        self.ended
    }

    /// Takes up the end of a request that this session submitted.
    pub fn on_completion(&mut self, completion: Completion, host: &mut impl Host) {
        self.state.on_completion(self.parser.args(&self.input), completion, host);
        self.drop_finished(host);
        self.on_input(host);
    }

    /// Takes up that this session, which waits for items, has something to do.
    pub fn on_called(&mut self, host: &mut impl Host) {
        if self.state.on_called(self.parser.args(&self.input), host) {
            self.drop_finished(host);
            self.on_input(host);
        }
    }

    /// The connection has ended. Completions of what still runs are of no interest any more.
    pub fn on_closed(&mut self, host: &mut impl Host) {
        self.state.closing = true;
        self.state.leave_open(host);
        self.state.leave_group(host);
        self.state.leave_lines(host);
        self.state.running = None;
        host.shared().clients.remove(self.state.id);
    }

    /// Drops the bytes of a command that has been answered.
    fn drop_finished(&mut self, host: &mut impl Host) {
        // A completion may come for a command that was answered before all of its requests had ended.
        if self.state.running.is_some() || !self.parser.complete() {
            return;
        }
        self.state.count(host);
        self.state.output_peak = self.state.output_peak.max(self.state.output.len());
        let consumed = self.parser.consumed();
        self.input.advance(consumed);
        self.parser.next();
        if consumed > Self::BUFFER_KEPT {
            // What follows is moved out of the large buffer that the command needed.
            self.input = BytesMut::from(&self.input[..]);
        }
    }
}

impl State {
    /// Where answers are written.
    fn reply(&mut self) -> Encoder<'_> {
        Encoder::new(&mut self.output, self.protocol)
    }

    /// Answers with an error.
    fn error(&mut self, text: &str) {
        self.errors += 1;
        self.reply().error(text);
    }

    /// Begins a request in the selected keyspace, whose fence is owed from then on.
    fn submit(&mut self, request: Request, host: &mut impl Host) -> RequestId {
        self.submit_to(self.keyspace, request, host)
    }

    fn submit_to(&mut self, keyspace: usize, request: Request, host: &mut impl Host) -> RequestId {
        self.with_composed(host, |composed, services| composed.on_begin(services, keyspace));
        host.submit(self.id, keyspace, request)
    }

    /// Changes what `CLIENT LIST` tells of this connection.
    fn update(&self, host: &mut impl Host, change: impl FnOnce(&mut ClientInfo)) {
        if let Some(info) = host.shared().clients.get_mut(self.id) {
            change(info);
        }
    }

    /// Counts a command that has ended.
    fn count(&mut self, host: &mut impl Host) {
        let counters = &mut host.shared().counters;
        counters.commands += 1;
        counters.errors += std::mem::take(&mut self.errors);
    }
}
