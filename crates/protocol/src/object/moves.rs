//! An item's way from one list to another, in keyspaces whose steps are of one key.
//!
//! # Guarantee
//! An item that is moved is never lost and never doubled, whoever dies when. It takes three steps: the source gives the
//! item up and keeps a [`Claim`] to it; the destination takes it in, unless it has heard of the claim's number; the source
//! drops the claim, or takes the item back if the destination has refused it. Whoever reads a claim may do the steps that
//! are left, any number of times and several of them at once. In between the item is in neither list, and never in both.
//!
//! # Why
//! A claim's number is the source's version when the item was taken, so numbers of one source only grow. Whoever brings a
//! claim brings all earlier ones that were not dropped: so the destination needs to remember one number for each source, and
//! what is below it has come. A verdict on a claim is given once and remembered while the source can ask for it.
//!
//! # Assumptions
//! A key's versions only grow, also where it was deleted. A blind write to one of the keys forgets what is remembered there,
//! as it does not read: with `SET` on the source an item under way goes the way of those that are still in the list.

#![expect(clippy::unnecessary_wraps, reason = "whoever carries out a command answers a Step")]

use super::apply::{Change, Live, Step};
use super::{Command, ITEM_OVERHEAD};
use super::{Data, End, Fault, Object, Reply, State, Version, execute, lists};
use bytes::Bytes;
use minicbor::{Decode, Encode};
use std::sync::Arc;

/// What a key remembers of moves, whether or not it holds a value.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct Moves {
    /// Items taken from here, by their destinations.
    #[n(0)]
    pub leaving: Vec<Leaving>,
    /// What has come here, by its source.
    #[n(1)]
    arrived: Vec<Arrived>,
}

/// Items on their way from one list to another, the first taken first.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct Leaving {
    /// Where they go.
    #[n(0)]
    #[cbor(with = "crate::wire::blob")]
    pub destination: Bytes,
    /// The items.
    #[n(1)]
    pub claims: Vec<Claim>,
}

/// An item on its way.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct Claim {
    /// The source's version when it was taken: the claims of one source are never of one number.
    #[n(0)]
    pub number: Version,
    /// The item.
    #[n(1)]
    #[cbor(with = "crate::wire::blob")]
    pub item: Bytes,
    /// From which end of the source it was taken.
    #[n(2)]
    pub from: End,
    /// To which end of the destination it goes.
    #[n(3)]
    pub to: End,
}

/// A claim that the destination has not taken in, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Refused {
    /// The claim's number.
    #[n(0)]
    pub number: Version,
    /// Why it was refused.
    #[n(1)]
    pub fault: Fault,
}

/// What has come from one source.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
struct Arrived {
    #[n(0)]
    #[cbor(with = "crate::wire::blob")]
    source: Bytes,
    /// The last claim heard of; earlier ones were heard of too.
    #[n(1)]
    last: Version,
    /// Those that were refused and may still be asked about.
    #[n(2)]
    refused: Vec<Refused>,
}

impl Moves {
    fn is_empty(&self) -> bool {
        self.leaving.is_empty() && self.arrived.is_empty()
    }

    /// Bytes of content, as those of a value are counted.
    pub(super) fn bytes(&self) -> usize {
        let claims = self.leaving.iter().flat_map(|leaving| &leaving.claims);
        let items: usize = claims.map(|claim| claim.item.len() + ITEM_OVERHEAD).sum();
        items + self.arrived.iter().map(|arrived| arrived.source.len() + ITEM_OVERHEAD).sum::<usize>()
    }

    fn arrived_from(&mut self, source: &Bytes) -> &mut Arrived {
        let place = match self.arrived.binary_search_by(|arrived| arrived.source.cmp(source)) {
            Ok(place) => place,
            Err(place) => {
                let new = Arrived { source: source.clone(), last: Version::default(), refused: Vec::new() };
                self.arrived.insert(place, new);
                place
            }
        };
        &mut self.arrived[place]
    }
}

impl Object {
    /// Items that have left this list and may not have come to theirs.
    pub fn leaving(&self) -> &[Leaving] {
        self.moves.as_ref().map_or(&[], |moves| &moves.leaving)
    }

    /// How many items the key's list has; 0 if it holds none.
    pub fn items(&self) -> usize {
        if let Data::List(list) = &self.data { list.len() } else { 0 }
    }
}

