"""How the members are: memory, disk and log of this node, and of the others when somebody looks.

The others are asked over the peers' port, each on a connection of its own and at most once a second, and only while somebody
looks: a cluster that nobody watches pays nothing.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..replication.messages import FrameError

if TYPE_CHECKING:
    from .node import Node

__all__ = ["VERB", "PeerFigures", "own_figures"]

VERB: Final = "vitals"
ASK_PERIOD_S: Final = 1.0
ASK_TIMEOUT_S: Final = 3.0
PATIENCE_S: Final = 0.1
"""How long whoever looks waits for members that are connected; later answers are shown the next time."""
_STATM = Path("/proc/self/statm")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def own_figures(node: Node) -> dict[str, Any]:
    """The figures of this node."""
    replica = node.replica
    core = replica.core
    disk = shutil.disk_usage(node.config.data_dir)
    latest = replica.snapshots.latest()
    return {
        "version": node.version,
        "uptime_s": node.totals.uptime_s(),
        "term": core.term(),
        "commit_index": core.commit_index(),
        "applied_index": core.applied_index(),
        "stored_bytes": node.service.stored_bytes,
        "stored_bytes_max": node.config.memory_bytes_max,
        "process_bytes": _process_bytes(),
        "disk_free_bytes": disk.free,
        "disk_total_bytes": disk.total,
        "log_bytes": replica.journal.size_bytes,
        "snapshot_index": 0 if latest is None else latest.index,
        "waiting_pulls": node.service.pulls.waiting(),
        # Only the leader knows how much of the log the others have.
        "match": {one: core.match_index(one) or 0 for one in core.members()} if core.is_leader() else {},
    }


def _process_bytes() -> int | None:
    """Memory of the process; None where the system does not tell it this way."""
    try:
        return int(_STATM.read_text(encoding="ascii").split()[1]) * _PAGE_BYTES
    except OSError:
        return None


@dataclass(slots=True)
class _Seen:
    """The last answer of a member: when it came, how long it took (seconds of the event loop), and what was committed then."""

    at: float
    round_trip_s: float
    commit_index: int
    figures: dict[str, Any]


class PeerFigures:
    """What the other members last told."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._loop = asyncio.get_running_loop()
        self._seen: dict[str, _Seen] = {}
        self._asked_at = float("-inf")
        self._asking: dict[str, asyncio.Task[None]] = {}

    async def look(self) -> None:
        """Somebody looks: ask every other member again, unless that was done just now; most answer before this returns."""
        now = self._loop.time()
        if now - self._asked_at >= ASK_PERIOD_S:
            self._asked_at = now
            self._ask_all()
        connected = self._node.replica.transport.connected_ids()
        expected = [task for member, task in self._asking.items() if member in connected]
        if expected:
            await asyncio.wait(expected, timeout=PATIENCE_S)

    def _ask_all(self) -> None:
        members = self._node.replica.core.members()
        self._seen = {one: seen for one, seen in self._seen.items() if one in members}
        for member, address in members.items():
            if member != self._node.id and member not in self._asking:
                task = self._asking[member] = self._loop.create_task(self._ask(member, address))
                task.add_done_callback(partial(self._answered, member))

    def describe(self, member: str) -> dict[str, Any]:
        """A member's figures, with ``last_contact_s``, ``round_trip_s`` and ``lag`` as of then; None before it has answered."""
        if member == self._node.id:
            core = self._node.replica.core
            lag = core.commit_index() - core.applied_index()
            return {"last_contact_s": 0.0, "round_trip_s": 0.0, "lag": lag, "vitals": own_figures(self._node)}
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
        """Ask nobody any more."""
        for task in list(self._asking.values()):
            task.cancel()

    def _answered(self, member: str, _task: asyncio.Task[None]) -> None:
        del self._asking[member]

    async def _ask(self, member: str, address: str) -> None:
        transport = self._node.replica.transport
        begun = self._loop.time()
        commit_index = self._node.replica.core.commit_index()
        try:
            figures = await transport.ask(address, VERB, [], timeout_s=ASK_TIMEOUT_S)
        except LookupError:
            # An older program does not know the question, but it is there.
            figures = {}
        except (OSError, TimeoutError, FrameError):
            # That it did not answer shows in the age of its last contact.
            return
        now = self._loop.time()
        self._seen[member] = _Seen(now, now - begun, commit_index, figures)
