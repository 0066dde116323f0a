"""Methods on sessions, exclusive queues and locks."""

from __future__ import annotations

from typing import Any

from ...core import Op
from ...node.queues.times import session_us
from ...wire.errors import LmqError
from ...wire.legacy_msgpack import pack
from ...wire.limits import NAME_BYTES_MAX
from .arguments import arity, text, wait
from .connection import Connection, Handler
from .single_commands import propose

__all__ = ["SESSION_METHODS"]

Arguments = list[Any]


def _open_session(connection: Connection, msgid: Any, arguments: Arguments) -> None:
    """``open_session(ttl) -> id``."""
    arity(arguments, 1, 1)
    service, ttl_s = connection.service, arguments[0]
    if type(ttl_s) not in (int, float):
        raise LmqError("bad_arguments", "a time to live must be a number of seconds")
    ttl_us = session_us(ttl_s)
    service.check_version(3)
    service.check_room()
    receipts = service.receipts()

    def render(number: int) -> bytes:
        return pack(receipts.format(number))

    propose(connection, msgid, [Op.OPEN_SESSION, ttl_us, *connection.owned()], 64, render)


def _on_session(op: Op) -> Handler:
    """``renew_session(id) -> bool`` and ``end_session(id) -> bool``."""

    def handler(connection: Connection, msgid: Any, arguments: Arguments) -> None:
        arity(arguments, 1, 1)
        number = session_number(connection, arguments[0])
        propose(connection, msgid, [op, number, *connection.owned()], 64, pack)

    return handler


def session_number(connection: Connection, session: Any) -> int:
    """The number of a session.

    Raises:
        LmqError: ``bad_arguments``; ``overloaded`` if some members do not know sessions yet.
    """
    connection.service.check_version(3)
    return connection.service.sessions.number(text(session))


def _leave_queue(connection: Connection, msgid: Any, arguments: Arguments) -> None:
    """``leave_queue(name, session) -> bool``."""
    arity(arguments, 2, 2)
    name, session, owner = text(arguments[0]), text(arguments[1]), connection.known_principal().owner
    connection.run_packed(msgid, lambda: connection.service.sessions.leave(name, session, owner))


def _lock(connection: Connection, msgid: Any, arguments: Arguments) -> None:
    """``lock(name, session[, wait]) -> token or nil``."""
    arity(arguments, 2, 3)
    name, session, owner = text(arguments[0]), text(arguments[1]), connection.known_principal().owner
    wait_s = wait(arguments[2]) if len(arguments) == 3 else 0.0
    sessions = connection.service.sessions
    if wait_s:
        connection.run_packed(msgid, lambda: sessions.lock(name, session, wait_s, owner))
        return
    _check_name(name)
    command = [Op.LOCK, name, session_number(connection, session), False, *connection.owned()]
    propose(connection, msgid, command, 64 + len(name), lambda token: pack(token or None))


def _unlock(connection: Connection, msgid: Any, arguments: Arguments) -> None:
    """``unlock(name, session) -> bool``."""
    arity(arguments, 2, 2)
    name = text(arguments[0])
    _check_name(name)
    command = [Op.UNLOCK, name, session_number(connection, arguments[1]), *connection.owned()]
    propose(connection, msgid, command, 64 + len(name), pack)


def _check_name(name: bytes) -> None:
    if not 0 < len(name) <= NAME_BYTES_MAX:
        raise LmqError("bad_name", f"the name of a lock must have 1 to {NAME_BYTES_MAX} bytes, this has {len(name)}")


SESSION_METHODS: dict[bytes, Handler] = {
    b"open_session": _open_session,
    b"renew_session": _on_session(Op.RENEW_SESSION),
    b"end_session": _on_session(Op.END_SESSION),
    b"leave_queue": _leave_queue,
    b"lock": _lock,
    b"unlock": _unlock,
}
