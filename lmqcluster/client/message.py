"""A pulled message and its receipt."""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

from lmqcluster.wire.legacy_msgpack import CONTENT_TYPE

from .options import Place
from .transport.replies import decode_strings, name_text

__all__ = ["Delivery", "Message", "Origin", "Settler"]

logger = logging.getLogger("lmqcluster.client")


class Settler(Protocol):
    """The part of a client that a message needs."""

    def done(self, queue: str | bytes, message_id: str | bytes) -> Awaitable[bool]:
        """Ack."""

    def release(
        self, queue: str | bytes, message_id: str | bytes, *, delay: float | None = None, place: Place = "tail"
    ) -> Awaitable[bool]:
        """Nack."""

    def retain(self, queue: str | bytes, message_id: str | bytes, *, lease: float | None = None) -> Awaitable[bool]:
        """Extend the lease."""

    def put_back(self, queue: str | bytes, message_id: str | bytes) -> Awaitable[bool]:
        """Give back without a charged retry."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a message was before the cluster moved it.

    Attributes:
        queue: name of the queue.
        reason: ``exhausted`` if it had no deliveries left there, ``expired`` if its time was over.
        deliveries: how often it had been delivered there.
        sequence: the number that it had there.
    """

    queue: str
    reason: str
    deliveries: int
    sequence: int


class Delivery:
    """One message under lease.

    Attributes:
        content: the content. MessagePack-RPC does not tell strings from bytes, so every string, also within lists and maps,
            is `bytes`, unless the client was made with ``decode=True``: then it is `str` where it is UTF-8.
    """

    # Names and the like stay as they came until somebody asks: most consumers never do, and the ack needs them as they are.
    __slots__ = ("_reply", "content")

    def __init__(self, reply: dict[bytes, Any], content: Any) -> None:
        self._reply = reply
        self.content = content

    @property
    def queue(self) -> str:
        """Name of the queue. What is not UTF-8 appears as surrogate escapes; every method of the client takes them back."""
        return name_text(self._reply[b"queue"])

    @property
    def id(self) -> str:
        """The receipt, a UUID; a redelivery has another one."""
        return name_text(self._reply[b"id"])

    @property
    def type(self) -> str:
        """``normal``, or ``package`` for a compound message, whose content is the list of the parts' contents."""
        return name_text(self._reply[b"type"])

    @property
    def retry(self) -> int:
        """How many more deliveries there may be after this one."""
        retry: int = self._reply[b"retry"]
        return retry

    @property
    def content_type(self) -> str | None:
        """As it was pushed, ``application/x-msgpack`` if over MessagePack-RPC; None if there is none and for packages."""
        if self._reply[b"type"] == b"package":
            return None
        # The node names the type only where it is not the one of everything pushed over MessagePack-RPC.
        content_type = self._reply.get(b"content_type", CONTENT_TYPE)
        return None if content_type is None else name_text(content_type)

    @property
    def delivery(self) -> int | None:
        """Which delivery of the message this is, from 1 on.

        None where the node did not tell: of the first delivery of a message without any option it tells neither this nor
        `pushed_at`.
        """
        return self._reply.get(b"delivery")

    @property
    def pushed_at(self) -> float | None:
        """Unix time of the push in seconds, by the node's clock; None where the node did not tell, see `delivery`."""
        return self._reply.get(b"pushed_at")

    @property
    def priority(self) -> int:
        """As it was pushed, 0 if without one; lower ones are delivered first."""
        priority: int = self._reply.get(b"priority", 0)
        return priority

    @property
    def label(self) -> str | None:
        """As it was pushed, None if without one."""
        return self._name(b"label")

    @property
    def group(self) -> str | None:
        """As it was pushed, None if without one."""
        return self._name(b"group")

    @property
    def origin(self) -> Origin | None:
        """Where the message was before, if the cluster has moved it: of a dead letter, for example."""
        origin = self._reply.get(b"origin")
        if origin is None:
            return None
        return Origin(
            name_text(origin[b"queue"]), name_text(origin[b"reason"]), origin[b"deliveries"], origin[b"sequence"]
        )

    def _name(self, key: bytes) -> str | None:
        name = self._reply.get(key)
        return None if name is None else name_text(name)

    @property
    def text(self) -> str:
        """The content as a string.

        Raises:
            UnicodeDecodeError: it is not UTF-8.
            TypeError: it is neither a string nor bytes.
        """
        if isinstance(self.content, str):
            return self.content
        if isinstance(self.content, bytes):
            return self.content.decode()
        raise TypeError(f"the content is not a string but {type(self.content).__name__}")

    @property
    def value(self) -> Any:
        """The content with `str` for every string in it that is UTF-8, keys of maps too, as ``decode=True`` has it."""
        return decode_strings(self.content)

    def __repr__(self) -> str:
        kind = self.__class__.__name__
        return f"<{kind} {self.id} of {self.queue!r} type={self.type} retry={self.retry} content={self.content!r:.80}>"


class Message(Delivery):
    """A message pulled by an `AsyncClient`.

    Used as ``async with message:`` it is acked when the block is left normally and nacked when an exception leaves it; when
    the task is cancelled it is given back without a charged retry. A message that was settled within the block is left alone.
    """

    __slots__ = ("_client", "_settled")

    def __init__(self, client: Settler, reply: dict[bytes, Any], content: Any) -> None:
        self._reply = reply
        self.content = content
        self._client = client
        self._settled = False

    def ack(self) -> Awaitable[bool]:
        """Remove the message for good. Awaited, tells whether the lease was still alive; if not, it will be redelivered."""
        self._settled = True
        return self._client.done(self._reply[b"queue"], self._reply[b"id"])

    def nack(self, *, delay: float | None = None, place: Place = "tail") -> Awaitable[bool]:
        """Give the message back for redelivery, which costs a retry; see `AsyncClient.release`.

        Awaited, tells whether the lease was alive.
        """
        self._settled = True
        return self._client.release(self._reply[b"queue"], self._reply[b"id"], delay=delay, place=place)

    def extend(self, *, lease: float | None = None) -> Awaitable[bool]:
        """Restart the lease, for so many seconds or the queue's ``timeout``. Awaited, tells whether it was still alive."""
        return self._client.retain(self._reply[b"queue"], self._reply[b"id"], lease=lease)

    def put_back(self) -> Awaitable[bool]:
        """Give the message back as if it had never been pulled: no retry is charged."""
        self._settled = True
        return self._client.put_back(self._reply[b"queue"], self._reply[b"id"])

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._settled:
            return
        if kind is None:
            if not await self.ack():
                logger.warning("the lease of message %s of %r ended before its ack", self.id, self.queue)
        elif issubclass(kind, Exception):
            await self.nack()
        else:
            await self.put_back()
