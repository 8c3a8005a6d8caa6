//! The corpus: small histories that tell models apart, most of them from the papers, each with its verdict by every
//! model. `corpus/README.md` is the table; one file a history holds what happened.

use super::{common, judge};
use meridian_check::{Model, Verdict, by_search, check, history};
use meridian_protocol::history::{Event, Kind};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

fn place(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name)
}

pub(crate) struct Litmus {
    name: String,
    pub(crate) events: Vec<Event>,
    pub(crate) expected: BTreeMap<Model, Verdict>,
}

fn text() -> String {
    fs::read_to_string(place("README.md")).expect("the table is there")
}

/// The cells of every row below the heading, of the table in that section.
fn table(text: &str, section: &str) -> Vec<Vec<String>> {
    let body =
        text.split(&format!("\n## {section}\n")).nth(1).unwrap_or_else(|| panic!("no section {section}"));
    let rows =
        body.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    let cells = |row: &str| row.trim_matches('|').split('|').map(|cell| cell.trim().to_string()).collect();
    let mut rows: Vec<Vec<String>> = rows.map(cells).collect();
    rows.remove(1);
    rows
}

pub(crate) fn corpus() -> Vec<Litmus> {
    let text = text();
    let models: BTreeMap<String, Model> = table(&text, "Models")[1..]
        .iter()
        .map(|row| (row[0].clone(), Model::named(&row[1]).unwrap_or_else(|| panic!("no model {}", row[1]))))
        .collect();
    assert_eq!(models.len(), Model::ALL.len(), "every model has a column");
    let verdicts = table(&text, "Verdicts");
    let (heading, rows) = verdicts.split_first().expect("a heading");
    let litmus = |row: &Vec<String>| {
        let name = row[0].clone();
        let events = read(&name);
        let cells = heading[1..].iter().zip(&row[1..]);
        let expected: BTreeMap<Model, Verdict> =
            cells.map(|(column, cell)| (models[column], told(cell))).collect();
        assert_eq!(expected.len(), Model::ALL.len(), "{name}: a verdict by every model");
        Litmus { name, events, expected }
    };
    rows.iter().map(litmus).collect()
}

fn told(cell: &str) -> Verdict {
    match cell {
        "Y" => Verdict::Holds,
        "n" => Verdict::Violated,
        "–" => Verdict::NotApplicable,
        _ => panic!("'{cell}' is no verdict"),
    }
}

fn read(name: &str) -> Vec<Event> {
    let file =
        fs::File::open(place(&format!("{name}.jsonl"))).unwrap_or_else(|error| panic!("{name}: {error}"));
    let read = history::read(std::io::BufReader::new(file), history::Format::Native);
    read.unwrap_or_else(|faults| panic!("{name}: {}", faults[0])).events
}

fn differences(litmus: &Litmus, found: impl Fn(Model) -> (Verdict, String)) -> Vec<String> {
    let different = |(model, expected): (&Model, &Verdict)| {
        let (verdict, reason) = found(*model);
        (verdict != *expected)
            .then(|| format!("{}: {model} is {expected}, not {verdict}: {reason}", litmus.name))
    };
    litmus.expected.iter().filter_map(different).collect()
}

#[test]
fn the_oracle_gives_the_verdicts_of_the_table() {
    let wrong: Vec<String> = corpus()
        .iter()
        .flat_map(|litmus| {
            let verdicts = judge(&litmus.events);
            differences(litmus, |model| (verdicts[&model], String::new()))
        })
        .collect();
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn the_checkers_give_the_verdicts_of_the_table() {
    let wrong: Vec<String> = corpus()
        .iter()
        .flat_map(|litmus| {
            differences(litmus, |model| {
                let judgement = by_search(model, &litmus.events);
                assert_eq!(judgement, check(model, &litmus.events), "without a witness the two are one");
                (judgement.verdict, judgement.reason)
            })
        })
        .collect();
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn stronger_models_imply_weaker_ones() {
    for litmus in corpus() {
        for (_, stronger) in Model::ALL {
            for weaker in stronger.implies() {
                let verdicts = (litmus.expected[&stronger], litmus.expected[weaker]);
                let name = &litmus.name;
                assert_ne!(
                    verdicts,
                    (Verdict::Holds, Verdict::Violated),
                    "{name}: {stronger} implies {weaker}"
                );
            }
        }
    }
}

#[test]
fn every_model_has_histories_of_both_verdicts_and_differs_from_every_other() {
    let corpus = corpus();
    for (_, model) in Model::ALL {
        for verdict in [Verdict::Holds, Verdict::Violated] {
            let count = corpus.iter().filter(|litmus| litmus.expected[&model] == verdict).count();
            assert!(count >= 3, "{model} {verdict}: {count}");
        }
        for (_, other) in Model::ALL.iter().filter(|(_, other)| *other != model) {
            let same = corpus.iter().all(|litmus| litmus.expected[&model] == litmus.expected[other]);
            assert!(!same, "nothing in the corpus tells {model} from {other}");
        }
    }
}

#[test]
fn files_and_table_tell_the_same_histories() {
    let text = text();
    let mut files: Vec<String> = fs::read_dir(place(""))
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.strip_suffix(".jsonl").map(str::to_string))
        .collect();
    files.sort();
    let told = table(&text, "Histories");
    let mut names: Vec<String> = corpus().into_iter().map(|litmus| litmus.name).collect();
    assert_eq!(names, told[1..].iter().map(|row| row[0].clone()).collect::<Vec<_>>());
    names.sort();
    assert_eq!(files, names);
    for row in &told[1..] {
        let [name, source, _, notation] = &row[..] else { panic!("{row:?}") };
        assert!(!source.is_empty(), "{name}: say where it comes from");
        let mut events = read(name);
        for event in events.iter_mut().filter(|event| event.kind != Kind::Fence) {
            // The notation does not tell kinds apart.
            event.kind = Kind::Op;
        }
        assert_eq!(events, common::history(notation.trim_matches('`')), "{name}");
    }
}
