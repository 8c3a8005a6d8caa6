//! Connections as bytes, with or without TLS, so that nobody above need know which.
//!
//! Writing does not wait: what cannot be sent now is left to the caller, who is told so, or, once encrypted, stays here until
//! [`Writer::try_flush`] has sent it.

use bytes::BytesMut;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};
use std::cell::RefCell;
use std::future::poll_fn;
use std::io::{self, BufRead, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

/// The first byte of whoever speaks TLS: a handshake record.
pub(crate) const TLS_BEGINS: u8 = 0x16;

type Secured = Rc<RefCell<Connection>>;

/// A connection that is not yet in use.
#[derive(Debug)]
pub struct Stream {
    tcp: TcpStream,
    tls: Option<Secured>,
}

/// The way in.
#[derive(Debug)]
pub struct Reader {
    half: OwnedReadHalf,
    tls: Option<Secured>,
}

/// The way out.
#[derive(Debug)]
pub struct Writer {
    half: OwnedWriteHalf,
    tls: Option<Secured>,
}

impl Stream {
    /// Without TLS.
    pub fn plain(tcp: TcpStream) -> Self {
        Self { tcp, tls: None }
    }

    /// Takes up whoever has dialled.
    ///
    /// # Errors
    /// As of the socket, or a [`rustls::Error`] inside.
    pub(crate) async fn accept(tcp: TcpStream, config: Arc<ServerConfig>) -> io::Result<Self> {
        let tls = ServerConnection::new(config).map_err(broken)?;
        Self::secure(tcp, tls.into()).await
    }

    /// Makes sure of whoever was dialled.
    ///
    /// # Errors
    /// As of the socket, or a [`rustls::Error`] inside.
    pub(crate) async fn dial(
        tcp: TcpStream,
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> io::Result<Self> {
        let tls = ClientConnection::new(config, name).map_err(broken)?;
        Self::secure(tcp, tls.into()).await
    }

    async fn secure(tcp: TcpStream, mut tls: Connection) -> io::Result<Self> {
        loop {
            while let Err(error) = send(&mut tls, &tcp) {
                if error.kind() != ErrorKind::WouldBlock {
                    return Err(error);
                }
                tcp.writable().await?;
            }
            if !tls.is_handshaking() {
                return Ok(Self { tcp, tls: Some(Rc::new(RefCell::new(tls))) });
            }
            tcp.readable().await?;
            match receive(&mut tls, &tcp) {
                Ok(0) => return Err(io::Error::new(ErrorKind::UnexpectedEof, "it closed the connection")),
                Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
                _ => {}
            }
        }
    }

    /// The certificate that the other side has shown.
    pub(crate) fn certificate(&self) -> Option<CertificateDer<'static>> {
        let tls = self.tls.as_ref()?.borrow();
        tls.peer_certificates()?.first().cloned().map(CertificateDer::into_owned)
    }

    /// Whether it is encrypted.
    pub(crate) fn is_secure(&self) -> bool {
        self.tls.is_some()
    }

    /// The other side's address, and this one's.
    pub(crate) fn addresses(&self) -> io::Result<(SocketAddr, SocketAddr)> {
        Ok((self.tcp.peer_addr()?, self.tcp.local_addr()?))
    }

    /// Lets small answers leave at once.
    pub(crate) fn set_nodelay(&self) {
        // It fails only for a connection that is already gone.
        drop(self.tcp.set_nodelay(true));
    }

    /// Reads what has come; 0 if nothing more will.
    ///
    /// # Errors
    /// If the connection is broken.
    pub async fn read_buf(&mut self, into: &mut BytesMut) -> io::Result<usize> {
        match &self.tls {
            None => self.tcp.read_buf(into).await,
            Some(tls) => poll_fn(|context| poll_read(tls, &self.tcp, into, context)).await,
        }
    }

    /// Sends all of the bytes.
    ///
    /// # Errors
    /// If the connection is broken.
    pub async fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let Some(tls) = &self.tls else { return self.tcp.write_all(bytes).await };
        loop {
            let wrote = if bytes.is_empty() {
                send(&mut tls.borrow_mut(), &self.tcp)
            } else {
                encrypt(&mut tls.borrow_mut(), &self.tcp, bytes).map(|count| bytes = &bytes[count..])
            };
            match wrote {
                Ok(()) if bytes.is_empty() && !tls.borrow().wants_write() => return Ok(()),
                Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
                Ok(()) => {}
                Err(_) => self.tcp.writable().await?,
            }
        }
    }

    /// Says that nothing more comes.
    pub(crate) async fn shutdown(&mut self) -> io::Result<()> {
        if let Some(tls) = &self.tls {
            tls.borrow_mut().send_close_notify();
            self.write_all(&[]).await?;
        }
        self.tcp.shutdown().await
    }

    /// Takes it apart into its two ways.
    pub fn into_split(self) -> (Reader, Writer) {
        let (reader, writer) = self.tcp.into_split();
        (Reader { half: reader, tls: self.tls.clone() }, Writer { half: writer, tls: self.tls })
    }
}

