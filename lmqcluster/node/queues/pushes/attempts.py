"""Pushes that clients repeat under attempts. Those of all clients of an owner share commands of the log."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ....core.log.commands import PushAttempts
from ....wire.errors import LmqError
from ....wire.limits import PUSH_COUNT_MAX
from ...commit.proposer import PendingCommand
from ..sending.coalesced_result import CoalescedResult, shares
from ..sending.command_sender import CommandSender
from ..sending.push_items import PushItem

__all__ = ["AttemptedPushes"]


class AttemptedPushes:
    """Sends such pushes."""

    def __init__(self, sender: CommandSender) -> None:
        self._sender = sender
        self._loop = asyncio.get_running_loop()

    def push(
        self, queue: bytes, items: Sequence[PushItem], owner: bytes = b""
    ) -> asyncio.Future[list[tuple[int, int]]]:
        """Send messages to an existing queue, each with an attempt of 1 to 255 bytes of the owner as its key, or None.

        A message whose attempt on this queue is known is not stored again. Attempts are remembered for five minutes, the latest
        100,000 of an owner, and refuse no push. The future has a flag and a sequence for each message; a queue may refuse some
        of them, whose flags show it.

        Raises:
            LmqError: a message cannot be sent. The future raises ``queue_not_found``, ``suspended``, and if no outcome is known.
        """
        sender = self._sender
        if len(items) > PUSH_COUNT_MAX:
            raise LmqError("too_large", f"a batch may have at most {PUSH_COUNT_MAX} messages, this has {len(items)}")
        for item in items:
            sender.check_item(item)
        rows = [item.row(sender.due_times) for item in items]
        return self.push_rows(queue, rows, sum(item.size_bytes() for item in items), owner)

    def push_rows(
        self, queue: bytes, rows: list[list[object]], size_bytes: int, owner: bytes
    ) -> asyncio.Future[list[tuple[int, int]]]:
        """Send messages like `push`, as rows of `PushAttempts` that passed its checks; `size_bytes` is their approximate size."""
        sender = self._sender
        outcome: asyncio.Future[list[tuple[int, int]]] = self._loop.create_future()
        requests = [CoalescedResult(outcome, len(rows))] * len(rows)
        command = sender.proposer.open_command(shares, PushAttempts, queue, 0)
        if command is not None and command.owner == owner:
            command.rows += rows
            sender.proposer.share(size_bytes, *requests)
        else:
            sender.proposer.add(PendingCommand(PushAttempts(queue, rows, owner), requests, shares), size_bytes + 64)
        return outcome
