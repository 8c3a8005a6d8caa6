#!/usr/bin/env python3
"""The engines beside each other on real nodes, and what work costs a node.

usage: engines.py [--seconds 5] [--repeats 3] [--clients 64] [--binary PATH] [--fit | --fit-causal [ENGINES] | --fit-spanner | --retwis | --causal] [--regions 1,3]

Without --fit: throughput and CPU of gryff, gryff-rsc, epaxos, multipaxos and abd, and of gryff with writes in one round,
three and five `meridian serve` processes on this machine, in memory, same load, repeats of all engines in turn so that none has a better hour. The
load is the Gryff paper's (section 6.5): 49.5% reads, 49.5% writes, 1% rmws, 25% conflicts; a second one without rmws,
which abd does not serve. Rows are medians. All servers share two cores: what counts here is the CPU of all of them.

With --fit: each engine for itself, with values of 8 to 4,096 bytes. Each server's CPU over a window is put down to the
requests it answered, the messages it sent and took in, their bytes and what they carry one by one
(`MERIDIAN.STATUS`): non-negative least squares on relative errors. What comes out is what `meridian sim --cpu` takes.

With --fit-causal: the same of contrarian and of cc-lo, each for itself, with two nodes in a region, so that partitions have to
talk, in one region and in three. Sessions read several keys (MGET) and write: cc-lo's writes then carry
dependencies and its checks the ids of transactions.

With --causal: throughput and CPU of contrarian and cc-lo beside each other, on such nodes.

With --fit-spanner: the same of spanner and spanner-rss together, three nodes, one shard or eight: Retwis, reads alone, writes alone.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import bench

PAPER = ["--mix", "49.5:49.5:1", "--conflict", "25"]
REGISTERS = ["--mix", "1:1:0", "--conflict", "25"]
ENGINES = [
    ("gryff", "linearizable"),
    ("gryff, one round", "linearizable"),
    ("gryff-rsc", "rsc"),
    ("epaxos", "linearizable"),
    ("multipaxos", "linearizable"),
    ("abd", "linearizable"),
]
ONE_ROUND = ", one round"
COUNTERS = ["requests", "messages", "message_bytes", "message_items"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--binary", default=os.path.join(bench.ROOT, "target/release/meridian"))
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--fit-causal", nargs="?", const="contrarian,cc-lo", metavar="ENGINES")
    parser.add_argument("--fit-spanner", action="store_true")
    parser.add_argument("--retwis", action="store_true")
    parser.add_argument("--causal", action="store_true")
    parser.add_argument("--regions", default="1,3", help="of --fit-causal")
    args = parser.parse_args()
    args.placement = "two+two"
    if args.fit:
        fit(args)
    elif args.fit_causal:
        fit_causal(args)
    elif args.fit_spanner:
        fit_spanner(args)
    elif args.retwis:
        retwis(args)
    elif args.causal:
        causal(args)
    else:
        compare(args)


def keyspace(engine, model):
    settings = 'leader = "ca"\n' if engine == "multipaxos" else ""
    if engine.endswith(ONE_ROUND):
        # All nodes go by the clock of one machine.
        settings = 'writes = "one-round"\n[clock]\nsource = "configured"\nerror = "50us"\n'
    engine = engine.removesuffix(ONE_ROUND)
    return f'[[keyspace]]\nnumber = 0\nmodel = "{model}"\nengine = "{engine}"\n{settings}'


def compare(args):
    print(f"{args.clients} closed-loop clients, {args.seconds:g} s, median of {args.repeats}")
    print("| nodes | load | engine | ops/s | beside gryff | p50 ms | p99 ms | CPU us/op, all | each node |")
    print("|---|---|---|---|---|---|---|---|---|")
    for nodes in (3, 5):
        for load, name in ((PAPER, "1% rmws"), (REGISTERS, "no rmws")):
            engines = [(engine, model) for engine, model in ENGINES if load is REGISTERS or engine != "abd"]
            runs = {engine: [] for engine, _ in engines}
            for _ in range(args.repeats):
                for engine, model in engines:
                    options = {"durability": "memory", "nodes": nodes, "keyspaces": keyspace(engine, model)}
                    runs[engine].append(bench.measure(args, bench.Cluster, options, load))
            middle = {e: sorted(r, key=lambda run: run["ops_per_s"])[len(r) // 2] for e, r in runs.items()}
            for engine, run in middle.items():
                each = " ".join(f"{own:.1f}" for own in run["cpu_each"])
                ratio = run["ops_per_s"] / middle["gryff"]["ops_per_s"]
                print(
                    f"| {nodes} | {name} | {engine} | {run['ops_per_s']:,.0f} | {ratio:.2f} | {run['p50']:.2f} "
                    f"| {run['p99']:.2f} | {run['server_cpu']:.1f} | {each} |",
                    flush=True,
                )


def retwis(args):
    print(f"{args.clients} closed-loop clients, {args.seconds:g} s, median of {args.repeats} by CPU")
    print("| engine | load | per second | p50 ms | p99 ms | CPU us each | beside spanner |")
    print("|---|---|---|---|---|---|---|")
    transactions = ["--retwis", "--keys", "1000000"]
    rows = [
        ("spanner", "strict-serializable", "Retwis", transactions),
        ("spanner-rss", "rss", "Retwis", transactions),
        ("multipaxos", "linearizable", "one key", ["--mix", "1:1:0", "--keys", "1000000"]),
    ]
    runs = {engine: [] for engine, *_ in rows}
    for _ in range(args.repeats):
        for engine, model, _, load in rows:
            options = {"durability": "memory", "nodes": 3, "keyspaces": sharded(engine, model, 8)}
            runs[engine].append(bench.measure(args, bench.Cluster, options, load))
    middle = {engine: sorted(r, key=lambda run: run["server_cpu"])[len(r) // 2] for engine, r in runs.items()}
    for engine, _, load, _ in rows:
        run = middle[engine]
        ratio = run["server_cpu"] / middle["spanner"]["server_cpu"]
        print(
            f"| {engine} | {load} | {run['ops_per_s']:,.0f} | {run['p50']:.2f} | {run['p99']:.2f} | {run['server_cpu']:.1f} "
            f"| {ratio:.3f} |",
            flush=True,
        )


def fit(args):
    for engine, model in ((engine, model) for engine, model in ENGINES if not engine.endswith(ONE_ROUND)):
        samples = []
        for nodes in (3, 5):
            for size in (8, 512, 4096):
                for load in ([*REGISTERS], ["--mix", "1:0:0"], ["--mix", "0:0:1"]):
                    if engine == "abd" and load[1] == "0:0:1":
                        continue
                    load = [args.binary, "bench", *load, "--value-size", str(size)]
                    options = {"durability": "memory", "nodes": nodes, "keyspaces": keyspace(engine, model)}
                    samples += sample(args, options, load, f"{engine} n={nodes} {size} B {load[3]}")
        print(engine)
        print_fit(samples)


def fit_causal(args):
    for engine in args.fit_causal.split(","):
        samples = []
        for nodes in (2 * int(regions) for regions in args.regions.split(",")):
            for size in (8, 512, 4096):
                for keys, mix in ((1, "1:0:0"), (1, "1:1:0"), (4, "19:1:0"), (4, "1:1:0"), (16, "1:0:0"), (16, "4:1:0")):
                    load = [args.binary, "bench", "--read-keys", str(keys), "--mix", mix, "--value-size", str(size)]
                    name = f"{engine} n={nodes} {size} B {keys} keys {mix}"
                    samples += sample(args, two_in_a_region(engine, nodes), load, name)
        print(engine)
        print_fit(samples)


def two_in_a_region(engine, nodes):
    """A causal keyspace whose partitions lie on two nodes of each region, so that they have to talk."""
    return {"durability": "memory", "nodes": nodes, "per_region": 2, "keyspaces": keyspace(engine, "causal")}


def causal(args):
    print(f"{args.clients} closed-loop clients, {args.seconds:g} s, median of {args.repeats} by CPU")
    print("| regions | transactions of | puts | engine | ops/s | p50 ms | p99 ms | CPU us/op, all | beside cc-lo |")
    print("|---|---|---|---|---|---|---|---|---|")
    for nodes in (2, 6):
        for keys, mix in ((4, "95:5:0"), (4, "50:50:0"), (16, "95:5:0")):
            load = ["--read-keys", str(keys), "--mix", mix, "--zipf", "0.99", "--keys", "100000", "--value-size", "8"]
            runs = {"contrarian": [], "cc-lo": []}
            for _ in range(args.repeats):
                for engine, found in runs.items():
                    found.append(bench.measure(args, bench.Cluster, two_in_a_region(engine, nodes), load))
            middle = {e: sorted(r, key=lambda run: run["server_cpu"])[len(r) // 2] for e, r in runs.items()}
            for engine, run in middle.items():
                ratio = middle["cc-lo"]["server_cpu"] / run["server_cpu"]
                print(
                    f"| {nodes // 2} | {keys} keys | {mix.split(':')[1]}% | {engine} | {run['ops_per_s']:,.0f} | {run['p50']:.2f} "
                    f"| {run['p99']:.2f} | {run['server_cpu']:.1f} | {ratio:.2f} |",
                    flush=True,
                )


def sharded(engine, model, partitions):
    """A keyspace of an engine that goes by the machine's one clock."""
    clock = '[clock]\nsource = "configured"\nerror = "1us"\n'
    return f'[[keyspace]]\nnumber = 0\nmodel = "{model}"\nengine = "{engine}"\npartitions = {partitions}\n{clock}'


