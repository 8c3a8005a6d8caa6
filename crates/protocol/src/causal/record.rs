//! What a replica keeps through a crash. `D` is what versions depend on, as the engine says it.

use super::update::{Dependencies, Update};
use super::vector::{Vector, VersionId};
use crate::machine;
use crate::object::{Reply, State};
use crate::record_key::{self, take};
use crate::topology::{ClientId, Region};
use crate::wire;
use bytes::Bytes;
use minicbor::{Decode, Encode};

/// The last write of one lane of a client.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct Done {
    /// The client's number for the request; a lower one of the same lane is over.
    #[n(0)]
    pub request: u64,
    /// What it was answered.
    #[n(1)]
    pub reply: Reply,
    /// The timestamp of the version.
    #[n(2)]
    pub ts: u64,
}

/// A durable fact.
#[derive(Clone, Debug, PartialEq)]
pub enum Record<D> {
    /// A version: stored before its write is answered, and before another region is told that it has come here.
    /// `None` when it is forgotten.
    Version(Bytes, VersionId, Option<Box<(D, State)>>),
    /// The version has come from another region and nobody may see it yet; false when all may (CC-LO).
    Pending(VersionId, bool),
    /// The last write of a lane, or that it is forgotten: stored with the version.
    Lane(ClientId, u32, Option<Done>),
    /// How far a region's stream has come: stored with its versions.
    Applied(Region, u64),
    /// The clock has shown nothing above this.
    Clock(u64),
    /// What no snapshot may be below, because versions of that time are forgotten: stored before they are.
    Horizon(Vector),
}

impl<D: Dependencies> Record<D> {
    /// The record of a version.
    pub fn of(update: &Update<D>) -> Self {
        let content = Box::new((update.dependencies.clone(), update.value.clone()));
        Self::Version(update.key.clone(), update.id, Some(content))
    }
}

const VERSION: u8 = b'v';
const PENDING: u8 = b'p';
const LANE: u8 = b'd';
const APPLIED: u8 = b'a';
const CLOCK: u8 = b'c';
const HORIZON: u8 = b'h';

fn begin(buffer: &mut Vec<u8>, tag: u8, key: &[u8], id: VersionId) {
    record_key::begin(buffer, tag, key);
    buffer.extend_from_slice(&id.ts.to_be_bytes());
    buffer.push(id.region.0);
}

fn take_id(rest: &mut &[u8]) -> Result<VersionId, String> {
    let ts = u64::from_be_bytes(take(rest)?);
    let [region] = take(rest)?;
    Ok(VersionId { ts, region: Region(region) })
}

impl<D: Dependencies> machine::Record for Record<D> {
    fn encode_key(&self, buffer: &mut Vec<u8>) {
        match self {
            Self::Version(key, id, _) => begin(buffer, VERSION, key, *id),
            Self::Pending(id, _) => begin(buffer, PENDING, &[], *id),
            Self::Lane(client, lane, _) => {
                record_key::begin(buffer, LANE, &[]);
                buffer.extend_from_slice(&client.0.to_be_bytes());
                buffer.extend_from_slice(&lane.to_be_bytes());
            }
            Self::Applied(region, _) => {
                record_key::begin(buffer, APPLIED, &[]);
                buffer.push(region.0);
            }
            Self::Clock(_) => record_key::begin(buffer, CLOCK, &[]),
            Self::Horizon(_) => record_key::begin(buffer, HORIZON, &[]),
        }
    }

    fn encode_value(&self, buffer: &mut Vec<u8>) -> bool {
        match self {
            Self::Version(_, _, Some(content)) => wire::encode(&**content, buffer),
            Self::Pending(_, true) => wire::encode(&true, buffer),
            Self::Lane(_, _, Some(done)) => wire::encode(done, buffer),
            Self::Applied(_, at) | Self::Clock(at) => wire::encode(at, buffer),
            Self::Horizon(vector) => wire::encode(vector, buffer),
            Self::Version(.., None) | Self::Pending(_, false) | Self::Lane(.., None) => return false,
        }
        true
    }

    fn decode(key: &[u8], value: &[u8]) -> Result<Self, String> {
        let mut rest = key;
        let (tag, name) = record_key::take_name(&mut rest)?;
        let unreadable = |e: minicbor::decode::Error| format!("the record is unreadable: {e}");
        let record = match tag {
            VERSION => {
                let id = take_id(&mut rest)?;
                Self::Version(name, id, Some(Box::new(wire::decode(value).map_err(unreadable)?)))
            }
            PENDING => Self::Pending(take_id(&mut rest)?, wire::decode(value).map_err(unreadable)?),
            LANE => {
                let client = ClientId(u64::from_be_bytes(take(&mut rest)?));
                let lane = u32::from_be_bytes(take(&mut rest)?);
                Self::Lane(client, lane, Some(wire::decode(value).map_err(unreadable)?))
            }
            APPLIED => {
                let [region] = take(&mut rest)?;
                Self::Applied(Region(region), wire::decode(value).map_err(unreadable)?)
            }
            CLOCK => Self::Clock(wire::decode(value).map_err(unreadable)?),
            HORIZON => Self::Horizon(wire::decode(value).map_err(unreadable)?),
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
        let id = VersionId { ts: 7, region: Region(2) };
        let content = Box::new((Vector::zero(3).with(Region(2), 7), None));
        let records = [
            Record::Version(Bytes::from("k"), id, Some(content)),
            Record::Pending(id, true),
            Record::Lane(ClientId::new(1, 2, 3), 4, Some(Done { request: 5, reply: Reply::Ok, ts: 7 })),
            Record::Applied(Region(1), 6),
            Record::Clock(8),
            Record::Horizon(Vector::zero(3)),
        ];
        let mut keys = std::collections::BTreeSet::new();
        for record in records {
            let (mut key, mut value) = (Vec::new(), Vec::new());
            record.encode_key(&mut key);
            assert!(record.encode_value(&mut value));
            assert_eq!(Record::decode(&key, &value).unwrap(), record);
            for cut in 0..key.len() {
                assert!(Record::<Vector>::decode(&key[..cut], &value).is_err());
            }
            assert!(Record::<Vector>::decode(&key, &value[..value.len() - 1]).is_err());
            assert!(keys.insert(key), "two facts under one key");
        }
    }
}
