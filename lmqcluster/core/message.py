"""One stored message."""

from __future__ import annotations

from typing import NamedTuple

__all__ = [
    "COMPOUND_BYTES_MAX", "Headers", "Message", "Meta", "Part", "content_bytes", "content_count", "part_bytes",
]  # fmt: skip

Headers = tuple[tuple[bytes, bytes], ...]
Meta = tuple[bytes | None, Headers]
"""Content type (None if the push had none) and preserved headers; one tuple is shared by all messages of a push."""


class Part(NamedTuple):
    """One message inside a compound message."""

    content_type: bytes | None
    headers: Headers
    content: bytes


class Message:
    """A message, ready, delayed or leased.

    Attributes:
        sequence: order of arrival over all queues; unique.
        due_us: log time from which it can be pulled; for a leased message the end of the lease.
        ready_us: the due time it had before it was leased.
        remaining: deliveries left; with 0 or less the next pull that meets it drops it.
        meta: content type and headers.
        content: the body, or the list of parts of a compound message.
    """

    __slots__ = ("content", "due_us", "meta", "ready_us", "remaining", "sequence")

    def __init__(self, sequence: int, due_us: int, remaining: int, meta: Meta, content: bytes | list[Part]) -> None:
        self.sequence = sequence
        self.due_us = due_us
        self.ready_us = due_us
        self.remaining = remaining
        self.meta = meta
        self.content = content


def content_count(content: bytes | list[Part]) -> int:
    """How many messages were pushed for a body."""
    return 1 if isinstance(content, bytes) else len(content)


COMPOUND_BYTES_MAX = 32 * 1024 * 1024
"""Most bytes of a compound message of more than one part, so that whoever may pull the largest message can pull it."""
_PART_BYTES = 128
"""What a part takes in a delivery besides its body and headers."""


def part_bytes(part: Part) -> int:
    """About how many bytes a part takes in a delivery."""
    headers = sum(len(name) + len(value) for name, value in part.headers)
    return _PART_BYTES + len(part.content_type or b"") + headers + len(part.content)


def content_bytes(content: bytes | list[Part]) -> int:
    """Size of a body in bytes, for a compound message that of all parts."""
    if isinstance(content, bytes):
        return len(content)
    return sum(len(part.content) for part in content)
