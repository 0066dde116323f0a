"""Transfer of leadership to another member."""

from __future__ import annotations

import asyncio

import structlog

from .member import MemberView

__all__ = ["transfer_leadership"]

DEADLINE_S = 3.0
_POLL_S = 0.02

log = structlog.get_logger("lmq.membership")


async def transfer_leadership(member: MemberView, target: str | None = None) -> bool:
    """If `member` leads others, transfer leadership to `target` or the most up-to-date member; False after a timeout.

    Under load no follower would ever hold the whole log, so the leader refuses proposals during the transfer. The
    proposers send them again.
    """
    core = member.core
    if not core.is_leader() or len(core.members()) == 1:
        return not core.is_leader()
    loop = asyncio.get_running_loop()
    deadline = loop.time() + DEADLINE_S
    asked = False
    core.hold_proposals(True)
    try:
        while core.is_leader() or core.leader_id() is None:
            if not member.transport.connected_ids():
                # The whole cluster stops, or this node is cut off: there is nothing to warn about.
                log.info("leadership not transferred", reason="no other member can be reached")
                return False
            if loop.time() > deadline:
                log.warning("leadership not transferred", reason="no up-to-date member took over")
                return False
            if core.is_leader() and not asked:
                asked = core.transfer_leadership(target)
                member.wake()
            await asyncio.sleep(_POLL_S)
        return True
    finally:
        core.hold_proposals(False)
