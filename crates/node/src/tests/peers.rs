//! What others may do to a node on the port where nodes meet.

use super::Cluster;
use crate::frame::{self, Kind};
use crate::handshake::{self, Hello, Life, Role};
use meridian_protocol::topology::{Address, Region, ReplicaId};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

const OTHER: Life = Life { identity: (7, 7), incarnation: 1, process: 9 };

/// Somebody who knocks at a node's door.
struct Stranger {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Stranger {
    fn knock(cluster: &Cluster, node: usize) -> Self {
        let deadline = std::time::Instant::now() + Duration::from_secs(5);
        let stream = loop {
            match TcpStream::connect(&cluster.config.nodes[node].peer) {
                Ok(stream) => break stream,
                Err(error) => assert!(std::time::Instant::now() < deadline, "{error}"),
            }
        };
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        Self { stream, buffer: Vec::new() }
    }

    fn send(&mut self, bytes: &[u8]) {
        // The node may have closed already, which the answer then shows.
        let _ = self.stream.write_all(bytes);
    }

    /// The next frame, or `None` if the connection is closed.
    fn next(&mut self) -> Option<(Kind, Vec<u8>)> {
        loop {
            if let Some(frame) = frame::read(&self.buffer, frame::LIMIT).unwrap() {
                let (next, size) = ((frame.kind, frame.content.to_vec()), frame.size);
                self.buffer.drain(..size);
                return Some(next);
            }
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes) {
                Ok(count) if count > 0 => self.buffer.extend_from_slice(&bytes[..count]),
                _ => return None,
            }
        }
    }

    /// Shakes hands as node ca-1, all as it should be.
    fn introduce(&mut self, mine: &Hello, secret: &[u8]) -> Option<(Kind, Vec<u8>)> {
        self.introduce_with(mine, secret, Some(OTHER.process))
    }

    /// The same with `drawn` as what it says that it drew at the start at which it was last met.
    fn introduce_with(&mut self, mine: &Hello, secret: &[u8], drawn: Option<u64>) -> Option<(Kind, Vec<u8>)> {
        self.send(&mine.frame());
        let (kind, content) = self.next()?;
        assert_eq!(kind, Kind::Hello);
        let theirs = Hello::read(&content).unwrap();
        self.send(&handshake::prove(secret, Role::Dialler, mine, &theirs, theirs.life.incarnation));
        match self.next()? {
            (Kind::Proof, proof) => {
                assert!(handshake::check(secret, Role::Acceptor, &theirs, mine, &proof).is_ok());
            }
            other => return Some(other),
        }
        match self.next()? {
            (Kind::Lineage, shown) => assert_eq!(shown, theirs.life.process.to_le_bytes()),
            other => return Some(other),
        }
        self.send(&handshake::lineage(drawn));
        self.send(&handshake::welcome());
        self.next()
    }
}

fn reason(answer: Option<(Kind, Vec<u8>)>) -> String {
    let (kind, content) = answer.expect("a reason before the connection closes");
    assert_eq!(kind, Kind::Refused);
    String::from_utf8(content).unwrap()
}