impl Reader {
    /// Reads what has come; 0 if nothing more will.
    pub(crate) fn poll_read(
        &mut self,
        into: &mut BytesMut,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        match &self.tls {
            None => pin!(self.half.read_buf(into)).poll(context),
            Some(tls) => poll_read(tls, self.half.as_ref(), into, context),
        }
    }

    /// As [`Stream::read_buf`].
    ///
    /// # Errors
    /// If the connection is broken.
    pub async fn read_buf(&mut self, into: &mut BytesMut) -> io::Result<usize> {
        match &self.tls {
            None => self.half.read_buf(into).await,
            Some(tls) => poll_fn(|context| poll_read(tls, self.half.as_ref(), into, context)).await,
        }
    }
}

impl Writer {
    /// Takes as many of the bytes as it can now.
    ///
    /// # Errors
    /// `WouldBlock` if that is none; others if the connection is broken.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match &self.tls {
            None => self.half.try_write(bytes),
            Some(tls) => encrypt(&mut tls.borrow_mut(), self.half.as_ref(), bytes),
        }
    }

    /// Sends what was taken and has not yet left.
    ///
    /// # Errors
    /// `WouldBlock` if not all of it can leave now; others if the connection is broken.
    pub fn try_flush(&self) -> io::Result<()> {
        match &self.tls {
            None => Ok(()),
            Some(tls) => send(&mut tls.borrow_mut(), self.half.as_ref()),
        }
    }

    /// Waits until the socket takes something.
    ///
    /// # Errors
    /// If the connection is broken.
    pub async fn writable(&self) -> io::Result<()> {
        self.half.writable().await
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if let Some(tls) = &self.tls {
            let mut tls = tls.borrow_mut();
            tls.send_close_notify();
            // It ends either way.
            drop(send(&mut tls, self.half.as_ref()));
        }
    }
}

/// A socket as the other side of encryption: never waits.
struct Raw<'a>(&'a TcpStream);

impl Read for Raw<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(buffer)
    }
}

impl Write for Raw<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, bytes: &[io::IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Sends what is encrypted.
fn send(tls: &mut Connection, tcp: &TcpStream) -> io::Result<()> {
    while tls.wants_write() {
        tls.write_tls(&mut Raw(tcp))?;
    }
    Ok(())
}

/// Encrypts what fits and sends what can be sent of it.
fn encrypt(tls: &mut Connection, tcp: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
    send(tls, tcp)?;
    let count = tls.writer().write(bytes)?;
    match send(tls, tcp) {
        Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
        _ => Ok(count),
    }
}

/// Reads and decrypts what has come; 0 if nothing more will.
fn receive(tls: &mut Connection, tcp: &TcpStream) -> io::Result<usize> {
    let count = tls.read_tls(&mut Raw(tcp))?;
    let processed = tls.process_new_packets();
    // Its own part of a handshake, or what it has to say of a bad one.
    let sent = send(tls, tcp);
    processed.map_err(broken)?;
    match sent {
        Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
        _ => Ok(count),
    }
}

fn poll_read(
    tls: &Secured,
    tcp: &TcpStream,
    into: &mut BytesMut,
    context: &mut Context<'_>,
) -> Poll<io::Result<usize>> {
    let mut tls = tls.borrow_mut();
    loop {
        let taken = take(&mut tls, into);
        match taken {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            // Many close without a word.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Poll::Ready(Ok(0)),
            other => return Poll::Ready(other),
        }
        ready!(tcp.poll_read_ready(context))?;
        match receive(&mut tls, tcp) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => return Poll::Ready(Err(error)),
            _ => {}
        }
    }
}

/// Takes what is decrypted; 0 if the other side said that nothing more comes.
fn take(tls: &mut Connection, into: &mut BytesMut) -> io::Result<usize> {
    let mut reader = tls.reader();
    let decrypted = reader.fill_buf()?;
    into.extend_from_slice(decrypted);
    let count = decrypted.len();
    reader.consume(count);
    Ok(count)
}

fn broken(error: rustls::Error) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, error)
}

/// What TLS has found wrong, if that is what went wrong.
pub(crate) fn tls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}
