"""The counters of a queue, which only grow. Snapshots, statistics, metrics and the description of the API follow this table."""

from __future__ import annotations

from typing import Final

__all__ = ["COUNTERS", "QueueCounters"]

COUNTERS: Final = {
    "pushed_total": "Messages stored.",
    "pulled_total": "Deliveries.",
    "acked_total": "Messages acknowledged.",
    "nacked_total": "Messages returned by their consumers.",
    "redelivered_total": "Leases that expired without an answer.",
    "dropped_total": "Messages dropped after their last delivery.",
    "purged_total": "Messages removed by a purge.",
    "moved_out_total": "Messages moved to other queues.",
    "moved_in_total": "Messages moved in from other queues.",
    "expired_total": "Messages that expired before their delivery.",
    "dead_lettered_total": "Messages moved to the dead-letter queue after their last delivery.",
    "refused_total": "Messages refused because the queue was full or they were too large for it.",
    "discarded_total": "Messages discarded to make room for new ones.",
    "withdrawn_total": "Messages withdrawn by their label.",
    "deduplicated_total": "Pushes that stored nothing because their idempotency key was known.",
}
"""Description of each counter. The order is that of snapshots: append new counters, and raise the snapshot format."""


class QueueCounters:
    """One attribute for each counter."""

    __slots__ = tuple(COUNTERS)

    pushed_total: int
    pulled_total: int
    acked_total: int
    nacked_total: int
    redelivered_total: int
    dropped_total: int
    purged_total: int
    moved_out_total: int
    moved_in_total: int
    expired_total: int
    dead_lettered_total: int
    refused_total: int
    discarded_total: int
    withdrawn_total: int
    deduplicated_total: int

    def __init__(self) -> None:
        for counter in COUNTERS:
            setattr(self, counter, 0)
