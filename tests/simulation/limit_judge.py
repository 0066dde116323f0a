"""Invariants of fair queues and of limits of deliveries, in log order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.queue_copies import Copies, Copy

__all__ = ["LimitJudge"]

TOKEN = 1_000_000


class LimitJudge:
    """Checks each delivery of a fair queue, before it counts, against the deliveries in flight and those before."""

    def __init__(self, copies: Copies, report: Callable[[str, object], None]) -> None:
        self._copies = copies
        self._report = report
        # Tokens in millionths, and the time for which they are known.
        self._buckets: dict[bytes, tuple[int, int]] = {}

    def check(self, copy: Copy) -> None:
        """Judge the delivery of a message."""
        copies, queue = self._copies, copy.queue
        leased = [one for one in copies.of(queue) if one.delivery]
        flights = Counter(one.group for one in leased)
        most = copies.value(queue, b"max_in_flight", None)
        group_most = copies.value(queue, b"group_max_in_flight", 1 << 62)
        if most is not None and len(leased) >= most:
            self._report("limit in flight exceeded", f"{copy}: {len(leased)} of {most}")
        if flights[copy.group] >= group_most:
            self._report("limit of a group exceeded", f"{copy}: {flights[copy.group]} of {group_most}")
        for other in copies.waiting(queue):
            if other.due_us <= copies.now_us and flights[other.group] < flights[copy.group]:
                self._report("not its turn", f"{copy} before {other}")
                break
        self._take_token(queue)

    def _take_token(self, queue: bytes) -> None:
        rate = self._copies.value(queue, b"rate", None)
        if rate is None:
            return
        now_us, full = self._copies.now_us, self._copies.value(queue, b"rate_burst", rate) * TOKEN
        tokens, at_us = self._buckets.get(queue, (full, now_us))
        tokens = min(full, tokens + (now_us - at_us) * rate) - TOKEN
        if tokens < 0:
            self._report("rate exceeded", f"{queue!r}: {tokens} tokens")
        self._buckets[queue] = (max(tokens, 0), now_us)
