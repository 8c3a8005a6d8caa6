//! Faults at random times: what goes wrong during a run's first phase, and how everything heals.

use crate::options::{Clocks, Options};
use crate::world::{Weather, World};
use meridian_protocol::clock::Micros;
use meridian_protocol::machine::Engine;
use meridian_protocol::topology::Region;
use rand::{RngExt, seq::SliceRandom};
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeMap;

/// Every kind of fault that is switched on happens for the first time before this much time has passed.
const FIRST_WITHIN: Micros = 3_000_000;

/// Faults, one after another.
#[derive(Debug)]
pub(crate) struct Storm {
    /// The mean time from one fault of a kind to the next.
    between: f64,
    random: Pcg64Mcg,
    coming: Vec<Gust>,
    happened: BTreeMap<&'static str, u64>,
    /// Nodes that never come back.
    lost: Vec<usize>,
    clocks: Clocks,
    clock_error: Micros,
    over: bool,
}

/// A change of the world that is due at some time.
#[derive(Clone, Debug)]
enum Gust {
    Cut,
    Mend,
    Pause,
    Resume(usize),
    Crash,
    Restart(usize),
    Skew,
    LoseRegions(usize),
}

impl Storm {
    /// Begins: sets the weather and plans the first fault of each kind. Its reminders in the world carry tokens
    /// counted from 0.
    pub(crate) fn begin<E: Engine>(world: &mut World<E>, options: &Options, mut random: Pcg64Mcg) -> Self {
        let &Options { faults, calm, lost_regions, jitter, clocks, clock_error, .. } = options;
        let weather = Weather {
            loss: share(&mut random, faults.loss, 0.05),
            duplicate: share(&mut random, faults.duplicate, 0.05),
            reorder: share(&mut random, faults.reorder, 0.15),
            longest_delay: random.random_range(10_000..500_000),
            jitter,
        };
        world.set_weather(weather);
        let between = f64::max(random.random_range(1_000_000.0..6_000_000.0), calm as f64);
        let mut storm = Self {
            between,
            random,
            coming: Vec::new(),
            happened: BTreeMap::new(),
            lost: Vec::new(),
            clocks,
            clock_error,
            over: false,
        };
        storm.bound_clocks(world);
        let kinds = [
            (faults.partition, Gust::Cut),
            (faults.pause, Gust::Pause),
            (faults.crash, Gust::Crash),
            (faults.skew, Gust::Skew),
            (lost_regions > 0, Gust::LoseRegions(lost_regions)),
        ];
        for (_, gust) in kinds.into_iter().filter(|(on, _)| *on) {
            let after = storm.random.random_range(100_000..FIRST_WITHIN);
            storm.plan(world, after, gust);
        }
        storm
    }

    /// A reminder of the world: the change that was planned under `token` is due. Answers which nodes lost
    /// their clients and which came up.
    pub(crate) fn strike<E: Engine>(&mut self, world: &mut World<E>, token: usize) -> Changes {
        let mut changes = Changes::default();
        if self.over {
            return changes;
        }
        match self.coming[token].clone() {
            Gust::Cut => {
                self.cut(world);
                self.again(world, Gust::Cut);
            }
            Gust::Mend => world.mend(),
            Gust::Pause => {
                self.pause(world);
                self.again(world, Gust::Pause);
            }
            Gust::Resume(node) => {
                if world.is_up(node) {
                    world.resume(node);
                    changes.up.push(node);
                }
            }
            Gust::Crash => {
                changes.down = self.crash(world);
                self.again(world, Gust::Crash);
            }
            Gust::Restart(node) => {
                if !world.is_up(node) && !self.lost.contains(&node) {
                    world.start(node);
                    changes.up.push(node);
                }
            }
            Gust::Skew => {
                self.skew(world);
                self.again(world, Gust::Skew);
            }
            Gust::LoseRegions(count) => changes.down = self.lose_regions(world, count),
        }
        self.hint(world);
        changes
    }

    /// Ends: everything heals but what was lost for good. Answers which nodes came up or go on.
    pub(crate) fn end<E: Engine>(&mut self, world: &mut World<E>) -> Vec<usize> {
        self.over = true;
        self.happened_to_messages(world);
        world.set_weather(Weather::default());
        world.mend();
        self.bound_clocks(world);
        let nodes = (0..world.shape().nodes()).filter(|node| !self.lost.contains(node));
        let mut up = Vec::new();
        for node in nodes {
            if !world.is_up(node) {
                world.start(node);
                up.push(node);
            } else if !world.is_ready(node) {
                world.resume(node);
                up.push(node);
            }
        }
        for node in 0..world.shape().nodes() {
            if world.is_up(node) {
                world.hint_regions(node, world.time() + 100_000);
            }
        }
        up
    }

