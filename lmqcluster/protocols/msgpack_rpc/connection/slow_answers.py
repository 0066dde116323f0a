"""Requests of one connection that take several steps, and large responses, which are made one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

import structlog

from ....wire.errors import LmqError, forget_frames
from .stream import Stream

__all__ = ["LARGE_BYTES", "TASKS_MAX", "SlowAnswers"]

log = structlog.get_logger("lmq.rpc")

TASKS_MAX = 64
"""Number of such requests in progress at which a connection carries out no more, until one of them ends."""
LARGE_BYTES = 80 * 1024 * 1024
"""Memory counted for a large response before it is made: a slice of messages, of which the last may have the maximum size."""
ROOM_S = 30.0
"""Time in seconds for which a large response waits for the client to read earlier ones."""


class SlowAnswers:
    """The limits on the tasks of one connection."""

    __slots__ = ("_busy", "_turn")

    def __init__(self) -> None:
        # Number of tasks that do not wait for actions of the client.
        self._busy = 0
        self._turn: asyncio.Lock | None = None

    def run(
        self,
        stream: Stream,
        result: Coroutine[Any, Any, bytes],
        succeed: Callable[[bytes], object],
        fail: Callable[[str], object],
        *,
        large: bool,
        waits: bool = False,
    ) -> asyncio.Task[None]:
        """Answer later with the outcome of a coroutine. While too many are in progress, the connection carries out no requests.

        Args:
            stream: the connection. It is not stored, so that no reference cycle is left when it ends.
            result: makes the response.
            succeed: sends the response.
            fail: sends an error.
            large: whether the response may be large. Large ones are made one at a time, when the client has read the
                earlier ones.
            waits: whether the outcome may depend on later requests of the client, so that these must continue. The
                client's memory limits the number of such requests, see `Stream.check_memory`.
        """
        task = asyncio.get_running_loop().create_task(self._answer(stream, result, succeed, fail, large=large))
        stream.tasks.add(task)
        if waits:
            task.add_done_callback(stream.tasks.discard)
            return task
        self._busy += 1
        if self._busy == TASKS_MAX:
            stream.hold()
        task.add_done_callback(partial(self._ended, stream))
        return task

    def _ended(self, stream: Stream, task: asyncio.Task[None]) -> None:
        stream.tasks.discard(task)
        if self._busy == TASKS_MAX:
            stream.go_on()
        self._busy -= 1

    async def _answer(
        self,
        stream: Stream,
        result: Coroutine[Any, Any, bytes],
        succeed: Callable[[bytes], object],
        fail: Callable[[str], object],
        *,
        large: bool,
    ) -> None:
        try:
            if large:
                await self._in_turn(stream, result, succeed)
            else:
                succeed(await result)
        except LmqError as exc:
            fail(exc.rpc_text())
            forget_frames(exc)
        except Exception:
            # A bug must not leave the client without an answer.
            log.exception("request failed")
            fail(LmqError("internal", "the node met a bug; its log has the details").rpc_text())
        finally:
            result.close()

    async def _in_turn(self, stream: Stream, result: Awaitable[bytes], succeed: Callable[[bytes], object]) -> None:
        if self._turn is None:
            self._turn = asyncio.Lock()
        async with self._turn:
            stream.reserved_bytes = LARGE_BYTES
            try:
                async with asyncio.timeout(ROOM_S):
                    await stream.until_read()
                    while not stream.hold_reserve():
                        await stream.place.client.wait_for_release()
                # The remaining room may be enough for the next waiting response.
                stream.place.client.wake()
            except TimeoutError as exc:
                stream.reserved_bytes = 0
                text = "the client leaves responses unread, and until it reads them no large ones are made"
                raise LmqError("overloaded", text) from exc
            try:
                data = await result
            finally:
                stream.reserved_bytes = 0
                stream.account()
            succeed(data)
