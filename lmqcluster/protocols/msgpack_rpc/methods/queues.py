"""Methods for operations on whole queues: purge, move, withdraw, redrive, bind, unbind, suspend, resume.

Their first command is sent immediately, so they take effect in the order of the connection's requests. An operation on
more than 10,000 messages takes several commands; the answer follows the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from ....core import Role
from ....node.queues.sending import requests
from ....node.queues.sending.push_items import TEXT_BYTES_MAX
from ....wire.errors import LmqError
from ....wire.legacy_msgpack import pack
from ..connection.connection import Connection, Handler
from ..values.arguments import arity, text
from ..values.options import attribute_of, given, integer_of, label_of
from .single_commands import propose

__all__ = ["QUEUE_METHODS"]

Arguments = list[Any]
_REDRIVE_OPTIONS = frozenset((b"to", b"label", b"max"))
_Method = Callable[[Connection, Arguments], Coroutine[Any, Any, Any]]


def _operation(begin: _Method) -> Handler:
    def handler(connection: Connection, msgid: Any, arguments: Arguments) -> None:
        operation = begin(connection, arguments)
        connection.run_packed(msgid, lambda: operation)

    return handler


async def _ok(done: Coroutine[Any, Any, None]) -> str:
    await done
    return "ok"


def _purge(connection: Connection, arguments: Arguments) -> Coroutine[Any, Any, int]:
    """``purge(queue) -> count``."""
    arity(arguments, 1, 1)
    return connection.service.operations.purge(text(arguments[0]))


def _move(connection: Connection, arguments: Arguments) -> Coroutine[Any, Any, int]:
    """``move(queue, destination[, maximum]) -> count``."""
    arity(arguments, 2, 3)
    most = arguments[2] if len(arguments) == 3 else None
    if most is not None and type(most) is not int:
        raise LmqError("bad_arguments", "how many messages to move must be an integer")
    destination = _other_queue(connection, arguments[1])
    return connection.service.operations.move(text(arguments[0]), destination, most, connection.kept_for())


def _withdraw(connection: Connection, arguments: Arguments) -> Coroutine[Any, Any, int]:
    """``withdraw(queue, label[, maximum[, attribute]]) -> count``."""
    arity(arguments, 2, 4)
    most = arguments[2] if len(arguments) > 2 else None
    if most is not None and type(most) is not int:
        raise LmqError("bad_arguments", "how many messages to withdraw must be an integer")
    attribute = attribute_of(arguments[3] if len(arguments) == 4 else None)
    queue, label = text(arguments[0]), text(arguments[1])
    return connection.service.operations.withdraw(queue, label, most, attribute, connection.client())


def _redrive(connection: Connection, arguments: Arguments) -> Coroutine[Any, Any, int]:
    """``redrive(queue[, {to, label, max}]) -> count``."""
    arity(arguments, 1, 2)
    queue, options = text(arguments[0]), given(arguments[1], _REDRIVE_OPTIONS) if len(arguments) == 2 else {}
    destination = _other_queue(connection, options[b"to"]) if b"to" in options else None
    return connection.service.operations.redrive(
        queue,
        destination,
        label=label_of(options, b"label"),
        count=integer_of(options, b"max"),
        principal=connection.known_principal(),
    )


def _bind(connection: Connection, arguments: Arguments) -> Coroutine[Any, Any, bool]:
    """``bind(source, target) -> true if the binding is new``."""
    arity(arguments, 2, 2)
    source, target = text(arguments[0]), _other_queue(connection, arguments[1])
    return connection.service.operations.bind(source, target, connection.kept_for())


def _unbind(connection: Connection, arguments: Arguments) -> Coroutine[Any, Any, bool]:
    """``unbind(source, target) -> true if the binding existed``."""
    arity(arguments, 2, 2)
    source, target = text(arguments[0]), _other_queue(connection, arguments[1])
    return connection.service.operations.unbind(source, target)


def _other_queue(connection: Connection, name: Any) -> bytes:
    """Return another queue that a request names, if the client may write to it.

    Raises:
        LmqError: ``bad_arguments``, ``forbidden``.
    """
    queue = text(name)
    connection.known_principal().require(Role.WRITE, queue)
    return queue


def _bindings(connection: Connection, msgid: Any, arguments: Arguments) -> None:
    """``bindings(source) -> [target]``: the targets that the client's token covers."""
    arity(arguments, 1, 1)
    source, principal = text(arguments[0]), connection.known_principal()

    def render(_result: Any) -> bytes:
        return pack([one for one in connection.service.operations.bindings(source) if principal.covers(one)])

    propose(connection, msgid, requests.barrier(), render)


def _count_labelled(connection: Connection, msgid: Any, arguments: Arguments) -> None:
    """``count_labelled(queue, label) -> number of messages with the label that are not in flight``."""
    arity(arguments, 2, 2)
    queue, label = text(arguments[0]), text(arguments[1])
    if not 0 < len(label) <= TEXT_BYTES_MAX:
        raise LmqError("bad_request", f"a label has 1 to {TEXT_BYTES_MAX} bytes, not {len(label)}")

    def render(_result: Any) -> bytes:
        return pack(connection.service.operations.count_labelled(queue, label))

    propose(connection, msgid, requests.barrier(), render)


def _suspend(connection: Connection, arguments: Arguments) -> Coroutine[Any, Any, str]:
    """``suspend(queue) -> "ok"``."""
    arity(arguments, 1, 1)
    return _ok(connection.service.operations.suspend(text(arguments[0])))


def _resume(connection: Connection, arguments: Arguments) -> Coroutine[Any, Any, str]:
    """``resume(queue) -> "ok"``."""
    arity(arguments, 1, 1)
    return _ok(connection.service.operations.resume(text(arguments[0])))


QUEUE_METHODS: dict[bytes, Handler] = {
    b"purge": _operation(_purge),
    b"move": _operation(_move),
    b"withdraw": _operation(_withdraw),
    b"count_labelled": _count_labelled,
    b"redrive": _operation(_redrive),
    b"bind": _operation(_bind),
    b"unbind": _operation(_unbind),
    b"bindings": _bindings,
    b"suspend": _operation(_suspend),
    b"resume": _operation(_resume),
}
