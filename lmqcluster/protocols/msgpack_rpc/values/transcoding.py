"""Conversion of stored MessagePack to the form for LMQ's clients, in slices, so that large bodies do not block the node.

A body is one value in any form of MessagePack. Responses use only the types of the old specification. Small bodies are
decoded and encoded. A large body is scanned token by token, and only the heads of new string types are replaced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator

from ....wire.values import VALUES_MAX

__all__ = ["DECODED_BYTES_MAX", "SLICE_VALUES", "Transcoder", "old_form"]

SLICE_VALUES = 2000
"""Number of values between two turns of the event loop: about half a millisecond."""
DECODED_BYTES_MAX = 64 * 1024
"""Bytes of bodies that are decoded in one turn of the event loop. A larger body is scanned in slices."""
DEPTH_MAX = 500
"""Maximum nesting depth. Decoders refuse deeper values."""
_EXTENSIONS = frozenset((0xC1, *range(0xC7, 0xCA), *range(0xD4, 0xD9)))
"""First bytes that the old specification does not have or that are invalid in MessagePack."""
_FIXED = {0xC0: 1, 0xC2: 1, 0xC3: 1, 0xCA: 5, 0xCB: 9, **{0xCC + n: 1 + (1 << n % 4) for n in range(8)}}
_STRINGS = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
"""Size of the length field by first byte."""
_OLD_STRINGS = (0xDA, 0xDB)
_CONTAINERS = {0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4}


def _raw_head(size: int) -> bytes:
    if size < 32:
        return bytes((0xA0 | size,))
    return b"\xda" + size.to_bytes(2, "big") if size < 65536 else b"\xdb" + size.to_bytes(4, "big")


def _token(body: bytes, at: int) -> tuple[int, int, int]:
    """Return a token's size, the number of values inside it or -1, and the length of a string of a new type or -1.

    The size is 0 for a type that the old specification does not have. A truncated token reaches beyond the end.
    """
    first = body[at]
    if first < 0x80 or first >= 0xE0:
        return 1, -1, -1
    if first < 0xA0:
        return 1, (first & 0x0F) * (2 if first < 0x90 else 1), -1
    if first < 0xC0:
        return 1 + (first & 0x1F), -1, -1
    if first in _STRINGS:
        width = _STRINGS[first]
        length = int.from_bytes(body[at + 1 : at + 1 + width], "big")
        return 1 + width + length, -1, -1 if first in _OLD_STRINGS else length
    if first in _CONTAINERS:
        width = _CONTAINERS[first]
        return 1 + width, int.from_bytes(body[at + 1 : at + 1 + width], "big") << (first > 0xDD), -1
    return 0 if first in _EXTENSIONS else _FIXED[first], -1, -1


def old_form(body: bytes) -> Generator[None, None, bytes | None]:
    """Return the body's value in the old specification's types; None if it is not one value that they can express.

    Yields after every `SLICE_VALUES` values.
    """
    out: list[bytes] = []
    copied = position = count = 0
    # For each open container: the number of missing values, and whether it is a map, whose keys are at even numbers.
    open_ones: list[list[int]] = [[1, 0]]
    end = len(body)
    while open_ones:
        top = open_ones[-1]
        if not top[0]:
            open_ones.pop()
            continue
        if position >= end or count >= VALUES_MAX:
            return None
        is_key = top[1] and not top[0] % 2
        top[0] -= 1
        count += 1
        if not count % SLICE_VALUES:
            yield
        size, inside, new_length = _token(body, position)
        if not size or position + size > end:
            return None
        if new_length >= 0:
            out += (body[copied:position], _raw_head(new_length))
            copied = position + size - new_length
        if inside >= 0:
            if is_key or len(open_ones) > DEPTH_MAX:
                return None
            open_ones.append([inside, int(body[position] < 0x90 or body[position] > 0xDD)])
        position += size
    if position != end:
        return None
    out.append(body[copied:])
    return b"".join(out)


class Transcoder:
    """Limit on decoding per turn of the event loop, for all connections of a port together.

    Attributes:
        slices: number of scanned slices of large bodies, each in a separate turn.
    """

    def __init__(self) -> None:
        self.slices = 0
        self._turn = asyncio.Lock()
        self._left = DECODED_BYTES_MAX
        self._is_used = False

    def take(self, size: int) -> bool:
        """Use this many bytes of the turn's limit; return False if it has fewer left."""
        if size > self._left:
            return False
        if not self._is_used:
            self._is_used = True
            asyncio.get_running_loop().call_soon(self._reset)
        self._left -= size
        return True

    def _reset(self) -> None:
        self._left, self._is_used = DECODED_BYTES_MAX, False

    async def old_form(self, body: bytes) -> bytes | None:
        """Convert a body in slices, see the function `old_form`."""
        work = old_form(body)
        while True:
            # Waiting bodies get their slices in turn.
            async with self._turn:
                self.slices += 1
                try:
                    next(work)
                except StopIteration as done:
                    result: bytes | None = done.value
                    return result
                await asyncio.sleep(0)
