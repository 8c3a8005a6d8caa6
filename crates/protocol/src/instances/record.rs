//! What a replica keeps through a crash.

use super::instance::Instance;
use super::{Id, Protocol};
use crate::record_key::{self, take};
use crate::registers::carstamp::Held;
use crate::results::Remembered;
use crate::topology::ClientId;
use crate::{machine, wire};
use bytes::Bytes;

/// A durable fact about one key.
#[derive(Clone, Debug, PartialEq)]
pub enum Record<P: Protocol> {
    /// Its version.
    Register(Bytes, Held),
    /// What executing its instances has left, apart from the results.
    Head(Bytes, P::Head),
    /// A lane's last result, or that it is forgotten.
    Result(Bytes, ClientId, u32, Option<Remembered>),
    /// An instance: stored before the proposal, pre-accept, promise or acceptance that it makes is sent, so that an
    /// index is never used twice either. `None` once it is executed.
    Instance(Bytes, P::Id, Option<Box<Instance<P::Command, P::Attributes>>>),
}

impl<P: Protocol> machine::Record for Record<P> {
    fn encode_key(&self, buffer: &mut Vec<u8>) {
        let (tag, key) = match self {
            Self::Register(key, _) => (b'r', key),
            Self::Head(key, _) => (b'h', key),
            Self::Result(key, ..) => (b'd', key),
            Self::Instance(key, ..) => (b'i', key),
        };
        record_key::begin(buffer, tag, key);
        match self {
            Self::Register(..) | Self::Head(..) => {}
            Self::Result(_, client, lane, _) => {
                buffer.extend_from_slice(&client.0.to_be_bytes());
                buffer.extend_from_slice(&lane.to_be_bytes());
            }
            Self::Instance(_, id, _) => id.encode_key(buffer),
        }
    }

    fn encode_value(&self, buffer: &mut Vec<u8>) -> bool {
        match self {
            Self::Register(_, held) => wire::encode(held, buffer),
            Self::Head(_, head) => wire::encode(head, buffer),
            Self::Result(.., Some(result)) => wire::encode(result, buffer),
            Self::Instance(.., Some(instance)) => wire::encode(&**instance, buffer),
            Self::Result(.., None) | Self::Instance(.., None) => return false,
        }
        true
    }

    fn decode(key: &[u8], value: &[u8]) -> Result<Self, String> {
        let mut rest = key;
        let (tag, name) = record_key::take_name(&mut rest)?;
        let unreadable = |e: minicbor::decode::Error| format!("the record is unreadable: {e}");
        let record = match tag {
            b'r' => Self::Register(name, wire::decode(value).map_err(unreadable)?),
            b'h' => Self::Head(name, wire::decode(value).map_err(unreadable)?),
            b'd' => {
                let client = ClientId(u64::from_be_bytes(take(&mut rest)?));
                let lane = u32::from_be_bytes(take(&mut rest)?);
                Self::Result(name, client, lane, Some(wire::decode(value).map_err(unreadable)?))
            }
            b'i' => {
                let id = P::Id::decode_key(&mut rest)?;
                Self::Instance(name, id, Some(Box::new(wire::decode(value).map_err(unreadable)?)))
            }
            other => return Err(format!("no record of kind {other} is known")),
        };
        record_key::end(rest)?;
        Ok(record)
    }
}

/// Writes records of a protocol and reads them back, whole and cut short.
#[cfg(test)]
pub(crate) fn come_back<P: Protocol>(id: P::Id, head: P::Head) {
    use machine::Record as _;
    let records: [Record<P>; 3] = [
        Record::Register(Bytes::from("k"), Held::default()),
        Record::Head(Bytes::from("k"), head),
        Record::Instance(Bytes::from("k"), id, Some(Box::new(Instance::unknown()))),
    ];
    for record in records {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        record.encode_key(&mut key);
        assert!(record.encode_value(&mut value));
        assert_eq!(Record::decode(&key, &value).unwrap(), record);
        for cut in 0..key.len() {
            assert!(Record::<P>::decode(&key[..cut], &value).is_err());
        }
        assert!(Record::<P>::decode(&key, &value[..value.len() - 1]).is_err());
    }
}
