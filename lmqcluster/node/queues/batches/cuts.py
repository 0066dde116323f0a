"""Cuts of a batch into parts for several readers.

A cut never lies within a group, because one reader must keep the order of a group.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from ....core.messages.message import traits_of
from ....core.state.batch_lease import BatchLease
from ....core.state.state import State

__all__ = ["CUTS_MAX", "cuts"]

CUTS_MAX = 10_000
"""Most parts of one batch."""


class _Groups:
    """The groups of the messages of a batch. Messages of one group are adjacent."""

    def __init__(self, machine: State, batch: BatchLease) -> None:
        self._machine = machine
        self._batch = batch

    def at(self, position: int) -> tuple[bytes, bytes] | None:
        """Return the queue and the group at a position; None without a group."""
        ((queue_name, number, _),) = self._batch.slice(position, 1)
        queue = self._machine.queues.get(queue_name)
        message = None if queue is None else queue.store.leases.messages.get(number)
        group = b"" if message is None else traits_of(message).group
        return (queue_name, group) if group else None

    def end(self, position: int) -> int:
        """Return `position`, or the end of the group if `position` lies within one."""
        group = self.at(position - 1)
        if group is None or self.at(position) != group:
            return position
        step = 1
        while position + step < self._batch.count and self.at(position + step) == group:
            position += step
            step *= 2
        low, high = position, min(position + step, self._batch.count)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.at(middle) == group else (low, middle)
        return high


async def cuts(
    find: Callable[[], tuple[State, BatchLease] | None], parts: int, turns: Callable[[range], AsyncIterator[int]]
) -> list[int]:
    """Return the positions at which parts of nearly equal size begin, the first one 0.

    If groups are large, there are fewer than `parts`.

    Args:
        find: returns the current machine and batch, None if the batch does not exist any more.
        parts: wanted number of parts.
        turns: iterates over numbers in slices of the event loop.
    """
    begins = [0]
    async for part in turns(range(1, parts)):
        found = find()
        if found is None:
            return []
        machine, batch = found
        wanted = batch.count * part // parts
        if wanted <= begins[-1]:
            continue
        end = _Groups(machine, batch).end(wanted)
        if end >= batch.count:
            break
        begins.append(end)
    return begins
