"""Collection of reference cycles in a node: soon, whatever they hold, and without stalling the event loop.

Python searches all containers for cycles, which takes more than a second with ten million messages. Messages contain no cycles,
and objects that have survived a few collections seldom become part of one. So these are frozen, and only newer objects are
searched. Python ignores how much memory a cycle holds, so the node checks whether its memory grows beyond what it accounts for.
If that growth continues, all objects are searched, however long it takes, because running out of memory is worse.
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

THRESHOLDS: Final = (5_000, 0, 0)
"""New containers that trigger a collection of the next generation; every third collection includes the oldest one."""
SET_ASIDE_S: Final = 0.0015
"""If a collection takes more processor time than this, its survivors are frozen, so that the next one is short again."""
PERIOD_S: Final = 0.25
GROWTH_BYTES: Final = 64 * 1024 * 1024
"""Growth of unaccounted memory that triggers a collection of the objects that are not frozen."""
FULL_GROWTH_BYTES: Final = 1024 * 1024 * 1024
"""Growth of unaccounted memory that triggers a collection of all objects; it doubles after one that freed too little."""


class GarbageCollection:
    """Garbage collection of this process.

    Args:
        accounted_bytes: returns the memory that the node accounts for.
        step_aside: called before a collection of all objects, so that the cluster does not wait for this process.
    """

    def __init__(self, accounted_bytes: Callable[[], int], step_aside: Callable[[], Awaitable[object]]) -> None:
        self._accounted_bytes = accounted_bytes
        self._step_aside = step_aside
        self._began_s = 0.0
        # The minimum of unaccounted memory since the last collection, and since the last one of all objects.
        self._least = self._least_full = self._excess()
        self._full_growth = FULL_GROWTH_BYTES

    @staticmethod
    def prepare() -> None:
        """Freeze the objects of the program itself. Call it once, after all imports."""
        gc.collect()
        gc.freeze()
        gc.set_threshold(*THRESHOLDS)

    async def keep(self) -> None:
        """Check periodically whether memory has grown, until cancelled."""
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
        """Collect objects that are not frozen, if unaccounted memory has grown.

        Returns:
            True if it has grown so much since the last full collection that all objects should be collected.
        """
        excess = self._excess()
        self._least, self._least_full = min(self._least, excess), min(self._least_full, excess)
        if excess - self._least > GROWTH_BYTES:
            gc.collect()
            self._least = excess = self._excess()
        return excess - self._least_full > self._full_growth

    def collect_all(self) -> None:
        """Collect all objects, including frozen ones."""
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
        # Thread time, because other work on the machine must not count.
        if phase == "start":
            self._began_s = time.thread_time()
        elif info["generation"] == len(THRESHOLDS) - 1 and time.thread_time() - self._began_s > SET_ASIDE_S:
            gc.freeze()
