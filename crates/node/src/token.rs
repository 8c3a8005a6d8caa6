//! Contexts as clients carry them: what a session must remember, in a word of text that only nodes of the cluster can make.
//!
//! A token is base64url of: the version (1 byte), the cluster (8 bytes of the hash of its id), the body in CBOR, and a tag (16 bytes of
//! HMAC-SHA256 by the cluster's secret over all before it). It names no keys and holds no values. It is not secret, but
//! cannot be changed; nor can that of another be made.
//!
//! Whatever the bytes are, a token is read or refused by name, at once, and nothing is allocated for lengths that it states.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use meridian_protocol::machine::Context;
use meridian_protocol::wire;
use minicbor::{Decode, Encode};
use sha2::{Digest, Sha256};
use std::fmt;

/// The most characters that a token has.
pub const LENGTH_MAX: usize = 1024;

/// For how many seconds a token is good.
pub const LIFETIME_S: u64 = 3_600;

/// The version that this node writes and reads.
const VERSION: u8 = 1;
const CLUSTER: usize = 8;
const TAG: usize = 16;

/// What a token says of one keyspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Carried {
    /// The keyspace's number.
    pub keyspace: u16,
    /// Whether whoever goes on to another service owes its fence.
    pub owed: bool,
    /// What its engine must be told.
    pub context: Context,
}

/// Why a token is refused. `Display` says it in words for the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It has so many characters.
    Long(usize),
    /// It is not base64url, or too short.
    Garbled,
    /// It has another version.
    Version(u8),
    /// It is of another cluster.
    Foreign,
    /// The tag does not fit.
    Forged,
    /// It has run out so many seconds ago.
    Expired(u64),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Long(length) => {
                write!(
                    f,
                    "it has {length} characters, and {LENGTH_MAX} is the most: pass it on as it was given"
                )
            }
            Self::Garbled => write!(f, "it is not base64url, or cut off: pass it on as it was given"),
            Self::Version(version) => write!(
                f,
                "it is none, or of version {version}, where this node reads version {VERSION}: pass it on as it was given, or upgrade all nodes and get another"
            ),
            Self::Foreign => write!(f, "it is of another cluster: get one of this cluster"),
            Self::Forged => {
                write!(
                    f,
                    "its tag does not fit, so it was changed, forged, or made with another secret: pass it on as it was given, to nodes of one secret"
                )
            }
            Self::Expired(ago) => write!(f, "it expired {ago} s ago: get another"),
        }
    }
}

/// Makes and reads a cluster's tokens.
#[derive(Clone)]
pub struct Tokens {
    cluster: [u8; CLUSTER],
    secret: Vec<u8>,
}

impl fmt::Debug for Tokens {
    /// Without the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}

#[derive(Encode, Decode)]
struct Body {
    #[n(0)]
    expires_s: u64,
    #[n(1)]
    carried: Vec<Part>,
}

#[derive(Encode, Decode)]
struct Part {
    #[n(0)]
    keyspace: u16,
    #[n(1)]
    owed: bool,
    /// Eight bytes for each entry, little-endian.
    #[cbor(n(2), with = "minicbor::bytes")]
    entries: Vec<u8>,
}

impl Tokens {
    /// Those of the cluster with that id and secret; `None` without a secret, by which anybody could make them.
    pub fn new(cluster: &str, secret: &[u8]) -> Option<Self> {
        let hash = Sha256::digest(cluster.as_bytes());
        let cluster = *hash.first_chunk().expect("a hash is longer");
        (!secret.is_empty()).then(|| Self { cluster, secret: secret.to_vec() })
    }

