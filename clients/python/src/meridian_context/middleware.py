"""Takes contexts out of requests and puts them into responses.

A response's headers tell what its request has seen when the first bytes go, if that is not what the request has brought. An
empty context tells, too: that what was brought is no good, as the database has refused it. So headers are held until
those bytes, which both interfaces allow.
"""

from __future__ import annotations

import contextlib
import contextvars
import re
from typing import Iterator, List, Optional, Tuple

from .context import HEADER, Box, Context, begin, using
from .sessions import ContextRefused

# For so many seconds the database takes a token: then the browser drops it by itself.
_LIFETIME_S = 3600

_COOKIE_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")


def _in_cookies(header: Optional[str], name: str) -> Context:
    # Read by hand: for one cookie that is not as it should be, perhaps another application's, the standard library's reader
    # gives up all.
    context = Context()
    for cookie in (header or "").split(";"):
        its_name, _, value = cookie.strip().partition("=")
        if its_name == name:
            context = context.after(Context.of(value))
    return context


class _Request:
    """What a request has brought, and its box."""

    def __init__(self, baggage: Optional[str], cookies: Optional[str], cookie: Optional[str]):
        self.cookie = cookie
        self.brought = Context.of_baggage(baggage)
        if cookie:
            self.brought = self.brought.after(_in_cookies(cookies, cookie))
        self.box = Box(self.brought)

    def headers(self) -> List[Tuple[str, str]]:
        """What the response's headers tell, beside the application's."""
        left = self.box.context
        if left == self.brought:
            return []
        text = left.sendable()
        headers = [(HEADER, text)]
        if self.cookie:
            lifetime_s = _LIFETIME_S if left else 0
            headers.append(("Set-Cookie", f"{self.cookie}={text}; Max-Age={lifetime_s}; Path=/; HttpOnly; SameSite=Lax"))
        return headers


def _refusal(refused: ContextRefused) -> Tuple[bytes, List[Tuple[str, str]]]:
    """Body and headers of the response to a context that the application has let be refused."""
    body = f"{refused}\n".encode()
    return body, [("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(body)))]


class _Middleware:
    def __init__(self, app, cookie: Optional[str] = None):
        if cookie is not None and not _COOKIE_NAME.match(cookie):
            raise ValueError(f"{cookie!r} is no name for a cookie here: use letters, digits, - and _, 64 at most")
        self.app = app
        self.cookie = cookie


class ContextMiddleware(_Middleware):
    """WSGI: the wrapped application's requests have a current context, bodies that are made while they are sent included.

    With `cookie` it is kept in a cookie of that name as well, for browsers, which send no baggage by themselves. If the
    database refuses a context and the application does not catch `ContextRefused`, the response is 400 and says why.
    """

    def __call__(self, environ, start_response):
        request = _Request(environ.get("HTTP_BAGGAGE"), environ.get("HTTP_COOKIE"), self.cookie)
        # The server asks for each piece of a body from outside: all that the application does, it does in here.
        run = contextvars.copy_context().run
        run(begin, request.box)
        answer = _Answer(request, start_response)
        try:
            with _noting_files(environ) as files:
                body = run(self.app, environ, answer.start)
            if not isinstance(body, (list, tuple)) and not any(body is file for file in files):
                return _Body(body, run(iter, body), run, answer)
        except ContextRefused as refused:
            body = answer.refuse(refused)
        # Nothing is done any more. Servers read the length off a list, and send a file by the kernel if they know it again.
        answer.send()
        return body


_FILE_WRAPPER = "wsgi.file_wrapper"


@contextlib.contextmanager
def _noting_files(environ) -> Iterator[list]:
    """What the server's file wrapper makes for the application that is called meanwhile. The wrapper may be a class or a function, so that what
    it has made need not show it; and the server finds its own one in `environ` again, as some know by it what it has made.
    """
    made, wrapper = [], environ.get(_FILE_WRAPPER)

    def wrap(*args):
        made.append(wrapper(*args))
        return made[-1]

    if wrapper:
        environ[_FILE_WRAPPER] = wrap
    try:
        yield made
    finally:
        if wrapper:
            environ[_FILE_WRAPPER] = wrapper


class _Answer:
    """A response's status and headers, held until its first bytes."""

    def __init__(self, request: _Request, start_response):
        self.request, self.start_response = request, start_response
        self.held, self.is_sent, self.server_write = None, False, None

    def start(self, status, headers, exc_info=None):
        """The application's `start_response`."""
        more = [exc_info] if exc_info else []
        if self.is_sent:
            return self.start_response(status, headers, *more)
        if self.held and not exc_info:
            raise AssertionError("start_response was called twice: give it exc_info to take the first call back")
        self.held = (status, headers, more)
        return self.write

    def write(self, data):
        self.send()
        self.server_write(data)

    def send(self):
        if self.held:
            (status, headers, more), self.held, self.is_sent = self.held, None, True
            self.server_write = self.start_response(status, [*headers, *self.request.headers()], *more)

    def refuse(self, refused: ContextRefused):
        """Another response in place of the one that is held, if it still is."""
        if self.is_sent:
            raise refused
        body, headers = _refusal(refused)
        self.held = ("400 Bad Request", headers, [])
        return [body]


class _Body:
    """A response's body, each piece of it made with the request's context."""

    def __init__(self, body, pieces, run, answer):
        self.body, self.pieces, self.run, self.answer = body, pieces, run, answer

    def __iter__(self):
        return self

    def __next__(self):
        try:
            piece = self.run(next, self.pieces)
        except StopIteration:
            self.answer.send()
            raise
        except ContextRefused as refused:
            self.pieces = iter(self.answer.refuse(refused))
            piece = next(self.pieces)
        if piece:
            self.answer.send()
        return piece

    def close(self):
        close = getattr(self.body, "close", None)
        if close:
            self.run(close)


class ASGIContextMiddleware(_Middleware):
    """ASGI: the same."""

    async def __call__(self, scope, receive, send):
        if scope["type"] not in ("http", "websocket"):
            return await self.app(scope, receive, send)
        sent = {}
        for name, value in scope["headers"]:
            # Several headers of a name are one, with commas between; cookies, with semicolons.
            joint = "; " if name == b"cookie" else ","
            text = value.decode("latin-1")
            sent[name] = sent[name] + joint + text if name in sent else text
        request = _Request(sent.get(b"baggage"), sent.get(b"cookie"), self.cookie)
        held, is_sent = None, False

        def told(message):
            more = [(name.lower().encode(), value.encode()) for name, value in request.headers()]
            return {**message, "headers": [*message.get("headers", []), *more]}

        async def send_held():
            nonlocal held, is_sent
            if held:
                message, held, is_sent = told(held), None, True
                await send(message)

        async def send_with_context(message):
            nonlocal held
            await send_held()
            if message["type"] == "http.response.start":
                held = message
            else:
                await send(told(message) if message["type"] == "websocket.accept" else message)

        with using(request.box):
            try:
                await self.app(scope, receive, send_with_context)
            except ContextRefused as refused:
                if is_sent or scope["type"] == "websocket":
                    raise
                body, headers = _refusal(refused)
                headers = [(name.lower().encode(), value.encode()) for name, value in headers]
                held = {"type": "http.response.start", "status": 400, "headers": headers}
                await send_with_context({"type": "http.response.body", "body": body})
            await send_held()
