"""Iteration over the messages of a queue."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from lmqcluster.wire.limits import PULL_COUNT_MAX

if TYPE_CHECKING:
    from ..message import Message

__all__ = ["Messages", "check_count"]


def check_count(name: str, count: object) -> None:
    """Refuse what is no number of messages that one pull can take.

    Raises:
        ValueError: it is no integer, or out of range.
    """
    if not isinstance(count, int) or not 1 <= count <= PULL_COUNT_MAX:
        raise ValueError(f"{name} must be 1 to {PULL_COUNT_MAX}, not {count!r}")


class Messages:
    """An asynchronous iterator that pulls on demand; see `AsyncClient.messages`.

    It does not run in the background. One task at a time may iterate.
    """

    def __init__(
        self,
        prefetch: int,
        pull: Callable[[], Awaitable[list[Message]]],
        put_back: Callable[[list[str]], Awaitable[object]],
    ) -> None:
        """Take the calls that pull up to `prefetch` messages and that return messages by their ids.

        Raises:
            ValueError: `prefetch` is out of range.
        """
        check_count("prefetch", prefetch)
        self._pull = pull
        self._put_back = put_back
        self._ready: deque[Message] = deque()
        self._closed = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        message = await self.next()
        if message is None:
            raise StopAsyncIteration
        return message

    async def next(self) -> Message | None:
        """Return the next message, or None at the end of the iteration."""
        if not self._ready and not self._closed:
            self._ready.extend(await self._pull())
        return self._ready.popleft() if self._ready else None

    async def aclose(self) -> None:
        """End the iteration and return the prefetched messages without charging a retry."""
        self._closed = True
        if self._ready:
            ids = [message.id for message in self._ready]
            self._ready.clear()
            await self._put_back(ids)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
