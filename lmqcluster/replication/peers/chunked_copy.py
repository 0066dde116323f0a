"""Copies of large bytes in several turns of the event loop, so that heartbeats and others can run between them.

Where memory allocation is slow, as on a virtual machine whose host reclaims free memory, copying 64 MiB in one turn
takes longer than an election time.
"""

from __future__ import annotations

import asyncio
import io
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

__all__ = ["ChunkedCopy"]

SLICE_BYTES: Final = 1024 * 1024
"""Approximate number of bytes copied in one turn."""

Joined = Callable[[io.BytesIO], None]


class ChunkedCopy:
    """Copies one after the other, in the order of the requests."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[_Join] = deque()
        self._is_closed = False

    def join(self, parts: Iterable[bytes], done: Joined) -> None:
        """Copy `parts` into one stream, then call `done` with it in a later turn."""
        self._waiting.append(_Join(deque(memoryview(part) for part in parts), done))
        if len(self._waiting) == 1:
            self._loop.call_soon(self._go_on)

    def close(self) -> None:
        """Stop; call no more `done`."""
        self._is_closed = True
        self._waiting.clear()

    def _go_on(self) -> None:
        if self._is_closed:
            return
        join = self._waiting[0]
        join.copy(SLICE_BYTES)
        if join.is_complete:
            self._waiting.popleft()
            join.done(join.stream)
        if self._waiting:
            self._loop.call_soon(self._go_on)


class _Join:
    def __init__(self, parts: deque[memoryview], done: Joined) -> None:
        self.done = done
        self._parts = parts
        # Zeroed memory that the stream returns in the end without copying it.
        self.stream = io.BytesIO(bytes(sum(map(len, parts))))

    @property
    def is_complete(self) -> bool:
        return not self._parts

    def copy(self, size: int) -> None:
        """Copy about `size` bytes."""
        while self._parts and size > 0:
            part = self._parts.popleft()
            if len(part) > size:
                self._parts.appendleft(part[size:])
                part = part[:size]
            size -= self.stream.write(part)
