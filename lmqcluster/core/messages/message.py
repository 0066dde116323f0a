"""One stored message."""

from __future__ import annotations

from typing import NamedTuple

from .bodies import Body

__all__ = [
    "COMPOUND_BYTES_MAX", "PLAIN_META", "PLAIN_TRAITS", "Content", "Headers", "Identity", "Message", "Meta",
    "Origin", "Part", "RichMessage", "Traits", "content_bytes", "content_count", "identity_of", "loaded", "message_bytes",
    "moved_traits", "part_bytes", "traits_of", "with_content", "with_traits",
]  # fmt: skip

Headers = tuple[tuple[bytes, bytes], ...]
"""Names and values of request headers."""
Meta = tuple[bytes | None, bytes]
"""Content type (None if the push had none) and packed attributes; one tuple is shared by all messages of a push."""
PLAIN_META: Meta = (None, b"")
"""No content type and no attributes; a shared object."""


class Part(NamedTuple):
    """One message inside a compound message."""

    content_type: bytes | None
    attributes: bytes
    content: bytes


Content = bytes | list[Part] | Body
"""The body of a message, in memory or not, or the parts of a compound message."""


class Message:
    """A message, ready, delayed or leased.

    Attributes:
        sequence: order of arrival over all queues; unique.
        due_us: log time from which it can be pulled; for a leased message the end of the lease.
        ready_us: the due time before it was leased.
        remaining: deliveries left; with 0 or less the next pull that meets it drops it.
        delivered: number of deliveries, charged or not; those put back are not counted.
        pushed_us: log time of its push.
        meta: content type and attributes.
        content: the body, or the list of parts of a compound message; `loaded` always returns the bytes of a body.
    """

    __slots__ = ("content", "delivered", "due_us", "meta", "pushed_us", "ready_us", "remaining", "sequence")

    def __init__(self, sequence: int, due_us: int, remaining: int, meta: Meta, content: Content) -> None:
        self.sequence = sequence
        self.due_us = due_us
        self.ready_us = due_us
        self.pushed_us = due_us
        self.delivered = 0
        self.remaining = remaining
        self.meta = meta
        self.content = content


class Identity(NamedTuple):
    """Facts of a message that stay when the cluster moves it from queue to queue.

    Attributes:
        sequence, pushed_us: its values in its first queue.
        deliveries: number of its deliveries in all queues.
        first_us: log time of its first delivery, 0 if it was not recorded.
    """

    sequence: int
    pushed_us: int
    deliveries: int
    first_us: int


class Origin(NamedTuple):
    """The place of a message before the cluster itself moved it.

    Attributes:
        queue: the queue that it left last for this reason.
        reason: ``exhausted`` or ``expired``.
        at_us: log time of the move.
        deliveries: number of its deliveries in that queue.
        sequence, pushed_us: its values in that queue.
        identity: its identity when it was moved.
    """

    queue: bytes
    reason: bytes
    at_us: int
    deliveries: int
    sequence: int
    pushed_us: int
    identity: Identity


class Traits(NamedTuple):
    """Options of a pushed message beyond body, content type and attributes. Empty values mean: not set.

    Attributes:
        priority: 32 bits, lower comes first.
        expires_us: log time at which it expires, 0 for never.
        label: a name chosen by the producer, by which the message is found while it is in line.
        group: messages of a group are delivered one at a time, or take turns with those of other groups.
        origin: its previous place, if the cluster has moved it.
    """

    priority: int = 0
    expires_us: int = 0
    label: bytes = b""
    group: bytes = b""
    origin: Origin | None = None