#[test]
fn those_who_do_not_belong_here_are_told_why() {
    let mut cluster = Cluster::new(None);
    cluster.config.secret = b"a secret of sixteen".to_vec();
    cluster.start(1);
    let good = Hello::new(&cluster.config, 0, OTHER, 5);
    let refused = |hello: Hello| {
        let mut stranger = Stranger::knock(&cluster, 1);
        stranger.send(&hello.frame());
        assert_eq!(stranger.next().unwrap().0, Kind::Hello);
        reason(stranger.next())
    };
    assert!(refused(Hello { versions: (7, 8), ..good.clone() }).contains("versions 7 to 8"));
    assert!(refused(Hello { cluster: "other".to_owned(), ..good.clone() }).contains("cluster 'other'"));
    assert!(refused(Hello { config_hash: 3, ..good.clone() }).contains("hash 0000000000000003"));
    assert!(refused(Hello { node: "nobody".to_owned(), ..good.clone() }).contains("'nobody'"));
    assert!(refused(Hello { node: "va-1".to_owned(), ..good.clone() }).contains("as this node does"));

    let mut spy = Stranger::knock(&cluster, 1);
    spy.send(&good.frame());
    let (_, content) = spy.next().unwrap();
    let theirs = Hello::read(&content).unwrap();
    spy.send(&handshake::prove(b"a wrong guess at it", Role::Dialler, &good, &theirs, 0));
    assert_eq!(spy.next().unwrap().0, Kind::Proof);
    assert!(reason(spy.next()).contains("secret"));

    // Somebody between two nodes who dials both and passes on to each what the other says.
    let mut relay = Stranger::knock(&cluster, 1);
    relay.send(&good.frame());
    let (_, content) = relay.next().unwrap();
    let theirs = Hello::read(&content).unwrap();
    relay.send(&handshake::prove(&cluster.config.secret, Role::Acceptor, &good, &theirs, 0));
    assert_eq!(relay.next().unwrap().0, Kind::Proof);
    assert!(reason(relay.next()).contains("secret"));
    assert!(refused(Hello::new(&cluster.config, 2, OTHER, 5)).contains("'ir-1' dials"));

    let mut friend = Stranger::knock(&cluster, 1);
    assert_eq!(friend.introduce(&good, &cluster.config.secret).unwrap().0, Kind::Welcome);
    assert_eq!(cluster.client(1).ask("PING"), "PONG");
}

#[test]
fn a_name_is_bound_to_the_records_it_was_first_met_with() {
    let mut cluster = Cluster::new(None);
    cluster.start(1);
    let introduce = |life: Life| {
        let hello = Hello::new(&cluster.config, 0, life, 5);
        Stranger::knock(&cluster, 1).introduce(&hello, b"").unwrap()
    };
    let endless = Life { incarnation: 0x0100_0000, ..OTHER };
    assert!(reason(Some(introduce(endless))).contains("16777216 times"));
    assert_eq!(introduce(OTHER).0, Kind::Welcome);
    for forgot in [None, Some(OTHER.process + 1)] {
        let hello = Hello::new(&cluster.config, 0, Life { incarnation: 9, process: 10, ..OTHER }, 5);
        let answer = Stranger::knock(&cluster, 1).introduce_with(&hello, b"", forgot);
        assert!(reason(answer).contains("its start 1, at which it was met"), "{forgot:?}");
    }
    assert_eq!(introduce(OTHER).0, Kind::Welcome, "the same process again");
    assert_eq!(introduce(Life { incarnation: 2, process: 10, ..OTHER }).0, Kind::Welcome, "a restart");
    let copy = reason(Some(introduce(OTHER)));
    assert!(copy.contains("'ca-1'") && copy.contains("copy"), "{copy}");
    let twin = reason(Some(introduce(Life { incarnation: 2, process: 11, ..OTHER })));
    assert!(twin.contains("copy"), "{twin}");
    let empty = reason(Some(introduce(Life { identity: (8, 8), incarnation: 3, ..OTHER })));
    assert!(empty.contains("'ca-1'") && empty.contains("other records"), "{empty}");
}

