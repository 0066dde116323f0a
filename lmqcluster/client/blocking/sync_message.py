"""A message pulled by a blocking client, and its receipt."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, Self

from lmqcluster.wire.reasons import reason_of

from ..message import Delivery, Message, logger
from ..options import Place
from ..transport.requests import Name

__all__ = ["SyncMessage", "SyncSettler"]


class SyncSettler(Protocol):
    """Interface of the client that a message uses."""

    def done(self, queue: Name, message_id: Name) -> bool:
        """Ack a message."""

    def release(
        self,
        queue: Name,
        message_id: Name,
        *,
        delay: float | None = None,
        place: Place = "tail",
        reason: str | None = None,
    ) -> bool:
        """Nack a message."""

    def retain(self, queue: Name, message_id: Name, *, lease: float | None = None) -> bool:
        """Extend the lease of a message."""

    def put_back(self, queue: Name, message_id: Name) -> bool:
        """Return a message to its queue without charging a retry."""


class SyncMessage(Delivery):
    """A message pulled by a `Client`.

    ``with message:`` acks the message at the end of the block and nacks it if the block raises; the reason of the nack is
    the type and the text of the exception. If the program exits, the message returns to its queue without charging a retry.
    A message that the block settled stays settled.
    """

    __slots__ = ("_client", "_settled")

    def __init__(self, client: SyncSettler, message: Message) -> None:
        super().__init__(message._reply, message.content)
        self._client = client
        self._settled = message._settled

    def ack(self) -> bool:
        """Remove the message for good. Return whether the lease was still valid; if not, the cluster redelivers it."""
        self._settled = True
        return self._client.done(self._reply[b"queue"], self._reply[b"id"])

    def nack(self, *, delay: float | None = None, place: Place = "tail", reason: str | None = None) -> bool:
        """Return the message for redelivery, which costs a retry; see `AsyncClient.release`.

        Returns:
            Whether the lease was still valid.
        """
        self._settled = True
        return self._client.release(self._reply[b"queue"], self._reply[b"id"], delay=delay, place=place, reason=reason)

    def extend(self, *, lease: float | None = None) -> bool:
        """Restart the lease, for `lease` seconds or the queue's ``timeout``. Return whether it was still valid."""
        return self._client.retain(self._reply[b"queue"], self._reply[b"id"], lease=lease)

    def put_back(self) -> bool:
        """Return the message to its queue as if it had never been pulled: no retry is charged."""
        self._settled = True
        return self._client.put_back(self._reply[b"queue"], self._reply[b"id"])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._settled:
            return
        if kind is None:
            if not self.ack():
                logger.warning("the lease of message %s of %r ended before its ack", self.id, self.queue)
        elif isinstance(value, Exception):
            self.nack(reason=reason_of(value))
        else:
            self.put_back()
