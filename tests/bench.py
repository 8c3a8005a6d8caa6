#!/usr/bin/env python3
"""Three `meridian serve` processes under load on this machine, beside a plain Redis in the same run.

usage: bench.py [--seconds 5] [--repeats 3] [--clients 64] [--placement two+two|one|free] [--binary PATH]

Where processes run decides what is measured, so placement is pinned and named (docs/benchmarks.md):
  two+two  servers 1 and 2 (of five: 1 to 3) on core 0; the others and the load on core 1 (Redis on core 0)
  one      everything on core 0: throughput is 1 / CPU per operation, the steadiest way to compare code
  free     wherever the scheduler puts it
CPU is user and system time of the servers over the measured window, system calls are counted by `perf stat` in a
window of their own, both divided by operations. A row is the median of the repeats by throughput.
"""

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
WARMUP = 1.0
REGIONS = ["ca", "va", "ir", "or", "jp"]
BOTH_MODELS = '[[keyspace]]\nnumber = 0\nmodel = "linearizable"\n[[keyspace]]\nnumber = 1\nmodel = "rsc"\n'


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--placement", default="two+two", choices=["two+two", "one", "free"])
    parser.add_argument("--binary", default=os.path.join(ROOT, "target/release/meridian"))
    parser.add_argument("--only", help="only rows whose name contains this")
    args = parser.parse_args()

    mix = ["--mix", "49.5:49.5:1", "--conflict", "25"]
    rows = [
        ("redis", Redis, {}, mix),
        ("memory, linearizable", Cluster, {"durability": "memory"}, mix),
        ("memory, rsc", Cluster, {"durability": "memory"}, [*mix, "--db", "1"]),
        ("memory, linearizable, reads only", Cluster, {"durability": "memory"}, ["--mix", "1:0:0"]),
        ("memory, linearizable, writes only", Cluster, {"durability": "memory"}, ["--mix", "0:1:0"]),
        ("memory, linearizable, rmws only", Cluster, {"durability": "memory"}, ["--mix", "0:0:1"]),
        ("fsync, linearizable", Cluster, {"durability": "fsync"}, mix),
        ("interval, linearizable", Cluster, {"durability": "interval"}, mix),
    ]
    print(f"{args.clients} closed-loop clients, {args.seconds:g} s, placement {args.placement}, median of {args.repeats}")
    print("| servers | ops/s | p50 ms | p99 ms | server CPU us/op | load CPU us/op | system calls/op |")
    print("|---|---|---|---|---|---|---|")
    for name, kind, options, load in rows:
        if args.only and args.only not in name:
            continue
        runs = sorted((measure(args, kind, options, load) for _ in range(args.repeats)), key=lambda run: run["ops_per_s"])
        run = runs[len(runs) // 2]
        calls = [r["calls"] for r in runs if r["calls"]]
        print(
            f"| {name} | {run['ops_per_s']:,.0f} | {run['p50']:.2f} | {run['p99']:.2f} | {run['server_cpu']:.1f} "
            f"| {run['load_cpu']:.1f} | {statistics.median(calls):.1f} |" if calls else
            f"| {name} | {run['ops_per_s']:,.0f} | {run['p50']:.2f} | {run['p99']:.2f} | {run['server_cpu']:.1f} "
            f"| {run['load_cpu']:.1f} | not counted |",
            flush=True,
        )


def measure(args, kind, options, load):
    """One run: servers, load, what both took."""
    with tempfile.TemporaryDirectory(dir=args_directory()) as directory, kind(args, directory, **options) as servers:
        out = os.path.join(directory, "bench.json")
        total = WARMUP + args.seconds + (2.5 if shutil.which("perf") else 0)
        command = [
            args.binary, "bench", "--target", ",".join(servers.targets), "--clients", str(args.clients),
            "--warmup", f"{WARMUP}s", "--duration", f"{total - WARMUP}s", "--json", out, *load,
        ]
        bench = subprocess.Popen(pinned(args, 1, command), stdout=subprocess.DEVNULL)
        time.sleep(WARMUP)
        # CPU over its own window; counting system calls slows what it counts, so that comes after.
        before, began = [cpu(pid) for pid in [*servers.pids, bench.pid]], time.monotonic()
        time.sleep(args.seconds)
        after, seconds = [cpu(pid) for pid in [*servers.pids, bench.pid]], time.monotonic() - began
        calls = system_calls(servers.pids, 2.0)
        if bench.wait() != 0:
            sys.exit(f"{' '.join(command)} failed")
        with open(out, encoding="utf-8") as file:
            report = json.load(file)
        if report["errors"] or report["unknown"]:
            sys.exit(f"{' '.join(command)}: {report}")
        spent = [b - a for a, b in zip(before, after)]
        every = report["by_op"].get("all") or next(iter(report["by_op"].values()))
        rate = report["ops_per_s"]
        return {
            "ops_per_s": rate,
            "p50": every["p50_us"] / 1000,
            "p99": every["p99_us"] / 1000,
            "server_cpu": sum(spent[:-1]) / seconds / rate * 1e6,
            "load_cpu": spent[-1] / seconds / rate * 1e6,
            "calls": calls / 2.0 / rate if calls else None,
            "cpu_each": [own / seconds / rate * 1e6 for own in spent[:-1]],
        }


def args_directory():
    """On the disk that holds the checkout: a directory in memory would make fsync free."""
    path = os.path.join(ROOT, "target")
    os.makedirs(path, exist_ok=True)
    return path


def pinned(args, core, command):
    """The command on a core, where placement says so."""
    if args.placement == "free" or not shutil.which("taskset"):
        return command
    return ["taskset", "-c", str(0 if args.placement == "one" else core), *command]


def cpu(pid):
    """User and system seconds of a process."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def system_calls(pids, seconds):
    """System calls of processes in a window, if perf can count them."""
    if not shutil.which("perf"):
        return None
    command = ["perf", "stat", "-x,", "-e", "raw_syscalls:sys_enter", "-p", ",".join(map(str, pids)), "sleep", str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    for line in done.stderr.splitlines():
        count = line.split(",")[0]
        if count.isdigit():
            return int(count)
    return None


class Servers:
    """Processes that are killed in the end."""

    def __init__(self):
        self.processes = []
        self.targets = []

    @property
    def pids(self):
        return [process.pid for process in self.processes]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.send_signal(signal.SIGTERM)
        for process in self.processes:
            process.wait(10)


class Redis(Servers):
    """A plain Redis, without persistence."""

    def __init__(self, args, _directory):
        super().__init__()
        self.targets = ["127.0.0.1:17000"]
        command = ["redis-server", "--port", "17000", "--save", "", "--appendonly", "no"]
        self.processes.append(subprocess.Popen(pinned(args, 0, command), stdout=subprocess.DEVNULL))
        wait_for("17000")


class Cluster(Servers):
    """Nodes, so many in each region."""

    def __init__(self, args, directory, durability, nodes=3, per_region=1, keyspaces=BOTH_MODELS):
        super().__init__()
        text = f'[cluster]\nid = "bench"\n[durability]\nmode = "{durability}"\n'
        names = [f"{REGIONS[i // per_region]}{i % per_region or ''}" for i in range(nodes)]
        for i, name in enumerate(names):
            text += (
                f'[[node]]\nname = "{name}"\nregion = "{REGIONS[i // per_region]}"\nclient = {17001 + i}\n'
                f'peer = {17101 + i}\ndata = "{name}"\n'
            )
        text += keyspaces
        config = os.path.join(directory, "cluster.toml")
        with open(config, "w", encoding="utf-8") as file:
            file.write(text)
        for i, name in enumerate(names):
            command = [args.binary, "serve", "--config", config, "--node", name]
            environment = {**os.environ, "MERIDIAN_LOG": "error"}
            self.processes.append(
                subprocess.Popen(pinned(args, int(i > nodes // 2), command), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
            )
            self.targets.append(f"127.0.0.1:{17001 + i}")
        for i in range(nodes):
            wait_for(str(17001 + i))


def wait_for(port):
    """Waits until the server answers a read."""
    for _ in range(200):
        done = subprocess.run(["redis-cli", "-p", port, "GET", "x"], capture_output=True, text=True, check=False)
        if done.returncode == 0 and "rror" not in done.stdout and "CLUSTERDOWN" not in done.stdout:
            return
        time.sleep(0.05)
    sys.exit(f"no answer on port {port}")


if __name__ == "__main__":
    main()
