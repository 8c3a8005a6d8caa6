//! Connections between nodes: who dials whom, shaking hands, reading.
//!
//! Two nodes share one connection; the one that stands first in the configuration dials.

use crate::frame::{self, Frame, HANDSHAKE_LIMIT, Kind};
use crate::handshake::{self, Hello, Role, printable};
use crate::node::{SharedNode, spawn};
use crate::placement::NodeIndex;
use crate::strangers::Strangers;
use crate::tls::{self, Tls};
use crate::wire::{self, Reader, Stream, TLS_BEGINS, Writer};
use bytes::{Buf, BytesMut};
use std::cell::RefCell;
use std::io::ErrorKind;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{sleep, sleep_until, timeout};

/// How long a node may take to say who it is.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// How many may be about to say so at once.
pub(crate) const STRANGERS: usize = 64;
/// Between two attempts to connect: at first, and at most.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));
/// The same after one side has refused the other, which no haste will change.
const BACKOFF_REFUSED: Duration = Duration::from_secs(2);
/// How often a refusal with the same reason is logged, and how many others in that time: strangers must not fill the log.
const SAY_AGAIN: Duration = Duration::from_mins(1);
const SAID: usize = 10;
/// Room for what one read may bring.
const READ: usize = 64 << 10;

/// Why two nodes do not speak.
#[derive(Debug, PartialEq, Eq)]
enum Failure {
    /// This node refuses the other.
    Refused(String),
    /// The other refuses this one.
    RefusesUs(String),
    /// They cannot reach each other.
    Unreachable(String),
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        match wire::tls_error(&error) {
            Some(alert @ rustls::Error::AlertReceived(_)) => Self::RefusesUs(tls::explain(alert)),
            Some(other) => Self::Refused(tls::explain(other)),
            None => Self::Unreachable(error.to_string()),
        }
    }
}

/// Accepts connections of other nodes for ever.
pub(crate) async fn listen(node: SharedNode, listener: TcpListener) {
    let strangers = Strangers::new("other nodes", STRANGERS);
    let log = Rc::new(RefusalLog::default());
    loop {
        let (stream, from) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file descriptors, most likely: others must close before this gets better.
                tracing::warn!("cannot accept connections of other nodes: {error}");
                sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let greeting = {
            let node = node.clone();
            async move { accept(&node, stream).await }
        };
        let (at, log) = (node.clone(), log.clone());
        strangers.meet(&node, greeting, move |met| match met {
            Ok(met) => drop(talk(&at, met)),
            Err(Failure::Refused(why)) => log.say(&format!("refused the node at {}", from.ip()), &why),
            Err(Failure::RefusesUs(why)) => {
                log.say(&format!("the node at {} refused this one", from.ip()), &why);
            }
            Err(Failure::Unreachable(why)) => tracing::debug!("{from} did not shake hands: {why}"),
        });
    }
}

/// Keeps up a connection to another node for ever.
pub(crate) async fn dial(node: SharedNode, peer: NodeIndex) {
    let (name, address) = {
        let node = node.borrow();
        (node.config.nodes[peer].name.clone(), node.config.nodes[peer].peer.clone())
    };
    let log = RefusalLog::default();
    let mut wait = BACKOFF.0;
    loop {
        match connect(&node, peer, &address).await {
            Ok(met) => {
                log.clear();
                wait = BACKOFF.0;
                // Ends with an error if the connection is given up, which is an end like any other.
                drop(talk(&node, met).await);
            }
            Err(Failure::Refused(why)) => {
                log.say(&format!("refused node '{name}' at {address}"), &why);
                wait = BACKOFF_REFUSED;
            }
            Err(Failure::RefusesUs(why)) => {
                log.say(&format!("node '{name}' at {address} refused this one"), &why);
                wait = BACKOFF_REFUSED;
            }
            Err(Failure::Unreachable(why)) => {
                tracing::debug!("cannot reach node '{name}' at {address}: {why}");
                wait = (wait * 2).min(BACKOFF.1);
            }
        }
        sleep(wait.mul_f64(jitter())).await;
    }
}

