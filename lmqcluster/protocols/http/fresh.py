"""Reads that see what other nodes have acknowledged, as long as there is a quorum to ask."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ...wire.errors import LmqError

if TYPE_CHECKING:
    from ...node.service import QueueService

__all__ = ["refresh"]

PATIENCE_S = 1.0


async def refresh(service: QueueService) -> bool:
    """Bring the local replica up to date, if that can be done within a second; tells whether it was.

    Overviews must work when the cluster has lost its quorum: that is when they are looked at.
    """
    try:
        async with asyncio.timeout(PATIENCE_S):
            await service.barrier()
    except (TimeoutError, LmqError):
        return False
    return True
