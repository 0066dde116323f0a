"""Copies of one message for all queues that match a pattern."""

from __future__ import annotations

from typing import Any

from ....core.log.commands import PushEach
from ....core.state.named_queues import NAMES_MAX
from ....wire.errors import LmqError
from ..patterns.patterns import check_pattern
from ..sending.command_sender import CommandSender

__all__ = ["QUEUES_MAX", "push_copies"]

QUEUES_MAX = 100_000
"""Most queues that one call reaches."""


async def push_copies(sender: CommandSender, pattern: bytes, row: list[Any], client: bytes) -> list[tuple[bytes, int]]:
    """Store a copy in every queue whose name matches the pattern; return (queue, flag) sorted by queue.

    The call reaches every queue whose creation was acknowledged before it and that is not deleted during it. A queue
    created during the call may or may not get a copy. Beyond 1,000 queues, each command reaches 1,000.

    Args:
        sender: sends the commands.
        pattern: searched for in the names.
        row: the message as in `PushEach`.
        client: the client that asks.

    Raises:
        LmqError: ``bad_pattern``, ``too_large``, ``overloaded``, ``quota_exceeded``, ``no_leader``; ``unknown_outcome``
            if the call failed half-way.
    """
    size = len(row[0]) + len(row[2])
    check_pattern(pattern)
    sender.check_push(size)
    names = await _names(sender, pattern, client)
    sender.check_push(size, copies=len(names))
    stored: list[tuple[bytes, int]] = []
    for start in range(0, len(names), NAMES_MAX):
        part = names[start : start + NAMES_MAX]
        try:
            stored += await sender.propose(PushEach(part, row), size + 64 + sum(map(len, part)))
        except LmqError as exc:
            if not stored:
                raise
            reason = f"{len(stored)} of {len(names)} queues had got their copies before this: {exc.message}"
            raise LmqError("unknown_outcome", reason) from exc
    return stored


async def _names(sender: CommandSender, pattern: bytes, client: bytes) -> list[bytes]:
    """Return the names of the queues that match the pattern, sorted."""
    view = sender.views.open(pattern, client)
    try:
        await sender.barrier()
        await sender.views.settled(view)
        if len(view.queues) > QUEUES_MAX:
            reason = (
                f"the regular expression finds {len(view.queues)} queues, more than {QUEUES_MAX}; use narrower ones"
            )
            raise LmqError("too_large", reason)
        return sorted(view.queues)
    finally:
        sender.views.release(view)