/// Another node, made sure of.
struct Met {
    peer: NodeIndex,
    reader: Reader,
    writer: Writer,
    /// What it has already said.
    buffer: BytesMut,
}

async fn connect(node: &SharedNode, peer: NodeIndex, address: &str) -> Result<Met, Failure> {
    if node.borrow().core.is_cut(peer) {
        return Err(Failure::Unreachable("the way there is cut".to_owned()));
    }
    let stream = timeout(Duration::from_secs(3), TcpStream::connect(address)).await;
    let stream = stream.map_err(|_| Failure::Unreachable("no answer within 3 s".to_owned()))??;
    stream.set_nodelay(true)?;
    let secured = node.borrow().tls.as_ref().and_then(Tls::for_nodes);
    let stream = match secured {
        None => Stream::plain(stream),
        Some((_, config)) => {
            let name = tls::name_of(address).map_err(Failure::Refused)?;
            within(Stream::dial(stream, config, name)).await?
        }
    };
    shake_hands(node, stream, Some(peer)).await
}

/// Makes sure that whoever has dialled speaks TLS if nodes do, and shows a certificate.
async fn accept(node: &SharedNode, stream: TcpStream) -> Result<Met, Failure> {
    stream.set_nodelay(true)?;
    let secured = node.borrow().tls.as_ref().and_then(Tls::for_nodes);
    let Some((config, _)) = secured else { return shake_hands(node, Stream::plain(stream), None).await };
    let mut first = [0];
    within(stream.peek(&mut first)).await?;
    if first[0] != TLS_BEGINS {
        let why = tls::NO_TLS.to_owned();
        refuse(&mut Stream::plain(stream), &mut BytesMut::new(), &why).await;
        return Err(Failure::Refused(why));
    }
    let stream = within(Stream::accept(stream, config)).await?;
    shake_hands(node, stream, None).await
}

/// What must not take longer than shaking hands.
async fn within<T>(step: impl Future<Output = std::io::Result<T>>) -> Result<T, Failure> {
    let ended = timeout(HANDSHAKE, step).await;
    Ok(ended.map_err(|_| Failure::Unreachable("it did not shake hands within 5 s".to_owned()))??)
}

/// Makes sure of the other side. `expected` is the node that was dialled.
async fn shake_hands(
    node: &SharedNode,
    mut stream: Stream,
    expected: Option<NodeIndex>,
) -> Result<Met, Failure> {
    let mut buffer = BytesMut::new();
    match timeout(HANDSHAKE, introduce(node, &mut stream, &mut buffer, expected)).await {
        Ok(Ok(peer)) => {
            let (reader, writer) = stream.into_split();
            Ok(Met { peer, reader, writer, buffer })
        }
        Ok(Err(Failure::Refused(why))) => {
            refuse(&mut stream, &mut buffer, &why).await;
            Err(Failure::Refused(why))
        }
        Ok(Err(failure)) => Err(failure),
        Err(_) => Err(Failure::Unreachable("it did not say who it is within 5 s".to_owned())),
    }
}

/// Tells the other side why it is refused, and waits a little until it has read that.
async fn refuse(stream: &mut Stream, buffer: &mut BytesMut, why: &str) {
    // It need not listen. If it does, it must not lose the reason because bytes of its own, unread
    // here, make the system tear the connection down.
    let part = async {
        stream.write_all(&handshake::refuse(why)).await?;
        stream.shutdown().await?;
        while stream.read_buf(buffer).await? > 0 {
            buffer.clear();
        }
        Ok::<(), std::io::Error>(())
    };
    drop(timeout(Duration::from_secs(1), part).await);
}