#[test]
fn malformed_messages_are_dropped_and_malformed_frames_end_the_connection() {
    let mut cluster = Cluster::new(None);
    cluster.start(1);
    let hello = Hello::new(&cluster.config, 0, OTHER, 5);
    let mut peer = Stranger::knock(&cluster, 1);
    assert_eq!(peer.introduce(&hello, b"").unwrap().0, Kind::Welcome);
    let message = |content: &[u8]| {
        let mut bytes = Vec::new();
        frame::write(&mut bytes, Kind::Message, |buffer| buffer.extend_from_slice(content)).unwrap();
        bytes
    };
    let replica = |keyspace, partition, region| {
        Address::Replica(ReplicaId { keyspace, partition, region: Region(region) })
    };
    let addressed = |from, to, body: &[u8]| {
        let mut content = Vec::new();
        frame::write_addresses(&mut content, from, to);
        content.extend_from_slice(body);
        message(&content)
    };
    let (there, here) = (replica(0, 0, 0), replica(0, 0, 1));
    let nonsense = [
        message(b""),
        message(b"no addresses"),
        addressed(there, here, b"no message"),
        addressed(there, here, b""),
        addressed(replica(0, 0, 2), here, b"x"),
        addressed(there, replica(0, 0, 200), b"x"),
        addressed(replica(9, 0, 0), replica(9, 0, 1), b"x"),
        addressed(there, replica(0, 999, 0), b"x"),
        addressed(there, replica(1, 0, 0), b"x"),
    ];
    for bytes in &nonsense {
        peer.send(bytes);
    }
    let mut ping = Vec::new();
    frame::write(&mut ping, Kind::Ping, |buffer| buffer.extend_from_slice(&[1; 8])).unwrap();
    peer.send(&ping);
    loop {
        let (kind, content) = peer.next().expect("the connection stands");
        if kind == Kind::Pong {
            assert_eq!(content, [1; 8]);
            break;
        }
    }
    let status = cluster.client(1).ask("MERIDIAN.STATUS");
    assert!(status.contains(&format!("malformed={}", nonsense.len())), "{status}");
    // A frame that claims 4 GiB cannot be skipped.
    peer.send(&[0xff; 8]);
    while peer.next().is_some() {}
    assert_eq!(cluster.client(1).ask("PING"), "PONG");
}

/// An authenticated peer that sends mutations of well-formed frames, 20,000 of them.
#[test]
fn mutated_frames_never_harm_the_node() {
    let mut cluster = Cluster::new(None);
    cluster.start(1);
    let mut state = 88_172_645_463_325_252_u64;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    let mut sent = 0;
    for connection in 0.. {
        if sent >= 20_000 {
            break;
        }
        assert!(connection < 20_000);
        let hello = Hello::new(&cluster.config, 0, OTHER, connection);
        let mut peer = Stranger::knock(&cluster, 1);
        assert_eq!(peer.introduce(&hello, b"").unwrap().0, Kind::Welcome);
        // Until a mutation breaks the framing and the node hangs up.
        for _ in 0..500 {
            let mut content = Vec::new();
            let partition = random(4) as u16;
            let address =
                |region| Address::Replica(ReplicaId { keyspace: 0, partition, region: Region(region) });
            frame::write_addresses(&mut content, address(0), address(1));
            for _ in 0..random(40) {
                content.push([0x82, 0x83, 0x84, 0x81, 0x00, 0x01, 0x02, 0x18, 0x44, 0xf6][random(10)]);
            }
            let mut bytes = Vec::new();
            frame::write(&mut bytes, Kind::Message, |buffer| buffer.extend_from_slice(&content)).unwrap();
            if random(50) == 0 {
                let at = random(bytes.len());
                bytes[at] ^= 1 << random(8);
            }
            if peer.stream.write_all(&bytes).is_err() {
                break;
            }
            sent += 1;
        }
    }
    assert_eq!(cluster.client(1).ask("PING"), "PONG");
    // A panic of any task would have failed it.
    cluster.stop(1).unwrap();
}

/// Sockets that say nothing do not keep nodes from meeting.
#[test]
fn silent_strangers_make_room_for_others() {
    let mut cluster = Cluster::new(None);
    cluster.start(1);
    let silent: Vec<Stranger> = (0..100).map(|_| Stranger::knock(&cluster, 1)).collect();
    let hello = Hello::new(&cluster.config, 0, OTHER, 5);
    assert_eq!(Stranger::knock(&cluster, 1).introduce(&hello, b"").unwrap().0, Kind::Welcome);
    drop(silent);
}
