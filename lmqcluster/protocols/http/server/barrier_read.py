"""Reads that see what other nodes have acknowledged, as long as there is a quorum to ask.

Overviews must work when the cluster has lost its quorum: that is when they are looked at. What they show then may be old, so they
say so, and what a node does not know is no proof that it is not there.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ....node.queues.sending.naming import no_queue, shown
from ....wire.errors import LmqError

if TYPE_CHECKING:
    from ....node.queues.service import QueueService
    from .replies.reply import Reply

__all__ = ["marked", "not_found", "refresh"]

PATIENCE_S = 1.0
_STALE = b"x-lmq-stale: true\r\n"


async def refresh(service: QueueService) -> bool:
    """Bring the local replica up to date, if that can be done within a second; tells whether it is stale still."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            await service.barrier()
    except (TimeoutError, LmqError):
        return True
    return False


def marked(reply: Reply, *, stale: bool) -> Reply:
    """The answer, with the header ``x-lmq-stale`` if what it shows may be old."""
    if stale:
        reply.head += _STALE
    return reply


def not_found(name: bytes, *, stale: bool) -> LmqError:
    """The error for a queue that the local replica does not have."""
    if stale:
        reason = f"this node is cut off from the cluster and does not know whether there is a queue {shown(name)}; ask another"
        return LmqError("no_leader", reason)
    return no_queue(name)
