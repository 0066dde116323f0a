"""Commands that several requests share, with several items of each."""

from __future__ import annotations

import asyncio
from typing import Any

from ....wire.errors import LmqError
from ...commit.proposer import PendingCommand

__all__ = ["CoalescedResult", "shares"]


class CoalescedResult:
    """The items of one request, which stand together in a command.

    Attributes:
        outcome: takes the results of these items.
        count: how many they are.
    """

    __slots__ = ("count", "outcome")

    def __init__(self, outcome: asyncio.Future[Any], count: int) -> None:
        self.outcome = outcome
        self.count = count


class _Shares:
    """Groups whose tickets are shares, each of them once for each of its items (`Sink`)."""

    def completed(self, group: PendingCommand, result: list[Any] | None) -> None:
        position, tickets = 0, group.tickets
        while position < len(tickets):
            share: CoalescedResult = tickets[position]
            end = position + share.count
            if not share.outcome.done():
                share.outcome.set_result(None if result is None else result[position:end])
            position = end

    def failed(self, group: PendingCommand, error: LmqError) -> None:
        for share in dict.fromkeys(group.tickets):
            if not share.outcome.done():
                share.outcome.set_exception(error.again())


shares = _Shares()
