"""Boundaries of requests in the bytes of a connection, for any split over reads and with pipelining.

The parser does not report the boundaries, but two features need them. LMQ's clients may send queue names as raw UTF-8,
as curl does; the parser refuses that, so request lines are escaped first. An endless head must not take much memory.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["HEAD_BYTES_MAX", "Framing"]

HEAD_BYTES_MAX: Final = 32 * 1024
"""Maximum number of bytes of a request line with all headers. The parser needs a few times as much memory for them."""

_HEAD_END: Final = b"\r\n\r\n"
_NOT_ASCII: Final = re.compile(rb"[\x80-\xff]")


class Framing:
    """Splitter of received data into pieces. Each piece belongs to the head or the body of one request.

    Attributes:
        head_bytes: number of bytes of an unfinished head; 0 in a body.
    """

    __slots__ = ("_body", "_in_line", "_is_chunked", "_tail", "head_bytes")

    def __init__(self) -> None:
        self.head_bytes = 0
        self._body = 0
        self._is_chunked = False
        self._in_line = True
        self._tail = b""

    def piece(self, data: bytes) -> tuple[bytes, int]:
        """Return the first piece of `data` in the form for the parser, and its size in `data`."""
        if self._is_chunked:
            size = self._end(data)
            self._tail = (self._tail + data[:size])[-3:]
            return data[:size], size
        if self._body:
            size = min(self._body, len(data))
            self._body -= size
            return data[:size], size
        size = self._end(data)
        self.head_bytes += size
        piece = data[:size]
        self._tail = (self._tail + piece)[-3:]
        return self._escaped(piece) if self._in_line else piece, size

    def head_ended(self, body: int | None) -> None:
        """Record that the parser has taken a head; `body` is the size of the body that follows, None for a chunked one."""
        self._is_chunked = body is None
        self._body = body or 0
        self._begin()

    def body_ended(self) -> None:
        """Record that the parser has taken the end of a chunked body."""
        self._is_chunked = False
        self._begin()

    @property
    def is_chunked(self) -> bool:
        """Return whether a chunked body is arriving. Only the parser knows its end."""
        return self._is_chunked

    def _begin(self) -> None:
        self.head_bytes = 0
        self._in_line = True
        self._tail = b""

    def _end(self, data: bytes) -> int:
        """Return the position after the first empty line, which ends heads and chunked bodies, or the length without one."""
        if self._tail:
            seam = (self._tail + data[:3]).find(_HEAD_END)
            if seam >= 0:
                return seam + len(_HEAD_END) - len(self._tail)
        end = data.find(_HEAD_END)
        return len(data) if end < 0 else end + len(_HEAD_END)

    def _escaped(self, piece: bytes) -> bytes:
        """Percent-encode the bytes of the request line that are not ASCII. Empty lines before it are not part of it."""
        start = 0
        if self.head_bytes == len(piece):
            start = len(piece) - len(piece.lstrip(b"\r\n"))
            if start == len(piece):
                self._begin()
                return piece
        end = piece.find(b"\n", start)
        if end >= 0:
            self._in_line = False
        if piece.isascii():
            return piece
        if end < 0:
            end = len(piece)
        line = _NOT_ASCII.sub(lambda match: b"%%%02X" % match[0][0], piece[start:end])
        return piece[:start] + line + piece[end:]
