//! Checks on the repository itself: what its documents promise about its shape.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace is there")
}

/// The files that belong to the repository, by their path from its root.
fn files() -> Vec<String> {
    let listed = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output();
    if let Ok(output) = listed
        && output.status.success()
    {
        // A file that was deleted and not yet committed is listed all the same.
        let text = String::from_utf8_lossy(&output.stdout);
        return text.lines().filter(|path| root().join(path).exists()).map(str::to_owned).collect();
    }
    // An unpacked archive has no git: then what lies there is what there is.
    let mut found = Vec::new();
    let mut directories = vec![PathBuf::new()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(root().join(&directory)).expect("directories can be listed") {
            let entry = entry.expect("entries can be read");
            let path = directory.join(entry.file_name());
            let name = entry.file_name().to_string_lossy().into_owned();
            if entry.path().is_dir() && !["target", ".venv", "node_modules"].contains(&name.as_str()) {
                directories.push(path);
            } else if entry.path().is_file() {
                found.push(path.display().to_string());
            }
        }
    }
    found
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn with_extension<'a>(files: &'a [String], extension: &str) -> impl Iterator<Item = &'a String> {
    files.iter().filter(move |path| Path::new(path).extension().is_some_and(|found| found == extension))
}

/// Which crates of the workspace each of them may depend on.
const ARROWS: [(&str, &[&str]); 9] = [
    ("protocol", &[]),
    ("check", &["protocol"]),
    ("store", &["protocol"]),
    ("sim", &["protocol", "check", "store"]),
    ("clock", &["protocol"]),
    ("node", &["protocol", "store", "clock"]),
    ("compose", &["protocol"]),
    ("lab", &["protocol", "sim"]),
    ("meridian", &["protocol", "check", "sim", "store", "node", "lab"]),
];

#[test]
fn arrows_between_crates_point_one_way() {
    let allowed: BTreeMap<&str, &[&str]> = ARROWS.into_iter().collect();
    let files = files();
    let manifests = files.iter().filter(|path| path.starts_with("crates/") && path.ends_with("/Cargo.toml"));
    let mut crates = 0;
    for manifest in manifests {
        crates += 1;
        let name = manifest.split('/').nth(1).unwrap();
        let allowed = allowed.get(name).unwrap_or_else(|| panic!("say in tidy.rs what {name} may depend on"));
        let text = read(manifest);
        let document: toml::Table = text.parse().unwrap_or_else(|error| panic!("{manifest}: {error}"));
        // Dependencies of tests may point anywhere.
        let dependencies = document["dependencies"].as_table().unwrap();
        for dependency in dependencies.keys().filter_map(|name| name.strip_prefix("meridian-")) {
            assert!(allowed.contains(&dependency), "{manifest}: {name} must not depend on {dependency}");
        }
    }
    assert_eq!(crates, ARROWS.len());
}

/// Which rooms of `protocol` each of them may use: engines stand on what they share, and not on each other.
const ROOMS: [(&str, &[&str]); 8] = [
    ("registers", &[]),
    ("instances", &["registers"]),
    ("gryff", &["registers", "instances"]),
    ("epaxos", &["registers", "instances"]),
    ("multipaxos", &["registers"]),
    ("spanner", &["multipaxos"]),
    ("causal", &[]),
    ("cc_lo", &["causal"]),
];

#[test]
fn arrows_between_rooms_of_the_protocol_point_one_way() {
    let files = files();
    let mut arrows = 0;
    for path in with_extension(&files, "rs") {
        let Some((room, _)) = path.strip_prefix("crates/protocol/src/").and_then(|path| path.split_once('/'))
        else {
            continue;
        };
        let known = ROOMS.iter().find(|(name, _)| *name == room);
        let Some((_, allowed)) = known else { continue };
        for (number, line) in read(path).lines().enumerate() {
            // What documentation points to is no arrow.
            let code = line.split("//").next().unwrap_or_default();
            for used in code.split("crate::").skip(1) {
                let end = used.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(used.len());
                let used = &used[..end];
                if used != room && ROOMS.iter().any(|(name, _)| *name == used) {
                    arrows += 1;
                    assert!(allowed.contains(&used), "{path}:{}: {room} must not use {used}", number + 1);
                }
            }
        }
    }
    assert!(arrows > 20, "only {arrows} arrows: the search is broken");
}

