//! Frames: what nodes say to each other over TCP, as bytes.
//!
//! ```text
//! frame   = length: u32 (of what follows), kind: u8, content
//! message = from: address, to: address, message (CBOR, to the end)
//! address = 0: u8, keyspace: u16, partition: u16, region: u8    (a replica)
//!         | 1: u8, keyspace: u16, client: u64                   (a client)
//! ping    = the sender's time: u64                 pong = the same, sent back
//! watch   = keyspace: u16, 1 or 0: u8, key              changed = keyspace: u16, items: u32, key
//! time    = the earliest that the time can be by the sender's clock, in us since the Unix epoch: u64
//! ```
//! Integers are little-endian. What comes in is trusted in nothing: lengths are checked before they are used,
//! and memory grows with what has arrived, never with what a length claims.

use meridian_protocol::topology::{Address, ClientId, Region, ReplicaId};

/// The longest frame, length not counted. A message can hold a command of 64 MiB and three objects of 32 MiB: one
/// that did not fit would be dropped at every retry.
pub const LIMIT: usize = 192 << 20;
/// The longest frame of a peer that has not yet shown who it is.
pub const HANDSHAKE_LIMIT: usize = 4 << 10;
/// Bytes of a frame's length.
const LENGTH: usize = 4;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The first frame each way: who is speaking.
    Hello,
    /// The second: that the speaker knows the secret.
    Proof,
    /// The third: that the listener accepts.
    Welcome,
    /// Instead of any of these: why the listener does not accept.
    Refused,
    /// A machine's message to another.
    Message,
    /// "Are you there?"
    Ping,
    /// "I am."
    Pong,
    /// In the handshake, between proof and welcome: the number that the speaker drew at the start that the listener
    /// has named.
    Lineage,
    /// Before the messages of each batch of a node whose clock is trusted: what true time is above.
    Time,
    /// To a node of the same region: tell, for a while, of the items of a key that this node holds, or no more.
    Watch,
    /// What was asked for by `Watch`: so many items are there, or may be.
    Changed,
}

impl Kind {
    const ALL: [Self; 11] = [
        Self::Hello,
        Self::Proof,
        Self::Welcome,
        Self::Refused,
        Self::Message,
        Self::Ping,
        Self::Pong,
        Self::Lineage,
        Self::Time,
        Self::Watch,
        Self::Changed,
    ];

    fn byte(self) -> u8 {
        // Never 0, so that a stretch of zeros is no frame.
        Self::ALL.iter().position(|kind| *kind == self).map_or(0, |index| index as u8 + 1)
    }

    fn of_byte(byte: u8) -> Option<Self> {
        Self::ALL.get(usize::from(byte).checked_sub(1)?).copied()
    }
}

/// Appends a frame whose content `write` appends.
///
/// # Errors
/// If the content is longer than a frame may be; nothing is then appended.
pub fn write(buffer: &mut Vec<u8>, kind: Kind, write: impl FnOnce(&mut Vec<u8>)) -> Result<(), TooLong> {
    let start = buffer.len();
    buffer.extend_from_slice(&[0; LENGTH]);
    buffer.push(kind.byte());
    write(buffer);
    let length = buffer.len() - start - LENGTH;
    if length > LIMIT {
        buffer.truncate(start);
        return Err(TooLong(length));
    }
    buffer[start..start + LENGTH].copy_from_slice(&(length as u32).to_le_bytes());
    Ok(())
}

/// A frame would be this long, and may not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong(pub(crate) usize);

/// A frame that has arrived whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// What it is.
    pub kind: Kind,
    /// What it says.
    pub content: &'a [u8],
    /// How many bytes it took, length included.
    pub size: usize,
}

/// Reads the frame at the front of `input`. `None` means that more bytes are needed.
///
/// # Errors
/// What is wrong with the bytes; nothing that follows can be understood.
pub fn read(input: &[u8], limit: usize) -> Result<Option<Frame<'_>>, String> {
    let Some(length) = input.first_chunk::<LENGTH>() else { return Ok(None) };
    let length = u32::from_le_bytes(*length) as usize;
    if length == 0 || length > limit {
        return Err(format!("a frame of {length} bytes, and 1 to {limit} are allowed"));
    }
    if let Some(byte) = input.get(LENGTH)
        && Kind::of_byte(*byte).is_none()
    {
        return Err(format!("a frame of unknown kind {byte}"));
    }
    let Some(frame) = input.get(LENGTH..LENGTH + length) else { return Ok(None) };
    let kind = Kind::of_byte(frame[0]).expect("an unknown kind was refused above");
    Ok(Some(Frame { kind, content: &frame[1..], size: LENGTH + length }))
}

/// Writes the addresses of a message; the message follows.
pub fn write_addresses(buffer: &mut Vec<u8>, from: Address, to: Address) {
    for address in [from, to] {
        buffer.push(u8::from(matches!(address, Address::Client(..))));
        buffer.extend_from_slice(&address.keyspace().to_le_bytes());
        match address {
            Address::Replica(replica) => {
                buffer.extend_from_slice(&replica.partition.to_le_bytes());
                buffer.push(replica.region.0);
            }
            Address::Client(_, client) => buffer.extend_from_slice(&client.0.to_le_bytes()),
        }
    }
}

