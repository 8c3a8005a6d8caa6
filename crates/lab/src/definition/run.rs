//! What one run is: everything that decides its outcome, apart from the seed.

use crate::clouds;
use crate::cpu::{self, Cost};
use meridian_protocol::clock::Micros;
use meridian_protocol::latency::RttMatrix;
use meridian_protocol::machine::Level;
use meridian_protocol::registry::{EngineName, Settings, Several, Writes};
use meridian_protocol::topology::Region;
use meridian_sim::world::Shape;
use serde::{Deserialize, Serialize};

/// A run. Equal definitions with equal seeds give equal results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// What serves the keyspace.
    pub engine: EngineChoice,
    /// Where it is served.
    pub place: Place,
    /// What work costs on a node.
    #[serde(default)]
    pub cpu: Cpu,
    /// What clients do.
    pub workload: Workload,
    /// How many operations make what is measured as one request, if that is asked for.
    pub requests: Option<Requests>,
    /// When clients do it.
    pub clients: Clients,
    /// How long it is watched.
    pub time: Time,
}

/// An engine and how it is set.
#[expect(clippy::struct_excessive_bools, reason = "switches, each turned by itself")]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EngineChoice {
    /// Its name.
    pub name: String,
    /// Gryff-RSC with the rule as published, which does not give RSC.
    #[serde(default)]
    pub rsc_as_published: bool,
    /// EPaxos executes all keys in one line, as its authors' program does.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub epaxos_as_published: bool,
    /// Gryff's reads are coordinated by the replica in the client's region.
    #[serde(default = "yes")]
    pub read_proxy: bool,
    /// First phases go to the nearest quorum only.
    #[serde(default = "yes")]
    pub thrifty: bool,
    /// How Gryff's writes find their timestamps: `two-round`, `one-round` or `auto`.
    #[serde(default = "two_rounds")]
    pub writes: String,
    /// The region that leads, in engines that have a leader.
    pub leader: Option<String>,
}

/// Regions, their distance, and what stands in them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Place {
    /// Round-trip times: `paper`, `paper-spanner`, `azure`, `none`, `same:MS` for the same between all nodes, or the
    /// text of a CSV file.
    pub rtt: String,
    /// Names of regions, or how many of those that the round-trip times name.
    pub regions: String,
    /// Nodes in each region that hold the keyspace.
    #[serde(default = "one")]
    pub nodes_per_region: u16,
    /// Nodes in each region, beside those, that hold nothing and have all the clients, as in papers whose clients have
    /// machines of their own. Without any, clients are spread over the others.
    #[serde(default)]
    pub client_nodes: u16,
    /// Slices of the keyspace.
    #[serde(default = "one")]
    pub partitions: u16,
    /// By how much at most a message takes longer than half a round trip, as a share of it.
    #[serde(default)]
    pub jitter: f64,
    /// How far nodes take their clocks to be off at most; without it, as far as the simulator says.
    pub clock_error_ms: Option<f64>,
    /// How far clocks are off at most, each by a random part of it: right if left out.
    #[serde(default)]
    pub clock_skew_ms: f64,
}

/// What work costs on a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cpu {
    /// Nothing.
    #[default]
    Free,
    /// What it costs a real node of this system ([`cpu::COSTS`]).
    Node,
    /// So many times that; on machines that only clients have ([`Place::client_nodes`]), that.
    Slower(f64),
}

/// What clients do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Workload {
    /// Operations on one key each.
    Registers(Registers),
    /// One of YCSB's core workloads.
    Ycsb(Ycsb),
    /// Retwis's transactions: 5% add-user, 15% follow, 30% post-tweet, 50% load-timeline.
    Retwis(Retwis),
    /// Read-only transactions over several partitions, and puts.
    Rots(Rots),
}

