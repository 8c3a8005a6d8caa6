//! What all nodes together tell: a table for people, JSON for scripts.

use super::told::{Replica, Told};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// A cluster, as the nodes that were asked tell it.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// Whether all that were asked answer and find a majority.
    ready: bool,
    clusters: Vec<String>,
    nodes: Vec<Node>,
    round_trips: Vec<RoundTrip>,
    keyspaces: Vec<Keyspace>,
    /// What an operator should look at.
    warnings: Vec<String>,
}

/// A node that was asked, or that others know.
#[derive(Debug, Default, Serialize)]
struct Node {
    /// Where it was asked; none if it was not.
    address: Option<String>,
    /// None of one that does not answer: it alone knows.
    name: Option<String>,
    region: Option<String>,
    /// Why it does not answer.
    error: Option<String>,
    /// Of the nodes that answer, how many have heard of it lately, and how many others there are.
    seen_by: Option<(usize, usize)>,
    /// What it tells of itself.
    own: Option<Own>,
}

#[derive(Debug, Serialize)]
struct Own {
    ready: bool,
    version: String,
    uptime_s: u64,
    clients: u64,
    memory_bytes: u64,
    durability: String,
    clock_source: String,
    /// None if nobody vouches for the clock.
    clock_error_us: Option<u64>,
    clock_contradicted: u64,
}

/// Between two regions, the shortest that their nodes have measured.
#[derive(Debug, Serialize)]
struct RoundTrip {
    from: String,
    to: String,
    us: u64,
}

#[derive(Debug, Serialize)]
struct Keyspace {
    number: u64,
    name: String,
    model: String,
    engine: String,
    partitions: u64,
    /// Keys held, of each partition where most are held.
    keys: u64,
    /// What is not yet executed or installed, on all nodes together.
    open: u64,
    /// By region, of how many partitions it leads; under an empty name those of which no leader is known. None in engines
    /// without leaders.
    leaders: Option<BTreeMap<String, u64>>,
    /// The most by which any replica shows other regions' writes late.
    lag_us: Option<u64>,
}

impl Report {
    /// Sums up what each node has said.
    pub(super) fn new(told: &[(String, Result<Told, String>)]) -> Self {
        let answers: Vec<&Told> = told.iter().filter_map(|(_, told)| told.as_ref().ok()).collect();
        let mut nodes: Vec<Node> =
            told.iter().map(|(address, told)| asked(address, told, &answers)).collect();
        for peer in answers.iter().flat_map(|told| &told.peers) {
            if nodes.iter().all(|node| node.name.as_ref() != Some(&peer.name)) {
                nodes.push(Node {
                    name: Some(peer.name.clone()),
                    region: Some(peer.region.clone()),
                    seen_by: Some(seen_by(&peer.name, &answers)),
                    ..Node::default()
                });
            }
        }
        Self {
            ready: nodes
                .iter()
                .all(|node| node.address.is_none() || node.own.as_ref().is_some_and(|own| own.ready)),
            clusters: distinct(&answers, "cluster"),
            round_trips: round_trips(&answers),
            keyspaces: keyspaces(&answers),
            warnings: warnings(&answers),
            nodes,
        }
    }

    /// Whether all that were asked answer and find a majority.
    pub(super) fn is_ready(&self) -> bool {
        self.ready
    }

    /// The table for people.
    pub(super) fn table(&self) -> String {
        let mut text = String::new();
        let clusters = if self.clusters.is_empty() { "unknown".to_owned() } else { self.clusters.join(", ") };
        let ready = if self.ready { "all nodes asked are ready" } else { "NOT READY" };
        let _ = writeln!(text, "cluster {clusters}: {ready}\n");
        let mut rows = vec![
            [
                "node",
                "region",
                "state",
                "seen by",
                "version",
                "up for",
                "clients",
                "memory",
                "durability",
                "clock",
            ]
            .map(str::to_owned)
            .to_vec(),
        ];
        rows.extend(self.nodes.iter().map(Node::row));
        write_table(&mut text, &rows);
        if !self.round_trips.is_empty() {
            text.push_str("\nround trips, ms\n");
            write_table(&mut text, &self.matrix());
        }
        if !self.keyspaces.is_empty() {
            text.push('\n');
            let head = ["keyspace", "no.", "model", "engine", "partitions", "keys", "open", "leaders", "lag"];
            let mut rows = vec![head.map(str::to_owned).to_vec()];
            rows.extend(self.keyspaces.iter().map(Keyspace::row));
            write_table(&mut text, &rows);
        }
        if !self.warnings.is_empty() {
            text.push('\n');
        }
        for warning in &self.warnings {
            let _ = writeln!(text, "warning: {warning}");
        }
        text
    }

