"""A member whose state cannot go on, because nobody has a page that it needs, has the leader send it a newer state.

The log cannot help it: the page belongs to a state that the others have left behind. A snapshot of the leader's present state
does not name what is gone, and the member has nearly all other pages. A leader that is in need lets another member lead first.
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
"""From one request to the next."""
PATIENCE_S = 60.0
"""After so long in which nothing of a newer state has come the node stops."""


class SnapshotRequests:
    """One member's requests, and its answers to those of others.

    Args:
        send: sends a message to a member.
        in_step: runs something when nothing else uses the core.
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
        """Have a snapshot sent that is newer than the state; `in_vain` is called if none comes.

        It may take any time to arrive, as long as it does arrive.
        """
        if self._in_vain is None:
            log.warning("no member has a page that is needed, asking the leader for its state")
            self._in_vain = in_vain
            self._until_s = self._loop.time() + PATIENCE_S
            self._core.needs_snapshot = True
            self._ask()

    def end(self) -> None:
        """There is a newer state, or the pages have come."""
        self._core.needs_snapshot = False
        self._in_vain = None
        if self._timer is not None:
            self._timer.cancel()

    def asked(self, node: PeerNode, applied: int) -> None:
        """A member needs a state after the entry `applied`."""
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
