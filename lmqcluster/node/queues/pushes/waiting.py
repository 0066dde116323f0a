"""Pushes that wait for room in a full queue, until this node knows their outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

from ....core.handlers.waiting_pushes import Waits
from ....core.log.commands import CancelPush, PushRows
from ....wire.errors import LmqError
from ...commit.proposer import PendingCommand
from ..sending.command_sender import CommandSender, ignore_result
from ..sending.log_waiters import LogWaiters
from ..sending.push_items import PushItem, Stored, stored
from ..sending.times import wait_us

__all__ = ["WaitingPushes"]


class WaitingPushes:
    """Sends such pushes.

    Their line is part of the replicated state: they are stored in order, whichever nodes they came through.
    """

    def __init__(self, sender: CommandSender, board: LogWaiters) -> None:
        self._sender = sender
        self._board = board
        self._loop = asyncio.get_running_loop()
        # The pushes that wait now; two tickets may wait for the same push.
        self._waiting: set[_Ticket] = set()
        self._closing: LmqError | None = None

    def push(
        self, queue: bytes, items: Sequence[PushItem], wait_s: float, owner: bytes
    ) -> Coroutine[Any, Any, list[Stored]]:
        """Store all messages or none; wait up to `wait_s` seconds of log time for room.

        The command is sent at once; the returned coroutine has the outcome. Cancelling its task withdraws the push,
        unless the push has been stored first.

        Raises:
            LmqError: ``full`` if there was no room in time; otherwise like `QueueService.push`.
        """
        sender = self._sender
        rows = [item.row(sender.due_times) for item in items]
        command = PushRows(queue, rows, owner, wait_us=wait_us(wait_s))
        answer: asyncio.Future[Any] = self._loop.create_future()
        ticket = _Ticket(self, owner)
        sender.proposer.add(PendingCommand(command, [answer], ticket), sum(item.size_bytes() for item in items))
        return self._outcome(answer, ticket)

    async def _outcome(self, answer: asyncio.Future[Any], ticket: _Ticket) -> list[Stored]:
        try:
            result = await answer
            if isinstance(result, asyncio.Future):
                result = await result
        except asyncio.CancelledError:
            ticket.abandon()
            raise
        except LmqError as exc:
            if self._closing is not None and exc.code == "full" and ticket.number:
                raise self._closing.again() from None
            raise
        finally:
            self._waiting.discard(ticket)
        return [stored(*one) for one in result]

    def waits(self, ticket: _Ticket) -> asyncio.Future[Any]:
        """Record that a push waits; return a future of its outcome."""
        self._waiting.add(ticket)
        if self._closing is not None:
            self.withdraw(ticket)
        return self._board.push(ticket.number)

    def withdraw(self, ticket: _Ticket) -> None:
        """Refuse a push, unless it is already stored, or a repetition of it waits too."""
        command = CancelPush(ticket.number, ticket.owner)
        self._sender.proposer.add_first(PendingCommand(command, [], ignore_result))

    def close(self, error: LmqError) -> None:
        """Withdraw the waiting pushes. Those that are not stored first are refused with `error`."""
        self._closing = error
        for ticket in self._waiting:
            self.withdraw(ticket)

    def reopen(self) -> None:
        """Allow pushes to wait again after `close`."""
        self._closing = None


class _Ticket:
    """Sink of one push: takes its result, or a future of it, before the notices of the same batch (`Sink`).

    Attributes:
        owner: owner of the push.
        number: the ticket under which the push waits, 0 while it does not.
    """

    def __init__(self, pushes: WaitingPushes, owner: bytes) -> None:
        self._pushes = pushes
        self.owner = owner
        self._is_abandoned = False
        self.number = 0

    def abandon(self) -> None:
        """Withdraw the push, now or when it begins to wait, because its task was cancelled."""
        self._is_abandoned = True
        if self.number:
            self._pushes.withdraw(self)

    def completed(self, pending: PendingCommand, result: Any) -> None:
        """Take the outcome: the push is stored, or waits."""
        future = pending.requests[0]
        if isinstance(result, Waits):
            self.number = result.ticket
            if self._is_abandoned:
                self.abandon()
                return
            result = self._pushes.waits(self)
        if not future.done():
            future.set_result(result)

    def failed(self, pending: PendingCommand, error: LmqError) -> None:
        """Take the error of a refused push."""
        future = pending.requests[0]
        if not future.done():
            future.set_exception(error.again())