    fn matrix(&self) -> Vec<Vec<String>> {
        let mut regions: Vec<&String> = Vec::new();
        for region in self.round_trips.iter().flat_map(|trip| [&trip.from, &trip.to]) {
            if !regions.contains(&region) {
                regions.push(region);
            }
        }
        let mut rows = vec![
            std::iter::once("from \\ to")
                .chain(regions.iter().map(|r| r.as_str()))
                .map(str::to_owned)
                .collect(),
        ];
        for from in &regions {
            let cell = |to: &&String| {
                let found = self.round_trips.iter().find(|trip| trip.from == **from && trip.to == **to);
                found.map_or("-".to_owned(), |trip| milliseconds(trip.us))
            };
            rows.push(std::iter::once((*from).clone()).chain(regions.iter().map(cell)).collect());
        }
        rows
    }
}

fn asked(address: &str, told: &Result<Told, String>, answers: &[&Told]) -> Node {
    let address = Some(address.to_owned());
    match told {
        Err(why) => Node { address, error: Some(why.clone()), ..Node::default() },
        Ok(told) => Node {
            address,
            name: Some(told.fact("node").to_owned()),
            region: Some(told.fact("region").to_owned()),
            error: None,
            seen_by: Some(seen_by(told.fact("node"), answers)),
            own: Some(Own {
                ready: told.fact("ready") == "yes",
                version: told.fact("meridian_version").to_owned(),
                uptime_s: told.number("uptime_s").unwrap_or(0),
                clients: told.number("connected_clients").unwrap_or(0),
                memory_bytes: told.number("used_memory").unwrap_or(0),
                durability: told.fact("durability").to_owned(),
                clock_source: told.fact("clock_source").to_owned(),
                clock_error_us: told.number("clock_error_us"),
                clock_contradicted: told.number("clock_contradicted").unwrap_or(0),
            }),
        },
    }
}

/// How many of the nodes that answer have heard of a node lately, and how many of them know it.
fn seen_by(name: &str, answers: &[&Told]) -> (usize, usize) {
    let others = answers.iter().filter_map(|told| told.peers.iter().find(|peer| peer.name == name));
    let states: Vec<bool> = others.map(|peer| peer.state == "up").collect();
    (states.iter().filter(|up| **up).count(), states.len())
}

/// What the nodes say under a name, each thing once.
fn distinct(answers: &[&Told], name: &str) -> Vec<String> {
    let mut values: Vec<String> = Vec::new();
    for value in answers.iter().map(|told| told.fact(name)) {
        if !values.iter().any(|known| known == value) {
            values.push(value.to_owned());
        }
    }
    values
}

fn round_trips(answers: &[&Told]) -> Vec<RoundTrip> {
    let mut trips: Vec<RoundTrip> = Vec::new();
    for told in answers {
        for peer in &told.peers {
            let (from, Some(us)) = (told.fact("region"), peer.round_trip_us) else { continue };
            match trips.iter_mut().find(|trip| trip.from == from && trip.to == peer.region) {
                Some(trip) => trip.us = trip.us.min(us),
                None => trips.push(RoundTrip { from: from.to_owned(), to: peer.region.clone(), us }),
            }
        }
    }
    trips
}

fn keyspaces(answers: &[&Told]) -> Vec<Keyspace> {
    let Some(first) = answers.first() else { return Vec::new() };
    let about = |known: &super::told::Keyspace| {
        let replicas = || answers.iter().flat_map(|told| &told.replicas).filter(|r| r.keyspace == known.name);
        let mut partitions: BTreeMap<u64, Vec<&Replica>> = BTreeMap::new();
        for replica in replicas() {
            partitions.entry(replica.partition).or_default().push(replica);
        }
        let most = |replicas: &Vec<&Replica>| replicas.iter().map(|replica| replica.keys).max().unwrap_or(0);
        let leads = replicas().any(|replica| replica.leader.is_some());
        let leaders = leads.then(|| {
            let mut leaders = BTreeMap::new();
            for replicas in partitions.values() {
                *leaders.entry(leader(replicas)).or_insert(0) += 1;
            }
            leaders
        });
        Keyspace {
            number: known.number,
            name: known.name.clone(),
            model: known.model.clone(),
            engine: known.engine.clone(),
            partitions: known.partitions,
            keys: partitions.values().map(most).sum(),
            open: replicas().map(|replica| replica.open).sum(),
            leaders,
            lag_us: replicas().filter_map(|replica| replica.lag_us).max(),
        }
    };
    first.keyspaces.iter().map(about).collect()
}

