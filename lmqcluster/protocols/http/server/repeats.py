"""Requests that repeat the head of an earlier request of their connection.

A client that keeps its connection open usually sends the same head each time, and only the body differs. Parsing, routing and
authorization of the same bytes give the same result, so the port does them once for such requests. It handles every other
request in full, and also these once the rights of the client have changed.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import structlog

from ....wire.errors import LmqError, forget_frames
from .replies.reply import Repeatable, Reply

if TYPE_CHECKING:
    from .connection import Connection

__all__ = ["RepeatedHead", "RepeatedRequest"]

log = structlog.get_logger(__name__)

_LENGTH: Final = re.compile(rb"(?i)\r\ncontent-length:[ \t]*([0-9]+)[ \t]*\r\n")
_OTHER_FRAMING: Final = re.compile(rb"(?i)\r\n(transfer-encoding|upgrade)[ \t]*:")
_DIGITS_MAX: Final = 6


class RepeatedHead:
    """The bytes of a head before and after the length of the body."""

    __slots__ = ("_after", "_before")

    def __init__(self, before: bytes, after: bytes) -> None:
        self._before = before
        self._after = after

    @classmethod
    def of(cls, head: bytes) -> RepeatedHead | None:
        """Return the form of a complete head, None if requests with this head do not simply follow each other."""
        found = _LENGTH.search(head)
        if found is None or head.lower().count(b"content-length") != 1 or _OTHER_FRAMING.search(head):
            return None
        return cls(head[: found.start(1)], head[found.end(1) :])

    def body(self, data: bytes) -> bytes | None:
        """Return the body if `data` is exactly one request with this head."""
        before, after = self._before, self._after
        start = len(before)
        end = data.find(after[:2], start, start + _DIGITS_MAX + 2)
        if end < 0 or not data.startswith(before) or not data.startswith(after, end):
            return None
        digits = data[start:end]
        body = data[end + len(after) :]
        return body if digits.isdigit() and int(digits) == len(body) else None


class RepeatedRequest:
    """A request that later requests of its connection may repeat.

    Args:
        client: the connection.
        head: the head.
        repeatable: carries out a repetition.
        end: called with the answer to each repetition and its duration in seconds, before the answer is composed.
    """

    __slots__ = ("_began_s", "_client", "_end", "_head", "_repeatable")

    def __init__(
        self,
        client: Connection,
        head: RepeatedHead,
        repeatable: Repeatable[Any],
        end: Callable[[Reply | None, float], None],
    ) -> None:
        self._client = client
        self._head = head
        self._repeatable = repeatable
        self._end = end
        self._began_s = 0.0

    def start(self, data: bytes) -> asyncio.Future[Any] | None:
        """Begin a repetition; return the future of its result, None if `data` must be handled in full."""
        body = self._head.body(data)
        if body is None:
            return None
        self._began_s = time.monotonic()
        try:
            return self._repeatable.start(body)
        except LmqError as exc:
            refused: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            refused.set_exception(exc)
            return refused

    def answer(self, outcome: asyncio.Future[Any]) -> tuple[bytes, bool]:
        """Return the bytes of the answer, and whether the connection stays open."""
        reply = None if outcome.cancelled() else self._reply(outcome)
        self._end(reply, time.monotonic() - self._began_s)
        if reply is None:
            return b"", False
        return reply.repeated(self._client), reply.keep_alive

    def _reply(self, outcome: asyncio.Future[Any]) -> Reply:
        error = outcome.exception()
        if error is None:
            return self._repeatable.reply(outcome.result())
        try:
            if isinstance(error, LmqError):
                return self._repeatable.on_error(error)
            log.error("request failed", exc_info=error)
            return Reply(500, close=True)
        finally:
            forget_frames(error)
