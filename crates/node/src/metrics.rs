//! What a node tells of itself in Prometheus's text format. Counters live where they are counted; here they are only written.

use crate::core::Core;
use crate::session::Host;
use crate::tally::{Commits, ENDS, Histogram, Tally};
use meridian_protocol::clock::Micros;
use meridian_protocol::topology::Region;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Counters of replicas that tell what is there now, not how often something happened.
const CURRENT: [&str; 2] = ["versions", "backlog"];
/// Counters that make a metric of their own: how many writes were seen to become visible, and how long that took in all.
const VISIBLE: [&str; 2] = ["visible", "visible_us"];

/// Everything, as text.
pub(crate) fn text(core: &Core, sessions: (usize, usize), commits: &Commits) -> String {
    let mut page = Page::default();
    about(core, &mut page);
    clients(core, sessions, &mut page);
    operations(core, &mut page);
    replicas(core, &mut page);
    links(core, &mut page);
    store(core, commits, &mut page);
    page.text
}

fn about(core: &Core, page: &mut Page) {
    let facts = core.facts();
    page.family("meridian_info", "gauge", "The node.");
    let labels =
        [("node", facts.node.as_str()), ("region", &facts.region), ("version", env!("CARGO_PKG_VERSION"))];
    page.value("meridian_info", &labels, 1);
    page.one("meridian_uptime_seconds", "gauge", "Since the process has started.", facts.uptime_s);
    page.one(
        "meridian_memory_bytes",
        "gauge",
        "Held by replicas, as compared with maxmemory.",
        core.used_memory(),
    );
    let now = core.now();
    page.family(
        "meridian_clock_bound_seconds",
        "gauge",
        "How far the clock may be off; missing if nobody vouches for it.",
    );
    if let Some(bound) = now.uncertainty {
        page.seconds("meridian_clock_bound_seconds", &[], bound);
    }
    let contradicted = core.outside.clock.contradicted();
    page.one(
        "meridian_clock_contradicted_total",
        "counter",
        "Times of other nodes that contradict the clock.",
        contradicted,
    );
}

fn clients(core: &Core, (input, output): (usize, usize), page: &mut Page) {
    let shared = &core.shared;
    let (counters, denials) = (shared.counters, shared.users.denials);
    page.one("meridian_clients", "gauge", "Clients connected.", shared.clients.len() as u64);
    let blocked = shared.clients.list().iter().filter(|info| info.blocked.is_some()).count();
    page.one(
        "meridian_clients_waiting",
        "gauge",
        "Of these, clients that wait for items of lists.",
        blocked as u64,
    );
    page.family("meridian_client_buffer_bytes", "gauge", "Bytes of commands and of answers that wait.");
    page.value("meridian_client_buffer_bytes", &[("way", "in")], input as u64);
    page.value("meridian_client_buffer_bytes", &[("way", "out")], output as u64);
    for (name, help, count) in [
        ("meridian_connections_total", "Connections of clients taken up.", counters.connections),
        (
            "meridian_connections_rejected_total",
            "Connections turned away, as there were too many.",
            counters.rejected,
        ),
        (
            "meridian_connections_evicted_total",
            "Connections ended, as they held up or held too much.",
            counters.evicted,
        ),
        ("meridian_commands_total", "Commands ended.", counters.commands),
        ("meridian_errors_total", "Errors answered.", counters.errors),
    ] {
        page.one(name, "counter", help, count);
    }
    page.family("meridian_denied_total", "counter", "What was refused for want of a right.");
    for (what, count) in [
        ("authentication", denials.auth),
        ("command", denials.command),
        ("key", denials.key),
        ("keyspace", denials.keyspace),
    ] {
        page.value("meridian_denied_total", &[("what", what)], count);
    }
}

/// Writes something of each kind of operations that there were.
fn each(core: &Core, page: &mut Page, write: impl Fn(&mut Page, &[(&str, &str)], &Tally)) {
    for (info, tallies) in core.infos.iter().zip(&core.tallies) {
        for (kind, tally) in tallies.iter().filter(|(_, tally)| tally.took.count() > 0) {
            write(page, &[("keyspace", &info.name), ("engine", info.engine), ("kind", kind)], tally);
        }
    }
}

