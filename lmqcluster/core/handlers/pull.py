"""Pulls without a session. Every public method is one command of the state machine."""

from __future__ import annotations

from ..log import commands as log
from ..log.results import Delivered
from ..queue.queue import PASSES_MAX, REPEATS_MAX, Queue
from ..state.named_queues import named_queues, take_in_order
from ..state.state import State
from .checks import checked_time

__all__ = ["PullCommands"]


class PullCommands:
    """The commands."""

    def __init__(self, state: State) -> None:
        self._state = state

    def pull(self, command: log.Pull) -> list[Delivered] | None:
        """Lease messages, or settle them at once.

        Raises:
            ValueError: a field is out of range.
            RefusedError: ``exclusive``.
        """
        count, lease_us, settles = command.count, command.lease_us, command.settles
        if type(count) is not int or type(settles) is not bool:
            raise ValueError("a count must be an integer, and whether to settle true or false")
        state = self._state
        queue = state.queue(command.queue)
        if queue.special:
            state.deliveries.check_pull(queue)
        passed_before = queue.passed_over
        if settles:
            delivered = queue.pull_settled(state.now_us, count, state.last_delivery)
            state.last_delivery += len(delivered)
        elif checked_time(lease_us):
            delivered = state.deliveries.take(queue, count, state.now_us + lease_us, 1)
        else:
            delivered = state.deliveries.pull_from(queue, count)
        return delivered or state.deliveries.pulled_nothing(queue, passed_before)

    def pull_first(self, command: log.PullFirst) -> list[Delivered] | None:
        """Lease messages of several queues, earliest due time first.

        Raises:
            ValueError: a field is malformed.
        """
        if type(command.count) is not int:
            raise ValueError("a count must be an integer")
        state = self._state
        delivered: list[Delivered] = []
        limit = min(command.count, REPEATS_MAX)

        def take(queue: Queue) -> int:
            delivered.extend(state.deliveries.pull_from(queue, 1))
            return limit - len(delivered)

        drops = take_in_order(named_queues(state, command.queues), state.now_us, limit, take)
        return None if not delivered and drops >= PASSES_MAX else delivered
