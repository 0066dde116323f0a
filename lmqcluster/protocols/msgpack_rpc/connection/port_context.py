"""The state that the connections of the port share: the node and what of its time and memory they may use."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..served_node import ServedNode
from ..values.transcoding import Transcoder
from .shared_answers import SharedAnswers

__all__ = ["PortContext"]

ROOM_LOOK_S = 0.005
VALUES_PER_S = 2_000_000
"""Values of unfinished large requests scanned per second, which takes about a quarter of the node's time."""
PACE = 3.0
"""Pause before more of them is read, as a multiple of the last scan's time; it matters on a busy machine."""


class PortContext:
    """The node behind the port, and the limits on the work of all connections together.

    Attributes:
        node: the node whose queues are served.
        transcoder: limits the decoding of stored bodies per turn of the event loop.
        answers: answers requests that share a command.
        may_repeat: whether front ends may recognize repeated pushes. Requests that are logged, or charged to their client,
            are handled in full.
    """

    def __init__(self, node: ServedNode, *, may_repeat: bool = False) -> None:
        self.node = node
        self.may_repeat = may_repeat
        self.transcoder = Transcoder()
        self.answers = SharedAnswers()
        self._paced_s = 0.0
        self._waiting: list[Callable[[], None]] = []
        self._timer: asyncio.TimerHandle | None = None

    def wait_for_room(self, go_on: Callable[[], None]) -> None:
        """Call `go_on` once the node has processed the pending commands."""
        self._waiting.append(go_on)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(ROOM_LOOK_S, self._look_for_room)

    def _look_for_room(self) -> None:
        self._timer = None
        if self.node.service.sender.proposer.is_full():
            self._timer = asyncio.get_running_loop().call_later(ROOM_LOOK_S, self._look_for_room)
            return
        waiting, self._waiting = self._waiting, []
        for go_on in waiting:
            go_on()

    def pace(self, values: int, spent_s: float) -> float:
        """Return the seconds until a connection may be read again after this many values were scanned in this time.

        All connections together get `VALUES_PER_S`. On a busy or slow machine they get only a part of the time, so that
        most of it is left for other clients.
        """
        now_s = asyncio.get_running_loop().time()
        self._paced_s = max(self._paced_s, now_s) + max(values / VALUES_PER_S, PACE * spent_s)
        return self._paced_s - now_s

    def close(self) -> None:
        """Stop looking for room."""
        if self._timer is not None:
            self._timer.cancel()