    /// A token that says this at `now_s`, in seconds since the Unix epoch. May be longer than [`LENGTH_MAX`]: nobody would
    /// read that.
    pub fn write(&self, carried: &[Carried], now_s: u64) -> String {
        let mut bytes = vec![VERSION];
        bytes.extend(self.cluster);
        write_body(carried, now_s + LIFETIME_S, &mut bytes);
        let tag = self.code(&bytes).finalize().into_bytes();
        bytes.extend(&tag[..TAG]);
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// What a token says, if it is good at `now_s`.
    ///
    /// # Errors
    /// Why it is refused.
    pub fn read(&self, token: &[u8], now_s: u64) -> Result<Vec<Carried>, Refusal> {
        if token.len() > LENGTH_MAX {
            return Err(Refusal::Long(token.len()));
        }
        let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|_| Refusal::Garbled)?;
        let (version, rest) = bytes.split_first().ok_or(Refusal::Garbled)?;
        if *version != VERSION {
            return Err(Refusal::Version(*version));
        }
        let (cluster, rest) = rest.split_first_chunk::<CLUSTER>().ok_or(Refusal::Garbled)?;
        if *cluster != self.cluster {
            return Err(Refusal::Foreign);
        }
        let (body, tag) = rest.split_last_chunk::<TAG>().ok_or(Refusal::Garbled)?;
        // Compared in a time that does not tell how much of it fits.
        let signed = &bytes[..bytes.len() - TAG];
        self.code(signed).verify_truncated_left(tag).map_err(|_| Refusal::Forged)?;
        let (carried, expires_s) = read_body(body)?;
        if now_s >= expires_s {
            return Err(Refusal::Expired(now_s - expires_s));
        }
        Ok(carried)
    }

    fn code(&self, signed: &[u8]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.secret).expect("a key may have any length");
        mac.update(b"meridian context");
        mac.update(signed);
        mac
    }
}

/// Appends what a token says, and when it expires.
pub fn write_body(carried: &[Carried], expires_s: u64, buffer: &mut Vec<u8>) {
    let part = |carried: &Carried| Part {
        keyspace: carried.keyspace,
        owed: carried.owed,
        entries: carried.context.0.iter().flat_map(|entry| entry.to_le_bytes()).collect(),
    };
    wire::encode(&Body { expires_s, carried: carried.iter().map(part).collect() }, buffer);
}

/// What a token says, and when it expires, in seconds since the Unix epoch.
///
/// # Errors
/// If the bytes say nothing.
pub fn read_body(body: &[u8]) -> Result<(Vec<Carried>, u64), Refusal> {
    let Body { expires_s, carried } = wire::decode(body).map_err(|_| Refusal::Garbled)?;
    let carried = carried.into_iter().map(Part::read).collect::<Result<_, _>>()?;
    Ok((carried, expires_s))
}

