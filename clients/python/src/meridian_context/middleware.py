"""Takes contexts out of requests and puts them into responses."""

from __future__ import annotations

from http.cookies import CookieError, SimpleCookie
from typing import Optional

from .context import HEADER, Context, current, use


def _cookie(header: Optional[str], name: str) -> Context:
    try:
        morsel = SimpleCookie(header or "").get(name)
    except CookieError:
        return Context()
    return Context.of(morsel.value if morsel else None)


def _set_cookie(name: str, context: Context) -> str:
    return f"{name}={context}; Path=/; HttpOnly; SameSite=Lax"


class ContextMiddleware:
    """WSGI: the wrapped application's requests have a current context.

    With `cookie` it is kept in a cookie of that name as well, for browsers, which send no baggage by themselves.
    """

    def __init__(self, app, cookie: Optional[str] = None):
        self.app = app
        self.cookie = cookie

    def __call__(self, environ, start_response):
        context = Context.of_baggage(environ.get("HTTP_BAGGAGE"))
        if self.cookie:
            context = context.after(_cookie(environ.get("HTTP_COOKIE"), self.cookie))

        def start(status, headers, exc_info=None):
            left = current()
            if left:
                headers = [*headers, (HEADER, str(left))]
                if self.cookie:
                    headers.append(("Set-Cookie", _set_cookie(self.cookie, left)))
            return start_response(status, headers, *([exc_info] if exc_info else []))

        with use(context):
            return self.app(environ, start)


class ASGIContextMiddleware:
    """ASGI: the same."""

    def __init__(self, app, cookie: Optional[str] = None):
        self.app = app
        self.cookie = cookie

    async def __call__(self, scope, receive, send):
        if scope["type"] not in ("http", "websocket"):
            return await self.app(scope, receive, send)
        sent = {}
        for name, value in scope["headers"]:
            # Several headers of a name are one, with commas between; cookies, with semicolons.
            joint = "; " if name == b"cookie" else ","
            text = value.decode("latin-1")
            sent[name] = sent[name] + joint + text if name in sent else text
        context = Context.of_baggage(sent.get(b"baggage"))
        if self.cookie:
            context = context.after(_cookie(sent.get(b"cookie"), self.cookie))

        async def send_with_context(message):
            left = current()
            if message["type"] in ("http.response.start", "websocket.accept") and left:
                headers = [*message.get("headers", []), (HEADER.lower().encode(), str(left).encode())]
                if self.cookie:
                    headers.append((b"set-cookie", _set_cookie(self.cookie, left).encode()))
                message = {**message, "headers": headers}
            await send(message)

        with use(context):
            return await self.app(scope, receive, send_with_context)
