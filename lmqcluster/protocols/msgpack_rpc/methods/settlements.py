"""Methods that settle deliveries: done, release, retain and their batch forms."""

from __future__ import annotations

from typing import Any

from ....core.log.commands import Ack, Extend, Nack, Place
from ....node.commit.proposer import PendingCommand
from ....node.queues.sending import requests
from ....node.queues.sending.command_sender import CommandSender
from ....node.queues.sending.times import lease_us, retry_delay_us
from ....wire.errors import LmqError
from ....wire.legacy_msgpack import pack
from ....wire.limits import NAME_BYTES_MAX, PULL_COUNT_MAX
from ..connection.connection import Connection, Handler
from ..values import replies
from ..values.arguments import arity, text, texts
from ..values.options import flag_of, given, place_of, reason_of, seconds_of
from .single_commands import propose

__all__ = ["SETTLE_METHODS", "lease_argument", "nack_arguments"]

Arguments = list[Any]
_Kind = type[Ack] | type[Nack] | type[Extend]
_OPTIONS: dict[_Kind, frozenset[bytes]] = {
    Nack: frozenset((b"delay", b"place", b"reason")),
    Extend: frozenset((b"lease",)),
}
_AGAIN = frozenset((b"again",))
_NONE: frozenset[bytes] = frozenset()


def nack_arguments(options: dict[bytes, Any]) -> tuple[Place, int, bytes]:
    """Return the place, the delay and the reason of a message that is returned to its queue.

    Raises:
        LmqError: ``bad_arguments``, ``bad_request``.
    """
    return place_of(options), retry_delay_us(seconds_of(options, b"delay")), reason_of(options)


def lease_argument(options: dict[bytes, Any]) -> int | None:
    """Return the new duration of a lease in microseconds, None for the queue's timeout.

    Raises:
        LmqError: ``bad_arguments``, ``bad_request``.
    """
    lease_s = seconds_of(options, b"lease")
    return None if lease_s is None else lease_us(lease_s)


def _command(
    sender: CommandSender, kind: _Kind, name: bytes, numbers: list[int], options: dict[bytes, Any]
) -> Ack | Nack | Extend:
    """Return the command of a method with these options.

    Raises:
        LmqError: like the functions for the arguments.
    """
    if kind is Nack:
        return sender.nack(name, numbers, *nack_arguments(options))
    if kind is Extend:
        return Extend(name, numbers, lease_argument(options) or 0)
    return Ack(name, numbers)


def _settle(kind: _Kind) -> Handler:
    """Return the handler of ``done(name, id)``, or of a similar method without options."""

    def handler(connection: Connection, msgid: Any, arguments: Arguments) -> None:
        arity(arguments, 2, 2)
        name, receipt = arguments
        if type(name) is not bytes or type(receipt) is not bytes:
            raise LmqError("bad_arguments", "a queue name and a message id must be strings")
        number = connection.service.receipts().parse(receipt)
        proposer, answers = connection.service.sender.proposer, connection.answers
        command = proposer.open_command(answers, kind, name, connection.last_number)
        if command is not None:
            command.numbers.append(number)
            connection.last_number = proposer.share(16, (connection, msgid))
        elif len(name) > NAME_BYTES_MAX:
            raise LmqError("queue_not_found", "no queue has such a long name")
        else:
            connection.add(PendingCommand(kind(name, [number]), [(connection, msgid)], answers), 64)

    return handler


def _settle_with_options(kind: _Kind) -> Handler:
    """``release(name, id[, {delay, place, reason}])`` and ``retain(name, id[, {lease}])``."""
    settle = _settle(kind)

    def handler(connection: Connection, msgid: Any, arguments: Arguments) -> None:
        if len(arguments) != 3:
            settle(connection, msgid, arguments)
            return
        name, receipt = text(arguments[0]), text(arguments[1])
        options = given(arguments[2], _OPTIONS[kind])
        command = _command(connection.service.sender, kind, name, [], options)
        if len(name) > NAME_BYTES_MAX:
            raise LmqError("queue_not_found", "no queue has such a long name")
        command.numbers.append(connection.service.receipts().parse(receipt))
        propose(connection, msgid, requests.settle(command), _render_one)

    return handler


def _render_one(settled: list[bool] | None) -> bytes:
    if settled is None:
        raise LmqError("queue_not_found", "there is no such queue")
    if not settled[0]:
        raise LmqError("not_found", "there is no such message under lease")
    return replies.OK


def _settle_many(kind: _Kind, *, undoes: bool = False) -> Handler:
    """Return the handler of ``done_many`` or a similar method: ``(name, [id][, {again, ...}])``.

    With *again*, the client repeats a request whose answer it has lost. A receipt that an earlier request has settled
    then gives true too, and an unknown one gives nil.
    """
    known = (_NONE if undoes else _OPTIONS.get(kind, _NONE)) | (_NONE if kind is Extend else _AGAIN)

    def handler(connection: Connection, msgid: Any, arguments: Arguments) -> None:
        arity(arguments, 2, 3)
        name, ids = text(arguments[0]), texts(arguments[1], PULL_COUNT_MAX)
        options = given(arguments[2], known) if len(arguments) == 3 else {}
        if len(arguments) == 3 and not options:
            raise LmqError("bad_arguments", "the options must be a map that says something")
        again = flag_of(options, b"again")
        parse = connection.service.receipts().parse
        numbers = [parse(one) for one in ids]
        sender = connection.service.sender
        command = Nack(name, numbers, undoes=True) if undoes else _command(sender, kind, name, numbers, options)

        def render(settled: list[bool] | None) -> bytes:
            results: list[bool | None] = [*settled] if settled is not None else [False] * len(numbers)
            if again and not isinstance(command, Extend):
                is_repeated = sender.state().is_repeated
                results = [ok or is_repeated(command, number) for ok, number in zip(results, numbers, strict=True)]
            return pack(results)

        if len(name) > NAME_BYTES_MAX:
            connection.succeed(msgid, render(None))
            return
        propose(connection, msgid, requests.settle(command), render)

    return handler


SETTLE_METHODS: dict[bytes, Handler] = {
    b"done": _settle(Ack),
    b"release": _settle_with_options(Nack),
    b"retain": _settle_with_options(Extend),
    b"done_many": _settle_many(Ack),
    b"release_many": _settle_many(Nack),
    b"retain_many": _settle_many(Extend),
    b"put_back_many": _settle_many(Nack, undoes=True),
}
