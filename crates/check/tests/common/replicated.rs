//! A tiny replicated store that makes histories: sessions at regions, the last writer wins, and updates travel to
//! other regions late: in causal order, or in any.

use meridian_protocol::history::{Access, Ended, Event, Kind, Mode, Version, Witness};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// What kind of history to make.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) regions: usize,
    pub(crate) sessions: usize,
    pub(crate) keys: usize,
    pub(crate) operations: usize,
    /// Of a hundred operations so many are puts, of these so many deletions, and so many of unknown outcome.
    pub(crate) puts: u32,
    pub(crate) deletions: u32,
    pub(crate) unknown: u32,
    /// Of a hundred reads so many are read-only transactions of two or three keys.
    pub(crate) transactions: u32,
    /// Updates may overtake each other on their way. Witnesses have no vectors then.
    pub(crate) out_of_order: bool,
    /// Timestamps are those of one true clock, and not of Lamport's.
    pub(crate) true_time: bool,
    /// At the end all is delivered, and every session reads every key.
    pub(crate) quiet_end: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            regions: 3,
            sessions: 8,
            keys: 6,
            operations: 400,
            puts: 40,
            deletions: 0,
            unknown: 0,
            transactions: 30,
            out_of_order: false,
            true_time: false,
            quiet_end: false,
        }
    }
}

/// A history of the store.
pub(crate) fn history(seed: u64, options: &Options) -> Vec<Event> {
    let mut store = Store::new(seed, options);
    let mut turns: BinaryHeap<Reverse<(i64, usize)>> =
        (0..options.sessions).map(|session| Reverse((10 + session as i64, session))).collect();
    let mut events = Vec::with_capacity(options.operations);
    while events.len() < options.operations {
        let Some(Reverse((now, session))) = turns.pop() else { break };
        let event = store.turn(now, session, events.len() as u64 + 1);
        turns.push(Reverse((now + 8 + store.random.random_range(1..20), session)));
        events.push(event);
    }
    if options.quiet_end {
        let now = i64::from(u32::MAX);
        for session in 0..options.sessions {
            for key in 0..options.keys {
                let at = now + (key * 10) as i64;
                events.push(store.read(at, session, events.len() as u64 + 1, &[key]));
            }
        }
    }
    events
}

/// The history without what the engine says of it.
pub(crate) fn without_witness(events: &[Event]) -> Vec<Event> {
    events.iter().map(|event| Event { witness: None, ..event.clone() }).collect()
}

#[derive(Clone)]
struct Write {
    key: usize,
    value: Option<String>,
    version: Version,
    vector: Vec<u64>,
}

struct Region {
    /// For each key its newest version here.
    keys: Vec<Option<(Version, Option<String>)>>,
    /// Up to which timestamp the updates of each region are here.
    applied: Vec<u64>,
    /// Updates on their way from each region, and when they arrive.
    inbox: Vec<VecDeque<(i64, Write)>>,
}

struct Store<'a> {
    options: &'a Options,
    random: Pcg64Mcg,
    regions: Vec<Region>,
}

impl<'a> Store<'a> {
    fn new(seed: u64, options: &'a Options) -> Self {
        let region = || Region {
            keys: vec![None; options.keys],
            applied: vec![0; options.regions],
            inbox: vec![VecDeque::new(); options.regions],
        };
        let regions = (0..options.regions).map(|_| region()).collect();
        Self { options, random: Pcg64Mcg::seed_from_u64(seed), regions }
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.random.random_range(0..100) < percent
    }

