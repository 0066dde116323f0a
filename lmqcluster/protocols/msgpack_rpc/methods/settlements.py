"""Methods that settle deliveries: done, release, retain and their batch forms."""

from __future__ import annotations

from typing import Any, NamedTuple

from ....core import Op
from ....node.queues.sending import requests
from ....node.queues.sending.times import lease_us, retry_delay_us
from ....wire.errors import LmqError
from ....wire.legacy_msgpack import pack
from ....wire.limits import NAME_BYTES_MAX, PULL_COUNT_MAX
from ..connection.connection import Connection, Handler
from ..values import replies
from ..values.arguments import arity, text, texts
from ..values.options import flag_of, given, place_of, seconds_of
from .single_commands import propose

__all__ = ["SETTLE_METHODS", "give_back_arguments", "lease_argument"]

Arguments = list[Any]
_OPTIONS = {Op.NACK: frozenset((b"delay", b"place")), Op.EXTEND: frozenset((b"lease",))}
_AGAIN = frozenset((b"again",))
_NONE: frozenset[bytes] = frozenset()


class _Verb(NamedTuple):
    """A command that settles deliveries, and its arguments after their numbers."""

    op: Op
    more: tuple[int, ...] = ()


def give_back_arguments(options: dict[bytes, Any]) -> tuple[int, int]:
    """Return the place and the delay of a message that is returned to its queue.

    Raises:
        LmqError: ``bad_arguments``, ``bad_request``.
    """
    return int(place_of(options)), retry_delay_us(seconds_of(options, b"delay"))


def lease_argument(options: dict[bytes, Any]) -> int | None:
    """Return the new duration of a lease in microseconds, None for the queue's timeout.

    Raises:
        LmqError: ``bad_arguments``, ``bad_request``.
    """
    lease_s = seconds_of(options, b"lease")
    return None if lease_s is None else lease_us(lease_s)


def _verb(op: Op, options: dict[bytes, Any]) -> _Verb:
    """Return the command for a method with these options.

    Raises:
        LmqError: like the functions for the arguments.
    """
    if op == Op.NACK and not options.keys().isdisjoint(_OPTIONS[op]):
        return _Verb(Op.GIVE_BACK, give_back_arguments(options))
    if op == Op.EXTEND and (own_lease_us := lease_argument(options)) is not None:
        return _Verb(Op.EXTEND_BY, (own_lease_us,))
    return _Verb(op)


def _settle(op: Op) -> Handler:
    def handler(connection: Connection, msgid: Any, arguments: Arguments) -> None:
        connection.settle(op, msgid, arguments)

    return handler


def _settle_with_options(op: Op) -> Handler:
    """``release(name, id[, {delay, place}])`` and ``retain(name, id[, {lease}])``."""

    def handler(connection: Connection, msgid: Any, arguments: Arguments) -> None:
        if len(arguments) != 3:
            connection.settle(op, msgid, arguments)
            return
        name, receipt = text(arguments[0]), text(arguments[1])
        verb = _verb(op, given(arguments[2], _OPTIONS[op]))
        if len(name) > NAME_BYTES_MAX:
            raise LmqError("queue_not_found", "no queue has such a long name")
        number = connection.service.receipts().parse(receipt)
        propose(connection, msgid, requests.settle(verb.op, name, [number], *verb.more), _render_one)

    return handler


def _render_one(settled: list[bool] | None) -> bytes:
    if settled is None:
        raise LmqError("queue_not_found", "there is no such queue")
    if not settled[0]:
        raise LmqError("not_found", "there is no such message under lease")
    return replies.OK


def _settle_many(op: Op) -> Handler:
    """Return the handler of ``done_many`` or a similar method: ``(name, [id][, {again, ...}])``.

    With *again*, the client repeats a request whose answer it has lost. A receipt that an earlier request has settled
    then gives true too, and an unknown one gives nil.
    """
    known = _OPTIONS.get(op, _NONE) | (_NONE if op == Op.EXTEND else _AGAIN)

    def handler(connection: Connection, msgid: Any, arguments: Arguments) -> None:
        arity(arguments, 2, 3)
        name, ids = text(arguments[0]), texts(arguments[1], PULL_COUNT_MAX)
        options = given(arguments[2], known) if len(arguments) == 3 else {}
        if len(arguments) == 3 and not options:
            raise LmqError("bad_arguments", "the options must be a map that says something")
        again = flag_of(options, b"again")
        verb = _verb(op, options)
        parse = connection.service.receipts().parse
        numbers = [parse(one) for one in ids]

        def render(settled: list[bool] | None) -> bytes:
            results: list[bool | None] = [*settled] if settled is not None else [False] * len(numbers)
            if again:
                settled_by = connection.service.machine().settled_by
                results = [ok or settled_by(op, name, number) for ok, number in zip(results, numbers, strict=True)]
            return pack(results)

        if len(name) > NAME_BYTES_MAX:
            connection.succeed(msgid, render(None))
            return
        propose(connection, msgid, requests.settle(verb.op, name, numbers, *verb.more), render)

    return handler


SETTLE_METHODS: dict[bytes, Handler] = {
    b"done": _settle(Op.ACK),
    b"release": _settle_with_options(Op.NACK),
    b"retain": _settle_with_options(Op.EXTEND),
    b"done_many": _settle_many(Op.ACK),
    b"release_many": _settle_many(Op.NACK),
    b"retain_many": _settle_many(Op.EXTEND),
    b"put_back_many": _settle_many(Op.PUT_BACK),
}
