//! What one node tells of itself and of the others.

use crate::client::resp::Reply;
use crate::client::{Login, ask};
use meridian_node::Stream;
use std::collections::BTreeMap;
use std::time::Duration;

/// What one node tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Told {
    /// `name:value`, of `INFO` and `MERIDIAN.STATUS`.
    facts: BTreeMap<String, String>,
    /// In the order of the configuration.
    pub(super) peers: Vec<Peer>,
    pub(super) keyspaces: Vec<Keyspace>,
    /// The replicas on the node.
    pub(super) replicas: Vec<Replica>,
}

/// Another node, as this one sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Peer {
    pub(super) name: String,
    pub(super) region: String,
    /// `up`, `silent` or `down`.
    pub(super) state: String,
    pub(super) round_trip_us: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Keyspace {
    pub(super) number: u64,
    pub(super) name: String,
    pub(super) model: String,
    pub(super) engine: String,
    pub(super) partitions: u64,
}

/// The replica of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Replica {
    /// Its keyspace's name.
    pub(super) keyspace: String,
    pub(super) partition: u64,
    pub(super) keys: u64,
    pub(super) open: u64,
    /// The region that leads, in engines with leaders: an empty one if none is known.
    pub(super) leader: Option<String>,
    pub(super) lag_us: Option<u64>,
}

impl Told {
    /// Asks a node.
    ///
    /// # Errors
    /// Why it says nothing.
    pub(super) async fn ask(login: &Login, timeout: Duration) -> Result<Self, String> {
        let mut stream = login.connect(timeout).await?;
        let status = said(&mut stream, &["MERIDIAN.STATUS"], text).await?;
        let keyspaces = said(&mut stream, &["MERIDIAN.KEYSPACES"], maps).await?;
        let mut info = said(&mut stream, &["INFO", "server", "clients"], text).await?;
        info.push_str(&status);
        Self::read(&info, &keyspaces)
    }

    /// Makes sense of lines of `name:value` and of what `MERIDIAN.KEYSPACES` has said.
    fn read(text: &str, keyspaces: &[BTreeMap<String, String>]) -> Result<Self, String> {
        let mut told = Self { keyspaces: keyspaces.iter().map(keyspace).collect(), ..Self::default() };
        for (name, value) in text.lines().filter_map(|line| line.trim_end().split_once(':')) {
            if let Some(name) = name.strip_prefix("peer_") {
                told.peers.push(peer(name, &fields(value)));
            } else if let Some(replica) = told.replica(name, value) {
                told.replicas.push(replica);
            } else {
                told.facts.insert(name.to_owned(), value.to_owned());
            }
        }
        if told.fact("node").is_empty() {
            return Err(
                "does not say which node it is: ask one of the same version as this command".to_owned()
            );
        }
        Ok(told)
    }

    fn replica(&self, name: &str, value: &str) -> Option<Replica> {
        let rest = name.strip_prefix("keyspace_")?;
        let named = |keyspace: &&Keyspace| {
            rest.strip_prefix(keyspace.name.as_str()).is_some_and(|rest| rest.starts_with("_partition_"))
        };
        let keyspace = self.keyspaces.iter().find(named)?;
        let partition = rest[keyspace.name.len() + "_partition_".len()..].parse().ok()?;
        let fields = fields(value);
        let number = |name| fields.get(name).and_then(|value| value.parse().ok());
        let leads =
            ["multipaxos", "spanner", "spanner-rss", "spanner-po"].contains(&keyspace.engine.as_str());
        Some(Replica {
            keyspace: keyspace.name.clone(),
            partition,
            keys: number("keys").unwrap_or(0),
            open: number("open").unwrap_or(0),
            leader: leads.then(|| fields.get("leader").copied().unwrap_or_default().to_owned()),
            lag_us: number("lag_us"),
        })
    }

    /// What it says under a name; empty if nothing.
    pub(super) fn fact(&self, name: &str) -> &str {
        self.facts.get(name).map_or("", String::as_str)
    }

    /// The same as a number.
    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.fact(name).parse().ok()
    }
}

/// `name=value,…`
fn fields(text: &str) -> BTreeMap<&str, &str> {
    text.split(',').filter_map(|field| field.split_once('=')).collect()
}

fn peer(name: &str, fields: &BTreeMap<&str, &str>) -> Peer {
    let word = |name| fields.get(name).copied().unwrap_or_default().to_owned();
    let round_trip_us = fields.get("rtt_us").and_then(|value| value.parse().ok());
    Peer { name: name.to_owned(), region: word("region"), state: word("state"), round_trip_us }
}

