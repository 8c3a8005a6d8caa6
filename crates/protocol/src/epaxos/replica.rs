//! What an EPaxos replica has besides its instances: batches that fill, recoveries that wait, listings.

use super::Epaxos;
use super::instance::{InstanceId, Kind, Operation};
use super::message::Message;
use crate::instances;
use crate::machine::OpId;
use crate::topology::Address;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// One region's copy of one partition.
pub type Replica = instances::Replica<Epaxos>;

pub(super) type Out = instances::Out<Epaxos>;

/// What a replica has besides its instances.
#[derive(Clone, Debug, Default)]
pub struct Own {
    /// Operations that wait for others to share an instance with.
    pub(super) batches: BTreeMap<(Bytes, Kind), Vec<(Address, Operation)>>,
    /// Instances whose recoverer waits for others, and how many had pre-accepted them unchanged.
    pub(super) waiting: BTreeMap<(Bytes, InstanceId), u32>,
    /// Keys in the order in which something of them was committed, if they are executed in one line.
    pub(super) line: VecDeque<Bytes>,
    /// Listings that wait for updates to be executed.
    listings: Vec<Listing>,
}

/// An alarm: a batch has waited long enough.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Batch(pub(super) Bytes, pub(super) Kind);

/// A client's question for keys, and the updates that must be executed before it is answered: one that has ended may
/// be among them.
#[derive(Clone, Debug)]
struct Listing {
    client: Address,
    op: OpId,
    from: u64,
    count: u32,
    at_ms: u64,
    open: BTreeSet<(Bytes, InstanceId)>,
}

impl Replica {
    pub(super) fn on_list(
        &mut self,
        client: Address,
        (op, from): (OpId, u64),
        (count, at_ms): (u32, u64),
        out: &mut Out,
    ) {
        let mut open = BTreeSet::new();
        for (key, log) in &self.logs.iter().collect::<BTreeMap<_, _>>() {
            let updates = log.instances.iter().filter(|(id, i)| id.kind == Kind::Update && i.is_known());
            open.extend(updates.map(|(id, _)| ((*key).clone(), *id)));
        }
        self.own.listings.retain(|listing| listing.client != client || listing.op != op);
        self.own.listings.push(Listing { client, op, from, count, at_ms, open });
        self.answer_listings(out);
    }

    /// Answers the listings that need wait no longer.
    pub(super) fn answer_listings(&mut self, out: &mut Out) {
        if self.own.listings.is_empty() {
            return;
        }
        let (logs, registers) = (&self.logs, &self.registers);
        self.own.listings.retain_mut(|listing| {
            listing.open.retain(|(key, id)| logs.get(key).is_some_and(|log| !log.is_executed(*id)));
            if listing.open.is_empty() {
                let (keys, next) = registers.list(listing.from, listing.count as usize, listing.at_ms);
                out.send(
                    listing.client,
                    Message::ListReply { op: listing.op, from: listing.from, keys, next },
                );
            }
            !listing.open.is_empty()
        });
        // Those whose clients have long given up.
        let excess = self.own.listings.len().saturating_sub(LISTINGS);
        self.own.listings.drain(..excess);
    }
}

/// The most listings that wait at a time.
const LISTINGS: usize = 1_000;
