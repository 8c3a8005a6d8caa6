//! What `packaging/` says of the program, against the program.

#![expect(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use crate::harness::{Cluster, Plan, meridian, ports, run, stderr, wait_for};
use crate::metrics::{get, samples};
use crate::resp::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

fn packaging(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(path)
}

fn read(path: &str) -> String {
    std::fs::read_to_string(packaging(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Whether a program that not every machine has is here; says so if not.
fn is_here(program: &str) -> bool {
    let found = Command::new(program).arg("version").output().is_ok();
    if !found {
        eprintln!("{program} is not here: what it would check was not checked");
    }
    found
}

/// A page's metrics by name, with all values of each of their labels.
type Told = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

fn told(page: &str) -> Told {
    let mut told = Told::new();
    for sample in samples(page).keys() {
        let (name, labels) = sample.split_once('{').unwrap_or((sample, ""));
        let of = told.entry(name.to_owned()).or_default();
        for label in labels.trim_end_matches('}').split(',').filter(|label| !label.is_empty()) {
            let (label, value) = label.split_once('=').unwrap();
            of.entry(label.to_owned()).or_default().insert(value.trim_matches('"').to_owned());
        }
    }
    told
}

/// Labels that Prometheus itself adds.
const ADDED: [&str; 2] = ["job", "instance"];

/// What a query asks for that is not told.
fn missing(query: &str, told: &Told) -> Vec<String> {
    let mut missing = Vec::new();
    let mut asked = Vec::new();
    for (at, _) in query.match_indices("meridian_") {
        let rest = &query[at..];
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        let Some(labels) = told.get(&rest[..end]) else {
            missing.push(rest[..end].to_owned());
            continue;
        };
        asked.push(labels);
        let selector =
            rest[end..].strip_prefix('{').and_then(|rest| rest.split('}').next()).unwrap_or_default();
        for matcher in selector.split(',').filter(|matcher| !matcher.is_empty()) {
            let end = matcher.find(['=', '!']).unwrap();
            let (label, values) = (&matcher[..end], matcher[end..].trim_matches(['=', '!', '~', '"']));
            let known = labels.get(label);
            if known.is_none() && !ADDED.contains(&label) {
                missing.push(format!("label {label} of {rest}"));
            }
            // Those that are chosen on the dashboard are whatever there is.
            for value in values.split('|').filter(|value| !value.starts_with('$')) {
                if known.is_some_and(|known| !known.contains(value)) {
                    missing.push(format!("{label}={value} of {rest}"));
                }
            }
        }
    }
    for (at, _) in query.match_indices("by (") {
        for label in query[at + 4..].split(')').next().unwrap().split(',').map(str::trim) {
            let known = ADDED.contains(&label) || asked.iter().any(|labels| labels.contains_key(label));
            if !known && !asked.is_empty() {
                missing.push(format!("by ({label}) in {query}"));
            }
        }
    }
    missing
}

/// All queries of a dashboard.
fn queries(json: &serde_json::Value, found: &mut Vec<String>) {
    match json {
        serde_json::Value::Array(items) => items.iter().for_each(|item| queries(item, found)),
        serde_json::Value::Object(fields) => {
            for (name, value) in fields {
                match value.as_str() {
                    Some(query) if name == "expr" || name == "query" => found.push(query.to_owned()),
                    _ => queries(value, found),
                }
            }
        }
        _ => {}
    }
}

const ENGINES: &str = r#"
[clock]
source = "configured"
error = "5ms"

[[keyspace]]
number = 2
model = "rss"

[[keyspace]]
number = 3
model = "causal"
"#;

#[test]
fn all_that_the_dashboard_asks_for_is_told_and_the_container_knows_whether_it_is_well() {
    let mut cluster = Cluster::prepare(Plan { more: ENGINES, ..Plan::default() }, |_| ());
    let peer = format!("peer = {}\n", cluster.peer_port(0));
    let port = ports(1);
    let config = cluster.altered(&peer, &format!("{peer}admin = {port}\n"));
    let mut node = cluster.spawn_with(0, &config);
    cluster.start_nodes([1, 2]);
    node.wait_ready();
    cluster.wait_met(3);
    let mut found = Vec::new();
    queries(&serde_json::from_str(&read("grafana/meridian.json")).unwrap(), &mut found);
    let asks = found.iter().filter(|query| query.contains("meridian_")).count();
    assert!(asks > 30, "only {asks} queries: the search is broken");

    let (mut near, mut far) = (cluster.client(0), cluster.client(1));
    // Leaders are elected, and snapshots found, soon after the nodes are ready.
    let (mut left, start) = (Vec::new(), Instant::now());
    wait_for("all is told", Duration::from_mins(1), || {
        for keyspace in ["0", "2", "3"] {
            for client in [&mut near, &mut far] {
                client.call(&["SELECT", keyspace]);
                client.call(&["SET", "k", "v"]);
                client.call(&["GET", "k"]);
            }
        }
        let told = told(&get(port, "/metrics").1);
        left = found.iter().flat_map(|query| missing(query, &told)).collect();
        left.is_empty() || start.elapsed() > Duration::from_secs(40)
    });
    assert!(left.is_empty(), "the dashboard asks for what no node tells: {left:#?}");

    // The container's check, with the node's port.
    let docker = read("docker/Dockerfile");
    let check = docker.lines().find_map(|line| line.trim().strip_prefix("CMD [\"bash\"")).unwrap();
    let words: Vec<String> = serde_json::from_str(&format!("[\"bash\"{check}")).unwrap();
    let is_well = || {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).env("MERIDIAN_ADMIN", port.to_string()).output().unwrap().status.success()
    };
    assert!(is_well());
    assert_eq!(near.call(&["PING"]), Value::Simple("PONG".to_owned()));
    node.kill();
    assert!(!is_well());
}

#[test]
fn a_query_for_what_is_not_told_is_found() {
    let told =
        told("# HELP meridian_x x\n# TYPE meridian_x counter\nmeridian_x{kind=\"read\",end=\"done\"} 1\n");
    for good in [
        "sum by (kind, instance) (rate(meridian_x{job=~\"$job\",end=~\"done\"}[1m]))",
        "meridian_x",
        "label_values(up, job)",
    ] {
        assert_eq!(missing(good, &told), [""; 0], "{good}");
    }
    for bad in [
        "rate(meridian_y[1m])",
        "meridian_x{keyspace=\"a\"}",
        "meridian_x{kind=~\"read|write\"}",
        "sum by (keyspace) (meridian_x)",
    ] {
        assert_eq!(missing(bad, &told).len(), 1, "{bad}");
    }
}

#[test]
fn the_systemd_unit_is_sound_and_starts_what_there_is() {
    let unit = read("systemd/meridian@.service");
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/meridian ")).unwrap();
    let cluster = Cluster::prepare(Plan::default(), |_| ());
    let start = start.replace("/etc/meridian/cluster.toml", &cluster.config()).replace("%i", "va-1");
    let words: Vec<&str> = start.split(' ').chain(["--check"]).collect();
    let checked = run(&words);
    assert_eq!(checked.status.code(), Some(0), "{}", stderr(&checked));
    if !is_here("systemd-analyze") {
        return;
    }
    // It looks whether there is such a program.
    let program = meridian(&[]).get_program().to_str().unwrap().to_owned();
    let copy = cluster.directory.path().join("meridian@va-1.service");
    std::fs::write(&copy, unit.replace("/usr/bin/meridian", &program)).unwrap();
    let verified = Command::new("systemd-analyze").arg("verify").arg(&copy).output().unwrap();
    assert!(verified.status.success() && verified.stderr.is_empty(), "{}", stderr(&verified));
    let sysusers = read("systemd/meridian.sysusers");
    let user = unit.lines().find_map(|line| line.strip_prefix("User=")).unwrap();
    assert!(sysusers.starts_with(&format!("u {user} ")), "{sysusers}");
}

/// What stands under a name in YAML as a block of text.
fn block(yaml: &str, name: &str) -> String {
    let after = yaml.split_once(&format!("{name}: |\n")).unwrap().1;
    let indent = after.len() - after.trim_start_matches(' ').len();
    let lines = after.lines().take_while(|line| line.is_empty() || line.starts_with(&" ".repeat(indent)));
    lines.map(|line| line.get(indent..).unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_helm_chart_is_sound_and_its_configuration_is_one() {
    if !is_here("helm") {
        return;
    }
    let (chart, values) = (packaging("helm/meridian"), packaging("helm/meridian/ci/test-values.yaml"));
    let helm = |words: &[&str], more: &[&str]| {
        let mut command = Command::new("helm");
        let done = command.args(words).arg(&chart).arg("--values").arg(&values).args(more).output().unwrap();
        assert!(done.status.success(), "{}{}", String::from_utf8_lossy(&done.stdout), stderr(&done));
        String::from_utf8(done.stdout).unwrap()
    };
    helm(&["lint", "--strict"], &[]);
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name);
    let config = file("cluster.toml").display().to_string();
    std::fs::create_dir(file("secret")).unwrap();
    std::fs::write(file("secret/cluster"), "0123456789abcdef0123456789abcdef").unwrap();
    std::fs::write(file("secret/password"), "correct horse").unwrap();
    let yaml = helm(&["template", "test"], &[]);
    std::fs::write(file("cluster.toml"), block(&yaml, "cluster.toml")).unwrap();
    for region in ["ca", "va", "ir"] {
        let set = format!("test-meridian-{region}");
        assert!(yaml.contains(&format!("kind: StatefulSet\nmetadata:\n  name: {set}\n")), "{yaml}");
        // Its pods, whose names are those of nodes.
        for pod in [format!("{set}-0"), format!("{set}-1")] {
            let checked = run(&["serve", "--config", &config, "--node", &pod, "--check"]);
            assert_eq!(checked.status.code(), Some(0), "{}", stderr(&checked));
        }
    }
    for kind in ["ConfigMap", "Secret", "Service", "PodDisruptionBudget", "ServiceMonitor"] {
        assert!(yaml.contains(&format!("\nkind: {kind}\n")), "{kind} in {yaml}");
    }
    let secured = block(&helm(&["template", "test"], &["--set", "tls.secret=certificates"]), "cluster.toml");
    assert!(secured.contains("certificate = \"tls/tls.crt\""), "{secured}");
}
