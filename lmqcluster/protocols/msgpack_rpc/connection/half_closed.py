"""Waits at the end of a half-closed connection, whose requests are answered before it is closed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ....node.commit.proposer import PendingCommand, Proposer
from ....node.queues.sending import requests
from ....wire.errors import LmqError

__all__ = ["until", "until_applied"]

_LOOK_S, _LOOK_S_MAX = 0.01, 0.25


async def until(is_so: Callable[[], bool]) -> None:
    """Wait until this is so, looking less and less often."""
    look_s = _LOOK_S
    while not is_so():
        await asyncio.sleep(look_s)
        look_s = min(2 * look_s, _LOOK_S_MAX)


async def until_applied(proposer: Proposer) -> None:
    """Wait until all commands sent to the log are answered."""
    if proposer.pending():
        applied = _Applied()
        request = requests.barrier()
        try:
            proposer.add(PendingCommand(request.command, [None], applied), request.size_bytes)
        except LmqError:
            # The node takes no requests, but it answers the accepted ones before it stops.
            return
        await applied.event.wait()


class _Applied:
    """Barrier that returns from the log after all earlier commands (`Sink`)."""

    def __init__(self) -> None:
        self.event = asyncio.Event()

    def completed(self, pending: PendingCommand, result: object) -> None:  # noqa: ARG002 - the barrier says nothing
        self.event.set()

    def failed(self, pending: PendingCommand, error: LmqError) -> None:  # noqa: ARG002 - nor why it failed
        self.event.set()
