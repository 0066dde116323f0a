"""Calls of the blocking client that inspect messages without taking them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from ..batches import Backlog, BatchColumns
from ..transport.requests import Name

if TYPE_CHECKING:
    from ..aio.client import AsyncClient

__all__ = ["SyncPeeks"]

T = TypeVar("T")


class SyncPeeks(ABC):
    """Backlog and peek calls of `AsyncClient`, each of which waits for its result."""

    _client: AsyncClient

    @abstractmethod
    def _run(self, call: Callable[[], Awaitable[T]]) -> T:
        """Run the call on the client's loop and wait for its result."""

    def backlog(
        self,
        *,
        queue: Name | None = None,
        pattern: Name | None = None,
        bytes_max: int | None = None,
        queues_max: int | None = None,
    ) -> Backlog:
        """Return the backlog, see `AsyncClient.backlog`."""
        return self._run(
            lambda: self._client.backlog(queue=queue, pattern=pattern, bytes_max=bytes_max, queues_max=queues_max)
        )

    def peek(
        self,
        queue: Name,
        count: int,
        start_sequence: int = 0,
        *,
        end_sequence: int | None = None,
        due_from_us: int | None = None,
        due_to_us: int | None = None,
        details: bool = False,
        bodies: bool = True,
    ) -> BatchColumns:
        """Return messages without taking them, see `AsyncClient.peek`."""
        return self._run(
            lambda: self._client.peek(
                queue,
                count,
                start_sequence,
                end_sequence=end_sequence,
                due_from_us=due_from_us,
                due_to_us=due_to_us,
                details=details,
                bodies=bodies,
            )
        )

    def peek_ranges(self, queue: Name, range_bytes: int, ranges_min: int = 1) -> list[int]:
        """Divide a queue into ranges of sequences, see `AsyncClient.peek_ranges`."""
        return self._run(lambda: self._client.peek_ranges(queue, range_bytes, ranges_min))