def fit_spanner(args):
    # One fit for both: they are compared with each other, and what two fits differ by is chance.
    samples = []
    for engine, model in (("spanner", "strict-serializable"), ("spanner-rss", "rss")):
        for partitions in (1, 8):
            options = {"durability": "memory", "nodes": 3, "keyspaces": sharded(engine, model, partitions)}
            for size in (8, 512, 4096):
                for load in (["--retwis"], ["--mix", "1:0:0"], ["--mix", "1:1:0"]):
                    name = f"{engine} {partitions} shards {size} B {load[-1]}"
                    load = [args.binary, "bench", *load, "--keys", "1000000", "--value-size", str(size)]
                    samples += sample(args, options, load, name)
    print_fit(samples)


def print_fit(samples):
    samples = [(name, xs, y) for name, xs, y in samples if y > 0]
    weights = least_squares([[x / y for x in xs] for _, xs, y in samples], [1.0] * len(samples))
    names = ["request", "message", "byte", "item"]
    print(", ".join(f"{name} {weight * 1e9:.1f} ns" for name, weight in zip(names, weights)))
    errors = sorted((sum(w * x for w, x in zip(weights, xs)) / y - 1, name) for name, xs, y in samples)
    sizes = sorted(abs(error) for error, _ in errors)
    print(
        f"{len(samples)} samples; the fitted CPU is off by {statistics.median(sizes):.1%} in the median, "
        f"{sizes[len(sizes) * 9 // 10]:.1%} in nine of ten; too low by {-errors[0][0]:.1%} at most ({errors[0][1]}), "
        f"too high by {errors[-1][0]:.1%} ({errors[-1][1]})"
    )
    print("--cpu " + ",".join(f"{weight * 1e9:.1f}" for weight in weights))


