"""The outcome of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from .log.notices import Notice
from .queue.queue import Queue

__all__ = ["Applied"]


class Applied(NamedTuple):
    """The outcome of one batch.

    Attributes:
        status: ``applied``; ``duplicate``: the batch was applied before; ``gap``: an earlier batch of the node is
            missing. Nothing was applied then; the node resends from that batch on.
        results: one result per command, empty unless applied.
        ready: queues that may have gained messages that can be pulled.
        created, deleted: queues that were created and deleted.
        notices: results for clients that wait for something other than messages.
    """

    status: str
    results: list[Any]
    ready: list[Queue]
    created: Sequence[Queue] = ()
    deleted: Sequence[Queue] = ()
    notices: Sequence[Notice] = ()