    fn turn(&mut self, now: i64, session: usize, id: u64) -> Event {
        if self.chance(self.options.puts) {
            return self.put(now, session, id);
        }
        let transaction = self.chance(self.options.transactions);
        let count = if transaction { self.random.random_range(2..=3.min(self.options.keys)) } else { 1 };
        let mut keys = Vec::new();
        while keys.len() < count {
            let key = self.random.random_range(0..self.options.keys);
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        self.read(now, session, id, &keys)
    }

    fn put(&mut self, now: i64, session: usize, id: u64) -> Event {
        let home = session % self.options.regions;
        self.deliver(home, now);
        let key = self.random.random_range(0..self.options.keys);
        let value = if self.chance(self.options.deletions) { None } else { Some(format!("v{id}")) };
        let region = &mut self.regions[home];
        let lamport = region.applied.iter().copied().max().unwrap_or(0) + 1;
        let ts = if self.options.true_time { lamport.max((now as u64) << 10) } else { lamport };
        region.applied[home] = ts;
        let write = Write { key, value, version: (ts, home as u32, 0), vector: region.applied.clone() };
        region.apply(&write);
        for other in (0..self.options.regions).filter(|other| *other != home) {
            let delay = self.random.random_range(1..=60);
            self.regions[other].inbox[home].push_back((now + delay, write.clone()));
        }
        let vc = if self.options.out_of_order { Vec::new() } else { write.vector };
        let unknown = self.chance(self.options.unknown);
        let mut event = event(id, session, now, vec![access(Mode::Write, key, write.value)]);
        event.witness = Some(Witness::Put { at: write.version, vc }).filter(|_| !unknown);
        if unknown {
            (event.returned, event.outcome) = (None, Ended::Unknown);
        }
        event
    }

    fn read(&mut self, now: i64, session: usize, id: u64, keys: &[usize]) -> Event {
        let home = session % self.options.regions;
        self.deliver(home, now);
        let region = &self.regions[home];
        let seen =
            |key: &usize| region.keys[*key].clone().map_or((None, None), |(at, value)| (Some(at), value));
        let ops = keys.iter().map(|key| access(Mode::Read, *key, seen(key).1)).collect();
        let at = keys.iter().map(|key| seen(key).0).collect();
        let sv = if self.options.out_of_order { Vec::new() } else { region.applied.clone() };
        let mut event = event(id, session, now, ops);
        event.kind = if keys.len() > 1 { Kind::Rot } else { Kind::Op };
        event.witness = Some(Witness::Got { at, sv });
        event
    }

    /// Applies what has arrived at a region.
    fn deliver(&mut self, region: usize, now: i64) {
        let region = &mut self.regions[region];
        let mut progress = true;
        while progress {
            progress = false;
            for from in 0..self.options.regions {
                if self.options.out_of_order {
                    let (due, late) =
                        std::mem::take(&mut region.inbox[from]).into_iter().partition(|(due, _)| *due <= now);
                    region.inbox[from] = late;
                    let due: VecDeque<(i64, Write)> = due;
                    for (_, write) in &due {
                        region.apply(write);
                    }
                    continue;
                }
                while let Some((due, write)) = region.inbox[from].front()
                    && *due <= now
                    && region.is_ready(from, write)
                {
                    let write = write.clone();
                    region.inbox[from].pop_front();
                    region.applied[from] = write.version.0;
                    region.apply(&write);
                    progress = true;
                }
            }
        }
    }
}

impl Region {
    fn is_ready(&self, from: usize, write: &Write) -> bool {
        let here = |(region, entry): (usize, &u64)| region == from || *entry <= self.applied[region];
        write.vector.iter().enumerate().all(here)
    }

    fn apply(&mut self, write: &Write) {
        let place = &mut self.keys[write.key];
        if place.as_ref().is_none_or(|(version, _)| *version < write.version) {
            *place = Some((write.version, write.value.clone()));
        }
    }
}

fn access(mode: Mode, key: usize, value: Option<String>) -> Access {
    Access { mode, key: format!("k{key}"), value }
}

fn event(id: u64, session: usize, now: i64, ops: Vec<Access>) -> Event {
    Event {
        id,
        session: format!("p{session}"),
        service: String::new(),
        kind: Kind::Op,
        ops,
        invoke: now - 3,
        returned: Some(now + 4),
        outcome: Ended::Ok,
        level: None,
        after: Vec::new(),
        witness: None,
    }
}
