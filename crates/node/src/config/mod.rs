//! What a cluster is made of: `cluster.toml`, read and checked as a whole.
//!
//! Every node of a cluster reads the same file. What all must agree on goes into [`Config::hash`], which nodes
//! compare when they meet.

mod reader;
pub mod units;

use meridian_clock::Source;
use meridian_protocol::multipaxos::log::LogSettings;
use meridian_protocol::registry::{EngineName, Model, Settings, Several, Writes};
use meridian_protocol::spanner::SpannerSettings;
use meridian_protocol::topology::Region;
use reader::{At, Faults, Section, integer, string};
use sha2::{Digest, Sha256};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use toml::de::{DeTable, DeValue};

/// A cluster as its nodes see it.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The cluster's name, the same on all nodes and no other cluster's.
    pub cluster: String,
    /// What nodes prove to each other that they know; empty if there is none.
    pub secret: Vec<u8>,
    /// The regions' names, in the order in which nodes first name them.
    pub regions: Vec<String>,
    /// All nodes.
    pub nodes: Vec<NodeConfig>,
    /// All keyspaces, in the order of their numbers.
    pub keyspaces: Vec<KeyspaceConfig>,
    /// What an acknowledged write survives.
    pub durability: Durability,
    /// Who vouches for this node's clock.
    pub clock: Source,
    /// When to give up and when to try again.
    pub timeouts: Timeouts,
    /// What a node refuses to exceed.
    pub limits: Limits,
}

/// One process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeConfig {
    /// Its name.
    pub name: String,
    /// Its region.
    pub region: Region,
    /// Where it serves clients.
    pub client: String,
    /// Where it meets other nodes.
    pub peer: String,
    /// Where it keeps its records; needed unless they are kept in memory.
    pub data: Option<PathBuf>,
}

/// One keyspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyspaceConfig {
    /// Its number, for `SELECT`.
    pub number: u16,
    /// Its name.
    pub name: String,
    /// What serves it.
    pub engine: EngineName,
    /// Into how many partitions it is split.
    pub partitions: u16,
    /// Which connections share causal metadata.
    pub session: Scope,
    /// The region whose replicas lead, where the engine has leaders; `None` spreads them.
    pub leader: Option<Region>,
    /// For how long a coordinator gathers operations of a key to share an instance, where the engine can; zero: not.
    pub batch: Duration,
    /// What operators set about transactions, where the engine has such.
    pub transactions: SpannerSettings,
    /// How writes find their timestamps, where the engine leaves a choice.
    pub writes: Writes,
}

/// Which connections of a node share what a session must remember so that causality is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// None: each connection is a session.
    Connection,
    /// Those that gave the same client name.
    ClientName,
    /// All of a node.
    Node,
}

impl Scope {
    const ALL: [(&'static str, Self); 3] =
        [("connection", Self::Connection), ("client-name", Self::ClientName), ("node", Self::Node)];

    /// The scope's name, as in `--session`.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, scope)| *scope == self).map_or("", |(name, _)| name)
    }

    /// The scope called `name`.
    ///
    /// # Errors
    /// Which ones there are.
    pub fn of_name(name: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, scope)| *scope);
        found.ok_or_else(|| format!("'{name}' is no session scope: choose node, client-name or connection"))
    }

    /// What a keyspace of a model gets when nothing is said: what one connection has seen would hold up all others of a
    /// node, and they would have one transaction between them. Where nothing is remembered, sharing costs nothing.
    pub fn default_of(model: Model) -> Self {
        if model == Model::Linearizable { Self::Node } else { Self::Connection }
    }
}

/// What an acknowledged write survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The loss of power on all nodes: records are forced to disk before anything is answered.
    Fsync,
    /// The death of processes. A node that loses power forgets at most the last such span, and as it has told
    /// others of what it forgets, acknowledged writes can be lost with it.
    Interval(Duration),
    /// Nothing but what a majority of nodes that stay up remember. For measurements.
    Memory,
}

impl Durability {
    /// The mode's name, as in `[durability] mode`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fsync => "fsync",
            Self::Interval(_) => "interval",
            Self::Memory => "memory",
        }
    }
}

