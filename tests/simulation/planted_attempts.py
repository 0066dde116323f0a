"""Bugs in pushes under attempts. Each is a patch for the duration of a run, as in `switches`."""

from __future__ import annotations

from typing import Any

from lmqcluster.core.dedup.attempts import Attempts
from lmqcluster.core.handlers import push
from lmqcluster.node.queues.sending.coalesced_result import CoalescedResult, _Shares
from tests.simulation.switches import switch

__all__ = ["PLANTED_ATTEMPTS"]

_find = Attempts.find
_completed = _Shares.completed


def _only_the_latest(self: Attempts, owner: bytes, key: bytes, now_us: int) -> Any:
    """Know only the latest attempt of an owner."""
    owned = self._owned.get(owner)
    return None if owned is None or owned.rows[-1].key != key else _find(self, owner, key, now_us)


def _all_like_the_first(self: Any, pending: Any, result: Any) -> None:
    """Give each client of a shared command the results of the first one."""
    shares: list[CoalescedResult] = list(dict.fromkeys(pending.requests))
    for share in shares:
        share.outcome.set_result(None if result is None else result[: share.count])


PLANTED_ATTEMPTS: dict[str, Any] = {
    "snapshots without attempts": switch([(Attempts, "rows", lambda _: iter(()))]),
    "attempts end after a second": switch([(push, "ATTEMPT_US", 1_000_000)]),
    "only the latest attempt known": switch([(Attempts, "find", _only_the_latest)]),
    "results of another client": switch([(_Shares, "completed", _all_like_the_first)]),
}
"""By name, the context manager of each bug."""
