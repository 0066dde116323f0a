"""Requests that repeat an earlier request of their connection, except for the body.

A client that sends one request at a time usually sends the same request each time, with another body. A pattern recognizes such
a request by its bytes, so that it needs no parsing, routing and authorization: for the same bytes they give the same result.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import msgpack

from .errors import LmqError
from .legacy_msgpack import pack, pack_raw, unpack
from .repeated_sends import RepeatedSend

__all__ = ["REPEATED_BYTES_MAX", "Pattern", "RepeatedCall", "RepeatedHead", "pattern_of"]

REPEATED_BYTES_MAX: Final = 16 * 1024
"""Maximum size of a repeated request."""

_LENGTH: Final = re.compile(rb"(?i)\r\ncontent-length:[ \t]*([0-9]+)[ \t]*\r\n")
_OTHER_FRAMING: Final = re.compile(rb"(?i)\r\n(transfer-encoding|upgrade)[ \t]*:")
_DIGITS_MAX: Final = 6
_REQUEST: Final = b"\x94\x00"
_MSGID_BYTES_MAX: Final = 9


class Pattern(Protocol):
    """The request that is repeated."""

    def match(self, data: bytes) -> tuple[bytes, Any] | None:
        """Return the tag that the answer repeats and the body, if `data` is exactly one repetition.

        The body may be decoded, and MessagePack can carry it.
        """

    def row(self) -> Sequence[object]:
        """Return the encoded form, see `pattern_of`."""


class RepeatedHead:
    """A request of HTTP: the bytes of its head before and after the length of the body."""

    __slots__ = ("_after", "_before")

    def __init__(self, before: bytes, after: bytes) -> None:
        self._before = before
        self._after = after

    @classmethod
    def of(cls, head: bytes) -> RepeatedHead | None:
        """Return the pattern of a complete head, None if requests with this head do not simply follow each other."""
        found = _LENGTH.search(head)
        if found is None or head.lower().count(b"content-length") != 1 or _OTHER_FRAMING.search(head):
            return None
        return cls(head[: found.start(1)], head[found.end(1) :])

    def match(self, data: bytes) -> tuple[bytes, bytes] | None:
        before, after = self._before, self._after
        start = len(before)
        end = data.find(after[:2], start, start + _DIGITS_MAX + 2)
        if end < 0 or not data.startswith(before) or not data.startswith(after, end):
            return None
        digits = data[start:end]
        body = data[end + len(after) :]
        return (b"", body) if digits.isdigit() and int(digits) == len(body) else None

    def row(self) -> Sequence[object]:
        return self._before, self._after


class RepeatedCall:
    """A request of MessagePack-RPC: ``push(queue, content)`` with any msgid and a string as content."""

    __slots__ = ("_middle", "_queue")

    def __init__(self, queue: bytes) -> None:
        self._queue = queue
        self._middle = b"\xa4push\x92" + pack_raw(queue)

    def match(self, data: bytes) -> tuple[bytes, bytes] | None:
        middle = self._middle
        end = data.find(middle, 2, 2 + _MSGID_BYTES_MAX + len(middle))
        if end < 0 or not data.startswith(_REQUEST):
            return None
        try:
            msgid, content = unpack(data[2:end]), unpack(data[end + len(middle) :])
        except (ValueError, LmqError, msgpack.UnpackException):
            return None
        return (pack(msgid), pack_raw(content)) if type(msgid) is int and type(content) is bytes else None

    def row(self) -> Sequence[object]:
        return (self._queue,)


def pattern_of(row: Sequence[Any]) -> Pattern:
    """Return the pattern that `Pattern.row` encoded; its kind follows from the number of values."""
    kinds: dict[int, Callable[..., Pattern]] = {1: RepeatedCall, 2: RepeatedHead, 6: RepeatedSend.of}
    return kinds[len(row)](*row)
