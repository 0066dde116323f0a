"""The state that replicas agree on and that a snapshot holds."""

from __future__ import annotations

from typing import ClassVar

from ..dedup.keys import IdempotencyKeys
from ..dedup.node_sequences import NodeSequences
from ..dedup.producers import Producers
from ..dedup.stream_positions import StreamPositions
from ..log.commands import Compile, Op
from ..owners.api_keys import ApiKeys
from ..queue.expiry import Limited
from ..queue.settlement_history import Settlement
from ..sessions.sessions import END_STEPS
from .batch_leases import BatchLeases
from .default_rules import SPREAD_STEPS
from .queue_table import QueueTable
from .times_of_day import TimesOfDay

__all__ = ["REMEMBER_US", "State"]

REMEMBER_US = 600 * 1_000_000
"""How long producers and idempotency keys are remembered: twice what the contract promises."""
_ENDING_BY = {Op.ACK: None, Op.NACK: Settlement.NACKED, Op.PUT_BACK: Settlement.PUT_BACK}


class State(QueueTable):
    """The queues, and what is remembered of clients and nodes.

    Attributes:
        salt: the fixed part of message ids, empty until the cluster is founded.
        node_sequences: the last applied batch of each node.
        producers, keys, marks: which pushes have been stored.
        batches: batch leases.
        api_keys: keys for clients that know no tokens.
        times: the time of day by log time.
    """

    VERSION_MAX: ClassVar = 1
    """The highest machine version that this program understands."""
    REMEMBER_US: ClassVar = REMEMBER_US

    def __init__(self, compile_pattern: Compile) -> None:
        super().__init__(compile_pattern)
        self.salt = b""
        self.node_sequences = NodeSequences()
        self.producers = Producers(REMEMBER_US, self.quotas)
        self.keys = IdempotencyKeys(REMEMBER_US, self.quotas)
        self.marks = StreamPositions(self.quotas)
        self.batches = BatchLeases(self)
        self.api_keys = ApiKeys()
        self.times = TimesOfDay()
        self.expiry.watch(
            [
                Limited(self.defaults, SPREAD_STEPS),
                Limited(self.lease_watch, 1_000),
                Limited(self.timers, 1_000),
                Limited(self.keys, 2_000),
                Limited(self.producers, 2_000),
                Limited(self.marks, 10),
                Limited(self.batches, 100),
                Limited(self.idle, 100),
                Limited(self.sessions, END_STEPS),
                Limited(self.waiting_pushes, 1_000),
            ]
        )

    def settled_by(self, op: Op, name: bytes, number: int) -> bool | None:
        """Return whether a command `op` (ack, nack or put back) that finds no lease repeats one that ended the delivery.

        Returns:
            None if the ending is forgotten.
        """
        queue = self.queues.get(name)
        if not 0 < number <= self.last_delivery or (queue is not None and number in queue.leases.messages):
            return False
        ending = self.endings.find(number)
        if ending is None and number <= self.endings.floor:
            return None
        return ending == _ENDING_BY[op]
