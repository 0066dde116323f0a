"""What clients of a fleet were told of each item, and what must be true of it."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Book", "Hold"]

OVERLAP_S = 20.0
"""So long a consumer may believe that it holds what another one has by now; then its connection has to be gone."""


@dataclass(eq=False)
class Hold:
    """An item at a consumer.

    Attributes:
        lost_s: since when another consumer has it, so that its end must not be acknowledged.
    """

    item: bytes
    lost_s: float | None = None


@dataclass
class Book:
    """By the item's number.

    Attributes:
        stored: items whose put was acknowledged.
        put: all that were sent.
        closed: how often an item's end was acknowledged.
        unsure: items whose end was asked for when the connection ended.
        aborts: items that were given back, and when that was acknowledged.
        changed: an item has ended, or may have.
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
    # By item: when it was asked for and when it came, each time.
    _deliveries: dict[bytes, list[tuple[float, float]]] = field(default_factory=dict)

    @property
    def delivered(self) -> int:
        """How often items came to consumers."""
        return sum(map(len, self._deliveries.values()))

    def opened(self, item: bytes, asked_s: float) -> Hold:
        """An item came to a consumer."""
        now_s = time.monotonic()
        if item not in self.put:
            self.violations.append(f"{item!r} was delivered and never put")
        if self.closed[item]:
            self.violations.append(f"{item!r} was delivered after its end was acknowledged")
        before = self._held.get(item)
        if before is not None:
            # Its connection has ended, or has given it back, and the consumer has not heard yet; else it is one too many.
            before.lost_s = now_s
            self.overlaps += 1
        self._deliveries.setdefault(item, []).append((asked_s, now_s))
        held = self._held[item] = Hold(item)
        return held

    def _let_go(self, held: Hold) -> None:
        if self._held.get(held.item) is held:
            del self._held[held.item]
        if held.lost_s is not None and time.monotonic() - held.lost_s > OVERLAP_S:
            self.violations.append(f"{held.item!r} was open at two consumers for more than {OVERLAP_S} s")
        self.changed.set()

    def ended(self, held: Hold) -> None:
        """The end of an item was acknowledged."""
        self._let_go(held)
        self.closed[held.item] += 1
        if self.closed[held.item] > 1:
            self.violations.append(f"{held.item!r} was closed {self.closed[held.item]} times")
        if held.lost_s is not None:
            self.violations.append(f"{held.item!r} was closed by a consumer that had lost it")

    def aborted(self, held: Hold) -> None:
        """An item was given back."""
        self._let_go(held)
        self.aborts.append((held.item, time.monotonic() if held.lost_s is None else held.lost_s))

    def broke(self, held: Hold | None, *, closing: bool) -> None:
        """The connection ended, perhaps while an item was `closing`."""
        self.breaks.append(time.monotonic())
        if held is not None:
            self._let_go(held)
            if closing:
                self.unsure.add(held.item)

    def missing(self) -> set[bytes]:
        """Stored items of whose end nobody was told."""
        return self.stored - self.closed.keys() - self.unsure

    def unknown(self) -> list[bytes]:
        """Items whose end was asked for and never acknowledged, to anybody."""
        return sorted(self.unsure - self.closed.keys())

    def judge_counters(self, queue: dict[str, Any]) -> None:
        """What the empty queue has counted: every item that it stored left it by being closed, those that are unsure here too."""
        stored, closed = queue["pushed_total"], queue["acked_total"]
        if stored != closed:
            self.violations.append(f"the queue stored {stored} items, and {closed} were closed")
        if not len(self.stored) <= stored <= len(self.put):
            self.violations.append(
                f"{len(self.stored)} to {len(self.put)} items were put, and the queue stored {stored}"
            )

    def judge_aborts(self) -> None:
        """What was given back has to come before what nobody had got yet.

        Judged are aborts of which that can be told: the item was asked for again after an item that came for the first time and
        had been asked for after the abort, and no connection ended meanwhile, with which the item might have come and gone.
        """
        firsts = sorted((deliveries[0], item) for item, deliveries in self._deliveries.items())
        breaks = sorted(self.breaks)
        for item, aborted_s in self.aborts:
            again = next((one for one in self._deliveries[item] if one[1] >= aborted_s), None)
            if again is None:
                self.violations.append(f"{item!r} was given back and never came again")
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
                    self.violations.append(f"{fresh!r} came before {item!r}, which had been given back")
