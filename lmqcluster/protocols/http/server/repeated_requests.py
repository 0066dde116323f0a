"""Pushes that repeat the head of an earlier request of their connection, see `wire.repeats`.

The node begins them without parsing, routing and authorization. It handles every other request in full, and also these once
the rights of the client have changed. A front end recognizes those of its connections.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog

from ....node.queues.pushes.repeated import RepeatedPushes
from ....ports import Answer, RelayedTransport
from ....wire.errors import LmqError, forget_frames
from ....wire.repeats import RepeatedHead
from .replies.reply import RepeatablePush, Reply

if TYPE_CHECKING:
    from ....node.access.access import Access, Principal
    from ....node.queues.service import QueueService
    from .connection import Connection

__all__ = ["RepeatedRequest", "RepeatedRequests"]

log = structlog.get_logger(__name__)

End = Callable[[str, int, float, int], None]
"""Called with the operation, the status, the duration in seconds and the number of requests that have ended."""
NO_ANSWER = 499
"""Status that web servers log for a client that disconnects before its answer."""


class RepeatedRequests:
    """The repeated pushes of one port.

    Args:
        service: carries them out.
        access: what their clients may do.
        end: called when some have ended.

    Attributes:
        in_flight: number of them without an answer.
    """

    def __init__(self, service: QueueService, access: Access, end: End) -> None:
        self.in_flight = 0
        self._service = service
        self._access = access
        self._end = end

    def offer(self, client: Connection, push: RepeatablePush, principal: Principal, operation: str) -> None:
        """Permit a connection to repeat a push whose head is like that of the request before.

        Args:
            client: the connection, whose last head is that of the push.
            push: the push.
            principal: the client, who may do this.
            operation: its name in metrics.
        """
        # Without digits, because the length of the body may differ. Many clients send a new id with each request.
        shape = client.head.translate(None, b"0123456789")
        former, client.shape = client.shape, shape
        head = RepeatedHead.of(client.head) if shape == former else None
        is_allowed = partial(self._may_push, principal, is_anonymous=principal is self._access.anonymous)
        if head is None or not is_allowed():
            return
        if isinstance(client.transport, RelayedTransport):
            identity = ("http", operation, push.queue, push.content_type, principal)
            make = partial(self._group, push, principal.owner, operation, is_allowed)
            client.transport.offer_repeat(identity, head, make)
            return

        def begin(data: bytes) -> asyncio.Future[int] | None:
            found = head.match(data)
            if found is None or not is_allowed():
                return None
            self.in_flight += 1
            return self._service.push_plain(push.queue, push.content_type, found[1], principal.owner)

        repeated = RepeatedRequest(client, begin, push.answer, partial(self._ended, operation, 1))
        client.remember(repeated.start, repeated.answer)

    def is_allowed(self, principal: Principal, *, is_anonymous: bool) -> bool:
        """Return whether a client may still repeat what it was allowed to do."""
        access = self._access
        is_current = principal is access.anonymous if is_anonymous else not principal.is_revoked
        return is_current and access.outside is None

    def _may_push(self, principal: Principal, *, is_anonymous: bool) -> bool:
        """Return whether a client may still repeat a push, and the push would be plain again."""
        return self.is_allowed(principal, is_anonymous=is_anonymous) and not any(self._service.preserved_headers())

    def _group(
        self, push: RepeatablePush, owner: bytes, operation: str, is_allowed: Callable[[], bool], answer: Answer
    ) -> RepeatedPushes:
        def begun(count: int) -> None:
            self.in_flight += count

        def ended(count: int, outcome: int | LmqError, seconds: float) -> None:
            self._ended(operation, count, push.answer(outcome).status, seconds)

        def render(outcome: int | LmqError) -> tuple[bytes, bytes]:
            return push.answer(outcome).whole(), b""

        service = self._service
        target = push.queue, push.content_type, owner
        return RepeatedPushes(
            service.sender,
            service.repeated_answers,
            target,
            answer,
            is_allowed=is_allowed,
            render=render,
            begun=begun,
            ended=ended,
        )

    def _ended(self, operation: str, count: int, status: int, seconds: float) -> None:
        self.in_flight -= count
        self._end(operation, status, seconds, count)


class RepeatedRequest:
    """A request that later ones of its connection may repeat.

    Args:
        client: the connection.
        begin: begins a repetition from its bytes; returns None if they must be handled in full.
        reply: makes the answer from the outcome or from an error.
        end: called with the status of each answer, `NO_ANSWER` if there is none, and the duration in seconds.
    """

    __slots__ = ("_began_s", "_begin", "_client", "_end", "_reply")

    def __init__(
        self,
        client: Connection,
        begin: Callable[[bytes], asyncio.Future[Any] | None],
        reply: Callable[[Any | LmqError], Reply],
        end: Callable[[int, float], None],
    ) -> None:
        self._client = client
        self._begin = begin
        self._reply = reply
        self._end = end
        self._began_s = 0.0

    def start(self, data: bytes) -> asyncio.Future[Any] | None:
        """Begin a repetition; return the future of its outcome, None if `data` must be handled in full."""
        self._began_s = time.monotonic()
        try:
            return self._begin(data)
        except LmqError as exc:
            refused: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            refused.set_exception(exc.again())
            return refused

    def answer(self, outcome: asyncio.Future[Any]) -> tuple[bytes, bool]:
        """Return the bytes of the answer, and whether the connection stays open."""
        reply = None if outcome.cancelled() else self._reply_to(outcome)
        self._end(NO_ANSWER if reply is None else reply.status, time.monotonic() - self._began_s)
        if reply is None:
            return b"", False
        if self._client.count_answer():
            reply.force_close()
        return reply.repeated(self._client), reply.keep_alive

    def _reply_to(self, outcome: asyncio.Future[Any]) -> Reply:
        error = outcome.exception()
        if error is None:
            return self._reply(outcome.result())
        try:
            if isinstance(error, LmqError):
                return self._reply(error)
            log.error("request failed", exc_info=error)
            return Reply(500, close=True)
        finally:
            forget_frames(error)
