//! Connections of clients: accepting and reading. What they say is [`session`](crate::session)'s business.

use crate::node::{SharedNode, spawn};
use crate::session::SessionId;
use std::future::poll_fn;
use std::pin::pin;
use std::task::{Poll, ready};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::tcp::OwnedReadHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

/// Room for what one read may bring.
const READ: usize = 16 << 10;

/// As in Redis: somebody has taken the default user's password away while the node ran.
const EXPOSED: &[u8] = b"-DENIED this node is protected and its default user needs no password: connect from its own machine and \
                         give 'default' a password (ACL SETUSER default >...), or say [security] protected = false\r\n";

/// Accepts clients for ever.
pub(crate) async fn listen(node: SharedNode, listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => accept(&node, stream),
            Err(error) => {
                // Out of file descriptors, most likely: others must close before this gets better.
                tracing::warn!("cannot accept clients: {error}");
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

fn accept(node: &SharedNode, stream: TcpStream) {
    // These fail only for a connection that is already gone.
    let Ok((peer, local)) = stream.peer_addr().and_then(|peer| Ok((peer, stream.local_addr()?))) else {
        return;
    };
    drop(stream.set_nodelay(true));
    if node.borrow_mut().is_exposed_to(peer.ip()) {
        return drop(stream.try_write(EXPOSED));
    }
    let (reader, writer) = stream.into_split();
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
async fn read(node: SharedNode, id: SessionId, mut reader: OwnedReadHalf) {
    loop {
        let goes_on = poll_fn(|context| {
            let mut node = node.borrow_mut();
            let Some(input) = node.input(id, context.waker()) else { return Poll::Pending };
            input.reserve(READ);
            let reading = pin!(reader.read_buf(input));
            match ready!(reading.poll(context)) {
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
