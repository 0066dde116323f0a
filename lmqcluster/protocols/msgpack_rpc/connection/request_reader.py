"""Received data of a connection that is not carried out yet, cut into requests within limits of bytes and values.

There are three ways. Complete requests are decoded on arrival, which is the hot path. An incomplete large request is
kept as bytes, so that no values are built before all of it has arrived. From a client that has not authenticated, only
small requests of few values are decoded.
"""

from __future__ import annotations

from typing import Any

import msgpack

from ....ports import VALUE_BYTES
from ....wire.legacy_msgpack import make_unpacker, unpack
from ....wire.limits import REQUEST_BYTES_MAX
from ....wire.values import VALUES_MAX, Scan, TooManyValuesError

__all__ = ["STRANGER_BYTES_MAX", "STRANGER_VALUES_MAX", "RequestReader", "RequestTooLargeError"]

SMALL_BYTES = 8 * 1024
SMALL_VALUES = 128
"""An unfinished request above either limit is kept as bytes."""
STRANGER_BYTES_MAX = 1024
STRANGER_VALUES_MAX = 32
"""Maximum size of a request of a client that has not authenticated: enough for a token."""


class RequestTooLargeError(ValueError):
    """Request that exceeds a limit, whatever follows."""


class RequestReader:
    """The received bytes of one connection.

    Attributes:
        received: number of all bytes so far.
        unpacker: holds complete requests that are not taken yet, and the start of a small one; None before it is
            needed.
        fed: number of bytes given to this unpacker.
        whole: number of those bytes that belong to taken requests.
    """

    __slots__ = ("_scan", "_tail", "fed", "received", "unpacker", "whole")

    def __init__(self) -> None:
        self.received = 0
        self.unpacker: msgpack.Unpacker | None = None
        self.fed = 0
        self.whole = 0
        # The incomplete request: its bytes, and the scan of them; None if there is none.
        self._tail: bytearray | bytes = b""
        self._scan: Scan | None = None

    # --- a client that is known -----------------------------------------------------------------------------------

    def feed(self, data: bytes) -> int:
        """Feed bytes to the unpacker; return the position of the first one."""
        base = self.fed
        self.fed = base + len(data)
        if self.unpacker is None:
            # The unpacker takes about 50 KiB, too much for a connection without data.
            self.unpacker = make_unpacker(REQUEST_BYTES_MAX)
        self.unpacker.feed(data)
        return base

    def keep(self, data: bytes, start: int) -> None:
        """Keep the incomplete last request of `data`. It begins at `start`, or in an earlier piece if that is negative.

        Raises:
            RequestTooLargeError: the request has too many values.
        """
        if start >= 0 or self._scan is None:
            start = max(0, start)
            self._scan = Scan()
            self._tail = data[start:]
        else:
            self._tail += data
            start = 0
        self._advance(self._scan, data, start)
        if len(self._tail) > SMALL_BYTES or self._scan.count > SMALL_VALUES:
            self._tail = bytearray(self._tail)
            self.unpacker = None
            self.fed = self.whole = 0

    @property
    def is_collecting(self) -> bool:
        """Return whether an incomplete large request is kept as bytes."""
        return type(self._tail) is bytearray

    def collect(self, data: bytes) -> int:
        """Take the next piece of the large request; return the end of the request in the piece, or -1.

        Raises:
            RequestTooLargeError: the request has too many values or bytes.
        """
        if self._scan is None:
            raise RuntimeError("no request is incomplete")
        end = self._advance(self._scan, data, 0)
        self._tail += data if end < 0 else data[:end]
        if len(self._tail) > REQUEST_BYTES_MAX:
            raise RequestTooLargeError(f"a request may have at most {REQUEST_BYTES_MAX} bytes")
        return end

    @staticmethod
    def _advance(scan: Scan, data: bytes, start: int) -> int:
        try:
            return scan.feed(data, start)
        except TooManyValuesError as exc:
            raise RequestTooLargeError(f"a request may hold at most {VALUES_MAX} values") from exc

    def decode(self) -> Any:
        """Return the complete large request.

        Raises:
            ValueError: it is not valid MessagePack.
        """
        data, self._tail, self._scan = self._tail, b"", None
        return unpack(data)

    # --- what is there --------------------------------------------------------------------------------------------

    def clear(self) -> None:
        """Forget the previous incomplete request."""
        self._tail, self._scan = b"", None

    @property
    def size(self) -> int:
        """Return the number of bytes of the incomplete request."""
        return len(self._tail)

    @property
    def values(self) -> int:
        """Return the number of values in the incomplete request so far."""
        return 0 if self._scan is None else self._scan.count

    @property
    def held_bytes(self) -> int:
        """Return the memory counted for the incomplete request. While it is kept as bytes, its values do not count."""
        if self._scan is None:
            return len(self._tail)
        return len(self._tail) + (0 if self.is_collecting else VALUE_BYTES * self._scan.count)

    def head(self, size: int) -> bytes:
        """Return the start of the incomplete request, which contains its msgid."""
        return bytes(self._tail[:size])

    # --- a client that has not said who it is -------------------------------------------------------------------------

    def add(self, data: bytes) -> bytes:
        """Return all bytes that are not taken yet, with these last."""
        data, self._tail = bytes(self._tail) + data, b""
        return data

    def next_small(self, data: bytes, position: int) -> tuple[Any, int]:
        """Return the request at this position and its end; (None, -1) if it is incomplete, and keep it then.

        Raises:
            RequestTooLargeError: it is too large for a client that has not authenticated.
            ValueError: it is not valid MessagePack.
        """
        window = data[position : position + STRANGER_BYTES_MAX]
        try:
            end = Scan(STRANGER_VALUES_MAX).feed(window)
        except TooManyValuesError as exc:
            self._tail = window
            raise RequestTooLargeError(str(exc)) from exc
        if end >= 0:
            return unpack(window[:end]), position + end
        self._tail = window
        if len(window) == STRANGER_BYTES_MAX:
            raise RequestTooLargeError(f"more than {STRANGER_BYTES_MAX} bytes")
        return None, -1
