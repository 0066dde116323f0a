"""Parser of memcache requests: one line, followed by a body for some commands."""

from __future__ import annotations

from typing import NamedTuple

from ...wire.errors import LmqError
from ..kestrel.lines import take_line, tokens_of
from ..kestrel.numbers import int32

__all__ = ["Parser", "Request"]

WITH_BODY = frozenset((b"set", b"add", b"replace", b"append", b"prepend", b"cas"))
_END_BYTES = 2
"""Length of the line end after a body; its bytes are not checked."""


class Request(NamedTuple):
    """One request.

    Attributes:
        command: the command in lower case.
        tokens: the tokens of the line, including the command.
        body: the body, if the command has one.
    """

    command: bytes
    tokens: list[bytes]
    body: bytes = b""


_BINARY_REQUEST = b"\x80"
"""First byte of every request of memcached's binary protocol."""


class Parser:
    """Parser that takes requests from a buffer, which is not changed until `drop`.

    Attributes:
        taken: number of bytes of the buffer that belong to taken requests.
        wanted: number of bytes that the buffer needs before there can be another request.
    """

    def __init__(self, body_bytes_max: int) -> None:
        self._body_bytes_max = body_bytes_max
        self.taken = 0
        self.wanted = 1
        self._looked = 0
        # The line of a request whose body is incomplete, and the start and size of its body.
        self._head: Request | None = None
        self._body_at = 0
        self._body_bytes = 0
        # The line of the previous request, including its end.
        self._line = b""

    def next(self, buffer: bytearray) -> Request | None:
        """Return the next request; None if it is incomplete.

        Raises:
            LmqError: ``too_large`` or ``bad_request``: the rest of the stream cannot be read.
        """
        if self._head is None:
            found = take_line(buffer, self.taken, self._looked)
            if found is None:
                if buffer[self.taken : self.taken + 1] == _BINARY_REQUEST:
                    raise LmqError("bad_request", "the binary protocol is not served; use the text protocol")
                self._looked = len(buffer)
                self.wanted = len(buffer) + 1
                return None
            line, end = found
            self._line = bytes(buffer[self.taken : end])
            tokens = tokens_of(line)
            request = Request(tokens[0].lower(), tokens)
            if request.command not in WITH_BODY:
                self.taken = end
                return request
            self._head, self._body_at, self._body_bytes = request, end, self._size_of(tokens)
        stop = self._body_at + self._body_bytes
        if len(buffer) < stop + _END_BYTES:
            self.wanted = stop + _END_BYTES
            return None
        with memoryview(buffer) as view:
            body = bytes(view[self._body_at : stop])
        request = self._head._replace(body=body)
        self._head, self.taken = None, stop + _END_BYTES
        return request

    def repeated(self, buffer: bytearray, most: int) -> int:
        """Take up to `most` following requests without a body that equal the previous line. Return their number."""
        line, size, count = self._line, len(self._line), 0
        while count < most and buffer.startswith(line, self.taken):
            self.taken += size
            count += 1
        return count

    def more_bodies(self, buffer: bytearray, most: int) -> list[bytes]:
        """Take up to `most` following requests with the same line as the previous one, which has a body. Return their bodies."""
        line, size, at = self._line, self._body_bytes, self.taken
        bodies: list[bytes] = []
        step = len(line) + size + _END_BYTES
        with memoryview(buffer) as view:
            while len(bodies) < most and at + step <= len(view) and view[at : at + len(line)] == line:
                start = at + len(line)
                bodies.append(bytes(view[start : start + size]))
                at += step
        self.taken = at
        return bodies

    def _size_of(self, tokens: list[bytes]) -> int:
        size = int32(tokens[4]) if len(tokens) > 4 else None
        if size is None or size < 0:
            raise LmqError("bad_request", "the size of the body is missing, or no number from 0 on")
        if size > self._body_bytes_max:
            raise LmqError("too_large", f"an item has at most {self._body_bytes_max} bytes, this one has {size}")
        return size

    def drop(self, buffer: bytearray) -> None:
        """Remove the taken requests from the buffer."""
        taken = self.taken
        if taken:
            del buffer[:taken]
            self.taken = 0
            self._looked = max(0, self._looked - taken)
            self._body_at -= taken
            self.wanted -= taken
