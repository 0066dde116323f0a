"""Pushes that may wait for room. Every public method but `serve` is one command of the state machine."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..log import commands as log
from ..log.results import Fault, RefusedError
from ..owners.quotas import checked_owner
from ..queue.queue import Queue
from ..routing.waiting_pushes import WaitingPush
from ..state.state import State
from .checks import checked_rows, checked_time
from .push_plan import PushPlan

__all__ = ["SERVED_MAX", "WaitingPushCommands", "Waits"]

SERVED_MAX = 1_000
"""Most messages of waiting pushes that one batch stores, copies included; the last push may exceed it."""


class Waits(NamedTuple):
    """The result of a push that waits; a notice of a later batch reports its outcome.

    Attributes:
        ticket: names the push.
    """

    ticket: int


class WaitingPushCommands:
    """The commands."""

    def __init__(self, state: State) -> None:
        self._state = state

    def push(self, command: log.PushRows) -> list[tuple[int, int]] | Waits:
        """Store messages, all of them or none, or wait for room.

        Returns:
            A flag and the sequence of each; or `Waits`, also for a repetition of a waiting push, recognised by its
            first key.

        Raises:
            RefusedError: ``full`` for an alias, which itself has no room; ``too_large``, ``key_reused``,
                ``quota_exceeded``. Nothing is stored.
        """
        state = self._state
        items = checked_rows(command.rows)
        queue = state.queue(command.queue)
        waiting = WaitingPush(0, command.queue, checked_owner(command.owner), 0, items)
        before = state.waiting_pushes.repeated(waiting)
        if before is not None and (list(before.items) == items or not _has_exact_keys(queue)):
            if list(before.items) != items:
                raise RefusedError("key_reused", "the idempotency key was used for another body on this queue")
            state.waiting_pushes.join(before)
            return Waits(before.ticket)
        result = self._stored(queue, waiting)
        if result is not None:
            return result
        return Waits(state.waiting_pushes.add(queue, command.owner, checked_time(command.wait_us), items))

    def cancel(self, command: log.CancelPush) -> bool:
        """Refuse a waiting push, unless a repetition of it waits too; False if it does not wait, or belongs to another owner."""
        table = self._state.waiting_pushes
        push = table.find(command.ticket)
        if push is None or push.owner != command.owner:
            return False
        if table.leave(push):
            table.refuse(push, "the client waits no more")
            table.note(push.queue)
        return True

    def serve(self) -> None:
        """Store waiting pushes for which there is room, a bounded number of messages, queue by queue."""
        state, table = self._state, self._state.waiting_pushes
        served = 0
        for name in sorted(table.gaining):
            queue = state.queue(name)
            while served < SERVED_MAX and (push := table.first(name)) is not None:
                result = self._served(queue, push)
                if result is None:
                    table.gaining.discard(name)
                    break
                table.settle(push, result)
                served += len(push.items) * state.admission.reach(queue)
        if table.gaining:
            state.expiry.at(0)

    def _served(self, queue: Queue, push: WaitingPush) -> Any:
        """Return the result of a push that is first in line; None if it must wait."""
        # It does not have to wait for those behind it.
        waiting, queue.pushes_waiting = queue.pushes_waiting, 0
        try:
            return self._stored(queue, push)
        except RefusedError as exc:
            return Fault(exc.reason, exc.code)
        finally:
            queue.pushes_waiting = waiting

    def _stored(self, queue: Queue, push: WaitingPush) -> list[tuple[int, int]] | None:
        """Store a push; None if the queue has no room for it."""
        plan = PushPlan(self._state, push.owner)
        for item, options in push.items:
            refusal = plan.try_add(queue, item, options)
            if refusal is not None and refusal.code == "full" and not _is_alias(queue):
                return None
            plan.check(queue, refusal)
        return [plan.store(queue, item, options) for item, options in push.items]


def _has_exact_keys(queue: Queue) -> bool:
    # Another body under the same key is no error there: it waits, and is a duplicate once the first is stored.
    return queue.settings.options is not None and queue.settings.options.key_window_us is not None


def _is_alias(queue: Queue) -> bool:
    options = queue.settings.options
    return options is not None and bool(options.destinations)