#[test]
fn the_protocol_knows_no_sockets_threads_files_or_clocks() {
    let document: toml::Table = read("crates/protocol/Cargo.toml").parse().unwrap();
    let dependencies = document["dependencies"].as_table().unwrap();
    for banned in ["tokio", "libc", "tracing", "tempfile", "serde_json"] {
        assert!(!dependencies.contains_key(banned), "{banned}");
    }
    let files = files();
    let mut searched = 0;
    for path in with_extension(&files, "rs").filter(|path| path.starts_with("crates/protocol/src/")) {
        searched += 1;
        for (number, line) in read(path).lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            for banned in ["std::net", "std::fs", "std::thread", "std::time::", "async fn", "std::env"] {
                assert!(!code.contains(banned), "{path}:{}: {banned}", number + 1);
            }
        }
    }
    assert!(searched > 10, "the search has found the crate");
}

#[test]
fn files_hold_one_idea_each_and_none_is_unfinished() {
    let marks = ["TODO", "FIXME", "XXX", "todo!", "unimplemented!"];
    let files = files();
    for path in with_extension(&files, "rs") {
        let text = read(path);
        let lines = text.lines().count();
        assert!(lines <= 900, "{path} has {lines} lines: it holds more than one idea");
        if path.ends_with("tests/tidy.rs") {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            for mark in marks {
                assert!(!line.contains(mark), "{path}:{}: {mark}", number + 1);
            }
            if line.trim_start().starts_with("#[allow(") || line.trim_start().starts_with("#[ignore") {
                let before =
                    number.checked_sub(1).and_then(|before| text.lines().nth(before)).unwrap_or_default();
                let reason =
                    line.contains("reason") || line.contains("//") || before.trim_start().starts_with("//");
                assert!(reason, "{path}:{}: say why", number + 1);
            }
        }
    }
}

#[test]
fn links_in_documents_lead_somewhere() {
    let files = files();
    let mut links = 0;
    for path in with_extension(&files, "md") {
        let text = read(path);
        let directory = Path::new(path).parent().unwrap();
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = target.split('#').next().unwrap_or_default();
            if file.is_empty() || file.contains("://") || file.starts_with("mailto:") {
                continue;
            }
            links += 1;
            assert!(root().join(directory).join(file).exists(), "{path}: {target} leads nowhere");
        }
    }
    assert!(links > 10, "only {links} links: the search is broken");
}

#[test]
fn symbols_that_the_architecture_names_exist() {
    // Names in the form `crate::path::symbol`, as ARCHITECTURE.md gives them: the last part must be defined in
    // the crate that the first part names.
    let text = read("ARCHITECTURE.md");
    let files = files();
    let mut found = 0;
    for name in text.split('`').skip(1).step_by(2).filter(|name| name.contains("::")) {
        let parts: Vec<&str> = name.split("::").collect();
        let folder = format!("crates/{}/src/", parts[0]);
        if !root().join(&folder).exists() {
            continue;
        }
        let symbol = parts[parts.len() - 1].trim_end_matches("()");
        let defined = with_extension(&files, "rs").filter(|path| path.starts_with(&folder)).any(|path| {
            let is_module =
                path.ends_with(&format!("/{symbol}.rs")) || path.ends_with(&format!("/{symbol}/mod.rs"));
            let text = read(path);
            let defines = |word: &str| {
                text.lines().any(|line| {
                    line.find(&format!("{word} {symbol}")).is_some_and(|at| {
                        let rest = &line[at + word.len() + 1 + symbol.len()..];
                        !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_')
                    })
                })
            };
            let variant = || {
                text.lines().any(|line| {
                    let line = line.trim();
                    let rest = line.strip_prefix(symbol);
                    rest.is_some_and(|rest| {
                        rest.starts_with([',', '(', ' ']) && line.ends_with([',', '(', '{'])
                    })
                })
            };
            is_module
                || ["fn", "struct", "enum", "trait", "type", "const", "mod"].into_iter().any(defines)
                || variant()
        });
        assert!(defined, "ARCHITECTURE.md names `{name}`, which {folder} does not define");
        found += 1;
    }
    assert!(found >= 10, "only {found} symbols: the search is broken");
}

#[test]
fn a_newcomer_finds_the_two_commands() {
    let readme = read("README.md");
    for command in ["make run", "make test"] {
        assert!(readme.contains(command), "README.md does not show '{command}'");
    }
}

#[test]
fn the_repository_names_no_machine() {
    let files = files();
    let shown = ["md", "rs", "toml", "py", "yml", "sh"];
    for path in shown.into_iter().flat_map(|extension| with_extension(&files, extension)) {
        for (number, line) in read(path).lines().enumerate() {
            for place in ["/work", "/root", "/farm"] {
                // In pieces, so that this line does not find itself.
                let found = line.contains(&format!("{place}/"));
                assert!(!found, "{path}:{}: a path of somebody's machine", number + 1);
            }
        }
    }
}
