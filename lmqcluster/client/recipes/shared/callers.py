"""Where the application's functions run: on the event loop, or in threads."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any, Protocol

__all__ = ["Caller", "OnLoop", "OnThreads", "logger"]

logger = logging.getLogger("lmqcluster.client.recipes")


class Caller(Protocol):
    """Calls functions of the application.

    Attributes:
        interruptible: whether a call ends when its task is cancelled.
        concurrency: how many consumer calls can run at once; None if it does not say.
    """

    interruptible: bool
    concurrency: int | None

    async def consume(self, function: Callable[..., Any], item: Any) -> BaseException | None:
        """Call a consumer; returns what it raised."""

    async def notify(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Call a listener; calls are made in order. Its exceptions are logged."""

    def close(self) -> None:
        """Make no more calls."""


def _log(function: Callable[..., Any], error: BaseException) -> None:
    logger.error("the listener %r of a queue failed", function, exc_info=error)


class OnLoop:
    """Calls on the event loop, and awaits what they return if it can be awaited."""

    interruptible = True
    concurrency: int | None = None

    async def consume(self, function: Callable[..., Any], item: Any) -> BaseException | None:
        """See `Caller`."""
        try:
            result = function(item)
            if inspect.isawaitable(result):
                await result
        except Exception as error:  # noqa: BLE001 - whatever the application raises
            return error
        return None

    async def notify(self, function: Callable[..., Any], *arguments: Any) -> None:
        """See `Caller`."""
        try:
            result = function(*arguments)
            if inspect.isawaitable(result):
                await result
        except Exception as error:  # noqa: BLE001 - whatever the application raises
            _log(function, error)

    def close(self) -> None:
        """See `Caller`."""


class OnThreads:
    """Calls consumers in an executor, and listeners in a thread of their own.

    Args:
        executor: the application's, which it shuts down itself. None: one thread.
    """

    interruptible = False

    def __init__(self, executor: Executor | None) -> None:
        self._executor = executor
        self._consumer = executor or ThreadPoolExecutor(1, "lmqcluster-consumer")
        self._listeners = ThreadPoolExecutor(1, "lmqcluster-listeners")
        self.concurrency: int | None = getattr(executor, "_max_workers", None)

    async def consume(self, function: Callable[..., Any], item: Any) -> BaseException | None:
        """See `Caller`."""
        return await asyncio.get_running_loop().run_in_executor(self._consumer, _outcome, function, item)

    async def notify(self, function: Callable[..., Any], *arguments: Any) -> None:
        """See `Caller`."""
        error = await asyncio.get_running_loop().run_in_executor(self._listeners, _outcome, function, *arguments)
        if error is not None:
            _log(function, error)

    def close(self) -> None:
        """See `Caller`."""
        if self._executor is None:
            self._consumer.shutdown(wait=False)
        self._listeners.shutdown(wait=False)


def _outcome(function: Callable[..., Any], *arguments: Any) -> BaseException | None:
    # Whatever is raised is a value for the event loop, which an exit or an interruption must not end.
    try:
        function(*arguments)
    except BaseException as error:  # noqa: BLE001
        return error
    return None
