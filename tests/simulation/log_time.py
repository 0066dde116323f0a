"""The relation of log time to virtual time: log time never runs faster, and stops while no machine runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.checkers import Checkers
    from tests.simulation.host import Host

__all__ = ["LogTimeJudge"]

ERROR_US = 1_000


class LogTimeJudge:
    """Compares the stamps of committed entries with the virtual times at which leaders gave them."""

    def __init__(self, checkers: Checkers) -> None:
        self._checkers = checkers
        self.begin_again()

    def begin_again(self) -> None:
        """Start over: the cluster has no log yet, or has lost it and its log time."""
        # By stamp, how far it was ahead of virtual time, and how far it could have been.
        self._given: dict[int, tuple[int, int | None]] = {}
        self._index = self._latest_us = 0
        # The largest permitted advance; None until an entry shows where log time began.
        self._limit_us: int | None = None

    def starts(self, now_us: int) -> None:
        """Note the start of a process; if no other runs, no log time has passed since the latest stamp."""
        is_alone = not any(host.running for host in self._checkers.hosts.values())
        if self._limit_us is not None and is_alone:
            self._limit_us = min(self._limit_us, self._latest_us - now_us)

    def stamped(self, stamp_us: int, now_us: int) -> None:
        """Note that a leader stamps a batch at a virtual time."""
        # If time was stopped, a later leader may repeat a stamp that is in no log.
        self._given[stamp_us] = stamp_us - now_us, self._limit_us
        self._latest_us = max(self._latest_us, stamp_us)

    def applied(self, host: Host, index: int, stamp_us: int) -> None:
        """Check the stamp of entry `index`, which a replica has applied."""
        if index <= self._index or stamp_us not in self._given:
            return
        self._index = index
        ahead_us, limit_us = self._given[stamp_us]
        if self._limit_us is None:
            self._limit_us = ahead_us
        if limit_us is not None and ahead_us > limit_us + ERROR_US:
            detail = f"{host.id} applies index {index}, stamped {ahead_us - limit_us} us too late"
            self._checkers.report("log time jumps", detail)
