"""Figures of the members: memory, disk and log of this node, and of the others on request.

The node asks each other member over the Raft port, on a separate connection and at most once a second. It asks only while a
client requests the figures.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from ..replication.base.status import ReplicaStatus
from ..replication.peers.messages import FrameError
from ..replication.replica import Replica
from .config.config import NodeConfig
from .process.disk_budget import DiskBudget
from .process.memory import resident_bytes
from .queues.service import QueueService

__all__ = ["VERB", "PeerFigures", "own_figures"]

VERB: Final = "vitals"
ASK_PERIOD_S: Final = 1.0
ASK_TIMEOUT_S: Final = 3.0
PATIENCE_S: Final = 0.1
"""How long a request waits for connected members; it shows later answers the next time."""


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


@dataclass(slots=True)
class _Seen:
    """The last answer of a member: arrival and round trip (event-loop seconds), commit index at the request, and figures."""

    at: float
    round_trip_s: float
    commit_index: int
    figures: dict[str, Any]


class PeerFigures:
    """The latest figures of the other members.

    Args:
        replica: returns the current replica, which is replaced when the node joins or leaves a cluster.
        own: returns the figures of this node.
    """

    def __init__(self, replica: Callable[[], Replica], own: Callable[[], dict[str, Any]]) -> None:
        self._replica = replica
        self._own = own
        self._loop = asyncio.get_running_loop()
        self._seen: dict[str, _Seen] = {}
        self._asked_at = float("-inf")
        self._asking: dict[str, asyncio.Task[None]] = {}

    async def look(self) -> None:
        """Ask every other member, at most once per `ASK_PERIOD_S`; most answer before this returns."""
        now = self._loop.time()
        if now - self._asked_at >= ASK_PERIOD_S:
            self._asked_at = now
            self._ask_all()
        connected = self._replica().status().connected
        expected = [task for member, task in self._asking.items() if member in connected]
        if expected:
            await asyncio.wait(expected, timeout=PATIENCE_S)

    def _ask_all(self) -> None:
        status = self._replica().status()
        members = status.members
        self._seen = {one: seen for one, seen in self._seen.items() if one in members}
        for member, address in members.items():
            if member != status.id and member not in self._asking:
                task = self._asking[member] = self._loop.create_task(self._ask(member, address))
                task.add_done_callback(partial(self._answered, member))

    def describe(self, member: str) -> dict[str, Any]:
        """Return a member's figures with ``last_contact_s``, ``round_trip_s`` and ``lag``; all None until the member answers."""
        if member == self._replica().id:
            own = self._own()
            lag = own["commit_index"] - own["applied_index"]
            return {"last_contact_s": 0.0, "round_trip_s": 0.0, "lag": lag, "vitals": own}
        seen = self._seen.get(member)
        if seen is None:
            return {"last_contact_s": None, "round_trip_s": None, "lag": None, "vitals": None}
        return {
            "last_contact_s": self._loop.time() - seen.at,
            "round_trip_s": seen.round_trip_s,
            "lag": max(0, seen.commit_index - seen.figures["applied_index"]) if seen.figures else None,
            "vitals": seen.figures or None,
        }

    def close(self) -> None:
        """Cancel all requests to other members."""
        for task in list(self._asking.values()):
            task.cancel()

    def _answered(self, member: str, _task: asyncio.Task[None]) -> None:
        del self._asking[member]

    async def _ask(self, member: str, address: str) -> None:
        replica = self._replica()
        begun = self._loop.time()
        commit_index = replica.status().commit_index
        try:
            figures = await replica.transport.ask(address, VERB, [], timeout_s=ASK_TIMEOUT_S)
        except LookupError:
            # The member does not serve this request, but it is reachable.
            figures = {}
        except (OSError, TimeoutError, FrameError):
            # The age of the last contact shows the failure.
            return
        now = self._loop.time()
        self._seen[member] = _Seen(now, now - begun, commit_index, figures)