fn operations(core: &Core, page: &mut Page) {
    page.one("meridian_requests_open", "gauge", "Requests under way.", core.open_requests() as u64);
    page.family("meridian_operations_total", "counter", "Operations, by how they ended.");
    each(core, page, |page, labels, tally| {
        for (end, count) in ENDS.iter().zip(tally.ended) {
            page.value("meridian_operations_total", &[labels, &[("end", end)]].concat(), count);
        }
    });
    page.family(
        "meridian_operation_rounds_total",
        "counter",
        "Operations, by wide-area round trips; 4 is 4 or more.",
    );
    each(core, page, |page, labels, tally| {
        for (rounds, count) in tally.rounds.iter().enumerate() {
            let rounds = rounds.to_string();
            page.value("meridian_operation_rounds_total", &[labels, &[("rounds", &rounds)]].concat(), *count);
        }
    });
    page.family(
        "meridian_blocked_seconds_total",
        "counter",
        "Time that operations waited for others, or for clocks.",
    );
    each(core, page, |page, labels, tally| {
        page.seconds("meridian_blocked_seconds_total", labels, tally.waited);
    });
    page.family(
        "meridian_operation_seconds",
        "histogram",
        "How long operations took on the node, wide area included.",
    );
    each(core, page, |page, labels, tally| page.histogram("meridian_operation_seconds", labels, &tally.took));
    page.family("meridian_command_seconds", "histogram", "How long commands took that asked replicas.");
    for (place, info) in core.infos.iter().enumerate() {
        for (command, took) in core.shared.commands.iter(place) {
            let labels = [("keyspace", info.name.as_str()), ("engine", info.engine), ("command", command)];
            page.histogram("meridian_command_seconds", &labels, took);
        }
    }
}

fn replicas(core: &Core, page: &mut Page) {
    let mut sums = Vec::new();
    for (info, keyspace) in core.infos.iter().zip(&core.keyspaces) {
        let (mut here, mut counters) = ([0; 3], Vec::<(&str, u64)>::new());
        let (mut lag, mut led) = (None, BTreeMap::new());
        for (_, status) in keyspace.status() {
            lag = lag.max(status.lag);
            if let Some(region) = status.leader {
                *led.entry(region).or_insert(0) += 1;
            }
            for (sum, count) in here.iter_mut().zip([status.keys, status.bytes, status.open_instances]) {
                *sum += count;
            }
            for (name, count) in status.counters {
                match counters.iter_mut().find(|(known, _)| *known == name) {
                    Some((_, sum)) => *sum += count,
                    None => counters.push((name, count)),
                }
            }
        }
        sums.push(Sums {
            labels: [("keyspace", &info.name), ("engine", info.engine)],
            here,
            counters,
            lag,
            led,
        });
    }
    for (place, (name, help)) in [
        ("meridian_keys", "Keys held, tombstones included."),
        ("meridian_key_bytes", "About how many bytes of keys and values are held."),
        ("meridian_open_instances", "Consensus instances not yet executed."),
    ]
    .into_iter()
    .enumerate()
    {
        page.family(name, "gauge", help);
        for sums in &sums {
            page.value(name, &sums.labels, sums.here[place]);
        }
    }
    for (name, kind, help, current) in [
        (
            "meridian_engine_events_total",
            "counter",
            "What happened in the node's replicas, by the engine's own names.",
            false,
        ),
        ("meridian_engine_state", "gauge", "What is there now, by the engine's own names.", true),
    ] {
        page.family(name, kind, help);
        for Sums { labels, counters, .. } in &sums {
            let told = counters.iter().filter(|(event, _)| !VISIBLE.contains(event));
            for (event, count) in told.filter(|(event, _)| CURRENT.contains(event) == current) {
                page.value(name, &[&labels[..], &[("event", event)]].concat(), *count);
            }
        }
    }
    page.family(
        "meridian_leaders",
        "gauge",
        "Of how many of the node's partitions a region leads, as far as is known.",
    );
    for Sums { labels, led, .. } in &sums {
        for (region, partitions) in led {
            let region = core.regions[region.index()].as_str();
            page.value("meridian_leaders", &[&labels[..], &[("region", region)]].concat(), *partitions);
        }
    }
    page.family(
        "meridian_snapshot_lag_seconds",
        "gauge",
        "How far the global stable snapshot is behind the clock, in the partition where that is most.",
    );
    for Sums { labels, lag, .. } in &sums {
        if let Some(lag) = lag {
            page.seconds("meridian_snapshot_lag_seconds", labels, *lag);
        }
    }
    page.family(
        "meridian_visibility_seconds",
        "summary",
        "How long writes of other regions took to become visible, from their timestamps on; of samples.",
    );
    for Sums { labels, counters, .. } in &sums {
        let [count, us] = VISIBLE.map(|name| counters.iter().find(|(known, _)| *known == name));
        if let (Some((_, count)), Some((_, us))) = (count, us) {
            page.seconds("meridian_visibility_seconds_sum", labels, *us);
            page.value("meridian_visibility_seconds_count", labels, *count);
        }
    }
}

