"""The log lines about whether a node serves: one when it begins to, one when it does not any more."""

from __future__ import annotations

from collections.abc import Iterable

import structlog

__all__ = ["StateLog"]

log = structlog.get_logger("lmq.node")


class StateLog:
    """What was said last."""

    def __init__(self) -> None:
        self._ready = False
        self._full = False
        self._shortage = ""
        self._problem: str | None = None

    def note_problem(self, problem: str | None) -> None:
        """Say what keeps the cluster from electing a leader, if that has changed."""
        if problem is not None and problem != self._problem:
            log.warning("no leader can be elected", reason=problem)
        self._problem = problem

    def note_health(self, checks: Iterable[tuple[str, bool, str]]) -> None:
        """Say whether the node is ready, given its checks as (name, passed, detail), if that has changed."""
        failed = {name: detail for name, passed, detail in checks if not passed}
        ready = not failed
        if ready and not self._ready:
            log.info("ready")
        elif not ready and self._ready:
            log.warning("not ready", **failed)
        self._ready = ready

    def note_memory(self, used_bytes: int, limit_bytes: int) -> None:
        """Say whether pushes are refused because of what is stored, if that has changed."""
        full = used_bytes > limit_bytes
        if full and not self._full:
            log.warning("memory limit reached, pushes are refused", used_bytes=used_bytes, limit_bytes=limit_bytes)
        elif not full and self._full:
            log.info("memory below the limit, pushes accepted again", used_bytes=used_bytes, limit_bytes=limit_bytes)
        self._full = full

    def note_disk(self, shortage: str) -> None:
        """Say whether pushes are refused because of the disk, if that has changed."""
        if shortage and not self._shortage:
            log.warning("disk limit reached, pushes are refused", reason=shortage)
        elif not shortage and self._shortage:
            log.info("room on the disk, pushes accepted again")
        self._shortage = shortage
