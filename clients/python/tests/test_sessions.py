"""Sessions of redis-py, on a server that stands in for Meridian."""

import asyncio
import contextlib
import unittest

import redis
import redis.asyncio
from meridian_context import HEADER, Context, ContextRefused, SessionLost, absorb, async_session, current, session, use
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry
from standin import StandIn


class Sync:
    """How tests speak with redis-py, which on its own would go on on another connection."""

    def __init__(self, port):
        again = {"retry": Retry(NoBackoff(), 3), "retry_on_error": [redis.ConnectionError]}
        self.client = redis.Redis(port=port, protocol=2, **again)

    @contextlib.asynccontextmanager
    async def session(self, **options):
        with session(self.client, **options) as own:
            yield own

    async def do(self, own, *words):
        return own.execute_command(*words).decode()

    async def in_pipeline(self, own, *words):
        return own.pipeline(transaction=False).execute_command(*words).execute()[0].decode()

    async def close(self):
        self.client.close()


class Async(Sync):
    """How they speak with redis.asyncio."""

    def __init__(self, port):
        again = {"retry": AsyncRetry(NoBackoff(), 3), "retry_on_error": [redis.ConnectionError]}
        self.client = redis.asyncio.Redis(port=port, protocol=2, **again)

    def session(self, **options):
        return async_session(self.client, **options)

    async def do(self, own, *words):
        return (await own.execute_command(*words)).decode()

    async def in_pipeline(self, own, *words):
        return (await own.pipeline(transaction=False).execute_command(*words).execute())[0].decode()

    async def close(self):
        await self.client.aclose()


class Sessions(unittest.IsolatedAsyncioTestCase):
    kind = Sync

    async def asyncSetUp(self):
        self.server = self.enterContext(StandIn())
        self.redis = self.kind(self.server.port)
        self.addAsyncCleanup(self.redis.close)

    async def request(self, context, *see, **options):
        """What a request's session finds seen when it begins, and the context that it leaves."""
        with use(context):
            async with self.redis.session(**options) as own:
                found = await self.redis.do(own, "SEEN")
                for word in see:
                    await self.redis.do(own, "SEE", word)
            return found, current()

    async def test_it_comes_after_its_context_and_leaves_what_it_has_seen(self):
        found, left = await self.request(Context(("a-b", "c", "d")), "e")
        self.assertEqual(found, "a b c d")
        self.assertEqual(left, Context(("a-b-c-d-e",)))
        self.assertEqual(self.server.told(), ["SET a-b", "MERGE c", "MERGE d", "GET"])
        found, left = await self.request(Context(("a",)), "e", export=False)
        self.assertEqual((found, left), ("a", Context(("a",))))

    async def test_a_request_without_a_context_begins_without_anybody_elses(self):
        await self.request(Context(("alice",)), "album")
        for options in ({}, {"export": False}):
            found, _ = await self.request(Context(), **options)
            self.assertEqual(found, "")
        self.assertEqual(self.server.connections, 1, "it was the same connection")

    async def test_pipelines_are_on_its_connection(self):
        with use(Context(("a",))):
            async with self.redis.session() as own:
                self.assertEqual(await self.redis.in_pipeline(own, "SEEN"), "a")

    async def test_what_is_learned_meanwhile_stays(self):
        with use(Context(("a",))):
            async with self.redis.session() as one:
                async with self.redis.session() as two:
                    absorb({HEADER: "c"})
                    await self.redis.do(one, "SEE", "x")
                    await self.redis.do(two, "SEE", "y")
            self.assertEqual(set(current().tokens), {"c", "a-x", "a-y"})

    async def test_a_refused_token_is_not_told_again(self):
        with use(Context(("a", "bad", "b"))):
            with self.assertRaisesRegex(ContextRefused, "^BADTOKEN it is not base64url"):
                async with self.redis.session():
                    self.fail("it has begun")
            self.assertEqual(current(), Context(("a", "b")))
        self.assertEqual((await self.request(Context()))[0], "")
        self.assertEqual(self.server.connections, 1, "whoever forges tokens makes nobody connect anew")

    async def test_a_lost_connection_is_told_and_nothing_goes_on_without_the_context(self):
        with use(Context(("a",))):
            with self.assertRaises(SessionLost):
                async with self.redis.session() as own:
                    for _ in range(3):
                        with self.assertRaises(SessionLost):
                            await self.redis.do(own, "DROP")
                    await self.redis.do(own, "SEEN")
            self.assertEqual(current(), Context(("a",)), "what it had brought is still told")
        self.assertNotIn("SEEN", self.server.commands)
        self.assertEqual((await self.request(Context(("b",))))[0], "b", "the pool is as before")

    async def test_an_exception_leaves_what_was_seen_and_no_open_transaction(self):
        with use(Context(("a",))):
            with self.assertRaises(LookupError):
                async with self.redis.session() as own:
                    await self.redis.do(own, "SEE", "b")
                    raise LookupError
            self.assertEqual(current(), Context(("a-b",)))
            for options in ({}, {"export": False}):
                with self.assertRaises(LookupError):
                    async with self.redis.session(**options) as own:
                        await self.redis.do(own, "BEGIN")
                        raise LookupError
                self.assertEqual((await self.request(Context(("c",))))[0], "c")
            with self.assertRaises(redis.ResponseError):
                async with self.redis.session() as own:
                    await self.redis.do(own, "BEGIN")
            self.assertEqual((await self.request(Context(("c",))))[0], "c")


class AsyncSessions(Sessions):
    kind = Async

    async def test_whoever_is_cancelled_leaves_no_open_transaction(self):
        async def waits():
            async with self.redis.session() as own:
                await self.redis.do(own, "BEGIN")
                begun.set()
                await asyncio.sleep(60)

        begun = asyncio.Event()
        task = asyncio.create_task(waits())
        await begun.wait()
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task
        self.assertEqual((await self.request(Context(("c",))))[0], "c")


if __name__ == "__main__":
    unittest.main()
