//! A node with its sockets: what one thread owns and its tasks borrow in turn, never across an await.
//!
//! Tasks read and decode, and call into the node; all that shall leave is gathered. The flusher, which runs
//! behind the tasks that the same poll made ready, commits the records of all of them once and then writes
//! once to each socket. That order is the batching, and [`Node::flush`] is where the durability rule is kept:
//! nothing else writes to a socket what machines have said.

mod guards;

use crate::config::Config;
use crate::core::Core;
use crate::frame::{self, Frame, Kind};
use crate::handshake::{Hello, Life};
use crate::link::Written;
use crate::metrics;
use crate::placement::NodeIndex;
use crate::session::{Host, Session, SessionId};
use crate::tally::Commits;
use crate::tls::Tls;
use crate::wire::Writer;
use bytes::{Buf, BytesMut};
use meridian_protocol::clock::Micros;
use meridian_store::{Batch, Store, StoreError};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::task::Waker;
use std::time::Instant;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinHandle, spawn_local};

/// A node as its tasks share it.
pub(crate) type SharedNode = Rc<RefCell<Node>>;

/// Runs a task of the node. Should it panic, the node stops: it must not go on without the task.
pub(crate) fn spawn(node: &SharedNode, task: impl Future<Output = ()> + 'static) -> JoinHandle<()> {
    let watch = Watch(node.clone());
    spawn_local(async move {
        let _watch = watch;
        task.await;
    })
}

/// Tells the node if it is dropped by a panic.
struct Watch(SharedNode);

impl Drop for Watch {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Ok(mut node) = self.0.try_borrow_mut()
        {
            node.on_panic();
        }
    }
}

/// All of a node.
pub(crate) struct Node {
    pub(crate) config: Config,
    pub(crate) core: Core,
    pub(crate) life: Life,
    /// By slot.
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    last_serial: u64,
    /// Slots of connections with output or news for their readers.
    dirty: Vec<usize>,
    store: Option<Box<dyn Store>>,
    /// The latest life of each node that this one has met.
    met: BTreeMap<String, Life>,
    /// What its commits took.
    commits: Commits,
    /// What it shows and whom it believes; none if nothing is encrypted.
    pub(crate) tls: Option<Tls>,
    /// Why the node had to stop.
    pub(crate) failure: Option<String>,
    /// Wakes whoever waits for links to come up or for the node to fail.
    pub(crate) news: Rc<Notify>,
}

/// A client's connection.
struct Connection {
    session: Session,
    id: SessionId,
    writer: Rc<Writer>,
    dirty: bool,
    /// Since when it stands, in monotonic time.
    since: Micros,
    /// Since when the socket takes nothing.
    stuck: Option<Micros>,
    /// The socket is full; a task waits until it can be written to.
    blocked: bool,
    /// Wakes the reading task when the session wants input again.
    reader: Option<Waker>,
    task: Option<AbortHandle>,
    /// The task that waits for a full socket.
    waiting: Option<AbortHandle>,
}

/// A socket that was full: wait until it can be written to, then say so to the node.
pub(crate) struct Full {
    pub(crate) writer: Rc<Writer>,
    pub(crate) whose: Whose,
}

/// Whose socket it is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Whose {
    /// A client's.
    Client(SessionId),
    /// Another node's.
    Peer(NodeIndex),
}

/// The keys of the host's own facts begin so.
const INCARNATION: &[u8] = b"hincarnation";
const MET: &[u8] = b"hmet ";
/// Before the count of starts, big-endian: the number that the process drew at that start.
const START: &[u8] = b"hstart ";

const CONFIG: &[u8] = b"hconfig";

/// The count of starts that clocks have room for.
const STARTS: u32 = 0xff_ffff;
/// Of so many starts the numbers are kept: a node that was last met before these is not let in again.
const STARTS_KEPT: u32 = 1 << 16;

