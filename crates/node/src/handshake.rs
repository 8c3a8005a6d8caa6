//! How two nodes make sure of each other before they speak: no sockets here, only frames in and out.
//!
//! Each side says who it is ([`Hello`]), then proves that it knows the cluster's secret by a keyed hash over both
//! hellos and over who has dialled, so that nobody can pass on between two nodes what they prove. Both hellos hold
//! a fresh random number, so that no proof can be used twice. With the proof each names the start at which it last
//! met the other, which shows the number that it drew then ([`lineage`]): records that have forgotten that start
//! are not those that made its promises. Then each accepts the other or refuses it with the reason. What follows is not encrypted and not authenticated further: a network on which
//! strangers can change packets needs TLS below ([`crate::tls`]).

use crate::config::Config;
use crate::frame::{self, Kind};
use crate::placement::NodeIndex;
use hmac::{Hmac, KeyInit, Mac};
use minicbor::{Decode, Encode};
use sha2::Sha256;

/// The versions of the protocol between nodes that this version speaks, the lowest and the highest.
pub(crate) const VERSIONS: (u16, u16) = (1, 1);

const MAGIC: u32 = 0x4d45_5249;

/// Who a node is.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct Hello {
    #[n(0)]
    pub(crate) magic: u32,
    /// The lowest and the highest version that it speaks.
    #[n(1)]
    pub(crate) versions: (u16, u16),
    #[n(2)]
    pub(crate) cluster: String,
    #[n(3)]
    pub(crate) config_hash: u64,
    #[n(4)]
    pub(crate) node: String,
    #[n(5)]
    pub(crate) life: Life,
    /// Fresh for each connection.
    #[n(6)]
    pub(crate) nonce: u64,
}

/// What distinguishes a process from others of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct Life {
    /// Drawn when the records' directory was made, or by the process if it keeps none. High half, low half.
    #[n(0)]
    pub(crate) identity: (u64, u64),
    /// How often the node has started on these records.
    #[n(1)]
    pub(crate) incarnation: u32,
    /// Drawn by the process: two that claim the same incarnation are copies of one directory.
    #[n(2)]
    pub(crate) process: u64,
}

impl Hello {
    pub(crate) fn new(config: &Config, node: NodeIndex, life: Life, nonce: u64) -> Self {
        Self {
            magic: MAGIC,
            versions: VERSIONS,
            cluster: config.cluster.clone(),
            config_hash: config.hash(),
            node: config.nodes[node].name.clone(),
            life,
            nonce,
        }
    }

    /// The hello as a frame.
    pub(crate) fn frame(&self) -> Vec<u8> {
        let mut buffer = Vec::new();
        frame::write(&mut buffer, Kind::Hello, |buffer| meridian_protocol::wire::encode(self, buffer))
            .expect("a hello is short");
        buffer
    }

    /// Reads a hello.
    ///
    /// # Errors
    /// What is wrong with the bytes.
    pub(crate) fn read(content: &[u8]) -> Result<Self, String> {
        // Fields may be added in later versions: what follows the known ones is skipped.
        let hello: Self =
            minicbor::decode(content).map_err(|_| "no Meridian node speaks there".to_owned())?;
        if hello.magic == MAGIC { Ok(hello) } else { Err("no Meridian node speaks there".to_owned()) }
    }

    /// Whether the node that said this may take part, as far as can be told from what it says. Gives its place
    /// in the configuration.
    ///
    /// # Errors
    /// Why not, in words for both sides' logs.
    pub(crate) fn judge(&self, config: &Config, me: NodeIndex) -> Result<NodeIndex, String> {
        let (low, high) = (self.versions.0.max(VERSIONS.0), self.versions.1.min(VERSIONS.1));
        if low > high {
            return Err(format!(
                "it speaks protocol versions {} to {}, and this node {} to {}: upgrade one version at a time",
                self.versions.0, self.versions.1, VERSIONS.0, VERSIONS.1
            ));
        }
        if self.cluster != config.cluster {
            return Err(format!(
                "it belongs to cluster '{}', and this node to '{}': correct the address or [cluster] id",
                printable(&self.cluster),
                config.cluster
            ));
        }
        let Some(index) = config.node(&self.node) else {
            return Err(format!(
                "no [[node]] is called '{}' here: give all nodes the same file",
                printable(&self.node)
            ));
        };
        if index == me {
            return Err(format!(
                "it calls itself '{}', as this node does: give each its own name",
                self.node
            ));
        }
        if self.config_hash != config.hash() {
            return Err(format!(
                "its configuration has hash {:016x}, and this node's {:016x}: give all nodes the same [[node]] and [[keyspace]]",
                self.config_hash,
                config.hash()
            ));
        }
        Ok(index)
    }
}

