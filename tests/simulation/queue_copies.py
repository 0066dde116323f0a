"""The messages in queues as derived from the log alone: a plain list of copies, searched from the front."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Copies", "Copy"]

NEVER_US = 1 << 62
TAIL, KEEP, HEAD = 0, 1, 2


@dataclass(eq=False)
class Copy:
    """A message in one queue.

    Attributes:
        arrival: the order in which it reached this queue.
        expires_us: 0 for never.
        origin: the queue that dropped it, empty if a client pushed it.
        delivery: the number of its current lease, 0 without one.
        until_us: the deadline of the lease.
        deliveries: how often it was delivered in this queue.
        sequence, tag: its id in a queue whose messages are polled, once it was delivered.
        reason: of the last nack that had one.
    """

    number: bytes
    queue: bytes
    arrival: int
    due_us: int
    remaining: int
    priority: int = 0
    label: bytes = b""
    group: bytes = b""
    expires_us: int = 0
    origin: bytes = b""
    delivery: int = 0
    until_us: int = 0
    ready_us: int = 0
    deliveries: int = 0
    sequence: int = 0
    tag: int = 0
    reason: bytes = b""


class Copies:
    """All copies, and the properties and bindings of the queues."""

    def __init__(self) -> None:
        self.now_us = 0
        self.copies: list[Copy] = []
        self.held: dict[int, Copy] = {}
        self.properties: dict[bytes, dict[bytes, Any]] = {}
        self.bound: set[tuple[bytes, bytes]] = set()
        # Queue, group and key: sequence of the first push, and the log time from which the key is new.
        self.keys: dict[tuple[bytes, bytes, bytes], tuple[int, int]] = {}
        self._arrivals = 0

    def value(self, queue: bytes, name: bytes, default: Any) -> Any:
        return self.properties.get(queue, {}).get(name, default)

    def of(self, queue: bytes) -> Iterator[Copy]:
        return (copy for copy in self.copies if copy.queue == queue)

    def waiting(self, queue: bytes) -> list[Copy]:
        return [copy for copy in self.of(queue) if not copy.delivery]

    def live(self, queue: bytes, delivery: int) -> Copy | None:
        """Return the copy that is leased under this number."""
        copy = self.held.get(delivery)
        return copy if copy is not None and copy.queue == queue else None

    # --- arrival and removal ------------------------------------------------------------------------------------------

    def advance(self, now_us: int) -> None:
        """Apply what happens by time alone: leases expire first, then messages."""
        self.now_us = max(self.now_us, now_us)
        ended = [copy for copy in self.held.values() if copy.until_us <= self.now_us]
        for copy in sorted(ended, key=lambda copy: (copy.until_us, copy.delivery)):
            self.come_back(copy, copy.until_us)
        for copy in [each for each in self.copies if not each.delivery and self.is_over(each)]:
            self.give_up(copy, b"expire_to_queue")

    def is_over(self, copy: Copy) -> bool:
        return 0 < copy.expires_us <= self.now_us

    def push(self, queue: bytes, number: bytes, traits: list[Any]) -> None:
        """Store a message in the queue and in the queues that are bound to it."""
        delay_us, _due_us, ttl_us, priority, label, group = traits or [-1, 0, 0, 0, b"", b""]
        targets = sorted(target for source, target in self.bound if source == queue)
        for name in (queue, *targets):
            copy = self._new(number, name, self.now_us + max(delay_us, 0))
            copy.priority, copy.label, copy.group = priority, label, group
            copy.expires_us = self.now_us + ttl_us if ttl_us else 0

    def _new(self, number: bytes, queue: bytes, due_us: int) -> Copy:
        self._arrivals += 1
        copy = Copy(number, queue, self._arrivals, due_us, self.value(queue, b"retry", 2) + 1)
        self.copies.append(copy)
        return copy

    def lease(self, copy: Copy, delivery: int, until_us: int) -> None:
        copy.delivery, copy.until_us = delivery, until_us
        copy.ready_us = copy.due_us
        copy.remaining -= 1
        copy.deliveries += 1
        self.held[delivery] = copy

    def remove(self, copy: Copy) -> None:
        self.copies.remove(copy)
        self.held.pop(copy.delivery, None)

    def give_up(self, copy: Copy, reason: bytes) -> None:
        """Move the copy to the queue that its queue's property `reason` names, or remove it."""
        self.remove(copy)
        target = self.value(copy.queue, reason, b"")
        if target:
            self._take_over(copy, target).origin = copy.queue

    def is_used_up(self, copy: Copy) -> bool:
        most = self.value(copy.queue, b"max_deliveries", None)
        return most is not None and copy.deliveries >= most

    def send_back(self, copy: Copy) -> None:
        """Move the copy back to the queue it came from."""
        self.remove(copy)
        self._take_over(copy, copy.origin)

    def _take_over(self, copy: Copy, queue: bytes) -> Copy:
        new = self._new(copy.number, queue, self.now_us)
        new.priority, new.label, new.group, new.reason = copy.priority, copy.label, copy.group, copy.reason
        return new

    # --- return -------------------------------------------------------------------------------------------------------

    def come_back(self, copy: Copy, due_us: int) -> None:
        """Make the copy ready again, without a lease."""
        self.held.pop(copy.delivery)
        copy.delivery = 0
        if copy.remaining <= 0:
            self.give_up(copy, b"dead_letter_queue")
        elif self.is_over(copy):
            self.give_up(copy, b"expire_to_queue")
        else:
            copy.due_us = due_us

    def give_back(self, copy: Copy, place: int, delay_us: int) -> None:
        if delay_us > 0 or place == TAIL:
            due_us = self.now_us + max(delay_us, 0)
        elif place == KEEP:
            due_us = copy.ready_us
        else:
            line = [each.due_us for each in self.waiting(copy.queue) if each.priority == copy.priority]
            due_us = min(copy.ready_us, min([*line, self.now_us]) - 1)
        self.come_back(copy, due_us)

    def put_back(self, copy: Copy) -> None:
        """Undo a delivery that reached no client."""
        copy.remaining += 1
        copy.deliveries -= 1
        self.come_back(copy, copy.ready_us)
