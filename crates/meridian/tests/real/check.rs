//! `meridian check` on files: verdicts, exit statuses, warnings, and every fault of what cannot be judged.

use crate::harness::{run, stderr, stdout};
use meridian_check::Model;
use std::process::Output;
use tempfile::TempDir;

/// A write by p1 that has returned, and a later read by p2.
fn write_then_read(seen: &str) -> String {
    format!(
        concat!(
            r#"{{"id":1,"session":"p1","ops":[["w","x","1"]],"invoke":0,"return":1,"outcome":"ok"}}"#,
            "\n",
            r#"{{"id":2,"session":"p2","ops":[["r","x",{}]],"invoke":2,"return":3,"outcome":"ok"}}"#,
            "\n",
        ),
        seen
    )
}

const TRANSACTION: &str = concat!(
    r#"{"id":1,"session":"p1","kind":"rw","ops":[["r","x",null],["w","y","1"]],"invoke":0,"return":1}"#,
    "\n"
);

/// Runs `check` with these arguments on files of these names and contents.
fn check(arguments: &[&str], files: &[(&str, &str)]) -> Output {
    let directory = TempDir::new().expect("a directory can be made");
    let mut words = vec!["check".to_owned()];
    words.extend(arguments.iter().map(|word| (*word).to_owned()));
    for (name, content) in files {
        let path = directory.path().join(name);
        std::fs::write(&path, content).expect("a file can be written");
        words.push(path.display().to_string());
    }
    run(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

fn ends(output: &Output, status: i32) {
    assert_eq!(output.status.code(), Some(status), "{}{}", stdout(output), stderr(output));
}

#[test]
fn verdicts_decide_the_exit_status() {
    let (good, bad) = (write_then_read("\"1\""), write_then_read("null"));
    let both = &["--model", "linearizable,rsc"];
    ends(&check(both, &[("h.jsonl", &good)]), 0);
    let output = check(both, &[("h.jsonl", &bad)]);
    ends(&output, 1);
    assert!(stdout(&output).starts_with("linearizable\tviolated\t"), "{}", stdout(&output));
    let output = check(both, &[("h.jsonl", &good), ("i.jsonl", &bad)]);
    ends(&output, 1);
    let lines: Vec<String> = stdout(&output).lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), 4, "{lines:?}");
    assert!(lines[0].starts_with("linearizable\tholds\t") && lines[0].contains("h.jsonl: "), "{lines:?}");
    assert!(lines[2].starts_with("linearizable\tviolated\t") && lines[2].contains("i.jsonl: "), "{lines:?}");
    let output = check(&["--model", "all"], &[("h.jsonl", &bad)]);
    ends(&output, 0);
    assert_eq!(stdout(&output).lines().count(), Model::ALL.len(), "'all' only describes");
}

#[test]
fn json_says_the_same() {
    let output = check(&["--model", "rsc,linearizable", "--json"], &[("h.jsonl", &write_then_read("null"))]);
    ends(&output, 1);
    for (line, model) in stdout(&output).lines().zip(["rsc", "linearizable"]) {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!((&line["model"], &line["verdict"]), (&model.into(), &"violated".into()));
        assert!(
            line["reason"].is_string() && line["file"].as_str().is_some_and(|file| file.ends_with("h.jsonl"))
        );
    }
}

#[test]
fn a_value_that_nobody_wrote_is_a_violation_that_names_it() {
    let output =
        check(&["--model", "linearizable,sequential,serializable"], &[("h", &write_then_read("\"7\""))]);
    ends(&output, 1);
    for line in stdout(&output).lines() {
        assert!(line.contains("\tviolated\t") && line.contains("op 2 (p2: r x=7)"), "{line}");
    }
}

#[test]
fn a_model_that_says_nothing_of_transactions_names_the_one_that_does() {
    let output = check(&["--model", "linearizable,strict-serializable"], &[("h", TRANSACTION)]);
    ends(&output, 2);
    assert!(stdout(&output).starts_with("linearizable\tn/a\t"), "{}", stdout(&output));
    assert!(stdout(&output).contains("strict-serializable\tholds\t"), "{}", stdout(&output));
    let told = stderr(&output);
    assert!(told.starts_with("meridian: ") && told.contains("--model linearizable: "), "{told}");
    assert!(told.trim_end().ends_with("name strict-serializable instead"), "{told}");
    ends(&check(&["--model", "all"], &[("h", TRANSACTION)]), 0);
}

#[test]
fn an_empty_file_holds_with_a_warning() {
    for name in ["h.jsonl", "h.edn", "h.txt"] {
        let output = check(&["--model", "linearizable,serializable"], &[(name, "")]);
        ends(&output, 0);
        assert_eq!(stdout(&output).matches("\tholds\t").count(), 2, "{}", stdout(&output));
        assert!(stderr(&output).contains("the history is empty"), "{}", stderr(&output));
    }
}