/// Which part a speaker has in a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Dialler,
    Acceptor,
}

impl Role {
    /// That of the other side.
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Dialler => Self::Acceptor,
            Self::Acceptor => Self::Dialler,
        }
    }
}

/// The proof that `speaker` knows the secret, made for `listener`, and the count of starts at which it last met
/// it, or 0.
pub(crate) fn prove(secret: &[u8], role: Role, speaker: &Hello, listener: &Hello, met: u32) -> Vec<u8> {
    let mut buffer = Vec::new();
    let code = code(secret, role, speaker, listener, met).finalize().into_bytes();
    frame::write(&mut buffer, Kind::Proof, |buffer| {
        buffer.extend_from_slice(&met.to_le_bytes());
        buffer.extend_from_slice(&code);
    })
    .expect("a proof is short");
    buffer
}

/// Whether `proof` shows that `speaker`, which has that role, knows the secret; gives the start at which it last
/// met the listener. Takes the same time whatever is wrong with it.
///
/// # Errors
/// Why not, in words for both sides' logs.
pub(crate) fn check(
    secret: &[u8],
    role: Role,
    speaker: &Hello,
    listener: &Hello,
    proof: &[u8],
) -> Result<u32, String> {
    let why = || "it does not know the cluster's secret: give all nodes the same secret_file".to_owned();
    let (met, proof) = proof.split_first_chunk().ok_or_else(why)?;
    let met = u32::from_le_bytes(*met);
    code(secret, role, speaker, listener, met).verify_slice(proof).map_err(|_| why())?;
    Ok(met)
}

fn code(secret: &[u8], role: Role, speaker: &Hello, listener: &Hello, met: u32) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("a key may have any length");
    mac.update(b"meridian node to node 1");
    mac.update(if role == Role::Dialler { b"d" } else { b"a" });
    mac.update(&met.to_le_bytes());
    for hello in [speaker, listener] {
        let frame = hello.frame();
        mac.update(&(frame.len() as u64).to_le_bytes());
        mac.update(&frame);
    }
    mac
}

/// The frame that shows which number the speaker drew at the start that the listener has named, if it can tell.
pub(crate) fn lineage(drawn: Option<u64>) -> Vec<u8> {
    let mut buffer = Vec::new();
    frame::write(&mut buffer, Kind::Lineage, |buffer| {
        buffer.extend(drawn.into_iter().flat_map(u64::to_le_bytes));
    })
    .expect("a number is short");
    buffer
}

/// The frame that accepts the other side.
pub(crate) fn welcome() -> Vec<u8> {
    let mut buffer = Vec::new();
    frame::write(&mut buffer, Kind::Welcome, |_| ()).expect("a welcome is short");
    buffer
}

/// The frame that refuses the other side.
pub(crate) fn refuse(reason: &str) -> Vec<u8> {
    let mut buffer = Vec::new();
    let end = reason.floor_char_boundary(1_024);
    frame::write(&mut buffer, Kind::Refused, |buffer| buffer.extend_from_slice(&reason.as_bytes()[..end]))
        .expect("a reason is short");
    buffer
}

