//! Links between nodes: how long a message takes, and what may happen to it on the way.

use super::Shape;
use meridian_protocol::clock::Micros;
use rand::RngExt;
use rand_pcg::Pcg64Mcg;

/// What may happen to messages between nodes. All zero: every message arrives, exactly after half a round trip.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Weather {
    /// Share of messages that are lost.
    pub loss: f64,
    /// Share of messages that arrive twice.
    pub duplicate: f64,
    /// Share of messages that are delayed at random, overtaken by later ones. All others of a link keep their
    /// order.
    pub reorder: f64,
    /// The longest extra delay of a reordered or doubled message.
    pub longest_delay: Micros,
    /// The most by which a message takes longer than half a round trip, as a share of it.
    pub jitter: f64,
}

/// What happened to messages, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mishaps {
    /// Messages lost.
    pub lost: u64,
    /// Messages that arrived twice.
    pub doubled: u64,
    /// Messages delayed so that others may overtake them.
    pub reordered: u64,
    /// Messages that met a cut link.
    pub cut: u64,
}

/// All links.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) weather: Weather,
    pub(crate) mishaps: Mishaps,
    nodes: usize,
    /// One-way delay from node to node, row by row.
    delay: Vec<Micros>,
    /// When the last message of each link arrives.
    last: Vec<Micros>,
    cut: Vec<bool>,
    random: Pcg64Mcg,
}

impl Network {
    pub(crate) fn new(shape: &Shape, random: Pcg64Mcg) -> Self {
        let nodes = shape.nodes();
        let mut delay = Vec::with_capacity(nodes * nodes);
        for from in 0..nodes {
            for to in 0..nodes {
                let rtt = shape.rtt.rtt(shape.region_of(from), shape.region_of(to));
                delay.push(if from == to { 0 } else { rtt / 2 });
            }
        }
        let links = nodes * nodes;
        Self {
            weather: Weather::default(),
            mishaps: Mishaps::default(),
            nodes,
            delay,
            last: vec![0; links],
            cut: vec![false; links],
            random,
        }
    }

    /// When a message sent now arrives: never, once or twice. Inside a node it arrives at once, whatever the
    /// weather.
    pub(crate) fn arrivals(&mut self, now: Micros, from: usize, to: usize) -> [Option<Micros>; 2] {
        if from == to {
            return [Some(now), None];
        }
        let link = from * self.nodes + to;
        if self.cut[link] {
            self.mishaps.cut += 1;
            return [None, None];
        }
        if self.chance(self.weather.loss) {
            self.mishaps.lost += 1;
            return [None, None];
        }
        let mut arrival = now + self.delay[link] + self.up_to(self.weather.jitter * self.delay[link] as f64);
        if self.chance(self.weather.reorder) {
            self.mishaps.reordered += 1;
            arrival += self.up_to(self.weather.longest_delay as f64);
        } else {
            arrival = arrival.max(self.last[link]);
            self.last[link] = arrival;
        }
        let copy = self.chance(self.weather.duplicate).then(|| {
            self.mishaps.doubled += 1;
            arrival + self.up_to(self.weather.longest_delay as f64)
        });
        [Some(arrival), copy]
    }

    /// Cuts or mends the link one way.
    pub(crate) fn set_cut(&mut self, from: usize, to: usize, cut: bool) {
        self.cut[from * self.nodes + to] = cut;
    }

    /// Mends all links.
    pub(crate) fn mend(&mut self) {
        self.cut.fill(false);
    }

    /// Whether messages pass both ways.
    pub(crate) fn connected(&self, a: usize, b: usize) -> bool {
        !self.cut[a * self.nodes + b] && !self.cut[b * self.nodes + a]
    }

    fn chance(&mut self, share: f64) -> bool {
        share > 0.0 && self.random.random_bool(share)
    }

    fn up_to(&mut self, most: f64) -> Micros {
        if most < 1.0 { 0 } else { self.random.random_range(0..=most as Micros) }
    }
}
