"""Where requests begin and end in the bytes of a connection, however they are split over reads and pipelined.

The parser does not tell. Two things need it: LMQ's clients may send queue names as raw UTF-8, as curl does, which the parser
refuses, so request lines are escaped before it sees them; and a head that never ends must not take much memory.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["HEAD_BYTES_MAX", "Framing"]

HEAD_BYTES_MAX: Final = 32 * 1024
"""Most bytes of a request line with all headers. The parser needs a few times as much for them."""

_HEAD_END: Final = b"\r\n\r\n"
_NOT_ASCII: Final = re.compile(rb"[\x80-\xff]")


class Framing:
    """Cuts what comes into pieces, each of which is of one request's head or of its body.

    Attributes:
        head_bytes: how much there is of a head that has not ended; 0 in a body.
    """

    __slots__ = ("_body", "_in_line", "_is_chunked", "_tail", "head_bytes")

    def __init__(self) -> None:
        self.head_bytes = 0
        self._body = 0
        self._is_chunked = False
        self._in_line = True
        self._tail = b""

    def piece(self, data: bytes) -> tuple[bytes, int]:
        """The first piece of `data` as the parser is to see it, and how many bytes of `data` it stands for."""
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
        """The parser has taken a head, behind which comes a body of so many bytes, None for a chunked one."""
        self._is_chunked = body is None
        self._body = body or 0
        self._begin()

    def body_ended(self) -> None:
        """The parser has taken the last of a chunked body."""
        self._is_chunked = False
        self._begin()

    @property
    def is_chunked(self) -> bool:
        """Whether a chunked body is coming, whose end only the parser knows."""
        return self._is_chunked

    def _begin(self) -> None:
        self.head_bytes = 0
        self._in_line = True
        self._tail = b""

    def _end(self, data: bytes) -> int:
        """Behind the first empty line, with which heads and chunked bodies end, if there is one."""
        if self._tail:
            seam = (self._tail + data[:3]).find(_HEAD_END)
            if seam >= 0:
                return seam + len(_HEAD_END) - len(self._tail)
        end = data.find(_HEAD_END)
        return len(data) if end < 0 else end + len(_HEAD_END)

    def _escaped(self, piece: bytes) -> bytes:
        """Percent-encode what is not ASCII in the request line. Empty lines before it are none of it."""
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
