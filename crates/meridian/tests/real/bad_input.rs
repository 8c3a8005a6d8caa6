//! What arrives is not what was hoped for: each time a clear error, a sane state, nothing lost.

use crate::harness::{Cluster, Dev, Plan};
use crate::resp::{Client, Value};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// The server answers an error to these bytes and closes the connection.
fn is_protocol_error(dev: &Dev, bytes: &[u8]) {
    let mut client = dev.client(0);
    client.send(bytes).expect("the server reads");
    let reply = client.read().unwrap_or_else(|error| panic!("{}: {error}", bytes.escape_ascii()));
    assert!(reply.error().starts_with("ERR Protocol error"), "{}: {reply:?}", bytes.escape_ascii());
    assert!(client.read().is_err(), "closed after {}", bytes.escape_ascii());
}

#[test]
fn malformed_input_ends_the_connection_with_its_reason_and_nothing_else() {
    let dev = Dev::start(&["--rtt", "none"]);
    let mut witness = dev.client(0);
    assert_eq!(witness.call(&["SET", "k", "v"]), Value::ok());
    for bytes in [
        &b"*1\r\n$abc\r\n"[..],
        b"*1\r\n:1\r\n",
        b"*99999999999999999999\r\n",
        b"*1000000000\r\n",
        b"*1\r\n$-7\r\n",
    ] {
        is_protocol_error(&dev, bytes);
        assert_eq!(witness.call(&["GET", "k"]), Value::bulk("v"), "others are not disturbed");
    }
}

#[test]
fn a_length_is_not_believed() {
    let dev = Dev::start(&["--rtt", "none"]);
    let before = dev.process.memory_kib();
    is_protocol_error(&dev, b"*2\r\n$3\r\nGET\r\n$1073741824\r\n");
    let mut waiting: Vec<Client> = (0..50).map(|_| dev.client(0)).collect();
    for client in &mut waiting {
        // Eight MiB are announced and allowed, and not sent.
        client.send(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$8388608\r\nxyz").unwrap();
    }
    assert_eq!(dev.client(0).call(&["PING"]), Value::Simple("PONG".to_owned()));
    let grown = dev.process.memory_kib().saturating_sub(before);
    assert!(grown < 64 * 1024, "announcing 400 MiB made the process {grown} KiB larger");
}

#[test]
fn half_a_command_and_silence_hold_up_nobody() {
    let dev = Dev::start(&["--rtt", "none"]);
    let mut silent = dev.client(0);
    silent.send(b"*3\r\n$3\r\nSET\r\n$4\r\nha").unwrap();
    let mut other = dev.client(0);
    assert_eq!(other.call(&["SET", "k", "v"]), Value::ok());
    silent.send(b"lf\r\n$5\r\nwhole\r\n").unwrap();
    assert_eq!(silent.read().unwrap(), Value::ok(), "the rest may come late");
    assert_eq!(other.call(&["GET", "half"]), Value::bulk("whole"));
}

#[test]
fn a_command_that_is_wrong_leaves_the_connection_as_it_was() {
    let dev = Dev::start(&["--rtt", "none"]);
    let mut client = dev.client(0);
    assert!(client.call(&["FLUSHBOB", "x"]).error().starts_with("ERR unknown command 'FLUSHBOB'"));
    let arity = client.call(&["GET"]);
    assert_eq!(arity.error(), "ERR wrong number of arguments for 'get' command");
    assert_eq!(client.call(&["SET", "s", "text"]), Value::ok());
    assert_eq!(client.call(&["INCR", "s"]).error(), "ERR value is not an integer or out of range");
    assert!(client.call(&["LPUSH", "s", "x"]).error().starts_with("WRONGTYPE"));
    assert!(client.call(&["SET", "s", "v", "EX", "0"]).error().starts_with("ERR invalid expire time"));
    assert!(client.call(&["FLUSHDB"]).error().starts_with("ERR"), "refused, saying why");
    assert!(client.call(&["MERIDIAN.LEVEL", "ryw"]).error().starts_with("ERR"), "not built: never OK");
    assert_eq!(client.call(&["GET", "s"]), Value::bulk("text"));
}

#[test]
fn a_value_over_the_limit_is_refused_and_changes_nothing() {
    let dev = Dev::start(&["--rtt", "none"]);
    let mut client = dev.client(0);
    assert_eq!(client.call(&["SET", "k", "small"]), Value::ok());
    let most = "x".repeat(8 << 20);
    assert_eq!(client.call(&["SET", "big", &most]), Value::ok(), "the limit itself is allowed");
    let more = format!("{most}x");
    // The connection is closed before the value has been read, so sending it may fail half way.
    let reply = client.ask(&["SET", "k", &more]);
    if let Ok(reply) = reply {
        assert!(reply.error().starts_with("ERR"), "{reply:?}");
    }
    assert_eq!(dev.client(0).call(&["GET", "k"]), Value::bulk("small"));
    assert_eq!(dev.client(1).call(&["STRLEN", "big"]), Value::Int(8 << 20));
}

#[test]
fn strangers_at_the_door_for_nodes_are_turned_away() {
    let cluster = Cluster::start(Plan::default());
    for bytes in
        [&b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..], &[0xff; 4_096], &[0; 64], b"\xff\xff\xff\x7fxxxx"]
    {
        let mut stranger = TcpStream::connect(("127.0.0.1", cluster.peer_port(0))).unwrap();
        stranger.set_read_timeout(Some(Duration::from_secs(15))).unwrap();
        let _ = stranger.write_all(bytes);
        let _ = stranger.shutdown(std::net::Shutdown::Write);
        let mut rest = Vec::new();
        // Closed or reset: either way the node does not keep the connection.
        let _ = stranger.read_to_end(&mut rest);
        assert_eq!(cluster.client(0).call(&["SET", "k", "v"]), Value::ok());
    }
    assert_eq!(cluster.client(1).call(&["GET", "k"]), Value::bulk("v"));
}
