//! The way to another node: bytes to write, and what is known of it.

use crate::frame::{self, Kind};
use crate::wire::Writer;
use meridian_protocol::clock::Micros;
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

/// How often nodes ask each other whether they are there.
pub(crate) const HEARTBEAT: Duration = Duration::from_millis(500);
/// After how long without a sign of life a node counts as unreachable: three heartbeats and a little.
const SILENCE: Micros = 1_600_000;
/// After how long its connection is given up and another one is made.
const LOST: Micros = 10_000_000;
/// Of so many round-trip times the least counts: queues lengthen single ones.
const SAMPLES: usize = 8;
/// Round-trip times up to this are not told apart.
const NEAR: Micros = 2_000;

/// The way to another node.
#[derive(Debug)]
pub(crate) struct Link {
    connection: Option<Connection>,
    /// Frames to write, of which the first `sent` bytes are written.
    out: Vec<u8>,
    sent: usize,
    dirty: bool,
    /// The socket is full; whoever waits for it will flush again.
    pub(crate) blocked: bool,
    /// The task that waits for it; it ends with the connection.
    pub(crate) waiting: Option<AbortHandle>,
    /// More than this does not wait here.
    limit: usize,
    /// Emulated distance, one way.
    delay: Duration,
    /// Bytes under way, each with the moment at which it is written.
    under_way: VecDeque<(Instant, Vec<u8>)>,
    under_way_bytes: usize,
    last_heard: Micros,
    round_trips: VecDeque<Micros>,
    /// The round-trip time by which the node is ranked; follows the measured one with some inertia.
    rank: Micros,
    reachable: bool,
    /// Messages dropped, as the node was away or too much waited for it.
    pub(crate) dropped: u64,
    /// Messages from it that made no sense.
    pub(crate) malformed: u64,
}

#[derive(Debug)]
struct Connection {
    writer: Rc<Writer>,
    /// The task that reads; it ends with the connection.
    task: Option<AbortHandle>,
    /// Wakes the task that writes what is under way.
    under_way: Rc<Notify>,
    serial: u64,
}

/// What became of a link's bytes.
#[derive(Debug)]
pub(crate) enum Written {
    /// None are left.
    All,
    /// The socket is full: flush again when it can be written to.
    Blocked(Rc<Writer>),
    /// The connection is broken.
    Broken,
}

impl Link {
    pub(crate) fn new(limit: usize, delay: Duration) -> Self {
        Self {
            connection: None,
            out: Vec::new(),
            sent: 0,
            dirty: false,
            blocked: false,
            waiting: None,
            limit,
            delay,
            under_way: VecDeque::new(),
            under_way_bytes: 0,
            last_heard: 0,
            round_trips: VecDeque::new(),
            rank: 0,
            reachable: false,
            dropped: 0,
            malformed: 0,
        }
    }

    /// Takes a new connection, in place of one that may stand.
    pub(crate) fn connect(&mut self, writer: Writer, serial: u64, now: Micros) {
        self.give_up();
        let (writer, under_way) = (Rc::new(writer), Rc::new(Notify::new()));
        self.connection = Some(Connection { writer, task: None, under_way, serial });
        self.last_heard = now;
        self.reachable = true;
        self.round_trips.clear();
    }

    /// Says which task reads from the connection of that serial number.
    pub(crate) fn reads(&mut self, serial: u64, task: AbortHandle) {
        match self.connection.as_mut().filter(|connection| connection.serial == serial) {
            Some(connection) => connection.task = Some(task),
            None => task.abort(),
        }
    }

    /// Forgets the connection, if there is one; its reader ends at its next await.
    pub(crate) fn give_up(&mut self) {
        if let Some(connection) = self.connection.take() {
            if let Some(task) = connection.task {
                task.abort();
            }
            connection.under_way.notify_one();
        }
        self.reachable = false;
        self.out.clear();
        self.sent = 0;
        self.dirty = false;
        self.blocked = false;
        if let Some(task) = self.waiting.take() {
            task.abort();
        }
        self.under_way.clear();
        self.under_way_bytes = 0;
    }

    /// Whether the connection of that serial number stands.
    pub(crate) fn is_connected(&self, serial: u64) -> bool {
        self.connection.as_ref().is_some_and(|connection| connection.serial == serial)
    }

    /// Whether there is a connection.
    pub(crate) fn is_up(&self) -> bool {
        self.connection.is_some()
    }

    /// Whether the next frame begins a batch.
    pub(crate) fn is_clean(&self) -> bool {
        self.connection.is_some() && !self.dirty
    }

    /// How many bytes wait for the node.
    pub(crate) fn waiting(&self) -> usize {
        self.out.len() - self.sent + self.under_way_bytes
    }

    /// Appends a frame, or drops it. Returns whether the link has become dirty.
    pub(crate) fn append(&mut self, kind: Kind, content: impl FnOnce(&mut Vec<u8>)) -> bool {
        if self.connection.is_none() || self.waiting() > self.limit {
            self.dropped += 1;
            return false;
        }
        if frame::write(&mut self.out, kind, content).is_err() {
            self.dropped += 1;
            return false;
        }
        !std::mem::replace(&mut self.dirty, true)
    }

    /// Loses what waits, as on a cut cable, unless that would cut a frame in two.
    pub(crate) fn lose(&mut self) {
        if self.sent == 0 && !self.out.is_empty() {
            self.out.clear();
            self.dropped += 1;
        }
    }

