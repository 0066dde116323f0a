"""How many values a MessagePack stream holds, counted without building them.

A value of one byte takes up to a hundred when it is decoded, so large requests and bodies are bounded by values too.
"""

from __future__ import annotations

__all__ = ["VALUES_MAX", "ValueCounter"]

VALUES_MAX = 1_000_000
"""Most values in one request or body, each element of an array and each key and value of a map counting as one."""


def _sizes() -> list[int]:
    """By first byte: the size of the whole token, or minus the size of its length field, or that minus 16 for an extension."""
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


_SIZES = _sizes()


class ValueCounter:
    """Counts the values of a stream that comes in pieces."""

    __slots__ = ("_rest", "_skip", "count")

    def __init__(self) -> None:
        self.count = 0
        self._skip = 0
        self._rest = b""

    def feed(self, data: bytes) -> bool:
        """Take the next piece; False as soon as there are more than `VALUES_MAX` values."""
        if self._rest:
            data = self._rest + data
            self._rest = b""
        position, end, count = self._skip, len(data), self.count
        sizes = _SIZES
        while position < end and count <= VALUES_MAX:
            size = sizes[data[position]]
            if size <= 0:
                width = -size & 15
                if end - position <= width:
                    self._rest = data[position:]
                    break
                size = 1 + width + int.from_bytes(data[position + 1 : position + 1 + width], "big") + (size < -15)
            position += size
            count += 1
        self._skip = max(0, position - end)
        self.count = count
        return count <= VALUES_MAX