/// Whom most replicas of a partition name; while leaders change they may differ.
fn leader(replicas: &[&Replica]) -> String {
    let named = replicas.iter().filter_map(|replica| replica.leader.as_ref()).filter(|name| !name.is_empty());
    let mut votes: BTreeMap<&String, usize> = BTreeMap::new();
    for name in named {
        *votes.entry(name).or_insert(0) += 1;
    }
    let most = votes.into_iter().max_by_key(|(_, votes)| *votes);
    most.map_or(String::new(), |(name, _)| name.clone())
}

fn warnings(answers: &[&Told]) -> Vec<String> {
    let mut warnings = Vec::new();
    let clusters = distinct(answers, "cluster");
    if clusters.len() > 1 {
        warnings.push(format!("nodes of different clusters were asked: {}", clusters.join(", ")));
    } else if distinct(answers, "config_hash").len() > 1 {
        warnings.push("the nodes' configurations differ: give all of them the same file".to_owned());
    }
    for told in answers {
        let name = told.fact("node");
        let contradicted = told.number("clock_contradicted").unwrap_or(0);
        if contradicted > 0 {
            warnings.push(format!("other nodes have contradicted the clock of {name} {contradicted} times"));
        }
        for peer in told.peers.iter().filter(|peer| peer.state != "up") {
            let hears =
                if peer.state == "silent" { "has not heard lately of" } else { "has no connection to" };
            warnings.push(format!("{name} {hears} {}", peer.name));
        }
    }
    warnings
}

impl Node {
    fn row(&self) -> Vec<String> {
        let name = self.name.as_ref().or(self.address.as_ref()).cloned().unwrap_or_default();
        let region = self.region.clone().unwrap_or_else(|| "?".to_owned());
        let seen = self.seen_by.map_or("?".to_owned(), |(up, all)| format!("{up} of {all}"));
        match (&self.own, &self.error) {
            (Some(own), _) => {
                let state = if own.ready { "ready" } else { "not ready" };
                let bound =
                    own.clock_error_us.map_or(String::new(), |us| format!(" \u{b1}{} ms", milliseconds(us)));
                vec![
                    name,
                    region,
                    state.to_owned(),
                    seen,
                    own.version.clone(),
                    span(own.uptime_s),
                    own.clients.to_string(),
                    format!("{} MiB", own.memory_bytes >> 20),
                    own.durability.clone(),
                    format!("{}{bound}", own.clock_source),
                ]
            }
            (None, Some(why)) => vec![name, region, format!("does not answer: {why}")],
            (None, None) => vec![name, region, "not asked".to_owned(), seen],
        }
    }
}

impl Keyspace {
    fn row(&self) -> Vec<String> {
        let leaders = self.leaders.as_ref().map_or("-".to_owned(), |leaders| {
            let told = leaders.iter().map(|(region, count)| match region.as_str() {
                "" => format!("none of {count}"),
                region => format!("{region} {count}"),
            });
            told.collect::<Vec<_>>().join(", ")
        });
        vec![
            self.name.clone(),
            self.number.to_string(),
            self.model.clone(),
            self.engine.clone(),
            self.partitions.to_string(),
            self.keys.to_string(),
            self.open.to_string(),
            leaders,
            self.lag_us.map_or("-".to_owned(), |us| format!("{} ms", milliseconds(us))),
        ]
    }
}

