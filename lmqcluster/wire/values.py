"""Finds the end of a MessagePack value and counts the values in it without decoding them.

A value of one byte takes up to a hundred bytes after decoding, so requests, bodies and records have a limit of values too.
"""

from __future__ import annotations

__all__ = ["VALUES_MAX", "Scan", "TooManyValuesError"]

VALUES_MAX = 1_000_000
"""Most values in one request or body; each element of an array and each key and value of a map counts as one."""


class TooManyValuesError(ValueError):
    """The data contains or announces more values than the scan allows."""


def _sizes() -> list[int]:
    """Return, by first byte, the size of the token, or minus the size of its length field; minus 16 more for an extension."""
    sizes = [1] * 256
    for length in range(32):
        sizes[0xA0 + length] = 1 + length
    for first, size in ((0xCA, 5), (0xCB, 9), (0xDC, 3), (0xDD, 5), (0xDE, 3), (0xDF, 5)):
        sizes[first] = size
    for power in range(4):
        sizes[0xCC + power] = sizes[0xD0 + power] = 1 + (1 << power)
    for power in range(5):
        sizes[0xD4 + power] = 2 + (1 << power)
    for power in range(3):
        sizes[0xC4 + power] = sizes[0xD9 + power] = -(1 << power)
        sizes[0xC7 + power] = -(1 << power) - 16
    return sizes


def _children() -> list[int]:
    """Return, by first byte, the number of values inside this one, or -1 if the header of the container states it."""
    children = [0] * 256
    for count in range(16):
        children[0x90 + count] = count
        children[0x80 + count] = 2 * count
    for first in (0xDC, 0xDD, 0xDE, 0xDF):
        children[first] = -1
    return children


_SIZES = _sizes()
_CHILDREN = _children()


class Scan:
    """A scan of one value that arrives in pieces.

    Attributes:
        count: values found so far.
        pending: values that have not begun yet.
    """

    __slots__ = ("_most", "_rest", "_skip", "count", "pending")

    def __init__(self, values_max: int = VALUES_MAX) -> None:
        """Create a scan that allows `values_max` values."""
        self.count = 0
        self.pending = 1
        self._most = values_max
        self._skip = 0
        self._rest = b""

    def feed(self, data: bytes, position: int = 0) -> int:
        """Scan the next piece from `position` on; return the position where the value ends, or -1 if it continues.

        Raises:
            TooManyValuesError: the value has more values than allowed; raised as soon as this is certain.
        """
        before = len(self._rest)
        if before:
            data = self._rest + data[position:]
            self._rest = b""
            position, before = 0, before - position
        position += self._skip
        end, count, pending, most = len(data), self.count, self.pending, self._most
        sizes, children = _SIZES, _CHILDREN
        while pending and position < end:
            first = data[position]
            size = sizes[first]
            inside = children[first]
            if size <= 0:
                width = -size & 15
                if end - position <= width:
                    self._rest = data[position:]
                    break
                size = 1 + width + int.from_bytes(data[position + 1 : position + 1 + width], "big") + (size < -15)
            elif inside < 0:
                if end - position < size:
                    self._rest = data[position:]
                    break
                inside = int.from_bytes(data[position + 1 : position + size], "big") << (first > 0xDD)
            position += size
            count += 1
            pending += inside - 1
            if count + pending > most:
                raise TooManyValuesError(f"more than {most} values")
        self._skip = max(0, position - end)
        self.count, self.pending = count, pending
        return position - before if not pending and not self._skip else -1