/// Reads how often the node has started on a store, counts this start and makes that durable, together with the
/// number that this process has drawn. `config_hash` must be the one that the records were made under.
///
/// # Errors
/// If the store cannot be read or written, or was made under another configuration.
pub(crate) fn count_start(store: &mut dyn Store, config_hash: u64, process: u64) -> Result<u32, StoreError> {
    let mut made_under = config_hash;
    store.for_each(CONFIG, &mut |_, value| {
        made_under = value.try_into().map_or(0, u64::from_le_bytes);
    })?;
    if made_under != config_hash {
        return Err(StoreError::Record(format!(
            "the records were made under a configuration with hash {made_under:016x}, and this one has \
             {config_hash:016x}: nodes, regions, keyspaces and partitions cannot change yet; take the old ones"
        )));
    }
    let mut incarnation = 0;
    store.for_each(INCARNATION, &mut |_, value| {
        incarnation = value.try_into().map_or(u32::MAX, u32::from_le_bytes);
    })?;
    if incarnation >= STARTS {
        return Err(StoreError::Record("the count of starts is damaged or used up".to_owned()));
    }
    incarnation += 1;
    let mut batch = Batch::new();
    batch.put(INCARNATION, &incarnation.to_le_bytes());
    batch.put(CONFIG, &config_hash.to_le_bytes());
    batch.put(&start_key(incarnation), &process.to_le_bytes());
    if let Some(old) = incarnation.checked_sub(STARTS_KEPT) {
        batch.delete(&start_key(old));
    }
    store.commit(&batch)?;
    store.sync()?;
    Ok(incarnation)
}

fn start_key(incarnation: u32) -> Vec<u8> {
    [START, &incarnation.to_be_bytes()].concat()
}

/// Reads whom the node has met. Whoever cannot be read must not be forgotten, so that is an error.
fn read_met(store: &dyn Store) -> Result<BTreeMap<String, Life>, StoreError> {
    let mut met = BTreeMap::new();
    let mut damaged = None;
    store.for_each(MET, &mut |key, value| {
        let name = String::from_utf8_lossy(&key[MET.len()..]).into_owned();
        match minicbor::decode(value) {
            Ok(life) => drop(met.insert(name, life)),
            Err(error) => {
                damaged = Some(format!("what is remembered of node '{name}' cannot be read: {error}"));
            }
        }
    })?;
    damaged.map_or(Ok(met), |why| Err(StoreError::Record(why)))
}

impl Node {
    pub(crate) fn new(
        config: Config,
        mut core: Core,
        store: Option<Box<dyn Store>>,
        life: Life,
    ) -> Result<Self, StoreError> {
        let met = match &store {
            Some(store) => read_met(store.as_ref())?,
            None => BTreeMap::new(),
        };
        core.store_status = store.as_ref().map(|store| store.status()).unwrap_or_default();
        Ok(Self {
            config,
            core,
            life,
            connections: Vec::new(),
            free: Vec::new(),
            last_serial: 0,
            dirty: Vec::new(),
            store,
            met,
            commits: Commits::default(),
            tls: None,
            failure: None,
            news: Rc::new(Notify::new()),
        })
    }

    // Clients.

    /// Whether a client at that address is to be turned away, as it could be anybody and would be let do anything.
    pub(crate) fn is_exposed_to(&mut self, address: IpAddr) -> bool {
        self.config.protected
            && !address.to_canonical().is_loopback()
            && self.core.shared().users.default_user().rights().is_open()
    }