#[test]
fn two_operations_at_once_in_a_session_are_accepted_with_a_warning() {
    let pipelined = write_then_read("\"1\"").replace("p2", "p1").replace("\"return\":1", "\"return\":3");
    let output = check(&["--model", "linearizable"], &[("h.jsonl", &pipelined)]);
    ends(&output, 0);
    let told = stderr(&output);
    assert!(told.contains("session p1 invoked operation 2 before operation 1 had returned"), "{told}");
}

#[test]
fn all_faults_of_all_files_are_told_and_nothing_is_judged() {
    let faulty = concat!(
        r#"{"id":1,"session":"a","invoke":5,"return":4}"#,
        "\n",
        r#"{"id":1,"session":"a","invoke":5,"return":null}"#,
        "\n",
        r#"{"id":3,"session":"a","invoke":5,"return":6,"after":[9],"witness":{"cs":[1]}}"#,
        "\n",
        r#"{"id":4,"sess"#,
    );
    let edn = "{:process 0, :type :ok, :f :read, :value 1}\n{:process 1, :type :invo";
    let output = check(
        &["--model", "linearizable,nonsense"],
        &[("h.jsonl", faulty), ("good.jsonl", &write_then_read("null")), ("i.edn", edn)],
    );
    ends(&output, 2);
    assert_eq!(stdout(&output), "", "nothing is judged");
    let told = stderr(&output);
    for part in [
        "--model nonsense: no model is called so",
        "h.jsonl: line 1: operation 1 returned at 4, before its invocation at 5: ",
        "h.jsonl: line 2: id 1 stands on line 1 already: ",
        "h.jsonl: line 2: operation 1 ended ok but has no return time: ",
        "h.jsonl: line 3: has a wrong \"witness\": ",
        "h.jsonl: line 4: is truncated: ",
        "i.edn: line 1: ends an operation of process 0 that was never invoked: ",
        "i.edn: line 2: is truncated: ",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert_eq!(told.lines().count(), 8, "{told}");
    for line in told.lines() {
        assert!(line.starts_with("meridian: ") && line.matches(": ").count() >= 3, "{line}");
    }
}

#[test]
fn foreign_histories_are_known_by_what_they_are() {
    let jepsen = concat!(
        "{:process 0, :type :invoke, :f :txn, :value [[:append 3 1]]}\n",
        "{:process 0, :type :ok, :f :txn, :value [[:append 3 1]]}\n",
        "{:process 1, :type :invoke, :f :txn, :value [[:r 3 nil]]}\n",
        "{:process 1, :type :ok, :f :txn, :value [[:r 3 [1]]]}\n",
    );
    let lost = jepsen.replace("[[:r 3 [1]]]", "[[:r 3 nil]]");
    let console = "INFO  jepsen.util - 0\t:invoke\t:write\t1\n\
                   INFO  jepsen.util - 0\t:ok\t:write\t1\n\
                   INFO  jepsen.util - 1\t:invoke\t:read\tnil\n\
                   INFO  jepsen.util - 1\t:ok\t:read\t2\n";
    let strings = concat!(
        "{:process 0, :type :invoke, :f :append, :key \"k\", :value \"a;\"}\n",
        "{:process 0, :type :ok, :f :append, :key \"k\", :value \"a;\"}\n",
        "{:process 1, :type :invoke, :f :get, :key \"k\", :value nil}\n",
        "{:process 1, :type :ok, :f :get, :key \"k\", :value \"a;\"}\n",
    );
    for (name, text, status) in
        [("history.edn", jepsen, 0), ("history", &lost, 1), ("etcd.log", console, 1), ("kv.txt", strings, 0)]
    {
        ends(&check(&["--model", "strict-serializable"], &[(name, text)]), status);
    }
    // Forced, it is read as told.
    let output = check(&["--model", "rss", "--format", "native"], &[("history.edn", jepsen)]);
    ends(&output, 2);
    assert_eq!(stderr(&output).matches("is no JSON: ").count(), 4, "{}", stderr(&output));
    let output = check(&["--model", "rss", "--format", "jepsen"], &[("kv.txt", strings)]);
    ends(&output, 2);
    assert!(stderr(&output).contains("invokes :append, which is no workload"), "{}", stderr(&output));
}

#[test]
fn help_names_every_model_and_format() {
    let help = stdout(&run(&["check", "--help"])).replace('\n', " ");
    let help: String = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for (name, _) in Model::ALL {
        assert!(help.contains(name), "{name}: {help}");
    }
    assert!(help.contains("native, jepsen or porcupine"), "{help}");
}
