"""Counters and histograms that a node keeps for its metrics page."""

from __future__ import annotations

from collections.abc import Callable

from ...replication.base.histogram import Histogram
from .kestrel_counts import KestrelCounts

__all__ = ["Observed"]

_WAITING_S = (0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0)
_LAG_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class Observed:
    """Counters and histograms that are updated as the node works; all other metrics are read at the scrape.

    Attributes:
        connections: open connections by protocol; ports register themselves.
        in_flight: requests in flight by protocol; ports register themselves.
        requests: durations of requests by (protocol, operation, code).
        time_in_queue: seconds for which delivered messages had been due.
        loop_lag: seconds by which a timer was late.
        apply_faults: committed commands that failed to apply.
        kestrel: counters of Kestrel clients.
        leader_changes: number of changes of the leader or its term.
    """

    def __init__(self) -> None:
        self.connections: dict[str, Callable[[], int]] = {}
        self.in_flight: dict[str, Callable[[], int]] = {}
        self.requests: dict[tuple[str, str, str], Histogram] = {}
        self.time_in_queue = Histogram(_WAITING_S)
        self.loop_lag = Histogram(_LAG_S)
        self.kestrel = KestrelCounts()
        self.apply_faults = 0
        self.leader_changes = 0

    def request_done(self, protocol: str, operation: str, code: str, seconds: float, count: int = 1) -> None:
        """Count `count` answered requests of the same duration."""
        key = (protocol, operation, code)
        durations = self.requests.get(key)
        if durations is None:
            durations = self.requests[key] = Histogram()
        durations.observe(seconds, count)