    /// Takes up a client's connection.
    ///
    /// # Errors
    /// Gives the socket back if there are too many.
    pub(crate) fn open(
        &mut self,
        writer: Writer,
        peer: SocketAddr,
        local: SocketAddr,
    ) -> Result<SessionId, Writer> {
        if self.connections.len() - self.free.len() >= self.core.shared().tunables.max_clients {
            self.core.shared().counters.rejected += 1;
            return Err(writer);
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() - 1
        });
        self.last_serial += 1;
        let id = SessionId { serial: self.last_serial, slot };
        let session = Session::new(id, peer.to_string(), local.to_string(), &mut self.core);
        self.connections[slot] = Some(Connection {
            session,
            id,
            writer: Rc::new(writer),
            dirty: false,
            since: self.core.outside.now().monotonic,
            stuck: None,
            blocked: false,
            reader: None,
            task: None,
            waiting: None,
        });
        Ok(id)
    }

    /// Says which task reads from a connection, so that it ends with it.
    pub(crate) fn reads(&mut self, id: SessionId, task: AbortHandle) {
        if let Some(connection) = self.connection(id) {
            connection.task = Some(task);
        }
    }

    /// Where to read into, if the connection stands and its session wants input; otherwise `waker` is woken
    /// when it does.
    pub(crate) fn input(&mut self, id: SessionId, waker: &Waker) -> Option<&mut BytesMut> {
        let connection = self.connection(id)?;
        if connection.session.wants_input() {
            Some(connection.session.input())
        } else {
            connection.reader = Some(waker.clone());
            None
        }
    }

    /// Takes up `count` bytes that were read into the session's input.
    pub(crate) fn on_input(&mut self, id: SessionId, count: usize) {
        self.core.traffic.bytes_in += count as u64;
        let Some(connection) = self.connections.get_mut(id.slot).and_then(Option::as_mut) else { return };
        connection.session.on_input(&mut self.core);
        self.touch(id.slot);
        self.deliver();
    }

    /// Takes up that a client sends nothing more; it may still await answers.
    pub(crate) fn on_input_ended(&mut self, id: SessionId) {
        if self.connection(id).is_none() {
            return;
        }
        if let Some(connection) = &mut self.connections[id.slot] {
            connection.session.on_input_ended(&mut self.core);
        }
        self.touch(id.slot);
        self.deliver();
    }

    /// Ends a client's connection.
    pub(crate) fn close(&mut self, id: SessionId) {
        if self.connection(id).is_none() {
            return;
        }
        if let Some(mut connection) = self.connections[id.slot].take() {
            connection.session.on_closed(&mut self.core);
            self.core.close_session(id);
            self.free.push(id.slot);
            for task in [connection.task, connection.waiting].into_iter().flatten() {
                task.abort();
            }
        }
    }

    fn connection(&mut self, id: SessionId) -> Option<&mut Connection> {
        self.connections.get_mut(id.slot)?.as_mut().filter(|connection| connection.id == id)
    }

    /// Sees to it that a connection's output is written and its end noticed.
    fn touch(&mut self, slot: usize) {
        let Some(connection) = &mut self.connections[slot] else { return };
        let session = &mut connection.session;
        if !connection.dirty && (!session.output().is_empty() || session.closing()) {
            connection.dirty = true;
            self.dirty.push(slot);
            self.core.outside.flush.notify_one();
        }
    }

    /// Hands requests that ended to their sessions, which may begin others.
    fn deliver(&mut self) {
        loop {
            while let Some(completion) = self.core.outside.completions.pop_front() {
                let Some(id) = self.core.take_request(&completion) else {
                    self.core.on_aside(completion);
                    continue;
                };
                let Some(connection) = self.connections.get_mut(id.slot).and_then(Option::as_mut) else {
                    continue;
                };
                connection.session.on_completion(completion, &mut self.core);
                self.touch(id.slot);
            }
            let Some(id) = self.core.next_called() else { break };
            // Who has gone has left the lines.
            if let Some(connection) = self.connections.get_mut(id.slot).and_then(Option::as_mut) {
                connection.session.on_called(&mut self.core);
                self.touch(id.slot);
            }
        }
        if self.core.shared().users.take_departed() {
            let departed =
                self.connections.iter().flatten().filter(|connection| connection.session.is_departed());
            for id in departed.map(|connection| connection.id).collect::<Vec<_>>() {
                self.close(id);
            }
        }
    }

    // Other nodes.

    /// The count of starts at which the node called `name` was last met; 0 if it never was.
    pub(crate) fn last_met(&self, name: &str) -> u32 {
        self.met.get(name).map_or(0, |life| life.incarnation)
    }

    /// The number that this node's process drew at a start, if its records tell.
    pub(crate) fn drawn_at(&self, incarnation: u32) -> Option<u64> {
        if incarnation == self.life.incarnation {
            return Some(self.life.process);
        }
        let mut drawn = None;
        let read = self.store.as_ref()?.for_each(&start_key(incarnation), &mut |_, value| {
            drawn = value.try_into().ok().map(u64::from_le_bytes);
        });
        read.ok().and(drawn)
    }

    /// Decides whether the process that said `hello` may take part under its name, and remembers it for good.
    /// Asked which number it drew at the start `asked`, it has shown `drawn`: a count of starts alone would be
    /// made good by starting again and again.
    ///
    /// # Errors
    /// Why not, in words for both sides' logs.
    pub(crate) fn meet(&mut self, hello: &Hello, asked: u32, drawn: Option<u64>) -> Result<(), String> {
        let (name, life) = (&hello.node, hello.life);
        if life.incarnation == 0 || life.incarnation > STARTS {
            return Err(format!(
                "'{name}' says that it has started {} times, and 1 to {STARTS} are possible: \
                 start it on its own data directory, undamaged",
                life.incarnation
            ));
        }
        if let Some(known) = self.met.get(name) {
            if known.identity != life.identity {
                return Err(format!(
                    "'{name}' was met before with other records, and must not forget what it has promised: \
                     start it on its own data directory (a node without one cannot come back under its name)"
                ));
            }
            let older = life.incarnation < known.incarnation;
            if older || (life.incarnation == known.incarnation && life.process != known.process) {
                return Err(format!(
                    "'{name}' comes with records older than those it was met with: \
                     its data directory is a copy; start it on the original"
                ));
            }
            if *known == life {
                return Ok(());
            }
            if asked != known.incarnation {
                return Err(format!("'{name}' was met over another connection meanwhile: it will try again"));
            }
            if drawn != Some(known.process) {
                return Err(format!(
                    "'{name}' cannot show that its records contain its start {asked}, at which it was met: \
                     its data directory is a copy, or was put back from one; start it on the original"
                ));
            }
        }
        self.met.insert(name.clone(), life);
        let mut batch = Batch::new();
        batch.write(
            |key| {
                key.extend_from_slice(MET);
                key.extend_from_slice(name.as_bytes());
            },
            |value| {
                meridian_protocol::wire::encode(&life, value);
                true
            },
        );
        let Some(store) = &mut self.store else { return Ok(()) };
        store.commit(&batch).and_then(|()| store.sync()).map_err(|error| {
            self.fail(&error);
            "it cannot write to its data directory".to_owned()
        })
    }

    /// Takes up a connection to another node; returns its serial number.
    pub(crate) fn peer_connected(&mut self, peer: NodeIndex, writer: Writer) -> u64 {
        self.last_serial += 1;
        let now = self.core.outside.now().monotonic;
        tracing::info!("connected to node '{}'", self.config.nodes[peer].name);
        self.core.outside.links[peer].connect(writer, self.last_serial, now);
        self.core.outside.frame(peer, Kind::Ping, |buffer| buffer.extend_from_slice(&now.to_le_bytes()));
        self.core.prefer();
        self.news.notify_one();
        self.last_serial
    }

    /// Notes that a connection to another node has ended, and why.
    pub(crate) fn peer_disconnected(&mut self, peer: NodeIndex, serial: u64, why: &str) {
        if self.core.outside.links[peer].is_connected(serial) {
            tracing::info!("lost node '{}': {why}", self.config.nodes[peer].name);
            self.core.outside.links[peer].give_up();
            self.core.prefer();
        }
    }

    /// Takes up all whole frames of another node.
    ///
    /// # Errors
    /// What is wrong with them; the connection cannot go on.
    pub(crate) fn on_peer_input(
        &mut self,
        peer: NodeIndex,
        serial: u64,
        input: &mut BytesMut,
        count: usize,
    ) -> Result<(), String> {
        if !self.core.outside.links[peer].is_connected(serial) {
            return Err("it has made a new connection".to_owned());
        }
        self.core.traffic.bytes_in += count as u64;
        let now = self.core.outside.now().monotonic;
        let mut prefer = self.core.outside.links[peer].heard(now);
        let taken = self.take_frames(peer, input, now, &mut prefer);
        if prefer {
            self.core.prefer();
        }
        // Even if the last frame was bad: those before it may have ended requests.
        self.deliver();
        input.advance(taken?);
        Ok(())
    }

    /// Takes up the whole frames in `input`; gives how many bytes they took.
    fn take_frames(
        &mut self,
        peer: NodeIndex,
        input: &[u8],
        now: Micros,
        prefer: &mut bool,
    ) -> Result<usize, String> {
        let mut taken = 0;
        while let Some(Frame { kind, content, size }) = frame::read(&input[taken..], frame::LIMIT)? {
            match kind {
                Kind::Message => self.on_message(peer, content),
                Kind::Ping => {
                    self.core.outside.frame(peer, Kind::Pong, |buffer| buffer.extend_from_slice(content));
                }
                Kind::Pong => {
                    let sent = content.try_into().map_or(now, u64::from_le_bytes);
                    *prefer |= self.core.outside.links[peer].measured(now.saturating_sub(sent));
                }
                Kind::Time => {
                    if let Ok(earliest) = content.try_into() {
                        let (name, earliest) = (&self.config.nodes[peer].name, u64::from_le_bytes(earliest));
                        self.core.outside.clock.hear(peer as u16, name, earliest);
                    }
                }
                Kind::Watch => self.core.on_watch(peer, content),
                Kind::Changed => self.core.on_changed(peer, content),
                Kind::Hello | Kind::Proof | Kind::Lineage | Kind::Welcome | Kind::Refused => {
                    return Err("it shook hands twice".to_owned());
                }
            }
            taken += size;
        }
        Ok(taken)
    }

    /// A message that makes no sense is dropped and counted, and the first ones are logged.
    fn on_message(&mut self, peer: NodeIndex, content: &[u8]) {
        let result = match frame::read_addresses(content) {
            Ok((from, ..)) if self.core.outside.placement.node_of(from) != Some(peer) => {
                Err("its sender does not live there".to_owned())
            }
            Ok((from, to, body)) => self.core.receive(from, to, body),
            Err(why) => Err(why.to_owned()),
        };
        if let Err(why) = result {
            let link = &mut self.core.outside.links[peer];
            link.malformed += 1;
            if link.malformed.is_power_of_two() {
                let (count, name) = (link.malformed, &self.config.nodes[peer].name);
                tracing::warn!("dropped a message from node '{name}': {why} ({count} so far)");
            }
        }
    }

    // Time.

    /// Wakes the machines whose time has come.
    pub(crate) fn wake_due(&mut self) {
        self.core.wake_due();
        self.deliver();
    }

    /// What is done twice a second: signs of life, idle clients, counting.
    pub(crate) fn tick(&mut self) {
        let now = self.core.outside.now().monotonic;
        let mut prefer = false;
        for peer in 0..self.core.outside.links.len() {
            let link = &mut self.core.outside.links[peer];
            if link.is_lost(now) {
                tracing::info!("gave up the connection to node '{}': silent", self.config.nodes[peer].name);
                link.give_up();
            } else if link.is_up() {
                prefer |= link.falls_silent(now);
                self.core
                    .outside
                    .frame(peer, Kind::Ping, |buffer| buffer.extend_from_slice(&now.to_le_bytes()));
            }
        }
        if prefer {
            self.core.prefer();
        }
        self.deliver();
        self.core.refresh();
        self.guard(now);
        self.vouch();
    }

    /// Reads certificates again, if they have changed or `always`.
    pub(crate) fn reload(&mut self, always: bool) {
        match self.tls.as_mut().map(|tls| tls.reload(always)) {
            Some(Ok(true)) => tracing::info!("certificates were read again, for new connections"),
            Some(Err(why)) => tracing::error!("certificates stay as they were: {why}"),
            None if always => tracing::info!("nothing to read again: there is no [tls]"),
            _ => {}
        }
    }

    // What leaves.

    /// Makes all pending records durable, then writes to every socket for which something waits. Gives the
    /// sockets that were full.
    pub(crate) fn flush(&mut self) -> Vec<Full> {
        let mut full = Vec::new();
        if self.failure.is_some() || !self.commit() {
            return full;
        }
        for peer in std::mem::take(&mut self.core.outside.dirty_links) {
            if self.core.is_cut(peer) {
                self.core.outside.links[peer].lose();
            }
            let link = &mut self.core.outside.links[peer];
            if let Written::Blocked(writer) = link.write(&mut self.core.traffic.writes)
                && !std::mem::replace(&mut link.blocked, true)
            {
                full.push(Full { writer, whose: Whose::Peer(peer) });
            }
            // A broken connection is noticed by the task that reads from it.
        }
        let mut held_up = Vec::new();
        for slot in std::mem::take(&mut self.dirty) {
            full.extend(self.write_to_client(slot, &mut held_up));
        }
        // Only now, as what these begin may store records, which must not be overtaken.
        for slot in held_up {
            self.resume(slot);
        }
        full
    }

    /// Says which task waits for a full socket, so that it ends with the connection: the other side may never
    /// read.
    pub(crate) fn waits(&mut self, whose: Whose, task: AbortHandle) {
        match whose {
            Whose::Client(id) => match self.connection(id) {
                Some(connection) => connection.waiting = Some(task),
                None => task.abort(),
            },
            Whose::Peer(peer) => self.core.outside.links[peer].waiting = Some(task),
        }
    }

    /// Says that a socket that was full can be written to.
    pub(crate) fn on_writable(&mut self, whose: Whose) {
        match whose {
            Whose::Client(id) => {
                if let Some(connection) = self.connection(id) {
                    connection.blocked = false;
                    // Encrypted bytes may wait that are no output any more.
                    if !std::mem::replace(&mut connection.dirty, true) {
                        self.dirty.push(id.slot);
                        self.core.outside.flush.notify_one();
                    }
                }
            }
            Whose::Peer(peer) => {
                self.core.outside.links[peer].blocked = false;
                self.core.outside.dirty_links.push(peer);
                self.core.outside.flush.notify_one();
            }
        }
    }

    /// Writes a client's output; notes in `held_up` if the session may have waited for that.
    fn write_to_client(&mut self, slot: usize, held_up: &mut Vec<usize>) -> Option<Full> {
        let connection = self.connections[slot].as_mut()?;
        connection.dirty = false;
        if connection.blocked {
            return None;
        }
        let id = connection.id;
        loop {
            let wrote = if connection.session.output().is_empty() {
                connection.writer.try_flush().map(|()| 0)
            } else {
                self.core.traffic.writes += 1;
                connection.writer.try_write(connection.session.output())
            };
            match wrote {
                Ok(0) if connection.session.output().is_empty() => {
                    connection.stuck = None;
                    break;
                }
                Ok(count) if count > 0 => {
                    connection.session.output().advance(count);
                    connection.stuck = None;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    connection.blocked = true;
                    connection.stuck.get_or_insert(self.core.outside.now().monotonic);
                    return Some(Full { writer: connection.writer.clone(), whose: Whose::Client(id) });
                }
                _ => {
                    self.close(id);
                    return None;
                }
            }
        }
        if connection.session.closing() {
            self.close(id);
            return None;
        }
        let session = &mut connection.session;
        if connection.reader.is_some() || session.input_ended() || !session.input().is_empty() {
            held_up.push(slot);
        }
        None
    }

    /// Lets a session go on whose output was taken.
    fn resume(&mut self, slot: usize) {
        let Some(connection) = self.connections[slot].as_mut() else { return };
        connection.session.on_input(&mut self.core);
        if connection.session.wants_input()
            && let Some(waker) = connection.reader.take()
        {
            waker.wake();
        }
        self.touch(slot);
        self.deliver();
    }

    /// Commits what machines have stored. After an error nothing leaves any more.
    fn commit(&mut self) -> bool {
        let (Some(store), Some(batch)) = (&mut self.store, &mut self.core.outside.batch) else { return true };
        if batch.is_empty() {
            return true;
        }
        let (before, began) = (store.status(), Instant::now());
        let result = store.commit(batch);
        self.commits.note(batch.len(), began.elapsed().as_micros() as Micros);
        batch.clear();
        self.core.store_status = store.status();
        self.commits.look(&before, &self.core.store_status);
        if let Err(error) = result {
            self.fail(&error);
            return false;
        }
        true
    }

    /// Forces what was committed to disk, in the modes that do not do so at each commit.
    pub(crate) fn sync(&mut self) {
        let Some(store) = &mut self.store else { return };
        let before = store.status();
        let result = store.sync();
        self.core.store_status = store.status();
        self.commits.look(&before, &self.core.store_status);
        if let Err(error) = result {
            self.fail(&error);
        }
    }

    /// Has the store say that what it holds is whole.
    fn vouch(&mut self) {
        if let Some(store) = &mut self.store
            && let Err(error) = store.vouch()
        {
            self.fail(&error);
        }
    }

    /// Notes that a task has panicked, and with it machines may be half changed: nothing leaves any more.
    pub(crate) fn on_panic(&mut self) {
        self.failure
            .get_or_insert_with(|| "a task panicked: start it again, and report what it printed".to_owned());
        self.news.notify_one();
    }

    fn fail(&mut self, error: &StoreError) {
        self.failure.get_or_insert_with(|| error.to_string());
        self.news.notify_one();
    }

    /// What it tells of itself, as [`metrics::text`].
    pub(crate) fn metrics(&self) -> String {
        let waiting = self.connections.iter().flatten().map(|connection| connection.session.waiting());
        let waiting = waiting.fold((0, 0), |(input, output), (a, b)| (input + a, output + b));
        metrics::text(&self.core, waiting, &self.commits)
    }

    /// Whether every other node is connected.
    pub(crate) fn sees_all(&self) -> bool {
        self.core.seen() + 1 == self.config.nodes.len()
    }
}
