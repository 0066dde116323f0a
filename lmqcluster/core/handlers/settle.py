"""Settlements of deliveries. Every public method is one command of the state machine."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ..log import commands as log
from ..log.commands import Place
from ..messages.attributes import checked_reason
from ..queue.queue import Queue
from ..state.deliveries import check_numbers
from ..state.state import State
from .checks import checked_time

__all__ = ["SettleCommands", "nack_of"]

NackQueue = Callable[[Queue, int, list[int]], list[bool]]
"""Nacks deliveries of a queue at a log time; returns whether each was leased."""


class SettleCommands:
    """The commands. Each returns None if the queue does not exist: none of them creates it."""

    def __init__(self, state: State) -> None:
        self._state = state

    def ack(self, command: log.Ack) -> list[bool] | None:
        """Settle deliveries and remove their messages.

        Raises:
            ValueError: the numbers are malformed.
        """
        queue = self._state.existing(command.queue)
        if queue is None:
            return None
        check_numbers(command.numbers)
        return queue.ack(self._state.now_us, command.numbers)

    def nack(self, command: log.Nack) -> list[bool] | None:
        """Return messages for redelivery; unless the deliveries are undone, they stay charged.

        Raises:
            ValueError: a field is out of range.
        """
        return self._state.deliveries.settle(command.queue, command.numbers, nack_of(command))

    def extend(self, command: log.Extend) -> list[bool] | None:
        """Extend leases.

        Raises:
            ValueError: a field is out of range.
        """
        lease_us = checked_time(command.lease_us)
        queue = self._state.existing(command.queue)
        return None if queue is None else self._state.deliveries.extend(queue, command.numbers, lease_us)


def nack_of(command: log.Nack) -> NackQueue:
    """Return how a queue carries out a nack.

    Raises:
        ValueError: a field is out of range.
    """
    place, delay_us = Place(command.place), None if command.delay_us == -1 else checked_time(command.delay_us)
    if type(command.undoes) is not bool:
        raise ValueError("whether to undo deliveries must be true or false")
    reason = checked_reason(command.reason, command.attribute_bytes_max)
    if not command.undoes:
        return partial(Queue.nack, place=place, delay_us=delay_us, reason=reason)
    if reason is not None:
        raise ValueError("a delivery that is undone has no reason")
    return Queue.put_back
