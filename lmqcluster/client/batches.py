"""Batch leases: what the calls of both clients return."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .transport.replies import name_text

__all__ = [
    "Backlog",
    "BatchColumns",
    "BatchDetails",
    "BatchLease",
    "BatchMessage",
    "ClosedQueue",
    "Part",
    "QueueBacklog",
]


@dataclass(frozen=True, slots=True)
class BatchLease:
    """The answer to a reservation.

    Attributes:
        state: ``live``; ``empty``: nothing was there, and nothing is kept; ``settled``: the epoch is not above the settled one;
            ``expired``: it was live once, and its messages went back to their queues.
        count: how many messages the batch has.
        expires_in_s: seconds until the lease ends.
    """

    subscription: str
    epoch: int
    state: str
    count: int
    expires_in_s: float


@dataclass(frozen=True, slots=True)
class QueueBacklog:
    """The messages of one queue that can be pulled now, and those behind them in their groups; see `Backlog`."""

    queue: str
    messages: int
    body_bytes: int
    oldest_due_us: int | None


@dataclass(frozen=True, slots=True)
class ClosedQueue:
    """A queue that hands out nothing for the time being.

    Attributes:
        reason: ``suspended``, or ``exclusive`` (only sessions pull from it).
        messages: how many it has that nobody holds.
    """

    queue: str
    reason: str
    messages: int


@dataclass(frozen=True, slots=True)
class Backlog:
    """What can be pulled now.

    Attributes:
        messages: how many.
        oldest_due_us: log time (microseconds since 1970) since which the oldest one waits; None if there is none.
        fitting: how many of the first ones have about so many bytes as were asked for; None if none were.
        body_bytes: bytes of their bodies, an estimate where some of a queue are leased or not due; None if not asked for.
        queues: those with most messages, as many as were asked for.
        held: how many wait behind another one of their group. A batch takes those behind a message that it takes.
        closed: queues that hand out nothing, at most 100. Messages of exclusive ones count, those of suspended ones do not.
    """

    messages: int
    oldest_due_us: int | None
    fitting: int | None = None
    body_bytes: int | None = None
    queues: Sequence[QueueBacklog] = ()
    held: int = 0
    closed: Sequence[ClosedQueue] = ()


Headers = tuple[tuple[bytes, bytes], ...]


@dataclass(frozen=True, slots=True)
class Part:
    """One message inside a compound message."""

    content_type: str | None
    headers: Headers
    body: bytes


@dataclass(frozen=True, slots=True)
class BatchMessage:
    """One message of a slice, as it is stored.

    Attributes:
        id: the receipt of its delivery, a UUID; None for a message that was only looked at.
        sequence: its number in the cluster, unique, in the order of pushes.
        due_us: log time (microseconds since 1970) since which it could be pulled.
        retry: how many more deliveries there may be after this one.
        body: the bytes as they are stored, MessagePack if it was pushed over MessagePack-RPC; for a compound message its parts.
    """

    queue: str
    id: str | None
    sequence: int
    due_us: int
    retry: int
    content_type: str | None
    headers: Headers
    body: bytes | list[Part]


@dataclass(frozen=True, slots=True)
class BatchDetails:
    """What a slice tells beside the messages themselves when it is asked for `details`, column by column.

    Attributes:
        deliveries: how often each message was delivered, for one under a batch lease this delivery included.
        pushed_us: log time (microseconds since 1970) of its push.
        priorities: lower ones are delivered first; 0 if none was given.
        groups, labels: those that it was pushed with, None without.
        origins: where the cluster has moved it from, None if it has not: queue, reason (``exhausted`` or ``expired``), log time
            of the move, and how often it had been delivered, its sequence and the log time of its push there.
        expires_us: log time from which it is not delivered any more, None for never.
    """

    deliveries: list[int]
    pushed_us: list[int]
    priorities: list[int]
    groups: list[bytes | None]
    labels: list[bytes | None]
    origins: list[list[Any] | None]
    expires_us: list[int | None]


class BatchColumns:
    """A slice of messages, column by column: the quickest form for tables. Iterating gives `BatchMessage` objects.

    Attributes:
        queues: [name, how many messages in a row].
        id_prefix, numbers: an id is the prefix and twelve hexadecimal digits of the number; None and empty without ids.
        sequences, due_us, retries: see `BatchMessage`.
        metas: [content type or None, headers, how many messages in a row].
        bodies: bytes, or for a compound message a list of [content type or None, headers, body]; empty if they were left out.
        details: None if they were not asked for.
        next: of messages that were looked at, the `start_sequence` of the next page, None at the end; of those of a batch, the
            position behind the last one.
        lost: how many messages of a batch were skipped, because they are not leased any more.
        incarnation: the life of the cluster in which the sequences were given, see `AsyncClient.incarnation`.
    """

    __slots__ = (
        *("bodies", "details", "due_us", "id_prefix", "incarnation", "lost", "metas", "next", "numbers", "queues"),
        *("retries", "sequences"),
    )

    def __init__(self, reply: dict[bytes, Any]) -> None:
        """Take the reply of a node."""
        self.queues: list[tuple[str, int]] = [(name_text(name), count) for name, count in reply[b"queue"]]
        ids = reply[b"id"]
        self.id_prefix: str | None = None if ids is None else ids[0].decode()
        self.numbers: list[int] = [] if ids is None else ids[1]
        self.sequences: list[int] = reply[b"sequence"]
        self.due_us: list[int] = reply[b"due"]
        self.retries: list[int] = reply[b"retry"]
        self.metas: list[tuple[str | None, Headers, int]] = [(*_meta(*meta), count) for meta, count in reply[b"meta"]]
        bodies = reply[b"body"]
        self.bodies: list[bytes | list[Any]] = [b""] * len(self.sequences) if bodies is None else bodies
        self.next: int | None = reply.get(b"next")
        self.lost: int = reply.get(b"lost", 0)
        self.incarnation = reply[b"incarnation"].decode() if self.id_prefix is None else self.id_prefix[:-1]
        self.details: BatchDetails | None = None
        if b"delivery" in reply:
            names = (b"delivery", b"pushed", b"priority", b"group", b"label", b"origin", b"expires")
            self.details = BatchDetails(*(reply[name] for name in names))

    def __len__(self) -> int:
        return len(self.sequences)

    @property
    def ids(self) -> list[str] | None:
        """The ids of all messages."""
        prefix = self.id_prefix
        return None if prefix is None else [f"{prefix}{number:012x}" for number in self.numbers]

    def __iter__(self) -> Iterator[BatchMessage]:
        queues = [name for name, count in self.queues for _ in range(count)]
        metas = [(kind, headers) for kind, headers, count in self.metas for _ in range(count)]
        ids: list[str] | list[None] = self.ids or [None] * len(self)
        columns = zip(
            queues, ids, self.sequences, self.due_us, self.retries, metas, map(_body, self.bodies), strict=True
        )
        for queue, identity, sequence, due_us, retry, (kind, headers), body in columns:
            yield BatchMessage(queue, identity, sequence, due_us, retry, kind, headers, body)


def _meta(content_type: bytes | None, headers: list[Any]) -> tuple[str | None, Headers]:
    kind = None if content_type is None else name_text(content_type)
    return kind, tuple((name, value) for name, value in headers)


def _body(body: bytes | list[Any]) -> bytes | list[Part]:
    return body if isinstance(body, bytes) else [Part(*_meta(kind, headers), data) for kind, headers, data in body]
