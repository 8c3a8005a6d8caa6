//! Each generator against its definition. Counts of a fixed seed are compared with what is expected of them by the
//! chi-square statistic, with a bound that chance exceeds once in a thousand at most.

use super::retwis::{SHARES, TIMELINE};
use super::rots::key_in;
use super::*;
use crate::definition::{Experiment, Scale};
use meridian_protocol::object::Command;
use meridian_protocol::topology::{key_hash, partition_of_hash};
use rand::SeedableRng;
use std::collections::BTreeMap;

const DRAWS: u64 = 50_000;

/// Draws of eight clients in turn from a workload written as in a file.
fn draws(workload: &str, partitions: u16) -> Vec<Operation> {
    let (head, _) = crate::definition::SOUND_FOR_TESTS.split_once("[quick.set.time]").unwrap();
    let text = head
        .replace("[run.workload.registers]\nwrites = 50.0\nkeys.conflict = 10.0", workload)
        .replace("regions = \"3\"", &format!("regions = \"3\"\npartitions = {partitions}"));
    let text = format!("{text}\n[[series]]\nname = \"gryff\"\n");
    let experiment = Experiment::read(&text).unwrap_or_else(|faults| panic!("{faults:#?}"));
    let run = &experiment.runs(Scale::Full).unwrap()[0].run;
    let mut generator = Generator::new(run, 3);
    let mut random = Pcg64Mcg::seed_from_u64(11);
    let draw = |drawn| {
        let mut drawer =
            Drawer { client: (drawn % 8) as usize, drawn: drawn / 8, random: &mut random, at_ms: 0 };
        generator.draw(&mut drawer)
    };
    (0..DRAWS).map(draw).collect()
}

fn key(operation: &Operation) -> String {
    match &operation.request {
        Request::Act { key, .. } => String::from_utf8(key.to_vec()).unwrap(),
        other => panic!("{other:?}"),
    }
}

/// How often each thing was seen, against how often it should be: within what chance explains.
fn fits(seen: &[u64], expected: &[f64]) {
    assert_eq!(seen.len(), expected.len());
    let total: u64 = seen.iter().sum();
    let chi: f64 = seen
        .iter()
        .zip(expected)
        .map(|(seen, share)| {
            let expected = share * total as f64;
            (*seen as f64 - expected).powi(2) / expected
        })
        .sum();
    // Wilson and Hilferty's approximation of the 99.9% quantile.
    let freedom = (seen.len() - 1) as f64;
    let bound = freedom * (1.0 - 2.0 / (9.0 * freedom) + 3.09 * (2.0 / (9.0 * freedom)).sqrt()).powi(3);
    assert!(chi < bound, "chi-square {chi:.1} of {freedom} degrees of freedom, above {bound:.1}: {seen:?}");
}

fn labels(all: &[Operation], names: &[&str]) -> Vec<u64> {
    let count = |name: &&str| all.iter().filter(|operation| operation.label == *name).count() as u64;
    let counts: Vec<u64> = names.iter().map(count).collect();
    assert_eq!(counts.iter().sum::<u64>(), DRAWS, "other labels than {names:?}");
    counts
}

#[test]
fn the_papers_mix_and_conflicts() {
    let all = draws("[run.workload.registers]\nwrites = 49.5\nrmws = 1.0\nkeys.conflict = 25.0", 1);
    fits(&labels(&all, &["read", "write", "rmw"]), &[0.495, 0.495, 0.01]);
    let shared = all.iter().filter(|operation| key(operation) == "shared").count() as u64;
    fits(&[shared, DRAWS - shared], &[0.25, 0.75]);
    // No two clients share any other key.
    let mut owners: BTreeMap<String, usize> = BTreeMap::new();
    for (drawn, operation) in all.iter().enumerate().filter(|(_, operation)| key(operation) != "shared") {
        assert_eq!(*owners.entry(key(operation)).or_insert(drawn % 8), drawn % 8);
    }
    assert_eq!(owners.len(), 8 * 64);
}

/// Of three regions the two others, alike.
#[test]
fn sessions_turn_to_other_regions() {
    let all = draws("[run.workload.registers]\nwrites = 50.0\nkeys.uniform = 10\nremote = 25.0", 1);
    let away = |regions: u8| all.iter().filter(|operation| operation.away == regions).count() as u64;
    fits(&[away(0), away(1), away(2)], &[0.75, 0.125, 0.125]);
}

#[test]
fn an_rmw_is_one_and_a_write_is_blind() {
    use meridian_protocol::object::Class;
    let all = draws("[run.workload.registers]\nwrites = 40.0\nrmws = 30.0\nkeys.uniform = 10", 1);
    for operation in &all {
        let Request::Act { action, .. } = &operation.request else { panic!("{operation:?}") };
        let class = match operation.label {
            "read" => Class::Read,
            "write" => Class::Write,
            _ => Class::ReadModifyWrite,
        };
        assert_eq!(action.class(), class);
    }
}

#[test]
fn uniform_keys_are_even() {
    let all = draws("[run.workload.registers]\nwrites = 50.0\nkeys.uniform = 20", 1);
    let mut seen = [0; 20];
    for operation in &all {
        seen[key(operation)[1..].parse::<usize>().unwrap()] += 1;
    }
    fits(&seen, &[0.05; 20]);
}

