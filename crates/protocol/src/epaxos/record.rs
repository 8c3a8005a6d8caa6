//! What an EPaxos replica keeps through a crash.

use super::instance::{Instance, InstanceId, Kind};
use super::log::Head;
use crate::gryff::carstamp::Held;
use crate::record_key::{self, take};
use crate::results::Remembered;
use crate::topology::{ClientId, Region};
use crate::{machine, wire};
use bytes::Bytes;

/// A durable fact about one key.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    /// Its value, as the last update executed has left it.
    Value(Bytes, Held),
    /// What else executing has left.
    Head(Bytes, Head),
    /// A lane's last result, or that it is forgotten.
    Result(Bytes, ClientId, u32, Option<Remembered>),
    /// An instance: stored before the proposal, pre-accept, promise or acceptance that it makes is sent, so that an
    /// index is never used twice either. `None` once it is executed.
    Instance(Bytes, InstanceId, Option<Box<Instance>>),
}

impl machine::Record for Record {
    fn encode_key(&self, buffer: &mut Vec<u8>) {
        match self {
            Self::Value(key, _) => record_key::begin(buffer, b'v', key),
            Self::Head(key, _) => record_key::begin(buffer, b'h', key),
            Self::Result(key, client, lane, _) => {
                record_key::begin(buffer, b'd', key);
                buffer.extend_from_slice(&client.0.to_be_bytes());
                buffer.extend_from_slice(&lane.to_be_bytes());
            }
            Self::Instance(key, id, _) => {
                record_key::begin(buffer, b'i', key);
                buffer.push(if id.kind == Kind::Update { b'u' } else { b'r' });
                buffer.push(id.row.0);
                buffer.extend_from_slice(&id.index.to_be_bytes());
            }
        }
    }

    fn encode_value(&self, buffer: &mut Vec<u8>) -> bool {
        match self {
            Self::Value(_, held) => wire::encode(held, buffer),
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
            b'v' => Self::Value(name, wire::decode(value).map_err(unreadable)?),
            b'h' => Self::Head(name, wire::decode(value).map_err(unreadable)?),
            b'd' => {
                let client = ClientId(u64::from_be_bytes(take(&mut rest)?));
                let lane = u32::from_be_bytes(take(&mut rest)?);
                Self::Result(name, client, lane, Some(wire::decode(value).map_err(unreadable)?))
            }
            b'i' => {
                let [kind, row] = take(&mut rest)?;
                let kind = match kind {
                    b'u' => Kind::Update,
                    b'r' => Kind::Read,
                    other => return Err(format!("no instance is of kind {other}")),
                };
                let id = InstanceId { kind, row: Region(row), index: u64::from_be_bytes(take(&mut rest)?) };
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
        let id = InstanceId { kind: Kind::Read, row: Region(2), index: 7 };
        let beyond = Head { beyond: [id].into(), executed: vec![1, 2], ..Head::default() };
        let records = [
            Record::Value(Bytes::from("k"), Held::default()),
            Record::Head(Bytes::from("k"), beyond),
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
