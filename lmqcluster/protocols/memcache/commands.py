"""All commands except ``set`` and ``get``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

from ...core import Role
from ...node.metrics.kestrel_stats import OF_ALL_QUEUES, global_stats, queue_stats
from ...node.queues.views.listing import names_in_order
from ...wire.errors import LmqError
from ..kestrel.connection import ClosedError, KestrelConnection
from ..kestrel.fetch import monitor
from ..kestrel.numbers import int32
from ..kestrel.queues import KestrelQueues
from .get import END, value_of

__all__ = ["COMMANDS"]

Command = Callable[[KestrelConnection, list[bytes]], Awaitable[None]]
_ERROR = b"ERROR\r\n"
_BYTES = ("utf-8", "surrogateescape")


def _queues(connection: KestrelConnection) -> KestrelQueues:
    if connection.queues is None:
        raise ClosedError
    return connection.queues


def _number(text: bytes, what: str) -> int:
    number = int32(text)
    if number is None:
        raise LmqError("bad_request", f"the {what} is no integer of 32 bits")
    return number


def _say(connection: KestrelConnection, tokens: list[bytes], answer: bytes) -> None:
    if tokens[-1] != b"noreply":
        connection.write(answer)


async def _monitor(connection: KestrelConnection, tokens: list[bytes]) -> None:
    if len(tokens) < 3:
        raise LmqError("bad_request", "monitor needs a queue and seconds")
    seconds = _number(tokens[2], "number of seconds")
    most = _number(tokens[3], "number of items") if len(tokens) > 3 else connection.port.open_reads_max
    queue = tokens[1]
    await monitor(connection, queue, seconds, most, lambda content: value_of(queue, content))
    connection.write(END)


async def _confirm(connection: KestrelConnection, tokens: list[bytes]) -> None:
    if len(tokens) < 3:
        connection.write(b"CLIENT_ERROR confirm needs a queue and a count\r\n")
        return
    count = _number(tokens[2], "count")
    if not 0 < count <= connection.held.count(tokens[1]):
        connection.write(_ERROR)
        return
    await connection.held.confirm(tokens[1], count)
    connection.write(END)


async def _delete(connection: KestrelConnection, tokens: list[bytes]) -> None:
    if len(tokens) < 2:
        connection.write(b"CLIENT_ERROR the name of the queue is missing\r\n")
        return
    await _queues(connection).delete(tokens[1])
    _say(connection, tokens[2:] or [b""], b"DELETED\r\n")


async def _flush(connection: KestrelConnection, tokens: list[bytes]) -> None:
    if len(tokens) < 2:
        connection.write(b"CLIENT_ERROR the name of the queue is missing\r\n")
        return
    await _queues(connection).flush(tokens[1])
    connection.write(END)


async def _flush_all(connection: KestrelConnection, tokens: list[bytes]) -> None:
    await _queues(connection).flush_all(connection.client())
    _say(connection, tokens, b"Flushed all queues.\r\n")


async def _flush_expired(connection: KestrelConnection, tokens: list[bytes]) -> None:
    if len(tokens) < 2:
        raise LmqError("bad_request", "the name of the queue is missing")
    connection.write(b"%d\r\n" % await _queues(connection).flush_expired(tokens[1]))


async def _flush_all_expired(connection: KestrelConnection, _tokens: list[bytes]) -> None:
    connection.write(b"%d\r\n" % await _queues(connection).flush_expired())


async def _stats(connection: KestrelConnection, _tokens: list[bytes]) -> None:
    _queues(connection).principal.require_role(Role.READ)
    # Statistics do not need a leader.
    await connection.port.node.service.sender.refresh()
    await connection.write_all(_stat_lines(connection))
    connection.write(END)


async def _stat_lines(connection: KestrelConnection) -> AsyncIterator[bytes]:
    node, principal = connection.port.node, _queues(connection).principal
    for name, value in (await global_stats(node)).items():
        if principal.everywhere or name not in OF_ALL_QUEUES:
            yield f"STAT {name} {value}\r\n".encode()
    async for queue in node.service.each_queue(connection.client()):
        if principal.allows(Role.READ, queue.name):
            stats = queue_stats(node, queue.name)
            yield b"".join(
                [
                    b"STAT queue_%b_%b\r\n" % (queue.name, f"{name} {value}".encode(*_BYTES))
                    for name, value in stats.items()
                ]
            )


async def _dump_stats(connection: KestrelConnection, tokens: list[bytes]) -> None:
    _queues(connection).principal.require_role(Role.READ)
    await connection.port.node.service.sender.refresh()
    await connection.write_all(_dumped(connection, tokens[1:]))
    connection.write(END)


async def _dumped(connection: KestrelConnection, wanted: list[bytes]) -> AsyncIterator[bytes]:
    """Yield the statistics of the wanted queues, or of all. A queue that the client may not read looks like an unknown one."""
    node, allows = connection.port.node, _queues(connection).principal.allows
    names = wanted or names_in_order(node.service.sender.state)
    is_empty = True
    async for queue in node.turns.each(names, connection.client()):
        is_seen = allows(Role.READ, queue)
        if is_seen or wanted:
            stats = queue_stats(node, queue) if is_seen else {}
            lines = [f"  {name}={value}\r\n".encode(*_BYTES) for name, value in stats.items()]
            is_empty = False
            yield b"queue '%b' {\r\n%b}\r\n" % (queue, b"".join(lines) or b"  \r\n")
    if is_empty:
        yield b"\r\n"


async def _version(connection: KestrelConnection, _tokens: list[bytes]) -> None:
    connection.write(f"VERSION {connection.port.node.version}\r\n".encode())


async def _status(connection: KestrelConnection, tokens: list[bytes]) -> None:
    status = connection.port.status
    if len(tokens) < 2:
        connection.write(f"{status.present.name}\r\n".encode())
        return
    _queues(connection).principal.require_all(Role.ADMIN)
    if not status.set(tokens[1].decode("latin-1")):
        raise LmqError("bad_request", "there is no such status, or it cannot be set")
    connection.write(END)


async def _refused(connection: KestrelConnection, _tokens: list[bytes]) -> None:
    """Refuse a command: a port without tokens must not offer commands that affect the cluster."""
    connection.write(_ERROR)


async def _quit(_connection: KestrelConnection, _tokens: list[bytes]) -> None:
    raise ClosedError


COMMANDS: Mapping[bytes, Command] = {
    b"monitor": _monitor,
    b"confirm": _confirm,
    b"delete": _delete,
    b"flush": _flush,
    b"flush_all": _flush_all,
    b"flush_expired": _flush_expired,
    b"flush_all_expired": _flush_all_expired,
    b"stats": _stats,
    b"dump_stats": _dump_stats,
    b"version": _version,
    b"status": _status,
    b"reload": _refused,
    b"shutdown": _refused,
    b"quit": _quit,
}
