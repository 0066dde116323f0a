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
    from ....node.queues.service import QueueService
    from .replies.reply import Reply

__all__ = ["marked", "not_found", "refresh"]

PATIENCE_S = 1.0
_STALE = b"x-lmq-stale: true\r\n"


async def refresh(service: QueueService) -> bool:
    """Bring the local replica up to date within a second. Return whether it may still be stale."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            await service.sender.look_up()
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
