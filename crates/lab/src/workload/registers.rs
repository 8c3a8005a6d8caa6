//! Operations on one key each: the Gryff, RSS/RSC and TCC papers' mixes, and YCSB's core workloads.

use super::{Drawer, Operation, read, rmw, value_of, write};
use crate::definition::{self, Keys, YcsbMix, level};
use bytes::Bytes;
use meridian_protocol::machine::{Level, Request};
use meridian_protocol::object::Action;
use rand::RngExt;
use rand_distr::{Distribution, Zipf};

/// How many keys a client that shares none has to itself. It takes them in turn: the artifact of the Gryff paper uses each
/// of them once, which no store could hold for long.
const OWN_KEYS: u64 = 64;

/// YCSB's skew.
const YCSB_THETA: f64 = 0.99;

#[derive(Debug)]
pub(crate) struct Registers {
    writes: f64,
    rmws: f64,
    keys: Chooser,
    value: Bytes,
    read_level: Level,
    write_level: Level,
    remote: f64,
    regions: u8,
}

#[derive(Debug)]
enum Chooser {
    Conflict(f64),
    Uniform(u64),
    Zipf(Zipf<f64>),
}

impl Registers {
    pub(super) fn new(definition: &definition::Registers, regions: u8) -> Self {
        let named = |name: &str| level(name).expect("definitions are checked before they are run");
        Self {
            writes: definition.writes / 100.0,
            rmws: definition.rmws / 100.0,
            keys: Chooser::new(&definition.keys),
            value: value_of(definition.value_bytes),
            read_level: named(&definition.read_level),
            write_level: named(&definition.write_level),
            remote: if regions > 1 { definition.remote / 100.0 } else { 0.0 },
            regions,
        }
    }

    pub(super) fn draw(&mut self, drawer: &mut Drawer<'_>) -> Operation {
        let choice: f64 = drawer.random.random();
        let key = self.keys.draw(drawer);
        let away = self.away(drawer);
        let (label, action, level) = if choice < self.writes {
            ("write", write(&self.value), self.write_level)
        } else if choice < self.writes + self.rmws {
            ("rmw", rmw(&self.value), self.write_level)
        } else {
            ("read", read(), self.read_level)
        };
        Operation { away, ..act(label, key, action, level, drawer.at_ms) }
    }

    fn away(&self, drawer: &mut Drawer<'_>) -> u8 {
        if self.remote > 0.0 && drawer.random.random_bool(self.remote) {
            drawer.random.random_range(1..self.regions)
        } else {
            0
        }
    }
}

fn act(label: &'static str, key: Bytes, action: Action, level: Level, at_ms: u64) -> Operation {
    Operation { label, request: Request::Act { key, action, at_ms, level }, away: 0 }
}

impl Chooser {
    fn new(keys: &Keys) -> Self {
        match keys {
            Keys::Conflict(percent) => Self::Conflict(percent / 100.0),
            Keys::Uniform(count) => Self::Uniform(*count),
            Keys::Zipf(zipf) => Self::Zipf(zipf_of(zipf.keys, zipf.theta)),
        }
    }

    fn draw(&self, drawer: &mut Drawer<'_>) -> Bytes {
        match self {
            Self::Conflict(share) if drawer.random.random_bool(*share) => Bytes::from_static(b"shared"),
            Self::Conflict(_) => Bytes::from(format!("own{}.{}", drawer.client, drawer.drawn % OWN_KEYS)),
            Self::Uniform(count) => numbered(drawer.random.random_range(0..*count)),
            Self::Zipf(zipf) => numbered(zipf.sample(drawer.random) as u64),
        }
    }
}

/// Zipf's law over so many keys; ranks count from 1.
pub(super) fn zipf_of(keys: u64, theta: f64) -> Zipf<f64> {
    Zipf::new(keys as f64, theta).expect("definitions are checked before they are run")
}

/// The key of a number.
pub(super) fn numbered(number: u64) -> Bytes {
    Bytes::from(format!("k{number}"))
}

#[derive(Debug)]
pub(crate) struct Ycsb {
    mix: YcsbMix,
    /// How many keys there are, those inserted meanwhile included.
    keys: u64,
    zipf: Zipf<f64>,
    value: Bytes,
}

impl Ycsb {
    pub(super) fn new(definition: &definition::Ycsb) -> Self {
        Self {
            mix: definition.mix,
            keys: definition.keys,
            zipf: zipf_of(definition.keys, YCSB_THETA),
            value: value_of(definition.value_bytes),
        }
    }

    pub(super) fn draw(&mut self, drawer: &mut Drawer<'_>) -> Operation {
        let reads = match self.mix {
            YcsbMix::A | YcsbMix::F => 0.5,
            YcsbMix::B | YcsbMix::D => 0.95,
            YcsbMix::C => 1.0,
        };
        let is_read = drawer.random.random_bool(reads);
        let rank = self.zipf.sample(drawer.random) as u64;
        let (label, number, action) = match (is_read, self.mix) {
            // The newest keys are the most popular.
            (true, YcsbMix::D) => ("read", self.keys - rank, read()),
            (true, _) => ("read", rank, read()),
            (false, YcsbMix::D) => {
                self.keys += 1;
                ("write", self.keys - 1, write(&self.value))
            }
            (false, YcsbMix::F) => ("rmw", rank, rmw(&self.value)),
            (false, _) => ("write", rank, write(&self.value)),
        };
        act(label, numbered(number), action, Level::default(), drawer.at_ms)
    }
}
