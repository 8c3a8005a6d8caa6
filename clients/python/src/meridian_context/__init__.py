"""Carries what a session of Meridian has seen from process to process, so that whoever acts on a message finds what its
sender had found.

A *context* is a token that the database makes and reads (`MERIDIAN.CONTEXT`); here it is an opaque string. It travels in
the `baggage` header of requests and in `Meridian-Context` of responses, as baggage has none. `ContextMiddleware` and
`ASGIContextMiddleware` take it in and send it back, `outgoing` and `absorb` do so for requests that a process makes itself, and
`session` and `async_session` give a redis-py client on one connection that goes on from the context and leaves it as it is then.
"""

from .context import HEADER, LENGTH_MAX, MEMBER, Context, ContextTooLong, absorb, current, outgoing, use
from .middleware import ASGIContextMiddleware, ContextMiddleware
from .sessions import ContextRefused, SessionLost, async_session, session

__all__ = [
    "HEADER",
    "LENGTH_MAX",
    "MEMBER",
    "ASGIContextMiddleware",
    "Context",
    "ContextMiddleware",
    "ContextRefused",
    "ContextTooLong",
    "SessionLost",
    "absorb",
    "async_session",
    "current",
    "outgoing",
    "session",
    "use",
]
