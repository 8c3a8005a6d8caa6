//! What a Gryff replica keeps through a crash.

use super::carstamp::Held;
use super::chain::Remembered;
use super::instance::{Instance, InstanceId};
use crate::machine;
use crate::record_key::{self, take};
use crate::topology::{ClientId, Region};
use crate::wire;
use bytes::Bytes;
use minicbor::{Decode, Encode};

/// What executing has left of a key's rmws, apart from the remembered results.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct Head {
    /// As in [`super::chain::ChainState`].
    #[n(0)]
    pub executed: Vec<u64>,
    /// As in [`super::chain::ChainState`].
    #[n(1)]
    pub latest: Vec<u64>,
    /// As in [`super::chain::ChainState`].
    #[n(2)]
    pub previous: Held,
    /// As in [`super::chain::ChainState`].
    #[n(3)]
    pub newest_ms: u64,
}

/// A durable fact about one key.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    /// Its newest version: stored before any message shows its carstamp, because a quorum that shows one
    /// carstamp is the only evidence a one-round read has.
    Register(Bytes, Held),
    /// What its executed rmws have left: stored before `Executed` is sent.
    Head(Bytes, Head),
    /// A lane's last result, or that it is forgotten.
    Result(Bytes, ClientId, u32, Option<Remembered>),
    /// An instance with its promises: stored before they are sent. `None` once it is executed.
    Instance(Bytes, InstanceId, Option<Box<Instance>>),
}

impl machine::Record for Record {
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
            Self::Instance(_, id, _) => {
                buffer.extend_from_slice(&id.index.to_be_bytes());
                buffer.push(id.row.0);
            }
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
                let index = u64::from_be_bytes(take(&mut rest)?);
                let [row] = take(&mut rest)?;
                let id = InstanceId { index, row: Region(row) };
                Self::Instance(name, id, Some(Box::new(wire::decode(value).map_err(unreadable)?)))
            }
            other => return Err(format!("no record of kind {other} is known")),
        };
        record_key::end(rest)?;
        Ok(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Record as _;

    #[test]
    fn records_come_back_and_bad_ones_are_refused() {
        let id = InstanceId { index: 7, row: Region(2) };
        let records = [
            Record::Register(Bytes::from("k"), Held::default()),
            Record::Instance(Bytes::from("k"), id, Some(Box::new(Instance::unknown()))),
        ];
        for record in records {
            let (mut key, mut value) = (Vec::new(), Vec::new());
            record.encode_key(&mut key);
            assert!(record.encode_value(&mut value));
            assert_eq!(Record::decode(&key, &value).unwrap(), record);
            for cut in 0..key.len() {
                assert!(Record::decode(&key[..cut], &value).is_err());
            }
            assert!(Record::decode(&key, &value[..value.len() - 1]).is_err());
        }
    }
}
