"""Results of the batch calls of both clients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

from lmqcluster.wire.attributes import Attributes, unpack_attributes

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
        state: ``live``; ``empty``: there was no message, and the cluster stores nothing; ``settled``: the epoch is not above
            the settled one; ``expired``: the lease ended, and its messages returned to their queues.
        count: number of messages in the batch.
        expires_in_s: seconds until the lease ends.
    """

    subscription: str
    epoch: int
    state: str
    count: int
    expires_in_s: float

    @classmethod
    def of(cls, subscription: str, epoch: int, reply: list[Any]) -> Self:
        """Decode the reply of a node."""
        state, count, expires_in_s = reply
        return cls(subscription, epoch, name_text(state), count, expires_in_s)


@dataclass(frozen=True, slots=True)
class QueueBacklog:
    """Messages of one queue that can be pulled now, and those behind them in their groups; see `Backlog`."""

    queue: str
    messages: int
    body_bytes: int
    oldest_due_us: int | None


@dataclass(frozen=True, slots=True)
class ClosedQueue:
    """A queue that delivers no messages at present.

    Attributes:
        reason: ``suspended``, or ``exclusive`` (only sessions pull from it).
        messages: number of its messages that are not leased.
    """

    queue: str
    reason: str
    messages: int


@dataclass(frozen=True, slots=True)
class Backlog:
    """Messages that can be pulled now.

    Attributes:
        messages: their number.
        oldest_due_us: log time (microseconds since 1970) since which the oldest one waits; None if there is none.
        fitting: number of the first messages that together have about the requested number of bytes; None if not requested.
        body_bytes: bytes of their bodies; an estimate if some messages of a queue are leased or not due; None if not requested.
        queues: the queues with the most messages, as many as requested.
        held: number of messages that wait behind another one of their group. A batch that takes a message also takes those
            behind it.
        closed: queues that deliver nothing, at most 100. `messages` includes those of exclusive queues, but not those of
            suspended ones.
    """

    messages: int
    oldest_due_us: int | None
    fitting: int | None = None
    body_bytes: int | None = None
    queues: Sequence[QueueBacklog] = ()
    held: int = 0
    closed: Sequence[ClosedQueue] = ()

    @classmethod
    def of(cls, reply: list[Any]) -> Self:
        """Decode the reply of a node, which ends early if no queues were requested."""
        messages, oldest_due_us, fitting, held, closed, body_bytes, queues = [*reply, None, None][:7]
        rows = [QueueBacklog(name_text(name), *row) for name, *row in queues or ()]
        closed_queues = [ClosedQueue(name_text(name), name_text(reason), count) for name, reason, count in closed]
        return cls(messages, oldest_due_us, fitting, body_bytes, rows, held, closed_queues)


@dataclass(frozen=True, slots=True)
class Part:
    """One message inside a compound message."""

    content_type: str | None
    attributes: Attributes
    body: bytes


@dataclass(frozen=True, slots=True)
class BatchMessage:
    """One message of a slice, as the cluster stores it.

    Attributes:
        id: the receipt of its delivery, a UUID; None for a peeked message.
        sequence: its number in the cluster, unique, in the order of pushes.
        due_us: log time (microseconds since 1970) since which it could be pulled.
        retry: number of deliveries left after this one.
        body: the stored bytes, MessagePack if the message was pushed over MessagePack-RPC; the parts of a compound message.
    """

    queue: str
    id: str | None
    sequence: int
    due_us: int
    retry: int
    content_type: str | None
    attributes: Attributes
    body: bytes | list[Part]


@dataclass(frozen=True, slots=True)
class BatchDetails:
    """Extra columns of a slice, which the node sends if `details` are requested.

    Attributes:
        deliveries: number of deliveries of each message, including this one under a batch lease.
        pushed_us: log time (microseconds since 1970) of its push.
        priorities: lower values are delivered first; 0 without one.
        groups, labels: those of its push, None without.
        origins: where the cluster moved it from, None if it was not moved: queue, reason (``exhausted`` or ``expired``), log
            time of the move, and its number of deliveries, sequence and log time of the push there.
        expires_us: log time after which it is not delivered, None for never.
    """

    deliveries: list[int]
    pushed_us: list[int]
    priorities: list[int]
    groups: list[bytes | None]
    labels: list[bytes | None]
    origins: list[list[Any] | None]
    expires_us: list[int | None]


class BatchColumns:
    """A slice of messages, column by column: the fastest form for tables. Iteration yields `BatchMessage` objects.

    Attributes:
        queues: [name, number of consecutive messages].
        id_prefix, numbers: an id is the prefix and twelve hexadecimal digits of the number; None and empty without ids.
        sequences, due_us, retries: see `BatchMessage`.
        metas: [content type or None, packed attributes, number of consecutive messages].
        bodies: bytes, or for a compound message a list of [content type or None, packed attributes, body]; empty bytes if not
            requested.
        details: None if not requested.
        next: for peeked messages, the `start_sequence` of the next page, None at the end; for those of a batch, the position
            after the last one.
        lost: number of messages of a batch that were skipped because they are no longer leased.
        incarnation: the incarnation of the cluster that assigned the sequences, see `AsyncClient.incarnation`.
    """

    __slots__ = (
        *("bodies", "details", "due_us", "id_prefix", "incarnation", "lost", "metas", "next", "numbers", "queues"),
        *("retries", "sequences"),
    )

    def __init__(self, reply: dict[bytes, Any]) -> None:
        """Read the columns from the reply of a node."""
        self.queues: list[tuple[str, int]] = [(name_text(name), count) for name, count in reply[b"queue"]]
        ids = reply[b"id"]
        self.id_prefix: str | None = None if ids is None else ids[0].decode()
        self.numbers: list[int] = [] if ids is None else ids[1]
        self.sequences: list[int] = reply[b"sequence"]
        self.due_us: list[int] = reply[b"due"]
        self.retries: list[int] = reply[b"retry"]
        self.metas: list[tuple[str | None, bytes, int]] = [
            (None if kind is None else name_text(kind), attributes, count)
            for (kind, attributes), count in reply[b"meta"]
        ]
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
        metas = [(kind, unpack_attributes(attributes)) for kind, attributes, count in self.metas for _ in range(count)]
        ids: list[str] | list[None] = self.ids or [None] * len(self)
        columns = zip(
            queues, ids, self.sequences, self.due_us, self.retries, metas, map(_body, self.bodies), strict=True
        )
        for queue, identity, sequence, due_us, retry, (kind, attributes), body in columns:
            yield BatchMessage(queue, identity, sequence, due_us, retry, kind, attributes, body)


def _body(body: bytes | list[Any]) -> bytes | list[Part]:
    return body if isinstance(body, bytes) else [_part(*part) for part in body]


def _part(content_type: bytes | None, attributes: bytes, body: bytes) -> Part:
    return Part(None if content_type is None else name_text(content_type), unpack_attributes(attributes), body)
