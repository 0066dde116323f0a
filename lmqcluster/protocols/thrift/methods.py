"""The methods of Kestrel's Thrift interface."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from ...core import Role
from ...core.log.results import Delivered
from ...node.metrics.kestrel_stats import queue_stats, waiters
from ...node.queues.pulls.deliveries import rendered
from ...wire.errors import LmqError
from ...wire.limits import PULL_COUNT_MAX
from ..kestrel.connection import ClosedError, KestrelConnection
from ..kestrel.queues import KestrelQueues, body_of
from ..kestrel.status import Status
from .ids import id_of, receipt_of
from .types import Item, QueueInfo

__all__ = ["CALLS"]

Arguments = Mapping[str, Any]
Method = Callable[[KestrelConnection, Arguments], Awaitable[object]]
ANSWER_BYTES_MAX = 16 * 1024 * 1024
"""A get that has collected this many bytes does not wait for more."""
_STATUS = {Status.QUIESCENT: 1, Status.READONLY: 2, Status.UP: 3}


def _queues(connection: KestrelConnection) -> KestrelQueues:
    if connection.queues is None:
        raise ClosedError
    return connection.queues


async def _put(connection: KestrelConnection, arguments: Arguments) -> int:
    items, expiry_ms = arguments["items"], arguments["expiration_msec"]
    connection.port.counts.cmd_set += len(items)
    ttl_s = max(0, expiry_ms) / 1000 if expiry_ms else None
    return await _queues(connection).put_until_refused(arguments["queue_name"], list(items), ttl_s)


# --- get ----------------------------------------------------------------------------------------------------------


async def _get(connection: KestrelConnection, arguments: Arguments) -> list[Item]:
    queue, abort_ms = arguments["queue_name"], arguments["auto_abort_msec"]
    queues, node, counts = _queues(connection), connection.port.node, connection.port.counts
    queues.check_get(queue)
    most = min(arguments["max_items"], PULL_COUNT_MAX)
    if abort_ms > 0:
        node.timed_reads.check_room()
        most = min(most, connection.port.open_reads_max - connection.held.timed[queue])
    if most <= 0:
        return []
    found = await _collect(connection, queue, most, arguments["timeout_msec"])
    counts.get_hits += len(found)
    if not found:
        queues.missed(queue)
    receipts = node.service.receipts()
    if abort_ms > 0:
        opened = rendered(receipts, found, node.service.unix_us)
        queues.opened(queue, len(found))
        node.timed_reads.begin(queue, opened, abort_ms / 1000, connection.held.timed)
        if opened and connection.has_stopped:
            connection.settle_when_sent(None, partial(node.timed_reads.abort, queue, [one.id for one in opened]))
        return [Item(body_of(message), id_of(receipts, number)) for _, number, _, message in found]
    numbers = [number for _, number, _, _ in found]
    if found and connection.has_stopped:
        connection.held.add(queue, found)
        connection.settle_when_sent(partial(connection.held.confirm, queue, len(found)))
        return [Item(body_of(message), 0) for _, _, _, message in found]
    try:
        done = (await node.open_reads.confirm_soon(queue, numbers) or []) if found else []
    except BaseException:
        # The abort does not affect deliveries that are already confirmed.
        node.open_reads.abort_numbers_soon({queue: numbers})
        raise
    return [Item(body_of(one[3]), 0) for one, is_gone in zip(found, done, strict=False) if is_gone]


async def _collect(connection: KestrelConnection, queue: bytes, most: int, wait_ms: int) -> list[Delivered]:
    """Open up to `most` items, waiting up to `wait_ms` for all of them. If the client disconnects, they return to the queue."""
    queues, loop = _queues(connection), connection.loop
    ends_s = loop.time() + wait_ms / 1000
    found: list[Delivered] = []
    size_bytes = 0

    def has_room(more_bytes: int) -> bool:
        return connection.has_room(size_bytes + more_bytes)

    try:
        while True:
            left_ms = max(0, round((ends_s - loop.time()) * 1000))
            more = await queues.open(queue, count=most - len(found), wait_ms=left_ms, has_room=has_room)
            found += more
            size_bytes += sum(len(body_of(message)) for _, _, _, message in more)
            is_enough = len(found) == most or size_bytes >= ANSWER_BYTES_MAX or connection.has_stopped
            if wait_ms <= 0 or not more or is_enough:
                return found
            connection.gathers = True
    except BaseException:
        if found:
            connection.port.node.open_reads.abort_numbers_soon({queue: [number for _, number, _, _ in found]})
        raise
    finally:
        connection.gathers = False


# --- settle -------------------------------------------------------------------------------------------------------


def _receipts_of(connection: KestrelConnection, arguments: Arguments) -> list[bytes]:
    _queues(connection).principal.require(Role.WRITE, arguments["queue_name"])
    receipts = connection.port.node.service.receipts()
    found = (receipt_of(receipts, number) for number in sorted(set(arguments["ids"])))
    return [one for one in found if one is not None]


async def _confirm(connection: KestrelConnection, arguments: Arguments) -> int:
    ids = _receipts_of(connection, arguments)
    return await connection.port.node.timed_reads.confirm(arguments["queue_name"], ids) if ids else 0


async def _abort(connection: KestrelConnection, arguments: Arguments) -> int:
    ids = _receipts_of(connection, arguments)
    return await connection.port.node.timed_reads.abort(arguments["queue_name"], ids) if ids else 0


# --- the rest -----------------------------------------------------------------------------------------------------


async def _peek(connection: KestrelConnection, arguments: Arguments) -> QueueInfo:
    queue, queues, node = arguments["queue_name"], _queues(connection), connection.port.node
    connection.port.counts.cmd_peek += 1
    head = await queues.peek(queue)
    if head is not None and not connection.has_room(len(head)):
        raise LmqError("overloaded", "the client leaves too much unread for another item; read it, then try again")
    if head is None:
        queues.missed(queue)
    else:
        connection.port.counts.get_hits += 1
    stats = queue_stats(node, queue)
    names = ("items", "bytes", "logsize", "age", "open_transactions")
    items, size, journal, age, open_reads = (int(str(stats.get(name, 0))) for name in names)
    # Pulls of other protocols keep waiting if their queue is deleted.
    return QueueInfo(head, items, size, journal, age, waiters(node, queue), open_reads)


async def _flush_queue(connection: KestrelConnection, arguments: Arguments) -> None:
    await _queues(connection).flush(arguments["queue_name"])


async def _flush_all_queues(connection: KestrelConnection, _arguments: Arguments) -> None:
    await _queues(connection).flush_all(connection.client())


async def _delete_queue(connection: KestrelConnection, arguments: Arguments) -> None:
    await _queues(connection).delete(arguments["queue_name"])


async def _current_status(connection: KestrelConnection, _arguments: Arguments) -> int:
    return _STATUS.get(connection.port.status.present, 0)


async def _set_status(connection: KestrelConnection, arguments: Arguments) -> None:
    _queues(connection).principal.require_all(Role.ADMIN)
    wanted = next((status for status, number in _STATUS.items() if number == arguments["status"]), None)
    if wanted is None:
        raise LmqError("bad_request", "there is no such status, or it cannot be set")
    connection.port.status.set(wanted.name)


async def _get_version(connection: KestrelConnection, _arguments: Arguments) -> str:
    return connection.port.node.version


CALLS: Mapping[str, Method] = {
    "put": _put,
    "get": _get,
    "confirm": _confirm,
    "abort": _abort,
    "peek": _peek,
    "flush_queue": _flush_queue,
    "flush_all_queues": _flush_all_queues,
    "delete_queue": _delete_queue,
    "current_status": _current_status,
    "set_status": _set_status,
    "get_version": _get_version,
}
