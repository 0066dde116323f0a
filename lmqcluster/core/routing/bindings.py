"""Bindings: queues that get a copy of each push to another one."""

from __future__ import annotations

from collections.abc import Iterator

from ..log.results import RefusedError, shown

__all__ = ["BOUND_MAX", "SOURCES_MAX", "Bindings"]

BOUND_MAX = 100
"""Most queues that are bound to one."""
SOURCES_MAX = 1_000
"""Most queues that one is bound to, including those that no longer exist."""


class Bindings:
    """Source and target names. A binding ends with its target, and outlives its source."""

    def __init__(self) -> None:
        self._count = 0
        self._targets: dict[bytes, dict[bytes, None]] = {}
        self._sources: dict[bytes, dict[bytes, None]] = {}

    def __len__(self) -> int:
        return self._count

    def targets(self, source: bytes) -> list[bytes]:
        """Return the queues bound to this one, in the order in which they were bound."""
        return list(self._targets.get(source, ()))

    def has_targets(self, source: bytes) -> bool:
        """Return whether a queue is bound to this one."""
        return source in self._targets

    def sources(self, target: bytes) -> list[bytes]:
        """Return the queues that this one is bound to."""
        return list(self._sources.get(target, ()))

    def parent(self, name: bytes) -> bytes | None:
        """Return the parent of a queue: it is bound to its parent and named after it, as ``parent+child``."""
        parent = name.partition(b"+")[0] if b"+" in name else b""
        return parent if parent in self._sources.get(name, ()) else None

    def children(self, name: bytes) -> list[bytes]:
        """Return the children of a queue."""
        return [target for target in self._targets.get(name, ()) if self.parent(target) == name]

    def check(self, source: bytes, target: bytes) -> None:
        """Refuse a new binding if either queue has too many.

        Raises:
            RefusedError: ``quota_exceeded``.
        """
        bound, sources = self._targets.get(source, {}), self._sources.get(target, {})
        if target in bound:
            return
        if len(bound) >= BOUND_MAX:
            raise RefusedError("quota_exceeded", f"{BOUND_MAX} queues are bound to {shown(source)}, which is the limit")
        if len(sources) >= SOURCES_MAX:
            raise RefusedError(
                "quota_exceeded", f"{shown(target)} is bound to {SOURCES_MAX} queues, which is the limit"
            )

    def bind(self, source: bytes, target: bytes) -> bool:
        """Bind a queue to another one; False if it is bound already."""
        if target in self._targets.get(source, ()):
            return False
        self._count += 1
        self._targets.setdefault(source, {})[target] = None
        self._sources.setdefault(target, {})[source] = None
        return True

    def unbind(self, source: bytes, target: bytes) -> bool:
        """Remove a binding; False if there is none."""
        bound = self._targets.get(source, {})
        if target not in bound:
            return False
        self._count -= 1
        _take_out(self._targets, source, target)
        _take_out(self._sources, target, source)
        return True

    def deleted(self, name: bytes) -> list[bytes]:
        """Remove the bindings of a deleted queue to its sources; return these sources."""
        sources = self.sources(name)
        for source in sources:
            self.unbind(source, name)
        return sources

    def rows(self) -> Iterator[list[bytes]]:
        """Return [source, target] of each binding."""
        return iter([[source, target] for source, bound in self._targets.items() for target in bound])


def _take_out(table: dict[bytes, dict[bytes, None]], key: bytes, value: bytes) -> None:
    del table[key][value]
    if not table[key]:
        del table[key]
