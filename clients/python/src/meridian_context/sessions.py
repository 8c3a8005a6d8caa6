"""Sessions of redis-py that go on from the current context."""

from __future__ import annotations

import contextlib
import itertools
from typing import AsyncIterator, Iterator, Tuple

import redis
import redis.asyncio

from .context import Context, become, current

COMMAND = "MERIDIAN.CONTEXT"


class SessionLost(redis.RedisError):
    """The connection of a session was lost in its middle. What it had seen is not known any more: begin the request anew."""


class _Lent:
    """Stands for a pool and has one connection of it, whatever asks: redis-py's pipelines would take another one otherwise, which knows nothing
    of what the session has seen. Nor may redis-py go on quietly on a new connection when this one is lost.
    """

    def __init__(self, pool, connection):
        self._pool, self._connection = pool, connection
        connection.register_connect_callback(self.on_connect)

    def __getattr__(self, name):
        return getattr(self._pool, name)

    def on_connect(self, _connection) -> None:
        raise SessionLost("the session's connection was lost: begin it anew")

    def get_connection(self, *_args, **_options):
        return self._connection

    def release(self, _connection) -> None:
        pass

    def forget(self) -> None:
        self._connection.deregister_connect_callback(self.on_connect)


class _AsyncLent(_Lent):
    async def get_connection(self, *_args, **_options):
        return self._connection

    async def release(self, _connection) -> None:
        pass


def _taken_over() -> Iterator[Tuple[str, str]]:
    # The first one replaces what the connection remembers of whoever had it before.
    return zip(itertools.chain(["SET"], itertools.repeat("MERGE")), current().tokens)


def _text(token) -> str:
    return token.decode() if isinstance(token, bytes) else token


@contextlib.contextmanager
def session(client: redis.Redis, export: bool = True) -> Iterator[redis.Redis]:
    """A client, pipelines included, on one connection of `client`'s pool, which comes after the current context; what it has seen when the block ends
    is the current context then. With `export=False` it is not, which saves a round trip to the nearest node: right where nobody
    is told what was seen. After an exception the context is exported too, as far as the connection allows it.

    A token that the database refuses (`BADTOKEN` and why) raises `redis.ResponseError` before the block begins; a connection
    that is lost raises `SessionLost`.
    """
    pool = client.connection_pool
    connection = pool.get_connection()
    lent = _Lent(pool, connection)
    own = client.__class__(connection_pool=lent)
    try:
        for verb, token in _taken_over():
            own.execute_command(COMMAND, verb, token)
        try:
            yield own
        except Exception:
            with contextlib.suppress(redis.RedisError):
                _export(own.execute_command(COMMAND, "GET"), export)
            raise
        if export:
            _export(own.execute_command(COMMAND, "GET"), export)
    finally:
        lent.forget()
        pool.release(connection)


@contextlib.asynccontextmanager
async def async_session(client: redis.asyncio.Redis, export: bool = True) -> AsyncIterator[redis.asyncio.Redis]:
    """`session` for `redis.asyncio`."""
    pool = client.connection_pool
    connection = await pool.get_connection()
    lent = _AsyncLent(pool, connection)
    own = client.__class__(connection_pool=lent)
    try:
        for verb, token in _taken_over():
            await own.execute_command(COMMAND, verb, token)
        try:
            yield own
        except Exception:
            with contextlib.suppress(redis.RedisError):
                _export(await own.execute_command(COMMAND, "GET"), export)
            raise
        if export:
            _export(await own.execute_command(COMMAND, "GET"), export)
    finally:
        lent.forget()
        await pool.release(connection)


def _export(token, export: bool) -> None:
    if export:
        become(Context((_text(token),)))
