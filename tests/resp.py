#!/usr/bin/env python3
"""GET and SET over RESP on one region with the contrarian engine, beside a plain Redis in the same run.

usage: resp.py [--requests 400000] [--repeats 5] [--clients 50] [--engine contrarian] [--binary PATH]

`meridian dev` with one region, no delays, nothing on disk; a Redis without persistence. redis-benchmark with keys by chance
out of 100,000 and values of 64 bytes, unpipelined and with 16 commands in flight on each connection. The servers take turns,
each on core 0 while it is measured, the load on core 1. A rate is the median of the repeats, CPU is the server's user and
system time divided by requests: it says more where the machine has other work.
"""

import argparse
import csv
import os
import statistics
import subprocess
import sys
import tempfile

import bench

# Keys are written before they are read.
COMMANDS = ["set", "get"]
PIPELINES = [1, 16]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=400_000, help="of each command, times 4 where they are pipelined")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--engine", default="contrarian")
    parser.add_argument("--binary", default=os.path.join(bench.ROOT, "target/release/meridian"))
    args = parser.parse_args()
    args.placement = "two+two"
    kinds = {"redis": bench.Redis, args.engine: Dev}
    runs = {}
    for _ in range(args.repeats):
        for pipeline in PIPELINES:
            for name, kind in kinds.items():
                for command, run in measure(args, kind, pipeline).items():
                    runs.setdefault((command, pipeline, name), []).append(run)
    print(f"{args.clients} connections, median of {args.repeats}")
    print(f"| command | in flight each | redis, ops/s | {args.engine}, ops/s | ratio (from run to run) | CPU us/op, redis | {args.engine} |")
    print("|---|---|---|---|---|---|---|")
    for command in COMMANDS:
        for pipeline in PIPELINES:
            (rates, cpus), (own_rates, own_cpus) = (zip(*runs[command, pipeline, name]) for name in kinds)
            ratios = [own / redis for redis, own in zip(rates, own_rates)]
            middle = statistics.median
            print(
                f"| {command.upper()} | {pipeline} | {middle(rates):,.0f} | {middle(own_rates):,.0f} "
                f"| {middle(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) | {middle(cpus):.1f} | {middle(own_cpus):.1f} |"
            )


def measure(args, kind, pipeline):
    """Of each command the requests a second, and the server's CPU in us for each."""
    found = {}
    with tempfile.TemporaryDirectory(dir=bench.args_directory()) as directory, kind(args, directory) as servers:
        for test in COMMANDS:
            count = args.requests * (4 if pipeline > 1 else 1)
            command = [
                "redis-benchmark", "-p", servers.targets[0].rsplit(":", 1)[1], "-t", test, "-r", "100000", "-d", "64",
                "-n", str(count), "-c", str(args.clients), "-P", str(pipeline), "--csv",
            ]
            before = sum(map(bench.cpu, servers.pids))
            done = subprocess.run(bench.pinned(args, 1, command), capture_output=True, text=True, check=False)
            spent = sum(map(bench.cpu, servers.pids)) - before
            if done.returncode != 0 or "rror" in done.stdout + done.stderr:
                sys.exit(f"{' '.join(command)}: {done.stdout}{done.stderr}")
            (row,) = csv.DictReader(done.stdout.splitlines())
            found[test] = (float(row["rps"]), spent / count * 1e6)
    return found


class Dev(bench.Servers):
    """One region in one process."""

    def __init__(self, args, _directory):
        super().__init__()
        self.targets = ["127.0.0.1:17001"]
        command = [args.binary, "dev", "--regions", "1", "--rtt", "none", "--port", "17001", "--db", f"0=causal:{args.engine}"]
        self.processes.append(subprocess.Popen(bench.pinned(args, 0, command), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        bench.wait_for("17001")


if __name__ == "__main__":
    main()