/// Rows of cells in columns. Cells without others behind them may be as long as they like.
fn write_table(text: &mut String, rows: &[Vec<String>]) {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let inner = rows.iter().filter(|row| row.len() > column + 1);
        inner.map(|row| row[column].chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for row in rows {
        for (column, cell) in row.iter().enumerate() {
            if column + 1 == row.len() {
                let _ = writeln!(text, "{cell}");
            } else {
                let _ = write!(text, "{cell:<width$}  ", width = widths[column]);
            }
        }
    }
}

fn milliseconds(us: u64) -> String {
    format!("{}.{}", us / 1_000, us % 1_000 / 100)
}

/// A time as long as it takes to say how long it was.
fn span(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::super::told::tests::told;
    use super::*;

    fn up(name: &str, us: u64) -> String {
        let region = &name[..2];
        format!("peer_{name}:region={region},state=up,rtt_us={us}\n")
    }

    fn answers(all: Vec<Told>) -> Vec<(String, Result<Told, String>)> {
        all.into_iter().enumerate().map(|(index, told)| (format!("host:{index}"), Ok(told))).collect()
    }

    #[test]
    fn a_whole_cluster_is_ready_and_its_leaders_and_lags_are_summed_up() {
        let partition = |leader: &str, lag: u64| {
            format!(
                "keyspace_main_2_partition_0:keys=5,bytes=0,open=1,leader={leader}\n\
                 keyspace_main_2_partition_1:keys={lag},bytes=0,open=0\n\
                 keyspace_feed_partition_0:keys=0,bytes=0,open=0,lag_us={lag}\n"
            )
        };
        let report = Report::new(&answers(vec![
            told("ca-1", "ca", &(up("va-1", 72_100) + &up("ir-1", 151_000) + &partition("va", 10))),
            told("va-1", "va", &(up("ca-1", 72_000) + &up("ir-1", 88_000) + &partition("va", 20))),
            told("ir-1", "ir", &(up("ca-1", 151_000) + &up("va-1", 88_000) + &partition("ca", 12_345))),
        ]));
        assert!(report.is_ready() && report.warnings.is_empty(), "{report:?}");
        let [main, transactions, feed] = &report.keyspaces[..] else { panic!("{report:?}") };
        assert_eq!((main.keys, main.open, &main.leaders, main.lag_us), (3, 3, &None, None));
        let leaders: Vec<_> = transactions.leaders.iter().flatten().map(|(r, n)| (r.as_str(), *n)).collect();
        assert_eq!((transactions.keys, leaders), (5 + 12_345, vec![("", 1), ("va", 1)]));
        assert_eq!(feed.lag_us, Some(12_345));
        let table = report.table();
        for line in [
            "cluster test: all nodes asked are ready",
            "node  region  state  seen by  version  up for  clients  memory  durability  clock",
            "ca-1  ca      ready  2 of 2   0.1.0    90 s    4        1 MiB   fsync       configured \u{b1}1.0 ms",
            "ca         -      72.1  151.0",
            "feed      2    causal        contrarian   2           0      0     -                12.3 ms",
        ] {
            assert!(table.lines().any(|found| found.trim_end() == line), "{line}\n{table}");
        }
        assert!(table.contains("none of 1, va 1"), "{table}");
    }

    #[test]
    fn who_does_not_answer_is_a_row_and_so_is_who_was_not_asked() {
        let down = "peer_ir-1:region=ir,state=down,rtt_us=unknown\n";
        let mut all = answers(vec![told("ca-1", "ca", &(up("va-1", 72_000) + down))]);
        all.push(("host:7003".to_owned(), Err("Connection refused".to_owned())));
        let report = Report::new(&all);
        assert!(!report.is_ready());
        assert_eq!(report.warnings, ["ca-1 has no connection to ir-1"]);
        let table = report.table();
        for part in [
            "NOT READY",
            "host:7003  ?       does not answer: Connection refused",
            "not asked  0 of 1",
            "not asked  1 of 1",
        ] {
            assert!(table.contains(part), "{part}\n{table}");
        }
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(
            (&json["ready"], &json["nodes"][1]["error"]),
            (&false.into(), &"Connection refused".into())
        );
    }

    #[test]
    fn a_node_without_a_majority_is_not_ready() {
        let mut lonely = told("ca-1", "ca", "ready:no\nclock_error_us:unknown\nclock_contradicted:3\n");
        lonely.peers.clear();
        let report = Report::new(&answers(vec![lonely]));
        assert!(!report.is_ready());
        assert!(report.table().contains("not ready"), "{}", report.table());
        assert!(report.warnings[0].contains("contradicted the clock of ca-1 3 times"), "{report:?}");
    }

    #[test]
    fn nodes_of_other_clusters_are_told_apart() {
        let report = Report::new(&answers(vec![told("a", "ca", ""), told("b", "ca", "cluster:other\n")]));
        assert_eq!(report.warnings, ["nodes of different clusters were asked: test, other"]);
        let report = Report::new(&answers(vec![told("a", "ca", ""), told("b", "ca", "config_hash:13\n")]));
        assert!(report.warnings[0].contains("configurations differ"));
    }
}
