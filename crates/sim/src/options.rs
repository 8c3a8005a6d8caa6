//! What a run can be asked for.

use crate::world::CpuCost;
use meridian_protocol::clock::Micros;
use meridian_protocol::latency::RttMatrix;
use meridian_protocol::registry::{Settings, Several};
use std::ops::RangeInclusive;

/// A run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where all chance comes from: equal options with equal seeds give equal runs.
    pub seed: u64,
    /// The regions and how far they lie from each other.
    pub rtt: RttMatrix,
    /// Nodes in each region.
    pub nodes_per_region: usize,
    /// Slices of the keyspace.
    pub partitions: u16,
    /// The engine's settings.
    pub settings: Settings,
    /// What goes wrong.
    pub faults: Faults,
    /// The least mean time from one fault of a kind to the next: storms draw theirs from 1 to 6 s, and none goes below this.
    pub calm: Micros,
    /// How far nodes' clocks are from true time.
    pub clocks: Clocks,
    /// The bound on that which nodes trust.
    pub clock_error: Micros,
    /// How many regions crash for good in the middle of the run.
    pub lost_regions: usize,
    /// By how much at most a message takes longer than half a round trip, as a share of it.
    pub jitter: f64,
    /// How long a commit to disk takes.
    pub commit: RangeInclusive<Micros>,
    /// Whether every message goes through its encoding.
    pub codec: bool,
    /// What work costs on a node; `None`: nothing.
    pub cpu: Option<CpuCost>,
    /// What clients do.
    pub workload: Workload,
}

impl Options {
    /// A run of three regions with all faults, as `meridian sim` does it by default.
    pub fn new(seed: u64, settings: Settings) -> Self {
        Self {
            seed,
            rtt: first_regions(3),
            nodes_per_region: 1,
            partitions: 2,
            settings,
            faults: Faults::ALL,
            calm: 0,
            clocks: Clocks::Free,
            clock_error: 10_000,
            lost_regions: 0,
            jitter: 0.1,
            commit: 0..=2_000,
            codec: true,
            cpu: None,
            workload: Workload::default(),
        }
    }

    /// A run without faults in which every message takes exactly half a round trip and commits take no time.
    pub fn exact(seed: u64, settings: Settings) -> Self {
        Self { faults: Faults::NONE, jitter: 0.0, commit: 0..=0, ..Self::new(seed, settings) }
    }

    /// The same among the first `count` regions of the paper: 3, 5 or 7.
    #[must_use]
    pub fn regions(self, count: u8) -> Self {
        Self { rtt: first_regions(count), ..self }
    }
}

/// The paper's first `count` regions.
pub(crate) fn first_regions(count: u8) -> RttMatrix {
    let regions = RttMatrix::of_flags(&count.to_string(), "paper", |_| Err(String::new()));
    regions.expect("the paper's matrix has up to seven regions")
}

/// How far nodes' clocks are from true time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clocks {
    /// Right, until skew sets them wrong by up to a second whatever the bound says: for engines whose safety does
    /// not rest on them.
    Free,
    /// Wrong within the bound that nodes trust, and they drift. Skew sets them anew, and takes some nodes their
    /// bound for a time.
    Bounded,
    /// As bounded, but now and then one is outside of the bound that its node trusts. Engines that rest on clocks
    /// cannot keep their promise then.
    Broken,
}

/// Which kinds of fault happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent switches")]
pub struct Faults {
    /// Messages get lost.
    pub loss: bool,
    /// Messages arrive twice.
    pub duplicate: bool,
    /// Messages overtake each other.
    pub reorder: bool,
    /// Sets of nodes are cut off from the others for a time, sometimes in one direction only.
    pub partition: bool,
    /// Nodes stop for a time, while what they are sent waits.
    pub pause: bool,
    /// Nodes crash, lose what is not durable, and start again.
    pub crash: bool,
    /// Wall clocks are wrong, and jump.
    pub skew: bool,
}

impl Faults {
    /// Everything goes well.
    pub const NONE: Self = Self {
        loss: false,
        duplicate: false,
        reorder: false,
        partition: false,
        pause: false,
        crash: false,
        skew: false,
    };

    /// Everything goes wrong.
    pub const ALL: Self = Self {
        loss: true,
        duplicate: true,
        reorder: true,
        partition: true,
        pause: true,
        crash: true,
        skew: true,
    };

    /// The faults named: `all`, `none`, or kinds separated by commas.
    ///
    /// # Errors
    /// The names that are none, and which there are.
    pub fn named(names: &str) -> Result<Self, String> {
        let mut faults = match names {
            "all" => return Ok(Self::ALL),
            "none" => return Ok(Self::NONE),
            _ => Self::NONE,
        };
        let mut unknown = Vec::new();
        for name in names.split(',').map(str::trim) {
            match faults.switches().into_iter().find(|(known, _)| *known == name) {
                Some((_, switch)) => *switch = true,
                None => unknown.push(format!("'{name}'")),
            }
        }
        if unknown.is_empty() {
            return Ok(faults);
        }
        let known: Vec<&str> = faults.switches().into_iter().map(|(name, _)| name).collect();
        Err(format!(
            "no fault is called {}: choose all, none or some of {}",
            unknown.join(", "),
            known.join(",")
        ))
    }

    /// The kinds that are switched on.
    pub fn kinds(mut self) -> Vec<&'static str> {
        self.switches().into_iter().filter(|(_, on)| **on).map(|(name, _)| name).collect()
    }

    fn switches(&mut self) -> [(&'static str, &mut bool); 7] {
        [
            ("loss", &mut self.loss),
            ("duplicate", &mut self.duplicate),
            ("reorder", &mut self.reorder),
            ("partition", &mut self.partition),
            ("pause", &mut self.pause),
            ("crash", &mut self.crash),
            ("skew", &mut self.skew),
        ]
    }
}

/// What clients do: sessions, each with one operation at a time.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Operations in all.
    pub ops: usize,
    /// Sessions, spread evenly over the nodes.
    pub clients: usize,
    /// How many sessions of a node share one client machine.
    pub sessions_per_machine: usize,
    /// Which keys they use.
    pub keys: Keys,
    /// Shares of reads, writes and rmws.
    pub mix: Mix,
    /// What the engine gives to operations on several keys: transactions, snapshots, or nothing, and then there are none.
    pub several: Several,
    /// So many in a hundred operations are on several keys.
    pub several_percent: u32,
    /// Whether each operation asks for a level by chance.
    pub levels: bool,
    /// Before so many in a hundred operations the session moves to a region chosen by chance, where the engine's
    /// promise follows it.
    pub moves_percent: u32,
    /// Every so many operations of a session one is a fence; 0 for none.
    pub fence_every: usize,
    /// How long a session waits between two operations.
    pub think: Micros,
}

impl Default for Workload {
    fn default() -> Self {
        Self {
            ops: 2_000,
            clients: 8,
            sessions_per_machine: 1,
            keys: Keys::Few(5),
            mix: Mix { reads: 5, writes: 3, rmws: 2 },
            several: Several::Each,
            several_percent: 40,
            levels: true,
            moves_percent: 0,
            fence_every: 25,
            think: 0,
        }
    }
}

/// Which keys sessions use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// So many, all of them shared.
    Few(usize),
    /// So many in a hundred operations go to one shared key, the others to a key of the session's own.
    Conflict(u32),
}

/// Shares of kinds of operation, in any unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix {
    /// Reads.
    pub reads: u32,
    /// Blind writes.
    pub writes: u32,
    /// Read-modify-writes.
    pub rmws: u32,
}
