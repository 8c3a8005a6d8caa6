//! Carrying out the three steps of a move from list to list ([`crate::object::Moves`]), and finishing those that others have
//! left half done.

use crate::clock::Micros;
use crate::notices::Notice;
use crate::object::{Claim, Command, End, Leaving, Reply, Version};
use bytes::Bytes;
use std::collections::BTreeMap;

#[cfg(test)]
mod tests;

/// One move under way.
#[derive(Clone, Debug)]
pub struct Transfer {
    source: Bytes,
    destination: Bytes,
    stage: Stage,
}

#[derive(Clone, Debug)]
enum Stage {
    /// The source was asked for an item.
    Take,
    /// The destination was brought the claims; the last is the one that is asked for, if one is.
    Bring { claims: Vec<Claim>, asked: bool },
    /// The source was told what came of it; this is to be answered then.
    Settle(Reply),
}

/// What there is to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Ask this of a key, and go on with the reply.
    Ask(Bytes, Command),
    /// The move has ended with this reply: an item, nothing, or a fault. What is left is to be asked as well, and nobody
    /// need wait for it.
    Ended(Reply, Option<(Bytes, Command)>),
}

impl Transfer {
    /// Begins to move an item between two different lists; first ask this of the source.
    pub fn begin(source: Bytes, destination: Bytes, (from, to): (End, End)) -> (Self, Command) {
        let command = Command::ListMove(from, to, destination.clone());
        (Self { source, destination, stage: Stage::Take }, command)
    }

    /// Takes up what others have left; first ask this of [`Transfer::destination`].
    pub fn resume(source: Bytes, leaving: Leaving) -> (Self, Command) {
        let Leaving { destination, claims } = leaving;
        let command = Command::ListReceive(source.clone(), claims.clone());
        (Self { source, destination, stage: Stage::Bring { claims, asked: false } }, command)
    }

    /// Where the item goes.
    pub fn destination(&self) -> &Bytes {
        &self.destination
    }

    /// Whether the item has left the source and is not known to have come anywhere.
    pub fn is_under_way(&self) -> bool {
        !matches!(self.stage, Stage::Take)
    }

    /// Goes on with the reply to what was asked.
    pub fn on_reply(&mut self, reply: Reply) -> Next {
        match (std::mem::replace(&mut self.stage, Stage::Take), reply) {
            (Stage::Take, Reply::Claims(claims)) => {
                let command = Command::ListReceive(self.source.clone(), claims.clone());
                self.stage = Stage::Bring { claims, asked: true };
                Next::Ask(self.destination.clone(), command)
            }
            (Stage::Bring { claims, asked }, Reply::Refused(refused)) => {
                let Some(own) = claims.last() else { return Next::Ended(Reply::Nil, None) };
                let numbers: Vec<Version> = refused.iter().map(|refused| refused.number).collect();
                let settle = Command::ListSettle(self.destination.clone(), own.number, numbers);
                let fault = refused.iter().find(|refused| refused.number == own.number);
                let reply = fault.map_or_else(|| Reply::Bulk(own.item.clone()), |f| Reply::Error(f.fault));
                if asked && fault.is_none() {
                    return Next::Ended(reply, Some((self.source.clone(), settle)));
                }
                // The item is back in the source before anybody is told that it is.
                self.stage = Stage::Settle(reply);
                Next::Ask(self.source.clone(), settle)
            }
            // What came of it was known before; or there was nothing to take.
            (Stage::Settle(reply), _) | (_, reply) => Next::Ended(reply, None),
        }
    }
}

/// Finds moves that have stood still in what the own region's replicas tell, and gives them out to be finished.
#[derive(Clone, Debug)]
pub struct Mender {
    patience: Micros,
    /// By source and destination, what is under way, and since when its first claim is.
    seen: BTreeMap<(Bytes, Bytes), (Micros, Vec<Claim>)>,
}

impl Mender {
    /// One that takes up what has stood still for so long. Several may take up the same.
    pub fn new(patience: Micros) -> Self {
        Self { patience, seen: BTreeMap::new() }
    }

    /// Takes up a source's new value.
    pub fn on_notice(&mut self, now: Micros, notice: &Notice) {
        let of_source = (notice.key.clone(), Bytes::new())..;
        let known = self.seen.range(of_source).take_while(|((source, _), _)| *source == notice.key);
        let known: Vec<(Bytes, Bytes)> = known.map(|(place, _)| place.clone()).collect();
        let mut before = BTreeMap::new();
        for place in known {
            if let Some((since, claims)) = self.seen.remove(&place) {
                before.insert(place.1, (since, claims.first().map(|claim| claim.number)));
            }
        }
        for Leaving { destination, claims } in &notice.leaving {
            let first = claims.first().map(|claim| claim.number);
            let same = before.get(destination).filter(|(_, number)| *number == first);
            let since = same.map_or(now, |(since, _)| *since);
            self.seen.insert((notice.key.clone(), destination.clone()), (since, claims.clone()));
        }
    }

    /// When [`Mender::take_due`] has something to give.
    pub fn next_due(&self) -> Option<Micros> {
        self.seen.values().map(|(since, _)| since + self.patience).min()
    }

    /// Moves to finish, each with its source. What is not finished is given out again later.
    pub fn take_due(&mut self, now: Micros) -> Vec<(Bytes, Leaving)> {
        let mut due = Vec::new();
        for ((source, destination), (since, claims)) in &mut self.seen {
            if *since + self.patience <= now {
                *since = now;
                due.push((
                    source.clone(),
                    Leaving { destination: destination.clone(), claims: claims.clone() },
                ));
            }
        }
        due
    }
}
