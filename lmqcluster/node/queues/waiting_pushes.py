"""Pushes that wait for room in a full queue, until this node knows what became of them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

from ...core import Op
from ...core.waiting_push_commands import Waits
from ...wire.errors import LmqError
from ..proposer import Group
from .notice_board import NoticeBoard
from .proposals import Proposals, unheard
from .push_items import PushItem, Stored, stored
from .times import wait_us

__all__ = ["WaitingPushes"]


class WaitingPushes:
    """Sends them. The line is part of the replicated state: whichever node a push came through, they are stored in order."""

    def __init__(self, proposals: Proposals, board: NoticeBoard) -> None:
        self._proposals = proposals
        self._board = board
        self._loop = asyncio.get_running_loop()
        # The owners of pushes that wait now.
        self._waiting: dict[int, bytes] = {}
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
        command = [Op.PUSH_OR_WAIT, queue, [item.row_with_options() for item in items], wait_us(wait_s)]
        command += proposals.owned(owner)
        answer: asyncio.Future[Any] = self._loop.create_future()
        sink = _Sink(self._board)
        proposals.proposer.add(Group(command, [answer], sink), sum(item.size_bytes() for item in items))
        return self._outcome(answer, sink, owner)

    async def _outcome(self, answer: asyncio.Future[Any], sink: _Sink, owner: bytes) -> list[Stored]:
        result = await answer
        if isinstance(result, asyncio.Future):
            result = await self._waited(result, sink.ticket, owner)
        return [stored(*one) for one in result]

    async def _waited(self, result: asyncio.Future[Any], ticket: int, owner: bytes) -> Any:
        self._waiting[ticket] = owner
        try:
            return await result
        except asyncio.CancelledError:
            self._withdraw(ticket, owner)
            raise
        except LmqError as exc:
            raise self._closing or exc if exc.code == "full" else exc from None
        finally:
            self._waiting.pop(ticket, None)

    def _withdraw(self, ticket: int, owner: bytes) -> None:
        command = [Op.CANCEL_PUSH, ticket, *self._proposals.owned(owner)]
        self._proposals.proposer.add_first(Group(command, [], unheard))

    def close(self, error: LmqError) -> None:
        """Withdraw what waits; what is not stored meanwhile is refused with `error`."""
        self._closing = error
        for ticket, owner in self._waiting.items():
            self._withdraw(ticket, owner)

    def reopen(self) -> None:
        """Let pushes wait again after `close`."""
        self._closing = None


class _Sink:
    """Takes the result, or what will tell it; before the notices of the same batch."""

    def __init__(self, board: NoticeBoard) -> None:
        self._board = board
        self.ticket = 0

    def completed(self, group: Group, result: Any) -> None:
        future = group.tickets[0]
        if isinstance(result, Waits):
            self.ticket = result.ticket
            result = self._board.push(result.ticket)
        if not future.done():
            future.set_result(result)

    def failed(self, group: Group, error: LmqError) -> None:
        future = group.tickets[0]
        if not future.done():
            future.set_exception(error)
