"""A sharder that spreads items over several queues, for asyncio."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from lmqcluster.wire.errors import LmqError

from ..aio.client import AsyncClient
from .base import QueueBase
from .shared.callers import logger
from .shared.errors import QueueStateError

__all__ = ["QueueSharder", "QueueSharderPolicies"]

Q = TypeVar("Q", bound=QueueBase[Any])


@dataclass(frozen=True, kw_only=True)
class QueueSharderPolicies:
    """Conditions for a new shard.

    Attributes:
        new_queue_threshold: number of messages at which a shard receives no more; at half of it, the shard receives items again.
        threshold_check: seconds between checks.
        max_queues: maximum number of shards.
    """

    new_queue_threshold: int = 10_000
    threshold_check: float = 30.0
    max_queues: int = 10

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises:
            ValueError: a value is out of range.
        """
        if min(self.new_queue_threshold, self.max_queues) < 1 or self.threshold_check <= 0:
            raise ValueError("new_queue_threshold and max_queues must be 1 or more, threshold_check above 0")


class QueueSharder(Generic[Q]):
    """A sharder that spreads items over queues ``NAME/1``, ``NAME/2`` and so on. Order holds only within a shard.

    Shards are numbered, so sharders that need a new one at the same time create the same one without a leader.
    """

    def __init__(
        self,
        client: AsyncClient,
        allocator: Callable[[AsyncClient, str], Q],
        name: str,
        leader_name: str | None = None,  # noqa: ARG002
        policies: QueueSharderPolicies | None = None,
    ) -> None:
        """Configure the sharder without sending anything.

        Args:
            client: the client to use, which the application closes.
            allocator: creates the queue object of a shard.
            name: prefix of the names of the shards.
            leader_name: ignored; accepted from code written for Curator.
            policies: default `QueueSharderPolicies()`.
        """
        self._client = client
        self._allocator = allocator
        self._name = name
        self._policies = policies or QueueSharderPolicies()
        self._shards: dict[str, Q] = {}
        self._preferred: set[str] = set()
        self._checker: asyncio.Task[None] | None = None
        self._started = self._closed = False

    async def start(self) -> None:
        """Open all shards, or create the first.

        Raises:
            QueueStateError: the sharder was already started.
            LmqError: the cluster is unreachable, or refuses a request.
        """
        if self._started or self._closed:
            raise QueueStateError(f"the sharder of {self._name!r} was started before")
        self._started = True
        try:
            await self._open_up_to(max(1, await self._stored()))
        except BaseException:
            await self.close()
            raise
        # Start the checker last: if it opened shards at the same time, both would open the same one.
        self._checker = asyncio.create_task(self._check_again())

    async def close(self) -> None:
        """Close all shards. A no-op the second time."""
        if self._closed:
            return
        self._closed = True
        if self._checker is not None:
            self._checker.cancel()
            await asyncio.wait([self._checker])
        for shard in self._shards.values():
            await shard.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def get_queue(self) -> Q:
        """Return a shard that is not full, or any shard if all are full.

        Raises:
            QueueStateError: the sharder is not started, or closed.
        """
        if self._closed or not self._shards:
            raise QueueStateError(f"the sharder of {self._name!r} is {'closed' if self._closed else 'not started'}")
        return self._shards[random.choice(sorted(self._preferred or self._shards))]

    @property
    def shard_quantity(self) -> int:
        """Number of shards that this sharder knows."""
        return len(self._shards)

    @property
    def queue_names(self) -> frozenset[str]:
        """Names of the shards that this sharder knows."""
        return frozenset(self._shards)

    def _shard_name(self, number: int) -> str:
        return f"{self._name}/{number}"

    async def _stored(self) -> int:
        """Return the number of shards in the cluster."""
        number = 0
        while await self._exists(self._shard_name(number + 1)):
            number += 1
        return number

    async def _exists(self, queue: str) -> bool:
        try:
            await self._client.peek(queue, 1)
        except LmqError as error:
            if error.code != "queue_not_found":
                raise
            return False
        return True

    async def _open_up_to(self, count: int) -> None:
        for number in range(len(self._shards) + 1, count + 1):
            name = self._shard_name(number)
            shard = self._allocator(self._client, name)
            await shard.start()
            self._shards[name] = shard
            self._preferred.add(name)

    async def _check_again(self) -> None:
        while True:
            await asyncio.sleep(self._policies.threshold_check)
            try:
                await self._check()
            except LmqError as error:
                logger.warning("the shards of %r could not be checked: %s", self._name, error)

    async def _check(self) -> None:
        await self._open_up_to(await self._stored())
        threshold = self._policies.new_queue_threshold
        for name, shard in self._shards.items():
            count = await shard.message_count()
            if count >= threshold:
                self._preferred.discard(name)
            elif count <= threshold / 2:
                self._preferred.add(name)
        if self._preferred:
            return
        if len(self._shards) < self._policies.max_queues:
            await self._open_up_to(len(self._shards) + 1)
        else:
            logger.warning("all %d shards of %r are full", len(self._shards), self._name)
