"""Proposals of other members, handled by the leader."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import partial

from .base.log_clock import LogClock
from .base.membership import REGULAR, PeerNode
from .peers.chunked_copy import ChunkedCopy
from .peers.messages import BULK_BYTES
from .raft.core import RaftCore
from .recovery.stale_receipts import StaleReceipts
from .taken_batches import TakenBatches

__all__ = ["PeerProposals"]

_HEAD_BYTES = 9
"""Size of an entry's kind and time."""


class PeerProposals:
    """Appends batches of other members to the log, large ones in several turns of the event loop.

    Args:
        core: accepts them if it leads.
        clock: the time of the log.
        lost_receipts: knows whether a new salt of message ids must be logged before such batches.
        taken_batches: knows the batches in the log.
        propose: appends a batch to the log; False if the batch is refused.
        answered: called with member, sequence and whether the log took the batch.
    """

    def __init__(
        self,
        core: RaftCore,
        clock: LogClock,
        lost_receipts: StaleReceipts,
        taken_batches: TakenBatches,
        propose: Callable[[bytes], bool],
        answered: Callable[[PeerNode, int, bool], None],
    ) -> None:
        self._core = core
        self._clock = clock
        self._lost_receipts = lost_receipts
        self._taken_batches = taken_batches
        self._propose = propose
        self._answered = answered
        self._joins = ChunkedCopy()

    def close(self) -> None:
        """Stop taking proposals."""
        self._joins.close()

    def take(self, node: PeerNode, sequence: int, batch: bytes) -> None:
        """Append a batch that a member proposes."""
        if len(batch) > BULK_BYTES and not self._taken_batches.has(batch):
            # Its time is set when the copy is complete.
            self._joins.join((bytes(_HEAD_BYTES), batch), partial(self._joined, node, sequence, batch))
        else:
            self._answered(node, sequence, not self._lost_receipts.are_possible and self._propose(batch))

    def _joined(self, node: PeerNode, sequence: int, batch: bytes, stream: io.BytesIO) -> None:
        taken = False
        if not self._lost_receipts.are_possible:
            stream.seek(0)
            stream.write(bytes((REGULAR,)) + self._clock.now_us().to_bytes(8, "big"))
            taken = self._taken_batches.take(batch, lambda: self._core.propose_command(stream.getvalue()))
        self._answered(node, sequence, taken)
