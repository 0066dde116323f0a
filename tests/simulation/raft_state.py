"""Raft's state read from PySyncObj's private attributes, which all subjects share."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pysyncobj import SyncObj

    from tests.simulation.host import Host

__all__ = ["RaftState"]

LEADER = 2


class RaftState:
    """The properties of `host.Replica` that the checkers read after every event."""

    core: SyncObj
    _host: Host

    @property
    def term(self) -> int:
        return self.core._SyncObj__raftCurrentTerm

    @property
    def is_leader(self) -> bool:
        return self.core._SyncObj__raftState == LEADER

    @property
    def commit_index(self) -> int:
        return self.core._SyncObj__raftCommitIndex

    def kept(self) -> tuple[int, int] | None:
        """Return the indexes of the latest snapshot (0 without one) and of the last applied entry; None
        without a log on disk.
        """
        return None

    @property
    def members(self) -> list[str]:
        core = self.core
        return sorted([core.selfNode.id, *(node.id for node in core._SyncObj__otherNodes)])

    def digest(self) -> bytes:
        return self._host.application.digest
