//! Bits that flip and writes that were torn in a stopped node's files: it refuses to start, or serves all that it has acknowledged.

use crate::harness::{Process, meridian, ports, wait_for};
use crate::judged::{choices, seed};
use crate::resp::{Client, Value};
use rand::RngExt;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// A node that has no others: what it has lost nobody else can make up for.
struct Lonely {
    directory: TempDir,
    port: u16,
    acknowledged: BTreeMap<String, String>,
}

/// What came of a start.
#[derive(Debug, PartialEq, Eq)]
enum Start {
    /// It serves everything.
    Whole,
    /// It ended, and said this.
    Refused(String),
}

impl Lonely {
    /// Has written more than a segment and ended when it had been idle for a while.
    fn new() -> Self {
        let (directory, port) = (TempDir::new().expect("a directory for the test's files"), ports(2));
        let peer = port + 1;
        let text = format!(
            "[cluster]\nid = \"test\"\n[[node]]\nname = \"one\"\nregion = \"here\"\nclient = {port}\npeer = {peer}\n\
             data = \"data\"\n[[keyspace]]\nnumber = 0\nmodel = \"linearizable\"\n"
        );
        fs::write(directory.path().join("cluster.toml"), text).expect("the configuration is written");
        let mut lonely = Self { directory, port, acknowledged: BTreeMap::new() };
        let mut node = lonely.start();
        node.wait_ready();
        let mut client = Client::new(port);
        for number in 0..40_u32 {
            // Some larger than what a disk writes at once, and none that is all zeros.
            let length = if number % 2 == 0 { 900_000 } else { 10 + number as usize };
            let value = format!("{number:08}").repeat(length / 8 + 1);
            let key = format!("key{}", number % 30);
            assert_eq!(client.call(&["SET", &key, &value]), Value::ok());
            lonely.acknowledged.insert(key, value);
        }
        lonely.wait_idle();
        node.kill();
        copy(&lonely.data(), &lonely.pristine());
        assert!(lonely.segments().len() > 1, "the log should have several segments");
        lonely
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    fn pristine(&self) -> PathBuf {
        self.directory.path().join("pristine")
    }

    /// The segments, the oldest first.
    fn segments(&self) -> Vec<PathBuf> {
        let files =
            fs::read_dir(self.data()).expect("the node has a directory").flatten().map(|entry| entry.path());
        let mut logs: Vec<PathBuf> =
            files.filter(|path| path.extension().is_some_and(|it| it == "log")).collect();
        logs.sort();
        logs
    }

    /// The file that is written to.
    fn last(&self) -> PathBuf {
        self.segments().pop().expect("the node has a log")
    }

    /// Waits until the node has said in its log that all before is whole: by a record that holds nothing.
    fn wait_idle(&self) {
        let last = self.last();
        wait_for("the log rests", Duration::from_secs(30), || {
            let bytes = fs::read(&last).expect("the log can be read");
            bytes[last_record(&bytes) + 8..][..8] == [0; 8]
        });
    }

    fn start(&self) -> Process {
        let config = self.directory.path().join("cluster.toml").display().to_string();
        Process::spawn(meridian(&["serve", "--config", &config, "--node", "one"]))
    }

    /// Starts the node on its files after `damage` was done to them.
    fn try_with(&self, damage: impl FnOnce(&Path)) -> Start {
        fs::remove_dir_all(self.data()).expect("the files can be removed");
        copy(&self.pristine(), &self.data());
        damage(&self.data());
        let mut node = self.start();
        let mut ended = None;
        wait_for("the node serves or ends", Duration::from_secs(30), || {
            ended = node.ended();
            ended.is_some() || node.said().lines().any(|line| line == "ready")
        });
        if let Some(status) = ended {
            assert_eq!(status.code(), Some(2), "{}", node.said());
            let said = node.said();
            let why: Vec<&str> = said.lines().filter(|line| line.starts_with("meridian: ")).collect();
            assert_eq!(why.len(), 1, "one line says why: {said}");
            return Start::Refused(why[0].to_owned());
        }
        let mut client = Client::new(self.port);
        for (key, value) in &self.acknowledged {
            let found = client.call(&["GET", key]);
            assert!(found == Value::bulk(value), "{key} was acknowledged, and is lost or damaged now");
        }
        Start::Whole
    }

    /// A refusal as docs/operations.md has it, that names the file.
    fn assert_refused(damaged: &Path, start: Start) {
        let Start::Refused(why) = start else {
            panic!("it serves although {} is damaged", damaged.display())
        };
        let name = damaged.display().to_string();
        assert!(
            why.contains(&name)
                && why.contains(": damaged at byte ")
                && why.contains("treat this replica's disk as lost"),
            "{why}"
        );
    }
}

/// Where what was written ends, and zeros begin.
fn end_of(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
}

/// Where the last record begins.
fn last_record(bytes: &[u8]) -> usize {
    bytes[..end_of(bytes)].windows(4).rposition(|word| word == b"CATB").expect("there are records")
}

/// Copies the files of a directory.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory can be made");
    for file in fs::read_dir(from).expect("the directory can be read").flatten() {
        fs::copy(file.path(), to.join(file.file_name())).expect("a file can be copied");
    }
}

