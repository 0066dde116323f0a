"""What has come on a connection and is not carried out yet: cut into requests, within bounds of bytes and values.

Three ways, by who sends and how much: requests that come whole are decoded as they come, which is the hot path; a large request
that is not complete is kept as bytes, so that no values are built before all of it is there; and of a client that has not said
who it is, nothing is decoded but small requests of a few values.
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
"""An unfinished request beyond one of these is kept as bytes."""
STRANGER_BYTES_MAX = 1024
STRANGER_VALUES_MAX = 32
"""Largest request of a client that has not said who it is: enough for a token."""


class RequestTooLargeError(ValueError):
    """A request that will not be taken, whatever follows."""


class RequestReader:
    """The bytes of one connection.

    Attributes:
        received: all bytes so far.
        unpacker: holds what came whole and is not taken yet, and the begin of a small request; None before it is needed.
        fed: bytes given to this unpacker.
        whole: those of them that belong to requests that were taken.
    """

    __slots__ = ("_scan", "_tail", "fed", "received", "unpacker", "whole")

    def __init__(self) -> None:
        self.received = 0
        self.unpacker: msgpack.Unpacker | None = None
        self.fed = 0
        self.whole = 0
        # The request that is not complete: its bytes, and how far it was looked at; None if there is none.
        self._tail: bytearray | bytes = b""
        self._scan: Scan | None = None

    # --- a client that is known -----------------------------------------------------------------------------------

    def feed(self, data: bytes) -> int:
        """Give bytes to the unpacker; returns the position of their first one."""
        base = self.fed
        self.fed = base + len(data)
        if self.unpacker is None:
            # It takes some 50 KiB, which is much for a connection on which nothing comes.
            self.unpacker = make_unpacker(REQUEST_BYTES_MAX)
        self.unpacker.feed(data)
        return base

    def keep(self, data: bytes, start: int) -> None:
        """The last request of `data` is not complete; it begins at `start`, or in an earlier piece if that is negative.

        Raises:
            RequestTooLargeError: it will have too many values.
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
        """Whether a large request is kept as bytes."""
        return type(self._tail) is bytearray

    def collect(self, data: bytes) -> int:
        """Take the next piece of the large request; returns where in it the request ends, or -1.

        Raises:
            RequestTooLargeError: it has too many values or bytes.
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
        """The large request, which is complete.

        Raises:
            ValueError: it is not MessagePack.
        """
        data, self._tail, self._scan = self._tail, b"", None
        return unpack(data)

    # --- what is there --------------------------------------------------------------------------------------------

    def clear(self) -> None:
        """No request is incomplete."""
        self._tail, self._scan = b"", None

    @property
    def size(self) -> int:
        """Bytes of the incomplete request."""
        return len(self._tail)

    @property
    def values(self) -> int:
        """Values that the incomplete request holds so far."""
        return 0 if self._scan is None else self._scan.count

    @property
    def held_bytes(self) -> int:
        """What the incomplete request counts: as bytes it holds no values."""
        if self._scan is None:
            return len(self._tail)
        return len(self._tail) + (0 if self.is_collecting else VALUE_BYTES * self._scan.count)

    def head(self, size: int) -> bytes:
        """The begin of the incomplete request, where its msgid stands."""
        return bytes(self._tail[:size])

    # --- a client that has not said who it is -------------------------------------------------------------------------

    def add(self, data: bytes) -> bytes:
        """All that was not taken yet, these bytes last."""
        data, self._tail = bytes(self._tail) + data, b""
        return data

    def next_small(self, data: bytes, position: int) -> tuple[Any, int]:
        """The request at this position and where it ends; (None, -1) if it is not complete, and then it is kept.

        Raises:
            RequestTooLargeError: it is larger than a stranger's may be.
            ValueError: it is not MessagePack.
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