/// What another node says, fit for a log: short, and without control characters.
pub(crate) fn printable(text: &str) -> String {
    text.chars().take(1_024).map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::path::Path;

    pub(crate) const LIFE: Life = Life { identity: (1, 2), incarnation: 3, process: 4 };

    pub(crate) fn config() -> Config {
        let node = |(i, region): (usize, &&str)| {
            let (client, peer) = (7001 + i, 7101 + i);
            format!(
                "[[node]]\nname = \"{region}-1\"\nregion = \"{region}\"\nclient = {client}\npeer = {peer}\n"
            )
        };
        let nodes: Vec<String> = ["ca", "va", "ir"].iter().enumerate().map(node).collect();
        let text = "[cluster]\nid = \"test\"\n[durability]\nmode = \"memory\"\n".to_owned()
            + &nodes.concat()
            + "[[keyspace]]\nnumber = 0\nmodel = \"linearizable\"\n";
        Config::parse(&text, Path::new("")).unwrap()
    }

    #[test]
    fn a_hello_comes_back_and_is_judged() {
        let config = config();
        let hello = Hello::new(&config, 1, LIFE, 99);
        let bytes = hello.frame();
        let frame = frame::read(&bytes, frame::HANDSHAKE_LIMIT).unwrap().unwrap();
        assert_eq!(frame.kind, Kind::Hello);
        assert_eq!(Hello::read(frame.content), Ok(hello.clone()));
        assert_eq!(hello.judge(&config, 0), Ok(1));

        let refused = |hello: &Hello| hello.judge(&config, 0).unwrap_err();
        assert!(refused(&Hello { versions: (2, 9), ..hello.clone() }).contains("versions 2 to 9"));
        assert!(refused(&Hello { cluster: "prod".to_owned(), ..hello.clone() }).contains("'prod'"));
        assert!(refused(&Hello { node: "xx\u{7}".to_owned(), ..hello.clone() }).contains("'xx?'"));
        assert!(refused(&Hello { node: "ca-1".to_owned(), ..hello.clone() }).contains("as this node does"));
        assert!(refused(&Hello { config_hash: 1, ..hello }).contains("0000000000000001"));
    }

    /// Nodes of all versions must be able to say hello to each other, if only to be told why they are refused: these bytes stay for ever.
    #[test]
    fn a_hello_is_written_as_it_always_was_and_may_grow() {
        let hello = Hello {
            magic: MAGIC,
            versions: (1, 1),
            cluster: "test".to_owned(),
            config_hash: 7,
            node: "va-1".to_owned(),
            life: LIFE,
            nonce: 99,
        };
        let head = b"\x1d\0\0\0\x01".as_slice();
        let fields = b"\x1a\x4d\x45\x52\x49\x82\x01\x01\x64test\x07\x64va-1\x83\x82\x01\x02\x03\x04\x18\x63";
        assert_eq!(hello.frame(), [head, b"\x87", fields].concat());
        let newer = [b"\x89".as_slice(), fields, b"\x63new\x82\x01\x02"].concat();
        assert_eq!(Hello::read(&newer), Ok(hello));
    }

    #[test]
    fn a_proof_is_good_for_one_pair_of_hellos_and_one_secret() {
        let config = config();
        let (a, b) = (Hello::new(&config, 0, LIFE, 1), Hello::new(&config, 1, LIFE, 2));
        let proof = |secret: &[u8], a: &Hello, b: &Hello| {
            let bytes = prove(secret, Role::Dialler, a, b, 5);
            frame::read(&bytes, frame::HANDSHAKE_LIMIT).unwrap().unwrap().content.to_vec()
        };
        let good = proof(b"sixteen bytes!!!", &a, &b);
        let check = |secret, a, b, proof: &[u8]| check(secret, Role::Dialler, a, b, proof);
        assert_eq!(check(b"sixteen bytes!!!", &a, &b, &good), Ok(5));
        let passed_on = super::check(b"sixteen bytes!!!", Role::Acceptor, &a, &b, &good);
        assert!(passed_on.is_err(), "a proof of one that dialled, passed on as that of one that was dialled");
        assert!(check(b"another secret!!", &a, &b, &good).is_err());
        assert!(check(b"sixteen bytes!!!", &b, &a, &good).is_err(), "a reflected proof");
        let again = Hello { nonce: 3, ..b.clone() };
        assert!(check(b"sixteen bytes!!!", &a, &again, &good).is_err(), "a replayed proof");
        assert!(check(b"sixteen bytes!!!", &a, &b, &good[..35]).is_err());
        assert!(check(b"sixteen bytes!!!", &a, &b, b"").is_err());
    }

    /// Each mutation of a good hello is read or refused, and never anything else.
    #[test]
    fn mutated_hellos_never_panic() {
        let config = config();
        let good = Hello::new(&config, 1, LIFE, 99).frame();
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = move |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        let mut read = 0;
        for _ in 0..100_000 {
            let mut bytes = good.clone();
            for _ in 0..=random(4) {
                match random(4) {
                    0 => bytes.truncate(random(bytes.len() + 1)),
                    1 => bytes.insert(random(bytes.len() + 1), random(256) as u8),
                    2 if !bytes.is_empty() => drop(bytes.remove(random(bytes.len()))),
                    _ if !bytes.is_empty() => {
                        let at = random(bytes.len());
                        bytes[at] = random(256) as u8;
                    }
                    _ => {}
                }
            }
            if let Ok(Some(frame)) = frame::read(&bytes, frame::HANDSHAKE_LIMIT)
                && frame.kind == Kind::Hello
                && let Ok(hello) = Hello::read(frame.content)
            {
                let _ = hello.judge(&config, 0);
                read += 1;
            }
        }
        assert!(read > 1_000, "most mutations should get past the frame: {read}");
    }
}