/// When to give up and when to try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// After how long an operation ends without success.
    pub operation: Duration,
    /// After how long without the answers it needs a machine sends again.
    pub retry: Duration,
    /// After how long a replica takes up what its coordinator has left open.
    pub recovery: Duration,
    /// How often replicas compare what they hold.
    pub sync: Duration,
    /// After how long without a word from a leader replicas look for another one.
    pub election: Duration,
    /// For how long a leader may answer reads alone after its last word with the others, if at all.
    pub lease: Option<Duration>,
}

impl Default for Timeouts {
    fn default() -> Self {
        let settings = Settings::default();
        Self {
            operation: Duration::from_micros(settings.operation_timeout),
            retry: Duration::from_micros(settings.retry),
            recovery: Duration::from_micros(settings.recovery),
            sync: Duration::from_micros(settings.sync),
            election: Duration::from_micros(settings.log.election),
            lease: None,
        }
    }
}

impl Timeouts {
    /// The same as an engine takes them.
    pub fn settings(&self) -> Settings {
        let micros = |duration: Duration| duration.as_micros() as u64;
        Settings {
            operation_timeout: micros(self.operation),
            retry: micros(self.retry),
            recovery: micros(self.recovery),
            sync: micros(self.sync),
            log: LogSettings {
                election: micros(self.election),
                lease: self.lease.map_or(0, micros),
                ..LogSettings::default()
            },
            ..Settings::default()
        }
    }
}

/// What a node refuses to exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest string that a client may send.
    pub value: u64,
    /// Bytes of memory above which commands that need more are refused; 0 is no limit.
    pub maxmemory: u64,
    /// How many clients may be connected at once.
    pub connections: usize,
    /// Bytes waiting for another node above which messages to it are dropped; it is asked again later.
    pub peer_buffer: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { value: 8 << 20, maxmemory: 0, connections: 10_000, peer_buffer: 64 << 20 }
    }
}

/// What is wrong with a configuration, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub reason: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.reason)
    }
}

impl Config {
    /// Reads a file and the secret that it names.
    ///
    /// # Errors
    /// All faults; line 0 stands for the file as a whole.
    pub fn load(path: &Path) -> Result<Self, Vec<Fault>> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| vec![Fault { line: 0, reason: format!("cannot read the file: {error}") }])?;
        Self::parse(&text, path.parent().unwrap_or(Path::new("")))
    }

    /// Reads a configuration's text. Paths in it are relative to `directory`.
    ///
    /// # Errors
    /// All faults, in the order of lines.
    pub fn parse(text: &str, directory: &Path) -> Result<Self, Vec<Fault>> {
        let mut faults = Faults::new(text);
        let (document, errors) = DeTable::parse_recoverable(text);
        for error in &errors {
            faults.add(error.span().map_or(0, |span| span.start), error.message());
        }
        if !errors.is_empty() {
            return Err(faults.into_list());
        }
        let config = read_config(document.get_ref(), directory, &mut faults);
        let faults = faults.into_list();
        if faults.is_empty() { Ok(config) } else { Err(faults) }
    }

    /// The place in [`Config::nodes`] of the node called `name`.
    pub fn node(&self, name: &str) -> Option<usize> {
        self.nodes.iter().position(|node| node.name == name)
    }

    /// A digest of what all nodes must agree on: what their records are bound to, and where leaders are to be. Two that
    /// name different regions would take the lead from each other for ever.
    pub fn hash(&self) -> u64 {
        let led = self.keyspaces.iter().filter_map(|k| Some((k.number, &self.regions[k.leader?.index()])));
        let hash =
            led.fold(self.records_hash(), |hash, leader| first_word(&format!("{hash} leader {leader:?}")));
        // A fence waits for what leaders elsewhere have gone by.
        let standard = SpannerSettings::default().fence;
        let fences = self.keyspaces.iter().map(|k| (k.number, k.transactions.fence));
        fences
            .filter(|(_, fence)| *fence != standard)
            .fold(hash, |hash, fence| first_word(&format!("{hash} fence {fence:?}")))
    }

    /// A digest of what a node's records are bound to: who takes part, and which keyspaces there are.
    pub fn records_hash(&self) -> u64 {
        let node =
            |node: &NodeConfig| format!("node {:?} {:?}\n", node.name, self.regions[node.region.index()]);
        let keyspace = |k: &KeyspaceConfig| {
            let KeyspaceConfig { number, name, engine, partitions, writes, .. } = k;
            // Timestamps of one kind say nothing among those of the other.
            let by_clock = if *writes == Writes::TwoRounds { "" } else { " by the clock" };
            format!("keyspace {number} {name:?} {} {} {partitions}{by_clock}\n", engine.model, engine.name)
        };
        let nodes: String = self.nodes.iter().map(node).collect();
        let keyspaces: String = self.keyspaces.iter().map(keyspace).collect();
        let bound = format!("cluster {:?}\n{nodes}{keyspaces}", self.cluster);
        first_word(&bound)
    }
}

