//! Bytes that must stay: what nodes of this version say to each other and store, nodes of the next one must understand, and the
//! other way round. `golden/` holds one of each kind of messages and records, as a run of the simulator made them
//! (`crates/sim/tests/golden.rs`), with what they mean.

use meridian_protocol::machine::{Engine, Record};
use meridian_protocol::registry::{EngineName, Settings, Visitor, with_engine};
use meridian_protocol::wire;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

/// The files, and the engines whose machines speak so.
const FAMILIES: [(&str, &[&str]); 6] = [
    ("gryff", &["gryff", "gryff-rsc", "abd"]),
    ("epaxos", &["epaxos"]),
    ("multipaxos", &["multipaxos"]),
    ("spanner", &["spanner", "spanner-rss", "spanner-po"]),
    ("causal", &["contrarian", "tcc"]),
    ("cc-lo", &["cc-lo"]),
];

const WHAT_TO_DO: &str = "another version writes and reads the bytes in crates/protocol/tests/golden. Do not change them: add fields \
with new numbers, optional ones, and leave old ones as they are. If the format has to change after all, raise VERSIONS in \
crates/node/src/handshake.rs, so that nodes of both versions know of each other, let this one read both forms, and write the bytes of the new \
one: delete the entry and run MERIDIAN_GOLDEN=write cargo test -p meridian-sim --test golden";

/// One kind of messages or records.
struct Entry {
    /// `message` or `record`, and its name.
    title: String,
    /// A message's bytes, or a record's key and value.
    bytes: Vec<Vec<u8>>,
    /// How it is shown once it is read.
    meaning: String,
}

fn entries(family: &str) -> Vec<Entry> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{family}.txt"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let blocks = text.split("\n\n").filter(|block| !block.starts_with('#') && !block.trim().is_empty());
    let entry = |block: &str| {
        let [title, bytes, meaning] = block.trim_end().lines().collect::<Vec<_>>()[..] else {
            panic!("{}: no title, bytes and meaning: {block}", path.display())
        };
        let bytes = bytes.split(' ').map(unhex).collect();
        Entry { title: title.to_owned(), bytes, meaning: meaning.to_owned() }
    };
    blocks.map(entry).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("hexadecimal digits");
    (0..text.len()).step_by(2).map(digit).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Looks at every entry with an engine's types; gives what is wrong.
struct Look<'a>(&'a [Entry]);

impl Visitor for Look<'_> {
    type Output = Vec<String>;

    fn visit<E: Engine>(self, _: E) -> Vec<String> {
        self.0
            .iter()
            .filter_map(|entry| look::<E>(entry).err().map(|why| format!("{}: {why}", entry.title)))
            .collect()
    }
}

fn look<E: Engine>(entry: &Entry) -> Result<(), String> {
    let read = |bytes: &[Vec<u8>]| -> Result<(String, Vec<Vec<u8>>), String> {
        if let [message] = bytes {
            let message: E::Message =
                wire::decode(message).map_err(|error| format!("cannot be read: {error}"))?;
            let mut again = Vec::new();
            wire::encode(&message, &mut again);
            return Ok((format!("{message:?}"), vec![again]));
        }
        let record =
            E::Record::decode(&bytes[0], &bytes[1]).map_err(|why| format!("cannot be read: {why}"))?;
        let (mut key, mut value) = (Vec::new(), Vec::new());
        record.encode_key(&mut key);
        record.encode_value(&mut value);
        Ok((format!("{record:?}"), vec![key, value]))
    };
    let (meaning, again) = read(&entry.bytes)?;
    if meaning != entry.meaning {
        return Err(format!(
            "is read as {meaning}, and meant {} (if only a name has changed, write that)",
            entry.meaning
        ));
    }
    if again != entry.bytes {
        let again: Vec<String> = again.iter().map(|bytes| hex(bytes)).collect();
        return Err(format!("is written as {}", again.join(" ")));
    }
    // As a later version would write it.
    if let [message] = &entry.bytes[..] {
        let newer = with_another_field(message);
        let (meaning, _) = read(&[newer]).map_err(|why| format!("with a field of a later version: {why}"))?;
        if meaning != entry.meaning {
            return Err(format!("with a field of a later version it is read as {meaning}"));
        }
    }
    Ok(())
}

/// The message with a numbered field that this version does not know. A message is an array of its kind's number and of the array of its
/// fields, whose places are their numbers; what lies between is null, as fields are that are left out.
fn with_another_field(message: &[u8]) -> Vec<u8> {
    const LAST: u8 = 22;
    const NULL: u8 = 0xf6;
    assert_eq!(message[0], 0x82, "two: the kind, and its fields");
    let fields = if message[1] < 0x18 { 2 } else { 3 };
    let mut newer = message.to_vec();
    assert_eq!(newer[fields] & 0xe0, 0x80, "an array of fields");
    let count = newer[fields] & 0x1f;
    assert!(count < LAST, "a kind with so many fields");
    newer[fields] = 0x80 | (LAST + 1);
    newer.extend((count..LAST).map(|_| NULL));
    // What is unknown may be anything, an array of a number and a string too.
    newer.extend_from_slice(&[0x82, 0x18, 0x63, 0x61, b'x']);
    newer
}

