"""``get`` with all that Kestrel makes of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ...node.queues.deliveries import Delivery
from ...wire.errors import LmqError
from ..kestrel.connection import ClosedError
from ..kestrel.queues import KestrelQueues, body_of
from .requests import Get, parse_get

if TYPE_CHECKING:
    from .connection import MemcacheConnection

__all__ = ["END", "serve_get", "value_of"]

END = b"END\r\n"
ERROR = b"ERROR\r\n"


def value_of(queue: bytes, content: bytes) -> bytes:
    """An item as an answer, with its end."""
    return b"VALUE %b 0 %d\r\n%b\r\nEND\r\n" % (queue, len(content), content)


async def serve_get(connection: MemcacheConnection, tokens: list[bytes]) -> None:
    """Answer a ``get``; only the first key counts.

    Raises:
        ClosedError: the client has broken a rule, and was told so.
    """
    queues = connection.queues
    if queues is None:
        raise ClosedError
    if len(tokens) < 2:
        connection.write(b"CLIENT_ERROR the key is missing\r\n")
        return
    asked = parse_get(tokens[1])
    held, counts = connection.held, connection.port.counts
    if asked.aborts:
        await held.abort(asked.queue)
        connection.write(END)
        return
    if asked.closes and not asked.opens:
        await held.confirm(asked.queue)
        connection.write(END)
        return
    if asked.peeks:
        counts.cmd_peek += 1
        content = await queues.peek(asked.queue, asked.wait_ms)
        _answer(connection, asked.queue, content)
        return
    open_reads = held.count(asked.queue) - (asked.closes and held.count(asked.queue) > 0)
    if (open_reads and not asked.opens) or open_reads >= connection.port.open_reads_max:
        if asked.closes:
            await held.confirm(asked.queue)
        connection.write(ERROR)
        raise ClosedError
    counts.cmd_get += 1
    found = await _fetch(connection, queues, asked)
    if found is None:
        _answer(connection, asked.queue, None)
        return
    if not asked.opens:
        await held.confirm(asked.queue)
    _answer(connection, asked.queue, body_of(found))


async def _fetch(connection: MemcacheConnection, queues: KestrelQueues, asked: Get) -> Delivery | None:
    """Open the next item; the one to be closed is confirmed in the log before."""
    held = connection.held
    opening = queues.open(asked.queue, wait_ms=asked.wait_ms, has_room=connection.has_room)
    if not asked.closes or not held.count(asked.queue):
        return _held(connection, asked.queue, await opening)
    confirming = asyncio.ensure_future(held.confirm(asked.queue))
    fetching = asyncio.ensure_future(opening)
    try:
        # Both are under way together; whatever fails first decides.
        await asyncio.wait((confirming, fetching), return_when=asyncio.FIRST_EXCEPTION)
        await confirming
        return _held(connection, asked.queue, await fetching)
    except BaseException:
        confirming.cancel()
        fetching.cancel()
        await asyncio.wait((confirming, fetching))
        if not fetching.cancelled() and fetching.exception() is None:
            _held(connection, asked.queue, fetching.result())
            if connection.is_over:
                connection.held.abort_all()
        raise


def _held(connection: MemcacheConnection, queue: bytes, found: list[Delivery]) -> Delivery | None:
    if not found:
        return None
    connection.held.add(queue, found[0])
    return found[0]


def _answer(connection: MemcacheConnection, queue: bytes, content: bytes | None) -> None:
    counts = connection.port.counts
    if content is None:
        counts.get_misses += 1
        connection.write(END)
        return
    counts.get_hits += 1
    connection.write(value_of(queue, content))


async def monitor(connection: MemcacheConnection, tokens: list[bytes], seconds: int, most: int) -> None:
    """Hand out up to `most` items as open reads, each as it comes, until the time is over."""
    queue, queues, port = tokens[1], connection.queues, connection.port
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
            if exc.code == "suspended" and most:
                break
            raise
        if not found:
            port.counts.get_misses += 1
            break
        for one in found:
            connection.held.add(queue, one)
        for one in found:
            port.counts.get_hits += 1
            connection.write(value_of(queue, body_of(one)))
            await connection.flushed()
        port.counts.cmd_monitor_get += len(found)
        most -= len(found)
    connection.write(END)
