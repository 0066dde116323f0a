"""Callers of the application's functions, on the event loop or in threads."""

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
    """A caller of the application's functions.

    Attributes:
        interruptible: whether a call ends when its task is cancelled.
        concurrency: maximum number of concurrent consumer calls; None if unknown.
    """

    interruptible: bool
    concurrency: int | None

    async def consume(self, function: Callable[..., Any], item: Any) -> BaseException | None:
        """Call a consumer and return the exception that it raised, if any."""

    async def notify(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Call a listener, in the order of calls, and log its exceptions."""

    def close(self) -> None:
        """Stop making calls."""


def _log(function: Callable[..., Any], error: BaseException) -> None:
    logger.error("the listener %r of a queue failed", function, exc_info=error)


class OnLoop:
    """A caller on the event loop, which awaits results that are awaitable."""

    interruptible = True
    concurrency: int | None = None

    async def consume(self, function: Callable[..., Any], item: Any) -> BaseException | None:
        """See `Caller`."""
        try:
            result = function(item)
            if inspect.isawaitable(result):
                await result
        except Exception as error:  # noqa: BLE001 - the application may raise any exception
            return error
        return None

    async def notify(self, function: Callable[..., Any], *arguments: Any) -> None:
        """See `Caller`."""
        try:
            result = function(*arguments)
            if inspect.isawaitable(result):
                await result
        except Exception as error:  # noqa: BLE001 - the application may raise any exception
            _log(function, error)

    def close(self) -> None:
        """See `Caller`."""


class OnThreads:
    """A caller that runs consumers in an executor and listeners in a dedicated thread.

    Args:
        executor: executor of the application, which shuts it down itself. None: one thread.
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
    # Return every exception as a value, because an exit or an interruption must not end the event loop.
    try:
        function(*arguments)
    except BaseException as error:  # noqa: BLE001
        return error
    return None
