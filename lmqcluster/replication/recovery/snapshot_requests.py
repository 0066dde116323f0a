"""Requests of a member for a newer state, when it cannot continue because no member has a page that it needs.

The log cannot help: the page belongs to a state that the others no longer have. A snapshot of the leader's current
state does not name the lost page, and the member has nearly all other pages. A leader in this situation transfers
leadership first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from ..base.membership import PeerNode
from ..raft.core import RaftCore
from .page_exchange import Send

__all__ = ["SnapshotRequests"]

log = structlog.get_logger("lmq.pages")

ASK_S = 1.0
"""Time between two requests."""
PATIENCE_S = 60.0
"""The node stops if no part of a newer state has arrived for this long."""


class SnapshotRequests:
    """One member's requests, and its answers to those of others.

    Args:
        send: sends a message to a member.
        in_step: runs an action when nothing else uses the core.
    """

    def __init__(self, core: RaftCore, send: Send, in_step: Callable[[Callable[[], None]], None]) -> None:
        self._core = core
        self._send = send
        self._in_step = in_step
        self._loop = asyncio.get_running_loop()
        self._until_s = 0.0
        self._received_blocks = 0
        self._in_vain: Callable[[], None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, in_vain: Callable[[], None]) -> None:
        """Request a snapshot that is newer than the state; call `in_vain` if none arrives.

        The transfer may take any time, as long as blocks arrive.
        """
        if self._in_vain is None:
            log.warning("no member has a page that is needed, asking the leader for its state")
            self._in_vain = in_vain
            self._until_s = self._loop.time() + PATIENCE_S
            self._core.needs_snapshot = True
            self._ask()

    def end(self) -> None:
        """Stop requesting, because there is a newer state or the pages have arrived."""
        self._core.needs_snapshot = False
        self._in_vain = None
        if self._timer is not None:
            self._timer.cancel()

    def asked(self, node: PeerNode, applied: int) -> None:
        """Send a newer snapshot to a member that needs a state after the entry `applied`."""
        if self._core.is_leader():
            self._in_step(lambda: self._core.sender().send_newer_snapshot(node, applied))

    def _ask(self) -> None:
        in_vain = self._in_vain
        if in_vain is None:
            return
        received_blocks = self._core.received_blocks()
        if received_blocks != self._received_blocks or self._core.is_loading():
            self._received_blocks = received_blocks
            self._until_s = self._loop.time() + PATIENCE_S
        if self._loop.time() >= self._until_s or len(self._core.members()) <= 1:
            self.end()
            in_vain()
            return
        if self._core.is_leader():
            self._in_step(self._hand_over)
        else:
            self._ask_leader()
        self._timer = self._loop.call_later(ASK_S, self._ask)

    def _ask_leader(self) -> None:
        leader = self._core.leader_id()
        if leader is not None:
            self._send(PeerNode(leader), {"type": "snapshot_request", "applied": self._core.applied_index()})

    def _hand_over(self) -> None:
        if self._in_vain is not None and self._core.is_leader():
            self._core.transfer_leadership()