class RichMessage(Message):
    """A message with traits.

    Attributes:
        traits: the traits.
        place_us: its place in its group: a time, of which the earlier comes first.
        first_us: log time of its first delivery in this queue; 0 before it, and in a queue without an index.
    """

    __slots__ = ("first_us", "place_us", "traits")

    def __init__(
        self, sequence: int, due_us: int, remaining: int, meta: Meta, content: Content, traits: Traits
    ) -> None:
        # Repeats `Message.__init__` to save a call: every push to a queue with an index makes one.
        self.sequence = sequence
        self.due_us = due_us
        self.ready_us = due_us
        self.pushed_us = due_us
        self.delivered = 0
        self.remaining = remaining
        self.meta = meta
        self.content = content
        self.traits = traits
        self.place_us = due_us
        self.first_us = 0

    def place(self) -> tuple[int, int, int]:
        """Return the sort key of delivery: priority, due time and arrival."""
        return self.traits.priority, self.due_us, self.sequence

    def group_place(self) -> tuple[bytes, int, int]:
        """Return the sort key of messages in the order of their groups."""
        return self.traits.group, self.place_us, self.sequence


PLAIN_TRAITS = Traits()
"""The traits of a message that was pushed without any; a shared object."""


def traits_of(message: Message) -> Traits:
    """Return the traits of a message, `PLAIN_TRAITS` if it has none."""
    return message.traits if isinstance(message, RichMessage) else PLAIN_TRAITS


def moved_traits(message: Message) -> Traits:
    """Return the traits that a message has as a fresh one of another queue: priority, label and group."""
    return message.traits._replace(expires_us=0, origin=None) if isinstance(message, RichMessage) else PLAIN_TRAITS


def identity_of(message: Message) -> Identity:
    """Return the identity of a message as of now."""
    first_us = message.first_us if isinstance(message, RichMessage) else 0
    origin = traits_of(message).origin
    if origin is None:
        return Identity(message.sequence, message.pushed_us, message.delivered, first_us)
    before = origin.identity
    return before._replace(deliveries=before.deliveries + message.delivered, first_us=before.first_us or first_us)


def loaded(content: Content) -> bytes | list[Part]:
    """Return the content with its body in memory.

    Raises:
        PageError: the page of the body is unavailable.
    """
    return content.read() if isinstance(content, Body) else content


def with_content(message: Message, content: Content) -> Message:
    """Return a copy of a message with this content."""
    if isinstance(message, RichMessage):
        rich = RichMessage(message.sequence, message.due_us, message.remaining, message.meta, content, message.traits)
        rich.place_us, rich.first_us = message.place_us, message.first_us
        copy: Message = rich
    else:
        copy = Message(message.sequence, message.due_us, message.remaining, message.meta, content)
    copy.ready_us, copy.pushed_us, copy.delivered = message.ready_us, message.pushed_us, message.delivered
    return copy


def with_traits(message: Message, traits: Traits) -> RichMessage:
    """Return a copy of a message that has no traits, with these."""
    rich = RichMessage(message.sequence, message.due_us, message.remaining, message.meta, message.content, traits)
    rich.ready_us, rich.pushed_us, rich.delivered = message.ready_us, message.pushed_us, message.delivered
    return rich


def content_count(content: Content) -> int:
    """Return how many messages were pushed for a body."""
    return len(content) if isinstance(content, list) else 1


COMPOUND_BYTES_MAX = 32 * 1024 * 1024
"""Most bytes of a compound message of several parts, so that clients that may pull the largest message can pull it."""
_PART_BYTES = 128
"""Approximate bytes of a part in a delivery besides its body and attributes."""


def part_bytes(part: Part) -> int:
    """Return the approximate bytes of a part in a delivery."""
    return _PART_BYTES + len(part.content_type or b"") + len(part.attributes) + len(part.content)


def content_bytes(content: Content) -> int:
    """Return the bytes of a body, or of all parts of a compound message."""
    if isinstance(content, bytes):
        return len(content)
    if isinstance(content, Body):
        return content.size
    return sum(len(part.content) for part in content)


def message_bytes(message: Message) -> int:
    """Return the bytes of a message that count against limits: those of its bodies and attributes."""
    content, size = message.content, len(message.meta[1])
    if isinstance(content, bytes):
        return size + len(content)
    if isinstance(content, Body):
        return size + content.size
    return size + sum(len(part.content) + len(part.attributes) for part in content)
