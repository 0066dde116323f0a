"""Reading of paged-out bodies before their messages are handed out. The node's other work continues."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from ....core import Message, State
from ....core.log.results import Delivered
from ....core.messages.bodies import Body, BodyChunk
from ....core.messages.message import with_content
from ....core.messages.pages import PageError
from ....core.queue.paged_tail import Chunk
from ....core.queue.pager import Pager
from ....wire.errors import LmqError
from .deliveries import first_of

__all__ = ["BodyFetcher"]

PATIENCE_S = 10.0
"""How long a pull waits for a page that cannot be read and is requested from other members, in seconds."""
RETRY_S = 0.1

Done = Callable[[list[Message] | None], None]
T = TypeVar("T")


class BodyFetcher:
    """Reads paged-out bodies; `state` returns the local replica's state, which a snapshot may replace."""

    def __init__(self, state: Callable[[], State]) -> None:
        self._state = state
        self._loop = asyncio.get_running_loop()

    def are_there(self) -> bool:
        """Return whether any body is paged out, so that deliveries have to be checked."""
        return self._state().pager.paged_body_bytes > 0

    def fetch(self, delivered: list[Delivered], done: Callable[[list[Delivered] | None], None]) -> None:
        """Call `done` with the deliveries once their bodies have been read, or with None if they cannot be read.

        Only as many bodies are read as one pull may take.
        """
        count, _ = first_of(delivered)

        def on_fetched(messages: list[Message] | None) -> None:
            if messages is None:
                done(None)
            else:
                found = [(*one[:3], message) for one, message in zip(delivered, messages, strict=False)]
                done(found + delivered[count:])

        _Fetch(self._state, self._loop, [one[3] for one in delivered[:count]], on_fetched).go_on()

    async def fetched(self, messages: Sequence[Message]) -> list[Message]:
        """Return the messages with their bodies.

        Raises:
            LmqError: a body cannot be read.
        """
        future: asyncio.Future[list[Message]] = self._loop.create_future()

        def done(found: list[Message] | None) -> None:
            if future.done():
                return
            if found is None:
                future.set_exception(self.error())
            else:
                future.set_result(found)

        _Fetch(self._state, self._loop, list(messages), done).go_on()
        return await future

    async def in_chunk(self, chunk: Chunk, use: Callable[[list[Message]], T]) -> T | None:
        """Return the result of `use` on the messages of a chunk; None if the chunk left its line first.

        Raises:
            LmqError: the page cannot be read.
        """
        state, until_s = self._state(), self._loop.time() + PATIENCE_S
        while self._state() is state:
            store = state.pager.store
            if chunk.messages is not None or store is None:
                return use(state.pager.messages_in(chunk))
            future: asyncio.Future[T | None] = self._loop.create_future()
            store.fetch(chunk.page, partial(_use, future, state.pager, chunk, use))
            found = await future
            if found is not None:
                return found
            if not chunk.in_line:
                return None
            if self._loop.time() >= until_s:
                raise self.error()
            # Another member may send the page during the wait.
            await asyncio.sleep(RETRY_S)
        return None

    @staticmethod
    def error() -> LmqError:
        """Return the error for a pull whose bodies cannot be read."""
        reason = "a body cannot be read from its page, and no other member has sent it yet; the log says which"
        return LmqError("overloaded", reason)


def _use(
    future: asyncio.Future[T | None],
    pager: Pager,
    chunk: Chunk,
    use: Callable[[list[Message]], T],
    is_here: bool,
) -> None:
    """Take the messages of a chunk at once, because its page does not stay in memory for long."""
    if future.done():
        return
    try:
        future.set_result(use(pager.messages_in(chunk)) if is_here else None)
    except PageError:
        future.set_exception(BodyFetcher.error())


class _Fetch:
    """Messages whose bodies are being read.

    Each message gets its bytes as soon as they are read, because pages do not stay in memory for long.
    """

    def __init__(
        self, state: Callable[[], State], loop: asyncio.AbstractEventLoop, messages: list[Message], done: Done
    ) -> None:
        self._state = state
        self._loop = loop
        self._messages = messages
        self._done = done
        self._until_s = loop.time() + PATIENCE_S
        self._pending = 0
        self._failed = False

    def go_on(self) -> None:
        """Read the bodies that are still missing."""
        missing: dict[BodyChunk, list[int]] = {}
        for place, message in enumerate(self._messages):
            chunk = message.content.missing() if isinstance(message.content, Body) else None
            if chunk is not None:
                missing.setdefault(chunk, []).append(place)
        store = self._state().pager.store
        self._failed = store is None and bool(missing)
        if store is None or not missing:
            self._end()
            return
        self._pending = len(missing)
        for chunk, places in missing.items():
            store.fetch(chunk.page, self._taker(places))

    def _taker(self, places: list[int]) -> Callable[[bool], None]:
        def take(is_here: bool) -> None:
            if is_here:
                for place in places:
                    message = self._messages[place]
                    if isinstance(message.content, Body):
                        self._messages[place] = with_content(message, message.content.read())
            else:
                self._failed = True
            self._pending -= 1
            if not self._pending:
                self._end()

        return take

    def _end(self) -> None:
        if not self._failed:
            self._done(self._messages)
        elif self._loop.time() >= self._until_s:
            self._done(None)
        else:
            # Another member may send the page before the next attempt.
            self._failed = False
            self._loop.call_later(RETRY_S, self.go_on)
