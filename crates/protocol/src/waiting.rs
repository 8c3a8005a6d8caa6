//! Who waits for items of lists on one node, in the order in which they began, and whose turn it is to try.
//!
//! # Guarantee
//! - Nobody waits while an item is there that nobody tries for: let the own region's replica hold a list of n items, then
//!   at least n of those who wait for its key, or all of them, try or are about to.
//! - Tries begin in the order in which the waiting began. Whoever comes while others wait for a key does not try it before
//!   them. Across nodes there is no order: an item is whoever's takes it first in the order of the key's steps.
//!
//! # Assumptions
//! Whoever owns this keeps every key of [`Waits::take_watches`] watched at its own region's replica from before the first
//! try on, and tells of each [`Notice`](crate::notices::Notice) by [`Waits::on_items`]. A try is a step on the key that is
//! ordered after all that the replica had taken up when the try began, so that what it misses comes with a notice. Where
//! notices may have been missed, [`Waits::look_again`] makes up for them.

use crate::clock::Micros;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

#[cfg(test)]
mod tests;

/// Somebody's wait; grows with each that begins.
pub type WaitId = u64;

/// Who waits on one node in one keyspace. `W` is how the owner knows them.
#[derive(Clone, Debug)]
pub struct Waits<W> {
    last: WaitId,
    all: BTreeMap<WaitId, Wait<W>>,
    lines: BTreeMap<Bytes, Line>,
    /// When waiting ends without an item.
    ends: BTreeSet<(Micros, WaitId)>,
    /// Who has something to do: try a key, or stop waiting.
    called: VecDeque<WaitId>,
    /// Keys to watch from now on, or no more.
    watches: Vec<(Bytes, bool)>,
}

/// Those who wait for a key, each set with the first come first.
#[derive(Clone, Debug, Default)]
struct Line {
    all: BTreeSet<WaitId>,
    /// Who neither tries it nor is going to.
    resting: BTreeSet<WaitId>,
    /// Who tries it, and is not going to try it again.
    trying: BTreeSet<WaitId>,
}

#[derive(Clone, Debug)]
struct Wait<W> {
    who: W,
    keys: Vec<Bytes>,
    /// Where each key stands first among `keys`.
    places: BTreeMap<Bytes, usize>,
    until: Option<Micros>,
    /// The keys to try, by their places.
    to_try: BTreeSet<usize>,
    /// The key that is being tried.
    trying: Option<usize>,
    over: Option<End>,
}

/// Why a wait is over without an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Its time has passed, or somebody has ended it as if it had.
    Time,
    /// Somebody has ended it with an error.
    Error,
}

/// What somebody who waits does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Try this key.
    Try(Bytes),
    /// Wait to be called.
    Wait,
    /// Stop waiting.
    Over(End),
}

impl<W> Default for Waits<W> {
    fn default() -> Self {
        Self {
            last: 0,
            all: BTreeMap::new(),
            lines: BTreeMap::new(),
            ends: BTreeSet::new(),
            called: VecDeque::new(),
            watches: Vec::new(),
        }
    }
}

impl<W: Clone> Waits<W> {
    /// How many wait.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Keys that somebody waits for.
    pub fn keys(&self) -> impl Iterator<Item = &Bytes> {
        self.lines.keys()
    }

    /// Begins to wait for an item of any of the keys, the first that has one first, until a time if there is one.
    /// [`Waits::turn`] says what to do.
    pub fn join(&mut self, who: W, keys: Vec<Bytes>, until: Option<Micros>) -> WaitId {
        self.last += 1;
        let id = self.last;
        let places: BTreeMap<Bytes, usize> =
            keys.iter().enumerate().rev().map(|(place, key)| (key.clone(), place)).collect();
        let mut to_try = BTreeSet::new();
        for (key, place) in &places {
            let line = self.lines.entry(key.clone()).or_default();
            if line.all.is_empty() {
                self.watches.push((key.clone(), true));
            }
            line.all.insert(id);
            // While somebody waits who need not try it, all items that are there have their takers.
            if line.resting.is_empty() {
                to_try.insert(*place);
            } else {
                line.resting.insert(id);
            }
        }
        self.ends.extend(until.map(|until| (until, id)));
        self.all.insert(id, Wait { who, keys, places, until, to_try, trying: None, over: None });
        id
    }

