"""Contexts through middleware; no database is needed."""

import asyncio
import io
import unittest
from wsgiref.handlers import SimpleHandler
from wsgiref.validate import validator

from meridian_context import HEADER, ASGIContextMiddleware, Context, ContextMiddleware, ContextRefused, current
from meridian_context.context import supersede

ONE, TWO, THREE = "aGVsbG8", "d29ybGQ_-", "dGhyZWU"


def see(token):
    """What a session does when it ends."""
    supersede(current(), Context((token,)))


def refuse():
    """What a session does when its token is refused."""
    supersede(current(), Context())
    raise ContextRefused("BADTOKEN it expired 5 s ago: get another")


class Wsgi(unittest.TestCase):
    def ask(self, application, cookie=None, **environ):
        """Status, headers, and the pieces of the body, each with the headers' state when it came."""
        answer, written = {}, []

        def start_response(status, headers, exc_info=None):
            self.assertTrue(exc_info or not answer, "headers were sent twice")
            answer.update(status=status, headers=dict(headers))
            return written.append

        body = ContextMiddleware(application, cookie)(environ, start_response)
        try:
            pieces = written + list(body)
        finally:
            if hasattr(body, "close"):
                body.close()
        self.assertFalse(current(), "nothing is left behind")
        return answer["status"], answer["headers"], b"".join(pieces).decode()

    def test_a_list(self):
        def application(_, start_response):
            seen = str(current())
            see(TWO)
            start_response("200 OK", [("Content-Type", "text/plain")])
            return [seen.encode()]

        headers = {"Content-Type": "text/plain", HEADER: TWO}
        self.assertEqual(self.ask(application, HTTP_BAGGAGE=f"meridian={ONE}"), ("200 OK", headers, ONE))
        self.assertEqual(self.ask(application)[2], "")
        self.assertIsInstance(ContextMiddleware(application)({}, lambda *_: None), list, "servers read the length off a list")

    def test_a_generator_keeps_its_context_and_tells_what_it_has_seen_before_its_first_bytes(self):
        def application(_, start_response):
            start_response("200 OK", [])
            yield b""
            yield f"{current()} ".encode()
            see(THREE)
            yield str(current()).encode()

        def sees_first(environ, start_response):
            see(TWO)
            return application(environ, start_response)

        _, headers, body = self.ask(application, HTTP_BAGGAGE=f"meridian={ONE}")
        self.assertEqual(body, f"{ONE} {THREE}")
        self.assertEqual(headers, {}, "its first bytes had gone before it has seen anything")
        _, headers, body = self.ask(sees_first, HTTP_BAGGAGE=f"meridian={ONE}")
        self.assertEqual((headers, body), ({HEADER: TWO}, f"{TWO} {THREE}"))

    def test_headers_wait_for_the_first_bytes(self):
        def application(_, start_response):
            start_response("200 OK", [])
            see(TWO)
            yield b"x"

        def empty(_, start_response):
            start_response("204 No Content", [])
            see(TWO)
            yield from ()

        def writes(_, start_response):
            write = start_response("200 OK", [])
            see(TWO)
            write(b"x")
            return []

        for one in (application, empty, writes):
            self.assertEqual(self.ask(one)[1], {HEADER: TWO}, one)

    def test_the_body_is_closed_with_its_context(self):
        closed = []

        class Body:
            def __iter__(self):
                return iter([b"x"])

            def close(self):
                closed.append(str(current()))

        def application(_, start_response):
            start_response("200 OK", [])
            return Body()

        self.ask(application, HTTP_BAGGAGE=f"meridian={ONE}")
        self.assertEqual(closed, [ONE])

    def test_an_error_replaces_what_was_held(self):
        def application(_, start_response):
            start_response("200 OK", [])
            try:
                raise LookupError("no such album")
            except LookupError as error:
                start_response("500 Oops", [], (LookupError, error, None))
            return [b"sorry"]

        def twice(_, start_response):
            start_response("200 OK", [])
            start_response("200 OK", [])
            return []

        self.assertEqual(self.ask(application)[0], "500 Oops")
        self.assertRaisesRegex(AssertionError, "called twice", self.ask, twice)

    def test_servers_and_applications_find_what_the_standard_says(self):
        def application(_, start_response):
            start_response("200 OK", [("Content-Type", "text/plain")])
            yield b"x"

        environ = {
            "REQUEST_METHOD": "GET", "SCRIPT_NAME": "", "PATH_INFO": "/", "QUERY_STRING": "", "SERVER_NAME": "x", "SERVER_PORT": "80",
            "SERVER_PROTOCOL": "HTTP/1.1", "wsgi.version": (1, 0), "wsgi.url_scheme": "http", "wsgi.input": open("/dev/null", "rb"),
            "wsgi.errors": open("/dev/null", "w"), "wsgi.multithread": True, "wsgi.multiprocess": False, "wsgi.run_once": False,
        }  # fmt: skip
        self.addCleanup(environ["wsgi.input"].close)
        self.addCleanup(environ["wsgi.errors"].close)
        body = validator(ContextMiddleware(validator(application)))(environ, lambda *_: lambda _: None)
        self.assertEqual(list(body), [b"x"])
        body.close()

    def test_a_file_is_sent_as_the_server_likes_it_best(self):
        def application(environ, start_response):
            see(TWO)
            start_response("200 OK", [("Content-Length", "5")])
            # As much of the file as the headers say, and no more.
            return environ["wsgi.file_wrapper"](open(__file__, "rb"), 3)

        class Server(SimpleHandler):
            by_the_kernel = 0

            def sendfile(self):
                self.by_the_kernel += 1
                self.send_headers()
                self._write(self.result.filelike.read(5))
                return True

        out = io.BytesIO()
        server = Server(io.BytesIO(), out, io.StringIO(), {"REQUEST_METHOD": "GET", "SERVER_PROTOCOL": "HTTP/1.0"})
        server.run(ContextMiddleware(application))
        self.assertEqual(server.by_the_kernel, 1)
        head, _, body = out.getvalue().decode().partition("\r\n\r\n")
        self.assertIn(f"{HEADER}: {TWO}", head.splitlines())
        self.assertEqual(body, '"""Co')

    def test_a_file_is_known_again_by_servers_that_ask_what_it_is(self):
        class Wrapper:
            def __init__(self, file, size=1):
                self.pieces = iter(file)

            def __iter__(self):
                return self.pieces

        def as_it_came(file, _size=1):
            return file

        def application(environ, start_response):
            start_response("200 OK", [])
            return environ["wsgi.file_wrapper"](file, size)

        def makes_more_of_it(environ, start_response):
            see(TWO)
            return (str(current()).encode() for _ in application(environ, start_response))

        file, size = io.BytesIO(b"x"), 8
        for wrapper in (Wrapper, as_it_came):
            environ, told = {"wsgi.file_wrapper": wrapper}, []
            body = ContextMiddleware(application)(environ, lambda status, _, told=told: told.append(status))
            self.assertIs(type(body), Wrapper if wrapper is Wrapper else io.BytesIO)
            self.assertIs(environ["wsgi.file_wrapper"], wrapper, "servers ask with it")
            self.assertEqual(told, ["200 OK"], "the headers were not told before the server takes the file over")
        self.assertEqual(self.ask(makes_more_of_it, **environ)[1:], ({HEADER: TWO}, TWO))

        def fails(environ, _):
            raise LookupError

        self.assertRaises(LookupError, ContextMiddleware(fails), environ, None)
        self.assertIs(environ["wsgi.file_wrapper"], as_it_came)

    def test_a_cookie(self):
        def application(_, start_response):
            seen = str(current())
            see(TWO)
            start_response("200 OK", [])
            return [seen.encode()]

        # Another application's cookies may look as they like.
        cookies = f'theirs={{"a": 1}}; bad name=x; meridian={ONE}'
        _, headers, seen = self.ask(application, "meridian", HTTP_COOKIE=cookies)
        self.assertEqual(seen, ONE)
        self.assertEqual(headers["Set-Cookie"], f"meridian={TWO}; Max-Age=3600; Path=/; HttpOnly; SameSite=Lax")
        self.assertRaisesRegex(ValueError, "'a;b' is no name", ContextMiddleware, application, "a;b")

    def test_a_request_that_has_seen_nothing_tells_nothing(self):
        def silent(_, start_response):
            start_response("204 No Content", [])
            return []

        self.assertEqual(self.ask(silent, "meridian")[1], {})
        # A cookie that were set again would outlive its token.
        self.assertEqual(self.ask(silent, "meridian", HTTP_COOKIE=f"meridian={ONE}")[1], {})

    def test_what_is_refused_is_dropped_by_the_browser(self):
        def careless(*_):
            refuse()

        def streams(_, start_response):
            start_response("200 OK", [])
            refuse()
            yield b"x"

        def catches(_, start_response):
            try:
                refuse()
            except ContextRefused:
                start_response("400 Bad Request", [("Mine", "1")])
            return [b"mine"]

        for application in (careless, streams, catches):
            status, headers, body = self.ask(application, "meridian", HTTP_COOKIE=f"meridian={ONE}")
            self.assertEqual(status, "400 Bad Request")
            self.assertEqual(headers[HEADER], "")
            self.assertEqual(headers["Set-Cookie"], "meridian=; Max-Age=0; Path=/; HttpOnly; SameSite=Lax")
            self.assertEqual(body, "mine" if application is catches else "BADTOKEN it expired 5 s ago: get another\n")

        def too_late(_, start_response):
            start_response("200 OK", [])
            yield b"x"
            refuse()

        self.assertRaises(ContextRefused, self.ask, too_late)