/// Reads, writes and rmws; what is neither write nor rmw is a read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Registers {
    /// Writes among a hundred operations.
    pub writes: f64,
    /// Rmws among a hundred operations.
    #[serde(default)]
    pub rmws: f64,
    /// Which keys.
    pub keys: Keys,
    /// Bytes of a value.
    #[serde(default = "eight")]
    pub value_bytes: usize,
    /// What reads ask for, in engines that let them choose.
    #[serde(default = "causal")]
    pub read_level: String,
    /// What writes ask for.
    #[serde(default = "causal")]
    pub write_level: String,
    /// Operations among a hundred for which a session turns to another region than its own, any of them alike.
    #[serde(default)]
    pub remote: f64,
}

/// How keys are chosen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Keys {
    /// So many operations in a hundred go to one shared key, each of the others to a key that no other client uses.
    Conflict(f64),
    /// All of so many alike.
    Uniform(u64),
    /// By Zipf's law.
    Zipf(Zipf),
}

/// Zipf's law: the key of rank k is used in proportion to k to the power of -theta.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Zipf {
    /// How many keys there are.
    pub keys: u64,
    /// The skew; 0 is uniform.
    pub theta: f64,
}

/// One of YCSB's core workloads, without scans.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ycsb {
    /// Which one.
    pub mix: YcsbMix,
    /// How many keys there are at the start.
    pub keys: u64,
    /// Bytes of a value.
    #[serde(default = "eight")]
    pub value_bytes: usize,
}

/// YCSB's workload A, B, C, D or F.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum YcsbMix {
    /// Half reads, half updates.
    A,
    /// 95% reads, 5% updates.
    B,
    /// Reads only.
    C,
    /// 95% reads, of what was inserted last; 5% inserts.
    D,
    /// Half reads, half read-modify-writes.
    F,
}

/// Retwis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Retwis {
    /// How many keys there are.
    pub keys: u64,
    /// Zipf's skew; 0 is uniform.
    pub theta: f64,
}

/// Read-only transactions and puts, in the Contrarian paper's letters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rots {
    /// w: puts among all keys read and put.
    pub writes: f64,
    /// p: partitions of a transaction; one key of each.
    pub partitions: u16,
    /// z: Zipf's skew within a partition.
    pub theta: f64,
    /// Keys of a partition.
    pub keys_per_partition: u64,
    /// b: bytes of a value.
    #[serde(default = "eight")]
    pub value_bytes: usize,
}

/// Requests of many parts (tail at scale): a request takes as long as the slowest of its parts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Requests {
    /// Operations of a request.
    pub parts: usize,
    /// All at once, each in a session of its own; otherwise one after the other.
    pub at_once: bool,
}

/// When clients begin what they do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Clients {
    /// So many, each with one request at a time.
    Closed(Closed),
    /// Sessions come and go.
    PartlyOpen(PartlyOpen),
}

/// Closed-loop clients.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Closed {
    /// In each region.
    pub per_region: usize,
    /// Between a request's end and the next one.
    #[serde(default)]
    pub think_ms: f64,
}

/// Partly open clients: sessions arrive at random, each makes a request, and stays for another one with a
/// probability. With `stay` 0 the load is open.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PartlyOpen {
    /// λ: arrivals in each region, a Poisson process.
    pub sessions_per_second: f64,
    /// p: how likely another request is.
    pub stay: f64,
    /// H: between a request's end and the session's next one.
    #[serde(default)]
    pub think_ms: f64,
}

/// How long a run takes, in virtual time. The load goes on until the end of what is measured: there is no cool-down.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Time {
    /// From the start, not measured.
    pub warm_up_s: f64,
    /// What is measured: requests that end in it.
    pub measure_s: f64,
}

fn yes() -> bool {
    true
}

fn one() -> u16 {
    1
}

fn eight() -> usize {
    8
}

fn two_rounds() -> String {
    Writes::TwoRounds.name().to_owned()
}

fn causal() -> String {
    Level::default().name().to_owned()
}

/// The level of that name.
pub(crate) fn level(name: &str) -> Option<Level> {
    Level::NAMES.iter().find(|(_, known)| *known == name).map(|(level, _)| *level)
}

/// Milliseconds as the simulator counts.
pub(crate) fn micros(ms: f64) -> Micros {
    (ms * 1_000.0).round() as Micros
}