def sample(args, options, load, name):
    """One run: for each server its name, what it handled, and its CPU seconds."""
    with tempfile.TemporaryDirectory(dir=bench.args_directory()) as directory, bench.Cluster(args, directory, **options) as servers:
        command = [
            *load, "--target", ",".join(servers.targets), "--clients", str(args.clients),
            "--warmup", "1s", "--duration", f"{args.seconds + 1}s", "--json", os.path.join(directory, "out.json"),
        ]
        load = subprocess.Popen(bench.pinned(args, 1, command), stdout=subprocess.DEVNULL)
        time.sleep(1.5)
        before = [(counters(target), bench.cpu(pid)) for target, pid in zip(servers.targets, servers.pids)]
        time.sleep(args.seconds)
        after = [(counters(target), bench.cpu(pid)) for target, pid in zip(servers.targets, servers.pids)]
        if load.wait() != 0:
            sys.exit(f"{' '.join(command)} failed")
        with open(os.path.join(directory, "out.json"), encoding="utf-8") as file:
            if json.load(file)["errors"]:
                sys.exit(f"{' '.join(command)}: errors")
    found = []
    for node, ((a, cpu_a), (b, cpu_b)) in enumerate(zip(before, after)):
        found.append((f"{name} node {node + 1}", [y - x for x, y in zip(a, b)], cpu_b - cpu_a))
    return found


def counters(target):
    """What a node has handled so far."""
    port = target.rsplit(":", 1)[1]
    text = subprocess.run(["redis-cli", "-p", port, "MERIDIAN.STATUS"], capture_output=True, text=True, check=True).stdout
    lines = dict(line.strip().split(":", 1) for line in text.splitlines() if ":" in line)
    return [int(lines[name]) for name in COUNTERS]


def least_squares(rows, targets):
    """Non-negative: what would be below zero is left out."""
    used = list(range(len(rows[0])))
    while True:
        solution = solve(
            [[sum(row[i] * row[j] for row in rows) for j in used] for i in used],
            [sum(row[i] * target for row, target in zip(rows, targets)) for i in used],
        )
        negative = [place for place, value in zip(used, solution) if value < 0]
        if not negative:
            return [dict(zip(used, solution)).get(i, 0.0) for i in range(len(rows[0]))]
        used = [place for place in used if place not in negative]


def solve(matrix, right):
    """Gaussian elimination with pivots."""
    size = len(right)
    rows = [[*row, value] for row, value in zip(matrix, right)]
    for i in range(size):
        pivot = max(range(i, size), key=lambda k: abs(rows[k][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for k in range(size):
            if k != i:
                factor = rows[k][i] / rows[i][i]
                rows[k] = [a - factor * b for a, b in zip(rows[k], rows[i])]
    return [rows[i][size] / rows[i][i] for i in range(size)]


if __name__ == "__main__":
    main()
