//! Encrypted connections whose sockets are full.

use crate::config::{NodeConfig, TlsConfig};
use crate::handshake::tests::config;
use crate::tls::{Tls, name_of};
use crate::wire::{Reader, Stream, Writer};
use bytes::BytesMut;
use std::io::ErrorKind;
use std::path::Path;
use tokio::net::{TcpListener, TcpStream};

/// Certificates in a directory.
fn certificates() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/certificates.sh");
    let made = std::process::Command::new(script).arg(directory.path()).output().unwrap();
    assert!(made.status.success(), "install openssl: {}", String::from_utf8_lossy(&made.stderr));
    directory
}

/// Both ends of a connection between nodes.
async fn pair() -> ((Reader, Writer), (Reader, Writer)) {
    let directory = certificates();
    let file = |name: &str| directory.path().join(name);
    let settings = TlsConfig {
        certificate: file("{node}.pem"),
        key: file("{node}.key"),
        ca: Some(file("ca.pem")),
        client_ca: None,
        clients: true,
        nodes: true,
    };
    let node =
        NodeConfig { name: "node".to_owned(), peer: "127.0.0.1:1".to_owned(), ..config().nodes[0].clone() };
    let tls = Tls::load(&settings, &node).map_err(|why| assert_eq!(why, "")).unwrap();
    let (accepts, dials) = tls.for_nodes().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let dialled = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (accepted, _) = listener.accept().await.unwrap();
    let name = name_of("127.0.0.1:1").unwrap();
    let (one, other) = tokio::join!(Stream::dial(dialled, dials, name), Stream::accept(accepted, accepts));
    (one.unwrap().into_split(), other.unwrap().into_split())
}

#[tokio::test]
async fn what_was_taken_by_a_full_socket_leaves_when_there_is_room_and_nothing_is_lost() {
    let ((_reader, writer), (mut reader, _writer)) = pair().await;
    let bytes: Vec<u8> = (0..40_000_u32).flat_map(u32::to_le_bytes).collect();
    let mut taken = 0;
    let full = loop {
        match writer.try_write(&bytes[taken % bytes.len()..]) {
            Ok(count) => taken += count,
            Err(error) => break error,
        }
        assert!(taken < 1 << 30, "the socket is never full");
    };
    assert_eq!(full.kind(), ErrorKind::WouldBlock);
    assert_eq!(writer.try_flush().unwrap_err().kind(), ErrorKind::WouldBlock, "something has not left");
    let mut read = BytesMut::new();
    let mut flushed = false;
    while read.len() < taken {
        assert!(reader.read_buf(&mut read).await.unwrap() > 0);
        // Nothing else would send the rest.
        flushed |= writer.try_flush().is_ok();
    }
    assert!(flushed && writer.try_flush().is_ok());
    assert_eq!(read.len(), taken);
    assert!(read.iter().zip(bytes.iter().cycle()).all(|(a, b)| a == b));
    drop(writer);
    assert_eq!(reader.read_buf(&mut read).await.unwrap(), 0, "the end is told");
}
