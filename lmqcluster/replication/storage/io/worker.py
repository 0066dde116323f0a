"""A thread beside the event loop for work that blocks on the disk."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Protocol

__all__ = ["AtOnce", "ThreadWorker", "Work", "Worker"]

Work = Callable[[], None]
Done = Callable[[Exception | None], None]


class Worker(Protocol):
    """Carries out work, one piece after the other in the given order, while the event loop continues."""

    def run(self, work: Work, done: Done) -> None:
        """Carry out `work`, then call `done` from the event loop, with the exception if it raised one."""

    def close(self) -> None:
        """Wait for the running work; drop work that has not begun, and call no more `done`."""


class AtOnce:
    """A `Worker` without concurrency: work is carried out and `done` called before `run` returns."""

    def run(self, work: Work, done: Done) -> None:
        try:
            work()
        except Exception as exc:  # noqa: BLE001 - passed to `done`
            done(exc)
        else:
            done(None)

    def close(self) -> None:
        """Do nothing: no work is running."""


class ThreadWorker:
    """A `Worker` with a dedicated thread."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[tuple[Work, Done] | None] = queue.SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Work, done: Done) -> None:
        self._queue.put((work, done))

    def close(self) -> None:
        self._closed = True
        self._queue.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (job := self._queue.get()) is not None and not self._closed:
            work, done = job
            try:
                work()
            except Exception as exc:  # noqa: BLE001 - passed to `done`
                self._tell_soon(done, exc)
            else:
                self._tell_soon(done, None)

    def _tell_soon(self, done: Done, error: Exception | None) -> None:
        if not self._closed:
            self._loop.call_soon_threadsafe(self._tell, done, error)

    def _tell(self, done: Done, error: Exception | None) -> None:
        if not self._closed:
            done(error)
