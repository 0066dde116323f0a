"""A thread beside the event loop for what blocks on the disk."""

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
    """Carries out work one piece after the other, in the order given, while the event loop goes on."""

    def run(self, work: Work, done: Done) -> None:
        """Carry out `work`, then call `done` from the event loop, with the exception if it raised one."""

    def close(self) -> None:
        """Wait for the work under way; what has not begun is dropped, and no `done` is called any more."""


class AtOnce:
    """A `Worker` for where nothing else goes on: work is done, and told, before `run` returns."""

    def run(self, work: Work, done: Done) -> None:
        try:
            work()
        except Exception as exc:  # noqa: BLE001 - it is handed to whoever gave the work
            done(exc)
        else:
            done(None)

    def close(self) -> None:
        """There is nothing to wait for."""


class ThreadWorker:
    """A `Worker` in a thread of its own."""

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
            except Exception as exc:  # noqa: BLE001 - it is handed to whoever gave the work
                self._tell_soon(done, exc)
            else:
                self._tell_soon(done, None)

    def _tell_soon(self, done: Done, error: Exception | None) -> None:
        if not self._closed:
            self._loop.call_soon_threadsafe(self._tell, done, error)

    def _tell(self, done: Done, error: Exception | None) -> None:
        if not self._closed:
            done(error)
