"""Uses the application as many people at once, and counts what the RSS paper's table 1 is about.

usage: drive.py --web URL,URL,... --meridian PORT,PORT,... --photos DB --queue DB [--checks 100] [--users 24] [--no-fences] [--no-contexts] [--calls FILE]

Web servers and ports of Meridian are of different regions. People call each other by telephone: the driver passes on at once what one has seen, which
no server knows of, and records it (`--calls`). Each scene is played until it was checked so many times:

I1  an album never contains a photo without data: albums and their photos are read as one snapshot while photos are added
I3  two observers that each read two services never see them in opposite orders
I4  a photo that one web server sent to a browser is not missing when that browser asks another one
A1  Alice adds two photos at once; later one of them is not in her album
A2  Alice adds a photo and calls Bob; Bob does not see it
A3  Alice sees a photo that Charlie is adding and calls Bob; Bob does not see it
A4  Alice gets no answer; she tries again, and no second photo is added

I2, that a worker never finds a photo without data, the workers count.
"""

import argparse
import http.client
import io
import json
import random
import re
import statistics
import sys
import threading
import time
import uuid
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from urllib.parse import urlencode, urlsplit

import redis
from meridian_context import HEADER, Context
from PIL import Image

# Seconds until an answer is not waited for any more, and until it is not worth while to go on.
PATIENCE = 20
HOPELESS = 300

# Seconds that a transaction takes, as a rule.
TRANSACTION = 0.5

# Seconds between two lines of how far it is.
PROGRESS = 30


def painted():
    """A small photo."""
    out = io.BytesIO()
    Image.new("RGB", (64, 48), "teal").save(out, "PNG")
    return out.getvalue()


PHOTO = painted()


class NoAnswer(Exception):
    """Nobody knows what came of a request."""


class Browser:
    """A person's browser, which keeps the context of what it was shown if there are contexts."""

    def __init__(self, contexts):
        self.contexts, self.context = contexts, Context()

    def ask(self, server, method, path, body=None, hang_up=False):
        """Status and body. With `hang_up` the answer is not waited for."""
        url = urlsplit(server)
        connection = http.client.HTTPConnection(url.hostname, url.port, timeout=PATIENCE)
        headers = {"baggage": self.context.into_baggage()} if self.contexts and self.context else {}
        try:
            connection.request(method, path, body, headers)
            if hang_up:
                raise NoAnswer("hung up")
            answer = connection.getresponse()
            data = answer.read()
        except OSError as error:
            raise NoAnswer(str(error)) from error
        finally:
            connection.close()
        told = answer.getheader(HEADER)
        # It may be empty: then what was told is no good any more.
        if self.contexts and told is not None:
            self.context = Context.of(told)
        if answer.status >= 500:
            raise NoAnswer(data.decode())
        return answer.status, data

    def add(self, server, album, photo, hang_up=False):
        query = urlencode({"id": photo, "title": "driven", "at": time.time()})
        status, data = self.ask(server, "POST", f"/albums/{album}?{query}", PHOTO, hang_up)
        assert status == 200, data

    def album(self, server, album):
        status, data = self.ask(server, "GET", f"/albums/{album}")
        assert status == 200, data
        return [photo["id"] for photo in json.loads(data)["photos"]]


def anonymous(error):
    """Why something failed, so that the same reasons read the same."""
    return re.sub(r"[0-9a-f]{32}", "ID", str(error) or type(error).__name__)[:80]


