//! What a session asks of its node, and what a node must do for its sessions.
//!
//! The node's part, for each connection:
//! - make a [`Session`](super::Session) when a client connects;
//! - read into [`Session::input`](super::Session::input) while
//!   [`Session::wants_input`](super::Session::wants_input), then call
//!   [`Session::on_input`](super::Session::on_input);
//! - hand every [`Completion`](meridian_protocol::machine::Completion) of a request that the session submitted
//!   to [`Session::on_completion`](super::Session::on_completion);
//! - call [`Session::on_called`](super::Session::on_called) of whoever [`Waits::take_called`] names;
//! - send what stands in [`Session::output`](super::Session::output), and call `on_input` again when it has
//!   shrunk, as a full output holds up the commands behind it;
//! - close the connection once [`Session::closing`](super::Session::closing) and all output is sent, or when
//!   [`Session::idle_since`](super::Session::idle_since) lies [`Tunables::timeout_s`](super::Tunables::timeout_s)
//!   back, and call [`Session::on_closed`](super::Session::on_closed).

use super::shared::Shared;
use bytes::Bytes;
use meridian_protocol::clock::{Micros, Now};
use meridian_protocol::machine::{Request, RequestId};
use meridian_protocol::object::Command;
use meridian_protocol::registry::{EngineName, Model};
use meridian_protocol::waiting::{WaitId, Waits};

/// The services of a node to the sessions on it.
pub trait Host {
    /// The node's clocks.
    fn now(&self) -> Now;

    /// All keyspaces, in the order of their numbers; at least one.
    fn keyspaces(&self) -> &[KeyspaceInfo];

    /// Begins a request in the keyspace at `keyspace` in [`Host::keyspaces`]. Its completion comes later, never
    /// from inside this call, and numbers grow from one call to the next.
    fn submit(&mut self, session: SessionId, keyspace: usize, request: Request) -> RequestId;

    /// How many regions the cluster has.
    fn regions(&self) -> u8;

    /// The session begins anew: what keyspaces remember for it alone is forgotten. Nothing of it is in flight.
    fn forget(&mut self, session: SessionId);

    /// Lets a session wait for items of lists, until a time if there is one: from now on the node sees to it that
    /// [`Session::on_called`](super::Session::on_called) is called when [`Waits::turn`] has something to say.
    fn wait(
        &mut self,
        session: SessionId,
        keyspace: usize,
        keys: Vec<Bytes>,
        until: Option<Micros>,
    ) -> WaitId;

    /// Who waits for items of lists in a keyspace.
    fn waits(&mut self, keyspace: usize) -> &mut Waits<SessionId>;

    /// Asks a step of a key for which nobody waits.
    fn aside(&mut self, keyspace: usize, key: Bytes, command: Command);

    /// What the sessions of the node have in common.
    fn shared(&mut self) -> &mut Shared;

    /// Bytes of memory in use, compared with `maxmemory` before a command that may need more.
    fn used_memory(&self) -> u64;

    /// What `INFO` tells of the node.
    fn facts(&self) -> Facts;

    /// `MERIDIAN.STATUS`: for people, lines of `name:value` as in `INFO`.
    fn status(&self) -> String;

    /// `MERIDIAN.DEV`.
    ///
    /// # Errors
    /// Why it was not done, in words for the client: no such region, or not a node of `meridian dev`.
    fn dev(&mut self, command: Dev) -> Result<(), String>;
}

/// A session on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionId {
    /// Its number, as `CLIENT ID` answers it; grows with every session of the process.
    pub serial: u64,
    /// Its place in the node's table of sessions, which another session takes after it.
    pub slot: usize,
}

/// A keyspace as clients see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyspaceInfo {
    /// Its number, for `SELECT`.
    pub number: u16,
    /// Its name, for `MERIDIAN.USE`.
    pub name: String,
    /// The model that it gives.
    pub model: Model,
    /// The engine that serves it.
    pub engine: &'static str,
    /// How many partitions it has.
    pub partitions: u16,
    /// Which connections share causal metadata: `connection`, `client-name` or `node`.
    pub session: &'static str,
}

impl KeyspaceInfo {
    /// The engine, with the model.
    pub fn engine(&self) -> EngineName {
        EngineName { model: self.model, name: self.engine }
    }
}

/// What `INFO` tells of a node.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The node's name.
    pub node: String,
    /// Its region's name.
    pub region: String,
    /// The port on which it serves clients.
    pub tcp_port: u16,
    /// The process's number.
    pub process_id: u32,
    /// Seconds since the process started.
    pub uptime_s: u64,
    /// Whether what was acknowledged outlives the process.
    pub durable: bool,
    /// For each keyspace in the order of [`Host::keyspaces`]: about how many keys this node's replicas hold.
    pub keys: Vec<u64>,
}

/// What `MERIDIAN.DEV` does to an emulated wide area; regions are named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dev {
    /// Loses all messages between two regions.
    Cut(String, String),
    /// Mends all cuts.
    Heal,
    /// Stops a region's replicas.
    Pause(String),
    /// Lets them go on.
    Resume(String),
}
