"""Pulls with options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....core.log.command_layout import session_pull
from ....node.queues.pulls.unsent import unsent_in_session
from ....node.queues.sending.times import lease_us
from ....wire.errors import LmqError
from ..values.arguments import arity, text, wait
from ..values.options import flag_of, given, seconds_of
from .pullers import ManyPuller, SettlingPuller

if TYPE_CHECKING:
    from .connection import Connection

__all__ = ["pull_many", "pull_with_options"]

_OPTIONS = frozenset((b"lease", b"auto_ack", b"session", b"after"))


def pull_with_options(connection: Connection, msgid: Any, arguments: list[Any]) -> None:
    """``pull(name, timeout, {lease, auto_ack, session, after})``."""
    arity(arguments, 3, 3)
    name, wait_s, options = text(arguments[0]), wait(arguments[1]), given(arguments[2], _OPTIONS)
    _start(connection, msgid, name, (1, wait_s), options, is_many=False)


def pull_many(connection: Connection, msgid: Any, name: bytes, wanted: tuple[int, float], more: list[Any]) -> None:
    """``pull_many(name, max, timeout[, {lease, auto_ack, session, after}])``; `more` holds the options, if there are any."""
    _start(connection, msgid, name, wanted, given(more[0], _OPTIONS) if more else {}, is_many=True)


def _start(
    connection: Connection,
    msgid: Any,
    name: bytes,
    wanted: tuple[int, float],
    options: dict[bytes, Any],
    *,
    is_many: bool,
) -> None:
    settles = flag_of(options, b"auto_ack")
    if settles and not connection.is_answered(msgid):
        raise LmqError("bad_request", "a notification has no reply, so its pull must not acknowledge")
    service, puller = connection.service, SettlingPuller if settles else ManyPuller
    lease_s = seconds_of(options, b"lease")
    if b"session" in options:
        own_lease_us = 0 if lease_s is None else lease_us(lease_s)
        number = service.sessions.number(text(options[b"session"]))
        service.check_name(name, connection.kept_for())
        known = service.sessions.known(text(options[b"after"]) if b"after" in options else None)
        pull_options = session_pull(own_lease_us, number, 1, known, *connection.owned())
        answer = puller(connection, is_many=is_many, unsent=unsent_in_session(1, known))
        service.pulls.start_with(pull_options, name, (answer, msgid, *wanted))
        return
    ticket = puller(connection, is_many=is_many), msgid, *wanted
    if lease_s is None:
        service.check_name(name, connection.kept_for())
        service.receipts()
        service.pulls.start(name, ticket)
        return
    own_lease_us = lease_us(lease_s)
    service.check_name(name, connection.kept_for())
    service.receipts()
    service.pulls.start_with_lease(own_lease_us, name, ticket)
