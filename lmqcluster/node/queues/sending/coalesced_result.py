"""Results of commands into which several requests, each with several items, are coalesced."""

from __future__ import annotations

import asyncio
from typing import Any

from ....wire.errors import LmqError
from ...commit.proposer import PendingCommand

__all__ = ["CoalescedResult", "shares"]


class CoalescedResult:
    """The adjacent items of one request in a coalesced command.

    Attributes:
        outcome: future of the results of these items.
        count: number of items.
    """

    __slots__ = ("count", "outcome")

    def __init__(self, outcome: asyncio.Future[Any], count: int) -> None:
        self.outcome = outcome
        self.count = count


class _Shares:
    """Sink of coalesced commands (`Sink`); their requests repeat each `CoalescedResult` once per item."""

    def completed(self, pending: PendingCommand, result: list[Any] | None) -> None:
        position, requests = 0, pending.requests
        while position < len(requests):
            share: CoalescedResult = requests[position]
            end = position + share.count
            if not share.outcome.done():
                share.outcome.set_result(None if result is None else result[position:end])
            position = end

    def failed(self, pending: PendingCommand, error: LmqError) -> None:
        for share in dict.fromkeys(pending.requests):
            if not share.outcome.done():
                share.outcome.set_exception(error.again())


shares = _Shares()
