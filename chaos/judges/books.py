"""A history sorted by message and by receipt, as the judge and the accounts read it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from ..load.history import Event

__all__ = ["Books", "Key", "Message"]

_NEVER: Final = 1 << 62

Key = tuple[str, str]
"""A queue, and a value or a receipt in it."""


@dataclass(slots=True)
class Message:
    """The operations on one value of one queue."""

    pushes: list[Event] = field(default_factory=list)
    deliveries: list[Event] = field(default_factory=list)
    acked_us: int | None = None
    ack_tried: bool = False

    @property
    def acknowledged(self) -> bool:
        return any(push.outcome == "ok" for push in self.pushes)

    @property
    def copies_max(self) -> int:
        return sum(push.outcome != "failed" for push in self.pushes)

    @property
    def push_start(self) -> int:
        return min(push.time_us for push in self.pushes)

    @property
    def stored_by(self) -> int:
        """Return when a copy was stored for certain; only valid if a push is acknowledged."""
        return min(push.end_us for push in self.pushes if push.outcome == "ok")

    @property
    def pushed_until(self) -> int:
        """Return until when a copy may have been stored."""
        return max((_until_us(push) for push in self.pushes if push.outcome != "failed"), default=_NEVER)

    @property
    def last_start(self) -> int:
        return max(delivery.time_us for delivery in self.deliveries)

    @property
    def first_start(self) -> int:
        return min(delivery.time_us for delivery in self.deliveries)

    @property
    def first_end(self) -> int:
        return min(delivery.end_us for delivery in self.deliveries)


class Books:
    """A complete history.

    Attributes:
        messages: by queue and value.
        by_receipt: ``pull``, ``ack`` and ``nack`` of each receipt, without failed ones.
        deletes: successful deletes of each queue.
        lost_pulls: pulls of each queue with unknown outcome.
    """

    def __init__(self, events: Iterable[Event]) -> None:
        self.messages: dict[Key, Message] = defaultdict(Message)
        self.by_receipt: dict[tuple[str, Key], list[Event]] = defaultdict(list)
        self._drained: dict[str, int] = defaultdict(lambda: -1)
        self._all_drained = -1
        self._deleted: dict[str, int] = defaultdict(lambda: -1)
        self.deletes: dict[str, list[Event]] = defaultdict(list)
        self.lost_pulls: dict[str, list[Event]] = defaultdict(list)
        for event in events:
            self._enter(event)
        self._enter_acks()

    def _enter(self, event: Event) -> None:
        op, queue = event.op, event.queue or ""
        if op == "push":
            self.messages[queue, event.value or ""].pushes.append(event)
        elif op == "pull" and event.outcome == "ok" and event.value is not None:
            self.messages[queue, event.value].deliveries.append(event)
            self.by_receipt["pull", (queue, event.receipt or "")].append(event)
        elif op == "pull" and event.outcome == "unknown":
            self.lost_pulls[queue].append(event)
        elif op in {"ack", "nack"} and event.outcome != "failed":
            self.by_receipt[op, (queue, event.receipt or "")].append(event)
        elif op == "delete" and event.outcome != "failed":
            self._deleted[queue] = max(self._deleted[queue], _until_us(event))
            if event.outcome == "ok":
                self.deletes[queue].append(event)
        elif op == "drained" and event.outcome == "ok":
            if event.queue is None:
                self._all_drained = max(self._all_drained, event.time_us)
            else:
                self._drained[queue] = max(self._drained[queue], event.time_us)

    def _enter_acks(self) -> None:
        for message in self.messages.values():
            for delivery in message.deliveries:
                acks = self.of_receipt("ack", delivery)
                message.ack_tried = message.ack_tried or bool(acks)
                ends = [ack.end_us for ack in acks if ack.outcome == "ok"]
                if message.acked_us is not None:
                    ends.append(message.acked_us)
                message.acked_us = min(ends, default=None)

    def of_receipt(self, op: str, delivery: Event) -> list[Event]:
        """Return the operations with the receipt of a delivery."""
        return self.by_receipt.get((op, (delivery.queue or "", delivery.receipt or "")), [])

    def drained_us(self, queue: str) -> int:
        """Return the start of the last search that found the queue empty; below 0 if there was none."""
        return max(self._drained[queue], self._all_drained)

    def deleted_us(self, queue: str) -> int:
        """Return until when a delete may have emptied the queue; below 0 if there was none."""
        return self._deleted[queue]


def _until_us(event: Event) -> int:
    """Return until when an operation may have taken effect."""
    return event.end_us if event.outcome == "ok" else _NEVER
