//! The sections of `cluster.toml`: what each may say, and what must not stand together.

use super::access;
use super::reader::{At, Faults, Section, integer, string};
use super::{Config, Durability, KeyspaceConfig, Limits, NodeConfig, Scope, Timeouts, units};
use meridian_clock::Source;
use meridian_protocol::registry::{EngineName, Several, Writes};
use meridian_protocol::spanner::SpannerSettings;
use meridian_protocol::topology::Region;
use std::path::Path;
use std::time::Duration;
use toml::de::{DeTable, DeValue};

/// The whole file, and every fault in it.
pub(super) fn read_config(document: &DeTable<'_>, directory: &Path, faults: &mut Faults<'_>) -> Config {
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
    let users = root.tables(faults, "user");
    let users = access::read_users(users, &keyspaces, directory, faults);
    let tls = access::read_tls(&mut root, directory, faults);
    let protected = access::read_security(root.table(faults, "security"), faults);
    root.finish(
        faults,
        "[cluster], [[node]], [[keyspace]], [durability], [clock], [timeouts], [limits], [[user]], [tls] and [security]",
    );
    Config {
        cluster,
        secret,
        regions,
        nodes,
        keyspaces,
        durability: mode,
        clock,
        timeouts,
        limits,
        users,
        tls,
        protected,
    }
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
        let admin = section.optional(faults, "admin", address);
        let data = section.optional(faults, "data", string);
        if data.is_none() && durability != Durability::Memory {
            faults.add(section.at, "[[node]] has no 'data', the directory for its records");
        }
        section.finish(faults, "name, region, client, peer, admin and data");
        for address in [&client, &peer, &admin].into_iter().flatten() {
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
        let (admin, region) = (admin.map(|admin| admin.value), Region(index as u8));
        nodes.push(NodeConfig { name: node.value, region, client, peer, admin, data });
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
        if let Some(At { value, at }) = writes.as_ref() {
            if !engine.has_one_round_writes() {
                let serving = EngineName::naming(EngineName::has_one_round_writes);
                faults.add(*at, format!("writes: {} leaves no choice; {serving} do", engine.name));
            } else if *value != Writes::TwoRounds && !trusted_clock {
                let needs =
                    "a write in one round needs a bound on the clock: say in [clock] who vouches for it";
                faults.add(*at, format!("writes: {needs}"));
            }
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
        ("configured", Some(error)) => {
            if error.value.is_zero() {
                faults.add(error.at, "error: no clock is exact: state a bound, such as 1ms");
            }
            Source::Configured(error.value)
        }
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
    let value = read("value", 1 << 10, 32 << 20, standard.value);
    let maxmemory = read("maxmemory", 0, u64::MAX, standard.maxmemory);
    let connections = read("connections", 1, 1 << 20, standard.connections as u64) as usize;
    let peer_buffer = read("peer_buffer", 1 << 20, 1 << 40, standard.peer_buffer as u64) as usize;
    let client_buffers = read("client_buffers", 0, 1 << 50, standard.client_buffers);
    let mut span = |key: &str, standard: Duration| {
        section.optional(faults, key, duration).map_or(standard, |found| found.value)
    };
    let stall = span("stall", standard.stall);
    let authentication = span("authentication", standard.authentication);
    section.finish(
        faults,
        "value, maxmemory, connections, peer_buffer, client_buffers, stall and authentication",
    );
    Limits { value, maxmemory, connections, peer_buffer, client_buffers, stall, authentication }
}

/// A name that can stand in messages, files and commands.
pub(super) fn name(value: &DeValue<'_>) -> Result<String, String> {
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
