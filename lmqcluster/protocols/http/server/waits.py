"""Requests that wait for a message."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from ....node.access.access import Principal

__all__ = ["Waits"]

T = TypeVar("T")


class Waits:
    """Set of waiting requests. A node that stops answers them as if they had timed out."""

    __slots__ = ("_ended", "_tasks")

    def __init__(self) -> None:
        self._ended = False
        self._tasks: dict[asyncio.Task[Any], Principal] = {}

    async def run(self, principal: Principal, operation: Coroutine[Any, Any, T], nothing: T) -> T:
        """Return the result of an operation that may wait long, or `nothing` if the wait is ended during the operation."""
        task = asyncio.current_task()
        if self.have_ended() or task is None:
            operation.close()
            return nothing
        self._tasks[task] = principal
        try:
            return await operation
        except asyncio.CancelledError:
            # The task of a client that disconnected is cancelled too. Nothing reads its answer, so the error passes on.
            if not self.have_ended() and not principal.is_revoked:
                raise
            task.uncancel()
            return nothing
        finally:
            del self._tasks[task]

    def have_ended(self) -> bool:
        """Return whether `end` was called, because the node is stopping."""
        return self._ended

    def end(self) -> None:
        """End all waits, including later ones."""
        self._ended = True
        for task in self._tasks:
            task.cancel()

    def end_revoked(self) -> None:
        """End the waits of clients whose token is no longer valid."""
        for task, principal in self._tasks.items():
            if principal.is_revoked:
                task.cancel()