/// What the replicas of a keyspace on this node tell together.
struct Sums<'a> {
    labels: [(&'a str, &'a str); 2],
    /// Keys, bytes, open instances.
    here: [u64; 3],
    counters: Vec<(&'static str, u64)>,
    /// The largest.
    lag: Option<Micros>,
    /// By region, how many of the partitions it leads.
    led: BTreeMap<Region, u64>,
}

fn links(core: &Core, page: &mut Page) {
    let outside = &core.outside;
    let peers = || {
        let links = outside.links.iter().enumerate().filter(|(node, _)| *node != outside.me);
        links.map(|(node, link)| ([("peer", core.names[node].as_str())], link))
    };
    page.family("meridian_peer_up", "gauge", "Whether a node is connected and was heard of lately.");
    for (labels, link) in peers() {
        page.value("meridian_peer_up", &labels, u64::from(link.is_up() && link.is_reachable()));
    }
    page.family("meridian_peer_round_trip_seconds", "gauge", "Round trip to a node, as measured lately.");
    for (labels, link) in peers() {
        if let Some(micros) = link.round_trip() {
            page.seconds("meridian_peer_round_trip_seconds", &labels, micros);
        }
    }
    page.family("meridian_peer_queue_bytes", "gauge", "Bytes that wait for a node.");
    for (labels, link) in peers() {
        page.value("meridian_peer_queue_bytes", &labels, link.waiting() as u64);
    }
    page.family("meridian_peer_dropped_total", "counter", "Messages to a node that were dropped.");
    for (labels, link) in peers() {
        page.value("meridian_peer_dropped_total", &labels, link.dropped);
    }
    let mail = &outside.mail;
    page.one("meridian_messages_total", "counter", "Messages to and from other nodes.", mail.messages);
    page.one("meridian_message_bytes_total", "counter", "Their bytes.", mail.bytes);
}

fn store(core: &Core, commits: &Commits, page: &mut Page) {
    let status = &core.store_status;
    page.one("meridian_store_syncs_total", "counter", "How often data were forced to disk.", status.syncs);
    page.one(
        "meridian_store_written_bytes_total",
        "counter",
        "Bytes written, compaction included.",
        status.written,
    );
    page.one("meridian_store_bytes", "gauge", "Bytes in use on disk.", status.used);
    page.one("meridian_store_live_bytes", "gauge", "Of these, bytes of what still stands.", status.live);
    page.family(
        "meridian_store_commit_seconds",
        "histogram",
        "How long batches of records took, in mode fsync until they were on disk.",
    );
    page.histogram("meridian_store_commit_seconds", &[], &commits.took);
    page.family(
        "meridian_store_sync_seconds",
        "histogram",
        "How long it took to force what was written to disk.",
    );
    page.histogram("meridian_store_sync_seconds", &[], &commits.synced);
    page.family("meridian_store_sync_records", "histogram", "How many records shared that.");
    page.histogram_of("meridian_store_sync_records", &[], &commits.shared, |number| number.to_string());
}

/// A page in the text format.
#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    /// Begins a family; its values follow.
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string has no error.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// A family of one value.
    fn one(&mut self, name: &str, kind: &str, help: &str, value: u64) {
        self.family(name, kind, help);
        self.value(name, &[], value);
    }

    fn value(&mut self, name: &str, labels: &[(&str, &str)], value: u64) {
        self.line(name, labels, &value.to_string());
    }

    fn seconds(&mut self, name: &str, labels: &[(&str, &str)], micros: Micros) {
        self.line(name, labels, &in_seconds(micros));
    }

    /// Of times.
    fn histogram(&mut self, name: &str, labels: &[(&str, &str)], histogram: &Histogram) {
        self.histogram_of(name, labels, histogram, in_seconds);
    }

    fn histogram_of(
        &mut self,
        name: &str,
        labels: &[(&str, &str)],
        histogram: &Histogram,
        text: fn(u64) -> String,
    ) {
        let bucket = format!("{name}_bucket");
        for (bound, count) in histogram.up_to() {
            self.value(&bucket, &[labels, &[("le", &text(bound))]].concat(), count);
        }
        self.value(&bucket, &[labels, &[("le", "+Inf")]].concat(), histogram.count());
        self.line(&format!("{name}_sum"), labels, &text(histogram.sum));
        self.value(&format!("{name}_count"), labels, histogram.count());
    }

    /// Labels' values are names of the configuration and words of the program: they need no escapes.
    fn line(&mut self, name: &str, labels: &[(&str, &str)], value: &str) {
        let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _ = writeln!(self.text, "{name}{labels} {value}");
    }
}

fn in_seconds(micros: Micros) -> String {
    format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000)
}
