"""Reads that include all acknowledged changes while there is a quorum.

Overviews must also work after quorum loss, because operators use them then. Such an answer is marked as possibly stale.
A queue that is unknown to a stale replica may still exist.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ....node.queues.sending.naming import no_queue, shown
from ....wire.errors import LmqError

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from ....node.queues.service import QueueService
    from .replies.reply import Reply

__all__ = ["confirm", "marked", "not_found", "refresh"]

PATIENCE_S = 1.0
_STALE = b"x-lmq-stale: true\r\n"


async def refresh(service: QueueService) -> bool:
    """Bring the local replica and its log time up to date within a second. Return whether they may still be stale."""
    return await _fails(service.sender.barrier())


async def confirm(service: QueueService) -> bool:
    """Bring the local replica up to date like `refresh`, without a log entry if possible; the log time may be older."""
    return await _fails(service.sender.look_up())


async def _fails(read: Awaitable[None]) -> bool:
    try:
        async with asyncio.timeout(PATIENCE_S):
            await read
    except (TimeoutError, LmqError):
        return True
    return False


def marked(reply: Reply, *, stale: bool) -> Reply:
    """Return the answer, with the header ``x-lmq-stale`` if it may be stale."""
    if stale:
        reply.head += _STALE
    return reply


def not_found(name: bytes, *, stale: bool) -> LmqError:
    """Return the error for a queue that the local replica does not have."""
    if stale:
        reason = f"this node is cut off from the cluster and does not know whether there is a queue {shown(name)}; ask another"
        return LmqError("no_leader", reason)
    return no_queue(name)
