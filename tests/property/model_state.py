"""The parts of the naive model: messages, queues, deliveries and batch leases."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgpack


class Attributes(NamedTuple):
    """Names and values, and how many bytes they have packed."""

    pairs: dict[str, Any]
    size: int


NO_ATTRIBUTES = Attributes({}, 0)


@dataclass(eq=False)
class Entry:
    """One message in a queue. `place` orders the entries that are due: (due time, rank, order within the rank)."""

    state: str  # "waiting", "window" or "leased"
    place: tuple[int, int, int]
    arrival: int
    remaining: int
    content_type: bytes | None
    attributes: Attributes
    content: Any  # bytes, or for a compound message the list of its parts
    number: int = 0
    place_before_lease: tuple[int, int, int] = (0, 0, 0)

    @property
    def due_us(self) -> int:
        return self.place[0]


@dataclass(eq=False)
class Queue:
    """A queue and the history of its messages."""

    entries: list[Entry] = field(default_factory=list)
    own: dict[str, Any] = field(default_factory=dict)
    entered: int = 0  # messages stored, including moved ones; a compound message is one
    acked: int = 0
    dropped: int = 0
    purged: int = 0
    moved_out: int = 0
    moved_in: int = 0
    suspended: bool = False


@dataclass
class Delivery:
    """A delivery of a pull."""

    queue: bytes
    number: int
    retry: int
    content_type: bytes | None
    attributes: Attributes
    content: Any


@dataclass(eq=False)
class Batch:
    """A batch lease: (queue, number) of its deliveries in order."""

    deadline_us: int
    sealed: bool = False
    items: list[tuple[bytes, int]] = field(default_factory=list)


@dataclass(eq=False)
class Subscription:
    """The batch leases of a consumer, by epoch."""

    settled: int = 0
    batches: dict[int, Batch] = field(default_factory=dict)


def with_headers(attributes: bytes, headers: list[tuple[bytes, bytes]]) -> Attributes:
    """Return attributes with those made from headers, whose names and values have five bytes each in front."""
    pairs = msgpack.unpackb(attributes) if attributes else {}
    size = len(attributes)
    if headers:
        size += _map_head(len(pairs) + len(headers)) - (_map_head(len(pairs)) if attributes else 0)
        size += sum(10 + len(name) + len(value) for name, value in headers)
    return Attributes(pairs | {_text(name): _text(value) for name, value in headers}, size)


def _map_head(count: int) -> int:
    return 1 if count < 16 else 3


def _text(header: bytes) -> Any:
    try:
        return header.decode()
    except UnicodeDecodeError:
        return header
