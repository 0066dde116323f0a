"""Leased messages in the form for protocols."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ....core.log.results import Delivered
from ....core.messages.message import Identity, RichMessage, Traits, identity_of, loaded, message_bytes, traits_of
from ....wire.ids import ReceiptFormat

__all__ = ["Delivery", "Part", "first_of", "rendered"]

UnixTime = Callable[[int], int]
"""Converts a log time to Unix time, both in microseconds."""
PULL_BYTES_MAX = 16 * 1024 * 1024
"""Most bytes of bodies and attributes that a pull of several messages takes."""


class Part(NamedTuple):
    """One message inside a compound message."""

    content: bytes
    content_type: bytes | None
    attributes: bytes


class Delivery(NamedTuple):
    """One leased message.

    Attributes:
        queue: the queue's name.
        id: the receipt, 36 bytes.
        number: the number of the delivery, which the receipt contains.
        compound: whether the message was accumulated; then `parts` holds the pushed messages and `content` is empty.
        retry: deliveries that remain after this one.
        delivery: which delivery of the message this is, from 1 on.
        sequence: the number of the message in the cluster, in the order of pushes.
        pushed_s: Unix time of the push.
        attributes: packed, empty for none.
        traits: what the producer gave beside body and attributes.
        identity: facts of it over all queues, with times as log times; None unless messages of the queue are polled.
    """

    queue: bytes
    id: bytes
    number: int
    compound: bool
    retry: int
    content: bytes
    content_type: bytes | None
    attributes: bytes
    parts: tuple[Part, ...]
    delivery: int
    sequence: int
    pushed_s: float
    traits: Traits
    identity: Identity | None = None


def rendered(receipts: ReceiptFormat, delivered: Sequence[Delivered], unix_us: UnixTime) -> list[Delivery]:
    """Convert deliveries of the core to deliveries with receipts."""
    return [_rendered(receipts, one, unix_us) for one in delivered]


def _rendered(receipts: ReceiptFormat, delivered: Delivered, unix_us: UnixTime) -> Delivery:
    name, number, remaining, message = delivered
    content_type, attributes = message.meta
    given = content = loaded(message.content)
    parts: tuple[Part, ...] = ()
    if not isinstance(content, bytes):
        parts = tuple(Part(part.content, part.content_type, part.attributes) for part in content)
        content = b""
    identity = identity_of(message) if isinstance(message, RichMessage) and message.first_us else None
    return Delivery(
        name,
        receipts.format(number),
        number,
        content is not given,
        remaining,
        content,
        content_type,
        attributes,
        parts,
        message.delivered,
        message.sequence,
        unix_us(message.pushed_us) / 1e6,
        traits_of(message),
        identity,
    )


def first_of(delivered: Sequence[Delivered]) -> tuple[int, int]:
    """Return how many deliveries, and of how many bytes, fit into `PULL_BYTES_MAX`.

    The first one is always counted.
    """
    size_bytes = 0
    for count, one in enumerate(delivered):
        more = message_bytes(one[3])
        if count and size_bytes + more > PULL_BYTES_MAX:
            return count, size_bytes
        size_bytes += more
    return len(delivered), size_bytes
