"""A store that knows which pages were announced before a batch was applied: no batch may load others."""

from __future__ import annotations

from typing import Any

import pytest

from lmqcluster.core import Machine
from tests.unit.core.page_store import MemoryPages

__all__ = ["ToldPages", "watch"]

_apply = Machine.apply


class ToldPages(MemoryPages):
    """Pages in memory.

    Attributes:
        told: the announced pages of the batch that is being applied; None between batches.
        untold: other pages that it has loaded.
    """

    def __init__(self) -> None:
        super().__init__()
        self.told: set[bytes] | None = None
        self.untold: list[bytes] = []

    def load(self, page: bytes) -> list[Any]:
        if self.told is not None and page not in self.told:
            self.untold.append(page)
        return super().load(page)


def watch(patch: pytest.MonkeyPatch) -> None:
    """Check each batch of a machine with such a store."""
    patch.setattr(Machine, "apply", _watched)


def _watched(self: Machine, now_us: int, origin: bytes, incarnation: int, sequence: int, commands: list[Any]) -> Any:
    store = self.backlogs.store
    if not isinstance(store, ToldPages):
        return _apply(self, now_us, origin, incarnation, sequence, commands)
    # Pages read lately may be evicted for those read first.
    store.told = {*self.pages_ahead(now_us, commands), *(chunk.page for chunk in self.backlogs._read_back)}
    try:
        return _apply(self, now_us, origin, incarnation, sequence, commands)
    finally:
        store.told = None
        untold, store.untold = store.untold, []
        assert not untold, f"{commands} loaded pages that were not told of"
