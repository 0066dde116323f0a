"""Queues that need an operator: messages that wait too long, new dead letters, and many returned deliveries.

`History` visits all queues every ten seconds and shows each to `Attention`, so that a request for the list visits none.
Memory is bounded by the queues that have ever had a failed delivery.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import timedelta
from enum import StrEnum
from functools import partial
from time import monotonic
from typing import Any, Final, NamedTuple

from ...core import Queue
from ..queues.views.info import age_s
from .stats import Stats

__all__ = ["FINDINGS_MAX", "LISTED_MAX", "Attention", "Finding", "Reason", "Thresholds"]

WINDOW_S: Final = 300.0
"""Counts begin at the start of the previous window, so they cover one to two windows."""
RETURNED_SHARE_MIN: Final = 0.1
FINDINGS_MAX: Final = 1000
"""Number of findings kept for each reason: the worst ones."""
LISTED_MAX: Final = 100
_ROUND_S: Final = 10.0


class Thresholds(NamedTuple):
    """From which figures a queue needs attention; 0 is never.

    Attributes:
        waiting_s: seconds for which the oldest message has been ready.
        dead_letters: messages dead-lettered or dropped in the window.
        returns: deliveries returned or not answered in the window, if they are a tenth of all.
    """

    waiting_s: int = 600
    dead_letters: int = 1
    returns: int = 100


class Reason(StrEnum):
    """Why a queue needs attention. The order is that of the list."""

    DEAD_LETTERS = "dead_letters"
    RETURNS = "returns"
    WAITING = "waiting"


@dataclass(frozen=True, slots=True)
class Finding:
    """A queue that needs attention.

    Attributes:
        count: dead letters and drops, returned deliveries, or ready messages, by the reason.
        oldest_age_s: for how long the oldest message has been ready; None for other reasons than waiting.
    """

    queue: bytes
    reason: Reason
    count: int
    oldest_age_s: float | None
    detail: str


class _Figures(NamedTuple):
    """Counters of one queue at one time."""

    dead_lettered: int
    dropped: int
    returned: int
    pulled: int


_Table = dict[bytes, _Figures]


class Attention:
    """The list of queues that need attention, as of the last visit of all queues.

    Args:
        stats: rates of each queue.
        now_us: returns the log time.
        health: returns the readiness checks. While one fails, the replica may miss acknowledged changes.
    """

    def __init__(
        self,
        thresholds: Thresholds,
        stats: Stats,
        now_us: Callable[[], int],
        health: Callable[[], list[tuple[str, bool, str]]],
    ) -> None:
        self._thresholds = thresholds
        self._stats = stats
        self._now_us = now_us
        self._health = health
        self._found: dict[Reason, list[Finding]] = {}
        self._totals: dict[Reason, int] = {}
        self._window_s = 0.0
        self._looked_s: float | None = None
        self._forget_baselines()

    def _forget_baselines(self) -> None:
        # The tables hold every queue that had a failed delivery at their times, so a missing one had none.
        self._tables: list[tuple[int, _Table]] = []

    def forget(self) -> None:
        """Delete all findings, because the node has changed its cluster."""
        self._found, self._totals, self._looked_s = {}, {}, None
        self._forget_baselines()

    def begin(self) -> Round | None:
        """Return an object to show all queues to; None while the replica may miss acknowledged changes."""
        if not all(passed for _name, passed, _detail in self._health()):
            return None
        now_us = self._now_us()
        if self._tables and not 0 <= now_us - self._tables[-1][0] <= 2 * WINDOW_S * 1e6:
            # What happened in a long gap is not recent.
            self._forget_baselines()
        figures: _Table = {}
        if not self._tables:
            self._tables = [(now_us, figures)]
        elif now_us - self._tables[-1][0] >= WINDOW_S * 1e6:
            self._tables = [self._tables[-1], (now_us, figures)]
        return Round(self._thresholds, self._stats, now_us, figures, self._tables)

    def finish(self, round_: Round) -> None:
        """Replace the list by what the round has found."""
        self._found, self._totals = round_.result()
        self._window_s = (round_.now_us - self._tables[0][0]) / 1e6
        self._looked_s = monotonic()

    def totals(self) -> dict[Reason, int]:
        """Return the number of queues for each reason."""
        return {reason: self._totals.get(reason, 0) for reason in Reason}

    def describe(self, name: Callable[[bytes], Any], is_visible: Callable[[bytes], bool] | None) -> dict[str, Any]:
        """Return the list for a client, the worst queues of each reason first.

        Args:
            name: renders the name of a queue.
            is_visible: returns whether the client may see a queue; None if it may see all.
        """
        found = {reason: self._found.get(reason, []) for reason in Reason}
        totals = self.totals()
        if is_visible is not None:
            found = {reason: [one for one in some if is_visible(one.queue)] for reason, some in found.items()}
            totals = {reason: len(some) for reason, some in found.items()}
        listed = [one for some in found.values() for one in some][:LISTED_MAX]
        return {
            "queues": [{**asdict(one), "queue": name(one.queue)} for one in listed],
            "totals": totals,
            "window_s": self._window_s,
            "age_s": None if self._looked_s is None else monotonic() - self._looked_s,
        }


class Round:
    """One visit of all queues, at a log time.

    Args:
        figures: receives the counters of the queues that have had a failed delivery.
        tables: the counters at the start of the window and, later, at the start of the next one.
    """

    def __init__(
        self, thresholds: Thresholds, stats: Stats, now_us: int, figures: _Table, tables: list[tuple[int, _Table]]
    ) -> None:
        self.now_us = now_us
        self._figures = figures
        self._thresholds = thresholds
        self._stats = stats
        self._tables = tables
        self._since = _duration((now_us - tables[0][0]) / 1e6)
        limit_s = thresholds.waiting_s
        self._waiting_since_us = now_us - limit_s * 1_000_000 if limit_s else None
        self._worst: dict[Reason, list[_Candidate]] = {reason: [] for reason in Reason}
        self._totals = dict.fromkeys(Reason, 0)

    def visit(self, queue: Queue) -> None:
        """Compare a queue with the thresholds."""
        earliest_us = queue.store.earliest_us()
        if earliest_us is not None and self._waiting_since_us is not None and earliest_us <= self._waiting_since_us:
            ready = queue.store.due_count(self.now_us)
            # The oldest message may be under a lease that has expired.
            if ready:
                age = age_s(earliest_us, self.now_us) or 0.0
                self._add(Reason.WAITING, _Candidate(age, ready, queue.name, partial(self._waiting, queue, ready, age)))
        counters = queue.counters
        dead_lettered, dropped = counters.dead_lettered_total, counters.dropped_total
        returned = counters.nacked_total + counters.redelivered_total
        if dead_lettered or dropped or returned:
            now = self._figures[queue.name] = _Figures(dead_lettered, dropped, returned, counters.pulled_total)
            self._compare(queue.name, now)

    def result(self) -> tuple[dict[Reason, list[Finding]], dict[Reason, int]]:
        """Return the findings of each reason, the worst first, and their numbers."""
        found = {
            reason: [
                Finding(one.queue, reason, one.amount, one.age_s or None, one.detail())
                for one in sorted(some, reverse=True)
            ]
            for reason, some in self._worst.items()
        }
        return found, self._totals

    def _waiting(self, queue: Queue, ready: int, age: float) -> str:
        idle_s = self._stats.idle_s(queue.name)
        if queue.suspended:
            last = "the queue is suspended"
        elif idle_s is None:
            last = "no delivery since this node started"
        else:
            last = f"the last delivery was {_duration(idle_s)} ago"
        return f"ready: {ready:,}, the oldest for {_duration(age)}; {last}"

    def _compare(self, name: bytes, now: _Figures) -> None:
        thresholds, before = self._thresholds, self._before(name, now)
        dead_lettered, dropped = now.dead_lettered - before.dead_lettered, now.dropped - before.dropped
        given_up, returned = dead_lettered + dropped, now.returned - before.returned
        delivered = max(now.pulled - before.pulled, returned)
        if 0 < thresholds.dead_letters <= given_up:
            fates = [(dead_lettered, "dead-lettered"), (dropped, "dropped")]
            counted = " and ".join(f"{number:,} {fate}" for number, fate in fates if number)
            text = f"{counted} after the last delivery, in the last {self._since}"
            self._add(Reason.DEAD_LETTERS, _Candidate(0.0, given_up, name, lambda: text))
        if 0 < thresholds.returns <= returned and returned >= RETURNED_SHARE_MIN * delivered:
            counts = f"{returned:,} of {delivered:,} deliveries in the last {self._since}"
            self._add(
                Reason.RETURNS, _Candidate(0.0, returned, name, lambda: f"returned or not answered in time: {counts}")
            )

    def _before(self, name: bytes, now: _Figures) -> _Figures:
        """Return the counters at the start of the window; zero if the queue was created, or created again, since then."""
        before = self._tables[0][1].get(name)
        if before is None:
            # The first failed deliveries: those without failures before them are not in the tables.
            recent = max(now.returned, int(self._stats.recent(name)[1] * _ROUND_S))
            before = _Figures(0, 0, 0, max(0, now.pulled - recent))
            for _us, table in self._tables:
                table.setdefault(name, before)
        if any(then > count for then, count in zip(before, now, strict=True)):
            before = _Figures(0, 0, 0, 0)
        return before

    def _add(self, reason: Reason, candidate: _Candidate) -> None:
        self._totals[reason] += 1
        heap = self._worst[reason]
        if len(heap) < FINDINGS_MAX:
            heapq.heappush(heap, candidate)
        elif heap[0] < candidate:
            heapq.heapreplace(heap, candidate)


class _Candidate(NamedTuple):
    """A finding of a round, in the order of severity. Only those that are kept are described; names are unique."""

    age_s: float
    amount: int
    queue: bytes
    detail: Callable[[], str]


def _duration(seconds: float) -> str:
    return f"{int(seconds)} s" if seconds < 60 else str(timedelta(seconds=int(seconds)))
