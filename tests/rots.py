#!/usr/bin/env python3
"""Sessions that read several keys (MGET) and then write some, in a closed loop: load for engines.py --fit-causal.

usage: rots.py --target HOST:PORT,… [--keys 4] [--writes 1] [--value-size 8] [--clients 64] [--of 10000]
               [--warmup 1s] [--duration 5s] [--json FILE]

One thread, so it says nothing of latency or of what servers can do at most. A turn is one request of each kind, on a
connection of its own.
"""

import argparse
import json
import random
import selectors
import socket
import time


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", required=True)
    parser.add_argument("--keys", type=int, default=4)
    parser.add_argument("--writes", type=int, default=1)
    parser.add_argument("--value-size", type=int, default=8)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--of", type=int, default=10_000)
    parser.add_argument("--warmup", default="1s")
    parser.add_argument("--duration", default="5s")
    parser.add_argument("--json")
    args = parser.parse_args()
    targets = args.target.split(",")
    selector = selectors.DefaultSelector()
    sessions = [Session(args, targets[i % len(targets)], i) for i in range(args.clients)]
    for session in sessions:
        selector.register(session.socket, selectors.EVENT_READ, session)
        session.turn()
    end = time.monotonic() + seconds(args.warmup) + seconds(args.duration)
    while time.monotonic() < end:
        for key, _ in selector.select(0.1):
            key.data.read()
    errors = sum(session.errors for session in sessions)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"requests": sum(session.answered for session in sessions), "errors": errors}, file)


def seconds(text):
    return float(text.removesuffix("s"))


class Session:
    def __init__(self, args, target, seed):
        host, port = target.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.random = random.Random(seed)
        self.args = args
        self.value = b"v" * args.value_size
        self.left = 0
        self.buffer = b""
        self.answered = self.errors = 0

    def key(self):
        return b"k%d" % self.random.randrange(self.args.of)

    def turn(self):
        """The next request: in each turn a read of several keys, then writes."""
        if self.left > 0:
            self.left -= 1
            return self.send([b"SET", self.key(), self.value])
        self.left = self.args.writes
        if self.args.keys == 1:
            return self.send([b"GET", self.key()])
        return self.send([b"MGET", *(self.key() for _ in range(self.args.keys))])

    def send(self, words):
        self.socket.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words))

    def read(self):
        self.buffer += self.socket.recv(1 << 18)
        end = end_of(self.buffer, 0)
        if end is None:
            return
        self.errors += self.buffer.startswith(b"-")
        self.buffer = self.buffer[end:]
        self.answered += 1
        self.turn()


def end_of(buffer, start):
    """Where the reply that begins at start ends; None if it is not all there."""
    line = buffer.find(b"\r\n", start)
    if line < 0:
        return None
    kind, end = buffer[start : start + 1], line + 2
    if kind == b"$":
        length = int(buffer[start + 1 : line])
        end = end if length < 0 else end + length + 2
        return end if end <= len(buffer) else None
    if kind == b"*":
        for _ in range(int(buffer[start + 1 : line])):
            end = end_of(buffer, end)
            if end is None:
                return None
    return end


if __name__ == "__main__":
    main()