/// The first eight bytes of a text's SHA-256.
fn first_word(text: &str) -> u64 {
    let bytes: [u8; 32] = Sha256::digest(text).into();
    bytes[..8].iter().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

fn read_config(document: &DeTable<'_>, directory: &Path, faults: &mut Faults<'_>) -> Config {
    let mut root = Section::new("the file", 0, document);
    let (cluster, secret) = read_cluster(root.table(faults, "cluster"), directory, faults);
    let mut durability = root.table(faults, "durability");
    let mode = read_durability(&mut durability, faults);
    durability.finish(faults, "mode and interval");
    let nodes = root.tables(faults, "node");
    if nodes.is_empty() {
        faults.add(0, "no [[node]]: a cluster has at least one");
    }
    let (regions, nodes) = read_nodes(nodes, mode, directory, faults);
    let keyspaces = root.tables(faults, "keyspace");
    if keyspaces.is_empty() {
        faults.add(0, "no [[keyspace]]: write at least one, such as number = 0, model = \"linearizable\"");
    }
    let clock = read_clock(root.table(faults, "clock"), faults);
    let keyspaces = read_keyspaces(keyspaces, &regions, clock != Source::None, faults);
    let timeouts = read_timeouts(root.table(faults, "timeouts"), clock != Source::None, faults);
    let limits = read_limits(root.table(faults, "limits"), faults);
    root.finish(faults, "[cluster], [[node]], [[keyspace]], [durability], [clock], [timeouts] and [limits]");
    Config { cluster, secret, regions, nodes, keyspaces, durability: mode, clock, timeouts, limits }
}

fn read_cluster(
    mut section: Section<'_, '_>,
    directory: &Path,
    faults: &mut Faults<'_>,
) -> (String, Vec<u8>) {
    let id = section.required(faults, "id", name).map(|id| id.value).unwrap_or_default();
    let mut secret = Vec::new();
    if let Some(file) = section.optional(faults, "secret_file", string) {
        let path = directory.join(&file.value);
        match std::fs::read(&path) {
            Ok(bytes) => {
                secret = bytes.trim_ascii().to_vec();
                if secret.len() < 16 {
                    faults.add(
                        file.at,
                        "secret_file: the secret is shorter than 16 bytes, and could be guessed",
                    );
                }
            }
            Err(e) => faults.add(file.at, format!("secret_file: cannot read {}: {e}", path.display())),
        }
    }
    section.finish(faults, "id and secret_file");
    (id, secret)
}

fn read_durability(section: &mut Section<'_, '_>, faults: &mut Faults<'_>) -> Durability {
    let interval = section.optional(faults, "interval", duration);
    let mode = section.optional(faults, "mode", string);
    let durability = match mode.as_ref().map(|mode| mode.value.as_str()) {
        None | Some("fsync") => Durability::Fsync,
        Some("interval") => {
            Durability::Interval(interval.as_ref().map_or(Duration::from_millis(100), |span| span.value))
        }
        Some("memory") => Durability::Memory,
        Some(other) => {
            let at = mode.as_ref().map_or(0, |mode| mode.at);
            faults.add(at, format!("mode: '{other}' is none: choose fsync, interval or memory"));
            Durability::Fsync
        }
    };
    if let Some(interval) = interval
        && !matches!(durability, Durability::Interval(_))
    {
        faults.add(interval.at, "interval: only mode = \"interval\" has one");
    }
    durability
}

fn read_nodes(
    sections: Vec<Section<'_, '_>>,
    durability: Durability,
    directory: &Path,
    faults: &mut Faults<'_>,
) -> (Vec<String>, Vec<NodeConfig>) {
    let mut regions: Vec<String> = Vec::new();
    let mut nodes: Vec<NodeConfig> = Vec::new();
    let mut addresses: Vec<String> = Vec::new();
    let (first, count) = (sections.first().map_or(0, |section| section.at), sections.len());
    for mut section in sections {
        let node = section.required(faults, "name", name);
        let region = section.required(faults, "region", name);
        let client = section.required(faults, "client", address);
        let peer = section.required(faults, "peer", address);
        let data = section.optional(faults, "data", string);
        if data.is_none() && durability != Durability::Memory {
            faults.add(section.at, "[[node]] has no 'data', the directory for its records");
        }
        section.finish(faults, "name, region, client, peer and data");
        for address in [&client, &peer].into_iter().flatten() {
            if addresses.contains(&address.value) {
                faults.add(address.at, format!("{} is used twice", address.value));
            }
            addresses.push(address.value.clone());
        }
        let (Some(node), Some(region), Some(client), Some(peer)) = (node, region, client, peer) else {
            continue;
        };
        if nodes.iter().any(|other| other.name == node.value) {
            faults.add(node.at, format!("there are two nodes called '{}'", node.value));
        }
        let index = regions.iter().position(|known| *known == region.value).unwrap_or_else(|| {
            regions.push(region.value.clone());
            regions.len() - 1
        });
        let data = data.map(|data| directory.join(data.value));
        let (client, peer) = (client.value, peer.value);
        nodes.push(NodeConfig { name: node.value, region: Region(index as u8), client, peer, data });
    }
    if nodes.len() == count && (regions.len() > 63 || (count > 0 && regions.len().is_multiple_of(2))) {
        faults.add(first, format!("{} regions: their number must be odd and below 64", regions.len()));
    }
    if nodes.len() > 4_095 {
        faults.add(first, format!("{} nodes: there can be 4095", nodes.len()));
    }
    (regions, nodes)
}

fn read_keyspaces(
    sections: Vec<Section<'_, '_>>,
    regions: &[String],
    trusted_clock: bool,
    faults: &mut Faults<'_>,
) -> Vec<KeyspaceConfig> {
    let mut keyspaces: Vec<KeyspaceConfig> = Vec::new();
    for mut section in sections {
        let number = section.required(faults, "number", integer::<u16>);
        let title = section.optional(faults, "name", name);
        let model = section.required(faults, "model", string);
        let engine = section.optional(faults, "engine", string);
        let partitions = section.optional(faults, "partitions", |value| match integer::<u16>(value)? {
            0 => Err("a keyspace has at least 1".to_owned()),
            count => Ok(count),
        });
        let scope = section.optional(faults, "session", |value| Scope::of_name(&string(value)?));
        let leader = section.optional(faults, "leader", |value| leader(&string(value)?, regions));
        let batch = section.optional(faults, "batch", batch);
        let chosen = model.and_then(|model| {
            let engine = engine.as_ref().map(|engine| engine.value.as_str());
            let chosen = EngineName::of_model(&model.value, engine);
            chosen.map_err(|reason| faults.add(model.at, format!("model: {reason}"))).ok()
        });
        let fence = section.optional(faults, "fence", duration);
        let retention = section.optional(faults, "retention", duration);
        let writes = section.optional(faults, "writes", |value| Writes::named(&string(value)?));
        section.finish(
            faults,
            "number, name, model, engine, partitions, session, leader, batch, writes, fence and retention",
        );
        let (Some(number), Some(engine)) = (number, chosen) else { continue };
        if engine.rests_on_clocks() && !trusted_clock {
            faults.add(
                number.at,
                format!("{} needs a bound on the clock: say in [clock] who vouches for it", engine.name),
            );
        }
        if let Some(fence) = fence.as_ref().filter(|_| engine.name != "spanner-rss") {
            faults.add(fence.at, format!("fence: {} has none; spanner-rss has", engine.name));
        }
        if let Some(retention) =
            retention.as_ref().filter(|_| engine.model.several() != Several::Transactions)
        {
            faults.add(
                retention.at,
                format!("retention: {} has none; the engines with transactions have", engine.name),
            );
        }
        let standard = SpannerSettings::default();
        let micros = |span: Option<At<Duration>>| span.map(|span| span.value.as_micros() as u64);
        let transactions = SpannerSettings {
            fence: micros(fence).unwrap_or(standard.fence),
            retention: micros(retention).unwrap_or(standard.retention),
            ..standard
        };
        if let Some(leader) = leader.as_ref().filter(|_| !engine.has_leader()) {
            faults.add(
                leader.at,
                format!(
                    "leader: {} has none; multipaxos and the engines with transactions have",
                    engine.name
                ),
            );
        }
        if let Some(batch) = batch.as_ref().filter(|_| !engine.gathers()) {
            faults.add(batch.at, format!("batch: {} has none; epaxos has", engine.name));
        }
        if let Some(writes) = writes.as_ref().filter(|_| !engine.has_one_round_writes()) {
            let serving = EngineName::naming(EngineName::has_one_round_writes);
            faults.add(writes.at, format!("writes: {} leaves no choice; {serving} do", engine.name));
        }
        let At { value: title, at } =
            title.unwrap_or(At { value: format!("db{}", number.value), at: number.at });
        if keyspaces.iter().any(|other| other.number == number.value) {
            faults.add(number.at, format!("there are two keyspaces with number {}", number.value));
        }
        if keyspaces.iter().any(|other| other.name == title) {
            faults.add(at, format!("there are two keyspaces called '{title}'"));
        }
        keyspaces.push(KeyspaceConfig {
            number: number.value,
            name: title,
            engine,
            partitions: partitions.map_or(4, |count| count.value),
            session: scope.map_or(Scope::default_of(engine.model), |scope| scope.value),
            leader: leader.and_then(|leader| leader.value),
            batch: batch.map_or(Duration::ZERO, |batch| batch.value),
            transactions,
            writes: writes.map_or(Writes::TwoRounds, |writes| writes.value),
        });
    }
    keyspaces.sort_by_key(|keyspace| keyspace.number);
    keyspaces
}

/// Where leaders are to be: in a region, or everywhere.
fn leader(name: &str, regions: &[String]) -> Result<Option<Region>, String> {
    if name == "spread" {
        return Ok(None);
    }
    let found = regions.iter().position(|known| known == name);
    let region =
        found.ok_or_else(|| format!("no node is in '{name}': choose spread or {}", regions.join(", ")))?;
    Ok(Some(Region(region as u8)))
}

/// How long operations may be gathered: no longer than what people notice, whatever the time-outs are.
fn batch(value: &DeValue<'_>) -> Result<Duration, String> {
    let batch = duration(value)?;
    if batch > LONGEST_BATCH {
        return Err(format!("every operation would wait for {batch:?}: choose at most {LONGEST_BATCH:?}"));
    }
    Ok(batch)
}

/// The longest span for which operations may be gathered.
const LONGEST_BATCH: Duration = Duration::from_millis(100);

fn read_clock(mut section: Section<'_, '_>, faults: &mut Faults<'_>) -> Source {
    let error = section.optional(faults, "error", duration);
    let path = section.optional(faults, "path", string);
    let source = section.optional(faults, "source", string);
    section.finish(faults, "source, error and path");
    let (name, at) = source.as_ref().map_or(("none", 0), |source| (source.value.as_str(), source.at));
    if let Some(error) = error.as_ref().filter(|_| name != "configured") {
        faults.add(error.at, "error: only source = \"configured\" has one");
    }
    if let Some(path) = path.as_ref().filter(|_| name != "clockbound") {
        faults.add(path.at, "path: only source = \"clockbound\" has one");
    }
    match (name, error) {
        ("configured", Some(error)) => Source::Configured(error.value),
        ("configured", None) => {
            faults.add(at, "source: \"configured\" needs 'error', the bound on how far the clock is off");
            Source::None
        }
        ("kernel", _) => Source::Kernel,
        ("clockbound", _) => Source::ClockBound(path.map(|path| path.value.into())),
        ("none", _) => Source::None,
        (other, _) => {
            let why = format!("source: '{other}' is none: choose configured, kernel, clockbound or none");
            faults.add(at, why);
            Source::None
        }
    }
}

fn read_timeouts(mut section: Section<'_, '_>, trusted_clock: bool, faults: &mut Faults<'_>) -> Timeouts {
    let standard = Timeouts::default();
    let span = |value: &DeValue<'_>| match duration(value)? {
        Duration::ZERO => Err("must be more than nothing".to_owned()),
        duration => Ok(duration),
    };
    let mut read = |key: &str, standard: Duration| {
        section.optional(faults, key, span).map_or(standard, |found| found.value)
    };
    let mut timeouts = Timeouts {
        operation: read("operation", standard.operation),
        retry: read("retry", standard.retry),
        recovery: read("recovery", standard.recovery),
        sync: read("sync", standard.sync),
        election: read("election", standard.election),
        lease: None,
    };
    if let Some(lease) = section.optional(faults, "lease", span) {
        if !trusted_clock {
            faults.add(
                lease.at,
                "lease: needs a bound on the clock: [clock] source = \"configured\" and 'error', \"kernel\" or \"clockbound\"",
            );
        }
        if lease.value >= timeouts.election {
            let election = timeouts.election;
            faults.add(lease.at, format!("lease: must be shorter than 'election', which is {election:?}"));
        }
        timeouts.lease = Some(lease.value);
    }
    section.finish(faults, "operation, retry, recovery, sync, election and lease");
    timeouts
}

