"""The end of a half-closed connection: its requests are answered before it is closed."""

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
    """Close the connection once everything is answered, at the latest after `HALF_CLOSED_S`.

    A client whose pulls wait may be gone, and the pulls would take messages in vain. So the start of a response, which
    is the same for all responses, is sent first to detect that.
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
        # The remaining requests are abandoned.
        connection.expel()
    else:
        connection.close()


async def _until(is_so: Callable[[], bool]) -> None:
    look_s = _LOOK_S
    while not is_so():
        await asyncio.sleep(look_s)
        look_s = min(2 * look_s, _LOOK_S_MAX)


async def _until_applied(connection: Connection) -> None:
    """Wait until all commands sent to the log are answered."""
    proposer = connection.service.proposer
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

    def completed(self, group: PendingCommand, result: Any) -> None:  # noqa: ARG002 - the barrier says nothing
        self.event.set()

    def failed(self, group: PendingCommand, error: LmqError) -> None:  # noqa: ARG002 - nor why it failed
        self.event.set()
