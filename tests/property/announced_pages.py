"""A store that knows which pages were announced before a batch was applied: no batch may load others.

A pull that skips expired or exhausted messages reads on behind them, which cannot be foreseen.
"""

from __future__ import annotations

from typing import Any

import pytest

from lmqcluster.core import Machine
from tests.unit.core.page_store import MemoryPages

__all__ = ["AnnouncedPages", "watch"]

_apply = Machine.apply


class AnnouncedPages(MemoryPages):
    """Pages in memory.

    Attributes:
        announced: the announced pages of the batch that is being applied; None between batches.
        unannounced: other pages that it has loaded.
    """

    def __init__(self) -> None:
        super().__init__()
        self.announced: set[bytes] | None = None
        self.unannounced: list[bytes] = []

    def load(self, page: bytes) -> list[Any]:
        if self.announced is not None and page not in self.announced:
            self.unannounced.append(page)
        return super().load(page)


def watch(patch: pytest.MonkeyPatch) -> None:
    """Check each batch of a machine with such a store."""
    patch.setattr(Machine, "apply", _watched)


def _watched(self: Machine, now_us: int, origin: bytes, incarnation: int, sequence: int, commands: list[Any]) -> Any:
    store = self.state.pager.store
    if not isinstance(store, AnnouncedPages):
        return _apply(self, now_us, origin, incarnation, sequence, commands)
    # Pages read lately may be evicted for those read first.
    store.announced = {*self.pages_ahead(now_us, commands), *(chunk.page for chunk in self.state.pager._read_back)}
    skipped = _skipped(self)
    try:
        return _apply(self, now_us, origin, incarnation, sequence, commands)
    finally:
        store.announced = None
        unannounced, store.unannounced = store.unannounced, []
        assert not unannounced or _skipped(self) > skipped, f"{commands} loaded pages that were not announced"


def _skipped(machine: Machine) -> int:
    """Return how many messages have expired or used up their deliveries."""
    counters = [queue.counters for queue in machine.state.queues.values()]
    return sum(one.expired_total + one.dropped_total + one.dead_lettered_total for one in counters)
