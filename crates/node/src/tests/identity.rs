//! Who may take part under which name.

use super::Cluster;
use std::fs;

/// What a node says of another.
fn peer(cluster: &Cluster, node: usize, name: &str) -> String {
    let status = cluster.client(node).ask("MERIDIAN.STATUS");
    status.lines().find(|line| line.starts_with(&format!("peer_{name}:"))).unwrap().to_owned()
}

#[test]
fn a_process_without_its_records_does_not_come_back_under_its_name() {
    let mut cluster = Cluster::start_all(None);
    assert_eq!(cluster.client(0).ask("SET key 1"), "OK");
    cluster.stop(2).unwrap();
    cluster.start(2);
    // It knocks at once and again and again; the others go on without it.
    std::thread::sleep(std::time::Duration::from_millis(1_500));
    for node in 0..2 {
        assert!(peer(&cluster, node, "ir-1").contains("state=down"));
    }
    assert_eq!(cluster.client(0).ask("INCR key"), "2");
    let alone = cluster.client(2).ask("GET key");
    assert!(alone.starts_with("CLUSTERDOWN"), "{alone}");
}

#[test]
fn an_emptied_or_copied_directory_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::start_all(Some(directory.path()));
    cluster.stop(2).unwrap();
    let copy = directory.path().join("copy");
    fs::create_dir(&copy).unwrap();
    for entry in fs::read_dir(directory.path().join("ir")).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
    }
    // The original starts twice more, so that the copy is behind.
    for _ in 0..2 {
        cluster.start(2);
        cluster.await_peers(2, 2);
        cluster.stop(2).unwrap();
    }
    let original = cluster.config.nodes[2].data.replace(copy);
    // However often it starts, so that its count of starts exceeds the original's.
    for _ in 0..4 {
        cluster.start(2);
        cluster.stop(2).unwrap();
    }
    cluster.start(2);
    // Longer than between two attempts, even after a refusal.
    std::thread::sleep(std::time::Duration::from_millis(3_300));
    assert!(peer(&cluster, 0, "ir-1").contains("state=down"), "a copy from before");
    cluster.stop(2).unwrap();

    cluster.config.nodes[2].data = Some(directory.path().join("empty"));
    cluster.start(2);
    std::thread::sleep(std::time::Duration::from_millis(800));
    assert!(peer(&cluster, 0, "ir-1").contains("state=down"), "an empty directory");
    cluster.stop(2).unwrap();

    // Not even when all others have restarted, as they remember whom they have met.
    for node in 0..2 {
        cluster.stop(node).unwrap();
        cluster.start(node);
    }
    cluster.start(2);
    cluster.await_peers(0, 1);
    std::thread::sleep(std::time::Duration::from_millis(800));
    assert!(peer(&cluster, 0, "ir-1").contains("state=down"), "an empty directory, later");
    cluster.stop(2).unwrap();

    cluster.config.nodes[2].data = original;
    cluster.start(2);
    cluster.await_peers(2, 2);
}
