//! What the sessions of a node have in common: settings, the slow log, the list of clients, counters.

use super::host::{KeyspaceInfo, SessionId};
use crate::acl::Users;
use crate::tally::Commands;
use crate::token::Tokens;
use bytes::Bytes;
use meridian_protocol::clock::Micros;
use meridian_protocol::compose::{self, Services};
use meridian_protocol::object::OBJECT_LIMIT;
use meridian_protocol::waiting::WaitId;
use std::collections::{HashMap, VecDeque};

/// One for all sessions of a node.
#[derive(Debug, Default)]
pub struct Shared {
    /// What `CONFIG SET` changes.
    pub tunables: Tunables,
    /// What `SLOWLOG` answers.
    pub slow_log: SlowLog,
    /// Who may do what.
    pub users: Users,
    /// Who is connected.
    pub clients: Clients,
    /// What `INFO stats` counts.
    pub counters: Counters,
    /// The keyspaces, as services that sessions use together.
    pub services: Services<usize>,
    /// By client name, what the connections of that name owe together, and how many they are.
    pub groups: HashMap<Bytes, (compose::Session<usize>, usize)>,
    /// What commands took.
    pub(crate) commands: Commands,
    /// Makes and reads contexts; none without a secret.
    pub tokens: Option<Tokens>,
}

impl Shared {
    /// That of a node with these keyspaces.
    pub fn of(keyspaces: &[KeyspaceInfo]) -> Self {
        let names = keyspaces.iter().map(|keyspace| (keyspace.number, keyspace.name.clone())).collect();
        let commands = Commands::of(keyspaces.len());
        let mut shared = Self { users: Users::new(names), commands, ..Self::default() };
        for (index, keyspace) in keyspaces.iter().enumerate() {
            // An index comes once.
            let _ = shared.services.register(index, keyspace.engine().role());
        }
        shared
    }
}

/// Settings that `CONFIG SET` changes while the node runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tunables {
    /// Bytes of memory above which commands that need more are refused; 0 is no limit.
    pub maxmemory: u64,
    /// The longest string that a client may send, at most [`OBJECT_LIMIT`].
    pub max_bulk_len: usize,
    /// Commands that take at least so many microseconds are logged; below 0, none.
    pub slow_log_slower_than: i64,
    /// How many slow commands are kept.
    pub slow_log_max_len: usize,
    /// Bytes that wait in all connections together, above which the largest are ended; 0 is no limit.
    pub max_memory_clients: u64,
    /// How many clients may be connected at once.
    pub max_clients: usize,
    /// How many that can be set to at most: as many as the file says.
    pub max_clients_ever: usize,
    /// Seconds after which an idle connection is closed; 0 is never.
    pub timeout_s: u64,
}

impl Tunables {
    /// The range of [`Tunables::max_bulk_len`]: a replica holds no larger value, and a line must fit.
    pub const MAX_BULK_LEN: std::ops::RangeInclusive<usize> = 1024..=OBJECT_LIMIT;
}

impl Default for Tunables {
    fn default() -> Self {
        Self {
            maxmemory: 0,
            max_bulk_len: 8 * 1024 * 1024,
            // Redis's 10 ms would log every operation that crosses an ocean.
            slow_log_slower_than: 1_000_000,
            slow_log_max_len: 128,
            max_memory_clients: 0,
            max_clients: 10_000,
            max_clients_ever: 10_000,
            timeout_s: 0,
        }
    }
}

/// Counters for `INFO`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Connections accepted.
    pub connections: u64,
    /// Commands ended.
    pub commands: u64,
    /// Error replies.
    pub errors: u64,
    /// Connections turned away, as there were too many.
    pub rejected: u64,
    /// Connections ended, as they held up or held too much.
    pub evicted: u64,
}

/// Who is connected, by slot.
#[derive(Debug, Default)]
pub struct Clients {
    slots: Vec<Option<ClientInfo>>,
}

impl Clients {
    pub(super) fn insert(&mut self, info: ClientInfo) {
        let slot = info.id.slot;
        if self.slots.len() <= slot {
            self.slots.resize_with(slot + 1, || None);
        }
        self.slots[slot] = Some(info);
    }

    pub(super) fn remove(&mut self, id: SessionId) {
        if self.get_mut(id).is_some() {
            self.slots[id.slot] = None;
        }
    }

    /// What is known of a session's client.
    pub fn get(&self, id: SessionId) -> Option<&ClientInfo> {
        self.slots.get(id.slot)?.as_ref().filter(|info| info.id == id)
    }

    pub(super) fn get_mut(&mut self, id: SessionId) -> Option<&mut ClientInfo> {
        self.slots.get_mut(id.slot)?.as_mut().filter(|info| info.id == id)
    }

    /// All clients, the oldest first.
    pub fn list(&self) -> Vec<&ClientInfo> {
        let mut all: Vec<_> = self.slots.iter().flatten().collect();
        all.sort_by_key(|info| info.id.serial);
        all
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.slots.iter().flatten().count()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What `CLIENT LIST` tells of a client.
#[derive(Clone, Debug)]
pub struct ClientInfo {
    /// The session.
    pub id: SessionId,
    /// Its address.
    pub peer: String,
    /// The address that it is connected to.
    pub local: String,
    /// The name that it gave itself.
    pub name: Bytes,
    /// The name of its user.
    pub user: Bytes,
    /// The library that it uses, as it says.
    pub library: Bytes,
    /// That library's version.
    pub library_version: Bytes,
    /// When it connected, in monotonic microseconds.
    pub connected: Micros,
    /// When it last began a command.
    pub active: Micros,
    /// That command.
    pub command: &'static str,
    /// The keyspace's number.
    pub keyspace: u16,
    /// How many commands it has queued after `MULTI`, or -1.
    pub queued: i64,
    /// Whether it watches a key.
    pub watching: bool,
    /// For what it waits, if it waits for items: the keyspace and its place in the lines.
    pub blocked: Option<(usize, WaitId)>,
    /// The version of RESP that it speaks.
    pub protocol: u8,
}

/// The latest slow commands.
#[derive(Debug, Default)]
pub struct SlowLog {
    entries: VecDeque<SlowEntry>,
    next: u64,
}

/// A slow command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowEntry {
    /// Its number.
    pub id: u64,
    /// When it ended, in seconds since the Unix epoch.
    pub at_s: u64,
    /// How long it took, from its beginning to its reply.
    pub took: Micros,
    /// The command, long parts cut.
    pub args: Vec<Bytes>,
    /// The client's address.
    pub peer: String,
    /// The client's name.
    pub name: Bytes,
}

impl SlowLog {
    /// Adds an entry, whose number it gives, and forgets the oldest beyond `keep`.
    pub(super) fn push(&mut self, entry: SlowEntry, keep: usize) {
        self.entries.push_front(SlowEntry { id: self.next, ..entry });
        self.next += 1;
        self.entries.truncate(keep);
    }

    /// The entries, the newest first.
    pub fn iter(&self) -> impl Iterator<Item = &SlowEntry> {
        self.entries.iter()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.entries.clear();
    }
}
