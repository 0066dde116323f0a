"""Calls of a client with tracing."""

from __future__ import annotations

import time
from asyncio import Future
from collections.abc import Callable, Sequence
from typing import Any, Final

from lmqcluster.wire.errors import LmqError

from ..tracing import TracedMessage, Tracer
from ..transport.calls import PullOptions
from ..transport.failover import FailoverConnection
from ..transport.requests import Name
from .call_sender import CallSender

__all__ = ["TracedCalls", "TracedMessage", "Tracer"]

_NAMES: Final = {
    b"done": "ack",
    b"done_many": "ack",
    b"release": "nack",
    b"release_many": "nack",
    b"put_back_many": "put_back",
}
"""Names of the spans of settlements; an extension of a lease has none."""


class TracedCalls(CallSender):
    """Makes calls like `CallSender`, with spans of pulls and settlements. Pushes get theirs before they are encoded."""

    def __init__(self, session: FailoverConnection, timeout_s: float, tracer: Tracer) -> None:
        super().__init__(session, timeout_s)
        self._tracer = tracer

    async def pull(
        self,
        head: bytes,
        decode: Callable[[Any], Any],
        wait_s: float | None,
        options: PullOptions | None = None,
        *,
        may_share: bool = False,
    ) -> Any:
        """See `CallSender.pull`."""
        began_ns = time.time_ns()
        try:
            pulled = await super().pull(head, decode, wait_s, options, may_share=may_share)
        except LmqError as error:
            self._tracer.pull_failed(self.session, began_ns, error)
            raise
        self._tracer.received(self.session, pulled, began_ns)
        return pulled

    def settle(self, verb: bytes, queue: Name, message_id: Name, *, ends: bool) -> Future[bool]:
        """See `CallSender.settle`."""

        def call() -> Future[bool]:
            return super(TracedCalls, self).settle(verb, queue, message_id, ends=ends)

        return self._tracer.settle(self.session, _NAMES[verb], queue, call) if verb in _NAMES else call()

    def settle_with(
        self, verb: bytes, queue: Name, message_id: Name, options: dict[str, Any], *, ends: bool
    ) -> Future[bool]:
        """See `CallSender.settle_with`."""

        def call() -> Future[bool]:
            return super(TracedCalls, self).settle_with(verb, queue, message_id, options, ends=ends)

        return self._tracer.settle(self.session, _NAMES[verb], queue, call) if verb in _NAMES else call()

    def settle_many(
        self,
        verb: bytes,
        queue: Name,
        message_ids: Sequence[Name],
        options: dict[str, Any] | None = None,
        *,
        ends: bool,
        is_internal: bool = False,
    ) -> Future[list[bool]]:
        """See `CallSender.settle_many`."""

        def call() -> Future[list[bool]]:
            return super(TracedCalls, self).settle_many(
                verb, queue, message_ids, options, ends=ends, is_internal=is_internal
            )

        if is_internal or verb not in _NAMES:
            return call()
        return self._tracer.settle(self.session, _NAMES[verb], queue, call, len(message_ids))
