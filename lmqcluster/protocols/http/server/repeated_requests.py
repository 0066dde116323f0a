"""Pushes that repeat the head of an earlier request of their connection, see `wire.repeats`.

The node begins them without parsing, routing and authorization. It handles every other request in full, and also these once
the rights of the client have changed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from ....node.queues.pushes.repeated import RepeatedPushes
from ....ports import Answer
from ....wire.errors import LmqError
from ....wire.repeats import RepeatedHead
from .repeat_groups import RepeatGroups
from .replies.reply import RepeatablePush

if TYPE_CHECKING:
    from ....node.access.access import Access, Principal
    from ....node.queues.service import QueueService
    from .connection import Connection

__all__ = ["NO_ANSWER", "RepeatedRequests"]

End = Callable[[str, int, float, int], None]
"""Called with the operation, the status, the duration in seconds and the number of requests that have ended."""
NO_ANSWER: Final = 499
"""Status that web servers log for a client that disconnects before its answer."""


class RepeatedRequests:
    """The repeated pushes of one port.

    Args:
        service: carries them out.
        access: what their clients may do.
        end: called when some have ended.

    Attributes:
        in_flight: number of them without an answer.
        groups: the groups of the port.
    """

    def __init__(self, service: QueueService, access: Access, end: End) -> None:
        self.in_flight = 0
        self.groups = RepeatGroups()
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
        identity = ("http", operation, push.queue, push.content_type, principal)
        make = partial(self._group, push, principal.owner, operation, is_allowed)
        self.groups.offer(client, "", identity, head, make)

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
