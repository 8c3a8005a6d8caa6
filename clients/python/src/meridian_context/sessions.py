"""Sessions of redis-py that go on from the current context."""

from __future__ import annotations

import contextlib
from typing import AsyncIterator, Iterator, List, Tuple

import redis
import redis.asyncio

from .context import Context, current, supersede

COMMAND = "MERIDIAN.CONTEXT"


class ContextRefused(redis.ResponseError):
    """The database has refused a token, and the message says why. Nothing was done, and the current context is without that token
    from now on: answer the request with 400, and whoever sent it will not send the token again.
    """


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

    def on_connect(self, connection) -> None:
        # Closed again, or the next command would go on on it.
        connection.disconnect()
        raise SessionLost("the session's connection was lost: begin it anew")

    def get_connection(self, *_args, **_options):
        return self._connection

    def release(self, _connection) -> None:
        pass

    def forget(self) -> None:
        self._connection.deregister_connect_callback(self.on_connect)


class _AsyncLent(_Lent):
    async def on_connect(self, connection) -> None:
        await connection.disconnect()
        raise SessionLost("the session's connection was lost: begin it anew")

    async def get_connection(self, *_args, **_options):
        return self._connection

    async def release(self, _connection) -> None:
        pass


def _taking_over(context: Context) -> List[Tuple[str, ...]]:
    """What a connection is told first, so that it comes after the context and after nobody who has had it before."""
    first, *more = context.tokens or [None]
    return [("SET", first) if first else ("RESET",), *(("MERGE", token) for token in more)]


@contextlib.contextmanager
def _refusing(words: Tuple[str, ...]) -> Iterator[None]:
    """Gives a refusal its name, and lets nobody be told of what was refused."""
    try:
        yield
    except redis.ResponseError as error:
        if not str(error).startswith("BADTOKEN"):
            raise
        supersede(Context(words[1:]), Context())
        raise ContextRefused(*error.args) from error


def _context(token) -> Context:
    return Context((token.decode() if isinstance(token, bytes) else token,))


@contextlib.contextmanager
def session(client: redis.Redis, export: bool = True) -> Iterator[redis.Redis]:
    """A client, pipelines included, on one connection of `client`'s pool, which comes after the current context and after nothing
    else; what it has seen when the block ends stands in the current context then. With `export=False` it does not, which saves a
    round trip to the nearest node: right where nobody is told what was seen. After an exception the context is exported too, as
    far as the connection allows it.

    A token that the database refuses raises `ContextRefused` before the block begins; a connection that is lost raises
    `SessionLost`. What is absorbed within the block counts for the sessions after it.
    """
    pool = client.connection_pool
    connection = pool.get_connection()
    lent = _Lent(pool, connection)
    own = client.__class__(connection_pool=lent)
    begun = current()

    def tell():
        supersede(begun, _context(own.execute_command(COMMAND, "GET")))
        return True

    is_clean = False
    try:
        try:
            for words in _taking_over(begun):
                with _refusing(words):
                    own.execute_command(COMMAND, *words)
        except ContextRefused:
            is_clean = True
            raise
        try:
            yield own
        except Exception:
            with contextlib.suppress(redis.RedisError):
                is_clean = export and tell()
            raise
        is_clean = not export or tell()
    finally:
        lent.forget()
        # It may be within a transaction, in which nobody else can begin.
        if not is_clean:
            connection.disconnect()
        pool.release(connection)


@contextlib.asynccontextmanager
async def async_session(client: redis.asyncio.Redis, export: bool = True) -> AsyncIterator[redis.asyncio.Redis]:
    """`session` for `redis.asyncio`."""
    pool = client.connection_pool
    connection = await pool.get_connection()
    lent = _AsyncLent(pool, connection)
    own = client.__class__(connection_pool=lent)
    begun = current()

    async def tell():
        supersede(begun, _context(await own.execute_command(COMMAND, "GET")))
        return True

    is_clean = False
    try:
        try:
            for words in _taking_over(begun):
                with _refusing(words):
                    await own.execute_command(COMMAND, *words)
        except ContextRefused:
            is_clean = True
            raise
        try:
            yield own
        except Exception:
            with contextlib.suppress(redis.RedisError):
                is_clean = export and await tell()
            raise
        is_clean = not export or await tell()
    finally:
        lent.forget()
        # It may be within a transaction, in which nobody else can begin.
        if not is_clean:
            await connection.disconnect()
        await pool.release(connection)