fn read_limits(mut section: Section<'_, '_>, faults: &mut Faults<'_>) -> Limits {
    let standard = Limits::default();
    let mut read = |key: &str, least: u64, most: u64, standard: u64| {
        let read = |value: &DeValue<'_>| {
            let size = value.as_str().map_or_else(|| integer::<u64>(value), units::bytes)?;
            if (least..=most).contains(&size) {
                Ok(size)
            } else {
                Err(format!("must be from {least} to {most}"))
            }
        };
        section.optional(faults, key, read).map_or(standard, |found| found.value)
    };
    let limits = Limits {
        value: read("value", 1 << 10, 32 << 20, standard.value),
        maxmemory: read("maxmemory", 0, u64::MAX, standard.maxmemory),
        connections: read("connections", 1, 1 << 20, standard.connections as u64) as usize,
        peer_buffer: read("peer_buffer", 1 << 20, 1 << 40, standard.peer_buffer as u64) as usize,
    };
    section.finish(faults, "value, maxmemory, connections and peer_buffer");
    limits
}

/// A name that can stand in messages, files and commands.
fn name(value: &DeValue<'_>) -> Result<String, String> {
    let name = string(value)?;
    let fine = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if (1..=64).contains(&name.len()) && name.chars().all(fine) {
        Ok(name)
    } else {
        Err(format!("'{name}' is no name: use up to 64 letters, digits, '-', '_' and '.'"))
    }
}