fn keyspace(map: &BTreeMap<String, String>) -> Keyspace {
    let word = |name| map.get(name).cloned().unwrap_or_default();
    Keyspace {
        number: word("number").parse().unwrap_or(0),
        name: word("name"),
        model: word("model"),
        engine: word("engine"),
        partitions: word("partitions").parse().unwrap_or(0),
    }
}

/// Asks, and reads an answer that is no error.
async fn said<T>(
    stream: &mut Stream,
    words: &[&str],
    read: fn(&Reply<'_>) -> Option<T>,
) -> Result<T, String> {
    ask(stream, words, |reply| match reply {
        Reply::Error(why) => Err(format!("{} is refused: {}", words[0], String::from_utf8_lossy(why))),
        reply => read(reply).ok_or_else(|| format!("{} is answered with nonsense", words[0])),
    })
    .await?
}

fn text(reply: &Reply<'_>) -> Option<String> {
    match reply {
        Reply::Bulk(Some(text)) | Reply::Simple(text) => Some(String::from_utf8_lossy(text).into_owned()),
        Reply::Integer(number) => Some(number.to_string()),
        _ => None,
    }
}

fn maps(reply: &Reply<'_>) -> Option<Vec<BTreeMap<String, String>>> {
    let Reply::Array(items) = reply else { return None };
    let map = |item: &Reply<'_>| {
        let Reply::Array(words) = item else { return None };
        words.chunks_exact(2).map(|pair| Some((text(&pair[0])?, text(&pair[1])?))).collect()
    };
    items.iter().map(map).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// What a node of three says, whose name and region are these; `more` are further lines.
    pub(in crate::status) fn told(node: &str, region: &str, more: &str) -> Told {
        let keyspace = |number: &str, name: &str, model: &str, engine: &str| {
            let words = [
                ("number", number),
                ("name", name),
                ("model", model),
                ("engine", engine),
                ("partitions", "2"),
            ];
            words.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
        };
        let keyspaces: [BTreeMap<String, String>; 3] = [
            keyspace("0", "main", "linearizable", "gryff"),
            keyspace("1", "main_2", "rss", "spanner-rss"),
            keyspace("2", "feed", "causal", "contrarian"),
        ];
        let text = format!(
            "# Server\r\nmeridian_version:0.1.0\r\n# Clients\r\nconnected_clients:4\r\n\
             node:{node}\nregion:{region}\ncluster:test\nconfig_hash:12\ndurability:fsync\nclock_source:configured\n\
             ready:yes\nuptime_s:90\nclock_error_us:1000\nclock_contradicted:0\nused_memory:1048576\n\
             keyspace_main_partition_0:keys=3,bytes=1,open=1,fast_path=7\nkeyspace_main_clients:2\n{more}"
        );
        Told::read(&text, &keyspaces).unwrap()
    }

    #[test]
    fn lines_are_facts_peers_and_replicas() {
        let told = told(
            "ca-1",
            "ca",
            "peer_va-1:region=va,state=up,rtt_us=72000,waiting=0,dropped=1,malformed=0\n\
             peer_ir-1:region=ir,state=down,rtt_us=unknown,waiting=0,dropped=1,malformed=0\n\
             keyspace_main_2_partition_1:keys=0,bytes=0,open=2,leader=va\n\
             keyspace_main_2_partition_0:keys=0,bytes=0,open=0\n\
             keyspace_feed_partition_1:keys=9,bytes=0,open=0,lag_us=12000,put=1\n",
        );
        assert_eq!(
            (told.fact("node"), told.number("uptime_s"), told.number("nothing")),
            ("ca-1", Some(90), None)
        );
        let peers: Vec<_> =
            told.peers.iter().map(|p| (p.name.as_str(), p.state.as_str(), p.round_trip_us)).collect();
        assert_eq!(peers, [("va-1", "up", Some(72_000)), ("ir-1", "down", None)]);
        let replicas: Vec<_> = told
            .replicas
            .iter()
            .map(|r| (r.keyspace.as_str(), r.partition, r.keys, r.open, r.leader.as_deref(), r.lag_us))
            .collect();
        assert_eq!(
            replicas,
            [
                ("main", 0, 3, 1, None, None),
                ("main_2", 1, 0, 2, Some("va"), None),
                ("main_2", 0, 0, 0, Some(""), None),
                ("feed", 1, 9, 0, None, Some(12_000)),
            ]
        );
    }

    #[test]
    fn who_does_not_say_its_name_is_no_node() {
        assert!(Told::read("redis_version:7.2.4\r\n", &[]).unwrap_err().contains("which node"));
    }
}
