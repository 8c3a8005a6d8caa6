#!/usr/bin/env python3
"""Runs the stages of `make test` or `make test-long` one after the other.

Each stage has a budget of time, printed beside what the stage took, because a test suite gets slow by one unnoticed
minute at a time. A stage over its budget is marked and does not fail: the machine may be slow. The last lines sum up all
tests that ran.
"""

import os
import re
import subprocess
import sys
import time

CARGO = os.environ.get("CARGO", "cargo")
TARGET = os.environ.get("CARGO_TARGET_DIR", "target")
BINARY = f"{TARGET}/sim/meridian"
SIM = ["--profile", "sim", "--locked"]

# Name, minutes that it should take at most on two cores from a clean clone, command, additions to the environment.
STAGES = {
    "test": [
        ("format", 0.5, [CARGO, "fmt", "--all", "--check"], {}),
        (
            "lints",
            4,
            [CARGO, "clippy", "--workspace", "--all-targets", "--all-features", "--locked", "--", "-D", "warnings"],
            {},
        ),
        ("build", 6, [CARGO, "test", *SIM, "--workspace", "--no-run"], {}),
        ("unit, simulation, real processes", 6, [CARGO, "test", *SIM, "--workspace"], {}),
        ("redis-py, redis-cli, redis-benchmark", 2, [".venv/bin/python", "tests/interop/clients.py", BINARY], {}),
        (
            "contexts in Python",
            0.5,
            [".venv/bin/python", "-m", "unittest", "discover", "-s", "clients/python/tests"],
            {"PYTHONPATH": "clients/python/src"},
        ),
        (
            "the photos' servers, workers and driver",
            0.5,
            [".venv/bin/python", "-m", "unittest", "discover", "-s", "examples/photos"],
            {"PYTHONPATH": "clients/python/src"},
        ),
        ("the photos' page in a browser", 1, [".venv/bin/python", "tests/pages/photos.py", BINARY], {}),
        ("pages in a browser", 1, [".venv/bin/python", "tests/pages/timeline.py", BINARY], {}),
        ("the lab's pages in a browser", 1, [".venv/bin/python", "tests/pages/lab.py", BINARY], {}),
        (
            "planted bugs",
            3,
            [CARGO, "test", *SIM, "--package", "meridian-sim", "--features", "planted-bugs"]
            + ["--test", "planted", "--test", "exhaustive", "--test", "composed"],
            {},
        ),
        (
            "planted bugs, by hand",
            1.5,
            [CARGO, "test", *SIM, "--package", "meridian-protocol", "--package", "meridian-compose", "--lib", "--test", "rules"]
            + ["--features", "meridian-protocol/planted-bugs,meridian-compose/planted-bugs", "--"]
            + ["planted", "what_is_told_at_once", "a_rule_left_out"],
            {},
        ),
        ("documentation", 2, [CARGO, "doc", "--workspace", "--no-deps", "--locked"], {"RUSTDOCFLAGS": "-D warnings"}),
    ],
    "test-long": [
        ("build", 6, [CARGO, "test", *SIM, "--workspace", "--no-run"], {}),
        (
            "simulation, 200 seeds an engine",
            30,
            [CARGO, "test", *SIM, "--package", "meridian-sim", "--test", "simulation", "--", "--nocapture"],
            {"MERIDIAN_RUNS": "200"},
        ),
        (
            "writes by the clock, 1,000 seeds",
            15,
            [CARGO, "test", *SIM, "--package", "meridian-sim", "--test", "simulation", "writes_by_the_clock", "--", "--nocapture"],
            {"MERIDIAN_RUNS": "500"},
        ),
        (
            "every order of events",
            12,
            [CARGO, "test", *SIM, "--package", "meridian-sim", "--test", "exhaustive", "--", "--ignored", "--nocapture"],
            {},
        ),
        (
            "crashes, faults and damage on real processes",
            20,
            [CARGO, "test", *SIM, "--package", "meridian", "--test", "real", "--", "--ignored", "--nocapture"],
            {},
        ),
        (
            "the photos' invariants, 100,000 operations each",
            10,
            [CARGO, "test", *SIM, "--package", "meridian-sim", "--test", "composed", "photos", "--", "--nocapture"],
            {"MERIDIAN_PHOTOS": "100000"},
        ),
        (
            "services used as one, 119 runs",
            5,
            [CARGO, "test", *SIM, "--package", "meridian-sim", "--test", "composed", "services_are_one", "--", "--nocapture"],
            {"MERIDIAN_RUNS": "17"},
        ),
        (
            "services outside, with a planted bug",
            4,
            [CARGO, "test", *SIM, "--package", "meridian", "--features", "planted-bugs"]
            + ["--test", "real", "compose", "--", "--nocapture"],
            {},
        ),
        ("five regions", 10, [BINARY, "sim", "--engine", "gryff", "--n", "5", "--seeds", "1..51"], {}),
        ("seven regions", 15, [BINARY, "sim", "--engine", "gryff-rsc", "--n", "7", "--seeds", "1..51"], {}),
        (
            "planted bugs",
            8,
            [CARGO, "test", *SIM, "--package", "meridian-sim", "--features", "planted-bugs", "--test", "planted"],
            {"MERIDIAN_RUNS": "200"},
        ),
        ("figure 7 in virtual time", 20, [CARGO, "run", *SIM, "--package", "meridian-sim", "--example", "figure7"], {}),
        ("memory over 10 million rmws", 20, ["tests/memory.py", BINARY], {}),
    ],
}

# How cargo test, the Python tests and unittest say what they counted; with unittest the exit status says whether any has failed.
COUNTED = re.compile(r"(?:^test result: \w+\. |^)(\d+) passed[;,] (\d+) failed|^Ran (\d+) tests? in")


def run(command, environment):
    """Runs one stage, passing its output through; returns its exit status and the tests that it counted."""
    passed = failed = 0
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, **environment},
    )
    for line in process.stdout:
        counted = COUNTED.match(line)
        if counted:
            passed += int(counted[1] or counted[3])
            failed += int(counted[2] or 0)
        sys.stdout.write(line)
        sys.stdout.flush()
    return process.wait(), passed, failed


def main():
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    which = sys.argv[1] if len(sys.argv) == 2 and sys.argv[1] in STAGES else sys.exit("usage: stages.py test|test-long")
    rows = []
    total_passed = total_failed = 0
    start = time.monotonic()
    for name, budget, command, environment in STAGES[which]:
        print(f"\n=== {name}: {' '.join(command)}", flush=True)
        began = time.monotonic()
        status, passed, failed = run(command, environment)
        minutes = (time.monotonic() - began) / 60
        total_passed += passed
        total_failed += failed
        verdict = "failed" if status else "over budget" if minutes > budget else "ok"
        rows.append((name, minutes, budget, passed, verdict))
        if status:
            break
    print(f"\n{'stage':<40}{'minutes':>9}{'budget':>9}{'tests':>8}  result")
    for name, minutes, budget, passed, verdict in rows:
        print(f"{name:<40}{minutes:>9.1f}{budget:>9.1f}{passed or '':>8}  {verdict}")
    bad = [row for row in rows if row[4] == "failed"]
    total_failed += sum(1 for row in bad if total_failed == 0)
    print(f"make {which}: {(time.monotonic() - start) / 60:.1f} minutes")
    print(f"{total_passed} passed, {total_failed} failed", flush=True)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