fn alter(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).expect("the file can be read");
    change(&mut bytes);
    fs::write(path, bytes).expect("the file can be written");
}

#[test]
fn damage_is_refused_and_a_torn_end_is_not() {
    let lonely = Lonely::new();
    let (first, last) = (lonely.segments().remove(0), lonely.last());
    // Before a node runs again, and writes more. The last record says only that those before it were safe.
    let bytes = |path: &Path| fs::read(path).expect("the file can be read");
    let (ends_first, vouch) = (end_of(&bytes(&first)), last_record(&bytes(&last)));
    let ends_last = vouch + 24;
    let record = bytes(&first)[32..3_000].to_vec();
    assert_eq!(lonely.try_with(|_| ()), Start::Whole);

    // Bits anywhere in what was written.
    let places = [
        (&first, 3),
        (&first, 40),
        (&first, ends_first / 2),
        (&first, ends_first - 30),
        (&last, 3),
        (&last, 100),
    ];
    for (file, at) in places.into_iter().chain([(&last, ends_last / 2), (&last, vouch - 1)]) {
        let start = lonely.try_with(|_| alter(file, |bytes| bytes[at] ^= 1));
        println!("byte {at} of {}: {start:?}", file.display());
        Lonely::assert_refused(file, start);
    }
    // A sector that was never written.
    let start = lonely.try_with(|_| alter(&last, |bytes| bytes[ends_last / 1_024 * 512..][..512].fill(0)));
    Lonely::assert_refused(&last, start);
    // A file that is gone, or cut off.
    let start = lonely.try_with(|_| fs::remove_file(&first).expect("it can be removed"));
    Lonely::assert_refused(&first, start);
    let start = lonely.try_with(|_| alter(&first, |bytes| bytes.truncate(ends_first / 2)));
    Lonely::assert_refused(&first, start);
    let oldest = lonely.data().join("oldest");
    let start = lonely.try_with(|_| alter(&oldest, |bytes| bytes[5] ^= 1));
    Lonely::assert_refused(&oldest, start);

    // What a crash leaves of a record that nobody was told of: a piece of one, after it zeros, or holes of zeros in it.
    for piece in [1, 8, 24, 25, 511, 2_900] {
        let start = lonely.try_with(|_| {
            alter(&last, |bytes| bytes[ends_last..][..piece].copy_from_slice(&record[..piece]));
        });
        assert_eq!(start, Start::Whole, "{piece} bytes of a record");
    }
    let start = lonely.try_with(|_| {
        alter(&last, |bytes| {
            bytes[ends_last..][..record.len()].copy_from_slice(&record);
            bytes[ends_last..][..1_024].fill(0);
        });
    });
    assert_eq!(start, Start::Whole, "a record without its beginning");
    // What says that the rest is whole, and nothing else.
    assert_eq!(lonely.try_with(|_| alter(&last, |bytes| bytes[vouch + 5] ^= 1)), Start::Whole);
    // The file that is filled in advance.
    assert_eq!(lonely.try_with(|data| alter(&data.join("spare"), |bytes| bytes[7] ^= 1)), Start::Whole);

    // Whose directory it is.
    for (what, by) in [
        ("one", "ore"),
        ("test", "tesu"),
        ("store", "stora"),
        ("store 2", "store 3"),
        ("identity", "\u{ffff}"),
    ] {
        let start = lonely.try_with(|data| {
            alter(&data.join("stamp"), |bytes| {
                let text = String::from_utf8_lossy(bytes).replacen(what, by, 1);
                *bytes = text.into_bytes();
            });
        });
        let Start::Refused(why) = start else { panic!("the stamp has '{by}' for '{what}', and it serves") };
        assert!(why.contains(&lonely.data().display().to_string()), "{why}");
    }
    let start = lonely.try_with(|data| fs::remove_file(data.join("stamp")).expect("it can be removed"));
    assert!(matches!(&start, Start::Refused(why) if why.contains("records without a stamp")), "{start:?}");
}

#[test]
// Longer than anybody wants to wait for while working: `make test-long` runs it.
#[ignore = "takes two minutes"]
fn bits_that_flip_anywhere_are_never_served() {
    let lonely = Lonely::new();
    let mut random = choices(seed());
    let (mut whole, mut refused) = (0, 0);
    for _ in 0..200 {
        let segments = lonely.segments();
        let file = &segments[random.random_range(0..segments.len())];
        let place = random.random_range(0.0..1.0);
        let flips = random.random_range(1..4);
        let start = lonely.try_with(|_| {
            alter(file, |bytes| {
                // A little beyond the end too.
                let end = end_of(bytes) + 2_000;
                let at = (end as f64 * place) as usize;
                for flip in 0..flips {
                    bytes[at + 37 * flip] ^= 1 << (flip % 8);
                }
            });
        });
        match start {
            Start::Whole => whole += 1,
            refusal @ Start::Refused(_) => {
                Lonely::assert_refused(file, refusal);
                refused += 1;
            }
        }
    }
    println!("{refused} refused, {whole} whole");
    assert!(refused > 100, "most places hold something");
}
