//! What a replica of a log keeps through a crash.

use super::{Accepted, Ballot, Slot};
use crate::{machine, wire};
use minicbor::{Decode, Encode};

/// A durable fact of the log, or one of the state.
#[derive(Clone, Debug, PartialEq)]
pub enum Record<C, F> {
    /// The highest ballot promised: stored before any message shows it.
    Promise(Ballot),
    /// What is accepted in a slot, stored before it is acknowledged; `None` once it is forgotten.
    Accepted(Slot, Option<Accepted<C>>),
    /// All slots up to here are in the facts.
    Applied(Slot),
    /// A part of the state as of `Applied`; stored in the same step.
    Fact(F),
}

impl<C, F> machine::Record for Record<C, F>
where
    C: wire::Wire,
    F: machine::Record,
{
    fn encode_key(&self, buffer: &mut Vec<u8>) {
        match self {
            Self::Promise(_) => buffer.push(b'p'),
            Self::Applied(_) => buffer.push(b'a'),
            Self::Accepted(slot, _) => {
                buffer.push(b'l');
                buffer.extend_from_slice(&slot.to_be_bytes());
            }
            Self::Fact(fact) => {
                buffer.push(b's');
                fact.encode_key(buffer);
            }
        }
    }

    fn encode_value(&self, buffer: &mut Vec<u8>) -> bool {
        match self {
            Self::Promise(ballot) => wire::encode(ballot, buffer),
            Self::Applied(slot) => wire::encode(slot, buffer),
            Self::Accepted(_, Some(accepted)) => wire::encode(accepted, buffer),
            Self::Accepted(_, None) => return false,
            Self::Fact(fact) => return fact.encode_value(buffer),
        }
        true
    }

    fn decode(key: &[u8], value: &[u8]) -> Result<Self, String> {
        let (tag, rest) = key.split_first().ok_or("the record's key is empty")?;
        let alone =
            |record| if rest.is_empty() { Ok(record) } else { Err("the record's key is too long".into()) };
        match tag {
            b'p' => alone(Self::Promise(read(value)?)),
            b'a' => alone(Self::Applied(read(value)?)),
            b'l' => {
                let slot = rest.try_into().map_err(|_| "the key of an entry is no slot")?;
                Ok(Self::Accepted(u64::from_be_bytes(slot), Some(read(value)?)))
            }
            b's' => F::decode(rest, value).map(Self::Fact),
            other => Err(format!("no record of kind {other} is known")),
        }
    }
}

fn read<T: for<'b> Decode<'b, ()> + Encode<()>>(value: &[u8]) -> Result<T, String> {
    wire::decode(value).map_err(|error| format!("the record is unreadable: {error}"))
}
