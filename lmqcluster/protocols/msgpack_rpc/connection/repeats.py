"""Pushes that a connection repeats, which its front end recognizes, see `wire.repeats`."""

from __future__ import annotations

from functools import partial

from ....node.access.access import Access, Principal
from ....node.queues.pushes.repeated import RepeatedPushes
from ....node.queues.service import QueueService
from ....ports import Answer, RelayedTransport
from ....wire.errors import LmqError
from ....wire.legacy_msgpack import CONTENT_TYPE, pack_raw
from ....wire.repeats import REPEATED_BYTES_MAX, RepeatedCall
from ..values import replies

__all__ = ["RepeatedCalls"]


class RepeatedCalls:
    """Offers the pushes of one connection to its front end.

    A client that pipelines its pushes gains nothing by that, because the node decodes those of one read together. So only a
    push that arrived alone, and follows one that arrived alone, is offered.
    """

    __slots__ = ("_access", "_queue", "_service", "_transport")

    def __init__(self, transport: RelayedTransport, service: QueueService, access: Access) -> None:
        self._transport = transport
        self._service = service
        self._access = access
        # The queue of the last push, None if the last bytes were not exactly one push.
        self._queue: bytes | None = None

    def received(self, data: bytes, queue: bytes | None, principal: Principal | None, since: int) -> None:
        """Note bytes that have arrived.

        Args:
            data: the bytes.
            queue: the queue of the last push without options among them; None if there is none, or if not all received bytes
                are carried out.
            principal: the client.
            since: number of the command that the push is in.
        """
        former, self._queue = self._queue, None
        if queue is None or principal is None or len(data) > REPEATED_BYTES_MAX:
            return
        call = RepeatedCall(queue)
        if call.match(data) is None:
            return
        self._queue = queue
        if queue == former:
            make = partial(self._group, queue, principal)
            group = self._transport.offer_repeat(("rpc", queue, principal), call, make)
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
