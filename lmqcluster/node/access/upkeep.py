"""Keeps the tokens that a node knows up to date: revokes expired ones, and finds out whether the cluster has any."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from ...core import State
from ...wire.errors import LmqError
from ..queues.service import QueueService
from .access import Access, time_of_day_us

__all__ = ["AccessUpkeep"]

log = structlog.get_logger("lmq.node")


class AccessUpkeep:
    """Follows the tokens of the replicated state.

    Args:
        state: returns the local replica's state, which a snapshot may replace.
    """

    def __init__(self, access: Access, state: Callable[[], State]) -> None:
        self._access = access
        self._state = state
        self._settling: asyncio.Task[None] | None = None

    def follow(self) -> None:
        """Take over changed tokens and API keys, or those of a new machine."""
        state = self._state()
        self._access.follow(state.tokens, state.api_keys, time_of_day_us())

    def revoke_expired(self, service: QueueService) -> None:
        """Revoke expired tokens and, if it is uncertain, find out whether there are tokens; called periodically."""
        self._access.expire(self._state().tokens, time_of_day_us())
        if self._access.is_uncertain and (self._settling is None or self._settling.done()):
            self._settling = asyncio.get_running_loop().create_task(self._settle(service))

    def close(self) -> None:
        """Stop finding out."""
        if self._settling is not None:
            self._settling.cancel()

    async def _settle(self, service: QueueService) -> None:
        """Find out whether the cluster has tokens that this node does not know yet."""
        try:
            await service.sender.barrier()
        except LmqError as exc:
            log.debug("tokens not known yet", reason=exc.message)
        else:
            self._access.settle()
