"""Commands that several requests share, with several items of each."""

from __future__ import annotations

import asyncio
from typing import Any

from ...wire.errors import LmqError
from ..proposer import Group

__all__ = ["Share", "shares"]


class Share:
    """The items of one request, which stand together in a command.

    Attributes:
        future: takes the results of these items; None if there was nothing to carry the command out on.
        count: how many they are.
    """

    __slots__ = ("count", "future")

    def __init__(self, future: asyncio.Future[Any], count: int) -> None:
        self.future = future
        self.count = count


class _Shares:
    """Groups whose tickets are shares, each of them once for each of its items (`Sink`)."""

    def completed(self, group: Group, result: list[Any] | None) -> None:
        position, tickets = 0, group.tickets
        while position < len(tickets):
            share: Share = tickets[position]
            end = position + share.count
            if not share.future.done():
                share.future.set_result(None if result is None else result[position:end])
            position = end

    def failed(self, group: Group, error: LmqError) -> None:
        for share in dict.fromkeys(group.tickets):
            if not share.future.done():
                share.future.set_exception(LmqError(error.code, error.message))


shares = _Shares()
