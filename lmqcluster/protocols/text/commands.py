"""Commands of the text protocol."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from ...core import Role
from ...wire.errors import LmqError
from ..kestrel.connection import ClosedError, KestrelConnection
from ..kestrel.fetch import monitor, open_next
from ..kestrel.numbers import int32
from ..kestrel.queues import KestrelQueues, body_of
from .parser import Request

__all__ = ["COMMANDS"]

Command = Callable[[KestrelConnection, Request], Awaitable[None]]
NOTHING = b"*\n"
NO_NAME = "Queue name required."
PUTS_MAX = 512
"""Maximum number of items that are put concurrently."""


def _queues(connection: KestrelConnection) -> KestrelQueues:
    if connection.queues is None:
        raise ClosedError
    return connection.queues


def _queue_of(request: Request, most: int, missing: str) -> bytes:
    if len(request.arguments) < most or not request.arguments[0]:
        raise LmqError("bad_request", missing)
    return request.arguments[0]


def _number(text: bytes, otherwise: str) -> int:
    number = int32(text)
    if number is None:
        raise LmqError("bad_request", otherwise)
    return number


def _wait_ms(request: Request) -> int:
    return _number(request.arguments[1], "Error parsing timeout.") if len(request.arguments) > 1 else 0


def _line(content: bytes) -> bytes:
    return b":" + content + b"\n"


async def _put(connection: KestrelConnection, request: Request) -> None:
    queue, queues = _queue_of(request, 1, NO_NAME), _queues(connection)
    ttl_s: float | None = None
    if len(request.arguments) > 1:
        ttl_s = max(0, _number(request.arguments[1], "Error parsing expiration time.")) / 1000
    stored, items = 0, request.items
    if not items:
        await queues.prepare_put(queue)
    for start in range(0, len(items), PUTS_MAX):
        part = items[start : start + PUTS_MAX]
        connection.port.counts.cmd_set += len(part)
        stored += sum(await queues.put(queue, part, ttl_s))
    connection.write(b"+%d\n" % stored)


async def _get(connection: KestrelConnection, request: Request) -> None:
    queue = _queue_of(request, 1, NO_NAME)
    wait_ms, held, counts = _wait_ms(request), connection.held, connection.port.counts
    counts.cmd_get += 1
    await _check_or_confirm(connection, queue)
    found = await open_next(connection, queue, wait_ms=wait_ms, closes=held.count(queue))
    _queues(connection).opened(queue, len(found))
    _answer(connection, queue, body_of(found[0][3]) if found else None)


async def _peek(connection: KestrelConnection, request: Request) -> None:
    queue = _queue_of(request, 1, NO_NAME)
    wait_ms = _wait_ms(request)
    connection.port.counts.cmd_peek += 1
    await connection.held.confirm(queue, connection.held.count(queue))
    _answer(connection, queue, await _queues(connection).peek(queue, wait_ms))


async def _check_or_confirm(connection: KestrelConnection, queue: bytes) -> None:
    """Confirm the open reads even if the client may not fetch, then raise the refusal."""
    try:
        _queues(connection).check_get(queue)
    except LmqError:
        await connection.held.confirm(queue, connection.held.count(queue))
        raise


def _answer(connection: KestrelConnection, queue: bytes, content: bytes | None) -> None:
    if content is None:
        _queues(connection).missed(queue)
        connection.write(NOTHING)
        return
    connection.port.counts.get_hits += 1
    connection.write(_line(content))


async def _monitor(connection: KestrelConnection, request: Request) -> None:
    required = "Queue name & timeout required."
    queue, held = _queue_of(request, 2, required), connection.held
    wait_ms = _wait_ms(request)
    await held.confirm(queue, held.count(queue))
    _queues(connection).check_get(queue)
    await monitor(connection, queue, wait_ms / 1000, connection.port.open_reads_max, _line)
    connection.write(NOTHING)


async def _confirm(connection: KestrelConnection, request: Request) -> None:
    required = "Queue name & count required."
    queue, held = _queue_of(request, 2, required), connection.held
    count = _number(request.arguments[1], "Error parsing count.")
    if not 0 < count <= held.count(queue):
        raise LmqError("bad_request", "Not that many transactions open.")
    await held.confirm(queue, count)
    connection.write(b"+%d\n" % count)


async def _flush(connection: KestrelConnection, request: Request) -> None:
    await _queues(connection).flush(_queue_of(request, 1, NO_NAME))
    connection.write(b"+0\n")


async def _delete(connection: KestrelConnection, request: Request) -> None:
    await _queues(connection).delete(_queue_of(request, 1, NO_NAME))
    connection.write(b"+0\n")


async def _status(connection: KestrelConnection, request: Request) -> None:
    status = connection.port.status
    if not request.arguments:
        connection.write(_line(status.present.name.encode()))
        return
    _queues(connection).principal.require_all(Role.ADMIN)
    if not status.set(request.arguments[0].decode("latin-1")):
        raise LmqError("bad_request", "Unknown status.")
    connection.write(b"+0\n")


async def _version(connection: KestrelConnection, _request: Request) -> None:
    connection.write(_line(connection.port.node.version.encode()))


async def _shutdown(_connection: KestrelConnection, _request: Request) -> None:
    # A port without tokens must not offer commands that affect the cluster.
    raise LmqError("bad_request", "Nodes are not shut down over this port.")


async def _quit(_connection: KestrelConnection, _request: Request) -> None:
    raise ClosedError


COMMANDS: Mapping[bytes, Command] = {
    b"put": _put,
    b"get": _get,
    b"peek": _peek,
    b"monitor": _monitor,
    b"confirm": _confirm,
    b"flush": _flush,
    b"delete": _delete,
    b"status": _status,
    b"version": _version,
    b"shutdown": _shutdown,
    b"quit": _quit,
}
