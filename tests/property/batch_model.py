"""The naive model of batch leases that take groups whole, on top of the model of queue features beyond LMQ's."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .rich_model import REFUSED, Entry, RichModel

LIVE, EMPTY, SETTLED, EXPIRED = 1, 2, 3, 4


@dataclass
class Batch:
    """The messages of an epoch, as (queue, number)."""

    deadline_us: int
    items: list[tuple[bytes, int]] = field(default_factory=list)
    sealed: bool = False


class BatchModel(RichModel):
    """All queues, and one subscription. `step` and `block` are those of the machine."""

    def __init__(self, step: int, block: int) -> None:
        super().__init__()
        self.step = step
        self.block = block
        self.settled = 0
        self.batches: dict[int, Batch] = {}
        self.returned: set[int] = set()  # deliveries that ended otherwise than by an ack

    # --- returns ------------------------------------------------------------------------------------------------------

    def end_leases(self, name: bytes) -> None:
        leased = [e for e in self.queues[name].entries if e.state == "leased" and e.due_us <= self.now_us]
        self.returned |= {e.number for e in leased}
        super().end_leases(name)

    def put_back(self, name: bytes, numbers: list[int], refund: int = 1) -> Any:
        results = super().put_back(name, numbers)
        self.returned |= {number for number, done in zip(numbers, results or [], strict=False) if done}
        return results

    def nack(self, name: bytes, numbers: list[int], *how: Any) -> Any:
        results = super().nack(name, numbers, *how)
        self.returned |= {number for number, done in zip(numbers, results or [], strict=False) if done}
        return results

    # --- batches --------------------------------------------------------------------------------------------------

    def reserve(
        self,
        _name: bytes,
        epoch: int,
        source: bytes | list[bytes],
        are_all: bool,
        count: int,
        lease_us: int,
        *_user: Any,
    ) -> Any:
        def take(batch: Batch, end: int) -> bool:
            if isinstance(source, bytes):
                return self.take(source, batch, end)
            return self.take_first(source, batch, end) and are_all

        return self._reserve(epoch, count, lease_us, take)

    def _reserve(self, epoch: int, count: int, lease_us: int, take: Any) -> Any:
        if epoch <= self.settled:
            return (SETTLED, 0, True, 0)
        batch = self.batches.get(epoch)
        if batch is None:
            if any(other > epoch for other in self.batches):
                return REFUSED
            batch = Batch(self.now_us + lease_us)
        elif batch.deadline_us <= self.now_us:
            return (EXPIRED, len(batch.items), True, batch.deadline_us)
        if not batch.sealed:
            end = min(len(batch.items) + self.step, count)
            self.take_behind(batch, end)
            is_dry = len(batch.items) < end and take(batch, end)
            batch.sealed = is_dry or len(batch.items) >= count
        if not batch.items:
            return (EMPTY, 0, batch.sealed, 0)
        self.batches[epoch] = batch
        return (LIVE, len(batch.items), batch.sealed, batch.deadline_us)

    def take(self, name: bytes, batch: Batch, end: int) -> bool:
        """Take messages of a queue, each with its group; return whether it has no more."""
        queue = self.named(name)
        while len(batch.items) < end and not queue.suspended:
            entry = self.next_in_line(name)
            if entry is None:
                break
            if self.is_deliverable(name, entry):
                self.lease_entry(name, entry, batch)
                self.take_behind(batch, end)
        return len(batch.items) < end

    def take_behind(self, batch: Batch, end: int) -> None:
        """Take the messages held after the last message of the batch."""
        name, number = batch.items[-1] if batch.items else (b"", 0)
        while name in self.queues and len(batch.items) < end:
            queue = self.queues[name]
            leader = self.leased(name, number)
            if leader is None or leader.due_us <= self.now_us or not leader.group or queue.suspended:
                return
            entry = queue.behind(leader)
            if entry is None:
                return
            if self.is_deliverable(name, entry):
                self.lease_entry(name, entry, batch)
                number = entry.number

    def take_first(self, names: list[bytes], batch: Batch, end: int) -> bool:
        """Take messages of these queues, a block of the one due longest at a time; return whether they have no more."""
        while len(batch.items) < end:
            name = self.due_first(names)
            if name is None:
                return True
            self.take(name, batch, min(end, len(batch.items) + self.block))
            self.take_behind(batch, end)
        return False

    def lease_entry(self, name: bytes, entry: Entry, batch: Batch) -> None:
        self.deliveries += 1
        entry.delivered += 1
        entry.number = self.deliveries
        entry.ready_us, entry.due_us, entry.state = entry.due_us, batch.deadline_us, "leased"
        batch.items.append((name, entry.number))

    def renew(self, _name: bytes, lease_us: int) -> tuple[int, int]:
        live = [batch for batch in self.batches.values() if batch.deadline_us > self.now_us]
        for batch in live:
            batch.deadline_us = self.now_us + lease_us
            for name, number in batch.items:
                entry = self.leased(name, number) if name in self.queues else None
                if entry is not None:
                    entry.due_us = batch.deadline_us
        return len(live), 0

    def settle_batches(self, _name: bytes, epoch: int) -> Any:
        self.settled = max(self.settled, epoch)
        expired: list[int] = []
        for one in sorted(self.batches):
            if one > epoch:
                continue
            items = self.batches.pop(one).items
            acked = [self.ack(name, [number]) == [True] for name, number in items]
            left = [item for item, is_acked in zip(items, acked, strict=True) if not is_acked]
            if any(name in self.queues and number in self.returned for name, number in left):
                expired.append(one)
        return expired, False

    def abandon_batches(self, _name: bytes) -> bool:
        left = self.step
        for epoch in sorted(self.batches, reverse=True):
            batch = self.batches[epoch]
            if left:
                batch.sealed = False
            while batch.items and left:
                name, number = batch.items.pop()
                self.put_back_uncharged(name, number)
                left -= 1
            if not batch.items:
                del self.batches[epoch]
        return bool(self.batches)

    def put_back_uncharged(self, name: bytes, number: int) -> None:
        entry = self.leased(name, number) if name in self.queues else None
        if entry is not None:
            self.returned.add(number)
            entry.delivered -= 1
            entry.first_us = entry.first_us if entry.delivered else 0
            self.come_back(name, entry, entry.ready_us)

    def read(self, epoch: int) -> Any:
        """Return the contents of a batch: its state, or the messages, or None if one of them is not leased any more."""
        if epoch <= self.settled:
            return SETTLED
        batch = self.batches.get(epoch)
        if batch is None or not batch.sealed:
            return EMPTY
        if batch.deadline_us <= self.now_us:
            return EXPIRED
        entries = [self.leased(name, number) if name in self.queues else None for name, number in batch.items]
        return None if None in entries else [(e.number, e.body) for e in entries if e is not None]
