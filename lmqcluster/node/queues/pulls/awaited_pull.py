"""The pull of a coroutine that waits for messages."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ....core.log.results import Delivered
from ....wire.errors import LmqError
from .wait_lists import Waiter

if TYPE_CHECKING:
    from ....ports import ConnectionSlot

__all__ = ["AwaitedPull"]


class AwaitedPull:
    """A coroutine that waits for messages (`DeliverySink`)."""

    __slots__ = ("closed", "future", "place", "waiting")

    def __init__(self, future: asyncio.Future[list[Delivered]], place: ConnectionSlot | None) -> None:
        self.future = future
        self.place = place
        self.closed = False
        self.waiting: set[Waiter] = set()

    def may_wait(self) -> bool:
        """Return that it may."""
        return True

    def pulled(self, _token: Any, delivered: list[Delivered]) -> None:
        """Hand out messages."""
        if not self.future.done():
            self.future.set_result(delivered)

    def pull_failed(self, _token: Any, error: LmqError) -> None:
        """Fail the pull."""
        if not self.future.done():
            self.future.set_exception(error.again())
