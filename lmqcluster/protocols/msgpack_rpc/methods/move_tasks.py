"""Methods on tasks that move the messages of a queue. Their answers may arrive in a different order than the requests."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from ....core import Role
from ....wire.errors import LmqError
from ..connection.connection import Connection, Handler
from ..values.arguments import arity, text
from ..values.options import given, integer_of

__all__ = ["MOVE_TASK_METHODS"]

Arguments = list[Any]
_Method = Callable[[Connection, Arguments], Coroutine[Any, Any, Any]]
_OPTIONS = frozenset((b"to", b"rate"))
_NUMBER_MAX = (1 << 63) - 1


def _slow(method: _Method) -> Handler:
    def handler(connection: Connection, msgid: Any, arguments: Arguments) -> None:
        connection.run_packed(msgid, lambda: method(connection, arguments))

    return handler


async def _start(connection: Connection, arguments: Arguments) -> int:
    """``start_move_task(queue[, {to, rate}]) -> number of the task``."""
    arity(arguments, 1, 2)
    source, options = text(arguments[0]), given(arguments[1], _OPTIONS) if len(arguments) == 2 else {}
    principal, destination = connection.known_principal(), text(options[b"to"]) if b"to" in options else None
    if destination is not None:
        principal.require(Role.WRITE, destination)
    return await connection.service.move_tasks.start(
        source, destination, rate=integer_of(options, b"rate"), principal=principal, client=connection.client()
    )


async def _cancel(connection: Connection, arguments: Arguments) -> int:
    """``cancel_move_task(queue, number) -> number of messages that it has moved``."""
    arity(arguments, 2, 2)
    source, number = text(arguments[0]), arguments[1]
    if type(number) is not int or not 0 <= number <= _NUMBER_MAX:
        raise LmqError("bad_arguments", "the number of a task must be an integer")
    return await connection.service.move_tasks.cancel(source, number)


async def _list(connection: Connection, arguments: Arguments) -> list[dict[str, Any]]:
    """``move_tasks(queue) -> [{number, status, moved, ...}]``: the newest first."""
    arity(arguments, 1, 1)
    source, principal = text(arguments[0]), connection.known_principal()
    return [task.row() for task in await connection.service.move_tasks.list(source, principal)]


MOVE_TASK_METHODS: dict[bytes, Handler] = {
    b"start_move_task": _slow(_start),
    b"cancel_move_task": _slow(_cancel),
    b"move_tasks": _slow(_list),
}
