//! Storage, locks and the state machine of a shard by themselves.

mod locks;
mod shard;
mod versions;

use super::message::{Part, Priority, Timestamp, Txn, TxnId, Write};
use crate::object::{Data, Object};
use crate::topology::ClientId;
use bytes::Bytes;

/// A transaction that is older the lower its number.
fn txn(number: u64) -> Txn {
    let id = TxnId::new(ClientId::new(1, 1, 0), number);
    Txn { id, priority: Priority { start: number, first: id }, until: 1_000 }
}

fn key(name: &str) -> Bytes {
    Bytes::from(name.to_owned())
}

fn value(text: &str) -> Object {
    Object::new(Data::Str(Bytes::from(text.to_owned())), None)
}

fn part(number: u64, writes: &[(&str, &str)], earliest_end: Timestamp) -> Part {
    let writes = writes.iter().map(|(name, text)| Write { key: key(name), value: Some(value(text)) });
    Part { txn: txn(number), reads: Vec::new(), writes: writes.collect(), term: None, earliest_end }
}
