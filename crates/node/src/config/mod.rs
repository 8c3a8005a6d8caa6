//! What a cluster is made of: `cluster.toml`, read and checked as a whole.
//!
//! Every node of a cluster reads the same file. What all must agree on goes into [`Config::hash`], which nodes
//! compare when they meet.

pub(crate) mod access;
mod reader;
mod sections;
pub mod units;

pub use access::is_local;

use meridian_clock::Source;
use meridian_protocol::multipaxos::log::LogSettings;
use meridian_protocol::registry::{EngineName, Model, Settings, Writes};
use meridian_protocol::spanner::SpannerSettings;
use meridian_protocol::topology::Region;
use reader::Faults;
use sha2::{Digest, Sha256};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use toml::de::DeTable;

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
    /// The users that it begins with, beside the default one.
    pub users: Vec<UserConfig>,
    /// With which certificates connections are encrypted, if they are.
    pub tls: Option<TlsConfig>,
    /// Whether a node that anybody could use refuses to run.
    pub protected: bool,
}

/// How connections are encrypted. In paths `{node}` stands for the node's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsConfig {
    /// What the node shows: its certificate, and those between it and the authority's.
    pub certificate: PathBuf,
    /// The certificate's private key.
    pub key: PathBuf,
    /// Who signs the nodes' certificates; needed where nodes meet with TLS.
    pub ca: Option<PathBuf>,
    /// Who signs the clients' certificates, if they must show one.
    pub client_ca: Option<PathBuf>,
    /// Whether clients speak TLS.
    pub clients: bool,
    /// Whether nodes do among themselves.
    pub nodes: bool,
}

impl TlsConfig {
    /// The same with the paths of one node.
    pub(crate) fn of_node(&self, node: &str) -> Self {
        let of = |path: &PathBuf| PathBuf::from(path.to_string_lossy().replace("{node}", node));
        Self {
            certificate: of(&self.certificate),
            key: of(&self.key),
            ca: self.ca.as_ref().map(of),
            client_ca: self.client_ca.as_ref().map(of),
            ..*self
        }
    }
}

/// A user, as a node begins with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserConfig {
    /// Its name.
    pub name: String,
    /// Its rules, as of `ACL SETUSER`, without a password but for its hash.
    pub rules: Vec<String>,
}

impl UserConfig {
    pub(crate) fn named(&self) -> (&str, &[String]) {
        (&self.name, &self.rules)
    }
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
    /// Where it tells operators and their tools of itself, if anywhere.
    pub admin: Option<String>,
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
    /// Bytes that wait in all clients' connections together, above which the largest are ended; 0 is no limit.
    pub client_buffers: u64,
    /// After how long a client that takes none of its answers is ended.
    pub stall: Duration,
    /// How long a client may take to say who it is, where it must.
    pub authentication: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            value: 8 << 20,
            maxmemory: 0,
            connections: 10_000,
            peer_buffer: 64 << 20,
            client_buffers: 1 << 30,
            stall: Duration::from_mins(1),
            authentication: Duration::from_mins(1),
        }
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
        let config = sections::read_config(document.get_ref(), directory, &mut faults);
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
        let told = Config::parse(&clockless.replace("2ms", "0ms"), Path::new("")).unwrap_err()[0].to_string();
        assert!(told.contains("error: no clock is exact"), "{told}");
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
        let clockless = GOOD.replace("source = \"configured\"\nerror = \"2ms\"", "source = \"none\"");
        let with = |writes: &str| {
            let setting = format!("engine = \"gryff\"\nwrites = \"{writes}\"");
            Config::parse(&clockless.replace("engine = \"gryff\"", &setting), Path::new(""))
        };
        assert!(with("two-round").is_ok());
        for writes in ["one-round", "auto"] {
            let told = with(writes).unwrap_err()[0].to_string();
            assert!(told.contains("writes: a write in one round needs a bound on the clock"), "{told}");
        }
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
