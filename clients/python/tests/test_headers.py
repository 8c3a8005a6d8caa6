"""Contexts in headers, cookies and middleware; no database is needed."""

import asyncio
import unittest

from meridian_context import (
    HEADER,
    ASGIContextMiddleware,
    Context,
    ContextMiddleware,
    absorb,
    current,
    outgoing,
    use,
)
from meridian_context.context import become

ONE, TWO = "aGVsbG8", "d29ybGQ_-"


class Headers(unittest.TestCase):
    def test_a_context_comes_through_baggage(self):
        self.assertEqual(Context((ONE,)).into_baggage(), f"meridian={ONE}")
        both = Context((ONE, TWO))
        self.assertEqual(Context.of_baggage(both.into_baggage()), both)
        spaced = f"user = 7 , meridian = {ONE} ;ttl=3,other=1"
        self.assertEqual(Context.of_baggage(spaced), Context((ONE,)))

    def test_what_others_have_put_into_baggage_stays(self):
        header = Context((TWO,)).into_baggage(f"user=7;x=y, meridian={ONE}, other=1")
        self.assertEqual(header, f"meridian={TWO},user=7;x=y,other=1")
        self.assertEqual(Context().into_baggage("user=7"), "user=7")
        long = ",".join(f"m{number}={'x' * 100}" for number in range(100))
        self.assertLessEqual(len(Context((ONE,)).into_baggage(long)), 8192)

    def test_nonsense_is_no_context(self):
        for text in (None, "", " ", "a b", "a\r\nSet-Cookie: x", "x" * 3000, "ä", "=", "..."):
            self.assertFalse(Context.of(text), text)
        self.assertEqual(Context.of(f"{ONE}.{ONE}..a b.{TWO}"), Context((ONE, TWO)))

    def test_a_context_does_not_grow_without_end(self):
        context = Context()
        for number in range(100):
            context = context.after(Context((f"t{number}",)))
        self.assertEqual(len(context.tokens), 8)
        self.assertIn("t99", context.tokens)

    def test_a_process_passes_on_what_it_has_got(self):
        with use(Context((ONE,))):
            self.assertEqual(outgoing(), {"baggage": f"meridian={ONE}"})
            absorb({HEADER: TWO})
            self.assertEqual(outgoing({"Baggage": "user=7"}), {"Baggage": f"meridian={ONE}.{TWO},user=7"})
        self.assertEqual(outgoing(), {})
        absorb({HEADER: TWO})
        self.assertFalse(current(), "outside of a request nothing is kept")


def application(environ, start_response):
    """Sees what came in, and goes on from there."""
    seen = str(current())
    become(Context((TWO,)))
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [seen.encode()]


class Middleware(unittest.TestCase):
    def ask(self, app, **environ):
        answer = {}
        body = app(environ, lambda status, headers: answer.update(status=status, headers=headers))
        return b"".join(body).decode(), answer["headers"]

    def test_wsgi(self):
        app = ContextMiddleware(application)
        seen, headers = self.ask(app, HTTP_BAGGAGE=f"meridian={ONE}")
        self.assertEqual(seen, ONE)
        self.assertIn((HEADER, TWO), headers)
        self.assertFalse(current())
        seen, _ = self.ask(app)
        self.assertEqual(seen, "")

    def test_wsgi_with_a_cookie(self):
        app = ContextMiddleware(application, cookie="meridian")
        seen, headers = self.ask(app, HTTP_COOKIE=f"a=b; meridian={ONE}")
        self.assertEqual(seen, ONE)
        self.assertIn(("Set-Cookie", f"meridian={TWO}; Path=/; HttpOnly; SameSite=Lax"), headers)

    def test_a_request_that_has_seen_nothing_sends_nothing(self):
        def silent(_, start_response):
            start_response("204 No Content", [])
            return []

        self.assertEqual(self.ask(ContextMiddleware(silent, cookie="meridian"))[1], [])

    def test_asgi(self):
        async def asgi(scope, _receive, send):
            seen = str(current())
            # What a task has seen is the request's.
            await asyncio.create_task(self.see(TWO))
            await send({"type": "http.response.start", "status": 200, "headers": [(b"seen", seen.encode())]})
            await send({"type": "http.response.body", "body": b""})

        sent = []

        async def send(message):
            sent.append(message)

        app = ASGIContextMiddleware(asgi, cookie="meridian")
        headers = [(b"baggage", b"user=7"), (b"baggage", f"meridian={ONE}".encode())]
        asyncio.run(app({"type": "http", "headers": headers}, None, send))
        got = dict(sent[0]["headers"])
        self.assertEqual((got[b"seen"], got[HEADER.lower().encode()]), (ONE.encode(), TWO.encode()))
        self.assertTrue(got[b"set-cookie"].startswith(f"meridian={TWO};".encode()))

    @staticmethod
    async def see(token):
        become(Context((token,)))


if __name__ == "__main__":
    unittest.main()