    /// Writes as much as the socket takes; counts system calls in `writes`.
    pub(crate) fn write(&mut self, writes: &mut u64) -> Written {
        self.dirty = false;
        let Some(connection) = &self.connection else { return Written::All };
        if self.delay > Duration::ZERO {
            if !self.out.is_empty() {
                self.under_way_bytes += self.out.len();
                self.under_way.push_back((Instant::now() + self.delay, std::mem::take(&mut self.out)));
                connection.under_way.notify_one();
            }
            return Written::All;
        }
        while self.sent < self.out.len() {
            *writes += 1;
            match connection.writer.try_write(&self.out[self.sent..]) {
                Ok(0) => return Written::Broken,
                Ok(count) => self.sent += count,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    return Written::Blocked(connection.writer.clone());
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Written::Broken,
            }
        }
        self.out.clear();
        self.out.shrink_to(1 << 20);
        self.sent = 0;
        match connection.writer.try_flush() {
            Ok(()) => Written::All,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Written::Blocked(connection.writer.clone()),
            Err(_) => Written::Broken,
        }
    }

    /// For a link with an emulated distance: the socket, and what wakes when bytes set out.
    pub(crate) fn emulation(&self) -> Option<(Rc<Writer>, Rc<Notify>)> {
        let connection = self.connection.as_ref().filter(|_| self.delay > Duration::ZERO)?;
        Some((connection.writer.clone(), connection.under_way.clone()))
    }

    /// When the first bytes under way arrive.
    pub(crate) fn next_arrival(&self) -> Option<Instant> {
        self.under_way.front().map(|(at, _)| *at)
    }

    /// Takes the first bytes under way.
    pub(crate) fn take_arrived(&mut self) -> Option<Vec<u8>> {
        let (_, bytes) = self.under_way.pop_front()?;
        self.under_way_bytes -= bytes.len();
        Some(bytes)
    }

    /// Whether the node has been silent for so long that its connection is given up.
    pub(crate) fn is_lost(&self, now: Micros) -> bool {
        self.is_up() && now.saturating_sub(self.last_heard) > LOST
    }

    /// Notes a sign of life; returns whether the node had counted as unreachable.
    pub(crate) fn heard(&mut self, now: Micros) -> bool {
        self.last_heard = now;
        self.is_up() && !std::mem::replace(&mut self.reachable, true)
    }

    /// Notes a measured round trip; returns whether the node's rank has changed.
    pub(crate) fn measured(&mut self, round_trip: Micros) -> bool {
        self.round_trips.push_back(round_trip);
        if self.round_trips.len() > SAMPLES {
            self.round_trips.pop_front();
        }
        let now = self.round_trip().filter(|time| *time > NEAR).unwrap_or(0);
        // A rank that swayed with every measurement would send phases of one operation different ways.
        let changed = now.abs_diff(self.rank) > (self.rank / 8).max(NEAR);
        if changed {
            self.rank = now;
        }
        changed
    }

    /// Whether the node has been silent for too long; returns true once.
    pub(crate) fn falls_silent(&mut self, now: Micros) -> bool {
        let silent = self.reachable && now.saturating_sub(self.last_heard) > SILENCE;
        if silent {
            self.reachable = false;
        }
        silent
    }

    /// Whether the node has been heard of lately.
    pub(crate) fn is_reachable(&self) -> bool {
        self.reachable
    }

    /// The round-trip time by which to prefer nodes.
    pub(crate) fn rank(&self) -> Micros {
        self.rank
    }

    /// The round-trip time, as measured lately.
    pub(crate) fn round_trip(&self) -> Option<Micros> {
        self.round_trips.iter().min().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Stream;
    use tokio::net::{TcpListener, TcpStream};

    fn link() -> Link {
        Link::new(1_000, Duration::ZERO)
    }

    #[test]
    fn a_rank_follows_round_trips_with_inertia() {
        let mut link = link();
        assert!(!link.measured(1_500), "as near as can be");
        assert_eq!(link.rank(), 0);
        for _ in 0..SAMPLES {
            link.measured(72_000);
        }
        assert_eq!(link.rank(), 72_000);
        assert!(!link.measured(500_000), "one message that had to wait says nothing of the distance");
        for _ in 0..2 * SAMPLES {
            assert!(!link.measured(75_000));
        }
        assert!(link.measured(20_000));
        assert_eq!(link.rank(), 20_000);
    }

    #[tokio::test]
    async fn silence_is_noticed_once_and_a_sign_of_life_ends_it() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (_, writer) = Stream::plain(stream).into_split();
        let mut link = link();
        assert!(!link.is_reachable());
        link.connect(writer, 1, 0);
        assert!(link.is_reachable() && !link.falls_silent(SILENCE));
        assert!(link.falls_silent(SILENCE + 1) && !link.falls_silent(SILENCE + 2));
        assert!(!link.is_reachable() && link.is_up());
        assert!(link.heard(SILENCE + 3) && !link.heard(SILENCE + 4));
        assert!(link.is_lost(SILENCE + LOST + 5));
    }

    #[tokio::test]
    async fn what_waits_is_bounded_and_the_rest_is_dropped_and_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (_, writer) = Stream::plain(stream).into_split();
        let mut link = link();
        assert!(!link.append(Kind::Ping, |_| ()), "nobody is there");
        link.connect(writer, 1, 0);
        assert!(link.append(Kind::Message, |buffer| buffer.extend_from_slice(&[1; 600])), "dirty now");
        assert!(!link.append(Kind::Message, |buffer| buffer.extend_from_slice(&[1; 600])), "and still");
        let before = link.dropped;
        link.append(Kind::Message, |buffer| buffer.extend_from_slice(&[1; 600]));
        assert_eq!(link.dropped, before + 1);
        let mut calls = 0;
        assert!(matches!(link.write(&mut calls), Written::All));
        assert_eq!(calls, 1, "two frames, one system call");
        assert!(link.append(Kind::Ping, |_| ()));
    }
}
