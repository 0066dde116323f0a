"""``get`` with Kestrel's options. Equal consecutive requests are carried out together."""

from __future__ import annotations

from ...core.log.results import Delivered
from ..kestrel.connection import ClosedError, KestrelConnection
from ..kestrel.fetch import open_next, take_next
from ..kestrel.queues import KestrelQueues, body_of
from .requests import Get, parse_get

__all__ = ["END", "serve_get", "value_of"]

END = b"END\r\n"
ERROR = b"ERROR\r\n"


def value_of(queue: bytes, content: bytes) -> bytes:
    """Return an item as an answer, including the end mark."""
    return b"VALUE %b 0 %d\r\n%b\r\nEND\r\n" % (queue, len(content), content)


async def serve_get(connection: KestrelConnection, tokens: list[bytes], count: int = 1) -> None:
    """Answer a ``get`` that arrived `count` times. Only the first key is used.

    Raises:
        ClosedError: the client violated the protocol; the error was sent to it.
    """
    if len(tokens) < 2:
        connection.write(b"CLIENT_ERROR the key is missing\r\n" * count)
        return
    await _answer_get(connection, parse_get(tokens[1]), count)


async def _answer_get(connection: KestrelConnection, asked: Get, count: int = 1) -> None:
    """Answer a parsed ``get`` `count` times. Raises like `serve_get`."""
    queues = connection.queues
    if queues is None:
        raise ClosedError
    held, counts = connection.held, connection.port.counts
    if asked.aborts:
        for _ in range(count):
            await held.abort(asked.queue)
            connection.write(END)
    elif asked.closes and not asked.opens:
        await held.confirm(asked.queue, count)
        connection.write(END * count)
    elif asked.peeks:
        for _ in range(count):
            counts.cmd_peek += 1
            await _peek(connection, queues, asked)
    else:
        while count:
            count -= await _fetch(connection, queues, asked, count)


async def _peek(connection: KestrelConnection, queues: KestrelQueues, asked: Get) -> None:
    content = await queues.peek(asked.queue, asked.wait_ms)
    if content is None:
        _answer_none(connection, queues, asked.queue, 1)
        return
    connection.port.counts.get_hits += 1
    connection.write(value_of(asked.queue, content))
    await connection.flushed()


async def _fetch(connection: KestrelConnection, queues: KestrelQueues, asked: Get, count: int) -> int:
    """Answer as many of `count` equal requests as possible now, at least one. Return the number of answered requests."""
    held, queue, most = connection.held, asked.queue, connection.port.open_reads_max
    open_reads = held.count(queue) - (asked.closes and held.count(queue) > 0)
    if (open_reads and not asked.opens) or open_reads >= most:
        if asked.closes:
            await held.confirm(queue)
        connection.write(ERROR)
        raise ClosedError
    # The first request is counted while it waits, the others when they are answered.
    connection.port.counts.cmd_get += 1
    if not asked.opens:
        found = await take_next(connection, queue, wait_ms=asked.wait_ms, count=count)
    elif not asked.closes:
        found = await open_next(connection, queue, wait_ms=asked.wait_ms, closes=0, count=min(count, most - open_reads))
    else:
        found = await open_next(connection, queue, wait_ms=asked.wait_ms, closes=1, count=count)
        # Each further request that is answered together with the first closes the oldest open read at its turn.
        await held.confirm(queue, max(0, len(found) - 1))
    if found:
        connection.port.counts.cmd_get += len(found) - 1
        if asked.opens:
            queues.opened(queue, len(found))
        await _answer(connection, queue, found)
        return len(found)
    # Requests that do not wait all get the same empty answer.
    answered = 1 if asked.wait_ms else count
    if asked.closes:
        await held.confirm(queue, answered - 1)
    connection.port.counts.cmd_get += answered - 1
    _answer_none(connection, queues, queue, answered)
    return answered


async def _answer(connection: KestrelConnection, queue: bytes, found: list[Delivered]) -> None:
    connection.port.counts.get_hits += len(found)
    connection.write(b"".join([value_of(queue, body_of(message)) for _, _, _, message in found]))
    await connection.flushed()


def _answer_none(connection: KestrelConnection, queues: KestrelQueues, queue: bytes, count: int) -> None:
    queues.missed(queue, count)
    connection.write(END * count)
