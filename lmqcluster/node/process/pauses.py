"""Pauses of the event loop and their causes, for finding what makes single requests slow.

A timer of the event loop beats every few milliseconds. A thread watches the beats. While one is late, the thread notes which
function the event loop's thread is in, so a pause is attributed to what was running when it became too long. Collections of
garbage are timed separately, because they run inside any function. If the event loop's thread has used little processor time,
other work on the machine, or another thread of the process, was running instead.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
from collections.abc import Mapping
from types import FrameType
from typing import Final

import structlog

__all__ = ["PauseWatch"]

log = structlog.get_logger("lmq.pauses")

BEAT_S: Final = 0.002
"""Period of the beats, and so about the error of a pause's duration."""
FRAMES_SHOWN: Final = 4
OWN_SHARE_MIN: Final = 0.5
"""If the event loop's thread ran for a smaller share of a pause than this, the cause is other work."""
PACKAGE: Final = "lmqcluster"


class PauseWatch:
    """Logs each pause of the event loop that is longer than `threshold_s` seconds, with its cause."""

    def __init__(self, threshold_s: float) -> None:
        self._threshold_s = threshold_s
        self._loop_thread = threading.get_ident()
        self._clock = time.pthread_getcpuclockid(self._loop_thread)
        self._beat_s = time.monotonic()
        self._ran_s = time.clock_gettime(self._clock)
        self._collected_s = self._collection_began_s = 0.0
        # The functions that ran when the present beat became late.
        self._stack: str | None = None
        self._stopped = threading.Event()

    async def keep(self) -> None:
        """Watch until cancelled."""
        thread = threading.Thread(target=self._watch, name="pauses", daemon=True)
        gc.callbacks.append(self._observe_collection)
        thread.start()
        self._begin()
        try:
            while True:
                await asyncio.sleep(BEAT_S)
                self._end()
                self._begin()
        finally:
            gc.callbacks.remove(self._observe_collection)
            self._stopped.set()
            thread.join()

    def _begin(self) -> None:
        self._stack = None
        self._collected_s = 0.0
        self._ran_s = time.clock_gettime(self._clock)
        self._beat_s = time.monotonic()

    def _end(self) -> None:
        pause_s = time.monotonic() - self._beat_s - BEAT_S
        if pause_s < self._threshold_s:
            return
        ran_s = time.clock_gettime(self._clock) - self._ran_s
        log.info(
            "event loop paused",
            ms=round(pause_s * 1000, 1),
            cause=self._cause(pause_s, ran_s),
            processor_ms=round(ran_s * 1000, 1),
            garbage_ms=round(self._collected_s * 1000, 1),
            at=self._stack,
        )

    def _cause(self, pause_s: float, ran_s: float) -> str:
        if self._collected_s > pause_s / 2:
            return "garbage collection"
        if ran_s < pause_s * OWN_SHARE_MIN:
            return "other work"
        return "the event loop"

    def _observe_collection(self, phase: str, _info: Mapping[str, int]) -> None:
        if phase == "start":
            self._collection_began_s = time.monotonic()
        else:
            self._collected_s += time.monotonic() - self._collection_began_s

    def _watch(self) -> None:
        """Note what runs while a beat is late. Runs in a thread."""
        while not self._stopped.wait(BEAT_S):
            if self._stack is None and time.monotonic() - self._beat_s - BEAT_S > self._threshold_s / 2:
                self._stack = _shown(sys._current_frames().get(self._loop_thread))


def _shown(frame: FrameType | None) -> str:
    """Return the innermost functions of a stack, preferably those of this package."""
    names: list[str] = []
    while frame is not None and len(names) < FRAMES_SHOWN:
        module = frame.f_globals.get("__name__", "")
        if not names or module.startswith(PACKAGE):
            names.append(f"{module.removeprefix(f'{PACKAGE}.')}.{frame.f_code.co_qualname}:{frame.f_lineno}")
        frame = frame.f_back
    return " < ".join(names)
