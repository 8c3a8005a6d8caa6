#!/usr/bin/env python3
"""The photo-sharing application of the RSS paper's section 2, on a cluster in one process.

usage: run.py [--model rss] [--drive CHECKS] [--no-fences] [--no-contexts] [--meridian PATH] [--port 8080]

Starts `meridian dev` with photos in a keyspace of that model (rss, strict-serializable or po-serializable) and a queue in another (rsc), a web server in
each of two regions, and two workers. Then it says where the page is, and goes on until it is interrupted. With --drive it uses the application
itself (see drive.py), prints what became of the paper's invariants and anomalies, and ends; if it is interrupted, with what it has counted until then.
"""

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
CONTEXTS = os.path.join(ROOT, "clients/python/src")
sys.path[:0] = [HERE, CONTEXTS]
import drive  # noqa: E402
PHOTOS, QUEUE = 0, 1
REGIONS = ["ca", "va", "ir"]


class Process:
    """A child that says `ready` and is ended with its parent. `lines` has what it said afterwards."""

    def __init__(self, *command):
        environment = {**os.environ, "PYTHONPATH": CONTEXTS, "PYTHONUNBUFFERED": "1"}
        # In a session of its own, as a terminal's Ctrl-C would otherwise end it while it is still needed.
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True
        )
        self.lines = []
        for line in self.process.stdout:
            if line.strip() == "ready":
                break
        else:
            sys.exit(f"{' '.join(command)} has ended before it was ready")
        threading.Thread(target=lambda: self.lines.extend(self.process.stdout), daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()


def free_port(count=1):
    """The first of so many free ports in a row."""
    for start in range(21_000 + os.getpid() % 5_000, 60_000, 10):
        sockets = []
        try:
            for port in range(start, start + count):
                sockets.append(socket.socket())
                sockets[-1].bind(("127.0.0.1", port))
            return start
        except OSError:
            continue
        finally:
            for one in sockets:
                one.close()
    sys.exit("no free ports")


def start(stack, args):
    """Starts everything; answers the web servers' addresses, Meridian's ports and the workers."""
    meridian = free_port(len(REGIONS))
    database = [f"{PHOTOS}={args.model}", f"{QUEUE}=rsc"]
    stack.enter_context(
        Process(
            args.meridian, "dev", "--ephemeral", "--port", str(meridian), "--rtt", args.rtt,
            *(word for db in database for word in ("--db", db)),
        )
    )
    ports = [meridian + index for index in range(len(REGIONS))]
    where = ["--photos", str(PHOTOS), "--queue", str(QUEUE)] + ["--no-fences"] * args.no_fences
    web = {region: args.port + index if args.port else free_port() + 7 * index for index, region in enumerate(REGIONS[:2])}
    peers = ",".join(f"{region}=http://127.0.0.1:{port}" for region, port in web.items())
    script = lambda name: [sys.executable, os.path.join(HERE, name), *where]  # noqa: E731
    for index, (region, port) in enumerate(web.items()):
        more = ["--no-contexts"] * args.no_contexts
        own = ["--port", str(port), "--meridian", str(ports[index]), "--region", region, "--peers", peers]
        stack.enter_context(Process(*script("web.py"), *own, *more))
    workers = [
        stack.enter_context(Process(*script("worker.py"), "--meridian", str(port), "--name", region))
        for region, port in list(zip(REGIONS, ports))[1:]
    ]
    return [f"http://127.0.0.1:{port}" for port in web.values()], ports, workers


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="rss", choices=["rss", "strict-serializable", "po-serializable"])
    parser.add_argument("--drive", type=int, metavar="CHECKS", help="play each scene until it was checked so often, and end")
    parser.add_argument("--users", type=int, default=24)
    parser.add_argument("--no-fences", action="store_true", help="nothing ties the two keyspaces together; no contexts either")
    parser.add_argument("--no-contexts", action="store_true")
    parser.add_argument("--meridian", default=os.path.join(ROOT, "target/release/meridian"))
    parser.add_argument("--rtt", default="paper")
    parser.add_argument("--port", type=int, default=0, help="of the first web server; the second has the next [default: free ones]")
    parser.add_argument("--calls", default="", help="where to record the telephone calls of --drive")
    args = parser.parse_args()
    for end in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(end, lambda *_: sys.exit(1))
    with ExitStack() as stack:
        web, ports, workers = start(stack, args)
        if args.drive is None:
            print(f"{args.model}: open {web[0]} (Ctrl-C ends it)", flush=True)
            try:
                signal.pause()
            except KeyboardInterrupt:
                return
        flags = ["--no-fences"] * args.no_fences + ["--no-contexts"] * args.no_contexts
        words = ["--web", ",".join(web), "--meridian", ",".join(map(str, ports)), "--photos", str(PHOTOS), "--queue", str(QUEUE)]
        words += ["--checks", str(args.drive), "--users", str(args.users), "--calls", args.calls, *flags]
        result = drive.Driver(drive.options().parse_args(words)).run()
        time.sleep(1)
        told = [json.loads(line) for worker in workers for line in worker.lines]
        made = [one for one in told if "thumb" in one]
        result["checked"]["I2"] = len(made)
        result["broken"]["I2"] = sum(bool(one["missing"]) for one in made)
        result["errors of workers"] = sum("error" in one for one in told)
        print(json.dumps({"model": args.model, "fences": not args.no_fences, "contexts": not (args.no_contexts or args.no_fences), **result}))


if __name__ == "__main__":
    main()