/// The first ranks and all others together, of as many keys as the papers have.
#[test]
fn zipf_is_zipf_in_a_large_key_space() {
    for theta in [0.5, 0.9, 0.99, 1.2] {
        let keys = 10_000_000_u64;
        let all = draws(
            &format!(
                "[run.workload.registers]\nwrites = 50.0\nkeys.zipf = {{ keys = {keys}, theta = {theta} }}"
            ),
            1,
        );
        let weights: Vec<f64> = (1..=keys).map(|rank| (rank as f64).powf(-theta)).collect();
        let total: f64 = weights.iter().sum();
        // Groups of ranks of about equal weight, and the rest.
        let mut bounds = vec![1_u64];
        while *bounds.last().unwrap() < keys / 20 && bounds.len() < 14 {
            bounds.push(bounds.last().unwrap() * 3);
        }
        let mut expected = vec![0.0; bounds.len()];
        for (rank, weight) in (1..=keys).zip(&weights) {
            expected[bounds.partition_point(|bound| *bound <= rank) - 1] += weight / total;
        }
        let mut seen = vec![0; bounds.len()];
        for operation in &all {
            let rank: u64 = key(operation)[1..].parse().unwrap();
            assert!((1..=keys).contains(&rank));
            seen[bounds.partition_point(|bound| *bound <= rank) - 1] += 1;
        }
        fits(&seen, &expected);
    }
}

#[test]
fn ycsb_has_its_mixes() {
    for (mix, reads, other) in
        [("A", 0.5, "write"), ("B", 0.95, "write"), ("D", 0.95, "write"), ("F", 0.5, "rmw")]
    {
        let all = draws(&format!("[run.workload.ycsb]\nmix = \"{mix}\"\nkeys = 1000"), 1);
        fits(&labels(&all, &["read", other]), &[reads, 1.0 - reads]);
    }
    assert_eq!(labels(&draws("[run.workload.ycsb]\nmix = \"C\"\nkeys = 1000", 1), &["read"]), [DRAWS]);
}

/// Workload D reads what was inserted last: the newest key most, and none that is not there yet.
#[test]
fn ycsb_d_reads_the_newest() {
    let all = draws("[run.workload.ycsb]\nmix = \"D\"\nkeys = 1000", 1);
    let mut keys = 1_000_u64;
    let (mut newest, mut reads) = (0, 0);
    for operation in &all {
        let number: u64 = key(operation)[1..].parse().unwrap();
        if operation.label == "write" {
            assert_eq!(number, keys, "inserts are new");
            keys += 1;
        } else {
            assert!(number < keys);
            reads += 1;
            newest += u64::from(number == keys - 1);
        }
    }
    let first: f64 = 1.0 / (1..=1_000).map(|rank| f64::from(rank).powf(-0.99)).sum::<f64>();
    fits(&[newest, reads - newest], &[first, 1.0 - first]);
}

#[test]
fn retwis_has_its_transactions() {
    let all = draws("[run.workload.retwis]\nkeys = 10000000\ntheta = 0.7", 1);
    fits(&labels(&all, &["rw", "ro"]), &[0.5, 0.5]);
    let mut sizes: BTreeMap<(usize, usize), u64> = BTreeMap::new();
    for operation in &all {
        let Request::Together(together) = &operation.request else { panic!("{operation:?}") };
        let reads: Vec<_> = together.steps.iter().filter(|(_, command)| *command == Command::Get).collect();
        let writes = together.steps.len() - reads.len();
        assert_eq!(operation.label == "ro", writes == 0);
        for (index, (key, _)) in reads.iter().enumerate() {
            assert!(reads[..index].iter().all(|(other, _)| other != key), "a key is read twice");
        }
        *sizes.entry((reads.len(), writes)).or_default() += 1;
    }
    let mut kinds: Vec<((usize, usize), f64)> =
        SHARES.iter().map(|(share, reads, writes)| ((*reads, *writes), f64::from(*share) / 100.0)).collect();
    kinds.extend((1..=TIMELINE).map(|reads| ((reads, 0), 0.5 / TIMELINE as f64)));
    let seen: Vec<u64> = kinds.iter().map(|(kind, _)| sizes.remove(kind).unwrap_or_default()).collect();
    assert!(sizes.is_empty(), "other transactions: {sizes:?}");
    fits(&seen, &kinds.iter().map(|(_, share)| *share).collect::<Vec<_>>());
}

#[test]
fn rots_have_their_ratio_and_spread() {
    let (partitions, spans, w) = (8, 4, 0.05);
    let all = draws(
        "[run.workload.rots]\nwrites = 0.05\npartitions = 4\ntheta = 0.99\nkeys_per_partition = 1000",
        partitions,
    );
    let [puts, rots] = labels(&all, &["put", "rot"])[..] else { panic!("two labels") };
    // Of all keys read or put, w are put.
    let share = w * spans as f64 / (1.0 - w + w * spans as f64);
    fits(&[puts, rots], &[share, 1.0 - share]);
    let keys = puts as f64 + (rots * spans) as f64;
    assert!((puts as f64 / keys - w).abs() < 0.003, "{}", puts as f64 / keys);
    let mut read = vec![0; usize::from(partitions)];
    for operation in &all {
        let Request::Together(together) = &operation.request else { continue };
        let mut there: Vec<u16> =
            together.steps.iter().map(|(key, _)| partition_of_hash(key_hash(key), partitions)).collect();
        assert_eq!(there.len() as u64, spans);
        there.sort_unstable();
        there.dedup();
        assert_eq!(there.len() as u64, spans, "one key of each partition");
        for partition in there {
            read[usize::from(partition)] += 1;
        }
    }
    fits(&read, &vec![1.0 / f64::from(partitions); usize::from(partitions)]);
}

#[test]
fn a_rank_of_a_partition_has_one_key_that_hashes_there() {
    for partition in 0..45 {
        let named = key_in(partition, 45, 3);
        assert_eq!(partition_of_hash(key_hash(&named), 45), partition);
        assert_eq!(named, key_in(partition, 45, 3));
        assert_ne!(named, key_in(partition, 45, 4));
    }
}
