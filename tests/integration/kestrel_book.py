"""The answers that clients of a fleet received for each item, and the invariants that they must satisfy."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Book", "Hold"]

OVERLAP_S = 20.0
"""Maximum time that a consumer may hold an item after another one got it; its connection must be closed
within this time.
"""


@dataclass(eq=False)
class Hold:
    """An item at a consumer.

    Attributes:
        lost_s: time when another consumer got it, after which closing it must not be acknowledged.
    """

    item: bytes
    lost_s: float | None = None


@dataclass
class Book:
    """Items by number.

    Attributes:
        stored: items whose put was acknowledged.
        put: all items that were sent.
        closed: number of acknowledged closes by item.
        unsure: items that were being closed when the connection broke.
        aborts: aborted items, and when the abort was acknowledged.
        changed: an item was closed, or may have been.
    """

    put: set[bytes] = field(default_factory=set)
    stored: set[bytes] = field(default_factory=set)
    closed: Counter[bytes] = field(default_factory=Counter)
    unsure: set[bytes] = field(default_factory=set)
    aborts: list[tuple[bytes, float]] = field(default_factory=list)
    overlaps: int = 0
    compared: int = 0
    breaks: list[float] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    _held: dict[bytes, Hold] = field(default_factory=dict)
    # By item: the request and arrival time of each delivery.
    _deliveries: dict[bytes, list[tuple[float, float]]] = field(default_factory=dict)

    @property
    def delivered(self) -> int:
        """Return the number of deliveries to consumers."""
        return sum(map(len, self._deliveries.values()))

    def opened(self, item: bytes, asked_s: float) -> Hold:
        """Note the delivery of an item to a consumer."""
        now_s = time.monotonic()
        if item not in self.put:
            self.violations.append(f"{item!r} was delivered and never put")
        if self.closed[item]:
            self.violations.append(f"{item!r} was delivered after its end was acknowledged")
        before = self._held.get(item)
        if before is not None:
            # Its connection has broken, or has aborted it, and the consumer does not know yet; otherwise this is a
            # duplicate.
            before.lost_s = now_s
            self.overlaps += 1
        self._deliveries.setdefault(item, []).append((asked_s, now_s))
        held = self._held[item] = Hold(item)
        return held

    def _remove(self, held: Hold) -> None:
        if self._held.get(held.item) is held:
            del self._held[held.item]
        if held.lost_s is not None and time.monotonic() - held.lost_s > OVERLAP_S:
            self.violations.append(f"{held.item!r} was open at two consumers for more than {OVERLAP_S} s")
        self.changed.set()

    def ended(self, held: Hold) -> None:
        """Note that the close of an item was acknowledged."""
        self._remove(held)
        self.closed[held.item] += 1
        if self.closed[held.item] > 1:
            self.violations.append(f"{held.item!r} was closed {self.closed[held.item]} times")
        if held.lost_s is not None:
            self.violations.append(f"{held.item!r} was closed by a consumer that had lost it")

    def aborted(self, held: Hold) -> None:
        """Note that an item was aborted."""
        self._remove(held)
        self.aborts.append((held.item, time.monotonic() if held.lost_s is None else held.lost_s))

    def broke(self, held: Hold | None, *, closing: bool) -> None:
        """Note that the connection broke, perhaps while an item was `closing`."""
        self.breaks.append(time.monotonic())
        if held is not None:
            self._remove(held)
            if closing:
                self.unsure.add(held.item)

    def missing(self) -> set[bytes]:
        """Return the stored items whose close was never acknowledged."""
        return self.stored - self.closed.keys() - self.unsure

    def unknown(self) -> list[bytes]:
        """Return the items that were being closed and whose close was never acknowledged."""
        return sorted(self.unsure - self.closed.keys())

    def judge_counters(self, queue: dict[str, Any]) -> None:
        """Check the counters of the empty queue: every stored item was closed, with those in `unsure`
        possibly closed.
        """
        stored, closed = queue["pushed_total"], queue["acked_total"]
        if stored != closed:
            self.violations.append(f"the queue stored {stored} items, and {closed} were closed")
        if not len(self.stored) <= stored <= len(self.put):
            self.violations.append(
                f"{len(self.stored)} to {len(self.put)} items were put, and the queue stored {stored}"
            )

    def judge_aborts(self) -> None:
        """Check that aborted items are delivered before items that no consumer had received yet.

        Only aborts with a certain order are judged: the item was requested again after an item that was delivered for
        the first time and had been requested after the abort, and no connection broke in between, with which the item
        could have been delivered and lost.
        """
        firsts = sorted((deliveries[0], item) for item, deliveries in self._deliveries.items())
        breaks = sorted(self.breaks)
        for item, aborted_s in self.aborts:
            again = next((one for one in self._deliveries[item] if one[1] >= aborted_s), None)
            if again is None:
                self.violations.append(f"{item!r} was aborted and never redelivered")
                continue
            until_s = again[0]
            if bisect_left(breaks, aborted_s) != bisect_left(breaks, again[1]):
                continue
            self.compared += 1
            start = bisect_left(firsts, ((aborted_s, 0.0), b""))
            for (asked_s, came_s), fresh in firsts[start:]:
                if asked_s >= until_s:
                    break
                if came_s < until_s:
                    self.violations.append(f"{fresh!r} was delivered before {item!r}, which had been aborted")
