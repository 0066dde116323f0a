"""Looking at the messages of a queue without taking them."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter

from ...core import Machine, Message, Queue
from ...core.expiry import NEVER
from ...core.message import RichMessage, content_bytes
from .naming import no_queue

__all__ = ["PeekedMessage", "peek"]

_Row = tuple[int, Message, int]
"""Sequence, message, number of its delivery or 0."""


@dataclass(frozen=True, slots=True)
class PeekedMessage:
    """A message as it was when it was looked at.

    Attributes:
        state: ``ready``, ``delayed``, ``accumulating`` (an open window), ``held`` (its group is busy) or ``leased``.
        delivery: number of the delivery whose lease lives; None without one, or if it was made in this very moment.
        age_s: seconds since it could first be pulled, or could again after a nack; 0 if it cannot yet.
        due_in_s: seconds until it can be pulled (again), 0 if it can now; None if it is held for as long as a session lives.
        deliveries_left: how many more there may be.
        size: bytes of the body, of all parts of a compound message.
    """

    message: Message
    state: str
    delivery: int | None
    age_s: float
    due_in_s: float | None
    deliveries_left: int
    size: int

    @property
    def sequence(self) -> int:
        """The number of the message in the cluster, in the order of pushes."""
        return self.message.sequence


async def peek(
    machine: Machine, name: bytes, *, after: int, limit: int, label: bytes = b"", group: bytes = b""
) -> tuple[list[PeekedMessage], bool]:
    """Up to `limit` messages of a queue behind the sequence `after`, in order of their sequence, and whether there are more.

    Only those with the label and of the group, if these are given.

    Raises:
        LmqError: ``queue_not_found``.
    """
    queue = machine.queues.get(name)
    if queue is None:
        raise no_queue(name)
    # Plain copies of what is there: pairs of a million leases would take longer.
    # Nothing in a backlog has a label or a group.
    waiting = queue.in_line(after + 1, 0 if label or group else limit + 1)
    numbers, leased = list(queue.leases.messages), list(queue.leases.messages.values())
    rows: Iterator[_Row] = chain(
        ((message.sequence, message, 0) for message in waiting),
        ((message.sequence, message, number) for number, message in zip(numbers, leased, strict=True)),
    )
    if label or group:
        rows = (row for row in rows if _is_wanted(row[1], label, group))
    # Going through a long queue must not keep the node from its other work.
    first = await asyncio.to_thread(_first, rows, after, limit + 1)
    found = [_peeked(queue, message, number, machine.now_us) for _, message, number in first[:limit]]
    return found, len(first) > limit


def _is_wanted(message: Message, label: bytes, group: bytes) -> bool:
    if not isinstance(message, RichMessage):
        return False
    traits = message.traits
    return (not label or traits.label == label) and (not group or traits.group == group)


def _first(rows: Iterator[_Row], after: int, count: int) -> list[_Row]:
    return heapq.nsmallest(count, (row for row in rows if row[0] > after), key=itemgetter(0))


def _peeked(queue: Queue, message: Message, number: int, now_us: int) -> PeekedMessage:
    due_us = message.due_us
    if _is_held(queue, message):
        state = "held"
    elif due_us <= now_us:
        state = "ready"
    elif message.ready_us != due_us:
        state = "leased"
    else:
        state = "accumulating" if message is queue.window else "delayed"
    return PeekedMessage(
        message=message,
        state=state,
        delivery=number if queue.leases.messages.get(number) is message and state == "leased" else None,
        age_s=max(0, now_us - message.ready_us) / 1e6,
        due_in_s=None if due_us == NEVER else max(0, due_us - now_us) / 1e6,
        deliveries_left=max(0, message.remaining),
        size=content_bytes(message.content),
    )


def _is_held(queue: Queue, message: Message) -> bool:
    """Whether another message of its group is in line or leased."""
    if queue.rich is None or not isinstance(message, RichMessage) or not message.traits.group:
        return False
    return queue.rich.current.get(message.traits.group, message.sequence) != message.sequence and (
        message.due_us == message.ready_us
    )
