"""Log lines about a node's role in its cluster: one for each change that matters to operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from .raft.core import RaftCore

__all__ = ["RoleLog"]

log = structlog.get_logger("lmq.replica")


class RoleLog:
    """The last logged state.

    Args:
        name_of: returns the name of a member for people, or its id.
    """

    def __init__(self, name_of: Callable[[str], str]) -> None:
        self._name_of = name_of
        self._leadership: tuple[str, int] | None = None
        self._role = ""
        self._members: dict[str, str] = {}
        self._recovering = False
        self._removed = False

    def note(self, core: RaftCore, *, forgetful: bool) -> None:
        """Log changes. `forgetful`: a recovering node may really have lost entries."""
        self._note_leader(core)
        role = core.role()
        if role != self._role:
            self._role = role
            log.debug("state", state=role, term=core.term())
        members = core.members()
        if members != self._members:
            self._members = members
            log.info("members", members=sorted(members))
        recovering = core.is_recovering() and forgetful
        if recovering != self._recovering:
            self._recovering = recovering
            log.info("recovering what may be forgotten, not voting" if recovering else "recovered, voting again")
        if core.was_removed() and not self._removed:
            self._removed = True
            log.warning("removed from the cluster")

    def _note_leader(self, core: RaftCore) -> None:
        leader, term = core.leader_id(), core.term()
        before = self._leadership
        if leader is None:
            if before is not None:
                self._leadership = None
                log.info("no leader", lost=before[0], name=self._name_of(before[0]), term=term)
        elif (leader, term) != before:
            self._leadership = (leader, term)
            event = "became leader" if core.is_leader() else "following leader"
            log.info(event, leader=leader, name=self._name_of(leader), term=term, state=core.role())
