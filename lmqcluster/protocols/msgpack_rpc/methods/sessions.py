"""Methods on sessions, exclusive queues and locks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....node.queues.sending import requests
from ....wire.errors import LmqError
from ....wire.legacy_msgpack import pack
from ..connection.connection import Connection, Handler
from ..values.arguments import arity, text, wait
from .single_commands import propose

__all__ = ["SESSION_METHODS"]

Arguments = list[Any]


def _open_session(connection: Connection, msgid: Any, arguments: Arguments) -> None:
    """``open_session(ttl) -> id``."""
    arity(arguments, 1, 1)
    service, ttl_s = connection.service, arguments[0]
    if type(ttl_s) not in (int, float):
        raise LmqError("bad_arguments", "a time to live must be a number of seconds")
    request = requests.open_session(service.sender, ttl_s, connection.state_owner())
    receipts = service.receipts()

    def render(number: int) -> bytes:
        return pack(receipts.format(number))

    propose(connection, msgid, request, render)


def _on_session(request: Callable[[int, bytes], requests.Request]) -> Handler:
    """``renew_session(id) -> bool`` and ``end_session(id) -> bool``."""

    def handler(connection: Connection, msgid: Any, arguments: Arguments) -> None:
        arity(arguments, 1, 1)
        number = session_number(connection, arguments[0])
        propose(connection, msgid, request(number, connection.state_owner()), pack)

    return handler


def session_number(connection: Connection, session: Any) -> int:
    """Return the number of a session.

    Raises:
        LmqError: ``bad_arguments``.
    """
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
        connection.check_memory()
        connection.run_packed(msgid, lambda: sessions.lock(name, session, wait_s, owner), waits=True)
        return
    number = session_number(connection, session)
    request = requests.lock(name, number, connection.state_owner(), waits=False)
    propose(connection, msgid, request, lambda token: pack(token or None))


def _unlock(connection: Connection, msgid: Any, arguments: Arguments) -> None:
    """``unlock(name, session) -> bool``."""
    arity(arguments, 2, 2)
    name = text(arguments[0])
    requests.check_lock_name(name)
    number = session_number(connection, arguments[1])
    propose(connection, msgid, requests.unlock(name, number, connection.state_owner()), pack)


SESSION_METHODS: dict[bytes, Handler] = {
    b"open_session": _open_session,
    b"renew_session": _on_session(requests.renew_session),
    b"end_session": _on_session(requests.end_session),
    b"leave_queue": _leave_queue,
    b"lock": _lock,
    b"unlock": _unlock,
}
