"""Contexts and how they stand in headers."""

from __future__ import annotations

import contextlib
import contextvars
import re
from dataclasses import dataclass
from typing import Iterator, Mapping, MutableMapping, Optional, Tuple

HEADER = "Meridian-Context"
"""The header of responses."""

MEMBER = "meridian"
"""The member of the `baggage` header of requests."""

# What the database makes tokens of: base64 for URLs. All of it may stand in baggage, in headers and in cookies as it is.
_TOKEN = re.compile(r"[A-Za-z0-9_-]{1,2048}\Z")

# Whoever merges more than this has lost count: each session merges its own into one.
_TOKENS_MAX = 8

# What the W3C obliges everyone to pass on.
_BAGGAGE_MAX = 8192


@dataclass(frozen=True)
class Context:
    """Tokens of sessions that this one comes after; mostly one. The database merges them."""

    tokens: Tuple[str, ...] = ()

    @classmethod
    def of(cls, text: Optional[str]) -> Context:
        """The tokens of a header or cookie, which stand behind each other with dots between. What is none is left out: a stranger's
        header is no error here, and a forged token is refused by the database.
        """
        found = (token for token in (text or "").strip().split(".") if _TOKEN.match(token))
        return cls(tuple(dict.fromkeys(found))[:_TOKENS_MAX])

    @classmethod
    def of_baggage(cls, header: Optional[str]) -> Context:
        """The context in a `baggage` header."""
        tokens = cls()
        for member in _members(header):
            name, _, value = member.partition(";")[0].partition("=")
            if name.strip() == MEMBER:
                tokens = tokens.after(cls.of(value))
        return tokens

    def after(self, other: Context) -> Context:
        """The context that comes after both."""
        return Context(tuple(dict.fromkeys(self.tokens + other.tokens))[-_TOKENS_MAX:])

    def __str__(self) -> str:
        return ".".join(self.tokens)

    def __bool__(self) -> bool:
        return bool(self.tokens)

    def into_baggage(self, header: Optional[str] = None) -> str:
        """A `baggage` header with this context in place of whatever context it had. Other members stay, as far as there is
        room for them.
        """
        size = 0
        members = [f"{MEMBER}={self}"] if self else []
        for member in members[:1]:
            size = len(member)
        for member in _members(header):
            size += len(member) + 1
            if member.partition(";")[0].partition("=")[0].strip() != MEMBER and size <= _BAGGAGE_MAX:
                members.append(member)
        return ",".join(members)


def _members(header: Optional[str]) -> Iterator[str]:
    return (member.strip() for member in (header or "").split(",") if member.strip())


_current: contextvars.ContextVar[list] = contextvars.ContextVar("meridian_context")


def current() -> Context:
    """The context of the request at hand; empty outside of one."""
    return _current.get([Context()])[0]


@contextlib.contextmanager
def use(context: Context) -> Iterator[None]:
    """Makes `context` the current one for a block, in this thread or task and those that it starts meanwhile."""
    # A box, so that tasks which a request starts leave their contexts with the request.
    token = _current.set([context])
    try:
        yield
    finally:
        _current.reset(token)


def become(context: Context) -> None:
    """Takes `context` for the current one from now on, if a request is at hand."""
    box = _current.get(None)
    if box is not None:
        box[0] = context


def absorb(headers: Mapping[str, str]) -> None:
    """Takes in the context of a response that this process has got: what it does from now on comes after it. `headers` as
    `requests`, `httpx` or `http.client` give them, whose names are of any case.
    """
    become(current().after(Context.of(headers.get(HEADER))))


def outgoing(headers: Optional[MutableMapping[str, str]] = None) -> MutableMapping[str, str]:
    """Headers for a request that this process makes, with the current context among them."""
    headers = {} if headers is None else headers
    name = next((name for name in headers if name.lower() == "baggage"), "baggage")
    baggage = current().into_baggage(headers.get(name))
    if baggage:
        headers[name] = baggage
    return headers