/// Reads the addresses of a message, and gives the rest.
///
/// # Errors
/// What is wrong with the bytes.
pub fn read_addresses(content: &[u8]) -> Result<(Address, Address, &[u8]), &'static str> {
    let (from, rest) = read_address(content).ok_or("its sender cannot be read")?;
    let (to, rest) = read_address(rest).ok_or("its addressee cannot be read")?;
    Ok((from, to, rest))
}

fn read_address(bytes: &[u8]) -> Option<(Address, &[u8])> {
    let (kind, rest) = bytes.split_first()?;
    let (keyspace, rest) = rest.split_first_chunk()?;
    let keyspace = u16::from_le_bytes(*keyspace);
    match kind {
        0 => {
            let (partition, rest) = rest.split_first_chunk()?;
            let (region, rest) = rest.split_first()?;
            let partition = u16::from_le_bytes(*partition);
            Some((Address::Replica(ReplicaId { keyspace, partition, region: Region(*region) }), rest))
        }
        1 => {
            let (client, rest) = rest.split_first_chunk()?;
            Some((Address::Client(keyspace, ClientId(u64::from_le_bytes(*client))), rest))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ADDRESSES: (Address, Address) = (
        Address::Client(3, ClientId(2 << 52 | 1 << 28)),
        Address::Replica(ReplicaId { keyspace: 3, partition: 1, region: Region(2) }),
    );

    fn message() -> Vec<u8> {
        let mut bytes = Vec::new();
        write(&mut bytes, Kind::Message, |buffer| {
            write_addresses(buffer, ADDRESSES.0, ADDRESSES.1);
            buffer.extend_from_slice(b"body");
        })
        .unwrap();
        bytes
    }

    /// Nodes of the next version must read them: a kind keeps its number, and new ones come behind.
    #[test]
    fn frames_are_written_as_they_always_were() {
        let kinds = Kind::ALL.map(|kind| (kind.byte(), format!("{kind:?}")));
        let names = [
            "Hello", "Proof", "Welcome", "Refused", "Message", "Ping", "Pong", "Lineage", "Time", "Watch",
            "Changed",
        ];
        for (at, (byte, name)) in kinds.iter().enumerate() {
            assert_eq!((usize::from(*byte), name.as_str()), (at + 1, names[at]));
        }
        let client = b"\x01\x03\0\0\0\0\x10\0\0\x20\0";
        assert_eq!(message(), [b"\x16\0\0\0\x05", client.as_slice(), b"\0\x03\0\x01\0\x02body"].concat());
    }

    #[test]
    fn a_frame_comes_back_once_it_is_whole() {
        let bytes = message();
        for cut in 0..bytes.len() {
            assert_eq!(read(&bytes[..cut], LIMIT), Ok(None), "cut at {cut}");
        }
        let frame = read(&bytes, LIMIT).unwrap().unwrap();
        assert_eq!((frame.kind, frame.size), (Kind::Message, bytes.len()));
        let (from, to, body) = read_addresses(frame.content).unwrap();
        assert_eq!((from, to), ADDRESSES);
        assert_eq!(body, b"body");
    }

    #[test]
    fn cut_addresses_are_refused() {
        let mut bytes = Vec::new();
        write_addresses(&mut bytes, ADDRESSES.0, ADDRESSES.1);
        for cut in 0..bytes.len() {
            assert!(read_addresses(&bytes[..cut]).is_err(), "cut at {cut}");
        }
        bytes[0] = 2;
        assert!(read_addresses(&bytes).is_err());
    }

    #[test]
    fn the_form_on_the_wire_stays() {
        let golden =
            [22, 0, 0, 0, 5, 1, 3, 0, 0, 0, 0, 16, 0, 0, 32, 0, 0, 3, 0, 1, 0, 2, b'b', b'o', b'd', b'y'];
        assert_eq!(message(), golden);
    }

    #[test]
    fn lengths_and_kinds_are_checked_before_anything_else_is_awaited() {
        assert!(read(&[0xff, 0xff, 0xff, 0x7f], LIMIT).unwrap_err().contains("2147483647 bytes"));
        assert!(read(&[0, 0, 0, 0], LIMIT).is_err());
        assert!(read(&[9, 0, 0, 0, 99], LIMIT).unwrap_err().contains("unknown kind 99"));
        assert!(read(&5_000_u32.to_le_bytes(), HANDSHAKE_LIMIT).is_err());
        let mut buffer = b"before".to_vec();
        let long = write(&mut buffer, Kind::Message, |buffer| buffer.resize(LIMIT + 20, 0));
        assert!(long.is_err());
        assert_eq!(buffer, b"before");
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(Some(frame)) = read(&bytes, LIMIT) {
                prop_assert!(frame.size <= bytes.len());
                let _ = read_addresses(frame.content);
            }
            let _ = read_addresses(&bytes);
        }
    }
}