    /// What to do next; to be asked after [`Waits::join`], when called, and when a try has found nothing.
    pub fn turn(&mut self, id: WaitId) -> Turn {
        let Some(wait) = self.all.get_mut(&id) else { return Turn::Over(End::Time) };
        let tried = wait.trying.take();
        let turn = match (wait.over, wait.to_try.first().copied()) {
            (Some(over), _) => Turn::Over(over),
            (None, None) => Turn::Wait,
            (None, Some(place)) => {
                wait.to_try.remove(&place);
                wait.trying = Some(place);
                Turn::Try(wait.keys[place].clone())
            }
        };
        for place in tried.into_iter().chain(wait.trying) {
            wait.stand(id, place, &mut self.lines);
        }
        turn
    }

    /// Takes up that a key's list has so many items: as many of those who wait for it, the first come first, try.
    pub fn on_items(&mut self, key: &Bytes, items: usize) {
        let Some(line) = self.lines.get(key) else { return };
        let first: Vec<WaitId> = line.all.iter().take(items).copied().collect();
        for id in first {
            self.call(id, key);
        }
    }

    /// Lets the first of those who wait for a key try it, as a notice may have been missed.
    pub fn look_again(&mut self, key: &Bytes) {
        self.on_items(key, 1);
    }

    fn call(&mut self, id: WaitId, key: &Bytes) {
        let Some(wait) = self.all.get_mut(&id) else { return };
        let Some(place) = wait.places.get(key).copied() else { return };
        if wait.is_idle() {
            self.called.push_back(id);
        }
        wait.to_try.insert(place);
        wait.stand(id, place, &mut self.lines);
    }

    /// Ends waiting, with an item or without. Whoever came next takes over what was still to be tried.
    pub fn leave(&mut self, id: WaitId, with_item: bool) {
        let Some(wait) = self.all.remove(&id) else { return };
        if let Some(until) = wait.until {
            self.ends.remove(&(until, id));
        }
        for key in wait.places.keys() {
            let Some(line) = self.lines.get_mut(key) else { continue };
            line.all.remove(&id);
            line.resting.remove(&id);
            line.trying.remove(&id);
            if line.all.is_empty() {
                self.lines.remove(key);
                self.watches.push((key.clone(), false));
            }
        }
        let tried = wait.trying.filter(|_| !with_item);
        for place in wait.to_try.iter().copied().chain(tried) {
            self.pass_on(&wait.keys[place]);
        }
    }

    /// Calls the first who would not try the key anyway.
    fn pass_on(&mut self, key: &Bytes) {
        let Some(line) = self.lines.get(key) else { return };
        let next = [line.resting.first(), line.trying.first()].into_iter().flatten().min();
        if let Some(id) = next.copied() {
            self.call(id, key);
        }
    }

    /// Ends the wait of one who is not trying just now, or after the try; false if it was over already.
    pub fn end(&mut self, id: WaitId, how: End) -> bool {
        let Some(wait) = self.all.get_mut(&id).filter(|wait| wait.over.is_none()) else { return false };
        if wait.is_idle() {
            self.called.push_back(id);
        }
        wait.over = Some(how);
        true
    }

    /// When [`Waits::on_time`] wants to be called.
    pub fn next_end(&self) -> Option<Micros> {
        self.ends.first().map(|(at, _)| *at)
    }

    /// Ends the waits whose time has passed.
    pub fn on_time(&mut self, now: Micros) {
        while let Some((at, id)) = self.ends.first().copied()
            && at <= now
        {
            self.ends.pop_first();
            self.end(id, End::Time);
        }
    }

    /// Who has something to do, in order: ask [`Waits::turn`] for each.
    pub fn take_called(&mut self) -> Option<W> {
        while let Some(id) = self.called.pop_front() {
            if let Some(wait) = self.all.get(&id).filter(|wait| wait.trying.is_none()) {
                return Some(wait.who.clone());
            }
        }
        None
    }

    /// Keys to watch from now on (true) or no more, in order.
    pub fn take_watches(&mut self) -> Vec<(Bytes, bool)> {
        std::mem::take(&mut self.watches)
    }
}

impl<W> Wait<W> {
    /// Whether it only waits, and has not been called.
    fn is_idle(&self) -> bool {
        self.trying.is_none() && self.to_try.is_empty() && self.over.is_none()
    }

    /// Takes its place among those who wait for the key.
    fn stand(&self, id: WaitId, place: usize, lines: &mut BTreeMap<Bytes, Line>) {
        let Some(line) = lines.get_mut(&self.keys[place]) else { return };
        line.resting.remove(&id);
        line.trying.remove(&id);
        if self.to_try.contains(&place) {
            return;
        }
        let trying = self.trying == Some(place);
        let set = if trying { &mut line.trying } else { &mut line.resting };
        set.insert(id);
    }
}