impl Run {
    /// The nodes.
    ///
    /// # Errors
    /// What is wrong with the regions or their distances.
    pub fn shape(&self) -> Result<Shape, String> {
        Ok(Shape {
            rtt: self.place.matrix()?,
            nodes_per_region: usize::from(self.place.nodes_per_region) + usize::from(self.place.client_nodes),
            partitions: self.place.partitions,
        })
    }

    /// The engine's settings.
    ///
    /// # Errors
    /// What is wrong with the leader's region or the way of writes.
    pub fn settings(&self) -> Result<Settings, String> {
        let mut settings = Settings {
            rsc_as_published: self.engine.rsc_as_published,
            epaxos_as_published: self.engine.epaxos_as_published,
            read_proxy: self.engine.read_proxy,
            thrifty: self.engine.thrifty,
            writes: Writes::named(&self.engine.writes)?,
            ..Settings::default()
        };
        if let Some(leader) = &self.engine.leader {
            let matrix = self.place.matrix()?;
            let index = matrix.names().iter().position(|name| name == leader);
            let index = index.ok_or_else(|| format!("leader: there is no region '{leader}'"))?;
            settings.log.leader = Some(Region(index as u8));
        }
        Ok(settings)
    }

    /// What work costs on a node that is not slower than those of this system; `None`: nothing.
    pub fn cost(&self) -> Option<Cost> {
        (self.cpu != Cpu::Free).then(|| cpu::COSTS.of(&self.engine.name))
    }

    /// How many times as long as that it takes on the node of that number in its region.
    pub(crate) fn slowness(&self, node_in_region: usize) -> f64 {
        match self.cpu {
            Cpu::Slower(times) if node_in_region < usize::from(self.place.nodes_per_region) => times,
            _ => 1.0,
        }
    }

    /// The engine, if there is one of that name that serves this workload.
    ///
    /// # Errors
    /// Why not, by name.
    pub fn engine(&self) -> Result<EngineName, String> {
        let engine = EngineName::of_engine(&self.engine.name)?;
        let several = engine.model.several();
        let serves = match &self.workload {
            Workload::Registers(registers) => {
                (registers.rmws == 0.0 || engine.serves_rmw())
                    && (registers.remote == 0.0 || engine.has_levels())
            }
            Workload::Ycsb(ycsb) => ycsb.mix != YcsbMix::F || engine.serves_rmw(),
            Workload::Retwis(_) => several == Several::Transactions,
            Workload::Rots(_) => several != Several::Each,
        };
        if serves {
            Ok(engine)
        } else {
            Err(format!("{} does not serve this workload's operations", engine.name))
        }
    }

    /// Everything that is wrong with the numbers.
    pub(crate) fn faults(&self) -> Vec<String> {
        let mut faults: Vec<String> =
            [self.shape().map(drop), self.settings().map(drop)].into_iter().filter_map(Result::err).collect();
        let mut must = |holds: bool, what: &str| {
            if !holds {
                faults.push(what.to_owned());
            }
        };
        must(self.time.warm_up_s >= 0.0, "time.warm_up_s must not be negative");
        must(self.time.measure_s > 0.0, "time.measure_s must be above 0");
        must((0.0..=10.0).contains(&self.place.jitter), "place.jitter must be from 0 to 10");
        must(
            self.place.clock_error_ms.is_none_or(|ms| ms >= 0.0),
            "place.clock_error_ms must not be negative",
        );
        must(self.place.nodes_per_region > 0, "place.nodes_per_region must be above 0");
        must(self.place.partitions > 0, "place.partitions must be above 0");
        must(
            self.place.client_nodes == 0 || self.place.partitions <= self.place.nodes_per_region,
            "place.client_nodes needs a node for each of place.partitions",
        );
        let error = self.place.clock_error_ms.unwrap_or(0.0);
        must(
            (0.0..=error).contains(&self.place.clock_skew_ms),
            "place.clock_skew_ms must be from 0 to place.clock_error_ms",
        );
        must(
            self.requests.as_ref().is_none_or(|requests| requests.parts > 0),
            "requests.parts must be above 0",
        );
        must(!matches!(self.cpu, Cpu::Slower(times) if times <= 0.0), "cpu.slower must be above 0");
        match &self.clients {
            Clients::Closed(closed) => {
                must(closed.per_region > 0, "clients.closed.per_region must be above 0");
                must(closed.think_ms >= 0.0, "clients.closed.think_ms must not be negative");
            }
            Clients::PartlyOpen(open) => {
                must(
                    open.sessions_per_second > 0.0,
                    "clients.partly_open.sessions_per_second must be above 0",
                );
                must((0.0..1.0).contains(&open.stay), "clients.partly_open.stay must be from 0, and below 1");
                must(open.think_ms >= 0.0, "clients.partly_open.think_ms must not be negative");
            }
        }
        self.workload.check(self.place.partitions, &mut must);
        faults
    }
}

