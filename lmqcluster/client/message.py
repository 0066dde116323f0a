"""A pulled message and its receipt."""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

from lmqcluster.wire.attributes import Value, unpack_attributes
from lmqcluster.wire.legacy_msgpack import CONTENT_TYPE
from lmqcluster.wire.reasons import reason_of

from .options import Place
from .transport.replies import decode_strings, name_text

__all__ = ["Delivery", "Message", "Origin", "Settler"]

logger = logging.getLogger("lmqcluster.client")


class Settler(Protocol):
    """Interface of the client that a message uses."""

    def done(self, queue: str | bytes, message_id: str | bytes) -> Awaitable[bool]:
        """Ack a message."""

    def release(
        self,
        queue: str | bytes,
        message_id: str | bytes,
        *,
        delay: float | None = None,
        place: Place = "tail",
        reason: str | None = None,
    ) -> Awaitable[bool]:
        """Nack a message."""

    def retain(self, queue: str | bytes, message_id: str | bytes, *, lease: float | None = None) -> Awaitable[bool]:
        """Extend the lease of a message."""

    def put_back(self, queue: str | bytes, message_id: str | bytes) -> Awaitable[bool]:
        """Return a message to its queue without charging a retry."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a message was before the cluster moved it.

    Attributes:
        queue: name of the queue.
        reason: ``exhausted`` if it had no retries left there, ``expired`` if its TTL had elapsed.
        deliveries: number of its deliveries there.
        sequence: its sequence number there.
    """

    queue: str
    reason: str
    deliveries: int
    sequence: int


class Delivery:
    """One message under lease.

    Attributes:
        content: the content. MessagePack-RPC does not distinguish strings from bytes, so every string, also within lists and
            maps, is `bytes`. If the client has ``decode=True``, strings that are valid UTF-8 are `str`.
    """

    # Names are decoded on access only: most consumers do not read them, and the ack sends the raw bytes back.
    __slots__ = ("_reply", "content")

    def __init__(self, reply: dict[bytes, Any], content: Any) -> None:
        self._reply = reply
        self.content = content

    @property
    def queue(self) -> str:
        """Name of the queue. Bytes that are not UTF-8 are surrogate escapes, which every method of the client accepts."""
        return name_text(self._reply[b"queue"])

    @property
    def id(self) -> str:
        """The receipt, a UUID. Each redelivery has a new one."""
        return name_text(self._reply[b"id"])

    @property
    def type(self) -> str:
        """``normal``, or ``package`` for a compound message, whose content is the list of the contents of its parts."""
        return name_text(self._reply[b"type"])

    @property
    def retry(self) -> int:
        """Number of deliveries left after this one."""
        retry: int = self._reply[b"retry"]
        return retry

    @property
    def content_type(self) -> str | None:
        """Content type from the push, ``application/x-msgpack`` if over MessagePack-RPC; None without one and for packages."""
        if self._reply[b"type"] == b"package":
            return None
        # The node omits the type of messages that were pushed over MessagePack-RPC.
        content_type = self._reply.get(b"content_type", CONTENT_TYPE)
        return None if content_type is None else name_text(content_type)

    @property
    def delivery(self) -> int | None:
        """Number of this delivery of the message, from 1.

        None if the node omitted it: for the first delivery of a message without options, the node sends neither this nor
        `pushed_at`.
        """
        return self._reply.get(b"delivery")

    @property
    def pushed_at(self) -> float | None:
        """Unix time of the push in seconds, by the node's clock; None if the node omitted it, see `delivery`."""
        return self._reply.get(b"pushed_at")

    @property
    def priority(self) -> int:
        """Priority from the push, 0 without one. Lower values are delivered first."""
        priority: int = self._reply.get(b"priority", 0)
        return priority

    @property
    def label(self) -> str | None:
        """Label from the push, None without one."""
        return self._name(b"label")

    @property
    def group(self) -> str | None:
        """Group from the push, None without one."""
        return self._name(b"group")

    @property
    def attributes(self) -> dict[str, Value]:
        """Attributes from the push. For a compound message, see `part_attributes`."""
        packed = self._reply.get(b"attributes", b"")
        return unpack_attributes(packed) if isinstance(packed, bytes) else {}

    @property
    def part_attributes(self) -> list[dict[str, Value]]:
        """Attributes of each part of a compound message; empty if no part has any."""
        packed = self._reply.get(b"attributes", b"")
        return [] if isinstance(packed, bytes) else [unpack_attributes(one) for one in packed]

    @property
    def origin(self) -> Origin | None:
        """Origin of a message that the cluster moved, such as a dead letter; None for any other message."""
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
            UnicodeDecodeError: the content is not UTF-8.
            TypeError: the content is neither a string nor bytes.
        """
        if isinstance(self.content, str):
            return self.content
        if isinstance(self.content, bytes):
            return self.content.decode()
        raise TypeError(f"the content is not a string but {type(self.content).__name__}")

    @property
    def value(self) -> Any:
        """The content with every UTF-8 string in it, including keys of maps, as `str`. ``decode=True`` does the same."""
        return decode_strings(self.content)

    def __repr__(self) -> str:
        kind = self.__class__.__name__
        return f"<{kind} {self.id} of {self.queue!r} type={self.type} retry={self.retry} content={self.content!r:.80}>"


class Message(Delivery):
    """A message pulled by an `AsyncClient`.

    ``async with message:`` acks the message at the end of the block and nacks it if the block raises; the reason of the
    nack is the type and the text of the exception. If the task is
    cancelled, the message returns to its queue without charging a retry. A message that the
    block settled stays settled.
    """

    __slots__ = ("_client", "_settled")

    def __init__(self, client: Settler, reply: dict[bytes, Any], content: Any) -> None:
        self._reply = reply
        self.content = content
        self._client = client
        self._settled = False

    def ack(self) -> Awaitable[bool]:
        """Remove the message for good.

        Awaited, return whether the lease was still valid. If not, the cluster redelivers the message.
        """
        self._settled = True
        return self._client.done(self._reply[b"queue"], self._reply[b"id"])

    def nack(self, *, delay: float | None = None, place: Place = "tail", reason: str | None = None) -> Awaitable[bool]:
        """Return the message for redelivery, which costs a retry; see `AsyncClient.release`.

        Awaited, return whether the lease was still valid.
        """
        self._settled = True
        return self._client.release(self._reply[b"queue"], self._reply[b"id"], delay=delay, place=place, reason=reason)

    def extend(self, *, lease: float | None = None) -> Awaitable[bool]:
        """Restart the lease, for `lease` seconds or the queue's ``timeout``.

        Awaited, return whether the lease was still valid.
        """
        return self._client.retain(self._reply[b"queue"], self._reply[b"id"], lease=lease)

    def put_back(self) -> Awaitable[bool]:
        """Return the message to its queue as if it had never been pulled: no retry is charged."""
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
        elif isinstance(value, Exception):
            await self.nack(reason=reason_of(value))
        else:
            await self.put_back()
