"""The progress figures of messages that a query has not read yet.

Spark shows them in ``sources[0].latestOffset``. A Python source cannot set ``sources[0].metrics``: PySpark 4.3 has no
call for it.
"""

from __future__ import annotations

from typing import Any, Final

from lmqcluster.client import Backlog

__all__ = ["QUEUES_MAX", "lag"]

QUEUES_MAX: Final = 20
"""Number of queues listed by name, those with most messages."""
_CLOSED: Final = ("suspended", "exclusive")


def lag(backlog: Backlog, now_s: float) -> dict[str, Any]:
    """Return the backlog as JSON: messages, bytes, and age of the oldest message in seconds, in total and of the
    largest queues.

    Suspended and exclusive queues, from which nothing is read, are listed if there are any.
    """
    queues = {one.queue: _to_json(one.messages, one.body_bytes, one.oldest_due_us, now_s) for one in backlog.queues}
    closed = {reason: [one.queue for one in backlog.closed if one.reason == reason] for reason in _CLOSED}
    return {
        **_to_json(backlog.messages + backlog.held, backlog.body_bytes, backlog.oldest_due_us, now_s),
        "queues": queues,
        **{reason: names for reason, names in closed.items() if names},
    }


def _to_json(messages: int, body_bytes: int | None, oldest_due_us: int | None, now_s: float) -> dict[str, Any]:
    age_s = None if oldest_due_us is None else round(max(0.0, now_s - oldest_due_us / 1e6), 3)
    return {"backlog": messages, "backlog_bytes": body_bytes, "oldest_age_s": age_s}