impl Workload {
    fn check(&self, partitions: u16, must: &mut impl FnMut(bool, &str)) {
        let skew = |theta: f64| theta >= 0.0 && theta.is_finite();
        match self {
            Self::Registers(registers) => {
                let Registers { writes, rmws, .. } = registers;
                let shares = *writes >= 0.0 && *rmws >= 0.0 && writes + rmws <= 100.0;
                must(shares, "workload.registers: writes and rmws must be shares of a hundred");
                must(
                    (0.0..=100.0).contains(&registers.remote),
                    "workload.registers.remote must be a share of a hundred",
                );
                must(level(&registers.read_level).is_some(), "workload.registers.read_level is no level");
                must(level(&registers.write_level).is_some(), "workload.registers.write_level is no level");
                match &registers.keys {
                    Keys::Conflict(percent) => {
                        must(
                            (0.0..=100.0).contains(percent),
                            "workload.registers.keys.conflict must be a share of a hundred",
                        );
                    }
                    Keys::Uniform(keys) => must(*keys > 0, "workload.registers.keys.uniform must be above 0"),
                    Keys::Zipf(zipf) => {
                        must(
                            zipf.keys > 0 && skew(zipf.theta),
                            "workload.registers.keys.zipf: keys must be above 0, theta not negative",
                        );
                    }
                }
            }
            Self::Ycsb(ycsb) => must(ycsb.keys > 0, "workload.ycsb.keys must be above 0"),
            Self::Retwis(retwis) => {
                must(
                    retwis.keys >= 10 && skew(retwis.theta),
                    "workload.retwis: keys must be at least 10, theta not negative",
                );
            }
            Self::Rots(rots) => {
                must((0.0..=1.0).contains(&rots.writes), "workload.rots.writes must be from 0 to 1");
                let spans = (1..=partitions).contains(&rots.partitions);
                must(spans, "workload.rots.partitions must be at least 1, and no more than place.partitions");
                must(
                    rots.keys_per_partition > 0 && skew(rots.theta),
                    "workload.rots: keys_per_partition must be above 0, theta not negative",
                );
            }
        }
    }
}

impl Place {
    /// How far the regions lie from each other.
    ///
    /// # Errors
    /// What is wrong with their names or distances.
    pub fn matrix(&self) -> Result<RttMatrix, String> {
        let same = self.rtt.strip_prefix("same:").map(str::parse::<f64>);
        let text = match same {
            Some(Ok(ms)) => evenly_apart(&RttMatrix::none(&self.regions)?, ms),
            Some(Err(_)) => return Err(format!("place.rtt: '{}' is no time in ms", self.rtt)),
            None if self.rtt == "azure" => clouds::AZURE.to_owned(),
            None => self.rtt.clone(),
        };
        // A text of several lines is a table and no name of one.
        let name = if text.contains('\n') { "place.rtt" } else { &text };
        RttMatrix::of_flags(&self.regions, name, |name| {
            if text.contains('\n') {
                Ok(text.clone())
            } else {
                Err(format!("place.rtt: no round-trip times are called '{name}'"))
            }
        })
    }
}

/// A table in which all round trips take the same.
fn evenly_apart(matrix: &RttMatrix, ms: f64) -> String {
    let names = matrix.names();
    let row = vec![ms.to_string(); names.len()].join(",");
    std::iter::once(names.join(",")).chain(vec![row; names.len()]).collect::<Vec<_>>().join("\n") + "\n"
}
