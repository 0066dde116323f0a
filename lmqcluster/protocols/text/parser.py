"""Parser of text requests: one line; if it ends with a colon, items follow up to an empty line."""

from __future__ import annotations

from typing import NamedTuple

from ...wire.errors import LmqError
from ...wire.limits import PUSH_COUNT_MAX, REQUEST_BYTES_MAX
from ..kestrel.lines import take_line, tokens_of

__all__ = ["Parser", "Request"]


class Request(NamedTuple):
    """One request.

    Attributes:
        command: the command in lower case.
        arguments: the other tokens of the line.
        items: the items after the line, in order.
    """

    command: bytes
    arguments: list[bytes]
    items: list[bytes]


class Parser:
    """Parser that removes each request from the buffer once it is complete.

    Attributes:
        wanted: number of bytes that the buffer needs before there can be another request.
    """

    def __init__(self, item_bytes_max: int) -> None:
        self._item_bytes_max = item_bytes_max
        self.wanted = 1
        # State of the unfinished request: its tokens, the ranges of its items, the start of the next line, the end of the
        # part searched for LF.
        self._tokens: list[bytes] | None = None
        self._places: list[tuple[int, int]] = []
        self._at = 0
        self._looked = 0

    def next(self, buffer: bytearray) -> Request | None:
        """Return the next request; None if it is incomplete.

        Raises:
            LmqError: ``too_large``: the rest of the stream cannot be read.
        """
        if self._tokens is None:
            found = take_line(buffer, 0, self._looked)
            if found is None:
                self._wait(buffer)
                return None
            line, self._at = found
            if not line.endswith(b":"):
                return self._complete(buffer, tokens_of(line))
            self._tokens = tokens_of(line[:-1])
        while True:
            found = take_line(buffer, self._at, self._looked, self._item_bytes_max)
            if found is None:
                self._wait(buffer)
                return None
            line, end = found
            if not line:
                tokens, self._at = self._tokens, end
                return self._complete(buffer, tokens)
            if len(self._places) == PUSH_COUNT_MAX:
                raise LmqError("too_large", f"a request has at most {PUSH_COUNT_MAX} items")
            self._places.append((self._at, self._at + len(line)))
            self._at = end

    def _wait(self, buffer: bytearray) -> None:
        if len(buffer) > REQUEST_BYTES_MAX:
            raise LmqError("too_large", f"a request has at most {REQUEST_BYTES_MAX} bytes")
        self._looked = len(buffer)
        self.wanted = len(buffer) + 1

    def _complete(self, buffer: bytearray, tokens: list[bytes]) -> Request:
        items = [bytes(buffer[start:stop]) for start, stop in self._places]
        del buffer[: self._at]
        self._tokens, self._places, self._at, self._looked, self.wanted = None, [], 0, 0, 1
        return Request(tokens[0].lower(), tokens[1:], items)
