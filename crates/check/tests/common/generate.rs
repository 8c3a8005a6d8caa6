//! Long histories that obey a model by construction: updates stand in one order, the order of their commit
//! points, and each read at a place in it that the model allows.

use meridian_protocol::history::{Access, Ended, Event, Kind, Mode, Stamped, Witness};
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Where in the order of updates a read may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freshness {
    /// At its own point in time: linearizable, strictly serializable.
    Current,
    /// Not before its session, nor before an update of one of its keys that returned before its invocation: RSC, RSS.
    Regular,
    /// Not before its session: sequential, process-ordered serializable.
    Session,
    /// Anywhere: serializable.
    Any,
}

/// What a history is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Operations.
    pub(crate) operations: usize,
    /// Sessions.
    pub(crate) sessions: usize,
    /// Keys.
    pub(crate) keys: usize,
    /// Where reads stand.
    pub(crate) freshness: Freshness,
    /// Whether operations are transactions on up to three keys, with timestamps as witnesses; otherwise they touch
    /// one key and carry carstamps.
    pub(crate) transactions: bool,
    /// Share of operations, in per cent, whose outcome is unknown.
    pub(crate) unknown: u32,
    /// Share of operations, in per cent, that learn by a message of one that has ended.
    pub(crate) messages: u32,
    /// Share of updates, in per cent, that delete their keys.
    pub(crate) deletions: u32,
    /// Share of updates that read, in per cent, that leave what they saw.
    pub(crate) idle: u32,
}

impl Shape {
    /// Operations on single keys without anything unknown.
    pub(crate) fn plain(operations: usize, sessions: usize, keys: usize, freshness: Freshness) -> Self {
        Self {
            operations,
            sessions,
            keys,
            freshness,
            transactions: false,
            unknown: 0,
            messages: 0,
            deletions: 0,
            idle: 0,
        }
    }
}

/// A version of a key.
#[derive(Clone, Copy)]
struct Version {
    /// Its update's place in the order of all updates, from 1.
    place: u64,
    returned: i64,
    stamp: (u64, u64, u32),
    /// The id of the update that wrote the value; `None` if the key is absent.
    value: Option<u64>,
}

struct Session {
    place: u64,
    returned: i64,
}

struct Generator {
    shape: Shape,
    random: Pcg64Mcg,
    sessions: Vec<Session>,
    /// Versions of each key in order.
    versions: Vec<Vec<Version>>,
    place: u64,
    /// Ids and places of the latest operations that ended, with their returns.
    ended: Vec<(u64, u64, i64)>,
    events: Vec<Event>,
}

/// A history of that shape.
pub(crate) fn history(seed: u64, shape: Shape) -> Vec<Event> {
    let mut generator = Generator {
        shape,
        random: Pcg64Mcg::seed_from_u64(seed),
        sessions: (0..shape.sessions).map(|_| Session { place: 0, returned: 0 }).collect(),
        versions: vec![Vec::new(); shape.keys],
        place: 0,
        ended: Vec::new(),
        events: Vec::with_capacity(shape.operations),
    };
    // Every session's next operation, by the point in time at which it takes effect.
    let mut next = BinaryHeap::new();
    for session in 0..shape.sessions {
        let (invoke, point) = generator.times(session);
        next.push(Reverse((point, session, invoke)));
    }
    while generator.events.len() < shape.operations {
        let Some(Reverse((point, session, invoke))) = next.pop() else { break };
        generator.operation(session, invoke, point);
        let (invoke, point) = generator.times(session);
        next.push(Reverse((point, session, invoke)));
    }
    generator.events
}

/// The same history without witnesses.
pub(crate) fn unwitnessed(mut events: Vec<Event>) -> Vec<Event> {
    for event in &mut events {
        event.witness = None;
    }
    events
}

impl Generator {
    fn times(&mut self, session: usize) -> (i64, i64) {
        let invoke = self.sessions[session].returned + self.random.random_range(1..20);
        (invoke, invoke + self.random.random_range(1..60))
    }