/// `host:port`, or only a port, which means this machine alone.
fn address(value: &DeValue<'_>) -> Result<String, String> {
    if value.is_integer() {
        return integer::<u16>(value).map(|port| format!("127.0.0.1:{port}"));
    }
    let text = string(value)?;
    let port =
        text.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port.parse::<u16>());
    match port {
        Some(Ok(_)) => Ok(text),
        _ => Err(format!("'{text}' is no address: write host:port, or a port for this machine alone")),
    }
}

fn duration(value: &DeValue<'_>) -> Result<Duration, String> {
    units::duration(&string(value)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
[cluster]
id = "demo"

[[node]]
name = "ca-1"
region = "ca"
client = "127.0.0.1:7001"
peer = 7101
data = "data/ca-1"

[[keyspace]]
number = 1
model = "rsc"

[[keyspace]]
number = 0
name = "main"
model = "linearizable"
engine = "gryff"
partitions = 8
session = "connection"

[durability]
mode = "interval"
interval = "20ms"

[clock]
source = "configured"
error = "2ms"

[timeouts]
operation = "3s"

[limits]
value = "1MiB"
connections = 5
"#;

    #[test]
    fn a_good_file_is_read_whole() {
        let config = Config::parse(GOOD, Path::new("/etc/meridian")).unwrap();
        assert_eq!(config.cluster, "demo");
        assert_eq!(config.nodes[0].peer, "127.0.0.1:7101");
        assert_eq!(config.nodes[0].data.as_deref(), Some(Path::new("/etc/meridian/data/ca-1")));
        assert_eq!(config.keyspaces.iter().map(|k| k.number).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(config.keyspaces[0].session, Scope::Connection);
        assert_eq!((config.keyspaces[1].name.as_str(), config.keyspaces[1].partitions), ("db1", 4));
        assert_eq!(config.keyspaces[1].session, Scope::Connection, "the default of rsc");
        assert_eq!(config.durability, Durability::Interval(Duration::from_millis(20)));
        assert_eq!(config.clock, Source::Configured(Duration::from_millis(2)));
        assert_eq!(config.timeouts.operation, Duration::from_secs(3));
        assert_eq!((config.limits.value, config.limits.connections), (1 << 20, 5));
    }

    #[test]
    fn an_empty_or_short_secret_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let text = GOOD.replace("id = \"demo\"", "id = \"demo\"\nsecret_file = \"secret\"");
        for (secret, is_good) in
            [("", false), (" \n", false), ("too short", false), ("sixteen bytes!!!\n", true)]
        {
            std::fs::write(directory.path().join("secret"), secret).unwrap();
            assert_eq!(Config::parse(&text, directory.path()).is_ok(), is_good, "{secret:?}");
        }
    }

    #[test]
    fn all_faults_are_told_with_their_lines() {
        let bad = r#"[cluster]
name = "demo"
[[node]]
name = "ca 1"
region = "ca"
client = "7001"
peer = 7101
[[node]]
name = "va-1"
region = "va"
client = "127.0.0.1:7101"
peer = 99999
data = "x"
[[keyspace]]
number = 0
model = "casual"
leader = "ca"
[durability]
mode = "hope"
[clock]
source = "sundial"
[timeouts]
operation = "10"
[limits]
value = "64MiB"
[misc]
"#;
        let faults = Config::parse(bad, Path::new("")).unwrap_err();
        let told: Vec<String> = faults.iter().map(ToString::to_string).collect();
        for expected in [
            "line 1: [cluster] has no 'id'",
            "line 2: [cluster] has no setting 'name'",
            "line 3: [[node]] has no 'data'",
            "line 4: name: 'ca 1'",
            "line 6: client: '7001' is no address",
            "line 11: 127.0.0.1:7101 is used twice",
            "line 12: peer: 99999 is out of range",
            "line 16: model: no model is called 'casual'",
            "line 17: leader:",
            "line 19: mode: 'hope'",
            "line 21: source: 'sundial' is none",
            "line 23: operation: '10' is no duration",
            "line 25: value: must be",
            "line 26: the file has no setting 'misc'",
        ] {
            assert!(told.iter().any(|fault| fault.starts_with(expected)), "{expected} in {told:#?}");
        }
        assert_eq!(told.len(), 14, "{told:#?}");
        let broken = Config::parse("[cluster\nid = 3 4\n", Path::new("")).unwrap_err();
        assert!(!broken.is_empty() && broken[0].line == 1);
    }

    #[test]
    fn a_leader_is_where_there_is_a_node_and_a_lease_needs_a_clock() {
        let led = |leader: &str| {
            let leader = format!("engine = \"multipaxos\"\nleader = \"{leader}\"");
            Config::parse(&GOOD.replace("engine = \"gryff\"", &leader), Path::new(""))
        };
        assert_eq!(led("ca").unwrap().keyspaces[0].leader, Some(Region(0)));
        assert_eq!(led("spread").unwrap().keyspaces[0].leader, None);
        let told = led("mars").unwrap_err()[0].to_string();
        assert!(told.contains("leader: no node is in 'mars': choose spread or ca"), "{told}");
        let none = GOOD.replace("partitions = 8", "leader = \"ca\"");
        let told = Config::parse(&none, Path::new("")).unwrap_err()[0].to_string();
        assert!(told.contains("leader: gryff has none"), "{told}");

        let leased = GOOD.replace("operation = \"3s\"", "election = \"2s\"\nlease = \"500ms\"");
        let settings = Config::parse(&leased, Path::new("")).unwrap().timeouts.settings();
        assert_eq!((settings.log.election, settings.log.lease), (2_000_000, 500_000));
        let unbounded = leased.replace("source = \"configured\"\nerror = \"2ms\"", "source = \"none\"");
        let told = Config::parse(&unbounded, Path::new("")).unwrap_err()[0].to_string();
        assert!(told.contains("lease: needs a bound on the clock"), "{told}");
        // As long as the standard election, or as the one that is set.
        for long in ["lease = \"1s\"", "election = \"2s\"\nlease = \"2s\""] {
            let text = GOOD.replace("operation = \"3s\"", long);
            let told = Config::parse(&text, Path::new("")).unwrap_err()[0].to_string();
            assert!(told.contains("lease: must be shorter than 'election'"), "{told}");
        }
    }

    #[test]
    fn a_batch_is_short_and_for_engines_that_gather() {
        let with = |engine: &str, batch: &str| {
            let setting = format!("engine = \"{engine}\"\nbatch = \"{batch}\"");
            Config::parse(&GOOD.replace("engine = \"gryff\"", &setting), Path::new(""))
        };
        for (batch, micros) in [("250us", 250), ("5ms", 5_000), ("0ms", 0)] {
            assert_eq!(with("epaxos", batch).unwrap().keyspaces[0].batch, Duration::from_micros(micros));
        }
        for (engine, batch, reason) in [
            ("gryff", "5ms", "batch: gryff has none; epaxos has"),
            ("multipaxos", "5ms", "batch: multipaxos has none"),
            ("epaxos", "2s", "batch: every operation would wait for 2s: choose at most 100ms"),
            ("epaxos", "5", "batch: '5' is no duration"),
        ] {
            let told = with(engine, batch).unwrap_err()[0].to_string();
            assert!(told.contains(reason), "{told}");
        }
    }

    #[test]
    fn transactions_have_settings_of_their_own_and_need_a_clock() {
        let with = |settings: &str| {
            let text = GOOD.replace("model = \"rsc\"", settings);
            Config::parse(&text, Path::new("")).map_err(|faults| faults[0].to_string())
        };
        let config = with("model = \"rss\"\nfence = \"10ms\"\nretention = \"5s\"").unwrap();
        let transactions = &config.keyspaces[1].transactions;
        assert_eq!((transactions.fence, transactions.retention), (10_000, 5_000_000));
        let standard = with("model = \"rss\"").unwrap();
        assert_ne!(config.hash(), standard.hash(), "all nodes must agree on L");
        assert_eq!(config.records_hash(), standard.records_hash());
        for (settings, reason) in [
            ("model = \"rsc\"\nfence = \"10ms\"", "fence: gryff-rsc has none"),
            ("model = \"strict-serializable\"\nfence = \"10ms\"", "fence: spanner has none"),
            ("model = \"rsc\"\nretention = \"10s\"", "retention: gryff-rsc has none"),
        ] {
            assert!(with(settings).unwrap_err().contains(reason));
        }
        let clockless = GOOD.replace("model = \"rsc\"", "model = \"rss\"");
        let clockless = clockless.replace("source = \"configured\"\nerror = \"2ms\"", "source = \"none\"");
        let told = Config::parse(&clockless, Path::new("")).unwrap_err()[0].to_string();
        assert!(told.contains("spanner-rss needs a bound on the clock"), "{told}");
    }

    #[test]
    fn writes_by_the_clock_are_for_registers_and_for_good() {
        let with = |engine: &str, writes: &str| {
            let setting = format!("engine = \"{engine}\"\nwrites = \"{writes}\"");
            Config::parse(&GOOD.replace("engine = \"gryff\"", &setting), Path::new(""))
        };
        let plain = Config::parse(GOOD, Path::new("")).unwrap();
        let [two, one, auto] = ["two-round", "one-round", "auto"].map(|how| with("gryff", how).unwrap());
        assert_eq!(plain.records_hash(), two.records_hash());
        assert_ne!(plain.records_hash(), one.records_hash());
        assert_eq!(one.records_hash(), auto.records_hash());
        let told = with("epaxos", "auto").unwrap_err()[0].to_string();
        assert!(told.contains("writes: epaxos leaves no choice; linearizable (gryff, abd), rsc"), "{told}");
        let told = with("gryff", "quick").unwrap_err()[0].to_string();
        assert!(told.contains("choose one of two-round, one-round, auto"), "{told}");
    }

    #[test]
    fn the_hash_covers_what_all_must_agree_on() {
        let hash = |text: &str| Config::parse(text, Path::new("")).unwrap().hash();
        assert_eq!(hash(GOOD), hash(&GOOD.replace("7001", "7009").replace("20ms", "30ms")));
        assert_ne!(hash(GOOD), hash(&GOOD.replace("partitions = 8", "partitions = 9")));
        assert_ne!(hash(GOOD), hash(&GOOD.replace("ca-1", "ca-2")));
        assert_ne!(hash(GOOD), hash(&GOOD.replace("rsc", "linearizable")));
        // Where leaders are to be must be agreed on, and may be changed where there are records.
        let led = |leader: &str| {
            let engine = format!("engine = \"multipaxos\"{leader}");
            Config::parse(&GOOD.replace("engine = \"gryff\"", &engine), Path::new("")).unwrap()
        };
        let (free, spread, in_ca) = (led(""), led("\nleader = \"spread\""), led("\nleader = \"ca\""));
        assert_eq!(free.hash(), spread.hash());
        assert_ne!(free.hash(), in_ca.hash());
        assert_eq!(free.records_hash(), in_ca.records_hash());
        assert_ne!(free.records_hash(), Config::parse(GOOD, Path::new("")).unwrap().records_hash());
    }
}
