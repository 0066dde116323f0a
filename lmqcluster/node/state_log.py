"""Logs transitions of a node between ready and not ready, and of its limits."""

from __future__ import annotations

from collections.abc import Iterable

import structlog

__all__ = ["StateLog"]

log = structlog.get_logger("lmq.node")


class StateLog:
    """The state that was logged last."""

    def __init__(self) -> None:
        self._ready = False
        self._full = False
        self._shortage = ""
        self._problem: str | None = None
        self._logged_problem: str | None = None

    def note_problem(self, problem: str | None) -> None:
        """Log the problem that prevents the election of a leader, if it is new and was there at the last call too.

        Nodes that start together wait for each other for a moment, which is no problem.
        """
        if problem is None or (problem == self._problem and problem != self._logged_problem):
            self._logged_problem = problem
            if problem is not None:
                log.warning("no leader can be elected", reason=problem)
        self._problem = problem

    def note_health(self, checks: Iterable[tuple[str, bool, str]]) -> None:
        """Log whether the node is ready, if that has changed. Checks are (name, passed, detail)."""
        failed = {name: detail for name, passed, detail in checks if not passed}
        ready = not failed
        if ready and not self._ready:
            log.info("ready")
        elif not ready and self._ready:
            log.warning("not ready", **failed)
        self._ready = ready

    def note_memory(self, used_bytes: int, limit_bytes: int) -> None:
        """Log whether the memory limit refuses pushes, if that has changed."""
        full = used_bytes > limit_bytes
        if full and not self._full:
            log.warning("memory limit reached, pushes are refused", used_bytes=used_bytes, limit_bytes=limit_bytes)
        elif not full and self._full:
            log.info("memory below the limit, pushes accepted again", used_bytes=used_bytes, limit_bytes=limit_bytes)
        self._full = full

    def note_disk(self, shortage: str) -> None:
        """Log whether the disk limit refuses pushes, if that has changed."""
        if shortage and not self._shortage:
            log.warning("disk limit reached, pushes are refused", reason=shortage)
        elif not shortage and self._shortage:
            log.info("room on the disk, pushes accepted again")
        self._shortage = shortage
