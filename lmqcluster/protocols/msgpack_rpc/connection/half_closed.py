"""The end of a connection whose client sends no more: its requests are answered before it is closed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ....node.commit.proposer import PendingCommand
from ....node.queues.sending import requests
from ....ports import HALF_CLOSED_S, wait_for_acknowledgement
from ....wire.errors import LmqError

if TYPE_CHECKING:
    from .connection import Connection

__all__ = ["answer_rest"]

_LOOK_S, _LOOK_S_MAX = 0.01, 0.25


async def answer_rest(connection: Connection) -> None:
    """Close the connection when everything is answered, at the latest after `HALF_CLOSED_S`.

    A client whose pulls wait may be gone. The beginning of a response, which is the same for all, tells; else they would take
    messages for nobody.
    """
    try:
        async with asyncio.timeout(HALF_CLOSED_S):
            await _until(lambda: not connection.has_rest)
            await _until_applied(connection)
            if connection.waits_for_answers:
                connection.begin_answer()
                if not await wait_for_acknowledgement(connection.transport):
                    connection.place.abort()
                    return
            await _until(lambda: not connection.has_unanswered)
    except TimeoutError:
        # What still waits is abandoned.
        connection.expel()
    else:
        connection.close()


async def _until(is_so: Callable[[], bool]) -> None:
    look_s = _LOOK_S
    while not is_so():
        await asyncio.sleep(look_s)
        look_s = min(2 * look_s, _LOOK_S_MAX)


async def _until_applied(connection: Connection) -> None:
    """Wait until what was sent to the log is answered."""
    proposer = connection.service.proposer
    if proposer.pending():
        applied = _Applied()
        request = requests.barrier()
        try:
            proposer.add(PendingCommand(request.command, [None], applied), request.size_bytes)
        except LmqError:
            # The node takes no requests. What it has taken it answers before it stops.
            return
        await applied.event.wait()


class _Applied:
    """Comes back from the log after all that was sent before (`Sink`)."""

    def __init__(self) -> None:
        self.event = asyncio.Event()

    def completed(self, group: PendingCommand, result: Any) -> None:  # noqa: ARG002 - the barrier says nothing
        self.event.set()

    def failed(self, group: PendingCommand, error: LmqError) -> None:  # noqa: ARG002 - nor why it failed
        self.event.set()