    /// Faults that happened, by kind.
    pub(crate) fn happened(&self) -> &BTreeMap<&'static str, u64> {
        &self.happened
    }

    fn happened_to_messages<E: Engine>(&mut self, world: &World<E>) {
        let mishaps = world.mishaps();
        let counts = [("loss", mishaps.lost), ("duplicate", mishaps.doubled), ("reorder", mishaps.reordered)];
        self.happened.extend(counts.into_iter().filter(|(_, count)| *count > 0));
    }

    fn plan<E: Engine>(&mut self, world: &mut World<E>, after: Micros, gust: Gust) {
        self.coming.push(gust);
        world.remind(world.time() + after, (self.coming.len() - 1) as u64);
    }

    fn again<E: Engine>(&mut self, world: &mut World<E>, gust: Gust) {
        // Exponential, as if by chance at any moment.
        let after = -self.random.random::<f64>().max(1e-9).ln() * self.between;
        self.plan(world, after as Micros + 1_000, gust);
    }

    fn count(&mut self, kind: &'static str) {
        *self.happened.entry(kind).or_default() += 1;
    }

    /// Cuts a random set of nodes, or a region, off from the others; one time in four only what they send.
    fn cut<E: Engine>(&mut self, world: &mut World<E>) {
        let nodes = world.shape().nodes();
        let one_region = Region(self.random.random_range(0..world.shape().rtt.regions()));
        let by_region = self.random.random_bool(0.5);
        let inside: Vec<bool> = (0..nodes)
            .map(|node| {
                if by_region {
                    world.shape().region_of(node) == one_region
                } else {
                    self.random.random_bool(0.4)
                }
            })
            .collect();
        let both_ways = self.random.random_bool(0.75);
        for from in 0..nodes {
            for to in 0..nodes {
                if inside[from] && !inside[to] {
                    world.set_cut(from, to, true);
                    world.set_cut(to, from, both_ways);
                }
            }
        }
        self.count("partition");
        let lasts = self.random.random_range(100_000..4_000_000);
        self.plan(world, lasts, Gust::Mend);
    }

    fn pause<E: Engine>(&mut self, world: &mut World<E>) {
        let node = self.random.random_range(0..world.shape().nodes());
        if !world.is_ready(node) {
            return;
        }
        world.pause(node);
        self.count("pause");
        let lasts = self.random.random_range(50_000..3_000_000);
        self.plan(world, lasts, Gust::Resume(node));
    }

    /// Crashes one node, or all of a region, or sometimes everything.
    fn crash<E: Engine>(&mut self, world: &mut World<E>) -> Vec<usize> {
        let nodes = world.shape().nodes();
        let region = Region(self.random.random_range(0..world.shape().rtt.regions()));
        let one = self.random.random_range(0..nodes);
        let kind = self.random.random_range(0..10);
        let chosen: Vec<usize> = (0..nodes)
            .filter(|&node| match kind {
                0 => true,
                1..4 => world.shape().region_of(node) == region,
                _ => node == one,
            })
            .filter(|&node| world.is_up(node))
            .collect();
        for &node in &chosen {
            world.crash(node);
            self.count("crash");
            let lasts = self.random.random_range(10_000..3_000_000);
            self.plan(world, lasts, Gust::Restart(node));
        }
        chosen
    }

    /// Sets one node's clock wrong, as far as clocks may be.
    fn skew<E: Engine>(&mut self, world: &mut World<E>) {
        let node = self.random.random_range(0..world.shape().nodes());
        self.count("skew");
        if self.clocks == Clocks::Free {
            let skew = self.random.random_range(-1_000_000..=1_000_000);
            let uncertainty = self.random.random_bool(0.7).then(|| self.random.random_range(0..2_000_000));
            return world.set_clock(node, skew, uncertainty);
        }
        if self.random.random_bool(0.2) {
            // Its source is lost: nothing is known of how wrong it is.
            let ahead = self.random.random_range(-1_000_000..=1_000_000);
            return world.set_clock(node, ahead, None);
        }
        if self.clocks == Clocks::Broken && self.random.random_bool(0.5) {
            let ahead = self.random.random_range(-1_000_000..=1_000_000);
            return world.set_clock(node, ahead, Some(self.clock_error));
        }
        self.bound_clock(world, node);
    }

    /// Every clock is within its bound, where that matters.
    fn bound_clocks<E: Engine>(&mut self, world: &mut World<E>) {
        if self.clocks != Clocks::Free {
            for node in 0..world.shape().nodes() {
                self.bound_clock(world, node);
            }
        }
    }

    /// Sets a clock wrong within a bound, of which the node trusts as much as holds true.
    fn bound_clock<E: Engine>(&mut self, world: &mut World<E>, node: usize) {
        let bound = self.random.random_range(self.clock_error / 2..=self.clock_error) as i64;
        let ahead = self.random.random_range(-bound..=bound);
        world.set_clock(node, ahead, Some(bound as Micros));
        // Up to 200 us a second, as clocks of a bad sort do between two looks at their source.
        world.set_drift(node, self.random.random_range(-200..=200));
    }

    fn lose_regions<E: Engine>(&mut self, world: &mut World<E>, count: usize) -> Vec<usize> {
        let mut regions: Vec<Region> = (0..world.shape().rtt.regions()).map(Region).collect();
        regions.shuffle(&mut self.random);
        regions.truncate(count);
        let lost: Vec<usize> = (0..world.shape().nodes())
            .filter(|&node| regions.contains(&world.shape().region_of(node)))
            .collect();
        let down: Vec<usize> = lost.iter().copied().filter(|&node| world.is_up(node)).collect();
        for &node in &down {
            world.crash(node);
        }
        self.lost = lost;
        self.count("lost for good");
        down
    }

    /// Nodes notice some time later what has changed; now and then one is told of a world that is no more.
    fn hint<E: Engine>(&mut self, world: &mut World<E>) {
        for node in 0..world.shape().nodes() {
            if world.is_up(node) && self.random.random_bool(0.9) {
                world.hint_regions(node, world.time() + self.random.random_range(0..1_500_000));
            }
        }
    }
}

/// Nodes that lost their clients, and nodes that take requests again.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    pub(crate) down: Vec<usize>,
    pub(crate) up: Vec<usize>,
}

/// A share of messages up to `most`, or 0 if the fault is off.
fn share(random: &mut Pcg64Mcg, on: bool, most: f64) -> f64 {
    if on { random.random_range(most / 10.0..most) } else { 0.0 }
}
