"""Messages of a blocking client with tracing."""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Self

from ..message import Message
from ..options import Place
from ..tracing import Tracer
from .sync_message import SyncMessage

__all__ = ["TracedSyncMessage"]


class TracedSyncMessage(SyncMessage):
    """A message pulled by a `Client` with tracing. ``with message:`` is a span, which the block can use as the current one."""

    __slots__ = ("_block", "_node", "_tracer")

    def __init__(self, client: Any, message: Message) -> None:
        super().__init__(client, message)
        self._block: AbstractContextManager[None] | None = None
        self._node = client._client
        self._tracer: Tracer = client._client._tracer

    def ack(self) -> bool:
        """See `SyncMessage.ack`."""
        with self._tracer.continued(self._reply):
            return super().ack()

    def nack(self, *, delay: float | None = None, place: Place = "tail", reason: str | None = None) -> bool:
        """See `SyncMessage.nack`."""
        with self._tracer.continued(self._reply):
            return super().nack(delay=delay, place=place, reason=reason)

    def __enter__(self) -> Self:
        self._block = self._tracer.processing(self._node, self._reply, self.queue)
        self._block.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        block, self._block = self._block, None
        try:
            super().__exit__(kind, value, trace)
        finally:
            if block is not None:
                block.__exit__(kind, value, trace)
