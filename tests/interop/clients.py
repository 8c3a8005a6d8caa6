#!/usr/bin/env python3
"""Stock clients against a running cluster: redis-py (both versions of RESP, pooled, with users and TLS, with contexts), redis-cli, redis-benchmark.

usage: clients.py PATH/TO/meridian
"""

import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path

import redis

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "clients/python/src"))
from meridian_context import Context, ContextRefused, current, session, use  # noqa: E402

MERIDIAN = sys.argv[1] if len(sys.argv) == 2 else sys.exit(__doc__)


SECURE = """
[cluster]
id = "secure"
[[node]]
name = "ca-1"
region = "ca"
client = {port}
peer = {other}
[[keyspace]]
number = 0
model = "linearizable"
[[keyspace]]
number = 1
name = "feed"
model = "causal"
engine = "tcc"
[durability]
mode = "memory"
[tls]
certificate = "node.pem"
key = "node.key"
for = "clients"
[[user]]
name = "default"
rules = "on >admin +@all ~*"
[[user]]
name = "reports"
rules = "on >pw ~reports:* +@read +set +acl|whoami +meridian.level +client +@connection use=feed level=ryw,mw"
"""


class Dev:
    """A `meridian dev` process."""

    def __init__(self, *flags):
        self.port = free_ports(7)
        self.start([MERIDIAN, "dev", "--port", str(self.port), *flags])

    def start(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        alarm = threading.Timer(30, self.process.kill)
        alarm.start()
        for line in self.process.stdout:
            if line.strip() == "ready":
                break
        else:
            sys.exit(f"{' '.join(command)} ended before it was ready")
        alarm.cancel()
        threading.Thread(target=self.process.stdout.read, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(10)
        assert status == 0, f"SIGTERM ends dev with {status}"

    def cli(self, *words, region=0):
        """What redis-cli prints."""
        command = ["redis-cli", "-p", str(self.port + region), *words]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.strip()

    def benchmark(self, *flags):
        """Runs redis-benchmark and returns the rate of each of its tests."""
        command = ["redis-benchmark", "-p", str(self.port), "-t", "get,set,incr,lpush,mset", "--csv", *flags]
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=240)
        assert "rror" not in done.stdout + done.stderr, done.stdout + done.stderr
        # With --csv it prints names and numbers in quotes, one test a line.
        return {row[0]: float(row[1]) for row in re.findall(r'^"([^"]+)","([\d.]+)"', done.stdout, re.M)}


class Secure(Dev):
    """A node of its own, `meridian serve`, with TLS and users."""

    def __init__(self):
        self.port = free_ports(2)
        self.directory = tempfile.TemporaryDirectory()
        path = Path(self.directory.name)
        subprocess.run([Path(__file__).parent.parent / "certificates.sh", path], check=True, capture_output=True)
        (path / "cluster.toml").write_text(SECURE.format(port=self.port, other=self.port + 1))
        self.ca = str(path / "ca.pem")
        self.start([MERIDIAN, "serve", "--config", str(path / "cluster.toml"), "--node", "ca-1"])

    def url(self, user, password, ca=None):
        return f"rediss://{user}:{password}@127.0.0.1:{self.port}?ssl_ca_certs={ca or self.ca}"


def free_ports(count):
    """The first of `count` free ports in a row."""
    for first in range(18000, 20000, count):
        sockets = []
        try:
            for port in range(first, first + count):
                sockets.append(socket.socket())
                sockets[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                sockets[-1].bind(("127.0.0.1", port))
            return first
        except OSError:
            continue
        finally:
            for held in sockets:
                held.close()
    sys.exit("no free ports")


def redis_py(dev, protocol):
    """Commands of every type through one pooled client in each of two regions."""
    ca = redis.Redis(port=dev.port, protocol=protocol, decode_responses=True)
    ir = redis.Redis(port=dev.port + 2, protocol=protocol, decode_responses=True)
    p = f"py{protocol}:"
    assert ca.ping()
    assert ca.set(p + "s", "value") is True
    assert ir.get(p + "s") == "value"
    assert ir.get(p + "none") is None
    assert ca.set(p + "s", "x", nx=True) is None
    assert ca.set(p + "s", "y", xx=True, get=True) == "value"
    assert ca.append(p + "s", "z") == 2 and ir.strlen(p + "s") == 2
    assert ca.incr(p + "n", 5) == 5 and ir.decr(p + "n") == 4
    assert abs(ca.incrbyfloat(p + "f", 1.5) - 1.5) < 1e-9
    assert ca.mset({p + "a": "1", p + "b": "2"}) and ir.mget(p + "a", p + "c", p + "b") == ["1", None, "2"]
    assert ca.exists(p + "a", p + "b", p + "c") == 2 and ca.delete(p + "a", p + "c") == 1
    assert ca.expire(p + "b", 100) and 98 <= ir.ttl(p + "b") <= 100 and ca.persist(p + "b") and ir.ttl(p + "b") == -1
    assert ca.rpush(p + "l", "a", "b", "c") == 3 and ir.lrange(p + "l", 0, -1) == ["a", "b", "c"]
    assert ca.lpop(p + "l") == "a" and ir.llen(p + "l") == 2
    assert ca.hset(p + "h", mapping={"f": "1", "g": "2"}) == 2 and ir.hgetall(p + "h") == {"f": "1", "g": "2"}
    assert ca.hincrby(p + "h", "f", 2) == 3 and ir.hmget(p + "h", "f", "none") == ["3", None]
    assert ca.type(p + "h") == "hash" and ca.getdel(p + "s") == "yz" and ir.exists(p + "s") == 0
    assert sorted(ir.scan_iter(match=p + "*", count=3)) == sorted([p + k for k in ("n", "f", "b", "l", "h")])
    expect_error(lambda: ca.lpush(p + "n", "x"), "WRONGTYPE")
    expect_error(lambda: ca.incr(p + "l"), "WRONGTYPE")
    expect_error(lambda: ca.execute_command("FLUSHDB"), "")
    expect_error(lambda: ca.execute_command("MERIDIAN.SNAPSHOT", "1", "GET", "k"), "")
    assert ca.info()["loading"] == 0 and ca.client_id() > 0

    with ca.pipeline(transaction=False) as pipe:
        for i in range(100):
            pipe.set(f"{p}p{i}", i).get(f"{p}p{i}")
        answers = pipe.execute()
    assert answers[1::2] == [str(i) for i in range(100)]

    # One key: WATCH, MULTI and EXEC are one rmw; a change in between undoes it.
    def double(pipe):
        value = int(pipe.get(p + "n"))
        pipe.multi()
        pipe.set(p + "n", 2 * value)

    assert ca.transaction(double, p + "n") == [True] and ir.get(p + "n") == "8"
    with ca.pipeline() as pipe:
        pipe.watch(p + "n")
        ir.set(p + "n", "changed")
        pipe.multi()
        pipe.set(p + "n", "lost")
        try:
            pipe.execute()
            raise AssertionError("a watched key has changed, and EXEC has not noticed")
        except redis.WatchError:
            pass
    assert ca.get(p + "n") == "changed"

    rsc = redis.Redis(port=dev.port + 1, db=1, protocol=protocol, decode_responses=True)
    assert rsc.set(p + "s", "rsc") and rsc.get(p + "s") == "rsc" and ca.get(p + "s") is None
    for client in (ca, ir, rsc):
        client.close()


def queues(dev, protocol):
    """Waiting for items of lists and moving them, through redis-py, in a keyspace of each kind."""
    for db in (0, 1, 2):
        ca = redis.Redis(port=dev.port, db=db, protocol=protocol, decode_responses=True)
        ir = redis.Redis(port=dev.port + 2, db=db, protocol=protocol, decode_responses=True)
        p = f"q{protocol}:"
        assert ca.rpush(p + "l", "a", "b", "c") == 3
        assert list(ir.blpop([p + "none", p + "l"], timeout=1)) == [p + "l", "a"]
        assert list(ir.brpop(p + "l", timeout=0)) == [p + "l", "c"]
        assert ca.lmove(p + "l", p + "m", "LEFT", "RIGHT") == "b" and ir.lrange(p + "m", 0, -1) == ["b"]
        assert ca.rpoplpush(p + "m", p + "l") == "b" and ir.exists(p + "m") == 0
        assert ca.brpoplpush(p + "l", p + "m", timeout=1) == "b"
        assert ca.blmove(p + "m", p + "m", 1, "LEFT", "RIGHT") == "b"
        assert ca.lmove(p + "none", p + "m", "LEFT", "LEFT") is None
        for empty in (lambda: ca.blpop(p + "none", timeout=0.2), lambda: ca.blmove(p + "none", p + "m", 0.2)):
            start = time.monotonic()
            assert empty() is None and 0.15 < time.monotonic() - start < 5
        expect_error(lambda: ca.blpop(p + "none", timeout=-1), "timeout is negative")

        # Four wait, and each gets one of what comes.
        got = []
        waits = [threading.Thread(target=lambda: got.append(ir.blpop(p + "w", timeout=20))) for _ in range(4)]
        for thread in waits:
            thread.start()
        while ir.info("clients")["blocked_clients"] < 4:
            time.sleep(0.01)
        start = time.monotonic()
        assert ca.rpush(p + "w", *"wxyz") == 4
        for thread in waits:
            thread.join()
        assert sorted(item for _, item in got) == list("wxyz"), got
        assert time.monotonic() - start < 4, "somebody was not woken"
        ca.delete(p + "m")
        for client in (ca, ir):
            client.close()


def expect_error(call, word):
    """The call must end in an error that begins with the word."""
    try:
        answer = call()
    except redis.ResponseError as error:
        assert str(error).startswith(word), f"{error}, expected {word}"
    else:
        raise AssertionError(f"expected an error, got {answer!r}")


def pooled(dev):
    """Sixteen threads share a pool of eight connections, in two regions; no increment is lost."""
    pools = [redis.BlockingConnectionPool(port=dev.port + r, max_connections=8, protocol=3) for r in (0, 1)]
    failures = []

    def work(pool):
        try:
            client = redis.Redis(connection_pool=pool)
            for _ in range(50):
                client.incr("pooled")
        except redis.RedisError as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(pools[i % 2],)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    assert int(redis.Redis(port=dev.port + 2).get("pooled")) == 16 * 50
    for pool in pools:
        pool.disconnect()


def own_writes(dev, name=None):
    """How many of a pool's own writes its next connection does not see, and what a read takes, in ms."""
    pool = redis.Redis(port=dev.port + 1, client_name=name)
    # Two connections of one pool, as two requests of one application that overlap.
    one, other = pool.client(), pool.client()
    missed, took = 0, []
    # In partitions whose leaders are here and elsewhere; what was read before is at hand for what is read next.
    for number, key in enumerate("abcde" * 4):
        other.get(key)
        one.set(key, number)
        began = time.monotonic()
        missed += int(other.get(key) or -1) != number
        took.append(time.monotonic() - began)
    for client in (one, other, pool):
        client.close()
    return missed, sorted(took)[len(took) // 2] * 1_000


def scopes():
    """A pool loses its process order where a connection is a session, and keeps it where the node or a client's name is."""
    results = {}
    for scope, name in (("connection", None), ("client-name", "shop"), ("node", None)):
        with Dev("--rtt", "paper", "--db", "0=po-serializable", "--session", scope) as dev:
            results[scope] = own_writes(dev, name)
    told = ", ".join(f"{scope}: {missed} of 20 missed, a read takes {took:.1f} ms" for scope, (missed, took) in results.items())
    print(f"    {told}")
    assert results["connection"][0] > 0, told
    assert results["client-name"][0] == results["node"][0] == 0, told


def contexts():
    """Sessions of clients/python: who brings a context finds what its giver has done, in another region; who brings none goes on from nobody."""
    with Dev("--rtt", "paper", "--db", "0=po-serializable") as dev:
        # One connection each: whoever comes next gets it.
        here, there = (redis.Redis(port=dev.port + region, decode_responses=True, max_connections=1) for region in (1, 2))

        def missed(carry):
            count = 0
            for number, key in enumerate("abcde" * 4):
                there.get(key)
                with use(Context()):
                    with session(here) as db:
                        db.set(key, f"{carry}{number}")
                    told = current()
                with use(told if carry else Context()):
                    with session(there) as db:
                        count += db.get(key) != f"{carry}{number}"
            return count

        missing, with_contexts = missed(False), missed(True)
        print(f"    without contexts {missing} of 20 missed, with them {with_contexts}")
        assert missing > 0 and with_contexts == 0

        # Two users of a connection: the second one begins as on a new connection.
        empty = redis.Redis(port=dev.port + 1).execute_command("MERIDIAN.CONTEXT", "GET")
        for write in (True, False):
            with use(Context()):
                with session(here) as db:
                    if write:
                        db.set("a", "mine")
                left = str(current())
            assert (len(left) > len(empty)) == write, f"wrote {write}, and left {left}"

        other = "B" if left[-8] == "A" else "A"
        for token, why in ((left[:20], "it is not base64url, or cut off"), (left[:-8] + other + left[-7:], "its tag does not fit")):
            with use(Context((token,))):
                try:
                    with session(here):
                        raise AssertionError("a session began with a broken token")
                except ContextRefused as refused:
                    assert str(refused).startswith(f"BADTOKEN {why}"), refused
                assert not current(), "a refused token is told again"
        for client in (here, there):
            client.close()


def users(node, protocol):
    """Users and TLS: what a user may do, in redis-py's words."""
    def client(user, password):
        return redis.Redis.from_url(node.url(user, password), protocol=protocol, decode_responses=True)

    admin, reports = client("default", "admin"), client("reports", "pw")
    assert admin.acl_whoami() == "default" and reports.acl_whoami() == "reports"
    # Without a change of code: another keyspace, at another level.
    assert reports.client_info()["db"] == 1 and reports.client_info()["user"] == "reports"
    levels = reports.execute_command("MERIDIAN.LEVEL")
    assert levels in (["reads", "ryw", "writes", "mw"], {"reads": "ryw", "writes": "mw"}), levels
    assert reports.set("reports:1", "x") and reports.get("reports:1") == "x" and admin.get("reports:1") is None
    for call in (lambda: reports.get("other"), lambda: reports.delete("reports:1"), lambda: reports.config_get("*")):
        refused(call, redis.exceptions.NoPermissionError)
    refused(client("reports", "wrong").ping, redis.AuthenticationError)
    refused(redis.Redis.from_url(node.url("", ""), protocol=2).ping, redis.AuthenticationError)
    refused(redis.Redis(port=node.port).ping, (redis.ConnectionError, redis.ResponseError))
    wrong = node.ca.replace("ca.pem", "other-ca.pem")
    refused(redis.Redis.from_url(node.url("default", "admin", wrong)).ping, redis.ConnectionError)

    assert len(admin.acl_genpass()) == 64 and "read" in admin.acl_cat() and "get" in admin.acl_cat("string")
    assert admin.acl_setuser(
        "temp", enabled=True, passwords=["+one"], keys=["t:*"], commands=["+get", "+set"], categories=["+@hash"]
    )
    told = admin.acl_getuser("temp")
    assert told["enabled"] and set(told["commands"]) >= {"+get", "+set"} and told["keys"] in (["~t:*"], "~t:*"), told
    assert admin.acl_users() == ["default", "reports", "temp"] and any("user temp on" in line for line in admin.acl_list())
    temp = client("temp", "one")
    assert temp.set("t:1", "v") and temp.hset(f"t:h{protocol}", "f", "1") == 1
    connection = temp.connection_pool.get_connection()
    assert admin.acl_deluser("temp") == 1
    refused(connection.read_response, redis.ConnectionError)
    temp.connection_pool.release(connection)
    refused(lambda: temp.get("t:1"), redis.AuthenticationError)
    for used in (admin, reports, temp):
        used.close()


def secure_tools(node):
    """redis-cli and redis-benchmark with TLS."""
    tls = ["-p", str(node.port), "--tls", "--cacert", node.ca, "--no-auth-warning"]

    def cli(*words):
        return subprocess.run(["redis-cli", *tls, *words], capture_output=True, text=True, timeout=60).stdout.strip()

    assert cli("-a", "admin", "SET", "k", "v") == "OK" and cli("-a", "admin", "GET", "k") == "v"
    assert cli("GET", "k") == "NOAUTH Authentication required."
    assert cli("--user", "reports", "--pass", "pw", "ACL", "WHOAMI") == "reports"
    plain = subprocess.run(["redis-cli", "-p", str(node.port), "PING"], capture_output=True, text=True, timeout=60)
    assert "this port speaks TLS" in plain.stdout + plain.stderr, plain
    command = ["redis-benchmark", *tls[:-1], "-a", "admin", "-t", "get,set", "-n", "20000", "--csv"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=240)
    assert "rror" not in done.stdout + done.stderr, done.stdout + done.stderr
    print("    with TLS:", ", ".join(f"{name} {float(rate):,.0f}/s" for name, rate in re.findall(r'^"([^"]+)","([\d.]+)"', done.stdout, re.M)))


def refused(call, kind):
    try:
        answer = call()
    except kind:
        return
    raise AssertionError(f"expected {kind}, got {answer!r}")


def cli(dev):
    """redis-cli, as a person types it."""
    assert dev.cli("SET", "cli", "hello") == "OK"
    assert dev.cli("GET", "cli", region=2) == "hello"
    assert dev.cli("-3", "HGETALL", "nothing") == "(empty hash)" or dev.cli("-3", "HGETALL", "nothing") == ""
    assert dev.cli("-n", "1", "SET", "cli", "rsc") == "OK"
    assert dev.cli("-n", "1", "GET", "cli", region=1) == "rsc"
    assert "redis_version" in dev.cli("INFO", "server")
    assert dev.cli("NOSUCH").startswith("ERR unknown command")
    keyspaces = dev.cli("MERIDIAN.KEYSPACES")
    assert "linearizable" in keyspaces and "rsc" in keyspaces, keyspaces
    assert dev.cli("--scan", "--pattern", "cli*") == "cli"


def benchmark_local(dev):
    """redis-benchmark with its own defaults: 100,000 requests of 50 clients, five kinds."""
    rates = dev.benchmark()
    print("   ", ", ".join(f"{name} {rate:,.0f}/s" for name, rate in rates.items()))
    assert len(rates) == 5, rates


def benchmark_wide(dev):
    """The same with 2,000 requests on the emulated wide area."""
    rates = dev.benchmark("-n", "2000")
    print("   ", ", ".join(f"{name} {rate:,.0f}/s" for name, rate in rates.items()))
    assert len(rates) == 5, rates


def main():
    passed = failed = 0

    def check(name, test, *arguments):
        nonlocal passed, failed
        start = time.monotonic()
        try:
            test(*arguments)
            passed += 1
            print(f"ok    {name} ({time.monotonic() - start:.1f} s)", flush=True)
        except Exception:
            failed += 1
            print(f"FAIL  {name}\n{traceback.format_exc()}", flush=True)

    with Dev("--rtt", "none", "--db", "0=linearizable", "--db", "1=rsc", "--db", "2=rss") as dev:
        check("redis-py, RESP2", redis_py, dev, 2)
        check("redis-py, RESP3", redis_py, dev, 3)
        check("redis-py, queues, RESP2", queues, dev, 2)
        check("redis-py, queues, RESP3", queues, dev, 3)
        check("redis-py, pooled", pooled, dev)
        check("redis-cli", cli, dev)
        check("redis-benchmark, no distance", benchmark_local, dev)
    with Dev("--rtt", "paper") as dev:
        check("redis-benchmark, wide area", benchmark_wide, dev)
    with Secure() as node:
        check("redis-py, users and TLS, RESP2", users, node, 2)
        check("redis-py, users and TLS, RESP3", users, node, 3)
        check("redis-cli and redis-benchmark with TLS", secure_tools, node)
    check("redis-py, pools and what a session is", scopes)
    check("redis-py, contexts", contexts)
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
