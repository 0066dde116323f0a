"""Keeps what a node knows of tokens up to date: ends those that expire, and finds out whether there are any."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from ...core import Machine
from ...wire.errors import LmqError
from ..queues.service import QueueService
from .access import Access, time_of_day_us

__all__ = ["AccessUpkeep"]

log = structlog.get_logger("lmq.node")


class AccessUpkeep:
    """Follows the tokens of the replicated state.

    Args:
        machine: returns the local replica's machine, which a snapshot may replace.
    """

    def __init__(self, access: Access, machine: Callable[[], Machine]) -> None:
        self._access = access
        self._machine = machine
        self._settling: asyncio.Task[None] | None = None

    def follow(self) -> None:
        """The tokens or API keys have changed, or the machine is another one."""
        machine = self._machine()
        self._access.follow(machine.tokens, machine.api_keys, time_of_day_us())

    def tend(self, service: QueueService) -> None:
        """To be called again and again: end what has expired, and find out whether there are tokens if that is uncertain."""
        self._access.expire(self._machine().tokens, time_of_day_us())
        if self._access.is_uncertain and (self._settling is None or self._settling.done()):
            self._settling = asyncio.get_running_loop().create_task(self._settle(service))

    def close(self) -> None:
        """Find out nothing any more."""
        if self._settling is not None:
            self._settling.cancel()

    async def _settle(self, service: QueueService) -> None:
        """Find out whether the cluster has tokens that have not come here yet."""
        try:
            await service.barrier()
        except LmqError as exc:
            log.debug("tokens not known yet", reason=exc.message)
        else:
            self._access.settle()
