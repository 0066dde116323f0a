"""Pushes that a connection repeats, which its front end recognizes, see `wire.repeats`."""

from __future__ import annotations

from functools import partial

from ....node.access.access import Access, Principal
from ....node.queues.pushes.repeated import RepeatedPushes
from ....node.queues.service import QueueService
from ....ports import Answer, RelayedTransport
from ....wire.errors import LmqError
from ....wire.legacy_msgpack import CONTENT_TYPE, pack_raw
from ....wire.repeats import RepeatedCall
from ..values import replies

__all__ = ["RepeatedCalls"]


class RepeatedCalls:
    """Offers the pushes of one connection to its front end.

    A client that pipelines its pushes gains nothing by that, because the node decodes those of one read together. So only a
    push that arrived alone, and follows one that arrived alone, is offered.
    """

    __slots__ = ("_access", "_count", "_queue", "_received", "_service", "_transport")

    def __init__(self, transport: RelayedTransport, service: QueueService, access: Access) -> None:
        self._transport = transport
        self._service = service
        self._access = access
        # The last queue, the number of bytes received at that time, and the pushes that were in these bytes.
        self._queue = b""
        self._received = -1
        self._count = 0

    def pushed(self, queue: bytes, principal: Principal, received: int, since: int) -> None:
        """Note a push without options.

        Args:
            queue: its queue.
            principal: the client.
            received: number of bytes that the connection has received.
            since: number of the command that the push is in.
        """
        if received == self._received:
            self._count += 1
            return
        follows = self._count == 1 and queue == self._queue
        self._queue, self._received, self._count = queue, received, 1
        if follows:
            make = partial(self._group, queue, principal)
            group = self._transport.offer_repeat(("rpc", queue, principal), RepeatedCall(queue), make)
            if isinstance(group, RepeatedPushes):
                group.since = max(group.since, since)

    def _group(self, queue: bytes, principal: Principal, answer: Answer) -> RepeatedPushes:
        access, service = self._access, self._service
        return RepeatedPushes(
            service.sender,
            service.repeated_answers,
            (queue, CONTENT_TYPE, principal.owner),
            answer,
            is_allowed=lambda: not principal.is_revoked and access.outside is None,
            render=_render,
        )


def _render(outcome: int | LmqError) -> tuple[bytes, bytes]:
    if isinstance(outcome, LmqError):
        return replies.BEGINNING, pack_raw(outcome.rpc_text().encode()) + b"\xc0"
    return replies.BEGINNING, b"\xc0" + replies.FLAG_TEXTS[outcome]
