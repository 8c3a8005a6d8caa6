//! The command line: help, errors, exit statuses, and output that scripts rely on.

use crate::harness::{Dev, run, stderr, stdout};
use meridian_check::Model;
use tempfile::TempDir;

#[test]
fn every_command_has_help_and_a_version() {
    for command in ["dev", "serve", "bench", "sim", "check", "lab", "status"] {
        let output = run(&[command, "--help"]);
        assert_eq!(output.status.code(), Some(0), "{command}");
        assert!(stdout(&output).contains("Usage: meridian"), "{}", stdout(&output));
        let output = run(&[command, "--version"]);
        assert!(stdout(&output).contains(env!("CARGO_PKG_VERSION")), "{}", stdout(&output));
    }
}

#[test]
fn bad_usage_is_one_line_that_says_the_way_out() {
    for (arguments, part) in [
        (&["bnech"][..], "bnech"),
        (&["bench", "--clients", "0"], "--clients"),
        (&["bench", "--duration", "10"], "--duration"),
        (&["dev", "--db", "0=serializable"], "serializable"),
        (
            &["dev", "--db", "0=causal", "--writes", "auto"],
            "no --db names an engine that writes by the clock",
        ),
        (&["dev", "--db", "0=causal:gryff"], "choose one of contrarian, cc-lo, tcc"),
        (&["dev", "--rtt", "nosuchfile.csv"], "nosuchfile.csv"),
        (&["dev", "--regions", "4"], "4"),
        (&["sim", "--engine", "paxos"], "no engine is called"),
        (&["sim", "--engine", "gryff", "--faults", "gremlins"], "gremlins"),
        (&["sim", "--engine", "gryff", "--clock", "logical"], "of one kind only"),
        (&["sim", "--engine", "tcc", "--clock", "sundial"], "choose one of hybrid, logical, physical"),
        (&["check", "--model", "casual", "x"], "no model is called so"),
        (&["check", "--model", "causal", "--format", "elle", "x"], "choose one of native, jepsen, porcupine"),
        (&["check", "--model", "causal", "nosuch.jsonl"], "nosuch.jsonl"),
        (&["lab", "run", "nosuch"], "no experiment is called 'nosuch'"),
        (&["lab", "compare", "--regions", "eastus,westeurope"], "must be odd"),
        (&["lab", "compare", "--regions", "3", "--engines", "gryff,griffin"], "griffin"),
        (&["status", "--user", "u"], "--password"),
        (&["status", "--insecure"], "--tls"),
        (&["status", "--tls", "--ca", "nosuch.pem"], "nosuch.pem"),
        (&["bench", "--password-file", "nosuch"], "nosuch"),
        (&["serve", "--config", "nosuch.toml", "--node", "x"], "nosuch.toml"),
    ] {
        let output = run(arguments);
        let told = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {told}");
        assert!(told.contains(part), "{arguments:?}: {told}");
        for line in told.lines() {
            assert!(
                line.starts_with("meridian: ") && line.matches(": ").count() >= 3,
                "{arguments:?}: {line}"
            );
        }
    }
}

#[test]
fn a_seed_prints_its_line_and_replays_exactly() {
    for engine in ["gryff", "gryff-rsc", "epaxos", "abd"] {
        let simulate = || {
            let output = run(&["sim", "--engine", engine, "--seed", "7", "--ops", "1000", "--clients", "6"]);
            assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
            stdout(&output).lines().last().unwrap_or_default().to_owned()
        };
        let line = simulate();
        assert!(line.starts_with(&format!("seed=7 engine={engine} ops=")), "{line}");
        let keys: Vec<&str> = line.split(' ').filter_map(|part| part.split('=').next()).collect();
        assert_eq!(keys, ["seed", "engine", "ops", "ok", "failed", "unknown", "verdict", "trace"]);
        assert!(line.contains("verdict=holds"), "{line}");
        assert_eq!(line, simulate(), "two processes, one seed, one trace");
    }
}

#[test]
fn bench_writes_what_check_reads() {
    let dev = Dev::start(&["--rtt", "none"]);
    let directory = TempDir::new().unwrap();
    let file = |name: &str| directory.path().join(name).display().to_string();
    let (history, json) = (file("h.jsonl"), file("r.json"));
    let target = format!("127.0.0.1:{},127.0.0.1:{}", dev.port(0), dev.port(2));
    let output = run(&[
        "bench",
        "--target",
        &target,
        "--clients",
        "8",
        "--duration",
        "1s",
        "--warmup",
        "100ms",
        "--mix",
        "2:2:1",
        "--conflict",
        "30",
        "--keys",
        "50",
        "--seed",
        "3",
        "--json",
        &json,
        "--history",
        &history,
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let report: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    // How many depends on what else the machine does.
    assert!(report["ops"].as_u64() > Some(0), "{report}");
    assert_eq!((&report["errors"], &report["unknown"]), (&0.into(), &0.into()), "{report}");
    for verb in ["get", "set", "rmw"] {
        assert!(report["by_op"][verb]["p99_us"].as_f64() > Some(0.0), "{report}");
    }
    let output = run(&["check", "--model", "linearizable", &history]);
    assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
    let output = run(&["check", "--model", "all", "--json", &history]);
    assert_eq!(stdout(&output).lines().count(), Model::ALL.len(), "{}", stdout(&output));
}
