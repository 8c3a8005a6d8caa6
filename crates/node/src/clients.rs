//! Connections of clients: accepting and reading. What they say is [`session`](crate::session)'s business.

use crate::node::{SharedNode, spawn};
use crate::session::SessionId;
use crate::strangers::Strangers;
use crate::tls;
use crate::transport::RefusalLog;
use crate::wire::{self, Reader, Stream, TLS_BEGINS};
use rustls::ServerConfig;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

/// Room for what one read may bring.
const READ: usize = 16 << 10;
/// How long a client may take to shake hands.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How many may be about to.
pub(crate) const STRANGERS: usize = 256;
/// To a client that does not speak TLS.
const PLAIN: &[u8] = b"-ERR this port speaks TLS: connect with TLS (redis-cli --tls, rediss://)\r\n";

/// As in Redis: somebody has taken the default user's password away while the node ran.
const EXPOSED: &[u8] = b"-DENIED this node is protected and its default user needs no password: connect from its own machine and \
                         give 'default' a password (ACL SETUSER default >...), or say [security] protected = false\r\n";

/// Accepts clients for ever.
pub(crate) async fn listen(node: SharedNode, listener: TcpListener) {
    let strangers = Strangers::new("clients", STRANGERS);
    let log = Rc::new(RefusalLog::default());
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let secured = node.borrow().tls.as_ref().and_then(tls::Tls::for_clients);
                match secured {
                    None => accept(&node, Stream::plain(stream)),
                    Some(config) => secure(&node, stream, config, &strangers, &log),
                }
            }
            Err(error) => {
                // Out of file descriptors, most likely: others must close before this gets better.
                tracing::warn!("cannot accept clients: {error}");
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Shakes hands with a client, and takes it up then.
fn secure(
    node: &SharedNode,
    stream: TcpStream,
    config: Arc<ServerConfig>,
    strangers: &Strangers,
    log: &Rc<RefusalLog>,
) {
    let from = stream.peer_addr().map_or("nowhere".to_owned(), |address| address.ip().to_string());
    let (at, log) = (node.clone(), log.clone());
    strangers.meet(node, timeout(HANDSHAKE, shake_hands(stream, config)), move |shaken| match shaken {
        Ok(Ok(stream)) => accept(&at, stream),
        Ok(Err(error)) => {
            if let Some(why) = wire::tls_error(&error) {
                log.say(&format!("refused the client at {from}"), &tls::explain(why));
            } else if error.kind() == io::ErrorKind::Unsupported {
                log.say(&format!("refused the client at {from}"), &error.to_string());
            }
        }
        Err(_) => tracing::debug!("{from} did not shake hands within {HANDSHAKE:?}"),
    });
}

async fn shake_hands(stream: TcpStream, config: Arc<ServerConfig>) -> io::Result<Stream> {
    let mut first = [0];
    if stream.peek(&mut first).await? > 0 && first[0] != TLS_BEGINS {
        drop(stream.try_write(PLAIN));
        let why = "it does not speak TLS, and this port does: connect with TLS";
        return Err(io::Error::new(io::ErrorKind::Unsupported, why));
    }
    Stream::accept(stream, config).await
}

/// Takes up a client.
fn accept(node: &SharedNode, stream: Stream) {
    // These fail only for a connection that is already gone.
    let Ok((peer, local)) = stream.addresses() else { return };
    stream.set_nodelay();
    let (reader, writer) = stream.into_split();
    if node.borrow_mut().is_exposed_to(peer.ip()) {
        return drop(writer.try_write(EXPOSED));
    }
    let opened = node.borrow_mut().open(writer, peer, local);
    match opened {
        Ok(id) => {
            let task = spawn(node, read(node.clone(), id, reader));
            node.borrow_mut().reads(id, task.abort_handle());
        }
        // Redis says the same and closes.
        Err(writer) => drop(writer.try_write(b"-ERR max number of clients reached\r\n")),
    }
}

/// Reads until the client goes, or says that it sends nothing more. The session's own buffer is read into, and is borrowed only while the socket has
/// something to give.
async fn read(node: SharedNode, id: SessionId, mut reader: Reader) {
    loop {
        let goes_on = poll_fn(|context| {
            let mut node = node.borrow_mut();
            let Some(input) = node.input(id, context.waker()) else { return Poll::Pending };
            input.reserve(READ);
            match ready!(reader.poll_read(input, context)) {
                Ok(count) if count > 0 => {
                    node.on_input(id, count);
                    Poll::Ready(true)
                }
                Ok(_) => {
                    node.on_input_ended(id);
                    Poll::Ready(false)
                }
                Err(_) => {
                    node.close(id);
                    Poll::Ready(false)
                }
            }
        });
        if !goes_on.await {
            return;
        }
    }
}
