"""The interface of a member to its parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ..core import Machine
from .base.membership import PeerNode
from .peers.transport import PeerTransport
from .raft.core import RaftCore
from .recovery.page_exchange import PageExchange
from .storage.meta import NodeMeta
from .storage.page_files import PageFiles
from .storage.snapshots.snapshot_store import SnapshotInfo

__all__ = ["MemberView"]


class MemberView(Protocol):
    """The part of `Replica` that its own parts use.

    Attributes:
        core, machine, transport, meta, pages, page_exchange: see `Replica`.
    """

    core: RaftCore
    machine: Machine
    transport: PeerTransport
    meta: NodeMeta
    pages: PageFiles
    page_exchange: PageExchange

    # --- steps, see `Steps` -------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Run a step in this turn of the event loop."""

    def in_step(self, action: Callable[[], None]) -> None:
        """Run `action` at the beginning of the next step, when nothing else uses the core."""

    def take_input(self) -> None:
        """Pass received messages and pending actions to the core."""

    def advance(self) -> None:
        """Commit, apply, append and send."""

    def finish(self) -> bool:
        """Carry out the consequences of a step; return whether there is more to do immediately."""

    def on_event_loop_stall(self, seconds: float) -> None:
        """Extend the timeouts after a stall of the event loop, in which this member has heard no other."""

    def keep_alive(self) -> None:
        """Send heartbeats while a sync blocks the core."""

    def failed(self, error: Exception) -> None:
        """Stop: continuing could break a promise."""

    # --- snapshots, see `SnapshotKeeper` ------------------------------------------------------------------------------

    def position(self) -> tuple[int, int, dict[str, str]]:
        """Return index and term of the last applied entry, and the members at that index."""

    def snapshots_in_use(self) -> list[SnapshotInfo]:
        """Return the snapshots that are being sent."""

    def acknowledge_blocks(self) -> None:
        """Acknowledge blocks of the incoming snapshot after the disk has caught up with them."""

    def snapshot_taken(self, info: SnapshotInfo) -> None:
        """Called when a snapshot is complete."""

    def replace_machine(self, machine: Machine) -> None:
        """Called when a snapshot has been installed."""

    # --- other members, see `LostPages` and `PeerRequests` ------------------------------------------------------------

    def peers_now(self) -> list[PeerNode]:
        """Return the members that can be asked now."""

    def others_count(self) -> int:
        """Return the number of members besides this one."""

    def hold_back(self, held: bool) -> None:
        """Stop applying entries, or continue."""

    def is_able(self, node_id: str) -> bool:
        """Return whether a member can be reached from here and counts for the quorum."""
