"""Requests of one connection that take several steps, and responses that are so large that they are made one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog

from ....wire.errors import LmqError, forget_frames

if TYPE_CHECKING:
    from .stream import Stream

__all__ = ["LARGE_BYTES", "TASKS_MAX", "TASK_BYTES", "SlowAnswers"]

log = structlog.get_logger("lmq.rpc")

TASKS_MAX = 64
"""With so many requests of several steps under way a connection carries out no more, until one of them has ended."""
TASK_BYTES = 4096
"""What such a request counts until it is answered."""
LARGE_BYTES = 80 * 1024 * 1024
"""What a large response counts before it is made: a slice of messages, of which the last may have the largest size."""
ROOM_S = 30.0
"""How long a large response waits for the client to read what it has been sent before."""


class SlowAnswers:
    """The tasks of one connection.

    Attributes:
        tasks: what is under way.
        reserved_bytes: what responses that are being made may take.
    """

    __slots__ = ("_busy", "_drained", "_turn", "reserved_bytes", "tasks")

    def __init__(self) -> None:
        self.tasks: set[asyncio.Task[None]] = set()
        self.reserved_bytes = 0
        # Those that end by themselves.
        self._busy = 0
        self._turn: asyncio.Lock | None = None
        self._drained: asyncio.Future[None] | None = None

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
        """Answer with the outcome of a coroutine, later. While too many are under way the connection carries out no requests.

        Args:
            stream: the connection. It is not kept, so that nothing has to be collected when it has ended.
            result: makes the response.
            succeed: sends it.
            fail: sends an error.
            large: whether the response may be large. Of these one at a time is made, when the client has read the others.
            waits: whether the outcome may wait for what the client does next, so that its requests must go on meanwhile. The
                client's memory bounds these, see `Stream.check_memory`.
        """
        task = asyncio.get_running_loop().create_task(self._answer(stream, result, succeed, fail, large=large))
        self.tasks.add(task)
        if waits:
            task.add_done_callback(self.tasks.discard)
            return task
        self._busy += 1
        if self._busy == TASKS_MAX:
            stream.hold()
        task.add_done_callback(partial(self._ended, stream))
        return task

    def _ended(self, stream: Stream, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
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
            # A bug, which must not leave the client without an answer.
            log.exception("request failed")
            fail(LmqError("internal", "the node met a bug; its log has the details").rpc_text())
        finally:
            result.close()

    async def _in_turn(self, stream: Stream, result: Awaitable[bytes], succeed: Callable[[bytes], object]) -> None:
        if self._turn is None:
            self._turn = asyncio.Lock()
        async with self._turn:
            self.reserved_bytes = LARGE_BYTES
            try:
                async with asyncio.timeout(ROOM_S):
                    await self._until_read(stream)
                    while not stream.hold_reserve():
                        await stream.place.client.wait_for_release()
                # What is left may be enough for the next one that waits.
                stream.place.client.wake()
            except TimeoutError as exc:
                self.reserved_bytes = 0
                text = "the client leaves responses unread, and until it reads them no large ones are made"
                raise LmqError("overloaded", text) from exc
            try:
                data = await result
            finally:
                self.reserved_bytes = 0
                stream.account()
            succeed(data)

    async def _until_read(self, stream: Stream) -> None:
        while not stream.writable:
            if self._drained is None:
                self._drained = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._drained)

    def drained(self) -> None:
        """The client has read what was sent."""
        if self._drained is not None:
            self._drained.set_result(None)
            self._drained = None

    def cancel(self) -> None:
        """The client is gone."""
        for task in self.tasks:
            task.cancel()