impl Part {
    fn read(self) -> Result<Carried, Refusal> {
        let (entries, rest) = self.entries.as_chunks::<8>();
        if !rest.is_empty() {
            return Err(Refusal::Garbled);
        }
        let context = Context(entries.iter().map(|entry| u64::from_le_bytes(*entry)).collect());
        Ok(Carried { keyspace: self.keyspace, owed: self.owed, context })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: u64 = 1_800_000_000;

    fn tokens() -> Tokens {
        Tokens::new("photos", b"a secret of sixteen").unwrap()
    }

    fn carried(keyspace: u16, owed: bool, entries: &[u64]) -> Carried {
        Carried { keyspace, owed, context: Context(entries.to_vec()) }
    }

    fn good() -> String {
        tokens().write(&[carried(2, true, &[NOW * 1_000_000]), carried(4, false, &[1, 2, 3])], NOW)
    }

    fn refused(token: impl AsRef<[u8]>) -> Refusal {
        tokens().read(token.as_ref(), NOW).unwrap_err()
    }

    #[test]
    fn what_is_written_is_read_until_it_expires() {
        let read = |now_s| tokens().read(good().as_bytes(), now_s);
        assert_eq!(read(NOW).unwrap().len(), 2);
        assert_eq!(read(NOW + LIFETIME_S - 1).unwrap()[1], carried(4, false, &[1, 2, 3]));
        assert_eq!(read(NOW + LIFETIME_S + 5), Err(Refusal::Expired(5)));
    }

    #[test]
    fn each_fault_has_its_name() {
        assert_eq!(refused("a".repeat(1025)), Refusal::Long(1025));
        assert_eq!(refused("no token!"), Refusal::Garbled);
        assert_eq!(refused(""), Refusal::Garbled);
        assert_eq!(refused(&good()[..10]), Refusal::Garbled);
        assert_eq!(refused(&good()[..40]), Refusal::Forged);
        let with = |at: usize, byte: u8| {
            let mut bytes = URL_SAFE_NO_PAD.decode(good()).unwrap();
            bytes[at] = byte;
            URL_SAFE_NO_PAD.encode(bytes)
        };
        assert_eq!(refused(with(0, 9)), Refusal::Version(9));
        assert_eq!(refused(with(20, 0xff)), Refusal::Forged);
        let other = Tokens::new("prod", b"a secret of sixteen").unwrap();
        assert_eq!(refused(other.write(&[], NOW)), Refusal::Foreign);
        let forger = Tokens::new("photos", b"another secret !!").unwrap();
        assert_eq!(refused(forger.write(&[carried(2, true, &[7])], NOW)), Refusal::Forged);
        assert!(Tokens::new("photos", b"").is_none());
    }

    /// Whoever knows the secret can write nonsense too, and it is refused like any other.
    #[test]
    fn signed_nonsense_is_refused() {
        let signed = |body: &[u8]| {
            let mut bytes = vec![VERSION];
            bytes.extend(tokens().cluster);
            bytes.extend(body);
            let tag = tokens().code(&bytes).finalize().into_bytes();
            bytes.extend(&tag[..TAG]);
            URL_SAFE_NO_PAD.encode(bytes)
        };
        // An array of 2^32 parts, of which there is none; bytes of that length; seven bytes where eight make an entry.
        let expires = [0x1b, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
        for rest in [
            &[0x9b, 0, 0, 0, 1, 0, 0, 0, 0][..],
            &[0x81, 0x83, 2, 0xf4, 0x5b, 0, 0, 0, 1, 0, 0, 0, 0],
            &[0x81, 0x83, 2, 0xf4, 0x47, 1, 2, 3, 4, 5, 6, 7],
            b"",
        ] {
            assert_eq!(refused(signed(&[&[0x82][..], &expires, rest].concat())), Refusal::Garbled);
        }
    }

    #[test]
    fn tokens_are_small() {
        let hlc = |regions: usize| vec![u64::MAX; regions];
        let typical = [carried(0, false, &[]), carried(2, true, &hlc(1)), carried(4, false, &hlc(5))];
        assert!(tokens().write(&typical, NOW).len() <= 256);
        // Five regions: twelve contrarian keyspaces, or four of tcc.
        let many: Vec<_> = (0..12).map(|keyspace| carried(keyspace, false, &hlc(5))).collect();
        assert!(tokens().write(&many, NOW).len() <= LENGTH_MAX);
        let tcc: Vec<_> = (0..4).map(|keyspace| carried(keyspace, false, &hlc(15))).collect();
        assert!(tokens().write(&tcc, NOW).len() <= LENGTH_MAX);
    }

    proptest! {
        #[test]
        fn any_context_comes_back(parts in prop::collection::vec((any::<u16>(), any::<bool>(), prop::collection::vec(any::<u64>(), 0..6)), 0..8)) {
            let all: Vec<_> = parts.iter().map(|(keyspace, owed, entries)| carried(*keyspace, *owed, entries)).collect();
            let token = tokens().write(&all, NOW);
            prop_assert_eq!(tokens().read(token.as_bytes(), NOW), Ok(all));
        }

        /// A changed character never goes unnoticed.
        #[test]
        fn no_change_goes_unnoticed(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
            let mut token = good().into_bytes();
            let at = at.index(token.len());
            prop_assume!(token[at] != byte);
            token[at] = byte;
            prop_assert!(tokens().read(&token, NOW).is_err());
        }
    }
}
