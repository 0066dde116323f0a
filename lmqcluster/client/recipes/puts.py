"""Storage of items, in the foreground or the background, within the bound of the queue."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from lmqcluster.wire.errors import LmqError, Outcome

from ..aio.client import AsyncClient
from ..options import PushOptions, random_key
from .shared.callers import logger
from .shared.errors import PutError

__all__ = ["Put", "Puts", "store"]

_BATCH_MAX = 256
_BATCH_BYTES = 4 * 1024 * 1024
_OUTSTANDING_MAX = 10_000
_OUTSTANDING_BYTES = 64 * 1024 * 1024
"""Maximum bytes that wait in the background. Beyond this or `_OUTSTANDING_MAX` messages, further puts wait."""
_REPEAT_S = 120.0
"""Time in seconds for which a put with unknown outcome is retried; well within the time for which the cluster stores its key."""
_ROOM_S = 60.0
"""Wait for room in seconds per request. If the caller of a put is cancelled, the cluster may still store it in this time."""
_FIRST_PAUSE_S, _PAUSE_S_MAX = 0.01, 0.25


@dataclass(eq=False)
class Put:
    """One message to store.

    Attributes:
        item: the item, or the list of items of a `put_multi`.
        body: the encoded message.
        options: options of the push.
    """

    item: Any
    is_multi: bool
    body: bytes
    options: PushOptions
    key: bytes = field(default_factory=random_key)


async def store(client: AsyncClient, queue: str, puts: Sequence[Put], deadline: float | None) -> bool:
    """Store messages atomically and exactly once; wait while the queue is full.

    Returns:
        False if several messages do not fit, or if the queue was still full at the deadline (loop time in seconds; None: none).

    Raises:
        LmqError: the messages were refused, or the outcome was unknown for two minutes.
    """
    loop = asyncio.get_running_loop()
    doubtful_since: float | None = None
    pause_s = _FIRST_PAUSE_S
    while True:
        try:
            await _push(client, queue, puts, _ROOM_S if deadline is None else min(deadline - loop.time(), _ROOM_S))
        except LmqError as error:
            now = loop.time()
            if error.code == "full":
                doubtful_since = None
                if len(puts) > 1 or (deadline is not None and now >= deadline):
                    return False
            elif error.retryable or error.outcome is Outcome.UNKNOWN:
                doubtful_since = now if doubtful_since is None else doubtful_since
                if now - doubtful_since >= _REPEAT_S:
                    raise
            else:
                raise
        else:
            return True
        remaining_s = pause_s if deadline is None else max(deadline - loop.time(), 0.0)
        await asyncio.sleep(min(pause_s, remaining_s))
        pause_s = min(2 * pause_s, _PAUSE_S_MAX)


async def _push(client: AsyncClient, queue: str, puts: Sequence[Put], wait_s: float) -> None:
    if len(puts) == 1 and wait_s > 0:
        (put,) = puts
        waiting: PushOptions = {**put.options, "key": put.key, "wait": wait_s}
        await client.push(queue, put.body, **waiting)
        return
    options = [put.options for put in puts]
    await client.push_many(queue, [put.body for put in puts], keys=[put.key for put in puts], options=options)


class Puts:
    """The puts of one queue object.

    Args:
        completed: called with each stored put.
        failed: called with each put that could not be stored in the background.
        bound: maximum number of messages in the queue, None without one.
    """

    def __init__(
        self,
        client: AsyncClient,
        queue: str,
        completed: Callable[[Put], Awaitable[None]],
        failed: Callable[[Put, Exception], Awaitable[None]],
        bound: int | None,
    ) -> None:
        self._client = client
        self._queue = queue
        self._completed = completed
        self._failed = failed
        self._bound = min(bound or _OUTSTANDING_MAX, _OUTSTANDING_MAX)
        self._waiting: deque[Put] = deque()
        self._in_background = 0
        self._bytes = 0
        self._in_foreground = 0
        self._failure: PutError | None = None
        self._changed = asyncio.Condition()
        self._sender: asyncio.Task[None] | None = None

    async def foreground(self, put: Put, deadline: float | None) -> bool:
        """Store a message; return False if the queue is full until the deadline."""
        self._in_foreground += 1
        try:
            stored = await store(self._client, self._queue, [put], deadline)
        except LmqError as error:
            raise PutError(self._queue, put.item, error) from error
        finally:
            self._in_foreground -= 1
            async with self._changed:
                self._changed.notify_all()
        if stored:
            await self._completed(put)
        return stored

    async def background(self, put: Put, deadline: float | None) -> bool:
        """Accept a message to store it later; return False if too many are waiting until the deadline."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(deadline), self._changed:
                await self._changed.wait_for(self._has_room)
        if not self._has_room():
            return False
        self._in_background += 1
        self._bytes += len(put.body)
        self._waiting.append(put)
        if self._sender is None:
            self._sender = asyncio.create_task(self._send_all())
        return True

    def _has_room(self) -> bool:
        return self._in_background < self._bound and self._bytes < _OUTSTANDING_BYTES

    async def flush(self, timeout_s: float | None) -> bool:
        """Wait until no put is outstanding; return False if some are after `timeout_s` seconds.

        Raises:
            PutError: a put in the background has failed since the last flush.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s), self._changed:
                await self._changed.wait_for(lambda: self._in_background + self._in_foreground == 0)
        if self._failure is not None:
            failure, self._failure = self._failure, None
            try:
                raise failure
            finally:
                # The error refers to this frame, so the variable would create a reference cycle.
                del failure
        return self._in_background + self._in_foreground == 0

    async def close(self) -> None:
        """Stop and discard puts that are not stored yet."""
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.wait([self._sender])
        if self._in_background:
            logger.warning("the queue %r was closed with %d puts outstanding", self._queue, self._in_background)

    async def _send_all(self) -> None:
        while self._waiting:
            batch = self._next_batch()
            await self._send(batch)
        self._sender = None

    def _next_batch(self) -> list[Put]:
        batch = [self._waiting.popleft()]
        size = len(batch[0].body)
        while self._waiting and len(batch) < _BATCH_MAX and size + len(self._waiting[0].body) <= _BATCH_BYTES:
            put = self._waiting.popleft()
            size += len(put.body)
            batch.append(put)
        return batch

    async def _send(self, batch: list[Put]) -> None:
        try:
            if await store(self._client, self._queue, batch, None):
                for put in batch:
                    await self._settle(put, None)
                return
        except LmqError as error:
            if len(batch) == 1:
                await self._settle(batch[0], error)
                return
            if error.outcome is Outcome.UNKNOWN:
                for put in batch:
                    await self._settle(put, error)
                return
        # If some do not fit or one is refused, none is stored, so their keys are still unused.
        for put in batch:
            await self._send([put])

    async def _settle(self, put: Put, error: LmqError | None) -> None:
        self._in_background -= 1
        self._bytes -= len(put.body)
        if error is None:
            await self._completed(put)
        else:
            logger.error("an item could not be put into the queue %r: %s", self._queue, error)
            self._failure = self._failure or PutError(self._queue, put.item, error)
            await self._failed(put, error)
        async with self._changed:
            self._changed.notify_all()