/// Exchanges the frames of the handshake.
async fn introduce(
    node: &SharedNode,
    stream: &mut Stream,
    buffer: &mut BytesMut,
    expected: Option<NodeIndex>,
) -> Result<NodeIndex, Failure> {
    let nonce = getrandom::u64().map_err(|error| Failure::Unreachable(error.to_string()))?;
    let (mine, secret) = {
        let node = node.borrow();
        let mine = Hello::new(&node.config, node.core.outside.me, node.life, nonce);
        (mine, node.config.secret.clone())
    };
    stream.write_all(&mine.frame()).await?;
    let theirs = Hello::read(&next(stream, buffer, Kind::Hello).await?).map_err(Failure::Refused)?;
    let peer = {
        let node = node.borrow();
        let peer = theirs.judge(&node.config, node.core.outside.me).map_err(Failure::Refused)?;
        if let Some(expected) = expected.filter(|expected| *expected != peer) {
            let wanted = &node.config.nodes[expected].name;
            let why = format!("'{}' answers at the address of '{wanted}': correct its 'peer'", theirs.node);
            return Err(Failure::Refused(why));
        }
        if expected.is_none() && peer > node.core.outside.me {
            let (it, me) = (&theirs.node, &mine.node);
            return Err(Failure::Refused(format!(
                "'{it}' dials, and '{me}', which stands before it, should"
            )));
        }
        if node.core.is_cut(peer) {
            return Err(Failure::Unreachable("the way there is cut".to_owned()));
        }
        // Of whom was dialled this was seen when it was.
        if let Some(certificate) = stream.certificate().filter(|_| expected.is_none()) {
            tls::check_name(&certificate, &node.config.nodes[peer].peer).map_err(Failure::Refused)?;
        }
        peer
    };
    let role = if expected.is_some() { Role::Dialler } else { Role::Acceptor };
    let asked = node.borrow().last_met(&theirs.node);
    stream.write_all(&handshake::prove(&secret, role, &mine, &theirs, asked)).await?;
    let proof = next(stream, buffer, Kind::Proof).await?;
    let checked = handshake::check(&secret, role.other(), &theirs, &mine, &proof);
    let asked_by_it = checked.map_err(Failure::Refused)?;
    let drawn = node.borrow().drawn_at(asked_by_it);
    stream.write_all(&handshake::lineage(drawn)).await?;
    let drawn = next(stream, buffer, Kind::Lineage).await?;
    let drawn = drawn.try_into().ok().map(u64::from_le_bytes);
    node.borrow_mut().meet(&theirs, asked, drawn).map_err(Failure::Refused)?;
    stream.write_all(&handshake::welcome()).await?;
    next(stream, buffer, Kind::Welcome).await?;
    Ok(peer)
}

/// Awaits the frame that comes next in a handshake.
async fn next(stream: &mut Stream, buffer: &mut BytesMut, wanted: Kind) -> Result<Vec<u8>, Failure> {
    loop {
        if buffer.first() == Some(&TLS_BEGINS) && buffer.get(1) == Some(&3) && !stream.is_secure() {
            return Err(Failure::Refused(
                "it speaks TLS, and this node does not: give all nodes the same [tls]".to_owned(),
            ));
        }
        match frame::read(buffer, HANDSHAKE_LIMIT).map_err(Failure::Unreachable)? {
            Some(Frame { kind, content, size }) if kind == wanted => {
                let content = content.to_vec();
                buffer.advance(size);
                return Ok(content);
            }
            Some(Frame { kind: Kind::Refused, content, .. }) => {
                let why = printable(&String::from_utf8_lossy(content));
                return Err(Failure::RefusesUs(why));
            }
            Some(_) => return Err(Failure::Unreachable("it does not shake hands".to_owned())),
            None => {}
        }
        if stream.read_buf(buffer).await? == 0 {
            return Err(Failure::Unreachable("it closed the connection".to_owned()));
        }
    }
}

