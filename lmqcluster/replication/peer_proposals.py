"""What other members propose for the log, as this one leads."""

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

__all__ = ["PeerProposals"]

_HEAD_BYTES = 9
"""The kind of the entry, and its time."""


class PeerProposals:
    """Puts batches of other members into the log, large ones in several turns of the event loop.

    Args:
        core: takes them if it leads.
        clock: the time of the log.
        lost_receipts: tell whether a new salt of message ids has to be in the log before such batches are.
        propose: puts a batch into the log; False if it does not take it.
        answered: called with member, sequence and whether the log took the batch.
    """

    def __init__(
        self,
        core: RaftCore,
        clock: LogClock,
        lost_receipts: StaleReceipts,
        propose: Callable[[bytes], bool],
        answered: Callable[[PeerNode, int, bool], None],
    ) -> None:
        self._core = core
        self._clock = clock
        self._lost_receipts = lost_receipts
        self._propose = propose
        self._answered = answered
        self._joins = ChunkedCopy()

    def close(self) -> None:
        """Take no more."""
        self._joins.close()

    def take(self, node: PeerNode, sequence: int, batch: bytes) -> None:
        """A member proposes a batch."""
        if len(batch) > BULK_BYTES:
            # The time that it gets is known in the end.
            self._joins.join((bytes(_HEAD_BYTES), batch), partial(self._joined, node, sequence))
        else:
            self._answered(node, sequence, not self._lost_receipts.are_possible and self._propose(batch))

    def _joined(self, node: PeerNode, sequence: int, stream: io.BytesIO) -> None:
        taken = False
        if not self._lost_receipts.are_possible:
            stream.seek(0)
            stream.write(bytes((REGULAR,)) + self._clock.now_us().to_bytes(8, "big"))
            taken = self._core.propose_command(stream.getvalue())
        self._answered(node, sequence, taken)