/// A value with what its key remembers of moves, which outlives every value.
pub(super) fn remembering(value: State, moves: Option<Arc<Moves>>) -> State {
    let moves = moves.filter(|moves| !moves.is_empty());
    match (value, moves) {
        (Some(object), moves) => Some(Object { moves, ..object }),
        (None, Some(moves)) => Some(Object { data: Data::Absent, expires_at: None, moves: Some(moves) }),
        (None, None) => None,
    }
}

/// The first step: takes an item, and answers all claims that go to the destination, its own the last.
pub(super) fn take(
    live: Live<'_>,
    moves: &mut Moves,
    (from, to): (End, End),
    destination: &Bytes,
    version: Version,
) -> Step {
    let (change, reply) = lists::pop(live, from, None)?;
    let Reply::Bulk(item) = reply else { return Ok((change, reply)) };
    let place = moves.leaving.iter().position(|leaving| leaving.destination == *destination);
    let place = place.unwrap_or_else(|| {
        moves.leaving.push(Leaving { destination: destination.clone(), claims: Vec::new() });
        moves.leaving.len() - 1
    });
    let claims = &mut moves.leaving[place].claims;
    claims.push(Claim { number: version, item, from, to });
    Ok((change, Reply::Claims(claims.clone())))
}

/// The second step: takes in what was not heard of, and answers which of the claims were refused, now or before.
pub(super) fn receive(live: Live<'_>, moves: &mut Moves, source: &Bytes, claims: &[Claim]) -> Step {
    let arrived = moves.arrived_from(source);
    // Of what is not among the claims any more nobody will ask.
    let first = claims.first().map_or(arrived.last, |claim| claim.number);
    arrived.refused.retain(|refused| refused.number >= first);
    let mut after = Change::Keep;
    for Claim { number, item, to, .. } in claims {
        if *number <= arrived.last {
            continue;
        }
        arrived.last = *number;
        let now = if let Change::To(state) = &after { state.as_ref() } else { live };
        match lists::push(now, *to, std::slice::from_ref(item)) {
            Ok((change, _)) => after = change,
            Err(fault) => arrived.refused.push(Refused { number: *number, fault }),
        }
    }
    let refused = arrived.refused.iter().filter(|refused| claims.iter().any(|c| c.number == refused.number));
    Ok((after, Reply::Refused(refused.copied().collect())))
}

/// The third step: drops the claims up to a number, and takes back the items of those that were refused. One that
/// cannot be taken back, as the key holds another type now, stays claimed.
pub(super) fn settle(
    live: Live<'_>,
    moves: &mut Moves,
    destination: &Bytes,
    last: Version,
    refused: &[Version],
) -> Step {
    let mut after = Change::Keep;
    let mut put_back = |claim: &Claim| {
        let now = if let Change::To(state) = &after { state.as_ref() } else { live };
        let pushed = lists::push(now, claim.from, std::slice::from_ref(&claim.item));
        pushed.map(|(change, _)| after = change).is_ok()
    };
    for leaving in moves.leaving.iter_mut().filter(|leaving| leaving.destination == *destination) {
        // The last taken lay deepest, and goes back first.
        let mut kept: Vec<Claim> = Vec::new();
        for claim in std::mem::take(&mut leaving.claims).into_iter().rev() {
            let ended = claim.number <= last && (!refused.contains(&claim.number) || put_back(&claim));
            if !ended {
                kept.push(claim);
            }
        }
        kept.reverse();
        leaving.claims = kept;
    }
    moves.leaving.retain(|leaving| !leaving.claims.is_empty());
    Ok((after, Reply::Ok))
}

/// `LMOVE` where a step may be of two keys: what both become, if anything changes, and the reply.
pub fn move_item(
    source: &State,
    destination: &State,
    (from, to): (End, End),
    at_ms: u64,
) -> (Option<(State, State)>, Reply) {
    let (taken, reply) = execute(source, &Command::ListPop(from, None), at_ms);
    let (Some(taken), Reply::Bulk(item)) = (taken, &reply) else { return (None, reply) };
    let (pushed, length) = execute(destination, &Command::ListPush(to, vec![item.clone()]), at_ms);
    match pushed {
        Some(pushed) => (Some((taken, pushed)), reply),
        None => (None, length),
    }
}
