"""Pushes that wait for room in a full queue, until this node knows what became of them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

from ....core.handlers.waiting_pushes import Waits
from ....core.log import command_layout as layout
from ....wire.errors import LmqError
from ...commit.proposer import PendingCommand
from ..sending.command_sender import CommandSender, unheard
from ..sending.log_waiters import LogWaiters
from ..sending.push_items import PushItem, Stored, stored
from ..sending.times import wait_us

__all__ = ["WaitingPushes"]


class WaitingPushes:
    """Sends them. The line is part of the replicated state: whichever node a push came through, they are stored in order."""

    def __init__(self, proposals: CommandSender, board: LogWaiters) -> None:
        self._proposals = proposals
        self._board = board
        self._loop = asyncio.get_running_loop()
        # Those that wait now; two of them may wait for the same push.
        self._waiting: set[_Ticket] = set()
        self._closing: LmqError | None = None

    def push(
        self, queue: bytes, items: Sequence[PushItem], wait_s: float, owner: bytes
    ) -> Coroutine[Any, Any, list[Stored]]:
        """Store messages, all of them or none, waiting up to `wait_s` seconds of log time for room.

        The command is sent at once; what is returned tells the outcome.

        Cancelling the task withdraws the push, unless it is stored meanwhile.

        Raises:
            LmqError: ``full`` if there was no room in time; otherwise as `QueueService.push`.
        """
        proposals = self._proposals
        rows = [item.row_with_options(proposals.due_times) for item in items]
        command = layout.push_or_wait(queue, rows, wait_us(wait_s), *proposals.owned(owner))
        answer: asyncio.Future[Any] = self._loop.create_future()
        ticket = _Ticket(self, owner)
        proposals.proposer.add(PendingCommand(command, [answer], ticket), sum(item.size_bytes() for item in items))
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
        """A push waits now; what is returned tells what becomes of it."""
        self._waiting.add(ticket)
        if self._closing is not None:
            self.withdraw(ticket)
        return self._board.push(ticket.number)

    def withdraw(self, ticket: _Ticket) -> None:
        """Refuse a push, unless it is stored by now, or a repetition of it waits too."""
        command = layout.cancel_push(ticket.number, *self._proposals.owned(ticket.owner))
        self._proposals.proposer.add_first(PendingCommand(command, [], unheard))

    def close(self, error: LmqError) -> None:
        """Withdraw what waits; what is not stored meanwhile is refused with `error`."""
        self._closing = error
        for ticket in self._waiting:
            self.withdraw(ticket)

    def reopen(self) -> None:
        """Let pushes wait again after `close`."""
        self._closing = None


class _Ticket:
    """Takes the result of one push, or what will tell it, before the notices of the same batch (`Sink`).

    Attributes:
        owner: whose push it is.
        number: the ticket under which the push waits, 0 as long as it does not.
    """

    def __init__(self, pushes: WaitingPushes, owner: bytes) -> None:
        self._pushes = pushes
        self.owner = owner
        self._is_abandoned = False
        self.number = 0

    def abandon(self) -> None:
        """Nobody waits for the push any more; it is withdrawn now, or when it begins to wait."""
        self._is_abandoned = True
        if self.number:
            self._pushes.withdraw(self)

    def completed(self, group: PendingCommand, result: Any) -> None:
        """It is stored, or waits."""
        future = group.tickets[0]
        if isinstance(result, Waits):
            self.number = result.ticket
            if self._is_abandoned:
                self.abandon()
                return
            result = self._pushes.waits(self)
        if not future.done():
            future.set_result(result)

    def failed(self, group: PendingCommand, error: LmqError) -> None:
        """It is refused."""
        future = group.tickets[0]
        if not future.done():
            future.set_exception(error.again())
