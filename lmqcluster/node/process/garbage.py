"""How a node finds reference cycles: soon, whatever they hold, and without stopping the event loop for long.

Python looks for cycles among all containers that there are, which takes more than a second with ten million messages. Messages
hold no cycles, and what has survived a few collections seldom becomes part of one. So it is set aside, and only what has come
since is looked at. How much memory a cycle holds does not matter to Python, so the node looks for itself whether its memory
grows by more than it knows of. If that goes on, everything is looked at, however long it takes: to run out of memory is worse.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import structlog

from .memory import resident_bytes

__all__ = ["GarbageCollection"]

log = structlog.get_logger("lmq.memory")

THRESHOLDS: Final = (15_000, 0, 0)
"""New containers after which the next generation is looked at; so the oldest one is with every third collection."""
SET_ASIDE_S: Final = 0.003
"""Processor time of a collection after which what it has left is set aside, so that the next one is short again."""
PERIOD_S: Final = 0.25
GROWTH_BYTES: Final = 64 * 1024 * 1024
"""Memory that nothing accounts for may grow by so much before a collection of what has come since."""
FULL_GROWTH_BYTES: Final = 1024 * 1024 * 1024
"""The same for a collection of everything; after one that has not helped, by twice as much as before."""


class GarbageCollection:
    """The garbage collector of this process, as long as it is open.

    Args:
        accounted_bytes: returns how much memory the node knows of.
        step_aside: called before everything is looked at, so that nobody waits for this process.
    """

    def __init__(self, accounted_bytes: Callable[[], int], step_aside: Callable[[], Awaitable[object]]) -> None:
        self._accounted_bytes = accounted_bytes
        self._step_aside = step_aside
        self._began_s = 0.0
        # The least memory that nothing accounts for since the last collection, and since the last one of everything.
        self._least = self._least_full = self._excess()
        self._full_growth = FULL_GROWTH_BYTES

    @staticmethod
    def prepare() -> None:
        """Set aside what the program itself consists of. Call it once, when everything is imported."""
        gc.collect()
        gc.freeze()
        gc.set_threshold(*THRESHOLDS)

    async def keep(self) -> None:
        """Look again and again whether memory has grown."""
        gc.callbacks.append(self._observe)
        try:
            while True:
                await asyncio.sleep(PERIOD_S)
                if self.look():
                    await self._step_aside()
                    self.collect_all()
        finally:
            gc.callbacks.remove(self._observe)

    def look(self) -> bool:
        """Collect what has come, if memory has grown by more than the node knows of.

        Returns:
            Whether it has grown by so much since the last time that everything should be collected.
        """
        excess = self._excess()
        self._least, self._least_full = min(self._least, excess), min(self._least_full, excess)
        if excess - self._least > GROWTH_BYTES:
            gc.collect()
            self._least = excess = self._excess()
        return excess - self._least_full > self._full_growth

    def collect_all(self) -> None:
        """Collect also what was set aside."""
        before, began_s = self._excess(), time.monotonic()
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        self._least = self._least_full = self._excess()
        freed = before - self._least
        self._full_growth = FULL_GROWTH_BYTES if freed > self._full_growth // 2 else 2 * self._full_growth
        log.warning(
            "memory grew by more than the node accounts for; all of it was searched for garbage",
            freed_bytes=freed,
            seconds=round(time.monotonic() - began_s, 3),
        )

    def _excess(self) -> int:
        return (resident_bytes() or 0) - self._accounted_bytes()

    def _observe(self, phase: str, info: Mapping[str, int]) -> None:
        # Other work on the machine makes no collection longer.
        if phase == "start":
            self._began_s = time.thread_time()
        elif info["generation"] == len(THRESHOLDS) - 1 and time.thread_time() - self._began_s > SET_ASIDE_S:
            gc.freeze()
