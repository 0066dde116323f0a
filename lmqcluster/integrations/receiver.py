"""Pulls messages of one queue while there is room for them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from lmqcluster.client import Client, Message
from lmqcluster.wire.errors import LmqError

__all__ = ["Receiver"]

_PAUSE_S = 0.5
"""Delay after a pull that the cluster refused."""


class Receiver:
    """Waits for messages on the event loop of a blocking client.

    Args:
        queue: name of the queue in the cluster.
        room: returns how many messages may be pulled now.
        pull: waits for up to a number of messages of a queue; runs on the event loop.
        received: processes messages; runs on the event loop and must not block.
    """

    def __init__(
        self,
        client: Client,
        queue: str,
        room: Callable[[], int],
        pull: Callable[[str, int], Awaitable[list[Message]]],
        received: Callable[[list[Message]], None],
        logger: logging.Logger,
    ) -> None:
        self._client = client
        self._queue = queue
        self._room = room
        self._pull = pull
        self._received = received
        self._logger = logger
        self._loop, self._wake, self._task = client._run(self._start)

    async def _start(self) -> tuple[asyncio.AbstractEventLoop, asyncio.Event, asyncio.Task[None]]:
        wake = asyncio.Event()
        return asyncio.get_running_loop(), wake, asyncio.create_task(self._run(wake))

    def wake(self) -> None:
        """Check again whether there is room."""
        self._loop.call_soon_threadsafe(self._wake.set)

    def stop(self) -> None:
        """Stop pulling. Nothing is received after this returns; messages in flight are returned to the queue."""
        self._client._run(self._end)

    async def _end(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _run(self, wake: asyncio.Event) -> None:
        try:
            while True:
                wake.clear()
                count = self._room()
                if count > 0:
                    await self._take(count)
                else:
                    await wake.wait()
        except asyncio.CancelledError:
            raise
        except Exception:
            self._logger.exception("receiver of queue %r failed", self._queue)
            raise

    async def _take(self, count: int) -> None:
        try:
            messages = await self._pull(self._queue, count)
        except LmqError as error:
            self._logger.warning("pull from queue %r failed; retrying: %s", self._queue, error)
            await asyncio.sleep(_PAUSE_S)
        else:
            self._received(messages)
