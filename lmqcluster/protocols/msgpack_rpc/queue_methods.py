"""Methods for operations on whole queues: purge, move, suspend, resume.

Their first command is sent at once, so they take effect in their place among the requests of the connection. A queue of more
than 10,000 messages takes several commands; the answer comes after the last.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from ...core import Role
from ...wire.errors import LmqError
from .arguments import arity, text
from .connection import Connection, Handler

__all__ = ["QUEUE_METHODS"]

Arguments = list[Any]
_Method = Callable[[Connection, Arguments], Coroutine[Any, Any, Any]]


def _operation(begin: _Method) -> Handler:
    def handler(connection: Connection, msgid: Any, arguments: Arguments) -> None:
        connection.slow.check()
        operation = begin(connection, arguments)
        connection.run_packed(msgid, lambda: operation)

    return handler


async def _ok(done: Coroutine[Any, Any, None]) -> str:
    await done
    return "ok"


def _purge(connection: Connection, arguments: Arguments) -> Coroutine[Any, Any, int]:
    """``purge(queue) -> how many``."""
    arity(arguments, 1, 1)
    return connection.service.operations.purge(text(arguments[0]))


def _move(connection: Connection, arguments: Arguments) -> Coroutine[Any, Any, int]:
    """``move(queue, destination[, how many at most]) -> how many``."""
    arity(arguments, 2, 3)
    most = arguments[2] if len(arguments) == 3 else None
    if most is not None and type(most) is not int:
        raise LmqError("bad_arguments", "how many messages to move must be an integer")
    destination = text(arguments[1])
    connection.known_principal().require(Role.WRITE, destination)
    return connection.service.operations.move(text(arguments[0]), destination, most, connection.kept_for())


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
    b"suspend": _operation(_suspend),
    b"resume": _operation(_resume),
}
