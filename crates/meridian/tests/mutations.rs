//! Bytes from outside, mutated: the properties of `fuzz/properties.rs` on stable, with the corpus and 100,000
//! seeded mutations of it for each target.

#[path = "../../../fuzz/properties.rs"]
mod properties;

use meridian_node::frame;
use meridian_protocol::causal::{self, Causal};
use meridian_protocol::cc_lo::{self, CcLo};
use meridian_protocol::epaxos::{self, Epaxos};
use meridian_protocol::gryff::{self, Gryff};
use meridian_protocol::machine::Engine;
use meridian_protocol::multipaxos::{self, MultiPaxos};
use meridian_protocol::registry::Settings;
use meridian_protocol::spanner::{self, Kind, Spanner};
use meridian_protocol::wire;
use meridian_sim::Plan;
use meridian_sim::script::{Script, Setting};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

const MUTATIONS: u64 = 100_000;

fn directory(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target)
}

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let entries = std::fs::read_dir(directory(target)).expect("the corpus is there");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("it can be listed").path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).expect("it can be read")).collect()
}

/// The longest message of each kind that is sent in a run with a crash, by the name of its kind.
fn messages() -> BTreeMap<String, Vec<u8>> {
    let mut longest: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    gather(Gryff::linearizable(Settings::default()), "", &mut longest);
    gather(Gryff::rsc(Settings::default()), "", &mut longest);
    gather(Epaxos::new(Settings::default()), "Epaxos", &mut longest);
    gather(MultiPaxos::new(Settings::default()), "MultiPaxos", &mut longest);
    gather(Spanner::new(Kind::Rss, Settings::default()), "Spanner", &mut longest);
    gather(Causal::tcc(Settings::default()), "Causal", &mut longest);
    gather(CcLo::new(Settings::default()), "CcLo", &mut longest);
    longest
}

fn gather<E: Engine>(engine: E, prefix: &str, longest: &mut BTreeMap<String, Vec<u8>>) {
    let mut script = Script::new(engine, Setting::regions(5));
    let sessions: Vec<_> = [0, 1, 2, 3, 4].map(|region| script.session(region)).into();
    for round in 0..6 {
        if round == 2 {
            script.crash(0);
        } else if round == 4 {
            script.restart(0);
        }
        for (i, session) in sessions.iter().enumerate().skip(1) {
            let value = format!("value {round} {i}");
            script.begin(*session, "a", &Plan::Get);
            script.begin(*session, "b", &Plan::Set(value.clone()));
            script.begin(*session, "a", &Plan::Swap(value.clone()));
            script.begin(*session, "a", &Plan::Append(value));
        }
        if round < 2 {
            script.begin(sessions[0], "a", &Plan::Swap(format!("open {round}")));
        }
        // Not long enough for everything to end: what the crash leaves open must be recovered.
        script.run_for(if round == 1 { 60_000 } else { 3_000_000 });
    }
    for envelope in script.sent(|_| true) {
        let kind = format!("{prefix}{}", kind_of(&format!("{:?}", envelope.message)));
        let mut bytes = Vec::new();
        wire::encode(&envelope.message, &mut bytes);
        if kind == "Read1" {
            // One with its addresses, as it stands in a frame.
            let mut addressed = Vec::new();
            frame::write_addresses(&mut addressed, envelope.from, envelope.to);
            addressed.extend_from_slice(&bytes);
            longest.insert("Addressed".to_owned(), addressed);
        }
        let known = longest.entry(kind).or_default();
        if bytes.len() > known.len() {
            *known = bytes;
        }
    }
}

/// What a message is called, with what it holds if that is a choice of its own.
fn kind_of(message: &str) -> String {
    let first = |text: &str| text.split([' ', '{', '(']).next().unwrap_or_default().to_owned();
    let held = ["step: ", "ToLeader { request: ", "Comparison(", "Log(", "Reply("]
        .iter()
        .find_map(|part| message.split_once(part));
    first(message) + &held.map(|(_, held)| first(held)).unwrap_or_default()
}

/// One mutation or a few: flipped bits, other bytes, cuts, doublings, pieces of other inputs, tempting numbers.
fn mutate(rng: &mut Pcg64Mcg, corpus: &[Vec<u8>]) -> Vec<u8> {
    let mut data = corpus[rng.random_range(0..corpus.len())].clone();
    for _ in 0..rng.random_range(1..=6) {
        let at = rng.random_range(0..=data.len());
        let to = (at + rng.random_range(0..=16)).min(data.len());
        match rng.random_range(0..7) {
            0 if at < data.len() => data[at] ^= 1 << rng.random_range(0..8),
            1 if at < data.len() => data[at] = rng.random(),
            2 => data.truncate(at),
            3 => {
                data.drain(at..to);
            }
            4 => {
                let piece = data[at..to].to_vec();
                data.splice(at..at, piece);
            }
            5 => {
                let other = &corpus[rng.random_range(0..corpus.len())];
                let start = rng.random_range(0..=other.len());
                let end = (start + rng.random_range(0..=32)).min(other.len());
                data.splice(at..to, other[start..end].iter().copied());
            }
            _ => {
                let numbers: [&[u8]; 6] = [
                    b"-1",
                    b"0",
                    b"4294967296",
                    b"9223372036854775807",
                    &[0xff; 8],
                    &[0x9b, 0xff, 0xff, 0xff, 0xff],
                ];
                data.splice(at..to, numbers[rng.random_range(0..numbers.len())].iter().copied());
            }
        }
    }
    data
}

fn holds_for_all(target: &str, corpus: &[Vec<u8>], property: fn(&[u8])) {
    assert!(corpus.len() >= 10, "only {} inputs to begin with", corpus.len());
    let mut rng = Pcg64Mcg::seed_from_u64(1);
    let mutated = (0..MUTATIONS).map(|_| mutate(&mut rng, corpus));
    for data in corpus.iter().cloned().chain(mutated) {
        let held = catch_unwind(AssertUnwindSafe(|| property(&data)));
        assert!(held.is_ok(), "{target} fails for b\"{}\"", data.escape_ascii());
    }
}

#[test]
fn the_resp_parser_holds() {
    holds_for_all("resp", &corpus("resp"), properties::resp);
}

#[test]
fn the_readers_of_histories_hold() {
    holds_for_all("history", &corpus("history"), properties::history);
}

#[test]
fn contexts_hold() {
    holds_for_all("token", &corpus("token"), properties::token);
}

#[test]
fn the_wire_decoder_holds() {
    let messages = messages();
    if std::env::var_os("MERIDIAN_WRITE_CORPUS").is_some() {
        std::fs::create_dir_all(directory("wire")).unwrap();
        for (kind, bytes) in &messages {
            std::fs::write(directory("wire").join(kind.to_lowercase()), bytes).unwrap();
        }
    }
    let mut inputs = corpus("wire");
    let is_understood = |bytes: &&Vec<u8>| {
        wire::decode::<gryff::Message>(bytes).is_ok()
            || wire::decode::<epaxos::Message>(bytes).is_ok()
            || wire::decode::<multipaxos::Message>(bytes).is_ok()
            || wire::decode::<spanner::Message>(bytes).is_ok()
            || wire::decode::<causal::Message>(bytes).is_ok()
            || wire::decode::<cc_lo::Message>(bytes).is_ok()
    };
    let understood = inputs.iter().filter(is_understood).count();
    assert!(2 * understood >= inputs.len(), "the corpus is out of date: run with MERIDIAN_WRITE_CORPUS=1");
    inputs.extend(messages.into_values());
    holds_for_all("wire", &inputs, properties::wire);
}