/// Takes up the connection and reads from it until it ends.
fn talk(node: &SharedNode, met: Met) -> JoinHandle<()> {
    let Met { peer, mut reader, writer, mut buffer } = met;
    let serial = node.borrow_mut().peer_connected(peer, writer);
    if let Some((writer, under_way)) = node.borrow().core.outside.links[peer].emulation() {
        spawn(node, deliver_later(node.clone(), peer, serial, writer, under_way));
    }
    let reading = {
        let node = node.clone();
        async move {
            let mut count = buffer.len();
            loop {
                if let Err(why) = node.borrow_mut().on_peer_input(peer, serial, &mut buffer, count) {
                    break why;
                }
                buffer.reserve(READ);
                match reader.read_buf(&mut buffer).await {
                    Ok(0) => break "it closed the connection".to_owned(),
                    Ok(read) => count = read,
                    Err(error) => break error.to_string(),
                }
            }
        }
    };
    let task = spawn(node, {
        let node = node.clone();
        async move {
            let why = reading.await;
            node.borrow_mut().peer_disconnected(peer, serial, &why);
        }
    });
    node.borrow_mut().core.outside.links[peer].reads(serial, task.abort_handle());
    task
}

/// Writes to a link with an emulated distance what has been under way for long enough.
async fn deliver_later(
    node: SharedNode,
    peer: NodeIndex,
    serial: u64,
    writer: Rc<Writer>,
    under_way: Rc<Notify>,
) {
    loop {
        let next = {
            let node = node.borrow();
            let link = &node.core.outside.links[peer];
            if !link.is_connected(serial) {
                return;
            }
            link.next_arrival()
        };
        let Some(at) = next else {
            under_way.notified().await;
            continue;
        };
        sleep_until(at.into()).await;
        let bytes = match &mut node.borrow_mut().core.outside.links[peer] {
            link if link.is_connected(serial) => link.take_arrived().unwrap_or_default(),
            _ => return,
        };
        let mut rest = bytes.as_slice();
        loop {
            let wrote = if rest.is_empty() { writer.try_flush().map(|()| 0) } else { writer.try_write(rest) };
            match wrote {
                Ok(_) if rest.is_empty() => break,
                Ok(count) => rest = &rest[count..],
                Err(e) if e.kind() == ErrorKind::WouldBlock => tokio::select! {
                    _ = writer.writable() => {}
                    // More sets out, or the connection is given up: the other side may never read.
                    () = under_way.notified() => {
                        if !node.borrow().core.outside.links[peer].is_connected(serial) {
                            return;
                        }
                    }
                },
                // The task that reads from the connection notices too.
                Err(_) => return,
            }
        }
    }
}

/// Logs refusals: the same one only now and then, and of different ones not too many.
#[derive(Default)]
pub(crate) struct RefusalLog(RefCell<Said>);

/// What was logged in the last [`SAY_AGAIN`].
#[derive(Default)]
struct Said {
    since: Option<Instant>,
    texts: Vec<String>,
    left_out: u64,
}

impl RefusalLog {
    pub(crate) fn say(&self, who: &str, why: &str) {
        let text = format!("{who}: {why}");
        let said = &mut *self.0.borrow_mut();
        if said.since.is_none_or(|since| since.elapsed() > SAY_AGAIN) {
            if said.left_out > 0 {
                tracing::warn!("refused {} more connections, as was not told one by one", said.left_out);
            }
            *said = Said { since: Some(Instant::now()), ..Said::default() };
        }
        let is_new = !said.texts.contains(&text);
        if is_new && said.texts.len() == SAID {
            said.left_out += 1;
        } else if is_new {
            tracing::warn!("{text}");
            said.texts.push(text);
        }
    }

    fn clear(&self) {
        self.0.take();
    }
}

/// A factor from 0.5 to 1.5, so that nodes do not dial in step.
fn jitter() -> f64 {
    getrandom::u32().map_or(1.0, |random| 0.5 + f64::from(random) / f64::from(u32::MAX))
}
