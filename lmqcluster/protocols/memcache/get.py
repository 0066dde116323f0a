"""``get`` with all that Kestrel makes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..kestrel.connection import ClosedError
from ..kestrel.fetch import open_next
from ..kestrel.queues import body_of
from .requests import parse_get

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
    found = await open_next(connection, asked.queue, wait_ms=asked.wait_ms, closes=int(asked.closes))
    if found is None:
        _answer(connection, asked.queue, None)
        return
    if not asked.opens:
        await held.confirm(asked.queue)
    _answer(connection, asked.queue, body_of(found))


def _answer(connection: MemcacheConnection, queue: bytes, content: bytes | None) -> None:
    counts = connection.port.counts
    if content is None:
        counts.get_misses += 1
        connection.write(END)
        return
    counts.get_hits += 1
    connection.write(value_of(queue, content))
