"""Taking items out of queues as open reads of a connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ...node.queues.deliveries import Delivery
from ...wire.errors import LmqError
from .connection import ClosedError, KestrelConnection
from .queues import body_of

__all__ = ["monitor", "open_next"]


async def open_next(connection: KestrelConnection, queue: bytes, *, wait_ms: int, closes: int) -> Delivery | None:
    """Confirm the `closes` oldest open reads of the connection, and open the next item; None if there is none.

    What is to be closed is confirmed even if nothing can be opened.

    Raises:
        LmqError: as `KestrelQueues.open` and `HeldReads.confirm`.
    """
    queues, held = connection.queues, connection.held
    if queues is None:
        raise ClosedError
    opening = queues.open(queue, wait_ms=wait_ms, has_room=connection.has_room)
    if not closes or not held.count(queue):
        return _held(connection, queue, await opening)
    confirming = asyncio.ensure_future(held.confirm(queue, closes))
    fetching = asyncio.ensure_future(opening)
    try:
        # Both are under way together, the end in the log first; whatever fails first decides.
        await asyncio.wait((confirming, fetching), return_when=asyncio.FIRST_EXCEPTION)
        await confirming
        return _held(connection, queue, await fetching)
    except BaseException:
        confirming.cancel()
        fetching.cancel()
        await asyncio.wait((confirming, fetching))
        if not fetching.cancelled() and fetching.exception() is None:
            _held(connection, queue, fetching.result())
            if connection.is_over:
                connection.held.abort_all()
        raise


def _held(connection: KestrelConnection, queue: bytes, found: list[Delivery]) -> Delivery | None:
    if not found:
        return None
    connection.held.add(queue, found[0])
    return found[0]


async def monitor(
    connection: KestrelConnection, queue: bytes, seconds: float, most: int, answer_of: Callable[[bytes], bytes]
) -> None:
    """Hand out up to `most` items as open reads, each as it comes, until the time is over.

    The end comes early when the connection has as many open reads on the queue as it may, or the status blocks reads.
    """
    queues, port = connection.queues, connection.port
    if queues is None:
        raise ClosedError
    port.counts.cmd_monitor += 1
    ends_s = connection.loop.time() + seconds
    while seconds > 0:
        left_ms = round((ends_s - connection.loop.time()) * 1000)
        count = min(most, port.open_reads_max - connection.held.count(queue))
        if count <= 0 or left_ms <= 0:
            break
        try:
            found = await queues.open(queue, count=count, wait_ms=left_ms, has_room=connection.has_room)
        except LmqError as exc:
            if exc.code == "suspended":
                break
            raise
        if not found:
            port.counts.get_misses += 1
            break
        for one in found:
            connection.held.add(queue, one)
        for one in found:
            port.counts.get_hits += 1
            connection.write(answer_of(body_of(one)))
            await connection.flushed()
        port.counts.cmd_monitor_get += len(found)
        most -= len(found)
