"""Deliveries that batch leases took and gave up, for the event journal; results of commands contain only message counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ...core import Machine
from ...core.state.batch_lease import BatchLease

__all__ = ["BatchWatch", "Change", "Run"]

Run = tuple[bytes, int, int]
"""Queue, first delivery number, number of deliveries."""
_SPARE = 100


class Change(NamedTuple):
    """The deliveries that an epoch of a subscription gained and lost.

    Attributes:
        settled: whether the epoch has been settled.
    """

    epoch: int
    added: list[Run]
    removed: list[Run]
    settled: bool


class BatchWatch:
    """The deliveries of all batch leases, as of the last call for their subscription."""

    def __init__(self) -> None:
        self._held: dict[bytes, dict[int, list[Run]]] = {}

    def begin(self, machine: Machine) -> None:
        """Take the current deliveries as known."""
        self._held = {}
        for name in machine.state.batches.subscriptions:
            self._held[name] = _held_by(machine, name)

    def changes(self, machine: Machine, name: bytes) -> list[Change]:
        """Return the changes of a subscription since the last call for it."""
        before, now = self._held.get(name, {}), _held_by(machine, name)
        if now:
            self._held[name] = now
        else:
            self._held.pop(name, None)
        if len(self._held) > 2 * len(machine.state.batches.subscriptions) + _SPARE:
            # Forget subscriptions that no longer exist.
            self.begin(machine)
        subscription = machine.state.batches.subscriptions.get(name)
        settled = 0 if subscription is None else subscription.settled
        found = []
        for epoch in sorted(before.keys() | now.keys()):
            old, new = before.get(epoch, []), now.get(epoch, [])
            if old == new:
                continue
            # A batch grows and shrinks at its end; if its beginning differs, it is a different batch of the same epoch.
            shared = min(_count(old), _count(new)) if old and new and old[0][:2] == new[0][:2] else 0
            found.append(Change(epoch, [*_after(new, shared)], [*_after(old, shared)], epoch <= settled))
        return found


def _held_by(machine: Machine, name: bytes) -> dict[int, list[Run]]:
    subscription = machine.state.batches.subscriptions.get(name)
    if subscription is None:
        return {}
    return {epoch: _runs(batch) for epoch, batch in subscription.batches.items()}


def _runs(batch: BatchLease) -> list[Run]:
    return [(queue, first, count) for queue, first, count in batch.runs]


def _count(runs: Iterable[Run]) -> int:
    return sum(count for _queue, _first, count in runs)


def _after(runs: Iterable[Run], skip: int) -> Iterator[Run]:
    """Yield the runs without their first `skip` deliveries."""
    for queue, first, count in runs:
        if skip < count:
            yield queue, first + skip, count - skip
        skip = max(0, skip - count)
