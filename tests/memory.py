#!/usr/bin/env python3
"""Memory stays bounded: after 10 million rmws at most 1.2 times that after 1 million, one replica away half the time.

usage: memory.py PATH/TO/meridian [MILLIONS]
"""

import os
import re
import subprocess
import sys
import tempfile
import time

FIRST, AWAY_SECONDS, LIMIT = 1_000_000, 10, 1.2
REGIONS = ["ca", "va", "ir"]


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    binary, total = sys.argv[1], int(float(sys.argv[2] if len(sys.argv) == 3 else 10) * 1_000_000)
    with tempfile.TemporaryDirectory() as directory:
        config = os.path.join(directory, "cluster.toml")
        with open(config, "w", encoding="utf-8") as file:
            # interval: a node that is killed comes back with its records, and the test does not measure the disk.
            file.write('[cluster]\nid = "memory"\n[durability]\nmode = "interval"\n')
            for i, region in enumerate(REGIONS):
                file.write(f'[[node]]\nname = "{region}"\nregion = "{region}"\ndata = "{region}"\n')
                file.write(f"client = {16001 + i}\npeer = {16101 + i}\n")
            file.write('[[keyspace]]\nnumber = 0\nmodel = "linearizable"\n')
        processes = [start(binary, config, region) for region in REGIONS]
        try:
            for i in range(3):
                wait_for(16001 + i)
            passed = watch(binary, config, processes, total)
        finally:
            for process in processes:
                process.kill()
                process.wait()
    print(f"{int(passed)} passed, {int(not passed)} failed")
    sys.exit(0 if passed else 1)


def watch(binary, config, processes, total):
    load = [
        binary, "bench", "--target", "127.0.0.1:16001,127.0.0.1:16002", "--clients", "64", "--mix", "0:0:1",
        "--keys", "1000", "--warmup", "0s", "--duration", "10h",
    ]
    bench = subprocess.Popen(load, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        base, away, switched, first = commands(), False, time.monotonic(), None
        while True:
            time.sleep(0.5)
            if bench.poll() is not None:
                sys.exit("the load has ended by itself")
            done = commands() - base
            if time.monotonic() - switched > AWAY_SECONDS:
                away, switched = not away, time.monotonic()
                if away:
                    processes[2].kill()
                    processes[2].wait()
                else:
                    processes[2] = start(binary, config, REGIONS[2])
            if first is None and done >= FIRST:
                first = [resident(process) for process in processes[:2]]
                print(f"after {done:,} rmws: {first[0]:,} and {first[1]:,} KiB", flush=True)
            if done >= total:
                last = [resident(process) for process in processes[:2]]
                print(f"after {done:,} rmws: {last[0]:,} and {last[1]:,} KiB", flush=True)
                ratio = max(b / a for a, b in zip(first or last, last))
                print(f"{ratio:.2f} times as much; at most {LIMIT} is allowed")
                return ratio <= LIMIT
    finally:
        bench.kill()
        bench.wait()


def start(binary, config, region):
    command = [binary, "serve", "--config", config, "--node", region]
    environment = {**os.environ, "MERIDIAN_LOG": "error"}
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=environment)


def commands():
    """Commands that the two loaded nodes have served."""
    return sum(
        int(re.search(r"total_commands_processed:(\d+)", cli(port, "INFO", "stats"))[1]) for port in (16001, 16002)
    )


def resident(process):
    with open(f"/proc/{process.pid}/status", encoding="utf-8") as file:
        return int(re.search(r"VmRSS:\s+(\d+)", file.read())[1])


def cli(port, *words):
    return subprocess.run(["redis-cli", "-p", str(port), *words], capture_output=True, text=True, check=False).stdout


def wait_for(port):
    for _ in range(300):
        if cli(port, "GET", "x") == "\n":
            return
        time.sleep(0.1)
    sys.exit(f"no answer on port {port}")


if __name__ == "__main__":
    main()
