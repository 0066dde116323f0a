"""Removal of items from queues, for good or as open reads of a connection. Equal requests are served together."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ...core.log.results import Delivered
from ...wire.errors import LmqError
from .connection import ClosedError, KestrelConnection
from .queues import KestrelQueues, body_of

__all__ = ["monitor", "open_next", "take_next"]

TAKEN_BYTES = 256 * 1024
"""Approximate number of bytes that are fetched at once for requests that are served together."""


def _queues(connection: KestrelConnection) -> KestrelQueues:
    if connection.queues is None:
        raise ClosedError
    return connection.queues


async def open_next(
    connection: KestrelConnection, queue: bytes, *, wait_ms: int, closes: int, count: int = 1
) -> list[Delivered]:
    """Confirm the `closes` oldest open reads of the connection and open up to `count` items; none if the queue is empty.

    The reads are confirmed even if nothing can be opened.

    Raises:
        LmqError: like `KestrelQueues.open` and `HeldReads.confirm`.
    """
    queues, held = _queues(connection), connection.held
    closing = held.confirm_soon(queue, closes) if closes else None
    found: list[Delivered] = []
    waiting, size_bytes = queues.shown(queue)
    count = _bounded(count, size_bytes)
    try:
        if waiting or wait_ms <= 0:
            # Both commands are sent together; the confirmation precedes the open in the log.
            found = await queues.open(queue, count=count, has_room=connection.has_room)
            held.add(queue, found)
    except LmqError:
        if closing is not None:
            await held.confirmed(queue, *closing)
        raise
    if closing is not None:
        await held.confirmed(queue, *closing)
    if not found and wait_ms > 0:
        found = await queues.open(queue, count=count, wait_ms=wait_ms, has_room=connection.has_room)
        held.add(queue, found)
    return found


async def take_next(connection: KestrelConnection, queue: bytes, *, wait_ms: int, count: int = 1) -> list[Delivered]:
    """Remove up to `count` items; none if the queue is empty.

    Raises:
        LmqError: like `KestrelQueues.open` and `KestrelQueues.take`.
    """
    queues, held = _queues(connection), connection.held
    waiting, _ = queues.shown(queue)
    if count == 1 and (waiting or wait_ms <= 0):
        found = await queues.take(queue)
        if found or wait_ms <= 0:
            return found
    # Items are removed only after the client is known to be present and to have room for them: if it disconnects while it
    # waits, the item belongs to the next client.
    found = await open_next(connection, queue, wait_ms=wait_ms, closes=0, count=count)
    if found and connection.has_stopped:
        # The client may be gone; its next request comes after this one.
        connection.settle_when_sent(partial(held.confirm, queue, len(found)))
    else:
        await held.confirm(queue, len(found))
    return found


def _bounded(count: int, size_bytes: int) -> int:
    return max(1, min(count, TAKEN_BYTES // max(1, size_bytes)))


async def monitor(
    connection: KestrelConnection, queue: bytes, seconds: float, most: int, answer_of: Callable[[bytes], bytes]
) -> None:
    """Hand out up to `most` items as open reads, one by one, until the time is over.

    End early if the connection reaches its limit of open reads on the queue, or if the status blocks reads.
    """
    queues, port = _queues(connection), connection.port
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
            queues.missed(queue)
            break
        connection.held.add(queue, found)
        queues.opened(queue, len(found))
        for _, _, _, message in found:
            port.counts.get_hits += 1
            connection.write(answer_of(body_of(message)))
            await connection.flushed()
        port.counts.cmd_monitor_get += len(found)
        most -= len(found)
