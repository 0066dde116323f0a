"""Figures of the members: memory, disk and log of this node, and of the others while a client requests them."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from typing import Any, Final

from ..replication.base.status import ReplicaStatus
from ..replication.replica import Replica
from .config.config import NodeConfig
from .peer_poll import PeerPoll
from .process.disk_budget import DiskBudget
from .process.memory import resident_bytes
from .queues.service import QueueService

__all__ = ["VERB", "PeerFigures", "own_figures"]

VERB: Final = "vitals"
PATIENCE_S: Final = 0.1
"""How long a request for the overview waits for connected members."""


def own_figures(
    status: ReplicaStatus,
    config: NodeConfig,
    service: QueueService,
    budget: DiskBudget,
    *,
    version: str,
    uptime_s: float,
    connections: int,
) -> dict[str, Any]:
    """Return the figures of this node."""
    disk = shutil.disk_usage(config.data_dir)
    return {
        "version": version,
        "uptime_s": uptime_s,
        "term": status.term,
        "commit_index": status.commit_index,
        "applied_index": status.applied_index,
        "stored_bytes": service.sender.stored_bytes,
        "stored_bytes_max": config.memory_bytes_max,
        "process_bytes": resident_bytes(),
        "processor_s": time.process_time(),
        "connections": connections,
        "disk_free_bytes": disk.free,
        "disk_total_bytes": disk.total,
        "kept_bytes": budget.used_bytes,
        "kept_bytes_max": budget.limit_bytes,
        "log_bytes": status.log_bytes,
        "snapshot_index": status.snapshot_index,
        "waiting_pulls": service.pulls.waiting(),
        # Only the leader knows the match indexes of the others.
        "match": dict(status.match_indexes),
    }


class PeerFigures:
    """The latest figures of the other members.

    Args:
        replica: returns the current replica, which is replaced when the node joins or leaves a cluster.
        own: returns the figures of this node.
    """

    def __init__(self, replica: Callable[[], Replica], own: Callable[[], dict[str, Any]]) -> None:
        self._replica = replica
        self._own = own
        self._poll = PeerPoll(replica, VERB, [], patience_s=PATIENCE_S)
        self.look = self._poll.look
        self.close = self._poll.close

    def describe(self, member: str) -> dict[str, Any]:
        """Return a member's figures with ``last_contact_s``, ``round_trip_s`` and ``lag``; all None until the member answers.

        The lag of a member that cannot be reached is None, because its last answer no longer shows it.
        """
        replica = self._replica()
        if member == replica.id:
            own = self._own()
            lag = own["commit_index"] - own["applied_index"]
            return {"last_contact_s": 0.0, "round_trip_s": 0.0, "lag": lag, "vitals": own}
        seen = self._poll.answer(member)
        if seen is None:
            return {"last_contact_s": None, "round_trip_s": None, "lag": None, "vitals": None}
        is_known = seen.result and replica.status().reaches(member)
        return {
            "last_contact_s": self._poll.age_s(seen),
            "round_trip_s": seen.round_trip_s,
            "lag": max(0, seen.commit_index - seen.result["applied_index"]) if is_known else None,
            "vitals": seen.result or None,
        }
