"""Checks, sends and awaits the commands of the service."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

from ....core import State
from ....core.log.commands import Command, Create, Nack, Place
from ....core.log.results import RefusedError
from ....core.owners.quotas import Kind
from ....wire.errors import LmqError
from ....wire.legacy_msgpack import CONTENT_TYPE, head_bytes
from ....wire.limits import NAME_BYTES_MAX
from ...commit.proposer import PendingCommand, Proposer
from ...process.fair_slices import FairSlices
from ...process.memory import MESSAGE_OVERHEAD_BYTES
from ..patterns.views import PatternViews
from . import requests
from .due_times import DueTimes
from .push_items import PushItem

__all__ = ["CommandSender", "ignore_result"]

_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")
KEY_BYTES_MAX = 255
QUEUES_MAX = 1_000_000


class CommandSender:
    """Sends commands to the log, and refuses those that may not be sent.

    Args:
        proposer: takes commands.
        state: returns the local replica's state, which a snapshot may replace.
        views: the queues that match clients' patterns.
        turns: slices of the event loop for long work.
        due_times: converts the due times of pushes.
        message_bytes_max: largest body.
        attribute_bytes_max: most bytes of the attributes of a message.
        memory_bytes_max: pushes are refused above it.

    Attributes:
        fresh: waits until the replica shows all that was acknowledged before; returns False if it does not. None if
            there is no such function.
        stored_bytes: approximate memory of the replicated state; the node updates it.
        disk_shortage: why the disk must not take more data, empty if there is room; the node updates it.
    """

    def __init__(
        self,
        proposer: Proposer,
        state: Callable[[], State],
        views: PatternViews,
        turns: FairSlices,
        *,
        due_times: DueTimes,
        message_bytes_max: int,
        attribute_bytes_max: int,
        memory_bytes_max: int,
    ) -> None:
        self.proposer = proposer
        self.due_times = due_times
        self.state = state
        self.views = views
        self.turns = turns
        self.message_bytes_max = message_bytes_max
        self.attribute_bytes_max = attribute_bytes_max
        self.stored_bytes = 0
        self.disk_shortage = ""
        self._memory_bytes_max = memory_bytes_max
        self._loop = asyncio.get_running_loop()
        self.fresh: Callable[[], Awaitable[bool]] | None = None
        self._futures = _FutureSink()

    # --- commands -------------------------------------------------------------------------------------------------

    def nack(self, queue: bytes, numbers: list[int], place: Place, delay_us: int, reason: bytes = b"") -> Nack:
        """Return the command that gives messages back; without the reason while there is no room for pushes."""
        if not reason or self.stored_bytes > self._memory_bytes_max or self.disk_shortage:
            return Nack(queue, numbers, int(place), delay_us)
        return Nack(queue, numbers, int(place), delay_us, False, reason, self.attribute_bytes_max)

    # --- sending --------------------------------------------------------------------------------------------------

    async def barrier(self) -> None:
        """Wait until local reads show everything that was acknowledged anywhere before the call."""
        await self.ask(requests.barrier())

    async def look_up(self) -> None:
        """Wait like `barrier`, without a log entry if the other members answer."""
        if not await self.refresh():
            await self.barrier()

    async def refresh(self) -> bool:
        """Wait like `look_up` if that is possible soon without a log entry; False if local reads may be stale."""
        return self.fresh is not None and await self.fresh()

    async def ask(self, request: requests.Request) -> Any:
        """Carry out a request made by the functions of `requests`; return the result of the state machine."""
        return await self.send(*request)

    async def propose(self, command: Command, size_bytes: int) -> Any:
        """Carry out a command; return the result of the state machine."""
        return await self.send(command, size_bytes)

    def send(self, command: Command, size_bytes: int) -> asyncio.Future[Any]:
        """Send a command now; return a future of the result of the state machine."""
        future: asyncio.Future[Any] = self._loop.create_future()
        self.proposer.add(PendingCommand(command, [future], self._futures), size_bytes)
        return future

    # --- checks, shared with protocols that go to the proposer themselves ----------------------------------------

    def check_name(self, queue: bytes, owner: bytes = b"") -> None:
        """Refuse a name that no queue may have.

        If this node does not know the queue, the queue counts against the owner's quota when it is created.

        Raises:
            LmqError: ``bad_name``; ``overloaded`` if the name is new and there are too many queues or memory is full;
                ``quota_exceeded``.
        """
        state = self.state()
        queues = state.queues
        if queue in queues:
            return
        if not 0 < len(queue) <= NAME_BYTES_MAX:
            raise LmqError("bad_name", f"a queue name must have 1 to {NAME_BYTES_MAX} bytes, this has {len(queue)}")
        if _CONTROL.search(queue):
            raise LmqError("bad_name", "a queue name must not contain control characters")
        if len(queues) >= QUEUES_MAX:
            raise LmqError("overloaded", f"there are {len(queues)} queues, the limit; delete some")
        self.check_room()
        if owner:
            try:
                state.quotas.check(Kind.QUEUES, owner)
            except RefusedError as exc:
                raise LmqError(exc.code, exc.reason) from exc
            # The command that needs the queue follows. If this one is refused, that one creates the queue without an
            # owner, which also stays within a quota.
            self.proposer.add(PendingCommand(Create(queue, owner), [], ignore_result), 64 + len(queue))

    def check_room(self, more_bytes: int = 0) -> None:
        """Refuse data that would be stored if memory or the disk is full.

        Raises:
            LmqError: ``overloaded`` if memory or the disk is full.
        """
        if self.disk_shortage:
            raise LmqError("overloaded", f"{self.disk_shortage}; pull messages, delete queues or make room on the disk")
        if self.stored_bytes + more_bytes > self._memory_bytes_max:
            raise LmqError(
                "overloaded",
                f"messages, queues and properties take about {self.stored_bytes} bytes, the limit is"
                f" {self._memory_bytes_max}; pull messages, delete queues or raise memory_bytes_max",
            )

    def is_full(self) -> bool:
        """Return whether memory or the disk has no room for more messages."""
        return bool(self.disk_shortage) or self.stored_bytes > self._memory_bytes_max

    def check_push(self, size_bytes: int, copies: int = 1) -> None:
        """Refuse a body that cannot be stored in this number of copies.

        Raises:
            LmqError: ``too_large``, or ``overloaded`` if memory or the disk is full.
        """
        if size_bytes > self.message_bytes_max:
            raise LmqError(
                "too_large", f"the message has {size_bytes} bytes, more than the limit of {self.message_bytes_max}"
            )
        if self.stored_bytes > self._memory_bytes_max or self.disk_shortage or copies > 1:
            self.check_room((size_bytes + MESSAGE_OVERHEAD_BYTES) * copies if copies > 1 else 0)

    def check_packed(self, body: bytes) -> None:
        """Check a body in MessagePack like `check_push`; the header of a string does not count."""
        size = len(body)
        self.check_push(size if size <= self.message_bytes_max else size - head_bytes(body))

    def check_item(self, item: PushItem) -> None:
        """Refuse a message that cannot be stored.

        Raises:
            LmqError: like `check_push` and `check_key`, and ``bad_request``.
        """
        if item.content_type == CONTENT_TYPE:
            self.check_packed(item.content)
        else:
            self.check_push(len(item.content))
        self.check_key(item.key)
        if item.options is not None:
            item.options.check()

    def check_key(self, key: bytes | None) -> None:
        """Refuse an idempotency key of invalid length.

        Raises:
            LmqError: ``bad_request``.
        """
        if key is not None and not 0 < len(key) <= KEY_BYTES_MAX:
            raise LmqError("bad_request", f"an idempotency key must have 1 to {KEY_BYTES_MAX} bytes")

    def send_first(self, command: Command) -> asyncio.Future[None]:
        """Send a small command of the node itself before all waiting ones, even while clients are refused.

        The returned future is done when the command has an outcome, whether success or failure.
        """
        over: asyncio.Future[None] = self._loop.create_future()
        self.proposer.add_first(PendingCommand(command, [over], _over))
        return over


class _IgnoreResult:
    """Sink that ignores the outcome."""

    def completed(self, pending: PendingCommand, result: Any) -> None:
        """Ignore the result; later commands show the effect."""

    def failed(self, pending: PendingCommand, error: LmqError) -> None:
        """Ignore the error."""


ignore_result = _IgnoreResult()
"""The sink of commands whose outcome no caller needs."""


class _Over:
    """Sink of commands with one future, which is done as soon as there is an outcome."""

    def completed(self, pending: PendingCommand, result: Any) -> None:  # noqa: ARG002 - sinks have it
        future = pending.requests[0]
        if not future.done():
            future.set_result(None)

    def failed(self, pending: PendingCommand, error: LmqError) -> None:
        self.completed(pending, error)


_over = _Over()


class _FutureSink:
    """Sink of commands with one future, which takes the whole result."""

    def completed(self, pending: PendingCommand, result: Any) -> None:
        future = pending.requests[0]
        if not future.done():
            future.set_result(result)

    def failed(self, pending: PendingCommand, error: LmqError) -> None:
        future = pending.requests[0]
        if not future.done():
            future.set_exception(error.again())