    fn operation(&mut self, session: usize, invoke: i64, point: i64) {
        let id = self.events.len() as u64 + 1;
        let returned = point + self.random.random_range(1..60);
        let unknown = self.random.random_range(0..100) < self.shape.unknown;
        let after = self.message(session, invoke);
        let keys = self.keys();
        let kind = self.random.random_range(0..10);
        let (reads, writes) = (!(5..8).contains(&kind), kind >= 5);
        let place = if writes {
            self.place += 1;
            self.place
        } else {
            self.read_place(session, invoke, &keys)
        };
        let idle = reads && writes && self.chance(self.shape.idle);
        let left = (!(writes && self.chance(self.shape.deletions))).then_some(id);
        let mut ops = Vec::new();
        let mut seen = None;
        let mut saw = Vec::new();
        let mut values = Vec::new();
        for &key in keys.iter().filter(|_| reads) {
            let version = self.versions[key].iter().rev().find(|version| version.place <= place).copied();
            seen = version.map(|version| version.stamp);
            values.push(version.and_then(|version| version.value));
            ops.push(access(Mode::Read, key, version.and_then(|version| version.value)));
            // Some engines tell what each transaction saw, others do not.
            if id.is_multiple_of(2) {
                saw.push((ops[ops.len() - 1].key.clone(), version.map(|version| version.place)));
            }
        }
        let stamp = match seen {
            Some((ts, client, rmwc)) if reads && writes => (ts, client, rmwc + 1),
            None if reads && writes => (0, 0, 1),
            _ if writes => (place, session as u64 + 1, 0),
            seen => seen.unwrap_or((0, 0, 0)),
        };
        for (index, &key) in keys.iter().enumerate().filter(|_| writes) {
            let end = if unknown { i64::MAX } else { returned };
            let value = if idle { values[index] } else { left };
            self.versions[key].push(Version { place, returned: end, stamp, value });
            ops.push(access(Mode::Write, key, value));
        }
        let witness = match (self.shape.transactions, writes) {
            (false, _) => Witness::Cs(stamp),
            (true, true) => Witness::Tc(Stamped { at: place, saw }),
            (true, false) => Witness::Snap(Stamped { at: place, saw }),
        };
        let moved = &mut self.sessions[session];
        moved.returned = returned;
        if !unknown {
            moved.place = moved.place.max(place);
            self.ended.push((id, place, returned));
        }
        self.events.push(Event {
            id,
            session: format!("s{session}"),
            service: String::new(),
            kind: if self.shape.transactions && !writes { Kind::Ro } else { Kind::Op },
            ops,
            invoke,
            returned: (!unknown).then_some(returned),
            outcome: if unknown { Ended::Unknown } else { Ended::Ok },
            level: None,
            after,
            witness: (!unknown).then_some(witness),
        });
    }

    /// By chance, so many times in a hundred. Nothing is drawn for what never happens, so that old seeds stay.
    fn chance(&mut self, percent: u32) -> bool {
        percent > 0 && self.random.random_range(0..100) < percent
    }

    /// Sometimes the result of an operation that had ended reaches the session first.
    fn message(&mut self, session: usize, invoke: i64) -> Vec<u64> {
        if self.random.random_range(0..100) >= self.shape.messages {
            return Vec::new();
        }
        let back = self.random.random_range(1..20);
        match self.ended.iter().rev().nth(back).copied().filter(|(_, _, returned)| *returned < invoke) {
            Some((id, place, _)) => {
                self.sessions[session].place = self.sessions[session].place.max(place);
                vec![id]
            }
            None => Vec::new(),
        }
    }

    fn keys(&mut self) -> Vec<usize> {
        let count = if self.shape.transactions { self.random.random_range(1..=3) } else { 1 };
        let mut keys = Vec::new();
        for _ in 0..count {
            let key = self.random.random_range(0..self.shape.keys);
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        keys
    }

    fn read_place(&mut self, session: usize, invoke: i64, keys: &[usize]) -> u64 {
        let floor = match self.shape.freshness {
            Freshness::Current => self.place,
            Freshness::Any => 0,
            Freshness::Session => self.sessions[session].place,
            Freshness::Regular => {
                let completed = keys.iter().flat_map(|key| {
                    let versions = self.versions[*key].iter().rev().take(4 * self.shape.sessions);
                    versions.filter(|version| version.returned < invoke).map(|version| version.place)
                });
                completed.max().unwrap_or(0).max(self.sessions[session].place)
            }
        };
        // Mostly as fresh as can be, and now and then as stale.
        let floor = floor.min(self.place);
        if self.random.random_bool(0.5) { self.place } else { self.random.random_range(floor..=self.place) }
    }
}

fn access(mode: Mode, key: usize, value: Option<u64>) -> Access {
    Access { mode, key: format!("k{key}"), value: value.map(|id| id.to_string()) }
}

/// One of `items`, by chance.
pub(crate) fn any<'a, T>(random: &mut impl Rng, items: &'a [T]) -> Option<&'a T> {
    if items.is_empty() { None } else { Some(&items[random.random_range(0..items.len())]) }
}
