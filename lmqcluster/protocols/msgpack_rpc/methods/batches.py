"""Methods for batch leases and for peeking into queues.

Unlike the others they take several steps, so their answers may arrive in a different order than the requests.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import asdict
from itertools import groupby
from typing import Any, Final

from ....core import Role
from ....core.messages.message import Message, Meta, Part, loaded, traits_of
from ....core.state.batch_leases import STEP_MAX
from ....node.queues.batches.subscriptions import LEASE_S_MAX, SLICE_BYTES_MAX, SubscriptionInfo, Subscriptions
from ....node.queues.views.peek import PeekQuery
from ....node.queues.views.peek_ranges import RANGES_MAX, RangeWish
from ....wire.errors import LmqError
from ..connection.connection import Connection, Handler
from ..values.arguments import arity, text
from ..values.options import attribute_of, flag_of, given, integer_of

__all__ = ["BATCH_METHODS"]

_PEEK_OPTIONS: Final = frozenset((b"details", b"bodies", b"end", b"due_from", b"due_to", b"attribute"))

Arguments = list[Any]
_Method = Callable[[Subscriptions, Connection, Arguments], Coroutine[Any, Any, Any]]


def _slow(method: _Method, *, large: bool = False) -> Handler:
    def handler(connection: Connection, msgid: Any, arguments: Arguments) -> None:
        subscriptions = connection.service.subscriptions
        connection.run_packed(msgid, lambda: method(subscriptions, connection, arguments), large=large)

    return handler


async def _reserve(subscriptions: Subscriptions, connection: Connection, arguments: Arguments) -> list[Any]:
    """``reserve_batch(subscription, epoch, source, {pattern, count, lease[, session]}) -> [state, count, seconds left]``."""
    arity(arguments, 4, 4)
    options = arguments[3]
    if type(options) is not dict or set(options) - {b"session"} != {b"pattern", b"count", b"lease"}:
        raise LmqError("bad_arguments", "the options must be a map with pattern, count, lease and perhaps session")
    is_pattern = options[b"pattern"]
    if type(is_pattern) is not bool:
        raise LmqError("bad_arguments", "pattern must be true or false")
    source = _allowed(connection, Role.WRITE, text(arguments[2]), is_pattern=is_pattern)
    info = await subscriptions.reserve(
        text(arguments[0]),
        _integer(arguments[1]),
        source,
        connection.client(),
        is_pattern=is_pattern,
        count=_integer(options[b"count"]),
        lease_s=_seconds(options[b"lease"]),
        session=_session(options.get(b"session")),
        owner=connection.known_principal().owner,
    )
    return [info.state, info.count, info.expires_in_s]


async def _read(subscriptions: Subscriptions, connection: Connection, arguments: Arguments) -> dict[str, Any]:
    """``read_batch(subscription, epoch, start, count[, session[, details[, skips lost]]]) -> columns``."""
    arity(arguments, 4, 7)
    details, skips_lost = _flag(arguments, 5), _flag(arguments, 6)
    start = arguments[2]
    if type(start) is not int or start < 0:
        raise LmqError("bad_arguments", "the start must be an integer from 0 on")
    name, epoch, count = text(arguments[0]), _integer(arguments[1]), _integer(arguments[3])
    owner = connection.known_principal().owner
    read = await subscriptions.read(name, epoch, start, count, _session_at(arguments, 4), owner, skips_lost=skips_lost)
    found = read.delivered
    for queue in {queue for queue, _, _, _ in found}:
        connection.known_principal().require(Role.WRITE, queue)
    columns = _columns([message for _, _, _, message in found], details=details)
    columns["retry"] = [remaining for _, _, remaining, _ in found]
    return {
        "queue": _run_lengths(queue for queue, _, _, _ in found),
        "id": [connection.service.receipts().prefix, [number for _, number, _, _ in found]],
        "next": read.next,
        "lost": read.lost,
        **columns,
    }


async def _cut(subscriptions: Subscriptions, connection: Connection, arguments: Arguments) -> list[int]:
    """``cut_batch(subscription, epoch, parts) -> [start position of a part]``: no part boundary divides a group."""
    arity(arguments, 3, 3)
    name, epoch, parts = text(arguments[0]), _integer(arguments[1]), _integer(arguments[2])
    return await subscriptions.cut(name, epoch, parts, connection.client())


async def _incarnation(_subscriptions: Subscriptions, connection: Connection, arguments: Arguments) -> bytes:
    """``incarnation() -> string``: it changes if the cluster is restored or has lost the end of its log."""
    arity(arguments, 0, 0)
    await connection.service.sender.barrier()
    return connection.service.receipts().incarnation


async def _renew(subscriptions: Subscriptions, connection: Connection, arguments: Arguments) -> int:
    """``renew_batches(subscription, lease[, session]) -> number of live batches``."""
    arity(arguments, 2, 3)
    owner = connection.known_principal().owner
    return await subscriptions.renew(text(arguments[0]), _seconds(arguments[1]), _session_at(arguments, 2), owner)


async def _settle(subscriptions: Subscriptions, connection: Connection, arguments: Arguments) -> list[int]:
    """``settle_batches(subscription, epoch[, session]) -> [expired epoch]``."""
    arity(arguments, 2, 3)
    owner = connection.known_principal().owner
    return await subscriptions.settle(text(arguments[0]), _integer(arguments[1]), _session_at(arguments, 2), owner)


async def _abandon(subscriptions: Subscriptions, connection: Connection, arguments: Arguments) -> str:
    """``abandon_batches(subscription[, session]) -> "ok"``."""
    arity(arguments, 1, 2)
    await subscriptions.abandon(text(arguments[0]), _session_at(arguments, 1), connection.known_principal().owner)
    return "ok"


async def _claim(subscriptions: Subscriptions, connection: Connection, arguments: Arguments) -> int:
    """``claim_subscription(subscription) -> session``: all earlier sessions end."""
    arity(arguments, 1, 1)
    return await subscriptions.claim(text(arguments[0]), connection.known_principal().owner)


async def _delete(subscriptions: Subscriptions, connection: Connection, arguments: Arguments) -> str:
    """``delete_subscription(subscription) -> "ok"``, also if another consumer has claimed it or it does not exist."""
    arity(arguments, 1, 1)
    await subscriptions.delete(text(arguments[0]), connection.known_principal().ends_of)
    return "ok"


async def _subscription(subscriptions: Subscriptions, _connection: Connection, arguments: Arguments) -> Any:
    """``subscription(name)``: a map; nil if it is unknown."""
    arity(arguments, 1, 1)
    found = await subscriptions.show(text(arguments[0]))
    return None if found is None else _shown(found)


async def _subscriptions(subscriptions: Subscriptions, connection: Connection, arguments: Arguments) -> list[Any]:
    arity(arguments, 0, 0)
    found = await subscriptions.show_all(connection.client())
    allows = connection.known_principal().allows
    return [{"name": one.name, **_shown(one)} for one in found if allows(Role.READ, one.name)]


async def _backlog(subscriptions: Subscriptions, connection: Connection, arguments: Arguments) -> list[Any]:
    """``backlog(queue or pattern, is pattern[, bytes[, queues]])``: docs/messagepack-rpc-subscriptions.md lists the elements."""
    arity(arguments, 2, 4)
    if type(arguments[1]) is not bool:
        raise LmqError("bad_arguments", "whether it is a pattern must be true or false")
    source = _allowed(connection, Role.READ, text(arguments[0]), is_pattern=arguments[1])
    bytes_max = None if len(arguments) < 3 or arguments[2] is None else _integer(arguments[2])
    largest = _integer(arguments[3]) if len(arguments) == 4 else 0
    found = await subscriptions.backlog(
        source, connection.client(), is_pattern=arguments[1], bytes_max=bytes_max, largest=largest
    )
    fitting = None if bytes_max is None else found.fitting
    closed = [[one.queue, one.reason, one.messages] for one in found.closed]
    reply = [found.messages, found.oldest_due_us, fitting, found.held, closed]
    if len(arguments) < 4:
        return reply
    queues = [[one.name, one.messages, one.body_bytes, one.oldest_due_us] for one in found.largest]
    return [*reply, found.body_bytes, queues]


async def _peek(_subscriptions: Subscriptions, connection: Connection, arguments: Arguments) -> dict[str, Any]:
    """``peek(queue, count, first sequence[, options]) -> columns`` without ids, with the first sequence of the next page."""
    arity(arguments, 3, 4)
    queue, count, start = text(arguments[0]), _integer(arguments[1]), arguments[2]
    if type(start) is not int:
        raise LmqError("bad_arguments", "a sequence must be an integer")
    if count < 1:
        raise LmqError("bad_request", f"a count must be 1 or more, not {count}")
    options = given(arguments[3] if len(arguments) == 4 else {}, _PEEK_OPTIONS)
    bodies, details = flag_of(options, b"bodies", default=True), flag_of(options, b"details")
    query = PeekQuery(
        start,
        min(count, STEP_MAX),
        SLICE_BYTES_MAX,
        body_bytes_max=None if bodies else 0,
        leased=False,
        end=_bound(options, b"end", sys.maxsize),
        due_from_us=_bound(options, b"due_from", 0),
        due_to_us=_bound(options, b"due_to", sys.maxsize),
        attribute=attribute_of(options.get(b"attribute")),
    )
    await connection.service.sender.barrier()
    found, following = await connection.service.peeks.whole_page(queue, query, connection.client())
    queues = [[queue, len(found)]] if found else []
    columns = _columns(found, details=details, bodies=bodies)
    incarnation = connection.service.receipts().incarnation
    return {"queue": queues, "id": None, "next": following, "incarnation": incarnation, **columns}


async def _peek_ranges(_subscriptions: Subscriptions, connection: Connection, arguments: Arguments) -> list[int]:
    """``peek_ranges(queue, bytes of a range, minimum number of ranges) -> [sequence]``."""
    arity(arguments, 3, 3)
    queue, size, ranges_min = text(arguments[0]), _integer(arguments[1]), _integer(arguments[2])
    if size < 1 or not 0 < ranges_min <= RANGES_MAX:
        raise LmqError("bad_request", f"a range needs 1 byte or more, and there may be 1 to {RANGES_MAX:,} ranges")
    await connection.service.sender.barrier()
    return await connection.service.peek_ranges.bounds(queue, RangeWish(size, ranges_min), connection.client())


def _allowed(connection: Connection, role: Role, source: bytes, *, is_pattern: bool) -> bytes:
    """Return a queue or a pattern if the client may use it.

    Raises:
        LmqError: ``unauthorized`` or ``forbidden``.
    """
    principal = connection.known_principal()
    if is_pattern:
        principal.require_pattern(role, source)
    else:
        principal.require(role, source)
    return source


def _columns(messages: list[Message], *, details: bool, bodies: bool = True) -> dict[str, Any]:
    columns = {
        "sequence": [message.sequence for message in messages],
        "due": [message.ready_us for message in messages],
        "retry": [message.remaining for message in messages],
        "meta": _run_lengths(_meta(message.meta) for message in messages),
        "body": [_body(loaded(message.content)) for message in messages] if bodies else None,
    }
    return columns | _details(messages) if details else columns


def _body(content: bytes | list[Part]) -> bytes | list[Any]:
    return content if isinstance(content, bytes) else [[*_meta(part[:2]), part.content] for part in content]


def _details(messages: list[Message]) -> dict[str, Any]:
    traits = [traits_of(message) for message in messages]
    return {
        "delivery": [message.delivered for message in messages],
        "pushed": [message.pushed_us for message in messages],
        "priority": [one.priority for one in traits],
        "group": [one.group or None for one in traits],
        "label": [one.label or None for one in traits],
        "origin": [None if one.origin is None else list(one.origin[:-1]) for one in traits],
        "expires": [one.expires_us or None for one in traits],
    }


def _meta(meta: Meta) -> list[Any]:
    return list(meta)


def _run_lengths(values: Iterable[Any]) -> list[list[Any]]:
    return [[value, len(list(run))] for value, run in groupby(values)]


def _shown(info: SubscriptionInfo) -> dict[str, Any]:
    batches = [asdict(one) for one in info.batches]
    return {"owner": info.owner, "session": info.session, "settled": info.settled, "batches": batches}


def _integer(value: object) -> int:
    if type(value) is not int:
        raise LmqError("bad_arguments", "epochs and counts must be integers")
    return value


def _bound(options: dict[bytes, Any], name: bytes, default: int) -> int:
    value = integer_of(options, name)
    return default if value is None else value


def _flag(arguments: Arguments, position: int) -> bool:
    value = arguments[position] if len(arguments) > position else False
    if type(value) is not bool:
        raise LmqError("bad_arguments", "whether details are wanted must be true or false")
    return value


def _session(value: object) -> int | None:
    if value is not None and (type(value) is not int or value < 1):
        raise LmqError("bad_arguments", "a session is the integer that a claim gave, or nil")
    return value


def _session_at(arguments: Arguments, position: int) -> int | None:
    return _session(arguments[position]) if len(arguments) > position else None


def _seconds(value: object) -> float:
    if type(value) is not int and (type(value) is not float or not math.isfinite(value)):
        raise LmqError("bad_arguments", f"a lease must be a number of seconds, at most {LEASE_S_MAX}")
    return value


BATCH_METHODS: dict[bytes, Handler] = {
    b"reserve_batch": _slow(_reserve),
    b"read_batch": _slow(_read, large=True),
    b"cut_batch": _slow(_cut, large=True),
    b"incarnation": _slow(_incarnation),
    b"renew_batches": _slow(_renew),
    b"settle_batches": _slow(_settle),
    b"abandon_batches": _slow(_abandon),
    b"claim_subscription": _slow(_claim),
    b"delete_subscription": _slow(_delete),
    b"subscription": _slow(_subscription, large=True),
    b"subscriptions": _slow(_subscriptions, large=True),
    b"backlog": _slow(_backlog),
    b"peek": _slow(_peek, large=True),
    b"peek_ranges": _slow(_peek_ranges, large=True),
}