class Driver:
    def __init__(self, args):
        self.args = args
        self.servers = args.web.split(",")
        self.contexts = not args.no_contexts and not args.no_fences
        self.lock = threading.Lock()
        self.checked, self.broken, self.unanswered = {}, {}, {}
        self.failed_writers, self.first_failure, self.over = 0, None, False
        self.took = {"add": [], "view": []}
        self.calls = open(args.calls, "w", encoding="utf-8") if args.calls else None
        self.ports = [int(port) for port in args.meridian.split(",")]

    def check(self, name, broken):
        with self.lock:
            self.checked[name] = self.checked.get(name, 0) + 1
            self.broken[name] = self.broken.get(name, 0) + bool(broken)

    def call(self, caller, callee, photo, seen):
        """A telephone call, of which only this driver knows."""
        if self.calls:
            with self.lock:
                self.calls.write(json.dumps({"at": time.time(), "from": caller, "to": callee, "about": photo, "seen": seen}) + "\n")

    def timed(self, what, act):
        began = time.monotonic()
        result = act()
        with self.lock:
            self.took[what].append(time.monotonic() - began)
        return result

    def write(self, pool, act, *args):
        """Begins to write in a thread of `pool`. That it fails is counted, whoever waits for it or not."""
        writing = pool.submit(act, *args)
        writing.add_done_callback(self.written)
        return writing

    def written(self, writing):
        error = writing.exception()
        if error:
            with self.lock:
                self.failed_writers += 1
                self.first_failure = self.first_failure or anonymous(error)

    def people(self):
        """Two web servers, not the same."""
        return random.sample(self.servers, 2)

    def two_at_once(self):
        """A1."""
        mine, _ = self.people()
        album, photos = uuid.uuid4().hex, [uuid.uuid4().hex for _ in range(2)]
        with ThreadPoolExecutor(2) as both:
            adding = [self.write(both, Browser(self.contexts).add, mine, album, photo) for photo in photos]
        for one in adding:
            one.result()
        deadline = time.monotonic() + 5
        while len(found := Browser(self.contexts).album(mine, album)) < 2 and time.monotonic() < deadline:
            time.sleep(0.1)
        self.check("A1", set(found) != set(photos))

    def add_and_call(self):
        """A2."""
        mine, theirs = self.people()
        album, photo = uuid.uuid4().hex, uuid.uuid4().hex
        self.timed("add", lambda: Browser(self.contexts).add(mine, album, photo))
        found = self.timed("view", lambda: Browser(self.contexts).album(theirs, album))
        self.call("Alice", "Bob", photo, photo in found)
        self.check("A2", photo not in found)

    def see_and_call(self):
        """A3, I1 and I4: of a photo that is being added. Alice sees it in the album, or opens it by a link that Charlie has sent her."""
        mine, theirs = self.people()
        album, photo = uuid.uuid4().hex, uuid.uuid4().hex
        alice, by_link = Browser(self.contexts), random.random() < 0.5

        def opens(server):
            return alice.ask(server, "GET", f"/photos/{photo}")[0] == 200

        def finds(server):
            return photo in alice.album(server, album)

        sees, then = (opens, finds) if by_link else (finds, opens)
        with ThreadPoolExecutor(2) as others:
            adding = self.write(others, Browser(self.contexts).add, random.choice(self.servers), album, photo)
            while not sees(mine):
                if adding.done():
                    adding.result()
            in_flight = not adding.done()
            bob = others.submit(Browser(self.contexts).album, theirs, album)
            there = then(theirs)
            seen = photo in bob.result()
            self.call("Alice", "Bob", photo, seen)
            self.check("A3", not seen)
            if in_flight:
                self.check("A3 while the photo is still being added", not seen)
            self.check("I4", not there)
            _, whole = Browser(self.contexts).ask(theirs, "GET", f"/albums/{album}?whole=1")
            self.check("I1", json.loads(whole)["empty"])
            adding.result()

    def no_answer(self):
        """A4."""
        mine, _ = self.people()
        album, photo = uuid.uuid4().hex, uuid.uuid4().hex
        alice = Browser(self.contexts)
        try:
            alice.add(mine, album, photo, hang_up=True)
        except NoAnswer:
            alice.add(mine, album, photo)
        found = alice.album(mine, album)
        self.check("A4", found != [photo])

    def opposite_orders(self):
        """I3, at the services themselves: of a transaction that is being committed one observer may see one key, and another not yet its other one."""
        photos, y = [f"x:{uuid.uuid4().hex}" for _ in range(2)], f"y:{uuid.uuid4().hex}"
        places = random.sample(self.ports, min(3, len(self.ports)))
        # Who is far away hears last that it has ended.
        writers = [Service(places[-1], self.args), Service(places[0], self.args)]
        observers = [Service(places[0], self.args), Service(places[1], self.args)]
        orders = [("photos", photos[0], "queue", y), ("queue", y, "photos", photos[1])]

        def queue_later():
            # At some time of the transaction, which takes longer.
            time.sleep(random.uniform(0, TRANSACTION))
            writers[1].use("queue").set(y, "new")

        def observe(observer, order):
            """Whether the other write is not there when the first one is; `None` if that never came."""
            first, key, second, other = order
            deadline = time.monotonic() + PATIENCE
            while observer.use(first).get(key) is None:
                if time.monotonic() > deadline:
                    return None
            return observer.use(second).get(other) is None

        try:
            with ThreadPoolExecutor(4) as at_once:
                self.write(at_once, lambda: writers[0].use("photos").mset(dict.fromkeys(photos, "new")))
                self.write(at_once, queue_later)
                old = list(at_once.map(observe, observers, orders))
        finally:
            for service in writers + observers:
                service.close()
        if None in old:
            raise NoAnswer("an observer gave up, and has seen no order")
        self.check("I3", all(old))

    def play(self, scene, *names):
        answered = time.monotonic()
        while not self.over and min(self.checked.get(name, 0) for name in names) < self.args.checks:
            try:
                scene()
                answered = time.monotonic()
            except (NoAnswer, redis.RedisError) as error:
                why = anonymous(error)
                with self.lock:
                    self.unanswered[why] = self.unanswered.get(why, 0) + 1
                if time.monotonic() - answered > HOPELESS:
                    sys.exit(f"no scene of {names[0]} was answered for {HOPELESS} s, the last one as {why!r}: see what the servers say")
                # Where nobody listens that is known at once.
                time.sleep(0.1)

    def so_far(self, seconds):
        """For whoever waits for a quarter of an hour."""
        with self.lock:
            looks = [f"{name} {self.broken[name]} of {count}" for name, count in sorted(self.checked.items())]
        return f"after {seconds:.0f} s, of {self.args.checks} looks each, broken: {', '.join(looks) or 'none yet'}"

    def run(self):
        scenes = [
            (self.see_and_call, "A3", "I4", "I1"),
            (self.add_and_call, "A2"),
            (self.opposite_orders, "I3"),
            (self.two_at_once, "A1"),
            (self.no_answer, "A4"),
        ]
        with ThreadPoolExecutor(self.args.users) as users:
            began = time.monotonic()
            playing = [users.submit(self.play, *scenes[user % len(scenes)]) for user in range(self.args.users)]
            try:
                while playing:
                    done, playing = wait(playing, PROGRESS, FIRST_EXCEPTION)
                    for one in done:
                        one.result()
                    if playing:
                        print(self.so_far(time.monotonic() - began), file=sys.stderr, flush=True)
            except KeyboardInterrupt:
                print("interrupted: this is what was counted until now", file=sys.stderr, flush=True)
            finally:
                # Nobody waits for the others' looks after an interrupt, or when one has failed.
                self.over = True
        milliseconds = {
            what: {"p50": 1_000 * statistics.median(took), "p99": 1_000 * sorted(took)[len(took) * 99 // 100]}
            for what, took in self.took.items()
            if took
        }
        return {
            "seconds": round(time.monotonic() - began, 1),
            "checked": self.checked,
            "broken": self.broken,
            "unanswered": self.unanswered,
            "failed writers": {"count": self.failed_writers, "first": self.first_failure},
            "ms": milliseconds,
        }


class Service:
    """Both keyspaces: over one connection, or without fences over two."""

    def __init__(self, port, args):
        self.databases = {"photos": args.photos, "queue": args.queue}
        self.single = None if args.no_fences else redis.Redis(port=port, single_connection_client=True)
        self.several = {name: redis.Redis(port=port, db=db) for name, db in self.databases.items()}

    def use(self, name):
        if self.single is None:
            return self.several[name]
        self.single.execute_command("SELECT", self.databases[name])
        return self.single

    def close(self):
        for client in filter(None, [self.single, *self.several.values()]):
            client.close()


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--web", required=True)
    parser.add_argument("--meridian", required=True)
    parser.add_argument("--photos", type=int, required=True)
    parser.add_argument("--queue", type=int, required=True)
    parser.add_argument("--checks", type=int, default=100)
    parser.add_argument("--users", type=int, default=24)
    parser.add_argument("--no-fences", action="store_true")
    parser.add_argument("--no-contexts", action="store_true")
    parser.add_argument("--calls", default="")
    return parser


if __name__ == "__main__":
    print(json.dumps(Driver(options().parse_args()).run()))
