"""The request headers that the queues' own hooks preserve, so that a push need not look at every queue with hooks."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["HookedNames"]


class HookedNames:
    """Names of headers, with the number of queues that preserve each."""

    def __init__(self) -> None:
        self._queues: dict[bytes, tuple[bytes, ...]] = {}
        self._counts: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._counts)

    def __contains__(self, name: bytes) -> bool:
        return name in self._counts

    def note(self, queue: bytes, names: Iterable[bytes]) -> None:
        """Set the names that a queue's own hooks preserve; none if it has no hooks any more."""
        counts = self._counts
        for name in self._queues.pop(queue, ()):
            counts[name] -= 1
            if not counts[name]:
                del counts[name]
        wanted = tuple(dict.fromkeys(names))
        if wanted:
            self._queues[queue] = wanted
        for name in wanted:
            counts[name] = counts.get(name, 0) + 1
