"""Messages of a blocking client with tracing."""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Self

from ..message import Message
from .client import Client, SyncMessage

if TYPE_CHECKING:
    from ..options import Place

__all__ = ["TracedSyncMessage"]


class TracedSyncMessage(SyncMessage):
    """A message pulled by a `Client` with tracing. ``with message:`` is a span, which the block can use as the current one."""

    __slots__ = ("_block", "_tracer")

    def __init__(self, client: Client, message: Message) -> None:
        super().__init__(client, message)
        self._block: AbstractContextManager[None] | None = None
        self._tracer = client._client._tracer

    def ack(self) -> bool:
        """See `SyncMessage.ack`."""
        assert self._tracer is not None  # noqa: S101 - the client has one
        with self._tracer.continued(self._reply):
            return super().ack()

    def nack(self, *, delay: float | None = None, place: Place = "tail") -> bool:
        """See `SyncMessage.nack`."""
        assert self._tracer is not None  # noqa: S101 - the client has one
        with self._tracer.continued(self._reply):
            return super().nack(delay=delay, place=place)

    def __enter__(self) -> Self:
        assert self._tracer is not None  # noqa: S101 - the client has one
        self._block = self._tracer.processing(self._client._client, self._reply, self.queue)
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
