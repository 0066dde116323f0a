"""Exclusive queues: one session at a time pulls, the others wait in the order in which they asked."""

from __future__ import annotations

from ..state_view import StateView
from .wait_lists import WaitLists

__all__ = ["ExclusiveQueues"]


class ExclusiveQueues(WaitLists):
    """The lines by queue. A place outlives the queue, and the property that made the queue exclusive."""

    def __init__(self, state: StateView) -> None:
        super().__init__(state.quotas)
        self._state = state

    def leave(self, name: bytes, session: int) -> bool:
        """Remove a session from a line; the next one may pull. False if it is not in it."""
        held = self.holder(name) == session
        left = super().leave(name, session)
        queue = self._state.queues.get(name)
        if held and queue is not None:
            self._state.note_due(queue)
        return left