class Asgi(unittest.TestCase):
    def ask(self, application, *headers, cookie=None, kind="http"):
        """The messages that the server gets."""
        sent = []

        async def send(message):
            sent.append(message)

        async def go():
            await ASGIContextMiddleware(application, cookie)({"type": kind, "headers": list(headers)}, None, send)
            self.assertFalse(current(), "nothing is left behind")

        asyncio.run(go())
        return sent

    def test_what_tasks_have_seen_is_the_requests(self):
        async def task():
            see(TWO)

        async def application(_scope, _receive, send):
            seen = str(current())
            await asyncio.create_task(task())
            await send({"type": "http.response.start", "status": 200, "headers": [(b"seen", seen.encode())]})
            await send({"type": "http.response.body", "body": b""})

        headers = [(b"baggage", b"user=7"), (b"baggage", f"meridian={ONE}".encode())]
        start, body = self.ask(application, *headers, cookie="meridian")
        cookie = f"meridian={TWO}; Max-Age=3600; Path=/; HttpOnly; SameSite=Lax".encode()
        told = [(b"seen", ONE.encode()), (HEADER.lower().encode(), TWO.encode()), (b"set-cookie", cookie)]
        self.assertEqual(start, {"type": "http.response.start", "status": 200, "headers": told})
        self.assertEqual(body["type"], "http.response.body")

    def test_headers_wait_for_the_first_bytes(self):
        async def application(_scope, _receive, send):
            await send({"type": "http.response.start", "status": 200})
            see(TWO)
            await send({"type": "http.response.body", "body": b"x", "more_body": True})
            see(THREE)
            await send({"type": "http.response.body", "body": b"y"})

        start, *body = self.ask(application)
        self.assertEqual(start["headers"], [(HEADER.lower().encode(), TWO.encode())])
        self.assertEqual([message["body"] for message in body], [b"x", b"y"])

    def test_a_websocket_is_told_when_it_is_accepted(self):
        async def application(_scope, _receive, send):
            see(TWO)
            await send({"type": "websocket.accept"})
            await send({"type": "websocket.send", "text": str(current())})

        accept, _ = self.ask(application, kind="websocket")
        self.assertEqual(accept["headers"], [(HEADER.lower().encode(), TWO.encode())])

    def test_what_is_refused_is_dropped_by_the_browser(self):
        async def careless(_scope, _receive, send):
            refuse()

        async def streams(_scope, _receive, send):
            await send({"type": "http.response.start", "status": 200})
            refuse()

        for application in (careless, streams):
            start, body = self.ask(application, (b"cookie", f"meridian={ONE}".encode()), cookie="meridian")
            headers = dict(start["headers"])
            self.assertEqual((start["status"], headers[b"meridian-context"]), (400, b""))
            self.assertTrue(headers[b"set-cookie"].startswith(b"meridian=; Max-Age=0; "), headers)
            self.assertEqual(body["body"], b"BADTOKEN it expired 5 s ago: get another\n")

        async def too_late(_scope, _receive, send):
            await send({"type": "http.response.start", "status": 200})
            await send({"type": "http.response.body", "body": b"x", "more_body": True})
            refuse()

        self.assertRaises(ContextRefused, self.ask, too_late)


if __name__ == "__main__":
    unittest.main()
