"""Linearizable reads without a log entry, by a read index that the node obtains from a majority.

An acknowledged entry is in the logs of a majority of the members. So a node asks the others for the ends of their
logs. The longest log of a majority, including the node's, holds every acknowledged entry. Once the node has applied
its log up to that index, its state shows them. The answers count only if they come from the same set of members: the
majorities of two successive sets always overlap, so if a whole majority knows this set alone, no later set has
decided anything.

Reads that arrive while a question is pending share the next one: the answers may be older than those reads.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable
from typing import Any

from ..base.membership import PeerNode
from .view import RaftView

__all__ = ["ReadIndex"]

TIMEOUT_S = 0.5
"""Timeout of a question; after it, the read needs a log entry instead."""


class ReadIndex:
    """The questions of one member, and its answers.

    Args:
        node_id: its id.
        core: provides the members and the applied index.
        last_index: returns the last entry of its log.
        send: sends a message to a member; False if it cannot be reached.
    """

    def __init__(
        self,
        node_id: str,
        core: RaftView,
        last_index: Callable[[], int],
        send: Callable[[PeerNode, dict[str, Any]], bool],
    ) -> None:
        self._node_id = node_id
        self._core = core
        self._last_index = last_index
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._round = 0
        self._asking: asyncio.Future[int] | None = None
        self._next: asyncio.Future[int] | None = None
        self._heard: dict[str, int] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._waiting: list[tuple[int, asyncio.Future[bool]]] = []

    async def fresh(self) -> bool:
        """Wait until this replica shows all earlier acknowledged entries; False if that fails within `TIMEOUT_S`."""
        try:
            async with asyncio.timeout(TIMEOUT_S):
                index = await asyncio.shield(self._question())
                if index > self._core.applied_index():
                    applied: asyncio.Future[bool] = self._loop.create_future()
                    self._waiting.append((index, applied))
                    await applied
        except TimeoutError:
            return False
        return index >= 0

    def _question(self) -> asyncio.Future[int]:
        """Return the next question; its result is negative if no majority answers."""
        if self._next is None:
            self._next = self._loop.create_future()
            if self._asking is None:
                # Reads of this turn of the event loop share it.
                self._loop.call_soon(self._ask)
        return self._next

    def _ask(self) -> None:
        self._asking, self._next = self._next, None
        if self._asking is None:
            return
        self._round += 1
        self._heard = {}
        self._timer = self._loop.call_later(TIMEOUT_S, self._end, -1)
        if not self._core.is_recovering():
            self._heard[self._node_id] = self._last_index()
        for other in self._core.members():
            if other != self._node_id:
                self._send(PeerNode(other), {"type": "where", "round": self._round})
        self._conclude()

    def asked(self, node: PeerNode, round_: int) -> None:
        """Answer the question of another member."""
        if not self._core.is_recovering():
            last, members = self._last_index(), fingerprint(self._core.members())
            self._send(node, {"type": "here", "round": round_, "last": last, "members": members})

    def answered(self, node_id: str, round_: int, last: int, members: bytes) -> None:
        """Record the answer of another member."""
        known = self._core.members()
        if round_ == self._round and node_id in known and members == fingerprint(known):
            self._heard[node_id] = last
            self._conclude()

    def _conclude(self) -> None:
        members = self._core.members()
        if self._asking is not None and self._node_id in members and 2 * len(self._heard) > len(members):
            self._end(max(self._heard.values()))

    def _end(self, index: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        asking, self._asking = self._asking, None
        if asking is not None and not asking.done():
            asking.set_result(index)
        if self._next is not None:
            self._loop.call_soon(self._ask)

    def applied(self) -> None:
        """Finish reads that wait for entries that are applied now."""
        if self._waiting:
            index = self._core.applied_index()
            for wanted, future in self._waiting:
                if wanted <= index and not future.done():
                    future.set_result(True)
            self._waiting = [(wanted, future) for wanted, future in self._waiting if not future.done()]


def fingerprint(members: Iterable[str]) -> bytes:
    """Return a digest that is equal for equal sets of members."""
    return hashlib.blake2b("\n".join(sorted(members)).encode(), digest_size=16).digest()
