"""Contexts and how they stand in headers."""

from __future__ import annotations

import contextlib
import contextvars
import re
import threading
from dataclasses import dataclass
from typing import Iterator, Mapping, MutableMapping, Optional, Tuple

HEADER = "Meridian-Context"
"""The header of responses."""

MEMBER = "meridian"
"""The member of the `baggage` header of requests."""

# What the database makes tokens of: base64 for URLs. All of it may stand in baggage, in headers and in cookies as it is.
_TOKEN = re.compile(r"[A-Za-z0-9_-]{1,2048}\Z")

LENGTH_MAX = 3800
"""The most characters that a context may have in a header or cookie that is sent, three of the longest tokens: browsers drop a
cookie that has more than 4,096 bytes with its name, and older readers of baggage such a member.
"""

# What the W3C obliges everyone to pass on, all members together.
_BAGGAGE_MAX = 8192


class ContextTooLong(ValueError):
    """A context has more characters than headers and cookies carry. The message says how many, and the ways out."""


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
        return cls(tuple(dict.fromkeys(found)))

    @classmethod
    def of_baggage(cls, header: Optional[str]) -> Context:
        """The context in a `baggage` header."""
        context = cls()
        for name, member in _members(header):
            if name == MEMBER:
                context = context.after(cls.of(member.partition(";")[0].partition("=")[2]))
        return context

    def after(self, other: Context) -> Context:
        """The context that comes after both."""
        return Context(tuple(dict.fromkeys(self.tokens + other.tokens)))

    def without(self, other: Context) -> Context:
        """What this one has beside the tokens of the other."""
        return Context(tuple(token for token in self.tokens if token not in other.tokens))

    def __str__(self) -> str:
        return ".".join(self.tokens)

    def __bool__(self) -> bool:
        return bool(self.tokens)

    def sendable(self) -> str:
        """The text for a header or cookie. More than `LENGTH_MAX` characters raise `ContextTooLong`, as a token left out is an
        order lost.
        """
        text = str(self)
        if len(text) > LENGTH_MAX:
            raise ContextTooLong(
                f"a context of {len(self.tokens)} tokens has {len(text)} characters, and {LENGTH_MAX} is the most for headers"
                " and cookies: open a session, which merges them, or give absorb the headers that were sent"
            )
        return text

    def into_baggage(self, header: Optional[str] = None) -> str:
        """A `baggage` header with this context in place of whatever context it had. Other members stay, as far as there is
        room for them.
        """
        members = [f"{MEMBER}={self.sendable()}"] if self else []
        room = _BAGGAGE_MAX - sum(map(len, members))
        for name, member in _members(header):
            if name != MEMBER and len(member) < room:
                members.append(member)
                room -= len(member) + 1
        return ",".join(members)


def _members(header: Optional[str]) -> Iterator[Tuple[str, str]]:
    """Members of a `baggage` header, each with its name."""
    for member in (header or "").split(","):
        if member.strip():
            yield member.partition(";")[0].partition("=")[0].strip(), member.strip()


class Box:
    """Where a request's context is, for all threads and tasks that work for it: what one of them learns, all have learned."""

    def __init__(self, context: Context):
        self.context = context
        self._lock = threading.Lock()

    def supersede(self, old: Context, new: Context) -> None:
        """Puts `new` in place of `old`, after which it comes. What others have learned meanwhile stays."""
        with self._lock:
            self.context = self.context.without(old).after(new)


_current: contextvars.ContextVar[Box] = contextvars.ContextVar("meridian_context")

def begin(box: Box) -> contextvars.Token:
    """Makes a box the one of the request at hand."""
    return _current.set(box)


def current() -> Context:
    """The context of the request at hand; empty outside of one."""
    box = _current.get(None)
    return box.context if box else Context()


def use(context: Context) -> contextlib.AbstractContextManager[None]:
    """Makes `context` the current one for a block, in this thread or task and those that it starts meanwhile."""
    return using(Box(context))


@contextlib.contextmanager
def using(box: Box) -> Iterator[None]:
    """The same with a box that others look into."""
    before = begin(box)
    try:
        yield
    finally:
        _current.reset(before)


def supersede(old: Context, new: Context) -> None:
    """Puts `new` in place of `old` in the current context, if a request is at hand."""
    box = _current.get(None)
    if box is not None:
        box.supersede(old, new)


def absorb(headers: Mapping[str, str], sent: Optional[Mapping[str, str]] = None) -> None:
    """Takes in the context of a response that this process has got: the sessions that it opens from now on come after it.
    `headers` as `requests`, `httpx` or `http.client` give them, whose names are of any case.

    `sent` are the headers of the request that was answered. A response comes after all that its request told, so its context
    takes the place of that. Without it, contexts pile up until the next `session`.
    """
    told = headers.get(HEADER)
    # Without one the other side has nothing to tell that it was not told; with an empty one it has refused what it was told.
    if told is not None:
        supersede(Context.of_baggage(_baggage(sent)[1]) if sent else Context(), Context.of(told))


def outgoing(headers: Optional[MutableMapping[str, str]] = None) -> MutableMapping[str, str]:
    """Headers for a request that this process makes, with the current context among them."""
    headers = {} if headers is None else headers
    name, before = _baggage(headers)
    baggage = current().into_baggage(before)
    if baggage:
        headers[name] = baggage
    return headers


def _baggage(headers: Mapping[str, str]) -> Tuple[str, Optional[str]]:
    """The name of the `baggage` header as it is written there, and what it says."""
    name = next((name for name in headers if name.lower() == "baggage"), "baggage")
    return name, headers.get(name)