fn faults(entries: &[Entry], engine: &str) -> Vec<String> {
    let engine = EngineName::of_engine(engine).expect("an engine of this version");
    with_engine(engine, &Settings::default(), Look(entries))
}

#[test]
fn what_is_said_and_stored_is_what_it_was() {
    for (family, engines) in FAMILIES {
        let entries = entries(family);
        let titles: BTreeSet<&str> = entries.iter().map(|entry| entry.title.as_str()).collect();
        assert_eq!(titles.len(), entries.len(), "{family}: a kind comes twice");
        for kind in ["message ", "record "] {
            assert!(titles.iter().any(|title| title.starts_with(kind)), "{family} has no {kind}");
        }
        for engine in engines {
            let faults = faults(&entries, engine);
            assert!(faults.is_empty(), "{engine}: {WHAT_TO_DO}\n{}", faults.join("\n"));
        }
    }
}

#[test]
fn every_engine_has_its_bytes() {
    for engine in EngineName::all() {
        assert!(FAMILIES.iter().any(|(_, engines)| engines.contains(&engine.name)), "{}", engine.name);
    }
}

/// Where kinds are listed in the code: the family, `message` or `record` with what stands before their names in titles, the file, the
/// type.
const LISTS: [(&str, &str, &str, &str); 17] = [
    ("gryff", "message ", "gryff/message.rs", "Message"),
    ("gryff", "message Instance.", "instances/message.rs", "Step"),
    ("gryff", "record ", "instances/record.rs", "Record"),
    ("epaxos", "message ", "epaxos/message.rs", "Message"),
    ("epaxos", "message Instance.", "instances/message.rs", "Step"),
    ("epaxos", "record ", "instances/record.rs", "Record"),
    ("multipaxos", "message ", "multipaxos/message.rs", "Message"),
    ("multipaxos", "message Log.", "multipaxos/log/message.rs", "Message"),
    ("multipaxos", "record ", "multipaxos/log/record.rs", "Record"),
    ("spanner", "message ", "spanner/message.rs", "Message"),
    ("spanner", "message ToLeader.", "spanner/message.rs", "Request"),
    ("spanner", "message Reply.", "spanner/message.rs", "Reply"),
    ("spanner", "message Log.", "multipaxos/log/message.rs", "Message"),
    ("causal", "message ", "causal/message.rs", "Message"),
    ("causal", "record ", "causal/record.rs", "Record"),
    ("cc-lo", "message ", "cc_lo/message.rs", "Message"),
    ("cc-lo", "record ", "causal/record.rs", "Record"),
];

/// What is in a list that two families share, and only the other one uses.
const OF_OTHERS: [&str; 2] = ["causal record Pending", "cc-lo record Horizon"];

/// The names in an enumeration.
fn variants(file: &str, name: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let start =
        text.find(&format!("pub enum {name}")).unwrap_or_else(|| panic!("{name} in {}", path.display()));
    let end = start + text[start..].find("\n}\n").expect("an enumeration ends");
    let lines = text[start..end].lines().filter_map(|line| line.strip_prefix("    "));
    let names = lines.filter(|line| line.starts_with(|c: char| c.is_uppercase()));
    names
        .map(|line| line.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_owned())
        .collect()
}

#[test]
fn every_kind_has_its_bytes() {
    let mut missing = Vec::new();
    for (family, before, file, name) in LISTS {
        let entries = entries(family);
        let variants = variants(file, name);
        assert!(variants.len() > 1, "{name} in {file}: the search is broken");
        for variant in variants {
            let title = format!("{before}{variant}");
            let is_it = |entry: &Entry| {
                entry.title.strip_prefix(&title).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            };
            let shown = format!("{family} {title}");
            if !entries.iter().any(is_it) && !OF_OTHERS.contains(&shown.as_str()) {
                missing.push(shown);
            }
        }
    }
    assert!(missing.is_empty(), "without golden bytes (see crates/sim/tests/golden.rs): {missing:#?}");
}

/// Whatever bit of them is another one, it is seen: the bytes say all that is shown, and nothing else.
#[test]
fn a_changed_byte_is_found() {
    let mut changed = 0;
    for (family, engines) in FAMILIES {
        let entries = entries(family);
        for entry in &entries {
            for part in 0..entry.bytes.len() {
                for at in 0..entry.bytes[part].len() {
                    let mut bytes = entry.bytes.clone();
                    bytes[part][at] ^= 1;
                    let other = Entry { title: entry.title.clone(), bytes, meaning: entry.meaning.clone() };
                    assert_eq!(faults(&[other], engines[0]).len(), 1, "{family} {} byte {at}", entry.title);
                    changed += 1;
                }
            }
        }
    }
    assert!(changed > 1_000, "only {changed} bytes");
}
